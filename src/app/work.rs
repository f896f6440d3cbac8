//! The workers of each controller.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::tasks::{Ended, named};
use crate::config::{ControllerConfig, Enabled};
use crate::controllers::deployment::sync_deployment;
use crate::controllers::replicaset::sync_replica_set;
use crate::controllers::{Cluster, SyncError};
use crate::model::{ObjectKey, ReplicaSet, ReplicationController};
use crate::runtime::worker::{self, Next, WorkQueue};

type Syncing = futures::future::BoxFuture<'static, Result<Next, SyncError>>;
type SyncFn = fn(Arc<Cluster>, ObjectKey) -> Syncing;

/// Starts the controllers that are not switched off, with `--controller-start-interval` between them.
pub(super) async fn start(
    cluster: &Arc<Cluster>,
    config: &ControllerConfig,
    workers: &mut JoinSet<Ended>,
    shutdown: &CancellationToken,
) {
    let Enabled { deployment, replicaset, replicationcontroller } = config.enabled;
    let all: [(&'static str, bool, &WorkQueue<ObjectKey>, usize, SyncFn); 3] = [
        (
            "deployment-controller",
            deployment,
            &cluster.deployment_queue,
            config.deployment_workers,
            |cluster, key| {
                Box::pin(async move {
                    if !cluster.has_deployment_in_scope(&key) {
                        return Ok(Next::Settled);
                    }
                    sync_deployment(&cluster, &key).await
                })
            },
        ),
        ("replicaset-controller", replicaset, &cluster.set_queue, config.set_workers, |cluster, key| {
            Box::pin(async move {
                if !cluster.has_set_in_scope(&key) {
                    return Ok(Next::Settled);
                }
                sync_replica_set::<ReplicaSet>(&cluster, &key).await
            })
        }),
        (
            "replicationcontroller-controller",
            replicationcontroller,
            &cluster.replication_controller_queue,
            config.rc_workers,
            |cluster, key| {
                Box::pin(async move {
                    if !cluster.has_replication_controller_in_scope(&key) {
                        return Ok(Next::Settled);
                    }
                    sync_replica_set::<ReplicationController>(&cluster, &key).await
                })
            },
        ),
    ];
    let mut is_first = true;
    for (name, enabled, queue, count, sync) in all {
        if !enabled {
            tracing::info!(controller = name, "switched off by --controllers");
            // It takes no keys, which would lie there for ever.
            queue.shut_down();
            continue;
        }
        let (syncing, queue) = (cluster.clone(), queue.clone());
        let work = worker::run_workers(queue, count, move |key| sync(syncing.clone(), key));
        if !std::mem::take(&mut is_first) {
            tokio::select! {
                () = tokio::time::sleep(config.start_interval) => {}
                () = shutdown.cancelled() => return,
            }
        }
        cluster.metrics.running_controllers.with_label_values(&[name, "windlass"]).set(1);
        tracing::info!(controller = name, workers = count, "started");
        workers.spawn(named(name, work));
    }
}
