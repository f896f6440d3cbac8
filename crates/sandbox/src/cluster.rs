//! A cache of a cluster for display and for `--exit-when-complete`: its workloads, pods and newest events, fed by watches. Of
//! a pod it keeps a summary: there are many.

mod pod;
mod watched;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use futures::{
    StreamExt as _,
    stream::{BoxStream, select_all},
};
use kube::{Api, Client, core::gvk::GroupVersionKind, discovery::ApiResource, runtime::watcher};
use serde_json::{Value, json};

pub use self::pod::{Pod, not_ready_reason, pod_state};
use self::watched::Watched;
use windlass_nodes::reflector::{Change, Identity, follow, follow_new};

/// The number of events in the cache.
const EVENTS: usize = 200;

/// The watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Followed {
    /// apps/v1 Deployment.
    Deployment,
    /// apps/v1 DaemonSet.
    DaemonSet,
    /// apps/v1 StatefulSet.
    StatefulSet,
    /// apps/v1 ReplicaSet.
    ReplicaSet,
    /// v1 ReplicationController.
    ReplicationController,
    /// batch/v1 Job.
    Job,
    /// v1 Pod.
    Pod,
    /// v1 Event.
    Event,
}

/// One change of one object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectChange {
    /// Its kind.
    pub kind: Followed,
    /// The object's state, or its last one.
    pub object: Value,
    /// Whether the object was deleted.
    pub deleted: bool,
}

/// Watches these kinds in all namespaces, for ever. The API server must serve streaming lists, as that of this process.
pub fn changes(client: &Client) -> BoxStream<'static, ObjectChange> {
    let kinds = [
        (Followed::Deployment, "apps", "Deployment", "deployments"),
        (Followed::DaemonSet, "apps", "DaemonSet", "daemonsets"),
        (Followed::StatefulSet, "apps", "StatefulSet", "statefulsets"),
        (Followed::ReplicaSet, "apps", "ReplicaSet", "replicasets"),
        (Followed::ReplicationController, "", "ReplicationController", "replicationcontrollers"),
        (Followed::Job, "batch", "Job", "jobs"),
        (Followed::Pod, "", "Pod", "pods"),
        (Followed::Event, "", "Event", "events"),
    ];
    let streams = kinds.map(|(kind, group, name, plural)| {
        let gvk = GroupVersionKind::gvk(group, "v1", name);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api: Api<Watched> = Api::all_with(client.clone(), &resource);
        // Between the pages of a list and the watch after it, a rollout of thousands of pods writes more than the history
        // of the API server keeps.
        let config = watcher::Config::default().streaming_lists();
        if kind == Followed::Event {
            let events = follow_new(api, config);
            return events
                .map(move |Watched { object, .. }| ObjectChange { kind, object, deleted: false })
                .boxed();
        }
        let changes = follow(api, config).filter_map(move |change| {
            std::future::ready(match change {
                Change::Put(Watched { object, .. }) => Some(ObjectChange { kind, object, deleted: false }),
                Change::Deleted(Identity { uid, namespace, name }) => {
                    let object = json!({"metadata": {"namespace": namespace, "name": name, "uid": uid}});
                    Some(ObjectChange { kind, object, deleted: true })
                }
                Change::Synced => None,
            })
        });
        changes.boxed()
    });
    select_all(streams).boxed()
}

/// A namespace and a name.
pub type Key = (String, String);

/// The objects by namespace and name.
#[derive(Debug, Default)]
pub struct Cluster {
    /// The Deployments.
    pub deployments: BTreeMap<Key, Value>,
    /// The DaemonSets.
    pub daemon_sets: BTreeMap<Key, Value>,
    /// The StatefulSets.
    pub stateful_sets: BTreeMap<Key, Value>,
    /// The ReplicaSets.
    pub replica_sets: BTreeMap<Key, Value>,
    /// The ReplicationControllers.
    pub replication_controllers: BTreeMap<Key, Value>,
    /// The Jobs.
    pub jobs: BTreeMap<Key, Value>,
    /// The pods.
    pub pods: BTreeMap<Key, Pod>,
    /// The newest events, oldest first.
    pub events: VecDeque<Value>,
    /// The ReplicaSets and pods by the UID of their controller.
    owned: BTreeMap<String, BTreeSet<(Followed, Key)>>,
}

impl Cluster {
    /// Applies one change.
    pub fn observe(&mut self, change: ObjectChange) {
        let ObjectChange { kind, mut object, deleted } = change;
        if kind == Followed::Event {
            if !deleted {
                self.events.push_back(object);
                if self.events.len() > EVENTS {
                    self.events.pop_front();
                }
            }
            return;
        }
        let key = key(&object);
        let known = match kind {
            Followed::Pod => self.pods.get(&key).map(|pod| (pod.uid.to_string(), pod.controller.clone())),
            _ => self.objects(kind).get(&key).map(|known| (uid(known), controller(known).map(Box::from))),
        };
        // A new object with the same name may be in the cache already.
        if deleted && known.as_ref().is_none_or(|(known, _)| *known != uid(&object)) {
            return;
        }
        if let Some((_, Some(owner))) = known {
            self.disown(&owner, kind, &key);
        }
        if deleted {
            match kind {
                Followed::Pod => drop(self.pods.remove(&key)),
                _ => drop(self.objects_mut(kind).remove(&key)),
            }
            return;
        }
        if let Some(owner) = controller(&object) {
            self.owned.entry(owner.to_owned()).or_default().insert((kind, key.clone()));
        }
        match kind {
            Followed::Pod => drop(self.pods.insert(key, Pod::of(&object))),
            _ => {
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("labels");
                }
                self.objects_mut(kind).insert(key, object);
            }
        }
    }

    /// The objects of a kind that is kept as it is, which pods and events are not.
    pub fn objects(&self, kind: Followed) -> &BTreeMap<Key, Value> {
        match kind {
            Followed::DaemonSet => &self.daemon_sets,
            Followed::StatefulSet => &self.stateful_sets,
            Followed::ReplicaSet => &self.replica_sets,
            Followed::ReplicationController => &self.replication_controllers,
            Followed::Job => &self.jobs,
            Followed::Deployment | Followed::Pod | Followed::Event => &self.deployments,
        }
    }

    fn objects_mut(&mut self, kind: Followed) -> &mut BTreeMap<Key, Value> {
        match kind {
            Followed::DaemonSet => &mut self.daemon_sets,
            Followed::StatefulSet => &mut self.stateful_sets,
            Followed::ReplicaSet => &mut self.replica_sets,
            Followed::ReplicationController => &mut self.replication_controllers,
            Followed::Job => &mut self.jobs,
            Followed::Deployment | Followed::Pod | Followed::Event => &mut self.deployments,
        }
    }

    fn disown(&mut self, owner: &str, kind: Followed, key: &Key) {
        if let Some(owned) = self.owned.get_mut(owner) {
            owned.remove(&(kind, key.clone()));
            if owned.is_empty() {
                self.owned.remove(owner);
            }
        }
    }

    /// The names of the objects that `owner` controls in its namespace.
    fn owned_by(&self, kind: Followed, owner: &Value) -> impl Iterator<Item = &Key> {
        let (namespace, _) = key(owner);
        let owned = owner["metadata"]["uid"].as_str().and_then(|uid| self.owned.get(uid));
        let owned = owned.into_iter().flatten().filter(move |(other, _)| *other == kind);
        owned.map(|(_, key)| key).filter(move |key| key.0 == namespace)
    }

    /// The ReplicaSets that `owner` controls.
    pub fn replica_sets_of(&self, owner: &Value) -> impl Iterator<Item = &Value> {
        self.owned_by(Followed::ReplicaSet, owner).filter_map(|key| self.replica_sets.get(key))
    }

    /// The pods that `owner` controls itself.
    pub fn own_pods_of(&self, owner: &Value) -> impl Iterator<Item = (&Key, &Pod)> {
        self.owned_by(Followed::Pod, owner).filter_map(|key| self.pods.get_key_value(key))
    }

    /// The pods of a workload: those that it controls, and those of its ReplicaSets if it is a Deployment.
    pub fn pods_of(&self, workload: &Value) -> Vec<(&Key, &Pod)> {
        let of_replica_sets =
            self.replica_sets_of(workload).flat_map(|replica_set| self.own_pods_of(replica_set));
        self.own_pods_of(workload).chain(of_replica_sets).collect()
    }
}

/// The UID of the controller among an object's owner references.
fn controller(object: &Value) -> Option<&str> {
    let mut owners = object["metadata"]["ownerReferences"].as_array()?.iter();
    owners.find(|owner| owner["controller"] == true)?["uid"].as_str()
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// The namespace and the name of an object.
pub fn key(object: &Value) -> Key {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
    (text("namespace"), text("name"))
}

/// A number of an object, 0 if it is absent.
pub fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// The desired number of replicas: 1 if the spec has none.
pub fn desired_replicas(object: &Value) -> i64 {
    object.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, uid: &str) -> Value {
        json!({"metadata": {"namespace": "shop", "name": name, "uid": uid}})
    }

    #[test]
    fn a_late_deletion_does_not_hide_the_successor() {
        let mut cluster = Cluster::default();
        let put = |object| ObjectChange { kind: Followed::Pod, object, deleted: false };
        cluster.observe(put(pod("web", "u1")));
        cluster.observe(put(pod("web", "u2")));
        cluster.observe(ObjectChange { kind: Followed::Pod, object: pod("web", "u1"), deleted: true });
        assert_eq!(cluster.pods.len(), 1);
        cluster.observe(ObjectChange { kind: Followed::Pod, object: pod("web", "u2"), deleted: true });
        assert_eq!(cluster.pods.len(), 0);
    }

    #[test]
    fn pods_are_found_through_their_replica_set_in_their_namespace_only() {
        let mut cluster = Cluster::default();
        let owned = |namespace: &str, uid: &str, owner: &str| {
            json!({"metadata": {"namespace": namespace, "name": uid, "uid": uid,
                                "ownerReferences": [{"uid": owner, "controller": true}]}})
        };
        let put = |kind, object| ObjectChange { kind, object, deleted: false };
        cluster.observe(put(Followed::ReplicaSet, owned("shop", "replica-set", "deployment")));
        cluster.observe(put(Followed::Pod, owned("shop", "mine", "replica-set")));
        cluster.observe(put(Followed::Pod, owned("shop", "other", "another-replica-set")));
        cluster.observe(put(Followed::Pod, owned("zoo", "foreign", "replica-set")));
        let deployment = json!({"metadata": {"namespace": "shop", "name": "web", "uid": "deployment"}});
        let names: Vec<Key> = cluster.pods_of(&deployment).into_iter().map(|(key, _)| key.clone()).collect();
        assert_eq!(names, [("shop".to_owned(), "mine".to_owned())]);
    }
}
