//! The ReplicaSet controller against the sandbox, in virtual time: exactness, refusals, storms, pace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::ControllerConfig;
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_testkit::cluster::{Cluster, condition, inject_faults, is_request, unlimited};

const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const S: Duration = Duration::from_secs(1);

async fn create(cluster: &Cluster, name: &str, replicas: i32) {
    let replica_set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}
    });
    cluster.call(Method::POST, REPLICA_SETS, &replica_set).await;
}

async fn scale(cluster: &Cluster, name: &str, replicas: i32) {
    let patch = json!({"spec": {"replicas": replicas}});
    cluster.call(Method::PATCH, &format!("{REPLICA_SETS}/{name}"), &patch).await;
}

fn replica_set(cluster: &Cluster, name: &str) -> Value {
    let named = |replica_set: &Value| replica_set["metadata"]["name"] == name;
    cluster.objects("ReplicaSet").into_iter().find(named).unwrap_or(Value::Null)
}

fn is_available(cluster: &Cluster, name: &str, pods: i64) -> bool {
    replica_set(cluster, name)["status"]["availableReplicas"].as_i64().unwrap_or(0) == pods
}

fn pods(cluster: &Cluster, name: &str) -> Vec<Value> {
    let mut all = cluster.objects("Pod");
    all.retain(|pod| pod["metadata"]["labels"]["app"] == name);
    all
}

fn creations(cluster: &Cluster) -> usize {
    cluster.log.lock().unwrap().iter().filter(|request| is_request(request, "create", "Pod")).count()
}

#[tokio::test(start_paused = true)]
async fn a_creation_in_flight_at_a_crash_causes_no_surplus_pod() {
    for late in [5 * S, 20 * S] {
        let count = AtomicUsize::new(0);
        // The first four requests reach the server long after the daemon that sent them is dead.
        let cluster = Cluster::with(
            inject_faults(move |request| {
                let early = is_request(request, "create", "Pod") && count.fetch_add(1, Ordering::SeqCst) < 4;
                if early { FaultDecision::Delay(late) } else { FaultDecision::Proceed }
            }),
            |options| options,
        )
        .await;
        let first = cluster.start_controllers(1);
        create(&cluster, "web", 10).await;
        tokio::time::sleep(S).await;
        first.kill();
        let _second = cluster.start_controllers(2);
        cluster.eventually(60, "all pods are there", |c| is_available(c, "web", 10)).await;
        tokio::time::sleep(30 * S).await;
        assert_eq!(cluster.pods_created(), 10, "{late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn two_active_daemons_create_no_surplus_pod() {
    let cluster = Cluster::new().await;
    let _first = cluster.start_controllers(1);
    let _second = cluster.start_controllers(2);
    for n in 0..10 {
        create(&cluster, &format!("web{n}"), 7).await;
    }
    for n in 0..10 {
        let name = format!("web{n}");
        cluster.eventually(60, "all pods are there", |c| is_available(c, &name, 7)).await;
    }
    assert_eq!(cluster.pods_created(), 70);
}

/// Fails every pod of the namespace as soon as it is there, as a node does that refuses them, while
/// `refuses` is set.
fn refusing_node(cluster: &Cluster, refuses: &Arc<AtomicBool>) -> tokio::task::AbortHandle {
    let (sandbox, client, refuses) = (cluster.sandbox.clone(), cluster.client.clone(), refuses.clone());
    let node = async move {
        loop {
            tokio::time::sleep(S / 4).await;
            if !refuses.load(Ordering::SeqCst) {
                continue;
            }
            for pod in sandbox.objects("Pod").iter().filter(|pod| pod["status"]["phase"] != "Failed") {
                let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
                let status = json!({"status": {"phase": "Failed", "reason": "OutOfcpu", "conditions": null}});
                let patch = http::Request::patch(path).header("content-type", "application/merge-patch+json");
                let _gone =
                    client.request::<Value>(patch.body(status.to_string().into_bytes()).unwrap()).await;
            }
        }
    };
    tokio::spawn(node).abort_handle()
}

#[tokio::test(start_paused = true)]
async fn pods_that_fail_at_startup_are_retried_one_by_one_and_all_at_once_after_one_is_ready() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    let refuses = Arc::new(AtomicBool::new(true));
    let node = refusing_node(&cluster, &refuses);
    create(&cluster, "web", 20).await;
    tokio::time::sleep(300 * S).await;
    let made = creations(&cluster);
    assert!((24..=27).contains(&made), "{made} pods in five minutes for 20");
    tokio::time::sleep(1800 * S).await;
    let made = creations(&cluster) - made;
    assert!((5..=7).contains(&made), "{made} more in half an hour");
    let has_event = |c: &Cluster| c.objects("Event").iter().any(|e| e["reason"] == "FailedPodsBackOff");
    assert!(has_event(&cluster), "no event and no condition reports it");

    refuses.store(false, Ordering::SeqCst);
    cluster.eventually(310, "all pods are there", |c| is_available(c, "web", 20)).await;
    node.abort();
}

#[tokio::test(start_paused = true)]
async fn failed_pods_beyond_those_that_are_kept_are_deleted_and_the_backoff_stays() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    let refuses = Arc::new(AtomicBool::new(true));
    let node = refusing_node(&cluster, &refuses);
    create(&cluster, "web", 4).await;
    let keep = |value: &str| json!({"metadata": {"annotations": {"windlass.dev/keep-failed-pods": value}}});
    cluster.call(Method::PATCH, &format!("{REPLICA_SETS}/web"), &keep("2 for 1h")).await;
    tokio::time::sleep(1200 * S).await;
    assert!((9..=14).contains(&creations(&cluster)), "{} pods in 20 minutes", creations(&cluster));
    assert_eq!(cluster.objects("Pod").len(), 7, "as many as the backoff is computed from");
    refuses.store(false, Ordering::SeqCst);
    cluster.eventually(310, "all pods are there", |c| is_available(c, "web", 4)).await;
    node.abort();
    tokio::time::sleep(300 * S).await;
    assert_eq!(cluster.objects("Pod").len(), 4 + 2);
    tokio::time::sleep(3600 * S).await;
    assert_eq!(cluster.objects("Pod").len(), 4, "an hour is over");
}

#[tokio::test(start_paused = true)]
async fn failed_pod_backoff_can_be_disabled() {
    let cluster = Cluster::new().await;
    let config = ControllerConfig { failed_pod_backoff: false, ..unlimited() };
    let _daemon = cluster.start_with(1, config, |router| router);
    let node = refusing_node(&cluster, &Arc::new(AtomicBool::new(true)));
    create(&cluster, "web", 20).await;
    tokio::time::sleep(10 * S).await;
    assert!(creations(&cluster) > 200, "{}", creations(&cluster));
    node.abort();
}

/// A cluster whose quota is six pods.
async fn namespace_of_six() -> Cluster {
    let sandbox = Arc::new(parking_lot::Mutex::new(None::<windlass_apiserver::Sandbox>));
    let quota = sandbox.clone();
    let cluster = Cluster::with(
        inject_faults(move |request| {
            let full = || quota.lock().as_ref().is_some_and(|s| s.objects("Pod").len() >= 6);
            if is_request(request, "create", "Pod") && full() {
                let message = "pods is forbidden: exceeded quota: pods, requested: pods=1, used: pods=6";
                FaultDecision::Refuse { code: 403, message: message.into(), reason: "Forbidden".into() }
            } else {
                FaultDecision::Proceed
            }
        }),
        |options| options,
    )
    .await;
    *sandbox.lock() = Some(cluster.sandbox.clone());
    cluster
}

#[tokio::test(start_paused = true)]
async fn pods_that_a_quota_refused_are_created_as_soon_as_the_quota_allows() {
    let cluster = namespace_of_six().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, "first", 6).await;
    cluster.eventually(10, "the first has its pods", |c| is_available(c, "first", 6)).await;
    for name in ["second", "third"] {
        create(&cluster, name, 2).await;
    }
    // By now the backoff is a minute.
    tokio::time::sleep(300 * S).await;
    for name in ["second", "third"] {
        assert_eq!(condition(&replica_set(&cluster, name), "ReplicaFailure"), "FailedCreate");
    }
    let doomed = creations(&cluster);
    scale(&cluster, "first", 2).await;
    for name in ["second", "third"] {
        cluster.eventually(4, "there is room for its pods", |c| is_available(c, name, 2)).await;
        assert_eq!(condition(&replica_set(&cluster, name), "ReplicaFailure"), "");
    }
    let tries = creations(&cluster) - doomed;
    assert!(tries <= 4 + 4, "{tries} tries for four pods");
}

#[tokio::test(start_paused = true)]
async fn pods_that_a_policy_refuses_are_not_tried_again_for_each_pod_that_ends() {
    let refusals = [(403, "Forbidden", "denied by policy"), (500, "InternalError", "failed calling webhook")];
    for (code, reason, message) in refusals {
        let cluster = Cluster::with(
            inject_faults(move |request| {
                let is_owned = String::from_utf8_lossy(&request.body).contains("ownerReferences");
                match is_request(request, "create", "Pod") && is_owned {
                    true => FaultDecision::Refuse { code, message: message.into(), reason: reason.into() },
                    false => FaultDecision::Proceed,
                }
            }),
            |options| options,
        )
        .await;
        let _daemon = cluster.start_controllers(1);
        create(&cluster, "web", 3).await;
        for second in 0..60 {
            for nth in 0..10 {
                let pod = json!({
                    "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("job-{second}-{nth}")},
                    "spec": {"containers": [{"name": "app", "image": "app:v1"}]},
                });
                cluster.call(Method::POST, PODS, &pod).await;
                let path = format!("{PODS}/job-{second}-{nth}");
                cluster.call(Method::DELETE, &path, &json!({"gracePeriodSeconds": 0})).await;
            }
            tokio::time::sleep(S).await;
        }
        let owned = |request: &&RequestInfo| {
            is_request(request, "create", "Pod")
                && String::from_utf8_lossy(&request.body).contains("ownerReferences")
        };
        let tries = cluster.log.lock().unwrap().iter().filter(owned).count();
        assert!((5..=20).contains(&tries), "{tries} tries in a minute, {message}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_replica_set_without_missing_pods_does_not_delay_others_in_the_quota_queue() {
    let cluster = namespace_of_six().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, "first", 6).await;
    cluster.eventually(10, "the first has its pods", |c| is_available(c, "first", 6)).await;
    for name in ["second", "third"] {
        create(&cluster, name, 1).await;
    }
    tokio::time::sleep(300 * S).await;
    scale(&cluster, "second", 0).await;
    tokio::time::sleep(2 * S).await;
    scale(&cluster, "first", 5).await;
    cluster.eventually(4, "there is room for its pod", |c| is_available(c, "third", 1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_creation_in_flight_causes_no_surplus_pod_when_another_name_becomes_free() {
    let count = AtomicUsize::new(0);
    // The fourth request arrives after its client has abandoned it.
    let cluster = Cluster::with(
        inject_faults(move |request| {
            let is_fourth = is_request(request, "create", "Pod") && count.fetch_add(1, Ordering::SeqCst) == 3;
            if is_fourth { FaultDecision::Delay(35 * S) } else { FaultDecision::Proceed }
        }),
        |options| options,
    )
    .await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, "web", 3).await;
    cluster.eventually(10, "all pods are there", |c| is_available(c, "web", 3)).await;
    // An earlier name becomes free while the request with a later one is in flight.
    let first =
        cluster.log.lock().unwrap().iter().find(|r| is_request(r, "create", "Pod")).unwrap().body.to_vec();
    let first: Value = serde_json::from_slice(&first).unwrap();
    let name = first["metadata"]["name"].as_str().unwrap();
    let pod = format!("{PODS}/{name}");
    cluster.call(Method::PATCH, &pod, &json!({"metadata": {"finalizers": ["example.com/hold"]}})).await;
    cluster.call(Method::DELETE, &pod, &json!({})).await;
    tokio::time::sleep(10 * S).await;
    cluster.call(Method::PATCH, &pod, &json!({"metadata": {"finalizers": null}})).await;
    tokio::time::sleep(60 * S).await;
    cluster.eventually(10, "all pods are there", |c| is_available(c, "web", 3)).await;
    assert_eq!(cluster.pods_created(), 4, "three, and one for the one that went");
}

#[tokio::test(start_paused = true)]
async fn status_increases_are_written_once_a_second_and_decreases_at_once() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    create(&cluster, "web", 100).await;
    cluster.eventually(60, "all pods are there", |c| is_available(c, "web", 100)).await;
    let writes = |c: &Cluster| c.writes().iter().filter(|w| w.starts_with("patch ReplicaSet")).count();
    let ready = |name: &str, ready: &str| {
        (
            format!("{PODS}/{name}/status"),
            json!({"status": {"conditions": [{"type": "Ready", "status": ready,
                                              "lastTransitionTime": "2026-01-01T00:05:00Z"}]}}),
        )
    };
    let names: Vec<String> =
        pods(&cluster, "web").iter().map(|p| p["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    for (state, expected) in [("False", 100..=101), ("True", 9..=13)] {
        let before = writes(&cluster);
        for name in &names {
            let (path, patch) = ready(name, state);
            cluster.call(Method::PATCH, &path, &patch).await;
            tokio::time::sleep(S / 10).await;
        }
        let written = writes(&cluster) - before;
        assert!(expected.contains(&written), "{written} writes in 10 s of pods that become {state}");
    }
    assert!(is_available(&cluster, "web", 100), "complete, and reported at once");
}

#[tokio::test(start_paused = true)]
async fn a_name_of_a_foreign_pod_is_skipped() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_controllers(1);
    create(&cluster, "web", 3).await;
    cluster.eventually(10, "all pods are there", |c| is_available(c, "web", 3)).await;
    // Orphan pods have all three names.
    let names: Vec<Value> = pods(&cluster, "web").iter().map(|p| p["metadata"]["name"].clone()).collect();
    daemon.stop().await;
    for name in &names {
        let path = format!("{PODS}/{}", name.as_str().unwrap());
        cluster.call(Method::DELETE, &path, &json!({"gracePeriodSeconds": 0})).await;
        let foreign = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                             "spec": {"containers": [{"name": "c", "image": "i:1"}]}});
        cluster.call(Method::POST, PODS, &foreign).await;
    }
    let _daemon = cluster.start_controllers(1);
    cluster.eventually(10, "three others are there", |c| is_available(c, "web", 3)).await;
    assert!(pods(&cluster, "web").iter().all(|pod| !names.contains(&pod["metadata"]["name"])));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_shuts_down_creates_no_further_pod_and_ends_in_time() {
    let slow = |request: &RequestInfo| {
        if is_request(request, "create", "Pod") {
            FaultDecision::DelayReply(3 * S)
        } else {
            FaultDecision::Proceed
        }
    };
    let cluster = Cluster::with(inject_faults(slow), |options| options).await;
    let daemon = cluster.start_controllers(1);
    create(&cluster, "web", 100).await;
    tokio::time::sleep(S).await;
    // Half a minute's work; `stop` fails if it is not over within ten seconds.
    daemon.stop().await;
    let made = creations(&cluster);
    let _next = cluster.start_controllers(2);
    cluster.eventually(60, "all pods are there", |c| is_available(c, "web", 100)).await;
    assert!(made < 10, "{made}");
    assert_eq!(cluster.pods_created(), 100);
}
