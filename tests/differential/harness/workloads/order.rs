//! The deletion order of pods.

use serde_json::json;

use super::super::objects::{Object, deployment, replica_set, replication_controller};
use super::super::stage::{Pod, Stage};

super::workloads! {
    deletion_cost,
    deletion_cost_with_a_replication_controller,
    not_ready_goes_first,
    pods_without_a_node_are_deleted_first,
    pods_with_the_most_restarts_are_deleted_first,
    the_younger_pod_is_deleted_first_by_orders_of_magnitude,
    pods_of_one_node_with_a_deployment,
    pods_of_one_node_with_a_replica_set,
    restarts_of_init_containers,
}

/// So many pods, which the script then makes different.
async fn pods(s: &Stage, owner: Object, count: i64) -> Vec<Pod> {
    s.create(owner.replicas(count)).await;
    s.rest().await;
    s.active()
}

/// Scales down one by one, so that the whole order shows.
async fn one_after_the_other(s: &Stage, kind: &str, name: &str, from: i64) {
    s.rest().await;
    for size in (0..from).rev() {
        s.scale(kind, name, size).await;
        s.rest().await;
    }
}

async fn cost(s: &Stage, pod: &Pod, cost: &str) {
    s.tag(pod, &format!("cost {cost:?}"));
    let annotations = json!({"controller.kubernetes.io/pod-deletion-cost": cost});
    s.patch_pod(pod, json!({"metadata": {"annotations": annotations}})).await;
    s.ready_since(pod, 3600).await;
}

async fn deletion_cost(s: &Stage) {
    let pods = pods(s, replica_set("bare"), 4).await;
    s.act("costs");
    for (pod, value) in pods.iter().zip(["10", "-10", "2147483647", "1"]) {
        cost(s, pod, value).await;
    }
    one_after_the_other(s, "ReplicaSet", "bare", 4).await;
}

async fn deletion_cost_with_a_replication_controller(s: &Stage) {
    let pods = pods(s, replication_controller("old"), 3).await;
    s.act("costs");
    for (pod, value) in pods.iter().zip(["10", "-10", "1"]) {
        cost(s, pod, value).await;
    }
    one_after_the_other(s, "ReplicationController", "old", 3).await;
}

async fn not_ready_goes_first(s: &Stage) {
    let pods = pods(s, replica_set("bare"), 4).await;
    s.act("two ready, one not, one bound");
    s.tag(&pods[0], "ready for an hour");
    s.ready_since(&pods[0], 3600).await;
    s.tag(&pods[1], "running, not ready");
    s.unready(&pods[1]).await;
    s.tag(&pods[2], "pending, with a node");
    s.bind(&pods[2], "node-0").await;
    s.tag(&pods[3], "ready for a day");
    s.ready_since(&pods[3], 86400).await;
    one_after_the_other(s, "ReplicaSet", "bare", 4).await;
}

async fn pods_without_a_node_are_deleted_first(s: &Stage) {
    let pods = pods(s, replica_set("bare"), 4).await;
    s.act("costs, and two without a node");
    for (number, pod) in pods.iter().enumerate() {
        let value = (number + 1).to_string();
        let annotations = json!({"controller.kubernetes.io/pod-deletion-cost": value});
        s.patch_pod(pod, json!({"metadata": {"annotations": annotations}})).await;
        s.tag(pod, &format!("cost {value}"));
    }
    s.bind(&pods[0], "node-0").await;
    s.bind(&pods[1], "node-0").await;
    one_after_the_other(s, "ReplicaSet", "bare", 4).await;
}

async fn pods_with_the_most_restarts_are_deleted_first(s: &Stage) {
    let pods = pods(s, replica_set("bare"), 4).await;
    s.act("restarts");
    for (pod, restarts) in pods.iter().zip([3, 7, 0, 1]) {
        s.tag(pod, &format!("{restarts} restarts"));
        s.ready_after_restarts(pod, restarts, 3600).await;
    }
    one_after_the_other(s, "ReplicaSet", "bare", 4).await;
}

async fn the_younger_pod_is_deleted_first_by_orders_of_magnitude(s: &Stage) {
    let pods = pods(s, replica_set("bare"), 5).await;
    s.act("ages");
    for (pod, seconds) in pods.iter().zip([10, 1000, 100, 100_000, 1_000_000]) {
        s.tag(pod, &format!("ready for {seconds} s"));
        s.ready_since(pod, seconds).await;
    }
    one_after_the_other(s, "ReplicaSet", "bare", 5).await;
}

/// Two ReplicaSets of one Deployment have ready pods on the same nodes, and the older one is scaled down.
async fn pods_of_one_node_with_a_deployment(s: &Stage) {
    let old = pods(s, deployment("web").rolling(3, 0), 3).await;
    s.act("each on a node");
    for (pod, node) in old.iter().zip(["node-a", "node-b", "node-c"]) {
        s.tag(pod, &format!("on {node}"));
        s.bind(pod, node).await;
        s.ready_since(pod, 3600).await;
    }
    s.rest().await;
    s.image("web", "v2").await;
    s.rest().await;
    for node in ["node-b", "node-c", "node-a"] {
        s.act(format!("a new pod is ready on {node}"));
        let new = s.active().into_iter().find(|pod| !pod.is_ready()).unwrap();
        s.bind(&new, node).await;
        s.ready(&new).await;
        s.rest().await;
    }
}

async fn pods_of_one_node_with_a_replica_set(s: &Stage) {
    let pods = pods(s, replica_set("bare"), 3).await;
    s.act("two of three on one node");
    for (pod, (node, restarts)) in pods.iter().zip([("node-a", 0), ("node-b", 2), ("node-a", 1)]) {
        s.tag(pod, &format!("on {node} with {restarts} restarts"));
        s.bind(pod, node).await;
        s.ready_after_restarts(pod, restarts, 3600).await;
    }
    one_after_the_other(s, "ReplicaSet", "bare", 3).await;
}

async fn restarts_of_init_containers(s: &Stage) {
    let init = json!([{"name": "once", "image": "app:v1"}, {"name": "side", "image": "app:v1", "restartPolicy": "Always"}]);
    let mut owner = replica_set("bare");
    owner.0["spec"]["template"]["spec"]["initContainers"] = init;
    let pods = pods(s, owner, 3).await;
    s.act("restarts of different containers");
    // Of the container, of the ordinary init container, of the sidecar.
    for (pod, [app, once, side]) in pods.iter().zip([[1, 0, 0], [0, 9, 0], [0, 0, 5]]) {
        s.tag(pod, &format!("restarts: container {app}, init container {once}, sidecar {side}"));
        s.ready_after_restarts(pod, app, 3600).await;
        s.init_restarts(pod, once, side).await;
    }
    one_after_the_other(s, "ReplicaSet", "bare", 3).await;
}
