//! Bugs that are planted on purpose, to see whether the simulation finds them. The feature `planted-bugs`
//! is never a default and in no release build; without it every `planted!` is the constant `false`.

/// Whether this bug is planted in this history.
macro_rules! planted {
    ($bug:literal) => {
        cfg!(feature = "planted-bugs") && $crate::planted::is($bug)
    };
}

/// All that can be planted: classic mistakes of controllers.
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
];

#[cfg(feature = "planted-bugs")]
thread_local! {
    /// The one of this thread's history: histories on other threads have their own.
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
