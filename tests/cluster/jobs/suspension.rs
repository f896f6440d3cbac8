//! Jobs that are suspended and resumed.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_suspended_job_has_no_pods_and_no_start_time_and_a_resumed_one_starts_anew() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    let spec = json!({"suspend": true, "completions": 2, "parallelism": 2, "activeDeadlineSeconds": 60});
    create(&cluster, "exit:0,after:600s", spec).await;
    eventually(&cluster, 5, "it is suspended", |c| reason(c, "Suspended") == "JobSuspended").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(cluster.count("create Pod"), 0);
    assert!(j(&cluster)["status"]["startTime"].is_null());
    patch(&cluster, json!({"suspend": false})).await;
    eventually(&cluster, 5, "it runs", |c| number(c, "ready") == 2).await;
    assert!(j(&cluster)["status"]["startTime"].is_string());
    patch(&cluster, json!({"suspend": true})).await;
    eventually(&cluster, 60, "its pods are gone", |c| c.objects("Pod").is_empty()).await;
    eventually(&cluster, 5, "it has no start", |c| j(c)["status"]["startTime"].is_null()).await;
    eventually(&cluster, 5, "settled", |c| number(c, "active") + number(c, "terminating") == 0).await;
    assert_eq!((number(&cluster, "failed"), number(&cluster, "succeeded")), (0, 0));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(!is_finished(&cluster), "no deadline passes while it is suspended");
    patch(&cluster, json!({"suspend": false})).await;
    eventually(&cluster, 5, "it runs again", |c| number(c, "ready") == 2).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert!(!is_finished(&cluster), "the deadline starts anew");
    eventually(&cluster, 60, "and passes", is_finished).await;
    assert_eq!(reason(&cluster, "Failed"), "DeadlineExceeded");
    assert_eq!(number(&cluster, "failed"), 2);
    let events = events(&cluster);
    let times = |reason: &str| events.iter().filter(|event| *event == reason).count();
    assert_eq!((times("Suspended"), times("Resumed")), (2, 2), "{events:?}");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_without_completions_to_reach_is_complete_without_a_start() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0", json!({"suspend": true, "completions": 0})).await;
    finished(&cluster, 5).await;
    assert_eq!(reason(&cluster, "Complete"), "CompletionsReached");
    daemon.stop().await;
}
