//! Carries out the acts of the scenario with requests, as users do. Starts and kills the collector.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::judge::{Cluster, Judge};
use super::requests::{collection, path, reference};
use super::scenario::{Act, KindFault, Owner, Reference, Scenario, Scope};
use super::truth::{self, DEFINITION, GROUP, KINDS, OTHER, api_version};
use crate::engine::daemons::{Daemons, controllers, unlimited};
use crate::engine::game;
use crate::engine::objects::NAMESPACE;
use crate::engine::user::{JSON, MERGE, User};
use tokio_util::task::AbortOnDropHandle;
use windlass::config::{ControllerConfig, Enabled};
use windlass::engine::context::ResourceFilter;
use windlass::model::ObjectKey;
use windlass_apiserver::Backup;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// How many backups are kept, one for each act.
const BACKUPS: usize = 12;

/// How long the API server is down while its etcd is restored.
const OUTAGE: Duration = Duration::from_secs(2);

/// Users, and the operator of the cluster.
pub struct Actors {
    cluster: Arc<Cluster>,
    scenario: Scenario,
    user: User,
    circles: u32,
    daemons: Daemons<Judge>,
    namespaces: Option<AbortOnDropHandle<anyhow::Result<()>>>,
    backups: VecDeque<Backup>,
}

/// The name of a kind in flags.
fn resource(kind: usize) -> String {
    let (name, plural, _) = KINDS[kind];
    match name {
        "ClusterRole" => format!("{plural}.rbac.authorization.k8s.io"),
        "Gadget" => format!("{plural}.{GROUP}"),
        _ => plural.to_owned(),
    }
}

fn config(scenario: &Scenario) -> ControllerConfig {
    let mut config = ControllerConfig {
        qps: scenario.qps,
        burst: if scenario.qps < 100.0 { 3 } else { 1_000_000 },
        garbage_record: Some(ObjectKey::new("kube-system", "windlass")),
        ..unlimited(Enabled::none().with("garbage-collector-controller"))
    };
    let resources = |only: Vec<String>, ignored| ResourceFilter { only, ignored };
    match &scenario.scope {
        Scope::All => {}
        Scope::Only(kinds) => {
            config.garbage_resources = resources(kinds.iter().map(|kind| resource(*kind)).collect(), vec![]);
        }
        Scope::AllBut(kind) => config.garbage_resources = resources(vec![], vec![resource(*kind)]),
        Scope::Namespace => config.scope.namespace = Some(NAMESPACE.to_owned()),
    }
    config
}

impl game::Actors<Act> for Actors {
    /// Starts a collector too, and the namespace controller, whose requests are those of a user here.
    async fn begin(&mut self) {
        self.prepare().await;
        let config = ControllerConfig {
            enabled: Enabled::none().with("namespace-controller"),
            namespace_deletion_delay: Duration::ZERO,
            ..ControllerConfig::default()
        };
        let namespaces = controllers(&self.cluster, "namespaces", config, self.scenario.seed);
        self.namespaces = Some(AbortOnDropHandle::new(namespaces));
        self.daemons.start();
        let Scenario { scope, qps, is_calm, .. } = &self.scenario;
        self.cluster.say(&format!("{scope:?}, {qps} requests per second, calm: {is_calm}"));
    }

    async fn act(&mut self, act: &Act) {
        self.backups.push_back(self.cluster.sandbox.back_up());
        if self.backups.len() > BACKUPS {
            self.backups.pop_front();
        }
        match act {
            Act::Create { kind, number, is_elsewhere, finalizer, owners } => {
                let namespace = if *is_elsewhere { OTHER } else { NAMESPACE };
                let finalizers: Vec<&str> = finalizer.as_deref().into_iter().collect();
                let metadata = json!({"name": format!("x-{number}"), "finalizers": finalizers,
                                      "ownerReferences": self.references(owners)});
                self.create(*kind, namespace, metadata).await;
            }
            Act::Delete(nth, policy) => {
                if let Some(object) = self.nth(*nth) {
                    self.delete(&object, policy.as_deref()).await;
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
                self.delete(&owner, Some(&**policy)).await;
            }
            Act::OwnItself(nth, blocks) => {
                if let Some(object) = self.nth(*nth) {
                    self.cluster.say(&format!("{} owns itself", path(&object)));
                    let how = if *blocks { Reference::Blocking } else { Reference::Right };
                    self.merge(&object, json!({"ownerReferences": [reference(&object, how)]})).await;
                }
            }
            Act::CreatePair(number, [owner, dependent]) => {
                let name = |role: &str| json!({"name": format!("x-{role}-{number}")});
                let Some(owner) = self.create(*owner, NAMESPACE, name("first")).await else { return };
                let mut metadata = name("second");
                metadata["ownerReferences"] = json!([reference(&owner, Reference::Right)]);
                self.create(*dependent, NAMESPACE, metadata).await;
            }
            Act::BlockUnseen(number, [owner, dependent]) => {
                let lag = Act::OfKind(KindFault::Lagging, *dependent, 100);
                self.fault(&lag).await;
                let name = |role: &str| json!({"name": format!("x-{role}-{number}")});
                let Some(owner) = self.create(*owner, NAMESPACE, name("blocked")).await else { return };
                let mut metadata = name("unseen");
                metadata["ownerReferences"] = json!([reference(&owner, Reference::Blocking)]);
                self.create(*dependent, NAMESPACE, metadata).await;
                // So that no request is under way that began before.
                tokio::time::sleep(Duration::from_secs(70)).await;
                self.delete(&owner, Some("Foreground")).await;
            }
            Act::DeleteTwice(nth, [first, second], pause) => {
                if let Some(object) = self.nth(*nth) {
                    self.delete(&object, Some(&**first)).await;
                    tokio::time::sleep(Duration::from_millis(*pause)).await;
                    self.delete(&object, Some(&**second)).await;
                }
            }
            Act::DeleteNamespace => {
                self.cluster.say("the other namespace is deleted");
                self.user
                    .send(Method::DELETE, &format!("/api/v1/namespaces/{OTHER}"), JSON, &json!({}))
                    .await;
            }
            Act::CreateNamespace => self.create_namespace(OTHER).await,
            Act::ToggleDefinition => {
                let path = format!("{DEFINITIONS}/{DEFINITION}");
                let what = match self.define().await {
                    Some(_) => "is created",
                    None => {
                        self.user.send(Method::DELETE, &path, JSON, &json!({})).await;
                        "is deleted"
                    }
                };
                self.cluster.say(&format!("the definition of gadgets {what}"));
                self.cluster.with_judge(|judge| judge.definition_changed());
            }
            fault => self.fault(fault).await,
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
        let daemons = Daemons::new(cluster.clone(), config(scenario), scenario.seed, |seed, life| {
            seed ^ u64::from(life) << 32
        });
        let (scenario, backups) = (scenario.clone(), VecDeque::new());
        Actors { cluster, scenario, user, circles: 0, daemons, namespaces: None, backups }
    }

    /// Kills the collectors, and starts another.
    pub async fn crash(&mut self) {
        self.daemons.crash().await;
    }

    /// Creates the namespaces and the kind that comes and goes.
    pub async fn prepare(&self) {
        for namespace in [NAMESPACE, OTHER] {
            self.create_namespace(namespace).await;
        }
        self.define().await;
    }

    async fn create_namespace(&self, name: &str) {
        let body = json!({"metadata": {"name": name}});
        self.user.send(Method::POST, "/api/v1/namespaces", JSON, &body).await;
    }

    async fn define(&self) -> Option<Value> {
        let (kind, plural, _) = KINDS[3];
        let schema =
            json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
        let names = json!({"kind": kind, "plural": plural, "singular": "gadget", "listKind": "GadgetList"});
        let spec = json!({"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                                "metadata": {"name": DEFINITION}, "spec": spec});
        self.user.send(Method::POST, DEFINITIONS, JSON, &definition).await
    }

    fn nth(&self, nth: u32) -> Option<Value> {
        let mut all = truth::objects(&self.cluster.sandbox);
        let count = u32::try_from(all.len()).unwrap_or(u32::MAX);
        (count > 0).then(|| all.swap_remove((nth % count) as usize))
    }

    fn references(&self, owners: &[Owner]) -> Vec<Value> {
        let mut all: Vec<Value> = Vec::new();
        for (nth, how) in owners {
            let is_fit = |owner: &Value| self.scenario.has_late_references || !truth::is_deleting(owner);
            let Some(owner) = self.nth(*nth).filter(is_fit) else { continue };
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
        let created = self.user.send(Method::POST, &collection(kind, namespace), JSON, &body).await?;
        self.cluster.say(&format!("created {}", path(&created)));
        Some(created)
    }

    async fn merge(&self, object: &Value, metadata: Value) {
        self.user.send(Method::PATCH, &path(object), MERGE, &json!({ "metadata": metadata })).await;
    }

    /// A user deletes an object.
    pub async fn delete(&self, object: &Value, policy: Option<&str>) {
        self.cluster.say(&format!("delete {} {}", path(object), policy.unwrap_or_default()));
        let options = match policy {
            Some(policy) => json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy}),
            None => json!({"apiVersion": "v1", "kind": "DeleteOptions"}),
        };
        self.user.send(Method::DELETE, &path(object), JSON, &options).await;
    }

    async fn fault(&mut self, act: &Act) {
        self.cluster.say(&format!("{act:?}"));
        let now = self.cluster.elapsed();
        let after = |seconds: &u64| now + Duration::from_secs(*seconds);
        match act {
            Act::MoveAfterRead => self.cluster.with_judge(|judge| judge.faults.moves += 1),
            Act::LosePaths(seconds) => {
                self.cluster.with_judge(|judge| judge.faults.paths_lost_until = after(seconds));
            }
            Act::OfKind(fault, kind, seconds) => {
                self.cluster.with_judge(|judge| judge.faults.begin(*fault, KINDS[*kind].1, after(seconds)));
            }
            Act::OfDiscovery(fault, seconds) => {
                self.cluster.with_judge(|judge| judge.faults.begin_discovery(*fault, after(seconds)));
            }
            Act::BreakWatches => self.cluster.break_watches(false),
            Act::Compact => self.cluster.break_watches(true),
            Act::Crash => self.crash().await,
            Act::SecondLeader { seconds, is_cut_off } => {
                for agent in self.daemons.hand_over(Duration::from_secs(*seconds)) {
                    if *is_cut_off {
                        self.cluster.with_judge(|judge| judge.faults.cut_off(&agent));
                    }
                }
            }
            Act::Restore { acts, bumps_revision } => self.restore(*acts, *bumps_revision).await,
            _ => {}
        }
    }

    async fn restore(&mut self, acts: usize, bumps_revision: bool) {
        let Some(backup) = self.backups.iter().rev().nth(acts).cloned() else { return };
        self.backups.clear();
        // The last thing that the collector sees is a deletion which will be undone.
        let all = truth::objects(&self.cluster.sandbox);
        let owns = |object: &&Value| {
            let refers = |other: &Value| {
                truth::references(other).any(|reference| reference["uid"] == object["metadata"]["uid"])
            };
            all.iter().any(refers)
        };
        if let Some(owner) = all.iter().rev().find(owns) {
            self.delete(owner, Some("Background")).await;
        }
        self.cluster.go_down();
        if !bumps_revision {
            // A version may stand for two states of an object from now on, so that no precondition can be trusted.
            self.daemons.end();
        }
        tokio::time::sleep(OUTAGE).await;
        self.cluster.sandbox.restore(&backup, bumps_revision);
        self.cluster.with_judge(|judge| judge.restored(&self.cluster.sandbox));
        self.cluster.come_up();
        if !bumps_revision {
            self.daemons.start();
        }
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

    /// Takes off what others than the collector have to take off: their own finalizers, of objects being deleted. Whether there
    /// was one.
    pub async fn release(&self) -> bool {
        let mut has_released = false;
        for object in truth::objects(&self.cluster.sandbox) {
            if truth::is_deleting(&object) && truth::has_finalizer(&object, "example.com/keep") {
                let all = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
                let rest: Vec<Value> = all.into_iter().filter(|known| known != "example.com/keep").collect();
                self.merge(&object, json!({ "finalizers": rest })).await;
                has_released = true;
            }
        }
        has_released
    }

    /// Creates an object with so many dependents, of which each third depends on the one before. Returns the object.
    pub async fn create_tree(&self, dependents: usize) -> Value {
        let root = self.create(0, NAMESPACE, json!({"name": "x-tree"})).await.unwrap_or_default();
        let mut last = root.clone();
        for number in 0..dependents {
            let owner = if number % 3 == 2 { &last } else { &root };
            let metadata = json!({"name": format!("x-tree-{number}"),
                                  "ownerReferences": [reference(owner, Reference::Blocking)]});
            last = self.create(0, NAMESPACE, metadata).await.unwrap_or_default();
        }
        root
    }
}
