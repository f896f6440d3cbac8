//! Revisions, and the annotations that a Deployment keeps on its ReplicaSets (upstream: `deployment_util.go`).

use std::collections::BTreeMap;

use super::{Change, ReplicaSets};
use crate::model::{Deployment, ReplicaSet};
use crate::plan::policy::{BYPASS_UNTIL, KEEP_FAILED_PODS, ROLLOUT, ROLLOUT_STATE};

/// The revision of a ReplicaSet; on a Deployment, the current one.
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// The revisions that a reused ReplicaSet had before.
pub const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
/// `spec.replicas` of the Deployment when the ReplicaSet was last sized.
pub const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
/// Size and surge together when the ReplicaSet was last sized.
pub const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// The size before a proportional scaling that is not complete (KEP-5882).
pub const REPLICAS_BEFORE_SCALE: &str = "deployment.kubernetes.io/replicaset-replicas-before-scale";

/// Requests a rollback to a revision; 0 is the last one.
pub const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// Annotations of a Deployment that concern the Deployment only.
///
/// State that belongs to one ReplicaSet must not get to another, and a command belongs to one revision. A bypass that has
/// been ended must not come back with an undo.
pub const NOT_COPIED: [&str; 10] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED_REPLICAS,
    MAX_REPLICAS,
    ROLLBACK_TO,
    ROLLOUT_STATE,
    ROLLOUT,
    BYPASS_UNTIL,
    REPLICAS_BEFORE_SCALE,
];

/// The longest `revision-history`, in characters; the oldest entries go first.
const LONGEST_HISTORY: usize = 2000;

/// Reads a revision. Any client may write annotations: a value that is not a number, is negative, or has no
/// successor counts as no revision, and so neither wraps nor spreads.
pub fn revision_of(replica_set: &ReplicaSet) -> Option<i64> {
    let revision: i64 = replica_set.annotations.get(REVISION)?.parse().ok()?;
    (0..i64::MAX).contains(&revision).then_some(revision)
}

/// The revision that the new ReplicaSet must have: one more than any old one has (S7).
pub(super) fn next_revision(replica_sets: &ReplicaSets) -> i64 {
    replica_sets.old.iter().filter_map(|replica_set| revision_of(replica_set)).max().unwrap_or(0) + 1
}

/// The revision of the current template: that of its ReplicaSet, or the next one, where the ReplicaSet has an
/// older one or does not exist.
pub(super) fn current_revision(replica_sets: &ReplicaSets) -> i64 {
    let own = replica_sets.new.as_ref().and_then(|new| revision_of(new));
    next_revision(replica_sets).max(own.unwrap_or(0))
}

/// The annotations that record the current size and surge.
pub fn size_annotations(deployment: &Deployment) -> [(&'static str, String); 2] {
    let (surge, _) = deployment.budget();
    let max_total = i64::from(deployment.replicas) + i64::from(surge);
    [(DESIRED_REPLICAS, deployment.replicas.to_string()), (MAX_REPLICAS, max_total.to_string())]
}

/// The annotations of a ReplicaSet that is to be created.
pub fn annotations_for_new_replica_set(
    deployment: &Deployment,
    replica_sets: &ReplicaSets,
) -> BTreeMap<String, String> {
    let revision = (REVISION.to_string(), next_revision(replica_sets).to_string());
    copied(deployment)
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .chain([revision])
        .chain(size_annotations(deployment).map(|(key, value)| (key.to_string(), value)))
        .collect()
}

fn copied(deployment: &Deployment) -> impl Iterator<Item = (&str, &str)> {
    deployment.annotations.iter().filter(|(key, _)| !NOT_COPIED.contains(key))
}

/// The changes to the new ReplicaSet besides its size: annotations, revision, `minReadySeconds`.
pub fn refresh(deployment: &Deployment, new: &ReplicaSet, replica_sets: &ReplicaSets) -> Change {
    let mut annotations = BTreeMap::new();
    let mut put = |key: &str, value: String| {
        if new.annotations.get(key) != Some(&value) {
            annotations.insert(key.to_string(), value);
        }
    };
    copied(deployment).for_each(|(key, value)| put(key, value.to_string()));
    size_annotations(deployment).into_iter().for_each(|(key, value)| put(key, value));

    let next = next_revision(replica_sets);
    let current = revision_of(new);
    if current.is_none_or(|current| current < next) {
        put(REVISION, next.to_string());
        if let Some(current) = current.filter(|&current| current > 0) {
            put(REVISION_HISTORY, appended(new.annotations.get(REVISION_HISTORY).unwrap_or(""), current));
        }
    }
    // The ReplicaSet controller reads this copy. No other copy has a reader, so the others may stay, as upstream's do.
    let is_left =
        |key: &&str| new.annotations.get(key).is_some() && deployment.annotations.get(key).is_none();
    let removed = [KEEP_FAILED_PODS].into_iter().filter(is_left).collect();
    let min_ready_seconds = min_ready_seconds(deployment, new);
    Change { annotations, removed, min_ready_seconds, ..Change::default() }
}

fn min_ready_seconds(deployment: &Deployment, new: &ReplicaSet) -> Option<i32> {
    let is_other = new.min_ready_seconds != deployment.min_ready_seconds;
    is_other.then_some(deployment.min_ready_seconds)
}

/// `history` with one more revision, without the oldest that no longer fit.
fn appended(history: &str, revision: i64) -> String {
    let revision = revision.to_string();
    let mut kept = history;
    while !kept.is_empty() && kept.len() + 1 + revision.len() > LONGEST_HISTORY {
        kept = kept.split_once(',').map_or("", |(_, rest)| rest);
    }
    if kept.is_empty() { revision } else { format!("{kept},{revision}") }
}

/// The size annotations of a ReplicaSet that are out of date.
pub fn stale_sizes(deployment: &Deployment, replica_set: &ReplicaSet) -> BTreeMap<String, String> {
    size_annotations(deployment)
        .into_iter()
        .filter(|(key, value)| replica_set.annotations.get(key) != Some(value))
        .map(|(key, value)| (key.to_string(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_grows_at_its_end_and_loses_its_oldest_entries() {
        assert_eq!(appended("", 1), "1");
        assert_eq!(appended("1,3", 5), "1,3,5");
        let full = vec!["1000000"; 250].join(",");
        assert_eq!(full.len(), 1999);
        let grown = appended(&full, 77);
        assert!(grown.len() <= LONGEST_HISTORY && grown.ends_with(",77") && grown.starts_with("1000000,"));
    }

    #[test]
    fn a_history_without_commas_that_is_too_long_is_dropped_whole() {
        assert_eq!(appended(&"9".repeat(300_000), 4), "4");
    }
}
