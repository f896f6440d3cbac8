//! Jobs with a failure policy, a success policy, or a replacement policy.

use serde_json::{Value, json};

use super::super::objects::Object;
use super::super::stage::Stage;
use super::job_indexes::{exit_index, indexed};
use super::jobs::{exit, replaced, stop, stop_pods, up, work};

super::workloads! {
    job_failure_policy_fails_the_job,
    job_failure_policy_ignores_a_failure,
    job_failure_policy_ignores_a_disruption,
    job_failure_policy_counts_a_failure,
    job_failure_policy_fails_the_index,
    job_success_policy_by_count,
    job_success_policy_by_indexes,
    job_success_policy_without_a_match,
    job_replaces_pods_that_have_failed_only,
    job_replaces_terminating_pods,
}

/// With one rule by exit code.
fn by_code(object: Object, action: &str, code: i64) -> Object {
    let rule = json!({"action": action, "onExitCodes": {"operator": "In", "values": [code]}});
    object.spec("podFailurePolicy", json!({"rules": [rule]}))
}

fn succeeding(object: Object, rule: Value) -> Object {
    object.spec("successPolicy", json!({"rules": [rule]}))
}

async fn job_failure_policy_fails_the_job(s: &Stage) {
    up(s, by_code(work(4, 2), "FailJob", 42)).await;
    exit(s, 1, 42).await;
    stop(s).await;
}

async fn job_failure_policy_ignores_a_failure(s: &Stage) {
    up(s, by_code(work(2, 1).spec("backoffLimit", 0), "Ignore", 42)).await;
    exit(s, 1, 42).await;
    replaced(s, 1).await;
    exit(s, 1, 0).await;
    s.come_up().await;
    exit(s, 1, 1).await;
}

async fn job_failure_policy_ignores_a_disruption(s: &Stage) {
    let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
    let policy = json!({"rules": [rule]});
    up(s, work(1, 1).spec("backoffLimit", 0).spec("podFailurePolicy", policy)).await;
    s.disrupt(&s.active()[0]).await;
    s.act("a disruption");
    s.rest().await;
    replaced(s, 1).await;
    exit(s, 1, 0).await;
}

async fn job_failure_policy_counts_a_failure(s: &Stage) {
    up(s, by_code(work(2, 2).spec("backoffLimit", 0), "Count", 42)).await;
    exit(s, 1, 42).await;
    stop(s).await;
}

async fn job_failure_policy_fails_the_index(s: &Stage) {
    up(s, by_code(indexed(2).spec("backoffLimitPerIndex", 3), "FailIndex", 42)).await;
    exit_index(s, 0, 42).await;
    exit_index(s, 1, 0).await;
}

async fn job_success_policy_by_count(s: &Stage) {
    up(s, succeeding(indexed(4), json!({"succeededCount": 2}))).await;
    exit_index(s, 3, 0).await;
    exit_index(s, 1, 0).await;
    stop(s).await;
}

async fn job_success_policy_by_indexes(s: &Stage) {
    up(s, succeeding(indexed(3), json!({"succeededIndexes": "0,2"}))).await;
    exit_index(s, 2, 0).await;
    exit_index(s, 0, 0).await;
    stop(s).await;
}

async fn job_success_policy_without_a_match(s: &Stage) {
    let object = indexed(2).spec("backoffLimitPerIndex", 0);
    up(s, succeeding(object, json!({"succeededIndexes": "0"}))).await;
    exit_index(s, 0, 1).await;
    exit_index(s, 1, 0).await;
}

async fn job_replaces_pods_that_have_failed_only(s: &Stage) {
    up(s, work(2, 2).spec("podReplacementPolicy", "Failed")).await;
    s.evict(&s.active()[0]).await;
    s.act("a user deletes a pod");
    s.rest().await;
    stop_pods(s).await;
    replaced(s, 2).await;
    s.come_up().await;
    exit(s, 2, 0).await;
}

async fn job_replaces_terminating_pods(s: &Stage) {
    up(s, work(1, 1).spec("podReplacementPolicy", "TerminatingOrFailed")).await;
    s.evict(&s.active()[0]).await;
    s.act("a user deletes a pod");
    replaced(s, 1).await;
    stop(s).await;
    s.come_up().await;
    exit(s, 1, 0).await;
}
