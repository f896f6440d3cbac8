//! `windlass.dev/when-unschedulable: terminate-first`: on a full cluster an old pod makes room for the new one.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::course::{Course, Limits, UnfitStep, serving};
use super::observed::available;
use super::revision::revision_of;
use super::{Observed, ReplicaSets};
use crate::model::{Deployment, ReplicaSet, Strategy, Waiting};
use crate::plan::EventNote;
use crate::plan::policy::State;
use crate::plan::policy::state::state_of;
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
        let old: i64 = replica_sets.old.iter().map(|old| i64::from(old.replicas)).sum();
        if old + i64::from(available(new)) >= deployment.replicas.into() {
            // No pod is missing: a new one is available, or none was taken. The next that fits nowhere waits for its own time.
            (state.terminated_first, state.gone) = (None, None);
            return;
        }
        // The room that the old pod leaves is for the pod that waits, not for one more.
        self.limits.keep_size(new);
        // Whatever it lacks now, and though no old pod may be left.
        if unfit_pods(observed, new).next().is_none() {
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
            self.unfit_step = Some(UnfitStep::GiveBack(at));
            return;
        }
        state.unhelpful = true;
        let message = "The new pod fits no node though an old pod has made room: the old pod comes back";
        self.notes.push(EventNote::warning("TerminatedFirst", message.to_owned()));
        self.give_back(deployment, new, replica_sets);
        // That pod may have been the last: then no ReplicaSet serves, and the last proven one gets it back.
        let rank = |old: &&Arc<ReplicaSet>| (state_of(old).completed.is_some(), revision_of(old));
        let last = || replica_sets.old.iter().max_by_key(rank).map(|old| old.meta.uid.clone());
        self.limits.serving = self.limits.serving.take().or_else(last);
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
            self.unfit_step = Some(UnfitStep::Terminate(at));
            return None;
        }
        let mut lowered = Limits { below: 1, ..self.limits.clone() };
        replica_sets.new.iter().for_each(|new| lowered.keep_size(new));
        Some(lowered)
    }

    /// The sentence about the first new pod that fits no node, where no old pod may go before it, or one has gone in vain.
    pub(super) fn unfit(&self, observed: &Observed<'_>, replica_sets: &ReplicaSets) -> Option<String> {
        let Observed { deployment, policy, .. } = observed;
        let went_in_vain = self.state.as_ref().is_some_and(|state| state.unhelpful);
        let (_, unavailable) = deployment.budget();
        let new = replica_sets.new.as_ref().filter(|_| unavailable == 0)?;
        if !moves_pods(observed, replica_sets) || (policy.terminates_first && !went_in_vain) {
            return None;
        }
        let said = unfit_pods(observed, new).next()?.message.as_deref().unwrap_or("no message");
        let then = match (policy.is_off, policy.terminates_first) {
            (_, true) => "an old pod has made room in vain: the rollout waits until a node has room",
            (true, _) => "maxUnavailable is 0: the rollout cannot proceed. Set maxUnavailable: 1",
            (false, _) => {
                "maxUnavailable is 0: the rollout cannot proceed. Set maxUnavailable: 1, or annotate \
                 windlass.dev/when-unschedulable=terminate-first"
            }
        };
        Some(format!("The surge pod fits no node ({}); {then}", said.trim_end_matches('.')))
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

impl Limits {
    /// The new ReplicaSet does not grow.
    fn keep_size(&mut self, new: &ReplicaSet) {
        let size = i64::from(new.replicas);
        self.new_most = Some(self.new_most.map_or(size, |most| most.min(size)));
    }
}

/// The new pods that fit no node, as the scheduler reports it.
fn unfit_pods<'a>(
    observed: &'a Observed<'_>,
    new: &ReplicaSet,
) -> impl Iterator<Item = &'a Waiting> + use<'a> {
    let awaited = observed.awaited_pods.get(&new.meta.uid).into_iter().flatten();
    let unbound = awaited.filter(|pod| pod.is_active() && pod.node().is_none());
    unbound.filter_map(|pod| pod.waiting.as_deref()).filter(|waiting| &*waiting.reason == "Unschedulable")
}

/// Since when the first new pod fits no node, for want of what an ended pod of the Deployment could give back.
fn unschedulable_since(observed: &Observed<'_>, replica_sets: &ReplicaSets) -> Option<Timestamp> {
    let new = replica_sets.new.as_ref().filter(|_| moves_pods(observed, replica_sets))?;
    unfit_pods(observed, new).filter(|waiting| waiting.lacks_room).filter_map(|waiting| waiting.since).min()
}

/// Whether a rolling update has old pods left.
fn moves_pods(observed: &Observed<'_>, replica_sets: &ReplicaSets) -> bool {
    matches!(observed.deployment.strategy, Strategy::RollingUpdate { .. })
        && replica_sets.old.iter().any(|old| old.replicas > 0)
}
