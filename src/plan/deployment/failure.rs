//! Whether a rollout has failed: the verdict of `windlass.dev/fail-after` and `windlass.dev/on-failure`.
//!
//! Everything is on the pods and ReplicaSets; nothing is remembered. One broken pod of fifty slows a rollout; it fails it only if
//! the rollout waits for nothing else.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::observed::available;
use super::progress::{PROGRESSING, TIMED_OUT, deadline, has_progressed};
use super::revision::revision_of;
use super::status::{REPLICA_FAILURE, counts};
use super::{Observed, ReplicaSets};
use crate::model::{Pod, ReplicaSet, Strategy, condition};
use crate::plan::policy::OnFailure;
use crate::plan::policy::state::state_of;
use crate::plan::policy::steps::after;

/// A search for a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// None.
    Nothing,
    /// One at a time, if nothing changes until then.
    Due(Timestamp),
    /// One: pod, reason and exit code.
    Failed(String),
}

/// The reasons of a waiting container that the kubelet hardly gets over by itself.
const BROKEN: [&str; 9] = [
    "CrashLoopBackOff",
    "InvalidImageName",
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "ImageInspectError",
    "CreateContainerError",
    "CreateContainerConfigError",
    "RunContainerError",
];

/// So many restarts of a container show that it ended twice.
const TWICE: i32 = 2;

/// Since when a pod has been failing; `None` while it does not, while it is not bound to a node, and where that is not known.
fn failing_since(pod: &Pod) -> Option<Timestamp> {
    pod.node()?;
    let since = |pod: &Pod| pod.ready_transition();
    let Some(waiting) = pod.waiting.as_deref() else {
        return since(pod).filter(|_| pod.ready_since.is_none() && pod.restarts.regular >= TWICE);
    };
    let crashed_again = pod.has_started && pod.restarts.regular >= 1;
    let fails = BROKEN.contains(&&*waiting.reason)
        || crashed_again
        || (pod.ready_since.is_none() && pod.restarts.regular >= TWICE);
    if fails { waiting.since.or_else(|| since(pod)) } else { None }
}

/// Looks for a failure of the new ReplicaSet. `begun` is when the rollout of its revision began, where that is recorded.
pub(super) fn find(observed: &Observed<'_>, replica_sets: &ReplicaSets, begun: Option<Timestamp>) -> Found {
    let Some(new) = &replica_sets.new else { return Found::Nothing };
    let missing = i64::from(new.replicas) - i64::from(available(new));
    let has_old_pods = replica_sets.old.iter().any(|old| old.replicas > 0 || old.status.replicas > 0);
    if new.status.observed_generation != new.meta.generation || (missing <= 0 && !has_old_pods) {
        return Found::Nothing;
    }
    let by_pods = observed.policy.fail_after.filter(|_| missing > 0);
    let found =
        by_pods.map_or(Found::Nothing, |patience| match failing_pods(observed, new, missing, patience) {
            Found::Nothing => refused(observed, new, patience),
            found => found,
        });
    match found {
        Found::Failed(_) => found,
        other => match (by_deadline(observed, replica_sets, begun), other) {
            (Found::Nothing, other) => other,
            (Found::Due(late), Found::Due(other)) => Found::Due(late.min(other)),
            (late, _) => late,
        },
    }
}

/// Every missing pod has failed for so long.
fn failing_pods(observed: &Observed<'_>, new: &ReplicaSet, missing: i64, patience: Duration) -> Found {
    let unavailable = observed.awaited_pods.get(&new.meta.uid).into_iter().flatten();
    let unavailable: Vec<&Arc<Pod>> = unavailable.filter(|pod| pod.is_active()).collect();
    // One that no cache shows yet has not failed.
    if i64::try_from(unavailable.len()).is_ok_and(|count| count < missing) {
        return Found::Nothing;
    }
    let since: Option<Vec<Timestamp>> = unavailable.iter().map(|pod| failing_since(pod)).collect();
    let Some(last) = since.and_then(|since| since.into_iter().max()) else { return Found::Nothing };
    let due = after(last, patience);
    if due > observed.now {
        return Found::Due(due);
    }
    let Some(first) = unavailable.iter().min_by_key(|pod| &pod.meta.key.name) else { return Found::Nothing };
    let said = first.waiting.as_deref();
    let reason = said.map_or("not ready after two crashes", |waiting| &waiting.reason);
    let message = said.and_then(|waiting| waiting.message.as_deref());
    let message = message.map(|message| format!(": {message}")).unwrap_or_default();
    Found::Failed(format!("{}: {reason} for {}{message}", first.meta.key.name, text_of(patience)))
}

/// The API server has refused its pods for so long, and none is available.
fn refused(observed: &Observed<'_>, new: &ReplicaSet, patience: Duration) -> Found {
    let failure = condition::find(&new.status.conditions, REPLICA_FAILURE).filter(|c| c.is_true());
    let Some(failure) = failure.filter(|_| new.status.available == 0) else { return Found::Nothing };
    let Some(since) = failure.last_transition else { return Found::Nothing };
    let due = after(since, patience);
    if due > observed.now {
        return Found::Due(due);
    }
    Found::Failed(format!("{} for {}: {}", failure.reason, text_of(patience), failure.message))
}

/// The progress deadline passes, where something follows from it. It is counted from the beginning of this revision at the
/// earliest: the condition may still be that of the revision before.
fn by_deadline(observed: &Observed<'_>, replica_sets: &ReplicaSets, begun: Option<Timestamp>) -> Found {
    let deployment = observed.deployment;
    let (Some(_), Some(begun), Some(seconds)) =
        (observed.policy.on_failure, begun, deployment.progress_deadline_seconds)
    else {
        return Found::Nothing;
    };
    let extra = observed.policy.batch_delay.unwrap_or_default();
    let own = after(begun, Duration::from_secs(seconds.max(0).unsigned_abs().into()));
    let shown = condition::find(&deployment.status.conditions, PROGRESSING);
    let at = match deadline(deployment, &deployment.status, extra) {
        Some(at) => at.max(own),
        // It has passed already: of this revision, or of one before.
        None if shown.is_some_and(|shown| &*shown.reason == TIMED_OUT) => own,
        None => return Found::Nothing,
    };
    let progresses = || has_progressed(&deployment.status, &counts(deployment, replica_sets));
    if at > observed.now {
        Found::Due(at)
    } else if progresses() {
        Found::Nothing
    } else {
        Found::Failed(format!("no progress for {seconds}s"))
    }
}

/// The ReplicaSet to go back to: one that serves. Under Recreate nothing serves any more: then, for a rollback only, the last
/// proven one of the three latest revisions. `only_serving`: no rollback can follow.
pub(super) fn target<'a>(
    observed: &Observed<'_>,
    replica_sets: &'a ReplicaSets,
    only_serving: bool,
) -> Option<&'a Arc<ReplicaSet>> {
    if matches!(observed.deployment.strategy, Strategy::RollingUpdate { .. }) {
        return super::course::serving(replica_sets);
    }
    let rolls_back = observed.policy.on_failure == Some(OnFailure::Rollback);
    if !rolls_back || only_serving {
        return None;
    }
    let mut latest: Vec<&Arc<ReplicaSet>> = replica_sets.old.iter().collect();
    latest.sort_by_key(|old| std::cmp::Reverse(revision_of(old).unwrap_or(0)));
    latest.into_iter().take(2).find(|old| state_of(old).completed.is_some())
}

/// A duration as people write it: `2m`, `90s`, `1h30m`.
pub(super) fn text_of(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let parts = [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')];
    let text: String =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, unit)| format!("{count}{unit}")).collect();
    if text.is_empty() { format!("{}ms", duration.as_millis()) } else { text }
}
