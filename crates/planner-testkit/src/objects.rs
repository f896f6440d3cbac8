//! Builders of objects: `deployment("web").replicas(3).surge(1).image("v2")`, `replica_set("v1",
//! 8).available(5).sized(10, 13)`, `pod("a").ready(60).on("n1")`.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass::model::{Interner, Pod, Record, ReplicaSet};

/// The time of every decision.
pub const NOW: &str = "2026-01-01T00:00:00Z";

/// [`NOW`] as a time.
pub fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// So many seconds before [`NOW`]; after it when negative.
pub fn ago(seconds: i64) -> Timestamp {
    now().saturating_sub(SignedDuration::from_secs(seconds)).unwrap()
}

/// The object as the daemon keeps it.
pub fn decode<T: Record>(value: &Value) -> T {
    T::decode(&value.to_string(), &mut Interner::default()).unwrap()
}

/// A Deployment being described.
#[derive(Clone, Debug)]
pub struct DeploymentBuilder(Value);

/// A Deployment of one replica with the API's defaults.
pub fn deployment(name: &str) -> DeploymentBuilder {
    DeploymentBuilder(json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-deploy-{name}"),
                     "resourceVersion": "1", "generation": 1},
        "spec": {
            "replicas": 1,
            "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600,
            "selector": {"matchLabels": {"app": name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "app:v1"}]}
            }
        }
    }))
}

impl DeploymentBuilder {
    fn spec(mut self, field: &str, value: Value) -> Self {
        self.0["spec"][field] = value;
        self
    }

    /// `spec.replicas`.
    pub fn replicas(self, replicas: i32) -> Self {
        self.spec("replicas", replicas.into())
    }

    /// `maxSurge`, a number or a percentage.
    pub fn surge(mut self, surge: impl Into<Value>) -> Self {
        self.0["spec"]["strategy"]["rollingUpdate"]["maxSurge"] = surge.into();
        self
    }

    /// `maxUnavailable`, a number or a percentage.
    pub fn unavailable(mut self, unavailable: impl Into<Value>) -> Self {
        self.0["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] = unavailable.into();
        self
    }

    /// The strategy Recreate.
    pub fn recreate(self) -> Self {
        self.spec("strategy", json!({"type": "Recreate"}))
    }

    /// The tag of the image.
    pub fn image(mut self, tag: &str) -> Self {
        self.0["spec"]["template"]["spec"]["containers"][0]["image"] = format!("app:{tag}").into();
        self
    }

    /// `minReadySeconds`.
    pub fn min_ready(self, seconds: i32) -> Self {
        self.spec("minReadySeconds", seconds.into())
    }

    /// `revisionHistoryLimit`.
    pub fn history(self, limit: i32) -> Self {
        self.spec("revisionHistoryLimit", limit.into())
    }

    /// `progressDeadlineSeconds`.
    pub fn deadline(self, seconds: i32) -> Self {
        self.spec("progressDeadlineSeconds", seconds.into())
    }

    /// Adds an annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["annotations"][key] = value.into();
        self
    }

    /// The object as an API server has it.
    pub fn json(self) -> Value {
        self.0
    }
}

/// A ReplicaSet being described.
#[derive(Clone)]
pub struct ReplicaSetBuilder {
    pub(crate) object: Value,
    pub(crate) may_adopt: bool,
}

/// A ReplicaSet of the Deployment `web` whose pods are all ready and available. Its image tag is a number with a
/// `v`: the higher, the younger.
pub fn replica_set(tag: &str, size: i32) -> ReplicaSetBuilder {
    let age: u8 = tag.trim_start_matches('v').parse().unwrap();
    let mut replica_set = bare_replica_set(size).image(tag);
    let metadata = &mut replica_set.object["metadata"];
    metadata["name"] = format!("web-{tag}").into();
    metadata["uid"] = format!("uid-{tag}").into();
    metadata["creationTimestamp"] = format!("2025-01-01T00:00:{:02}Z", age + 10).into();
    metadata["ownerReferences"] = controlled_by("Deployment", "uid-deploy-web");
    replica_set.has(size).available(size)
}

/// The ReplicaSet `web` of so many pods, without a Deployment and with an empty status.
pub fn bare_replica_set(size: i32) -> ReplicaSetBuilder {
    let template = deployment("web").json()["spec"]["template"].clone();
    let object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web", "resourceVersion": "5", "generation": 1,
                     "labels": {"app": "web"}, "annotations": {}},
        "spec": {"replicas": size, "selector": {"matchLabels": {"app": "web"}}, "template": template},
        "status": {"observedGeneration": 1},
    });
    ReplicaSetBuilder { object, may_adopt: true }
}

/// References to the controller of this kind that is called `web`.
fn controlled_by(kind: &str, uid: &str) -> Value {
    json!([{"apiVersion": "apps/v1", "kind": kind, "name": "web", "uid": uid, "controller": true}])
}

impl ReplicaSetBuilder {
    fn put(mut self, part: &str, field: &str, value: impl Into<Value>) -> Self {
        self.object[part][field] = value.into();
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

    /// So many pods are terminating; `None` where they are not counted.
    pub fn terminating(self, pods: Option<i32>) -> Self {
        self.put("status", "terminatingReplicas", pods)
    }

    /// No controller has synced it yet.
    pub fn unseen(self) -> Self {
        self.available(0).has(0).observing_generation(0)
    }

    /// The status has this observed generation.
    pub fn observing_generation(self, generation: i64) -> Self {
        self.put("status", "observedGeneration", generation)
    }

    /// The conditions of its status.
    pub fn conditions(self, conditions: Value) -> Self {
        self.put("status", "conditions", conditions)
    }

    /// Adds an annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.object["metadata"]["annotations"][key] = value.into();
        self
    }

    /// Adds a label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.object["metadata"]["labels"][key] = value.into();
        self
    }

    /// The annotation with its revision.
    pub fn revision(self, revision: &str) -> Self {
        self.annotation("deployment.kubernetes.io/revision", revision)
    }

    /// The size annotations that a Deployment of so many replicas, and so many with its surge, leaves.
    pub fn sized(self, replicas: i32, most: i32) -> Self {
        self.annotation("deployment.kubernetes.io/desired-replicas", &replicas.to_string())
            .annotation("deployment.kubernetes.io/max-replicas", &most.to_string())
    }

    /// It is being deleted.
    pub fn deleting(self) -> Self {
        self.put("metadata", "deletionTimestamp", NOW)
    }

    /// A live read shows it deleted, recreated, or being deleted; the cache does not.
    pub fn going_behind_the_caches_back(mut self) -> Self {
        self.may_adopt = false;
        self
    }

    /// How long its pods must have been ready to be available.
    pub fn min_ready(self, seconds: i32) -> Self {
        self.put("spec", "minReadySeconds", seconds)
    }

    /// The labels that it selects.
    pub fn selecting(self, labels: Value) -> Self {
        self.put("spec", "selector", json!({"matchLabels": labels}))
    }

    /// Adds a label to its template.
    pub fn template_label(mut self, key: &str, value: &str) -> Self {
        self.object["spec"]["template"]["metadata"]["labels"][key] = value.into();
        self
    }

    /// Adds an annotation to its template.
    pub fn template_annotation(mut self, key: &str, value: &str) -> Self {
        self.object["spec"]["template"]["metadata"]["annotations"][key] = value.into();
        self
    }

    /// The template has this image, independently of the name of the ReplicaSet.
    pub fn image(mut self, tag: &str) -> Self {
        self.object["spec"]["template"]["spec"]["containers"][0]["image"] = format!("app:{tag}").into();
        self
    }

    /// The ReplicaSet as the daemon keeps it.
    pub fn build(&self) -> Arc<ReplicaSet> {
        Arc::new(decode(&self.object))
    }
}

/// A pod being described.
#[derive(Clone)]
pub struct PodBuilder(Value);

/// A pod of the ReplicaSet `web` that is on no node yet, created an hour ago.
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
    /// Its controller is the ReplicaSet with this UID.
    pub fn of(mut self, uid: &str) -> Self {
        self.0["metadata"]["ownerReferences"] = controlled_by("ReplicaSet", uid);
        self
    }

    /// It has no owner.
    pub fn orphan(mut self) -> Self {
        self.0["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        self
    }

    /// It is bound to this node.
    pub fn on(mut self, node: &str) -> Self {
        self.0["spec"]["nodeName"] = node.into();
        self
    }

    /// Its phase.
    pub fn phase(mut self, phase: &str) -> Self {
        self.0["status"]["phase"] = phase.into();
        self
    }

    /// It runs, and has been ready for so long.
    pub fn ready(self, seconds_ago: i64) -> Self {
        self.ready_with(json!({"lastTransitionTime": ago(seconds_ago).to_string()}))
    }

    /// It is ready without a transition time.
    pub fn ready_since_nobody_knows_when(self) -> Self {
        self.ready_with(json!({}))
    }

    fn ready_with(mut self, mut condition: Value) -> Self {
        condition["type"] = "Ready".into();
        condition["status"] = "True".into();
        self.0["status"]["conditions"] = json!([condition]);
        self.phase("Running")
    }

    /// Its container waits, for this reason.
    pub fn waiting(mut self, reason: &str) -> Self {
        self.0["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": reason}});
        self
    }

    /// When it was created.
    pub fn created(mut self, seconds_ago: i64) -> Self {
        self.0["metadata"]["creationTimestamp"] = ago(seconds_ago).to_string().into();
        self
    }

    /// How often its container has restarted.
    pub fn restarts(mut self, restarts: i32) -> Self {
        self.0["status"]["containerStatuses"][0]["restartCount"] = restarts.into();
        self
    }

    /// The annotation with the cost of its deletion.
    pub fn cost(mut self, cost: &str) -> Self {
        self.0["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"] = cost.into();
        self
    }

    /// Adds or changes a label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.0["metadata"]["labels"][key] = value.into();
        self
    }

    /// It is being deleted.
    pub fn deleting(mut self) -> Self {
        self.0["metadata"]["deletionTimestamp"] = NOW.into();
        self
    }

    /// The pod as the daemon keeps it.
    pub fn build(&self) -> Arc<Pod> {
        Arc::new(decode(&self.0))
    }
}
