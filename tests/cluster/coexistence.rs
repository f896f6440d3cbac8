//! The objects that a daemon does not touch: objects of controllers that are switched off, objects outside of its
//! scope, and objects of another controller, which it detects by itself.

use std::time::Duration;

use crate::log::Log;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled, OnConflict, Scope, parse_selector};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, USER_AGENT, unlimited};

#[tokio::test(start_paused = true)]
async fn a_disabled_controller_does_nothing() {
    let cluster = Cluster::new().await;
    let enabled = Enabled::default().without("replicaset-controller");
    let daemon = cluster.start_with(1, ControllerConfig { enabled, ..unlimited() }, |router| router);
    cluster.create(deployment("web").replicas(2)).await;
    cluster.eventually(30, "the ReplicaSet exists", |c| c.objects("ReplicaSet").len() == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(cluster.objects("Pod").len(), 0);
    assert!(!daemon.metrics.render().contains("name=\"replicaset-controller\""));
}

#[tokio::test(start_paused = true)]
async fn a_scope_selector_excludes_other_deployments_and_includes_replica_sets_with_their_deployment() {
    let cluster = Cluster::new().await;
    let selector = Some(parse_selector("team=shop").unwrap());
    let scope = Scope { namespace: Some("shop".into()), selector };
    let _daemon = cluster.start_with(1, ControllerConfig { scope, ..unlimited() }, |router| router);
    cluster.create(deployment("mine").replicas(2)).await;
    cluster.create(deployment("other").replicas(2)).await;
    cluster.patch("mine", json!({"metadata": {"labels": {"team": "shop"}}})).await;
    cluster.rolled_out("mine").await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(cluster.objects("ReplicaSet").len(), 1, "the other Deployment is not ours");
    assert_eq!(cluster.objects("Pod").len(), 2);
    // An object that leaves the scope is left as it is.
    cluster.patch("mine", json!({"metadata": {"labels": {"team": "else"}}, "spec": {"replicas": 5}})).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(cluster.objects("Pod").len(), 2);
}

/// An entry of `managedFields` for the part of a status that only a controller writes.
fn controls(manager: &str) -> Value {
    json!({"manager": manager, "subresource": "status", "time": "2026-01-01T00:00:30Z",
           "fieldsV1": {"f:status": {"f:observedGeneration": {}, "f:replicas": {}}}})
}

/// Lets reads of one workload show these entries in place of its own.
fn with_managers(router: axum::Router, managers: Vec<Value>) -> axum::Router {
    let answer = move |request: axum::extract::Request, next: axum::middleware::Next| {
        let managers = managers.clone();
        async move {
            let is_one =
                ["/deployments/", "/daemonsets/"].iter().any(|path| request.uri().path().contains(path));
            let one = is_one && request.method() == http::Method::GET;
            let response = next.run(request).await;
            if !one {
                return response;
            }
            let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let mut object: Value = serde_json::from_slice(&bytes).unwrap();
            object["metadata"]["managedFields"] = managers.into();
            axum::response::IntoResponse::into_response(axum::Json(object))
        }
    };
    router.layer(axum::middleware::from_fn(answer))
}

/// Creates a workload `a` in each of these namespaces.
async fn create_in(cluster: &Cluster, namespaces: &[&str], plural: &str) {
    for namespace in namespaces {
        if *namespace != "shop" {
            let body = json!({"metadata": {"name": namespace}});
            cluster.call(http::Method::POST, "/api/v1/namespaces", &body).await;
        }
        let body = json!({"metadata": {"name": "a"}, "spec": {"selector": {"matchLabels": {"app": "a"}},
            "template": {"metadata": {"labels": {"app": "a"}},
                "spec": {"containers": [{"name": "c", "image": "agent:1"}]}}}});
        cluster
            .call(http::Method::POST, &format!("/apis/apps/v1/namespaces/{namespace}/{plural}"), &body)
            .await;
    }
}

/// Writes the statuses of the objects of this name in these namespaces, once every ten seconds.
async fn rival(cluster: &Cluster, namespaces: &[&str], plural: &str, field: &str, seconds: usize) {
    for round in 0..seconds / 10 {
        for namespace in namespaces {
            let path = format!("/apis/apps/v1/namespaces/{namespace}/{plural}/a/status");
            cluster.call(http::Method::PATCH, &path, &json!({"status": {field: 7 + round % 2}})).await;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

/// A Deployment in each of these namespaces whose status another writer changes for three minutes; reads of them show these
/// entries.
async fn with_a_rival(
    config: ControllerConfig,
    namespaces: &[&str],
    managers: Vec<Value>,
) -> (Cluster, windlass_testkit::cluster::Daemon) {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_with(1, config, |router| with_managers(router, managers));
    create_in(&cluster, namespaces, "deployments").await;
    rival(&cluster, namespaces, "deployments", "replicas", 200).await;
    (cluster, daemon)
}

#[tokio::test(start_paused = true)]
async fn kinds_that_only_a_disabled_controller_needs_are_not_listed() {
    let cluster = Cluster::new().await;
    let enabled = Enabled::default().without("daemonset-controller").without("statefulset-controller");
    let daemon = cluster.start_with(1, ControllerConfig { enabled, ..unlimited() }, |router| router);
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    let requested = |kind: &str| {
        let log = cluster.log.lock().unwrap();
        log.iter().any(|request| request.user_agent == USER_AGENT && request.kind == kind)
    };
    assert!(requested("ReplicaSet") && requested("Pod"));
    for kind in ["Node", "DaemonSet", "StatefulSet", "PersistentVolumeClaim", "ControllerRevision"] {
        assert!(!requested(kind), "{kind}");
    }
    let (code, text) = windlass_testkit::cluster::ask(&daemon.http, "/readyz?verbose").await;
    assert_eq!(code, 200, "{text}");
    assert!(!text.contains("informer-nodes"), "{text}");
}

const KUBE_CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// As an API server keeps them where two controllers act.
fn both() -> Vec<Value> {
    vec![controls("windlass"), controls(KUBE_CONTROLLER_MANAGER)]
}

fn has_reported(cluster: &Cluster) -> bool {
    cluster.sandbox.objects("Event").iter().any(|event| event["reason"] == "ConflictingController")
}

#[tokio::test(start_paused = true)]
async fn a_kube_controller_manager_that_still_runs_daemon_sets_is_reported() {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_with(1, exit_on_conflict(), |router| with_managers(router, both()));
    create_in(&cluster, &["shop", "bar"], "daemonsets").await;
    rival(&cluster, &["shop", "bar"], "daemonsets", "numberReady", 200).await;
    let error = daemon.task.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("DaemonSet") && error.contains("-daemonset-controller"), "{error}");
}

fn exit_on_conflict() -> ControllerConfig {
    ControllerConfig { on_conflict: OnConflict::Exit, ..unlimited() }
}

#[tokio::test(start_paused = true)]
async fn another_controller_on_objects_outside_of_the_scope_is_no_conflict() {
    let enabled = Enabled::default().without("deployment-controller");
    let config = ControllerConfig { enabled, ..exit_on_conflict() };
    let (_cluster, daemon) = with_a_rival(config, &["shop", "bar"], both()).await;
    assert!(!daemon.task.is_finished(), "it runs the Deployments, and we the ReplicaSets");

    let scope = Scope { namespace: None, selector: Some(parse_selector("team=shop").unwrap()) };
    let config = ControllerConfig { scope, ..exit_on_conflict() };
    let (_cluster, daemon) = with_a_rival(config, &["shop", "bar"], both()).await;
    assert!(!daemon.task.is_finished(), "these Deployments are out of our scope");
}

#[tokio::test(start_paused = true)]
async fn another_controller_is_detected_reported_and_optionally_ends_the_process() {
    let (cluster, daemon) = with_a_rival(unlimited(), &["shop", "bar"], both()).await;
    let line = "windlass_foreign_writes_total{resource=\"deployments\"} ";
    assert!(daemon.metrics.render().contains(line), "{}", daemon.metrics.render());
    let events = cluster.sandbox.objects("Event");
    let conflict = events.iter().find(|event| event["reason"] == "ConflictingController").unwrap();
    assert!(conflict["message"].as_str().unwrap().starts_with("kube-controller-manager also writes"));
    assert!(!daemon.task.is_finished(), "by default it continues");

    let (cluster, daemon) = with_a_rival(exit_on_conflict(), &["shop", "bar"], both()).await;
    let error = daemon.task.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("-deployment-controller") && error.contains("--on-conflict=warn"), "{error}");
    assert!(has_reported(&cluster), "it ends with an event that has the reason");
    // The sandbox keeps events for ever, an API server for an hour.
    let next = cluster.start_with(2, exit_on_conflict(), |router| with_managers(router, both()));
    rival(&cluster, &["shop", "bar"], "deployments", "replicas", 600).await;
    assert!(next.metrics.render().contains("windlass_foreign_writes_total{"), "it reports the conflict");
    assert!(!next.task.is_finished(), "one process an hour ends for a conflict");
}

#[tokio::test(start_paused = true)]
async fn a_tenant_who_writes_as_another_manager_in_its_namespace_ends_nothing() {
    let (cluster, daemon) = with_a_rival(exit_on_conflict(), &["shop"], both()).await;
    assert!(!daemon.task.is_finished() && !has_reported(&cluster));
    // A daemon of that namespace has only its tenant to protect from.
    let scope = Scope { namespace: Some("shop".into()), selector: None };
    let (_cluster, daemon) =
        with_a_rival(ControllerConfig { scope, ..exit_on_conflict() }, &["shop"], both()).await;
    assert!(daemon.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn an_operator_that_adds_a_condition_is_no_conflict() {
    let scanned = json!({"f:status": {"f:conditions": {"k:{\"type\":\"acme.io/Scanned\"}": {}}}});
    let acme = json!({"manager": "acme", "subresource": "status", "time": "2026-01-01T00:00:30Z", "fieldsV1": scanned});
    let (cluster, daemon) =
        with_a_rival(exit_on_conflict(), &["shop", "bar", "baz"], vec![controls("windlass"), acme]).await;
    assert!(!daemon.task.is_finished() && !has_reported(&cluster));
}

/// The log lines of a daemon in its first minute about a Lease of kube-controller-manager that somebody renews, or has
/// renewed.
async fn said_of_a_lease(is_renewed: bool) -> String {
    let (log, _logs) = Log::capture();
    let cluster = Cluster::new().await;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let namespace = json!({"metadata": {"name": "kube-system"}});
    let _exists = cluster.try_call(http::Method::POST, "/api/v1/namespaces", &namespace).await;
    let spec = json!({"holderIdentity": "cp-1_abc", "renewTime": "2026-01-01T00:00:00.000000Z"});
    let lease = json!({"metadata": {"name": KUBE_CONTROLLER_MANAGER}, "spec": spec});
    cluster.call(http::Method::POST, leases, &lease).await;
    let _daemon = cluster.start_controllers(1);
    for second in 0..60 {
        if is_renewed {
            let spec = json!({"renewTime": format!("2026-01-01T00:00:{second:02}.000000Z")});
            let path = format!("{leases}/{KUBE_CONTROLLER_MANAGER}");
            cluster.call(http::Method::PATCH, &path, &json!({"spec": spec})).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    log.text()
}

#[tokio::test(start_paused = true)]
async fn a_kube_controller_manager_that_renews_its_lease_is_named_in_a_warning() {
    let said = said_of_a_lease(true).await;
    assert!(said.contains("cp-1_abc renews the Lease of kube-controller-manager"), "{said}");
    let said = said_of_a_lease(false).await;
    assert!(!said.contains("cp-1_abc"), "it has ended: {said}");
}

#[tokio::test(start_paused = true)]
async fn changes_without_proof_of_another_writer_are_no_conflict() {
    for managers in [&["windlass"][..], &["windlass", "kubectl-edit"], &[]] {
        let entries = managers.iter().map(|manager| controls(manager)).collect();
        let (_cluster, daemon) = with_a_rival(exit_on_conflict(), &["shop", "bar"], entries).await;
        assert!(!daemon.task.is_finished(), "{managers:?}");
        assert!(!daemon.metrics.render().contains("windlass_foreign_writes_total{"));
    }
}

#[tokio::test(start_paused = true)]
async fn every_write_to_a_workload_has_the_configured_field_manager() {
    let cluster = Cluster::new().await;
    let seen: std::sync::Arc<parking_lot::Mutex<Vec<String>>> = Default::default();
    let log = seen.clone();
    let config = ControllerConfig { field_manager: "kube-controller-manager".into(), ..unlimited() };
    let _daemon = cluster.start_with(1, config, move |router| {
        router.layer(axum::middleware::from_fn(
            move |request: axum::extract::Request, next: axum::middleware::Next| {
                let workload = ["/deployments", "/replicasets", "/pods"]
                    .iter()
                    .any(|it| request.uri().path().contains(it));
                if workload
                    && [http::Method::POST, http::Method::PATCH, http::Method::PUT].contains(request.method())
                {
                    log.lock().push(format!("{} {}", request.method(), request.uri()));
                }
                next.run(request)
            },
        ))
    });
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    let seen = seen.lock();
    assert!(
        seen.iter().any(|it| it.starts_with("PATCH")) && seen.iter().any(|it| it.contains("/pods")),
        "{seen:?}"
    );
    let strange: Vec<_> =
        seen.iter().filter(|it| !it.contains("fieldManager=kube-controller-manager")).collect();
    assert!(strange.is_empty(), "{strange:?}");
}
