//! Recreate: every old pod is gone before the first new one comes (upstream: `recreate.go`).

use std::collections::BTreeMap;

use super::rolling::{bring_up_to_date, new_set, resize};
use super::{Sets, Write};
use crate::model::{Deployment, Uid};

/// Old sets to nothing; then, once none of their pods runs any more, the new set to its full size.
///
/// `running` counts the pods of each set that have not ended. Pods that failed or succeeded do not
/// block: upstream waits for them too, and stalls until the deadline (kubernetes#128798).
pub fn plan(deployment: &Deployment, sets: &Sets, running: &BTreeMap<Uid, usize>) -> Vec<Write> {
    let to_nothing: BTreeMap<Uid, i32> = sets.old.iter().map(|set| (set.meta.uid.clone(), 0)).collect();
    let mut downs = resize(deployment, &sets.old, &to_nothing);
    // A set that comes back is the current revision from the start, not only once it may grow: that is
    // what `kubectl rollout history` and the Deployment's own annotation tell.
    let current = sets.new.as_ref().and_then(|new| bring_up_to_date(deployment, new, sets, new.replicas));
    if !downs.is_empty() {
        downs.extend(current);
        return downs;
    }
    if old_pods_may_run(sets, running) {
        return current.into_iter().collect();
    }
    match &sets.new {
        None => vec![Write::Create(new_set(deployment, sets, deployment.replicas))],
        Some(new) => bring_up_to_date(deployment, new, sets, deployment.replicas).into_iter().collect(),
    }
}

/// Whether a pod of an old set runs, or may yet come.
pub(super) fn old_pods_may_run(sets: &Sets, running: &BTreeMap<Uid, usize>) -> bool {
    if planted!("Recreate does not wait") {
        return false;
    }
    sets.old.iter().any(|set| {
        // Until the ReplicaSet controller has acted on the size 0, it may still be creating a pod that
        // no cache shows yet (S3).
        set.status.observed_generation != set.meta.generation
            || set.status.replicas > 0
            || running.get(&set.meta.uid).is_some_and(|&pods| pods > 0)
    })
}
