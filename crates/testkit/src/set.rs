//! One moment of a ReplicaSet in sentences: `set(3).plan(&[pod("a").ready(60).on("n1")])`.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass::model::{Pod, Record, ReplicaSet};
use windlass::plan::replicaset::status::{Failure, Settled, settle};
use windlass::plan::replicaset::{self as planner, Members, Observed, Plan};

use super::situation::{NOW, decode};

/// So many seconds before [`NOW`]; after it when negative.
pub fn ago(seconds: i64) -> Timestamp {
    NOW.parse::<Timestamp>().unwrap().saturating_sub(SignedDuration::from_secs(seconds)).unwrap()
}

/// A pod being described.
#[derive(Clone)]
pub struct PodBuilder(Value);

/// A pod of the set `web` that is on no node yet, made an hour ago.
pub fn pod(name: &str) -> PodBuilder {
    PodBuilder(json!({
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": "5",
            "creationTimestamp": ago(3600).to_string(), "labels": {"app": "web"}, "annotations": {},
        },
        "spec": {},
        "status": {"phase": "Pending", "conditions": [], "containerStatuses": [{"restartCount": 0}]},
    }))
    .of("uid-web")
}

impl PodBuilder {
    /// Its controller is the set with this UID.
    pub fn of(mut self, uid: &str) -> Self {
        self.0["metadata"]["ownerReferences"] = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": true}]);
        self
    }

    pub fn orphan(mut self) -> Self {
        self.0["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        self
    }

    pub fn on(mut self, node: &str) -> Self {
        self.0["spec"]["nodeName"] = node.into();
        self
    }

    pub fn phase(mut self, phase: &str) -> Self {
        self.0["status"]["phase"] = phase.into();
        self
    }

    pub fn ready(self, seconds_ago: i64) -> Self {
        self.ready_with(json!({"lastTransitionTime": ago(seconds_ago).to_string()}))
    }

    /// Somebody reported it ready and did not say since when.
    pub fn ready_since_nobody_knows_when(self) -> Self {
        self.ready_with(json!({}))
    }

    fn ready_with(mut self, mut condition: Value) -> Self {
        condition["type"] = "Ready".into();
        condition["status"] = "True".into();
        self.0["status"]["conditions"] = json!([condition]);
        self.phase("Running")
    }

    pub fn created(mut self, seconds_ago: i64) -> Self {
        self.0["metadata"]["creationTimestamp"] = ago(seconds_ago).to_string().into();
        self
    }

    pub fn restarts(mut self, restarts: i32) -> Self {
        self.0["status"]["containerStatuses"][0]["restartCount"] = restarts.into();
        self
    }

    pub fn cost(mut self, cost: &str) -> Self {
        self.0["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"] = cost.into();
        self
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    pub fn deleting(mut self) -> Self {
        self.0["metadata"]["deletionTimestamp"] = NOW.into();
        self
    }

    pub fn build(&self) -> Arc<Pod> {
        Arc::new(decode(&self.0))
    }
}

/// A ReplicaSet being described.
#[derive(Clone)]
pub struct SetBuilder {
    object: Value,
    may_adopt: bool,
}

/// The set `web` of so many pods, which no Deployment owns.
pub fn set(replicas: i32) -> SetBuilder {
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web", "resourceVersion": "5", "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
        },
        "status": {"observedGeneration": 1},
    });
    SetBuilder { object, may_adopt: true }
}

impl SetBuilder {
    pub fn deleting(mut self) -> Self {
        self.object["metadata"]["deletionTimestamp"] = NOW.into();
        self
    }

    /// A fresh read shows it gone, made anew, or on its way out; the cache does not.
    pub fn going_behind_the_caches_back(mut self) -> Self {
        self.may_adopt = false;
        self
    }

    pub fn min_ready(mut self, seconds: i32) -> Self {
        self.object["spec"]["minReadySeconds"] = seconds.into();
        self
    }

    pub fn selecting(mut self, labels: Value) -> Self {
        self.object["spec"]["selector"] = json!({"matchLabels": labels});
        self
    }

    pub fn template_label(mut self, key: &str, value: &str) -> Self {
        self.object["spec"]["template"]["metadata"]["labels"][key] = value.into();
        self
    }

    pub fn conditions(mut self, conditions: Value) -> Self {
        self.object["status"]["conditions"] = conditions;
        self
    }

    /// The generation that its status speaks of.
    pub fn observing_generation(mut self, generation: i64) -> Self {
        self.object["status"]["observedGeneration"] = generation.into();
        self
    }

    pub fn build(&self) -> ReplicaSet {
        decode(&self.object)
    }

    fn observing<R>(&self, pods: &[PodBuilder], look: impl FnOnce(&Observed<'_>) -> R) -> R {
        let set = self.build();
        let pods = pods.iter().map(PodBuilder::build);
        let (owned, others): (Vec<_>, Vec<_>) = pods.partition(|pod| set.controls(&pod.meta));
        // The store hands out an owner's pods and the orphans; it never hands out another's.
        let orphans = others.into_iter().filter(|pod| pod.meta.controller.is_none()).collect();
        look(&Observed {
            set: &set,
            members: Members::of(&set, owned, orphans),
            may_adopt: self.may_adopt,
            siblings: Vec::new(),
            free_names: Vec::new(),
            reserved: 0,
            failed_pod_backoff: true,
            now: ago(0),
        })
    }

    /// What is done about these pods.
    pub fn plan(&self, pods: &[PodBuilder]) -> Plan {
        self.observing(pods, planner::plan)
    }

    /// What is reported of these pods, and when it is looked at again.
    pub fn settled(&self, pods: &[PodBuilder], failure: Option<&Failure>) -> Settled {
        self.observing(pods, |observed| settle(observed, failure))
    }
}
