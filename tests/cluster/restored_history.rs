//! An API server that comes back with an older history, as after a restore of etcd, or as another one at the same address:
//! its watches are resumed at versions that are still to come, and show nothing.

use std::time::Duration;

use crate::log::Log;
use http::Method;
use http_body_util::{BodyExt as _, StreamBody};
use serde_json::{Value, json};
use windlass::app::Candidacy;
use windlass::config::{ControllerConfig, Enabled};
use windlass::runtime::leader_election::rules::ElectionOptions;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, Faults, USER_AGENT, tag, unlimited};

/// The pods of a Deployment of this name.
fn pods(cluster: &Cluster, name: &str) -> usize {
    cluster.objects("Pod").iter().filter(|pod| pod["metadata"]["labels"]["app"] == name).count()
}

/// Goes back to a state of many writes ago, and creates a Deployment there. Its pod appears soon, and a Deployment that was
/// scaled since has the size of the backup. What the controllers create for owners that are gone, before they know it, is
/// left to the garbage collector.
async fn goes_on_after_a_restore(cluster: &Cluster) {
    let (log, _logs) = Log::capture();
    cluster.create(deployment("kept").replicas(2)).await;
    cluster.eventually(30, "the first pods exist", |c| pods(c, "kept") == 2).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let backup = cluster.sandbox.back_up();
    for number in 0..10 {
        cluster.create(deployment(&format!("lost-{number}")).replicas(3)).await;
    }
    cluster.patch("kept", json!({"spec": {"replicas": 4}})).await;
    cluster.eventually(30, "more pods exist", |c| pods(c, "kept") == 4 && pods(c, "lost-9") == 3).await;
    tokio::time::sleep(Duration::from_secs(60)).await;

    cluster.sandbox.restore(&backup, false);
    assert_eq!(pods(cluster, "kept"), 2);
    cluster.create(deployment("late").replicas(1)).await;
    cluster.eventually(20, "the pod of a later Deployment exists", |c| pods(c, "late") == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(["kept", "late"].map(|name| pods(cluster, name)), [2, 1]);
    cluster.patch("kept", json!({"spec": {"replicas": 3}})).await;
    cluster.eventually(10, "the restored Deployment is scaled", |c| pods(c, "kept") == 3).await;
    let errors = log.lines("ERROR");
    assert!(errors.len() == 1 && errors[0].contains("as after a restore of etcd"), "{errors:#?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_notices_an_older_history_by_its_lease() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let options = ElectionOptions { namespace: Some("kube-system".into()), ..ElectionOptions::default() };
    let daemon = cluster.start(1, USER_AGENT, Some(options));
    goes_on_after_a_restore(&cluster).await;
    assert!(!daemon.task.is_finished());
    assert_eq!(cluster.sandbox.objects("Lease").len(), 1, "it still holds a Lease");
}

#[tokio::test(start_paused = true)]
async fn a_daemon_without_a_lease_lists_after_its_watches_broke() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let config = ControllerConfig { relists_after_breaks: true, ..unlimited() };
    let _daemon = cluster.start_with(1, config, |router| router);
    goes_on_after_a_restore(&cluster).await;
}

/// Shows what a watch of pods has sent twenty seconds later.
fn with_slow_pods(router: axum::Router) -> axum::Router {
    let slow = |request: axum::extract::Request, next: axum::middleware::Next| async move {
        let uri = request.uri().to_string();
        let is_slow =
            uri.contains("/pods?") && uri.contains("watch=true") && !uri.contains("sendInitialEvents");
        let response = next.run(request).await;
        if !is_slow {
            return response;
        }
        response.map(|body| {
            let delayed = futures::stream::unfold(body, |mut body| async move {
                let frame = body.frame().await?;
                tokio::time::sleep(Duration::from_secs(20)).await;
                Some((frame, body))
            });
            axum::body::Body::new(StreamBody::new(delayed))
        })
    };
    router.layer(axum::middleware::from_fn(slow))
}

/// A candidate with this configuration, and with something between its controllers and the server.
fn candidate(
    cluster: &Cluster,
    config: ControllerConfig,
    between: impl FnOnce(axum::Router) -> axum::Router,
) -> Daemon {
    let client = |router| kube::Client::new(router, "default");
    let options = ElectionOptions { namespace: Some("kube-system".into()), ..ElectionOptions::default() };
    let own = client(tag(cluster.sandbox.router(), USER_AGENT));
    let election = Candidacy { client: own.into(), options, thread: None };
    let client = client(between(tag(cluster.sandbox.router(), USER_AGENT)));
    Daemon::start_with(cluster.parts(client, 1, Some(election)), config)
}

#[tokio::test(start_paused = true)]
async fn writes_of_a_lost_history_that_no_watch_has_shown_are_not_awaited() {
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let daemon = candidate(&cluster, unlimited(), with_slow_pods);
    cluster.create(deployment("kept").replicas(2)).await;
    cluster.eventually(60, "the first pods exist", |c| pods(c, "kept") == 2).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let backup = cluster.sandbox.back_up();
    // The Lease is renewed meanwhile, so that the versions of the new history are far behind those of the lost one.
    tokio::time::sleep(Duration::from_secs(900)).await;
    cluster.patch("kept", json!({"spec": {"replicas": 4}})).await;
    cluster.eventually(10, "more pods exist", |c| pods(c, "kept") == 4).await;

    cluster.sandbox.restore(&backup, false);
    cluster.patch("kept", json!({"spec": {"replicas": 5}})).await;
    cluster.eventually(30, "the restored Deployment is scaled", |c| pods(c, "kept") == 5).await;
    assert!(!daemon.task.is_finished());
}

#[tokio::test(start_paused = true)]
async fn the_garbage_collector_lists_anew_as_well() {
    let (log, _logs) = Log::capture();
    let cluster = Cluster::without_collectors(Faults::default()).await;
    let enabled = Enabled::default().with("garbage-collector-controller");
    let _daemon = candidate(&cluster, ControllerConfig { enabled, ..unlimited() }, |router| router);
    const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
    let is_there = |cluster: &Cluster, name: &str| {
        cluster.objects("ConfigMap").iter().any(|map| map["metadata"]["name"] == name)
    };
    tokio::time::sleep(Duration::from_secs(60)).await;
    let backup = cluster.sandbox.back_up();
    for number in 0..30 {
        let lost = json!({"metadata": {"name": format!("lost-{number}")}});
        cluster.call(Method::POST, MAPS, &lost).await;
    }
    tokio::time::sleep(Duration::from_secs(60)).await;

    cluster.sandbox.restore(&backup, false);
    let owner: Value = cluster.call(Method::POST, MAPS, &json!({"metadata": {"name": "owner"}})).await;
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
    let dependent = json!({"metadata": {"name": "dependent", "ownerReferences": [reference]}});
    cluster.call(Method::POST, MAPS, &dependent).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(is_there(&cluster, "dependent"));
    cluster.call(Method::DELETE, &format!("{MAPS}/owner"), &json!({})).await;
    cluster.eventually(10, "the dependent is gone", |cluster| !is_there(cluster, "dependent")).await;
    let errors = log.lines("ERROR");
    assert_eq!(errors.len(), 1, "the caches of the collector are as many as there are kinds: {errors:#?}");
}
