//! The node lifecycle and the taint eviction controllers against the embedded API server, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass::plan::node_lifecycle::Limits;
use windlass_apiserver::FaultDecision;
use windlass_testkit::cluster::{Cluster, Daemon, Faults, inject_faults, is_request, unlimited};

const PODS: &str = "/api/v1/namespaces/shop/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const FIRST: &str = "sandbox-node-1";

fn start_with(cluster: &Cluster, node_limits: Limits) -> Daemon {
    let enabled = Enabled::none().with("node-lifecycle-controller").with("taint-eviction-controller");
    cluster.start_with(1, ControllerConfig { enabled, node_limits, ..unlimited() }, |router| router)
}

/// As on a test bed: heartbeats are not judged.
fn start(cluster: &Cluster) -> Daemon {
    start_with(cluster, Limits { monitor_grace_period: Duration::ZERO, ..Limits::default() })
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn node(cluster: &Cluster, name: &str) -> Value {
    let nodes = cluster.sandbox.objects("Node");
    nodes.into_iter().find(|node| node["metadata"]["name"] == name).unwrap_or(Value::Null)
}

/// Reports the condition Ready of a node, as its kubelet or a test does.
async fn report(cluster: &Cluster, name: &str, status: &str) {
    let now = cluster.clock.now().to_string();
    let ready = json!({"type": "Ready", "status": status, "reason": "Test", "lastTransitionTime": now,
                       "lastHeartbeatTime": now});
    let path = format!("/api/v1/nodes/{name}/status");
    cluster.call(Method::PATCH, &path, &json!({"status": {"conditions": [ready]}})).await;
}

async fn change(cluster: &Cluster, name: &str, spec: Value) {
    cluster.call(Method::PATCH, &format!("/api/v1/nodes/{name}"), &json!({"spec": spec})).await;
}

/// The taints of a node, `key:effect` without the prefix of Kubernetes.
fn taints(cluster: &Cluster, name: &str) -> Vec<String> {
    let node = node(cluster, name);
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |taint: &Value| {
        let key = taint["key"].as_str().unwrap().trim_start_matches("node.kubernetes.io/");
        format!("{key}:{}", taint["effect"].as_str().unwrap())
    };
    taints.iter().map(text).collect()
}

fn condition(object: &Value, kind: &str) -> Value {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|condition| condition["type"] == kind).unwrap_or(Value::Null)
}

/// Creates a pod on the first node that tolerates for so long that it is not ready, and waits until it runs.
async fn pod(cluster: &Cluster, name: &str, tolerated: u64) {
    let toleration = |key: &str| {
        json!({"key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute",
               "tolerationSeconds": tolerated})
    };
    let pod = json!({
        "metadata": {"name": name},
        "spec": {"nodeName": FIRST, "containers": [{"name": "c", "image": "img:v1"}],
                 "tolerations": [toleration("not-ready"), toleration("unreachable")]},
    });
    cluster.call(Method::POST, PODS, &pod).await;
    cluster.eventually(10, "the pod is ready", |c| is_ready(c, name)).await;
}

fn stored(cluster: &Cluster, name: &str) -> Option<Value> {
    cluster.objects("Pod").into_iter().find(|pod| pod["metadata"]["name"] == name)
}

fn is_ready(cluster: &Cluster, name: &str) -> bool {
    stored(cluster, name).is_some_and(|pod| condition(&pod, "Ready")["status"] == "True")
}

fn is_evicted(cluster: &Cluster, name: &str) -> bool {
    stored(cluster, name).is_none_or(|pod| pod["metadata"]["deletionTimestamp"].is_string())
}

/// The events about objects of a name: `reason: message`.
fn events(cluster: &Cluster, name: &str) -> Vec<String> {
    let mut events = cluster.sandbox.objects("Event");
    events.retain(|event| event["involvedObject"]["name"] == name);
    let ours = ["node-controller", "taint-eviction-controller"];
    events.retain(|event| ours.iter().any(|ours| event["source"]["component"] == *ours));
    let text = |field: &Value| field.as_str().unwrap_or_default().to_owned();
    events.iter().map(|event| format!("{}: {}", text(&event["reason"]), text(&event["message"]))).collect()
}

async fn settled(cluster: &Cluster) {
    cluster.eventually(10, "three nodes", |c| c.sandbox.objects("Node").len() == 3).await;
    for n in 1..=3 {
        let name = format!("sandbox-node-{n}");
        cluster.eventually(10, "no taints", |c| taints(c, &name).is_empty()).await;
    }
    // The nodes are older than the controllers.
    seconds(2).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_loses_its_pods_after_their_seconds() {
    let cluster = Cluster::without_node_lifecycle(Faults::default()).await;
    settled(&cluster).await;
    let daemon = start(&cluster);
    pod(&cluster, "a", 30).await;
    let uid = stored(&cluster, "a").unwrap()["metadata"]["uid"].clone();
    report(&cluster, FIRST, "False").await;
    seconds(1).await;
    assert_eq!(taints(&cluster, FIRST), ["not-ready:NoSchedule", "not-ready:NoExecute"]);
    let ready = condition(&stored(&cluster, "a").unwrap(), "Ready");
    assert_eq!(ready["status"], "False", "{ready}");
    assert_eq!(events(&cluster, FIRST), ["NodeNotReady: Node sandbox-node-1 status is now: NodeNotReady"]);
    assert_eq!(events(&cluster, "a"), ["NodeNotReady: Node is not ready"]);
    // The other taint takes its place, and the seconds go on.
    seconds(19).await;
    report(&cluster, FIRST, "Unknown").await;
    seconds(1).await;
    assert_eq!(taints(&cluster, FIRST), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
    seconds(7).await;
    assert!(!is_evicted(&cluster, "a"));
    seconds(4).await;
    assert!(is_evicted(&cluster, "a"));
    // Nobody is there who could end it.
    let pod = stored(&cluster, "a").unwrap();
    assert_eq!(condition(&pod, "DisruptionTarget")["reason"], "DeletionByTaintManager");
    assert!(
        events(&cluster, "a").contains(&"TaintManagerEviction: Marking for deletion Pod shop/a".to_owned())
    );
    let log = cluster.log.lock().unwrap().clone();
    let deletion = log.iter().find(|request| request.verb == "delete" && request.kind == "Pod").unwrap();
    let options: Value = serde_json::from_slice(&deletion.body).unwrap();
    assert_eq!(options["preconditions"]["uid"], uid);
    let writes = cluster.writes();
    seconds(3600).await;
    assert_eq!(cluster.writes(), writes, "nothing is written without a change");
    let metrics = daemon.metrics.render();
    for line in [
        "taint_eviction_controller_pod_deletions_total 1",
        "node_collector_evictions_total{zone=\"\"} 1",
        "node_collector_zone_size{zone=\"\"} 3",
        "node_collector_unhealthy_nodes_in_zone{zone=\"\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_condition_that_keeps_its_time_counts_when_it_is_seen() {
    let cluster = Cluster::without_node_lifecycle(Faults::default()).await;
    settled(&cluster).await;
    let daemon = start(&cluster);
    pod(&cluster, "a", 30).await;
    let mut ready = condition(&node(&cluster, FIRST), "Ready");
    ready["status"] = "False".into();
    let path = format!("/api/v1/nodes/{FIRST}/status");
    cluster.call(Method::PATCH, &path, &json!({"status": {"conditions": [ready]}})).await;
    seconds(1).await;
    assert!(!is_ready(&cluster, "a"));
    assert_eq!(taints(&cluster, FIRST), ["not-ready:NoSchedule", "not-ready:NoExecute"]);
    daemon.stop().await;
}

/// The kubelet of a node that is not ready goes on, and writes the pod back as it has it in its memory.
#[tokio::test(start_paused = true)]
async fn a_pod_that_its_kubelet_reports_as_before_is_left_to_it() {
    let cluster = Cluster::without_node_lifecycle(Faults::default()).await;
    settled(&cluster).await;
    let daemon = start(&cluster);
    pod(&cluster, "a", 3600).await;
    let before = condition(&stored(&cluster, "a").unwrap(), "Ready");
    seconds(5).await;
    for (fall, reports) in [("False", 1), ("False", 2), ("Unknown", 9)] {
        report(&cluster, FIRST, fall).await;
        for _ in 0..6 {
            seconds(1).await;
            let ready = json!({"status": {"conditions": [before]}});
            let path = format!("{PODS}/a/status");
            cluster.call(Method::PATCH, &path, &ready).await;
            seconds(9).await;
        }
        assert_eq!(cluster.count("patch Pod/a/status"), reports, "{fall}");
        assert_eq!(is_ready(&cluster, "a"), fall == "False");
        report(&cluster, FIRST, "True").await;
        seconds(5).await;
    }
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_returns_loses_its_taints_and_keeps_its_pods() {
    let cluster = Cluster::without_node_lifecycle(Faults::default()).await;
    settled(&cluster).await;
    let daemon = start(&cluster);
    pod(&cluster, "a", 30).await;
    report(&cluster, FIRST, "Unknown").await;
    seconds(20).await;
    assert!(!is_ready(&cluster, "a") && taints(&cluster, FIRST).len() == 2);
    report(&cluster, FIRST, "True").await;
    seconds(1).await;
    assert_eq!(taints(&cluster, FIRST), [""; 0]);
    assert!(is_ready(&cluster, "a"), "its kubelet reports it again");
    seconds(600).await;
    assert!(!is_evicted(&cluster, "a"));
    assert!(
        events(&cluster, "a").contains(&"TaintManagerEviction: Cancelling deletion of Pod shop/a".to_owned())
    );
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_does_not_begin_the_seconds_anew() {
    let cluster = Cluster::without_node_lifecycle(Faults::default()).await;
    settled(&cluster).await;
    let daemon = start(&cluster);
    pod(&cluster, "a", 60).await;
    report(&cluster, FIRST, "Unknown").await;
    seconds(40).await;
    daemon.kill();
    seconds(5).await;
    let daemon = start(&cluster);
    seconds(10).await;
    assert!(!is_evicted(&cluster, "a"));
    seconds(10).await;
    assert!(is_evicted(&cluster, "a"));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn where_no_node_is_ready_no_pod_is_evicted() {
    let cluster = Cluster::without_node_lifecycle(Faults::default()).await;
    settled(&cluster).await;
    let daemon = start(&cluster);
    pod(&cluster, "a", 30).await;
    for n in 1..=3 {
        report(&cluster, &format!("sandbox-node-{n}"), "Unknown").await;
    }
    seconds(1).await;
    for n in 1..=3 {
        assert_eq!(taints(&cluster, &format!("sandbox-node-{n}")), ["unreachable:NoSchedule"]);
    }
    seconds(600).await;
    assert!(!is_evicted(&cluster, "a") && !is_ready(&cluster, "a"));
    // One is back: the seconds of the others begin.
    report(&cluster, "sandbox-node-3", "True").await;
    seconds(1).await;
    assert_eq!(taints(&cluster, "sandbox-node-3"), [""; 0]);
    assert_eq!(taints(&cluster, FIRST), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
    seconds(20).await;
    assert!(!is_evicted(&cluster, "a"));
    seconds(15).await;
    assert!(is_evicted(&cluster, "a"));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn taints_of_users_are_untouched_and_evict() {
    let cluster = Cluster::without_node_lifecycle(Faults::default()).await;
    settled(&cluster).await;
    let daemon = start(&cluster);
    pod(&cluster, "a", 30).await;
    let own = json!({"key": "gpu", "value": "yes", "effect": "NoSchedule"});
    change(&cluster, FIRST, json!({"taints": [own]})).await;
    report(&cluster, FIRST, "False").await;
    seconds(1).await;
    assert_eq!(taints(&cluster, FIRST), ["gpu:NoSchedule", "not-ready:NoSchedule", "not-ready:NoExecute"]);
    report(&cluster, FIRST, "True").await;
    seconds(1).await;
    assert_eq!(node(&cluster, FIRST)["spec"]["taints"], json!([own]));
    seconds(120).await;
    assert!(!is_evicted(&cluster, "a"));
    change(&cluster, FIRST, json!({"taints": [own, {"key": "mine", "effect": "NoExecute"}]})).await;
    seconds(2).await;
    assert!(is_evicted(&cluster, "a"));
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cordon_is_a_taint() {
    let cluster = Cluster::without_node_lifecycle(Faults::default()).await;
    settled(&cluster).await;
    let daemon = start(&cluster);
    change(&cluster, FIRST, json!({"unschedulable": true})).await;
    seconds(1).await;
    assert_eq!(taints(&cluster, FIRST), ["unschedulable:NoSchedule"]);
    change(&cluster, FIRST, json!({"unschedulable": null})).await;
    seconds(1).await;
    assert_eq!(taints(&cluster, FIRST), [""; 0]);
    cluster.call(Method::DELETE, &format!("/api/v1/nodes/{FIRST}"), &Value::Null).await;
    let later = json!({"metadata": {"name": "later"}, "spec": {}});
    cluster.call(Method::POST, "/api/v1/nodes", &later).await;
    seconds(10).await;
    let removed = "RemovingNode: Node sandbox-node-1 event: Removing Node sandbox-node-1 from Controller";
    assert_eq!(events(&cluster, FIRST), [removed]);
    assert_eq!(
        events(&cluster, "later"),
        ["RegisteredNode: Node later event: Registered Node later in Controller"]
    );
    daemon.stop().await;
}

async fn renew(cluster: &Cluster, name: &str) {
    let spec = json!({"spec": {"holderIdentity": name, "renewTime": cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()}});
    if cluster.try_call(Method::PATCH, &format!("{LEASES}/{name}"), &spec).await.is_err() {
        let mut lease = spec;
        lease["metadata"] = json!({"name": name});
        cluster.call(Method::POST, LEASES, &lease).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_heartbeats_is_lost_after_its_grace_period() {
    let cluster = Cluster::without_node_lifecycle(Faults::default()).await;
    settled(&cluster).await;
    let daemon = start_with(&cluster, Limits::default());
    pod(&cluster, "a", 30).await;
    for second in 0..12 {
        for name in ["sandbox-node-2", "sandbox-node-3"] {
            renew(&cluster, name).await;
        }
        if second < 4 {
            assert_eq!(condition(&node(&cluster, FIRST), "Ready")["status"], "True", "after {second}0 s");
        }
        seconds(10).await;
    }
    let lost = node(&cluster, FIRST);
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        let condition = condition(&lost, kind);
        assert_eq!(
            (&condition["status"], &condition["reason"]),
            (&json!("Unknown"), &json!("NodeStatusUnknown"))
        );
    }
    assert_eq!(taints(&cluster, FIRST), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
    assert!(is_evicted(&cluster, "a"));
    for name in ["sandbox-node-2", "sandbox-node-3"] {
        assert_eq!(
            (condition(&node(&cluster, name), "Ready")["status"].clone(), taints(&cluster, name).len()),
            (json!("True"), 0)
        );
    }
    // All fall silent: then rather the control plane is cut off.
    seconds(120).await;
    for n in 1..=3 {
        assert_eq!(taints(&cluster, &format!("sandbox-node-{n}")), ["unreachable:NoSchedule"]);
    }
    daemon.stop().await;
}

/// A cluster in which the controllers get no answer to these requests while the flag is set.
async fn without_answers(verb: &'static str, kind: &'static str) -> (Cluster, Arc<AtomicBool>) {
    with_fault(verb, kind, FaultDecision::LoseRequest).await
}

/// A cluster in which this happens to these requests of the controllers while the flag is set.
async fn with_fault(
    verb: &'static str,
    kind: &'static str,
    fault: FaultDecision,
) -> (Cluster, Arc<AtomicBool>) {
    let is_set = Arc::new(AtomicBool::new(false));
    let flag = is_set.clone();
    let faults = inject_faults(move |request| {
        let is_faulty = is_request(request, verb, kind) && flag.load(Ordering::SeqCst);
        if is_faulty { fault.clone() } else { FaultDecision::Proceed }
    });
    let cluster = Cluster::without_node_lifecycle(faults).await;
    settled(&cluster).await;
    (cluster, is_set)
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_is_refused_is_retried_for_ever() {
    let (cluster, is_refused) = without_answers("delete", "Pod").await;
    let daemon = start(&cluster);
    pod(&cluster, "a", 30).await;
    is_refused.store(true, Ordering::SeqCst);
    report(&cluster, FIRST, "Unknown").await;
    seconds(600).await;
    assert!(!is_evicted(&cluster, "a"));
    assert_eq!(cluster.count("patch Pod/a/status"), 2, "not ready, and disrupted, once");
    is_refused.store(false, Ordering::SeqCst);
    seconds(120).await;
    assert!(is_evicted(&cluster, "a"));
    daemon.stop().await;
}

/// An API server whose storage is busy answers so, and nothing of the pod changes that would tell anybody.
#[tokio::test(start_paused = true)]
async fn a_conflict_loses_no_eviction() {
    for (verb, what) in [("delete", "the deletion"), ("patch", "the mark")] {
        let message = "the object has been modified".to_owned();
        let conflict = FaultDecision::Refuse { code: 409, message, reason: "Conflict".into() };
        let (cluster, is_refused) = with_fault(verb, "Pod", conflict).await;
        let daemon = start(&cluster);
        pod(&cluster, "a", 30).await;
        report(&cluster, FIRST, "Unknown").await;
        seconds(20).await;
        is_refused.store(true, Ordering::SeqCst);
        seconds(60).await;
        assert!(!is_evicted(&cluster, "a"), "{what}");
        is_refused.store(false, Ordering::SeqCst);
        seconds(120).await;
        assert!(is_evicted(&cluster, "a"), "{what}");
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_lags_evicts_no_pod() {
    let (cluster, lags) = without_answers("watch", "Node").await;
    let daemon = start(&cluster);
    pod(&cluster, "a", 30).await;
    report(&cluster, FIRST, "Unknown").await;
    seconds(20).await;
    lags.store(true, Ordering::SeqCst);
    cluster.sandbox.break_watches();
    seconds(1).await;
    // Nobody who sees the node as it was takes the taint off.
    report(&cluster, FIRST, "True").await;
    seconds(40).await;
    assert!(!is_evicted(&cluster, "a"));
    assert_eq!(taints(&cluster, FIRST), ["unreachable:NoSchedule", "unreachable:NoExecute"]);
    lags.store(false, Ordering::SeqCst);
    seconds(120).await;
    assert!(!is_evicted(&cluster, "a"));
    assert_eq!(taints(&cluster, FIRST), [""; 0]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_lags_loses_no_node() {
    let (cluster, lags) = without_answers("watch", "Lease").await;
    let daemon = start_with(&cluster, Limits::default());
    for round in 0..20 {
        for n in 1..=3 {
            renew(&cluster, &format!("sandbox-node-{n}")).await;
        }
        if round == 4 {
            lags.store(true, Ordering::SeqCst);
            cluster.sandbox.break_watches();
        }
        seconds(10).await;
    }
    for n in 1..=3 {
        let name = format!("sandbox-node-{n}");
        assert_eq!(condition(&node(&cluster, &name), "Ready")["status"], "True", "{name}");
    }
    daemon.stop().await;
}
