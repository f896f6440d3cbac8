//! Writes that the API server refuses.

use serde_json::json;

use super::super::admission::{
    CREATE_PODS, CREATE_REPLICA_SETS, DELETE_PODS, DELETE_REPLICA_SETS, UPDATE_PODS, UPDATE_REPLICA_SETS,
};
use super::super::declared::{Declared, differs, may_differ};
use super::super::objects::{deployment, pod, pod_quota, replica_set, replication_controller};
use super::super::rows::{
    AVAILABLE_BEFORE_THE_FIRST_REPLICA_SET, STATUS_DESPITE_REFUSAL, STEPS_IN_REPLICA_FAILURE,
};
use super::super::stage::Stage;

super::workloads! {
    a_quota_refuses_pods_of_a_deployment,
    a_quota_refuses_pods_of_a_replication_controller,
    a_quota_refuses_a_rollout,
    a_policy_refuses_pods,
    a_policy_refuses_deletions,
    a_policy_refuses_replica_sets: FIRST_REPLICA_SET,
    a_policy_refuses_sizes: SCALING,
    a_policy_refuses_cleaning_up: CLEANING_UP,
    a_policy_refuses_adoption: ADOPTION,
    a_webhook_for_pods_fails,
    a_webhook_for_replica_sets_fails: FIRST_REPLICA_SET,
    a_webhook_for_sizes_fails: SCALING,
    a_template_that_makes_invalid_pods,
}

/// The condition at the end and in between.
macro_rules! refused_step {
    ($at_rest:literal, $passing:literal) => {
        &[
            differs(
                &STEPS_IN_REPLICA_FAILURE,
                ["rest", "Deployment/web", "status.conditions.ReplicaFailure"],
                "absent",
                $at_rest,
            ),
            differs(&STEPS_IN_REPLICA_FAILURE, ["conditions", "Deployment/web", $passing], "absent", "seen"),
        ]
    };
}

static SCALING: &[Declared] = refused_step!("True FailedScale: *", "ReplicaFailure=True FailedScale: *");
static CLEANING_UP: &[Declared] = &[
    differs(
        &STEPS_IN_REPLICA_FAILURE,
        ["rest", "Deployment/web", "status.conditions.ReplicaFailure"],
        "absent",
        "True FailedDelete: *",
    ),
    differs(
        &STEPS_IN_REPLICA_FAILURE,
        ["conditions", "Deployment/web", "ReplicaFailure=True FailedDelete: *"],
        "absent",
        "seen",
    ),
    may_differ(&STATUS_DESPITE_REFUSAL, ["rest", "Deployment/web", "status.terminatingReplicas"], "1", "0"),
];

static FIRST_REPLICA_SET: &[Declared] = &[differs(
    &AVAILABLE_BEFORE_THE_FIRST_REPLICA_SET,
    ["rest", "Deployment/web", "status.terminatingReplicas"],
    "absent",
    "0",
)];

static ADOPTION: &[Declared] = &[
    differs(
        &STEPS_IN_REPLICA_FAILURE,
        ["rest", "ReplicaSet/bare", "status.conditions.ReplicaFailure"],
        "absent",
        "True FailedAdopt: *",
    ),
    differs(
        &STEPS_IN_REPLICA_FAILURE,
        ["conditions", "ReplicaSet/bare", "ReplicaFailure=True FailedAdopt: *"],
        "absent",
        "seen",
    ),
    differs(
        &STATUS_DESPITE_REFUSAL,
        ["rest", "ReplicaSet/bare", "status.observedGeneration"],
        "absent",
        "generation",
    ),
    differs(
        &STATUS_DESPITE_REFUSAL,
        ["rest", "ReplicaSet/bare", "status.terminatingReplicas"],
        "absent",
        "0",
    ),
];

/// Waits until the quota is counted, and then until the refused pods are created.
async fn quota(s: &Stage, pods: i64) {
    s.create(pod_quota(pods)).await;
    s.counted().await;
    s.rest().await;
}

async fn enough(s: &Stage, pods: usize) {
    s.patch("ResourceQuota", "pods", json!({"spec": {"hard": {"pods": "20"}}})).await;
    s.counted().await;
    // Upstream's next try may be minutes away.
    for kind in ["ReplicaSet", "ReplicationController"] {
        for object in s.all(kind) {
            let name = object["metadata"]["name"].as_str().unwrap();
            s.patch(kind, name, json!({"metadata": {"annotations": {"example.com/touched": "yes"}}})).await;
        }
    }
    s.until("all pods are there", 60, |s| s.active().len() == pods).await;
    s.come_up().await;
}

async fn a_quota_refuses_pods_of_a_deployment(s: &Stage) {
    quota(s, 2).await;
    s.create(deployment("web").replicas(4)).await;
    s.rest().await;
    s.come_up().await;
    enough(s, 4).await;
}

async fn a_quota_refuses_pods_of_a_replication_controller(s: &Stage) {
    quota(s, 1).await;
    s.create(replication_controller("old").replicas(2)).await;
    s.rest().await;
    s.come_up().await;
    enough(s, 2).await;
}

async fn a_quota_refuses_a_rollout(s: &Stage) {
    quota(s, 3).await;
    s.create(deployment("web").replicas(3).rolling(1, 0)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.rest().await;
    enough(s, 4).await;
    s.roll().await;
}

async fn a_policy_refuses_pods(s: &Stage) {
    s.deny(CREATE_PODS).await;
    s.create(deployment("web").replicas(2)).await;
    s.rest().await;
    s.allow().await;
    s.until("both pods are there", 60, |s| s.active().len() == 2).await;
    s.come_up().await;
}

async fn a_policy_refuses_deletions(s: &Stage) {
    s.create(replica_set("bare").replicas(3)).await;
    s.come_up().await;
    s.deny(DELETE_PODS).await;
    s.scale("ReplicaSet", "bare", 1).await;
    s.rest().await;
    s.allow().await;
    s.until("two pods go", 60, |s| s.active().len() == 1).await;
    s.come_up().await;
}

async fn a_policy_refuses_replica_sets(s: &Stage) {
    s.deny(CREATE_REPLICA_SETS).await;
    s.create(deployment("web").replicas(1)).await;
    s.rest().await;
    s.allow().await;
    s.until("there is a pod", 60, |s| s.active().len() == 1).await;
    s.come_up().await;
}

async fn a_policy_refuses_sizes(s: &Stage) {
    s.create(deployment("web").replicas(3)).await;
    s.come_up().await;
    s.deny(UPDATE_REPLICA_SETS).await;
    s.scale("Deployment", "web", 1).await;
    s.rest().await;
    s.allow().await;
    s.until("one pod is left", 60, |s| s.active().len() == 1).await;
    s.come_up().await;
}

async fn a_policy_refuses_cleaning_up(s: &Stage) {
    s.create(deployment("web").replicas(1).spec("revisionHistoryLimit", 0)).await;
    s.come_up().await;
    s.deny(DELETE_REPLICA_SETS).await;
    s.image("web", "v2").await;
    s.come_up().await;
    s.allow().await;
    s.until("the old ReplicaSet is gone", 90, |s| s.replica_sets_of("web").len() == 1).await;
}

async fn a_policy_refuses_adoption(s: &Stage) {
    s.create(pod("orphan", "bare")).await;
    s.create(
        replica_set("mine")
            .replicas(0)
            .selecting(json!({"app": "web"}))
            .template_label("app", "web")
            .label("app", "web"),
    )
    .await;
    s.rest().await;
    s.deny(UPDATE_PODS).await;
    s.create(replica_set("bare").replicas(2)).await;
    s.rest().await;
    s.allow().await;
    s.until("both pods are there", 60, |s| {
        s.all("ReplicaSet").iter().any(|replica_set| replica_set["status"]["replicas"] == 2)
    })
    .await;
}

async fn a_webhook_for_pods_fails(s: &Stage) {
    s.break_webhook(CREATE_PODS).await;
    s.create(deployment("web").replicas(2)).await;
    s.rest().await;
    s.remove_webhook().await;
    s.until("both pods are there", 60, |s| s.active().len() == 2).await;
    s.come_up().await;
}

async fn a_webhook_for_replica_sets_fails(s: &Stage) {
    s.break_webhook(CREATE_REPLICA_SETS).await;
    s.create(deployment("web").replicas(1)).await;
    s.rest().await;
    s.remove_webhook().await;
    s.until("there is a pod", 60, |s| s.active().len() == 1).await;
    s.come_up().await;
}

async fn a_webhook_for_sizes_fails(s: &Stage) {
    s.create(deployment("web").replicas(3)).await;
    s.come_up().await;
    s.break_webhook(UPDATE_REPLICA_SETS).await;
    s.scale("Deployment", "web", 1).await;
    s.rest().await;
    s.remove_webhook().await;
    s.until("one pod is left", 60, |s| s.active().len() == 1).await;
    s.come_up().await;
}

async fn a_template_that_makes_invalid_pods(s: &Stage) {
    // Templates are checked, but not for the priority class.
    let mut object = deployment("web");
    object.0["spec"]["template"]["spec"]["priorityClassName"] = "there-is-none".into();
    s.create(object).await;
    s.rest().await;
    s.patch("Deployment", "web", json!({"spec": {"template": {"spec": {"priorityClassName": null}}}})).await;
    s.come_up().await;
}
