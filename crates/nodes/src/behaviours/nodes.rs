//! Nodes that are created, deleted, tainted, cordoned or not ready, and the pods that are bound to one node only.

use super::*;

/// A pod as the DaemonSet controller creates it for a node.
fn daemon(node: &str, tolerations: Value) -> Value {
    json!({
        "tolerations": tolerations,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]}}},
    })
}

async fn node_of(rig: &Rig, pod: &str) -> Value {
    rig.get(PODS, pod).await.unwrap()["spec"]["nodeName"].clone()
}

/// Why the pod has no node.
async fn complaint(rig: &Rig, pod: &str) -> String {
    let pod = rig.get(PODS, pod).await.unwrap();
    let condition = &pod["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("False")));
    assert_eq!(condition["reason"], "Unschedulable");
    condition["message"].as_str().unwrap().to_owned()
}

async fn taints(rig: &Rig, node: &str) -> Vec<String> {
    let node = rig.get(NODES, node).await.unwrap();
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    taints.iter().map(|taint| format!("{}:{}", text(&taint["key"]), text(&taint["effect"]))).collect()
}

async fn set_ready(rig: &Rig, node: &str, status: &str) {
    let conditions = json!([{"type": "Ready", "status": status}]);
    let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
    let request = Request::new(NODES).patch_subresource("status", node, &PatchParams::default(), &patch);
    send(&rig.client, request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_daemon_pod_is_bound_to_its_node_only() {
    let rig = Rig::new().with_pods();
    pass(10).await;
    let exists =
        json!([{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]);
    rig.patch(NODES, "sandbox-node-3", json!({"spec": {"unschedulable": true}})).await;
    pass(10).await;
    rig.create_pod("two", daemon("sandbox-node-2", json!([]))).await;
    rig.create_pod("three", daemon("sandbox-node-3", exists)).await;
    rig.create_pod("refused", daemon("sandbox-node-3", json!([]))).await;
    rig.create_pod("nowhere", daemon("sandbox-node-9", json!([]))).await;
    pass(2_000).await;
    assert_eq!(node_of(&rig, "two").await, "sandbox-node-2");
    assert_eq!(node_of(&rig, "three").await, "sandbox-node-3", "cordoned, and tolerated");
    assert_eq!(
        complaint(&rig, "refused").await,
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. \
         preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    );
    assert_eq!(
        complaint(&rig, "nowhere").await,
        "0/3 nodes are available: 3 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are \
         available: 3 Preemption is not helpful for scheduling."
    );
    // A node with that name is created: its pod has waited for it.
    rig.create(NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "sandbox-node-9"}}))
        .await;
    pass(2_000).await;
    assert_eq!(node_of(&rig, "nowhere").await, "sandbox-node-9");
    assert!(ready(&rig.get(PODS, "nowhere").await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_node_created_by_a_user_is_simulated() {
    let rig = Rig::new();
    let options = kubelet::Options { nodes: 0, ..kubelet::Options::new(rig.now.clone()) };
    let rig = rig.with_pods_that(options);
    rig.create_pod("web", json!({"nodeSelector": {"zone": "a"}})).await;
    pass(1_000).await;
    assert_eq!(rig.names(NODES).await, Vec::<String>::new());
    assert_eq!(complaint(&rig, "web").await, "no nodes available to schedule pods");
    rig.create(NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "mine"}})).await;
    pass(1_000).await;
    let node = rig.get(NODES, "mine").await.unwrap();
    assert!(ready(&node), "{node:#}");
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "mine");
    assert_eq!(node["status"]["addresses"][0]["address"], "10.0.0.1");
    assert_eq!(node["spec"], json!({}));
    rig.patch(NODES, "mine", json!({"metadata": {"labels": {"zone": "a"}}})).await;
    pass(2_000).await;
    let pod = rig.get(PODS, "web").await.unwrap();
    assert!(ready(&pod), "{pod:#}");
    assert_eq!(pod["status"]["hostIP"], "10.0.0.1");
    let before = rig.sandbox.revision();
    pass(600_000).await;
    assert_eq!(rig.sandbox.revision(), before);
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_deleted_node_are_deleted_after_forty_seconds() {
    let rig = Rig::new().with_pods();
    rig.create_pod("one", daemon("sandbox-node-1", json!([]))).await;
    rig.create_pod("two", daemon("sandbox-node-2", json!([]))).await;
    pass(2_000).await;
    rig.delete(NODES, "sandbox-node-1", &DeleteParams::default()).await;
    rig.delete(NODES, "sandbox-node-2", &DeleteParams::default()).await;
    rig.delete(PODS, "one", &DeleteParams::default()).await;
    pass(30_000).await;
    assert_eq!(rig.names(PODS).await, ["one", "two"], "no kubelet ends them");
    rig.create(NODES, json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "sandbox-node-2"}}))
        .await;
    pass(20_000).await;
    assert_eq!(rig.names(PODS).await, ["two"], "its node came back in time");
    assert!(ready(&rig.get(PODS, "two").await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn taints_follow_the_state_of_a_node_and_pods_with_them() {
    let rig = Rig::new().with_pods();
    let silence =
        json!([{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}]);
    rig.create_pod("stays", daemon("sandbox-node-1", silence)).await;
    rig.create_pod("leaves", daemon("sandbox-node-1", json!([]))).await;
    pass(2_000).await;
    rig.patch(NODES, "sandbox-node-1", json!({"spec": {"unschedulable": true}})).await;
    pass(10).await;
    assert_eq!(taints(&rig, "sandbox-node-1").await, ["node.kubernetes.io/unschedulable:NoSchedule"]);
    rig.patch(NODES, "sandbox-node-1", json!({"spec": {"unschedulable": null}})).await;
    set_ready(&rig, "sandbox-node-1", "Unknown").await;
    pass(1_000).await;
    let unreachable =
        ["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"];
    assert_eq!(taints(&rig, "sandbox-node-1").await, unreachable);
    let pod = rig.get(PODS, "stays").await.unwrap();
    assert!(!ready(&pod) && pod["status"]["phase"] == "Running", "{pod:#}");

    // The pods that do not tolerate it are deleted, but no kubelet terminates them.
    pass(320_000).await;
    let pod = rig.get(PODS, "leaves").await.unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    assert!(rig.get(PODS, "stays").await.unwrap()["metadata"]["deletionTimestamp"].is_null());

    set_ready(&rig, "sandbox-node-1", "True").await;
    pass(2_000).await;
    assert!(taints(&rig, "sandbox-node-1").await.is_empty());
    assert_eq!(rig.names(PODS).await, ["stays"]);
    assert!(ready(&rig.get(PODS, "stays").await.unwrap()), "ready again with its node");
}

#[tokio::test(start_paused = true)]
async fn a_no_execute_taint_evicts_pods() {
    let rig = Rig::new().with_pods();
    let for_a_minute =
        json!([{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]);
    rig.create_pod("minute", daemon("sandbox-node-1", for_a_minute)).await;
    rig.create_pod("never", daemon("sandbox-node-1", json!([{"operator": "Exists"}]))).await;
    rig.create_pod("now", daemon("sandbox-node-1", json!([]))).await;
    pass(2_000).await;
    let taint = json!({"key": "gpu", "value": "yes", "effect": "NoExecute"});
    rig.patch(NODES, "sandbox-node-1", json!({"spec": {"taints": [taint]}})).await;
    pass(5_000).await;
    assert_eq!(rig.names(PODS).await, ["minute", "never"]);
    pass(60_000).await;
    assert_eq!(rig.names(PODS).await, ["never"]);
    let events = rig.list("/api/v1/namespaces/default/events").await;
    assert!(events.iter().any(|event| event["reason"] == "TaintManagerEviction"), "{events:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_a_taint_evicts_says_so_in_a_condition() {
    let rig = Rig::new().with_pods();
    rig.create_pod(
        "job",
        json!({"nodeName": "sandbox-node-1", "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "nginx:exit-0-after-1h"}]}),
    )
    .await;
    rig.patch(PODS, "job", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    pass(2_000).await;
    let taint = json!({"key": "gpu", "effect": "NoExecute"});
    rig.patch(NODES, "sandbox-node-1", json!({"spec": {"taints": [taint]}})).await;
    pass(5_000).await;
    let pod = rig.get(PODS, "job").await.unwrap();
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(pod["status"]["phase"], "Failed");
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let disrupted = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!(
        (&disrupted["status"], &disrupted["reason"]),
        (&json!("True"), &json!("DeletionByTaintManager"))
    );
    assert_eq!(disrupted["message"], "Taint manager: deleting due to NoExecute taint");
}

#[tokio::test(start_paused = true)]
async fn nodes_are_created_with_the_labels_and_taints_of_the_options() {
    let rig = Rig::new();
    let label = |node: Option<&str>, key: &str| kubelet::NodeLabel {
        node: node.map(str::to_owned),
        key: key.to_owned(),
        value: "x".to_owned(),
    };
    let taint = kubelet::NodeTaint {
        node: Some("sandbox-node-2".to_owned()),
        key: "gpu".to_owned(),
        value: String::new(),
        effect: "NoSchedule".to_owned(),
    };
    let options = kubelet::Options {
        node_labels: vec![label(None, "all"), label(Some("sandbox-node-3"), "one")],
        node_taints: vec![taint],
        ..kubelet::Options::new(rig.now.clone())
    };
    let rig = rig.with_pods_that(options);
    pass(1_000).await;
    let labels = |node: &Value| node["metadata"]["labels"].clone();
    let nodes = rig.list(NODES).await;
    assert!(nodes.iter().all(|node| labels(node)["all"] == "x"));
    let one: Vec<bool> = nodes.iter().map(|node| labels(node)["one"] == "x").collect();
    assert_eq!(one, [false, false, true]);
    assert_eq!(taints(&rig, "sandbox-node-1").await, Vec::<String>::new());
    assert_eq!(taints(&rig, "sandbox-node-2").await, ["gpu:NoSchedule"]);
}

/// When the Lease of a node was renewed last, and for which node.
async fn renewed(rig: &Rig, node: &str) -> Option<(Timestamp, String)> {
    let lease = rig.get("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", node).await?;
    let owner = lease["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap().to_owned();
    Some((lease["spec"]["renewTime"].as_str().unwrap().parse().unwrap(), owner))
}

#[tokio::test(start_paused = true)]
async fn each_node_renews_its_lease_as_long_as_it_exists() {
    let rig = Rig::new();
    let heartbeat = Some(Duration::from_secs(10));
    let options = kubelet::Options { nodes: 2, heartbeat, ..kubelet::Options::new(rig.now.clone()) };
    let rig = rig.with_pods_that(options);
    pass(1_000).await;
    let first = renewed(&rig, "sandbox-node-1").await.unwrap();
    let uid = rig.get(NODES, "sandbox-node-1").await.unwrap()["metadata"]["uid"].clone();
    assert_eq!(uid, first.1);
    pass(25_000).await;
    let second = renewed(&rig, "sandbox-node-1").await.unwrap();
    assert_eq!(second.0.duration_since(first.0).as_secs(), 20);
    // The node lifecycle controller missed it, and a user pulled the plug of the other.
    let unknown = |reason: &str| json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": reason}]}});
    for (node, reason) in [("sandbox-node-1", "NodeStatusUnknown"), ("sandbox-node-2", "Unplugged")] {
        let patch = Patch::Strategic(unknown(reason));
        let request = Request::new(NODES).patch_subresource("status", node, &PatchParams::default(), &patch);
        send(&rig.client, request).await.unwrap();
    }
    pass(1_000).await;
    assert!(ready(&rig.get(NODES, "sandbox-node-1").await.unwrap()));
    assert!(!ready(&rig.get(NODES, "sandbox-node-2").await.unwrap()));
    rig.delete(NODES, "sandbox-node-1", &DeleteParams::default()).await;
    let deleted = renewed(&rig, "sandbox-node-1").await.unwrap();
    pass(60_000).await;
    assert_eq!(renewed(&rig, "sandbox-node-1").await.unwrap(), deleted);
    // Another node of that name takes the Lease over.
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "sandbox-node-1"}});
    let uid = rig.create(NODES, node).await["metadata"]["uid"].clone();
    pass(11_000).await;
    assert_eq!(uid, renewed(&rig, "sandbox-node-1").await.unwrap().1);
}
