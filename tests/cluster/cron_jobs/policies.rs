//! Concurrency policies, suspension and deadlines.

use super::*;

#[tokio::test(start_paused = true)]
async fn allow_lets_runs_overlap() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 11);
    create(&cluster, "exit:0,after:720s", json!({})).await;
    minutes(16).await;
    assert_eq!((runs(&cluster), active(&cluster)), (vec![5, 10, 15], vec![5, 10, 15]));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn forbid_makes_the_run_up_when_the_one_before_ends() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 12);
    create(&cluster, "exit:0,after:480s", json!({"concurrencyPolicy": "Forbid"})).await;
    minutes(12).await;
    assert_eq!((runs(&cluster), active(&cluster)), (vec![5], vec![5]));
    assert_eq!(events(&cluster, "JobAlreadyActive"), 1);
    // It ends in minute 13, and the run of minute 10 begins. It ends in minute 21: then 20 is the latest.
    minutes(10).await;
    assert_eq!(runs(&cluster), [5, 10, 20]);
    let jobs = cluster.objects("Job");
    let unfinished = jobs.iter().filter(|job| job["status"]["completionTime"].is_null());
    assert_eq!(unfinished.count(), 1, "runs do not overlap");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replace_deletes_the_run_before() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 13);
    create(&cluster, "exit:0,after:3600s", json!({"concurrencyPolicy": "Replace"})).await;
    minutes(11).await;
    assert_eq!((runs(&cluster), jobs(&cluster), active(&cluster)), (vec![5, 10], [10].into(), vec![10]));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn replace_can_wait_until_the_old_pods_are_gone() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 14);
    let mut object = cron_job("exit:0,after:3600s", json!({"concurrencyPolicy": "Replace"}));
    object["metadata"]["annotations"] = json!({"windlass.dev/replace": "after-pods"});
    cluster.call(Method::POST, CRON_JOBS, &object).await;
    minutes(10).await;
    for _ in 0..600 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let of = |minute: i64| {
            let prefix = of_minute(minute);
            let pods = cluster.objects("Pod");
            pods.iter().filter(|pod| pod["metadata"]["name"].as_str().unwrap().starts_with(&prefix)).count()
        };
        assert!(of(5) == 0 || of(10) == 0, "pods of two runs");
    }
    assert_eq!((runs(&cluster), jobs(&cluster)), (vec![5, 10], [10].into()));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_cron_job_runs_the_latest_missed_time_when_it_resumes() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 15);
    create(&cluster, "exit:0,after:2s", json!({"suspend": true})).await;
    minutes(17).await;
    assert_eq!(runs(&cluster), [0; 0]);
    patch(&cluster, json!({"spec": {"suspend": false}})).await;
    minutes(1).await;
    assert_eq!((runs(&cluster), events(&cluster, "MissSchedule")), (vec![15], 1));
    patch(&cluster, json!({"spec": {"suspend": true, "startingDeadlineSeconds": 60}})).await;
    minutes(9).await;
    patch(&cluster, json!({"spec": {"suspend": false}})).await;
    minutes(1).await;
    assert_eq!(runs(&cluster), [15], "it is too late for minute 25");
    minutes(3).await;
    assert_eq!(runs(&cluster), [15, 30]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_job_with_the_name_is_left_alone_and_the_next_time_runs() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 16);
    create(&cluster, "exit:0,after:2s", json!({})).await;
    let foreign = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": of_minute(5)},
        "spec": {"template": {"metadata": {"annotations": {"windlass.dev/pod-outcome": "exit:0,after:9999s"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "job:v1"}]}}},
    });
    cluster.call(Method::POST, JOBS, &foreign).await;
    minutes(9).await;
    assert_eq!((runs(&cluster), events(&cluster, "FailedCreate")), (vec![], 1));
    minutes(2).await;
    assert_eq!((runs(&cluster), jobs(&cluster)), (vec![10], [5, 10].into()));
    assert_eq!(backup(&cluster)["status"]["lastScheduleTime"], "2026-01-01T00:10:00Z");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_or_webhook_that_refuses_is_told_and_the_run_is_tried_again() {
    use windlass_apiserver::FaultDecision;
    use windlass_testkit::cluster::{forbidden, is_request};
    let refuses = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let still = refuses.clone();
    let cluster = Cluster::answering(move |request| {
        let is_refused =
            is_request(request, "create", "Job") && still.load(std::sync::atomic::Ordering::Relaxed);
        if is_refused { forbidden("exceeded quota") } else { FaultDecision::Proceed }
    })
    .await;
    let daemon = start(&cluster, 17);
    create(&cluster, "exit:0,after:2s", json!({})).await;
    minutes(6).await;
    assert!(events(&cluster, "FailedCreate") > 0);
    assert!(backup(&cluster)["status"]["lastScheduleTime"].is_null());
    refuses.store(false, std::sync::atomic::Ordering::Relaxed);
    minutes(3).await;
    assert_eq!(backup(&cluster)["status"]["lastScheduleTime"], "2026-01-01T00:05:00Z");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_conflict_over_the_quota_is_no_taken_name_and_the_run_is_tried_again() {
    use windlass_apiserver::FaultDecision;
    use windlass_testkit::cluster::is_request;
    let first = std::sync::atomic::AtomicBool::new(true);
    let cluster = Cluster::answering(move |request| {
        if is_request(request, "create", "Job") && first.swap(false, std::sync::atomic::Ordering::Relaxed) {
            return FaultDecision::Refuse {
                code: 409,
                message:
                    "Operation cannot be fulfilled on resourcequotas \"jobs\": the object has been modified"
                        .into(),
                reason: "Conflict".into(),
            };
        }
        FaultDecision::Proceed
    })
    .await;
    let daemon = start(&cluster, 18);
    create(&cluster, "exit:0,after:2s", json!({})).await;
    minutes(5).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(runs(&cluster), vec![5, 5], "refused, and tried again");
    assert_eq!(jobs(&cluster), BTreeSet::from([5]));
    daemon.stop().await;
}
