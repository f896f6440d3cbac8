//! Rights that the daemon lacks: the controllers that need them wait, and no other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use serde_json::json;
use windlass::runtime::leader_election::rules::ElectionOptions;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, USER_AGENT, ask, forbidden};

use crate::log::Log;

/// A cluster that refuses these verbs on a kind to the controllers, for as long as the flag says.
async fn refusing(kind: &'static str, verbs: &'static [&'static str]) -> (Cluster, Arc<AtomicBool>) {
    let is_missing = Arc::new(AtomicBool::new(true));
    let missing = is_missing.clone();
    let cluster = Cluster::answering(move |request| {
        let is_refused =
            request.user_agent == USER_AGENT && request.kind == kind && verbs.contains(&request.verb);
        match is_refused && missing.load(Ordering::Relaxed) {
            true => forbidden("the user may not do this"),
            false => windlass_apiserver::FaultDecision::Proceed,
        }
    });
    (cluster.await, is_missing)
}

fn start(cluster: &Cluster, is_candidate: bool) -> Daemon {
    let options = ElectionOptions { namespace: Some("kube-system".into()), ..ElectionOptions::default() };
    cluster.start(1, USER_AGENT, is_candidate.then_some(options))
}

async fn create_daemon_set(cluster: &Cluster) {
    let labels = json!({"app": "agent"});
    let template =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i:v1"}]}});
    let daemon_set = json!({"metadata": {"name": "agent"},
                            "spec": {"selector": {"matchLabels": labels}, "template": template}});
    cluster.call(Method::POST, "/apis/apps/v1/namespaces/shop/daemonsets", &daemon_set).await;
}

fn pods(cluster: &Cluster, app: &str) -> usize {
    cluster.objects("Pod").iter().filter(|pod| pod["metadata"]["labels"]["app"] == app).count()
}

/// Without the right to do this with nodes, Deployments are rolled out and DaemonSets wait; with it, those follow.
async fn only_daemon_sets_wait(verbs: &'static [&'static str], is_candidate: bool) {
    let (log, _logs) = Log::capture();
    let (cluster, is_missing) = refusing("Node", verbs).await;
    let daemon = start(&cluster, is_candidate);
    cluster.create(deployment("web").replicas(2)).await;
    create_daemon_set(&cluster).await;
    cluster.eventually(30, "the Deployment is complete", |cluster| cluster.is_complete("web")).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(!daemon.task.is_finished() && pods(&cluster, "agent") == 0);
    let (code, text) = ask(&daemon.http, "/readyz").await;
    assert_eq!(code, 500, "{text}");
    let (_, text) = ask(&daemon.http, "/readyz/informer-nodes").await;
    for part in ["cannot list nodes", "may not do this", "daemonset-controller"] {
        assert!(text.contains(part), "{part}: {text}");
        let warned = log.lines("WARN").iter().any(|line| line.contains(part) && line.contains("waits"));
        assert!(warned, "{part}: {}", log.text());
    }
    assert!(!text.contains("deployment-controller"), "it does not wait: {text}");
    assert_eq!(ask(&daemon.http, "/readyz/informer-pods").await.0, 200);

    is_missing.store(false, Ordering::Relaxed);
    let nodes = cluster.sandbox.objects("Node").len();
    assert!(nodes > 0);
    cluster.eventually(60, "the DaemonSet has its pods", |cluster| pods(cluster, "agent") == nodes).await;
    cluster.eventually(60, "the Deployment is complete", |cluster| cluster.is_complete("web")).await;
    let (code, text) = ask(&daemon.http, "/readyz").await;
    assert_eq!(code, 200, "{text}");
    assert!(
        daemon
            .metrics
            .render()
            .contains("running_managed_controllers{manager=\"windlass\",name=\"daemonset-controller\"} 1")
    );
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_may_not_list_nodes_rolls_out_deployments() {
    only_daemon_sets_wait(&["list", "watch"], true).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_without_an_election_that_may_not_list_nodes_rolls_out_deployments() {
    only_daemon_sets_wait(&["list", "watch"], false).await;
}

/// Its cache is filled by a watch, and the version at the election is read by a list.
#[tokio::test(start_paused = true)]
async fn a_leader_that_may_watch_nodes_and_not_list_them_rolls_out_deployments() {
    only_daemon_sets_wait(&["list"], true).await;
}

#[tokio::test(start_paused = true)]
async fn without_any_right_no_controller_starts_and_nobody_leads() {
    let cluster = Cluster::answering(|request| {
        let is_own = request.user_agent == USER_AGENT && request.kind != "Lease";
        if is_own && matches!(request.verb, "list" | "watch") {
            forbidden("the user may not do this")
        } else {
            windlass_apiserver::FaultDecision::Proceed
        }
    });
    let cluster = cluster.await;
    let daemon = start(&cluster, true);
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(cluster.sandbox.objects("Lease").is_empty());
    let (_, text) = ask(&daemon.http, "/readyz/informer-deployments").await;
    assert!(text.contains("cannot list deployments") && text.contains("deployment-controller"), "{text}");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_stops_while_a_controller_waits_for_its_kind() {
    for is_candidate in [true, false] {
        let (cluster, _is_missing) = refusing("Node", &["list", "watch"]).await;
        let daemon = start(&cluster, is_candidate);
        cluster.create(deployment("web").replicas(2)).await;
        cluster.rolled_out("web").await;
        tokio::time::timeout(Duration::from_secs(5), daemon.stop()).await.unwrap();
    }
}
