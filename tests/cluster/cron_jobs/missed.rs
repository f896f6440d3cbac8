//! Times that pass while nobody runs them, and schedules that change.

use super::*;

#[tokio::test(start_paused = true)]
async fn after_a_long_downtime_the_latest_missed_time_runs_once() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 21);
    create(&cluster, "exit:0,after:2s", json!({"schedule": "* * * * *"})).await;
    minutes(3).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    daemon.stop().await;
    minutes(60 * 24).await;
    let daemon = start(&cluster, 22);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let down = 3 + 60 * 24;
    assert_eq!(runs(&cluster), [1, 2, 3, down]);
    assert_eq!((events(&cluster, "MissSchedule"), events(&cluster, "TooManyMissedTimes")), (1, 1));
    minutes(1).await;
    assert_eq!(runs(&cluster), [1, 2, 3, down, down + 1]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_catching_up_a_missed_time_stays_missed() {
    let cluster = Cluster::new().await;
    let mut object = cron_job("exit:0,after:2s", json!({}));
    object["metadata"]["annotations"] = json!({"windlass.dev/catch-up": "none"});
    cluster.call(Method::POST, CRON_JOBS, &object).await;
    minutes(17).await;
    let daemon = start(&cluster, 23);
    minutes(2).await;
    assert_eq!(runs(&cluster), [0; 0]);
    minutes(2).await;
    assert_eq!(runs(&cluster), [20]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_edited_schedule_or_zone_counts_from_the_last_run() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 24);
    create(&cluster, "exit:0,after:2s", json!({"schedule": "0 * * * *"})).await;
    minutes(62).await;
    assert_eq!(runs(&cluster), [60]);
    patch(&cluster, json!({"spec": {"schedule": "30 * * * *"}})).await;
    minutes(29).await;
    assert_eq!(runs(&cluster), [60, 90]);
    // 02:15 in Berlin is 01:15 in UTC, and has passed: upstream runs it, too, only if it is later than the last run.
    patch(&cluster, json!({"spec": {"schedule": "15 3 * * *", "timeZone": "Europe/Berlin"}})).await;
    minutes(60).await;
    assert_eq!(runs(&cluster), [60, 90, 135]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_run_is_told_once_and_runs_when_it_is_corrected() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 25);
    create(&cluster, "exit:0,after:2s", json!({"schedule": "0 0 31 2 *"})).await;
    minutes(30).await;
    assert_eq!((runs(&cluster), events(&cluster, "InvalidSchedule")), (vec![], 1));
    let (_, page) = windlass_testkit::cluster::ask(&daemon.http, "/debug/cronjobs/shop/backup").await;
    assert!(page.contains("no time matches its schedule"), "{page}");
    patch(&cluster, json!({"spec": {"schedule": "*/5 * * * *"}})).await;
    minutes(6).await;
    assert_eq!(runs(&cluster), [35], "the first time after the correction");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_users_job_is_told_of_once_and_counts_in_the_history_only() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 26);
    create(
        &cluster,
        "exit:0,after:2s",
        json!({"concurrencyPolicy": "Forbid", "successfulJobsHistoryLimit": 1}),
    )
    .await;
    minutes(1).await;
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "by-hand", "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "backup",
                "uid": backup(&cluster)["metadata"]["uid"], "controller": true}]},
        "spec": {"template": {"metadata": {"annotations": {"windlass.dev/pod-outcome": "exit:0,after:420s"}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "job:v1"}]}}},
    });
    cluster.call(Method::POST, JOBS, &job).await;
    minutes(5).await;
    assert_eq!((runs(&cluster), events(&cluster, "UnexpectedJob")), (vec![5], 1), "it blocks no run");
    minutes(6).await;
    let names: Vec<Value> =
        cluster.objects("Job").iter().map(|job| job["metadata"]["name"].clone()).collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(jobs(&cluster), [10].into());
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_changed_makes_up_no_time_before_the_change() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0,after:1s", json!({"schedule": "0 0 1 6 *"})).await;
    minutes(7).await;
    patch(&cluster, json!({"spec": {"schedule": "*/5 * * * *"}})).await;
    minutes(2).await;
    assert_eq!(cluster.count("create Job"), 0, "that of minute 5 was none of this CronJob then");
    minutes(2).await;
    assert_eq!(cluster.count("create Job"), 1, "that of minute 10");
    daemon.stop().await;
}
