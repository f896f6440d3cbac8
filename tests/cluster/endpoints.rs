//! The controller of Endpoints against the embedded API server, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::services::{DELETE, ENDPOINTS, SERVICES, change_service, create_service, ready_pods, seconds};
use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_apiserver::FaultDecision;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, is_request, unlimited};

fn config() -> ControllerConfig {
    let enabled = Enabled::default().with("endpoints-controller");
    ControllerConfig { enabled, ..unlimited() }
}

fn start(cluster: &Cluster, seed: u64) -> Daemon {
    cluster.start_with(seed, config(), |router| router)
}

fn endpoints(cluster: &Cluster, name: &str) -> Option<Value> {
    cluster.objects("Endpoints").into_iter().find(|it| it["metadata"]["name"] == name)
}

/// The names of the pods in one of the lists of addresses, sorted.
fn pods(cluster: &Cluster, list: &str) -> Vec<String> {
    let subsets = endpoints(cluster, "web").map(|it| it["subsets"].as_array().cloned().unwrap_or_default());
    let addresses =
        subsets.into_iter().flatten().flat_map(|it| it[list].as_array().cloned().unwrap_or_default());
    let mut names: Vec<String> = addresses
        .map(|address| address["targetRef"]["name"].as_str().unwrap_or_default().to_owned())
        .collect();
    names.sort();
    names
}

fn matches(cluster: &Cluster, count: usize) -> bool {
    let names = pods(cluster, "addresses");
    names.len() == count && names == ready_pods(cluster)
}

#[tokio::test(start_paused = true)]
async fn endpoints_follow_a_rollout_and_a_scale_down() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create_service(&cluster, json!({})).await;
    cluster.eventually(2, "empty ones", |c| endpoints(c, "web").is_some()).await;
    cluster.create(deployment("web").replicas(5)).await;
    cluster.eventually(60, "five addresses", |c| matches(c, 5)).await;
    let there = endpoints(&cluster, "web").unwrap();
    let labels = json!({"team": "a", "endpoints.kubernetes.io/managed-by": "endpoint-controller"});
    assert_eq!(there["metadata"]["labels"], labels);
    assert_eq!(there["subsets"][0]["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    let address = &there["subsets"][0]["addresses"][0];
    assert!(address["nodeName"].is_string() && address["ip"].is_string(), "{address}");
    cluster.set_image("web", "v2").await;
    cluster.rolled_out("web").await;
    cluster.eventually(60, "five addresses again", |c| matches(c, 5) && c.objects("Pod").len() == 5).await;
    assert_eq!(cluster.count("create Endpoints"), 1);
    cluster.patch("web", json!({"spec": {"replicas": 0}})).await;
    cluster.eventually(60, "none", |c| c.objects("Pod").is_empty() && matches(c, 0)).await;
    seconds(5).await;
    assert_eq!(pods(&cluster, "notReadyAddresses"), [""; 0]);
    let writes = cluster.writes();
    seconds(3600).await;
    assert_eq!(cluster.writes(), writes, "nothing is written without a change");
    let metrics = daemon.metrics.render();
    assert!(metrics.contains("workqueue_adds_total{name=\"endpoint\"}"), "{metrics}");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_not_ready_is_among_the_others_unless_it_is_published() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 2);
    create_service(&cluster, json!({})).await;
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    cluster.eventually(5, "both", |c| matches(c, 2)).await;
    cluster.set_image("web", "broken").await;
    cluster.eventually(30, "a pod that never starts", |c| !pods(c, "notReadyAddresses").is_empty()).await;
    assert!(matches(&cluster, 2));
    let count = cluster.objects("Pod").iter().filter(|pod| pod["status"]["podIP"].is_string()).count();
    change_service(&cluster, json!({"spec": {"publishNotReadyAddresses": true}})).await;
    cluster.eventually(2, "all", |c| pods(c, "addresses").len() == count).await;
    assert_eq!(pods(&cluster, "notReadyAddresses"), [""; 0]);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_users_change_are_repaired() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 3);
    create_service(&cluster, json!({})).await;
    cluster.create(deployment("web").replicas(2)).await;
    cluster.eventually(60, "both", |c| matches(c, 2)).await;
    seconds(5).await;
    let before = endpoints(&cluster, "web").unwrap();
    let same = |c: &Cluster| {
        endpoints(c, "web").is_some_and(|it| {
            it["subsets"] == before["subsets"] && it["metadata"]["labels"] == before["metadata"]["labels"]
        })
    };
    let path = format!("{ENDPOINTS}/web");
    for patch in [
        json!({"subsets": []}),
        json!({"metadata": {"labels": {"team": "b", "more": "x"}}}),
        json!({"metadata": {"labels": {"endpoints.kubernetes.io/managed-by": null}}}),
    ] {
        cluster.call(Method::PATCH, &path, &patch).await;
        assert!(!same(&cluster), "{patch}");
        cluster.eventually(3, "repaired", same).await;
    }
    cluster.call(Method::DELETE, &path, &DELETE).await;
    cluster.eventually(1, "created again", same).await;
    let writes = cluster.writes();
    seconds(60).await;
    assert_eq!(cluster.writes(), writes);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_daemon_writes_nothing_and_deletes_what_was_left() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 4);
    create_service(&cluster, json!({})).await;
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    cluster.eventually(5, "all", |c| matches(c, 3)).await;
    seconds(5).await;
    daemon.stop().await;
    let writes = cluster.count("");
    let daemon = start(&cluster, 5);
    seconds(30).await;
    assert_eq!(cluster.count(""), writes, "{:?}", cluster.writes());
    daemon.stop().await;
    // While nobody looks, the Service goes; and a user writes Endpoints of no Service.
    cluster.call(Method::DELETE, &format!("{SERVICES}/web"), &DELETE).await;
    let subsets = json!([{"addresses": [{"ip": "10.9.0.1"}], "ports": [{"port": 5432, "protocol": "TCP"}]}]);
    let managed = json!({"endpoints.kubernetes.io/managed-by": "endpoint-controller"});
    let leader = json!({"control-plane.alpha.kubernetes.io/leader": "{}"});
    for metadata in [
        json!({"name": "by-hand"}),
        json!({"name": "lock", "labels": managed, "annotations": leader}),
        json!({"name": "gone", "labels": managed}),
    ] {
        cluster.call(Method::POST, ENDPOINTS, &json!({"metadata": metadata, "subsets": subsets})).await;
    }
    assert!(endpoints(&cluster, "web").is_some(), "there is no owner reference");
    let daemon = start(&cluster, 6);
    cluster
        .eventually(5, "deleted", |c| endpoints(c, "web").is_none() && endpoints(c, "gone").is_none())
        .await;
    seconds(30).await;
    assert!(endpoints(&cluster, "by-hand").is_some() && endpoints(&cluster, "lock").is_some());
    assert_eq!(cluster.count("delete Endpoints"), 2);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_endpoints_of_a_deleted_service_go_and_come_back_with_it() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 7);
    create_service(&cluster, json!({})).await;
    cluster.create(deployment("web").replicas(1)).await;
    cluster.eventually(60, "one", |c| matches(c, 1)).await;
    seconds(5).await;
    cluster.call(Method::DELETE, &format!("{SERVICES}/web"), &DELETE).await;
    cluster.eventually(2, "deleted", |c| endpoints(c, "web").is_none()).await;
    create_service(&cluster, json!({})).await;
    cluster.eventually(2, "there again", |c| matches(c, 1)).await;
    // Deleted and created at once.
    cluster.call(Method::DELETE, &format!("{SERVICES}/web"), &DELETE).await;
    create_service(&cluster, json!({})).await;
    seconds(5).await;
    assert!(matches(&cluster, 1));
    cluster.call(Method::DELETE, "/api/v1/namespaces/shop", &DELETE).await;
    cluster.eventually(60, "all is gone", |c| c.objects("Endpoints").is_empty()).await;
    seconds(60).await;
    let metrics = daemon.metrics.render();
    assert!(metrics.contains("windlass_workqueue_keys_in_backoff{name=\"endpoint\"} 0"), "{metrics}");
    daemon.stop().await;
}

fn exported(name: &str) -> Value {
    let labels = json!({"endpoints.kubernetes.io/managed-by": "endpoint-controller"});
    let subsets = json!([{"addresses": [{"ip": "10.9.0.1"}], "ports": [{"port": 5432, "protocol": "TCP"}]}]);
    json!({"metadata": {"name": name, "labels": labels}, "subsets": subsets})
}

/// A directory of manifests from another cluster is applied in the order of its files.
#[tokio::test(start_paused = true)]
async fn endpoints_that_come_before_their_service_stay() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 8);
    seconds(5).await;
    cluster.call(Method::POST, ENDPOINTS, &exported("db")).await;
    cluster.call(Method::POST, ENDPOINTS, &exported("alone")).await;
    seconds(5).await;
    let note = json!({"metadata": {"annotations": {"note": "x"}}});
    cluster.call(Method::PATCH, &format!("{ENDPOINTS}/db"), &note).await;
    seconds(15).await;
    assert!(endpoints(&cluster, "db").is_some() && endpoints(&cluster, "alone").is_some());
    let service = json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}});
    cluster.call(Method::POST, SERVICES, &service).await;
    cluster.eventually(15, "no Service has come", |c| endpoints(c, "alone").is_none()).await;
    seconds(60).await;
    assert!(endpoints(&cluster, "db").is_some());
    assert_eq!(cluster.count("delete Endpoints"), 1);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn endpoints_stay_whose_service_the_cache_does_not_show_yet() {
    let lags = Arc::new(AtomicBool::new(false));
    let flag = lags.clone();
    let cluster = Cluster::answering(move |request| {
        let is_hung = is_request(request, "watch", "Service") && flag.load(Ordering::SeqCst);
        if is_hung { FaultDecision::LoseRequest } else { FaultDecision::Proceed }
    })
    .await;
    let daemon = start(&cluster, 9);
    seconds(5).await;
    lags.store(true, Ordering::SeqCst);
    cluster.sandbox.break_watches();
    seconds(1).await;
    let service = json!({"metadata": {"name": "db"}, "spec": {"ports": [{"port": 5432}]}});
    cluster.call(Method::POST, SERVICES, &service).await;
    cluster.call(Method::POST, ENDPOINTS, &exported("db")).await;
    seconds(100).await;
    assert!(endpoints(&cluster, "db").is_some());
    lags.store(false, Ordering::SeqCst);
    seconds(100).await;
    assert!(endpoints(&cluster, "db").is_some());
    assert_eq!(cluster.count("delete Endpoints"), 0);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn lost_replies_and_conflicts_leave_no_wrong_address() {
    let writes = AtomicUsize::new(0);
    let cluster = Cluster::answering(move |request| {
        let is_write = ["create", "patch"].iter().any(|verb| is_request(request, verb, "Endpoints"));
        if !is_write {
            return FaultDecision::Proceed;
        }
        match writes.fetch_add(1, Ordering::Relaxed) % 4 {
            0 => FaultDecision::LoseReply,
            1 => FaultDecision::LoseRequest,
            2 => FaultDecision::Refuse {
                code: 409,
                message: "the object has been modified".into(),
                reason: "Conflict".into(),
            },
            _ => FaultDecision::Proceed,
        }
    })
    .await;
    let daemon = start(&cluster, 8);
    create_service(&cluster, json!({})).await;
    cluster.create(deployment("web").replicas(7)).await;
    cluster.eventually(900, "all", |c| matches(c, 7)).await;
    cluster.patch("web", json!({"spec": {"replicas": 3}})).await;
    cluster.eventually(900, "three", |c| matches(c, 3)).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_event_of_the_endpoints() {
    let cluster = Cluster::answering(|request| {
        if is_request(request, "create", "Endpoints") {
            windlass_testkit::cluster::forbidden("not today")
        } else {
            FaultDecision::Proceed
        }
    })
    .await;
    let daemon = start(&cluster, 9);
    create_service(&cluster, json!({})).await;
    let is_told = |c: &Cluster| {
        c.objects("Event").iter().any(|event| {
            event["reason"] == "FailedToCreateEndpoint"
                && event["type"] == "Warning"
                && event["source"]["component"] == "endpoint-controller"
                && event["involvedObject"]["kind"] == "Endpoints"
                && event["message"] == "Failed to create endpoint for service shop/web: not today"
        })
    };
    cluster.eventually(5, "the event", is_told).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn services_without_selector_and_external_names_keep_their_endpoints() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 10);
    create_service(&cluster, json!({})).await;
    cluster.create(deployment("web").replicas(1)).await;
    cluster.eventually(60, "one", |c| matches(c, 1)).await;
    seconds(5).await;
    change_service(&cluster, json!({"spec": {"selector": null}})).await;
    let by_hand = json!({"subsets": [{"addresses": [{"ip": "10.9.0.1"}], "ports": [{"port": 5432, "protocol": "TCP"}]}]});
    cluster.call(Method::PATCH, &format!("{ENDPOINTS}/web"), &by_hand).await;
    seconds(10).await;
    assert_eq!(endpoints(&cluster, "web").unwrap()["subsets"][0]["addresses"][0]["ip"], "10.9.0.1");
    change_service(&cluster, json!({"spec": {"selector": {"app": "web"}}})).await;
    cluster.eventually(2, "the pod again", |c| matches(c, 1)).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_batch_period_delays_and_gathers_writes() {
    let cluster = Cluster::new().await;
    let mut config = config();
    config.endpoint_updates_batch_period = Duration::from_secs(30);
    let daemon = cluster.start_with(11, config, |router| router);
    create_service(&cluster, json!({})).await;
    cluster.eventually(2, "the first ones come at once", |c| endpoints(c, "web").is_some()).await;
    cluster.create(deployment("web").replicas(20)).await;
    seconds(15).await;
    assert_eq!(pods(&cluster, "addresses"), [""; 0]);
    cluster.eventually(60, "all", |c| matches(c, 20)).await;
    assert!(cluster.count("patch Endpoints/") <= 2, "{:?}", cluster.writes());
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_large_scale_up_writes_endpoints_at_most_ten_times_a_second() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 12);
    create_service(&cluster, json!({})).await;
    seconds(2).await;
    let start = cluster.clock.now();
    cluster.create(deployment("web").replicas(90)).await;
    cluster.eventually(120, "all", |c| matches(c, 90)).await;
    let took = cluster.clock.now().duration_since(start).as_secs_f64();
    let writes = cluster.count("patch Endpoints/");
    assert!(writes as f64 <= 10.0 * took + 2.0, "{writes} writes in {took} s");
    daemon.stop().await;
}
