//! What both controllers share: the caches, the queues, and the services they write through.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::apis::Apis;
use super::coexistence::Coexistence;
use super::explanations::Explanations;
use super::gated_field::GatedField;
use super::lost_creations::LostCreations;
use super::pace::Pace;
use super::pod_names::PodNames;
use super::refused::Refused;
use super::rollouts::Rollouts;
use super::scope::Scope;
use super::turns::Turns;
use super::unresolved::Unresolved;
use super::vanished::Creations;
use super::words::Words;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::{Deployment, Meta, ObjectKey, Pod, Record, ReplicaSet, ReplicationController, Uid};
use crate::plan::Note;
use crate::runtime::events::{EventRecorder, EventTarget, EventType};
use crate::runtime::expectations::{Caches, Expectations, Freshness};
use crate::runtime::store::Store;
use crate::runtime::waiters::Waiters;
use crate::runtime::worker::{Next, WorkQueue};

/// The cluster as the controllers see it, and their way to change it. One per daemon; handed to every
/// worker behind an `Arc`.
#[derive(Debug)]
pub struct Cluster {
    /// The API server, once for each controller.
    pub apis: Apis,
    /// The time.
    pub clock: Clock,
    /// All Deployments.
    pub deployments: Arc<Store<Deployment>>,
    /// All ReplicaSets.
    pub sets: Arc<Store<ReplicaSet>>,
    /// All ReplicationControllers.
    pub replication_controllers: Arc<Store<ReplicationController>>,
    /// All pods.
    pub pods: Arc<Store<Pod>>,
    /// Keys of Deployments that want a sync.
    pub deployment_queue: WorkQueue<ObjectKey>,
    /// Keys of ReplicaSets that want a sync.
    pub set_queue: WorkQueue<ObjectKey>,
    /// Keys of ReplicationControllers that want a sync.
    pub replication_controller_queue: WorkQueue<ObjectKey>,
    /// The caches, as far as expectations look at them.
    pub caches: Caches,
    /// What the caches must show before an owner is decided about again.
    pub expectations: Expectations,
    /// Keys of Deployments that wait for a cache to catch up.
    pub deployment_waiters: Waiters<ObjectKey>,
    /// Keys of ReplicaSets that wait for a cache to catch up.
    pub set_waiters: Waiters<ObjectKey>,
    /// Keys of ReplicationControllers that wait for a cache to catch up.
    pub replication_controller_waiters: Waiters<ObjectKey>,
    /// Writes of which nobody knows yet whether they happened.
    pub unresolved: Unresolved,
    /// ReplicaSets that may have been created although nobody said so.
    pub lost_creations: LostCreations,
    /// The names that pods have had.
    pub pod_names: PodNames,
    /// What was created a moment ago.
    pub creations: Creations,
    /// When each status was last written.
    pub pace: Pace,
    /// Whether the API server keeps the counts of terminating pods.
    pub terminating_field: GatedField,
    /// Who writes a set.
    pub turns: Turns,
    /// Sets whose pods were refused.
    pub refused: Refused,
    /// When failures were last worded anew.
    pub words: Words,
    /// Why the last plans for each Deployment were what they were.
    pub explanations: Explanations,
    /// What is ours to act on.
    pub scope: Scope,
    /// The rollouts that are under way, for the metrics.
    pub rollouts: Rollouts,
    /// What speaks for another controller on the same objects.
    pub coexistence: Coexistence,
    /// The name under which the API server notes what we write.
    pub field_manager: String,
    /// Events.
    pub recorder: EventRecorder,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Whether pods that fail as fast as they are made are replaced one by one, after a wait.
    pub failed_pod_backoff: bool,
    /// Cancelled when the daemon is to end: running syncs begin no further pod.
    pub draining: CancellationToken,
}

/// Which controller speaks: the `source.component` of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// `deployment-controller`.
    Deployment,
    /// `replicaset-controller`.
    ReplicaSet,
    /// `replication-controller`.
    ReplicationController,
}

impl Speaker {
    fn component(self) -> &'static str {
        match self {
            Speaker::Deployment => "deployment-controller",
            Speaker::ReplicaSet => "replicaset-controller",
            Speaker::ReplicationController => "replication-controller",
        }
    }
}

impl Cluster {
    /// Tells the user something about an object. Never waits.
    pub fn tell<T: Record>(&self, speaker: Speaker, about: &T, note: Note) {
        let Note { warning, reason, message } = note;
        let kind = if warning { EventType::Warning } else { EventType::Normal };
        let meta = about.meta();
        let target = EventTarget {
            resource: T::RESOURCE,
            key: meta.key.clone(),
            uid: meta.uid.clone(),
            resource_version: Some(meta.resource_version),
        };
        self.recorder.record(&target, kind, reason, message, speaker.component());
    }

    /// Whether the caches show all our writes to an owner's objects (S23). If not, the key is parked:
    /// it wakes when the watch has caught up, and the answer is when to look again at the latest.
    pub fn behind<T: Record>(&self, owner: &T, waiters: &Waiters<ObjectKey>) -> Option<Next> {
        let meta = owner.meta();
        let Freshness::Behind(behind) = self.expectations.check(&meta.uid, &self.caches, Instant::now())
        else {
            return None;
        };
        if planted!("a cache older than our writes is trusted") {
            return None;
        }
        tracing::debug!(kind = T::RESOURCE.kind, key = %meta.key, ?behind, "the cache is behind our writes");
        waiters.park(&meta.key, &behind, &self.caches);
        Some(Next::After(behind.check_again))
    }

    /// Forgets whatever was noted of an owner.
    pub fn forget(&self, owner: &Uid) {
        self.expectations.forget(owner);
        self.unresolved.forget(owner);
        self.lost_creations.forget(owner);
        self.pod_names.forget(owner);
        self.creations.forget(owner);
        self.pace.forget(owner);
        self.turns.forget(owner);
        self.words.forget(owner);
        self.explanations.forget(owner);
        self.rollouts.forget(owner);
    }

    /// Forgets what was noted of an owner after the cache had shown it gone: the change that would have
    /// had it forgotten has passed, and there will be no other.
    pub fn forget_if_gone<T: Record>(&self, owners: &Store<T>, owner: &Meta) {
        if owners.get(&owner.key).is_none_or(|there| there.meta().uid != owner.uid) {
            self.forget(&owner.uid);
        }
    }

    /// The Deployment that a ReplicaSet belongs to.
    pub fn deployment_of(&self, set: &ReplicaSet) -> Option<Arc<Deployment>> {
        self.deployments.controller_of(&set.meta)
    }

    /// The ReplicaSet that a pod belongs to.
    pub fn set_of(&self, pod: &Pod) -> Option<Arc<ReplicaSet>> {
        self.sets.controller_of(&pod.meta)
    }
}
