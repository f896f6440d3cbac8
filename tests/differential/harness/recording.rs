//! The events that a watch shows of each namespace, in the order of resource versions.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::TryStreamExt;
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use serde_json::Value;
use tokio::time::Instant;

/// The kinds whose objects users look at, and where they are.
pub const KINDS: [(&str, &str); 13] = [
    ("Deployment", "/apis/apps/v1/deployments"),
    ("ReplicaSet", "/apis/apps/v1/replicasets"),
    ("ReplicationController", "/api/v1/replicationcontrollers"),
    ("DaemonSet", "/apis/apps/v1/daemonsets"),
    ("StatefulSet", "/apis/apps/v1/statefulsets"),
    ("ControllerRevision", "/apis/apps/v1/controllerrevisions"),
    ("CronJob", "/apis/batch/v1/cronjobs"),
    ("Job", "/apis/batch/v1/jobs"),
    ("Pod", "/api/v1/pods"),
    ("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims"),
    ("ConfigMap", "/api/v1/configmaps"),
    ("Namespace", "/api/v1/namespaces"),
    ("Event", "/api/v1/events"),
];

/// Those that the scripts of their controllers look at besides.
pub const KINDS_OF_SERVICES: [(&str, &str); 5] = [
    ("Service", "/api/v1/services"),
    ("Endpoints", "/api/v1/endpoints"),
    ("EndpointSlice", "/apis/discovery.k8s.io/v1/endpointslices"),
    ("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets"),
    ("ResourceQuota", "/api/v1/resourcequotas"),
];

/// The kind of change to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Added,
    Modified,
    Deleted,
}

/// One event of a watch.
#[derive(Clone, Debug)]
pub struct Change {
    pub version: u64,
    pub what: What,
    pub kind: &'static str,
    pub object: Value,
}

/// An object as it is, and the resource version at which it was created.
#[derive(Clone, Debug)]
pub struct Current {
    pub kind: &'static str,
    pub created: u64,
    pub object: Value,
}

/// The history of one namespace.
pub struct History {
    pub changes: Vec<Change>,
    pub current: BTreeMap<(&'static str, String), Current>,
    /// When something other than the repetition of a warning was last seen.
    pub active: Instant,
}

impl Default for History {
    fn default() -> Self {
        History { changes: Vec::new(), current: BTreeMap::new(), active: Instant::now() }
    }
}

impl History {
    fn add(&mut self, change: Change) {
        let name = change.object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        // A refused write is repeated for ever, less and less often.
        if change.kind != "Event" || (change.what == What::Added && change.object["type"] == "Normal") {
            self.active = Instant::now();
        }
        let key = (change.kind, name);
        match change.what {
            What::Deleted => {
                self.current.remove(&key);
            }
            What::Added | What::Modified => {
                let created = self.current.get(&key).map_or(change.version, |current| current.created);
                let object = change.object.clone();
                self.current.insert(key, Current { kind: change.kind, created, object });
            }
        }
        self.changes.push(change);
    }

    /// The greatest resource version seen.
    pub fn version(&self) -> u64 {
        self.changes.iter().map(|change| change.version).max().unwrap_or_default()
    }

    /// All changes in the order in which they were committed.
    pub fn in_order(&self) -> Vec<Change> {
        let mut changes = self.changes.clone();
        changes.sort_by_key(|change| change.version);
        changes
    }
}

/// The histories of all namespaces of one API server.
#[derive(Clone, Default)]
pub struct Recorder {
    namespaces: Arc<Mutex<HashMap<String, Arc<Mutex<History>>>>>,
}

impl Recorder {
    /// Starts a watch of each kind. They end with the runtime.
    pub async fn start(client: &Client, with_services: bool) -> Self {
        let recorder = Recorder::default();
        let more = KINDS_OF_SERVICES.into_iter().filter(|_| with_services);
        for (kind, path) in KINDS.into_iter().chain(more) {
            let list = Request::get(path).body(Vec::new()).unwrap();
            let list: Value = client.request(list).await.unwrap();
            let version = version_of(&list);
            tokio::spawn(recorder.clone().watch(client.clone(), kind, path, version));
        }
        recorder
    }

    /// The history of a namespace, which may still be empty.
    pub fn history(&self, namespace: &str) -> Arc<Mutex<History>> {
        self.namespaces.lock().unwrap().entry(namespace.to_owned()).or_default().clone()
    }

    async fn watch(self, client: Client, kind: &'static str, path: &str, mut version: u64) {
        loop {
            let uri = format!("{path}?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
            let request = Request::get(uri).body(Vec::new()).unwrap();
            if let Ok(events) = client.request_events::<Value>(request).await {
                let mut events = std::pin::pin!(events);
                while let Ok(Some(event)) = events.try_next().await {
                    let (what, object) = match event {
                        WatchEvent::Added(object) => (What::Added, object),
                        WatchEvent::Modified(object) => (What::Modified, object),
                        WatchEvent::Deleted(object) => (What::Deleted, object),
                        WatchEvent::Bookmark(_) => continue,
                        // A gap in the recording would be taken for a difference.
                        WatchEvent::Error(error) => panic!("the watch of {path} failed: {error:?}"),
                    };
                    version = version_of(&object);
                    // A namespace is part of its own history.
                    let of = if kind == "Namespace" { "name" } else { "namespace" };
                    let namespace = object["metadata"][of].as_str().unwrap_or_default();
                    let history = self.history(namespace);
                    history.lock().unwrap().add(Change { version, what, kind, object });
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn version_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|version| version.parse().ok())
        .unwrap_or_default()
}
