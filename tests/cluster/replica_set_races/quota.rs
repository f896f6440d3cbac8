//! ReplicaSets whose pods a quota refuses.

use std::sync::Arc;

use serde_json::{Value, json};
use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::{Cluster, forbidden, is_request};

use super::{PODS, REPLICA_SETS, S, create_replica_set, has, live, name_of, patch, replica_set_named};

/// Lets so many pods live at once, and refuses the others, as a quota does that is counted at once.
async fn with_quota(pods: usize) -> Cluster {
    let sandbox: Arc<std::sync::OnceLock<windlass_apiserver::Sandbox>> = Arc::default();
    let inner = sandbox.clone();
    let cluster = Cluster::answering(move |request| {
        let alive = |pod: &Value| !matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
        let used = || inner.get().map_or(0, |s| s.objects("Pod").iter().filter(|pod| alive(pod)).count());
        match is_request(request, "create", "Pod") && used() >= pods {
            true => forbidden("exceeded quota: pods"),
            false => FaultDecision::Proceed,
        }
    })
    .await;
    let _only_once = sandbox.set(cluster.sandbox.clone());
    cluster
}

#[tokio::test(start_paused = true)]
async fn quota_that_a_refused_replica_set_no_longer_needs_is_used_by_the_next_at_once() {
    let cluster = with_quota(2).await;
    let _daemon = cluster.start_controllers(1);
    create_replica_set(&cluster, "holder", 2).await;
    has(&cluster, "holder", 2).await;
    create_replica_set(&cluster, "first", 1).await;
    tokio::time::sleep(S).await;
    create_replica_set(&cluster, "second", 1).await;
    // Both have waited for so long that they would try again once a minute.
    tokio::time::sleep(400 * S).await;
    patch(&cluster, REPLICA_SETS, "first", json!({"spec": {"replicas": 0}})).await;
    patch(&cluster, REPLICA_SETS, "holder", json!({"spec": {"replicas": 1}})).await;
    cluster.eventually(3, "the second ReplicaSet has its pod", |c| live(c, "second").len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn the_status_of_a_refused_replica_set_does_not_wait_for_its_next_attempt() {
    let cluster = with_quota(3).await;
    let _daemon = cluster.start_controllers(1);
    create_replica_set(&cluster, "web", 4).await;
    patch(&cluster, REPLICA_SETS, "web", json!({"spec": {"minReadySeconds": 10}})).await;
    // Long enough refused for a backoff of a minute, with a pod that has just become ready.
    tokio::time::sleep(300 * S).await;
    let pod = name_of(&live(&cluster, "web")[0]);
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    patch(&cluster, &format!("{PODS}/{pod}"), "status", not_ready).await;
    let available =
        |c: &Cluster| replica_set_named(c, "web")["status"]["availableReplicas"].as_u64().unwrap_or(0);
    cluster.eventually(3, "one is unavailable", |c| available(c) == 2).await;
    let now = cluster.clock.now().to_string();
    let ready =
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}]}});
    patch(&cluster, &format!("{PODS}/{pod}"), "status", ready).await;
    cluster.eventually(12, "L6: available ten seconds after it was ready", |c| available(c) == 3).await;
}
