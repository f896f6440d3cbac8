//! The namespace controller: what is deleted, in which order, and what the conditions say meanwhile.

use http::Method;
use serde_json::{Value, json};

use super::super::declared::{Declared, differs, may_differ};
use super::super::objects::{config_map, deployment, pod};
use super::super::rows::PODS_OF_A_NAMESPACE;
use super::super::stage::Stage;

super::workloads! {
    an_empty_namespace_ends,
    a_namespace_ends_with_what_is_in_it,
    a_namespace_waits_for_a_finalizer,
    a_namespace_keeps_other_kinds_while_a_pod_is_there: PODS_REMAIN,
    a_namespace_waits_for_pods_that_end: PODS_REMAIN,
    a_namespace_with_dependents_of_each_policy_ends,
    a_finalizer_of_the_namespace_itself,
}

/// Upstream says that nothing is left while pods are (kubernetes#138208). Ours says so once it is true.
const PODS_REMAIN: &[Declared] = &[
    differs(
        &PODS_OF_A_NAMESPACE,
        ["rest", "Namespace/*", "status.conditions.NamespaceContentRemaining"],
        "False ContentRemoved: *",
        "True SomeResourcesRemain: Some resources are remaining: pods. has 1 resource instances",
    ),
    may_differ(
        &PODS_OF_A_NAMESPACE,
        ["rest", "Namespace/*", "status.conditions.NamespaceFinalizersRemaining"],
        "False ContentHasNoFinalizers: *",
        "True SomeFinalizersRemain: *",
    ),
    differs(&PODS_OF_A_NAMESPACE, ["conditions", "Namespace/*", "NamespaceContentRemaining=*"], "*", "*"),
    may_differ(
        &PODS_OF_A_NAMESPACE,
        ["conditions", "Namespace/*", "NamespaceFinalizersRemaining=*"],
        "*",
        "*",
    ),
];

const HELD: &str = "example.com/held";

/// kube-controller-manager waits five seconds first, and 16 between its rounds.
const WAIT_SECONDS: u64 = 120;

async fn delete(s: &Stage) {
    s.act("delete the namespace");
    let path = format!("/api/v1/namespaces/{}", s.namespace);
    s.call(Method::DELETE, &path, &Value::Null).await;
}

fn namespace(s: &Stage) -> Value {
    s.one("Namespace", &s.namespace)
}

async fn gone(s: &Stage) {
    s.until("it is gone", WAIT_SECONDS, |s| namespace(s).is_null()).await;
}

/// Whether a condition holds in the way that the controller reports at the end of a round.
fn says(s: &Stage, kind: &str, status: &str) -> bool {
    let namespace = namespace(s);
    let conditions = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|one| one["type"] == kind && one["status"] == status)
}

/// Whether the first round has ended.
fn reports(s: &Stage) -> bool {
    says(s, "NamespaceDeletionDiscoveryFailure", "False")
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
    s.until("it says what remains", WAIT_SECONDS, |s| says(s, "NamespaceFinalizersRemaining", "True")).await;
    s.patch("ConfigMap", "held", json!({"metadata": {"finalizers": null}})).await;
    gone(s).await;
}

async fn a_namespace_keeps_other_kinds_while_a_pod_is_there(s: &Stage) {
    s.create(pod("held", "held").metadata("finalizers", json!([HELD]))).await;
    s.create(config_map("kept")).await;
    s.rest().await;
    delete(s).await;
    s.until("it reports", WAIT_SECONDS, reports).await;
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
    s.until("it reports", WAIT_SECONDS, reports).await;
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
    s.until("its content is gone", WAIT_SECONDS, |s| {
        s.all("ConfigMap").is_empty() && namespace(s)["spec"]["finalizers"].is_null()
    })
    .await;
    s.act("it is removed");
    s.call(Method::PATCH, &path, &json!({"metadata": {"finalizers": null}})).await;
    gone(s).await;
}
