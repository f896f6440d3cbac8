//! Carries out the acts of the scenario with requests, as users, autoscalers and chaos monkeys do.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::judge::{Cluster, Judge, deployment};
use super::scenario::{Act, STEPS, Scenario, VALUES};
use super::terms::{NAME, revision};
use crate::engine::daemons::{Daemons, unlimited};
use crate::engine::game;
use crate::engine::objects::{self, NAMESPACE, is_live, number, text};
use crate::engine::user::{JSON, MERGE, STRATEGIC, User};
use windlass::config::Enabled;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const NODES: &str = "/api/v1/nodes";
const STATE: &str = "windlass.dev/rollout-state";
const FIRST: &str = "windlass.dev/when-unschedulable";

/// The size of the Deployment at the beginning.
pub const REPLICAS: usize = 4;

/// Users, chaos monkeys, and the supervisor of the daemons.
pub struct Actors {
    cluster: Arc<Cluster>,
    user: User,
    /// The supervisor of the daemons.
    pub daemons: Daemons<Judge>,
    is_cramped: bool,
    /// The container that users have last applied.
    applied: Value,
    /// Until when an agent applies it again.
    agent_until: Duration,
}

impl game::Actors<Act> for Actors {
    async fn begin(&mut self) {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        self.user.send(Method::POST, "/api/v1/namespaces", JSON, &namespace).await;
        self.daemons.start();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let created = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": NAME},
            "spec": {"replicas": REPLICAS, "selector": {"matchLabels": {"app": NAME}}, "progressDeadlineSeconds": 120,
                "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {"metadata": {"labels": {"app": NAME}},
                    "spec": {"terminationGracePeriodSeconds": 5, "containers": [self.container("0")]}}}
        });
        self.user.send(Method::POST, DEPLOYMENTS, JSON, &created).await;
    }

    async fn act(&mut self, act: &Act) {
        self.cluster.say(&format!("{act:?}"));
        match act {
            Act::Image(tag) => self.image(&tag.to_string()).await,
            Act::BrokenImage => self.image("broken").await,
            Act::Scale(replicas) => self.scale(*replicas).await,
            Act::Dip(seconds) => {
                let before =
                    deployment(&self.cluster.sandbox).map_or(0, |one| number(&one, "/spec/replicas"));
                self.scale(0).await;
                self.wait(Duration::from_secs((*seconds).into())).await;
                self.edit(json!({"replicas": before})).await;
            }
            Act::Budget(surge, unavailable) => {
                let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
                self.edit(json!({"strategy": {"rollingUpdate": rolling}})).await;
            }
            Act::Pause(paused) => self.edit(json!({"paused": paused})).await,
            Act::Steps(at) => self.annotate("windlass.dev/steps", STEPS[*at]).await,
            Act::Value(key, at) => {
                let (key, values) = VALUES[*key];
                self.annotate(key, values[*at]).await;
            }
            Act::TerminateFirst(is_set) => {
                self.annotate(FIRST, is_set.then_some("terminate-first")).await;
            }
            Act::TooLarge(tag) => {
                let mut container = self.container(&tag.to_string());
                container["resources"] = json!({"requests": {"cpu": "1000"}});
                self.apply(container).await;
            }
            Act::GitOps(seconds) => {
                self.agent_until = self.cluster.elapsed() + Duration::from_secs((*seconds).into());
            }
            Act::CrashAtVerdict => self.cluster.with_judge(|judge| judge.kills_at_verdict = true),
            Act::Approve(behind, 0) => self.command(&format!("approve {}", self.revision(*behind))).await,
            Act::Approve(behind, step) => {
                self.command(&format!("approve {}/{step}", self.revision(*behind))).await;
            }
            Act::Abort(behind) => self.command(&format!("abort {}", self.revision(*behind))).await,
            Act::Retry(attempt) => self.command(&format!("retry {}/{attempt}", self.revision(0))).await,
            Act::NoCommand => self.annotate("windlass.dev/rollout", None).await,
            Act::Bypass(0) => self.annotate("windlass.dev/bypass-until", None).await,
            Act::Bypass(seconds) => {
                let until = self.cluster.clock.now() + Duration::from_secs((*seconds).into());
                let until = objects::written(until);
                self.annotate("windlass.dev/bypass-until", Some(&until)).await;
            }
            Act::CopyState(nth) => self.copy_state(*nth).await,
            Act::LoseState(nth, is_removed) => {
                let state = if *is_removed { Value::Null } else { json!("{\"passed\":") };
                if let Some(one) = self.nth("ReplicaSet", *nth) {
                    self.set_state(REPLICA_SETS, &one, &state).await;
                }
            }
            Act::DeletePod(nth) => {
                if let Some(pod) = self.pod(*nth) {
                    self.user.send(Method::DELETE, &path(PODS, &pod), JSON, &json!({})).await;
                }
            }
            Act::Unready(nth) => {
                let now = objects::written(self.cluster.clock.now());
                let ready = json!([{"type": "Ready", "status": "False", "lastTransitionTime": now}]);
                if let Some(pod) = self.pod(*nth) {
                    let path = format!("{}/status", path(PODS, &pod));
                    let body = json!({"status": {"conditions": ready}});
                    self.user.send(Method::PATCH, &path, STRATEGIC, &body).await;
                }
            }
            Act::BreakWatches => self.cluster.break_watches(false),
            Act::Crash => self.daemons.crash().await,
            Act::Second(seconds) => self.daemons.second(Duration::from_secs((*seconds).into())),
        }
    }

    async fn wait(&mut self, time: Duration) {
        let end = self.cluster.elapsed() + time;
        while self.cluster.elapsed() < end.min(self.agent_until) {
            let left = end.saturating_sub(self.cluster.elapsed());
            self.daemons.wait(left.min(Duration::from_secs(1))).await;
            self.apply_again().await;
        }
        self.daemons.wait(end.saturating_sub(self.cluster.elapsed())).await;
    }

    fn end(&mut self) {
        self.daemons.end();
    }
}

impl Actors {
    /// Actors that have not acted yet.
    pub fn new(cluster: Arc<Cluster>, scenario: &Scenario) -> Self {
        let user = User(cluster.client("user"));
        let enabled = Enabled::none().with("deployment-controller").with("replicaset-controller");
        let daemons = Daemons::new(cluster.clone(), unlimited(enabled), scenario.seed, |seed, life| {
            seed.wrapping_add(life.into())
        });
        let (applied, agent_until) = (Value::Null, Duration::ZERO);
        Actors { cluster, user, daemons, is_cramped: scenario.is_cramped, applied, agent_until }
    }

    /// Deletes pods that were made unready: nothing makes them ready again.
    pub async fn heal(&self) {
        for pod in self.cluster.sandbox.objects("Pod").iter().filter(|pod| is_live(pod)) {
            let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
            let is_unready = conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "False");
            if is_unready && text(pod, "/status/phase") == "Running" {
                self.user.send(Method::DELETE, &path(PODS, pod), JSON, &json!({})).await;
            }
        }
    }

    /// Gives each pod a node, and a rollout its surge.
    pub async fn enlarge(&self) {
        self.add_nodes(12).await;
    }

    /// From now on failures roll back, and for so long an agent applies the image again that never starts.
    pub async fn fail_for(&mut self, time: Duration) {
        let annotations = json!({"windlass.dev/on-failure": "rollback", "windlass.dev/fail-after": "10s"});
        self.patch(json!({"metadata": {"annotations": annotations}})).await;
        self.image("broken").await;
        self.agent_until = self.cluster.elapsed() + time;
    }

    /// Approves the current revision.
    pub async fn approve(&self) {
        self.command(&format!("approve {}", self.revision(0))).await;
    }

    /// Removes the policy, and repairs what is broken.
    pub async fn repair(&mut self) {
        let mut annotations = json!({"windlass.dev/steps": null, "windlass.dev/rollout": null,
            "windlass.dev/bypass-until": null, FIRST: null});
        for (key, _) in VALUES {
            annotations[key] = Value::Null;
        }
        self.patch(json!({"metadata": {"annotations": annotations}, "spec": {"paused": false}})).await;
        self.image("repaired").await;
    }

    /// Resumes, and corrects values that cannot be read.
    pub async fn resume(&mut self) {
        let annotations = json!({"windlass.dev/steps": "1", "windlass.dev/fail-after": null,
            "windlass.dev/on-failure": null, "windlass.dev/bypass-until": null, "windlass.dev/rollout": null,
            FIRST: null});
        self.patch(json!({"metadata": {"annotations": annotations}, "spec": {"paused": false}})).await;
        self.image("resumed").await;
    }

    async fn patch(&self, body: Value) {
        self.user.send(Method::PATCH, &format!("{DEPLOYMENTS}/{NAME}"), MERGE, &body).await;
    }

    async fn edit(&self, spec: Value) {
        self.patch(json!({"spec": spec})).await;
    }

    async fn scale(&self, replicas: u32) {
        self.add_nodes(replicas).await;
        self.edit(json!({"replicas": replicas})).await;
    }

    /// Where nodes are full, there is always one for each pod.
    async fn add_nodes(&self, count: u32) {
        for number in 1..=count {
            let name = format!("sandbox-node-{number}");
            if self.is_cramped && self.cluster.sandbox.object("Node", "", &name).is_none() {
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
                self.user.send(Method::POST, NODES, JSON, &node).await;
            }
        }
    }

    async fn image(&mut self, tag: &str) {
        self.apply(self.container(tag)).await;
    }

    async fn apply(&mut self, container: Value) {
        self.applied = container.clone();
        self.edit(json!({"template": {"spec": {"containers": [container]}}})).await;
    }

    /// Applies again what was applied last, where somebody has changed it.
    async fn apply_again(&mut self) {
        let Some(deployment) = deployment(&self.cluster.sandbox) else { return };
        let image = text(&deployment, "/spec/template/spec/containers/0/image");
        if self.applied["image"].as_str().is_some_and(|applied| applied != image) {
            self.apply(self.applied.clone()).await;
        }
    }

    /// A container; where nodes are full, one that takes a port of its node.
    fn container(&self, tag: &str) -> Value {
        let mut container = json!({"name": "app", "image": format!("app:{tag}")});
        if self.is_cramped {
            container["ports"] = json!([{"containerPort": 80, "hostPort": 80}]);
        }
        container
    }

    async fn annotate(&self, key: &str, value: Option<&str>) {
        self.patch(json!({"metadata": {"annotations": {key: value}}})).await;
    }

    async fn command(&self, command: &str) {
        self.annotate("windlass.dev/rollout", Some(command)).await;
    }

    fn revision(&self, behind: u32) -> i64 {
        deployment(&self.cluster.sandbox).map_or(0, |one| revision(&one) - i64::from(behind)).max(0)
    }

    fn nth(&self, kind: &str, nth: u32) -> Option<Value> {
        objects::nth(self.cluster.sandbox.objects(kind), nth)
    }

    fn pod(&self, nth: u32) -> Option<Value> {
        let mut pods = self.cluster.sandbox.objects("Pod");
        pods.retain(is_live);
        objects::nth(pods, nth)
    }

    async fn copy_state(&self, nth: u32) {
        let Some(state) =
            self.nth("ReplicaSet", nth).map(|one| one["metadata"]["annotations"][STATE].clone())
        else {
            return;
        };
        for one in self.cluster.sandbox.objects("ReplicaSet") {
            self.set_state(REPLICA_SETS, &one, &state).await;
        }
        self.patch(json!({"metadata": {"annotations": {STATE: state}}})).await;
    }

    async fn set_state(&self, of: &str, object: &Value, state: &Value) {
        let body = json!({"metadata": {"annotations": {STATE: state}}});
        self.user.send(Method::PATCH, &path(of, object), MERGE, &body).await;
    }
}

fn path(of: &str, object: &Value) -> String {
    format!("{of}/{}", text(object, "/metadata/name"))
}
