//! One sync of one Deployment.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::cluster::Cluster;
use super::error::SyncError;
use crate::model::{Deployment, ObjectKey, Record, Resource, Strategy};
use crate::plan::deployment::{self as planner, Observed, progress, revision};
use crate::runtime::worker::Next;

/// Observe, plan, execute, settle.
///
/// # Errors
/// When a write or a read fails; the key is then retried with backoff.
pub async fn sync_deployment(cluster: &Cluster, key: &ObjectKey) -> Result<Next, SyncError> {
    let Some(deployment) = cluster.deployments.get(key) else { return Ok(Next::Settled) };
    let result = sync(cluster, &deployment).await;
    cluster.forget_if_gone(&cluster.deployments, &deployment.meta);
    result
}

async fn sync(cluster: &Cluster, deployment: &Deployment) -> Result<Next, SyncError> {
    cluster.resolve_sets(deployment).await?;
    if let Some(wait) = cluster.behind(deployment, &cluster.deployment_waiters) {
        let Resource { group, plural, .. } = Deployment::RESOURCE;
        cluster.metrics.deployment_stale_skips.with_label_values(&[group, plural]).inc();
        return Ok(wait);
    }
    let observed = observe(cluster, deployment).await?;
    let plan = planner::plan(&observed);
    let executed = cluster.execute_deployment(deployment, &plan).await;
    let mut settled = progress::settle(&observed, &plan, &executed.outcome);

    let before = &deployment.status.conditions;
    cluster.words.keep(&deployment.meta.uid, before, &mut settled.status.conditions, Instant::now());

    let mut annotations = BTreeMap::new();
    if let Some(revision) = &settled.revision
        && deployment.annotations.get(revision::REVISION) != Some(revision)
    {
        annotations.insert(revision::REVISION, revision.as_str());
    }
    let stale = matches!(executed.error, Some(SyncError::Conflict { .. } | SyncError::Gone { .. }));
    let written = if stale {
        Ok(())
    } else {
        cluster.write_deployment_status(deployment, &settled.status, &annotations).await
    };
    match executed.error {
        Some(error) => Err(error),
        None => written.map(|()| settled.look_again.map_or(Next::Settled, Next::After)),
    }
}

async fn observe<'a>(cluster: &Cluster, deployment: &'a Deployment) -> Result<Observed<'a>, SyncError> {
    let owned = cluster.sets.owned_by(&deployment.meta.uid);
    let orphans = cluster.sets.orphans(&deployment.meta.key.namespace);
    let may_adopt = planner::wants_to_adopt(deployment, &orphans) && cluster.may_adopt(deployment).await?;
    let mut running_pods = BTreeMap::new();
    if deployment.strategy == Strategy::Recreate {
        for set in &owned {
            let pods = cluster.pods.owned_by(&set.meta.uid);
            let running = pods.iter().filter(|pod| !pod.is_terminal()).count();
            running_pods.insert(set.meta.uid.clone(), running);
        }
    }
    let now = cluster.clock.now();
    Ok(Observed { deployment, owned, orphans, may_adopt, running_pods, now })
}
