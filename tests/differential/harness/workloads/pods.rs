//! Changes of pods that the controllers do not cause.

use serde_json::json;

use super::super::declared::{Declared, differs};
use super::super::objects::{deployment, replica_set, replication_controller};
use super::super::rows::FAILED_PODS_BACK_OFF;
use super::super::stage::Stage;

super::workloads! {
    a_pod_is_deleted_and_ends_slowly,
    a_pod_is_deleted_by_force,
    a_pod_fails_and_is_replaced,
    a_pod_is_rejected_by_its_node: BACK_OFF,
    pods_succeed,
    failed_pods_hold_up_nobody,
    terminating_pods_of_a_replica_set,
    recreate_with_a_failed_pod,
    recreate_with_a_pod_that_ends_in_failure,
    a_pod_is_not_ready_for_a_while,
    a_pod_with_a_finalizer,
    deleting_and_failed_pods_of_a_replication_controller,
    broken_pods_do_not_hold_up_another_image,
}

static BACK_OFF: &[Declared] =
    &[differs(&FAILED_PODS_BACK_OFF, ["events", "*", "Warning FailedPodsBackOff *"], "absent", "some")];

async fn a_pod_is_deleted_and_ends_slowly(s: &Stage) {
    s.create(deployment("web").replicas(3)).await;
    s.come_up().await;
    s.act("a user deletes a pod");
    s.evict(&s.active()[0]).await;
    s.rest().await;
    s.roll_some(1).await;
    s.end_terminating().await;
}

async fn a_pod_is_deleted_by_force(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.act("a user deletes a pod by force");
    s.end(&s.active()[0]).await;
    s.come_up().await;
    s.act("a user deletes both pods by force");
    for pod in s.active() {
        s.end(&pod).await;
        s.rest().await;
    }
    s.come_up().await;
}

async fn a_pod_fails_and_is_replaced(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.act("a pod fails");
    s.fail(&s.active()[0], None).await;
    s.come_up().await;
    s.scale("Deployment", "web", 0).await;
    s.come_up().await;
}

async fn a_pod_is_rejected_by_its_node(s: &Stage) {
    s.create(replica_set("bare").replicas(2)).await;
    s.rest().await;
    s.act("a pod is rejected");
    s.fail(&s.active()[0], Some("OutOfcpu")).await;
    s.until("there is another", 20, |s| s.active().len() == 2).await;
    s.come_up().await;
}

async fn pods_succeed(s: &Stage) {
    s.create(replica_set("bare").replicas(2)).await;
    s.come_up().await;
    s.act("a pod succeeds");
    s.succeed(&s.active()[0]).await;
    s.until("there is another", 20, |s| s.active().len() == 2).await;
    s.come_up().await;
    s.scale("ReplicaSet", "bare", 0).await;
    s.come_up().await;
}

async fn failed_pods_hold_up_nobody(s: &Stage) {
    s.create(deployment("web").replicas(2).rolling(1, 0)).await;
    s.come_up().await;
    s.act("a pod fails");
    s.fail(&s.active()[0], None).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.roll().await;
}

async fn terminating_pods_of_a_replica_set(s: &Stage) {
    s.create(replica_set("bare").replicas(4)).await;
    s.come_up().await;
    s.scale("ReplicaSet", "bare", 2).await;
    s.rest().await;
    s.scale("ReplicaSet", "bare", 3).await;
    s.rest().await;
    s.act("one of two ends");
    s.end(&s.terminating()[0]).await;
    s.rest().await;
    s.scale("ReplicaSet", "bare", 0).await;
    s.rest().await;
    s.end_terminating().await;
}

async fn recreate_with_a_failed_pod(s: &Stage) {
    s.create(deployment("web").replicas(2).recreate()).await;
    s.come_up().await;
    s.act("a pod fails");
    s.fail(&s.active()[0], None).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.rest().await;
    s.end_terminating().await;
    s.act("all that is left ends");
    for pod in s.pods().iter().filter(|pod| pod.has_ended()) {
        s.end(pod).await;
    }
    s.come_up().await;
}

async fn recreate_with_a_pod_that_ends_in_failure(s: &Stage) {
    s.create(deployment("web").replicas(2).recreate()).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.rest().await;
    // As a kubelet does before it deletes a pod.
    for pod in s.terminating() {
        s.act("an old pod has failed and is still there");
        s.fail(&pod, None).await;
    }
    s.rest().await;
    s.end_terminating().await;
    s.come_up().await;
}

async fn a_pod_is_not_ready_for_a_while(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    let pod = s.active()[0].clone();
    s.act("a pod is not ready");
    s.unready(&pod).await;
    s.rest().await;
    s.act("it is ready again");
    s.ready(&pod).await;
    s.rest().await;
}

async fn a_pod_with_a_finalizer(s: &Stage) {
    s.create(replica_set("bare").replicas(2)).await;
    s.come_up().await;
    let pod = s.active()[0].clone();
    s.act("a pod with a finalizer is deleted by force");
    s.patch_pod(&pod, json!({"metadata": {"finalizers": ["example.com/held"]}})).await;
    s.end(&pod).await;
    s.rest().await;
    s.act("the finalizer is gone");
    s.patch_pod(&pod, json!({"metadata": {"finalizers": null}})).await;
    s.rest().await;
}

async fn deleting_and_failed_pods_of_a_replication_controller(s: &Stage) {
    s.create(replication_controller("old").replicas(2)).await;
    s.come_up().await;
    let pods = s.active();
    s.act("one fails");
    s.fail(&pods[0], None).await;
    s.until("there is another", 30, |s| s.active().len() == 2).await;
    s.come_up().await;
    s.act("one is being deleted");
    s.evict(&pods[1]).await;
    s.until("there is another", 30, |s| s.active().len() == 2).await;
    s.come_up().await;
}

async fn broken_pods_do_not_hold_up_another_image(s: &Stage) {
    s.create(deployment("web").replicas(4).rolling(2, 1)).await;
    s.come_up().await;
    s.image("web", "broken").await;
    s.come_up().await;
    s.image("web", "v3").await;
    s.roll().await;
}
