//! Scenarios that hold on every API server. `tests/cluster/scenarios.rs` plays them on the sandbox, a test each and
//! in virtual time; `tests/real_server/apiserver.rs` plays them on a real kube-apiserver.

#![allow(missing_docs)] // The names are the documentation.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::cluster::is_complete;
use super::stage::{Seen, Stage, Step, name, reason};
use windlass_planner_testkit::objects::deployment;

/// Hands the names of all scenarios that run beside others, under one daemon, to a macro.
#[macro_export]
macro_rules! every_scenario {
    ($use:ident) => {
        $use! {
            a_deployment_rolls_out_and_rolls_back
            a_plain_rollout_has_no_conflict_and_no_surplus_request
            recreate_never_runs_old_and_new_pods_at_once
            a_deployment_is_scaled_at_rest_and_in_mid_rollout
            a_rollback_by_annotation_changes_the_template_once_and_keeps_new_fields
            a_paused_deployment_is_scaled_and_not_rolled_out
            matching_orphans_are_adopted_and_pods_that_stop_matching_are_released
            an_orphaned_replica_set_is_adopted_with_its_pods
            a_deletion_deletes_replica_sets_and_pods_and_in_the_foreground_waits_for_them
            a_name_in_use_is_counted_as_a_collision_and_another_is_used
            refused_pod_creations_are_in_both_conditions_and_are_retried
            a_refused_step_is_in_the_condition_and_is_retried
            a_broken_version_stops_at_the_budget_exceeds_its_deadline_and_is_rolled_back
            foreign_edits_in_mid_rollout_do_no_harm
        }
    };
}

/// The same for scenarios that start and end daemons of their own.
#[macro_export]
macro_rules! every_scenario_with_its_own_daemons {
    ($use:ident) => {
        $use! {
            a_new_daemon_writes_nothing_to_a_settled_cluster
            a_daemon_killed_in_mid_rollout_is_replaced_without_surplus_pods
        }
    };
}

const REVISION: &str = "deployment.kubernetes.io/revision";
const ROLLBACK: &str = "deprecated.deployment.rollback.to";

fn created(stage: &Stage, kind: &str) -> usize {
    stage.answered(&Method::POST, kind, 201)
}

pub async fn a_deployment_rolls_out_and_rolls_back(stage: &Stage) {
    stage.create(deployment("web").replicas(3)).await;
    stage.rolled_out("web").await;
    assert_eq!(stage.seen().await.pods.len(), 3);

    stage.set_image("web", "v2").await;
    stage.rolled_out("web").await;
    stage.set_image("web", "v1").await;
    stage.rolled_out("web").await;

    let seen = stage.seen().await;
    assert_eq!(seen.replica_sets.len(), 2, "the old ReplicaSet is reused");
    assert_eq!(seen.deployment("web")["metadata"]["annotations"][REVISION], "3");
    assert_eq!(reason(&seen, "web", "Available"), "MinimumReplicasAvailable");
    assert!(seen.has_event("ScalingReplicaSet") && seen.has_event("SuccessfulCreate"));
}

pub async fn a_plain_rollout_has_no_conflict_and_no_surplus_request(stage: &Stage) {
    stage.create(deployment("web").replicas(3)).await;
    stage.rolled_out("web").await;
    let writes = stage.writes();
    let of = |start: &str| writes.iter().filter(|write| write.starts_with(start)).count();
    assert_eq!((of("POST replicasets"), of("POST pods"), of("DELETE")), (1, 3, 0), "{writes:#?}");
    assert_eq!((created(stage, "replicasets"), created(stage, "pods")), (1, 3), "{writes:#?}");
}

pub async fn recreate_never_runs_old_and_new_pods_at_once(stage: &Stage) {
    stage.create(deployment("web").replicas(3).recreate()).await;
    stage.rolled_out("web").await;
    stage.set_image("web", "v2").await;
    let done = |seen: &Seen| {
        let of = |tag: &str| {
            let image = format!("app:{tag}");
            seen.pods.iter().filter(|pod| pod["spec"]["containers"][0]["image"] == *image).count()
        };
        assert!(of("v1") == 0 || of("v2") == 0, "old and new at once:\n{seen}");
        of("v2") == 3 && is_complete(seen.deployment("web"))
    };
    stage.eventually(60, "the new version has replaced the old", done).await;
}

pub async fn a_deployment_is_scaled_at_rest_and_in_mid_rollout(stage: &Stage) {
    stage.create(deployment("web").replicas(2).surge(2).unavailable(0)).await;
    stage.rolled_out("web").await;
    for replicas in [6, 4] {
        stage.patch("web", json!({"spec": {"replicas": replicas}})).await;
        stage.rolled_out("web").await;
    }
    stage.eventually(30, "the surplus pods are deleted", |seen| seen.pods.len() == 4).await;
    assert_eq!(stage.seen().await.replica_sets.len(), 1, "the size is no part of the template");

    stage.set_image("web", "broken").await;
    let sizes = |seen: &Seen| {
        [seen.replica_set_of("v1"), seen.replica_set_of("broken")]
            .map(|replica_set| replica_set["spec"]["replicas"].as_i64())
    };
    stage.eventually(30, "the new ReplicaSet stops at the surge", |s| sizes(s) == [Some(4), Some(2)]).await;
    // Replicas plus surge rises from 8 to 12: both ReplicaSets get their share of the four new pods.
    stage.patch("web", json!({"spec": {"replicas": 10}})).await;
    stage
        .eventually(30, "both ReplicaSets are scaled proportionally", |s| sizes(s) == [Some(8), Some(4)])
        .await;

    stage.set_image("web", "v1").await;
    stage.rolled_out("web").await;
    stage.eventually(30, "the broken pods are deleted", |seen| seen.pods.len() == 10).await;
}

pub async fn a_rollback_by_annotation_changes_the_template_once_and_keeps_new_fields(stage: &Stage) {
    stage.create(deployment("web").replicas(2).annotation("note", "first")).await;
    stage.rolled_out("web").await;
    stage.patch("web", json!({"metadata": {"annotations": {"note": "second"}}})).await;
    stage.set_image("web", "v2").await;
    stage.rolled_out("web").await;

    let to = |value: &str| json!({"metadata": {"annotations": {ROLLBACK: value}}});
    let cleared = |seen: &Seen| seen.deployment("web")["metadata"]["annotations"][ROLLBACK].is_null();
    stage.patch("web", to("1")).await;
    let back = |seen: &Seen| {
        let image = &seen.deployment("web")["spec"]["template"]["spec"]["containers"][0]["image"];
        image == "app:v1" && cleared(seen)
    };
    stage.eventually(10, "the template is the old one and the request is cleared", back).await;
    stage.rolled_out("web").await;
    let seen = stage.seen().await;
    let web = seen.deployment("web");
    assert_eq!(web["metadata"]["annotations"][REVISION], "3");
    assert!(web["spec"]["template"]["metadata"]["labels"]["pod-template-hash"].is_null());
    assert_eq!(seen.replica_sets.len(), 2);

    stage.patch("web", to("99")).await;
    stage.eventually(10, "a revision that is not there is cleared too", cleared).await;
    let reported = |seen: &Seen| seen.has_event("DeploymentRollbackRevisionNotFound");
    stage.eventually(10, "and an event reports it", reported).await;
}

pub async fn a_paused_deployment_is_scaled_and_not_rolled_out(stage: &Stage) {
    stage.create(deployment("web").replicas(2)).await;
    stage.rolled_out("web").await;
    stage.patch("web", json!({"spec": {"paused": true}})).await;
    let is_paused = |seen: &Seen| reason(seen, "web", "Progressing") == "DeploymentPaused";
    stage.eventually(10, "the condition shows the pause", is_paused).await;
    stage.set_image("web", "v2").await;
    stage.patch("web", json!({"spec": {"replicas": 4}})).await;
    let scaled = |seen: &Seen| seen.deployment("web")["status"]["availableReplicas"] == 4;
    stage.eventually(30, "it is scaled all the same", scaled).await;
    let seen = stage.seen().await;
    assert_eq!((seen.pods_of("v1"), seen.pods_of("v2"), seen.replica_sets.len()), (4, 0, 1), "{seen}");

    stage.patch("web", json!({"spec": {"paused": false}})).await;
    stage.rolled_out("web").await;
    let only_new = |seen: &Seen| seen.pods_of("v2") == 4 && seen.pods_of("v1") == 0;
    stage.eventually(30, "it is rolled out once it is resumed", only_new).await;
}

pub async fn matching_orphans_are_adopted_and_pods_that_stop_matching_are_released(stage: &Stage) {
    stage.create(deployment("web").replicas(2)).await;
    stage.rolled_out("web").await;

    let pod = name(&stage.seen().await.pods[0]).to_string();
    let path = format!("{}/{pod}", stage.path("Pod"));
    let label = |value: &str| json!({"metadata": {"labels": {"app": value}}});
    stage.call(Method::PATCH, &path, &label("debug")).await;
    let is_released =
        |seen: &Seen| seen.pods.iter().any(|p| name(p) == pod && p["metadata"]["ownerReferences"].is_null());
    stage.eventually(10, "the pod is released", is_released).await;
    stage.eventually(10, "and replaced", |seen| seen.pods.len() == 3).await;

    stage.call(Method::PATCH, &path, &label("web")).await;
    stage.eventually(20, "one of the three pods is deleted again", |seen| seen.pods.len() == 2).await;
    let owned = |pod: &Value| pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet";
    assert!(stage.seen().await.pods.iter().all(owned));
}

pub async fn an_orphaned_replica_set_is_adopted_with_its_pods(stage: &Stage) {
    stage.create(deployment("web").replicas(2)).await;
    stage.rolled_out("web").await;
    let uids = |seen: &Seen| {
        let mut uids: Vec<String> =
            seen.replica_sets.iter().chain(&seen.pods).map(|o| o["metadata"]["uid"].to_string()).collect();
        uids.sort();
        uids
    };
    let before = uids(&stage.seen().await);
    stage.delete("web", "Orphan").await;
    let is_orphan = |seen: &Seen| {
        seen.deployments.is_empty()
            && seen.replica_sets.iter().all(|s| s["metadata"]["ownerReferences"].is_null())
    };
    stage.eventually(30, "the ReplicaSet is orphaned", is_orphan).await;

    stage.create(deployment("web").replicas(2)).await;
    stage.rolled_out("web").await;
    let seen = stage.seen().await;
    assert_eq!(uids(&seen), before, "the same ReplicaSet and the same pods");
    let owner = &seen.replica_sets[0]["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], seen.deployment("web")["metadata"]["uid"]);
}

pub async fn a_deletion_deletes_replica_sets_and_pods_and_in_the_foreground_waits_for_them(stage: &Stage) {
    let nothing_left =
        |seen: &Seen| seen.deployments.is_empty() && seen.replica_sets.is_empty() && seen.pods.is_empty();
    for propagation in ["Background", "Foreground"] {
        stage.create(deployment("web").replicas(3)).await;
        stage.rolled_out("web").await;
        stage.delete("web", propagation).await;
        let gone = |seen: &Seen| {
            let waits = propagation == "Foreground" && seen.deployments.is_empty();
            // The lists are of different moments, the Deployments' the first.
            assert!(!waits || seen.pods.is_empty(), "the Deployment was deleted before its pods:\n{seen}");
            nothing_left(seen)
        };
        stage.eventually(60, propagation, gone).await;
    }
    assert_eq!(created(stage, "pods"), 6, "no pod was created during the deletion");
}

pub async fn a_name_in_use_is_counted_as_a_collision_and_another_is_used(stage: &Stage) {
    // A first Deployment shows the name, and is deleted.
    stage.create(deployment("web").replicas(1)).await;
    stage.rolled_out("web").await;
    let taken = name(&stage.seen().await.replica_sets[0]).to_string();
    stage.delete("web", "Background").await;
    let nothing_left = |seen: &Seen| seen.replica_sets.is_empty() && seen.pods.is_empty();
    stage.eventually(60, "everything is deleted", nothing_left).await;

    let other = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": taken},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "other"}}, "template": {
            "metadata": {"labels": {"app": "other"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}
    });
    stage.call(Method::POST, &stage.path("ReplicaSet"), &other).await;
    stage.create(deployment("web").replicas(1)).await;
    stage.rolled_out("web").await;
    let seen = stage.seen().await;
    assert_eq!(seen.deployment("web")["status"]["collisionCount"], 1);
    assert_eq!(seen.replica_sets.len(), 2);
}

pub async fn refused_pod_creations_are_in_both_conditions_and_are_retried(stage: &Stage) {
    stage.refuse(Step::CreatePods).await;
    stage.create(deployment("web").replicas(4)).await;
    let shown = |seen: &Seen| {
        reason(seen, "web", "ReplicaFailure") == "FailedCreate"
            && super::cluster::condition(seen.replica_set_of("v1"), "ReplicaFailure") == "FailedCreate"
            && seen.has_event("FailedCreate")
    };
    stage.eventually(20, "the conditions show the refusal", shown).await;
    let refused = stage.answered(&Method::POST, "pods", 403);
    // The distance of the attempts doubles from 5 ms: thirteen of them within the 20 s.
    assert!((1..=13).contains(&refused), "one refused request per attempt: {refused}");

    stage.permit(Step::CreatePods).await;
    stage.rolled_out("web").await;
    let seen = stage.seen().await;
    assert_eq!(reason(&seen, "web", "ReplicaFailure"), "");
    assert_eq!(super::cluster::condition(seen.replica_set_of("v1"), "ReplicaFailure"), "");
    assert_eq!(created(stage, "pods"), 4);
}

pub async fn a_refused_step_is_in_the_condition_and_is_retried(stage: &Stage) {
    stage.create(deployment("web").replicas(2)).await;
    stage.rolled_out("web").await;
    stage.refuse(Step::ScaleReplicaSets).await;
    stage.patch("web", json!({"spec": {"replicas": 4}})).await;
    let shown = |seen: &Seen| {
        let conditions = seen.deployment("web")["status"]["conditions"].to_string();
        reason(seen, "web", "ReplicaFailure") == "FailedScale"
            && conditions.contains("the admission policy refuses it")
    };
    stage.eventually(20, "the Deployment shows the refusal", shown).await;
    stage.permit(Step::ScaleReplicaSets).await;
    stage.rolled_out("web").await;
    assert_eq!(reason(&stage.seen().await, "web", "ReplicaFailure"), "");
}

pub async fn a_broken_version_stops_at_the_budget_exceeds_its_deadline_and_is_rolled_back(stage: &Stage) {
    stage.create(deployment("web").replicas(4).surge(1).unavailable(1).deadline(3)).await;
    stage.rolled_out("web").await;
    stage.set_image("web", "broken").await;
    let late = |seen: &Seen| {
        assert!(seen.pods_of("v1") >= 3, "too few old pods are left:\n{seen}");
        reason(seen, "web", "Progressing") == "ProgressDeadlineExceeded"
    };
    stage.eventually(30, "the condition shows the deadline", late).await;
    let seen = stage.seen().await;
    assert_eq!((seen.pods_of("v1"), seen.pods_of("broken")), (3, 2), "{seen}");
    stage.set_image("web", "v1").await;
    stage.rolled_out("web").await;
    stage.eventually(30, "the broken pods are deleted", |seen| seen.pods.len() == 4).await;
}

/// Annotations and labels of the Deployment and of its ReplicaSets change all the time, so that resourceVersions
/// that the controllers go by are out of date again and again.
pub async fn foreign_edits_in_mid_rollout_do_no_harm(stage: &Stage) {
    stage.create(deployment("web").replicas(4)).await;
    stage.rolled_out("web").await;
    let done = AtomicBool::new(false);
    let meddling = async {
        let mut count = 0;
        while !done.load(Ordering::SeqCst) {
            count += 1;
            let edit = json!({"metadata": {"labels": {"edit": format!("{count}")}}});
            stage.patch("web", edit.clone()).await;
            for replica_set in &stage.seen().await.replica_sets {
                let path = format!("{}/{}", stage.path("ReplicaSet"), name(replica_set));
                let _ = stage.try_call(Method::PATCH, &path, &edit).await; // It may be gone.
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let rollouts = async {
        for tag in ["v2", "v3"] {
            stage.set_image("web", tag).await;
            // Labels do not change the generation, so the rollout can be seen to end under edits.
            stage.rolled_out("web").await;
        }
        done.store(true, Ordering::SeqCst);
    };
    tokio::join!(meddling, rollouts);
    stage
        .eventually(30, "only new pods are left", |seen| seen.pods_of("v3") == 4 && seen.pods.len() == 4)
        .await;
    assert!(created(stage, "pods") <= 12, "no more than four of each version: {:#?}", stage.writes());
}

pub async fn a_new_daemon_writes_nothing_to_a_settled_cluster(stage: &Stage) {
    let daemon = stage.start_controllers(1);
    stage.create(deployment("web").replicas(3)).await;
    stage.rolled_out("web").await;
    stage.converges().await;
    let settled = stage.writes().len();
    daemon.stop().await;
    let again = stage.start_controllers(2);
    stage.converges().await;
    assert_eq!(stage.writes()[settled..], [] as [String; 0], "L4: nothing to do, nothing written");
    again.stop().await;
}

pub async fn a_daemon_killed_in_mid_rollout_is_replaced_without_surplus_pods(stage: &Stage) {
    let first = stage.start_controllers(1);
    stage.create(deployment("web").replicas(6).surge(1).unavailable(0)).await;
    stage.rolled_out("web").await;
    stage.set_image("web", "v2").await;
    let in_the_middle =
        |seen: &Seen| seen.deployment("web")["status"]["updatedReplicas"].as_i64().is_some_and(|n| n >= 2);
    stage.eventually(60, "two new pods are there", in_the_middle).await;
    first.kill();
    let second = stage.start_controllers(2);
    stage.rolled_out("web").await;
    assert_eq!(created(stage, "pods"), 12, "six of each version, and not one twice");
    second.stop().await;
}
