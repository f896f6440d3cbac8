//! Ownership of pods and revisions: adoption, release, deletion with and without orphans.

use super::*;

/// Deletes the DaemonSet by this policy.
async fn delete(cluster: &Cluster, policy: &str) {
    cluster
        .call(Method::DELETE, &format!("{DAEMON_SETS}/agent"), &json!({"propagationPolicy": policy}))
        .await;
}

fn is_gone(cluster: &Cluster) -> bool {
    agent(cluster).is_null()
}

#[tokio::test(start_paused = true)]
async fn deleting_a_daemon_set_deletes_pods_and_revisions_without_writes_of_the_controller() {
    for policy in ["Background", "Foreground"] {
        let cluster = Cluster::new().await;
        let _daemon = cluster.start_controllers(1);
        create(&cluster, unavailable(1)).await;
        rolled_out(&cluster, 3).await;
        set_image(&cluster, "v2").await;
        rolled_out(&cluster, 3).await;
        let before = writes(&cluster);
        delete(&cluster, policy).await;
        cluster
            .eventually(30, "all is gone", |c| {
                is_gone(c) && pods(c).is_empty() && c.objects("ControllerRevision").is_empty()
            })
            .await;
        assert_eq!(writes(&cluster), before, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_are_adopted_by_the_next_daemon_set_with_their_revisions_and_no_pod_restarts() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    let monitor = InvariantMonitor::of(&cluster);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    set_image(&cluster, "v2").await;
    rolled_out(&cluster, 3).await;
    let names = |c: &Cluster| pods(c).iter().map(name_of).collect::<Vec<_>>();
    let (before, requests) = (names(&cluster), writes(&cluster));
    delete(&cluster, "Orphan").await;
    cluster.eventually(10, "it is deleted", is_gone).await;
    tokio::time::sleep(5 * S).await;
    assert_eq!((names(&cluster), writes(&cluster)), (before.clone(), requests), "nothing is adopted again");
    assert!(pods(&cluster).iter().all(|pod| pod["metadata"]["ownerReferences"].is_null()));
    let mut again = daemon_set(unavailable(1));
    again["spec"]["template"]["spec"]["containers"][0]["image"] = "agent:v2".into();
    cluster.call(Method::POST, DAEMON_SETS, &again).await;
    rolled_out(&cluster, 3).await;
    assert_eq!(names(&cluster), before);
    assert_eq!(revisions(&cluster), [(1, "v1".to_owned()), (2, "v2".to_owned())]);
    let uid = agent(&cluster)["metadata"]["uid"].clone();
    let all = pods(&cluster).into_iter().chain(cluster.objects("ControllerRevision"));
    for object in all {
        assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], uid, "{}", name_of(&object));
    }
    monitor.assert_no_breach();
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_no_longer_matches_is_released_and_replaced() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    let name = name_of(&pod_on(&cluster, &node(2)));
    let patch = json!({"metadata": {"labels": {"app": "another"}}});
    cluster.call(Method::PATCH, &format!("{PODS}/{name}"), &patch).await;
    cluster
        .eventually(5, "it is released", |c| named(c, "Pod", &name)["metadata"]["ownerReferences"].is_null())
        .await;
    rolled_out(&cluster, 3).await;
    assert_ne!(name_of(&pod_on(&cluster, &node(2))), name);
    assert_eq!(requested(&cluster, "delete", "Pod"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_pod_and_a_malformed_revision_are_left_alone() {
    let cluster = Cluster::new().await;
    let metadata = |name: &str| json!({"name": name, "labels": {"app": "agent"}});
    let foreign = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata("theirs"),
        "revision": 7, "data": {"spec": {"template": {"spec": {}}}}});
    cluster.call(Method::POST, REVISIONS, &foreign).await;
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata("theirs"),
        "spec": {"nodeName": node(1), "containers": [{"name": "c", "image": "agent:v1"}]}});
    pod["metadata"]["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "agent", "uid": "u-job", "controller": true}]);
    let _daemon = cluster.start_controllers(1);
    cluster.call(Method::POST, PODS, &pod).await;
    create(&cluster, unavailable(1)).await;
    cluster.eventually(20, "all three nodes have one of ours", |c| counts(c) == "3/3/3/3/3/0").await;
    assert_eq!(named(&cluster, "ControllerRevision", "theirs")["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(requested(&cluster, "create", "Pod"), 3);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_without_a_node_of_its_own_is_adopted_and_deleted_while_it_is_unbound() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "foreign", "labels": {"app": "agent"}},
        "spec": {"nodeSelector": {"no": "where"}, "containers": [{"name": "c", "image": "agent:v1"}]}});
    cluster.call(Method::POST, PODS, &pod).await;
    cluster.eventually(5, "it is deleted", |c| named(c, "Pod", "foreign").is_null()).await;
    assert!(is_complete(&cluster, 3));
}
