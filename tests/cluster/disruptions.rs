//! The disruption controller and evictions against the embedded API server, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_apiserver::{Admission, FaultDecision};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, Faults, forbidden, inject_faults, is_request, unlimited};

const BUDGETS: &str = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets";
const PODS: &str = "/api/v1/namespaces/shop/pods";

async fn cluster(faults: Faults) -> Cluster {
    Cluster::with(faults, |mut options| {
        options.admission = &[Admission::DisruptionBudgets];
        options
    })
    .await
}

fn start(cluster: &Cluster, seed: u64) -> Daemon {
    let enabled = Enabled::default().with("disruption-controller");
    cluster.start_with(seed, ControllerConfig { enabled, ..unlimited() }, |router| router)
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

async fn protect(cluster: &Cluster, spec: Value) {
    let mut budget =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}});
    budget["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    cluster.call(Method::POST, BUDGETS, &budget).await;
}

fn status(cluster: &Cluster) -> Value {
    cluster.objects("PodDisruptionBudget")[0]["status"].clone()
}

/// Healthy, desired and expected pods, and allowed disruptions.
fn numbers(cluster: &Cluster) -> [i64; 4] {
    let status = status(cluster);
    ["currentHealthy", "desiredHealthy", "expectedPods", "disruptionsAllowed"]
        .map(|field| status[field].as_i64().unwrap_or(0))
}

fn reason(cluster: &Cluster) -> String {
    let conditions = status(cluster)["conditions"].as_array().cloned().unwrap_or_default();
    let ours = conditions.iter().find(|condition| condition["type"] == "DisruptionAllowed");
    ours.and_then(|condition| condition["reason"].as_str()).unwrap_or_default().to_owned()
}

fn is_healthy(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

/// The names of the healthy pods.
fn healthy(cluster: &Cluster) -> Vec<String> {
    cluster.objects("Pod").iter().filter(|pod| is_healthy(pod)).map(name).collect()
}

async fn evict(cluster: &Cluster, pod: &str) -> Result<Value, (u16, String)> {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
    match cluster.try_call(Method::POST, &format!("{PODS}/{pod}/eviction"), &eviction).await {
        Ok(answer) => Ok(answer),
        Err(kube::Error::Api(status)) => {
            let causes = status.details.as_ref().map(|details| details.causes.clone()).unwrap_or_default();
            Err((status.code, causes.first().map(|cause| cause.message.clone()).unwrap_or_default()))
        }
        Err(error) => panic!("{error}"),
    }
}

fn events(cluster: &Cluster, reason: &str) -> Vec<String> {
    let events = cluster.objects("Event");
    let ours = events.iter().filter(|event| event["reason"] == reason);
    ours.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
}

/// Defines a kind, with a scale or without, and creates an object of 4 replicas.
async fn define(cluster: &Cluster, plural: &str, kind: &str, has_scale: bool) -> Value {
    let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
    let scale = json!({"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"});
    let subresources = if has_scale { json!({"scale": scale}) } else { json!({}) };
    let definition = json!({"metadata": {"name": format!("{plural}.x.io")},
        "spec": {"group": "x.io", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                 "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema,
                               "subresources": subresources}]}});
    cluster.call(Method::POST, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
    let object =
        json!({"apiVersion": "x.io/v1", "kind": kind, "metadata": {"name": "s"}, "spec": {"replicas": 4}});
    cluster.call(Method::POST, &format!("/apis/x.io/v1/namespaces/shop/{plural}"), &object).await
}

/// Creates a pod of such an object.
async fn create_pod(cluster: &Cluster, name: &str, owner: &Value) {
    let (kind, uid) = (&owner["kind"], &owner["metadata"]["uid"]);
    let owner = json!({"apiVersion": "x.io/v1", "kind": kind, "name": owner["metadata"]["name"], "uid": uid,
                       "controller": true});
    let pod = json!({"metadata": {"name": name, "labels": {"app": "web"}, "ownerReferences": [owner]},
                     "spec": {"containers": [{"name": "c", "image": "img:v1"}]}});
    cluster.call(Method::POST, PODS, &pod).await;
}

/// Drains like `kubectl drain`: each of these pods is evicted, with a retry every five seconds. After each step at least so many
/// pods are healthy.
async fn drain(cluster: &Cluster, least: usize) {
    let mut left = healthy(cluster);
    for _ in 0..200 {
        let answers = join_all(left.iter().map(|pod| evict(cluster, pod))).await;
        let now = healthy(cluster).len();
        assert!(now >= least, "{now} pods are healthy, {least} must be");
        let refused = left.into_iter().zip(answers).filter(|(_, answer)| match answer {
            Ok(_) | Err((404, _)) => false,
            Err((429 | 500 | 504, _)) => true,
            Err(other) => panic!("{other:?}"),
        });
        left = refused.map(|(pod, _)| pod).collect();
        if left.is_empty() {
            return;
        }
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            assert!(healthy(cluster).len() >= least);
        }
    }
    panic!("{left:?} cannot be evicted: {}", status(cluster));
}

#[tokio::test(start_paused = true)]
async fn a_budget_gets_its_status_which_is_not_written_again_without_a_change() {
    let cluster = cluster(Faults::default()).await;
    let daemon = start(&cluster, 1);
    protect(&cluster, json!({"maxUnavailable": 1})).await;
    cluster.eventually(2, "observed", |c| status(c)["observedGeneration"] == 1).await;
    assert_eq!((numbers(&cluster), reason(&cluster)), ([0; 4], "InsufficientPods".to_owned()));
    cluster.create(deployment("web").replicas(4)).await;
    cluster.rolled_out("web").await;
    cluster.eventually(3, "all healthy", |c| numbers(c) == [4, 3, 4, 1]).await;
    assert_eq!(reason(&cluster), "SufficientPods");
    seconds(10).await;
    assert_eq!(events(&cluster, "NoPods"), ["No matching pods found"]);
    let writes = cluster.writes();
    seconds(3600).await;
    assert_eq!(cluster.writes(), writes);
    // The workload grows: more pods are expected before they exist.
    cluster.patch("web", json!({"spec": {"replicas": 6, "paused": true}})).await;
    cluster.eventually(1, "expected", |c| numbers(c)[2] == 6).await;
    assert!(numbers(&cluster)[3] == 0);
    cluster.eventually(60, "all healthy", |c| numbers(c) == [6, 5, 6, 1]).await;
    let percent = json!({"spec": {"maxUnavailable": null, "minAvailable": "50%"}});
    cluster.call(Method::PATCH, &format!("{BUDGETS}/web"), &percent).await;
    cluster.eventually(2, "the new spec", |c| numbers(c) == [6, 3, 6, 3]).await;
    seconds(5).await;
    daemon.stop().await;
    let writes = cluster.writes();
    let next = start(&cluster, 2);
    seconds(60).await;
    assert_eq!(cluster.writes(), writes, "another daemon takes over without a write");
    let metrics = next.metrics.render();
    for queue in ["disruption", "stale_pod_disruption"] {
        assert!(metrics.contains(&format!("workqueue_adds_total{{name=\"{queue}\"}}")), "{metrics}");
    }
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn concurrent_evictions_never_leave_fewer_pods_than_desired() {
    for (seed, spec) in
        [json!({"minAvailable": 3}), json!({"maxUnavailable": "40%"}), json!({"maxUnavailable": 2})]
            .iter()
            .enumerate()
    {
        let cluster = cluster(Faults::default()).await;
        let daemon = start(&cluster, seed as u64);
        protect(&cluster, spec.clone()).await;
        cluster.create(deployment("web").replicas(5)).await;
        cluster.rolled_out("web").await;
        cluster.eventually(3, "two may go", |c| numbers(c)[3] == 2).await;
        let old = healthy(&cluster);
        drain(&cluster, 3).await;
        cluster.eventually(120, "replaced", |c| numbers(c) == [5, 3, 5, 2]).await;
        assert!(healthy(&cluster).iter().all(|pod| !old.contains(pod)));
        cluster
            .eventually(30, "no entry is left", |c| {
                status(c)["disruptedPods"].as_object().is_none_or(|it| it.is_empty())
            })
            .await;
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn neither_lost_replies_nor_refusals_let_too_many_go() {
    let writes = AtomicUsize::new(0);
    let faults = inject_faults(move |request| {
        if !is_request(request, "patch", "PodDisruptionBudget") {
            return FaultDecision::Proceed;
        }
        match writes.fetch_add(1, Ordering::Relaxed) % 4 {
            0 => FaultDecision::LoseReply,
            1 => FaultDecision::LoseRequest,
            2 => FaultDecision::Refuse { code: 500, message: "no".into(), reason: "InternalError".into() },
            _ => FaultDecision::Proceed,
        }
    });
    let cluster = cluster(faults).await;
    let daemon = start(&cluster, 3);
    protect(&cluster, json!({"minAvailable": 3})).await;
    cluster.create(deployment("web").replicas(4)).await;
    cluster.rolled_out("web").await;
    drain(&cluster, 3).await;
    cluster.eventually(300, "the status is right", |c| numbers(c) == [4, 3, 4, 1]).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_scale_of_a_custom_owner_counts() {
    let cluster = cluster(Faults::default()).await;
    let stall = define(&cluster, "stalls", "Stall", true).await;
    let tent = define(&cluster, "tents", "Tent", false).await;
    let daemon = start(&cluster, 4);
    protect(&cluster, json!({"maxUnavailable": "50%"})).await;
    for pod in ["a", "b", "c"] {
        create_pod(&cluster, pod, &stall).await;
    }
    cluster.eventually(30, "half of four", |c| numbers(c) == [3, 2, 4, 1]).await;
    let reads = |c: &Cluster| {
        let log = c.log.lock().unwrap();
        log.iter().filter(|request| request.kind == "Stall" && request.subresource == "scale").count()
    };
    assert!(reads(&cluster) > 0);
    assert_eq!(events(&cluster, "CalculateExpectedPodCountFailed"), [""; 0]);
    // Another owner has no scale: nothing can be said any more.
    create_pod(&cluster, "d", &tent).await;
    cluster.eventually(5, "failed", |c| reason(c) == "SyncFailed").await;
    assert_eq!(numbers(&cluster)[3], 0);
    let why = "The disruption budget web does not allow evicting pods currently because it failed sync: \
               tents.x.io does not implement the scale subresource";
    assert_eq!(evict(&cluster, "a").await, Err((429, why.to_owned())));
    let told = "Failed to calculate the number of expected pods: tents.x.io does not implement the scale subresource";
    cluster.eventually(5, "told", |c| events(c, "CalculateExpectedPodCountFailed") == [told]).await;
    let writes = cluster.count("patch PodDisruptionBudget");
    seconds(600).await;
    assert_eq!(cluster.count("patch PodDisruptionBudget"), writes, "retries write nothing");
    cluster.call(Method::DELETE, &format!("{PODS}/d"), &Value::Null).await;
    cluster.eventually(60, "it works again", |c| numbers(c) == [3, 2, 4, 1]).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn two_budgets_of_a_pod_are_both_kept_up_to_date_and_evict_nothing() {
    let cluster = cluster(Faults::default()).await;
    let daemon = start(&cluster, 5);
    protect(&cluster, json!({"minAvailable": 1})).await;
    let all = json!({"metadata": {"name": "all"}, "spec": {"minAvailable": 1, "selector": {}}});
    cluster.call(Method::POST, BUDGETS, &all).await;
    let allowed = |c: &Cluster| -> Vec<i64> {
        let budgets = c.objects("PodDisruptionBudget");
        budgets.iter().map(|budget| budget["status"]["disruptionsAllowed"].as_i64().unwrap_or(0)).collect()
    };
    cluster.create(deployment("web").replicas(3)).await;
    cluster.eventually(60, "both", |c| allowed(c) == [2, 2]).await;
    let pod = healthy(&cluster).remove(0);
    assert_eq!(evict(&cluster, &pod).await, Err((500, String::new())));
    // Taken out of one of them.
    let labels = json!({"metadata": {"labels": {"app": "other"}}});
    cluster.call(Method::PATCH, &format!("{PODS}/{pod}"), &labels).await;
    cluster.eventually(60, "one has a pod more", |c| allowed(c) == [3, 2]).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_not_evicted_counts_again_and_loses_its_condition() {
    let cluster = cluster(Faults::default()).await;
    let daemon = start(&cluster, 6);
    protect(&cluster, json!({"minAvailable": 1})).await;
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    cluster.eventually(3, "one may go", |c| numbers(c)[3] == 1).await;
    // An API server leaves this if it ends between the two steps of an eviction.
    let pod = healthy(&cluster).remove(0);
    let now = cluster.clock.now();
    let now = jiff::Timestamp::from_second(now.as_second()).unwrap().to_string();
    let charged = json!({"status": {"disruptionsAllowed": 0, "disruptedPods": {pod.as_str(): now}}});
    cluster.call(Method::PATCH, &format!("{BUDGETS}/web/status"), &charged).await;
    let stored = cluster.call(Method::GET, &format!("{PODS}/{pod}"), &Value::Null).await;
    let mut conditions = stored["status"]["conditions"].clone();
    conditions.as_array_mut().unwrap().push(json!({"type": "DisruptionTarget", "status": "True",
        "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting", "lastTransitionTime": now}));
    let target = json!({"status": {"conditions": conditions}});
    cluster.call(Method::PATCH, &format!("{PODS}/{pod}/status"), &target).await;
    seconds(5).await;
    assert_eq!(numbers(&cluster), [1, 1, 2, 0]);
    seconds(110).await;
    assert_eq!(numbers(&cluster), [1, 1, 2, 0]);
    let condition = |c: &Cluster| {
        let pods = c.objects("Pod");
        let conditions = pods.iter().find(|it| name(it) == pod).unwrap()["status"]["conditions"].clone();
        conditions.as_array().unwrap().iter().find(|it| it["type"] == "DisruptionTarget").unwrap().clone()
    };
    assert_eq!(condition(&cluster)["status"], "True");
    cluster.eventually(10, "it counts", |c| numbers(c) == [2, 1, 2, 1]).await;
    cluster.eventually(10, "it is no target", |c| condition(c)["status"] == "False").await;
    let after = condition(&cluster);
    assert!(after["reason"].as_str().unwrap_or_default().is_empty(), "{after}");
    cluster
        .eventually(5, "told", |c| {
            events(c, "NotDeleted") == ["Pod was expected by PDB shop/web to be deleted but it wasn't"]
        })
        .await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_scale_that_may_be_read_again_ends_the_failure() {
    let is_forbidden = Arc::new(AtomicBool::new(true));
    let now = is_forbidden.clone();
    let faults = inject_faults(move |request| {
        if request.subresource == "scale" && now.load(Ordering::Relaxed) {
            return forbidden("stalls.x.io \"s\" is forbidden");
        }
        FaultDecision::Proceed
    });
    let cluster = cluster(faults).await;
    let stall = define(&cluster, "stalls", "Stall", true).await;
    let daemon = start(&cluster, 7);
    protect(&cluster, json!({"maxUnavailable": 1})).await;
    create_pod(&cluster, "a", &stall).await;
    cluster.eventually(30, "failed", |c| reason(c) == "SyncFailed").await;
    seconds(60).await;
    is_forbidden.store(false, Ordering::Relaxed);
    cluster.eventually(120, "it is tried again", |c| numbers(c) == [1, 3, 4, 0]).await;
    assert_eq!(reason(&cluster), "InsufficientPods");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_about_a_scale_the_allowance_only_falls() {
    let is_silent = Arc::new(AtomicBool::new(false));
    let now = is_silent.clone();
    let faults = inject_faults(move |request| {
        let is_lost = request.subresource == "scale" && now.load(Ordering::Relaxed);
        if is_lost { FaultDecision::LoseReply } else { FaultDecision::Proceed }
    });
    let cluster = cluster(faults).await;
    let stall = define(&cluster, "stalls", "Stall", true).await;
    let daemon = start(&cluster, 8);
    protect(&cluster, json!({"maxUnavailable": 2})).await;
    for pod in ["a", "b", "c"] {
        create_pod(&cluster, pod, &stall).await;
    }
    cluster.eventually(30, "one may go", |c| numbers(c) == [3, 2, 4, 1]).await;
    is_silent.store(true, Ordering::Relaxed);
    cluster.call(Method::DELETE, &format!("{PODS}/c"), &Value::Null).await;
    cluster.eventually(40, "none may go", |c| numbers(c) == [2, 2, 4, 0]).await;
    assert_eq!(reason(&cluster), "InsufficientPods");
    // Two pods more would allow two, if the scale is still what it was.
    create_pod(&cluster, "d", &stall).await;
    create_pod(&cluster, "e", &stall).await;
    cluster.eventually(60, "they count", |c| numbers(c) == [4, 2, 4, 0]).await;
    daemon.stop().await;
    // Another process does not know the scale.
    let daemon = start(&cluster, 9);
    cluster.eventually(40, "nothing is known", |c| reason(c) == "SyncFailed" && numbers(c)[3] == 0).await;
    is_silent.store(false, Ordering::Relaxed);
    cluster.eventually(120, "it answers again", |c| numbers(c) == [4, 2, 4, 2]).await;
    daemon.stop().await;
}
