//! Bugs that are planted on purpose, to check that the simulation finds them. The feature `planted-bugs`
//! is never a default and in no release build; without it every `planted!` is the constant `false`.
//!
//! These are the few that say most about the judges. What a tool can change, such as an operator, is left to
//! cargo-mutants; a mistake that would be in the way here is a patch in `crates/simulation/mistakes`.

/// Whether this bug is planted in this history.
macro_rules! planted {
    ($bug:literal) => {
        cfg!(feature = "planted-bugs") && $crate::mutations::is($bug)
    };
}

/// All mutations: classic mistakes of controllers.
pub const BUGS: &[&str] = &[
    "pod names depend on what the cache shows",
    "deletions carry no UID",
    "the fence stays open after the renew deadline",
    "a relist misses deletions",
    "a new leader does not wait for its read barrier",
    "the error of a failed write is dropped",
    "a patch of a ReplicaSet drops its finalizers",
    "the renew deadline runs from the response",
    "an expired watch is resumed without a new list",
    "all controllers share one rate limiter",
    "a failing webhook is treated as a lost reply",
    "names of deleted pods are used again",
    "used pod names are forgotten at a restart",
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

/// Those of all controllers.
pub const ALL: [&[&str]; 5] = [BUGS, DAEMON_SET_BUGS, GARBAGE_BUGS, NAMESPACE_BUGS, ROLLING_UPDATE_BUGS];

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(not(feature = "planted-bugs"))]
    fn without_the_feature_nothing_can_be_planted() {
        for bug in ALL.concat() {
            plant(bug);
            assert!(!is(bug), "{bug}");
        }
        assert!(!planted!("deletions carry no UID"));
    }

    #[test]
    #[cfg(feature = "planted-bugs")]
    fn one_bug_at_a_time_is_planted_and_on_this_thread_alone() {
        plant("deletions carry no UID");
        assert_eq!(BUGS.iter().filter(|bug| is(bug)).count(), 1);
        assert!(planted!("deletions carry no UID"));
        let elsewhere = std::thread::spawn(|| BUGS.iter().any(|bug| is(bug))).join();
        assert!(matches!(elsewhere, Ok(false)));
        plant("");
        assert!(!BUGS.iter().any(|bug| is(bug)));
    }
}
