//! The status of a DaemonSet (upstream: `updateDaemonSetStatus`).

use std::sync::Arc;

use jiff::Timestamp;

use super::Plan;
use super::members::PodsOfNode;
use super::node_decision::Context;
use super::placement::Verdict;
use crate::model::int_or_percent::clamp;
use crate::model::{DaemonSet, DaemonSetStatus, Pod};
use crate::plan::Urgency;

/// The numbers of a status. Each node adds its part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    desired: i64,
    current: i64,
    misscheduled: i64,
    updated: i64,
    ready: i64,
    available: i64,
    /// When the next ready pod will have been ready for `minReadySeconds`.
    pub next_available: Option<Timestamp>,
}

/// The pod that represents a node: the new one if it is available; else the first that is not being deleted; else the
/// first. Upstream takes the first in any case. It reports an old pod that is being deleted as ready
/// (kubernetes#51278), and a node that has its new pod as out of date (kubernetes#122527).
fn representative<'a>(context: Context<'_>, pods: &'a [Arc<Pod>]) -> Option<&'a Arc<Pod>> {
    let live = || pods.iter().filter(|pod| !pod.meta.is_deleting());
    let is_replaced = |pod: &&Arc<Pod>| context.history.is_new(pod) && context.is_available(pod);
    live().find(is_replaced).or_else(|| live().next()).or_else(|| pods.first())
}

impl Counts {
    /// Counts a node. Deleted nodes do not count.
    pub fn add(&mut self, context: Context<'_>, place: PodsOfNode<'_>) {
        let Context { daemon_set, history, now, .. } = context;
        let Some(verdict) = place.verdict else { return };
        let soon = place.pods.iter().filter(|pod| !pod.meta.is_deleting());
        let soon =
            soon.filter_map(|pod| pod.available_at(daemon_set.min_ready_seconds)).filter(|at| *at > now);
        self.next_available = self.next_available.into_iter().chain(soon).min();
        let Some(pod) = representative(context, place.pods) else {
            self.desired += i64::from(verdict == Verdict::Run);
            return;
        };
        if verdict != Verdict::Run {
            self.misscheduled += 1;
            return;
        }
        self.desired += 1;
        self.current += 1;
        self.updated += i64::from(history.is_new(pod));
        if !pod.meta.is_deleting() && pod.ready_since.is_some() {
            self.ready += 1;
            self.available += i64::from(context.is_available(pod));
        }
    }

    /// Whether every node that should run a pod has one that is new and available, and no other node has any.
    pub fn is_complete(&self) -> bool {
        [self.current, self.updated, self.available].iter().all(|count| *count == self.desired)
            && self.misscheduled == 0
    }

    /// The status of a sync that acts on the generation that it observed.
    pub fn status(&self, daemon_set: &DaemonSet) -> DaemonSetStatus {
        DaemonSetStatus {
            observed_generation: daemon_set.meta.generation,
            desired: clamp(self.desired),
            current: clamp(self.current),
            misscheduled: clamp(self.misscheduled),
            updated: clamp(self.updated),
            ready: clamp(self.ready),
            available: clamp(self.available),
            unavailable: clamp(self.desired - self.available),
            collision_count: daemon_set.status.collision_count,
            conditions: daemon_set.status.conditions.clone(),
        }
    }
}

/// Keeps `observedGeneration`, where the sync ended with an error of unknown outcome: a lost reply, a conflict, a
/// taken name. The step is retried, and only then has the generation been acted on. A refused step advances it, as
/// upstream does.
pub fn hold_generation(daemon_set: &DaemonSet, after: &mut DaemonSetStatus) {
    after.observed_generation = daemon_set.status.observed_generation.min(daemon_set.meta.generation);
}

/// The outcome of a plan, as far as the status depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The `collisionCount` after the name of a new revision was found taken.
    pub collision: Option<i32>,
    /// Whether the plan ended with an error of unknown outcome.
    pub is_open: bool,
}

/// The status after the execution of a plan.
pub fn settled(daemon_set: &DaemonSet, plan: &Plan, outcome: Outcome) -> DaemonSetStatus {
    let mut after = match &plan.status {
        None => daemon_set.status.clone(),
        Some(planned) => {
            let mut after = planned.clone();
            if outcome.is_open || outcome.collision.is_some() {
                hold_generation(daemon_set, &mut after);
            }
            after
        }
    };
    after.collision_count = outcome.collision.or(after.collision_count);
    after
}

/// Whether a status says that the rollout is done: as kubectl's `DaemonSetStatusViewer`, which does not ask for `current`.
pub fn is_rolled_out(daemon_set: &DaemonSet, status: &DaemonSetStatus) -> bool {
    status.observed_generation >= daemon_set.meta.generation && is_over(status)
}

fn is_over(status: &DaemonSetStatus) -> bool {
    [status.current, status.updated, status.available].iter().all(|count| *count == status.desired)
}

/// How soon the status must be written: at once for what others wait for (a generation is observed, a rollout is
/// complete, a revision needs a new name, a condition has another reason); else within a second.
pub fn urgency(before: &DaemonSetStatus, after: &DaemonSetStatus) -> Urgency {
    let reasons = |status: &DaemonSetStatus| -> Vec<_> {
        status.conditions.iter().map(|condition| condition.reason.clone()).collect()
    };
    let is_urgent = before.observed_generation != after.observed_generation
        || before.collision_count != after.collision_count
        || reasons(before) != reasons(after)
        || is_over(after);
    if is_urgent { Urgency::Immediate } else { Urgency::Throttled }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};

    #[test]
    fn a_sync_without_an_outcome_does_not_claim_its_generation() {
        let json = r#"{"metadata":{"name":"agent","namespace":"ops","uid":"u","resourceVersion":"1","generation":7},
            "spec":{},"status":{"observedGeneration":5,"collisionCount":3,"numberUnavailable":9}}"#;
        let mut daemon_set = DaemonSet::decode(json, &mut Interner::default()).unwrap();
        let counts = Counts { desired: 4, current: 3, available: 1, ready: 2, ..Counts::default() };
        let mut status = counts.status(&daemon_set);
        assert_eq!((status.observed_generation, status.unavailable, status.collision_count), (7, 3, Some(3)));
        hold_generation(&daemon_set, &mut status);
        assert_eq!(status.observed_generation, 5);
        // A generation that is too high was written by another client.
        daemon_set.status.observed_generation = 99;
        hold_generation(&daemon_set, &mut status);
        assert_eq!(status.observed_generation, 7);
        assert!(!counts.is_complete() && Counts::default().is_complete());
    }

    fn status(observed_generation: i64, updated: i32, available: i32) -> DaemonSetStatus {
        let unavailable = 3 - available;
        DaemonSetStatus {
            observed_generation,
            desired: 3,
            current: 3,
            updated,
            available,
            unavailable,
            ..Default::default()
        }
    }

    #[test]
    fn a_collision_is_reported_and_claims_no_generation() {
        let json = r#"{"metadata":{"name":"agent","namespace":"ops","uid":"u","resourceVersion":"1","generation":7},
            "spec":{},"status":{"observedGeneration":6,"numberReady":2}}"#;
        let daemon_set = DaemonSet::decode(json, &mut Interner::default()).unwrap();
        let planned = Plan { status: Some(status(7, 1, 1)), ..Plan::default() };
        let of = |plan: &Plan, collision, is_open| settled(&daemon_set, plan, Outcome { collision, is_open });
        assert_eq!(of(&planned, None, false), status(7, 1, 1));
        assert_eq!(of(&planned, None, true), status(6, 1, 1));
        assert_eq!(
            of(&planned, Some(4), false),
            DaemonSetStatus { collision_count: Some(4), ..status(6, 1, 1) }
        );
        assert_eq!(of(&Plan::default(), None, true), daemon_set.status, "nothing to say");
    }

    #[test]
    fn a_rollout_that_is_over_and_a_generation_that_is_seen_are_reported_at_once() {
        assert_eq!(urgency(&status(1, 1, 2), &status(1, 2, 2)), Urgency::Throttled);
        assert_eq!(urgency(&status(1, 2, 2), &status(1, 3, 3)), Urgency::Immediate);
        assert_eq!(urgency(&status(1, 3, 3), &status(2, 0, 3)), Urgency::Immediate);
        let collided = DaemonSetStatus { collision_count: Some(1), ..status(1, 1, 2) };
        assert_eq!(urgency(&status(1, 1, 2), &collided), Urgency::Immediate);
    }
}
