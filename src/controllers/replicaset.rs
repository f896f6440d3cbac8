//! One sync of one ReplicaSet.

use std::sync::Arc;

use tokio::time::Instant;

use super::cluster::Cluster;
use super::error::SyncError;
use crate::model::{ObjectKey, Pod, Record, ReplicaSet, Resource};
use crate::plan::replicaset::{self as planner, Observed, status};
use crate::runtime::worker::Next;

/// Observe, plan, execute, settle.
///
/// # Errors
/// When a write or a read fails; the key is then retried with backoff.
pub async fn sync_replica_set(cluster: &Cluster, key: &ObjectKey) -> Result<Next, SyncError> {
    let Some(set) = cluster.sets.get(key) else { return Ok(Next::Settled) };
    cluster.resolve(&set).await?;
    if let Some(wait) = cluster.behind(&*set, &cluster.set_waiters) {
        let Resource { group, plural, .. } = ReplicaSet::RESOURCE;
        cluster.metrics.replicaset_stale_skips.with_label_values(&[group, plural]).inc();
        return Ok(wait);
    }
    let observed = observe(cluster, &set).await?;
    let plan = planner::plan(&observed);
    let executed = cluster.execute_set(&set, &plan).await;
    let mut settled = status::settle(&observed, executed.outcome.as_ref());

    let before = &set.status.conditions;
    cluster.words.keep(&set.meta.uid, before, &mut settled.status.conditions, Instant::now());

    let stale = matches!(executed.error, Some(SyncError::Conflict { .. } | SyncError::Gone { .. }));
    let written = if stale { Ok(()) } else { cluster.write_set_status(&set, &settled.status).await };
    match executed.error {
        Some(error) => Err(error),
        None => written.map(|()| settled.look_again.map_or(Next::Settled, Next::After)),
    }
}

async fn observe<'a>(cluster: &Cluster, set: &'a ReplicaSet) -> Result<Observed<'a>, SyncError> {
    let owned = cluster.pods.owned_by(&set.meta.uid);
    let orphans = cluster.pods.orphans(&set.meta.key.namespace);
    let may_adopt = planner::wants_to_adopt(set, &orphans) && cluster.may_adopt(set).await?;
    let siblings = if planner::is_too_large(set, &owned) { siblings(cluster, set) } else { Vec::new() };
    Ok(Observed { set, owned, orphans, may_adopt, siblings, now: cluster.clock.now() })
}

/// Active pods of the other sets of the same Deployment.
fn siblings(cluster: &Cluster, set: &ReplicaSet) -> Vec<Arc<Pod>> {
    let Some(controller) = &set.meta.controller else { return Vec::new() };
    let sets = cluster.sets.owned_by(&controller.uid);
    sets.iter()
        .filter(|sibling| sibling.meta.uid != set.meta.uid)
        .flat_map(|sibling| cluster.pods.owned_by(&sibling.meta.uid))
        .filter(|pod| pod.is_active())
        .collect()
}
