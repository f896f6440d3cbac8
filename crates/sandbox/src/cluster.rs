//! A cache of a cluster for display and for `--exit-when-complete`: its Deployments, DaemonSets, ReplicaSets,
//! ReplicationControllers, pods and newest events, fed by watches.

use std::collections::{BTreeMap, VecDeque};

use futures::{
    StreamExt as _,
    stream::{BoxStream, select_all},
};
use kube::{
    Api, Client,
    core::{DynamicObject, gvk::GroupVersionKind},
    discovery::ApiResource,
    runtime::watcher,
};
use serde_json::Value;

use windlass_nodes::reflector::{Change, follow};

/// The number of events in the cache.
const EVENTS: usize = 200;

/// The watched kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Followed {
    /// apps/v1 Deployment.
    Deployment,
    /// apps/v1 DaemonSet.
    DaemonSet,
    /// apps/v1 ReplicaSet.
    ReplicaSet,
    /// v1 ReplicationController.
    ReplicationController,
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

/// Watches these kinds in all namespaces, for ever.
pub fn changes(client: &Client) -> BoxStream<'static, ObjectChange> {
    let kinds = [
        (Followed::Deployment, "apps", "Deployment", "deployments"),
        (Followed::DaemonSet, "apps", "DaemonSet", "daemonsets"),
        (Followed::ReplicaSet, "apps", "ReplicaSet", "replicasets"),
        (Followed::ReplicationController, "", "ReplicationController", "replicationcontrollers"),
        (Followed::Pod, "", "Pod", "pods"),
        (Followed::Event, "", "Event", "events"),
    ];
    let streams = kinds.map(|(kind, group, name, plural)| {
        let gvk = GroupVersionKind::gvk(group, "v1", name);
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        follow(api, watcher::Config::default()).filter_map(move |change| {
            let (object, deleted) = match change {
                Change::Put(object) => (object, false),
                Change::Deleted(object) => (object, true),
                Change::Synced => return std::future::ready(None),
            };
            let object = serde_json::to_value(object).ok();
            std::future::ready(object.map(|object| ObjectChange { kind, object, deleted }))
        })
    });
    select_all(streams.map(|stream| stream.boxed())).boxed()
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
    /// The ReplicaSets.
    pub replica_sets: BTreeMap<Key, Value>,
    /// The ReplicationControllers.
    pub replication_controllers: BTreeMap<Key, Value>,
    /// The pods.
    pub pods: BTreeMap<Key, Value>,
    /// The newest events, oldest first.
    pub events: VecDeque<Value>,
}

impl Cluster {
    /// Applies one change.
    pub fn observe(&mut self, change: ObjectChange) {
        let ObjectChange { kind, object, deleted } = change;
        let objects = match kind {
            Followed::Deployment => &mut self.deployments,
            Followed::DaemonSet => &mut self.daemon_sets,
            Followed::ReplicaSet => &mut self.replica_sets,
            Followed::ReplicationController => &mut self.replication_controllers,
            Followed::Pod => &mut self.pods,
            Followed::Event => {
                if !deleted {
                    self.events.push_back(object);
                    if self.events.len() > EVENTS {
                        self.events.pop_front();
                    }
                }
                return;
            }
        };
        let key = key(&object);
        if deleted {
            // A new object with the same name may be in the cache already.
            if objects.get(&key).is_some_and(|known| known["metadata"]["uid"] == object["metadata"]["uid"]) {
                objects.remove(&key);
            }
        } else {
            objects.insert(key, object);
        }
    }

    /// The objects of a map that `owner` controls.
    pub fn owned<'a>(objects: &'a BTreeMap<Key, Value>, owner: &'a Value) -> impl Iterator<Item = &'a Value> {
        let (namespace, _) = key(owner);
        let uid = &owner["metadata"]["uid"];
        objects
            .range((namespace.clone(), String::new())..)
            .take_while(move |((other, _), _)| *other == namespace)
            .map(|(_, object)| object)
            .filter(move |object| controller(object).is_some_and(|controller| controller["uid"] == *uid))
    }

    /// The pods of a workload: those that it controls, and those of its ReplicaSets if it is a Deployment.
    pub fn pods_of<'a>(&'a self, workload: &'a Value) -> Vec<&'a Value> {
        let of_replica_sets = Self::owned(&self.replica_sets, workload)
            .flat_map(|replica_set| Self::owned(&self.pods, replica_set));
        Self::owned(&self.pods, workload).chain(of_replica_sets).collect()
    }
}

/// The controller among an object's owner references.
fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
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

/// The state of a pod in the one word that `kubectl get pods` would show, but `Ready` where it shows `Running` with
/// every container ready.
pub fn pod_state(pod: &Value) -> String {
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return "Terminating".to_owned();
    }
    if let Some(reason) =
        waiting(pod).map(|(_, reason, _)| reason).filter(|reason| *reason != "PodInitializing")
    {
        return reason.to_owned();
    }
    let ready =
        conditions(pod).any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    match pod["status"]["phase"].as_str() {
        Some("Running") if ready => "Ready".to_owned(),
        Some(phase) if !phase.is_empty() => phase.to_owned(),
        _ => "Pending".to_owned(),
    }
}

/// Why a pod is not ready, if known: container, reason and message, or the scheduler's message.
pub fn not_ready_reason(pod: &Value) -> Option<String> {
    let unplaced = conditions(pod)
        .find(|condition| condition["type"] == "PodScheduled" && condition["status"] == "False");
    if let Some(condition) = unplaced {
        return Some(condition["message"].as_str().unwrap_or("not scheduled yet").to_owned());
    }
    if let Some((container, reason, message)) = waiting(pod) {
        return Some(match message {
            "" => format!("container {container}: {reason}"),
            message => format!("container {container}: {reason} ({message})"),
        });
    }
    if pod["spec"]["nodeName"].as_str().is_none_or(str::is_empty) {
        return Some("not scheduled: no scheduler has assigned a node".to_owned());
    }
    let unready =
        conditions(pod).find(|condition| condition["type"] == "Ready" && condition["status"] != "True");
    unready?["message"].as_str().map(str::to_owned)
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object["status"]["conditions"].as_array().into_iter().flatten()
}

/// The first waiting container: its name, the reason, and a message if there is one. `PodInitializing` only means that
/// a container waits for an init container, so another reason wins.
fn waiting(pod: &Value) -> Option<(&str, &str, &str)> {
    let of = |list: &str| pod["status"][list].as_array().into_iter().flatten();
    let waits = of("initContainerStatuses")
        .chain(of("containerStatuses"))
        .filter(|status| status["state"]["waiting"].is_object())
        .map(|status| {
            let waiting = &status["state"]["waiting"];
            (
                status["name"].as_str().unwrap_or_default(),
                waiting["reason"].as_str().unwrap_or("Waiting"),
                waiting["message"].as_str().unwrap_or_default(),
            )
        });
    let waits: Vec<_> = waits.collect();
    waits.iter().find(|(_, reason, _)| *reason != "PodInitializing").or(waits.first()).copied()
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
        let names: Vec<Key> = cluster.pods_of(&deployment).into_iter().map(key).collect();
        assert_eq!(names, [("shop".to_owned(), "mine".to_owned())]);
    }

    #[test]
    fn a_pod_that_is_not_ready_has_a_reason() {
        let with = |status: Value| json!({"metadata": {}, "spec": {"nodeName": "n1"}, "status": status});
        let bare = json!({"metadata": {}});
        assert_eq!(not_ready_reason(&bare).unwrap(), "not scheduled: no scheduler has assigned a node");
        let unplaced =
            json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "no room"}]});
        assert_eq!(not_ready_reason(&with(unplaced)).unwrap(), "no room");
        let unready = json!({"conditions": [{"type": "Ready", "status": "False", "message": "gate closed"}]});
        assert_eq!(not_ready_reason(&with(unready)).unwrap(), "gate closed");
        let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(not_ready_reason(&with(ready)), None);
    }

    #[test]
    fn the_state_of_a_pod_is_one_word() {
        let with = |status: Value| json!({"metadata": {}, "status": status});
        assert_eq!(pod_state(&with(json!({}))), "Pending");
        let ready = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        assert_eq!(pod_state(&with(ready)), "Ready");
        assert_eq!(pod_state(&with(json!({"phase": "Running"}))), "Running");
        let waiting = json!({"phase": "Pending", "containerStatuses": [
            {"name": "a", "state": {"running": {}}},
            {"name": "b", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}}]});
        assert_eq!(pod_state(&with(waiting.clone())), "ImagePullBackOff");
        assert_eq!(not_ready_reason(&with(waiting)).unwrap(), "container b: ImagePullBackOff (Back-off)");
        let dying = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(pod_state(&dying), "Terminating");
    }
}
