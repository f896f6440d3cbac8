//! The CronJob controller against the embedded API server with nodes whose pods end, in virtual time. All controllers run. The
//! clock begins at 2026-01-01T00:00:00Z.

mod crashes;
mod missed;
mod policies;

use std::collections::BTreeSet;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_testkit::cluster::{Cluster, Daemon, USER_AGENT, unlimited};

const CRON_JOBS: &str = "/apis/batch/v1/namespaces/shop/cronjobs";
const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";

/// 2026-01-01T00:00:00Z in minutes since 1970.
const BEGINNING: i64 = 29_453_760;

fn config() -> ControllerConfig {
    ControllerConfig { enabled: Enabled::all(), root_ca: "pem".into(), ..unlimited() }
}

fn start(cluster: &Cluster, seed: u64) -> Daemon {
    cluster.start_with(seed, config(), |router| router)
}

/// A CronJob `backup` of every five minutes whose pods end like this. `spec` is merged over its spec.
fn cron_job(outcome: &str, spec: Value) -> Value {
    let mut cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "backup"},
        "spec": {"schedule": "*/5 * * * *", "jobTemplate": {
            "metadata": {"labels": {"app": "backup"}},
            "spec": {"backoffLimit": 0, "template": {
                "metadata": {"annotations": {"windlass.dev/pod-outcome": outcome}},
                "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "job:v1"}]},
            }},
        }},
    });
    json_patch::merge(&mut cron_job["spec"], &spec);
    cron_job
}

async fn create(cluster: &Cluster, outcome: &str, spec: Value) {
    cluster.call(Method::POST, CRON_JOBS, &cron_job(outcome, spec)).await;
}

/// Merges this into the CronJob.
async fn patch(cluster: &Cluster, patch: Value) {
    cluster.call(Method::PATCH, &format!("{CRON_JOBS}/backup"), &patch).await;
}

async fn minutes(minutes: u64) {
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
}

/// The CronJob as stored.
fn backup(cluster: &Cluster) -> Value {
    cluster.objects("CronJob").into_iter().next().unwrap_or_default()
}

/// The name of the Job of a minute since the start.
fn of_minute(minute: i64) -> String {
    format!("backup-{}", BEGINNING + minute)
}

/// The minutes of the runs whose Jobs a daemon asked for, each as often as it did.
fn runs(cluster: &Cluster) -> Vec<i64> {
    runs_by(cluster, &[USER_AGENT])
}

/// The same of these daemons.
fn runs_by(cluster: &Cluster, agents: &[&str]) -> Vec<i64> {
    let log = cluster.log.lock().unwrap();
    let ours = log.iter().filter(|request| agents.contains(&&*request.user_agent) && request.kind == "Job");
    ours.filter(|request| request.verb == "create")
        .map(|request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap();
            let minute = body["metadata"]["name"].as_str().unwrap().strip_prefix("backup-").unwrap();
            minute.parse::<i64>().unwrap() - BEGINNING
        })
        .collect()
}

/// The minutes of the Jobs that exist.
fn jobs(cluster: &Cluster) -> BTreeSet<i64> {
    let named = |job: &Value| {
        let name = job["metadata"]["name"].as_str()?.strip_prefix("backup-")?.parse::<i64>().ok()?;
        Some(name - BEGINNING)
    };
    cluster.objects("Job").iter().filter_map(named).collect()
}

/// The minutes of the Jobs in `status.active`.
fn active(cluster: &Cluster) -> Vec<i64> {
    let status = backup(cluster)["status"].clone();
    let active = status["active"].as_array().into_iter().flatten();
    let minute = |name: &str| name.strip_prefix("backup-").unwrap().parse::<i64>().unwrap() - BEGINNING;
    active.map(|job| minute(job["name"].as_str().unwrap())).collect()
}

/// The reasons of the events about the CronJob, each as often as it occurred.
fn events(cluster: &Cluster, reason: &str) -> u64 {
    let events = cluster.objects("Event");
    let about = events.iter().filter(|event| event["involvedObject"]["kind"] == "CronJob");
    let of_reason = about.filter(|event| event["reason"] == reason);
    of_reason.map(|event| event["count"].as_u64().unwrap_or(1)).sum()
}

#[tokio::test(start_paused = true)]
async fn a_job_is_created_at_each_time_and_the_history_stays_short() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    let limits = json!({"successfulJobsHistoryLimit": 2});
    create(&cluster, "exit:0,after:2s", limits).await;
    minutes(5).await;
    cluster.eventually(1, "the first run has begun", |cluster| runs(cluster) == [5]).await;
    let job = cluster.objects("Job").remove(0);
    let meta = &job["metadata"];
    assert_eq!(
        meta["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"],
        "2026-01-01T00:05:00Z"
    );
    assert_eq!(meta["labels"]["app"], "backup");
    let owner = &meta["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("CronJob"), &json!(true)));
    assert_eq!(owner["uid"], backup(&cluster)["metadata"]["uid"]);
    assert_eq!(active(&cluster), [5]);
    minutes(24).await;
    assert_eq!((runs(&cluster), jobs(&cluster)), (vec![5, 10, 15, 20, 25], [20, 25].into()));
    let status = backup(&cluster)["status"].clone();
    assert_eq!(status["lastScheduleTime"], "2026-01-01T00:25:00Z");
    assert!(status["lastSuccessfulTime"].as_str().unwrap() > "2026-01-01T00:25:00Z", "{status}");
    assert!(status["active"].is_null(), "{status}");
    assert_eq!((events(&cluster, "SuccessfulCreate"), events(&cluster, "SawCompletedJob")), (5, 5));
    assert_eq!((events(&cluster, "SuccessfulDelete"), events(&cluster, "UnexpectedJob")), (3, 0));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failed_jobs_have_a_history_of_their_own() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 2);
    create(&cluster, "exit:1,after:2s", json!({"failedJobsHistoryLimit": 1})).await;
    minutes(24).await;
    assert_eq!((runs(&cluster), jobs(&cluster)), (vec![5, 10, 15, 20], [20].into()));
    assert!(backup(&cluster)["status"]["lastSuccessfulTime"].is_null());
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_time_zone_moves_the_runs_and_the_job_shows_it() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 3);
    // 00:30 in UTC.
    create(&cluster, "exit:0,after:2s", json!({"schedule": "30 1 * * *", "timeZone": "Europe/Berlin"})).await;
    minutes(40).await;
    assert_eq!(runs(&cluster), [30]);
    let annotations = cluster.objects("Job")[0]["metadata"]["annotations"].clone();
    let scheduled = &annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(*scheduled, "2026-01-01T01:30:00+01:00");
    minutes(24 * 60).await;
    assert_eq!(runs(&cluster), [30, 30 + 24 * 60]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deleting_a_cron_job_deletes_its_jobs_and_starts_no_more() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 4);
    create(&cluster, "exit:0,after:600s", json!({})).await;
    minutes(7).await;
    cluster.call(Method::DELETE, &format!("{CRON_JOBS}/backup"), &json!({})).await;
    minutes(10).await;
    assert_eq!((runs(&cluster), jobs(&cluster)), (vec![5], [].into()));
    assert!(cluster.objects("Pod").is_empty());
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_at_rest_is_not_written() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 5);
    create(&cluster, "exit:0,after:2s", json!({"schedule": "0 12 * * *"})).await;
    minutes(1).await;
    let writes = cluster.writes();
    minutes(600).await;
    assert_eq!(cluster.writes(), writes);
    let (code, page) = windlass_testkit::cluster::ask(&daemon.http, "/debug/cronjobs/shop/backup").await;
    assert_eq!(code, 200, "{page}");
    let next = "The next run is due at 2026-01-01T12:00:00+00:00";
    assert!(page.contains(next) || page.contains("The next run is due at 2026-01-01T12:00:00Z"), "{page}");
    daemon.stop().await;
}
