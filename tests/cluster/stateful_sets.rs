//! The StatefulSet controller against the embedded API server with nodes and volumes, in virtual time. All controllers run,
//! so that claims are protected and collected as in a cluster.

mod calls;
mod claims;
mod deletion;
mod names;
mod updates;

use std::collections::BTreeMap;
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_testkit::cluster::{Cluster, Daemon, Faults, USER_AGENT, unlimited};

const SETS: &str = "/apis/apps/v1/namespaces/shop/statefulsets";
const CLAIMS: &str = "/api/v1/namespaces/shop/persistentvolumeclaims";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const S: Duration = Duration::from_secs(1);

/// The label with the name of a pod's revision.
const REVISION: &str = "controller-revision-hash";

async fn cluster() -> Cluster {
    Cluster::with_volumes(Faults::default(), |options| options).await
}

fn start(cluster: &Cluster, seed: u64) -> Daemon {
    let config = ControllerConfig { enabled: Enabled::all(), root_ca: "pem".into(), ..unlimited() };
    cluster.start_with(seed, config, |router| router)
}

/// A StatefulSet `db` of 3 pods with a claim each. `spec` is merged over its spec.
fn stateful_set(spec: Value) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "annotations": {"note": "n"}},
        "spec": {
            "replicas": 3, "serviceName": "nodes", "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "c", "image": "db:v1"}]},
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data", "labels": {"tier": "disk"}},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }],
        },
    });
    json_patch::merge(&mut set["spec"], &spec);
    set
}

fn parallel() -> Value {
    json!({"podManagementPolicy": "Parallel"})
}

async fn create(cluster: &Cluster, spec: Value) {
    cluster.call(Method::POST, SETS, &stateful_set(spec)).await;
}

/// A StatefulSet that is rolled out, and the daemon.
async fn rolled_out_with(cluster: &Cluster, spec: Value) -> Daemon {
    let daemon = start(cluster, 1);
    create(cluster, spec).await;
    rolled_out(cluster).await;
    daemon
}

/// Merges this into the spec of the StatefulSet.
async fn patch(cluster: &Cluster, spec: Value) {
    cluster.call(Method::PATCH, &format!("{SETS}/db"), &json!({"spec": spec})).await;
}

async fn scale(cluster: &Cluster, replicas: u32) {
    let body = json!({"spec": {"replicas": replicas}});
    cluster.call(Method::PATCH, &format!("{SETS}/db/scale"), &body).await;
}

async fn set_image(cluster: &Cluster, tag: &str) {
    let containers = json!([{"name": "c", "image": format!("db:{tag}")}]);
    patch(cluster, json!({"template": {"spec": {"containers": containers}}})).await;
}

/// Deletes an object at once.
async fn kill(cluster: &Cluster, path: &str) {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0});
    cluster.call(Method::DELETE, path, &options).await;
}

/// Deletes an object as a user does.
async fn delete(cluster: &Cluster, path: &str, policy: &str) {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    cluster.call(Method::DELETE, path, &options).await;
}

fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// The objects of a kind by name.
fn by_name(cluster: &Cluster, kind: &str) -> BTreeMap<String, Value> {
    cluster.objects(kind).into_iter().map(|object| (name_of(&object).to_owned(), object)).collect()
}

fn pods(cluster: &Cluster) -> BTreeMap<String, Value> {
    by_name(cluster, "Pod")
}

fn pod_names(cluster: &Cluster) -> Vec<String> {
    pods(cluster).into_keys().collect()
}

fn claim_names(cluster: &Cluster) -> Vec<String> {
    by_name(cluster, "PersistentVolumeClaim").into_keys().collect()
}

fn db(cluster: &Cluster) -> Value {
    by_name(cluster, "StatefulSet").remove("db").unwrap_or_default()
}

fn uid_of(cluster: &Cluster, kind: &str, name: &str) -> Value {
    by_name(cluster, kind).remove(name).map_or(Value::Null, |object| object["metadata"]["uid"].clone())
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    !is_deleting(pod) && conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

/// The tags of the images of the pods, by their names.
fn tags(cluster: &Cluster) -> Vec<(String, String)> {
    let tag = |pod: &Value| {
        let image = pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned();
        image.rsplit(':').next().unwrap_or_default().to_owned()
    };
    pods(cluster).into_iter().map(|(name, pod)| (name, tag(&pod))).collect()
}

/// Whether all pods are there, new and available, and the revision is the current one.
fn is_complete(cluster: &Cluster) -> bool {
    let set = db(cluster);
    let status = &set["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let counts = ["replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "currentReplicas"];
    status["observedGeneration"] == set["metadata"]["generation"]
        && counts.iter().all(|field| Some(number(field)) == set["spec"]["replicas"].as_i64())
        && status["currentRevision"] == status["updateRevision"]
}

#[track_caller]
fn rolled_out(cluster: &Cluster) -> impl Future<Output = ()> + '_ {
    cluster.eventually(180, "the StatefulSet is rolled out", is_complete)
}

/// Waits until it holds, and judges the cluster every 20 ms until then.
async fn watch(cluster: &Cluster, until: impl Fn(&Cluster) -> bool, mut judge: impl FnMut(&Cluster)) {
    for _ in 0..180 * 50 {
        judge(cluster);
        if until(cluster) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not within 180 s: {:?} {}", tags(cluster), db(cluster)["status"]);
}

/// The creations and deletions of pods by the controllers so far: `create db-0`.
fn pod_writes(cluster: &Cluster) -> Vec<String> {
    let log = cluster.log.lock().unwrap();
    let ours = log.iter().filter(|request| request.user_agent == USER_AGENT && request.kind == "Pod");
    ours.filter(|request| ["create", "delete"].contains(&request.verb))
        .map(|request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let name = if request.verb == "create" { name_of(&body) } else { &request.name };
            format!("{} {name}", request.verb)
        })
        .collect()
}

/// The events about the StatefulSet, each with the number of times.
fn events(cluster: &Cluster) -> Vec<(String, i64)> {
    let about = |event: &&Value| event["involvedObject"]["kind"] == "StatefulSet";
    let said = |event: &Value| {
        let part = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let said = format!("{} {}: {}", part("type"), part("reason"), part("message"));
        (said, event["count"].as_i64().unwrap_or(1))
    };
    cluster.objects("Event").iter().filter(about).map(said).collect()
}

/// How often there was an event that begins so.
fn told(cluster: &Cluster, beginning: &str) -> i64 {
    events(cluster).iter().filter(|(event, _)| event.starts_with(beginning)).map(|(_, count)| count).sum()
}

#[tokio::test(start_paused = true)]
async fn one_by_one_each_pod_is_created_when_those_below_are_ready() {
    let cluster = cluster().await;
    let _daemon = start(&cluster, 1);
    create(&cluster, json!({})).await;
    let in_order = |c: &Cluster| {
        let mut pods = pods(c);
        pods.pop_last();
        assert!(
            pods.values().all(is_ready),
            "one was created before its predecessor was ready: {:?}",
            pods.keys()
        );
    };
    watch(&cluster, is_complete, in_order).await;
    assert_eq!(pod_writes(&cluster), ["create db-0", "create db-1", "create db-2"]);
    let set = db(&cluster);
    for (index, (name, pod)) in pods(&cluster).into_iter().enumerate() {
        assert_eq!(name, format!("db-{index}"));
        let labels = json!({"app": "db", "statefulset.kubernetes.io/pod-name": name,
            "apps.kubernetes.io/pod-index": index.to_string(), REVISION: set["status"]["updateRevision"]});
        assert_eq!(pod["metadata"]["labels"], labels);
        assert_eq!((&pod["spec"]["hostname"], &pod["spec"]["subdomain"]), (&json!(name), &json!("nodes")));
        let owner = &pod["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["uid"], &owner["controller"]), (&set["metadata"]["uid"], &json!(true)));
        let volume =
            json!({"name": "data", "persistentVolumeClaim": {"claimName": format!("data-db-{index}")}});
        assert_eq!(pod["spec"]["volumes"][0], volume);
    }
    for (name, claim) in by_name(&cluster, "PersistentVolumeClaim") {
        assert_eq!(claim["metadata"]["labels"], json!({"app": "db", "tier": "disk"}), "{name}");
        assert_eq!(
            (&claim["status"]["phase"], &claim["metadata"]["ownerReferences"]),
            (&json!("Bound"), &Value::Null)
        );
    }
    assert_eq!(told(&cluster, "Normal SuccessfulCreate: Create Pod db-1 in StatefulSet db successful"), 1);
    assert_eq!(
        told(&cluster, "Normal SuccessfulCreate: Create Claim data-db-1 Pod db-1 in StatefulSet db success"),
        1
    );
    assert_eq!(told(&cluster, "Warning"), 0, "{:?}", events(&cluster));
    let before = cluster.writes();
    tokio::time::sleep(600 * S).await;
    assert_eq!(cluster.writes(), before, "a settled StatefulSet costs nothing");
}

#[tokio::test(start_paused = true)]
async fn in_parallel_no_pod_waits_for_another() {
    let cluster = cluster().await;
    let mut spec = parallel();
    spec["template"] = json!({"spec": {"containers": [{"name": "c", "image": "db:broken"}]}});
    let _daemon = start(&cluster, 1);
    create(&cluster, spec).await;
    cluster.eventually(2, "all are there", |c| pods(c).len() == 3).await;
    tokio::time::sleep(20 * S).await;
    assert_eq!(db(&cluster)["status"]["readyReplicas"], Value::Null);
    scale(&cluster, 1).await;
    cluster.eventually(5, "two go together", |c| pod_names(c) == ["db-0"]).await;
    assert_eq!(pod_writes(&cluster)[3..], ["delete db-2", "delete db-1"]);
}

#[tokio::test(start_paused = true)]
async fn one_by_one_pods_leave_from_the_highest_and_come_back_to_their_claims() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, json!({})).await;
    let claim = uid_of(&cluster, "PersistentVolumeClaim", "data-db-2");
    scale(&cluster, 1).await;
    let one_leaves = |c: &Cluster| assert!(pods(c).values().filter(|pod| is_deleting(pod)).count() <= 1);
    watch(&cluster, |c| is_complete(c) && pods(c).len() == 1, one_leaves).await;
    assert_eq!(pod_writes(&cluster)[3..], ["delete db-2", "delete db-1"]);
    assert_eq!(claim_names(&cluster), ["data-db-0", "data-db-1", "data-db-2"]);
    scale(&cluster, 3).await;
    rolled_out(&cluster).await;
    assert_eq!(pod_writes(&cluster)[5..], ["create db-1", "create db-2"]);
    assert_eq!(uid_of(&cluster, "PersistentVolumeClaim", "data-db-2"), claim);
    scale(&cluster, 0).await;
    cluster.eventually(30, "none is left", |c| is_complete(c) && pods(c).is_empty()).await;
    assert_eq!(pod_writes(&cluster)[7..], ["delete db-2", "delete db-1", "delete db-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_scale_down_halts_while_a_pod_that_stays_is_not_ready() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, json!({})).await;
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    cluster.call(Method::PATCH, &format!("{PODS}/db-0/status"), &not_ready).await;
    scale(&cluster, 1).await;
    tokio::time::sleep(60 * S).await;
    assert_eq!(pod_names(&cluster), ["db-0", "db-1", "db-2"]);
    let since = cluster.clock.now().to_string();
    let ready =
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": since}]}});
    cluster.call(Method::PATCH, &format!("{PODS}/db-0/status"), &ready).await;
    cluster.eventually(10, "it goes on", |c| pod_names(c) == ["db-0"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_start_moves_the_range_after_its_new_pods_are_there() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, json!({"replicas": 2})).await;
    patch(&cluster, json!({"ordinals": {"start": 3}})).await;
    cluster.eventually(60, "moved", |c| is_complete(c) && pod_names(c) == ["db-3", "db-4"]).await;
    assert_eq!(pod_writes(&cluster)[2..], ["create db-3", "create db-4", "delete db-1", "delete db-0"]);
    assert_eq!(pods(&cluster)["db-3"]["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "3");
}

#[tokio::test(start_paused = true)]
async fn a_pod_counts_when_it_has_been_ready_for_long_enough() {
    let cluster = cluster().await;
    let _daemon = start(&cluster, 1);
    create(&cluster, json!({"replicas": 2, "minReadySeconds": 30})).await;
    cluster.eventually(5, "ready", |c| pods(c).get("db-0").is_some_and(is_ready)).await;
    let since = cluster.clock.now();
    assert_eq!(db(&cluster)["status"]["availableReplicas"], 0);
    cluster.eventually(35, "the next one", |c| pods(c).len() == 2).await;
    let waited = cluster.clock.now().duration_since(since).as_secs_f64();
    assert!((29.0..31.5).contains(&waited), "{waited}");
    rolled_out(&cluster).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_pod_comes_back_as_itself_while_others_are_not_ready() {
    let cluster = cluster().await;
    let _daemon = rolled_out_with(&cluster, json!({})).await;
    let not_ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    cluster.call(Method::PATCH, &format!("{PODS}/db-1/status"), &not_ready).await;
    let claim = uid_of(&cluster, "PersistentVolumeClaim", "data-db-0");
    kill(&cluster, &format!("{PODS}/db-0")).await;
    cluster.eventually(5, "it is back", |c| pods(c).get("db-0").is_some_and(is_ready)).await;
    assert_eq!(uid_of(&cluster, "PersistentVolumeClaim", "data-db-0"), claim);
    assert_eq!(pod_writes(&cluster)[3..], ["create db-0"]);
}
