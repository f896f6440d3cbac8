//! Jobs that expire, and pods that no kubelet ends.

use http::Method;
use serde_json::{Value, json};

use super::super::objects::{Object, pod};
use super::super::stage::Stage;
use super::cron_jobs::pod_template;

super::workloads! {
    ttl_of_a_job_that_completes,
    ttl_of_a_job_that_fails,
    ttl_of_zero,
    ttl_is_raised_and_removed,
    ttl_is_set_after_the_end,
    ttl_waits_for_the_end,
    podgc_pods_of_a_node_that_is_gone,
    podgc_pod_with_a_variable_twice,
    podgc_a_node_comes_back,
    podgc_node_out_of_service,
    podgc_deleted_pod_without_a_node,
}

fn job(ttl: Value) -> Object {
    Object(json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "once"},
        "spec": {"managedBy": "example.com/nobody", "template": pod_template(), "ttlSecondsAfterFinished": ttl},
    }))
}

async fn set(s: &Stage, ttl: Value) {
    s.patch("Job", "once", json!({"spec": {"ttlSecondsAfterFinished": ttl}})).await;
}

async fn is_gone(s: &Stage, seconds: u64) {
    s.until("the Job is gone", seconds, |s| s.all("Job").is_empty()).await;
}

async fn ttl_of_a_job_that_completes(s: &Stage) {
    s.create(job(json!(5))).await;
    s.rest().await;
    s.end_jobs(true).await;
    is_gone(s, 15).await;
}

async fn ttl_of_a_job_that_fails(s: &Stage) {
    s.create(job(json!(5))).await;
    s.rest().await;
    s.end_jobs(false).await;
    is_gone(s, 15).await;
}

async fn ttl_of_zero(s: &Stage) {
    s.create(job(json!(0))).await;
    s.rest().await;
    s.end_jobs(true).await;
    is_gone(s, 10).await;
}

async fn ttl_is_raised_and_removed(s: &Stage) {
    s.create(job(json!(20))).await;
    s.rest().await;
    s.end_jobs(true).await;
    set(s, json!(40)).await;
    s.wait(21).await;
    set(s, Value::Null).await;
    s.wait(20).await;
}

async fn ttl_is_set_after_the_end(s: &Stage) {
    s.create(job(Value::Null)).await;
    s.rest().await;
    s.end_jobs(true).await;
    s.wait(3).await;
    set(s, json!(1)).await;
    is_gone(s, 10).await;
}

async fn ttl_waits_for_the_end(s: &Stage) {
    s.create(job(json!(0))).await;
    s.wait(5).await;
    s.delete("Job", "once", "Background").await;
    s.rest().await;
}

async fn pod_on(s: &Stage, name: &str, node: &str, finalizers: Value) {
    s.create(pod(name, "left").spec("nodeName", s.node(node)).metadata("finalizers", finalizers)).await;
}

async fn podgc_pods_of_a_node_that_is_gone(s: &Stage) {
    s.add_node("far").await;
    pod_on(s, "a", "far", json!([])).await;
    pod_on(s, "b", "far", json!(["example.com/keep"])).await;
    s.rest().await;
    s.remove_node("far").await;
    s.wait(30).await;
    let is_done =
        |s: &Stage| s.all("Pod").len() == 1 && s.all("Pod")[0]["metadata"]["deletionTimestamp"].is_string();
    s.until("the collector has deleted both", 60, is_done).await;
}

async fn podgc_pod_with_a_variable_twice(s: &Stage) {
    s.add_node("far").await;
    let twice = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let containers = json!([{"name": "app", "image": "app:v1", "env": twice}]);
    s.create(pod("a", "left").spec("nodeName", s.node("far")).spec("containers", containers)).await;
    s.rest().await;
    s.remove_node("far").await;
    s.until("the pod is gone", 90, |s| s.all("Pod").is_empty()).await;
}

async fn podgc_a_node_comes_back(s: &Stage) {
    s.add_node("far").await;
    pod_on(s, "a", "far", json!([])).await;
    s.rest().await;
    s.remove_node("far").await;
    s.wait(15).await;
    s.add_node("far").await;
    s.wait(60).await;
}

async fn podgc_node_out_of_service(s: &Stage) {
    s.add_node("far").await;
    pod_on(s, "a", "far", json!([])).await;
    pod_on(s, "b", "far", json!([])).await;
    s.rest().await;
    s.delete("Pod", "a", "Background").await;
    s.rest().await;
    s.taint("far", &["node.kubernetes.io/out-of-service:NoExecute"]).await;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    let path = format!("/api/v1/nodes/{}/status", s.node("far"));
    s.call(Method::PATCH, &path, &ready).await;
    s.until("the deleted pod is gone", 40, |s| s.all("Pod").len() == 1).await;
}

async fn podgc_deleted_pod_without_a_node(s: &Stage) {
    s.create(pod("a", "left").metadata("finalizers", json!(["example.com/keep"]))).await;
    s.rest().await;
    s.delete("Pod", "a", "Background").await;
    s.until("it has failed", 40, |s| s.one("Pod", "a")["status"]["phase"] == "Failed").await;
}
