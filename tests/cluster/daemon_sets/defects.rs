//! Defects of upstream that only a running controller can show. The others are shown by plans alone:
//! `tests/planner/daemonset/defects.rs`.

use super::*;
use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::{Daemon, inject_faults, is_request};

async fn running(spec: Value) -> (Cluster, Daemon) {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    create(&cluster, spec).await;
    rolled_out(&cluster, 3).await;
    (cluster, daemon)
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_node_enqueues_the_daemon_sets_that_ran_there() {
    let (cluster, _daemon) = running(unavailable(1)).await;
    remove_node(&cluster, &node(1)).await;
    cluster.eventually(1, "it no longer counts as desired", |c| is_complete(c, 2)).await;
}

#[tokio::test(start_paused = true)]
async fn an_unbound_pod_is_deleted_when_its_node_becomes_unsuitable_or_is_deleted() {
    let cluster = Cluster::new().await;
    let full = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "full"}, "status": {"allocatable":
        {"pods": "0", "cpu": "1", "memory": "1"}, "capacity": {"pods": "0", "cpu": "1", "memory": "1"}}});
    cluster.call(Method::POST, NODES, &full).await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    cluster.eventually(10, "three are ready", |c| counts(c) == "4/4/4/3/3/0").await;
    assert_eq!(pod_on(&cluster, "full")["spec"]["nodeName"], Value::Null);
    taint(&cluster, "full", &["no:NoExecute"]).await;
    cluster.eventually(1, "its pod is gone", |c| !images(c).contains_key("full")).await;
    taint(&cluster, "full", &[]).await;
    cluster.eventually(1, "there is another", |c| images(c).contains_key("full")).await;
    remove_node(&cluster, "full").await;
    cluster
        .eventually(1, "it is deleted too", |c| !images(c).contains_key("full") && is_complete(c, 3))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_changes_the_status_when_it_is_added_and_removed() {
    let (cluster, _daemon) = running(unavailable(1)).await;
    taint(&cluster, &node(1), &["no:NoSchedule"]).await;
    cluster.eventually(1, "it is misscheduled", |c| counts(c) == "2/2/2/2/2/1").await;
    taint(&cluster, &node(1), &[]).await;
    cluster.eventually(2, "it is not", |c| is_complete(c, 3)).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_older_templates_are_not_relabelled_and_are_updated() {
    let (cluster, daemon) = running(on_delete()).await;
    set_image(&cluster, "v2").await;
    cluster.eventually(5, "there are two revisions", |c| revisions(c).len() == 2).await;
    let name = name_of(&pod_on(&cluster, &node(1)));
    cluster.call(Method::DELETE, &format!("{PODS}/{name}"), &Value::Null).await;
    cluster.eventually(10, "one is new", |c| counts(c) == "3/3/1/3/3/0").await;
    daemon.stop().await;
    let mut twin = cluster.objects("ControllerRevision").into_iter().find(|r| r["revision"] == 2).unwrap();
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        twin["metadata"].as_object_mut().unwrap().remove(field);
    }
    twin["metadata"]["name"] = "agent-twin".into();
    twin["metadata"]["labels"][HASH] = "twin".into();
    twin["revision"] = 3.into();
    cluster.call(Method::POST, REVISIONS, &twin).await;
    let _daemon = cluster.start_controllers(2);
    cluster.eventually(10, "the twin stays", |c| revisions(c) == [(1, "v1".into()), (3, "v2".into())]).await;
    let hashes = |c: &Cluster| pods(c).iter().filter(|p| p["metadata"]["labels"][HASH] == "twin").count();
    cluster.eventually(5, "one pod has its hash", |c| hashes(c) == 1).await;
    assert_eq!(counts(&cluster), "3/3/1/3/3/0");
    patch(&cluster, json!({"spec": unavailable(1)})).await;
    rolled_out(&cluster, 3).await;
    assert!(images(&cluster).values().all(|images| *images == ["v2"]));
}

#[tokio::test(start_paused = true)]
async fn with_surge_failed_pods_do_not_pile_up() {
    let (cluster, _daemon) = running(surge(1)).await;
    for _ in 0..200 {
        for pod in
            pods(&cluster).iter().filter(|p| target(p) == node(1) && !is_terminal(p) && !is_deleting(p))
        {
            let failed = json!({"phase": "Failed", "reason": "Evicted", "conditions": null});
            set_pod_status(&cluster, &name_of(pod), failed).await;
        }
        tokio::time::sleep(S).await;
        assert!(pods(&cluster).len() <= 4, "{}", pods(&cluster).len());
    }
    // 1 + 2 + 4 + … + 64 s make 127.
    let created = requested(&cluster, "create", "Pod") - 3;
    assert!((6..=9).contains(&created), "{created} in 200 s");
}

#[tokio::test(start_paused = true)]
async fn an_adopted_pod_of_another_template_is_not_new_because_of_its_generation() {
    let (cluster, _daemon) = running(unavailable(1)).await;
    let orphan = json!({"propagationPolicy": "Orphan"});
    cluster.call(Method::DELETE, &format!("{DAEMON_SETS}/agent"), &orphan).await;
    cluster.eventually(5, "it is deleted", |c| agent(c).is_null()).await;
    let mut again = daemon_set(unavailable(1));
    again["spec"]["template"]["spec"]["containers"][0]["image"] = "agent:v2".into();
    cluster.call(Method::POST, DAEMON_SETS, &again).await;
    rolled_out(&cluster, 3).await;
    assert!(images(&cluster).values().all(|images| *images == ["v2"]), "{:?}", images(&cluster));
}

#[tokio::test(start_paused = true)]
async fn a_stale_cache_causes_no_second_wave_of_deletions() {
    // The watch of pods stands still for three seconds each time that a pod is deleted.
    let cluster = Cluster::with(
        inject_faults(|request| {
            let is_watch = is_request(request, "watch", "Pod");
            if is_watch { FaultDecision::DelayReply(3 * S) } else { FaultDecision::Proceed }
        }),
        |options| options,
    )
    .await;
    let monitor = InvariantMonitor::of(&cluster);
    let _daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    set_image(&cluster, "v2").await;
    for _ in 0..600 {
        let gone = pods(&cluster).iter().filter(|pod| is_deleting(pod)).count();
        assert!(gone <= 1, "{gone} are being deleted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    rolled_out(&cluster, 3).await;
    assert_eq!(requested(&cluster, "delete", "Pod"), 3);
    monitor.assert_no_breach();
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_uses_up_the_budget_as_upstream_does_and_the_rollout_ends_when_it_is_back() {
    let (cluster, _daemon) = running({
        let mut spec = unavailable(1);
        spec["template"] = json!({"spec": {"tolerations": [{"operator": "Exists"}]}});
        spec
    })
    .await;
    let ready = async |status: &str| {
        let conditions = json!([{"type": "Ready", "status": status}]);
        let path = format!("{NODES}/{}/status", node(2));
        cluster.call(Method::PATCH, &path, &json!({"status": {"conditions": conditions}})).await;
    };
    ready("Unknown").await;
    tokio::time::sleep(5 * S).await;
    set_image(&cluster, "v2").await;
    tokio::time::sleep(120 * S).await;
    assert!(!is_complete(&cluster, 3));
    assert_eq!(requested(&cluster, "delete", "Pod"), 1, "only the one that is not available anyway");
    ready("True").await;
    rolled_out(&cluster, 3).await;
}

#[tokio::test(start_paused = true)]
async fn the_deletion_of_a_node_does_not_block_a_surge_on_other_nodes() {
    let (cluster, _daemon) = running(surge(1)).await;
    set_image(&cluster, "v2").await;
    remove_node(&cluster, &node(3)).await;
    rolled_out(&cluster, 2).await;
    assert_eq!(images(&cluster)[&node(1)], ["v2"]);
}

#[tokio::test(start_paused = true)]
async fn no_pod_is_created_for_a_node_deleted_before_the_request_is_sent() {
    let cluster = Cluster::new().await;
    let mut config = windlass_testkit::cluster::unlimited();
    // Everything after the first two requests waits for the rate limiter.
    (config.qps, config.burst) = (0.5, 2);
    let _daemon = cluster.start_with(1, config, |router| router);
    create(&cluster, unavailable(1)).await;
    tokio::time::sleep(S).await;
    let served = requested(&cluster, "create", "Pod");
    assert!(served < 3);
    for number in 1..=3 {
        remove_node(&cluster, &node(number)).await;
    }
    tokio::time::sleep(60 * S).await;
    assert_eq!(requested(&cluster, "create", "Pod"), served);
}

#[tokio::test(start_paused = true)]
async fn a_rollout_of_n_nodes_costs_two_writes_a_node_a_revision_and_few_statuses() {
    let (cluster, _daemon) = running(unavailable(1)).await;
    let before = writes(&cluster);
    set_image(&cluster, "v2").await;
    rolled_out(&cluster, 3).await;
    let all = cluster.writes().split_off(before);
    let of = |what: &str| all.iter().filter(|write| write.starts_with(what)).count();
    assert_eq!(
        (of("create Pod/"), of("delete Pod/"), of("create ControllerRevision/")),
        (3, 3, 1),
        "{all:?}"
    );
    assert!(of("patch DaemonSet/") <= 8, "{all:?}");
    assert_eq!(requested(&cluster, "update", "DaemonSet"), 0);
    tokio::time::sleep(30 * S).await;
    let settled = writes(&cluster);
    tokio::time::sleep(3600 * S).await;
    assert_eq!(writes(&cluster), settled);
}

#[tokio::test(start_paused = true)]
async fn a_name_of_253_letters_runs_and_the_largest_revision_number_does_not_wrap() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    let mut daemon_set = daemon_set(unavailable(1));
    let name = "a".repeat(253);
    daemon_set["metadata"]["name"] = name.as_str().into();
    cluster.call(Method::POST, DAEMON_SETS, &daemon_set).await;
    cluster
        .eventually(20, "it runs", |c| named(c, "DaemonSet", &name)["status"]["numberAvailable"] == 3)
        .await;
    let foreign = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": {"name": "last", "labels": {"app": "agent"}}, "revision": i64::MAX,
        "data": {"spec": {"template": {"$patch": "replace", "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "c", "image": "agent:v0"}]}}}}});
    cluster.call(Method::POST, REVISIONS, &foreign).await;
    tokio::time::sleep(5 * S).await;
    let before = writes(&cluster);
    tokio::time::sleep(60 * S).await;
    assert_eq!(writes(&cluster), before, "it settles");
    assert!(revisions(&cluster).iter().all(|(number, _)| *number > 0), "{:?}", revisions(&cluster));
}

#[tokio::test(start_paused = true)]
async fn a_busy_daemon_set_does_not_delay_another_on_a_new_node() {
    let cluster = Cluster::new().await;
    for n in 4..=200 {
        add_node(&cluster, &node(n), json!({})).await;
    }
    let mut config = windlass_testkit::cluster::unlimited();
    (config.qps, config.burst) = (20.0, 30);
    let _daemon = cluster.start_with(1, config, |router| router);
    for name in ["busy", "agent"] {
        let mut daemon_set = daemon_set(unavailable(1));
        daemon_set["metadata"]["name"] = name.into();
        daemon_set["spec"]["selector"]["matchLabels"] = json!({"app": name});
        daemon_set["spec"]["template"]["metadata"]["labels"] = json!({"app": name});
        daemon_set["spec"]["template"]["spec"]["nodeSelector"] =
            if name == "agent" { json!({"late": "yes"}) } else { json!({}) };
        cluster.call(Method::POST, DAEMON_SETS, &daemon_set).await;
    }
    tokio::time::sleep(2 * S).await;
    add_node(&cluster, "late", json!({"late": "yes"})).await;
    cluster.eventually(2, "the new node is served", |c| images(c).contains_key("late")).await;
    assert!(requested(&cluster, "create", "Pod") < 150, "the other is still busy");
}
