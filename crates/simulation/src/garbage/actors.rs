//! Carries out the acts of the scenario with requests, as users do. Starts and kills the collector.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Cluster;
use super::scenario::{Act, Owner, Reference, Scenario};
use super::truth::{self, KINDS, OTHER, api_version};
use crate::invariants::text;
use crate::server::NAMESPACE;
use windlass::app::{Controllers, Parts};
use windlass::config::{ControllerConfig, Enabled};
use windlass::metrics::Metrics;

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";

/// Users, and the supervisor of the collector.
pub struct Actors {
    cluster: Arc<Cluster>,
    scenario: Scenario,
    user: kube::Client,
    life: u32,
    circles: u32,
    daemon: Option<JoinHandle<anyhow::Result<()>>>,
}

fn collection(kind: usize, namespace: &str) -> String {
    let (kind, plural, namespaced) = KINDS[kind];
    let version = api_version(kind);
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    if namespaced { format!("{root}/namespaces/{namespace}/{plural}") } else { format!("{root}/{plural}") }
}

fn path(object: &Value) -> String {
    let kind = KINDS.iter().position(|(kind, ..)| object["kind"] == *kind).unwrap_or_default();
    format!("{}/{}", collection(kind, text(object, "/metadata/namespace")), text(object, "/metadata/name"))
}

fn reference(owner: &Value, how: Reference) -> Value {
    let mut reference = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    });
    match how {
        Reference::Right => {}
        Reference::Blocking => reference["blockOwnerDeletion"] = true.into(),
        Reference::OtherName => reference["name"] = "x-nobody".into(),
        Reference::OtherKind => {
            let (kind, ..) = KINDS.iter().find(|(kind, ..)| owner["kind"] != *kind).unwrap_or(&KINDS[0]);
            (reference["kind"], reference["apiVersion"]) = ((*kind).into(), api_version(kind).into());
        }
        Reference::UnknownKind => {
            (reference["kind"], reference["apiVersion"]) = ("Thing".into(), "example.com/v1".into());
        }
        Reference::Invented => reference["uid"] = "99999999-9999-4999-8999-999999999999".into(),
        Reference::NoUuid => reference["uid"] = format!("no-uuid-{}", text(owner, "/metadata/name")).into(),
    }
    reference
}

impl Actors {
    /// Actors that have not acted yet.
    pub fn new(cluster: Arc<Cluster>, scenario: Scenario) -> Self {
        let user = cluster.client("user");
        Actors { cluster, scenario, user, life: 0, circles: 0, daemon: None }
    }

    async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) -> Option<Value> {
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        let request = request.body(body.to_string().into_bytes()).ok()?;
        // A refused request (the object does not exist, or exists already) has no effect.
        self.user.request::<Value>(request).await.ok()
    }

    /// Creates the namespaces, and starts the collector.
    pub async fn begin(&mut self) {
        for namespace in [NAMESPACE, OTHER] {
            let body = json!({"metadata": {"name": namespace}});
            self.send(Method::POST, "/api/v1/namespaces", JSON, &body).await;
        }
        self.start();
    }

    fn start(&mut self) {
        self.life += 1;
        let agent = format!("d{}", self.life);
        let parts = Parts {
            client: self.cluster.client(&agent).into(),
            host: "simulation".into(),
            clock: self.cluster.clock.clone(),
            seed: self.scenario.seed,
            metrics: Metrics::new(),
            election: None,
        };
        let enabled = Enabled::none().with("garbage-collector-controller");
        let config = ControllerConfig { qps: 1e6, burst: 1_000_000, enabled, ..ControllerConfig::default() };
        let controllers = Controllers::new(config, parts);
        self.daemon = Some(tokio::spawn(controllers.run(CancellationToken::new(), Duration::from_secs(10))));
    }

    /// Kills the collector.
    pub fn end(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.abort();
            self.cluster.dies(&format!("d{}", self.life));
        }
    }

    /// Kills the collector, and starts another.
    pub async fn crash(&mut self) {
        self.end();
        tokio::time::sleep(Duration::from_millis(700)).await;
        self.start();
    }

    fn nth(&self, nth: u32) -> Option<Value> {
        let mut all = truth::objects(&self.cluster.sandbox);
        let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
        (count > 0).then(|| all.swap_remove((nth % count) as usize))
    }

    fn references(&self, owners: &[Owner]) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        for (nth, how) in owners {
            let Some(owner) = self.nth(*nth) else { continue };
            let reference = reference(&owner, *how);
            // The API server would merge two of one UID.
            if all.iter().all(|known| known["uid"] != reference["uid"]) {
                all.push(reference);
            }
        }
        all
    }

    async fn create(&self, kind: usize, namespace: &str, metadata: Value) -> Option<Value> {
        let body =
            json!({"apiVersion": api_version(KINDS[kind].0), "kind": KINDS[kind].0, "metadata": metadata});
        let created = self.send(Method::POST, &collection(kind, namespace), JSON, &body).await?;
        self.cluster.say(&format!("created {}", path(&created)));
        Some(created)
    }

    async fn merge(&self, object: &Value, metadata: Value) {
        self.send(Method::PATCH, &path(object), MERGE, &json!({ "metadata": metadata })).await;
    }

    async fn delete(&self, object: &Value, policy: Option<&str>) {
        self.cluster.say(&format!("delete {} {}", path(object), policy.unwrap_or_default()));
        let options = match policy {
            Some(policy) => json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}),
            None => json!({"apiVersion": "v1", "kind": "DeleteOptions"}),
        };
        self.send(Method::DELETE, &path(object), JSON, &options).await;
    }

    /// Carries out one act.
    pub async fn act(&mut self, act: &Act) {
        match act {
            Act::Create { kind, number, is_elsewhere, finalizer, owners } => {
                let namespace = if *is_elsewhere { OTHER } else { NAMESPACE };
                let finalizers: Vec<&str> = finalizer.iter().copied().collect();
                let metadata = json!({"name": format!("x-{number}"), "finalizers": finalizers,
                                      "ownerReferences": self.references(owners)});
                self.create(*kind, namespace, metadata).await;
            }
            Act::Delete(nth, policy) => {
                if let Some(object) = self.nth(*nth) {
                    self.delete(&object, *policy).await;
                }
            }
            Act::Reown(nth, owners) => {
                if let Some(object) = self.nth(*nth) {
                    self.cluster.say(&format!("{} gets other owners", path(&object)));
                    self.merge(&object, json!({"ownerReferences": self.references(owners)})).await;
                }
            }
            Act::Block(nth, blocks) => {
                if let Some(object) = self.nth(*nth) {
                    let mut owners: Vec<Value> = truth::references(&object).cloned().collect();
                    owners.iter_mut().for_each(|owner| owner["blockOwnerDeletion"] = (*blocks).into());
                    self.merge(&object, json!({ "ownerReferences": owners })).await;
                }
            }
            Act::Touch(nth) => {
                if let Some(object) = self.nth(*nth) {
                    let time = self.cluster.elapsed().as_millis().to_string();
                    self.merge(&object, json!({"annotations": {"touched": time}})).await;
                }
            }
            Act::Unfinalize(nth) => {
                if let Some(object) = self.nth(*nth) {
                    self.cluster.say(&format!("{} loses its finalizers", path(&object)));
                    self.merge(&object, json!({"finalizers": []})).await;
                }
            }
            Act::Circle(number, policy) => self.circle(*number, policy).await,
            Act::CreateAndDelete(number, policy) => {
                let metadata = json!({"name": format!("x-owner-{number}")});
                let Some(owner) = self.create(0, NAMESPACE, metadata).await else { return };
                for (kind, how) in [(0, Reference::Blocking), (1, Reference::Right)] {
                    let owners = [reference(&owner, how)];
                    let metadata = json!({"name": format!("x-of-{number}"), "ownerReferences": owners});
                    self.create(kind, NAMESPACE, metadata).await;
                }
                self.delete(&owner, Some(policy)).await;
            }
            Act::LosePaths(seconds) => {
                let until = self.cluster.elapsed() + Duration::from_secs(*seconds);
                self.cluster.say(&format!("paths are not found for {seconds} s"));
                self.cluster.with_judge(|judge| judge.paths_lost_until = until);
            }
            Act::BreakKind(kind, seconds) => {
                let until = self.cluster.elapsed() + Duration::from_secs(*seconds);
                let plural = KINDS[*kind].1;
                self.cluster.say(&format!("lists of {plural} fail for {seconds} s"));
                self.cluster.with_judge(|judge| judge.broken = Some((plural, until)));
            }
            Act::BreakWatches => self.cluster.break_watches(false),
            Act::Compact => self.cluster.break_watches(true),
            Act::Crash => self.crash().await,
        }
        let at = self.cluster.elapsed();
        self.cluster.with_judge(|judge| judge.now = at);
    }

    async fn circle(&mut self, number: u32, policy: &str) {
        self.circles += 1;
        let name = |place: usize| format!("x-ring-{}-{number}-{place}", self.circles);
        let mut ring = Vec::new();
        for place in 0..3 {
            ring.extend(self.create(place % 2, NAMESPACE, json!({"name": name(place)})).await);
        }
        if ring.len() < 3 {
            return;
        }
        for place in 0..3 {
            let owner = reference(&ring[(place + 1) % 3], Reference::Blocking);
            self.merge(&ring[place], json!({ "ownerReferences": [owner] })).await;
        }
        self.delete(&ring[0], Some(policy)).await;
    }

    /// Takes off what others than the collector have to take off: their own finalizers, of objects being deleted.
    pub async fn release(&self) {
        for object in truth::objects(&self.cluster.sandbox) {
            if truth::is_deleting(&object) && truth::has_finalizer(&object, "example.com/keep") {
                let all = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
                let rest: Vec<Value> = all.into_iter().filter(|known| known != "example.com/keep").collect();
                self.merge(&object, json!({ "finalizers": rest })).await;
            }
        }
    }
}
