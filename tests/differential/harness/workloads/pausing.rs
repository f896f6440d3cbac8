//! Paused Deployments.

use serde_json::json;

use super::super::declared::{Declared, differs};
use super::super::objects::deployment;
use super::super::rows::ONE_PLAN;
use super::super::stage::Stage;

super::workloads! {
    paused_from_the_beginning,
    a_new_image_while_paused,
    paused_in_the_middle_of_a_rollout,
    scaled_while_paused,
    scaled_while_paused_in_the_middle_of_a_rollout: ORDER,
    history_is_cleaned_while_paused,
    paused_with_an_old_template,
}

static ORDER: &[Declared] = &[differs(&ONE_PLAN, ["event order", "Deployment/web", ""], "*", "*")];

async fn paused_from_the_beginning(s: &Stage) {
    s.create(deployment("web").replicas(2).spec("paused", true)).await;
    s.rest().await;
    s.pause("web", false).await;
    s.come_up().await;
    s.pause("web", true).await;
    s.rest().await;
}

async fn a_new_image_while_paused(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.pause("web", true).await;
    s.rest().await;
    s.image("web", "v2").await;
    s.rest().await;
    s.image("web", "v3").await;
    s.rest().await;
    s.pause("web", false).await;
    s.roll().await;
}

async fn paused_in_the_middle_of_a_rollout(s: &Stage) {
    s.create(deployment("web").replicas(4)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.roll_some(1).await;
    s.pause("web", true).await;
    s.rest().await;
    s.roll().await;
    s.pause("web", false).await;
    s.roll().await;
}

async fn scaled_while_paused(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.pause("web", true).await;
    s.rest().await;
    s.scale("Deployment", "web", 5).await;
    s.come_up().await;
    s.scale("Deployment", "web", 1).await;
    s.come_up().await;
}

async fn scaled_while_paused_in_the_middle_of_a_rollout(s: &Stage) {
    s.create(deployment("web").replicas(6).rolling(2, 1)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.roll_some(2).await;
    s.pause("web", true).await;
    s.rest().await;
    s.scale("Deployment", "web", 12).await;
    s.rest().await;
    s.scale("Deployment", "web", 4).await;
    s.rest().await;
    s.pause("web", false).await;
    s.roll().await;
}

async fn history_is_cleaned_while_paused(s: &Stage) {
    s.create(deployment("web").replicas(1).spec("revisionHistoryLimit", 10)).await;
    s.come_up().await;
    for tag in ["v2", "v3", "v4"] {
        s.image("web", tag).await;
        s.come_up().await;
    }
    s.pause("web", true).await;
    s.rest().await;
    s.patch("Deployment", "web", json!({"spec": {"revisionHistoryLimit": 1}})).await;
    s.rest().await;
    s.pause("web", false).await;
    s.rest().await;
}

async fn paused_with_an_old_template(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.come_up().await;
    s.pause("web", true).await;
    s.rest().await;
    s.image("web", "v1").await;
    s.rest().await;
    s.pause("web", false).await;
    s.roll().await;
}
