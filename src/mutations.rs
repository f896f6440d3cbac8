//! Bugs that are planted on purpose, to check that the simulation finds them. The feature `planted-bugs`
//! is never a default and in no release build; without it every `planted!` is the constant `false`.

use std::sync::Arc;

use crate::model::{Meta, ReplicaSet};

/// Whether this bug is planted in this history.
macro_rules! planted {
    ($bug:literal) => {
        cfg!(feature = "planted-bugs") && $crate::mutations::is($bug)
    };
}

/// All mutations: classic mistakes of controllers.
pub const BUGS: &[&str] = &[
    "a cache that is older than our own writes is used",
    "one pod too many is created",
    "one pod too many is deleted",
    "pod names depend on what the cache shows",
    "a creation with a lost reply is forgotten",
    "a ReplicaSet that is being deleted creates pods",
    "deletions carry no UID",
    "maxSurge is one too large",
    "maxUnavailable is one too large",
    "Recreate does not wait until the old pods have ended",
    "a paused Deployment rolls out",
    "one ReplicaSet fewer than revisionHistoryLimit is kept",
    "the history limit deletes ReplicaSets that are not empty",
    "the revision does not increase",
    "lastTransitionTime always changes",
    "failed syncs are not retried",
    "the fence stays open after the renew deadline",
    "a relist misses deletions",
    "availableReplicas is one too large",
    "adoption does not re-read the owner from the API server",
    "an incomplete cache is used",
    "a new leader does not wait for its read barrier",
    "failed pods block Recreate",
    "Recreate does not count terminating pods",
    "deletions are not expected in the cache",
    "the error of a failed write is dropped",
    "writes to ReplicaSets are not expected in the cache",
    "a patch of a ReplicaSet drops its finalizers",
    "an unchanged status is written",
    "a throttled status write is dropped",
    "the former owner of a pod is not enqueued",
    "the deletion of a pod enqueues no owner",
    "an orphaned pod enqueues no owner",
    "lastTransitionTime never changes",
    "a percentage overflows",
    "replicas 0 is read as 1",
    "maxUnavailable is rounded up",
    "an additional label releases an object",
    "orphans that the selector does not match are adopted",
    "objects that are being deleted are adopted",
    "revisionHistoryLimit is ignored",
    "the history limit deletes the newest ReplicaSets",
    "a Deployment that is being deleted is still rolled out",
    "a paused Deployment does not scale",
    "changed annotations create another ReplicaSet",
    "collisionCount is not increased",
    "the max-replicas annotation is not updated",
    "a ReplicaSet that becomes the new one again keeps its revision",
    "minReadySeconds is not copied to the ReplicaSet",
    "a rollback goes one revision too far back",
    "a rollback does not remove its request",
    "surge is computed from the status",
    "names of ReplicaSets depend on the generation",
    "proportional scaling drops the remainder",
    "every pod counts as updated",
    "the Available condition is set only once",
    "creations skip slow start",
    "failed pods count as replicas",
    "terminating pods count as replicas",
    "pods that the selector no longer matches are not released",
    "ready pods are deleted first",
    "the deletion cost is ignored",
    "minReadySeconds is ignored",
    "the ReplicaFailure condition is never removed",
    "observedGeneration of a ReplicaSet is not updated",
    "no sync is scheduled for when a pod becomes available",
    "the backoff has no cap",
    "the renew deadline runs from the response",
    "a lease is taken over before it expires",
    "expectations are not lowered",
    "a key that is added during its sync is dropped",
    "two workers sync the same key at once",
    "an expired watch is resumed without a new list",
    "a watch is resumed one resourceVersion too late",
    "parked keys are not enqueued when the cache catches up",
    "delayed requeues are dropped",
    "a queue that is shut down still hands out keys",
    "objects are created again without a live read of their owner",
    "a status that counts more available pods than the cache is used",
    "pods of equal rank are deleted in no fixed order",
    "the owner's UID is ignored",
    "a status that counts fewer available pods than the cache is used",
    "all controllers share one rate limiter",
    "the rate limiter serves owners in the order of arrival",
    "observedGeneration rises although a write was refused",
    "an observedGeneration above the generation is kept",
    "terminatingReplicas is omitted when it is 0",
    "a status with fewer ready pods is throttled",
    "a rollback ignores a template that has no ReplicaSet",
    "owners are matched by UID alone",
    "owners are matched regardless of their kind",
    "restarts of ordinary init containers count",
    "neighbours on a node count for a ReplicaSet without an owner",
    "a failing webhook is treated as a lost reply",
    "a response with Retry-After is reported as a failure",
    "a refused adoption is not reported",
    "names of deleted pods are used again",
    "used pod names are forgotten at a restart",
    "a silent watch is kept until its timeout",
];

/// The same for the DaemonSet controller.
pub const DAEMON_SET_BUGS: &[&str] = &[
    "names of DaemonSet pods depend on the clock",
    "a DaemonSet pod whose creation got no reply is created under another name",
    "a DaemonSet pod has no node affinity",
    "a duplicate revision relabels all DaemonSet pods",
    "a refused creation holds up the deletions of its DaemonSet",
];

/// Mistakes of the garbage collector, which the simulation of that finds.
pub const GARBAGE_BUGS: &[&str] = &[
    "an owner that was not seen counts as absent",
    "the references to all owners are removed",
    "the finalizers of others come off with ours",
    "deletions by the collector carry no UID",
];

/// Mistakes of the namespace controller, which the simulation of that finds.
pub const NAMESPACE_BUGS: &[&str] = &[
    "a kind that cannot be read counts as empty",
    "the tokens of others come off a namespace",
    "deletions in a namespace carry no UID",
];

/// Mistakes of the rolling update of ReplicationControllers, which the simulation of that finds.
pub const ROLLING_UPDATE_BUGS: &[&str] = &[
    "a rolling update reports nothing but its first condition",
    "a rollback keeps the size that OLD has",
    "the original size is overwritten by each step",
    "a controller is deleted whatever its version is",
];

#[cfg(feature = "planted-bugs")]
thread_local! {
    /// The mutation of this thread's history: histories on other threads have their own.
    static PLANTED: std::cell::Cell<&'static str> = const { std::cell::Cell::new("") };
}

/// Plants this bug, or none with "", on this thread.
pub fn plant(bug: &'static str) {
    #[cfg(feature = "planted-bugs")]
    PLANTED.with(|planted| planted.set(bug));
    #[cfg(not(feature = "planted-bugs"))]
    let _never = bug;
}

/// Whether this bug is planted on this thread.
pub fn is(bug: &str) -> bool {
    #[cfg(feature = "planted-bugs")]
    return PLANTED.with(|planted| planted.get() == bug);
    #[cfg(not(feature = "planted-bugs"))]
    {
        let _never = bug;
        false
    }
}

/// "the owner's UID is ignored": the ReplicaSets of any Deployment of this name count as this one's.
pub(crate) fn owned_by_name(owner: &Meta, mut all: Vec<Arc<ReplicaSet>>) -> Vec<Arc<ReplicaSet>> {
    let name = &owner.key.name;
    all.retain(|replica_set| replica_set.meta.controller.as_ref().is_some_and(|owner| owner.name == *name));
    let owners = all.iter_mut().filter_map(|replica_set| Arc::make_mut(replica_set).meta.controller.as_mut());
    owners.for_each(|of_replica_set| Arc::make_mut(of_replica_set).uid = owner.uid.clone());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(feature = "planted-bugs"))]
    fn without_the_feature_nothing_can_be_planted() {
        for bug in [BUGS, DAEMON_SET_BUGS, GARBAGE_BUGS, NAMESPACE_BUGS, ROLLING_UPDATE_BUGS].concat() {
            plant(bug);
            assert!(!is(bug), "{bug}");
        }
        assert!(!planted!("one pod too many is created"));
    }

    #[test]
    #[cfg(feature = "planted-bugs")]
    fn one_bug_at_a_time_is_planted_and_on_this_thread_alone() {
        plant("one pod too many is created");
        assert_eq!(BUGS.iter().filter(|bug| is(bug)).count(), 1);
        assert!(planted!("one pod too many is created"));
        let elsewhere = std::thread::spawn(|| BUGS.iter().any(|bug| is(bug))).join();
        assert!(matches!(elsewhere, Ok(false)));
        plant("");
        assert!(!BUGS.iter().any(|bug| is(bug)));
    }
}
