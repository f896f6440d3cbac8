//! A budget `web` of the pods with `app=web`, and what its controller sees.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::model::{Deployment, Interner, Owner, Pod, PodDisruptionBudget, Record, ReplicaSet, Scale, Uid};
use crate::plan::disruption::{Found, Memory, Observed, Plan, plan};

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Applies a merge patch.
pub(super) fn merge(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(object.entry(key).or_insert(Value::Null), value);
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}

fn decode<T: Record>(object: &Value) -> T {
    T::decode(&object.to_string(), &mut Interner::default()).unwrap()
}

pub(super) fn budget(spec: Value) -> PodDisruptionBudget {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-web", "resourceVersion": "9", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
    });
    if spec.get("selector").is_some() {
        object["spec"] = json!({});
    }
    merge(&mut object["spec"], &spec);
    decode(&object)
}

/// A reference to a controller.
pub(super) fn reference(api_version: &str, kind: &str, name: &str) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": format!("u-{name}"), "controller": true})
}

/// A pod that is ready, but for this.
pub(super) fn pod(name: &str, change: Value, owner: Option<Value>) -> Pod {
    let mut object = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}"), "resourceVersion": "5",
                     "labels": {"app": "web"}, "ownerReferences": owner.into_iter().collect::<Vec<_>>()},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    merge(&mut object, &change);
    decode(&object)
}

fn owner(reference: &Value) -> Owner {
    pod("any", json!({}), Some(reference.clone())).meta.owner().unwrap()
}

/// The input of the controller.
pub(super) struct Situation {
    pub budget: PodDisruptionBudget,
    pub pods: Vec<Pod>,
    pub pods_version: u64,
    pub owners: BTreeMap<Owner, Found>,
    pub now: Timestamp,
    pub elapsed: Duration,
    memory: Memory,
}

impl Situation {
    pub(super) fn new(spec: Value) -> Self {
        Situation {
            budget: budget(spec),
            pods: Vec::new(),
            pods_version: 100,
            owners: BTreeMap::new(),
            now: at(100),
            elapsed: Duration::from_secs(1000),
            memory: Memory::default(),
        }
    }

    /// Some more ready pods, of this controller.
    pub(super) fn ready(&mut self, count: usize, owner: Option<Value>) {
        for _ in 0..count {
            let name = format!("a{}", self.pods.len());
            self.pods.push(pod(&name, json!({}), owner.clone()));
        }
    }

    pub(super) fn replica_set(&mut self, name: &str, replicas: i32, deployment: Option<(&str, i32)>) {
        let meta = |name: &str| json!({"name": name, "namespace": "shop", "uid": format!("u-{name}"), "resourceVersion": "3"});
        let set: ReplicaSet = decode(&json!({"metadata": meta(name), "spec": {"replicas": replicas}}));
        let deployment = deployment.map(|(name, replicas)| {
            decode::<Deployment>(
                &json!({"metadata": meta(name), "spec": {"replicas": replicas, "template": {}}}),
            )
        });
        let found = Found::ReplicaSet(Arc::new(set), deployment.map(Arc::new));
        self.owners.insert(owner(&reference("apps/v1", "ReplicaSet", name)), found);
    }

    pub(super) fn scaled(&mut self, reference: &Value, replicas: i32) {
        let uid = Uid::new(reference["uid"].as_str().unwrap());
        self.owners.insert(owner(reference), Found::Scaled(Scale { uid, replicas }));
    }

    pub(super) fn absent(&mut self, reference: &Value) {
        self.owners.insert(owner(reference), Found::Absent);
    }

    pub(super) fn failed(&mut self, reference: &Value, why: &str) {
        self.owners.insert(owner(reference), Found::Failed(why.to_owned()));
    }

    pub(super) fn unanswered(&mut self, reference: &Value, how: &str) {
        self.owners.insert(owner(reference), Found::Unanswered(how.to_owned()));
    }

    /// The API server has allowed the eviction of a pod.
    pub(super) fn disrupt(&mut self, pod: &str, second: i64) {
        self.budget.status.disrupted_pods.insert(pod.into(), at(second));
    }

    pub(super) fn plan(&self) -> Plan {
        plan(&Observed {
            budget: &self.budget,
            pods: self.pods.iter().cloned().map(Arc::new).collect(),
            pods_version: self.pods_version,
            owners: self.owners.clone(),
            memory: self.memory.clone(),
            now: self.now,
            elapsed: self.elapsed,
        })
    }

    /// A sync whose status is not written.
    pub(super) fn sync(&mut self) -> Plan {
        let plan = self.plan();
        self.memory = plan.memory.clone();
        plan
    }

    pub(super) fn write(&mut self) {
        self.budget.status = self.sync().status;
    }

    /// Healthy, desired and expected pods, and allowed disruptions.
    pub(super) fn numbers(&self) -> (i32, i32, i32, i32) {
        let plan = self.plan();
        assert_eq!(plan.failure, None);
        let status = plan.status;
        (status.current_healthy, status.desired_healthy, status.expected_pods, status.disruptions_allowed)
    }

    /// The events of a sync.
    pub(super) fn told(&mut self) -> Vec<String> {
        let events = self.sync().events.into_iter();
        let kind = |warning| if warning { "Warning" } else { "Normal" };
        events.map(|event| format!("{} {} {}", kind(event.warning), event.reason, event.message)).collect()
    }
}
