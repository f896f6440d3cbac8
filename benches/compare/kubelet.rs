//! The pods of the benchmark: a watch that counts them, and a kubelet that follows a script.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::TryStreamExt;
use http::{Method, Request};
use kube::Client;
use kube::core::WatchEvent;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use windlass::clock::Clock;

use crate::cluster::request;

/// How many writes of the kubelet are under way at once.
const AT_ONCE: usize = 16;

/// From a pod's deletion to its termination.
const SHUTDOWN: Duration = Duration::from_millis(500);

/// The fields of a pod that the benchmark reads.
#[derive(Clone, Debug, Deserialize)]
struct Pod {
    metadata: Meta,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Spec {
    containers: Vec<Container>,
}

#[derive(Clone, Debug, Deserialize)]
struct Container {
    image: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// A pod, as far as the rows look at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its namespace.
    pub namespace: String,
    /// Its label `app`, which is the name of its Deployment.
    pub app: String,
    /// The image of its first container.
    pub image: String,
    /// Whether it is ready and stays.
    pub is_ready: bool,
}

/// After which time a pod becomes ready, by namespace.
type Delays = BTreeMap<String, RangeInclusive<u64>>;

/// The pods of the cluster. Clones share them.
#[derive(Clone)]
pub struct Pods {
    client: Client,
    seen: Arc<Mutex<BTreeMap<String, Seen>>>,
    delays: Arc<Mutex<Delays>>,
    /// Namespaces whose pods succeed as soon as they are ready.
    succeed: Arc<Mutex<BTreeSet<String>>>,
    turns: Arc<Semaphore>,
    /// How many pods have got an address.
    addresses: Arc<AtomicU32>,
    changed: Arc<Notify>,
}

impl Pods {
    /// Watches the pods of all namespaces and plays their kubelets, until the runtime ends.
    pub fn start(client: Client) -> Self {
        let pods = Pods {
            client,
            seen: Arc::default(),
            delays: Arc::default(),
            succeed: Arc::default(),
            turns: Arc::new(Semaphore::new(AT_ONCE)),
            addresses: Arc::default(),
            changed: Arc::default(),
        };
        tokio::spawn(pods.clone().watch());
        pods
    }

    /// Makes the pods of a namespace become ready after so many milliseconds.
    pub fn become_ready_after(&self, namespace: &str, delay: RangeInclusive<u64>) {
        self.delays.lock().insert(namespace.to_owned(), delay);
    }

    /// Makes the pods of a namespace succeed as soon as they are ready.
    pub fn succeed(&self, namespace: &str) {
        self.succeed.lock().insert(namespace.to_owned());
    }

    /// How many pods there are of this kind.
    pub fn count(&self, is_one: impl Fn(&Seen) -> bool) -> usize {
        self.seen.lock().values().filter(|pod| is_one(pod)).count()
    }

    /// Waits until this holds of the pods, and returns the time.
    pub async fn wait_until(&self, what: &str, patience: Duration, holds: impl Fn(&Self) -> bool) -> Instant {
        let end = Instant::now() + patience;
        loop {
            let changed = self.changed.notified();
            if holds(self) {
                return Instant::now();
            }
            let waited = tokio::time::timeout_at(end, changed).await;
            assert!(waited.is_ok(), "{what}: not within {patience:?}");
        }
    }

    async fn watch(self) {
        let mut rng = fastrand::Rng::with_seed(20);
        let mut version = "0".to_owned();
        loop {
            let uri = format!("/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion={version}");
            let Ok(events) =
                self.client.request_events::<Pod>(Request::get(uri).body(Vec::new()).unwrap()).await
            else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let mut events = std::pin::pin!(events);
            while let Ok(Some(event)) = events.try_next().await {
                match event {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                        version.clone_from(&pod.metadata.resource_version);
                        self.put(pod, &mut rng);
                    }
                    WatchEvent::Deleted(pod) => {
                        version.clone_from(&pod.metadata.resource_version);
                        self.seen.lock().remove(&pod.metadata.uid);
                    }
                    WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                    WatchEvent::Error(error) => panic!("the watch of pods failed: {error:?}"),
                }
                self.changed.notify_waiters();
            }
        }
    }

    fn put(&self, pod: Pod, rng: &mut fastrand::Rng) {
        let is_ready = pod.status.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True");
        let is_leaving = pod.metadata.deletion_timestamp.is_some();
        let seen = Seen {
            namespace: pod.metadata.namespace.clone(),
            app: pod.metadata.labels.get("app").cloned().unwrap_or_default(),
            image: pod.spec.containers.first().map(|one| one.image.clone()).unwrap_or_default(),
            is_ready: is_ready && !is_leaving,
        };
        let delay = self.delays.lock().get(&seen.namespace).cloned().unwrap_or(0..=0);
        let succeeds = self.succeed.lock().contains(&seen.namespace);
        let before = self.seen.lock().insert(pod.metadata.uid.clone(), seen);
        let becomes_ready = is_ready && before.as_ref().is_none_or(|before| !before.is_ready);
        let (is_new, pods) = (before.is_none(), self.clone());
        if is_leaving && before.is_none_or(|before| before.is_ready || !is_ready) {
            tokio::spawn(async move {
                tokio::time::sleep(SHUTDOWN).await;
                pods.end(&pod.metadata).await;
            });
        } else if is_new && !is_ready {
            let delay = Duration::from_millis(rng.u64(delay));
            tokio::spawn(async move {
                tokio::time::sleep(delay).await;
                pods.report_ready(&pod).await;
            });
        } else if succeeds && becomes_ready {
            tokio::spawn(async move { pods.report_success(&pod).await });
        }
    }

    /// A pod that was deleted meanwhile needs neither.
    async fn call(&self, method: Method, path: &str, body: &Value) {
        let _turn = self.turns.acquire().await;
        let _gone = self.client.request::<Value>(request(method, path, body)).await;
    }

    async fn report_ready(&self, pod: &Pod) {
        let now = now();
        // 10.0.0.1 and on.
        let number = self.addresses.fetch_add(1, Ordering::Relaxed) + 1;
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() + number).to_string();
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
        let running = |container: &Container| {
            json!({"name": "app", "image": container.image, "imageID": format!("sha256:{:064x}", 7), "ready": true,
                   "restartCount": 0, "started": true, "containerID": format!("containerd://{:064x}", 7),
                   "state": {"running": {"startedAt": now}}})
        };
        let status = json!({"status": {
            "phase": "Running", "startTime": now, "podIP": address, "podIPs": [{"ip": address}], "hostIP": "192.168.0.1",
            "conditions": [condition("PodScheduled"), condition("Initialized"), condition("ContainersReady"),
                           condition("Ready")],
            "containerStatuses": pod.spec.containers.iter().take(1).map(running).collect::<Vec<_>>(),
        }});
        self.call(Method::PATCH, &format!("{}/status", path_of(&pod.metadata)), &status).await;
    }

    async fn report_success(&self, pod: &Pod) {
        let now = now();
        let ended = |container: &Container| {
            json!({"name": "app", "image": container.image, "imageID": format!("sha256:{:064x}", 7), "ready": false,
                   "restartCount": 0, "started": false, "containerID": format!("containerd://{:064x}", 7),
                   "state": {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}})
        };
        let not_ready = |kind: &str| json!({"type": kind, "status": "False", "reason": "PodCompleted", "lastTransitionTime": now});
        let status = json!({"status": {
            "phase": "Succeeded", "conditions": [not_ready("ContainersReady"), not_ready("Ready")],
            "containerStatuses": pod.spec.containers.iter().take(1).map(ended).collect::<Vec<_>>(),
        }});
        self.call(Method::PATCH, &format!("{}/status", path_of(&pod.metadata)), &status).await;
    }

    async fn end(&self, pod: &Meta) {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
                             "preconditions": {"uid": pod.uid}});
        self.call(Method::DELETE, &path_of(pod), &options).await;
    }
}

/// As the API writes it, in whole seconds.
fn now() -> String {
    jiff::Timestamp::from_second(Clock::System.now().as_second()).unwrap().to_string()
}

fn path_of(pod: &Meta) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name)
}
