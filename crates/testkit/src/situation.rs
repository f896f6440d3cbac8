//! One moment of a Deployment in sentences: `set("v1", 8).available(5).sized(10, 13)`.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass::model::{Deployment, Interner, Record, ReplicaSet};
use windlass::plan::deployment::progress::{Outcome, Settled, settle};
use windlass::plan::deployment::{Observed, Plan, Write, plan};

use super::build::{DeploymentBuilder, deployment};

/// The time of every decision.
pub const NOW: &str = "2026-01-01T00:00:00Z";

pub fn decode<T: Record>(value: &Value) -> T {
    T::decode(&value.to_string(), &mut Interner::default()).unwrap()
}

/// A set of the Deployment `web` being described.
#[derive(Clone)]
pub struct SetBuilder(Value);

/// A set whose pods are all there, ready and available. Its image tag is a number with a `v`: the
/// higher, the younger.
pub fn set(tag: &str, size: i32) -> SetBuilder {
    let age: u8 = tag.trim_start_matches('v').parse().unwrap();
    let template = deployment("web").image(tag).json()["spec"]["template"].clone();
    SetBuilder(json!({
        "metadata": {
            "name": format!("web-{tag}"), "namespace": "shop", "uid": format!("uid-{tag}"),
            "resourceVersion": "5", "generation": 1, "labels": {"app": "web"}, "annotations": {},
            "creationTimestamp": format!("2025-01-01T00:00:{:02}Z", age + 10),
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
                                 "uid": "uid-deploy-web", "controller": true}],
        },
        "spec": {"replicas": size, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        "status": {"replicas": size, "readyReplicas": size, "availableReplicas": size, "observedGeneration": 1},
    }))
}

impl SetBuilder {
    fn put(mut self, part: &str, field: &str, value: impl Into<Value>) -> Self {
        self.0[part][field] = value.into();
        self
    }

    /// So many pods are available, and no more than these are ready.
    pub fn available(self, pods: i32) -> Self {
        self.put("status", "availableReplicas", pods).put("status", "readyReplicas", pods)
    }

    /// So many pods are ready.
    pub fn ready(self, pods: i32) -> Self {
        self.put("status", "readyReplicas", pods)
    }

    /// So many pods are counted in the status, whatever the size.
    pub fn has(self, pods: i32) -> Self {
        self.put("status", "replicas", pods)
    }

    /// So many pods are on their way out; `None` where nobody counts them.
    pub fn terminating(self, pods: Option<i32>) -> Self {
        self.put("status", "terminatingReplicas", pods)
    }

    /// No controller has looked at the set yet.
    pub fn unseen(self) -> Self {
        self.available(0).has(0).put("status", "observedGeneration", 0)
    }

    /// The status speaks of this generation.
    pub fn observing_generation(self, generation: i64) -> Self {
        self.put("status", "observedGeneration", generation)
    }

    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = value.into();
        self
    }

    pub fn revision(self, revision: &str) -> Self {
        self.annotation("deployment.kubernetes.io/revision", revision)
    }

    /// The size annotations that a Deployment of so many replicas, and so many with its surge, leaves.
    pub fn sized(self, replicas: i32, most: i32) -> Self {
        self.annotation("deployment.kubernetes.io/desired-replicas", &replicas.to_string())
            .annotation("deployment.kubernetes.io/max-replicas", &most.to_string())
    }

    pub fn deleting(self) -> Self {
        self.put("metadata", "deletionTimestamp", NOW)
    }

    pub fn template_label(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["template"]["metadata"]["labels"][key] = value.into();
        self
    }

    pub fn template_annotation(mut self, key: &str, value: &str) -> Self {
        self.0["spec"]["template"]["metadata"]["annotations"][key] = value.into();
        self
    }

    /// The template asks for another image than the set's name says.
    pub fn image(mut self, tag: &str) -> Self {
        self.0["spec"]["template"]["spec"]["containers"][0]["image"] = format!("app:{tag}").into();
        self
    }

    pub fn build(&self) -> Arc<ReplicaSet> {
        Arc::new(decode(&self.0))
    }
}

/// A Deployment and its sets at [`NOW`].
pub struct Situation {
    pub deployment: Deployment,
    pub sets: Vec<Arc<ReplicaSet>>,
}

impl Situation {
    pub fn new(deployment: DeploymentBuilder, sets: &[SetBuilder]) -> Self {
        Self::of(&deployment.json(), sets)
    }

    pub fn of(deployment: &Value, sets: &[SetBuilder]) -> Self {
        Situation { deployment: decode(deployment), sets: sets.iter().map(SetBuilder::build).collect() }
    }

    pub fn observed(&self) -> Observed<'_> {
        self.observed_at(NOW.parse().unwrap())
    }

    pub fn observed_at(&self, now: Timestamp) -> Observed<'_> {
        Observed { owned: self.sets.clone(), ..Observed::new(&self.deployment, now) }
    }

    pub fn plan(&self) -> Plan {
        plan(&self.observed())
    }

    /// The sizes of the sets once the plan is carried out, in the order given; last one to create.
    pub fn sizes_after(&self) -> Vec<i32> {
        let mut sizes: Vec<i32> = self.sets.iter().map(|set| set.replicas).collect();
        for write in &self.plan().writes {
            match write {
                Write::Create(new) => sizes.push(new.replicas),
                Write::Change(set, change) => {
                    let at = self.sets.iter().position(|s| s.meta.uid == set.meta.uid).unwrap();
                    sizes[at] = change.replicas.unwrap_or(sizes[at]);
                }
                other => panic!("{other:?}"),
            }
        }
        sizes
    }

    /// The status after a reconcile whose writes all succeed.
    pub fn settled_at(&self, now: Timestamp) -> Settled {
        let observed = self.observed_at(now);
        let plan = plan(&observed);
        settle(&observed, &plan, &Outcome::after(plan.writes.len()))
    }
}
