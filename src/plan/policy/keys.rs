//! The keys of policies: which kinds have them, and whether a bad value holds a rollout.

use super::{
    BATCH_DELAY, BYPASS_UNTIL, FAIL_AFTER, KEEP_FAILED_PODS, NOT_READY_NODES, ON_FAILURE, POD_REPLACEMENT,
    PROGRESS_DEADLINE, ROLLOUT, ROLLOUT_STATE, STEPS, WHEN_UNSCHEDULABLE,
};
use crate::model::statefulset::REPLACE_BROKEN_AFTER;

/// The prefix of every key of ours.
pub const PREFIX: &str = crate::model::meta::POLICY_PREFIX;

/// The kinds that have policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A Deployment.
    Deployment,
    /// A DaemonSet.
    DaemonSet,
    /// A StatefulSet: it has one key of its own, and no policy.
    StatefulSet,
}

impl Kind {
    /// The strategy under which pods do not move step by step.
    pub(super) fn strategy_without_steps(self) -> &'static str {
        match self {
            Kind::Deployment => "Recreate",
            Kind::DaemonSet | Kind::StatefulSet => "OnDelete",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Deployment => "Deployment",
            Kind::DaemonSet => "DaemonSet",
            Kind::StatefulSet => "StatefulSet",
        }
    }
}

/// A key: whether Deployments have it, whether DaemonSets have it, whether a bad value holds a rollout.
const KEYS: [(&str, bool, bool, bool); 12] = [
    (STEPS, true, true, true),
    (FAIL_AFTER, true, false, true),
    (ON_FAILURE, true, false, true),
    (WHEN_UNSCHEDULABLE, true, false, true),
    (POD_REPLACEMENT, true, false, true),
    (BATCH_DELAY, true, false, true),
    (BYPASS_UNTIL, true, true, true),
    (NOT_READY_NODES, false, true, true),
    (PROGRESS_DEADLINE, false, true, true),
    (KEEP_FAILED_PODS, true, false, false),
    (ROLLOUT, true, true, false),
    // Read on ReplicaSets and ControllerRevisions only. Here it is a copy, which means nothing.
    (ROLLOUT_STATE, true, true, false),
];

/// Keys of other controllers, which may stand on any object.
const OF_OTHERS: [&str; 1] = ["windlass.dev/released-owners"];

/// Whether a bad value of the key holds rollouts of this kind; `None` where the kind has no such key.
pub(super) fn governs_rollouts(kind: Kind, key: &str) -> Option<bool> {
    let (_, _, _, governs) = KEYS.iter().find(|known| known.0 == key && has(kind, known))?;
    Some(*governs)
}

fn has(kind: Kind, (_, deployment, daemon_set, _): &(&str, bool, bool, bool)) -> bool {
    match kind {
        Kind::Deployment => *deployment,
        Kind::DaemonSet => *daemon_set,
        Kind::StatefulSet => false,
    }
}

/// Whether another controller uses the key.
pub(super) fn is_of_others(key: &str) -> bool {
    OF_OTHERS.contains(&key)
}

/// The sentence about an unknown key, with the nearest known one: an older Windlass must not stop what a newer one wrote.
pub(super) fn unknown(kind: Kind, key: &str) -> String {
    let shown: String = key.chars().take(100).collect();
    if KEYS.iter().any(|known| known.0 == key) {
        return format!("the annotation {shown} means nothing on a {}: remove it", kind.name());
    }
    let known = KEYS.iter().filter(|known| has(kind, known) && known.0 != ROLLOUT_STATE);
    let nearest = known.map(|known| known.0).min_by_key(|known| distance(known, &shown));
    let nearest = nearest.unwrap_or(REPLACE_BROKEN_AFTER);
    format!(
        "the annotation {shown} is unknown to this version and ignored; the nearest known key is {nearest}"
    )
}

/// How many characters are to be changed, added or left out to get from one text to the other (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_answered_with_the_nearest_known_one() {
        for (key, nearest) in [
            ("windlass.dev/step", STEPS),
            ("windlass.dev/failafter", FAIL_AFTER),
            ("windlass.dev/on-fail", ON_FAILURE),
            ("windlass.dev/batch_delay", BATCH_DELAY),
        ] {
            let said = unknown(Kind::Deployment, key);
            assert!(said.contains(key) && said.ends_with(nearest), "{said}");
        }
    }

    #[test]
    fn the_distance_counts_edits() {
        assert_eq!((distance("steps", "steps"), distance("steps", "step"), distance("", "abc")), (0, 1, 3));
        assert_eq!(distance("halt", "hold"), 2);
    }
}
