//! Objects as an API server stores them once plans are carried out. The preview of a rollout stands on them, and so do
//! most worlds of the planners' tests: each adds a kubelet. The tests of DaemonSets judge each write by its JSON instead.
//!
//! The one guarantee: the effect of a write is defined here alone, in one file for the writes of one planner.

pub mod daemon_set;
pub mod deployment;
pub mod replica_set;
pub mod rolling_update;
pub mod stateful_set;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use crate::model::{
    ControllerRef, ControllerRevision, Interner, Meta, PersistentVolumeClaim, Pod, Record, ReplicaSet,
    StringMap,
};

/// The objects of one kind, by name.
pub type ByName<T> = BTreeMap<Arc<str>, Arc<T>>;

/// The objects of one namespace.
#[derive(Clone, Debug)]
pub struct Objects {
    /// The time of the next write.
    pub now: Timestamp,
    /// The ReplicaSets, or the ReplicationControllers in their form.
    pub replica_sets: ByName<ReplicaSet>,
    /// The pods.
    pub pods: ByName<Pod>,
    /// The claims.
    pub claims: ByName<PersistentVolumeClaim>,
    /// The ControllerRevisions.
    pub revisions: ByName<ControllerRevision>,
    /// How many objects have been created.
    created: u64,
}

/// The result of a sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Synced {
    /// Whether anything was written.
    pub wrote: bool,
    /// When to sync again.
    pub requeue_after: Option<Duration>,
}

impl Objects {
    /// No objects.
    pub fn new(now: Timestamp) -> Self {
        Objects {
            now,
            replica_sets: BTreeMap::new(),
            pods: BTreeMap::new(),
            claims: BTreeMap::new(),
            revisions: BTreeMap::new(),
            created: 0,
        }
    }

    /// The ReplicaSets that an object controls.
    pub fn replica_sets_of(&self, owner: &impl Record) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.replica_sets.values().filter(move |replica_set| owner.controls(&replica_set.meta))
    }

    /// The pods that an object controls.
    pub fn pods_of(&self, owner: &impl Record) -> Vec<Arc<Pod>> {
        self.pods.values().filter(|pod| owner.controls(&pod.meta)).cloned().collect()
    }

    /// The object that is stored when this body is sent.
    fn create<T: Record>(&mut self, body: &[u8]) -> Result<T, serde_json::Error> {
        let mut object: Value = serde_json::from_slice(body)?;
        self.created += 1;
        let metadata = &mut object["metadata"];
        // UIDs sort as the names do, and a name that comes back has another one.
        let name = metadata["name"].as_str().unwrap_or_default();
        metadata["uid"] = format!("{name}-{}", self.created).into();
        metadata["resourceVersion"] = self.created.to_string().into();
        metadata["creationTimestamp"] = self.now.to_string().into();
        metadata["generation"] = 1.into();
        T::decode(&object.to_string(), &mut Interner::default())
    }
}

/// Changes an object; one that is gone stays so.
fn change<T: Clone>(objects: &mut ByName<T>, name: &str, change: impl FnOnce(&mut T)) {
    if let Some(object) = objects.get_mut(name) {
        change(Arc::make_mut(object));
    }
}

/// A change of the spec. A generation that was read may be the largest that there is.
fn bump_generation(meta: &mut Meta) {
    meta.generation = meta.generation.saturating_add(1);
}

/// Sets an annotation.
pub fn annotate(annotations: &mut Arc<StringMap>, key: &str, value: &str) {
    *annotations = Arc::new(annotations.iter().chain([(key, value)]).collect());
}

/// Removes annotations.
pub fn remove_annotations(annotations: &mut Arc<StringMap>, keys: &[&str]) {
    *annotations = Arc::new(annotations.iter().filter(|(key, _)| !keys.contains(key)).collect());
}

/// The reference to an object that controls another.
pub fn controller(owner: &impl Record) -> Arc<ControllerRef> {
    let (resource, meta) = (owner.resource(), owner.meta());
    Arc::new(ControllerRef {
        api_version: resource.api_version().into(),
        kind: resource.kind.into(),
        name: meta.key.name.clone(),
        uid: meta.uid.clone(),
    })
}
