//! `windlass.dev/when-unschedulable: terminate-first`: on a full cluster an old pod makes room for the new one.

use std::time::Duration;

use jiff::Timestamp;

use super::course::{Course, Limits, serving};
use super::observed::available;
use super::{Observed, ReplicaSets};
use crate::model::{Deployment, Pod, ReplicaSet, Strategy};
use crate::plan::EventNote;
use crate::plan::policy::State;
use crate::plan::policy::steps::{after, whole};

/// How long a surge pod has to be unschedulable until an old pod goes first, and how long it may stay so after that.
const UNSCHEDULABLE: Duration = Duration::from_secs(30);
const UNHELPFUL: Duration = Duration::from_secs(60);

impl Course {
    /// Goes on with an old pod that was terminated first, or takes it back.
    pub(super) fn terminate_first(
        &mut self,
        observed: &Observed<'_>,
        replica_sets: &ReplicaSets,
        state: &mut State,
    ) {
        let Observed { deployment, policy, now, .. } = observed;
        let (_, unavailable) = deployment.budget();
        let Some(new) = replica_sets.new.as_ref().filter(|_| policy.terminates_first && unavailable == 0)
        else {
            return;
        };
        if self.target.is_some() {
            return;
        }
        if state.unhelpful {
            self.give_back(deployment, new, replica_sets);
            return;
        }
        if state.terminated_first.is_none() {
            return;
        }
        if all_have_nodes(observed, new) {
            // The next pod that fits nowhere waits for its own time.
            (state.terminated_first, state.gone) = (None, None);
            return;
        }
        // The room that the old pod leaves is for the pod that waits, not for one more.
        self.keep_size(new);
        if unschedulable_since(observed, replica_sets).is_none() {
            state.gone = None;
            return;
        }
        let are_gone = replica_sets.old.iter().all(|old| {
            old.status.replicas <= old.replicas
                && old.status.observed_generation == old.meta.generation
                && observed.terminating.get(&old.meta.uid).is_none_or(|pods| *pods == 0)
        });
        if are_gone && state.gone.is_none() {
            state.gone = Some(whole(*now));
        }
        let Some(gone) = state.gone else { return };
        let at = after(gone, UNHELPFUL);
        if at > *now {
            self.wake(at);
            return;
        }
        state.unhelpful = true;
        let message = "The new pod fits no node though an old pod has made room: the old pod comes back";
        self.notes.push(EventNote::warning("TerminatedFirst", message.to_owned()));
        self.give_back(deployment, new, replica_sets);
    }

    /// The ReplicaSet that serves gets its pod back, before the new one gets another.
    fn give_back(&mut self, deployment: &Deployment, new: &ReplicaSet, replica_sets: &ReplicaSets) {
        if available(new) < new.replicas {
            self.limits.new_most = Some(new.replicas.into());
        }
        let missing = i64::from(deployment.replicas) - i64::from(available(new));
        self.limits.old_least = self.limits.old_least.max(missing);
        let serving = || serving(replica_sets).map(|old| old.meta.uid.clone());
        self.limits.serving = self.limits.serving.take().or_else(serving);
    }

    /// The limits under which an old pod may be terminated first: where the plan has no resize left and a surge pod has fitted no
    /// node for long enough. No second goes before the new pod has a node.
    pub(super) fn lowered(&mut self, observed: &Observed<'_>, replica_sets: &ReplicaSets) -> Option<Limits> {
        let (_, unavailable) = observed.deployment.budget();
        let state = self.state.as_ref()?;
        let is_open = !state.unhelpful && state.terminated_first.is_none() && self.target.is_none();
        if !observed.policy.terminates_first || unavailable > 0 || !is_open {
            return None;
        }
        let at = after(unschedulable_since(observed, replica_sets)?, UNSCHEDULABLE);
        if at > observed.now {
            self.wake(at);
            return None;
        }
        let mut lowered = Course { limits: Limits { below: 1, ..self.limits.clone() }, ..Course::default() };
        replica_sets.new.iter().for_each(|new| lowered.keep_size(new));
        Some(lowered.limits)
    }

    /// The scheduler's message about the first new pod that fits no node, where no old pod may go before it, or one has gone in
    /// vain.
    pub(super) fn unfit(&self, observed: &Observed<'_>, replica_sets: &ReplicaSets) -> Option<String> {
        let (_, unavailable) = observed.deployment.budget();
        let is_tried =
            observed.policy.terminates_first && !self.state.as_ref().is_some_and(|state| state.unhelpful);
        let new = replica_sets.new.as_ref().filter(|_| unavailable == 0 && !is_tried)?;
        if !moves_pods(observed, replica_sets) {
            return None;
        }
        let pods = observed.awaited_pods.get(&new.meta.uid)?;
        let unfit = pods.iter().find(|pod| pod.is_active() && is_unschedulable(pod))?;
        Some(unfit.waiting.as_ref()?.message.as_deref().unwrap_or("no message").to_owned())
    }

    /// The new ReplicaSet does not grow.
    fn keep_size(&mut self, new: &ReplicaSet) {
        let size = i64::from(new.replicas);
        self.limits.new_most = Some(self.limits.new_most.map_or(size, |most| most.min(size)));
    }

    /// An old pod is terminated first in this plan.
    pub(super) fn terminates_one(&mut self, now: Timestamp) {
        let Some(state) = self.state.as_mut() else { return };
        (state.terminated_first, state.gone) = (Some(whole(now)), None);
        let message = "The new pod fits no node and maxUnavailable is 0: an old pod is deleted first, as \
                       windlass.dev/when-unschedulable asks";
        self.notes.push(EventNote::normal("TerminatedFirst", message.to_owned()));
    }
}

/// Whether every pod that the new ReplicaSet lacks exists and has a node.
fn all_have_nodes(observed: &Observed<'_>, new: &ReplicaSet) -> bool {
    let missing = i64::from(new.replicas) - i64::from(available(new));
    let awaited = observed.awaited_pods.get(&new.meta.uid).into_iter().flatten();
    let placed = awaited.filter(|pod| pod.is_active() && pod.node().is_some()).count();
    i64::try_from(placed).is_ok_and(|placed| placed >= missing)
}

/// Since when the first new pod fits no node, for want of what an ended pod of the Deployment could give back.
fn unschedulable_since(observed: &Observed<'_>, replica_sets: &ReplicaSets) -> Option<Timestamp> {
    let new = replica_sets.new.as_ref().filter(|_| moves_pods(observed, replica_sets))?;
    let pods = observed.awaited_pods.get(&new.meta.uid)?;
    let unfit = pods.iter().filter(|pod| pod.is_active() && is_unschedulable(pod));
    let waiting = unfit.filter_map(|pod| pod.waiting.as_deref());
    let short = waiting.filter(|waiting| {
        let said = waiting.message.as_deref().unwrap_or("");
        let can_help = ["Insufficient ", "free ports", "anti-affinity"];
        can_help.iter().any(|word| said.contains(word))
    });
    short.filter_map(|waiting| waiting.since).min()
}

/// Whether a rolling update has old pods left.
fn moves_pods(observed: &Observed<'_>, replica_sets: &ReplicaSets) -> bool {
    matches!(observed.deployment.strategy, Strategy::RollingUpdate { .. })
        && replica_sets.old.iter().any(|old| old.replicas > 0)
}

fn is_unschedulable(pod: &Pod) -> bool {
    pod.node().is_none() && pod.waiting.as_ref().is_some_and(|waiting| &*waiting.reason == "Unschedulable")
}
