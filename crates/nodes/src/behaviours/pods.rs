//! Nodes, and pods from their creation to their end.

use super::*;

#[tokio::test(start_paused = true)]
async fn three_ready_nodes_appear_and_a_pod_becomes_ready_on_one_after_the_delay() {
    let rig = Rig::new().with_pods();
    pass(10).await;
    assert_eq!(rig.names(NODES).await, ["sandbox-node-1", "sandbox-node-2", "sandbox-node-3"]);
    assert!(rig.list(NODES).await.iter().all(ready));
    rig.create_pod("web", json!({})).await;
    pass(100).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    assert_eq!(pod["spec"]["nodeName"], "sandbox-node-1");
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
    pass(1000).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    assert!(ready(&pod), "{pod:#}");
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(pod["status"]["podIP"], "10.244.0.1");
    assert_eq!(pod["status"]["hostIP"], "10.0.0.1");
}

#[tokio::test(start_paused = true)]
async fn a_settled_cluster_writes_nothing_for_an_hour() {
    let rig = Rig::new().with_pods();
    rig.create_pod("web", json!({})).await;
    pass(5_000).await;
    assert_eq!(rig.phase("web").await, "Running");
    let before = rig.sandbox.revision();
    pass(3_600_000).await;
    assert_eq!(rig.sandbox.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn the_same_requests_give_the_same_history() {
    async fn history() -> String {
        let rig = Rig::new().with_pods();
        for name in ["a", "b", "c", "d", "e"] {
            rig.create_pod(name, json!({})).await;
        }
        pass(2_000).await;
        rig.delete(PODS, "c", &DeleteParams::default()).await;
        pass(2_000).await;
        ["Node", "Pod", "Event"].map(|kind| json!(rig.sandbox.objects(kind)).to_string()).join("\n")
    }
    let first = history().await;
    assert!(first.contains("sandbox-node-3") && first.contains("Killing"), "{first}");
    assert_eq!(first, history().await);
}

#[tokio::test(start_paused = true)]
async fn nodes_that_exist_are_used_and_none_are_created() {
    let rig = Rig::new();
    rig.create(NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}})).await;
    let rig = rig.with_pods();
    rig.create_pod("web", json!({})).await;
    pass(2_000).await;
    assert_eq!(rig.names(NODES).await, ["mine"]);
    assert_eq!(rig.get(PODS, "web").await.unwrap()["spec"]["nodeName"], "mine");
    assert_eq!(rig.phase("web").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn taints_of_new_nodes_are_removed_before_the_first_pod_needs_them() {
    let rig = Rig::new().with_pods();
    rig.create_pod("web", json!({})).await;
    pass(2_000).await;
    assert_eq!(rig.phase("web").await, "Running");
    let events = rig.list("/api/v1/namespaces/default/events").await;
    assert!(!events.iter().any(|event| event["reason"] == "FailedScheduling"), "{events:#?}");

    let gpu = json!({"taints": [{"key": "gpu", "effect": "NoSchedule"}]});
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "late"}, "spec": gpu});
    rig.create(NODES, node).await;
    pass(2_000).await;
    assert_eq!(rig.get(NODES, "late").await.unwrap()["spec"], gpu);
    for node in rig.list(NODES).await.iter().filter(|node| node["metadata"]["name"] != "late") {
        assert!(node["spec"]["taints"].is_null(), "{node}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_spread_over_the_nodes() {
    let rig = Rig::new().with_pods();
    for number in 0..9 {
        rig.create_pod(&format!("web-{number}"), json!({})).await;
    }
    pass(2_000).await;
    for node in 1..=3 {
        let name = format!("sandbox-node-{node}");
        let on_it =
            rig.list(PODS).await.iter().filter(|pod| pod["spec"]["nodeName"] == name.as_str()).count();
        assert_eq!(on_it, 3, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_unschedulable_pod_reports_it_and_is_bound_when_a_node_becomes_suitable() {
    let rig = Rig::new().with_pods();
    pass(10).await;
    for node in ["sandbox-node-1", "sandbox-node-2", "sandbox-node-3"] {
        rig.patch(NODES, node, json!({"spec": {"unschedulable": true}})).await;
    }
    pass(10).await;
    rig.create_pod("web", json!({})).await;
    pass(1_000).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    let condition = &pod["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("PodScheduled"), &json!("Unschedulable")));
    assert_eq!(
        condition["message"],
        "0/3 nodes are available: 3 node(s) were unschedulable. preemption: 0/3 nodes are \
        available: 3 Preemption is not helpful for scheduling."
    );
    let events = rig.list("/api/v1/namespaces/default/events").await;
    assert!(events.iter().any(|event| event["reason"] == "FailedScheduling"), "{events:#?}");
    rig.patch(NODES, "sandbox-node-2", json!({"spec": {"unschedulable": false}})).await;
    pass(2_000).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    assert_eq!(pod["spec"]["nodeName"], "sandbox-node-2");
    assert!(ready(&pod));
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_pulled_keeps_its_pod_pending() {
    let rig = Rig::new();
    let options = kubelet::Options {
        never_ready: Some(regex_lite::Regex::new(":broken$").unwrap()),
        ..kubelet::Options::new(rig.now.clone())
    };
    let rig = rig.with_pods_that(options);
    rig.create_pod("web", json!({"containers": [{"name": "main", "image": "nginx:broken"}]})).await;
    pass(600_000).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    assert_eq!(pod["status"]["phase"], "Pending");
    assert!(!ready(&pod));
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ImagePullBackOff");
    assert_eq!(waiting["message"], "Back-off pulling image \"nginx:broken\"");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_terminates_and_is_removed_after_the_delay() {
    let rig = Rig::new().with_pods();
    rig.create_pod("web", json!({})).await;
    pass(2_000).await;
    rig.delete(PODS, "web", &DeleteParams::default()).await;
    pass(100).await;
    let pod = rig.get(PODS, "web").await.expect("it terminates gracefully");
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    pass(1_000).await;
    assert!(rig.get(PODS, "web").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_with_a_finalizer_terminates_and_waits() {
    let rig = Rig::new().with_pods();
    rig.create_pod("web", json!({})).await;
    rig.patch(PODS, "web", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    pass(2_000).await;
    rig.delete(PODS, "web", &DeleteParams::default()).await;
    pass(5_000).await;
    let pod = rig.get(PODS, "web").await.expect("the finalizer holds it");
    assert_eq!(pod["status"]["phase"], "Succeeded");
    let before = rig.sandbox.revision();
    pass(60_000).await;
    assert_eq!(rig.sandbox.revision(), before, "it is not deleted again and again");
    rig.patch(PODS, "web", json!({"metadata": {"finalizers": null}})).await;
    assert!(rig.get(PODS, "web").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_recreated_pod_is_not_terminated_in_place_of_the_old_one() {
    let rig = Rig::new().with_pods();
    rig.create_pod("web", json!({})).await;
    pass(2_000).await;
    rig.delete(PODS, "web", &DeleteParams::default()).await;
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    rig.delete(PODS, "web", &now).await;
    rig.create_pod("web", json!({})).await;
    pass(10_000).await;
    let pod = rig.get(PODS, "web").await.expect("the successor lives");
    assert!(ready(&pod));
}

#[tokio::test(start_paused = true)]
async fn the_simulator_survives_broken_watches_and_a_compacted_history() {
    let rig = Rig::new().with_pods();
    rig.create_pod("before", json!({})).await;
    pass(2_000).await;
    rig.sandbox.break_watches();
    rig.create_pod("after", json!({})).await;
    rig.sandbox.compact();
    pass(60_000).await;
    assert!(ready(&rig.get(PODS, "after").await.unwrap()));
    rig.delete(PODS, "before", &DeleteParams::default()).await;
    pass(5_000).await;
    assert_eq!(rig.names(PODS).await, ["after"]);
}
