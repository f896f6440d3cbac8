//! StatefulSets that are deleted, and namespaces that end.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_namespace_ends_with_its_stateful_sets_and_their_claims() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, json!({})).await;
    cluster.call(Method::DELETE, "/api/v1/namespaces/shop", &Value::Null).await;
    cluster
        .eventually(120, "all is gone", |c| {
            ["StatefulSet", "Pod", "PersistentVolumeClaim", "ControllerRevision"]
                .iter()
                .all(|kind| c.objects(kind).is_empty())
        })
        .await;
    let created = pod_writes(&cluster).iter().filter(|write| write.starts_with("create")).count();
    assert!(created <= 5, "{:?}", pod_writes(&cluster));
    assert_eq!(told(&cluster, "Warning FailedCreate"), 0, "{:?}", events(&cluster));
}

#[tokio::test(start_paused = true)]
async fn orphaned_pods_claims_and_revisions_stay_and_a_successor_adopts_them() {
    let cluster = cluster().await;
    let retention = json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}});
    let _daemon = rolled_out_with(&cluster, retention.clone()).await;
    let kinds = ["Pod", "PersistentVolumeClaim", "ControllerRevision"];
    let uids = |c: &Cluster| -> Vec<Value> {
        let all = kinds.iter().flat_map(|kind| by_name(c, kind).into_values());
        all.map(|object| object["metadata"]["uid"].clone()).collect()
    };
    let before = uids(&cluster);
    delete(&cluster, &format!("{SETS}/db"), "Orphan").await;
    cluster.eventually(30, "it is gone", |c| db(c).is_null()).await;
    tokio::time::sleep(30 * S).await;
    assert_eq!(uids(&cluster), before);
    create(&cluster, retention).await;
    rolled_out(&cluster).await;
    assert_eq!(uids(&cluster), before, "nothing was created again");
    let new = uid_of(&cluster, "StatefulSet", "db");
    for object in kinds.iter().flat_map(|kind| cluster.objects(kind)) {
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], new, "{}", name_of(&object));
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_ends_last_and_no_pod_comes_back() {
    for (policy, left) in [("Retain", 3), ("Delete", 0)] {
        let cluster = cluster().await;
        let retention = json!({"persistentVolumeClaimRetentionPolicy": {"whenDeleted": policy}});
        let _daemon = rolled_out_with(&cluster, retention).await;
        delete(&cluster, &format!("{SETS}/db"), "Foreground").await;
        let is_last =
            |c: &Cluster| assert!(!db(c).is_null() || pods(c).is_empty(), "it ended before its pods");
        watch(&cluster, |c| db(c).is_null(), is_last).await;
        assert_eq!(claim_names(&cluster).len(), left, "{policy}");
        assert_eq!(cluster.objects("ControllerRevision").len(), 0);
        assert_eq!(pod_writes(&cluster).iter().filter(|write| write.starts_with("create")).count(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_being_deleted_gets_no_pod_and_no_revision() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, json!({})).await;
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    cluster.call(Method::PATCH, &format!("{SETS}/db"), &held).await;
    delete(&cluster, &format!("{SETS}/db"), "Background").await;
    kill(&cluster, &format!("{PODS}/db-1")).await;
    set_image(&cluster, "v2").await;
    cluster.eventually(5, "the status shows it", |c| db(c)["status"]["replicas"] == 2).await;
    tokio::time::sleep(60 * S).await;
    assert_eq!(pod_names(&cluster), ["db-0", "db-2"]);
    assert_eq!(cluster.objects("ControllerRevision").len(), 1);
    let status = db(&cluster)["status"].clone();
    assert_ne!(status["observedGeneration"], db(&cluster)["metadata"]["generation"]);
}
