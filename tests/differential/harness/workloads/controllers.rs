//! ReplicaSets without a Deployment, and ReplicationControllers.

use serde_json::json;

use super::super::objects::{deployment, pod, replica_set, replication_controller};
use super::super::stage::Stage;

super::workloads! {
    a_replication_controller_comes_up_and_is_scaled,
    a_replication_controller_is_scaled_by_its_subresource,
    a_replica_set_comes_up_pod_by_pod,
    a_replica_set_is_scaled_by_its_subresource,
    a_replica_set_of_none,
    a_template_of_a_replica_set_changes,
    fully_labeled_replicas,
    extra_pods_are_adopted_and_deleted,
    a_large_scale_up,
    many_pods_go_at_once,
    a_replication_controller_with_many_pods_shrinks,
}

async fn a_replication_controller_comes_up_and_is_scaled(s: &Stage) {
    s.create(replication_controller("old").replicas(2)).await;
    s.roll().await;
    s.scale("ReplicationController", "old", 4).await;
    s.come_up().await;
    s.scale("ReplicationController", "old", 0).await;
    s.come_up().await;
    s.delete("ReplicationController", "old", "Background").await;
    s.until("it is gone", 30, |s| s.all("ReplicationController").is_empty()).await;
}

async fn a_replication_controller_is_scaled_by_its_subresource(s: &Stage) {
    s.create(replication_controller("old").replicas(1)).await;
    s.come_up().await;
    s.scale_by_subresource("ReplicationController", "old", 3).await;
    s.come_up().await;
}

async fn a_replica_set_comes_up_pod_by_pod(s: &Stage) {
    s.create(replica_set("bare").replicas(3)).await;
    s.roll().await;
}

async fn a_replica_set_is_scaled_by_its_subresource(s: &Stage) {
    s.create(replica_set("bare").replicas(1)).await;
    s.come_up().await;
    s.scale_by_subresource("ReplicaSet", "bare", 3).await;
    s.come_up().await;
}

async fn a_replica_set_of_none(s: &Stage) {
    s.create(replica_set("bare").replicas(0)).await;
    s.create(replication_controller("old").replicas(0)).await;
    s.rest().await;
}

async fn a_template_of_a_replica_set_changes(s: &Stage) {
    s.create(replica_set("bare").replicas(1)).await;
    s.come_up().await;
    let containers = json!([{"name": "app", "image": "app:v2"}]);
    s.patch("ReplicaSet", "bare", json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
    s.rest().await;
    s.scale("ReplicaSet", "bare", 2).await;
    s.come_up().await;
}

async fn fully_labeled_replicas(s: &Stage) {
    for object in [replica_set("bare"), replication_controller("old")] {
        let (kind, name) = (object.kind().to_owned(), object.name().to_owned());
        s.create(object.replicas(2)).await;
        s.come_up().await;
        s.patch(&kind, &name, json!({"spec": {"template": {"metadata": {"labels": {"extra": "yes"}}}}}))
            .await;
        s.rest().await;
        s.act("one pod has the label");
        let pod = s
            .active()
            .into_iter()
            .find(|pod| pod.object["metadata"]["labels"]["app"] == name.as_str())
            .unwrap();
        s.patch_pod(&pod, json!({"metadata": {"labels": {"extra": "yes"}}})).await;
        s.rest().await;
    }
}

async fn extra_pods_are_adopted_and_deleted(s: &Stage) {
    for (app, object) in [("bare", replica_set("bare")), ("old", replication_controller("old"))] {
        for number in 0..3 {
            let cost = number.to_string();
            let extra = pod(&format!("{app}-extra-{number}"), app);
            s.create(extra.annotation("controller.kubernetes.io/pod-deletion-cost", &cost)).await;
        }
        s.rest().await;
        s.create(object.replicas(2)).await;
        s.rest().await;
    }
}

async fn a_large_scale_up(s: &Stage) {
    s.create(deployment("web").replicas(60)).await;
    s.come_up().await;
}

async fn many_pods_go_at_once(s: &Stage) {
    s.create(replica_set("bare").replicas(40)).await;
    s.come_up().await;
    s.scale("ReplicaSet", "bare", 3).await;
    s.come_up().await;
}

/// As upstream's test of scaling down by orders of magnitude.
async fn a_replication_controller_with_many_pods_shrinks(s: &Stage) {
    s.create(replication_controller("old").replicas(10)).await;
    s.rest().await;
    s.act("half of them have been ready for long");
    for (number, pod) in s.active().iter().enumerate() {
        let seconds = if number % 2 == 0 { 100_000 } else { 1 };
        s.tag(pod, &format!("ready for {seconds} s"));
        s.ready_since(pod, seconds).await;
    }
    s.rest().await;
    s.scale("ReplicationController", "old", 5).await;
    s.rest().await;
}
