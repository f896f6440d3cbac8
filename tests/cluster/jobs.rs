//! The Job controller against the embedded API server with nodes whose pods end, in virtual time. All controllers run, so
//! that the pods of deleted Jobs are collected as in a cluster.

mod completion;
mod failure;
mod finalizers;
mod indexes;
mod leaders;
mod suspension;

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_testkit::cluster::{Cluster, Daemon, unlimited};

const JOBS: &str = "/apis/batch/v1/namespaces/shop/jobs";
const PODS: &str = "/api/v1/namespaces/shop/pods";
const TRACKING: &str = "batch.kubernetes.io/job-tracking";

fn start(cluster: &Cluster, seed: u64) -> Daemon {
    let config = ControllerConfig { enabled: Enabled::all(), root_ca: "pem".into(), ..unlimited() };
    cluster.start_with(seed, config, |router| router)
}

/// A Job `j` whose pods end like this. `spec` is merged over its spec.
fn job(outcome: &str, spec: Value) -> Value {
    let mut job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
        "spec": {"template": {
            "metadata": {"annotations": {"windlass.dev/pod-outcome": outcome}},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "job:v1"}]},
        }},
    });
    json_patch::merge(&mut job["spec"], &spec);
    job
}

async fn create(cluster: &Cluster, outcome: &str, spec: Value) {
    cluster.call(Method::POST, JOBS, &job(outcome, spec)).await;
}

/// Merges this into the spec of the Job.
async fn patch(cluster: &Cluster, spec: Value) {
    cluster.call(Method::PATCH, &format!("{JOBS}/j"), &json!({"spec": spec})).await;
}

async fn delete(cluster: &Cluster, path: &str, policy: &str) {
    let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
    cluster.call(Method::DELETE, path, &options).await;
}

fn j(cluster: &Cluster) -> Value {
    let named = |object: &Value| object["metadata"]["name"] == "j";
    cluster.objects("Job").into_iter().find(named).unwrap_or_default()
}

/// A number of the Job's status; 0 where it is absent.
fn number(cluster: &Cluster, field: &str) -> i64 {
    j(cluster)["status"][field].as_i64().unwrap_or(0)
}

/// The reason of a condition that is True; empty otherwise.
fn reason(cluster: &Cluster, kind: &str) -> String {
    let job = j(cluster);
    let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    let mut of_kind = conditions.filter(|c| c["type"] == kind && c["status"] == "True");
    of_kind.next().and_then(|c| c["reason"].as_str()).unwrap_or_default().to_owned()
}

/// Waits until `holds`; panics with the state of the Job after so many seconds.
async fn eventually(cluster: &Cluster, seconds: u64, what: &str, holds: impl Fn(&Cluster) -> bool) {
    for _ in 0..seconds * 10 {
        if holds(cluster) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let pods = cluster.objects("Pod");
    let pods = pods.iter().map(|pod| format!("{} {}", pod["metadata"], pod["status"]["phase"]));
    panic!(
        "{what}: {}\n{}\n{:?}",
        j(cluster)["status"],
        pods.collect::<Vec<_>>().join("\n"),
        cluster.writes()
    );
}

fn is_finished(cluster: &Cluster) -> bool {
    !reason(cluster, "Complete").is_empty() || !reason(cluster, "Failed").is_empty()
}

/// Waits until the Job is finished, and for a while, in which nothing more is written.
async fn finished(cluster: &Cluster, seconds: u64) {
    eventually(cluster, seconds, "the Job is finished", is_finished).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let writes = cluster.writes();
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(cluster.writes(), writes, "a finished Job is left alone");
    let status = j(cluster)["status"].clone();
    assert_eq!(status["uncountedTerminatedPods"], json!({}), "{status}");
    assert_eq!(
        (&status["active"], &status["ready"], &status["terminating"]),
        (&Value::Null, &json!(0), &json!(0))
    );
    assert!(cluster.objects("Pod").iter().all(|pod| !is_tracked(pod)), "finalizers are left");
}

fn is_tracked(pod: &Value) -> bool {
    pod["metadata"]["finalizers"].as_array().into_iter().flatten().any(|finalizer| finalizer == TRACKING)
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn is_active(pod: &Value) -> bool {
    !is_deleting(pod) && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn active(cluster: &Cluster) -> usize {
    cluster.objects("Pod").iter().filter(|pod| is_active(pod)).count()
}

/// The reasons of the events about the Job, sorted, each as often as it occurred.
fn events(cluster: &Cluster) -> Vec<String> {
    let events = cluster.objects("Event");
    let about = events.iter().filter(|event| event["involvedObject"]["kind"] == "Job");
    let mut reasons: Vec<String> = about
        .flat_map(|event| {
            let times = event["count"].as_u64().unwrap_or(1);
            (0..times).filter_map(|_| event["reason"].as_str().map(str::to_owned))
        })
        .collect();
    reasons.sort();
    reasons
}
