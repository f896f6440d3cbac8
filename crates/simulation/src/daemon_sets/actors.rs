//! Carries out the acts of the scenario with requests, as users, nodes and chaos monkeys do. Starts and kills the
//! daemon.

mod refusals;

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::cluster::daemon_set;
use super::judge::{Cluster, Judge};
use super::placement::target;
use super::scenario::{Act, KEYS, Scenario};
use crate::engine::daemons::{Daemons, unlimited};
use crate::engine::game;
use crate::engine::objects::{self, NAMESPACE, is_live, number, text};
use crate::engine::user::{JSON, MERGE, STRATEGIC, User};
use windlass::config::ControllerConfig;

const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/shop/daemonsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/shop/controllerrevisions";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const NODES: &str = "/api/v1/nodes";

const HASH: &str = "/metadata/labels/controller-revision-hash";

/// Users, nodes, chaos monkeys, and the supervisor of the daemon.
pub struct Actors {
    cluster: Arc<Cluster>,
    user: User,
    /// The supervisor of the daemon.
    pub daemons: Daemons<Judge>,
}

impl game::Actors<Act> for Actors {
    async fn begin(&mut self) {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        self.user.send(Method::POST, "/api/v1/namespaces", JSON, &namespace).await;
        self.daemons.start();
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.create(0).await;
    }

    async fn act(&mut self, act: &Act) {
        self.cluster.say(&format!("{act:?}"));
        match act {
            Act::Image(tag) => self.edit_template(json!({"containers": [image(*tag)]})).await,
            Act::BrokenImage => {
                self.edit_template(json!({"containers": [{"name": "c", "image": "agent:broken"}]})).await;
            }
            Act::Unavailable(max) => {
                let rolling = json!({"maxUnavailable": max, "maxSurge": 0});
                self.edit(json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}))
                    .await;
            }
            Act::Surge(max) => {
                let rolling = json!({"maxUnavailable": 0, "maxSurge": max});
                self.edit(json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}))
                    .await;
            }
            Act::OnDelete => {
                self.edit(json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}})).await;
            }
            Act::MinReady(seconds) => self.edit(json!({"minReadySeconds": seconds})).await,
            Act::OneZone(one) => {
                let zone = if *one { json!({"zone": "a"}) } else { Value::Null };
                self.edit_template(json!({"nodeSelector": zone})).await;
            }
            Act::TolerateAll(all) => {
                let tolerations = if *all { json!([{"operator": "Exists"}]) } else { Value::Null };
                self.edit_template(json!({"tolerations": tolerations})).await;
            }
            Act::HistoryLimit(limit) => self.edit(json!({"revisionHistoryLimit": limit})).await,
            Act::Undo => {
                if let Some(oldest) = self.revisions().first() {
                    let data = oldest["data"].clone();
                    self.user.send(Method::PATCH, &format!("{DAEMON_SETS}/agent"), STRATEGIC, &data).await;
                }
            }
            Act::Recreate { policy, tag } => {
                let options = json!({"propagationPolicy": policy});
                self.user.send(Method::DELETE, &format!("{DAEMON_SETS}/agent"), JSON, &options).await;
                for _ in 0..60 {
                    if daemon_set(&self.cluster.sandbox).is_none() {
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                self.create(*tag).await;
            }
            Act::AddNode(number) => self.add_node(&format!("sandbox-node-{number}")).await,
            Act::RemoveNode(nth) => {
                if let Some(node) = self.node(*nth) {
                    self.remove_node(&node).await;
                }
            }
            Act::Taint(nth, effect) => {
                let Some(node) = self.node(*nth) else { return };
                self.edit_node(
                    &node,
                    json!({"spec": {"taints": [{"key": "maintenance", "effect": effect}]}}),
                )
                .await;
            }
            Act::Untaint(nth) => {
                let Some(node) = self.node(*nth) else { return };
                self.edit_node(&node, json!({"spec": {"taints": null}})).await;
            }
            Act::Zone(nth, zone) => {
                let Some(node) = self.node(*nth) else { return };
                self.edit_node(&node, json!({"metadata": {"labels": {"zone": zone}}})).await;
            }
            Act::Cordon(nth, cordoned) => {
                let Some(node) = self.node(*nth) else { return };
                self.edit_node(&node, json!({"spec": {"unschedulable": cordoned}})).await;
            }
            Act::Dead(nth, dead) => {
                let Some(node) = self.node(*nth) else { return };
                self.set_dead(&node, *dead).await;
            }
            Act::Heartbeat(nth) => {
                let Some(node) = self.node(*nth) else { return };
                self.heartbeat(&node).await;
            }
            Act::Fail(nth) => {
                let Some(node) = self.pod(*nth).map(|pod| target(&pod).to_owned()) else { return };
                for _ in 0..3 {
                    self.fail_on(&node).await;
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
            }
            Act::Succeed(nth) => {
                self.pod_status(*nth, json!({"phase": "Succeeded", "conditions": self.unready()})).await;
            }
            Act::DeletePod(nth) => {
                if let Some(pod) = self.pod(*nth) {
                    let path = format!("{PODS}/{}", text(&pod, "/metadata/name"));
                    self.user.send(Method::DELETE, &path, JSON, &json!({})).await;
                }
            }
            Act::Unready(nth) => self.pod_status(*nth, json!({"conditions": self.unready()})).await,
            Act::Orphan(nth) => self.edit_pod(*nth, json!({"ownerReferences": null})).await,
            Act::Relabel(nth) => self.edit_pod(*nth, json!({"labels": {"app": "stray"}})).await,
            Act::Duplicate => self.duplicate().await,
            Act::Occupy(tag) => self.occupy(*tag).await,
            Act::Quota(resource) => {
                self.set_quota(Some((&**resource, self.cluster.sandbox.objects("Pod").len()))).await
            }
            Act::NoQuota => self.set_quota(None).await,
            Act::Policy => self.refuse_pods().await,
            Act::Key(key, at) => {
                let (key, values) = KEYS[*key];
                self.annotate(json!({key: values[*at]})).await;
            }
            Act::Approve(behind, 0) => {
                self.approve(&format!("{}", self.revision() - i64::from(*behind))).await
            }
            Act::Approve(behind, step) => {
                self.approve(&format!("{}/{step}", self.revision() - i64::from(*behind))).await;
            }
            Act::Bypass(seconds) => {
                let until = self.cluster.clock.now() + Duration::from_secs((*seconds).into());
                let until = objects::written(until);
                self.annotate(json!({"windlass.dev/bypass-until": (*seconds > 0).then_some(until)})).await;
            }
            Act::BreakWatches => self.cluster.break_watches(false),
            Act::Compact => self.cluster.break_watches(true),
            Act::Crash => self.daemons.crash().await,
        }
    }

    fn end(&mut self) {
        self.daemons.end();
    }
}

impl Actors {
    /// Actors that have not acted yet.
    pub fn new(cluster: Arc<Cluster>, scenario: &Scenario) -> Self {
        let user = User(cluster.client("user"));
        let config = unlimited(ControllerConfig::default().enabled);
        let daemons = Daemons::new(cluster.clone(), config, scenario.seed, |seed, _| seed);
        Actors { cluster, user, daemons }
    }

    async fn edit(&self, spec: Value) {
        self.user.send(Method::PATCH, &format!("{DAEMON_SETS}/agent"), MERGE, &json!({"spec": spec})).await;
    }

    async fn annotate(&self, annotations: Value) {
        let body = json!({"metadata": {"annotations": annotations}});
        self.user.send(Method::PATCH, &format!("{DAEMON_SETS}/agent"), MERGE, &body).await;
    }

    async fn approve(&self, what: &str) {
        self.annotate(json!({"windlass.dev/rollout": format!("approve {what}")})).await;
    }

    /// The number of the latest revision.
    fn revision(&self) -> i64 {
        self.revisions().last().map_or(0, |latest| number(latest, "/revision"))
    }

    /// Holds an update to another image after the first node.
    pub async fn hold(&self) {
        self.annotate(json!({"windlass.dev/steps": "1"})).await;
        self.edit_template(json!({"containers": [image(8)]})).await;
    }

    /// Approves the latest revision.
    pub async fn approve_latest(&self) {
        self.approve(&self.revision().to_string()).await;
    }

    /// Removes the policy.
    pub async fn release(&self) {
        let mut annotations = json!({"windlass.dev/rollout": null, "windlass.dev/bypass-until": null});
        for (key, _) in KEYS {
            annotations[key] = Value::Null;
        }
        self.annotate(annotations).await;
    }

    async fn edit_template(&self, spec: Value) {
        self.edit(json!({"template": {"spec": spec}})).await;
    }

    async fn edit_node(&self, node: &str, body: Value) {
        self.user.send(Method::PATCH, &format!("{NODES}/{node}"), MERGE, &body).await;
    }

    async fn create(&self, tag: u32) {
        let daemon_set = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"terminationGracePeriodSeconds": 5, "containers": [image(tag)]}}}
        });
        self.user.send(Method::POST, DAEMON_SETS, JSON, &daemon_set).await;
    }

    fn node(&self, nth: u32) -> Option<String> {
        let nodes = self.cluster.sandbox.objects("Node");
        let node = nodes.get(nth as usize % nodes.len().max(1))?;
        Some(text(node, "/metadata/name").to_owned())
    }

    /// A live pod of the DaemonSet.
    fn pod(&self, nth: u32) -> Option<Value> {
        let mut pods = self.cluster.sandbox.objects("Pod");
        pods.retain(|pod| is_live(pod) && text(pod, "/metadata/ownerReferences/0/kind") == "DaemonSet");
        objects::nth(pods, nth)
    }

    async fn pod_status(&self, nth: u32, status: Value) {
        if let Some(pod) = self.pod(nth) {
            let path = format!("{PODS}/{}/status", text(&pod, "/metadata/name"));
            self.user.send(Method::PATCH, &path, STRATEGIC, &json!({"status": status})).await;
        }
    }

    /// Fails the live pods for a node.
    async fn fail_on(&self, node: &str) {
        let pods = self.cluster.sandbox.objects("Pod");
        for pod in pods.iter().filter(|pod| is_live(pod) && target(pod) == node) {
            let path = format!("{PODS}/{}/status", text(pod, "/metadata/name"));
            let status = json!({"phase": "Failed", "conditions": self.unready()});
            self.user.send(Method::PATCH, &path, STRATEGIC, &json!({"status": status})).await;
        }
    }

    async fn edit_pod(&self, nth: u32, metadata: Value) {
        if let Some(pod) = self.pod(nth) {
            let path = format!("{PODS}/{}", text(&pod, "/metadata/name"));
            self.user.send(Method::PATCH, &path, MERGE, &json!({"metadata": metadata})).await;
        }
    }

    fn unready(&self) -> Value {
        let now = objects::written(self.cluster.clock.now());
        json!([{"type": "Ready", "status": "False", "lastTransitionTime": now}])
    }

    /// The revisions of the DaemonSet in ascending order.
    fn revisions(&self) -> Vec<Value> {
        let mut all = self.cluster.sandbox.objects("ControllerRevision");
        all.retain(|revision| !revision["metadata"]["ownerReferences"].is_null());
        all.sort_by_key(|revision| number(revision, "/revision"));
        all
    }

    /// Adds a node.
    pub async fn add_node(&self, name: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        self.user.send(Method::POST, NODES, JSON, &node).await;
    }

    /// Removes a node.
    pub async fn remove_node(&self, name: &str) {
        self.user.send(Method::DELETE, &format!("{NODES}/{name}"), JSON, &json!({})).await;
    }

    async fn set_dead(&self, node: &str, dead: bool) {
        let status = if dead { "Unknown" } else { "True" };
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        self.user.send(Method::PATCH, &format!("{NODES}/{node}/status"), STRATEGIC, &status).await;
    }

    /// Changes fields of a node that no DaemonSet depends on.
    pub async fn heartbeat(&self, node: &str) {
        let now = self.cluster.clock.now().to_string();
        let status = json!({"status": {"conditions": [{"type": "DiskPressure", "status": "False",
            "lastHeartbeatTime": now}], "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}});
        self.user.send(Method::PATCH, &format!("{NODES}/{node}/status"), STRATEGIC, &status).await;
    }

    /// Copies the current revision, as a backup that is restored twice does.
    async fn duplicate(&self) {
        let Some(mut twin) = self.revisions().pop() else { return };
        let number = number(&twin, "/revision") + 1;
        twin["metadata"] = json!({"name": format!("agent-twin-{number}"),
            "labels": {"app": "agent", "controller-revision-hash": format!("twin{number}")},
            "ownerReferences": twin["metadata"]["ownerReferences"]});
        twin["revision"] = number.into();
        self.user.send(Method::POST, REVISIONS, JSON, &twin).await;
    }

    /// Gives the name of the oldest revision, if no pod has it, to a foreign object; then changes the image to that
    /// revision's.
    async fn occupy(&self, tag: u32) {
        let all = self.revisions();
        let pods = self.cluster.sandbox.objects("Pod");
        let is_used = |revision: &Value| pods.iter().any(|pod| text(pod, HASH) == text(revision, HASH));
        let Some(oldest) = all.iter().find(|revision| !is_used(revision)) else { return };
        let name = text(oldest, "/metadata/name");
        self.user.send(Method::DELETE, &format!("{REVISIONS}/{name}"), JSON, &json!({})).await;
        let foreign = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": name},
            "revision": tag, "data": {"foreign": "data"}});
        self.user.send(Method::POST, REVISIONS, JSON, &foreign).await;
        self.user.send(Method::PATCH, &format!("{DAEMON_SETS}/agent"), STRATEGIC, &oldest["data"]).await;
    }

    /// Users and administrators repair what they have broken: images that never start, nodes that are dead.
    pub async fn repair(&self) {
        let Some(daemon_set) = daemon_set(&self.cluster.sandbox) else {
            self.create(1).await;
            return;
        };
        if text(&daemon_set, "/spec/template/spec/containers/0/image").ends_with("broken") {
            self.edit_template(json!({"containers": [image(9)]})).await;
        }
        if text(&daemon_set, "/spec/updateStrategy/type") == "OnDelete" {
            let rolling = json!({"maxUnavailable": 1, "maxSurge": 0});
            self.edit(json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}})).await;
        }
        for node in self.cluster.sandbox.objects("Node") {
            self.set_dead(text(&node, "/metadata/name"), false).await;
        }
        self.widen_quota(&daemon_set).await;
    }

    /// Creates the DaemonSet again, if the deletion of the earlier one took its time.
    pub async fn replace(&self) {
        if daemon_set(&self.cluster.sandbox).is_none() {
            self.create(1).await;
            // It may run on more nodes than the earlier one.
            if let Some(daemon_set) = daemon_set(&self.cluster.sandbox) {
                self.widen_quota(&daemon_set).await;
            }
        }
    }

    /// Makes pods ready again that chaos monkeys have made unready.
    pub async fn heal(&self) {
        let now = objects::written(self.cluster.clock.now());
        let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": now}]);
        let pods = self.cluster.sandbox.objects("Pod");
        let is_unready = |pod: &&Value| {
            let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let unready = |c: &Value| c["type"] == "Ready" && c["status"] == "False" && c["reason"].is_null();
            is_live(pod) && text(pod, "/status/phase") == "Running" && conditions.iter().any(unready)
        };
        for pod in pods.iter().filter(is_unready) {
            let path = format!("{PODS}/{}/status", text(pod, "/metadata/name"));
            self.user.send(Method::PATCH, &path, STRATEGIC, &json!({"status": {"conditions": ready}})).await;
        }
    }
}

fn image(tag: u32) -> Value {
    json!({"name": "c", "image": format!("agent:{tag}")})
}
