//! Indexed Jobs, and limits per index.

use serde_json::json;

use super::super::declared::{Declared, differs};
use super::super::objects::Object;
use super::super::rows::JOB_COUNTED_AT_ONCE;
use super::super::stage::{Pod, Stage};
use super::jobs::{TRACKING, change, exit, replaced, stop, stop_pods, up, work};

super::workloads! {
    job_indexes_complete,
    job_indexes_grow_and_shrink,
    job_pod_of_an_index_fails_and_is_replaced: &COUNTED_AT_ONCE,
    job_indexes_fail_by_their_limit: COUNTED_AT_ONCE.split_at(2).0,
    job_too_many_indexes_fail,
    job_indexes_all_end_and_some_have_failed,
    job_pod_of_an_index_is_deleted_by_a_user,
}

/// While the pod of an index waits for its backoff, and that of the other is ready.
static COUNTED_AT_ONCE: [Declared; 4] = {
    let row = &JOB_COUNTED_AT_ONCE;
    [
        differs(row, ["rest", "Job/work", "status.active"], "2", "1"),
        differs(row, ["rest", "Job/work", "status.ready"], "2", "1"),
        differs(row, ["rest", "Job/work", "status.failed"], "absent", "1"),
        differs(row, ["rest", "pods of Job/work", "1.metadata.finalizers.0"], TRACKING, "absent"),
    ]
};

/// An Indexed Job whose pods all run at once.
pub(super) fn indexed(completions: i64) -> Object {
    work(completions, completions).spec("completionMode", "Indexed")
}

/// The active pod of an index.
pub(super) fn of_index(s: &Stage, index: i64) -> Pod {
    let key = "batch.kubernetes.io/job-completion-index";
    let wanted = index.to_string();
    s.active().into_iter().find(|pod| pod.object["metadata"]["labels"][key] == *wanted).unwrap()
}

/// The pod of an index ends with this code.
pub(super) async fn exit_index(s: &Stage, index: i64, code: i64) {
    s.exit(&of_index(s, index), code).await;
    s.act(format!("{index} exits with {code}"));
    s.rest().await;
}

async fn job_indexes_complete(s: &Stage) {
    up(s, indexed(5).spec("parallelism", 3)).await;
    for index in [2, 0, 1, 4, 3] {
        exit_index(s, index, 0).await;
        s.come_up().await;
    }
}

async fn job_indexes_grow_and_shrink(s: &Stage) {
    up(s, indexed(4)).await;
    exit_index(s, 1, 0).await;
    exit_index(s, 3, 0).await;
    for size in [2, 3, 1] {
        change(s, json!({"completions": size, "parallelism": size})).await;
        s.rest().await;
        stop(s).await;
        s.come_up().await;
    }
    exit_index(s, 0, 0).await;
}

async fn job_pod_of_an_index_fails_and_is_replaced(s: &Stage) {
    up(s, indexed(2)).await;
    exit_index(s, 1, 1).await;
    replaced(s, 2).await;
    exit(s, 2, 0).await;
}

async fn job_indexes_fail_by_their_limit(s: &Stage) {
    up(s, indexed(2).spec("backoffLimitPerIndex", 1)).await;
    exit_index(s, 1, 1).await;
    replaced(s, 2).await;
    exit_index(s, 1, 1).await;
    exit_index(s, 0, 0).await;
}

async fn job_too_many_indexes_fail(s: &Stage) {
    up(s, indexed(4).spec("backoffLimitPerIndex", 0).spec("maxFailedIndexes", 1)).await;
    exit_index(s, 2, 1).await;
    exit_index(s, 0, 1).await;
    stop(s).await;
}

async fn job_indexes_all_end_and_some_have_failed(s: &Stage) {
    up(s, indexed(3).spec("backoffLimitPerIndex", 0)).await;
    exit_index(s, 0, 0).await;
    exit_index(s, 2, 1).await;
    exit_index(s, 1, 0).await;
}

async fn job_pod_of_an_index_is_deleted_by_a_user(s: &Stage) {
    up(s, indexed(2).spec("podReplacementPolicy", "Failed")).await;
    s.evict(&of_index(s, 0)).await;
    s.act("a user deletes a pod");
    s.rest().await;
    stop_pods(s).await;
    replaced(s, 2).await;
    s.come_up().await;
    exit(s, 2, 0).await;
}
