//! Processes that end between two writes, lost replies, and two leaders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_testkit::cluster::is_request;
use windlass_testkit::election::{A, B, Rig};

use super::*;

fn is_status_write(request: &RequestInfo) -> bool {
    is_request(request, "patch", "CronJob") && request.subresource == "status"
}

/// A cluster in which the status of a CronJob cannot be written while the switch is on.
async fn without_status() -> (Cluster, Arc<AtomicBool>) {
    let is_on = Arc::new(AtomicBool::new(true));
    let on = is_on.clone();
    let cluster = Cluster::answering(move |request| {
        let is_lost = is_status_write(request) && on.load(Ordering::Relaxed);
        if is_lost { FaultDecision::LoseRequest } else { FaultDecision::Proceed }
    })
    .await;
    (cluster, is_on)
}

#[tokio::test(start_paused = true)]
async fn a_crash_before_the_status_is_written_repeats_no_run_and_breaks_no_policy() {
    let (cluster, is_on) = without_status().await;
    let daemon = start(&cluster, 31);
    create(&cluster, "exit:0,after:480s", json!({"concurrencyPolicy": "Forbid"})).await;
    minutes(6).await;
    assert_eq!((runs(&cluster), active(&cluster)), (vec![5], vec![]));
    daemon.kill();
    is_on.store(false, Ordering::Relaxed);
    let daemon = start(&cluster, 32);
    minutes(6).await;
    assert_eq!((runs(&cluster), active(&cluster)), (vec![5], vec![5]), "the run of minute 10 waits");
    assert_eq!(backup(&cluster)["status"]["lastScheduleTime"], "2026-01-01T00:05:00Z");
    minutes(3).await;
    assert_eq!(runs(&cluster), [5, 10]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_stays_while_it_alone_proves_its_run() {
    let (cluster, is_on) = without_status().await;
    let daemon = start(&cluster, 33);
    let spec = json!({
        "schedule": "5 0 * * *", "successfulJobsHistoryLimit": 0,
        "jobTemplate": {"spec": {"ttlSecondsAfterFinished": 0}},
    });
    create(&cluster, "exit:0,after:2s", spec).await;
    minutes(15).await;
    assert_eq!((runs(&cluster), jobs(&cluster)), (vec![5], [5].into()), "neither history nor TTL deletes it");
    daemon.kill();
    is_on.store(false, Ordering::Relaxed);
    let daemon = start(&cluster, 34);
    minutes(15).await;
    assert_eq!((runs(&cluster), jobs(&cluster)), (vec![5], [].into()), "the status shows the run now");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_replies_create_no_second_job() {
    let cluster = Cluster::answering(|request| match is_request(request, "create", "Job") {
        true => FaultDecision::LoseReply,
        false => FaultDecision::Proceed,
    })
    .await;
    let daemon = start(&cluster, 35);
    create(&cluster, "exit:0,after:2s", json!({})).await;
    minutes(12).await;
    assert_eq!(jobs(&cluster), [5, 10].into());
    assert_eq!(backup(&cluster)["status"]["lastScheduleTime"], "2026-01-01T00:10:00Z");
    assert!(backup(&cluster)["status"]["active"].is_null());
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_leaders_in_turn_run_each_time_once() {
    let rig = Rig::new().await;
    let a = rig.start(A, 1);
    rig.until(5, "a leads", |rig| rig.holder() == "a").await;
    let b = rig.start(B, 2);
    create(&rig.cluster, "exit:0,after:2s", json!({"schedule": "* * * * *"})).await;
    minutes(3).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    // Its lease ends in the middle of minute 4.
    a.kill();
    minutes(3).await;
    let created = runs_by(&rig.cluster, &[A, B]);
    let distinct: BTreeSet<&i64> = created.iter().collect();
    assert_eq!(created.len(), distinct.len(), "{created:?}");
    assert!(created.len() >= 5, "{created:?}");
    rig.one_at_a_time();
    drop(b);
}
