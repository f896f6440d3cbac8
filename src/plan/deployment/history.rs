//! How many old revisions are kept (upstream: `sync.go`, `cleanupDeployment`).

use std::sync::Arc;

use super::revision::revision_of;
use super::{ReplicaSets, Write};
use crate::model::{Deployment, ReplicaSet, Uid};
use crate::plan::policy::Policy;
use crate::plan::policy::state::{hash_of, state_of};
use crate::plan::policy::steps::NEAR;

/// Deletes the oldest revisions above `spec.revisionHistoryLimit`, but only ReplicaSets that are empty, whose
/// emptiness the ReplicaSet controller has confirmed, and that are not being deleted (S8).
///
/// The latest of them stays until the new ReplicaSet exists: the next revision is counted from it (S7). Upstream may
/// delete it before, where the limit is 0, and begins with revision 1 again.
pub fn plan(deployment: &Deployment, replica_sets: &ReplicaSets, policy: &Policy) -> Vec<Write> {
    let Some(limit) = deployment.revision_history_limit else { return Vec::new() };
    let limit = usize::try_from(limit).unwrap_or(0);
    let mut old: Vec<&Arc<ReplicaSet>> =
        replica_sets.old.iter().filter(|replica_set| !replica_set.meta.is_deleting()).collect();
    old.sort_by_key(|replica_set| {
        (revision_of(replica_set).unwrap_or(0), replica_set.meta.created, replica_set.meta.key.clone())
    });
    if !policy.is_off
        && let Some(new) = &replica_sets.new
    {
        // The verdict on a template lives as long as the revision that replaced it: forgotten, it would be rolled back again and
        // again. More of them than people go back and forth between would be a history without a limit.
        let failed = old.iter().rev().filter(|old| has_failed_for(old, hash_of(new)));
        let kept: Vec<Uid> = failed.take(NEAR).map(|old| old.meta.uid.clone()).collect();
        old.retain(|old| !kept.contains(&old.meta.uid));
    }
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

/// Whether a rollout to a ReplicaSet has failed, and gone back to the one with this hash.
fn has_failed_for(replica_set: &ReplicaSet, current: &str) -> bool {
    state_of(replica_set).failed.is_some_and(|verdict| verdict.to == current)
}

/// Whether a ReplicaSet is empty, as its controller has confirmed.
fn is_at_rest(replica_set: &ReplicaSet) -> bool {
    replica_set.replicas == 0
        && replica_set.status.replicas == 0
        && replica_set.status.observed_generation == replica_set.meta.generation
}
