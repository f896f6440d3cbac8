//! The kinds that keep a number of pods. One core serves them all; a kind brings its names and queues.

use std::sync::Arc;

use super::cluster::{Cluster, Speaker};
use crate::model::{ObjectKey, Record, ReplicaSet, ReplicaSetStatus, ReplicationController};
use crate::plan::replicaset::body::OwnerReference;
use crate::runtime::store::Store;
use crate::runtime::waiters::Waiters;
use crate::runtime::worker::WorkQueue;

/// A kind whose objects each keep a number of pods.
pub trait PodOwner: Record {
    /// The `apiVersion` of the kind.
    const API_VERSION: &'static str;
    /// Who speaks about its objects.
    const SPEAKER: Speaker;

    /// The object as the planner knows it.
    fn as_set(&self) -> &ReplicaSet;

    /// What the kind can report of a status.
    fn reportable(status: ReplicaSetStatus) -> ReplicaSetStatus {
        status
    }

    /// All objects of the kind.
    fn store(cluster: &Cluster) -> &Arc<Store<Self>>;

    /// Their keys that want a sync.
    fn queue(cluster: &Cluster) -> &WorkQueue<ObjectKey>;

    /// Their keys that wait for a cache to catch up.
    fn waiters(cluster: &Cluster) -> &Waiters<ObjectKey>;

    /// The reference that makes a pod this object's.
    fn reference(&self) -> OwnerReference<'_> {
        let meta = self.meta();
        OwnerReference::controller(Self::API_VERSION, Self::RESOURCE.kind, &meta.key.name, &meta.uid)
    }
}

impl PodOwner for ReplicaSet {
    const API_VERSION: &'static str = "apps/v1";
    const SPEAKER: Speaker = Speaker::ReplicaSet;

    fn as_set(&self) -> &ReplicaSet {
        self
    }

    fn store(cluster: &Cluster) -> &Arc<Store<Self>> {
        &cluster.sets
    }

    fn queue(cluster: &Cluster) -> &WorkQueue<ObjectKey> {
        &cluster.set_queue
    }

    fn waiters(cluster: &Cluster) -> &Waiters<ObjectKey> {
        &cluster.set_waiters
    }
}

impl PodOwner for ReplicationController {
    const API_VERSION: &'static str = "v1";
    const SPEAKER: Speaker = Speaker::ReplicationController;

    fn as_set(&self) -> &ReplicaSet {
        &self.0
    }

    fn reportable(status: ReplicaSetStatus) -> ReplicaSetStatus {
        ReplicationController::reportable(status)
    }

    fn store(cluster: &Cluster) -> &Arc<Store<Self>> {
        &cluster.replication_controllers
    }

    fn queue(cluster: &Cluster) -> &WorkQueue<ObjectKey> {
        &cluster.replication_controller_queue
    }

    fn waiters(cluster: &Cluster) -> &Waiters<ObjectKey> {
        &cluster.replication_controller_waiters
    }
}
