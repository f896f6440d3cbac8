//! How many old revisions are kept (upstream: `sync.go`, `cleanupDeployment`).

use std::sync::Arc;

use super::course::{hash_of, state_of};
use super::revision::revision_of;
use super::{ReplicaSets, Write};
use crate::model::{Deployment, ReplicaSet};

/// Deletes the oldest revisions above `spec.revisionHistoryLimit`, but only ReplicaSets that are empty, whose
/// emptiness the ReplicaSet controller has confirmed, and that are not being deleted (S8).
///
/// The latest of them stays until the new ReplicaSet exists: the next revision is counted from it (S7). Upstream may
/// delete it before, where the limit is 0, and begins with revision 1 again.
pub fn plan(deployment: &Deployment, replica_sets: &ReplicaSets) -> Vec<Write> {
    let Some(limit) = deployment.revision_history_limit else { return Vec::new() };
    let limit = usize::try_from(limit).unwrap_or(0);
    let mut old: Vec<&Arc<ReplicaSet>> =
        replica_sets.old.iter().filter(|replica_set| !replica_set.meta.is_deleting()).collect();
    // The verdict on a template lives as long as the revision that replaced it: forgotten, it would be rolled back again and again.
    let current = replica_sets.new.as_deref().map_or("", hash_of);
    old.retain(|old| state_of(old).failed.is_none_or(|verdict| verdict.to != current));
    old.sort_by_key(|replica_set| {
        (revision_of(replica_set).unwrap_or(0), replica_set.meta.created, replica_set.meta.key.clone())
    });
    if replica_sets.new.is_none() {
        old.pop();
    }
    let surplus = old.len().saturating_sub(limit);
    old.into_iter()
        .take(surplus)
        .filter(|replica_set| is_at_rest(replica_set))
        .map(|replica_set| Write::Delete(replica_set.clone()))
        .collect()
}

/// Whether a ReplicaSet is empty, as its controller has confirmed.
fn is_at_rest(replica_set: &ReplicaSet) -> bool {
    replica_set.replicas == 0
        && replica_set.status.replicas == 0
        && replica_set.status.observed_generation == replica_set.meta.generation
}
