//! The ReplicationController controller: the ReplicaSet's predecessor, which the same core serves.

use super::replicas::{self, ReplicaKind};
use crate::engine::entry::{ControllerEntry, Requests};
use crate::model::{Pod, Record, ReplicaSet, ReplicaSetStatus, ReplicationController};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "replicationcontroller-controller",
    aliases: &[],
    kind: ReplicationController::RESOURCE,
    objects: "ReplicationControllers",
    flag: "concurrent_rc_syncs",
    workers: 5,
    queue: "replicationmanager",
    component: "replication-controller",
    watches: &[ReplicationController::RESOURCE, Pod::RESOURCE],
    stale_skips: Some(|metrics| &metrics.replicaset_stale_skips),
    is_on_by_default: true,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install: replicas::install::<ReplicationController>,
};

impl ReplicaKind for ReplicationController {
    const ENTRY: &'static ControllerEntry = &ENTRY;

    fn as_replica_set(&self) -> &ReplicaSet {
        &self.0
    }

    fn reportable(status: ReplicaSetStatus) -> ReplicaSetStatus {
        ReplicationController::reportable(status)
    }
}
