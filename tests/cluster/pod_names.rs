//! The name of a pod is never used for another pod: the real controllers against the sandbox, in virtual time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::model::Uid;
use windlass::plan::replicaset::names::{LENGTH, Sequence};
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_testkit::cluster::{Cluster, unlimited};
use windlass_testkit::election::{A, B, options};
use windlass_testkit::network::{Network, NetworkFaults};

const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const S: Duration = Duration::from_secs(1);

async fn create(cluster: &Cluster, replicas: usize) {
    create_named(cluster, "web", replicas).await;
}

async fn create_named(cluster: &Cluster, name: &str, replicas: usize) {
    let replica_set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                 "template": {"metadata": {"labels": {"app": "web"}},
                              "spec": {"containers": [{"name": "app", "image": "app:v1"}]}}},
    });
    cluster.call(Method::POST, REPLICA_SETS, &replica_set).await;
}

async fn scale(cluster: &Cluster, replicas: usize) {
    cluster
        .call(Method::PATCH, &format!("{REPLICA_SETS}/web"), &json!({"spec": {"replicas": replicas}}))
        .await;
}

/// Deletes a pod as `kubectl delete --force --grace-period=0` does: its name is free at once.
async fn delete_by_force(cluster: &Cluster, name: &str) {
    cluster.call(Method::DELETE, &format!("{PODS}/{name}"), &json!({"gracePeriodSeconds": 0})).await;
}

fn uid(cluster: &Cluster) -> String {
    cluster.objects("ReplicaSet")[0]["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn names(pods: &[Value]) -> Vec<String> {
    pods.iter().map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// The pods that are not terminating, the oldest first.
fn live(cluster: &Cluster) -> Vec<String> {
    let mut pods = cluster.objects("Pod");
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null() && !controller(pod).is_empty());
    let version = |pod: &Value| pod["metadata"]["uid"].as_str().map(|uid| order_of(cluster, uid));
    pods.sort_by_key(version);
    names(&pods)
}

fn controller(pod: &Value) -> &str {
    pod["metadata"]["ownerReferences"][0]["uid"].as_str().unwrap_or_default()
}

/// When a pod was scheduled first: creation timestamps have no more than seconds.
fn order_of(cluster: &Cluster, uid: &str) -> usize {
    let log = cluster.log.lock().unwrap();
    log.iter()
        .position(|request| request.kind == "Event" && String::from_utf8_lossy(&request.body).contains(uid))
        .unwrap_or(usize::MAX)
}

async fn has(cluster: &Cluster, pods: usize, seconds: u64) {
    let full = |c: &Cluster| {
        let status = &c.objects("ReplicaSet")[0]["status"];
        live(c).len() == pods && status["availableReplicas"].as_u64().unwrap_or(0) == pods as u64
    };
    cluster.eventually(seconds, "the ReplicaSet has its pods", full).await;
}

fn is_pod_creation(request: &RequestInfo) -> bool {
    (request.verb, request.kind, request.subresource) == ("create", "Pod", "")
}

/// The names in all creations of pods, in the order of the requests.
fn requested(cluster: &Cluster) -> Vec<String> {
    let log = cluster.log.lock().unwrap();
    let bodies = log.iter().filter(|request| is_pod_creation(request));
    bodies
        .map(|request| serde_json::from_slice::<Value>(&request.body).unwrap())
        .map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned())
        .collect()
}

#[track_caller]
fn never_twice(cluster: &Cluster) {
    let requested = requested(cluster);
    let different: BTreeSet<&String> = requested.iter().collect();
    assert_eq!(different.len(), requested.len(), "a name was reused: {requested:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_deleted_by_force_are_replaced_under_new_names() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, 3).await;
    has(&cluster, 3, 10).await;
    for round in 0..12 {
        let pods = live(&cluster);
        // The oldest, the youngest, all of them.
        let doomed = match round % 3 {
            0 => &pods[..1],
            1 => &pods[2..],
            _ => &pods[..],
        };
        for pod in doomed {
            delete_by_force(&cluster, pod).await;
        }
        has(&cluster, 3, 10).await;
        if round % 4 == 3 {
            cluster.sandbox.compact();
            cluster.sandbox.break_watches();
        }
    }
    scale(&cluster, 0).await;
    has(&cluster, 0, 60).await;
    scale(&cluster, 2).await;
    has(&cluster, 2, 10).await;
    never_twice(&cluster);
    assert_eq!(requested(&cluster).len(), 3 + 4 * (1 + 1 + 3) + 2);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_no_name_before_that_of_a_known_pod_is_used() {
    restarts_use_no_name_before_that_of_a_known_pod("web").await;
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_no_name_is_used_again_where_names_of_pods_have_a_part_of_the_replica_sets_name() {
    for length in [57, 58, 60] {
        restarts_use_no_name_before_that_of_a_known_pod(&"a".repeat(length)).await;
    }
}

async fn restarts_use_no_name_before_that_of_a_known_pod(replica_set: &str) {
    let cluster = Cluster::new().await;
    let mut daemon = cluster.start_controllers(1);
    create_named(&cluster, replica_set, 3).await;
    has(&cluster, 3, 10).await;
    for round in 0..6 {
        // A place may be left for two minutes where a later pod is younger than that.
        if round > 2 {
            tokio::time::sleep(130 * S).await;
        }
        let pods = live(&cluster);
        let nobody_sees = round % 2 == 0;
        if nobody_sees {
            daemon.stop().await;
        } else {
            daemon.kill();
        }
        delete_by_force(&cluster, &pods[0]).await;
        daemon = cluster.start_controllers(round + 2);
        has(&cluster, 3, if round > 2 { 10 } else { 140 }).await;
    }
    never_twice(&cluster);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_no_name_before_that_of_a_released_pod_is_used() {
    for replica_set in ["web", &"a".repeat(60)] {
        a_restart_uses_no_name_before_that_of_a_released_pod(replica_set).await;
    }
}

async fn a_restart_uses_no_name_before_that_of_a_released_pod(replica_set: &str) {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    create_named(&cluster, replica_set, 2).await;
    has(&cluster, 2, 10).await;
    let pods = live(&cluster);
    daemon.stop().await;
    // A user removes the later pod from its ReplicaSet, to debug it.
    let out = json!({"metadata": {"labels": {"app": "examined"}, "ownerReferences": null}});
    cluster.call(Method::PATCH, &format!("{PODS}/{}", pods[1]), &out).await;
    delete_by_force(&cluster, &pods[0]).await;
    let _second = cluster.start_controllers(2);
    has(&cluster, 2, 140).await;
    never_twice(&cluster);
}

#[tokio::test(start_paused = true)]
async fn a_standby_tracks_the_names_of_pods_that_were_created_and_deleted() {
    let cluster = Cluster::new().await;
    let first = cluster.start(1, A, Some(options(A)));
    create(&cluster, 2).await;
    has(&cluster, 2, 10).await;
    let _second = cluster.start(2, B, Some(options(B)));
    tokio::time::sleep(5 * S).await;
    scale(&cluster, 4).await;
    has(&cluster, 4, 10).await;
    let pods = live(&cluster);
    first.kill();
    // The two youngest: no pod with a later name is left.
    delete_by_force(&cluster, &pods[2]).await;
    delete_by_force(&cluster, &pods[3]).await;
    has(&cluster, 4, 30).await;
    never_twice(&cluster);
}

#[tokio::test(start_paused = true)]
async fn a_creation_whose_reply_is_lost_is_sent_once_and_found() {
    let creations = AtomicUsize::new(0);
    let cluster = Cluster::answering(move |request| {
        match is_pod_creation(request) && creations.fetch_add(1, Ordering::SeqCst) % 2 == 1 {
            true => FaultDecision::LoseReply,
            false => FaultDecision::Proceed,
        }
    })
    .await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, 9).await;
    has(&cluster, 9, 60).await;
    never_twice(&cluster);
    assert_eq!((requested(&cluster).len(), cluster.pods_created()), (9, 9));
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_never_arrived_is_sent_again_with_the_same_name() {
    let creations = AtomicUsize::new(0);
    let cluster = Cluster::answering(move |request| {
        match is_pod_creation(request) && creations.fetch_add(1, Ordering::SeqCst) == 1 {
            true => FaultDecision::LoseRequest,
            false => FaultDecision::Proceed,
        }
    })
    .await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, 3).await;
    has(&cluster, 3, 60).await;
    let requested = requested(&cluster);
    assert_eq!(requested.len(), 4, "{requested:?}");
    assert_eq!(requested[1], requested[3], "the second of the first batch of two, {requested:?}");
}

#[tokio::test(start_paused = true)]
async fn a_name_is_reserved_for_a_creation_of_an_earlier_process_that_arrives_after_a_later_one() {
    let creations = Arc::new(AtomicUsize::new(0));
    let count = creations.clone();
    // Of the batch of two the first arrives 45 s late; its author is dead then.
    let cluster = Cluster::answering(move |request| {
        match is_pod_creation(request) && count.fetch_add(1, Ordering::SeqCst) == 1 {
            true => FaultDecision::Delay(45 * S),
            false => FaultDecision::Proceed,
        }
    })
    .await;
    let first = cluster.start_controllers(1);
    create(&cluster, 6).await;
    cluster.eventually(10, "two pods are there", |c| live(c).len() == 2).await;
    first.kill();
    let _second = cluster.start_controllers(2);
    cluster.eventually(10, "all others are there", |c| live(c).len() == 5).await;
    for _ in 0..1200 {
        assert!(live(&cluster).len() <= 6, "S11: {:?}", live(&cluster));
        tokio::time::sleep(S / 10).await;
    }
    has(&cluster, 6, 10).await;
    assert_eq!(cluster.pods_created(), 6);
    never_twice(&cluster);
}

#[tokio::test(start_paused = true)]
async fn a_creation_of_an_earlier_process_that_never_arrives_is_waited_for_at_most_two_minutes() {
    let (creations, is_first) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(true)));
    let loses = is_first.clone();
    // Of the batch of two the first is lost, however often it is tried.
    let cluster = Cluster::answering(move |request| {
        let nth = if is_pod_creation(request) { creations.fetch_add(1, Ordering::SeqCst) } else { 0 };
        match loses.load(Ordering::SeqCst) && (nth == 1 || nth > 2) {
            true => FaultDecision::LoseRequest,
            false => FaultDecision::Proceed,
        }
    })
    .await;
    let first = cluster.start_controllers(1);
    create(&cluster, 3).await;
    cluster.eventually(10, "two pods are there", |c| live(c).len() == 2).await;
    first.kill();
    is_first.store(false, Ordering::SeqCst);
    let _second = cluster.start_controllers(2);
    has(&cluster, 3, 125).await;
    assert_eq!(cluster.pods_created(), 3);
}

#[tokio::test(start_paused = true)]
async fn pods_with_names_chosen_by_users_neither_block_nor_exhaust_a_replica_set() {
    let cluster = Cluster::new().await;
    let mut daemon = cluster.start_controllers(1);
    create(&cluster, 3).await;
    has(&cluster, 3, 10).await;
    let uid = uid(&cluster);
    let sequence = Sequence::of("web", &Uid::new(&uid));
    let reference = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid,
                           "controller": true});
    for (seed, at) in
        [LENGTH - 1, LENGTH / 2 - 1, LENGTH / 2 + 9, 3, 4_000_000, 0, LENGTH - 2].iter().enumerate()
    {
        let forged = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": sequence.name(*at), "labels": {"app": "web"}, "ownerReferences": [reference]},
            "spec": {"containers": [{"name": "app", "image": "app:v1"}]},
        });
        if cluster.try_call(Method::POST, PODS, &forged).await.is_ok() {
            has(&cluster, 3, 60).await;
        }
        for pod in live(&cluster) {
            delete_by_force(&cluster, &pod).await;
        }
        has(&cluster, 3, 130).await;
        if seed % 2 == 0 {
            daemon.stop().await;
            daemon = cluster.start_controllers(seed as u64 + 2);
        }
    }
}

/// The simulation lets only daemons that elect a leader lose messages; these two act at once.
#[tokio::test(start_paused = true)]
async fn two_independent_daemons_create_no_duplicate_pod_over_an_unreliable_network() {
    const PODS_WANTED: usize = 6;
    for seed in 0..10 {
        let cluster = Cluster::new().await;
        let network = Network::new(seed);
        let start = |number| cluster.start_with(number, unlimited(), |server| network.around(server));
        let _daemons = [start(2 * seed), start(2 * seed + 1)];
        let faults = NetworkFaults {
            lost_requests: 20,
            lost_replies: 30,
            late_requests: 15,
            late_replies: 10,
            lag: 3 * S,
        };
        network.set(faults);
        create(&cluster, PODS_WANTED).await;
        for _ in 0..300 {
            assert!(cluster.objects("Pod").len() <= PODS_WANTED, "seed {seed}: {:?}", cluster.writes());
            tokio::time::sleep(S).await;
        }
        network.set(NetworkFaults::default());
        has(&cluster, PODS_WANTED, 300).await;
        let names: BTreeSet<String> = requested(&cluster).into_iter().collect();
        assert_eq!(
            (names.len(), cluster.pods_created()),
            (PODS_WANTED, PODS_WANTED),
            "seed {seed}: {names:?}"
        );
    }
}
