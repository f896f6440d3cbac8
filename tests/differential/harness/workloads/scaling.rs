//! Sizes that change while a rollout is under way.

use serde_json::json;

use super::super::declared::{Declared, differs, may_differ};
use super::super::objects::deployment;
use super::super::rows::{ONE_PLAN, SHRINKING_REPLICA_SETS};
use super::super::stage::Stage;

super::workloads! {
    scale_up_during_a_rollout: ORDER,
    scale_down_during_a_rollout: ORDER_AND_SHRINKING,
    scale_with_three_replica_sets: ORDER_AND_SHRINKING,
    scale_to_zero_during_a_rollout: ORDER,
    resize_and_new_image_at_once,
    surge_changes_during_a_rollout,
    a_new_image_during_a_rollout,
    slow_pods_while_sizes_change,
    recreate_with_slow_pods_while_sizes_change,
}

static ORDER: &[Declared] = &[differs(&ONE_PLAN, ["event order", "Deployment/web", ""], "*", "*")];

/// Old pods that the smaller ReplicaSet loses are not counted as available, so that one more waits for a new one, if
/// the cache shows them when the Deployment is synced. If it does not, only the order differs.
static ORDER_AND_SHRINKING: &[Declared] = &[
    may_differ(&ONE_PLAN, ["event order", "Deployment/web", ""], "*", "*"),
    WANTED,
    SIZES,
    GENERATION,
    EVENTS,
];

const WANTED: Declared =
    may_differ(&SHRINKING_REPLICA_SETS, ["counts", "all pods", "wanted"], "* to *", "* to *");
const SIZES: Declared = may_differ(
    &SHRINKING_REPLICA_SETS,
    ["sizes", "ReplicaSet/web#1", "spec.replicas"],
    "* -> 4 -> 1",
    "* -> 4 -> 3 -> 1",
);
const GENERATION: Declared =
    may_differ(&SHRINKING_REPLICA_SETS, ["rest", "ReplicaSet/web#1", "metadata.generation"], "*", "*");
const EVENTS: Declared = may_differ(
    &SHRINKING_REPLICA_SETS,
    ["events", "Deployment/web", "* Scaled down replica set web#1 from *"],
    "*",
    "*",
);

/// Ten replicas, of which a few are of the new image; the next ones do not become ready.
async fn half_way(s: &Stage) {
    s.create(deployment("web").replicas(10).rolling(3, 2)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.roll_some(2).await;
}

async fn scale_up_during_a_rollout(s: &Stage) {
    half_way(s).await;
    s.scale("Deployment", "web", 16).await;
    s.rest().await;
    s.roll().await;
}

async fn scale_down_during_a_rollout(s: &Stage) {
    half_way(s).await;
    s.scale("Deployment", "web", 5).await;
    s.rest().await;
    s.roll().await;
}

async fn scale_with_three_replica_sets(s: &Stage) {
    s.create(deployment("web").replicas(10).rolling(5, 3)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.roll_some(2).await;
    s.image("web", "v3").await;
    s.rest().await;
    s.scale("Deployment", "web", 17).await;
    s.rest().await;
    s.scale("Deployment", "web", 6).await;
    s.rest().await;
    s.roll().await;
}

async fn scale_to_zero_during_a_rollout(s: &Stage) {
    half_way(s).await;
    s.scale("Deployment", "web", 0).await;
    s.come_up().await;
    s.scale("Deployment", "web", 3).await;
    s.roll().await;
}

async fn resize_and_new_image_at_once(s: &Stage) {
    s.create(deployment("web").replicas(3)).await;
    s.come_up().await;
    let template = json!({"spec": {"containers": [{"name": "app", "image": "app:v2"}]}});
    s.patch("Deployment", "web", json!({"spec": {"replicas": 6, "template": template}})).await;
    s.roll().await;
}

async fn surge_changes_during_a_rollout(s: &Stage) {
    s.create(deployment("web").replicas(4).rolling(1, 0)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.rest().await;
    s.patch("Deployment", "web", json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": 3}}}})).await;
    s.rest().await;
    s.patch("Deployment", "web", json!({"spec": {"strategy": {"rollingUpdate": {"maxUnavailable": "50%"}}}}))
        .await;
    s.roll().await;
}

async fn a_new_image_during_a_rollout(s: &Stage) {
    s.create(deployment("web").replicas(4)).await;
    s.come_up().await;
    s.image("web", "broken").await;
    s.roll_some(2).await;
    s.image("web", "v3").await;
    s.roll().await;
}

/// As upstream's test of rolling updates with slow pods, with fewer of them.
async fn slow_pods_while_sizes_change(s: &Stage) {
    s.create(deployment("web").replicas(20).rolling(4, 0)).await;
    s.come_up().await;
    s.act("three pods begin to end");
    for pod in s.active().iter().take(3) {
        s.evict(pod).await;
        s.rest().await;
    }
    s.rest().await;
    s.act("their successors are ready");
    for pod in s.active().iter().filter(|pod| !pod.is_ready()) {
        s.ready(pod).await;
    }
    s.rest().await;
    s.image("web", "v2").await;
    s.rest().await;
    s.act("a new pod becomes ready and begins to end");
    let newest = s.active().pop().unwrap();
    s.ready(&newest).await;
    s.rest().await;
    s.evict(&newest).await;
    s.rest().await;
    s.scale("Deployment", "web", 24).await;
    s.rest().await;
    s.scale("Deployment", "web", 14).await;
    s.rest().await;
    s.roll().await;
}

/// As upstream's test of Recreate with slow pods.
async fn recreate_with_slow_pods_while_sizes_change(s: &Stage) {
    s.create(deployment("web").replicas(6).recreate()).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.rest().await;
    s.end_terminating().await;
    s.act("a new pod runs and begins to end");
    let first = s.active()[0].clone();
    s.unready(&first).await;
    s.rest().await;
    s.evict(&first).await;
    s.rest().await;
    s.scale("Deployment", "web", 7).await;
    s.rest().await;
    s.act("all run");
    for pod in s.active() {
        s.unready(&pod).await;
    }
    s.rest().await;
    s.scale("Deployment", "web", 5).await;
    s.rest().await;
    s.act("all are ready");
    for pod in s.active() {
        s.ready(&pod).await;
    }
    s.rest().await;
    s.end_terminating().await;
}
