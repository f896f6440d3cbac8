//! Jobs that succeed.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_job_runs_one_pod_counts_it_and_is_complete() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0,after:3s", json!({})).await;
    eventually(&cluster, 2, "the pod is active", |c| number(c, "active") == 1).await;
    let pod = cluster.objects("Pod").remove(0);
    assert!(is_tracked(&pod), "{pod}");
    assert_eq!(pod["metadata"]["generateName"], "j-");
    assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-name"], "j");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Job");
    finished(&cluster, 10).await;
    let status = j(&cluster)["status"].clone();
    assert_eq!(status["succeeded"], 1);
    assert_eq!(reason(&cluster, "SuccessCriteriaMet"), "CompletionsReached");
    assert_eq!(reason(&cluster, "Complete"), "CompletionsReached");
    assert_eq!(status["completionTime"], status["conditions"][1]["lastTransitionTime"]);
    assert_eq!(status["conditions"][1]["lastProbeTime"], status["conditions"][1]["lastTransitionTime"]);
    assert_eq!(events(&cluster), ["Completed", "SuccessfulCreate"]);
    let name = pod["metadata"]["name"].as_str().unwrap();
    let pods: Vec<String> = cluster.writes().into_iter().filter(|write| write.contains("Pod/")).collect();
    assert_eq!(pods, ["create Pod/".to_owned(), format!("patch Pod/{name}")]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn pods_run_in_parallel_until_all_completions_are_there() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0,after:2s", json!({"completions": 7, "parallelism": 3})).await;
    eventually(&cluster, 2, "three at once", |c| number(c, "active") == 3).await;
    finished(&cluster, 30).await;
    assert_eq!((number(&cluster, "succeeded"), number(&cluster, "failed")), (7, 0));
    assert_eq!(cluster.count("create Pod"), 7);
    assert_eq!(cluster.count("delete Pod"), 0);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_work_queue_starts_no_pod_after_the_first_success_and_is_complete_after_the_last_pod() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0,after:600s", json!({"parallelism": 3})).await;
    eventually(&cluster, 5, "three run", |c| number(c, "ready") == 3).await;
    let names: Vec<String> = cluster
        .objects("Pod")
        .iter()
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect();
    for (done, name) in names.iter().enumerate() {
        let ended = json!({"status": {"phase": "Succeeded"}});
        cluster.call(Method::PATCH, &format!("{PODS}/{name}/status"), &ended).await;
        let succeeded = i64::try_from(done).unwrap() + 1;
        eventually(&cluster, 5, "it is counted", |c| number(c, "succeeded") == succeeded).await;
        assert_eq!(cluster.count("create Pod"), 3);
    }
    finished(&cluster, 5).await;
    assert_eq!(number(&cluster, "succeeded"), 3);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn parallelism_that_changes_adds_and_removes_pods_that_count_neither_way() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0,after:600s", json!({"completions": 10, "parallelism": 5})).await;
    eventually(&cluster, 5, "five run", |c| number(c, "ready") == 5).await;
    patch(&cluster, json!({"parallelism": 2})).await;
    eventually(&cluster, 60, "two are left", |c| active(c) == 2 && c.objects("Pod").len() == 2).await;
    patch(&cluster, json!({"parallelism": 4})).await;
    eventually(&cluster, 5, "four run", |c| number(c, "ready") == 4).await;
    patch(&cluster, json!({"parallelism": 0})).await;
    eventually(&cluster, 60, "none is left", |c| c.objects("Pod").is_empty()).await;
    eventually(&cluster, 5, "counted", |c| number(c, "active") == 0 && number(c, "terminating") == 0).await;
    assert_eq!((number(&cluster, "succeeded"), number(&cluster, "failed")), (0, 0));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_without_completions_to_reach_is_complete_without_a_pod() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0", json!({"completions": 0})).await;
    finished(&cluster, 5).await;
    assert_eq!(cluster.count("create Pod"), 0);
    assert!(j(&cluster)["status"]["startTime"].is_string());
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_job_of_hundreds_of_pods_is_counted_exactly_over_restarts_of_the_daemon() {
    let cluster = Cluster::new().await;
    create(&cluster, "exit:0,after:3s", json!({"completions": 300, "parallelism": 40})).await;
    // Killed in the middle of whatever it does, at another moment each time.
    for seed in 1..20 {
        let daemon = start(&cluster, seed);
        tokio::time::sleep(Duration::from_millis(700 + seed * 173 % 900)).await;
        daemon.kill();
        let status = j(&cluster)["status"].clone();
        assert!(status["succeeded"].as_i64().unwrap_or(0) <= 300, "{status}");
    }
    let daemon = start(&cluster, 99);
    finished(&cluster, 120).await;
    assert_eq!((number(&cluster, "succeeded"), number(&cluster, "failed")), (300, 0));
    assert_eq!(cluster.objects("Pod").len(), 300, "no pod too many");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_managed_by_keeps_windlass_from_the_job_and_its_pods() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0", json!({"managedBy": "example.com/queue", "completions": 1})).await;
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": j(&cluster)["metadata"]["uid"],
                        "controller": true}]);
    let mut pod = job("exit:0", json!({}))["spec"]["template"].clone();
    pod["metadata"] = json!({"name": "theirs", "finalizers": [TRACKING], "ownerReferences": owner});
    cluster.call(Method::POST, PODS, &pod).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let ours = cluster.writes().into_iter().filter(|write| write.contains("Job/") || write.contains("Pod/"));
    assert_eq!(ours.collect::<Vec<_>>(), [""; 0]);
    daemon.stop().await;
}
