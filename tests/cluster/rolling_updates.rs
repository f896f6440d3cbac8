//! The rolling update of a ReplicationController, at the request of its annotations.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_testkit::cluster::{Cluster, Daemon, USER_AGENT, condition, unlimited};

const CONTROLLERS: &str = "/api/v1/namespaces/shop/replicationcontrollers";
const REQUEST: &str = "windlass.dev/rolling-update-to";
const CLEANUP: &str = "windlass.dev/rolling-update-cleanup";
const ROLLBACK: &str = "windlass.dev/rolling-update-rollback";

fn daemon(cluster: &Cluster, seed: u64) -> Daemon {
    let config = ControllerConfig { enabled: Enabled::all(), root_ca: "pem".into(), ..unlimited() };
    cluster.start_with(seed, config, |router| router)
}

fn controller(name: &str, replicas: i32, image: &str) -> Value {
    let labels = json!({"app": "web", "version": name});
    json!({
        "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": labels, "template": {
            "metadata": {"labels": labels, "annotations": {"team": "a"}},
            "spec": {"containers": [{"name": "c", "image": image}]}}}})
}

fn named(cluster: &Cluster, name: &str) -> Option<Value> {
    let all = cluster.objects("ReplicationController");
    all.into_iter().find(|one| one["metadata"]["name"] == name)
}

/// `new` as the target of an update from `old`, with the bookkeeping of the client.
async fn create_new(cluster: &Cluster, image: &str) {
    let uid = named(cluster, "old").unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let mut new = controller("new", 0, image);
    new["metadata"]["annotations"] = json!({
        "kubectl.kubernetes.io/update-source-id": format!("old:{uid}"),
        "kubectl.kubernetes.io/desired-replicas": "3",
    });
    cluster.call(Method::POST, CONTROLLERS, &new).await;
}

/// `old` with three available pods, and `new` without any.
async fn old_and_new(cluster: &Cluster, image: &str) {
    cluster.call(Method::POST, CONTROLLERS, &controller("old", 3, "app:v1")).await;
    create_new(cluster, image).await;
    let all = |c: &Cluster| named(c, "old").is_some_and(|old| old["status"]["availableReplicas"] == 3);
    cluster.eventually(30, "the old pods are available", all).await;
}

async fn annotate(cluster: &Cluster, name: &str, annotations: Value) {
    let path = format!("{CONTROLLERS}/{name}");
    cluster.call(Method::PATCH, &path, &json!({"metadata": {"annotations": annotations}})).await;
}

fn reason(cluster: &Cluster, name: &str) -> String {
    named(cluster, name).map(|one| condition(&one, "RollingUpdate")).unwrap_or_default()
}

fn names(cluster: &Cluster) -> Vec<String> {
    let all = cluster.objects("ReplicationController");
    all.iter().map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// The survivor of each cleanup, and whether an old one stays beside it.
const ENDS: [(&str, &[&str], &str); 3] =
    [("Delete", &["new"], "new"), ("KeepName", &["old"], "old"), ("Preserve", &["new", "old"], "new")];

fn is_over(cluster: &Cluster, names_left: &[&str]) -> bool {
    let all = cluster.objects("ReplicationController");
    let is_bare = |one: &Value| {
        one["metadata"]["annotations"].as_object().is_none_or(serde_json::Map::is_empty)
            && one["status"]["observedGeneration"] == one["metadata"]["generation"]
    };
    names(cluster) == names_left && all.iter().all(is_bare)
}

/// The bounds hold at this moment: at least three pods are available, and at most four wanted.
fn check_bounds(cluster: &Cluster) {
    let pods = cluster.objects("Pod");
    let stays = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
    };
    let ready = pods.iter().filter(stays).filter(is_ready).count();
    let all = pods.iter().filter(stays).count();
    assert!(ready >= 3 && all <= 4, "{ready} of {all} pods are available");
}

fn check_end(cluster: &Cluster, survivor: &str) {
    let one = named(cluster, survivor).unwrap();
    assert_eq!(one["spec"]["replicas"], 3);
    let template = &one["spec"]["template"];
    assert_eq!(template["spec"]["containers"][0]["image"], "app:v2");
    assert_eq!(template["metadata"]["annotations"], json!({"team": "a"}));
    assert_eq!(one["spec"]["selector"], json!({"app": "web", "version": "new"}));
    let pods = cluster.objects("Pod");
    let owned =
        pods.iter().filter(|pod| pod["metadata"]["ownerReferences"][0]["uid"] == one["metadata"]["uid"]);
    let live = owned.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    assert_eq!(live.count(), 3);
}

#[tokio::test(start_paused = true)]
async fn each_cleanup_replaces_the_pods_within_the_bounds_and_reports_the_end() {
    for (cleanup, left, survivor) in ENDS {
        let cluster = Cluster::new().await;
        let daemon = daemon(&cluster, 1);
        old_and_new(&cluster, "app:v2").await;
        let uid = named(&cluster, "old").unwrap()["metadata"]["uid"].clone();
        annotate(&cluster, "old", json!({REQUEST: "new", CLEANUP: cleanup})).await;
        for _ in 0..2000 {
            check_bounds(&cluster);
            if is_over(&cluster, left) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(names(&cluster), left, "{cleanup}: {:?}", cluster.writes());
        check_end(&cluster, survivor);
        let reporter = if cleanup == "Preserve" { "old" } else { survivor };
        assert!(reason(&cluster, reporter).contains("Complete"), "{cleanup}: {}", reason(&cluster, reporter));
        if cleanup == "KeepName" {
            assert_eq!(named(&cluster, "old").unwrap()["metadata"]["uid"], uid);
        }
        assert_eq!(cluster.pods_created(), 6, "{cleanup}: no pod but three of each");
        let writes = cluster.writes();
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(cluster.writes(), writes, "{cleanup}: nothing is left to write");
        let text = daemon.metrics.render();
        for line in ["windlass_rolling_updates_started_total 1", "windlass_rolling_updates_finished_total 1"]
        {
            assert!(text.contains(line), "{cleanup}: {line}");
        }
        let events = cluster.objects("Event");
        let texts: Vec<&str> = events
            .iter()
            .filter(|event| event["source"]["component"] == "rollingupdate-controller")
            .filter_map(|event| event["message"].as_str())
            .collect();
        assert!(texts.contains(&"Scaled up replication controller new from 0 to 1"), "{texts:?}");
        assert!(texts.contains(&"Scaled down replication controller old from 1 to 0"), "{texts:?}");
        daemon.stop().await;
    }
}

/// Whether this is a write of the controller of rolling updates.
fn is_of_the_update(request: &RequestInfo) -> bool {
    let body = String::from_utf8_lossy(&request.body);
    request.user_agent == USER_AGENT
        && request.kind == "ReplicationController"
        && matches!(request.verb, "patch" | "delete")
        && (request.subresource.is_empty() || body.contains("RollingUpdate"))
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_is_killed_after_each_write_reaches_the_same_end() {
    for (cleanup, left, survivor) in ENDS {
        // With a limit of one write, all further requests of the daemon are lost, as of one that is dead.
        let writes = Arc::new(AtomicUsize::new(0));
        let seen = writes.clone();
        let cluster = Cluster::answering(move |request: &RequestInfo| {
            if request.user_agent != USER_AGENT {
                return FaultDecision::Proceed;
            }
            if seen.load(Ordering::SeqCst) > 0 {
                return FaultDecision::LoseRequest;
            }
            if !is_of_the_update(request) {
                return FaultDecision::Proceed;
            }
            seen.fetch_add(1, Ordering::SeqCst);
            FaultDecision::LoseReply
        })
        .await;
        let mut running = daemon(&cluster, 1);
        old_and_new(&cluster, "app:v2").await;
        annotate(&cluster, "old", json!({REQUEST: "new", CLEANUP: cleanup})).await;
        let mut killed = 0;
        for _ in 0..20_000 {
            check_bounds(&cluster);
            if writes.swap(0, Ordering::SeqCst) > 0 {
                running.kill();
                killed += 1;
                tokio::time::sleep(Duration::from_millis(500)).await;
                running = daemon(&cluster, 1 + killed);
            } else if is_over(&cluster, left) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(names(&cluster), left, "{cleanup}: {killed} kills, {:?}", cluster.writes());
        assert!(killed > 8, "{cleanup}: {killed}");
        check_end(&cluster, survivor);
        assert_eq!(cluster.pods_created(), 6, "{cleanup}: no pod but three of each");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_image_is_reported_in_time_and_is_taken_back() {
    let cluster = Cluster::new().await;
    let daemon = daemon(&cluster, 1);
    old_and_new(&cluster, "app:broken").await;
    annotate(&cluster, "old", json!({REQUEST: "new", "windlass.dev/rolling-update-timeout": "1m"})).await;
    cluster.eventually(10, "it waits", |c| reason(c, "old").contains("Waiting")).await;
    let says = |c: &Cluster| named(c, "old").unwrap()["status"].to_string().contains("ImagePullBackOff");
    cluster.eventually(30, "it names the failing pod", says).await;
    cluster.eventually(75, "it warns", |c| reason(c, "old").contains("TimedOut")).await;
    check_bounds(&cluster);
    annotate(&cluster, "old", json!({ROLLBACK: "true"})).await;
    cluster.eventually(30, "it is taken back", |c| is_over(c, &["old"])).await;
    assert!(reason(&cluster, "old").contains("RolledBack"));
    assert_eq!(named(&cluster, "old").unwrap()["spec"]["replicas"], 3);
    let text = daemon.metrics.render();
    for reason in ["TimedOut", "RolledBack"] {
        let line = format!("windlass_rolling_updates_failed_total{{reason=\"{reason}\"}} 1");
        assert!(text.contains(&line), "{line}");
    }
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_size_that_somebody_changes_midway_is_said_and_the_update_goes_on_from_there() {
    let cluster = Cluster::new().await;
    let daemon = daemon(&cluster, 1);
    old_and_new(&cluster, "app:broken").await;
    annotate(&cluster, "old", json!({REQUEST: "new"})).await;
    cluster.eventually(10, "it waits", |c| reason(c, "old").contains("Waiting")).await;
    let resized = json!({"spec": {"replicas": 2}});
    cluster.call(Method::PATCH, &format!("{CONTROLLERS}/new"), &resized).await;
    let says = |c: &Cluster| {
        let text = "Replication controller new was scaled from 1 to 2 by another client";
        c.objects("Event")
            .iter()
            .any(|event| event["message"].as_str().is_some_and(|it| it.starts_with(text)))
    };
    cluster.eventually(10, "an event says so", says).await;
    // Nothing of the old one goes: three pods must be available.
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(named(&cluster, "old").unwrap()["spec"]["replicas"], 3);
    annotate(&cluster, "old", json!({ROLLBACK: "true"})).await;
    cluster.eventually(30, "it is taken back", |c| is_over(c, &["old"])).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_goes_on_as_soon_as_it_is_repaired() {
    let cluster = Cluster::new().await;
    let daemon = daemon(&cluster, 1);
    cluster.call(Method::POST, CONTROLLERS, &controller("old", 3, "app:v1")).await;
    annotate(&cluster, "old", json!({REQUEST: "new"})).await;
    cluster.eventually(5, "NEW is missing", |c| reason(c, "old").contains("Refused")).await;
    create_new(&cluster, "app:v2").await;
    cluster.eventually(60, "it is there", |c| is_over(c, &["new"])).await;
    check_end(&cluster, "new");
    daemon.stop().await;
}

/// Two applications of one namespace, each with its pods. A request on one, however it came there, touches the other as
/// little as its own.
async fn check_nothing_happens(cluster: &Cluster, requested: &str) {
    let state = || {
        let bare = |mut one: Value| {
            one["metadata"]
                .as_object_mut()
                .unwrap()
                .retain(|key, _| ["name", "uid", "annotations"].contains(&&**key));
            one["status"] = one["status"]["availableReplicas"].clone();
            one
        };
        let pods = cluster.objects("Pod").into_iter().map(|pod| pod["metadata"]["uid"].clone());
        (
            cluster.objects("ReplicationController").into_iter().map(bare).collect::<Vec<_>>(),
            pods.collect::<Vec<_>>(),
        )
    };
    let before = state();
    cluster.eventually(10, "the request is refused", |c| reason(c, requested).contains("Refused")).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(state(), before);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_names_a_stranger_is_refused_in_either_direction() {
    for rollback in [None, Some("true")] {
        let cluster = Cluster::new().await;
        let daemon = daemon(&cluster, 1);
        cluster.call(Method::POST, CONTROLLERS, &controller("api", 3, "app:v1")).await;
        cluster.call(Method::POST, CONTROLLERS, &controller("payments", 5, "app:v1")).await;
        let all =
            |c: &Cluster| named(c, "payments").is_some_and(|one| one["status"]["availableReplicas"] == 5);
        cluster.eventually(30, "all pods are available", all).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        annotate(&cluster, "api", json!({REQUEST: "payments", ROLLBACK: rollback})).await;
        check_nothing_happens(&cluster, "api").await;
        assert!(cluster.objects("Event").iter().any(|event| event["reason"] == "RollingUpdateRefused"));
        daemon.stop().await;
    }
}

/// OLD is kept at 0 replicas "to go back to": 0 is not the size that it had.
#[tokio::test(start_paused = true)]
async fn a_rollback_of_a_complete_update_is_refused() {
    let cluster = Cluster::new().await;
    let daemon = daemon(&cluster, 1);
    old_and_new(&cluster, "app:v2").await;
    annotate(&cluster, "old", json!({REQUEST: "new", CLEANUP: "Preserve"})).await;
    cluster.eventually(60, "it is over", |c| is_over(c, &["new", "old"])).await;
    check_end(&cluster, "new");
    tokio::time::sleep(Duration::from_secs(60)).await;
    annotate(&cluster, "old", json!({REQUEST: "new", ROLLBACK: "true"})).await;
    check_nothing_happens(&cluster, "old").await;
    check_end(&cluster, "new");
    daemon.stop().await;
}

/// A controller of another kind, or a third one, that selects the pods of `new`.
#[tokio::test(start_paused = true)]
async fn what_is_refused_for_a_rival_goes_on_as_soon_as_the_rival_is_deleted() {
    const SETS: &str = "/apis/apps/v1/namespaces/shop";
    let labels = json!({"app": "web"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "app:v1"}]}});
    let set = json!({"metadata": {"name": "rival"}, "spec": {"replicas": 0, "selector": {"matchLabels": labels},
                                                             "template": template}});
    let mut daemon_set = set.clone();
    daemon_set["spec"]["template"]["spec"]["nodeSelector"] = json!({"nowhere": "true"});
    daemon_set["spec"].as_object_mut().unwrap().remove("replicas");
    let third = json!({"metadata": {"name": "rival"}, "spec": {"replicas": 0, "selector": labels, "template": template}});
    for (path, rival) in [
        (format!("{SETS}/replicasets"), &set),
        (format!("{SETS}/daemonsets"), &daemon_set),
        (CONTROLLERS.to_owned(), &third),
    ] {
        let cluster = Cluster::new().await;
        let daemon = daemon(&cluster, 1);
        old_and_new(&cluster, "app:v2").await;
        cluster.call(Method::POST, &path, rival).await;
        annotate(&cluster, "old", json!({REQUEST: "new", CLEANUP: "KeepName"})).await;
        cluster.eventually(5, "a rival is there", |c| reason(c, "old").contains("Refused")).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(reason(&cluster, "old").contains("Refused"), "{path}");
        cluster.call(Method::DELETE, &format!("{path}/rival"), &json!({})).await;
        cluster.eventually(60, "it is gone", |c| is_over(c, &["old"])).await;
        check_end(&cluster, "old");
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_controller_a_request_is_not_answered() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    old_and_new(&cluster, "app:v2").await;
    annotate(&cluster, "old", json!({REQUEST: "new"})).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(
        (reason(&cluster, "old"), named(&cluster, "new").unwrap()["spec"]["replicas"].clone()),
        (String::new(), json!(0))
    );
    let text = daemon.metrics.render();
    assert!(text.contains("workqueue_depth{name=\"rollingupdate\"} 0"), "no key waits for nobody");
    daemon.stop().await;
}
