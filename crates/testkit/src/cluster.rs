//! A whole cluster in one process and in virtual time: the sandbox, which collects garbage, its pod simulator,
//! and the real controllers, through the same client that the daemon uses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use http::Method;
use http_body_util::BodyExt as _;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use windlass::app::{Candidacy, Controllers, Parts, Reader, http_router};
use windlass::clock::Clock;
use windlass::config::ControllerConfig;
use windlass::metrics::Metrics;
use windlass::plan::node_lifecycle::Limits;
use windlass::runtime::leader_election::rules::ElectionOptions;
use windlass_apiserver::{FaultDecision, FaultInjector, Options, RequestInfo, Sandbox};
use windlass_nodes::kubelet;
use windlass_planner_testkit::objects::DeploymentBuilder;

use super::user::{another_image, new_deployment, send};

/// An API server with its nodes; daemons are started beside them.
pub struct Cluster {
    /// The API server.
    pub sandbox: Sandbox,
    /// A user's client.
    pub client: Client,
    /// The common clock, which follows the paused clock of tokio.
    pub clock: Clock,
    /// Every request that has reached the API server, in its order.
    pub log: Arc<Mutex<Vec<RequestInfo>>>,
    shutdown: CancellationToken,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

/// The faults of the API server, if any.
#[derive(Clone, Default)]
pub struct Faults(pub Option<FaultInjector>);

/// An API server with this decision for each request.
pub fn inject_faults(decision: impl Fn(&RequestInfo) -> FaultDecision + Send + Sync + 'static) -> Faults {
    Faults(Some(Arc::new(decision)))
}

/// Refuses a request as an admission webhook or a policy does.
pub fn forbidden(message: &str) -> FaultDecision {
    FaultDecision::Refuse { code: 403, message: message.into(), reason: "Forbidden".into() }
}

/// Whether this is a request of the controllers with this verb and kind.
pub fn is_request(request: &RequestInfo, verb: &str, kind: &str) -> bool {
    request.user_agent == USER_AGENT && request.verb == verb && request.kind == kind
}

impl Cluster {
    /// A cluster without controllers.
    pub async fn new() -> Self {
        Self::with(Faults::default(), |options| options).await
    }

    /// A cluster whose API server has this decision for each request.
    pub async fn answering(decision: impl Fn(&RequestInfo) -> FaultDecision + Send + Sync + 'static) -> Self {
        Self::with(inject_faults(decision), |options| options).await
    }

    /// A cluster whose API server has these faults.
    pub async fn with(faults: Faults, change: impl FnOnce(Options) -> Options) -> Self {
        let collecting = |mut options: Options| {
            options.collect_after = Some(Duration::ZERO);
            change(options)
        };
        Self::build(faults, collecting, |nodes| nodes).await
    }

    /// A cluster in which only a daemon collects garbage and ends namespaces.
    pub async fn without_collectors(faults: Faults) -> Self {
        Self::build(faults, |options| options, |nodes| nodes).await
    }

    /// A cluster whose nodes leave taints, and the pods of nodes that are not ready, to the controllers of a daemon.
    pub async fn without_node_lifecycle(faults: Faults) -> Self {
        let leaving = |nodes| kubelet::Options { node_lifecycle: false, ..nodes };
        Self::build(faults, |options| options, leaving).await
    }

    /// The same with claims that are bound to volumes of a default StorageClass once a pod needs them.
    pub async fn with_volumes(faults: Faults, change: impl FnOnce(Options) -> Options) -> Self {
        let with_volumes = |nodes| kubelet::Options { volumes: true, ..nodes };
        let cluster = Self::build(faults, change, with_volumes).await;
        let class = json!({
            "metadata": {"name": "disk", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "disk.example.com", "volumeBindingMode": "WaitForFirstConsumer",
        });
        cluster.call(Method::POST, "/apis/storage.k8s.io/v1/storageclasses", &class).await;
        cluster
    }

    async fn build(
        faults: Faults,
        change: impl FnOnce(Options) -> Options,
        change_nodes: impl FnOnce(kubelet::Options) -> kubelet::Options,
    ) -> Self {
        let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::virtual_from(start);
        let time = clock.clone();
        let now = Arc::new(move || time.now());
        let sandbox = Sandbox::new(change(Options::new(now.clone())));
        let log = Arc::new(Mutex::new(Vec::new()));
        let seen = log.clone();
        sandbox.on_request(Some(Arc::new(move |request: &RequestInfo| {
            seen.lock().unwrap().push(request.clone());
            faults.0.as_ref().map_or(FaultDecision::Proceed, |inject_faults| inject_faults(request))
        })));
        let client = Client::new(sandbox.router(), "default");
        let shutdown = CancellationToken::new();
        let cluster = Cluster { sandbox, client, clock, log, shutdown };
        // An image of this tag never starts: `set_image("web", "broken")`.
        let never_ready = Some(regex_lite::Regex::new(":broken$").unwrap());
        let options = kubelet::Options { never_ready, ..kubelet::Options::new(now.clone()) };
        tokio::spawn(kubelet::run(cluster.client.clone(), change_nodes(options), cluster.shutdown.clone()));
        cluster.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": "shop"}})).await;
        cluster
    }

    /// Starts a daemon's controllers; they end when the handle's token is cancelled or dropped.
    pub fn start_controllers(&self, seed: u64) -> Daemon {
        self.start_with(seed, unlimited(), |router| router)
    }

    /// The same with another configuration, and with something between the controllers and the server.
    pub fn start_with(
        &self,
        seed: u64,
        config: ControllerConfig,
        between: impl FnOnce(axum::Router) -> axum::Router,
    ) -> Daemon {
        let client = Client::new(between(tag(self.sandbox.router(), USER_AGENT)), "default");
        Daemon::start_with(self.parts(client, seed, None), config)
    }

    /// Starts a daemon's controllers, optionally as a candidate. The user agent marks its requests in the log.
    pub fn start(&self, seed: u64, agent: &'static str, election: Option<ElectionOptions>) -> Daemon {
        let (controllers, metrics) = self.controllers(seed, agent, election);
        Daemon::run(controllers, metrics)
    }

    /// The parts that a daemon's controllers are built from.
    pub fn parts(&self, client: Client, seed: u64, election: Option<Candidacy>) -> Parts {
        Parts {
            client: client.into(),
            host: "sandbox".into(),
            clock: self.clock.clone(),
            seed,
            metrics: Metrics::new(),
            election,
        }
    }

    /// A daemon's controllers, not yet running.
    pub fn controllers(
        &self,
        seed: u64,
        agent: &'static str,
        election: Option<ElectionOptions>,
    ) -> (Controllers, Arc<Metrics>) {
        let client = || Client::new(tag(self.sandbox.router(), agent), "default");
        let election = election.map(|options| Candidacy { client: client().into(), options, thread: None });
        let parts = self.parts(client(), seed, election);
        let metrics = parts.metrics.clone();
        (Controllers::new(unlimited(), parts), metrics)
    }

    /// Sends a request as a user would; panics unless it succeeds.
    pub async fn call(&self, method: Method, path: &str, body: &Value) -> Value {
        self.try_call(method, path, body).await.unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Sends a request as a user would.
    pub async fn try_call(&self, method: Method, path: &str, body: &Value) -> kube::Result<Value> {
        send(&self.client, method, path, body).await
    }

    /// Creates a Deployment in the namespace `shop`.
    pub async fn create(&self, deployment: DeploymentBuilder) {
        let object = new_deployment(deployment);
        self.call(Method::POST, "/apis/apps/v1/namespaces/shop/deployments", &object).await;
    }

    /// Merges this into a Deployment.
    pub async fn patch(&self, name: &str, patch: Value) {
        self.call(Method::PATCH, &format!("/apis/apps/v1/namespaces/shop/deployments/{name}"), &patch).await;
    }

    /// Changes the image of a Deployment.
    pub async fn set_image(&self, name: &str, tag: &str) {
        self.patch(name, another_image(tag)).await;
    }

    /// The objects of a kind in the namespace `shop`, as stored.
    pub fn objects(&self, kind: &str) -> Vec<Value> {
        let mut all = self.sandbox.objects(kind);
        all.retain(|object| object["metadata"]["namespace"] == "shop");
        all
    }

    /// A Deployment as stored, or null.
    pub fn deployment(&self, name: &str) -> Value {
        let named = |object: &Value| object["metadata"]["name"] == name;
        self.objects("Deployment").into_iter().find(named).unwrap_or(Value::Null)
    }

    /// Waits in virtual time until `holds`; panics with the current state after `seconds`.
    #[track_caller]
    pub fn eventually<'a>(
        &'a self,
        seconds: u64,
        what: &'a str,
        holds: impl Fn(&Cluster) -> bool + 'a,
    ) -> impl Future<Output = ()> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            for _ in 0..seconds * 10 {
                if holds(self) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            let state: Vec<String> = ["Deployment", "ReplicaSet", "StatefulSet"]
                .iter()
                .flat_map(|kind| self.objects(kind))
                .map(|o| {
                    format!(
                        "{} {} spec.replicas={} {}",
                        o["kind"], o["metadata"]["name"], o["spec"]["replicas"], o["status"]
                    )
                })
                .collect();
            panic!("{caller}: not within {seconds} s: {what}\n{}", state.join("\n"));
        }
    }

    /// Waits until a Deployment has rolled out, as `kubectl rollout status` sees it.
    pub async fn rolled_out(&self, name: &str) {
        self.eventually(120, "the Deployment is complete", |cluster| cluster.is_complete(name)).await;
    }

    /// Whether a Deployment has rolled out.
    pub fn is_complete(&self, name: &str) -> bool {
        is_complete(&self.deployment(name))
    }

    /// The controllers' writes so far, except events: `verb kind/name`.
    pub fn writes(&self) -> Vec<String> {
        self.log
            .lock()
            .unwrap()
            .iter()
            .filter(|r| r.user_agent == USER_AGENT && r.kind != "Event")
            .filter(|r| matches!(r.verb, "create" | "update" | "patch" | "delete"))
            .map(|r| {
                format!(
                    "{} {}/{}{}",
                    r.verb,
                    r.kind,
                    r.name,
                    if r.subresource.is_empty() { "" } else { "/status" }
                )
            })
            .collect()
    }

    /// The number of the controllers' writes so far with this prefix, such as `create Pod`.
    pub fn count(&self, write: &str) -> usize {
        self.writes().iter().filter(|w| w.starts_with(write)).count()
    }

    /// The number of pods created so far.
    pub fn pods_created(&self) -> usize {
        let log = self.log.lock().unwrap();
        let mut names: Vec<String> = log
            .iter()
            .filter(|r| r.kind == "Event" && r.verb == "create")
            .filter_map(|r| serde_json::from_slice::<Value>(&r.body).ok())
            .filter(|event| event["reason"] == "Scheduled")
            .filter_map(|event| event["involvedObject"]["uid"].as_str().map(str::to_string))
            .collect();
        names.sort();
        names.dedup();
        names.len()
    }
}

/// Whether a Deployment has rolled out, as `kubectl rollout status` sees it.
pub fn is_complete(deployment: &Value) -> bool {
    let number = |field: &str| deployment["status"][field].as_i64().unwrap_or(0);
    let wanted = deployment["spec"]["replicas"].as_i64().unwrap_or(0);
    deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"].iter().all(|field| number(field) == wanted)
        && condition(deployment, "Progressing") == "NewReplicaSetAvailable"
}

/// The reason of a condition.
pub fn condition(object: &Value, kind: &str) -> String {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|c| c["type"] == kind);
    found.map_or(String::new(), |c| c["reason"].as_str().unwrap_or_default().to_string())
}

/// The defaults, without a rate limit, for nodes without heartbeats.
pub fn unlimited() -> ControllerConfig {
    let node_limits = Limits { monitor_grace_period: Duration::ZERO, ..Limits::default() };
    ControllerConfig { qps: 1e6, burst: 1_000_000, node_limits, ..ControllerConfig::default() }
}

/// The user agent of the controllers' requests.
pub const USER_AGENT: &str = "windlass-test";

/// The API server for a client with this user agent.
pub fn tag(router: axum::Router, agent: &'static str) -> axum::Router {
    router.layer(axum::middleware::map_request(move |mut request: axum::extract::Request| async move {
        request.headers_mut().insert("user-agent", agent.parse().unwrap());
        request
    }))
}

/// Sends a GET to one of a daemon's routers: the status and the text.
pub async fn ask(router: &axum::Router, path: &str) -> (u16, String) {
    let request = http::Request::get(path).body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (code, String::from_utf8(body.to_vec()).unwrap())
}

/// Running controllers.
pub struct Daemon {
    /// Ends the controllers when it is cancelled.
    pub shutdown: CancellationToken,
    /// The controllers.
    pub task: JoinHandle<anyhow::Result<()>>,
    /// Their metrics.
    pub metrics: Arc<Metrics>,
    /// The router of its HTTP port.
    pub http: axum::Router,
    /// The pages for authorized clients.
    pub https: axum::Router,
}

impl Daemon {
    /// Starts controllers; they end when they are stopped or killed.
    pub fn start(parts: Parts) -> Self {
        Self::start_with(parts, unlimited())
    }

    /// Starts controllers with this configuration.
    pub fn start_with(parts: Parts, config: ControllerConfig) -> Self {
        let metrics = parts.metrics.clone();
        Self::run(Controllers::new(config, parts), metrics)
    }

    /// Runs controllers that are built already.
    pub fn run(controllers: Controllers, metrics: Arc<Metrics>) -> Self {
        let shutdown = CancellationToken::new();
        let http = http_router(metrics.clone(), &controllers, Reader::AnyClient);
        let https = http_router(metrics.clone(), &controllers, Reader::Known);
        let task = tokio::spawn(controllers.run(shutdown.clone(), Duration::from_secs(10)));
        Daemon { shutdown, task, metrics, http, https }
    }

    /// SIGTERM: drains.
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// SIGKILL: no sync finishes.
    pub fn kill(self) {
        self.task.abort();
    }
}
