//! What a daemon does not touch: objects of controllers that are switched off, objects outside of its scope, and
//! objects of another controller, which it detects by itself.

use std::time::Duration;

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
    // What leaves the scope is left as it is.
    cluster.patch("mine", json!({"metadata": {"labels": {"team": "else"}}, "spec": {"replicas": 5}})).await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert_eq!(cluster.objects("Pod").len(), 2);
}

/// Lets reads of one Deployment name these managers of its status; the sandbox keeps none.
fn with_managers(router: axum::Router, managers: &'static [&'static str]) -> axum::Router {
    let answer = move |request: axum::extract::Request, next: axum::middleware::Next| async move {
        let is_one = ["/deployments/", "/daemonsets/"].iter().any(|path| request.uri().path().contains(path));
        let one = is_one && request.method() == http::Method::GET;
        let response = next.run(request).await;
        if !one {
            return response;
        }
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let mut object: Value = serde_json::from_slice(&bytes).unwrap();
        object["metadata"]["managedFields"] = managers
            .iter()
            .map(|name| json!({"manager": name, "subresource": "status", "time": "2026-01-01T00:00:30Z"}))
            .collect();
        axum::response::IntoResponse::into_response(axum::Json(object))
    };
    router.layer(axum::middleware::from_fn(answer))
}

/// Three Deployments whose status another writer changes; reads of them show these field managers.
async fn with_a_rival(
    config: ControllerConfig,
    managers: &'static [&'static str],
) -> (Cluster, windlass_testkit::cluster::Daemon) {
    let cluster = Cluster::new().await;
    let daemon = cluster.start_with(1, config, |router| with_managers(router, managers));
    for name in ["a", "b", "c"] {
        cluster.create(deployment(name).replicas(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    for name in ["a", "b", "c"] {
        let path = format!("/apis/apps/v1/namespaces/shop/deployments/{name}/status");
        cluster.call(http::Method::PATCH, &path, &json!({"status": {"replicas": 7}})).await;
    }
    tokio::time::sleep(Duration::from_secs(15)).await;
    (cluster, daemon)
}

#[tokio::test(start_paused = true)]
async fn kinds_that_only_a_disabled_controller_needs_are_not_listed() {
    let cluster = Cluster::new().await;
    let enabled = Enabled::default().without("daemonset-controller");
    let daemon = cluster.start_with(1, ControllerConfig { enabled, ..unlimited() }, |router| router);
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    let requested = |kind: &str| {
        let log = cluster.log.lock().unwrap();
        log.iter().any(|request| request.user_agent == USER_AGENT && request.kind == kind)
    };
    assert!(requested("ReplicaSet") && requested("Pod"));
    for kind in ["Node", "DaemonSet", "ControllerRevision"] {
        assert!(!requested(kind), "{kind}");
    }
    let (code, text) = windlass_testkit::cluster::ask(&daemon.http, "/readyz?verbose").await;
    assert_eq!(code, 200, "{text}");
    assert!(!text.contains("informer-nodes"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn a_kube_controller_manager_that_still_runs_daemon_sets_is_reported() {
    let cluster = Cluster::new().await;
    let managers = &["windlass", "kube-controller-manager"];
    let daemon = cluster.start_with(1, exit_on_conflict(), |router| with_managers(router, managers));
    let daemon_sets = "/apis/apps/v1/namespaces/shop/daemonsets";
    for name in ["a", "b", "c"] {
        let daemon_set = json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": "agent:1"}]}}}});
        cluster.call(http::Method::POST, daemon_sets, &daemon_set).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    for name in ["a", "b", "c"] {
        let status = json!({"status": {"numberReady": 7}});
        cluster.call(http::Method::PATCH, &format!("{daemon_sets}/{name}/status"), &status).await;
    }
    let error = daemon.task.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("DaemonSet") && error.contains("-daemonset-controller"), "{error}");
}

fn exit_on_conflict() -> ControllerConfig {
    ControllerConfig { on_conflict: OnConflict::Exit, ..unlimited() }
}

#[tokio::test(start_paused = true)]
async fn another_controller_on_objects_outside_of_the_scope_is_no_conflict() {
    let managers = &["kube-controller-manager"];
    let enabled = Enabled::default().without("deployment-controller");
    let (_cluster, daemon) = with_a_rival(ControllerConfig { enabled, ..exit_on_conflict() }, managers).await;
    assert!(!daemon.task.is_finished(), "it runs the Deployments, and we the ReplicaSets");

    let scope = Scope { namespace: None, selector: Some(parse_selector("team=shop").unwrap()) };
    let (_cluster, daemon) = with_a_rival(ControllerConfig { scope, ..exit_on_conflict() }, managers).await;
    assert!(!daemon.task.is_finished(), "these Deployments are out of our scope");
}

#[tokio::test(start_paused = true)]
async fn another_controller_is_detected_reported_and_optionally_ends_the_process() {
    let managers = &["windlass", "kube-controller-manager"];
    let (cluster, daemon) = with_a_rival(unlimited(), managers).await;
    let line = "windlass_foreign_writes_total{resource=\"deployments\"} 3";
    assert!(daemon.metrics.render().contains(line), "{}", daemon.metrics.render());
    let events = cluster.objects("Event");
    let conflicts: Vec<_> =
        events.iter().filter(|event| event["reason"] == "ConflictingController").collect();
    assert_eq!(conflicts.len(), 1);
    assert!(conflicts[0]["message"].as_str().unwrap().starts_with("kube-controller-manager also writes"));
    assert!(!daemon.task.is_finished(), "by default it continues");

    let (cluster, daemon) = with_a_rival(exit_on_conflict(), managers).await;
    let error = daemon.task.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("-deployment-controller") && error.contains("--on-conflict=warn"), "{error}");
    let is_conflict = |event: &Value| event["reason"] == "ConflictingController";
    assert!(cluster.objects("Event").iter().any(is_conflict), "it ends with an event that has the reason");
}

#[tokio::test(start_paused = true)]
async fn changes_without_proof_of_another_writer_are_no_conflict() {
    for managers in [&["windlass"][..], &["windlass", "kubectl-edit"], &[]] {
        let (_cluster, daemon) = with_a_rival(exit_on_conflict(), managers).await;
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
