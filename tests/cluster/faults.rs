//! The real app against an API server and a network that misbehave: whatever is lost, late, refused or
//! repeated, the rollout completes and no pod is created twice.

mod frozen;
mod one_of_several;
mod refusals;
mod unseen;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_planner_testkit::objects::{DeploymentBuilder, deployment};
use windlass_testkit::cluster::{Cluster, Faults, USER_AGENT, condition, inject_faults};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/shop/replicasets";
const PODS: &str = "/api/v1/namespaces/shop/pods";

const S: Duration = Duration::from_secs(1);

/// Whether the controllers want to change a workload.
fn is_write(request: &RequestInfo) -> bool {
    request.user_agent == USER_AGENT
        && request.kind != "Event"
        && matches!(request.verb, "create" | "patch" | "update" | "delete")
}

fn is_pod_creation(request: &RequestInfo) -> bool {
    is_write(request) && request.kind == "Pod" && request.verb == "create"
}

fn server_error() -> FaultDecision {
    FaultDecision::Refuse {
        code: 500,
        message: "etcdserver: timed out".into(),
        reason: "InternalError".into(),
    }
}

fn conflict() -> FaultDecision {
    let message = "the object has been modified; please apply your changes to the latest version";
    FaultDecision::Refuse { code: 409, message: message.into(), reason: "Conflict".into() }
}

async fn with(faults: Faults) -> Cluster {
    Cluster::with(faults, |options| options).await
}

/// One ReplicaSet of this template at full size, all others empty, and no pod too many.
async fn settles(cluster: &Cluster, name: &str, replicas: usize) {
    cluster.eventually(900, "the Deployment is complete", |c| c.is_complete(name)).await;
    let pods =
        |c: &Cluster| c.objects("Pod").iter().filter(|p| p["metadata"]["labels"]["app"] == name).count();
    cluster.eventually(300, "no pod is left over", |c| pods(c) == replicas).await;
}

fn small() -> DeploymentBuilder {
    deployment("web").replicas(3).surge(1).unavailable(0).history(0)
}

/// The total replicas of all ReplicaSets.
fn wanted(cluster: &Cluster) -> i64 {
    cluster
        .objects("ReplicaSet")
        .iter()
        .map(|replica_set| replica_set["spec"]["replicas"].as_i64().unwrap_or(0))
        .sum()
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_any_write_in_any_form_leads_to_no_duplicate_pod() {
    let writes = [
        ("create", "ReplicaSet", ""),
        ("patch", "ReplicaSet", ""),
        ("patch", "ReplicaSet", "status"),
        ("delete", "ReplicaSet", ""),
        ("patch", "Deployment", "status"),
        ("create", "Pod", ""),
        ("delete", "Pod", ""),
    ];
    let faults = [
        FaultDecision::LoseRequest,
        FaultDecision::LoseReply,
        FaultDecision::Delay(40 * S),
        FaultDecision::DelayReply(40 * S),
        server_error(),
        conflict(),
        FaultDecision::RetryAfter { code: 429, seconds: 1, carried_out: false },
        FaultDecision::RetryAfter { code: 503, seconds: 1, carried_out: true },
    ];
    for (verb, kind, subresource) in writes {
        for fault in &faults {
            let (count, decision) = (AtomicUsize::new(0), fault.clone());
            let cluster = with(inject_faults(move |request| {
                let meant = is_write(request)
                    && (request.verb, request.kind, request.subresource) == (verb, kind, subresource);
                if meant && count.fetch_add(1, Ordering::SeqCst) % 2 == 0 {
                    decision.clone()
                } else {
                    FaultDecision::Proceed
                }
            }))
            .await;
            let _daemon = cluster.start_controllers(1);
            cluster.create(small()).await;
            settles(&cluster, "web", 3).await;
            cluster.set_image("web", "v2").await;
            settles(&cluster, "web", 3).await;
            cluster.eventually(300, "the history is trimmed", |c| c.objects("ReplicaSet").len() == 1).await;
            assert_eq!(cluster.pods_created(), 6, "{verb} {kind} {subresource} {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn with_every_third_message_lost_exactly_200_pods_are_created() {
    let rng = parking_lot::Mutex::new(fastrand::Rng::with_seed(11));
    let cluster = with(inject_faults(move |request| {
        let ours = request.user_agent == USER_AGENT && request.verb != "watch";
        match rng.lock().u8(0..100) {
            0..15 if ours => FaultDecision::LoseRequest,
            15..30 if ours => FaultDecision::LoseReply,
            _ => FaultDecision::Proceed,
        }
    }))
    .await;
    let _daemon = cluster.start_controllers(1);
    for n in 0..40 {
        cluster.create(deployment(&format!("web{n}")).replicas(5)).await;
    }
    for n in 0..40 {
        settles(&cluster, &format!("web{n}"), 5).await;
    }
    assert_eq!(cluster.pods_created(), 200);
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_write_the_next_daemon_completes_the_rollout_without_duplicate_pods() {
    for last in 1.. {
        let left = Arc::new(AtomicUsize::new(usize::MAX));
        let dead = Arc::new(AtomicBool::new(false));
        let (count, killed) = (left.clone(), dead.clone());
        let cluster = with(inject_faults(move |request| {
            if is_write(request) && count.fetch_sub(1, Ordering::SeqCst) == 0 {
                killed.store(true, Ordering::SeqCst);
                count.store(0, Ordering::SeqCst);
                return FaultDecision::LoseRequest;
            }
            FaultDecision::Proceed
        }))
        .await;
        let first = cluster.start_controllers(1);
        cluster.create(small()).await;
        settles(&cluster, "web", 3).await;
        left.store(last, Ordering::SeqCst);
        cluster.set_image("web", "v2").await;
        for _ in 0..600 {
            if dead.load(Ordering::SeqCst) {
                break;
            }
            tokio::time::sleep(S / 10).await;
        }
        let crashed = dead.load(Ordering::SeqCst);
        first.kill();
        left.store(usize::MAX, Ordering::SeqCst);
        let _second = cluster.start_controllers(2);
        settles(&cluster, "web", 3).await;
        assert_eq!(cluster.pods_created(), 6, "killed after write {last}");
        if !crashed {
            assert!(last > 10, "only {last} writes");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_constant_foreign_writer_only_slows_the_rollout_down() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(small()).await;
    let stop = tokio_util::sync::CancellationToken::new();
    let (client, done) = (cluster.client.clone(), stop.clone());
    let rival = tokio::spawn(async move {
        let mut n = 0;
        while !done.is_cancelled() {
            n += 1;
            let names: Vec<String> = {
                let list = http::Request::get(REPLICA_SETS).body(Vec::new()).unwrap();
                let list: Value = client.request(list).await.unwrap();
                let items = list["items"].as_array().unwrap().iter();
                items
                    .map(|replica_set| {
                        format!("{REPLICA_SETS}/{}", replica_set["metadata"]["name"].as_str().unwrap())
                    })
                    .collect()
            };
            for path in names.iter().map(String::as_str).chain([&*format!("{DEPLOYMENTS}/web")]) {
                let body = json!({"metadata": {"annotations": {"rival": n.to_string()}}}).to_string();
                let patch = http::Request::patch(path).header("content-type", "application/merge-patch+json");
                let _gone = client.request::<Value>(patch.body(body.into_bytes()).unwrap()).await;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    for tag in ["v2", "v3"] {
        cluster.set_image("web", tag).await;
        cluster.rolled_out("web").await;
    }
    stop.cancel();
    rival.await.unwrap();
    settles(&cluster, "web", 3).await;
}

#[tokio::test(start_paused = true)]
async fn broken_watches_and_a_compacted_history_at_any_moment_cause_no_surplus_pod() {
    for seed in 0..6 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let cluster = Cluster::with(Faults::default(), |mut options| {
            options.streaming_lists = seed % 2 == 0;
            options
        })
        .await;
        let _daemon = cluster.start_controllers(seed);
        cluster.create(small()).await;
        for tag in ["v1", "v2", "v3"] {
            cluster.set_image("web", tag).await;
            for _ in 0..25 {
                if rng.bool() {
                    cluster.sandbox.compact();
                }
                cluster.sandbox.break_watches();
                tokio::time::sleep(Duration::from_millis(rng.u64(1..900))).await;
                assert!(wanted(&cluster) <= 4, "S1: {} desired pods", wanted(&cluster));
            }
            settles(&cluster, "web", 3).await;
        }
        assert_eq!(cluster.pods_created(), 9, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deployment_deleted_and_recreated_in_mid_rollout_starts_over() {
    for policy in ["Background", "Foreground", "Orphan"] {
        let cluster = Cluster::new().await;
        let daemon = cluster.start_controllers(1);
        cluster.create(small()).await;
        settles(&cluster, "web", 3).await;
        cluster.set_image("web", "v2").await;
        cluster
            .eventually(60, "a new pod is there", |c| c.deployment("web")["status"]["updatedReplicas"] == 1)
            .await;
        let uid = cluster.deployment("web")["metadata"]["uid"].clone();
        let delete = json!({"propagationPolicy": policy});
        cluster.call(Method::DELETE, &format!("{DEPLOYMENTS}/web"), &delete).await;
        cluster.eventually(300, "it is deleted", |c| c.deployment("web").is_null()).await;
        cluster.create(small().image("v2")).await;
        settles(&cluster, "web", 3).await;
        let web = cluster.deployment("web");
        assert_ne!(web["metadata"]["uid"], uid);
        cluster
            .eventually(300, "what is left belongs to the new one", |c| {
                let owned = |replica_set: &Value| {
                    replica_set["metadata"]["ownerReferences"][0]["uid"] == web["metadata"]["uid"]
                };
                c.objects("ReplicaSet").iter().all(owned)
            })
            .await;
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn two_active_daemons_reach_the_same_end_as_one() {
    let cluster = Cluster::new().await;
    let first = cluster.start_controllers(1);
    let second = cluster.start_controllers(2);
    cluster.create(small().replicas(6)).await;
    cluster.rolled_out("web").await;
    cluster.set_image("web", "v2").await;
    cluster
        .eventually(60, "a new pod is there", |c| c.deployment("web")["status"]["updatedReplicas"] != 0)
        .await;
    first.kill();
    settles(&cluster, "web", 6).await;
    second.stop().await;
    assert_eq!(wanted(&cluster), 6);
}

/// Makes the controllers' next watch of a kind begin late, if `lag` is set: their cache stands still.
fn lagging(request: &RequestInfo, kind: &str, lag: &AtomicBool) -> bool {
    request.user_agent == USER_AGENT
        && request.verb == "watch"
        && request.kind == kind
        && lag.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_deadline_condition_is_written_in_time_while_every_step_is_refused() {
    let refuses = Arc::new(AtomicBool::new(false));
    let refused = refuses.clone();
    let cluster = with(inject_faults(move |request| {
        let resizes = is_write(request)
            && (request.verb, request.kind, request.subresource) == ("patch", "ReplicaSet", "");
        if resizes && refused.load(Ordering::SeqCst) {
            FaultDecision::Refuse { code: 403, message: "policy says no".into(), reason: "Forbidden".into() }
        } else {
            FaultDecision::Proceed
        }
    }))
    .await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(3).deadline(100)).await;
    settles(&cluster, "web", 3).await;
    refuses.store(true, Ordering::SeqCst);
    cluster.set_image("web", "v2").await;
    // The pods of the new ReplicaSet become ready; scaling the old one down is refused, with a backoff of a minute by
    // now.
    tokio::time::sleep(98 * S).await;
    assert_ne!(condition(&cluster.deployment("web"), "Progressing"), "ProgressDeadlineExceeded");
    cluster
        .eventually(6, "the deadline is noticed", |c| {
            condition(&c.deployment("web"), "Progressing") == "ProgressDeadlineExceeded"
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_terminating_namespace_gets_one_request_and_not_one_per_missing_pod() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(40)).await;
    cluster.rolled_out("web").await;
    // The ReplicaSet outlives its pods, as when a finalizer holds it.
    let name = cluster.objects("ReplicaSet")[0]["metadata"]["name"].as_str().unwrap().to_string();
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    cluster.call(Method::PATCH, &format!("{REPLICA_SETS}/{name}"), &held).await;
    cluster.call(Method::DELETE, "/api/v1/namespaces/shop", &Value::Null).await;
    tokio::time::sleep(60 * S).await;
    let doomed = cluster.count("create Pod") - 40;
    assert!(doomed <= 60, "{doomed} creations in a namespace that takes none");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_that_names_the_pod_is_retried_with_backoff() {
    let cluster = with(inject_faults(|request| {
        if !is_pod_creation(request) {
            return FaultDecision::Proceed;
        }
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        let message = format!("pods {} is forbidden: exceeded quota: pods", body["metadata"]["name"]);
        FaultDecision::Refuse { code: 403, message, reason: "Forbidden".into() }
    }))
    .await;
    let _daemon = cluster.start_controllers(1);
    cluster.create(deployment("web").replicas(10)).await;
    tokio::time::sleep(60 * S).await;
    let tries = cluster.count("create Pod");
    assert!((5..30).contains(&tries), "{tries} tries in a minute");
    assert!(cluster.count("patch ReplicaSet") < 8, "{:?}", cluster.writes());
}
