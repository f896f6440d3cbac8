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
    "a cache older than our writes is trusted",
    "one pod too many is created",
    "one pod too many is deleted",
    "pod names depend on what the cache shows",
    "a creation with a lost reply is forgotten",
    "a set that is being deleted gets pods",
    "deletions carry no UID",
    "surge is one too large",
    "one more may be unavailable",
    "Recreate does not wait",
    "a paused Deployment rolls out",
    "history keeps one less",
    "history deletes sets that are not at rest",
    "revisions do not rise",
    "times of transition always move",
    "failed syncs are not tried again",
    "an ended lease does not shut the fence",
    "relists lose deletions",
    "available is one too many",
    "adoption happens unasked",
    "half a cache is believed",
    "a new leader believes its caches",
    "failed pods hold Recreate up",
    "Recreate does not count pods on their way out",
    "deletions are not waited for",
    "a failed step is swallowed",
    "writes to sets are not waited for",
    "a change of a set drops its finalizers",
    "a status that says nothing new is written",
    "a status that was put off is forgotten",
    "who loses a pod is not woken",
    "a pod that is gone wakes nobody",
    "an orphan wakes nobody",
    "times of transition never move",
    "a percentage overflows",
    "no replicas are taken for one",
    "maxUnavailable is rounded up",
    "a label more lets an object go",
    "any orphan is adopted",
    "what is being deleted is adopted",
    "the history is never trimmed",
    "the history loses its latest",
    "a Deployment that is being deleted goes on",
    "a paused Deployment does not scale",
    "other annotations make another set",
    "collisions are not counted",
    "max-replicas is not brought up to date",
    "a set that comes back keeps its revision",
    "minReadySeconds does not reach the set",
    "a rollback goes a revision too far",
    "a rollback keeps its request",
    "surge is computed from the status",
    "names of sets depend on the generation",
    "proportional scaling loses the rest",
    "every pod counts as updated",
    "whether it is available is said once",
    "creations do not start slowly",
    "failed pods count",
    "pods on their way out count",
    "strays are kept",
    "ready pods go first",
    "the deletion cost is ignored",
    "whoever is ready is available",
    "a failure stays in the status",
    "a set does not say what generation it has seen",
    "nobody looks when a pod becomes available",
    "the backoff has no bound",
    "a lease runs from the answer on",
    "a lease is taken over too early",
    "expectations are not lowered",
    "what changes during a sync is lost",
    "two workers may have one key",
    "a watch that is too old is resumed",
    "a watch goes on one version too late",
    "a cache that has caught up wakes nobody",
    "what is due later is forgotten",
    "a queue that is shut down goes on",
    "nobody asks before something is made again",
    "a status is believed over the pods",
    "the sort is unstable",
    "the owner's UID is ignored",
    "a status that is behind is believed",
    "one limiter serves all controllers",
    "a limiter serves in the order of arrival",
    "a refused step counts as acted on",
    "an observedGeneration that is too high stays",
    "terminatingReplicas is left out where it is 0",
    "a pod that is lost is reported with the next rise",
    "a template without a ReplicaSet is no revision",
    "owners are matched by UID alone",
    "owners are matched whatever their kind",
    "restarts of ordinary init containers count",
    "the crowd on a node counts without an owner",
    "a failing webhook is taken for a lost reply",
    "a request to wait is reported as a failure",
    "a refused adoption is not reported",
    "pod names come back",
    "a restart forgets the names",
    "a silent watch is believed to its end",
];

/// The same for the DaemonSet controller.
pub const DAEMON_SET_BUGS: &[&str] = &[
    "names of daemon pods depend on the time",
    "a daemon pod with a lost reply is asked for under another name",
    "a daemon pod on its way out leaves its node free",
    "a daemon pod may go to any node",
    "minReadySeconds of a DaemonSet is ignored",
    "a DaemonSet under OnDelete is rolled out",
    "the bounds of a DaemonSet are one too large",
    "with surge old daemon pods go first",
    "failed daemon pods are replaced without a wait",
    "all daemon pods are relabelled with a duplicate",
    "a rollback leaves the number of its revision",
    "revisions that daemon pods have are deleted",
    "a collision of revisions is not counted",
    "the template generation of a pod is believed",
    "a NoSchedule taint drives daemon pods out",
    "daemon pods do not tolerate a cordon",
    "misscheduled daemon pods are not counted",
    "a node that is gone wakes no DaemonSet",
    "a node that changes is not looked at again",
    "verdicts outlive their template",
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
        for bug in BUGS.iter().chain(DAEMON_SET_BUGS) {
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
