//! The state of rollouts, for the metrics and the log: when they start, have a first pod, end, or get stuck.
//!
//! The same events are log lines, each once: a rollout that is stuck, with the reasons of the plan, and one that is complete.
//!
//! All of it is read off the `Progressing` condition as it changes, and counted when the change has been
//! written. So a restart counts nothing twice: a condition that is in the status already is no change. Unknown times
//! are not guessed: of a rollout that an earlier daemon began, the creation of its ReplicaSet is the start only if
//! nothing has happened since that would make it the ReplicaSet of another rollout.
//!
//! The limits: a Deployment without a progress deadline has no such condition, so nothing of it is
//! counted. A daemon that is killed between the write and the count loses one.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::metrics::{WorkloadMetrics, set_gauge};
use crate::model::{Condition, Deployment, DeploymentStatus, ReplicaSet, Uid, condition};
use crate::plan::deployment::progress::{
    CREATE_ERROR, NEW_REPLICA_SET_AVAILABLE, NEW_REPLICA_SET_CREATED, NEW_REPLICA_SET_FOUND, PROGRESSING,
    REPLICA_SET_UPDATED, TIMED_OUT,
};
use crate::plan::deployment::revision::REVISION_HISTORY;
use crate::runtime::store::Store;

/// An event of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutEvent {
    /// It began: its ReplicaSet was created, or found.
    Started,
    /// The first new pod is available.
    FirstAvailable {
        /// Since the beginning.
        after: Duration,
    },
    /// All pods are new and available.
    Finished {
        /// Since the beginning; `None` where that is not known.
        duration: Option<Duration>,
    },
    /// It was found stuck.
    Failed {
        /// The condition's reason.
        reason: &'static str,
    },
}

/// The new ReplicaSet, as far as a rollout's times depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReplicaSet {
    /// When it was created.
    pub created: Timestamp,
    /// It was the current one before, so its creation began another rollout.
    pub reused: bool,
    /// One of its pods is available.
    pub available: bool,
}

impl From<&ReplicaSet> for NewReplicaSet {
    fn from(replica_set: &ReplicaSet) -> Self {
        NewReplicaSet {
            created: replica_set.meta.created,
            reused: replica_set.annotations.get(REVISION_HISTORY).is_some(),
            available: replica_set.status.available > 0,
        }
    }
}

/// The state of one Deployment's rollout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Track {
    /// None is under way.
    #[default]
    Quiet,
    /// One is.
    Rolling {
        /// When it began, if that is known.
        started: Option<Timestamp>,
        /// No new pod has been available yet.
        waits: bool,
    },
}

/// A condition that began later than its ReplicaSet by more than this shows that something happened in between.
const SLACK: SignedDuration = SignedDuration::from_secs(5);

impl Track {
    /// The state of a Deployment that is seen for the first time, as after a restart.
    fn first_sight(before: Option<&Condition>, new: impl FnOnce() -> Option<NewReplicaSet>) -> Self {
        let Some(before) = before else { return Track::Quiet };
        let under_way =
            [NEW_REPLICA_SET_CREATED, NEW_REPLICA_SET_FOUND, REPLICA_SET_UPDATED, TIMED_OUT, CREATE_ERROR];
        if !under_way.contains(&&*before.reason) {
            return Track::Quiet;
        }
        let Some(new) = new() else { return Track::Rolling { started: None, waits: false } };
        // A pause, or having been stuck, moves the time of the transition.
        let undisturbed = before
            .last_transition
            .is_some_and(|at| new.created.saturating_add(SLACK).is_ok_and(|latest| at <= latest));
        let started = (undisturbed && !new.reused).then_some(new.created);
        Track::Rolling { started, waits: !new.available }
    }

    /// Advances from one status to the next, and returns the events.
    fn advance(
        &mut self,
        before: Option<&Condition>,
        after: Option<&Condition>,
        new: impl FnOnce() -> Option<NewReplicaSet>,
        now: Timestamp,
    ) -> Vec<RolloutEvent> {
        let mut events = Vec::new();
        let since = |start: Timestamp| Duration::try_from(now.duration_since(start)).unwrap_or_default();
        let was = before.map_or("", |condition| &*condition.reason);
        let is = after.map_or("", |condition| &*condition.reason);
        let says = |condition: Option<&Condition>| condition.map(|c| (c.reason.clone(), c.message.clone()));
        if [NEW_REPLICA_SET_CREATED, NEW_REPLICA_SET_FOUND].contains(&is) && says(before) != says(after) {
            events.push(RolloutEvent::Started);
            // An existing ReplicaSet may have pods already: its first pod is not the result of this rollout.
            let waits = is == NEW_REPLICA_SET_CREATED || new().is_some_and(|new| !new.available);
            *self = Track::Rolling { started: Some(now), waits };
            return events;
        }
        if let Track::Rolling { started, waits } = self
            && *waits
            && new().is_some_and(|new| new.available)
        {
            *waits = false;
            events.extend(started.map(|start| RolloutEvent::FirstAvailable { after: since(start) }));
        }
        let stuck = STUCK.into_iter().find(|reason| is == *reason && was != is);
        events.extend(stuck.map(|reason| RolloutEvent::Failed { reason }));
        if is == NEW_REPLICA_SET_AVAILABLE
            && was != is
            && let Track::Rolling { started, .. } = std::mem::take(self)
        {
            events.push(RolloutEvent::Finished { duration: started.map(since) });
        }
        events
    }
}

/// The reasons for which a rollout counts as stuck.
const STUCK: [&str; 2] = [TIMED_OUT, CREATE_ERROR];

/// The rollouts of all Deployments; one small entry for each.
#[derive(Debug, Default)]
pub struct RolloutMetrics(Mutex<BTreeMap<Uid, Track>>);

impl RolloutMetrics {
    /// Counts the change from the last status to this one. To be called when it was written,
    /// and also when there was nothing to write. `new` and `why`, the reasons, are called only where they matter.
    pub fn note(
        &self,
        deployment: &Deployment,
        after: &DeploymentStatus,
        new: impl Fn() -> Option<NewReplicaSet>,
        why: impl Fn() -> String,
        now: Timestamp,
        metrics: &WorkloadMetrics,
    ) {
        let before = condition::find(&deployment.status.conditions, PROGRESSING);
        let after = condition::find(&after.conditions, PROGRESSING);
        let mut all = self.0.lock();
        let track =
            all.entry(deployment.meta.uid.clone()).or_insert_with(|| Track::first_sight(before, &new));
        for event in track.advance(before, after, &new, now) {
            tracing::debug!(deployment = %deployment.meta.key, ?event, "rollout event is counted");
            match event {
                RolloutEvent::Started => metrics.rollouts_started.inc(),
                RolloutEvent::FirstAvailable { after } => {
                    metrics.first_available.observe(after.as_secs_f64());
                }
                RolloutEvent::Finished { duration } => {
                    let seconds = duration.map(|it| it.as_secs());
                    tracing::info!(deployment = %deployment.meta.key, seconds, "rollout is complete");
                    metrics.rollouts_finished.inc();
                    duration.iter().for_each(|it| metrics.rollout_duration.observe(it.as_secs_f64()));
                }
                RolloutEvent::Failed { reason } => {
                    let (deployment, why) = (&deployment.meta.key, why());
                    tracing::warn!(%deployment, reason, why, "rollout is stuck");
                    metrics.rollouts_failed.with_label_values(&[reason]).inc();
                }
            }
        }
    }
}

impl Forget for RolloutMetrics {
    fn forget(&self, deployment: &Uid) {
        self.0.lock().remove(deployment);
    }
}

/// Sets the gauge of stuck rollouts from the current conditions, whichever process set them.
pub fn show_stuck(deployments: &Store<Deployment>, metrics: &WorkloadMetrics) {
    let mut counts = [0; STUCK.len()];
    deployments.for_each(|deployment| {
        let reason = condition::find(&deployment.status.conditions, PROGRESSING).map(|c| &*c.reason);
        if let Some(at) = STUCK.iter().position(|stuck| Some(*stuck) == reason) {
            counts[at] += 1;
        }
    });
    for (reason, count) in STUCK.into_iter().zip(counts) {
        set_gauge(&metrics.rollouts_stuck.with_label_values(&[reason]), count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + seconds).unwrap()
    }

    /// A condition with this reason whose status changed last at second 0.
    fn says(reason: &str) -> Option<Condition> {
        Some(Condition::new(PROGRESSING, "True", reason, "of web-1", at(0)))
    }

    fn new_replica_set(created: i64, available: bool) -> Option<NewReplicaSet> {
        Some(NewReplicaSet { created: at(created), reused: false, available })
    }

    /// The events that a daemon counts when it sees these reasons one after the other, ten seconds apart; the second
    /// value is whether a new pod is available then.
    fn seen(reasons: &[(&str, bool)], replica_set: Option<NewReplicaSet>) -> Vec<RolloutEvent> {
        let first = says(reasons[0].0).filter(|_| !reasons[0].0.is_empty());
        let of =
            |available| replica_set.clone().map(|replica_set| NewReplicaSet { available, ..replica_set });
        let mut track = Track::first_sight(first.as_ref(), || of(reasons[0].1));
        let mut events = Vec::new();
        let mut before = first;
        for (step, (reason, available)) in reasons.iter().enumerate().skip(1) {
            let after = says(reason);
            let now = at(step as i64 * 10);
            events.extend(track.advance(before.as_ref(), after.as_ref(), || of(*available), now));
            before = after;
        }
        events
    }

    use RolloutEvent::{Failed, Finished, FirstAvailable, Started};

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_rollout_is_timed_from_the_creation_of_its_replica_set() {
        let reasons = [
            ("", false),
            (NEW_REPLICA_SET_CREATED, false),
            (REPLICA_SET_UPDATED, false),
            (REPLICA_SET_UPDATED, true),
            (NEW_REPLICA_SET_AVAILABLE, true),
        ];
        assert_eq!(
            seen(&reasons, new_replica_set(10, false)),
            [Started, FirstAvailable { after: seconds(20) }, Finished { duration: Some(seconds(30)) },]
        );
    }

    #[test]
    fn a_rollout_that_ends_in_one_step_has_its_first_pod_then_too() {
        let reasons = [
            (NEW_REPLICA_SET_AVAILABLE, true),
            (NEW_REPLICA_SET_CREATED, false),
            (NEW_REPLICA_SET_AVAILABLE, true),
        ];
        let events = seen(&reasons, new_replica_set(10, false));
        assert_eq!(
            events,
            [Started, FirstAvailable { after: seconds(10) }, Finished { duration: Some(seconds(10)) }]
        );
    }

    #[test]
    fn a_restart_in_the_middle_counts_no_second_start_and_takes_the_time_from_the_replica_set() {
        let reasons =
            [(REPLICA_SET_UPDATED, false), (REPLICA_SET_UPDATED, true), (NEW_REPLICA_SET_AVAILABLE, true)];
        assert_eq!(
            seen(&reasons, new_replica_set(0, false)),
            [FirstAvailable { after: seconds(10) }, Finished { duration: Some(seconds(20)) }]
        );
    }

    #[test]
    fn a_restart_after_the_first_pod_does_not_count_it_again() {
        let reasons =
            [(REPLICA_SET_UPDATED, true), (REPLICA_SET_UPDATED, true), (NEW_REPLICA_SET_AVAILABLE, true)];
        assert_eq!(seen(&reasons, new_replica_set(0, true)), [Finished { duration: Some(seconds(20)) }]);
    }

    #[test]
    fn no_duration_is_guessed_for_a_rollback_or_after_a_pause() {
        let reasons = [(REPLICA_SET_UPDATED, true), (NEW_REPLICA_SET_AVAILABLE, true)];
        let reused = NewReplicaSet { created: at(-500), reused: true, available: true };
        assert_eq!(seen(&reasons, Some(reused)), [Finished { duration: None }]);
        // Paused at second 0, long after the ReplicaSet was created.
        assert_eq!(seen(&reasons, new_replica_set(-500, true)), [Finished { duration: None }]);
        assert_eq!(seen(&reasons, None), [Finished { duration: None }]);
    }

    #[test]
    fn a_rollback_that_this_daemon_began_is_timed() {
        let reasons = [
            (NEW_REPLICA_SET_AVAILABLE, true),
            (NEW_REPLICA_SET_FOUND, false),
            (NEW_REPLICA_SET_AVAILABLE, false),
        ];
        let reused = NewReplicaSet { created: at(-500), reused: true, available: false };
        assert_eq!(seen(&reasons, Some(reused)), [Started, Finished { duration: Some(seconds(10)) }]);
    }

    #[test]
    fn being_stuck_is_counted_once_each_time() {
        let reasons = [
            (REPLICA_SET_UPDATED, false),
            (TIMED_OUT, false),
            (TIMED_OUT, false),
            (REPLICA_SET_UPDATED, true),
            (TIMED_OUT, true),
        ];
        let failed = Failed { reason: TIMED_OUT };
        assert_eq!(
            seen(&reasons, new_replica_set(0, false)),
            [failed, FirstAvailable { after: seconds(30) }, failed]
        );
        assert_eq!(seen(&[(TIMED_OUT, false), (TIMED_OUT, false)], None), [], "counted before the restart");
    }

    #[test]
    fn a_new_template_during_a_rollout_is_a_rollout_of_its_own() {
        let mut track = Track::default();
        let other = Condition { message: "of web-2".into(), ..says(NEW_REPLICA_SET_CREATED).unwrap() };
        assert_eq!(track.advance(None, says(NEW_REPLICA_SET_CREATED).as_ref(), || None, at(0)), [Started]);
        assert_eq!(
            track.advance(says(NEW_REPLICA_SET_CREATED).as_ref(), Some(&other), || None, at(5)),
            [Started]
        );
        assert_eq!(track.advance(Some(&other), Some(&other), || None, at(6)), [], "said already");
    }

    #[test]
    fn a_pause_of_a_settled_deployment_is_not_a_rollout() {
        let reasons = [
            (NEW_REPLICA_SET_AVAILABLE, true),
            ("DeploymentPaused", true),
            ("DeploymentResumed", true),
            (REPLICA_SET_UPDATED, true),
            (NEW_REPLICA_SET_AVAILABLE, true),
        ];
        assert_eq!(seen(&reasons, new_replica_set(-500, true)), []);
        assert_eq!(seen(&reasons[2..3], new_replica_set(-500, true)), []);
    }
}
