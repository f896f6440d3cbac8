//! Carries out what the scenario says, as users and monkeys do: by requests.

mod afterwards;
pub mod hostile;
pub mod owners;
mod statuses;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use super::call::daemon_of;
use super::invariants::{controller, is_deleting, is_live, number, text};
use super::request_fault::Order;
use super::scenario::Act;
use super::server::{NAMESPACE, Picture, Server};

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
/// Whoever put this on a set wants to be asked before it goes.
const GUARD: &str = "example.com/guard";
/// What somebody has noted on a set, and its Deployment knows nothing of.
const NOTE: &str = "example.com/note";
const PODS: &str = "/api/v1/namespaces/shop/pods";

/// Users, monkeys, and whoever else is not a controller.
pub struct Actors {
    server: Arc<Server>,
    user: kube::Client,
    monkey: kube::Client,
    stops: Vec<UnboundedSender<()>>,
}

impl Actors {
    /// Actors who can stop the daemons.
    pub fn new(server: Arc<Server>, stops: Vec<UnboundedSender<()>>) -> Self {
        let (user, monkey) = (server.client("user"), server.client("monkey"));
        Actors { server, user, monkey, stops }
    }

    async fn send(client: &kube::Client, method: Method, path: &str, content_type: &str, body: &Value) {
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        if let Ok(request) = request.body(body.to_string().into_bytes()) {
            // What is refused (there is no such object, or there is one already) is not done.
            let _refused = client.request::<Value>(request).await;
        }
    }

    async fn change(&self, name: &str, body: Value) {
        Self::send(&self.user, Method::PATCH, &format!("{DEPLOYMENTS}/{name}"), MERGE, &body).await;
    }

    /// Wants so many more pods, of which one fares as ordered after so many others.
    async fn grow(&self, name: &str, more: i64, (others, order): (u32, Order)) {
        let Some(deployment) = self.server.sandbox.object("Deployment", NAMESPACE, name) else { return };
        self.server.order(others, order);
        let replicas = number(&deployment, "/spec/replicas") + more;
        self.change(name, json!({"spec": {"replicas": replicas}})).await;
    }

    async fn image(&self, name: &str, tag: &str) {
        let containers = json!([{"name": "app", "image": format!("app:{tag}")}]);
        self.change(name, json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
    }

    /// The namespace in which all this happens.
    pub async fn make_namespace(&self) {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        Self::send(&self.user, Method::POST, "/api/v1/namespaces", "application/json", &namespace).await;
    }

    /// The pods that somebody owns.
    fn live_pods(&self) -> Vec<Arc<Value>> {
        let picture = self.server.picture();
        let pods = picture.get("pods").into_iter().flat_map(|pods| pods.values());
        pods.filter(|pod| is_live(pod) && !controller(pod).is_empty()).cloned().collect()
    }

    fn pod(&self, nth: u32) -> Option<Arc<Value>> {
        let live = self.live_pods();
        live.get(nth as usize % live.len().max(1)).cloned()
    }

    fn replica_set(&self, nth: u32) -> Option<Arc<Value>> {
        let picture = self.server.picture();
        let replica_sets = picture.get("replicasets")?;
        replica_sets.values().nth(nth as usize % replica_sets.len().max(1)).cloned()
    }

    async fn edit_pod(&self, pod: &Value, metadata: Value) {
        let path = format!("{PODS}/{}", text(pod, "/metadata/name"));
        Self::send(&self.monkey, Method::PATCH, &path, MERGE, &json!({"metadata": metadata})).await;
    }

    async fn edit_replica_set(&self, replica_set: &Value, metadata: Value) {
        let path = format!("{REPLICA_SETS}/{}", text(replica_set, "/metadata/name"));
        Self::send(&self.user, Method::PATCH, &path, MERGE, &json!({"metadata": metadata})).await;
    }

    async fn pod_status(&self, pod: &Value, status: Value) {
        let path = format!("{PODS}/{}/status", text(pod, "/metadata/name"));
        let body = json!({"metadata": {"uid": pod["metadata"]["uid"]}, "status": status});
        Self::send(&self.monkey, Method::PATCH, &path, STRATEGIC, &body).await;
    }

    async fn set_ready(&self, pod: &Value, ready: bool) {
        let status = if ready { "True" } else { "False" };
        let now = self.server.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let condition = json!({"type": "Ready", "status": status, "lastTransitionTime": now});
        self.pod_status(pod, json!({"conditions": [condition]})).await;
    }

    /// Does one thing.
    pub async fn act(&self, act: &Act) {
        match act {
            Act::Create { name, replicas, surge, unavailable, recreate } => {
                let deployment = json!({
                    "apiVersion": "apps/v1", "kind": "Deployment",
                    "metadata": {"name": name},
                    "spec": {
                        "replicas": replicas,
                        "revisionHistoryLimit": replicas % 3,
                        "selector": {"matchLabels": {"app": name}},
                        "strategy": strategy(*surge, *unavailable, *recreate),
                        "template": {
                            "metadata": {"labels": {"app": name}},
                            "spec": {"terminationGracePeriodSeconds": 5,
                                     "containers": [{"name": "app", "image": "app:0"}]},
                        },
                    },
                });
                Self::send(&self.user, Method::POST, DEPLOYMENTS, "application/json", &deployment).await;
            }
            Act::Image { name, tag } => self.image(name, &tag.to_string()).await,
            Act::BrokenImage { name } => self.image(name, "broken").await,
            Act::Scale { name, replicas } => {
                self.change(name, json!({"spec": {"replicas": replicas}})).await;
            }
            Act::Strategy { name, surge, unavailable, recreate } => {
                let strategy = strategy(*surge, *unavailable, *recreate);
                self.change(name, json!({"spec": {"strategy": strategy}})).await;
            }
            Act::Percent { name, surge, unavailable } => {
                self.percent(name, &surge.to_string(), &unavailable.to_string()).await;
            }
            Act::Pause { name, paused } => self.change(name, json!({"spec": {"paused": paused}})).await,
            Act::RollBack { name } => {
                let annotations = json!({"deprecated.deployment.rollback.to": "0"});
                self.change(name, json!({"metadata": {"annotations": annotations}})).await;
            }
            Act::Label { name, value } => {
                let labels = json!({"tier": value.to_string()});
                self.change(name, json!({"spec": {"template": {"metadata": {"labels": labels}}}})).await;
            }
            Act::MinReady { name, seconds } => {
                self.change(name, json!({"spec": {"minReadySeconds": seconds}})).await;
            }
            Act::Delete { name, policy } => {
                let options = json!({"propagationPolicy": policy});
                let path = format!("{DEPLOYMENTS}/{name}");
                Self::send(&self.user, Method::DELETE, &path, "application/json", &options).await;
            }
            Act::Annotate { name, value } => {
                let body = json!({"metadata": {"annotations": {"gitops": value.to_string()}}});
                self.change(name, body.clone()).await;
                let picture = self.server.picture();
                let note = json!({"metadata": {"annotations": {NOTE: value.to_string()}}});
                let audited = json!({"type": "Audited", "status": "True"});
                let audited = json!({"status": {"conditions": [audited]}});
                let deployment = format!("{DEPLOYMENTS}/{name}/status");
                Self::send(&self.user, Method::PATCH, &deployment, STRATEGIC, &audited).await;
                for replica_set in
                    picture.get("replicasets").into_iter().flat_map(|replica_sets| replica_sets.keys())
                {
                    let replica_set = format!("{REPLICA_SETS}/{replica_set}");
                    Self::send(&self.user, Method::PATCH, &replica_set, MERGE, &body).await;
                    Self::send(&self.user, Method::PATCH, &replica_set, MERGE, &note).await;
                    let status = format!("{replica_set}/status");
                    Self::send(&self.user, Method::PATCH, &status, STRATEGIC, &audited).await;
                }
            }
            Act::DeletePod { nth, at_once } => {
                let Some(pod) = self.pod(*nth) else { return };
                self.delete_pod(&pod, if *at_once { at_once_options() } else { json!({}) }).await;
            }
            Act::Ready { nth, ready } => {
                let Some(pod) = self.pod(*nth).filter(|pod| is_running(pod)) else { return };
                self.set_ready(&pod, *ready).await;
            }
            Act::Fail { nth } => {
                let Some(pod) = self.pod(*nth) else { return };
                let now = self.server.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
                let unready = json!({"type": "Ready", "status": "False", "lastTransitionTime": now});
                self.pod_status(&pod, json!({"phase": "Failed", "conditions": [unready]})).await;
            }
            Act::Strike { name } => self.strike(name).await,
            Act::Straggle { nth } => {
                let Some(pod) = self.pod(*nth) else { return };
                self.server.order(0, Order::ArriveLate);
                self.delete_pod(&pod, json!({})).await;
            }
            // Of three more pods the first is made alone, and then two at once.
            Act::Bequeath { name } => self.grow(name, 3, (2, Order::OutliveAuthor)).await,
            Act::Linger { name } => {
                self.grow(name, 2, (1, Order::AnswerLate)).await;
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.image(name, "broken").await;
                // As long as most pods take to become ready, and some.
                tokio::time::sleep(Duration::from_secs(4)).await;
                self.image(name, "mended").await;
            }
            Act::Relabel { nth } => {
                let Some(pod) = self.pod(*nth) else { return };
                self.edit_pod(&pod, json!({"labels": {"app": "stray"}})).await;
            }
            Act::Cost { nth, cost } => {
                let Some(pod) = self.pod(*nth) else { return };
                let annotations = json!({"controller.kubernetes.io/pod-deletion-cost": cost.to_string()});
                self.edit_pod(&pod, json!({"annotations": annotations})).await;
            }
            Act::Orphan { nth } => {
                let Some(pod) = self.pod(*nth) else { return };
                self.edit_pod(&pod, json!({"ownerReferences": null})).await;
            }
            Act::Abandon { nth } => {
                let Some(pod) = self.pod(*nth) else { return };
                self.abandon(&pod).await;
            }
            Act::Seize { nth } => {
                let Some(pod) = self.pod(*nth) else { return };
                self.seize(&pod).await;
            }
            Act::Uproot { nth } => {
                let Some(replica_set) = self.replica_set(*nth) else { return };
                for daemon in 0..self.stops.len() {
                    self.server.lag(daemon, "replicasets", Duration::from_secs(3));
                }
                let options = json!({"propagationPolicy": "Orphan"});
                let path = format!("{REPLICA_SETS}/{}", text(&replica_set, "/metadata/name"));
                Self::send(&self.user, Method::DELETE, &path, "application/json", &options).await;
            }
            Act::Replace { name, policy } => self.replace(name, policy).await,
            Act::Loner { nth } => {
                let Some(replica_set) = self.replica_set(*nth) else { return };
                let metadata = json!({"name": format!("loner-{nth}"),
                                      "labels": replica_set["spec"]["template"]["metadata"]["labels"]});
                let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata,
                                 "spec": replica_set["spec"]["template"]["spec"]});
                Self::send(&self.user, Method::POST, PODS, "application/json", &pod).await;
            }
            Act::Disown { nth } => {
                let Some(replica_set) = self.replica_set(*nth) else { return };
                self.edit_replica_set(&replica_set, json!({"labels": {"app": "stray"}})).await;
            }
            Act::Guard { nth } => {
                let Some(replica_set) =
                    self.replica_set(*nth).filter(|replica_set| !is_deleting(replica_set))
                else {
                    return;
                };
                self.edit_replica_set(&replica_set, json!({"finalizers": [GUARD]})).await;
            }
            Act::Hold { nth } => {
                let Some(pod) = self.pod(*nth) else { return };
                self.edit_pod(&pod, json!({"finalizers": [GUARD]})).await;
            }
            Act::EndNamespace => {
                let path = format!("/api/v1/namespaces/{NAMESPACE}");
                Self::send(&self.user, Method::DELETE, &path, "application/json", &json!({})).await;
            }
            Act::Hostile { name, nth, value } => self.annotate_badly(name, *nth, *value).await,
            Act::Forge { nth, form } => self.forge(*nth, *form).await,
            Act::Bare { replicas } => self.resize_bare(*replicas).await,
            Act::Sidecar { name } => self.add_sidecar(name).await,
            Act::Restart { nth, container, restarts } => {
                self.restart_container(*nth, *container, *restarts).await;
            }
            Act::Quota { full } => self.server.set_quota(*full),
            Act::Webhook { seconds } => self.server.fail_webhook(Duration::from_secs((*seconds).into())),
            Act::BreakWatches => self.server.sandbox.break_watches(),
            Act::Compact => self.server.sandbox.compact(),
            Act::Lag { daemon, resource, seconds } => {
                self.server.lag(*daemon, resource, Duration::from_secs((*seconds).into()));
            }
            Act::SlowLease { daemon, seconds } => {
                self.server.stall(*daemon, Duration::from_secs((*seconds).into()));
            }
            Act::Depose { resource } => self.depose(resource),
            Act::Crash { daemon, writes } => self.server.light_fuse(*daemon, *writes),
            Act::Stop { daemon } => self.stop(*daemon),
        }
    }

    /// Has every daemon stop, and start again.
    pub fn restart(&self) {
        (0..self.stops.len()).for_each(|daemon| self.stop(daemon));
    }

    /// Has a daemon stop, and start again. One that is down already is stopped when it comes back.
    pub fn stop(&self, daemon: usize) {
        if let Some(stop) = self.stops.get(daemon) {
            let _closed = stop.send(());
        }
    }

    /// Deletes a Deployment and creates it anew. Nobody sees for a moment that its sets have gone, or where they stay
    /// that there is another one, even when they are seen to be without an owner.
    async fn replace(&self, name: &str, policy: &str) {
        let Some(old) = self.server.sandbox.object("Deployment", NAMESPACE, name) else { return };
        for daemon in 0..self.stops.len() {
            if policy == "Orphan" {
                self.server.lag(daemon, "deployments", Duration::from_secs(6));
            }
            self.server.lag(daemon, "replicasets", Duration::from_secs(3));
        }
        let options = json!({"propagationPolicy": policy});
        let path = format!("{DEPLOYMENTS}/{name}");
        Self::send(&self.user, Method::DELETE, &path, "application/json", &options).await;
        // As long as the garbage collector takes to let the sets go.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let new = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
                         "spec": old["spec"]});
        Self::send(&self.user, Method::POST, DEPLOYMENTS, "application/json", &new).await;
    }

    async fn strike(&self, name: &str) {
        if self.server.sandbox.object("Deployment", NAMESPACE, name).is_none() {
            return;
        }
        let tag = format!("s{}", self.server.start.elapsed().as_secs());
        self.image(name, &tag).await;
        let image = format!("app:{tag}");
        // A set tells numbers once a second, and what is not known yet at the very instant is nobody's fault.
        let step = Duration::from_millis(100);
        let mut picture = Picture::default();
        let mut uid = None;
        for _ in 0..60 {
            tokio::time::sleep(step).await;
            picture = self.server.picture();
            let mut replica_sets =
                picture.get("replicasets").into_iter().flat_map(|replica_sets| replica_sets.values());
            let tells = |replica_set: &&Arc<Value>| {
                text(replica_set, "/spec/template/spec/containers/0/image") == image
                    && number(replica_set, "/status/availableReplicas") > 0
            };
            uid = replica_sets.find(tells).map(|replica_set| text(replica_set, "/metadata/uid").to_owned());
            if uid.is_some() {
                break;
            }
        }
        let Some(uid) = uid else { return };
        let pods = picture.get("pods").into_iter().flat_map(|pods| pods.values());
        for pod in pods.filter(|pod| is_running(pod) && controller(pod) == uid) {
            self.delete_pod(pod, at_once_options()).await;
        }
        tokio::time::sleep(step).await;
        self.percent(name, "0", "60").await;
    }

    fn depose(&self, resource: &str) {
        let Some(leader) = daemon_of(&self.server.leader()) else { return };
        // Longer than it takes to be without the Lease, and to get it.
        self.server.stall(leader, Duration::from_secs(20));
        for follower in (0..self.stops.len()).filter(|daemon| *daemon != leader) {
            self.server.lag(follower, resource, Duration::from_secs(40));
        }
    }

    async fn percent(&self, name: &str, surge: &str, unavailable: &str) {
        let rolling = json!({"maxSurge": format!("{surge}%"), "maxUnavailable": format!("{unavailable}%")});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        self.change(name, json!({"spec": {"strategy": strategy}})).await;
    }

    /// Gives a pod to an owner that there is not: the garbage collector takes it.
    async fn seize(&self, pod: &Value) {
        let mut owners = pod["metadata"]["ownerReferences"].clone();
        if let Some(owner) = owners.get_mut(0) {
            owner["name"] = "somebody".into();
            owner["uid"] = "00000000-0000-4000-8000-000000000000".into();
            self.edit_pod(pod, json!({"ownerReferences": owners})).await;
        }
    }

    /// Takes a pod away from its owner while it ends.
    async fn abandon(&self, pod: &Value) {
        self.delete_pod(pod, json!({})).await;
        self.edit_pod(pod, json!({"ownerReferences": null})).await;
    }

    async fn delete_pod(&self, pod: &Value, options: Value) {
        let path = format!("{PODS}/{}", text(pod, "/metadata/name"));
        Self::send(&self.monkey, Method::DELETE, &path, "application/json", &options).await;
    }

    /// A live pod of each set.
    fn one_of_each(&self) -> Vec<Arc<Value>> {
        let picture = self.server.picture();
        let mut replica_sets = BTreeSet::new();
        let pods = picture.get("pods").into_iter().flat_map(|pods| pods.values());
        pods.filter(|pod| is_live(pod) && replica_sets.insert(controller(pod).to_owned())).cloned().collect()
    }
}

fn at_once_options() -> Value {
    json!({"gracePeriodSeconds": 0})
}

fn is_running(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running"
}

fn strategy(surge: u32, unavailable: u32, recreate: bool) -> Value {
    if recreate {
        return json!({"type": "Recreate", "rollingUpdate": null});
    }
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}
