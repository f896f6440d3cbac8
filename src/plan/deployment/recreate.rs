//! Recreate: every old pod has ended before the first new one is created (upstream: `recreate.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::course::Course;
use super::rolling::{bring_up_to_date, new_replica_set, resize};
use super::{ReplicaSets, Write};
use crate::model::{Deployment, ReplicaSet, Uid};

/// Scales the old ReplicaSets to zero; then, once none of their pods runs any more, the new one to its full size.
///
/// `running` counts the pods of each ReplicaSet that have not ended. Pods that failed or succeeded do not
/// block: upstream waits for them too, and stalls until the deadline (kubernetes#128798).
pub fn plan(
    deployment: &Deployment,
    replica_sets: &ReplicaSets,
    running: &BTreeMap<Uid, usize>,
    course: &Course,
) -> Vec<Write> {
    // Where nothing runs, the one that serves grows again, and not the one that has failed.
    if let Some(exchanged) = course.target.as_ref().and_then(|target| replica_sets.exchanged(target))
        && let Some(target) = &exchanged.new
        && (target.replicas > 0 || !old_pods_may_run(&exchanged, running))
    {
        return stay(deployment, replica_sets, target, course);
    }
    let to_nothing: BTreeMap<Uid, i32> =
        replica_sets.old.iter().map(|replica_set| (replica_set.meta.uid.clone(), 0)).collect();
    let mut scale_downs = resize(deployment, &replica_sets.old, &to_nothing);
    // A reused ReplicaSet has the current revision from the start, not only once it may grow:
    // `kubectl rollout history` and the Deployment's own annotation report it.
    let current = replica_sets
        .new
        .as_ref()
        .and_then(|new| bring_up_to_date(deployment, new, replica_sets, new.replicas, course));
    if !scale_downs.is_empty() {
        scale_downs.extend(current);
        return scale_downs;
    }
    if old_pods_may_run(replica_sets, running) {
        return current.into_iter().collect();
    }
    match &replica_sets.new {
        None => vec![Write::Create(new_replica_set(deployment, replica_sets, deployment.replicas, course))],
        Some(new) => {
            bring_up_to_date(deployment, new, replica_sets, deployment.replicas, course).into_iter().collect()
        }
    }
}

/// The template has failed before, and the ReplicaSet that serves still has its pods: they stay.
fn stay(
    deployment: &Deployment,
    replica_sets: &ReplicaSets,
    target: &Arc<ReplicaSet>,
    course: &Course,
) -> Vec<Write> {
    let failed = replica_sets.new.iter();
    let failed = failed.filter_map(|failed| bring_up_to_date(deployment, failed, replica_sets, 0, course));
    let sized = [(target.meta.uid.clone(), deployment.replicas)].into();
    failed.chain(resize(deployment, std::slice::from_ref(target), &sized)).collect()
}

/// Whether a pod of an old ReplicaSet runs, or may still be created.
pub(super) fn old_pods_may_run(replica_sets: &ReplicaSets, running: &BTreeMap<Uid, usize>) -> bool {
    replica_sets.old.iter().any(|replica_set| {
        // Until the ReplicaSet controller has acted on the size 0, it may still be creating a pod that
        // no cache shows yet (S3).
        replica_set.status.observed_generation != replica_set.meta.generation
            || replica_set.status.replicas > 0
            || running.get(&replica_set.meta.uid).is_some_and(|&pods| pods > 0)
    })
}
