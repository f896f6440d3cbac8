//! Adoption and release of ReplicaSets and pods.

use serde_json::json;

use super::super::declared::{Declared, differs};
use super::super::objects::{deployment, pod, replica_set, replication_controller};
use super::super::rows::SIZE_ANNOTATIONS;
use super::super::stage::Stage;

super::workloads! {
    pods_are_adopted_by_a_replica_set,
    pods_are_released_by_a_label_and_come_back,
    pods_are_adopted_and_released_by_a_replication_controller,
    a_replica_set_is_adopted_by_a_deployment: SIZES,
    a_deployment_releases_a_replica_set_by_its_labels,
    pods_that_belong_to_others_are_left_alone,
}

static SIZES: &[Declared] = &[differs(
    &SIZE_ANNOTATIONS,
    ["rest", "ReplicaSet/mine", "metadata.annotations.deployment.kubernetes.io/*-replicas"],
    "absent",
    "*",
)];

fn label(value: &str) -> serde_json::Value {
    json!({"metadata": {"labels": {"app": value}}})
}

async fn pods_are_adopted_by_a_replica_set(s: &Stage) {
    for (name, cost) in [("one", "1"), ("two", "-1"), ("three", "3")] {
        s.create(pod(name, "bare").annotation("controller.kubernetes.io/pod-deletion-cost", cost)).await;
    }
    s.rest().await;
    s.create(replica_set("bare").replicas(2)).await;
    s.come_up().await;
}

async fn pods_are_released_by_a_label_and_come_back(s: &Stage) {
    s.create(replica_set("bare").replicas(2)).await;
    s.come_up().await;
    let taken = s.active()[0].clone();
    s.act("relabel a pod");
    s.patch_pod(&taken, label("debug")).await;
    s.come_up().await;
    s.act("label it as before");
    s.patch_pod(&taken, label("bare")).await;
    s.come_up().await;
}

async fn pods_are_adopted_and_released_by_a_replication_controller(s: &Stage) {
    s.create(pod("one", "old").annotation("controller.kubernetes.io/pod-deletion-cost", "5")).await;
    s.rest().await;
    s.create(replication_controller("old").replicas(2)).await;
    s.come_up().await;
    let taken = s.active()[0].clone();
    s.act("relabel a pod");
    s.patch_pod(&taken, label("debug")).await;
    s.come_up().await;
    s.act("label it as before");
    s.patch_pod(&taken, label("old")).await;
    s.come_up().await;
    s.scale("ReplicationController", "old", 1).await;
    s.come_up().await;
}

async fn a_replica_set_is_adopted_by_a_deployment(s: &Stage) {
    s.create(
        replica_set("mine")
            .replicas(2)
            .selecting(json!({"app": "web"}))
            .template_label("app", "web")
            .label("app", "web"),
    )
    .await;
    s.come_up().await;
    s.create(deployment("web").replicas(2)).await;
    s.roll().await;
}

async fn a_deployment_releases_a_replica_set_by_its_labels(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    let replica_set = s.replica_sets_of("web")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    s.patch("ReplicaSet", &replica_set, label("other")).await;
    s.come_up().await;
    s.patch("ReplicaSet", &replica_set, label("web")).await;
    s.come_up().await;
}

async fn pods_that_belong_to_others_are_left_alone(s: &Stage) {
    let other = s.create(replica_set("other").replicas(0)).await;
    s.create(pod("theirs", "bare").owned_by(&other, true)).await;
    s.create(pod("loosely", "bare").owned_by(&other, false)).await;
    s.rest().await;
    s.create(replica_set("bare").replicas(2)).await;
    s.come_up().await;
}
