//! Carries out the acts of the scenario with requests, as users, nodes and chaos monkeys do. Starts and kills the
//! daemon.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::facts::{INDEX, NAME, TRACKING, condition, has_ended, is_finished, is_tracked, owner};
use super::judge::{Cluster, Judge};
use super::scenario::{Act, Form, Scenario};
use crate::engine::daemons::{Daemons, unlimited};
use crate::engine::game;
use crate::engine::objects::{self, NAMESPACE, is_live, name, number, text, uid};
use crate::engine::user::{JSON, MERGE, STRATEGIC, User};
use windlass::config::Enabled;

const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const QUOTAS: &str = "/api/v1/namespaces/shop/resourcequotas";

/// Users, nodes, chaos monkeys, and the supervisor of the daemon.
pub struct Actors {
    cluster: Arc<Cluster>,
    user: User,
    form: Form,
    /// The supervisor of the daemon.
    pub daemons: Daemons<Judge>,
}

impl game::Actors<Act> for Actors {
    async fn begin(&mut self) {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        self.user.send(Method::POST, "/api/v1/namespaces", JSON, &namespace).await;
        self.daemons.start();
        tokio::time::sleep(Duration::from_millis(500)).await;
        self.create().await;
    }

    async fn act(&mut self, act: &Act) {
        self.cluster.say(&format!("{act:?}"));
        match act {
            Act::Parallelism(most) => self.edit(json!({"parallelism": most})).await,
            Act::Elastic(size) if self.form.mode == "Indexed" => {
                self.edit(json!({"completions": size, "parallelism": size})).await;
            }
            Act::Elastic(_) => {}
            Act::Suspend(suspend) => self.edit(json!({"suspend": suspend})).await,
            Act::Deadline(0) => self.edit(json!({"activeDeadlineSeconds": null})).await,
            Act::Deadline(seconds) => self.edit(json!({"activeDeadlineSeconds": seconds})).await,
            Act::Recreate { policy, form } => self.recreate(policy, form.clone()).await,
            Act::ForeignEnd => self.end_foreign().await,
            Act::Fail(nth, code) => {
                if let Some(pod) = self.pod(*nth) {
                    self.fail(&pod, *code).await;
                }
            }
            Act::FailAll(code) => {
                for pod in self.pods().into_iter().filter(is_live) {
                    self.fail(&pod, *code).await;
                }
            }
            Act::Disrupt(nth) => {
                if let Some(pod) = self.pod(*nth) {
                    let status = json!({"conditions": [{"type": "DisruptionTarget", "status": "True",
                        "reason": "EvictionByEvictionAPI", "lastTransitionTime": self.now()}]});
                    self.set_status(PODS, name(&pod), status).await;
                    self.fail(&pod, 137).await;
                }
            }
            Act::Succeed(nth) => {
                if let Some(pod) = self.pod(*nth) {
                    self.succeed(&pod).await;
                }
            }
            Act::DeletePod(nth) => self.delete_pod(*nth, json!({})).await,
            Act::ForceDelete(nth) => self.delete_pod(*nth, json!({"gracePeriodSeconds": 0})).await,
            Act::Orphan(nth) => self.edit_pod(*nth, json!({"ownerReferences": null})).await,
            Act::Relabel(nth) => {
                self.edit_pod(*nth, json!({"labels": {"batch.kubernetes.io/controller-uid": "other"}})).await;
            }
            Act::Strip(nth) => self.edit_pod(*nth, json!({"finalizers": null})).await,
            Act::Track(nth) => self.edit_pod(*nth, json!({"finalizers": [TRACKING]})).await,
            Act::Index(nth, index) => {
                self.edit_pod(*nth, json!({"annotations": {INDEX: index.to_string()}})).await;
            }
            Act::Stray => {
                let Some(job) = self.job() else { return };
                let labels = &job["spec"]["template"]["metadata"]["labels"];
                let stray = json!({"metadata": {"name": "stray", "labels": labels},
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "other"}]}});
                self.user.send(Method::POST, PODS, JSON, &stray).await;
            }
            Act::Dead(nth, dead) => {
                let nodes = self.cluster.sandbox.objects("Node");
                if let Some(node) = nodes.get(*nth as usize % nodes.len().max(1)) {
                    self.set_dead(name(node), *dead).await;
                }
            }
            Act::Quota => self.set_quota(Some(self.cluster.sandbox.objects("Pod").len())).await,
            Act::NoQuota => self.set_quota(None).await,
            Act::BreakWatches => self.cluster.break_watches(false),
            Act::Compact => self.cluster.break_watches(true),
            Act::Crash => self.daemons.crash().await,
            Act::CrashAt(nth, is_carried_out) => self.cluster.kill_at(*nth, *is_carried_out),
            Act::Second(seconds) => self.daemons.second(Duration::from_secs((*seconds).into())),
        }
    }

    async fn wait(&mut self, time: Duration) {
        self.daemons.wait(time).await;
    }

    fn end(&mut self) {
        self.daemons.end();
    }
}

impl Actors {
    /// Actors that have not acted yet.
    pub fn new(cluster: Arc<Cluster>, scenario: &Scenario) -> Self {
        let user = User(cluster.client("user"));
        let config = unlimited(Enabled::none().with("job-controller"));
        let daemons =
            Daemons::new(cluster.clone(), config, scenario.seed, |seed, life| seed.wrapping_add(life.into()));
        Actors { cluster, user, form: scenario.form.clone(), daemons }
    }

    /// The Job, if there is one.
    pub fn job(&self) -> Option<Arc<Value>> {
        self.cluster.sandbox.object("Job", NAMESPACE, NAME)
    }

    /// The pods of Jobs.
    pub fn pods(&self) -> Vec<Value> {
        let mut pods = self.cluster.sandbox.objects("Pod");
        pods.retain(|pod| !owner(pod).is_empty());
        pods
    }

    /// Changes the specification.
    pub async fn edit(&self, spec: Value) {
        self.user.send(Method::PATCH, &path(JOBS, NAME), MERGE, &json!({"spec": spec})).await;
    }

    /// Deletes the Job, waits until it is gone, and creates another.
    pub async fn recreate(&mut self, policy: &str, form: Form) {
        self.user.send(Method::DELETE, &path(JOBS, NAME), JSON, &json!({"propagationPolicy": policy})).await;
        for _ in 0..100 {
            if self.job().is_none() {
                break;
            }
            self.daemons.wait(Duration::from_millis(300)).await;
        }
        self.form = form;
        self.create().await;
    }

    async fn create(&self) {
        let Form {
            mode,
            completions,
            limit,
            per_index,
            failure_policy,
            enough,
            replaces_failed_only,
            outcome,
            is_foreign,
        } = &self.form;
        let mut spec = json!({
            "parallelism": 3.min(*completions).max(1), "backoffLimit": limit,
            "template": {"metadata": {"labels": {"app": "work"}, "annotations": {"windlass.dev/pod-outcome": outcome}},
                "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
                    "containers": [{"name": "c", "image": "work:1"}]}}
        });
        if mode != "Queue" {
            spec["completions"] = (*completions).into();
        }
        if mode == "Indexed" {
            spec["completionMode"] = "Indexed".into();
            spec["parallelism"] = (*completions).into();
        }
        if let Some(most) = per_index {
            spec["backoffLimitPerIndex"] = (*most).into();
            spec["backoffLimit"] = i32::MAX.into();
        }
        if *failure_policy {
            let exits = |action: &str, code: u8| json!({"action": action, "onExitCodes": {"operator": "In", "values": [code]}});
            let disruption = json!({"action": "Ignore",
                "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
            let mut rules = vec![exits("Ignore", 42), exits("FailJob", 43), disruption];
            rules.extend(per_index.map(|_| exits("FailIndex", 44)));
            spec["podFailurePolicy"] = json!({"rules": rules});
        }
        if let Some(enough) = enough.map(|enough| enough.min(*completions)) {
            spec["successPolicy"] = json!({"rules": [{"succeededCount": enough}]});
        }
        if *replaces_failed_only {
            spec["podReplacementPolicy"] = "Failed".into();
        }
        if *is_foreign {
            spec["managedBy"] = "example.com/queue".into();
        }
        let created =
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": NAME}, "spec": spec});
        self.user.send(Method::POST, JOBS, JSON, &created).await;
        let Some(job) = self.job().filter(|_| *is_foreign) else { return };
        let mut pod = job["spec"]["template"].clone();
        pod["metadata"]["name"] = "theirs".into();
        pod["metadata"]["finalizers"] = json!([TRACKING]);
        pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": NAME,
            "uid": uid(&job), "controller": true}]);
        self.user.send(Method::POST, PODS, JSON, &pod).await;
    }

    /// The controller that manages the Job finishes it, and keeps the finalizer of its pod for a while.
    pub async fn end_foreign(&self) {
        let Some(job) = self.job().filter(|job| job["spec"]["managedBy"].is_string() && !is_finished(job))
        else {
            return;
        };
        let now = self.now();
        let condition = |kind: &str| {
            json!({"type": kind, "status": "True", "reason": "CompletionsReached", "message": "done",
                "lastTransitionTime": now, "lastProbeTime": now})
        };
        let started = json!({"startTime": now, "conditions": [condition("SuccessCriteriaMet")]});
        self.set_status(JOBS, name(&job), started).await;
        let ended = json!({"completionTime": now, "ready": 0, "terminating": 0,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]});
        self.set_status(JOBS, name(&job), ended).await;
    }

    /// A live pod of a Job.
    fn pod(&self, nth: u32) -> Option<Value> {
        let mut pods = self.pods();
        pods.retain(is_live);
        objects::nth(pods, nth)
    }

    fn now(&self) -> String {
        objects::written(self.cluster.clock.now())
    }

    /// A pod ends as its kubelet would say it.
    async fn end_pod(&self, pod: &Value, phase: &str, code: u8) {
        let now = self.now();
        let terminated = json!({"exitCode": code, "reason": "Error", "startedAt": now, "finishedAt": now});
        let status = json!({"phase": phase,
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": now}],
            "containerStatuses": [{"name": "c", "image": "work:1", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": terminated}}]});
        self.set_status(PODS, name(pod), status).await;
    }

    async fn fail(&self, pod: &Value, code: u8) {
        self.end_pod(pod, "Failed", code).await;
    }

    async fn succeed(&self, pod: &Value) {
        self.end_pod(pod, "Succeeded", 0).await;
    }

    async fn set_status(&self, of: &str, name: &str, status: Value) {
        let path = format!("{of}/{name}/status");
        self.user.send(Method::PATCH, &path, STRATEGIC, &json!({"status": status})).await;
    }

    async fn edit_pod(&self, nth: u32, metadata: Value) {
        let pods = self.pods();
        if let Some(pod) = pods.get(nth as usize % pods.len().max(1)) {
            let body = json!({"metadata": metadata});
            self.user.send(Method::PATCH, &path(PODS, name(pod)), MERGE, &body).await;
        }
    }

    async fn delete_pod(&self, nth: u32, options: Value) {
        if let Some(pod) = self.pod(nth) {
            self.user.send(Method::DELETE, &path(PODS, name(&pod)), JSON, &options).await;
        }
    }

    /// Lets so many pods be, or as many as will.
    async fn set_quota(&self, hard: Option<usize>) {
        self.user.send(Method::DELETE, &path(QUOTAS, "few"), JSON, &json!({})).await;
        if let Some(most) = hard {
            let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
                "spec": {"hard": {"pods": most.to_string()}}});
            self.user.send(Method::POST, QUOTAS, JSON, &quota).await;
        }
    }

    async fn set_dead(&self, node: &str, dead: bool) {
        let status = if dead { "Unknown" } else { "True" };
        let status = json!({"conditions": [{"type": "Ready", "status": status}]});
        self.set_status("/api/v1/nodes", node, status).await;
    }

    /// Users and administrators repair what they have broken.
    pub async fn repair(&self) {
        self.set_quota(None).await;
        for node in self.cluster.sandbox.objects("Node") {
            self.set_dead(name(&node), false).await;
        }
        let Some(job) = self.job() else { return self.create().await };
        if number(&job, "/spec/parallelism") == 0 {
            self.edit(json!({"parallelism": 1})).await;
        }
        // Another controller finishes it, and frees its pods.
        self.end_foreign().await;
    }

    /// Resumes the Job.
    pub async fn resume(&self) {
        self.edit(json!({"suspend": false})).await;
    }

    /// Has one more pod succeed, if there is one that never ends.
    pub async fn succeed_one(&self) {
        for pod in self.pods() {
            if is_live(&pod) && text(&pod, "/status/phase") == "Running" && self.form.outcome == "after:never"
            {
                return self.succeed(&pod).await;
            }
        }
    }

    /// Gives a pod of the finished Job the finalizer again. Whether there is one.
    pub async fn track_one(&self) -> bool {
        let Some(job) = self.job().filter(|job| is_finished(job) && !job["spec"]["managedBy"].is_string())
        else {
            return false;
        };
        let pods = self.pods();
        let Some(pod) = pods.iter().find(|pod| owner(pod) == uid(&job) && has_ended(pod) && !is_tracked(pod))
        else {
            return false;
        };
        let body = json!({"metadata": {"finalizers": [TRACKING]}});
        self.user.send(Method::PATCH, &path(PODS, name(pod)), MERGE, &body).await;
        true
    }

    /// Whether the Job has got its fate.
    pub fn has_fate(&self) -> bool {
        let has =
            |job: &Value| condition(job, "SuccessCriteriaMet").or(condition(job, "FailureTarget")).is_some();
        self.job().is_some_and(|job| has(&job))
    }
}

fn path(of: &str, name: &str) -> String {
    format!("{of}/{name}")
}
