//! Revisions and annotations, hostile ones too.

use serde_json::{Value, json};

use super::super::declared::{Declared, differs};
use super::super::objects::deployment;
use super::super::rows::{HOSTILE_REVISIONS, ONE_PLAN, SIZE_ANNOTATIONS};
use super::super::stage::Stage;

super::workloads! {
    history_is_trimmed,
    history_of_none,
    history_limit_is_lowered,
    annotations_are_copied_and_removed,
    last_applied_configuration_is_not_copied,
    labels_of_a_deployment_are_not_copied,
    revision_of_a_replica_set_is_no_number: REVISIONS,
    revision_of_a_replica_set_is_the_greatest_number: REVISIONS,
    revision_of_a_replica_set_is_negative: REVISIONS,
    revision_of_a_deployment_is_changed,
    desired_replicas_is_garbage: SIZES,
    max_replicas_is_garbage: SIZES_AND_ORDER,
    annotations_of_a_replica_set_are_removed: SIZES,
    a_large_annotation,
    a_long_revision_history,
}

static REVISIONS: &[Declared] =
    &[differs(&HOSTILE_REVISIONS, ["*", "*", "*deployment.kubernetes.io/revision*"], "*", "*")];

static SIZES: &[Declared] = &[differs(
    &SIZE_ANNOTATIONS,
    ["rest", "ReplicaSet/*", "metadata.annotations.deployment.kubernetes.io/*-replicas"],
    "*",
    "*",
)];

static SIZES_AND_ORDER: &[Declared] = &[
    differs(
        &SIZE_ANNOTATIONS,
        ["rest", "ReplicaSet/*", "metadata.annotations.deployment.kubernetes.io/max-replicas"],
        "*",
        "*",
    ),
    differs(&ONE_PLAN, ["event order", "Deployment/web", ""], "*", "*"),
];

async fn versions(s: &Stage, tags: &[&str]) {
    for tag in tags {
        s.image("web", tag).await;
        s.come_up().await;
    }
}

fn annotate(key: &str, value: impl Into<Value>) -> Value {
    json!({"metadata": {"annotations": {key: value.into()}}})
}

/// The name of the Deployment's newest ReplicaSet, or of one before it.
fn replica_set(s: &Stage, back: usize) -> String {
    let replica_sets = s.replica_sets_of("web");
    replica_sets[replica_sets.len() - 1 - back]["metadata"]["name"].as_str().unwrap().to_owned()
}

async fn history_is_trimmed(s: &Stage) {
    s.create(deployment("web").spec("revisionHistoryLimit", 1)).await;
    s.come_up().await;
    versions(s, &["v2", "v3", "v4"]).await;
}

async fn history_of_none(s: &Stage) {
    s.create(deployment("web").spec("revisionHistoryLimit", 0)).await;
    s.come_up().await;
    versions(s, &["v2", "v3"]).await;
    s.roll_back("web", "0").await;
    s.rest().await;
}

async fn history_limit_is_lowered(s: &Stage) {
    s.create(deployment("web")).await;
    s.come_up().await;
    versions(s, &["v2", "v3", "v4"]).await;
    s.patch("Deployment", "web", json!({"spec": {"revisionHistoryLimit": 1}})).await;
    s.rest().await;
}

async fn annotations_are_copied_and_removed(s: &Stage) {
    s.create(deployment("web").annotation("kubernetes.io/change-cause", "first").annotation("team", "shop"))
        .await;
    s.come_up().await;
    s.patch("Deployment", "web", annotate("team", "till")).await;
    s.rest().await;
    s.patch("Deployment", "web", annotate("team", Value::Null)).await;
    s.rest().await;
    s.patch("Deployment", "web", annotate("kubernetes.io/change-cause", "second")).await;
    versions(s, &["v2"]).await;
    s.patch("Deployment", "web", annotate("deployment.kubernetes.io/desired-replicas", "7")).await;
    s.rest().await;
}

async fn last_applied_configuration_is_not_copied(s: &Stage) {
    s.create(deployment("web").annotation("kubectl.kubernetes.io/last-applied-configuration", "{}")).await;
    s.come_up().await;
    versions(s, &["v2"]).await;
}

async fn labels_of_a_deployment_are_not_copied(s: &Stage) {
    s.create(deployment("web").label("team", "shop").template_label("tier", "front")).await;
    s.come_up().await;
    s.patch("Deployment", "web", json!({"metadata": {"labels": {"team": "till"}}})).await;
    s.rest().await;
}

/// The handling of this revision on an old ReplicaSet when the image changes.
async fn revision(s: &Stage, hostile: &str) {
    s.create(deployment("web")).await;
    s.come_up().await;
    versions(s, &["v2"]).await;
    s.patch("ReplicaSet", &replica_set(s, 1), annotate("deployment.kubernetes.io/revision", hostile)).await;
    s.rest().await;
    versions(s, &["v3"]).await;
    s.patch("ReplicaSet", &replica_set(s, 0), annotate("deployment.kubernetes.io/revision", hostile)).await;
    s.rest().await;
    versions(s, &["v4"]).await;
}

async fn revision_of_a_replica_set_is_no_number(s: &Stage) {
    revision(s, "abc").await;
}

async fn revision_of_a_replica_set_is_the_greatest_number(s: &Stage) {
    revision(s, "9223372036854775807").await;
}

async fn revision_of_a_replica_set_is_negative(s: &Stage) {
    revision(s, "-5").await;
}

async fn revision_of_a_deployment_is_changed(s: &Stage) {
    s.create(deployment("web").annotation("deployment.kubernetes.io/revision", "41")).await;
    s.come_up().await;
    s.patch("Deployment", "web", annotate("deployment.kubernetes.io/revision", "abc")).await;
    s.rest().await;
    s.patch("Deployment", "web", annotate("deployment.kubernetes.io/revision", Value::Null)).await;
    s.rest().await;
    versions(s, &["v2"]).await;
}

async fn hostile_size(s: &Stage, key: &str) {
    s.create(deployment("web").replicas(4).rolling(2, 1)).await;
    s.come_up().await;
    for hostile in ["abc", "-3", "99999999999999999999", "2147483648"] {
        s.patch("ReplicaSet", &replica_set(s, 0), annotate(key, hostile)).await;
        s.rest().await;
    }
    s.image("web", "v2").await;
    s.roll_some(1).await;
    s.patch("ReplicaSet", &replica_set(s, 1), annotate(key, "-3")).await;
    s.rest().await;
    s.patch("ReplicaSet", &replica_set(s, 0), annotate(key, "abc")).await;
    s.rest().await;
}

async fn desired_replicas_is_garbage(s: &Stage) {
    hostile_size(s, "deployment.kubernetes.io/desired-replicas").await;
    s.roll().await;
}

async fn max_replicas_is_garbage(s: &Stage) {
    hostile_size(s, "deployment.kubernetes.io/max-replicas").await;
    s.scale("Deployment", "web", 6).await;
    s.roll().await;
}

async fn annotations_of_a_replica_set_are_removed(s: &Stage) {
    s.create(deployment("web").replicas(2).annotation("team", "shop")).await;
    s.come_up().await;
    versions(s, &["v2"]).await;
    for back in [0, 1] {
        s.patch("ReplicaSet", &replica_set(s, back), json!({"metadata": {"annotations": null}})).await;
        s.rest().await;
    }
    s.scale("Deployment", "web", 3).await;
    s.come_up().await;
    versions(s, &["v3"]).await;
}

async fn a_large_annotation(s: &Stage) {
    s.create(deployment("web").annotation("large", &"x".repeat(200_000))).await;
    s.come_up().await;
    versions(s, &["v2"]).await;
}

async fn a_long_revision_history(s: &Stage) {
    s.create(deployment("web").replicas(1)).await;
    s.come_up().await;
    let history = (1..400).map(|number| (number * 1000).to_string()).collect::<Vec<_>>().join(",");
    s.patch("ReplicaSet", &replica_set(s, 0), annotate("deployment.kubernetes.io/revision-history", history))
        .await;
    s.rest().await;
    versions(s, &["v2", "v1"]).await;
}
