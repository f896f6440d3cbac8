//! Where a scenario is played: a namespace on some API server, with everything beside it that a cluster
//! has. A scenario sees only what a user sees through a client, so it runs on the sandbox, in virtual
//! time, and on a real kube-apiserver alike.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use windlass::app::Parts;
use windlass::clock::Clock;
use windlass::metrics::Metrics;
use windlass_apiserver::{FaultDecision, RequestInfo};

use super::cluster::{Cluster, Daemon, condition, is_complete};
use super::user::{another_image, new_deployment, send};
use windlass_planner_testkit::objects::DeploymentBuilder;

/// A namespace, its API server, and the controllers' writes.
pub struct Stage {
    /// A user's client.
    client: Client,
    /// The parts that the daemons of this stage are built from, except for the seed.
    parts: Parts,
    /// Where its objects are.
    pub namespace: String,
    writes: Writes,
    server: Server,
}

/// The differences between API servers.
enum Server {
    Sandbox(Box<Cluster>),
    /// A real one, where steps are refused by a quota and by an admission policy.
    Real,
}

/// A step that can be refused to the controllers.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // The names are the documentation.
pub enum Step {
    CreatePods,
    ScaleReplicaSets,
}

impl Stage {
    /// A sandbox of its own, in virtual time.
    pub async fn on_sandbox() -> Self {
        let cluster = Cluster::new().await;
        let writes = Writes::default();
        let parts = Parts {
            client: recorded(cluster.client.clone(), writes.clone()).into(),
            host: "sandbox".into(),
            clock: cluster.clock.clone(),
            seed: 0,
            metrics: Metrics::new(),
            election: None,
        };
        let (client, namespace) = (cluster.client.clone(), "shop".to_string());
        Stage { client, parts, namespace, writes, server: Server::Sandbox(Box::new(cluster)) }
    }

    /// A new namespace on a real API server. `daemon` is the client of the controllers, made by
    /// [`recorded`] with these `writes`.
    pub async fn on_real(client: Client, daemon: Client, writes: Writes, namespace: String) -> Self {
        let stage = Self::in_namespace(client, daemon, writes, namespace);
        let body = json!({"metadata": {"name": stage.namespace}});
        stage.call(Method::POST, "/api/v1/namespaces", &body).await;
        stage
    }

    /// The same in an existing namespace.
    pub fn in_namespace(client: Client, daemon: Client, writes: Writes, namespace: String) -> Self {
        let parts = Parts {
            client: daemon.into(),
            host: "kube-apiserver".into(),
            clock: Clock::System,
            seed: 0,
            metrics: Metrics::new(),
            election: None,
        };
        Stage { client, parts, namespace, writes, server: Server::Real }
    }

    /// Starts a daemon's controllers. They see to all namespaces of the server.
    pub fn start_controllers(&self, seed: u64) -> Daemon {
        Daemon::start(Parts { seed, metrics: Metrics::new(), ..self.parts.clone() })
    }

    /// Where the objects of a kind in the namespace are.
    pub fn path(&self, kind: &str) -> String {
        let (group, plural) = match kind {
            "Deployment" => ("apis/apps/v1", "deployments"),
            "ReplicaSet" => ("apis/apps/v1", "replicasets"),
            "Pod" => ("api/v1", "pods"),
            "Event" => ("api/v1", "events"),
            "ResourceQuota" => ("api/v1", "resourcequotas"),
            other => panic!("no path for {other}"),
        };
        format!("/{group}/namespaces/{}/{plural}", self.namespace)
    }

    /// Sends a request as a user would; panics unless it succeeds.
    pub async fn call(&self, method: Method, path: &str, body: &Value) -> Value {
        self.try_call(method, path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Sends a request as a user would.
    pub async fn try_call(&self, method: Method, path: &str, body: &Value) -> kube::Result<Value> {
        send(&self.client, method, path, body).await
    }

    /// Creates a Deployment.
    pub async fn create(&self, deployment: DeploymentBuilder) {
        self.call(Method::POST, &self.path("Deployment"), &new_deployment(deployment)).await;
    }

    /// Merges this into a Deployment.
    pub async fn patch(&self, name: &str, patch: Value) {
        self.call(Method::PATCH, &format!("{}/{name}", self.path("Deployment")), &patch).await;
    }

    /// Changes the image of a Deployment.
    pub async fn set_image(&self, name: &str, tag: &str) {
        self.patch(name, another_image(tag)).await;
    }

    /// Deletes a Deployment; the propagation policy decides about its ReplicaSets and pods.
    pub async fn delete(&self, name: &str, propagation: &str) {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation});
        self.call(Method::DELETE, &format!("{}/{name}", self.path("Deployment")), &options).await;
    }

    /// The namespace as it is now.
    pub async fn seen(&self) -> Seen {
        Seen {
            deployments: self.list("Deployment").await,
            replica_sets: self.list("ReplicaSet").await,
            pods: self.list("Pod").await,
            events: self.list("Event").await,
        }
    }

    async fn list(&self, kind: &str) -> Vec<Value> {
        let list = self.call(Method::GET, &self.path(kind), &Value::Null).await;
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// Looks until `holds`; panics with the state of things after `seconds` of the stage's time.
    pub async fn eventually(&self, seconds: u64, what: &str, holds: impl Fn(&Seen) -> bool) {
        let pause = match self.server {
            Server::Sandbox(_) => Duration::from_millis(100),
            // Every look is four lists, and a dozen scenarios look at once.
            Server::Real => Duration::from_millis(400),
        };
        let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
        loop {
            let seen = self.seen().await;
            if holds(&seen) {
                return;
            }
            if tokio::time::Instant::now() > end {
                panic!("not within {seconds} s: {what}\n{seen}\n{}", self.writes.tail(&self.namespace));
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Waits until a Deployment has rolled out, as `kubectl rollout status` sees it.
    pub async fn rolled_out(&self, name: &str) {
        self.eventually(60, "the Deployment is complete", |seen| is_complete(seen.deployment(name))).await;
    }

    /// From now on a step of the controllers is refused.
    pub async fn refuse(&self, step: Step) {
        match &self.server {
            Server::Sandbox(cluster) => {
                cluster.sandbox.on_request(Some(Arc::new(move |request: &RequestInfo| {
                    let refused = match step {
                        Step::CreatePods => request.kind == "Pod" && request.verb == "create",
                        Step::ScaleReplicaSets => request.kind == "ReplicaSet" && request.verb == "patch",
                    };
                    if !refused || !request.subresource.is_empty() {
                        return FaultDecision::Proceed;
                    }
                    let message = format!("{} is forbidden: the admission policy refuses it", request.name);
                    FaultDecision::Refuse { code: 403, message, reason: "Forbidden".into() }
                })));
            }
            Server::Real => {
                match step {
                    Step::CreatePods => self.create_quota().await,
                    Step::ScaleReplicaSets => self.create_policy().await,
                }
                self.wait_until_refused(step).await;
            }
        }
    }

    /// The step is no longer refused.
    pub async fn permit(&self, step: Step) {
        match (&self.server, step) {
            (Server::Sandbox(cluster), _) => cluster.sandbox.on_request(None),
            (Server::Real, Step::CreatePods) => {
                let quota = format!("{}/none", self.path("ResourceQuota"));
                self.call(Method::DELETE, &quota, &Value::Null).await;
            }
            (Server::Real, Step::ScaleReplicaSets) => {
                let binding = format!("{POLICIES}ybindings/{}", self.namespace);
                self.call(Method::DELETE, &binding, &Value::Null).await;
            }
        }
    }

    /// A quota that allows no pods. Admission reads its status, which the quota controller writes; there is none here.
    async fn create_quota(&self) {
        let none = json!({"hard": {"pods": "0"}});
        let quota = json!({"metadata": {"name": "none"}, "spec": none});
        self.call(Method::POST, &self.path("ResourceQuota"), &quota).await;
        let status = json!({"status": {"hard": {"pods": "0"}, "used": {"pods": "0"}}});
        let path = format!("{}/none/status", self.path("ResourceQuota"));
        self.call(Method::PATCH, &path, &status).await;
    }

    /// No ReplicaSet of this namespace may change its size.
    async fn create_policy(&self) {
        let name = &self.namespace;
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
                                     "operations": ["UPDATE"], "resources": ["replicasets"]}]},
                "validations": [{"expression": "object.spec.replicas == oldObject.spec.replicas",
                                 "message": "the admission policy refuses it", "reason": "Forbidden"}],
            }
        });
        self.call(Method::POST, &format!("{POLICIES}ies"), &policy).await;
        let only_here = json!({"matchLabels": {"kubernetes.io/metadata.name": name}});
        let binding = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"],
                     "matchResources": {"namespaceSelector": only_here}}
        });
        self.call(Method::POST, &format!("{POLICIES}ybindings"), &binding).await;
    }

    /// Admission watches quotas and policies by itself; a dry run shows when it has seen them.
    async fn wait_until_refused(&self, step: Step) {
        let pod =
            json!({"metadata": {"name": "probe"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        for _ in 0..300 {
            let (method, path, body) = match step {
                Step::CreatePods => (Method::POST, self.path("Pod"), pod.clone()),
                Step::ScaleReplicaSets => {
                    let replica_sets = self.seen().await.replica_sets;
                    let path = format!("{}/{}", self.path("ReplicaSet"), name(&replica_sets[0]));
                    (Method::PATCH, path, json!({"spec": {"replicas": 99}}))
                }
            };
            let answer = self.try_call(method, &format!("{path}?dryRun=All"), &body).await;
            if matches!(answer, Err(kube::Error::Api(status)) if status.code == 403) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{step:?} is not refused");
    }

    /// The controllers' writes in this namespace so far, except for events: `POST pods`, `PATCH pods/web-1`.
    pub fn writes(&self) -> Vec<String> {
        self.writes
            .of(&self.namespace)
            .iter()
            .map(|write| format!("{} {}", write.method, write.what))
            .collect()
    }

    /// How many writes met with this answer.
    pub fn answered(&self, method: &Method, what: &str, code: u16) -> usize {
        let all = self.writes.of(&self.namespace);
        all.iter().filter(|w| w.method == *method && w.what == what && w.code == Some(code)).count()
    }

    /// How every scenario ends: the workload has converged, so nothing is written any more; and each write that met a
    /// conflict was repeated.
    pub async fn converges(&self) {
        let quiet = match self.server {
            Server::Sandbox(_) => Duration::from_secs(300),
            Server::Real => Duration::from_secs(4),
        };
        let mut written = self.writes();
        for _ in 0..10 {
            tokio::time::sleep(quiet).await;
            let now = self.writes();
            if now == written {
                return self.conflicts_were_retried().await;
            }
            written = now;
        }
        panic!("the controllers do not settle:\n{}", self.writes.tail(&self.namespace));
    }

    /// After a conflict the same write succeeds some time later, or its object is deleted.
    async fn conflicts_were_retried(&self) {
        let seen = self.seen().await;
        let all = self.writes.of(&self.namespace);
        for (at, write) in all.iter().enumerate().filter(|(_, write)| write.code == Some(409)) {
            let again = |later: &Write| {
                later.method == write.method
                    && later.what == write.what
                    && later.code.is_some_and(|code| (200..300).contains(&code))
            };
            let is_gone = write.what.split('/').nth(1).is_some_and(|name| !seen.has(name));
            assert!(is_gone || all[at..].iter().any(again), "left at a conflict: {write:?}\n{seen}");
        }
    }
}

/// The beginning that the paths of policies and of their bindings have in common.
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";

/// A namespace at one time. Each kind is one list, so it is true of one moment; the kinds are not of the
/// same one.
#[derive(Debug)]
pub struct Seen {
    /// Its Deployments.
    pub deployments: Vec<Value>,
    /// Its ReplicaSets.
    pub replica_sets: Vec<Value>,
    /// Its pods.
    pub pods: Vec<Value>,
    /// Its events.
    pub events: Vec<Value>,
}

impl Seen {
    /// A Deployment, or null.
    pub fn deployment(&self, wanted: &str) -> &Value {
        self.deployments.iter().find(|d| name(d) == wanted).unwrap_or(&Value::Null)
    }

    /// The pods of this image tag that are not terminating.
    pub fn pods_of(&self, tag: &str) -> usize {
        let image = format!("app:{tag}");
        let is_it = |pod: &&Value| {
            pod["spec"]["containers"][0]["image"] == *image && pod["metadata"]["deletionTimestamp"].is_null()
        };
        self.pods.iter().filter(is_it).count()
    }

    /// The ReplicaSet of this image tag, or null.
    pub fn replica_set_of(&self, tag: &str) -> &Value {
        let image = format!("app:{tag}");
        let is_it = |replica_set: &&Value| {
            replica_set["spec"]["template"]["spec"]["containers"][0]["image"] == *image
        };
        self.replica_sets.iter().find(is_it).unwrap_or(&Value::Null)
    }

    /// Whether there is an event with this reason.
    pub fn has_event(&self, reason: &str) -> bool {
        self.events.iter().any(|event| event["reason"] == reason)
    }

    fn has(&self, wanted: &str) -> bool {
        [&self.deployments, &self.replica_sets, &self.pods].into_iter().flatten().any(|o| name(o) == wanted)
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for object in self.deployments.iter().chain(&self.replica_sets) {
            writeln!(
                f,
                "{} spec.replicas={} {}",
                name(object),
                object["spec"]["replicas"],
                object["status"]
            )?;
        }
        for pod in &self.pods {
            writeln!(f, "{} {} {}", name(pod), pod["spec"]["nodeName"], pod["status"]["phase"])?;
        }
        for event in &self.events {
            writeln!(f, "{}: {}", event["reason"], event["message"])?;
        }
        Ok(())
    }
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The reason of a Deployment's condition.
pub fn reason(seen: &Seen, deployment: &str, kind: &str) -> String {
    condition(seen.deployment(deployment), kind)
}

/// A write that the controllers sent.
#[derive(Clone, Debug)]
pub struct Write {
    method: Method,
    namespace: String,
    /// The rest of the path: `replicasets/web-1/status`.
    what: String,
    /// The answer, if there was one.
    code: Option<u16>,
}

/// All the writes of some controllers, in the order in which they were sent.
#[derive(Clone, Default)]
pub struct Writes(Arc<Mutex<Vec<Write>>>);

impl Writes {
    /// Notes a request that is about to be sent. The number is for the answer.
    fn sent(&self, method: &Method, path: &str) -> Option<usize> {
        let (_, rest) = path.split_once("/namespaces/")?;
        let (namespace, what) = rest.split_once('/')?;
        if *method == Method::GET || what.starts_with("events") {
            return None;
        }
        let (namespace, what) = (namespace.to_string(), what.to_string());
        let mut all = self.0.lock().unwrap();
        all.push(Write { method: method.clone(), namespace, what, code: None });
        Some(all.len() - 1)
    }

    fn answered(&self, number: usize, code: u16) {
        self.0.lock().unwrap()[number].code = Some(code);
    }

    fn of(&self, namespace: &str) -> Vec<Write> {
        self.0.lock().unwrap().iter().filter(|write| write.namespace == namespace).cloned().collect()
    }

    fn tail(&self, namespace: &str) -> String {
        let all = self.of(namespace);
        let last = all.iter().skip(all.len().saturating_sub(40));
        last.map(|w| format!("{} {} -> {:?}\n", w.method, w.what, w.code)).collect()
    }
}

/// The same client, whose writes are noted with their answers.
pub fn recorded(client: Client, writes: Writes) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, writes) = (client.clone(), writes.clone());
        async move {
            let number = writes.sent(request.method(), request.uri().path());
            let response = client.send(request).await?;
            if let Some(number) = number {
                writes.answered(number, response.status().as_u16());
            }
            Ok::<_, kube::Error>(response)
        }
    });
    Client::new(service, "default")
}
