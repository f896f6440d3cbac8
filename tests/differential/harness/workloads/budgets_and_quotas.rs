//! PodDisruptionBudgets and ResourceQuotas.

use http::Method;
use serde_json::{Value, json};

use super::super::declared::{Declared, differs, may_differ};
use super::super::objects::{Object, claim, config_map, deployment, pod, stateful_set};
use super::super::rows::PDB_EVENTS;
use super::super::stage::Stage;

super::workloads! {
    pdb_at_least_two,
    pdb_at_least_half,
    pdb_at_most_one,
    pdb_at_most_a_third,
    pdb_follows_the_size,
    pdb_pods_without_a_controller,
    pdb_without_pods: ONE_EVENT,
    pdb_of_all_pods,
    pdb_evictions,
    pdb_evicted_pod_that_goes,
    pdb_of_a_stateful_set: MAYBE_ONE_EVENT,
    pdb_is_changed,
    quota_pods_and_what_they_request,
    quota_pods_end,
    quota_services,
    quota_claims,
    quota_of_classes_of_pods,
    quota_counts_by_kind,
    quota_is_changed,
}

const NO_PODS: [&str; 3] = ["events", "PodDisruptionBudget/guard", "Normal NoPods *"];

static ONE_EVENT: &[Declared] = &[differs(&PDB_EVENTS, NO_PODS, "2", "1")];

static MAYBE_ONE_EVENT: &[Declared] = &[may_differ(&PDB_EVENTS, NO_PODS, "*", "*")];

fn budget(spec: Value) -> Object {
    Object(
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard"}, "spec": spec}),
    )
}

fn web() -> Value {
    json!({"matchLabels": {"app": "web"}})
}

async fn three_pods(s: &Stage, budget: Object) {
    s.create(deployment("web").replicas(3)).await;
    s.rest().await;
    s.create(budget).await;
    s.come_up().await;
}

/// Asks for the eviction of a pod, and tells whether it was granted.
async fn evict(s: &Stage, name: &str) {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    let answer = s.try_call(Method::POST, &format!("{}/{name}/eviction", s.path("Pod")), &eviction).await;
    s.act(match answer {
        Ok(_) => "evict a pod".to_owned(),
        Err(kube::Error::Api(status)) => format!("evict a pod: {}", status.message),
        Err(error) => panic!("{error}"),
    });
    s.rest().await;
}

async fn pdb_at_least_two(s: &Stage) {
    three_pods(s, budget(json!({"minAvailable": 2, "selector": web()}))).await;
    s.unready(&s.active()[0]).await;
    s.rest().await;
    s.ready(&s.active()[0]).await;
    s.rest().await;
}

async fn pdb_at_least_half(s: &Stage) {
    three_pods(s, budget(json!({"minAvailable": "50%", "selector": web()}))).await;
}

async fn pdb_at_most_one(s: &Stage) {
    three_pods(s, budget(json!({"maxUnavailable": 1, "selector": web()}))).await;
}

async fn pdb_at_most_a_third(s: &Stage) {
    three_pods(s, budget(json!({"maxUnavailable": "34%", "selector": web()}))).await;
}

async fn pdb_follows_the_size(s: &Stage) {
    three_pods(s, budget(json!({"maxUnavailable": "50%", "selector": web()}))).await;
    s.scale("Deployment", "web", 6).await;
    s.come_up().await;
}

async fn pdb_pods_without_a_controller(s: &Stage) {
    s.create(pod("a", "web")).await;
    s.create(budget(json!({"minAvailable": 1, "selector": web()}))).await;
    s.come_up().await;
    s.create(Object(
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "other"},
                      "spec": {"maxUnavailable": 1, "selector": web()}}),
    ))
    .await;
    s.rest().await;
}

async fn pdb_without_pods(s: &Stage) {
    s.create(budget(json!({"minAvailable": 1, "selector": web()}))).await;
    s.rest().await;
}

async fn pdb_of_all_pods(s: &Stage) {
    three_pods(s, budget(json!({"maxUnavailable": 1, "selector": {}}))).await;
}

async fn pdb_evictions(s: &Stage) {
    three_pods(s, budget(json!({"minAvailable": 2, "selector": web()}))).await;
    for pod in s.active().iter().take(2) {
        evict(s, pod.name()).await;
    }
}

async fn pdb_evicted_pod_that_goes(s: &Stage) {
    three_pods(s, budget(json!({"maxUnavailable": 1, "selector": web()}))).await;
    evict(s, s.active()[0].name()).await;
    s.end_terminating().await;
    s.come_up().await;
}

async fn pdb_of_a_stateful_set(s: &Stage) {
    s.create(stateful_set("web").replicas(3).parallel()).await;
    s.create(budget(json!({"maxUnavailable": 1, "selector": web()}))).await;
    s.come_up().await;
}

async fn pdb_is_changed(s: &Stage) {
    three_pods(s, budget(json!({"minAvailable": 2, "selector": web()}))).await;
    s.patch("PodDisruptionBudget", "guard", json!({"spec": {"minAvailable": 3}})).await;
    s.rest().await;
    s.patch("PodDisruptionBudget", "guard", json!({"spec": {"minAvailable": null, "maxUnavailable": 2}}))
        .await;
    s.rest().await;
}

fn quota(spec: Value) -> Object {
    Object(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "room"}, "spec": spec}))
}

/// A pod that requests a tenth of a CPU and 64 MiB.
fn modest(name: &str) -> Object {
    let resources =
        json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "128Mi"}});
    pod(name, "web").spec("containers", json!([{"name": "app", "image": "app:v1", "resources": resources}]))
}

/// Waits until the status has everything that the spec names.
async fn counted(s: &Stage) {
    let is_counted = |s: &Stage| {
        let quota = s.one("ResourceQuota", "room");
        quota["status"]["hard"] == quota["spec"]["hard"] && quota["status"]["used"].is_object()
    };
    s.until("the quota is counted", 20, is_counted).await;
}

/// Waits until so much of this is used.
async fn used(s: &Stage, what: &str, amount: &str) {
    let is_used = |s: &Stage| s.one("ResourceQuota", "room")["status"]["used"][what] == amount;
    s.until(&format!("{what} is {amount}"), 20, is_used).await;
}

async fn pod_ends(s: &Stage, name: &str) {
    let ended = json!({"status": {"phase": "Succeeded"}});
    s.call(Method::PATCH, &format!("{}/{name}/status", s.path("Pod")), &ended).await;
}

async fn quota_pods_and_what_they_request(s: &Stage) {
    s.create(modest("before")).await;
    let hard = json!({
        "pods": "5", "cpu": "2", "requests.memory": "1Gi", "limits.cpu": "4", "limits.memory": "1Gi", "count/pods": "9",
    });
    s.create(quota(json!({"hard": hard}))).await;
    counted(s).await;
    s.create(modest("a")).await;
    used(s, "pods", "2").await;
    s.delete("Pod", "before", "Background").await;
    used(s, "pods", "1").await;
}

async fn quota_pods_end(s: &Stage) {
    s.create(quota(json!({"hard": {"pods": "3", "requests.cpu": "1"}}))).await;
    counted(s).await;
    s.create(modest("a")).await;
    used(s, "pods", "1").await;
    pod_ends(s, "a").await;
    used(s, "pods", "0").await;
}

async fn quota_services(s: &Stage) {
    let hard = json!({"services": "3", "services.nodeports": "4", "services.loadbalancers": "1"});
    s.create(quota(json!({"hard": hard}))).await;
    counted(s).await;
    let ports = json!([{"name": "a", "port": 80}, {"name": "b", "port": 81}]);
    let service = |kind: &str| {
        Object(
            json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"type": kind, "ports": ports}}),
        )
    };
    s.create(service("LoadBalancer")).await;
    used(s, "services.nodeports", "2").await;
    s.patch("Service", "web", json!({"spec": {"type": "ClusterIP"}})).await;
    used(s, "services.nodeports", "0").await;
    s.delete("Service", "web", "Background").await;
    used(s, "services", "0").await;
}

async fn quota_claims(s: &Stage) {
    let hard = json!({
        "persistentvolumeclaims": "3", "requests.storage": "5Gi",
        "fast.storageclass.storage.k8s.io/requests.storage": "4Gi",
    });
    s.create(quota(json!({"hard": hard}))).await;
    counted(s).await;
    s.create(claim("a")).await;
    s.create(claim("b").spec("storageClassName", "fast")).await;
    used(s, "requests.storage", "2Gi").await;
    s.delete("PersistentVolumeClaim", "b", "Background").await;
    used(s, "requests.storage", "1Gi").await;
}

async fn quota_of_classes_of_pods(s: &Stage) {
    // Before the quota: kube-controller-manager counts pods of the moment in which a quota is created after 5 minutes.
    s.create(pod("best-effort", "web")).await;
    s.create(modest("burstable")).await;
    s.rest().await;
    s.create(quota(json!({"hard": {"pods": "3"}, "scopes": ["BestEffort"]}))).await;
    counted(s).await;
    used(s, "pods", "1").await;
}

async fn quota_counts_by_kind(s: &Stage) {
    s.create(config_map("before")).await;
    let hard = json!({"configmaps": "9", "count/deployments.apps": "2", "count/secrets": "5", "resourcequotas": "1"});
    s.create(quota(json!({"hard": hard}))).await;
    counted(s).await;
    s.create(deployment("web").replicas(0)).await;
    used(s, "count/deployments.apps", "1").await;
    s.delete("Deployment", "web", "Background").await;
    used(s, "count/deployments.apps", "0").await;
    s.delete("ConfigMap", "before", "Background").await;
    used(s, "configmaps", "0").await;
}

async fn quota_is_changed(s: &Stage) {
    s.create(modest("a")).await;
    s.create(quota(json!({"hard": {"pods": "3"}}))).await;
    counted(s).await;
    s.patch("ResourceQuota", "room", json!({"spec": {"hard": {"pods": "1", "requests.cpu": "500m"}}})).await;
    counted(s).await;
    s.patch("ResourceQuota", "room", json!({"spec": {"hard": {"pods": null}}})).await;
    counted(s).await;
}
