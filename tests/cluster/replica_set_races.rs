//! Races between the ReplicaSet controller and other clients: the real app against the sandbox, in
//! virtual time.
//!
//! | upstream | here |
//! |---|---|
//! | `TestPatchPodFails` | [`a_refused_adoption_is_retried_and_no_pod_is_created_instead`] |
//! | `TestDoNotAdoptOrCreateIfBeingDeletedRace` | [`pods_orphaned_by_the_deletion_of_their_replica_set_are_not_created_again`] |
//! | `TestExpectationsOnRecreate`, `TestDeleteControllerAndExpectations` | [`a_recreated_replica_set_does_not_inherit_expectations`] |
//! | `TestUpdatePods`, `TestUpdateLabelsRemoveControllerRef`, `TestWatchPods` | [`a_pod_whose_label_is_edited_is_released_and_adopted_again_with_its_label`] |
//! | `TestDoNotPatchPodWithOtherControlRef`, `TestPodControllerLookup` | [`another_controllers_pod_is_neither_adopted_nor_counted`] |
//! | `TestOverlappingRSs` | [`replica_sets_with_overlapping_selectors_leave_each_other_alone`] |
//! | `TestControllerUpdateRequeue`, `TestControllerUpdateStatusWithFailure` | [`a_failed_status_write_is_retried`] |
//! | `TestRSSyncExpectations`, `TestSyncReplicaSetDormancy`, `TestDeletionTimestamp`, `TestWatchControllers` | [`a_sync_waits_for_a_stale_cache_and_runs_as_soon_as_it_has_caught_up`] |
//! | `TestSlowStartBatch` | [`a_refusal_ends_the_batch_that_it_comes_in`] |
//!
//! The others are about what upstream cannot do: names that keep a late creation from being one too many,
//! and a queue of refused ReplicaSets.

mod preconditions;
mod quota;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::{Cluster, condition, forbidden, is_request, unlimited};
use windlass_testkit::network::{Network, NetworkFaults};

const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const S: Duration = Duration::from_secs(1);

async fn create_replica_set(cluster: &Cluster, name: &str, replicas: usize) -> Value {
    let replica_set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}},
                         "spec": {"containers": [{"name": "app", "image": "app:v1"}]}},
        },
    });
    cluster.call(Method::POST, REPLICA_SETS, &replica_set).await
}

/// A pod without an owner that the ReplicaSets select.
async fn create_orphan(cluster: &Cluster, name: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "app", "image": "app:v1"}]},
    });
    cluster.call(Method::POST, PODS, &pod).await;
}

async fn patch(cluster: &Cluster, path: &str, name: &str, patch: Value) {
    cluster.call(Method::PATCH, &format!("{path}/{name}"), &patch).await;
}

async fn delete(cluster: &Cluster, path: &str, name: &str, options: Value) {
    cluster.call(Method::DELETE, &format!("{path}/{name}"), &options).await;
}

fn replica_set_named(cluster: &Cluster, name: &str) -> Value {
    let named = |object: &Value| object["metadata"]["name"] == name;
    cluster.objects("ReplicaSet").into_iter().find(named).unwrap_or(Value::Null)
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_string()
}

fn owner(pod: &Value) -> &Value {
    &pod["metadata"]["ownerReferences"][0]["uid"]
}

/// The pods of a ReplicaSet that are not terminating.
fn live(cluster: &Cluster, replica_set: &str) -> Vec<Value> {
    let replica_set = replica_set_named(cluster, replica_set);
    let mut pods = cluster.objects("Pod");
    pods.retain(|pod| {
        owner(pod) == &replica_set["metadata"]["uid"] && pod["metadata"]["deletionTimestamp"].is_null()
    });
    pods
}

async fn has(cluster: &Cluster, replica_set: &str, pods: usize) {
    let full = |c: &Cluster| {
        let status = &replica_set_named(c, replica_set)["status"];
        live(c, replica_set).len() == pods && status["availableReplicas"].as_u64().unwrap_or(0) == pods as u64
    };
    cluster.eventually(300, "the ReplicaSet has its pods", full).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_adoption_is_retried_and_no_pod_is_created_instead() {
    let allowed = Arc::new(AtomicBool::new(false));
    let allows = allowed.clone();
    let cluster = Cluster::answering(move |request| {
        match is_request(request, "patch", "Pod") && !allows.load(Ordering::SeqCst) {
            true => forbidden("a webhook says no"),
            false => FaultDecision::Proceed,
        }
    })
    .await;
    create_orphan(&cluster, "a").await;
    create_orphan(&cluster, "b").await;
    let _daemon = cluster.start_controllers(1);
    create_replica_set(&cluster, "web", 2).await;
    tokio::time::sleep(20 * S).await;
    assert!(cluster.count("patch Pod") > 2, "{:?}", cluster.writes());
    assert_eq!(cluster.count("create Pod"), 0);
    allowed.store(true, Ordering::SeqCst);
    has(&cluster, "web", 2).await;
    assert_eq!(cluster.count("create Pod"), 0);
}

#[tokio::test(start_paused = true)]
async fn pods_orphaned_by_the_deletion_of_their_replica_set_are_not_created_again() {
    // Seen by the cache in the wrong order: the pods lose their owner, the ReplicaSet still exists.
    for held in [true, false] {
        let lag = Arc::new(AtomicBool::new(false));
        let lags = lag.clone();
        let cluster = Cluster::answering(move |request| {
            let lagging = is_request(request, "watch", "ReplicaSet") && lags.load(Ordering::SeqCst);
            if lagging { FaultDecision::Delay(30 * S) } else { FaultDecision::Proceed }
        })
        .await;
        let _daemon = cluster.start_controllers(1);
        create_replica_set(&cluster, "web", 2).await;
        has(&cluster, "web", 2).await;
        if held {
            patch(&cluster, REPLICA_SETS, "web", json!({"metadata": {"finalizers": ["example.com/held"]}}))
                .await;
        }
        tokio::time::sleep(2 * S).await;
        lag.store(true, Ordering::SeqCst);
        cluster.sandbox.break_watches();
        tokio::time::sleep(2 * S).await;
        delete(&cluster, REPLICA_SETS, "web", json!({"propagationPolicy": "Orphan"})).await;
        tokio::time::sleep(60 * S).await;
        assert_eq!(cluster.count("create Pod"), 2, "S17 {held}: {:?}", cluster.writes());
        assert_eq!(cluster.count("patch Pod"), 0, "S15 {held}");
        let pods = cluster.objects("Pod");
        assert!(pods.len() == 2 && pods.iter().all(|pod| owner(pod).is_null()), "{pods:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_recreated_replica_set_does_not_inherit_expectations() {
    let network = Network::new(1);
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_with(1, unlimited(), |server| network.around(server));
    tokio::time::sleep(S).await;
    create_replica_set(&cluster, "web", 2).await;
    cluster.eventually(10, "the first pods are created", |c| c.objects("Pod").len() == 2).await;
    // The first ReplicaSet never observes its pods, because from now on no watch event of pods arrives.
    delete(&cluster, REPLICA_SETS, "web", json!({"propagationPolicy": "Orphan"})).await;
    cluster.eventually(10, "it is gone", |c| c.objects("ReplicaSet").is_empty()).await;
    create_replica_set(&cluster, "web", 3).await;
    has(&cluster, "web", 3).await;
    assert_eq!(cluster.count("create Pod"), 3, "two were adopted: {:?}", cluster.writes());
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_label_is_edited_is_released_and_adopted_again_with_its_label() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create_replica_set(&cluster, "web", 2).await;
    has(&cluster, "web", 2).await;
    let pod = name_of(&live(&cluster, "web")[0]);
    patch(&cluster, PODS, &pod, json!({"metadata": {"labels": {"app": "debug"}, "annotations": {"x": "y"}}}))
        .await;
    has(&cluster, "web", 2).await;
    cluster.eventually(10, "it is released", |c| c.objects("Pod").len() == 3).await;
    let released = cluster.objects("Pod").into_iter().find(|p| p["metadata"]["name"] == *pod).unwrap();
    assert!(owner(&released).is_null() && released["metadata"]["annotations"]["x"] == "y", "{released:#}");
    // The label is restored: the pod is adopted, and one is deleted; there are never fewer than two.
    patch(&cluster, PODS, &pod, json!({"metadata": {"labels": {"app": "web"}}})).await;
    for _ in 0..100 {
        assert!(live(&cluster, "web").len() >= 2);
        tokio::time::sleep(S / 10).await;
    }
    has(&cluster, "web", 2).await;
    assert_eq!((cluster.count("create Pod"), cluster.count("delete Pod")), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn another_controllers_pod_is_neither_adopted_nor_counted() {
    let cluster = Cluster::new().await;
    let other = create_replica_set(&cluster, "other", 0).await;
    create_orphan(&cluster, "a").await;
    let reference = json!([{"apiVersion": "example.com/v1", "kind": "Thing", "name": "other",
        "uid": other["metadata"]["uid"], "controller": true}]);
    patch(&cluster, PODS, "a", json!({"metadata": {"ownerReferences": reference}})).await;
    let _daemon = cluster.start_controllers(1);
    create_replica_set(&cluster, "web", 2).await;
    has(&cluster, "web", 2).await;
    assert_eq!((cluster.count("create Pod"), cluster.count("patch Pod")), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn replica_sets_with_overlapping_selectors_leave_each_other_alone() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    for (name, replicas) in [("a", 1), ("b", 2), ("c", 3)] {
        create_replica_set(&cluster, name, replicas).await;
    }
    for (name, replicas) in [("a", 1), ("b", 2), ("c", 3)] {
        has(&cluster, name, replicas).await;
    }
    assert_eq!((cluster.count("create Pod"), cluster.count("patch Pod")), (6, 0));
    // An orphan that all of them select becomes exactly one's, and that one gets rid of one.
    create_orphan(&cluster, "foreign").await;
    tokio::time::sleep(20 * S).await;
    for (name, replicas) in [("a", 1), ("b", 2), ("c", 3)] {
        has(&cluster, name, replicas).await;
    }
    assert_eq!(cluster.count("delete Pod"), 1, "{:?}", cluster.writes());
    assert!(
        cluster
            .objects("Pod")
            .iter()
            .all(|p| p["metadata"]["ownerReferences"].as_array().unwrap().len() == 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_status_write_is_retried() {
    for code in [409, 500] {
        let refusals = AtomicUsize::new(0);
        let cluster = Cluster::answering(move |request| {
            let writes = is_request(request, "patch", "ReplicaSet") && request.subresource == "status";
            if writes && refusals.fetch_add(1, Ordering::SeqCst) < 5 {
                let reason = if code == 409 { "Conflict" } else { "InternalError" };
                return FaultDecision::Refuse { code, message: "no".into(), reason: reason.into() };
            }
            FaultDecision::Proceed
        })
        .await;
        let _daemon = cluster.start_controllers(1);
        create_replica_set(&cluster, "web", 1).await;
        has(&cluster, "web", 1).await;
        assert_eq!(cluster.count("create Pod"), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_sync_waits_for_a_stale_cache_and_runs_as_soon_as_it_has_caught_up() {
    let network = Network::new(1);
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_with(1, unlimited(), |server| network.around(server));
    create_replica_set(&cluster, "web", 3).await;
    has(&cluster, "web", 3).await;
    network.set(NetworkFaults { lag: 200 * S, ..NetworkFaults::default() });
    let pod = name_of(&live(&cluster, "web")[0]);
    // One pod is deleted, which the cache does not show. With the ReplicaSet's own watch events late too, nothing
    // happens at all.
    delete(&cluster, PODS, &pod, Value::Null).await;
    patch(&cluster, REPLICA_SETS, "web", json!({"spec": {"replicas": 5}})).await;
    tokio::time::sleep(190 * S).await;
    assert_eq!(cluster.count("create Pod"), 3);
    network.set(NetworkFaults::default());
    // L7: the lag of the network ends within 50 ms, and the key has 100 ms.
    for _ in 0..15 {
        tokio::time::sleep(S / 100).await;
    }
    assert_eq!(cluster.count("create Pod"), 6);
    has(&cluster, "web", 5).await;
    assert_eq!(cluster.count("create Pod"), 6, "{:?}", cluster.writes());
}

#[tokio::test(start_paused = true)]
async fn a_creation_in_flight_keeps_its_name_when_an_earlier_name_becomes_free() {
    // Three pods; one is terminating while its replacement is being created, and deleted when that request times
    // out. Its name comes before the replacement's in the ReplicaSet's sequence.
    let late = Arc::new(AtomicBool::new(false));
    let delays = late.clone();
    let cluster = Cluster::answering(move |request| {
        let creates = is_request(request, "create", "Pod") && delays.swap(false, Ordering::SeqCst);
        if creates { FaultDecision::Delay(45 * S) } else { FaultDecision::Proceed }
    })
    .await;
    let _daemon = cluster.start_controllers(1);
    create_replica_set(&cluster, "web", 3).await;
    has(&cluster, "web", 3).await;
    for pod in live(&cluster, "web").iter().map(name_of) {
        late.store(true, Ordering::SeqCst);
        let before = cluster.count("create Pod");
        delete(&cluster, PODS, &pod, Value::Null).await;
        for _ in 0..600 {
            assert!(live(&cluster, "web").len() <= 3, "S11: {:?}", cluster.writes());
            tokio::time::sleep(S / 10).await;
        }
        has(&cluster, "web", 3).await;
        assert_eq!(cluster.count("create Pod") - before, 2, "the late one, and the one that replaced it");
    }
    assert_eq!(cluster.count("delete Pod"), 0, "none was one too many");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_appears_during_a_batch_counts_as_one_of_the_missing_pods() {
    // Two creations get no answer. While the first of them is tried again, the second arrives.
    let creations = AtomicUsize::new(0);
    let cluster = Cluster::answering(move |request| {
        if !is_request(request, "create", "Pod") {
            return FaultDecision::Proceed;
        }
        match creations.fetch_add(1, Ordering::SeqCst) {
            5 | 6 => FaultDecision::Delay(45 * S),
            7 => FaultDecision::Delay(20 * S),
            _ => FaultDecision::Proceed,
        }
    })
    .await;
    let _daemon = cluster.start_controllers(1);
    create_replica_set(&cluster, "web", 7).await;
    for _ in 0..900 {
        assert!(live(&cluster, "web").len() <= 7, "S11: {:?}", cluster.writes());
        tokio::time::sleep(S / 10).await;
    }
    has(&cluster, "web", 7).await;
    assert_eq!(cluster.count("delete Pod"), 0, "{:?}", cluster.writes());
}

#[tokio::test(start_paused = true)]
async fn no_other_pod_is_created_while_a_creation_with_a_reused_name_is_in_doubt() {
    // The creation is late, is tried again with success, and that pod is stopped before the late one
    // would meet it.
    let creations = AtomicUsize::new(0);
    let cluster = Cluster::answering(move |request| {
        match is_request(request, "create", "Pod") && creations.fetch_add(1, Ordering::SeqCst) == 0 {
            true => FaultDecision::Delay(60 * S),
            false => FaultDecision::Proceed,
        }
    })
    .await;
    let _daemon = cluster.start_controllers(1);
    create_replica_set(&cluster, "web", 1).await;
    has(&cluster, "web", 1).await;
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    let pod = name_of(&live(&cluster, "web")[0]);
    patch(&cluster, PODS, &pod, held).await;
    delete(&cluster, PODS, &pod, Value::Null).await;
    tokio::time::sleep(10 * S).await;
    patch(&cluster, PODS, &pod, json!({"metadata": {"finalizers": null}})).await;
    for _ in 0..600 {
        assert!(live(&cluster, "web").len() <= 1, "S11: {:?}", cluster.writes());
        tokio::time::sleep(S / 10).await;
    }
    has(&cluster, "web", 1).await;
    assert_eq!(cluster.count("delete Pod"), 0);
    // A pod that is never deleted is waited for no longer than a request can be in flight.
    patch(
        &cluster,
        PODS,
        &name_of(&live(&cluster, "web")[0]),
        json!({"metadata": {"finalizers": ["example.com/held"]}}),
    )
    .await;
    delete(&cluster, PODS, &name_of(&live(&cluster, "web")[0]), Value::Null).await;
    cluster.eventually(130, "another is created", |c| live(c, "web").len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn the_batch_in_which_a_pod_is_refused_is_the_last() {
    // A quota of eighty: the eightieth pod is in a batch of sixty-four.
    let taken = AtomicUsize::new(0);
    let cluster = Cluster::answering(move |request| {
        match is_request(request, "create", "Pod") && taken.fetch_add(1, Ordering::SeqCst) >= 80 {
            true => forbidden("exceeded quota: pods"),
            false => FaultDecision::Proceed,
        }
    })
    .await;
    let _daemon = cluster.start_controllers(1);
    create_replica_set(&cluster, "web", 400).await;
    cluster
        .eventually(5, "it is refused", |c| {
            condition(&replica_set_named(c, "web"), "ReplicaFailure") == "FailedCreate"
        })
        .await;
    // 1 + 2 + 4 + 8 + 16 + 32 are 63. The next 64 are all sent, as upstream sends them; of those 17 are created.
    // Each try that follows begins with a single pod.
    let doomed = cluster.count("create Pod") - 80;
    assert!((47..=47 + 8).contains(&doomed), "{doomed} doomed calls");
}

#[tokio::test(start_paused = true)]
async fn each_lost_pod_is_reported_and_many_recoveries_end_in_one_final_status() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create_replica_set(&cluster, "web", 6).await;
    has(&cluster, "web", 6).await;
    tokio::time::sleep(5 * S).await;
    let pods: Vec<String> = live(&cluster, "web").iter().map(name_of).collect();
    // Each decrease is written; of increases the last number suffices.
    for (ready, written, reported) in [("False", 4..=4, 2), ("True", 1..=2, 6)] {
        let before = cluster.count("patch ReplicaSet");
        for pod in &pods[..4] {
            let status = json!({"status": {"conditions": [{"type": "Ready", "status": ready}]}});
            patch(&cluster, &format!("{PODS}/{pod}"), "status", status).await;
            tokio::time::sleep(S / 10).await;
        }
        tokio::time::sleep(2 * S).await;
        assert_eq!(replica_set_named(&cluster, "web")["status"]["readyReplicas"], reported);
        let writes = cluster.count("patch ReplicaSet") - before;
        assert!(written.contains(&writes), "{writes} writes within half a second and what followed");
    }
}
