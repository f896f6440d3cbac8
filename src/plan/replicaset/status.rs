//! The status of a ReplicaSet, and when the ReplicaSet must be synced again (upstream: `replica_set_utils.go`).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Observed, Plan, Write};
use crate::model::{Condition, Pod, ReplicaSet, ReplicaSetStatus, condition};
use crate::plan::Urgency;
use crate::plan::claim::{Claim, claim};

/// The one condition type of a ReplicaSet.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The outcome of the writes that concern the status: which kind failed, and the API server's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `FailedCreate` or `FailedDelete`, as upstream, or `FailedAdopt`, of which upstream says nothing.
    pub reason: &'static str,
    /// The error's text.
    pub message: String,
}

impl Failure {
    /// A refusal of `write`. The condition words that of a deletion differently from the event, as upstream's
    /// `RealPodControl.DeletePod` does.
    pub fn of(write: &Write, message: String) -> Self {
        let (reason, message) = match write {
            Write::Create { .. } => ("FailedCreate", message),
            Write::Delete(_) | Write::DeleteFailed(_) => {
                ("FailedDelete", format!("unable to delete pods: {message}"))
            }
            Write::Adopt(_) | Write::Release(_) => ("FailedAdopt", message),
        };
        Failure { reason, message }
    }
}

/// The status to write, and when to sync again.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// The whole status as it should be.
    pub status: ReplicaSetStatus,
    /// When the next pod will have been ready for `minReadySeconds`.
    pub requeue_after: Option<Duration>,
}

/// Computes the status from the pods that were observed and from what failed.
pub fn settle(observed: &Observed<'_>, failure: Option<&Failure>) -> Settled {
    let Observed { replica_set, pod_sets, now, .. } = observed;
    let (mut fully_labeled, mut ready, mut available) = (0, 0, 0);
    let mut next = None;
    for pod in &pod_sets.active {
        // Most pods share the labels of their template.
        let labels = &replica_set.template.labels;
        let labeled = Arc::ptr_eq(labels, &pod.meta.labels)
            || labels.iter().all(|(key, value)| pod.meta.labels.get(key) == Some(value));
        fully_labeled += usize::from(labeled);
        ready += usize::from(pod.ready_since.is_some());
        if pod.is_available(replica_set.min_ready_seconds, *now) {
            available += 1;
        } else if let Some(at) = pod.available_at(replica_set.min_ready_seconds) {
            next = Some(next.map_or(at, |next: Timestamp| next.min(at)));
        }
    }
    let selected = |pod: &&Arc<Pod>| claim(*replica_set, &replica_set.selector, &pod.meta) == Claim::Keep;
    let status = ReplicaSetStatus {
        replicas: size(pod_sets.active.len()),
        fully_labeled: size(fully_labeled),
        ready: size(ready),
        available: size(available),
        terminating: Some(size(pod_sets.terminating.iter().filter(selected).count())),
        // A higher one was written by another client, such as a backup that was restored, and is corrected.
        observed_generation: replica_set.meta.generation,
        conditions: conditions(replica_set, failure, *now),
    };
    Settled { status, requeue_after: next.map(|at| until(at, *now)) }
}

/// The conditions with the failure, or without one.
fn conditions(replica_set: &ReplicaSet, failure: Option<&Failure>, now: Timestamp) -> Vec<Condition> {
    let mut conditions = replica_set.status.conditions.clone();
    match failure {
        Some(Failure { reason, message }) => {
            let mut failed = Condition::new(REPLICA_FAILURE, "True", reason, message.as_str(), now);
            failed.last_update = None;
            condition::set(&mut conditions, failed);
        }
        None => condition::remove(&mut conditions, REPLICA_FAILURE),
    }
    conditions
}

/// The same where the sync may have ended with an error. An error of unknown outcome keeps an earlier refusal in the
/// status: see [`keep_failure`] and [`hold_generation`].
pub fn report(observed: &Observed<'_>, failure: Option<&Failure>, has_failed: bool) -> Settled {
    let mut settled = settle(observed, failure);
    if has_failed && failure.is_none() {
        keep_failure(&observed.replica_set.status.conditions, &mut settled.status.conditions);
        hold_generation(observed.replica_set, &mut settled.status);
    }
    settled
}

/// The status of a ReplicaSet with no more ready and available pods than exist, where it reports more: it does not
/// count yet that a pod was deleted a moment ago. `None` where it does not.
pub fn status_of_pods(
    replica_set: &ReplicaSet,
    pods: &[Arc<Pod>],
    now: Timestamp,
) -> Option<ReplicaSetStatus> {
    let active = || pods.iter().filter(|pod| pod.is_active());
    let ready = size(active().filter(|pod| pod.ready_since.is_some()).count());
    let available = size(active().filter(|pod| pod.is_available(replica_set.min_ready_seconds, now)).count());
    let overstated = replica_set.status.ready > ready || replica_set.status.available > available;
    overstated.then(|| ReplicaSetStatus {
        ready: replica_set.status.ready.min(ready),
        available: replica_set.status.available.min(available),
        ..replica_set.status.clone()
    })
}

/// Keeps the failure of an earlier sync in the status, where this one ended with an error of unknown outcome:
/// a lost reply is no success, and only a success removes the condition.
pub fn keep_failure(before: &[Condition], after: &mut Vec<Condition>) {
    if let Some(failure) = condition::find(before, REPLICA_FAILURE) {
        condition::set(after, failure.clone());
    }
}

/// Keeps `observedGeneration`, where the sync ended with an error that the status does not report:
/// a lost reply, a conflict, a server that asks to wait. The step is retried, and only then has
/// the generation been acted on (S20).
///
/// A step that was *refused* advances it, as upstream does, because the same write reports `ReplicaFailure`. Readers
/// consider conditions only where the generation is the current one: with the old generation beside it Argo CD
/// shows a ReplicaSet that waits, and not one that fails. And a Deployment counts no pod of a ReplicaSet whose
/// status reports an earlier generation ([`available`]): under a quota that leaves the new ReplicaSet short
/// of one pod no old one would ever be deleted, which is what would make room for it.
///
/// [`available`]: crate::plan::deployment::observed
pub fn hold_generation(replica_set: &ReplicaSet, after: &mut ReplicaSetStatus) {
    after.observed_generation = replica_set.status.observed_generation.min(replica_set.meta.generation);
}

/// Whether fewer pods are ready or available than the status reports. Readers of the status rely on pods that
/// do not exist: this is never delayed (S27).
pub fn has_fallen(before: &ReplicaSetStatus, after: &ReplicaSetStatus) -> bool {
    are_fewer([before.ready, before.available], [after.ready, after.available])
}

/// Whether fewer pods are ready, or fewer available, than before.
pub(crate) fn are_fewer(before: [i32; 2], after: [i32; 2]) -> bool {
    before.iter().zip(&after).any(|(before, after)| after < before)
}

/// Whether readers wait for this change of the status: a generation that was acted on, a condition, pods
/// that were lost ([`has_fallen`]), or a ReplicaSet that has reached its size, or has left it. Rises and other
/// numbers may wait, so that a ReplicaSet of a thousand pods that start within a minute reports some sixty
/// times and not a thousand.
///
/// The pods that the controller itself deletes are a fall as well. It costs no write: they are deleted for a
/// new generation, which is written at once too, and in the same patch.
pub fn is_urgent(before: &ReplicaSetStatus, after: &ReplicaSetStatus, desired: i32) -> bool {
    let complete = |status: &ReplicaSetStatus| {
        [status.replicas, status.ready, status.available].iter().all(|number| *number == desired)
    };
    before.observed_generation != after.observed_generation
        || before.conditions != after.conditions
        || has_fallen(before, after)
        || complete(after) != complete(before)
}

/// How soon this status must be written.
///
/// Pods that were created or deleted just now for a new generation are not counted yet. The sync that sees them
/// reports them, and the generation with them: two calls less in each step of a rollout. Until then no reader counts
/// on them (`plan::deployment::observed::available`). A watch that lags delays the generation as well. Pods that were
/// lost otherwise are not among those just deleted, which still count here: they are reported at once.
pub fn urgency(replica_set: &ReplicaSet, plan: &Plan, has_failed: bool, after: &ReplicaSetStatus) -> Urgency {
    let before = &replica_set.status;
    let counts_soon = !has_failed
        && !has_fallen(before, after)
        && plan.changes_fewer_than_a_burst()
        && before.observed_generation != after.observed_generation
        && before.conditions == after.conditions;
    match () {
        () if counts_soon => Urgency::Postponed,
        () if is_urgent(before, after, replica_set.replicas) => Urgency::Immediate,
        () => Urgency::Throttled,
    }
}

fn size(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The time from now until then; zero when then has passed.
pub(crate) fn until(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record as _};

    fn status(replicas: i32, ready: i32) -> ReplicaSetStatus {
        ReplicaSetStatus {
            replicas,
            fully_labeled: replicas,
            ready,
            available: ready,
            terminating: Some(0),
            observed_generation: 2,
            conditions: Vec::new(),
        }
    }

    #[test]
    fn a_deleted_pod_that_the_status_still_counts_does_not_count() {
        let json = |spec: &str| {
            format!(
                r#"{{"metadata": {{"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "1"}}, {spec}}}"#
            )
        };
        let replica_set = json(
            r#""spec": {"replicas": 2, "selector": {"matchLabels": {"a": "b"}},
               "template": {"metadata": {"labels": {"a": "b"}}}},
               "status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}"#,
        );
        let pod = |ready: &str| {
            let status = format!(
                r#""status": {{"phase": "Running", "conditions": [
                   {{"type": "Ready", "status": "{ready}", "lastTransitionTime": "1970-01-01T00:00:00Z"}}]}}"#
            );
            Arc::new(Pod::decode(&json(&status), &mut Interner::default()).unwrap())
        };
        let replica_set = ReplicaSet::decode(&replica_set, &mut Interner::default()).unwrap();
        let of = |pods: &[&str]| {
            let pods: Vec<_> = pods.iter().map(|ready| pod(ready)).collect();
            status_of_pods(&replica_set, &pods, Timestamp::UNIX_EPOCH)
                .map(|status| (status.ready, status.available))
        };
        assert_eq!(of(&["True", "True"]), None);
        assert_eq!(of(&["True", "False"]), Some((1, 1)));
        assert_eq!(of(&["True"]), Some((1, 1)));
        assert_eq!(of(&["True", "True", "True"]), None, "the status is what is published");
    }

    #[test]
    fn an_error_of_unknown_outcome_leaves_an_earlier_failure_in_the_status() {
        let failed = Condition::new(REPLICA_FAILURE, "True", "FailedCreate", "m", Timestamp::UNIX_EPOCH);
        let mut after = Vec::new();
        keep_failure(&[], &mut after);
        assert_eq!(after, []);
        keep_failure(std::slice::from_ref(&failed), &mut after);
        assert_eq!(after, [failed]);
    }

    #[test]
    fn a_generation_a_condition_and_completion_are_urgent_and_a_step_on_the_way_is_not() {
        let before = status(10, 3);
        assert!(!is_urgent(&before, &status(10, 4), 10));
        assert!(!is_urgent(&before, &status(9, 3), 10), "a pod that was not ready is no loss");
        assert!(is_urgent(&before, &status(10, 10), 10));
        assert!(!is_urgent(&status(10, 10), &status(10, 10), 10), "it was complete before");
        assert!(is_urgent(&before, &ReplicaSetStatus { observed_generation: 3, ..status(10, 3) }, 10));
        let failed = Condition::new(REPLICA_FAILURE, "True", "FailedCreate", "m", Timestamp::UNIX_EPOCH);
        assert!(is_urgent(&before, &ReplicaSetStatus { conditions: vec![failed], ..status(10, 3) }, 10));
    }

    #[test]
    fn a_fall_of_ready_or_available_and_the_end_of_completeness_are_urgent() {
        let fewer_available = ReplicaSetStatus { available: 2, ..status(10, 3) };
        assert!(is_urgent(&status(10, 3), &status(10, 2), 10), "ready");
        assert!(is_urgent(&status(10, 3), &fewer_available, 10), "available");
        assert!(!is_urgent(&fewer_available, &status(10, 3), 10), "a rise may wait");
        assert!(is_urgent(&status(10, 10), &status(10, 9), 10));
        assert!(is_urgent(&status(10, 10), &status(11, 10), 10), "one too many: complete no longer");
        assert!(!is_urgent(&status(11, 10), &status(12, 10), 10));
        let swapped = ReplicaSetStatus { ready: 4, available: 2, ..status(10, 3) };
        assert!(
            is_urgent(&status(10, 3), &swapped, 10),
            "one has become ready, and one that was available is not"
        );
    }
}
