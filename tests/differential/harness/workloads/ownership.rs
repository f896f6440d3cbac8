//! Ownership: overlapping selectors, taken names, foreign and forged owner references, cascades.

use serde_json::{Value, json};

use super::super::objects::{deployment, pod, replica_set, replication_controller};
use super::super::stage::{Pod, Stage, controller_of};

super::workloads! {
    two_deployments_with_one_selector,
    two_replica_sets_with_one_selector,
    two_replication_controllers_with_one_selector,
    a_hash_collision,
    the_name_of_the_replica_set_is_taken,
    a_replica_set_of_a_deployment_is_deleted,
    a_replica_set_is_scaled_by_a_user,
    a_replica_set_of_a_deployment_gets_another_template,
    a_deployment_is_deleted_in_the_background,
    a_deployment_is_deleted_in_the_foreground,
    a_deployment_is_deleted_and_its_replica_set_stays,
    a_replica_set_is_deleted_and_its_pods_stay,
    a_replication_controller_is_deleted_and_its_pods_stay,
    an_owner_of_the_wrong_kind,
    an_owner_that_does_not_control,
    an_owner_in_another_namespace,
    a_deployment_adopts_an_old_replica_set,
    selectors_with_expressions,
    a_deployment_with_a_finalizer_is_deleted,
    a_long_name,
    a_selector_cannot_be_changed,
}

async fn two_deployments_with_one_selector(s: &Stage) {
    for name in ["web", "shop"] {
        s.create(
            deployment(name).replicas(1).selecting(json!({"app": "both"})).template_label("app", "both"),
        )
        .await;
        s.come_up().await;
    }
    s.image("web", "v2").await;
    s.roll().await;
    s.scale("Deployment", "shop", 2).await;
    s.come_up().await;
}

async fn two_replica_sets_with_one_selector(s: &Stage) {
    for name in ["one", "two"] {
        s.create(
            replica_set(name).replicas(1).selecting(json!({"app": "both"})).template_label("app", "both"),
        )
        .await;
        s.come_up().await;
    }
    // Otherwise the ages of the two pods, or their UIDs, decide which of them is one too many.
    let first = s.pods().into_iter().find(|pod| pod.name().starts_with("one-")).unwrap();
    let cheap = json!({"controller.kubernetes.io/pod-deletion-cost": "-1"});
    s.patch("Pod", first.name(), json!({"metadata": {"annotations": cheap}})).await;
    s.delete("ReplicaSet", "one", "Orphan").await;
    s.until("it is gone", 60, |s| s.one("ReplicaSet", "one").is_null()).await;
    s.come_up().await;
}

async fn two_replication_controllers_with_one_selector(s: &Stage) {
    for name in ["one", "two"] {
        s.create(
            replication_controller(name)
                .replicas(1)
                .selecting(json!({"app": "both"}))
                .template_label("app", "both"),
        )
        .await;
        s.come_up().await;
    }
}

/// The garbage collector may take its time.
async fn nothing_is_active(s: &Stage) {
    s.until("all pods go", 60, |s| s.active().is_empty()).await;
}

fn newest(s: &Stage) -> String {
    s.replica_sets_of("web").last().unwrap()["metadata"]["name"].as_str().unwrap().to_owned()
}

async fn a_hash_collision(s: &Stage) {
    s.create(deployment("web").replicas(1)).await;
    s.come_up().await;
    // As upstream's test: a template that is not the Deployment's, under the name that its template gives.
    let template = json!({"spec": {"terminationGracePeriodSeconds": 17}});
    s.patch("ReplicaSet", &newest(s), json!({"spec": {"template": template}})).await;
    s.roll().await;
}

async fn the_name_of_the_replica_set_is_taken(s: &Stage) {
    s.create(deployment("web").replicas(1)).await;
    s.come_up().await;
    let name = newest(s);
    s.delete("Deployment", "web", "Background").await;
    nothing_is_active(s).await;
    s.come_up().await;
    s.act("another takes the name of the ReplicaSet");
    let foreign =
        replica_set(&name).replicas(0).selecting(json!({"app": "foreign"})).template_label("app", "foreign");
    s.call(http::Method::POST, &s.path("ReplicaSet"), &foreign.0).await;
    s.rest().await;
    s.create(deployment("web").replicas(1)).await;
    s.roll().await;
}

async fn a_replica_set_of_a_deployment_is_deleted(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.come_up().await;
    let old = s.replica_sets_of("web").pop().unwrap();
    s.delete("ReplicaSet", &newest(s), "Background").await;
    let uid = old["metadata"]["uid"].as_str();
    let is_of = |pod: &Pod| controller_of(&pod.object) == uid;
    s.until("its pods go", 60, |s| !s.active().iter().any(is_of)).await;
    s.come_up().await;
}

async fn a_replica_set_is_scaled_by_a_user(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.scale("ReplicaSet", &newest(s), 5).await;
    s.come_up().await;
    s.scale("ReplicaSet", &newest(s), 0).await;
    s.come_up().await;
}

async fn a_replica_set_of_a_deployment_gets_another_template(s: &Stage) {
    s.create(deployment("web").replicas(1)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.come_up().await;
    let containers = json!([{"name": "app", "image": "app:v2"}]);
    let old = s.replica_sets_of("web")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    s.patch("ReplicaSet", &old, json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
    s.come_up().await;
    s.image("web", "v3").await;
    s.come_up().await;
}

async fn cascade(s: &Stage, propagation: &str) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.image("web", "v2").await;
    s.roll_some(1).await;
    s.delete("Deployment", "web", propagation).await;
    nothing_is_active(s).await;
    s.come_up().await;
}

async fn a_deployment_is_deleted_in_the_background(s: &Stage) {
    cascade(s, "Background").await;
}

async fn a_deployment_is_deleted_in_the_foreground(s: &Stage) {
    cascade(s, "Foreground").await;
}

async fn a_deployment_is_deleted_and_its_replica_set_stays(s: &Stage) {
    s.create(deployment("web").replicas(2)).await;
    s.come_up().await;
    s.delete("Deployment", "web", "Orphan").await;
    s.until("it is gone", 60, |s| s.one("Deployment", "web").is_null()).await;
    s.come_up().await;
    s.create(deployment("web").replicas(3)).await;
    s.come_up().await;
}

async fn a_replica_set_is_deleted_and_its_pods_stay(s: &Stage) {
    s.create(replica_set("bare").replicas(2)).await;
    s.come_up().await;
    s.delete("ReplicaSet", "bare", "Orphan").await;
    s.until("it is gone", 60, |s| s.one("ReplicaSet", "bare").is_null()).await;
    s.rest().await;
    s.create(replica_set("bare").replicas(3)).await;
    s.come_up().await;
    s.delete("ReplicaSet", "bare", "Foreground").await;
    nothing_is_active(s).await;
    s.come_up().await;
}

async fn a_replication_controller_is_deleted_and_its_pods_stay(s: &Stage) {
    s.create(replication_controller("old").replicas(2)).await;
    s.come_up().await;
    s.delete("ReplicationController", "old", "Orphan").await;
    s.until("it is gone", 60, |s| s.one("ReplicationController", "old").is_null()).await;
    s.rest().await;
    s.create(replication_controller("old").replicas(1)).await;
    s.come_up().await;
}

/// The garbage collector deletes an object whose owner does not exist, so this observes the time before.
async fn an_owner_of_the_wrong_kind(s: &Stage) {
    let bare = s.create(replica_set("bare").replicas(1)).await;
    s.come_up().await;
    let mut forged = bare.clone();
    forged["kind"] = "StatefulSet".into();
    s.create(
        pod("forged", "bare")
            .owned_by(&forged, true)
            .annotation("controller.kubernetes.io/pod-deletion-cost", "-9"),
    )
    .await;
    s.rest().await;
}

async fn an_owner_that_does_not_control(s: &Stage) {
    let bare = s.create(replica_set("bare").replicas(1)).await;
    s.come_up().await;
    s.create(pod("loose", "bare").owned_by(&bare, false)).await;
    s.rest().await;
    s.create(pod("elsewhere", "other").owned_by(&bare, true)).await;
    s.come_up().await;
}

async fn an_owner_in_another_namespace(s: &Stage) {
    let bare = s.create(replica_set("bare").replicas(1)).await;
    s.come_up().await;
    let beside = format!("{}-beside", s.namespace);
    s.call(http::Method::POST, "/api/v1/namespaces", &json!({"metadata": {"name": beside}})).await;
    let pods = format!("/api/v1/namespaces/{beside}/pods");
    s.act("a pod in another namespace names the ReplicaSet as its owner");
    s.call(http::Method::POST, &pods, &pod("theirs", "bare").owned_by(&bare, true).0).await;
    s.rest().await;
    s.scale("ReplicaSet", "bare", 2).await;
    s.come_up().await;
}

async fn a_deployment_adopts_an_old_replica_set(s: &Stage) {
    // Neither of its template nor of its size.
    let labels = json!({"app": "web"});
    let old =
        replica_set("old").replicas(3).selecting(labels).template_label("app", "web").label("app", "web");
    s.create(old.image("v0")).await;
    s.come_up().await;
    s.create(deployment("web").replicas(2)).await;
    s.roll().await;
}

async fn selectors_with_expressions(s: &Stage) {
    let selector = json!({"matchExpressions": [
        {"key": "app", "operator": "In", "values": ["web", "shop"]},
        {"key": "tier", "operator": "Exists"},
        {"key": "track", "operator": "DoesNotExist"},
        {"key": "zone", "operator": "NotIn", "values": ["west"]},
    ]});
    s.create(deployment("web").replicas(2).spec("selector", selector).template_label("tier", "front")).await;
    s.come_up().await;
    s.act("a pod gets a label that does not match");
    let track = |value: Value| json!({"metadata": {"labels": {"track": value}}});
    let pod = s.active()[0].clone();
    s.patch_pod(&pod, track("canary".into())).await;
    s.come_up().await;
    s.act("and loses it");
    s.patch_pod(&pod, track(Value::Null)).await;
    s.come_up().await;
}

async fn a_deployment_with_a_finalizer_is_deleted(s: &Stage) {
    let mut object = deployment("web").replicas(2);
    object.0["metadata"]["finalizers"] = json!(["example.com/held"]);
    s.create(object).await;
    s.come_up().await;
    s.delete("Deployment", "web", "Background").await;
    s.rest().await;
    s.scale("Deployment", "web", 3).await;
    s.rest().await;
    s.image("web", "v2").await;
    s.rest().await;
    s.patch("Deployment", "web", json!({"metadata": {"finalizers": null}})).await;
    nothing_is_active(s).await;
    s.come_up().await;
}

async fn a_long_name(s: &Stage) {
    let name = "a-name-that-is-so-long-that-no-random-suffix-fits-behind-it";
    s.create(deployment(name).replicas(1).selecting(json!({"app": "long"})).template_label("app", "long"))
        .await;
    s.come_up().await;
    s.scale("Deployment", name, 2).await;
    s.come_up().await;
}

/// The API server sees to that, and the controllers have nothing to do.
async fn a_selector_cannot_be_changed(s: &Stage) {
    for object in [deployment("web"), replica_set("bare")] {
        let path = format!("{}/{}", s.path(object.kind()), object.name());
        s.create(object).await;
        s.come_up().await;
        let labels = json!({"app": "other"});
        let patch = json!({"spec": {
            "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}},
        }});
        s.act("change the selector");
        assert!(s.try_call(http::Method::PATCH, &path, &patch).await.is_err(), "{path}");
        s.rest().await;
    }
}
