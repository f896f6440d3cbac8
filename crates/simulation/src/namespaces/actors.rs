//! Carries out the acts of the scenario with requests, as users and kubelets do. Starts and kills the controller.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::judge::{Cluster, Judge};
use super::scenario::{Act, Scenario};
use super::truth::{self, KEEP, KINDS, NAMES};
use crate::engine::daemons::{Daemons, controllers, unlimited};
use crate::engine::game;
use crate::engine::objects::text;
use crate::engine::user::{JSON, MERGE, User};
use windlass::config::{ControllerConfig, Enabled};

/// Users, kubelets, and the supervisor of the controllers.
pub struct Actors {
    cluster: Arc<Cluster>,
    scenario: Scenario,
    user: User,
    daemons: Daemons<Judge>,
    collector: Option<JoinHandle<anyhow::Result<()>>>,
}

fn collection(kind: usize, namespace: &str) -> String {
    let (_, plural, version) = KINDS[kind];
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    format!("{root}/namespaces/{namespace}/{plural}")
}

fn path(object: &Value) -> Option<String> {
    let kind = KINDS.iter().position(|(kind, ..)| object["kind"] == *kind)?;
    Some(format!(
        "{}/{}",
        collection(kind, text(object, "/metadata/namespace")),
        text(object, "/metadata/name")
    ))
}

fn others(list: &Value) -> Vec<&str> {
    truth::strings(list).into_iter().filter(|name| *name != KEEP).collect()
}

fn config(name: &'static str, delay: Duration) -> ControllerConfig {
    ControllerConfig { namespace_deletion_delay: delay, ..unlimited(Enabled::none().with(name)) }
}

impl game::Actors<Act> for Actors {
    async fn begin(&mut self) {
        let Scenario { seed, delay, has_collector, .. } = self.scenario;
        if has_collector {
            // It is no daemon of this simulation: its requests arrive, and are not judged.
            let config = config("garbage-collector-controller", delay);
            self.collector = Some(controllers(&self.cluster, "collector", config, seed));
        }
        self.daemons.start();
    }

    async fn act(&mut self, act: &Act) {
        let at = self.cluster.elapsed();
        self.cluster.with_judge(|judge| judge.now = at);
        let until = |seconds: u64| at + Duration::from_secs(seconds);
        match act {
            Act::CreateNamespace { namespace, has_token, has_finalizer } => {
                let tokens: &[&str] = if *has_token { &[KEEP] } else { &[] };
                let finalizers: &[&str] = if *has_finalizer { &[KEEP] } else { &[] };
                self.create_namespace(NAMES[*namespace], tokens, finalizers).await;
            }
            Act::DeleteNamespace(namespace) => self.delete_namespace(NAMES[*namespace]).await,
            Act::Create { kind, namespace, number, finalizer } => {
                self.create(*kind, NAMES[*namespace], &format!("x-{number}"), finalizer.as_deref()).await;
            }
            Act::Delete(namespace, nth, policy) => {
                let all = truth::content(&self.cluster.sandbox, NAMES[*namespace]);
                let count = all.len().max(1);
                let object = all.get(*nth as usize % count);
                if let Some(path) = object.and_then(path) {
                    let options =
                        json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
                    self.user.send(Method::DELETE, &path, JSON, &options).await;
                }
            }
            Act::EndPods => self.end_pods().await,
            Act::Release(namespace) => self.release(NAMES[*namespace]).await,
            Act::ReleaseNamespace(namespace) => self.release_namespace(NAMES[*namespace]).await,
            Act::LoseDiscovery(seconds) => {
                self.cluster.say(&format!("discovery fails for {seconds} s"));
                self.cluster.with_judge(|judge| judge.failures.discovery_until = until(*seconds));
            }
            Act::BreakKind(kind, seconds) => {
                let plural = KINDS[*kind].1;
                self.cluster.say(&format!("lists and deletions of {plural} fail for {seconds} s"));
                self.cluster.with_judge(|judge| judge.failures.broken = Some((plural, until(*seconds))));
            }
            Act::SplitCollections(kind, seconds) => {
                let plural = KINDS[*kind].1;
                self.cluster.say(&format!("{plural} are deleted one by one for {seconds} s"));
                self.cluster.with_judge(|judge| judge.failures.split = Some((plural, until(*seconds))));
            }
            Act::BreakWatches => self.cluster.break_watches(false),
            Act::Compact => self.cluster.break_watches(true),
            Act::Crash => self.daemons.crash().await,
        }
        let at = self.cluster.elapsed();
        self.cluster.with_judge(|judge| judge.now = at);
    }

    fn end(&mut self) {
        if let Some(collector) = self.collector.take() {
            collector.abort();
        }
        self.daemons.end();
    }
}

impl Actors {
    /// Actors that have not acted yet.
    pub fn new(cluster: Arc<Cluster>, scenario: &Scenario) -> Self {
        let user = User(cluster.client("user"));
        let config = config("namespace-controller", scenario.delay);
        let daemons = Daemons::new(cluster.clone(), config, scenario.seed, |seed, _| seed);
        Actors { cluster, scenario: scenario.clone(), user, daemons, collector: None }
    }

    /// Creates a namespace without anything that keeps it.
    pub async fn create_namespace(&self, name: &str, tokens: &[&str], finalizers: &[&str]) {
        let body =
            json!({"metadata": {"name": name, "finalizers": finalizers}, "spec": {"finalizers": tokens}});
        if self.user.send(Method::POST, "/api/v1/namespaces", JSON, &body).await.is_some() {
            self.cluster.say(&format!("created namespace {name}"));
        }
    }

    /// Deletes a namespace.
    pub async fn delete_namespace(&self, name: &str) {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        if self
            .user
            .send(Method::DELETE, &format!("/api/v1/namespaces/{name}"), JSON, &options)
            .await
            .is_some()
        {
            self.cluster.say(&format!("deleted namespace {name}"));
        }
    }

    /// Creates an object. A pod is bound to a node at once.
    pub async fn create(&self, kind: usize, namespace: &str, name: &str, finalizer: Option<&str>) {
        let (kind_name, _, api_version) = KINDS[kind];
        let finalizers: Vec<&str> = finalizer.into_iter().collect();
        let mut body = json!({"apiVersion": api_version, "kind": kind_name,
                              "metadata": {"name": name, "finalizers": finalizers}});
        match kind_name {
            "Pod" => {
                body["spec"] = json!({"nodeName": "n1", "containers": [{"name": "main", "image": "nginx"}]})
            }
            "NetworkPolicy" => body["spec"] = json!({"podSelector": {}}),
            _ => {}
        }
        if self.user.send(Method::POST, &collection(kind, namespace), JSON, &body).await.is_some() {
            self.cluster.say(&format!("created {kind_name} {namespace}/{name} {finalizers:?}"));
        }
    }

    /// The kubelet ends the pods that are being deleted.
    pub async fn end_pods(&self) {
        let now = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        for pod in self.cluster.sandbox.objects("Pod") {
            if truth::is_deleting(&pod)
                && let Some(path) = path(&pod)
            {
                self.user.send(Method::DELETE, &path, JSON, &now).await;
            }
        }
    }

    /// Users take their finalizers off the objects of a namespace that are being deleted.
    pub async fn release(&self, namespace: &str) {
        for object in truth::content(&self.cluster.sandbox, namespace) {
            let finalizers = &object["metadata"]["finalizers"];
            if truth::is_deleting(&object)
                && truth::strings(finalizers).contains(&KEEP)
                && let Some(path) = path(&object)
            {
                let body = json!({"metadata": {"finalizers": others(finalizers)}});
                self.user.send(Method::PATCH, &path, MERGE, &body).await;
            }
        }
    }

    /// A user takes his token and his finalizer off a namespace.
    pub async fn release_namespace(&self, name: &str) {
        let path = format!("/api/v1/namespaces/{name}");
        let Some(mut namespace) = truth::namespace(&self.cluster.sandbox, name) else { return };
        let finalizers = json!({"metadata": {"finalizers": others(&namespace["metadata"]["finalizers"])}});
        if truth::strings(&namespace["metadata"]["finalizers"]).contains(&KEEP) {
            self.user.send(Method::PATCH, &path, MERGE, &finalizers).await;
        }
        if truth::strings(&namespace["spec"]["finalizers"]).contains(&KEEP) {
            namespace["spec"]["finalizers"] = others(&namespace["spec"]["finalizers"]).into();
            if let Some(metadata) = namespace["metadata"].as_object_mut() {
                metadata.remove("resourceVersion");
            }
            self.user.send(Method::PUT, &format!("{path}/finalize"), JSON, &namespace).await;
        }
    }
}
