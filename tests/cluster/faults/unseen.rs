//! Changes that the cache does not show yet: writes whose outcome is unknown, and watches that stand still.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Method;
use serde_json::json;
use windlass_apiserver::FaultDecision;

use super::{
    DEPLOYMENTS, PODS, S, is_pod_creation, is_write, lagging, server_error, settles, small, wanted, with,
};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, USER_AGENT, inject_faults};

/// Rolls out, and from then on the watches under `lag` show nothing.
async fn rolls_out_and_lags(cluster: &Cluster, lag: &AtomicBool) {
    cluster.create(small()).await;
    settles(cluster, "web", 3).await;
    lag.store(true, Ordering::SeqCst);
    cluster.sandbox.break_watches();
    tokio::time::sleep(2 * S).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_name_in_use_that_cannot_be_read_is_not_replaced_by_a_second_pod() {
    // The first creation arrives after its client has abandoned it; the second finds the name taken, and cannot tell
    // by which pod, while the cache does not show the pod yet.
    let (lag, creations) = (Arc::new(AtomicBool::new(false)), AtomicUsize::new(0));
    let (lags, reads) = (lag.clone(), AtomicUsize::new(0));
    let cluster = with(inject_faults(move |request| {
        if lagging(request, "Pod", &lags) {
            return FaultDecision::Delay(40 * S);
        }
        if is_pod_creation(request) {
            return match creations.fetch_add(1, Ordering::SeqCst) {
                0 => FaultDecision::Delay(35 * S),
                1 => FaultDecision::Delay(10 * S),
                _ => FaultDecision::Proceed,
            };
        }
        let reads_pod = request.user_agent == USER_AGENT && request.kind == "Pod" && request.verb == "get";
        if reads_pod && reads.fetch_add(1, Ordering::SeqCst) == 1 {
            server_error()
        } else {
            FaultDecision::Proceed
        }
    }))
    .await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(1)).await;
    tokio::time::sleep(33 * S).await;
    lag.store(true, Ordering::SeqCst);
    cluster.sandbox.break_watches();
    tokio::time::sleep(S).await;
    lag.store(false, Ordering::SeqCst);
    settles(&cluster, "web", 1).await;
    assert_eq!(cluster.pods_created(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_whose_creation_got_no_response_counts_before_the_cache_shows_it() {
    let lag = Arc::new(AtomicBool::new(false));
    let lags = lag.clone();
    let cluster = with(inject_faults(move |request| {
        let creates_replica_set =
            is_write(request) && request.kind == "ReplicaSet" && request.verb == "create";
        if lagging(request, "ReplicaSet", &lags) {
            FaultDecision::Delay(30 * S)
        } else if creates_replica_set && lags.load(Ordering::SeqCst) {
            FaultDecision::LoseReply
        } else {
            FaultDecision::Proceed
        }
    }))
    .await;
    let _daemon = cluster.start_controllers(1);
    rolls_out_and_lags(&cluster, &lag).await;
    for tag in ["v2", "v3"] {
        cluster.set_image("web", tag).await;
        for _ in 0..20 {
            tokio::time::sleep(S / 10).await;
            assert!(wanted(&cluster) <= 4, "S1: {} desired pods", wanted(&cluster));
        }
    }
    lag.store(false, Ordering::SeqCst);
    settles(&cluster, "web", 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_in_flight_is_not_repeated_for_another_pod() {
    let first = AtomicBool::new(true);
    let cluster = with(inject_faults(move |request| {
        let deletes = is_write(request) && request.kind == "Pod" && request.verb == "delete";
        if deletes && first.swap(false, Ordering::SeqCst) {
            FaultDecision::Delay(35 * S)
        } else {
            FaultDecision::Proceed
        }
    }))
    .await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    settles(&cluster, "web", 3).await;
    cluster.patch("web", json!({"spec": {"replicas": 2}})).await;
    tokio::time::sleep(S).await;
    let chosen = cluster.log.lock().unwrap().iter().rev().find(|r| r.verb == "delete").unwrap().name.clone();
    // Meanwhile another pod becomes the one that is missed least.
    let cheap = json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-100"}}});
    for pod in cluster.objects("Pod") {
        let name = pod["metadata"]["name"].as_str().unwrap();
        if name != chosen {
            cluster.call(Method::PATCH, &format!("{PODS}/{name}"), &cheap).await;
            break;
        }
    }
    tokio::time::sleep(60 * S).await;
    settles(&cluster, "web", 2).await;
    assert_eq!(
        cluster.pods_created(),
        3,
        "S12: two pods were deleted instead of one, and one was created again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_orphaned_a_moment_ago_is_adopted_and_not_created_again() {
    let lag = Arc::new(AtomicBool::new(false));
    let lags = lag.clone();
    let cluster = with(inject_faults(move |request| {
        if lagging(request, "ReplicaSet", &lags) {
            FaultDecision::Delay(30 * S)
        } else {
            FaultDecision::Proceed
        }
    }))
    .await;
    let _daemon = cluster.start_controllers(1);
    rolls_out_and_lags(&cluster, &lag).await;
    let orphan = json!({"propagationPolicy": "Orphan"});
    cluster.call(Method::DELETE, &format!("{DEPLOYMENTS}/web"), &orphan).await;
    cluster.eventually(20, "it is deleted", |c| c.deployment("web").is_null()).await;
    cluster.create(small()).await;
    tokio::time::sleep(5 * S).await;
    lag.store(false, Ordering::SeqCst);
    settles(&cluster, "web", 3).await;
    assert_eq!(cluster.objects("ReplicaSet").len(), 1);
    assert_eq!(cluster.count("create ReplicaSet/"), 2, "{:?}", cluster.writes());
    assert_eq!(cluster.pods_created(), 3);
}
