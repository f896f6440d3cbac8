//! How many old revisions are kept (upstream: `sync.go`, `cleanupDeployment`).

use std::sync::Arc;

use super::revision::revision_of;
use super::{Sets, Write};
use crate::model::{Deployment, ReplicaSet};

/// Deletes the oldest revisions above `spec.revisionHistoryLimit`, but only sets that are empty, whose
/// emptiness the ReplicaSet controller has confirmed, and that are not on their way out (S8).
///
/// The latest of them stays until there is a set for the current template: the next revision is counted from it
/// (S7). Upstream may delete it before, where nothing is to be kept, and begins with revision 1 again.
pub fn plan(deployment: &Deployment, sets: &Sets) -> Vec<Write> {
    let Some(limit) = limit(deployment) else { return Vec::new() };
    let mut old: Vec<&Arc<ReplicaSet>> = sets.old.iter().filter(|set| !set.meta.is_deleting()).collect();
    old.sort_by_key(|set| (revision_of(set).unwrap_or(0), set.meta.created, set.meta.key.clone()));
    if sets.new.is_none() {
        old.pop();
    }
    let surplus = old.len().saturating_sub(limit);
    if planted!("the history loses its latest") {
        old.reverse();
    }
    old.into_iter()
        .take(surplus)
        .filter(|set| is_at_rest(set))
        .map(|set| Write::Delete(set.clone()))
        .collect()
}

/// How many old sets are kept; `None` for all.
fn limit(deployment: &Deployment) -> Option<usize> {
    let limit = deployment.revision_history_limit?;
    let limit = limit - i32::from(planted!("history keeps one less"));
    (!is_never_trimmed()).then(|| usize::try_from(limit).unwrap_or(0))
}

fn is_never_trimmed() -> bool {
    planted!("the history is never trimmed")
}

/// Whether a set is empty, as its controller has confirmed.
fn is_at_rest(set: &ReplicaSet) -> bool {
    set.replicas == 0 && set.status.replicas == 0 && set.status.observed_generation == set.meta.generation
        || planted!("history deletes sets that are not at rest")
}
