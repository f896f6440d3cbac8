//! The garbage collector: dependents follow their owners, finalizers end deletions, and nothing is deleted without proof.

mod aggregated_apis;
mod deleted_definitions;
mod encodings;
mod first_lists;
mod late_deletions;
mod many_owners;
mod shared_rounds;
mod unlisted_kinds;
mod unreadable_kinds;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, Faults, USER_AGENT, inject_faults, unlimited};

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";

fn config() -> ControllerConfig {
    let enabled = Enabled::default().with("garbage-collector-controller");
    ControllerConfig { enabled, ..unlimited() }
}

async fn cluster_with(faults: Faults) -> (Cluster, Daemon) {
    let cluster = Cluster::without_collectors(faults).await;
    let daemon = cluster.start_with(1, config(), |router| router);
    (cluster, daemon)
}

async fn cluster() -> (Cluster, Daemon) {
    cluster_with(Faults::default()).await
}

/// A reference to this ConfigMap.
fn to(owner: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]})
}

fn blocking(owner: &Value) -> Value {
    let mut reference = to(owner);
    reference["blockOwnerDeletion"] = true.into();
    reference
}

fn map(name: &str, owners: &[Value], finalizers: &[&str]) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": owners, "finalizers": finalizers}})
}

async fn create(cluster: &Cluster, name: &str, owners: &[Value]) -> Value {
    cluster.call(Method::POST, MAPS, &map(name, owners, &[])).await
}

async fn delete(cluster: &Cluster, path: &str, policy: &str) {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    cluster.call(Method::DELETE, path, &options).await;
}

async fn delete_map(cluster: &Cluster, name: &str, policy: &str) {
    delete(cluster, &format!("{MAPS}/{name}"), policy).await;
}

fn stored(cluster: &Cluster, name: &str) -> Option<Value> {
    cluster.objects("ConfigMap").into_iter().find(|map| map["metadata"]["name"] == name)
}

fn owners_of(cluster: &Cluster, name: &str) -> Vec<String> {
    let map = stored(cluster, name).unwrap();
    let all = map["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    all.iter().map(|owner| owner["name"].as_str().unwrap().to_owned()).collect()
}

fn are_gone(cluster: &Cluster, names: &[&str]) -> bool {
    names.iter().all(|name| stored(cluster, name).is_none())
}

/// The collector's requests so far, besides lists and watches.
fn requests(cluster: &Cluster) -> Vec<RequestInfo> {
    let log = cluster.log.lock().unwrap();
    let is_own = |request: &&RequestInfo| {
        request.user_agent == USER_AGENT
            && request.kind == "ConfigMap"
            && !matches!(request.verb, "list" | "watch")
    };
    log.iter().filter(is_own).cloned().collect()
}

async fn seconds(count: u64) {
    tokio::time::sleep(Duration::from_secs(count)).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_in_a_version_that_is_not_served_is_looked_up_in_the_one_that_is() {
    let (cluster, _daemon) = cluster().await;
    let owner = create(&cluster, "owner", &[]).await;
    let mut reference = to(&owner);
    reference["apiVersion"] = "v9".into();
    create(&cluster, "dependent", &[reference]).await;
    seconds(60).await;
    assert!(stored(&cluster, "dependent").is_some(), "its owner exists");
    delete_map(&cluster, "owner", "Background").await;
    cluster.eventually(5, "the dependent goes", |c| are_gone(c, &["dependent"])).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_whose_kind_is_written_in_lower_case_takes_its_dependents_with_it() {
    let (cluster, _daemon) = cluster().await;
    let owner = create(&cluster, "owner", &[]).await;
    for (name, block) in [("a", false), ("b", true)] {
        let mut reference = to(&owner);
        reference["kind"] = "configmap".into();
        reference["blockOwnerDeletion"] = block.into();
        create(&cluster, name, &[reference]).await;
    }
    seconds(5).await;
    delete_map(&cluster, "owner", "Foreground").await;
    cluster.eventually(40, "all are gone", |cluster| are_gone(cluster, &["owner", "a", "b"])).await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_takes_its_replica_sets_and_pods_with_it() {
    let (cluster, daemon) = cluster().await;
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    delete(&cluster, &format!("{DEPLOYMENTS}/web"), "Background").await;
    cluster
        .eventually(40, "the ReplicaSet and its pods are gone", |cluster| {
            cluster.objects("ReplicaSet").is_empty() && cluster.objects("Pod").is_empty()
        })
        .await;
    let text = daemon.metrics.render();
    assert!(text.contains("windlass_garbage_deletions_total{result=\"deleted\"} 4"), "{text}");
    assert!(text.contains("windlass_garbage_resources{state=\"broken\"} 0"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn dependents_of_a_deleted_owner_go_within_a_second_and_cost_a_call_each() {
    let (cluster, _daemon) = cluster().await;
    let owner = create(&cluster, "owner", &[]).await;
    for name in ["a", "b", "c"] {
        create(&cluster, name, &[to(&owner)]).await;
    }
    seconds(3).await;
    delete_map(&cluster, "owner", "Background").await;
    cluster.eventually(1, "they are gone", |cluster| are_gone(cluster, &["a", "b", "c"])).await;
    let sent = requests(&cluster);
    assert_eq!(sent.iter().map(|request| request.verb).collect::<Vec<_>>(), ["delete"; 3]);
    for request in sent {
        let options: Value = serde_json::from_slice(&request.body).unwrap();
        assert!(
            options["preconditions"]["uid"].is_string()
                && options["preconditions"]["resourceVersion"].is_string()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_orphaning_deletion_makes_the_deletion_of_other_dependents_no_dearer() {
    let (cluster, _daemon) = cluster().await;
    let orphaned = create(&cluster, "orphaned", &[]).await;
    create(&cluster, "kept", &[to(&orphaned)]).await;
    delete_map(&cluster, "orphaned", "Orphan").await;
    let owner = create(&cluster, "owner", &[]).await;
    let names: Vec<String> = (0..30).map(|number| format!("a-{number}")).collect();
    for name in &names {
        create(&cluster, name, &[to(&owner)]).await;
    }
    seconds(10).await;
    let before = requests(&cluster).len();
    delete_map(&cluster, "owner", "Background").await;
    seconds(10).await;
    assert!(names.iter().all(|name| stored(&cluster, name).is_none()));
    let sent = requests(&cluster).len() - before;
    assert!(sent <= names.len() + 2, "{sent} requests for {} dependents", names.len());
}

#[tokio::test(start_paused = true)]
async fn a_restored_etcd_brings_owners_back_and_their_dependents_live() {
    let refuses = Arc::new(AtomicBool::new(false));
    let is_refusing = refuses.clone();
    let faults = inject_faults(move |request: &RequestInfo| {
        let is_write = request.verb == "delete" && request.user_agent == USER_AGENT;
        match is_refusing.load(Ordering::SeqCst) && is_write {
            true => FaultDecision::LoseRequest,
            false => FaultDecision::Proceed,
        }
    });
    let (cluster, _daemon) = cluster_with(faults).await;
    let owner = create(&cluster, "owner", &[]).await;
    create(&cluster, "a", &[to(&owner)]).await;
    seconds(3).await;
    let backup = cluster.sandbox.back_up();
    refuses.store(true, Ordering::SeqCst);
    delete_map(&cluster, "owner", "Background").await;
    seconds(1).await;
    cluster.sandbox.restore(&backup, true);
    refuses.store(false, Ordering::SeqCst);
    seconds(60).await;
    assert!(stored(&cluster, "owner").is_some() && owners_of(&cluster, "a") == ["owner"]);
    delete_map(&cluster, "owner", "Background").await;
    cluster.eventually(5, "it is gone", |cluster| are_gone(cluster, &["a"])).await;
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_that_a_restored_etcd_has_undone_is_sent_again() {
    let (cluster, _daemon) = cluster().await;
    let owner = create(&cluster, "owner", &[]).await;
    let dependent = map("a", &[blocking(&owner)], &["example.com/keep"]);
    let dependent = cluster.call(Method::POST, MAPS, &dependent).await;
    create(&cluster, "b", &[blocking(&dependent)]).await;
    seconds(3).await;
    delete_map(&cluster, "owner", "Foreground").await;
    // Before the collector has done anything.
    let backup = cluster.sandbox.back_up();
    seconds(3).await;
    assert!(stored(&cluster, "a").unwrap()["metadata"]["deletionTimestamp"].is_string());
    cluster.sandbox.restore(&backup, true);
    assert!(stored(&cluster, "a").unwrap()["metadata"]["deletionTimestamp"].is_null());
    seconds(60).await;
    let release = json!({"metadata": {"finalizers": null}});
    cluster.call(Method::PATCH, &format!("{MAPS}/a"), &release).await;
    cluster.eventually(5, "all are gone", |cluster| are_gone(cluster, &["a", "b", "owner"])).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_lives_while_one_of_its_owners_does_and_loses_the_reference_to_the_other() {
    let (cluster, _daemon) = cluster().await;
    let (one, other) = (create(&cluster, "one", &[]).await, create(&cluster, "other", &[]).await);
    create(&cluster, "both", &[to(&one), to(&other)]).await;
    create(&cluster, "free", &[]).await;
    delete_map(&cluster, "one", "Background").await;
    seconds(10).await;
    assert_eq!(owners_of(&cluster, "both"), ["other"]);
    delete_map(&cluster, "other", "Background").await;
    cluster.eventually(2, "it is gone", |cluster| are_gone(cluster, &["both"])).await;
    assert!(stored(&cluster, "free").is_some());
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_owner_never_existed_goes_and_the_owner_is_asked_for_once() {
    let (cluster, _daemon) = cluster().await;
    let invented = json!({"metadata": {"name": "invented", "uid": "11111111-1111-4111-8111-111111111111"}});
    for name in ["a", "b", "c", "d", "e"] {
        create(&cluster, name, &[to(&invented)]).await;
    }
    cluster.eventually(3, "they are gone", |cluster| are_gone(cluster, &["a", "b", "c", "d", "e"])).await;
    let asked = requests(&cluster).iter().filter(|request| request.name == "invented").count();
    assert!((1..=5).contains(&asked), "{asked} times");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_is_created_again_under_its_name_is_another() {
    let (cluster, _daemon) = cluster().await;
    let owner = create(&cluster, "owner", &[]).await;
    create(&cluster, "old", &[to(&owner)]).await;
    delete_map(&cluster, "owner", "Background").await;
    let owner = create(&cluster, "owner", &[]).await;
    create(&cluster, "new", &[to(&owner)]).await;
    seconds(10).await;
    assert!(are_gone(&cluster, &["old"]) && stored(&cluster, "new").is_some());
}

#[tokio::test(start_paused = true)]
async fn an_orphaning_deletion_leaves_the_dependents_without_the_reference() {
    let (cluster, daemon) = cluster().await;
    let owner = create(&cluster, "owner", &[]).await;
    let keeper = create(&cluster, "keeper", &[]).await;
    create(&cluster, "a", &[to(&owner)]).await;
    // At once, before the collector can have seen it.
    create(&cluster, "b", &[to(&owner), to(&keeper)]).await;
    delete_map(&cluster, "owner", "Orphan").await;
    cluster.eventually(2, "the owner is gone", |cluster| are_gone(cluster, &["owner"])).await;
    seconds(10).await;
    assert_eq!((owners_of(&cluster, "a"), owners_of(&cluster, "b")), (vec![], vec!["keeper".to_owned()]));
    let text = daemon.metrics.render();
    assert!(text.contains("windlass_garbage_orphanings_total{result=\"orphaned\"} 1"), "{text}");
    for line in
        ["workqueue_depth{name=\"garbage_collector_graph_changes\"} 0", "garbage_collector_attempt_to_orphan"]
    {
        assert!(text.contains(line), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_foreground_deletion_ends_after_what_blocks_it() {
    let (cluster, _daemon) = cluster().await;
    let owner = create(&cluster, "owner", &[]).await;
    let held = map("held", &[blocking(&owner)], &["example.com/keep"]);
    let held = cluster.call(Method::POST, MAPS, &held).await;
    create(&cluster, "child-of-held", &[blocking(&held)]).await;
    create(&cluster, "free", &[to(&owner)]).await;
    delete_map(&cluster, "owner", "Foreground").await;
    seconds(20).await;
    assert!(are_gone(&cluster, &["free", "child-of-held"]));
    assert!(stored(&cluster, "owner").is_some(), "a dependent blocks it");
    let release = json!({"metadata": {"finalizers": null}});
    cluster.call(Method::PATCH, &format!("{MAPS}/held"), &release).await;
    cluster.eventually(2, "both are gone", |cluster| are_gone(cluster, &["held", "owner"])).await;
}

#[tokio::test(start_paused = true)]
async fn a_dependent_that_does_not_block_is_deleted_and_not_waited_for() {
    let (cluster, _daemon) = cluster().await;
    let owner = create(&cluster, "owner", &[]).await;
    cluster.call(Method::POST, MAPS, &map("held", &[to(&owner)], &["example.com/keep"])).await;
    delete_map(&cluster, "owner", "Foreground").await;
    cluster.eventually(2, "the owner is gone", |cluster| are_gone(cluster, &["owner"])).await;
    assert!(stored(&cluster, "held").unwrap()["metadata"]["deletionTimestamp"].is_string());
}

#[tokio::test(start_paused = true)]
async fn a_solid_owner_does_not_keep_another_waiting() {
    let (cluster, _daemon) = cluster().await;
    let (waiting, solid) = (create(&cluster, "waiting", &[]).await, create(&cluster, "solid", &[]).await);
    create(&cluster, "both", &[blocking(&waiting), to(&solid)]).await;
    delete_map(&cluster, "waiting", "Foreground").await;
    cluster.eventually(2, "the owner is gone", |cluster| are_gone(cluster, &["waiting"])).await;
    seconds(5).await;
    assert_eq!(owners_of(&cluster, "both"), ["solid"]);
}

#[tokio::test(start_paused = true)]
async fn three_objects_that_own_each_other_go_when_one_is_deleted() {
    for policy in ["Foreground", "Background"] {
        let (cluster, _daemon) = cluster().await;
        let mut ring = Vec::new();
        for name in ["a", "b", "c"] {
            ring.push(create(&cluster, name, &[]).await);
        }
        for (at, name) in ["a", "b", "c"].iter().enumerate() {
            let owner = json!({"metadata": {"ownerReferences": [blocking(&ring[(at + 1) % 3])]}});
            cluster.call(Method::PATCH, &format!("{MAPS}/{name}"), &owner).await;
        }
        seconds(5).await;
        delete_map(&cluster, "a", policy).await;
        cluster.eventually(10, "all are gone", |cluster| are_gone(cluster, &["a", "b", "c"])).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reference_across_namespaces_owns_nothing_and_is_reported() {
    let (cluster, _daemon) = cluster().await;
    let owner =
        cluster.call(Method::POST, "/api/v1/namespaces/default/configmaps", &map("owner", &[], &[])).await;
    let child = map("child", &[to(&owner)], &[]);
    cluster.call(Method::POST, "/api/v1/namespaces/default/configmaps", &child).await;
    create(&cluster, "stranger", &[to(&owner)]).await;
    cluster.eventually(5, "the stranger is gone", |cluster| are_gone(cluster, &["stranger"])).await;
    seconds(5).await;
    let left =
        |name: &str| cluster.sandbox.objects("ConfigMap").iter().any(|map| map["metadata"]["name"] == name);
    assert!(left("owner") && left("child"));
    let event = cluster
        .objects("Event")
        .into_iter()
        .find(|event| event["reason"] == "OwnerRefInvalidNamespace")
        .unwrap();
    let uid = owner["metadata"]["uid"].as_str().unwrap();
    let message = format!(
        "ownerRef [v1/ConfigMap, namespace: shop, name: owner, uid: {uid}] does not exist in namespace \"shop\""
    );
    assert_eq!(event["message"], message);
    assert_eq!(event["source"]["component"], "garbage-collector-controller");
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_an_unknown_kind_is_not_taken_for_absent() {
    let (cluster, _daemon) = cluster().await;
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Thing", "name": "t", "uid": "t"});
    create(&cluster, "a", &[unknown]).await;
    seconds(60).await;
    assert!(stored(&cluster, "a").is_some());
    let before = requests(&cluster).len();
    seconds(600).await;
    assert_eq!(requests(&cluster).len(), before, "nobody asks again before a kind of that name is served");
}

#[tokio::test(start_paused = true)]
async fn a_path_that_is_not_found_proves_nothing_about_an_owner() {
    let is_lost = Arc::new(AtomicBool::new(true));
    let lost = is_lost.clone();
    // A proxy in front of the API server, or one that is starting: the path is not found, whatever its object is.
    let faults = inject_faults(move |request: &RequestInfo| {
        let is_read =
            request.verb == "get" && request.kind == "ConfigMap" && request.user_agent == USER_AGENT;
        match lost.load(Ordering::SeqCst) && is_read {
            true => FaultDecision::Refuse {
                code: 404,
                message: "404 page not found".into(),
                reason: "NotFound".into(),
            },
            false => FaultDecision::Proceed,
        }
    });
    let (cluster, _daemon) = cluster_with(faults).await;
    let invented = json!({"metadata": {"name": "invented", "uid": "11111111-1111-4111-8111-111111111111"}});
    create(&cluster, "a", &[to(&invented)]).await;
    seconds(60).await;
    assert!(stored(&cluster, "a").is_some());
    is_lost.store(false, Ordering::SeqCst);
    cluster.eventually(60, "it is gone", |cluster| are_gone(cluster, &["a"])).await;
}

#[tokio::test(start_paused = true)]
async fn garbage_of_the_time_before_the_collector_is_found() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let owner = create(&cluster, "owner", &[]).await;
    create(&cluster, "a", &[to(&owner)]).await;
    let kept = create(&cluster, "kept", &[]).await;
    create(&cluster, "b", &[to(&kept)]).await;
    delete_map(&cluster, "owner", "Background").await;
    let orphaned = create(&cluster, "orphaned", &[]).await;
    create(&cluster, "c", &[to(&orphaned)]).await;
    delete_map(&cluster, "orphaned", "Orphan").await;
    let _daemon = cluster.start_with(1, config(), |router| router);
    cluster
        .eventually(3, "the collector has caught up", |cluster| are_gone(cluster, &["a", "orphaned"]))
        .await;
    seconds(10).await;
    assert!(stored(&cluster, "b").is_some() && owners_of(&cluster, "c").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_settled_collector_sends_nothing_but_watches_and_discovery() {
    let (cluster, _daemon) = cluster().await;
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    let owner = create(&cluster, "owner", &[]).await;
    create(&cluster, "a", &[to(&owner)]).await;
    seconds(60).await;
    let count = || {
        let log = cluster.log.lock().unwrap();
        log.iter()
            .filter(|it| it.user_agent == USER_AGENT && !matches!(it.verb, "watch"))
            .filter(|it| !it.kind.is_empty())
            .count()
    };
    let before = count();
    seconds(600).await;
    assert_eq!(count(), before);
}
