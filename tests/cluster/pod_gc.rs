//! The pod garbage collector against the embedded API server, in virtual time. It runs alone, so that nobody else deletes pods.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_testkit::cluster::{Cluster, Daemon, unlimited};

const PODS: &str = "/api/v1/namespaces/shop/pods";
const NAME: &str = "pod-garbage-collector-controller";

fn start(cluster: &Cluster, terminated_pod_threshold: i64) -> Daemon {
    let enabled = Enabled::none().with(NAME);
    let config = ControllerConfig { enabled, terminated_pod_threshold, ..unlimited() };
    cluster.start_with(1, config, |router| router)
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// Creates a pod on a node that no kubelet looks after.
async fn create(cluster: &Cluster, name: &str, node: &str, finalizers: Value) {
    let pod = json!({
        "metadata": {"name": name, "finalizers": finalizers},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "img:v1"}]},
    });
    cluster.call(Method::POST, PODS, &pod).await;
}

async fn status(cluster: &Cluster, name: &str, status: Value) {
    cluster.call(Method::PATCH, &format!("{PODS}/{name}/status"), &json!({"status": status})).await;
}

async fn node(cluster: &Cluster, name: &str, spec: Value) {
    cluster.call(Method::POST, "/api/v1/nodes", &json!({"metadata": {"name": name}, "spec": spec})).await;
}

fn names(cluster: &Cluster) -> Vec<String> {
    let pods = cluster.objects("Pod");
    let mut names: Vec<String> =
        pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_gone_fail_and_go_after_forty_seconds() {
    let cluster = Cluster::new().await;
    node(&cluster, "far", json!({})).await;
    create(&cluster, "a", "far", json!(["example.com/keep"])).await;
    let daemon = start(&cluster, 0);
    seconds(100).await;
    assert_eq!(names(&cluster), ["a"]);
    cluster.call(Method::DELETE, "/api/v1/nodes/far", &json!({})).await;
    seconds(35).await;
    assert!(cluster.objects("Pod")[0]["metadata"]["deletionTimestamp"].is_null());
    seconds(10).await;
    let pod = cluster.objects("Pod").remove(0);
    assert!(pod["metadata"]["deletionTimestamp"].is_string(), "{pod}");
    assert_eq!(pod["status"]["phase"], "Failed");
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|c| c["type"] == "DisruptionTarget").unwrap();
    assert_eq!((&target["reason"], &target["status"]), (&json!("DeletionByPodGC"), &json!("True")));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_back_keeps_its_pods() {
    let cluster = Cluster::new().await;
    node(&cluster, "far", json!({})).await;
    create(&cluster, "a", "far", json!([])).await;
    let daemon = start(&cluster, 0);
    cluster.call(Method::DELETE, "/api/v1/nodes/far", &json!({})).await;
    seconds(30).await;
    node(&cluster, "far", json!({})).await;
    seconds(900).await;
    assert_eq!(names(&cluster), ["a"]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn ended_pods_beyond_the_threshold_go_oldest_first() {
    let cluster = Cluster::new().await;
    node(&cluster, "far", json!({})).await;
    let daemon = start(&cluster, 2);
    for name in ["a", "b", "c", "d"] {
        create(&cluster, name, "far", json!([])).await;
        seconds(2).await;
    }
    for name in ["d", "c", "b"] {
        status(&cluster, name, json!({"phase": "Succeeded"})).await;
    }
    seconds(25).await;
    assert_eq!(names(&cluster), ["a", "c", "d"]);
    status(&cluster, "a", json!({"phase": "Failed", "reason": "Evicted"})).await;
    seconds(25).await;
    assert_eq!(names(&cluster), ["c", "d"]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_goes_if_its_node_is_out_of_service_and_not_ready() {
    let cluster = Cluster::new().await;
    node(&cluster, "far", json!({})).await;
    create(&cluster, "a", "far", json!([])).await;
    create(&cluster, "b", "far", json!([])).await;
    let daemon = start(&cluster, 0);
    // Its kubelet, which the cluster simulates, falls silent.
    seconds(5).await;
    let silent = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
    cluster.call(Method::PATCH, "/api/v1/nodes/far/status", &silent).await;
    cluster.call(Method::DELETE, &format!("{PODS}/a"), &json!({})).await;
    seconds(200).await;
    assert_eq!(names(&cluster), ["a", "b"], "the kubelet may be back");
    let taints = json!([{"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoSchedule"}]);
    cluster.call(Method::PATCH, "/api/v1/nodes/far", &json!({"spec": {"taints": taints}})).await;
    seconds(2).await;
    assert_eq!(names(&cluster), ["b"]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_that_was_never_scheduled_goes() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 0);
    let pod = json!({
        "metadata": {"name": "a", "finalizers": ["example.com/keep"]},
        "spec": {"schedulingGates": [{"name": "example.com/gate"}], "containers": [{"name": "c", "image": "img:v1"}]},
    });
    cluster.call(Method::POST, PODS, &pod).await;
    cluster.call(Method::DELETE, &format!("{PODS}/a"), &json!({})).await;
    seconds(30).await;
    assert_eq!(cluster.objects("Pod")[0]["status"]["phase"], "Failed");
    daemon.stop().await;
}
