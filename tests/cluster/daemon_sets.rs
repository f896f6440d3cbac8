//! The DaemonSet controller against the embedded API server with nodes, in virtual time.

mod claims;
mod defects;
mod faults;
mod history;
mod integration;
mod nodes;
mod policies;
mod refusals;
mod updates;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass_testkit::cluster::{Cluster, USER_AGENT};

const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/shop/daemonsets";
const REVISIONS: &str = "/apis/apps/v1/namespaces/shop/controllerrevisions";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const NODES: &str = "/api/v1/nodes";
const S: Duration = Duration::from_secs(1);

/// The hash label of pods and revisions.
const HASH: &str = "controller-revision-hash";

/// A DaemonSet `agent`. `spec` is merged over its spec.
fn daemon_set(spec: Value) -> Value {
    let mut daemon_set = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "labels": {"app": "agent"}},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": {
            "metadata": {"labels": {"app": "agent"}},
            "spec": {"containers": [{"name": "c", "image": "agent:v1"}]}}}
    });
    json_patch::merge(&mut daemon_set["spec"], &spec);
    daemon_set
}

fn unavailable(max: impl Into<Value>) -> Value {
    let max: Value = max.into();
    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max}}})
}

fn surge(max: impl Into<Value>) -> Value {
    let max: Value = max.into();
    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": max, "maxUnavailable": 0}}})
}

fn on_delete() -> Value {
    json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": null}})
}

async fn create(cluster: &Cluster, spec: Value) -> Value {
    cluster.call(Method::POST, DAEMON_SETS, &daemon_set(spec)).await
}

/// Merges this into the DaemonSet.
async fn patch(cluster: &Cluster, patch: Value) {
    cluster.call(Method::PATCH, &format!("{DAEMON_SETS}/agent"), &patch).await;
}

async fn set_image(cluster: &Cluster, tag: &str) {
    let containers = json!([{"name": "c", "image": format!("agent:{tag}")}]);
    patch(cluster, json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
}

fn named(cluster: &Cluster, kind: &str, name: &str) -> Value {
    let named = |object: &Value| object["metadata"]["name"] == name;
    cluster.sandbox.objects(kind).into_iter().find(named).unwrap_or(Value::Null)
}

fn agent(cluster: &Cluster) -> Value {
    named(cluster, "DaemonSet", "agent")
}

/// A number of the DaemonSet's status.
fn number(cluster: &Cluster, field: &str) -> i64 {
    agent(cluster)["status"][field].as_i64().unwrap_or(0)
}

/// `desired/current/updated/ready/available/misscheduled`.
fn counts(cluster: &Cluster) -> String {
    let fields = [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "updatedNumberScheduled",
        "numberReady",
        "numberAvailable",
        "numberMisscheduled",
    ];
    fields.map(|field| number(cluster, field).to_string()).join("/")
}

/// Whether the rollout is over on so many nodes, as `kubectl rollout status` sees it.
fn is_complete(cluster: &Cluster, nodes: i64) -> bool {
    let daemon_set = agent(cluster);
    daemon_set["status"]["observedGeneration"] == daemon_set["metadata"]["generation"]
        && counts(cluster) == format!("{nodes}/{nodes}/{nodes}/{nodes}/{nodes}/0")
}

/// Waits until all nodes, so many of them, have an available new pod.
#[track_caller]
fn rolled_out(cluster: &Cluster, nodes: i64) -> impl Future<Output = ()> + '_ {
    cluster.eventually(120, "the DaemonSet is rolled out", move |c| is_complete(c, nodes))
}

fn pods(cluster: &Cluster) -> Vec<Value> {
    let mut all = cluster.objects("Pod");
    all.retain(|pod| pod["metadata"]["labels"]["app"] == "agent");
    all
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn name_of(object: &Value) -> String {
    text(&object["metadata"]["name"])
}

/// The node that a DaemonSet pod is for.
fn target(pod: &Value) -> String {
    let terms = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    match pod["spec"]["nodeName"].as_str() {
        Some(node) => node.to_owned(),
        None => text(&terms["nodeSelectorTerms"][0]["matchFields"][0]["values"][0]),
    }
}

fn is_deleting(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_terminal(pod: &Value) -> bool {
    ["Failed", "Succeeded"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())
}

/// The tags of the images of the live pods on each node, oldest name first.
fn images(cluster: &Cluster) -> BTreeMap<String, Vec<String>> {
    let mut by_node: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pod in pods(cluster).iter().filter(|pod| !is_deleting(pod) && !is_terminal(pod)) {
        let image = text(&pod["spec"]["containers"][0]["image"]);
        by_node.entry(target(pod)).or_default().push(image.rsplit(':').next().unwrap().to_owned());
    }
    by_node.values_mut().for_each(|images| images.sort());
    by_node
}

/// The one pod on a node.
fn pod_on(cluster: &Cluster, node: &str) -> Value {
    let mut on: Vec<Value> =
        pods(cluster).into_iter().filter(|pod| target(pod) == node && !is_deleting(pod)).collect();
    assert_eq!(on.len(), 1, "{on:#?}");
    on.remove(0)
}

/// `sandbox-node-1`.
fn node(number: usize) -> String {
    format!("sandbox-node-{number}")
}

async fn add_node(cluster: &Cluster, name: &str, labels: Value) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}});
    cluster.call(Method::POST, NODES, &node).await;
}

async fn remove_node(cluster: &Cluster, name: &str) {
    cluster.call(Method::DELETE, &format!("{NODES}/{name}"), &Value::Null).await;
}

/// Sets the taints of a node: `key:effect` each.
async fn taint(cluster: &Cluster, name: &str, taints: &[&str]) {
    let taint = |text: &&str| {
        let (key, effect) = text.split_once(':').unwrap();
        json!({"key": key, "effect": effect})
    };
    let taints: Vec<Value> = taints.iter().map(taint).collect();
    let patch = json!({"spec": {"taints": if taints.is_empty() { Value::Null } else { json!(taints) }}});
    cluster.call(Method::PATCH, &format!("{NODES}/{name}"), &patch).await;
}

/// Merges this into the status of a pod.
async fn set_pod_status(cluster: &Cluster, name: &str, status: Value) {
    cluster.call(Method::PATCH, &format!("{PODS}/{name}/status"), &json!({"status": status})).await;
}

/// The revisions by number: the tag of the image of each.
fn revisions(cluster: &Cluster) -> Vec<(i64, String)> {
    let mut all: Vec<(i64, String)> = cluster
        .objects("ControllerRevision")
        .iter()
        .map(|revision| {
            let image = text(&revision["data"]["spec"]["template"]["spec"]["containers"][0]["image"]);
            (revision["revision"].as_i64().unwrap(), image.rsplit(':').next().unwrap().to_owned())
        })
        .collect();
    all.sort();
    all
}

/// The events on the DaemonSet: type, reason and message of each.
fn events(cluster: &Cluster) -> Vec<String> {
    let of_daemon_set = |event: &Value| event["involvedObject"]["kind"] == "DaemonSet";
    let said = |event: &Value| {
        let part = |field: &str| text(&event[field]);
        format!("{} {}: {}", part("type"), part("reason"), part("message"))
    };
    cluster.objects("Event").iter().filter(|event| of_daemon_set(event)).map(said).collect()
}

/// Looks at the pods all the time: without surge no node ever has two that have not ended, those that are being deleted
/// included; with surge never two live ones of one revision, and never three.
struct InvariantMonitor {
    breaches: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl InvariantMonitor {
    fn of(cluster: &Cluster) -> Self {
        let (sandbox, breaches) = (cluster.sandbox.clone(), Arc::new(Mutex::new(Vec::new())));
        let found = breaches.clone();
        let task = tokio::spawn(async move {
            loop {
                let daemon_sets = sandbox.objects("DaemonSet");
                let surges = |uid: &Value| {
                    let of_uid = |daemon_set: &&Value| daemon_set["metadata"]["uid"] == *uid;
                    let rolling = daemon_sets
                        .iter()
                        .find(of_uid)
                        .map(|daemon_set| &daemon_set["spec"]["updateStrategy"]["rollingUpdate"]);
                    rolling.is_some_and(|rolling| {
                        !["null", "0"].contains(&rolling["maxSurge"].to_string().as_str())
                    })
                };
                let mut by_place: BTreeMap<(String, String), Vec<Value>> = BTreeMap::new();
                for pod in sandbox.objects("Pod").into_iter().filter(|pod| !is_terminal(pod)) {
                    let owner = &pod["metadata"]["ownerReferences"][0];
                    if owner["kind"] == "DaemonSet" {
                        by_place.entry((text(&owner["uid"]), target(&pod))).or_default().push(pod);
                    }
                }
                for ((uid, node), pods) in by_place {
                    let live = || pods.iter().filter(|pod| !is_deleting(pod));
                    let mut hashes: Vec<&Value> =
                        live().map(|pod| &pod["metadata"]["labels"][HASH]).collect();
                    hashes.sort_by_key(|hash| hash.to_string());
                    let is_breach = match surges(&uid.into()) {
                        false => pods.len() > 1,
                        true => live().count() > 2 || hashes.windows(2).any(|pair| pair[0] == pair[1]),
                    };
                    if is_breach {
                        let names: Vec<String> = pods.iter().map(name_of).collect();
                        found.lock().unwrap().push(format!("{node}: {}", names.join(" ")));
                    }
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        InvariantMonitor { breaches, task }
    }

    #[track_caller]
    fn assert_no_breach(&self) {
        assert!(!self.task.is_finished(), "the monitor has stopped");
        assert_eq!(*self.breaches.lock().unwrap(), [""; 0], "nodes with too many pods");
    }
}

/// The requests of the controllers so far that changed something but for events: how many.
fn writes(cluster: &Cluster) -> usize {
    cluster.writes().len()
}

/// How many requests of the controllers there were of this verb and kind.
fn requested(cluster: &Cluster, verb: &str, kind: &str) -> usize {
    let log = cluster.log.lock().unwrap();
    log.iter().filter(|r| r.user_agent == USER_AGENT && r.verb == verb && r.kind == kind).count()
}

#[tokio::test(start_paused = true)]
async fn every_node_gets_a_pod_and_nothing_is_written_after_that() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    let monitor = InvariantMonitor::of(&cluster);
    create(&cluster, unavailable(1)).await;
    rolled_out(&cluster, 3).await;
    let expected: BTreeMap<String, Vec<String>> = (1..=3).map(|n| (node(n), vec!["v1".to_owned()])).collect();
    assert_eq!(images(&cluster), expected);
    assert_eq!(revisions(&cluster), [(1, "v1".to_owned())]);
    assert_eq!(
        (requested(&cluster, "create", "Pod"), requested(&cluster, "create", "ControllerRevision")),
        (3, 1)
    );
    let pod = pod_on(&cluster, &node(1));
    let revision = &cluster.objects("ControllerRevision")[0];
    assert_eq!(pod["metadata"]["labels"][HASH], revision["metadata"]["labels"][HASH]);
    assert_eq!(pod["metadata"]["labels"]["pod-template-generation"], "1");
    assert_eq!(name_of(revision), format!("agent-{}", text(&revision["metadata"]["labels"][HASH])));
    let owner = &pod["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("DaemonSet"), &json!(true)));
    let created: Vec<String> = events(&cluster)
        .into_iter()
        .filter(|e| e.starts_with("Normal SuccessfulCreate: Created pod: "))
        .collect();
    assert_eq!(created.len(), 3, "{:?}", events(&cluster));
    let before = writes(&cluster);
    tokio::time::sleep(600 * S).await;
    assert_eq!(writes(&cluster), before);
    monitor.assert_no_breach();
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_that_selects_everything_is_refused_with_upstreams_words() {
    let cluster = Cluster::new().await;
    let _daemon = cluster.start_controllers(1);
    // The API server refuses the empty selector: it got in before it did.
    let mut object = daemon_set(json!({}));
    object["spec"]["selector"] = json!({});
    let refused = cluster.try_call(Method::POST, DAEMON_SETS, &object).await.unwrap_err().to_string();
    assert!(refused.contains("empty selector is invalid for daemonset"), "{refused}");
    tokio::time::sleep(5 * S).await;
    assert_eq!(writes(&cluster), 0);
}
