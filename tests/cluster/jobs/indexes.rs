//! Jobs whose pods have indexes.

use super::*;

fn indexed(completions: u32, parallelism: u32, more: Value) -> Value {
    let mut spec =
        json!({"completionMode": "Indexed", "completions": completions, "parallelism": parallelism});
    json_patch::merge(&mut spec, &more);
    spec
}

fn index_of(pod: &Value) -> i64 {
    let index = &pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"];
    index.as_str().unwrap().parse().unwrap()
}

fn active_indexes(cluster: &Cluster) -> Vec<i64> {
    let pods = cluster.objects("Pod");
    let mut indexes: Vec<i64> = pods.iter().filter(|pod| is_active(pod)).map(index_of).collect();
    indexes.sort_unstable();
    indexes
}

/// The pod of an index ends in this phase.
async fn end(cluster: &Cluster, index: i64, phase: &str) {
    let pods = cluster.objects("Pod");
    let pod = pods.iter().find(|pod| is_active(pod) && index_of(pod) == index).unwrap();
    let name = pod["metadata"]["name"].as_str().unwrap();
    let ended = json!({"status": {"phase": phase}});
    cluster.call(Method::PATCH, &format!("{PODS}/{name}/status"), &ended).await;
}

#[tokio::test(start_paused = true)]
async fn each_index_gets_one_pod_the_lowest_first() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0,after:600s", indexed(6, 3, json!({}))).await;
    eventually(&cluster, 5, "three run", |c| active_indexes(c) == [0, 1, 2]).await;
    let pod = cluster.objects("Pod").into_iter().find(|pod| index_of(pod) == 1).unwrap();
    assert_eq!(pod["spec"]["hostname"], "j-1");
    assert_eq!(pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"], "1");
    assert_eq!(pod["spec"]["containers"][0]["env"][0]["name"], "JOB_COMPLETION_INDEX");
    assert!(pod["metadata"]["name"].as_str().unwrap().starts_with("j-1-"), "{}", pod["metadata"]);
    end(&cluster, 1, "Succeeded").await;
    eventually(&cluster, 5, "the next", |c| active_indexes(c) == [0, 2, 3]).await;
    end(&cluster, 0, "Failed").await;
    eventually(&cluster, 30, "again", |c| active_indexes(c) == [0, 2, 3]).await;
    for index in [0, 2, 3, 4, 5] {
        eventually(&cluster, 5, "it runs", |c| active_indexes(c).contains(&index)).await;
        end(&cluster, index, "Succeeded").await;
    }
    finished(&cluster, 10).await;
    let status = j(&cluster)["status"].clone();
    assert_eq!(
        (&status["completedIndexes"], &status["succeeded"], &status["failed"]),
        (&json!("0-5"), &json!(6), &json!(1))
    );
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn many_indexes_complete_exactly_once_over_restarts_of_the_daemon() {
    let cluster = Cluster::new().await;
    create(&cluster, "exit:0,after:2s", indexed(200, 30, json!({}))).await;
    for seed in 1..15 {
        let daemon = start(&cluster, seed);
        tokio::time::sleep(Duration::from_millis(500 + seed * 211 % 1300)).await;
        daemon.kill();
    }
    let daemon = start(&cluster, 99);
    finished(&cluster, 120).await;
    assert_eq!(j(&cluster)["status"]["completedIndexes"], "0-199");
    let mut indexes: Vec<i64> = cluster.objects("Pod").iter().map(index_of).collect();
    indexes.sort_unstable();
    assert_eq!(indexes, (0..200).collect::<Vec<i64>>());
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_elastic_job_grows_and_shrinks_by_its_highest_indexes() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0,after:600s", indexed(3, 3, json!({}))).await;
    eventually(&cluster, 5, "three", |c| active_indexes(c) == [0, 1, 2]).await;
    end(&cluster, 0, "Succeeded").await;
    eventually(&cluster, 5, "counted", |c| number(c, "succeeded") == 1).await;
    patch(&cluster, json!({"completions": 5, "parallelism": 5})).await;
    eventually(&cluster, 5, "two more", |c| active_indexes(c) == [1, 2, 3, 4]).await;
    patch(&cluster, json!({"completions": 2, "parallelism": 2})).await;
    eventually(&cluster, 60, "one", |c| active_indexes(c) == [1]).await;
    end(&cluster, 1, "Succeeded").await;
    finished(&cluster, 60).await;
    let status = j(&cluster)["status"].clone();
    assert_eq!((&status["completedIndexes"], &status["failed"]), (&json!("0,1"), &Value::Null));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_success_policy_ends_the_job_and_the_pods_it_deletes_have_not_failed() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    let policy = json!({"successPolicy": {"rules": [{"succeededIndexes": "0,2", "succeededCount": 1}]}});
    create(&cluster, "exit:0,after:600s", indexed(4, 4, policy)).await;
    eventually(&cluster, 5, "four run", |c| number(c, "ready") == 4).await;
    end(&cluster, 2, "Succeeded").await;
    finished(&cluster, 60).await;
    assert_eq!(reason(&cluster, "Complete"), "SuccessPolicy");
    let status = j(&cluster)["status"].clone();
    assert_eq!((&status["completedIndexes"], &status["failed"]), (&json!("2"), &Value::Null), "{status}");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_index_has_its_own_limit_and_backoff() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0,after:600s", indexed(3, 3, json!({"backoffLimitPerIndex": 1}))).await;
    eventually(&cluster, 5, "three run", |c| number(c, "ready") == 3).await;
    let counts = |c: &Cluster, index: i64| {
        let mut pods = c.objects("Pod");
        pods.retain(|pod| index_of(pod) == index);
        let count = |pod: &Value| {
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"].clone()
        };
        let mut counts: Vec<String> =
            pods.iter().map(|pod| count(pod).as_str().unwrap().to_owned()).collect();
        counts.sort_unstable();
        counts
    };
    assert_eq!(counts(&cluster, 1), ["0"]);
    end(&cluster, 1, "Failed").await;
    // It ended when it was created, for all that its status says.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(active_indexes(&cluster), [0, 2], "it waits");
    eventually(&cluster, 8, "it is replaced", |c| active_indexes(c) == [0, 1, 2]).await;
    assert_eq!(counts(&cluster, 1), ["0", "1"]);
    eventually(&cluster, 5, "then the failure is counted", |c| number(c, "failed") == 1).await;
    end(&cluster, 1, "Failed").await;
    eventually(&cluster, 5, "the index has failed", |c| j(c)["status"]["failedIndexes"] == "1").await;
    end(&cluster, 0, "Succeeded").await;
    end(&cluster, 2, "Succeeded").await;
    finished(&cluster, 10).await;
    let status = j(&cluster)["status"].clone();
    assert_eq!(reason(&cluster, "Failed"), "FailedIndexes");
    assert_eq!(
        (&status["completedIndexes"], &status["failed"], cluster.count("create Pod")),
        (&json!("0,2"), &json!(2), 4)
    );
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_user_has_given_another_index_is_none_of_the_missing_index() {
    for (seed, from, to) in [(51, 1, "0"), (52, 0, "1"), (53, 1, "7")] {
        let cluster = Cluster::new().await;
        let daemon = start(&cluster, seed);
        create(&cluster, "exit:0,after:600s", indexed(2, 2, json!({}))).await;
        eventually(&cluster, 5, "both run", |c| active_indexes(c) == [0, 1]).await;
        let pod = cluster.objects("Pod").into_iter().find(|pod| index_of(pod) == from).unwrap();
        let edited = json!({"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": to}}});
        let path = format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap());
        cluster.call(Method::PATCH, &path, &edited).await;
        eventually(&cluster, 20, "each index has its own", |c| active_indexes(c) == [0, 1]).await;
        let created = events(&cluster).iter().filter(|reason| *reason == "SuccessfulCreate").count();
        assert_eq!(created, 3, "{from} became {to}: {:?}", events(&cluster));
        daemon.stop().await;
    }
}
