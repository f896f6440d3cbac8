//! CronJobs: runs, policies, histories, and Jobs that others make. No Job controller acts on their Jobs, because another
//! controller is to manage them: the script ends them.

use http::Method;
use serde_json::{Value, json};

use super::super::declared::{Declared, differs, may_differ};
use super::super::objects::{Object, quota};
use super::super::rows::{CRON_CRASH, CRON_ENDED_ONCE, CRON_MISSED, CRON_NAME, CRON_OWNER};
use super::super::stage::Stage;

super::workloads! {
    cron_jobs_run_each_minute,
    cron_job_body,
    cron_runs_overlap_by_default: TOLD_AGAIN,
    cron_run_is_made_up_when_the_one_before_ends: BLOCKED,
    cron_run_replaces_the_one_before,
    cron_histories_have_limits: TOLD_AGAIN,
    cron_histories_of_none: TOLD_AGAIN,
    cron_jobs_are_suspended_and_resumed: SUSPENDED,
    cron_deadline_has_passed: TOO_LATE,
    cron_deadline_of_zero_never_runs: NEVER_IN_TIME,
    cron_schedule_is_changed,
    cron_schedule_of_a_day_that_does_not_exist,
    cron_template_is_changed,
    cron_job_of_a_user_is_left_alone: BY_HAND,
    cron_name_of_a_run_is_taken: TAKEN,
    cron_jobs_of_a_namesake: NAMESAKE,
    cron_run_is_deleted_by_a_user,
    cron_job_is_deleted,
    cron_job_is_deleted_and_its_jobs_stay,
    cron_run_is_refused_by_a_quota,
}

const TICK: &str = "CronJob/tick";

static BLOCKED: &[Declared] = &[
    may_differ(&CRON_MISSED, ["events", TICK, "Normal JobAlreadyActive from *"], "*", "1"),
    may_differ(&CRON_ENDED_ONCE, ["events", TICK, "Normal SawCompletedJob from *"], "2", "1"),
];

static TOLD_AGAIN: &[Declared] = &[
    may_differ(&CRON_ENDED_ONCE, ["events", TICK, "Normal SawCompletedJob from *"], "*", "*"),
    may_differ(&CRON_ENDED_ONCE, ["events", TICK, "Normal MissingJob from *"], "*", "absent"),
];

static SUSPENDED: &[Declared] =
    &[may_differ(&CRON_MISSED, ["events", TICK, "Warning MissSchedule from *"], "absent", "some")];

static TOO_LATE: &[Declared] =
    &[differs(&CRON_MISSED, ["events", TICK, "Warning MissSchedule from *"], "absent", "some")];

static NEVER_IN_TIME: &[Declared] =
    &[differs(&CRON_MISSED, ["events", TICK, "Warning MissSchedule from *"], "absent", "some")];

static BY_HAND: &[Declared] = &[
    may_differ(&CRON_CRASH, ["events", TICK, "Warning UnexpectedJob from *"], "some", "some"),
    may_differ(&CRON_ENDED_ONCE, ["events", TICK, "Normal SawCompletedJob from *"], "2", "1"),
];

static TAKEN: &[Declared] =
    &[differs(&CRON_NAME, ["events", TICK, "Warning FailedCreate from *"], "absent", "some")];

static NAMESAKE: &[Declared] = &[
    differs(&CRON_OWNER, ["rest", TICK, "status.lastSuccessfulTime"], "TIME", "absent"),
    differs(&CRON_OWNER, ["events", TICK, "Normal SuccessfulDelete from *"], "1", "absent"),
    differs(&CRON_OWNER, ["rest", "Job/others", "*"], "absent", "*"),
];

/// A CronJob of each minute.
fn tick() -> Object {
    Object(json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {
            "metadata": {"labels": {"app": "tick"}},
            "spec": {"managedBy": "example.com/nobody", "template": pod_template()},
        }},
    }))
}

pub fn pod_template() -> Value {
    json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "app", "image": "app:v1"}]}})
}

async fn change(s: &Stage, spec: Value) {
    s.patch("CronJob", "tick", json!({"spec": spec})).await;
}

/// A minute begins that the script has not used yet, and with it a run.
async fn minute(s: &Stage) {
    s.next_minute().await;
    s.rest().await;
}

/// Creates it right after a minute has begun.
async fn up(s: &Stage, cron_job: Object) {
    s.align().await;
    s.create(cron_job).await;
    s.rest().await;
}

async fn cron_jobs_run_each_minute(s: &Stage) {
    up(s, tick()).await;
    minute(s).await;
    s.end_jobs(true).await;
    minute(s).await;
    s.end_jobs(false).await;
}

async fn cron_job_body(s: &Stage) {
    let template = json!({
        "metadata": {"labels": {"app": "tick"}, "annotations": {"a": "b"}, "finalizers": ["example.com/keep"]},
        "spec": {"managedBy": "example.com/nobody", "parallelism": 2, "completions": 3, "backoffLimit": 1,
            "activeDeadlineSeconds": 100, "template": pod_template()},
    });
    up(s, tick().spec("timeZone", "Asia/Kathmandu").spec("jobTemplate", template)).await;
    minute(s).await;
}

async fn cron_runs_overlap_by_default(s: &Stage) {
    up(s, tick()).await;
    minute(s).await;
    minute(s).await;
    s.end_jobs(true).await;
}

async fn cron_run_is_made_up_when_the_one_before_ends(s: &Stage) {
    up(s, tick().spec("concurrencyPolicy", "Forbid")).await;
    minute(s).await;
    minute(s).await;
    s.end_jobs(true).await;
}

async fn cron_run_replaces_the_one_before(s: &Stage) {
    up(s, tick().spec("concurrencyPolicy", "Replace")).await;
    minute(s).await;
    minute(s).await;
    s.end_jobs(false).await;
}

async fn cron_histories_have_limits(s: &Stage) {
    up(s, tick().spec("successfulJobsHistoryLimit", 1).spec("failedJobsHistoryLimit", 1)).await;
    for succeeds in [true, false, true] {
        minute(s).await;
        s.end_jobs(succeeds).await;
    }
}

async fn cron_histories_of_none(s: &Stage) {
    up(s, tick().spec("successfulJobsHistoryLimit", 0).spec("failedJobsHistoryLimit", 0)).await;
    for succeeds in [true, false] {
        minute(s).await;
        s.end_jobs(succeeds).await;
    }
}

async fn cron_jobs_are_suspended_and_resumed(s: &Stage) {
    up(s, tick()).await;
    minute(s).await;
    s.end_jobs(true).await;
    change(s, json!({"suspend": true})).await;
    s.rest().await;
    minute(s).await;
    change(s, json!({"suspend": false})).await;
    s.rest().await;
}

async fn cron_deadline_has_passed(s: &Stage) {
    up(s, tick().spec("suspend", true).spec("startingDeadlineSeconds", 5)).await;
    s.next_minute().await;
    s.wait(8).await;
    change(s, json!({"suspend": false})).await;
    s.rest().await;
    minute(s).await;
}

async fn cron_deadline_of_zero_never_runs(s: &Stage) {
    up(s, tick().spec("startingDeadlineSeconds", 0)).await;
    minute(s).await;
    s.wait(5).await;
}

async fn cron_schedule_is_changed(s: &Stage) {
    up(s, tick().spec("schedule", "0 0 1 1 *")).await;
    minute(s).await;
    change(s, json!({"schedule": "*/1 * * * *"})).await;
    s.rest().await;
    minute(s).await;
    change(s, json!({"schedule": "0 0 1 1 *", "timeZone": "Europe/Berlin"})).await;
    s.rest().await;
    minute(s).await;
}

async fn cron_schedule_of_a_day_that_does_not_exist(s: &Stage) {
    up(s, tick().spec("schedule", "0 0 31 2 *")).await;
    change(s, json!({"schedule": "* * * * *"})).await;
    s.rest().await;
    minute(s).await;
}

async fn cron_template_is_changed(s: &Stage) {
    up(s, tick()).await;
    minute(s).await;
    change(s, json!({"jobTemplate": {"metadata": {"labels": {"app": null, "is": "new"}}, "spec": {"backoffLimit": 0}}}))
        .await;
    s.rest().await;
    minute(s).await;
}

fn job(name: &str) -> Object {
    Object(json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"managedBy": "example.com/nobody", "template": pod_template()},
    }))
}

async fn cron_job_of_a_user_is_left_alone(s: &Stage) {
    up(s, tick().spec("concurrencyPolicy", "Forbid").spec("successfulJobsHistoryLimit", 1)).await;
    let owner = s.one("CronJob", "tick");
    s.create(job("by-hand").owned_by(&owner, true)).await;
    s.rest().await;
    minute(s).await;
    s.end_jobs(true).await;
}

async fn cron_name_of_a_run_is_taken(s: &Stage) {
    s.align().await;
    let name = s.next_run("tick");
    s.act("create a Job with the name of the next run");
    s.call(Method::POST, &s.path("Job"), &job(&name).0).await;
    s.create(tick()).await;
    s.rest().await;
    minute(s).await;
    s.wait(2).await;
}

async fn cron_jobs_of_a_namesake(s: &Stage) {
    up(s, tick().spec("suspend", true).spec("successfulJobsHistoryLimit", 0)).await;
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Workflow", "metadata": {"name": "tick", "uid": "u-1"}});
    s.create(job("others").owned_by(&owner, true)).await;
    s.rest().await;
    s.end_jobs(true).await;
    change(s, json!({"startingDeadlineSeconds": 100})).await;
    s.rest().await;
}

async fn cron_run_is_deleted_by_a_user(s: &Stage) {
    up(s, tick()).await;
    minute(s).await;
    let run = s.all("Job").remove(0)["metadata"]["name"].as_str().unwrap().to_owned();
    s.delete("Job", &run, "Background").await;
    s.rest().await;
}

async fn cron_job_is_deleted(s: &Stage) {
    up(s, tick()).await;
    minute(s).await;
    s.delete("CronJob", "tick", "Background").await;
    s.until("its Job is gone", 30, |s| s.all("Job").is_empty()).await;
    minute(s).await;
}

async fn cron_job_is_deleted_and_its_jobs_stay(s: &Stage) {
    up(s, tick()).await;
    minute(s).await;
    s.delete("CronJob", "tick", "Orphan").await;
    s.until("it is gone", 30, |s| s.all("CronJob").is_empty()).await;
    s.end_jobs(true).await;
}

async fn cron_run_is_refused_by_a_quota(s: &Stage) {
    s.align().await;
    s.create(quota("count/jobs.batch", 0)).await;
    s.counted().await;
    s.create(tick()).await;
    s.rest().await;
    minute(s).await;
    s.wait(2).await;
}
