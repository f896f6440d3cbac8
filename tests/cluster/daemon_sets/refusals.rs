//! The effects of a refused write, and their limits: quotas, policies, and objects that cannot be changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_testkit::cluster::{Daemon, forbidden, is_request};

use super::*;

const POLICY: &str = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: not now";

/// A cluster in which a policy refuses these requests while it is in force.
async fn with_policy(
    is_refused: impl Fn(&RequestInfo) -> bool + Send + Sync + 'static,
) -> (Cluster, Arc<AtomicBool>) {
    let in_force = Arc::new(AtomicBool::new(false));
    let asked = in_force.clone();
    let decide = move |request: &RequestInfo| match asked.load(Ordering::SeqCst) && is_refused(request) {
        true => forbidden(POLICY),
        false => FaultDecision::Proceed,
    };
    (Cluster::answering(decide).await, in_force)
}

async fn rolled_out_on_three(cluster: &Cluster, spec: Value) -> Daemon {
    let daemon = cluster.start_controllers(1);
    create(cluster, spec).await;
    rolled_out(cluster, 3).await;
    daemon
}

async fn quota(cluster: &Cluster, hard: Value) {
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}});
    cluster.call(Method::POST, "/api/v1/namespaces/shop/resourcequotas", &quota).await;
}

async fn set_zone(cluster: &Cluster, node: &str, zone: &str) {
    let labels = json!({"metadata": {"labels": {"zone": zone}}});
    cluster.call(Method::PATCH, &format!("{NODES}/{node}"), &labels).await;
}

/// A DaemonSet that runs in zone `a`: on the first node alone.
fn in_zone_a() -> Value {
    let mut spec = unavailable(1);
    spec["template"] = json!({"spec": {"nodeSelector": {"zone": "a"}}});
    spec
}

async fn fail(cluster: &Cluster, node: &str) -> String {
    let name = name_of(&pod_on(cluster, node));
    set_pod_status(cluster, &name, json!({"phase": "Failed", "reason": "Evicted", "conditions": null})).await;
    name
}

/// The events that announce the end of a failed pod.
fn kills(cluster: &Cluster, pod: &str) -> i64 {
    let events = cluster.objects("Event");
    let about = |event: &&Value| {
        event["reason"] == "FailedDaemonPod" && text(&event["message"]).contains(&format!("/{pod} "))
    };
    events.iter().filter(about).map(|event| event["count"].as_i64().unwrap_or(1)).sum()
}

fn is_there(cluster: &Cluster, pod: &str) -> bool {
    !named(cluster, "Pod", pod).is_null()
}

#[tokio::test(start_paused = true)]
async fn while_a_policy_refuses_pods_a_node_that_should_not_run_one_loses_it() {
    let (cluster, in_force) = with_policy(|request| is_request(request, "create", "Pod")).await;
    set_zone(&cluster, &node(1), "a").await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, in_zone_a()).await;
    rolled_out(&cluster, 1).await;
    in_force.store(true, Ordering::SeqCst);
    // Both in one sync.
    set_zone(&cluster, &node(2), "a").await;
    set_zone(&cluster, &node(1), "c").await;
    cluster.eventually(10, "the pod has gone", |c| !images(c).contains_key(&node(1))).await;
    assert!(images(&cluster).is_empty(), "{:?}", images(&cluster));
    tokio::time::sleep(S).await;
    in_force.store(false, Ordering::SeqCst);
    rolled_out(&cluster, 1).await;
    assert_eq!(images(&cluster).keys().collect::<Vec<_>>(), [&node(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_quota_as_large_as_the_daemon_set_lets_its_pod_move_to_another_node() {
    let cluster = Cluster::new().await;
    set_zone(&cluster, &node(1), "a").await;
    quota(&cluster, json!({"pods": "1"})).await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, in_zone_a()).await;
    rolled_out(&cluster, 1).await;
    set_zone(&cluster, &node(2), "a").await;
    cluster
        .eventually(10, "the second is refused", |c| events(c).iter().any(|e| e.contains("exceeded quota")))
        .await;
    set_zone(&cluster, &node(1), "c").await;
    cluster.eventually(20, "it has moved", |c| images(c).keys().eq([&node(2)])).await;
    rolled_out(&cluster, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_surplus_pod_is_deleted_while_other_pods_are_refused() {
    let (cluster, in_force) = with_policy(|request| {
        is_request(request, "create", "Pod") && request.user_agent.contains("windlass")
    })
    .await;
    let _daemon = rolled_out_on_three(&cluster, unavailable(1)).await;
    in_force.store(true, Ordering::SeqCst);
    add_node(&cluster, "new", json!({})).await;
    tokio::time::sleep(S).await;
    let mut twin = pod_on(&cluster, &node(1));
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
        twin["metadata"].as_object_mut().unwrap().remove(field);
    }
    twin["metadata"]["name"] = "twin".into();
    cluster.call(Method::POST, PODS, &twin).await;
    assert!(is_there(&cluster, "twin"));
    cluster.eventually(65, "the surplus has gone", |c| images(c)[&node(1)].len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_counts_failed_pods_lets_them_be_replaced() {
    for strategy in [unavailable(1), surge(1)] {
        let cluster = Cluster::new().await;
        let monitor = InvariantMonitor::of(&cluster);
        quota(&cluster, json!({"count/pods": "3"})).await;
        let _daemon = rolled_out_on_three(&cluster, strategy).await;
        let failed = [fail(&cluster, &node(1)).await, fail(&cluster, &node(2)).await];
        cluster.eventually(60, "they have gone", |c| failed.iter().all(|pod| !is_there(c, pod))).await;
        rolled_out(&cluster, 3).await;
        assert_eq!(failed.each_ref().map(|pod| kills(&cluster, pod)), [1, 1]);
        monitor.assert_no_breach();
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_counts_succeeded_pods_lets_them_be_replaced() {
    let cluster = Cluster::new().await;
    quota(&cluster, json!({"count/pods": "3"})).await;
    let _daemon = rolled_out_on_three(&cluster, unavailable(1)).await;
    let name = name_of(&pod_on(&cluster, &node(3)));
    set_pod_status(&cluster, &name, json!({"phase": "Succeeded", "conditions": null})).await;
    cluster.eventually(60, "it has gone", |c| !is_there(c, &name)).await;
    rolled_out(&cluster, 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_stays_until_its_replacement_was_refused_twice() {
    let (cluster, in_force) = with_policy(|request| is_request(request, "create", "Pod")).await;
    let _daemon = rolled_out_on_three(&cluster, unavailable(1)).await;
    in_force.store(true, Ordering::SeqCst);
    let before = requested(&cluster, "create", "Pod");
    let name = fail(&cluster, &node(1)).await;
    cluster.eventually(60, "it has gone", |c| !is_there(c, &name)).await;
    let log = cluster.log.lock().unwrap().clone();
    let deletion =
        log.iter().position(|request| is_request(request, "delete", "Pod") && request.name == name);
    let until = log.iter().take(deletion.unwrap()).filter(|request| is_request(request, "create", "Pod"));
    assert_eq!(until.count() - before, 2, "it went with the second refusal");
    assert_eq!(kills(&cluster, &name), 1);
    in_force.store(false, Ordering::SeqCst);
    rolled_out(&cluster, 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_pod_whose_deletion_is_refused_is_not_said_to_be_killed() {
    let (cluster, in_force) = with_policy(|request| is_request(request, "delete", "Pod")).await;
    let _daemon = rolled_out_on_three(&cluster, unavailable(1)).await;
    in_force.store(true, Ordering::SeqCst);
    let name = fail(&cluster, &node(1)).await;
    tokio::time::sleep(60 * S).await;
    assert!(is_there(&cluster, &name));
    assert!(events(&cluster).iter().any(|event| event.starts_with("Warning FailedDelete: Error deleting: ")));
    assert_eq!(kills(&cluster, &name), 0);
    in_force.store(false, Ordering::SeqCst);
    cluster.eventually(70, "it has gone", |c| !is_there(c, &name)).await;
    tokio::time::sleep(5 * S).await;
    assert_eq!(kills(&cluster, &name), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_pod_is_always_refused_does_not_keep_others_without_one() {
    let refused = format!("[\"{}\"]", node(1));
    let (cluster, in_force) = with_policy(move |request| {
        is_request(request, "create", "Pod") && String::from_utf8_lossy(&request.body).contains(&refused)
    })
    .await;
    in_force.store(true, Ordering::SeqCst);
    let _daemon = cluster.start_controllers(1);
    create(&cluster, unavailable(1)).await;
    cluster.eventually(20, "the others have theirs", |c| images(c).len() == 2).await;
    assert!(!images(&cluster).contains_key(&node(1)));
    in_force.store(false, Ordering::SeqCst);
    rolled_out(&cluster, 3).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_after_a_creation_without_an_answer() {
    let lost = Arc::new(AtomicBool::new(false));
    let asked = lost.clone();
    let cluster = Cluster::answering(move |request| {
        match asked.load(Ordering::SeqCst) && is_request(request, "create", "Pod") {
            true => FaultDecision::LoseRequest,
            false => FaultDecision::Proceed,
        }
    })
    .await;
    set_zone(&cluster, &node(1), "a").await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, in_zone_a()).await;
    rolled_out(&cluster, 1).await;
    lost.store(true, Ordering::SeqCst);
    set_zone(&cluster, &node(2), "a").await;
    tokio::time::sleep(S).await;
    set_zone(&cluster, &node(1), "c").await;
    tokio::time::sleep(20 * S).await;
    assert_eq!(requested(&cluster, "delete", "Pod"), 0);
    lost.store(false, Ordering::SeqCst);
    rolled_out(&cluster, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_of_revisions_lets_the_history_make_room_for_the_next_revision() {
    let cluster = Cluster::new().await;
    quota(&cluster, json!({"count/controllerrevisions.apps": "2"})).await;
    let mut spec = unavailable(3);
    spec["revisionHistoryLimit"] = 1.into();
    let _daemon = rolled_out_on_three(&cluster, spec).await;
    for tag in ["v2", "v3", "v4"] {
        set_image(&cluster, tag).await;
        rolled_out(&cluster, 3).await;
    }
    assert_eq!(revisions(&cluster), [(3, "v3".to_owned()), (4, "v4".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_revision_holds_up_the_rollout_and_not_the_pods_of_unsuitable_nodes() {
    let (cluster, in_force) =
        with_policy(|request| is_request(request, "create", "ControllerRevision")).await;
    for n in 1..=3 {
        set_zone(&cluster, &node(n), "a").await;
    }
    let mut spec = in_zone_a();
    spec["updateStrategy"] = unavailable(3)["updateStrategy"].clone();
    let _daemon = rolled_out_on_three(&cluster, spec).await;
    in_force.store(true, Ordering::SeqCst);
    set_image(&cluster, "v2").await;
    set_zone(&cluster, &node(1), "c").await;
    cluster.eventually(70, "its pod has gone", |c| !images(c).contains_key(&node(1))).await;
    let expected: BTreeMap<String, Vec<String>> = [2, 3].map(|n| (node(n), vec!["v1".to_owned()])).into();
    assert_eq!(images(&cluster), expected);
    in_force.store(false, Ordering::SeqCst);
    rolled_out(&cluster, 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_adopted_does_not_keep_others_from_being_adopted() {
    let stubborn = Arc::new(Mutex::new(String::new()));
    let named = stubborn.clone();
    let cluster = Cluster::answering(move |request| {
        match is_request(request, "patch", "Pod") && request.name == *named.lock().unwrap() {
            true => forbidden(POLICY),
            false => FaultDecision::Proceed,
        }
    })
    .await;
    let daemon = rolled_out_on_three(&cluster, unavailable(1)).await;
    daemon.stop().await;
    let all: Vec<String> = pods(&cluster).iter().map(name_of).collect();
    for name in &all {
        let orphan = json!({"metadata": {"ownerReferences": null}});
        cluster.call(Method::PATCH, &format!("{PODS}/{name}"), &orphan).await;
    }
    for refused in &all {
        *stubborn.lock().unwrap() = refused.clone();
        for name in &all {
            let orphan = json!({"metadata": {"ownerReferences": null}});
            cluster.call(Method::PATCH, &format!("{PODS}/{name}"), &orphan).await;
        }
        let daemon = cluster.start_controllers(2);
        let is_owned =
            |c: &Cluster, name: &str| super::named(c, "Pod", name)["metadata"]["ownerReferences"].is_array();
        let adopted = |c: &Cluster| all.iter().filter(|name| is_owned(c, name)).count();
        cluster.eventually(30, "the others are adopted", |c| adopted(c) == 2).await;
        assert!(!is_owned(&cluster, refused));
        daemon.stop().await;
    }
}
