//! The workers of each controller.

use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::config::{ControllerConfig, Enabled};
use crate::controllers::deployment::sync_deployment;
use crate::controllers::replicaset::sync_replica_set;
use crate::controllers::{Cluster, SyncError};
use crate::model::{ObjectKey, ReplicaSet, ReplicationController};
use crate::runtime::tasks::{Ended, named};
use crate::runtime::worker::{self, Next, WorkQueue};

type Syncing = futures::future::BoxFuture<'static, Result<Next, SyncError>>;

/// A controller, as it is started.
struct Controller<'c> {
    name: &'static str,
    enabled: bool,
    queue: &'c WorkQueue<ObjectKey>,
    workers: usize,
    /// Whether an object is ours to act on.
    in_scope: fn(&Cluster, &ObjectKey) -> bool,
    sync: fn(Arc<Cluster>, ObjectKey) -> Syncing,
}

/// Starts the controllers that are not switched off, with `--controller-start-interval` between them.
pub(super) async fn start(
    cluster: &Arc<Cluster>,
    config: &ControllerConfig,
    workers: &mut JoinSet<Ended>,
    shutdown: &CancellationToken,
) {
    let Enabled { deployment, replicaset, replicationcontroller } = config.enabled;
    let all = [
        Controller {
            name: "deployment-controller",
            enabled: deployment,
            queue: &cluster.deployment_queue,
            workers: config.deployment_workers,
            in_scope: Cluster::has_deployment_in_scope,
            sync: |cluster, key| Box::pin(async move { sync_deployment(&cluster, &key).await }),
        },
        Controller {
            name: "replicaset-controller",
            enabled: replicaset,
            queue: &cluster.set_queue,
            workers: config.set_workers,
            in_scope: Cluster::has_set_in_scope,
            sync: |cluster, key| {
                Box::pin(async move { sync_replica_set::<ReplicaSet>(&cluster, &key).await })
            },
        },
        Controller {
            name: "replicationcontroller-controller",
            enabled: replicationcontroller,
            queue: &cluster.replication_controller_queue,
            workers: config.rc_workers,
            in_scope: Cluster::has_replication_controller_in_scope,
            sync: |cluster, key| {
                Box::pin(async move { sync_replica_set::<ReplicationController>(&cluster, &key).await })
            },
        },
    ];
    let mut is_first = true;
    for Controller { name, enabled, queue, workers: count, in_scope, sync } in all {
        if !enabled {
            tracing::info!(controller = name, "switched off by --controllers");
            // It takes no keys, which would lie there for ever.
            queue.shut_down();
            continue;
        }
        let (syncing, queue) = (cluster.clone(), queue.clone());
        let work = worker::run_workers(queue, count, move |key| -> Syncing {
            if in_scope(&syncing, &key) {
                sync(syncing.clone(), key)
            } else {
                Box::pin(std::future::ready(Ok(Next::Settled)))
            }
        });
        if !std::mem::take(&mut is_first) {
            tokio::select! {
                biased;
                () = tokio::time::sleep(config.start_interval) => {}
                () = shutdown.cancelled() => return,
            }
        }
        cluster.metrics.running_controllers.with_label_values(&[name, "windlass"]).set(1);
        tracing::info!(controller = name, workers = count, "started");
        workers.spawn(named(name, work));
    }
}
