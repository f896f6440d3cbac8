//! Carries out the acts of the scenario with requests, as users and chaos monkeys do.

mod afterwards;
mod deployments;
pub mod hostile;
pub mod owners;
mod pods;
mod replica_sets;
mod statuses;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc::UnboundedSender;

use super::objects::controller;
use super::scenario::Act;
use super::server::Server;
use crate::engine::call::daemon_of;
use crate::engine::objects::{NAMESPACE, is_live, text};
use crate::engine::request_fault::OrderedFault;

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
/// The finalizer that another controller puts on ReplicaSets and pods.
const GUARD: &str = "example.com/guard";
/// An annotation that another client puts on a ReplicaSet and not on its Deployment.
const NOTE: &str = "example.com/note";
const PODS: &str = "/api/v1/namespaces/shop/pods";

/// Users, chaos monkeys, and all other clients that are not controllers.
pub struct Actors {
    server: Arc<Server>,
    user: kube::Client,
    monkey: kube::Client,
    stops: Vec<UnboundedSender<()>>,
}

impl Actors {
    /// Actors that can stop the daemons.
    pub fn new(server: Arc<Server>, stops: Vec<UnboundedSender<()>>) -> Self {
        let (user, monkey) = (server.client("user"), server.client("monkey"));
        Actors { server, user, monkey, stops }
    }

    async fn send(client: &kube::Client, method: Method, path: &str, content_type: &str, body: &Value) {
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        if let Ok(request) = request.body(body.to_string().into_bytes()) {
            // A refused request (the object does not exist, or exists already) has no effect.
            let _refused = client.request::<Value>(request).await;
        }
    }

    async fn change_spec(&self, name: &str, spec: Value) {
        self.change(name, json!({"spec": spec})).await;
    }

    async fn change(&self, name: &str, body: Value) {
        Self::send(&self.user, Method::PATCH, &format!("{DEPLOYMENTS}/{name}"), MERGE, &body).await;
    }

    /// Creates the namespace of the scenario.
    pub async fn make_namespace(&self) {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        Self::send(&self.user, Method::POST, "/api/v1/namespaces", "application/json", &namespace).await;
    }

    /// The live pods that have an owner.
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

    /// Carries out one act.
    pub async fn act(&self, act: &Act) {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        match act {
            Act::Create { name, replicas, surge, unavailable, recreate } => {
                self.create(name, *replicas, strategy(*surge, *unavailable, *recreate)).await;
            }
            Act::Image { name, tag } => self.image(name, &tag.to_string()).await,
            Act::BrokenImage { name } => self.image(name, "broken").await,
            Act::Scale { name, replicas } => self.change_spec(name, json!({"replicas": replicas})).await,
            Act::Strategy { name, surge, unavailable, recreate } => {
                let strategy = strategy(*surge, *unavailable, *recreate);
                self.change_spec(name, json!({"strategy": strategy})).await;
            }
            Act::Percent { name, surge, unavailable } => {
                self.percent(name, &surge.to_string(), &unavailable.to_string()).await;
            }
            Act::Pause { name, paused } => self.change_spec(name, json!({"paused": paused})).await,
            Act::RollBack { name } => self.roll_back(name).await,
            Act::Label { name, value } => self.label_template(name, &value.to_string()).await,
            Act::MinReady { name, seconds } => {
                self.change_spec(name, json!({"minReadySeconds": seconds})).await;
            }
            Act::Delete { name, policy } => self.delete_deployment(name, policy).await,
            Act::Annotate { name, value } => self.annotate(name, &value.to_string()).await,
            Act::Replace { name, policy } => self.replace(name, policy).await,
            Act::EndNewPods { name } => self.end_new_pods(name).await,
            // Of three more pods the first is created alone, and then two at once.
            Act::LateCreation { name } => self.grow(name, 3, (2, OrderedFault::AfterAuthorKilled)).await,
            Act::LateStatus { name } => self.delay_status(name).await,
            Act::HostileAnnotation { name, nth, value } => self.annotate_badly(name, *nth, *value).await,
            Act::Sidecar { name } => self.add_sidecar(name).await,
            Act::DeletePod { nth, at_once } => {
                let options = if *at_once { at_once_options() } else { json!({}) };
                self.delete_nth_pod(*nth, options).await;
            }
            Act::Ready { nth, ready } => self.ready(*nth, *ready).await,
            Act::Fail { nth } => self.fail(*nth).await,
            Act::LateReplacement { nth } => self.replace_late(*nth).await,
            Act::Relabel { nth } => self.edit_nth_pod(*nth, json!({"labels": {"app": "stray"}})).await,
            Act::Cost { nth, cost } => {
                let annotations = json!({"controller.kubernetes.io/pod-deletion-cost": cost.to_string()});
                self.edit_nth_pod(*nth, json!({"annotations": annotations})).await;
            }
            Act::Orphan { nth } => self.edit_nth_pod(*nth, json!({"ownerReferences": null})).await,
            Act::PodFinalizer { nth } => self.edit_nth_pod(*nth, json!({"finalizers": [GUARD]})).await,
            Act::OrphanTerminating { nth } => self.orphan_nth_terminating_pod(*nth).await,
            Act::ChangePodOwner { nth } => self.change_owner_of_nth_pod(*nth).await,
            Act::Restart { nth, container, restarts } => {
                self.restart_container(*nth, *container, *restarts).await;
            }
            Act::OrphanPods { nth } => self.orphan_pods(*nth).await,
            Act::OrphanPod { nth } => self.create_orphan_pod(*nth).await,
            Act::UnselectReplicaSet { nth } => self.unselect(*nth).await,
            Act::ReplicaSetFinalizer { nth } => self.guard(*nth).await,
            Act::ForgeOwner { nth, form } => self.forge(*nth, *form).await,
            Act::OwnerlessReplicaSet { replicas } => self.resize_bare(*replicas).await,
            Act::EndNamespace => self.delete_namespace().await,
            Act::Quota { full } => self.server.set_quota(*full),
            Act::Webhook { seconds: how_long } => self.server.fail_webhook(seconds(*how_long)),
            Act::BreakWatches => self.server.sandbox.break_watches(),
            Act::Compact => self.server.sandbox.compact(),
            Act::Lag { daemon, resource, seconds: how_long } => {
                self.server.lag(*daemon, resource, seconds(*how_long));
            }
            Act::SlowLease { daemon, seconds: how_long } => {
                self.server.fail_renewals(*daemon, seconds(*how_long))
            }
            Act::Depose { resource } => self.depose(resource),
            Act::Crash { daemon, writes } => self.server.kill_after_writes(*daemon, *writes),
            Act::Stop { daemon } => self.stop(*daemon),
        }
    }

    /// Stops every daemon; each starts again.
    pub fn restart(&self) {
        (0..self.stops.len()).for_each(|daemon| self.stop(daemon));
    }

    /// Stops a daemon, which starts again. One that is down already is stopped when it is back.
    pub fn stop(&self, daemon: usize) {
        if let Some(stop) = self.stops.get(daemon) {
            let _closed = stop.send(());
        }
    }

    fn depose(&self, resource: &str) {
        let Some(leader) = daemon_of(&self.server.leader()) else { return };
        // Longer than it takes to lose the Lease, and to acquire it.
        self.server.fail_renewals(leader, Duration::from_secs(20));
        for follower in (0..self.stops.len()).filter(|daemon| *daemon != leader) {
            self.server.lag(follower, resource, Duration::from_secs(40));
        }
    }

    async fn delete_pod(&self, pod: &Value, options: Value) {
        let path = format!("{PODS}/{}", text(pod, "/metadata/name"));
        Self::send(&self.monkey, Method::DELETE, &path, "application/json", &options).await;
    }

    /// One live pod of each ReplicaSet.
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
