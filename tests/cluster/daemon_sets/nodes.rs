//! Nodes that come, go, are tainted, cordoned and relabelled.

use super::*;

async fn running(spec: Value) -> (Cluster, windlass_testkit::cluster::Daemon) {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    create(&cluster, spec).await;
    rolled_out(&cluster, 3).await;
    (cluster, daemon)
}

#[tokio::test(start_paused = true)]
async fn a_new_node_gets_its_pod_within_100_ms_of_its_event() {
    let (cluster, _daemon) = running(unavailable(1)).await;
    add_node(&cluster, "late", json!({})).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(images(&cluster).contains_key("late"), "{:?}", images(&cluster));
    rolled_out(&cluster, 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_stops_counting_at_once_and_its_unbound_pod_is_deleted() {
    let (cluster, _daemon) = running(unavailable(1)).await;
    let bound = name_of(&pod_on(&cluster, &node(3)));
    remove_node(&cluster, &node(3)).await;
    cluster.eventually(1, "two nodes are left", |c| counts(c) == "2/2/2/2/2/0").await;
    assert!(!named(&cluster, "Pod", &bound).is_null(), "the garbage collector's business");
    assert_eq!(requested(&cluster, "delete", "Pod"), 0);
    // One that no kubelet is for: its pod stays unbound.
    taint(&cluster, &node(2), &["full:NoExecute"]).await;
    cluster.eventually(2, "its pod is gone", |c| !images(c).contains_key(&node(2))).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_recreated_under_its_name_keeps_its_pending_pod() {
    let (cluster, _daemon) = running(unavailable(1)).await;
    let monitor = InvariantMonitor::of(&cluster);
    let before = name_of(&pod_on(&cluster, &node(1)));
    remove_node(&cluster, &node(1)).await;
    tokio::time::sleep(5 * S).await;
    add_node(&cluster, &node(1), json!({})).await;
    rolled_out(&cluster, 3).await;
    assert_eq!(name_of(&pod_on(&cluster, &node(1))), before);
    // Gone for longer than the collector waits: a new pod, under another name.
    remove_node(&cluster, &node(1)).await;
    tokio::time::sleep(90 * S).await;
    assert!(named(&cluster, "Pod", &before).is_null());
    add_node(&cluster, &node(1), json!({})).await;
    rolled_out(&cluster, 3).await;
    monitor.assert_no_breach();
}

#[tokio::test(start_paused = true)]
async fn taints_prevent_tolerate_or_evict_pods() {
    let (cluster, _daemon) = running(unavailable(1)).await;
    taint(&cluster, &node(1), &["maintenance:NoSchedule"]).await;
    cluster.eventually(1, "a pod is where none would be created", |c| counts(c) == "2/2/2/2/2/1").await;
    taint(&cluster, &node(2), &["maintenance:NoExecute"]).await;
    cluster.eventually(3, "its pod is deleted", |c| counts(c) == "1/1/1/1/1/1").await;
    assert_eq!(images(&cluster).len(), 2);
    taint(&cluster, &node(1), &["minor:PreferNoSchedule"]).await;
    taint(&cluster, &node(2), &[]).await;
    rolled_out(&cluster, 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_cordoned_node_keeps_its_pod_and_gets_one() {
    let (cluster, _daemon) = running(unavailable(1)).await;
    for name in [node(1), node(2), node(3)] {
        let cordon = json!({"spec": {"unschedulable": true}});
        cluster.call(Method::PATCH, &format!("{NODES}/{name}"), &cordon).await;
    }
    let created = requested(&cluster, "create", "Pod");
    tokio::time::sleep(5 * S).await;
    assert!(is_complete(&cluster, 3));
    let gone = name_of(&pod_on(&cluster, &node(1)));
    cluster.call(Method::DELETE, &format!("{PODS}/{gone}"), &Value::Null).await;
    cluster.eventually(5, "it is replaced", |c| requested(c, "create", "Pod") == created + 1).await;
    rolled_out(&cluster, 3).await;
    assert_ne!(name_of(&pod_on(&cluster, &node(1))), gone, "no name is reused");
}

#[tokio::test(start_paused = true)]
async fn labels_decide_where_pods_run() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    let mut spec = unavailable(1);
    spec["template"] = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
    create(&cluster, spec).await;
    cluster.eventually(5, "no node is right", |c| counts(c) == "0/0/0/0/0/0" && is_complete(c, 0)).await;
    let label = async |name: &str, value: Value| {
        let patch = json!({"metadata": {"labels": {"disk": value}}});
        cluster.call(Method::PATCH, &format!("{NODES}/{name}"), &patch).await;
    };
    label(&node(1), "ssd".into()).await;
    label(&node(2), "ssd".into()).await;
    rolled_out(&cluster, 2).await;
    label(&node(1), "hdd".into()).await;
    cluster.eventually(5, "one is left", |c| counts(c) == "1/1/1/1/1/0").await;
    assert_eq!(images(&cluster).into_keys().collect::<Vec<_>>(), [node(2)]);
    patch(&cluster, json!({"spec": {"template": {"spec": {"nodeSelector": null}}}})).await;
    rolled_out(&cluster, 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_heartbeat_enqueues_nothing_and_is_not_evaluated() {
    let (cluster, daemon) = running(unavailable(1)).await;
    let metric = |name: &str| {
        let text = daemon.metrics.render();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default().to_owned();
        line.rsplit(' ').next().unwrap_or_default().to_owned()
    };
    tokio::time::sleep(5 * S).await;
    let keys = || metric("workqueue_adds_total{name=\"daemonset\"}");
    let verdicts = || metric("windlass_daemonset_verdicts_total");
    let before = (keys(), verdicts(), writes(&cluster));
    assert_ne!(before.1, "");
    for round in 0..20 {
        for name in [node(1), node(2)] {
            let at = format!("2026-01-01T01:00:{round:02}Z");
            let images = json!([{"names": [format!("agent:{round}")], "sizeBytes": 7}]);
            let patch = json!({"status": {"images": images, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}},
                "metadata": {"annotations": {"seen": at}}});
            cluster.call(Method::PATCH, &format!("{NODES}/{name}/status"), &patch).await;
        }
    }
    tokio::time::sleep(5 * S).await;
    assert_eq!((keys(), verdicts(), writes(&cluster)), before);
}

#[tokio::test(start_paused = true)]
async fn an_irrelevant_taint_enqueues_no_daemon_set() {
    let (cluster, daemon) = running({
        let mut spec = unavailable(1);
        spec["template"] = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        spec
    })
    .await;
    tokio::time::sleep(5 * S).await;
    let keys = || {
        let text = daemon.metrics.render();
        let name = "workqueue_adds_total{name=\"daemonset\"}";
        text.lines().find(|line| line.starts_with(name)).map(str::to_owned)
    };
    let before = keys();
    assert!(before.is_some());
    taint(&cluster, &node(1), &["maintenance:NoExecute"]).await;
    tokio::time::sleep(2 * S).await;
    assert_eq!(keys(), before);
}

#[tokio::test(start_paused = true)]
async fn without_nodes_nothing_is_written_and_the_first_node_gets_its_pods() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    for number in 1..=3 {
        remove_node(&cluster, &node(number)).await;
    }
    create(&cluster, unavailable(1)).await;
    cluster.eventually(5, "it is seen", |c| is_complete(c, 0)).await;
    add_node(&cluster, "first", json!({})).await;
    rolled_out(&cluster, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_of_one_namespace_watches_all_nodes() {
    let cluster = Cluster::new().await;
    let mut config = windlass_testkit::cluster::unlimited();
    config.scope.namespace = Some("shop".into());
    let _daemon = cluster.start_with(1, config, |router| router);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
}
