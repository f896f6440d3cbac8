//! A DaemonSet on a real API server: rolled out, updated, rolled back, orphaned, adopted, and deleted.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testkit::process::WAIT_TIMEOUT;
use windlass_testkit::stage::{Stage, name};

/// The paths of one namespace.
struct Paths {
    daemon_sets: String,
    revisions: String,
    pods: String,
}

impl Paths {
    fn of(stage: &Stage) -> Self {
        let apps = format!("/apis/apps/v1/namespaces/{}", stage.namespace);
        Paths {
            daemon_sets: format!("{apps}/daemonsets"),
            revisions: format!("{apps}/controllerrevisions"),
            pods: stage.path("Pod"),
        }
    }
}

async fn items(stage: &Stage, path: &str) -> Vec<Value> {
    let list = stage.call(Method::GET, path, &Value::Null).await;
    list["items"].as_array().cloned().unwrap_or_default()
}

/// Retries until the answer is `Ok`; an error describes the state.
macro_rules! eventually {
    ($what:literal, $asked:expr) => {{
        let end = Instant::now() + WAIT_TIMEOUT;
        while let Err(state) = $asked.await {
            assert!(Instant::now() < end, "{}: {state}", $what);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }};
}

/// As `kubectl rollout status` sees it, on all three nodes.
async fn rolled_out(stage: &Stage, paths: &Paths) {
    eventually!("the DaemonSet is rolled out", is_complete(stage, paths));
}

async fn is_complete(stage: &Stage, paths: &Paths) -> Result<(), String> {
    let daemon_set = stage.call(Method::GET, &format!("{}/agent", paths.daemon_sets), &Value::Null).await;
    let status = &daemon_set["status"];
    let all = ["desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"];
    let is_seen = status["observedGeneration"] == daemon_set["metadata"]["generation"];
    let is_complete = is_seen && all.iter().all(|field| status[field] == 3);
    if is_complete { Ok(()) } else { Err(status.to_string()) }
}

async fn has_pods(stage: &Stage, paths: &Paths, wanted: usize) -> Result<(), String> {
    let pods = items(stage, &paths.pods).await.len();
    if pods == wanted { Ok(()) } else { Err(format!("{pods} pods")) }
}

async fn has_revisions(stage: &Stage, paths: &Paths, is_so: fn(&[i64]) -> bool) -> Result<(), String> {
    let numbers = numbers(stage, paths).await;
    if is_so(&numbers) { Ok(()) } else { Err(format!("{numbers:?}")) }
}

async fn has_no_daemon_set(stage: &Stage, paths: &Paths) -> Result<(), String> {
    if items(stage, &paths.daemon_sets).await.is_empty() { Ok(()) } else { Err("it is there".into()) }
}

/// The UIDs of the pods.
async fn uids(stage: &Stage, paths: &Paths) -> Vec<String> {
    let pods = items(stage, &paths.pods).await;
    let mut uids: Vec<String> = pods.iter().map(|pod| pod["metadata"]["uid"].to_string()).collect();
    uids.sort();
    uids
}

/// The numbers of the revisions, in order.
async fn numbers(stage: &Stage, paths: &Paths) -> Vec<i64> {
    let ours = |revision: &&Value| !revision["metadata"]["ownerReferences"].is_null();
    let all = items(stage, &paths.revisions).await;
    let mut numbers: Vec<i64> =
        all.iter().filter(ours).filter_map(|revision| revision["revision"].as_i64()).collect();
    numbers.sort_unstable();
    numbers
}

async fn set_image(stage: &Stage, paths: &Paths, tag: &str) {
    let containers = json!([{"name": "c", "image": format!("agent:{tag}")}]);
    let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    stage.call(Method::PATCH, &format!("{}/agent", paths.daemon_sets), &patch).await;
}

async fn revision(stage: &Stage, paths: &Paths, number: i64) -> Value {
    let all = items(stage, &paths.revisions).await;
    all.into_iter().find(|revision| revision["revision"] == number).unwrap()
}

fn agent(tag: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "revisionHistoryLimit": 1,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}},
            "template": {"metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [{"name": "c", "image": format!("agent:{tag}")}]}}}
    })
}

/// Uses every right that the controller has.
pub(crate) async fn a_daemon_set_lives_its_life(stage: &Stage) {
    let paths = Paths::of(stage);
    stage.call(Method::POST, &paths.daemon_sets, &agent("v1")).await;
    rolled_out(stage, &paths).await;
    assert_eq!(items(stage, &paths.pods).await.len(), 3);
    set_image(stage, &paths, "v2").await;
    rolled_out(stage, &paths).await;
    assert_eq!(numbers(stage, &paths).await, [1, 2]);

    // kubectl rolls back with the data of a revision, and the API server takes the bytes.
    let first = revision(stage, &paths, 1).await;
    let mut template = first["data"]["spec"]["template"].clone();
    template.as_object_mut().unwrap().remove("$patch");
    let patch = json!({"spec": {"template": template}});
    stage.call(Method::PATCH, &format!("{}/agent", paths.daemon_sets), &patch).await;
    rolled_out(stage, &paths).await;
    eventually!("the old revision is the newest", has_revisions(stage, &paths, |numbers| numbers == [2, 3]));

    // A foreign object has the name of the next revision.
    let second = revision(stage, &paths, 2).await;
    let taken = name(&second);
    stage.call(Method::DELETE, &format!("{}/{taken}", paths.revisions), &Value::Null).await;
    let foreign = json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": taken},
        "revision": 7, "data": {"foreign": "data"}});
    stage.call(Method::POST, &paths.revisions, &foreign).await;
    set_image(stage, &paths, "v2").await;
    rolled_out(stage, &paths).await;
    let daemon_set = stage.call(Method::GET, &format!("{}/agent", paths.daemon_sets), &Value::Null).await;
    assert_eq!(daemon_set["status"]["collisionCount"], 1);
    // The history has room for one.
    set_image(stage, &paths, "v3").await;
    rolled_out(stage, &paths).await;
    eventually!("the history is trimmed", has_revisions(stage, &paths, |numbers| numbers.len() == 2));

    // A pod that stops matching is released and replaced, and adopted when it matches again.
    let pod = format!("{}/{}", paths.pods, name(&items(stage, &paths.pods).await[0]));
    let label = |value: &str| json!({"metadata": {"labels": {"app": value}}});
    stage.call(Method::PATCH, &pod, &label("debug")).await;
    eventually!("it is released and replaced", has_pods(stage, &paths, 4));
    rolled_out(stage, &paths).await;
    stage.call(Method::PATCH, &pod, &label("agent")).await;
    eventually!("it is adopted, and one of two pods is deleted", has_pods(stage, &paths, 3));
    rolled_out(stage, &paths).await;

    // Orphans are taken over as they are.
    let before = uids(stage, &paths).await;
    let policy =
        |policy: &str| json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    stage.call(Method::DELETE, &format!("{}/agent", paths.daemon_sets), &policy("Orphan")).await;
    eventually!("it is deleted", has_no_daemon_set(stage, &paths));
    stage.call(Method::POST, &paths.daemon_sets, &agent("v3")).await;
    rolled_out(stage, &paths).await;
    assert_eq!(uids(stage, &paths).await, before);

    stage.call(Method::DELETE, &format!("{}/agent", paths.daemon_sets), &policy("Foreground")).await;
    eventually!("its pods go", has_pods(stage, &paths, 0));
    eventually!("its revisions go", has_revisions(stage, &paths, |numbers| numbers.is_empty()));
}
