//! A real API server with scripted pods, and one side's controllers on it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testkit::apiserver::{ApiServer, User};
use windlass_testkit::controllers::Side;
use windlass_testkit::process::Process;
use windlass_testkit::usage;

use crate::kubelet::Pods;

/// Both may do everything, and the audit log tells them apart.
const USERS: [User; 2] = [
    User { token: "token-of-upstream", name: "upstream", groups: "system:masters" },
    User { token: "token-of-windlass", name: "windlass", groups: "system:masters" },
];

/// Where all pods run.
pub const NODE: &str = "node-0";

/// The controllers that both sides run.
const CONTROLLERS: &str = "deployment-controller,replicaset-controller";

/// No step of a row takes this long.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(1800);

/// A process that has used no CPU time for this long is idle.
const IDLE: Duration = Duration::from_secs(3);

/// How much a process may use in that time and still count as idle: it renews a lease and answers pings.
const NEXT_TO_NOTHING: Duration = Duration::from_millis(30);

/// The API server and its pods.
pub struct Cluster {
    server: ApiServer,
    client: Client,
    /// The pods.
    pub pods: Pods,
    assets: PathBuf,
    keep: Option<PathBuf>,
}

/// Builds a request; a patch is a strategic merge patch.
pub fn request(method: Method, path: &str, body: &Value) -> Request<Vec<u8>> {
    let is_patch = method == Method::PATCH;
    let content_type = if is_patch { "application/strategic-merge-patch+json" } else { "application/json" };
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    Request::builder().method(method).uri(path).header("content-type", content_type).body(bytes).unwrap()
}

/// Calls of one side, as the audit log has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many of each kind, such as `patch replicasets/status`: all but watches.
    pub by_kind: BTreeMap<String, usize>,
    /// Those that were answered with 409.
    pub conflicts: usize,
}

impl Calls {
    /// How many there are.
    pub fn all(&self) -> usize {
        self.by_kind.values().sum()
    }

    /// Those that are not among `earlier`.
    pub fn since(mut self, earlier: &Calls) -> Calls {
        for (kind, count) in &mut self.by_kind {
            *count -= earlier.by_kind.get(kind).copied().unwrap_or_default();
        }
        self.by_kind.retain(|_, count| *count > 0);
        self.conflicts -= earlier.conflicts;
        self
    }
}

impl Cluster {
    /// Starts an API server and the scripted kubelet.
    pub async fn start(assets: &Path, keep: Option<PathBuf>) -> Self {
        if let Some(keep) = &keep {
            std::fs::create_dir_all(keep).unwrap();
        }
        let server = ApiServer::start_with(assets, &USERS).await;
        let client = server.client().await;
        let pods = Pods::start(client.clone());
        Cluster { pods, client, server, assets: assets.to_owned(), keep }
    }

    /// Starts the controllers of Deployments and ReplicaSets of one side.
    pub fn controllers(&self, side: Side, is_elected: bool) -> Process {
        self.start_controllers(side, CONTROLLERS, is_elected)
    }

    /// Starts these controllers of one side.
    pub fn start_controllers(&self, side: Side, controllers: &str, is_elected: bool) -> Process {
        let election = if is_elected { "--leader-elect=true" } else { "--leader-elect=false" };
        self.start_process(side, controllers, &[election])
    }

    /// Starts all controllers of one side.
    pub fn start_all_controllers(&self, side: Side) -> Process {
        let certificate =
            format!("--root-ca-file={}", self.server.file("certificates/apiserver.crt").display());
        match side {
            Side::Upstream => self.start_process(side, "*", &["--leader-elect=false", &certificate]),
            Side::Windlass => self.start_process(side, "*", &["--test-bed", &certificate]),
        }
    }

    fn start_process(&self, side: Side, controllers: &str, flags: &[&str]) -> Process {
        // Rounds with a server of their own keep their logs in the same folder.
        let log_of = |number: usize| {
            let name = format!("{}-{number}.log", side.name());
            self.keep.as_ref().map_or_else(|| self.server.file(&name), |keep| keep.join(&name))
        };
        let log = (0..).map(log_of).find(|log| !log.exists()).unwrap();
        let config = self.server.kubeconfig(USERS[side as usize].token);
        side.start(&self.assets, &config, controllers, flags, &log)
    }

    /// A user's client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Sends a request; panics unless it succeeds.
    pub async fn call(&self, method: Method, path: &str, body: &Value) -> Value {
        let answer = self.client.request::<Value>(request(method.clone(), path, body)).await;
        answer.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// Creates a namespace whose pods become ready after so many milliseconds.
    pub async fn namespace(&self, name: &str, ready_after: std::ops::RangeInclusive<u64>) {
        self.pods.become_ready_after(name, ready_after);
        self.call(Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": name}})).await;
    }

    /// Creates a Deployment whose pods are as large as those of real clusters.
    pub async fn create(&self, namespace: &str, name: &str, replicas: usize, rolling: &Value) {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": name}},
                "strategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
                "template": template(name),
            },
        });
        self.call(Method::POST, &deployments(namespace), &object).await;
    }

    /// Changes the image of an object of this collection.
    pub async fn set_image(&self, collection: &str, name: &str, image: &str) {
        let containers = json!([{"name": "app", "image": image}]);
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        self.call(Method::PATCH, &format!("{collection}/{name}"), &patch).await;
    }

    /// Changes the size of a Deployment.
    pub async fn scale(&self, namespace: &str, name: &str, replicas: usize) {
        let patch = json!({"spec": {"replicas": replicas}});
        self.call(Method::PATCH, &format!("{}/{name}", deployments(namespace)), &patch).await;
    }

    /// Waits until all objects of a collection report that they are as they should be.
    pub async fn complete(&self, collection: &str) {
        let end = Instant::now() + STEP_TIMEOUT;
        loop {
            let list = self.call(Method::GET, collection, &Value::Null).await;
            let items = list["items"].as_array().unwrap();
            if items.iter().all(is_complete) {
                return;
            }
            assert!(Instant::now() < end, "not all of {collection} are complete");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Calls of a side so far.
    pub fn calls(&self, side: Side) -> Calls {
        let user = USERS[side as usize].name;
        let mut calls = Calls::default();
        for event in self.server.audit() {
            let is_counted = event["user"]["username"] == user
                && event["verb"] != "watch"
                && event["objectRef"]["resource"] != "leases"
                && event["stage"] == "ResponseComplete";
            if !is_counted {
                continue;
            }
            let (verb, target) = (&event["verb"], &event["objectRef"]);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let path = format!("{}/{}", text(&target["resource"]), text(&target["subresource"]));
            let kind = format!("{} {}", text(verb), path.trim_end_matches('/'));
            *calls.by_kind.entry(kind).or_default() += 1;
            calls.conflicts += usize::from(event["responseStatus"]["code"] == 409);
        }
        calls
    }

    /// The holder of a side's Lease, if it has one.
    pub async fn leader(&self, side: Side) -> Option<String> {
        let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
        let path = format!("{leases}/{}", side.name());
        let lease = self.client.request::<Value>(request(Method::GET, &path, &Value::Null)).await.ok()?;
        lease["spec"]["holderIdentity"].as_str().filter(|holder| !holder.is_empty()).map(str::to_owned)
    }
}

/// Where the Deployments of a namespace are.
pub fn deployments(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/deployments")
}

/// A pod template as large as those of real clusters.
pub fn template(name: &str) -> Value {
    let env: Vec<Value> = (0..60)
        .map(|n| json!({"name": format!("SETTING_{n:02}"), "value": format!("the value of the setting with the number {n:02}")}))
        .collect();
    json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "app:v1", "env": env}]},
    })
}

/// Of a Deployment or StatefulSet.
fn is_complete(object: &Value) -> bool {
    let status = &object["status"];
    let all = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
    status["observedGeneration"] == object["metadata"]["generation"]
        && all.iter().all(|field| status[field] == object["spec"]["replicas"])
        && status["currentRevision"] == status["updateRevision"]
}

/// Waits until a process has nothing to do any more.
pub async fn idle(process: &Process) {
    let (id, end) = (process.0.id(), Instant::now() + STEP_TIMEOUT);
    let mut before = usage::cpu(id);
    loop {
        tokio::time::sleep(IDLE).await;
        let now = usage::cpu(id);
        if now - before <= NEXT_TO_NOTHING {
            return;
        }
        assert!(Instant::now() < end, "the process is never idle");
        before = now;
    }
}
