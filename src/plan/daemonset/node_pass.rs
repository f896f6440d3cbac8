//! One pass over the nodes: the needs of each, and then what the budget of the rollout allows.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::course::{self, Course, NodeCounts};
use super::members::PodsOfNode;
use super::node_decision::{Context, NodeState, decide};
use super::placement::Verdict;
use super::revisions::History;
use super::rolling::{self, Budget, Outdated, Tally};
use super::status::Counts;
use super::{BURST, Deletion, Observed, Reason};
use crate::model::Pod;

/// How often to look whether pods that cannot be decoded are gone: their deletion wakes nobody.
const UNREADABLE: SignedDuration = SignedDuration::from_secs(120);

/// The result of a pass over the nodes.
#[derive(Clone, Debug, Default)]
pub struct NodePass {
    /// Nodes on which a pod is created.
    pub create: Vec<Arc<str>>,
    /// Pods that are deleted.
    pub delete: Vec<Deletion>,
    /// The counts of the rollout.
    pub tally: Tally,
    /// The bounds of the rollout; `None` under OnDelete.
    pub budget: Option<Budget>,
    /// Available old pods that must stay until others are available.
    pub staying: usize,
    /// Live pods of an older template, on any node.
    pub outdated: usize,
    /// The counts of the status.
    pub counts: Counts,
    /// Nodes whose failed pods are not replaced yet, and until when.
    pub backs_off: Vec<(Arc<str>, Timestamp)>,
    /// When the next sync is due.
    pub requeue_after: Option<Timestamp>,
    /// The course under the DaemonSet's policy.
    pub course: Course,
    /// Nodes that are not ready and that the update leaves alone.
    pub left_alone: Vec<Arc<str>>,
}

impl NodePass {
    /// Visits `places`, every node that should run a pod or has one.
    pub fn of(observed: &Observed<'_>, history: &History<'_>, places: &[PodsOfNode<'_>]) -> Self {
        let Observed { daemon_set, members, maybe_deleted, backoff, refused, unreadable_pods, now, .. } =
            observed;
        let is_blind = *unreadable_pods > 0;
        let context = Context { daemon_set, history, maybe_deleted, backoff, now: *now };
        let mut pass = NodePass::default();
        let (mut outdated, mut lacking, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        let mut nodes = (!observed.policy.is_off && !observed.policy.is_absent()).then(NodeCounts::default);
        let unbound =
            members.without_target.iter().filter(|pod| pod.node().is_none() && !pod.meta.is_deleting());
        pass.schedule_deletions(unbound.map(|pod| Deletion::of(pod, Reason::NoNode)));
        for &place in places {
            let decision = decide(context, place);
            pass.counts.add(context, place);
            let is_left_alone = course::leaves_alone(observed, history, place, decision.class);
            if let Some(nodes) = &mut nodes {
                nodes.add(context, place, decision.class, is_left_alone);
            }
            if is_left_alone {
                pass.tally.leave_alone(place.verdict, decision.class);
                pass.left_alone.push(place.node.clone());
            } else {
                pass.tally.add(place.verdict, decision.class);
            }
            pass.backs_off.extend(decision.backs_off_until.map(|until| (place.node.clone(), until)));
            match decision.class {
                NodeState::Old { .. } if is_left_alone => pass.outdated += 1,
                NodeState::Old { pod, is_available } => {
                    let runs = place.verdict == Some(Verdict::Run);
                    outdated.push(Outdated { node: place.node, should_run: runs, pod, is_available });
                }
                NodeState::OldBesideNew { .. } => pass.outdated += 1,
                NodeState::Gone
                | NodeState::Missing
                | NodeState::Surplus
                | NodeState::OldBesideAvailableNew
                | NodeState::New { .. } => {}
            }
            if decision.create {
                lacking.push(place.node);
            }
            let (stay, go): (Vec<_>, Vec<_>) = decision
                .delete
                .into_iter()
                .partition(|deletion| decision.create && deletion.pod.is_terminal());
            ended.extend(stay);
            pass.schedule_deletions(go);
        }
        if !refused.is_empty() {
            // A node whose pod is always refused must not keep the others from getting theirs.
            lacking.sort_by_key(|node| refused.times(daemon_set.meta.generation, node));
        }
        let later: BTreeSet<&Arc<str>> =
            lacking.split_off(if is_blind { 0 } else { lacking.len().min(BURST) }).into_iter().collect();
        pass.create = lacking.into_iter().cloned().collect();
        // An ended pod stays until it is replaced: its deletion removes its name and its messages.
        let is_later = |pod: &Pod| pod.target().is_some_and(|node| later.contains(node));
        pass.schedule_deletions(ended.into_iter().filter(|deletion| !is_later(&deletion.pod)));
        pass.outdated += outdated.len();
        pass.budget = Budget::of(daemon_set, &pass.tally);
        pass.course = Course::of(observed, history, &nodes.unwrap_or_default());
        if let Some(budget) = pass.budget.filter(|_| !is_blind) {
            let outdated = pass.course.admit(&history.hash, outdated);
            let step = rolling::step(&history.hash, &pass.tally, budget, outdated);
            let room = BURST.saturating_sub(pass.create.len());
            pass.create.extend(step.create.into_iter().take(room).cloned());
            pass.schedule_deletions(step.delete);
            pass.staying = step.staying;
        }
        let deadlines = pass.backs_off.iter().map(|(_, until)| *until);
        let look_again = is_blind.then(|| *now + UNREADABLE);
        let course = pass.course.wakes_at.filter(|at| *at > *now);
        pass.requeue_after =
            deadlines.chain(pass.counts.next_available).chain(look_again).chain(course).min();
        pass
    }

    fn schedule_deletions(&mut self, pods: impl IntoIterator<Item = Deletion>) {
        let room = BURST.saturating_sub(self.delete.len());
        self.delete.extend(pods.into_iter().take(room));
    }
}
