//! The namespace controller: what is deleted, in which order, and what the conditions say meanwhile.

use http::Method;
use serde_json::{Value, json};

use super::super::objects::{config_map, deployment, pod};
use super::super::stage::Stage;

super::workloads! {
    an_empty_namespace_ends,
    a_namespace_ends_with_what_is_in_it,
    a_namespace_waits_for_a_finalizer,
    a_namespace_keeps_other_kinds_while_a_pod_is_there,
    a_namespace_waits_for_pods_that_end,
    a_namespace_with_dependents_of_each_policy_ends,
    a_finalizer_of_the_namespace_itself,
}

const HELD: &str = "example.com/held";

/// kube-controller-manager waits five seconds first, and 16 between its rounds.
const PATIENCE: u64 = 120;

async fn delete(s: &Stage) {
    s.act("delete the namespace");
    let path = format!("/api/v1/namespaces/{}", s.namespace);
    s.call(Method::DELETE, &path, &Value::Null).await;
}

fn namespace(s: &Stage) -> Value {
    s.one("Namespace", &s.namespace)
}

async fn gone(s: &Stage) {
    s.until("it is gone", PATIENCE, |s| namespace(s).is_null()).await;
}

/// Whether a condition holds in the way that the controller reports at the end of a round.
fn says(s: &Stage, kind: &str, status: &str) -> bool {
    let namespace = namespace(s);
    let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|one| one["type"] == kind && one["status"] == status)
}

async fn an_empty_namespace_ends(s: &Stage) {
    s.rest().await;
    delete(s).await;
    gone(s).await;
}

async fn a_namespace_ends_with_what_is_in_it(s: &Stage) {
    s.create(config_map("one")).await;
    s.create(config_map("two")).await;
    s.create(deployment("web").replicas(0)).await;
    s.rest().await;
    delete(s).await;
    gone(s).await;
}

async fn a_namespace_waits_for_a_finalizer(s: &Stage) {
    s.create(config_map("held").metadata("finalizers", json!([HELD]))).await;
    s.create(config_map("free")).await;
    s.rest().await;
    delete(s).await;
    s.until("it says what remains", PATIENCE, |s| says(s, "NamespaceFinalizersRemaining", "True")).await;
    s.patch("ConfigMap", "held", json!({"metadata": {"finalizers": null}})).await;
    gone(s).await;
}

async fn a_namespace_keeps_other_kinds_while_a_pod_is_there(s: &Stage) {
    s.create(pod("held", "held").metadata("finalizers", json!([HELD]))).await;
    s.create(config_map("kept")).await;
    s.rest().await;
    delete(s).await;
    s.until("the pod is deleted", PATIENCE, |s| !s.terminating().is_empty()).await;
    s.wait(3).await;
    s.patch("Pod", "held", json!({"metadata": {"finalizers": null}})).await;
    gone(s).await;
}

async fn a_namespace_waits_for_pods_that_end(s: &Stage) {
    s.create(pod("slow", "slow")).await;
    s.rest().await;
    for pod in s.pods() {
        s.ready(&pod).await;
    }
    s.rest().await;
    delete(s).await;
    s.until("the pod is deleted", PATIENCE, |s| !s.terminating().is_empty()).await;
    s.end_terminating().await;
    gone(s).await;
}

async fn a_namespace_with_dependents_of_each_policy_ends(s: &Stage) {
    for (name, finalizer) in [("orphaning", "orphan"), ("foreground", "foregroundDeletion")] {
        let owner = s.create(config_map(name).metadata("finalizers", json!([finalizer]))).await;
        let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": name,
                                "uid": owner["metadata"]["uid"], "blockOwnerDeletion": true}]);
        s.create(config_map(&format!("of-{name}")).metadata("ownerReferences", reference)).await;
    }
    s.rest().await;
    delete(s).await;
    gone(s).await;
}

async fn a_finalizer_of_the_namespace_itself(s: &Stage) {
    let path = format!("/api/v1/namespaces/{}", s.namespace);
    s.act("a finalizer in the metadata of the namespace");
    s.call(Method::PATCH, &path, &json!({"metadata": {"finalizers": [HELD]}})).await;
    s.create(config_map("one")).await;
    s.rest().await;
    delete(s).await;
    s.until("its content is gone", PATIENCE, |s| {
        s.all("ConfigMap").is_empty() && namespace(s)["spec"]["finalizers"].is_null()
    })
    .await;
    s.act("it is removed");
    s.call(Method::PATCH, &path, &json!({"metadata": {"finalizers": null}})).await;
    gone(s).await;
}
