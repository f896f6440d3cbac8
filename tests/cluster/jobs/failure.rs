//! Pods that fail, and Jobs that do.

use super::*;

/// When each pod was created, in seconds since the first.
fn created_at(cluster: &Cluster) -> Vec<i64> {
    let created =
        |pod: &Value| pod["metadata"]["creationTimestamp"].as_str().unwrap().parse::<jiff::Timestamp>();
    let mut times: Vec<i64> =
        cluster.objects("Pod").iter().map(|pod| created(pod).unwrap().as_second()).collect();
    times.sort_unstable();
    let first = times[0];
    times.iter().map(|time| time - first).collect()
}

#[tokio::test(start_paused = true)]
async fn failed_pods_are_replaced_after_10_20_40_seconds_until_the_limit_is_exceeded() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:3,after:1s", json!({"backoffLimit": 3})).await;
    finished(&cluster, 200).await;
    assert_eq!((number(&cluster, "succeeded"), number(&cluster, "failed")), (0, 4));
    assert_eq!(reason(&cluster, "FailureTarget"), "BackoffLimitExceeded");
    assert_eq!(reason(&cluster, "Failed"), "BackoffLimitExceeded");
    let gaps: Vec<i64> = created_at(&cluster).windows(2).map(|pair| pair[1] - pair[0]).collect();
    let least = [10, 20, 40];
    assert!(gaps.iter().zip(least).all(|(gap, least)| (least..least + 5).contains(gap)), "{gaps:?}");
    assert!(events(&cluster).contains(&"BackoffLimitExceeded".to_owned()), "{:?}", events(&cluster));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_backoff_outlives_the_daemon() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:3,after:1s", json!({})).await;
    eventually(&cluster, 60, "two have failed", |c| number(c, "failed") == 2).await;
    daemon.kill();
    let daemon = start(&cluster, 2);
    tokio::time::sleep(Duration::from_secs(15)).await;
    assert_eq!(cluster.count("create Pod"), 2, "the third waits for 20 seconds");
    eventually(&cluster, 10, "the third", |c| c.count("create Pod") == 3).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_fails_deletes_its_active_pods_and_counts_them_as_failed() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    let spec = json!({"completions": 5, "parallelism": 5, "activeDeadlineSeconds": 10});
    create(&cluster, "exit:0,after:600s", spec).await;
    eventually(&cluster, 5, "five run", |c| number(c, "ready") == 5).await;
    eventually(&cluster, 15, "the deadline passes", |c| reason(c, "FailureTarget") == "DeadlineExceeded")
        .await;
    finished(&cluster, 60).await;
    let status = j(&cluster)["status"].clone();
    assert_eq!(reason(&cluster, "Failed"), "DeadlineExceeded");
    assert_eq!((number(&cluster, "succeeded"), number(&cluster, "failed")), (0, 5), "{status}");
    assert!(status["completionTime"].is_null());
    let time = |field: &Value| field.as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_second();
    let condition = &status["conditions"][0];
    assert_eq!(condition["type"], "FailureTarget");
    let took = time(&condition["lastTransitionTime"]) - time(&status["startTime"]);
    assert!((10..=12).contains(&took), "{took}");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_with_a_deadline_of_no_time_gets_no_pod() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(
        &cluster,
        "exit:0,after:1s",
        json!({"completions": 3, "parallelism": 3, "activeDeadlineSeconds": 0}),
    )
    .await;
    finished(&cluster, 10).await;
    assert_eq!(reason(&cluster, "Failed"), "DeadlineExceeded");
    assert!(j(&cluster)["status"]["startTime"].is_string(), "as upstream");
    assert_eq!((cluster.count("create Pod"), number(&cluster, "failed")), (0, 0));
    daemon.stop().await;
}

fn policy(rules: Value) -> Value {
    json!({"podFailurePolicy": {"rules": rules}, "backoffLimit": 2})
}

#[tokio::test(start_paused = true)]
async fn an_exit_code_of_the_failure_policy_fails_the_job_at_once() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    let rule = json!([{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}}]);
    create(&cluster, "exit:42,after:1s", policy(rule)).await;
    finished(&cluster, 10).await;
    assert_eq!(reason(&cluster, "Failed"), "PodFailurePolicy");
    assert_eq!((number(&cluster, "failed"), cluster.count("create Pod")), (1, 1));
    let job = j(&cluster);
    let message = job["status"]["conditions"][0]["message"].as_str().unwrap();
    assert!(message.starts_with("Container c for pod shop/j-"), "{message}");
    assert!(message.ends_with(" failed with exit code 42 matching FailJob rule at index 0"), "{message}");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn failures_that_the_policy_ignores_do_not_count_and_do_back_off() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    let rule = json!([{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}]);
    create(&cluster, "exit:42,after:1s", policy(rule)).await;
    eventually(&cluster, 200, "five pods", |c| c.objects("Pod").len() == 5).await;
    assert_eq!(number(&cluster, "failed"), 0);
    let gaps: Vec<i64> = created_at(&cluster).windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(
        gaps.iter().zip([10, 20, 40, 80]).all(|(gap, least)| (least..least + 5).contains(gap)),
        "{gaps:?}"
    );
    let left = || cluster.objects("Pod").iter().filter(|pod| is_tracked(pod)).count();
    assert!(left() <= 1, "ignored pods are let go");
    daemon.stop().await;
}

/// A Job whose pod is being deleted, and does not end before its grace period.
async fn with_a_deleted_pod(cluster: &Cluster, policy: &str) -> (Daemon, String) {
    let daemon = start(cluster, 1);
    let patient = json!({"spec": {"terminationGracePeriodSeconds": 300}});
    create(
        cluster,
        "after:never,sigterm:ignore",
        json!({"podReplacementPolicy": policy, "template": patient}),
    )
    .await;
    eventually(cluster, 5, "it runs", |c| number(c, "ready") == 1).await;
    let pod = cluster.objects("Pod").remove(0);
    let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
    delete(cluster, &path, "Background").await;
    (daemon, path)
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_deleted_has_failed_and_is_replaced() {
    let cluster = Cluster::new().await;
    let (daemon, _) = with_a_deleted_pod(&cluster, "TerminatingOrFailed").await;
    eventually(&cluster, 5, "it counts as failed", |c| number(c, "failed") == 1).await;
    eventually(&cluster, 15, "it is replaced", |c| number(c, "active") == 1 && active(c) == 1).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_being_deleted_is_replaced_when_it_has_ended_if_the_policy_says_so() {
    let cluster = Cluster::new().await;
    let (daemon, path) = with_a_deleted_pod(&cluster, "Failed").await;
    eventually(&cluster, 5, "it is terminating", |c| number(c, "terminating") == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((number(&cluster, "failed"), cluster.count("create Pod")), (0, 1));
    let (_, why) = windlass_testkit::cluster::ask(&daemon.http, "/debug/jobs/shop/j").await;
    assert!(why.contains("Pods are being deleted, and the Job waits until they are gone: j-"), "{why}");
    cluster.call(Method::PATCH, &format!("{path}/status"), &json!({"status": {"phase": "Failed"}})).await;
    eventually(&cluster, 5, "it counts", |c| number(c, "failed") == 1 && number(c, "terminating") == 0).await;
    eventually(&cluster, 15, "it is replaced", |c| number(c, "active") == 1 && active(c) == 1).await;
    daemon.stop().await;
}
