//! Back to an old template: by the annotation, and as `kubectl rollout undo` does it.

use serde_json::json;

use super::super::declared::{Declared, differs};
use super::super::objects::deployment;
use super::super::rows::ROLLBACK_WITHOUT_DETOUR;
use super::super::stage::Stage;

super::workloads! {
    rollback_to_the_last_revision,
    rollback_to_a_revision,
    rollback_to_a_revision_that_is_not_there,
    rollback_with_a_single_revision,
    rollback_to_the_same_template,
    rollback_to_a_number_in_another_form,
    rollback_while_paused_with_a_template_that_was_not_rolled_out: DETOUR,
    rollback_in_the_middle_of_a_rollout,
    rollback_while_the_template_is_that_of_an_old_replica_set,
    an_old_template_is_applied_again,
    rollback_keeps_the_annotations_of_the_revision,
}

static DETOUR: &[Declared] = &[
    differs(&ROLLBACK_WITHOUT_DETOUR, ["*", "*ReplicaSet/web#4", "*"], "*", "absent"),
    differs(&ROLLBACK_WITHOUT_DETOUR, ["events", "Deployment/web", "* replica set web#4 *"], "1", "absent"),
    differs(&ROLLBACK_WITHOUT_DETOUR, ["counts", "all pods", "wanted"], "2 to 3", "2 to 2"),
    // The template that comes back is the next revision, or still the latest.
    differs(
        &ROLLBACK_WITHOUT_DETOUR,
        ["rest", "*", "metadata.annotations.deployment.kubernetes.io/revision"],
        "5",
        "3",
    ),
    differs(
        &ROLLBACK_WITHOUT_DETOUR,
        ["rest", "ReplicaSet/web#3", "metadata.annotations.deployment.kubernetes.io/revision-history"],
        "3",
        "absent",
    ),
];

/// Three revisions, the last of which is rolled out.
async fn three_revisions(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    for tag in ["v2", "v3"] {
        s.image("web", tag).await;
        s.come_up().await;
    }
}

async fn rollback_to_the_last_revision(s: &Stage) {
    three_revisions(s).await;
    s.roll_back("web", "0").await;
    s.roll().await;
    s.roll_back("web", "0").await;
    s.roll().await;
}

async fn rollback_to_a_revision(s: &Stage) {
    three_revisions(s).await;
    s.roll_back("web", "1").await;
    s.roll().await;
}

async fn rollback_to_a_revision_that_is_not_there(s: &Stage) {
    three_revisions(s).await;
    s.roll_back("web", "77").await;
    s.rest().await;
    s.roll_back("web", "9223372036854775807").await;
    s.rest().await;
}

async fn rollback_with_a_single_revision(s: &Stage) {
    s.create(deployment("web").replicas(1)).await;
    s.come_up().await;
    s.roll_back("web", "0").await;
    s.rest().await;
}

async fn rollback_to_the_same_template(s: &Stage) {
    three_revisions(s).await;
    s.roll_back("web", "3").await;
    s.rest().await;
}

async fn rollback_to_a_number_in_another_form(s: &Stage) {
    three_revisions(s).await;
    // The API server refuses what is not a number at all.
    for form in ["+1", "002"] {
        s.roll_back("web", form).await;
        s.come_up().await;
    }
}

async fn rollback_while_paused_with_a_template_that_was_not_rolled_out(s: &Stage) {
    three_revisions(s).await;
    s.pause("web", true).await;
    s.rest().await;
    s.image("web", "v4").await;
    s.rest().await;
    s.roll_back("web", "0").await;
    s.rest().await;
    s.pause("web", false).await;
    s.come_up().await;
}

async fn rollback_in_the_middle_of_a_rollout(s: &Stage) {
    s.create(deployment("web").replicas(4)).await;
    s.come_up().await;
    s.image("web", "broken").await;
    s.roll_some(2).await;
    s.roll_back("web", "0").await;
    s.roll().await;
}

async fn rollback_while_the_template_is_that_of_an_old_replica_set(s: &Stage) {
    three_revisions(s).await;
    s.pause("web", true).await;
    s.rest().await;
    s.image("web", "v1").await;
    s.rest().await;
    s.roll_back("web", "0").await;
    s.rest().await;
    s.pause("web", false).await;
    s.come_up().await;
}

async fn an_old_template_is_applied_again(s: &Stage) {
    three_revisions(s).await;
    s.image("web", "v1").await;
    s.roll().await;
    s.image("web", "v2").await;
    s.come_up().await;
    s.image("web", "v1").await;
    s.come_up().await;
}

async fn rollback_keeps_the_annotations_of_the_revision(s: &Stage) {
    let cause = |text: &str| json!({"kubernetes.io/change-cause": text});
    s.create(deployment("web").annotation("kubernetes.io/change-cause", "first").annotation("owner", "shop"))
        .await;
    s.come_up().await;
    let template = json!({"spec": {"containers": [{"name": "app", "image": "app:v2"}]}});
    s.patch(
        "Deployment",
        "web",
        json!({"metadata": {"annotations": cause("second")}, "spec": {"template": template}}),
    )
    .await;
    s.come_up().await;
    s.roll_back("web", "1").await;
    s.come_up().await;
}
