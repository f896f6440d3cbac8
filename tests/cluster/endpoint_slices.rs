//! The EndpointSlice controller against the embedded API server, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::services::{DELETE, SERVICES, SLICES, change_service, create_service, ready_pods, seconds};
use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_apiserver::FaultDecision;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, is_request, unlimited};

fn config() -> ControllerConfig {
    let enabled = Enabled::default().with("endpointslice-controller");
    ControllerConfig { enabled, ..unlimited() }
}

fn start(cluster: &Cluster, seed: u64) -> Daemon {
    cluster.start_with(seed, config(), |router| router)
}

/// The names of the pods of all endpoints whose condition `ready` is this, sorted.
fn pods(cluster: &Cluster, ready: bool) -> Vec<String> {
    let slices = cluster.objects("EndpointSlice");
    let endpoints =
        slices.iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
    let of_state = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == ready);
    let mut names: Vec<String> =
        of_state.map(|endpoint| endpoint["targetRef"]["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

fn matches(cluster: &Cluster, count: usize) -> bool {
    let names = pods(cluster, true);
    names.len() == count && names == ready_pods(cluster)
}

#[tokio::test(start_paused = true)]
async fn the_slices_of_a_service_follow_a_rollout_and_a_scale_down() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create_service(&cluster, json!({})).await;
    cluster.eventually(2, "a placeholder", |c| c.objects("EndpointSlice").len() == 1).await;
    cluster.create(deployment("web").replicas(5)).await;
    cluster.eventually(60, "five endpoints", |c| matches(c, 5)).await;
    let slice = cluster.objects("EndpointSlice").remove(0);
    assert_eq!(slice["metadata"]["labels"]["kubernetes.io/service-name"], "web");
    assert_eq!(slice["metadata"]["labels"]["team"], "a");
    assert_eq!(slice["metadata"]["ownerReferences"][0]["name"], "web");
    assert_eq!(slice["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    let endpoint = &slice["endpoints"][0];
    assert!(endpoint["nodeName"].is_string() && endpoint["addresses"][0].is_string(), "{endpoint}");
    cluster.set_image("web", "v2").await;
    cluster.rolled_out("web").await;
    cluster.eventually(60, "five endpoints again", |c| matches(c, 5) && c.objects("Pod").len() == 5).await;
    assert_eq!(cluster.count("create EndpointSlice"), 1, "it is one slice all the time");
    cluster.patch("web", json!({"spec": {"replicas": 0}})).await;
    cluster.eventually(60, "none", |c| c.objects("Pod").is_empty() && pods(c, true).is_empty()).await;
    seconds(5).await;
    assert_eq!(pods(&cluster, false), [""; 0]);
    let writes = cluster.writes();
    seconds(3600).await;
    assert_eq!(cluster.writes(), writes, "nothing is written without a change");
    let metrics = daemon.metrics.render();
    for line in [
        "endpoint_slice_controller_num_endpoint_slices 1",
        "endpoint_slice_controller_endpoints_desired 0",
        "endpoint_slice_controller_changes{operation=\"create\"} 1",
        "workqueue_adds_total{name=\"endpoint_slice\"}",
        "endpoint_slice_controller_syncs{result=\"success\"}",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_endpoint_of_a_pod_that_is_not_ready_is_not_ready() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 2);
    create_service(&cluster, json!({})).await;
    cluster.create(deployment("web").replicas(2)).await;
    cluster.rolled_out("web").await;
    cluster.eventually(5, "both", |c| matches(c, 2)).await;
    cluster.set_image("web", "broken").await;
    let is_there = |c: &Cluster| c.objects("Pod").len() > 2;
    cluster.eventually(30, "a pod that never starts", is_there).await;
    seconds(20).await;
    assert!(matches(&cluster, 2));
    // A user publishes it all the same.
    let count = cluster.objects("Pod").iter().filter(|pod| pod["status"]["podIP"].is_string()).count();
    change_service(&cluster, json!({"spec": {"publishNotReadyAddresses": true}})).await;
    cluster.eventually(2, "all", |c| pods(c, true).len() == count).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slices_that_users_change_are_repaired() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 3);
    create_service(&cluster, json!({})).await;
    cluster.create(deployment("web").replicas(2)).await;
    cluster.eventually(60, "both", |c| matches(c, 2)).await;
    seconds(5).await;
    let before = cluster.objects("EndpointSlice").remove(0);
    let path = |c: &Cluster| {
        let slice = c.objects("EndpointSlice").remove(0);
        format!("{SLICES}/{}", slice["metadata"]["name"].as_str().unwrap())
    };
    let same = |slice: &Value| {
        ["endpoints", "ports"].iter().all(|field| slice[field] == before[field])
            && slice["metadata"]["labels"] == before["metadata"]["labels"]
    };
    for patch in [
        json!({"endpoints": []}),
        json!({"metadata": {"labels": {"team": "b", "more": "x"}}}),
        json!({"metadata": {"labels": {"team": null}}}),
    ] {
        cluster.call(Method::PATCH, &path(&cluster), &patch).await;
        assert!(!same(&cluster.objects("EndpointSlice")[0]), "{patch}");
        cluster.eventually(3, "repaired", |c| same(&c.objects("EndpointSlice")[0])).await;
    }
    cluster.call(Method::DELETE, &path(&cluster), &DELETE).await;
    cluster.eventually(3, "created again", |c| c.objects("EndpointSlice").iter().any(same)).await;
    // Given to another writer, it is replaced; the other one stays.
    let labels = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "example.com"}}});
    cluster.call(Method::PATCH, &path(&cluster), &labels).await;
    cluster.eventually(3, "one of ours", |c| c.objects("EndpointSlice").len() == 2).await;
    let writes = cluster.writes();
    seconds(60).await;
    assert_eq!(cluster.writes(), writes);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_daemon_writes_nothing() {
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
    cluster.patch("web", json!({"spec": {"replicas": 4}})).await;
    cluster.eventually(30, "one more", |c| matches(c, 4)).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_no_second_slice() {
    let writes = AtomicUsize::new(0);
    let cluster = Cluster::answering(move |request| {
        let is_write = ["create", "patch"].iter().any(|verb| is_request(request, verb, "EndpointSlice"));
        let is_lost = is_write && writes.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if is_lost { FaultDecision::LoseReply } else { FaultDecision::Proceed }
    })
    .await;
    let mut config = config();
    config.max_endpoints_per_slice = 2;
    let daemon = cluster.start_with(6, config, |router| router);
    create_service(&cluster, json!({})).await;
    cluster.create(deployment("web").replicas(7)).await;
    cluster.eventually(600, "all", |c| matches(c, 7)).await;
    seconds(120).await;
    let slices = cluster.objects("EndpointSlice");
    let sizes: Vec<usize> =
        slices.iter().map(|slice| slice["endpoints"].as_array().map_or(0, Vec::len)).collect();
    assert!(matches(&cluster, 7) && sizes.iter().all(|size| (1..=2).contains(size)), "{sizes:?}");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_an_event_of_the_service() {
    let cluster = Cluster::answering(|request| {
        if is_request(request, "create", "EndpointSlice") {
            windlass_testkit::cluster::forbidden("not today")
        } else {
            FaultDecision::Proceed
        }
    })
    .await;
    let daemon = start(&cluster, 7);
    create_service(&cluster, json!({})).await;
    let is_told = |c: &Cluster| {
        c.objects("Event").iter().any(|event| {
            event["reason"] == "FailedToUpdateEndpointSlices"
                && event["type"] == "Warning"
                && event["source"]["component"] == "endpoint-slice-controller"
                && event["involvedObject"]["kind"] == "Service"
                && event["message"].as_str().is_some_and(|text| {
                    let words = "Error updating Endpoint Slices for Service shop/web: failed to create EndpointSlice \
                                 for Service shop/web: ";
                    text.starts_with(words) && text.ends_with("not today")
                })
        })
    };
    cluster.eventually(5, "the event", is_told).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_loses_its_selector_keeps_its_slices_unless_that_is_set() {
    for deletes in [false, true] {
        let cluster = Cluster::new().await;
        let mut config = config();
        config.deletes_leftover_endpoint_slices = deletes;
        let daemon = cluster.start_with(8, config, |router| router);
        create_service(&cluster, json!({})).await;
        cluster.create(deployment("web").replicas(1)).await;
        cluster.eventually(60, "one", |c| matches(c, 1)).await;
        seconds(5).await;
        change_service(&cluster, json!({"spec": {"selector": null}})).await;
        seconds(5).await;
        assert_eq!(cluster.objects("EndpointSlice").is_empty(), deletes);
        change_service(&cluster, json!({"spec": {"selector": {"app": "web"}}})).await;
        cluster.eventually(5, "one again", |c| matches(c, 1)).await;
        daemon.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_scale_up_writes_a_slice_at_most_ten_times_a_second() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 9);
    create_service(&cluster, json!({})).await;
    seconds(2).await;
    let start = cluster.clock.now();
    cluster.create(deployment("web").replicas(90)).await;
    cluster.eventually(120, "all", |c| matches(c, 90)).await;
    let took = cluster.clock.now().duration_since(start).as_secs_f64();
    let writes = cluster.count("patch EndpointSlice");
    assert!(writes as f64 <= 10.0 * took + 2.0, "{writes} writes in {took} s");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_batch_period_delays_and_gathers_writes() {
    let cluster = Cluster::new().await;
    let mut config = config();
    config.endpoint_slice_updates_batch_period = Duration::from_secs(30);
    let daemon = cluster.start_with(10, config, |router| router);
    create_service(&cluster, json!({})).await;
    cluster.eventually(2, "the placeholder comes at once", |c| c.objects("EndpointSlice").len() == 1).await;
    cluster.create(deployment("web").replicas(20)).await;
    seconds(15).await;
    assert_eq!(pods(&cluster, true), [""; 0]);
    cluster.eventually(60, "all", |c| matches(c, 20)).await;
    assert!(cluster.count("patch EndpointSlice") <= 2, "{:?}", cluster.writes());
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_service_and_a_deleted_namespace_leave_nothing_to_do() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 11);
    create_service(&cluster, json!({})).await;
    cluster.eventually(2, "a placeholder", |c| c.objects("EndpointSlice").len() == 1).await;
    cluster.call(Method::DELETE, &format!("{SERVICES}/web"), &DELETE).await;
    cluster.eventually(5, "collected", |c| c.objects("EndpointSlice").is_empty()).await;
    seconds(10).await;
    assert_eq!(cluster.count("create EndpointSlice"), 1);
    create_service(&cluster, json!({})).await;
    cluster.eventually(2, "of the new Service", |c| c.objects("EndpointSlice").len() == 1).await;
    cluster.call(Method::DELETE, "/api/v1/namespaces/shop", &DELETE).await;
    cluster.eventually(60, "all is gone", |c| c.objects("EndpointSlice").is_empty()).await;
    seconds(60).await;
    let metrics = daemon.metrics.render();
    assert!(metrics.contains("endpoint_slice_controller_num_endpoint_slices 0"), "{metrics}");
    assert!(metrics.contains("windlass_workqueue_keys_in_backoff{name=\"endpoint_slice\"} 0"), "{metrics}");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_service_that_the_cache_still_shows_gets_no_slice_again_and_again() {
    let lags = Arc::new(AtomicBool::new(false));
    let flag = lags.clone();
    let cluster = Cluster::answering(move |request| match is_request(request, "watch", "Service") {
        true if flag.load(Ordering::Relaxed) => FaultDecision::LoseRequest,
        _ => FaultDecision::Proceed,
    })
    .await;
    let daemon = start(&cluster, 8);
    create_service(&cluster, json!({})).await;
    cluster.eventually(2, "a placeholder", |c| c.objects("EndpointSlice").len() == 1).await;
    lags.store(true, Ordering::Relaxed);
    cluster.sandbox.break_watches();
    seconds(1).await;
    cluster.call(Method::DELETE, &format!("{SERVICES}/web"), &DELETE).await;
    seconds(20).await;
    let created = cluster.count("create EndpointSlice");
    assert!(created <= 2, "{created} slices, each of which the garbage collector deletes");
    lags.store(false, Ordering::Relaxed);
    cluster.eventually(120, "none is left", |c| c.objects("EndpointSlice").is_empty()).await;
    daemon.stop().await;
}
