//! Jobs: completions, parallelism, failures, suspension, and whose pods are whose.

use serde_json::{Value, json};

use super::super::declared::{Declared, differs};
use super::super::objects::{Object, job, pod, pod_quota};
use super::super::rows::JOB_LEFT_OVER;
use super::super::stage::{Pod, Stage};

super::workloads! {
    job_of_one_pod_completes,
    job_runs_pods_in_parallel,
    job_is_a_work_queue,
    job_has_no_completions_to_reach,
    job_parallelism_changes,
    job_pod_fails_and_is_replaced,
    job_exceeds_its_backoff_limit,
    job_exceeds_its_deadline,
    job_restarts_in_place_exceed_the_limit,
    job_is_suspended_and_resumed,
    job_is_created_suspended,
    job_is_suspended_without_completions_to_reach,
    job_pod_is_deleted_by_a_user,
    job_pods_are_adopted_and_released,
    job_is_deleted_in_the_background,
    job_is_deleted_in_the_foreground,
    job_is_deleted_and_its_pods_stay,
    job_is_created_again_under_its_name,
    job_is_managed_by_another_controller,
    job_pods_refused_by_a_quota,
    job_that_is_finished_is_left_alone: LEFT_OVER,
}

/// Upstream looks for finalizers once, when the Job finishes.
static LEFT_OVER: &[Declared] =
    &[differs(&JOB_LEFT_OVER, ["rest", "pods of Job/work", "0.metadata.finalizers.0"], TRACKING, "absent")];

/// The finalizer of Jobs.
pub(super) const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// A Job of so many completions and at most so many pods at once.
pub(super) fn work(completions: i64, parallelism: i64) -> Object {
    job("work").spec("completions", completions).spec("parallelism", parallelism)
}

/// Creates it, and its pods become ready.
pub(super) async fn up(s: &Stage, object: Object) {
    s.create(object).await;
    s.come_up().await;
}

/// Changes its spec.
pub(super) async fn change(s: &Stage, spec: Value) {
    s.patch("Job", "work", json!({"spec": spec})).await;
}

/// So many active pods end with this code.
pub(super) async fn exit(s: &Stage, pods: usize, code: i64) {
    for pod in s.active().iter().take(pods) {
        s.exit(pod, code).await;
    }
    s.act(format!("{pods} pods exit with {code}"));
    s.rest().await;
}

/// The pods that are being deleted end as their kubelets end them.
pub(super) async fn stop(s: &Stage) {
    stop_pods(s).await;
    s.rest().await;
}

/// The same without a look at what the controllers make of it.
pub(super) async fn stop_pods(s: &Stage) {
    for pod in s.terminating() {
        if !pod.has_ended() {
            s.exit(&pod, 143).await;
        }
        s.end(&pod).await;
    }
    s.act("pods stop");
}

/// Waits for so many active pods: those that failed are replaced after some time.
pub(super) async fn replaced(s: &Stage, active: usize) {
    s.until("failed pods are replaced", 30, |s| s.active().len() == active).await;
}

async fn job_of_one_pod_completes(s: &Stage) {
    s.create(job("work")).await;
    s.rest().await;
    s.come_up().await;
    exit(s, 1, 0).await;
}

async fn job_runs_pods_in_parallel(s: &Stage) {
    up(s, work(5, 2)).await;
    for _ in 0..5 {
        exit(s, 1, 0).await;
        s.come_up().await;
    }
}

async fn job_is_a_work_queue(s: &Stage) {
    up(s, job("work").spec("parallelism", 3)).await;
    for _ in 0..3 {
        exit(s, 1, 0).await;
    }
}

async fn job_has_no_completions_to_reach(s: &Stage) {
    s.create(work(0, 2)).await;
    s.rest().await;
}

async fn job_parallelism_changes(s: &Stage) {
    up(s, work(10, 2)).await;
    for parallelism in [4, 1, 0, 2] {
        change(s, json!({"parallelism": parallelism})).await;
        s.rest().await;
        stop(s).await;
        s.come_up().await;
    }
}

async fn job_pod_fails_and_is_replaced(s: &Stage) {
    up(s, work(1, 1)).await;
    for _ in 0..2 {
        exit(s, 1, 1).await;
        replaced(s, 1).await;
    }
    exit(s, 1, 0).await;
}

async fn job_exceeds_its_backoff_limit(s: &Stage) {
    up(s, work(3, 3).spec("backoffLimit", 0)).await;
    exit(s, 1, 1).await;
    stop(s).await;
}

async fn job_exceeds_its_deadline(s: &Stage) {
    up(s, work(4, 2).spec("activeDeadlineSeconds", 30)).await;
    exit(s, 1, 0).await;
    s.until("the deadline passes", 40, |s| s.active().is_empty()).await;
    stop(s).await;
}

async fn job_restarts_in_place_exceed_the_limit(s: &Stage) {
    let mut object = work(1, 1).spec("backoffLimit", 2);
    object.0["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure".into();
    up(s, object).await;
    for restarts in [1, 2] {
        s.ready_after_restarts(&s.active()[0], restarts, 0).await;
        s.act(format!("{restarts} restarts"));
        s.rest().await;
    }
    stop(s).await;
}

async fn job_is_suspended_and_resumed(s: &Stage) {
    up(s, work(4, 2)).await;
    exit(s, 1, 0).await;
    s.come_up().await;
    for suspend in [true, false, true] {
        change(s, json!({"suspend": suspend})).await;
        s.rest().await;
        stop(s).await;
        s.come_up().await;
    }
}

async fn job_is_created_suspended(s: &Stage) {
    s.create(work(2, 2).spec("suspend", true).spec("activeDeadlineSeconds", 60)).await;
    s.rest().await;
    change(s, json!({"suspend": false})).await;
    s.come_up().await;
    exit(s, 2, 0).await;
}

async fn job_is_suspended_without_completions_to_reach(s: &Stage) {
    s.create(work(0, 1).spec("suspend", true)).await;
    s.rest().await;
}

async fn job_pod_is_deleted_by_a_user(s: &Stage) {
    up(s, work(2, 2)).await;
    s.evict(&s.active()[0]).await;
    s.act("a user deletes a pod");
    replaced(s, 2).await;
    stop(s).await;
    s.come_up().await;
    exit(s, 2, 0).await;
}

async fn job_pods_are_adopted_and_released(s: &Stage) {
    up(s, work(3, 1)).await;
    let uid = s.one("Job", "work")["metadata"]["uid"].clone();
    let first: Pod = s.active().remove(0);
    let label = |uid: &Value| json!({"metadata": {"labels": {"batch.kubernetes.io/controller-uid": uid}}});
    s.patch_pod(&first, label(&json!("another"))).await;
    s.act("a pod loses its label");
    s.come_up().await;
    change(s, json!({"parallelism": 3})).await;
    s.come_up().await;
    let stray = pod("stray", "work").label("batch.kubernetes.io/controller-uid", uid.as_str().unwrap());
    change(s, json!({"parallelism": 4, "suspend": false})).await;
    s.create(stray).await;
    s.come_up().await;
}

async fn job_is_deleted_in_the_background(s: &Stage) {
    up(s, work(2, 2)).await;
    exit(s, 1, 0).await;
    s.delete("Job", "work", "Background").await;
    s.until("the Job is gone", 20, |s| s.one("Job", "work").is_null()).await;
    stop(s).await;
}

async fn job_is_deleted_in_the_foreground(s: &Stage) {
    up(s, work(2, 2)).await;
    s.delete("Job", "work", "Foreground").await;
    s.until("pods are deleted", 20, |s| s.terminating().len() == 2).await;
    stop(s).await;
    s.until("the Job is gone", 20, |s| s.one("Job", "work").is_null()).await;
}

async fn job_is_deleted_and_its_pods_stay(s: &Stage) {
    up(s, work(2, 2)).await;
    s.delete("Job", "work", "Orphan").await;
    s.until("the Job is gone", 20, |s| s.one("Job", "work").is_null()).await;
}

async fn job_is_created_again_under_its_name(s: &Stage) {
    up(s, work(1, 1)).await;
    exit(s, 1, 0).await;
    s.delete("Job", "work", "Background").await;
    s.until("everything is gone", 20, |s| s.one("Job", "work").is_null() && s.pods().is_empty()).await;
    up(s, work(2, 1)).await;
    exit(s, 1, 0).await;
    s.come_up().await;
    exit(s, 1, 0).await;
}

async fn job_is_managed_by_another_controller(s: &Stage) {
    s.create(work(2, 2).spec("managedBy", "example.com/queue")).await;
    s.rest().await;
    change(s, json!({"parallelism": 1})).await;
    s.rest().await;
}

async fn job_pods_refused_by_a_quota(s: &Stage) {
    s.create(pod_quota(1)).await;
    s.counted().await;
    s.create(work(2, 2)).await;
    s.wait(5).await;
    s.patch("ResourceQuota", "pods", json!({"spec": {"hard": {"pods": "5"}}})).await;
    s.until("both run", 70, |s| s.active().len() == 2).await;
    s.come_up().await;
    exit(s, 2, 0).await;
}

async fn job_that_is_finished_is_left_alone(s: &Stage) {
    up(s, work(2, 2)).await;
    exit(s, 2, 0).await;
    change(s, json!({"parallelism": 5})).await;
    s.rest().await;
    s.patch_pod(&s.pods()[0], json!({"metadata": {"finalizers": [TRACKING]}})).await;
    s.act("a pod gets the finalizer");
    s.rest().await;
}
