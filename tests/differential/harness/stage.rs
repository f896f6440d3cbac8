//! The environment of a workload: a namespace, a user's client, and a watch. A script does not depend on the
//! controllers; it reads objects as a user does.
//!
//! A script is a list of actions with [`Stage::rest`] between them. Each rest ends a step: what happened since the
//! rest before is compared with the same step of the other play.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::consistency::is_consistent;
use super::objects::Object;
use super::recording::{Current, History, KINDS_OF_SERVICES};

/// A namespace in which nothing happened for this long is settled, if its statuses are correct as well.
const QUIET: Duration = Duration::from_millis(500);

/// At rest, whatever the statuses say. Longer than Windlass gathers numbers before it writes them.
const VERY_QUIET: Duration = Duration::from_millis(1700);

/// The same two times with a Job. Both controllers gather the changes of its pods for a second, and Windlass its numbers for
/// another; upstream waits a second and more where its cache is behind.
const QUIET_WITH_JOBS: (Duration, Duration) = (Duration::from_millis(3500), Duration::from_secs(9));

/// The same two times with a StatefulSet: Windlass gathers the numbers of a rolling update for five seconds.
const QUIET_WITH_STATEFUL_SETS: (Duration, Duration) = (QUIET, Duration::from_secs(7));

/// The same two times for Services, PodDisruptionBudgets and ResourceQuotas. No status says that their endpoints and numbers are
/// up to date, and Windlass writes numbers once a second.
const QUIET_WITH_SERVICES: (Duration, Duration) = (Duration::from_millis(2500), Duration::from_millis(3500));

/// A namespace that does not settle in this time is a finding.
const RESTLESS: Duration = Duration::from_secs(40);

/// The history between two rests.
#[derive(Clone, Debug)]
pub struct Step {
    /// The script's actions.
    pub label: String,
    /// The greatest resource version of the step.
    pub end: u64,
    /// The condition that was not reached in time.
    pub complaints: Vec<String>,
}

/// The work of the script so far.
#[derive(Default)]
pub struct Script {
    pub steps: Vec<Step>,
    actions: Vec<String>,
    complaints: Vec<String>,
    /// Names that the script chose, by kind. All others were chosen by the controllers or the server.
    pub own_names: BTreeSet<(String, String)>,
    /// The script's name for a pod, by UID.
    pub tags: Vec<(String, String)>,
}

pub struct Stage {
    client: Client,
    pub namespace: String,
    history: Arc<Mutex<History>>,
    pub script: Mutex<Script>,
}

/// A pod as the watch last showed it.
#[derive(Clone, Debug)]
pub struct Pod {
    pub object: Value,
    created: u64,
}

impl Pod {
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    pub fn uid(&self) -> &str {
        self.object["metadata"]["uid"].as_str().unwrap_or_default()
    }

    pub fn image(&self) -> &str {
        self.object["spec"]["containers"][0]["image"].as_str().unwrap_or_default()
    }

    pub fn is_terminating(&self) -> bool {
        !self.object["metadata"]["deletionTimestamp"].is_null()
    }

    pub fn has_ended(&self) -> bool {
        has_ended(&self.object)
    }

    pub fn is_ready(&self) -> bool {
        is_ready(&self.object)
    }

    /// Nothing has happened to it yet that a script would have done.
    fn is_waiting(&self) -> bool {
        !self.is_terminating() && self.object["status"]["phase"] == "Pending"
    }
}

pub fn has_ended(pod: &Value) -> bool {
    pod["status"]["phase"] == "Failed" || pod["status"]["phase"] == "Succeeded"
}

pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"))
}

/// The UID of the controller in an object's owner references.
pub fn controller_of(object: &Value) -> Option<&str> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    owners.iter().find(|owner| owner["controller"] == true)?["uid"].as_str()
}

/// Pods with this tag run and are never ready.
const BROKEN: &str = ":broken";

impl Stage {
    pub async fn new(client: Client, history: Arc<Mutex<History>>, namespace: &str) -> Self {
        let stage = Stage { client, namespace: namespace.to_owned(), history, script: Mutex::default() };
        let body = json!({"metadata": {"name": namespace}});
        stage.call(Method::POST, "/api/v1/namespaces", &body).await;
        stage
    }

    /// Where the objects of a kind in the namespace are.
    pub fn path(&self, kind: &str) -> String {
        let (group, plural) = match kind {
            "Deployment" => ("apis/apps/v1", "deployments"),
            "ReplicaSet" => ("apis/apps/v1", "replicasets"),
            "ReplicationController" => ("api/v1", "replicationcontrollers"),
            "DaemonSet" => ("apis/apps/v1", "daemonsets"),
            "StatefulSet" => ("apis/apps/v1", "statefulsets"),
            "Job" => ("apis/batch/v1", "jobs"),
            "ControllerRevision" => ("apis/apps/v1", "controllerrevisions"),
            "CronJob" => ("apis/batch/v1", "cronjobs"),
            "Pod" => ("api/v1", "pods"),
            "PersistentVolumeClaim" => ("api/v1", "persistentvolumeclaims"),
            "ResourceQuota" => ("api/v1", "resourcequotas"),
            "ConfigMap" => ("api/v1", "configmaps"),
            "Service" => ("api/v1", "services"),
            "Endpoints" => ("api/v1", "endpoints"),
            "EndpointSlice" => ("apis/discovery.k8s.io/v1", "endpointslices"),
            "PodDisruptionBudget" => ("apis/policy/v1", "poddisruptionbudgets"),
            other => panic!("no path for {other}"),
        };
        format!("/{group}/namespaces/{}/{plural}", self.namespace)
    }

    /// Sends a request as a user would; panics unless it succeeds.
    pub async fn call(&self, method: Method, path: &str, body: &Value) -> Value {
        let answer = self.try_call(method.clone(), path, body).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub async fn try_call(&self, method: Method, path: &str, body: &Value) -> kube::Result<Value> {
        let is_patch = method == Method::PATCH;
        let content_type = if is_patch { "application/merge-patch+json" } else { "application/json" };
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        self.client.request::<Value>(request.body(bytes).unwrap()).await
    }

    /// Records the action of the script, for the label of the step.
    pub fn act(&self, what: impl Into<String>) {
        self.script.lock().unwrap().actions.push(what.into());
    }

    fn complain(&self, what: String) {
        self.script.lock().unwrap().complaints.push(what);
    }

    // --- what a user does

    /// Creates the object and returns it as it was stored.
    pub async fn create(&self, object: Object) -> Value {
        let (kind, name) = (object.kind().to_owned(), object.name().to_owned());
        self.act(format!("create {kind} {name}"));
        self.script.lock().unwrap().own_names.insert((kind.clone(), name));
        self.call(Method::POST, &self.path(&kind), &object.0).await
    }

    /// The object as the server has it now.
    pub async fn get(&self, kind: &str, name: &str) -> Value {
        self.call(Method::GET, &format!("{}/{name}", self.path(kind)), &Value::Null).await
    }

    /// A merge patch.
    pub async fn patch(&self, kind: &str, name: &str, patch: Value) {
        let shown = patch.to_string();
        let shown = if shown.len() > 120 { "a long patch".to_owned() } else { shown };
        // The name may be one that a controller chose.
        let is_own = self.script.lock().unwrap().own_names.contains(&(kind.to_owned(), name.to_owned()));
        self.act(format!("patch {kind} {}: {shown}", if is_own { name } else { "of a controller" }));
        self.call(Method::PATCH, &format!("{}/{name}", self.path(kind)), &patch).await;
    }

    pub async fn scale(&self, kind: &str, name: &str, replicas: i64) {
        self.patch(kind, name, json!({"spec": {"replicas": replicas}})).await;
    }

    /// Scales by the subresource, as `kubectl scale` does.
    pub async fn scale_by_subresource(&self, kind: &str, name: &str, replicas: i64) {
        self.act(format!("scale {kind} {name} to {replicas}"));
        let path = format!("{}/{name}/scale", self.path(kind));
        self.call(Method::PATCH, &path, &json!({"spec": {"replicas": replicas}})).await;
    }

    /// Changes the image of a Deployment's template.
    pub async fn image(&self, deployment: &str, tag: &str) {
        let containers = json!([{"name": "app", "image": format!("app:{tag}")}]);
        let template = json!({"spec": {"containers": containers}});
        self.patch("Deployment", deployment, json!({"spec": {"template": template}})).await;
    }

    pub async fn pause(&self, deployment: &str, paused: bool) {
        self.patch("Deployment", deployment, json!({"spec": {"paused": paused}})).await;
    }

    /// Requests a rollback as clients of `extensions/v1beta1` did.
    pub async fn roll_back(&self, deployment: &str, revision: &str) {
        let annotations = json!({"deprecated.deployment.rollback.to": revision});
        self.patch("Deployment", deployment, json!({"metadata": {"annotations": annotations}})).await;
    }

    pub async fn delete(&self, kind: &str, name: &str, propagation: &str) {
        self.act(format!("delete {kind}, {propagation}"));
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation});
        self.call(Method::DELETE, &format!("{}/{name}", self.path(kind)), &options).await;
    }

    // --- what a user sees

    /// The objects of a kind, in the order of their creation.
    pub fn all(&self, kind: &str) -> Vec<Value> {
        let history = self.history.lock().unwrap();
        let mut found: Vec<&Current> = history.current.values().filter(|it| it.kind == kind).collect();
        found.sort_by_key(|it| it.created);
        found.iter().map(|it| it.object.clone()).collect()
    }

    pub fn one(&self, kind: &str, name: &str) -> Value {
        let history = self.history.lock().unwrap();
        history
            .current
            .values()
            .find(|it| it.kind == kind && it.object["metadata"]["name"] == name)
            .map_or(Value::Null, |it| it.object.clone())
    }

    /// Whether the watch has shown the object, be it gone now or not.
    pub fn has_seen(&self, kind: &str, name: &str) -> bool {
        let history = self.history.lock().unwrap();
        history.changes.iter().any(|it| it.kind == kind && it.object["metadata"]["name"] == name)
    }

    /// The ReplicaSets of a Deployment, in the order of their creation.
    pub fn replica_sets_of(&self, deployment: &str) -> Vec<Value> {
        let uid = self.one("Deployment", deployment)["metadata"]["uid"].as_str().map(str::to_owned);
        let mut replica_sets = self.all("ReplicaSet");
        replica_sets
            .retain(|replica_set| controller_of(replica_set).map(str::to_owned) == uid && uid.is_some());
        replica_sets
    }

    /// All pods, first by their image and then in the order of their creation.
    pub fn pods(&self) -> Vec<Pod> {
        let history = self.history.lock().unwrap();
        let all = history.current.values().filter(|it| it.kind == "Pod");
        let mut pods: Vec<Pod> =
            all.map(|it| Pod { object: it.object.clone(), created: it.created }).collect();
        pods.sort_by_key(|pod| (pod.image().to_owned(), pod.created));
        pods
    }

    /// The pods that are neither terminating nor ended.
    pub fn active(&self) -> Vec<Pod> {
        let mut pods = self.pods();
        pods.retain(|pod| !pod.is_terminating() && !pod.has_ended());
        pods
    }

    pub fn terminating(&self) -> Vec<Pod> {
        let mut pods = self.pods();
        pods.retain(Pod::is_terminating);
        pods
    }

    /// The script's name of a pod, so that the order of deletions can be compared.
    pub fn tag(&self, pod: &Pod, tag: &str) {
        self.script.lock().unwrap().tags.push((pod.uid().to_owned(), tag.to_owned()));
    }

    // --- waiting

    /// Waits until nothing changes any more, and ends the step.
    pub async fn rest(&self) {
        let begin = Instant::now();
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let (quiet, consistent, (short, long)) = {
                let history = self.history.lock().unwrap();
                let since = history.active.max(begin);
                let has = |kind: &str| history.changes.iter().any(|change| change.kind == kind);
                let times = match () {
                    () if has("Job") => QUIET_WITH_JOBS,
                    () if KINDS_OF_SERVICES.iter().any(|(kind, _)| has(kind)) => QUIET_WITH_SERVICES,
                    () if has("StatefulSet") => QUIET_WITH_STATEFUL_SETS,
                    () => (QUIET, VERY_QUIET),
                };
                (since.elapsed(), is_consistent(&history), times)
            };
            if quiet > long || (quiet > short && consistent) {
                break;
            }
            if begin.elapsed() > RESTLESS {
                self.complain("does not come to rest".into());
                break;
            }
        }
        self.end_step();
    }

    fn end_step(&self) {
        let end = self.history.lock().unwrap().version();
        let mut script = self.script.lock().unwrap();
        let label = std::mem::take(&mut script.actions).join(", ");
        let complaints = std::mem::take(&mut script.complaints);
        script.steps.push(Step { label, end, complaints });
    }

    /// Waits for something that needs only time, such as a deadline; then until the namespace is settled.
    pub async fn until(&self, what: &str, seconds: u64, holds: impl Fn(&Stage) -> bool) {
        self.act(format!("wait until {what}"));
        let end = Instant::now() + Duration::from_secs(seconds);
        while !holds(self) {
            if Instant::now() > end {
                self.complain(format!("{what}: not within {seconds} s"));
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.rest().await;
    }

    /// Waits until the quota status of the namespace matches its spec.
    pub async fn counted(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let quota = self.get("ResourceQuota", "pods").await;
            let is_counted =
                quota["status"]["hard"] == quota["spec"]["hard"] && !quota["status"]["used"].is_null();
            if is_counted {
                return;
            }
            assert!(Instant::now() < end, "the quota is not counted: {quota}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Time passes.
    pub async fn wait(&self, seconds: u64) {
        self.act(format!("wait {seconds} s"));
        tokio::time::sleep(Duration::from_secs(seconds)).await;
        self.rest().await;
    }

    // --- rollouts

    /// All pods that wait become ready at once; what terminates ends. Until there is nothing to do.
    pub async fn come_up(&self) {
        for _ in 0..20 {
            self.rest().await;
            let pods = self.pods();
            let mut any = false;
            for pod in pods.iter().filter(|pod| pod.is_terminating() || pod.is_waiting()) {
                any = true;
                if pod.is_terminating() {
                    self.end(pod).await;
                } else {
                    self.start(pod).await;
                }
            }
            if !any {
                return;
            }
            self.act("all pods go on");
        }
        self.complain("pods come and go without end".into());
    }

    async fn start(&self, pod: &Pod) {
        if pod.image().ends_with(BROKEN) {
            self.unready(pod).await;
        } else {
            self.ready(pod).await;
        }
    }

    /// Ends the pods that terminate, and makes pods ready one at a time, with a rest after each, until there is nothing
    /// to do.
    pub async fn roll(&self) {
        for _ in 0..100 {
            self.rest().await;
            if !self.go_on(true).await {
                return;
            }
        }
        self.complain("the rollout does not end".into());
    }

    /// The same for so many pods at most, and what terminates does not end.
    pub async fn roll_some(&self, pods: usize) {
        for _ in 0..pods {
            self.rest().await;
            self.go_on(false).await;
        }
        self.rest().await;
    }

    async fn go_on(&self, ending: bool) -> bool {
        let pods = self.pods();
        let ended: Vec<&Pod> = pods.iter().filter(|pod| ending && pod.is_terminating()).collect();
        for pod in &ended {
            self.end(pod).await;
        }
        if !ended.is_empty() {
            self.act(format!("{} pods end", ended.len()));
            return true;
        }
        match pods.iter().find(|pod| pod.is_waiting()) {
            Some(pod) => {
                self.start(pod).await;
                self.act(format!("a pod of {} starts", pod.image()));
                true
            }
            None => false,
        }
    }

    /// All terminating pods are deleted.
    pub async fn end_terminating(&self) {
        let pods = self.terminating();
        self.act(format!("{} pods end", pods.len()));
        for pod in &pods {
            self.end(pod).await;
        }
        self.rest().await;
    }
}
