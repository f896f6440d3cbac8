//! Rollouts of every strategy and shape.

use serde_json::json;

use super::super::objects::deployment;
use super::super::stage::Stage;

super::workloads! {
    a_deployment_comes_up_pod_by_pod,
    rolling_update_with_defaults,
    rolling_update_surge_1_unavailable_0,
    rolling_update_surge_0_unavailable_1,
    rolling_update_surge_100_percent,
    rolling_update_unavailable_100_percent,
    rolling_update_in_percent_of_seven,
    recreate_waits_for_terminating_pods,
    scale_up_and_down,
    scale_to_zero_and_back,
    zero_replicas_with_a_new_image,
    rollout_restart,
}

async fn a_deployment_comes_up_pod_by_pod(s: &Stage) {
    s.create(
        deployment("web").replicas(3).annotation("kubernetes.io/change-cause", "first").label("team", "shop"),
    )
    .await;
    s.roll().await;
}

async fn rolling(
    s: &Stage,
    replicas: i64,
    surge: impl Into<serde_json::Value>,
    unavailable: impl Into<serde_json::Value>,
) {
    s.create(deployment("web").replicas(replicas).rolling(surge, unavailable)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.roll().await;
}

async fn rolling_update_with_defaults(s: &Stage) {
    s.create(deployment("web").replicas(4)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.roll().await;
}

async fn rolling_update_surge_1_unavailable_0(s: &Stage) {
    rolling(s, 3, 1, 0).await;
}

async fn rolling_update_surge_0_unavailable_1(s: &Stage) {
    rolling(s, 3, 0, 1).await;
}

async fn rolling_update_surge_100_percent(s: &Stage) {
    rolling(s, 3, "100%", 0).await;
}

async fn rolling_update_unavailable_100_percent(s: &Stage) {
    rolling(s, 3, 0, "100%").await;
}

async fn rolling_update_in_percent_of_seven(s: &Stage) {
    rolling(s, 7, "30%", "20%").await;
}

async fn recreate_waits_for_terminating_pods(s: &Stage) {
    s.create(deployment("web").replicas(3).recreate()).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.rest().await;
    let pods = s.terminating();
    for pod in &pods {
        s.act("an old pod ends");
        s.end(pod).await;
        s.rest().await;
    }
    s.roll().await;
}

async fn scale_up_and_down(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.scale("Deployment", "web", 5).await;
    s.come_up().await;
    s.scale_by_subresource("Deployment", "web", 1).await;
    s.come_up().await;
}

async fn scale_to_zero_and_back(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.scale("Deployment", "web", 0).await;
    s.come_up().await;
    s.scale("Deployment", "web", 2).await;
    s.come_up().await;
}

async fn zero_replicas_with_a_new_image(s: &Stage) {
    s.create(deployment("web").replicas(0)).await;
    s.rest().await;
    s.image("web", "v2").await;
    s.rest().await;
    s.scale("Deployment", "web", 1).await;
    s.come_up().await;
}

async fn rollout_restart(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    let restarted = json!({"kubectl.kubernetes.io/restartedAt": "2026-01-01T10:00:00Z"});
    s.patch("Deployment", "web", json!({"spec": {"template": {"metadata": {"annotations": restarted}}}}))
        .await;
    s.roll().await;
}
