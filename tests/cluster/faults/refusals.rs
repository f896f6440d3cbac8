//! Three classes of answer: a refusal is reported, a Retry-After delays without a report, and without a
//! answer the outcome is looked up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::Method;
use serde_json::{Value, json};
use windlass_apiserver::{FaultDecision, RequestInfo};

use super::{DEPLOYMENTS, PODS, REPLICA_SETS, S, is_pod_creation, is_write, settles, small, with};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, USER_AGENT, condition, forbidden, inject_faults};

const WEBHOOK: &str =
    "Internal error occurred: failed calling webhook \"policy.example.com\": connection refused";

/// As the API server answers when an admission webhook with the failure policy `Fail` cannot be called.
fn webhook_fails() -> FaultDecision {
    FaultDecision::Refuse { code: 500, message: WEBHOOK.into(), reason: "InternalError".into() }
}

/// A cluster that fails the requests that `matches` selects, as long as the flag is set.
async fn failing(
    matches: fn(&RequestInfo) -> bool,
    decision: impl Fn() -> FaultDecision + Send + Sync + 'static,
) -> (Cluster, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(true));
    let flag = fails.clone();
    let cluster = with(inject_faults(move |request| {
        if matches(request) && flag.load(Ordering::SeqCst) { decision() } else { FaultDecision::Proceed }
    }))
    .await;
    (cluster, fails)
}

fn is_replica_set_creation(request: &RequestInfo) -> bool {
    is_write(request) && request.kind == "ReplicaSet" && request.verb == "create"
}

fn is_claim(request: &RequestInfo) -> bool {
    let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
    is_write(request) && request.verb == "patch" && body["metadata"]["ownerReferences"].is_array()
}

/// The messages of the events of this reason that the controllers have written.
fn events(cluster: &Cluster, reason: &str) -> Vec<String> {
    let log = cluster.log.lock().unwrap();
    let written =
        log.iter().filter(|r| r.user_agent == USER_AGENT && r.kind == "Event" && r.verb == "create");
    let events = written.filter_map(|r| serde_json::from_slice::<Value>(&r.body).ok());
    let events = events.filter(|event| event["reason"] == reason);
    events.map(|event| event["message"].as_str().unwrap_or_default().to_string()).collect()
}

fn message(object: &Value, kind: &str) -> String {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|c| c["type"] == kind).unwrap_or_default();
    found["message"].as_str().unwrap_or_default().to_string()
}

/// Whether a status that the controllers have written, at any time, has this in it.
fn any_status_said(cluster: &Cluster, text: &str) -> bool {
    let log = cluster.log.lock().unwrap();
    let mut statuses = log.iter().filter(|r| r.user_agent == USER_AGENT && r.subresource == "status");
    statuses.any(|r| String::from_utf8_lossy(&r.body).contains(text))
}

#[tokio::test(start_paused = true)]
async fn a_failing_webhook_for_pods_is_an_event_and_a_condition_until_it_works_again() {
    let (cluster, fails) = failing(is_pod_creation, webhook_fails).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    cluster
        .eventually(2, "the condition is there", |c| {
            condition(&c.deployment("web"), "ReplicaFailure") == "FailedCreate"
        })
        .await;
    let replica_set = &cluster.objects("ReplicaSet")[0];
    assert_eq!(
        (condition(replica_set, "ReplicaFailure"), message(replica_set, "ReplicaFailure")),
        ("FailedCreate".into(), WEBHOOK.into())
    );
    cluster
        .eventually(2, "the event is there", |c| {
            events(c, "FailedCreate")
                .first()
                .is_some_and(|text| *text == format!("Error creating: {WEBHOOK}"))
        })
        .await;
    fails.store(false, Ordering::SeqCst);
    settles(&cluster, "web", 3).await;
    assert_eq!(cluster.pods_created(), 3);
    assert_eq!(condition(&cluster.deployment("web"), "ReplicaFailure"), "");
}

#[tokio::test(start_paused = true)]
async fn a_failing_webhook_for_the_first_replica_set_is_an_event_and_a_condition() {
    let (cluster, fails) = failing(is_replica_set_creation, webhook_fails).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3)).await;
    cluster
        .eventually(2, "the condition is there", |c| {
            condition(&c.deployment("web"), "Progressing") == "ReplicaSetCreateError"
        })
        .await;
    let text = message(&cluster.deployment("web"), "Progressing");
    assert!(text.starts_with("Failed to create new replica set \"web-") && text.ends_with(WEBHOOK), "{text}");
    assert!(events(&cluster, "ReplicaSetCreateError").contains(&text));
    fails.store(false, Ordering::SeqCst);
    settles(&cluster, "web", 3).await;
    assert_eq!(cluster.pods_created(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_500_after_the_pods_were_created_causes_no_surplus_pods() {
    // etcd has carried the write out when the API server stops waiting for it.
    let cluster = with(inject_faults(|_| FaultDecision::Proceed)).await;
    let (creations, server) = (Arc::new(AtomicUsize::new(0)), cluster.sandbox.clone());
    let client = kube::Client::new(server.router(), "default");
    let seen = creations.clone();
    cluster.sandbox.on_request(Some(Arc::new(move |request: &RequestInfo| {
        if !is_pod_creation(request) || seen.fetch_add(1, Ordering::SeqCst) > 0 {
            return FaultDecision::Proceed;
        }
        let (client, path, body) = (client.clone(), request.path.clone(), request.body.to_vec());
        tokio::spawn(async move {
            let post = http::Request::post(path).header("content-type", "application/json");
            client.request::<Value>(post.body(body).unwrap()).await.unwrap();
        });
        FaultDecision::Refuse {
            code: 500,
            message: "etcdserver: request timed out".into(),
            reason: String::new(),
        }
    })));
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(1)).await;
    settles(&cluster, "web", 1).await;
    let pods = cluster.objects("Pod").len();
    assert_eq!((pods, creations.load(Ordering::SeqCst)), (1, 1), "it was looked up, and not created again");
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_response_delays_a_creation_without_an_event_and_within_its_batch() {
    let requested = parking_lot::Mutex::new(std::collections::BTreeSet::new());
    let cluster = with(inject_faults(move |request| {
        let what = format!("{} {} {}", request.verb, request.path, String::from_utf8_lossy(&request.body));
        if is_write(request) && requested.lock().insert(what) {
            let code = if requested.lock().len() % 2 == 0 { 429 } else { 503 };
            return FaultDecision::RetryAfter { code, seconds: 2, carried_out: false };
        }
        FaultDecision::Proceed
    }))
    .await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(20)).await;
    settles(&cluster, "web", 20).await;
    assert_eq!(cluster.count("create Pod"), 40, "each once more, under the same name");
    assert_eq!(cluster.pods_created(), 20);
    for reason in ["FailedCreate", "ReplicaSetCreateError", "FailedDelete"] {
        assert_eq!(events(&cluster, reason), [""; 0], "{reason}");
    }
    assert!(
        !any_status_said(&cluster, "ReplicaFailure") && !any_status_said(&cluster, "ReplicaSetCreateError")
    );
}

#[tokio::test(start_paused = true)]
async fn repeated_retry_after_responses_are_reported_in_the_end() {
    let decision = || FaultDecision::RetryAfter { code: 429, seconds: 1, carried_out: false };
    let (cluster, _) = failing(is_pod_creation, decision).await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(1)).await;
    tokio::time::sleep(9 * S).await;
    assert_eq!(events(&cluster, "FailedCreate"), [""; 0]);
    tokio::time::sleep(4 * S).await;
    assert_eq!(events(&cluster, "FailedCreate").len(), 1);
    assert_eq!(condition(&cluster.deployment("web"), "ReplicaFailure"), "FailedCreate");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_surplus_after_the_retry_delay_is_not_created() {
    let (cluster, fails) =
        failing(is_pod_creation, || FaultDecision::RetryAfter { code: 429, seconds: 30, carried_out: false })
            .await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(1)).await;
    tokio::time::sleep(5 * S).await;
    fails.store(false, Ordering::SeqCst);
    cluster.patch("web", json!({"spec": {"replicas": 0}})).await;
    tokio::time::sleep(60 * S).await;
    assert_eq!((cluster.pods_created(), cluster.count("create Pod")), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_shuts_down_does_not_wait_for_retry_after() {
    let (cluster, _) =
        failing(is_pod_creation, || FaultDecision::RetryAfter { code: 503, seconds: 50, carried_out: false })
            .await;
    let daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(1)).await;
    tokio::time::sleep(5 * S).await;
    let start = tokio::time::Instant::now();
    daemon.stop().await;
    assert!(start.elapsed() < 5 * S, "{:?}", start.elapsed());
    assert_eq!(events(&cluster, "FailedCreate"), [""; 0]);
}

/// Rolls out the Deployment `web`, and recreates it beside its orphaned ReplicaSet.
async fn is_made_anew(cluster: &Cluster) {
    cluster.create(small()).await;
    settles(cluster, "web", 3).await;
    let orphan = json!({"propagationPolicy": "Orphan"});
    cluster.call(Method::DELETE, &format!("{DEPLOYMENTS}/web"), &orphan).await;
    cluster.eventually(60, "it is deleted", |c| c.deployment("web").is_null()).await;
    cluster.create(small()).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_adoption_of_a_replica_set_is_reported_until_it_succeeds() {
    let adoption = |request: &RequestInfo| is_claim(request) && request.kind == "ReplicaSet";
    for refusal in [webhook_fails(), forbidden("policy says no")] {
        let decision = refusal.clone();
        let (cluster, refuses) = failing(adoption, move || decision.clone()).await;
        let _daemon = cluster.start_controllers(1);
        is_made_anew(&cluster).await;
        cluster
            .eventually(2, "the condition is there", |c| {
                condition(&c.deployment("web"), "ReplicaFailure") == "FailedAdopt"
            })
            .await;
        let text = message(&cluster.deployment("web"), "ReplicaFailure");
        assert!(text.starts_with("adopting ReplicaSet shop/web-"), "{text}");
        assert_eq!(cluster.objects("ReplicaSet").len(), 1);
        refuses.store(false, Ordering::SeqCst);
        settles(&cluster, "web", 3).await;
        assert_eq!(condition(&cluster.deployment("web"), "ReplicaFailure"), "");
        assert_eq!(cluster.pods_created(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_adoption_of_a_pod_is_reported_until_it_succeeds() {
    let (cluster, refuses) =
        failing(|request| is_claim(request) && request.kind == "Pod", || forbidden("policy says no")).await;
    let pod = json!({"metadata": {"name": "loner", "labels": {"app": "web"}},
                     "spec": {"containers": [{"name": "app", "image": "app:v1"}]}});
    cluster.call(Method::POST, PODS, &pod).await;
    let _daemon = cluster.start_controllers(1);
    let replica_set = json!({"metadata": {"name": "web"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}},
                     "spec": {"containers": [{"name": "app", "image": "app:v1"}]}}}});
    cluster.call(Method::POST, REPLICA_SETS, &replica_set).await;
    let failure = |c: &Cluster| condition(&c.objects("ReplicaSet")[0], "ReplicaFailure");
    cluster.eventually(2, "the condition is there", |c| failure(c) == "FailedAdopt").await;
    refuses.store(false, Ordering::SeqCst);
    cluster
        .eventually(90, "the pods are there", |c| {
            c.objects("ReplicaSet")[0]["status"]["readyReplicas"] == 2 && failure(c).is_empty()
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_is_retried_without_a_response_stays_reported() {
    let (tries, refused) = (AtomicUsize::new(0), Arc::new(AtomicBool::new(false)));
    let flag = refused.clone();
    let cluster = with(inject_faults(move |request| {
        let resizes = is_write(request)
            && (request.verb, request.kind, request.subresource) == ("patch", "ReplicaSet", "");
        if !resizes || !flag.load(Ordering::SeqCst) {
            return FaultDecision::Proceed;
        }
        match tries.fetch_add(1, Ordering::SeqCst) {
            0 => forbidden("policy says no"),
            _ => FaultDecision::LoseRequest,
        }
    }))
    .await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(small()).await;
    settles(&cluster, "web", 3).await;
    refused.store(true, Ordering::SeqCst);
    cluster.patch("web", json!({"spec": {"replicas": 5}})).await;
    let failure = |c: &Cluster| condition(&c.deployment("web"), "ReplicaFailure");
    cluster.eventually(2, "the condition is there", |c| failure(c) == "FailedScale").await;
    tokio::time::sleep(20 * S).await;
    assert_eq!(failure(&cluster), "FailedScale", "no answer is no success");
    refused.store(false, Ordering::SeqCst);
    settles(&cluster, "web", 5).await;
    assert_eq!(failure(&cluster), "");
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_whose_creation_got_no_response_is_reported_once_as_created() {
    let faults = [
        FaultDecision::LoseReply,
        FaultDecision::Delay(40 * S),
        FaultDecision::DelayReply(40 * S),
        FaultDecision::RetryAfter { code: 503, seconds: 2, carried_out: true },
    ];
    for fault in faults {
        let (creations, decision) = (AtomicUsize::new(0), fault.clone());
        let cluster = with(inject_faults(move |request| {
            let first = is_replica_set_creation(request) && creations.fetch_add(1, Ordering::SeqCst) == 0;
            if first { decision.clone() } else { FaultDecision::Proceed }
        }))
        .await;
        let _daemon = cluster.start_controllers(1);
        cluster.create(small()).await;
        settles(&cluster, "web", 3).await;
        tokio::time::sleep(120 * S).await;
        let name = cluster.objects("ReplicaSet")[0]["metadata"]["name"].as_str().unwrap().to_string();
        let created = format!("Scaled up replica set {name} from 0 to 3");
        assert_eq!(events(&cluster, "ScalingReplicaSet"), [created], "{fault:?}");
        assert!(any_status_said(&cluster, "NewReplicaSetCreated"), "{fault:?}");
        assert!(!any_status_said(&cluster, "FoundNewReplicaSet"), "{fault:?}");
        assert_eq!(cluster.objects("ReplicaSet").len(), 1);
    }
}
