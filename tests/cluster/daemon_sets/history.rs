//! Revisions: what they hold, how kubectl rolls back with them, and which of them stay.

use super::*;

/// A `kubectl rollout undo --to-revision`: a strategic merge patch with the data of the revision.
async fn undo(cluster: &Cluster, number: i64) {
    let wanted = |revision: &Value| revision["revision"] == number;
    let revision = cluster.objects("ControllerRevision").into_iter().find(wanted).unwrap();
    let request = http::Request::patch(format!("{DAEMON_SETS}/agent"))
        .header("content-type", "application/strategic-merge-patch+json")
        .body(revision["data"].to_string().into_bytes())
        .unwrap();
    cluster.client.request::<Value>(request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_rollback_renumbers_the_old_revision_as_the_newest_and_creates_none() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    set_image(&cluster, "v2").await;
    rolled_out(&cluster, 3).await;
    assert_eq!(revisions(&cluster), [(1, "v1".to_owned()), (2, "v2".to_owned())]);
    undo(&cluster, 1).await;
    rolled_out(&cluster, 3).await;
    assert_eq!(revisions(&cluster), [(2, "v2".to_owned()), (3, "v1".to_owned())]);
    undo(&cluster, 2).await;
    rolled_out(&cluster, 3).await;
    assert_eq!(revisions(&cluster), [(3, "v1".to_owned()), (4, "v2".to_owned())]);
    assert!(images(&cluster).values().all(|images| *images == ["v2"]));
    assert_eq!(requested(&cluster, "create", "ControllerRevision"), 2);
    assert_eq!(agent(&cluster)["status"]["collisionCount"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_rollback_restarts_no_pod_that_never_changed() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    let before: BTreeMap<String, String> =
        (1..=3).map(|n| (node(n), name_of(&pod_on(&cluster, &node(n))))).collect();
    set_image(&cluster, "broken").await;
    cluster.eventually(10, "one pod is new", |c| number(c, "updatedNumberScheduled") == 1).await;
    undo(&cluster, 1).await;
    rolled_out(&cluster, 3).await;
    let kept = before.iter().filter(|(node, name)| name_of(&pod_on(&cluster, node)) == **name).count();
    assert_eq!(kept, 2);
}

#[tokio::test(start_paused = true)]
async fn a_revision_has_the_labels_of_the_template_and_the_annotations_of_the_daemon_set() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    let mut object = daemon_set(unavailable(1));
    object["metadata"]["annotations"] = json!({"kubernetes.io/change-cause": "the first <one>"});
    cluster.call(Method::POST, DAEMON_SETS, &object).await;
    rolled_out(&cluster, 3).await;
    let revision = cluster.objects("ControllerRevision").remove(0);
    let annotations = &revision["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/change-cause"], "the first <one>");
    assert_eq!(annotations["deprecated.daemonset.template.generation"], "1");
    assert_eq!(revision["metadata"]["labels"]["app"], "agent");
    assert_eq!(revision["metadata"]["ownerReferences"][0]["blockOwnerDeletion"], true);
    let mut template = agent(&cluster)["spec"]["template"].clone();
    template["$patch"] = "replace".into();
    assert_eq!(revision["data"], json!({"spec": {"template": template}}));
}

#[tokio::test(start_paused = true)]
async fn the_history_keeps_revision_history_limit_old_revisions_and_those_in_use() {
    for limit in [0, 1, 3] {
        let cluster = Cluster::new().await;
        let _daemon = cluster.start_controllers(1);
        let mut spec = unavailable(3);
        spec["revisionHistoryLimit"] = limit.into();
        create(&cluster, spec).await;
        for round in 1..=5 {
            if round > 1 {
                set_image(&cluster, &format!("v{round}")).await;
            }
            rolled_out(&cluster, 3).await;
        }
        tokio::time::sleep(5 * S).await;
        let expected: Vec<(i64, String)> = (5 - limit..=5).map(|n| (n, format!("v{n}"))).collect();
        assert_eq!(revisions(&cluster), expected, "limit {limit}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_revision_with_pods_is_kept() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    let mut spec = on_delete();
    spec["revisionHistoryLimit"] = 0.into();
    create(&cluster, spec).await;
    rolled_out(&cluster, 3).await;
    set_image(&cluster, "v2").await;
    tokio::time::sleep(5 * S).await;
    set_image(&cluster, "v3").await;
    tokio::time::sleep(5 * S).await;
    assert_eq!(revisions(&cluster), [(1, "v1".to_owned()), (3, "v3".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_name_in_use_raises_the_collision_count_by_one_and_the_rollout_continues() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    set_image(&cluster, "v2").await;
    rolled_out(&cluster, 3).await;
    let taken = cluster.objects("ControllerRevision").into_iter().find(|r| r["revision"] == 2).unwrap();
    undo(&cluster, 1).await;
    rolled_out(&cluster, 3).await;
    daemon.stop().await;
    // A foreign object, under the name that the second template had.
    let name = name_of(&taken);
    cluster.call(Method::DELETE, &format!("{REVISIONS}/{name}"), &Value::Null).await;
    let foreign = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": name},
        "revision": 9, "data": {"foreign": "data"}});
    cluster.call(Method::POST, REVISIONS, &foreign).await;
    let _daemon = cluster.start_controllers(2);
    set_image(&cluster, "v2").await;
    rolled_out(&cluster, 3).await;
    assert_eq!(number(&cluster, "collisionCount"), 1);
    assert_eq!(named(&cluster, "ControllerRevision", &name)["data"], foreign["data"]);
    let before = writes(&cluster);
    tokio::time::sleep(60 * S).await;
    assert_eq!(writes(&cluster), before);
}

#[tokio::test(start_paused = true)]
async fn an_integer_above_2_to_the_53_survives_a_rollback() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    let for_ever =
        json!([{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": i64::MAX}]);
    let mut spec = unavailable(1);
    spec["template"] =
        json!({"spec": {"tolerations": for_ever, "terminationGracePeriodSeconds": (1i64 << 53) + 1}});
    create(&cluster, spec).await;
    rolled_out(&cluster, 3).await;
    let first = cluster.objects("ControllerRevision").remove(0)["data"].to_string();
    assert!(first.contains(r#""tolerationSeconds":9223372036854775807"#), "{first}");
    assert!(first.contains(r#""terminationGracePeriodSeconds":9007199254740993"#), "{first}");
    let template = agent(&cluster)["spec"]["template"].clone();
    set_image(&cluster, "v2").await;
    rolled_out(&cluster, 3).await;
    undo(&cluster, 1).await;
    rolled_out(&cluster, 3).await;
    assert_eq!(agent(&cluster)["spec"]["template"], template);
    assert_eq!(revisions(&cluster), [(2, "v2".to_owned()), (3, "v1".to_owned())]);
}
