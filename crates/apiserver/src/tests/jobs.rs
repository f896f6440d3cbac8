//! Jobs and CronJobs: what the recorded answers of a real server (`tests/cluster/recorded.rs`) do not show.

use super::*;

const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const WARNING: &str = "299 - \"child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to \
                       remove them or set propagationPolicy=Orphan to suppress this warning\"";

fn job(name: &str) -> Value {
    let container = json!({"name": "main", "image": "busybox:1"});
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "labels": {"for": "a-test"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    })
}

fn finalizers(object: &Value) -> Value {
    object["metadata"]["finalizers"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_says_nothing_of_the_pods_of_jobs_orphans_them_with_a_warning() {
    let sandbox = sandbox();
    for name in ["one", "two", "three", "four"] {
        sandbox.post(JOBS, job(name)).await.ok();
    }
    let answer = sandbox.delete(&format!("{JOBS}/one")).await;
    assert_eq!(answer.warnings, [WARNING]);
    assert_eq!(finalizers(&answer.body), json!(["orphan"]));
    for (name, options) in
        [("two", json!({"propagationPolicy": "Orphan"})), ("three", json!({"orphanDependents": true}))]
    {
        let answer = sandbox.delete_with(&format!("{JOBS}/{name}"), options).await;
        assert_eq!((answer.warnings.len(), finalizers(&answer.body)), (0, json!(["orphan"])), "{name}");
    }
    let background = json!({"propagationPolicy": "Background"});
    let answer = sandbox.delete_with(&format!("{JOBS}/four"), background).await;
    assert_eq!((answer.warnings.len(), &answer.body["status"]), (0, &json!("Success")));

    sandbox.post(JOBS, job("five")).await.ok();
    let answer = sandbox.delete(&format!("{JOBS}?fieldSelector=metadata.name=five")).await;
    assert_eq!(answer.warnings, [WARNING]);
    assert_eq!(finalizers(&answer.body["items"][0]), json!(["orphan"]));
}

#[tokio::test(start_paused = true)]
async fn the_jobs_of_a_deleted_cron_job_go_with_it() {
    let sandbox = sandbox();
    let spec = json!({"schedule": "@daily", "jobTemplate": {"spec": job("x")["spec"]}});
    let cron_job =
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": spec});
    sandbox.post(CRON_JOBS, cron_job).await.ok();
    let answer = sandbox.delete(&format!("{CRON_JOBS}/c")).await;
    assert_eq!((answer.warnings.len(), &answer.body["status"]), (0, &json!("Success")));
    assert_eq!(sandbox.get(&format!("{CRON_JOBS}/c")).await.code, 404);
}

#[tokio::test(start_paused = true)]
async fn jobs_are_selected_by_how_many_pods_have_succeeded() {
    let sandbox = sandbox();
    for name in ["none", "two"] {
        sandbox.post(JOBS, job(name)).await.ok();
    }
    let status = json!({"status": {"succeeded": 2}});
    sandbox.patch(&format!("{JOBS}/two/status"), "application/merge-patch+json", status).await.ok();
    for (selector, expected) in [("=2", "two"), ("=0", "none"), ("!=2", "none")] {
        let list = sandbox.get(&format!("{JOBS}?fieldSelector=status.successful{selector}")).await.ok();
        let names = list["items"].as_array().unwrap().iter().map(|job| job["metadata"]["name"].clone());
        assert_eq!(names.collect::<Vec<_>>(), [json!(expected)], "{selector}");
    }
    let error = sandbox.get(&format!("{JOBS}?fieldSelector=status.failed=0")).await.refused(400);
    assert_eq!(error, "field label \"status.failed\" not supported for Job");
}

#[tokio::test(start_paused = true)]
async fn a_status_is_dropped_at_creation_and_changes_of_the_spec_are_counted() {
    let sandbox = sandbox();
    let mut job = job("j");
    job["status"] = json!({"succeeded": 5});
    let created = sandbox.post(JOBS, job).await.ok();
    assert_eq!((&created["status"], &created["metadata"]["generation"]), (&json!({}), &json!(1)));
    let patch = async |path: &str, body: Value| {
        let answer = sandbox.patch(&format!("{JOBS}/j{path}"), "application/merge-patch+json", body).await;
        answer.ok()["metadata"]["generation"].clone()
    };
    assert_eq!(patch("", json!({"spec": {"suspend": true}})).await, 2);
    assert_eq!(patch("", json!({"metadata": {"labels": {"a": "b"}}})).await, 2);
    assert_eq!(patch("/status", json!({"status": {"active": 1}, "spec": {"suspend": false}})).await, 2);
    let job = sandbox.get(&format!("{JOBS}/j")).await.ok();
    assert_eq!((&job["spec"]["suspend"], &job["status"]["active"]), (&json!(true), &json!(1)));
}
