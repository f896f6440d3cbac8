//! The finalizer of pods: adoption, release, and what remains of Jobs that are deleted.

use super::*;

async fn running(cluster: &Cluster, spec: Value) -> Daemon {
    let daemon = start(cluster, 1);
    create(cluster, "exit:0,after:600s", spec).await;
    eventually(cluster, 5, "its pods run", |c| number(c, "ready") > 0).await;
    daemon
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_deleted_leaves_no_finalizer_whichever_way() {
    for policy in ["Background", "Foreground", "Orphan"] {
        let cluster = Cluster::new().await;
        let daemon = running(&cluster, json!({"completions": 3, "parallelism": 3})).await;
        delete(&cluster, &format!("{JOBS}/j"), policy).await;
        eventually(&cluster, 60, "the Job is gone", |c| j(c).is_null()).await;
        let pods = if policy == "Orphan" { 3 } else { 0 };
        eventually(&cluster, 60, policy, |c| c.objects("Pod").len() == pods).await;
        eventually(&cluster, 5, policy, |c| c.objects("Pod").iter().all(|pod| !is_tracked(pod))).await;
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(active(&cluster), pods, "{policy}");
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_deleted_while_no_daemon_runs_leaves_no_finalizer() {
    let cluster = Cluster::new().await;
    let daemon = running(&cluster, json!({})).await;
    daemon.kill();
    delete(&cluster, &format!("{JOBS}/j"), "Background").await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(j(&cluster).is_null() && cluster.objects("Pod").iter().all(is_tracked));
    let daemon = start(&cluster, 2);
    eventually(&cluster, 60, "the pod goes", |c| c.objects("Pod").is_empty()).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_no_longer_matches_is_released_and_one_that_matches_again_adopted() {
    let cluster = Cluster::new().await;
    let daemon = running(&cluster, json!({"completions": 9})).await;
    let name = cluster.objects("Pod")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let uid = j(&cluster)["metadata"]["uid"].clone();
    let path = format!("{PODS}/{name}");
    let label = |uid: &Value| json!({"metadata": {"labels": {"batch.kubernetes.io/controller-uid": uid}}});
    let is = |c: &Cluster, is_owned: bool| {
        let pods = c.objects("Pod");
        let pod = pods.iter().find(|pod| pod["metadata"]["name"] == *name).unwrap();
        is_tracked(pod) == is_owned && pod["metadata"]["ownerReferences"].is_array() == is_owned
    };
    cluster.call(Method::PATCH, &path, &label(&json!("other"))).await;
    eventually(&cluster, 5, "it is released", |c| is(c, false)).await;
    eventually(&cluster, 5, "and replaced", |c| c.count("create Pod") == 2).await;
    daemon.stop().await;
    patch(&cluster, json!({"parallelism": 2})).await;
    cluster.call(Method::PATCH, &path, &label(&uid)).await;
    let daemon = start(&cluster, 2);
    eventually(&cluster, 5, "it is adopted", |c| is(c, true)).await;
    eventually(&cluster, 5, "it counts", |c| number(c, "active") == 2).await;
    assert_eq!((active(&cluster), cluster.count("create Pod")), (2, 2));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_active_pod_that_lost_the_finalizer_gets_it_back() {
    let cluster = Cluster::new().await;
    let daemon = running(&cluster, json!({})).await;
    let name = cluster.objects("Pod")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let stripped = json!({"metadata": {"finalizers": null}});
    cluster.call(Method::PATCH, &format!("{PODS}/{name}"), &stripped).await;
    eventually(&cluster, 5, "it has it again", |c| c.objects("Pod").iter().all(is_tracked)).await;
    let ended = json!({"status": {"phase": "Succeeded"}});
    cluster.call(Method::PATCH, &format!("{PODS}/{name}/status"), &ended).await;
    finished(&cluster, 10).await;
    assert_eq!((number(&cluster, "succeeded"), cluster.count("create Pod")), (1, 1));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_on_a_pod_of_a_finished_job_goes_within_5_seconds() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0,after:1s", json!({})).await;
    finished(&cluster, 10).await;
    let name = cluster.objects("Pod")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let tracked = json!({"metadata": {"finalizers": [TRACKING, "example.com/other"]}});
    cluster.call(Method::PATCH, &format!("{PODS}/{name}"), &tracked).await;
    let is_other = |pod: &Value| pod["metadata"]["finalizers"] == json!(["example.com/other"]);
    eventually(&cluster, 5, "the other one stays", |c| c.objects("Pod").iter().all(is_other)).await;
    assert_eq!(number(&cluster, "succeeded"), 1);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_creation_arrives_after_its_job_has_finished_is_deleted() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, "exit:0,after:1s", json!({})).await;
    finished(&cluster, 10).await;
    let mut late = cluster.objects("Pod")[0].clone();
    let name = late["metadata"]["name"].as_str().unwrap().to_owned();
    let metadata = json!({
        "name": "j-late", "finalizers": [TRACKING],
        "labels": late["metadata"]["labels"], "ownerReferences": late["metadata"]["ownerReferences"],
    });
    late["metadata"] = metadata;
    late["metadata"]["annotations"] = json!({"windlass.dev/pod-outcome": "after:never"});
    late["spec"].as_object_mut().unwrap().remove("nodeName");
    late.as_object_mut().unwrap().remove("status");
    cluster.call(Method::POST, PODS, &late).await;
    assert_eq!(cluster.objects("Pod").len(), 2);
    eventually(&cluster, 60, "only the pod that was counted is left", |c| {
        let pods = c.objects("Pod");
        pods.len() == 1 && pods[0]["metadata"]["name"] == *name
    })
    .await;
    assert_eq!(number(&cluster, "succeeded"), 1);
    assert!(events(&cluster).contains(&"SuccessfulDelete".to_owned()), "{:?}", events(&cluster));
    daemon.stop().await;
}
