//! The daemon as a process of its own behind a bad network: real HTTP, real time.

use std::fs;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testkit::process::{Server, WAIT_TIMEOUT};
use windlass_testkit::proxy::Proxy;

const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";

fn replica_set(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}
    })
}

/// Upstream, measured under the same conditions, created 237 pods.
#[tokio::test]
async fn with_a_third_of_the_replies_lost_and_watches_three_seconds_late_exactly_200_pods_are_created() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.client.clone(), 30, Duration::from_secs(3), 7).await;
    let config = server.file("proxy.kubeconfig");
    fs::write(&config, proxy.kubeconfig()).unwrap();
    for n in 0..40 {
        server.call(Method::POST, REPLICA_SETS, &replica_set(&format!("set{n}"), 5)).await;
    }
    let config = format!("--kubeconfig={}", config.display());
    let _daemon = server.daemon("daemon.log", &[&config, "--kube-api-qps=500", "--kube-api-burst=500"]);
    let end = Instant::now() + WAIT_TIMEOUT;
    loop {
        let replica_sets = server.call(Method::GET, REPLICA_SETS, &Value::Null).await;
        let replica_sets = replica_sets["items"].as_array().unwrap();
        if replica_sets.iter().all(|replica_set| replica_set["status"]["availableReplicas"] == 5) {
            break;
        }
        let log = fs::read_to_string(server.file("daemon.log")).unwrap_or_default();
        assert!(Instant::now() < end, "the ReplicaSets are not complete\n{log}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // Long enough for a decision on what the watches show late.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let lost = proxy.counts.lost.load(Ordering::SeqCst);
    assert!(lost > 40, "only {lost} replies were lost");
    assert_eq!(proxy.counts.pods.load(Ordering::SeqCst), 200, "{lost} replies were lost");
}
