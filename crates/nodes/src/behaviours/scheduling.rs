//! Pods that do not fit, and what makes them fit.

use super::*;

/// The nodes of the pods that are bound, and the names of those that are not.
async fn bound(rig: &Rig) -> (usize, Vec<String>) {
    let pods = rig.list(PODS).await;
    let (bound, waiting): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| pod["spec"]["nodeName"].is_string());
    (bound.len(), waiting.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect())
}

fn unscheduled(pod: &Value) -> Value {
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|condition| condition["type"] == "PodScheduled").unwrap().clone()
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_created_on_a_node_fails_where_its_host_port_is_taken() {
    let rig = Rig::new().with_pods();
    pass(10).await;
    let port = json!([{"containerPort": 80, "hostPort": 21017}]);
    let spec = |node: &str| json!({"nodeName": node, "containers": [{"name": "main", "image": "nginx", "ports": port}]});
    // Of two at once, one runs.
    for name in ["first", "second"] {
        rig.create_pod(name, spec("sandbox-node-1")).await;
    }
    rig.create_pod("elsewhere", spec("sandbox-node-2")).await;
    pass(2_000).await;
    assert_eq!(rig.phase("first").await, "Running");
    assert_eq!(rig.phase("elsewhere").await, "Running");
    let status = rig.get(PODS, "second").await.unwrap()["status"].clone();
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("NodePorts")));
    let message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    assert_eq!(status["message"], format!("Pod was rejected: {message}"));
    assert_eq!(rig.events("second").await, [format!("NodePorts {message}")]);

    rig.delete(PODS, "first", &DeleteParams::default()).await;
    pass(2_000).await;
    rig.create_pod("third", spec("sandbox-node-1")).await;
    pass(2_000).await;
    assert_eq!((rig.phase("second").await, rig.phase("third").await), ("Failed".into(), "Running".into()));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_created_on_a_node_without_room_fails_without_container_statuses() {
    let rig = Rig::new().with_pods();
    pass(10).await;
    let spec = |cpu: &str| {
        let resources = json!({"requests": {"cpu": cpu}});
        json!({"nodeName": "sandbox-node-1", "restartPolicy": "Never",
               "containers": [{"name": "main", "image": "nginx:exit-0-after-1m", "resources": resources}]})
    };
    // Of two at once, one runs.
    for (name, cpu) in [("first", "40"), ("second", "40"), ("third", "24")] {
        rig.create_pod(name, spec(cpu)).await;
    }
    pass(2_000).await;
    assert_eq!((rig.phase("first").await, rig.phase("third").await), ("Running".into(), "Running".into()));
    let status = rig.get(PODS, "second").await.unwrap()["status"].clone();
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("OutOfcpu")));
    let message = "Node didn't have enough resource: cpu, requested: 40000, used: 40000, capacity: 64000";
    assert_eq!(status["message"], format!("Pod was rejected: {message}"));
    assert_eq!(status["containerStatuses"], Value::Null);
    assert_eq!(rig.events("second").await, [format!("OutOfcpu {message}")]);
    pass(60_000).await;
    rig.create_pod("fourth", spec("64")).await;
    pass(2_000).await;
    assert_eq!(rig.phase("fourth").await, "Running", "the others have ended");
}

#[tokio::test(start_paused = true)]
async fn the_fourth_pod_with_a_host_port_waits_for_one_of_three_nodes() {
    let rig = Rig::new().with_pods();
    let port = json!([{"containerPort": 9999, "hostPort": 9999}]);
    let spec = json!({"containers": [{"name": "main", "image": "nginx", "ports": port}]});
    for name in ["a", "b", "c", "d"] {
        rig.create_pod(name, spec.clone()).await;
    }
    pass(2_000).await;
    assert_eq!(bound(&rig).await, (3, vec!["d".to_owned()]));
    let message = "0/3 nodes are available: 3 node(s) didn't have free ports for the requested pod ports. preemption: 0/3 \
                   nodes are available: 3 No preemption victims found for incoming pod.";
    let condition = unscheduled(&rig.get(PODS, "d").await.unwrap());
    assert_eq!((&condition["status"], &condition["reason"]), (&json!("False"), &json!("Unschedulable")));
    assert_eq!(condition["message"], message);
    assert_eq!(rig.events("d").await, [format!("FailedScheduling {message}")]);

    let before = rig.sandbox.revision();
    pass(3_600_000).await;
    assert_eq!(rig.sandbox.revision(), before, "nothing changes, and nothing is written");
    rig.delete(PODS, "b", &DeleteParams::default()).await;
    pass(3_000).await;
    assert_eq!(bound(&rig).await, (3, vec![]));
    assert_eq!(rig.phase("d").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_no_node_can_meet_waits_until_one_can() {
    let rig = Rig::new().with_pods();
    let asking = |requests: Value| json!({"containers": [{"name": "main", "image": "nginx", "resources": {"requests": requests}}]});
    rig.create_pod("huge", asking(json!({"cpu": "5000"}))).await;
    let gpu = json!({"containers": [{"name": "main", "image": "nginx", "resources": {"limits": {"example.com/gpu": "4"}}}]});
    rig.create_pod("gpu", gpu).await;
    rig.create_pod("web", asking(json!({"cpu": "1", "memory": "1Gi"}))).await;
    pass(2_000).await;
    assert_eq!(bound(&rig).await, (1, vec!["gpu".to_owned(), "huge".to_owned()]));
    let message = |resource: &str| {
        format!(
            "0/3 nodes are available: 3 Insufficient {resource}. preemption: 0/3 nodes are available: 3 Preemption is not \
             helpful for scheduling."
        )
    };
    let huge = unscheduled(&rig.get(PODS, "huge").await.unwrap());
    assert_eq!(huge["message"], message("cpu"));
    let needy = unscheduled(&rig.get(PODS, "gpu").await.unwrap());
    assert_eq!(needy["message"], message("example.com/gpu"));

    let resources = json!({"example.com/gpu": "4"});
    let patch = json!({"status": {"capacity": resources, "allocatable": resources}});
    let parameters = PatchParams::default();
    let request =
        Request::new(NODES).patch_subresource("status", "sandbox-node-2", &parameters, &Patch::Merge(patch));
    send(&rig.client, request).await.unwrap();
    pass(2_000).await;
    assert_eq!(rig.get(PODS, "gpu").await.unwrap()["spec"]["nodeName"], "sandbox-node-2");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_needs_another_waits_for_it() {
    let rig = Rig::new().with_pods();
    let required =
        json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}}]);
    let near = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}});
    rig.create_pod("web", json!({"affinity": near})).await;
    pass(2_000).await;
    assert_eq!(bound(&rig).await, (0, vec!["web".to_owned()]));
    let labels = json!({"app": "db"});
    let db = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db", "namespace": "default", "labels": labels},
                    "spec": {"nodeSelector": {"kubernetes.io/hostname": "sandbox-node-3"},
                             "containers": [{"name": "main", "image": "nginx"}]}});
    rig.create(PODS, db).await;
    pass(2_000).await;
    assert_eq!(rig.get(PODS, "web").await.unwrap()["spec"]["nodeName"], "sandbox-node-3");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_spread_was_not_kept_fits_when_another_is_being_deleted() {
    let rig = Rig::new().with_pods();
    rig.patch(NODES, "sandbox-node-3", json!({"spec": {"unschedulable": true}})).await;
    let constraint = json!({"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                            "labelSelector": {"matchLabels": {"app": "web"}}});
    let mut names = Vec::new();
    for number in 0..3 {
        names.push(format!("web-{number}"));
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
                         "metadata": {"name": names[number], "namespace": "default", "labels": {"app": "web"}},
                         "spec": {"topologySpreadConstraints": [constraint],
                                  "containers": [{"name": "main", "image": "nginx"}]}});
        rig.create(PODS, pod).await;
        pass(1_000).await;
    }
    assert_eq!(
        bound(&rig).await,
        (2, vec!["web-2".to_owned()]),
        "no more than one more than on the cordoned node"
    );
    // A finalizer keeps the pod, and so what it takes of its node.
    rig.patch(PODS, "web-0", json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    rig.delete(PODS, "web-0", &DeleteParams::default()).await;
    pass(1_000).await;
    assert_eq!(bound(&rig).await, (3, vec![]));
}
