//! The controller of the EndpointSlices that mirror Endpoints against the embedded API server, in virtual time.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::services::{DELETE, ENDPOINTS, SERVICES, SLICES, seconds};
use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_apiserver::FaultDecision;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, is_request, unlimited};

const MIRRORING: &str = "endpointslicemirroring-controller.k8s.io";

fn config() -> ControllerConfig {
    let enabled = Enabled::none().with("endpointslice-mirroring-controller");
    ControllerConfig { enabled, ..unlimited() }
}

fn start(cluster: &Cluster, seed: u64) -> Daemon {
    cluster.start_with(seed, config(), |router| router)
}

fn subsets(ips: &[&str]) -> Value {
    let addresses: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip})).collect();
    json!([{"addresses": addresses, "ports": [{"name": "sql", "port": 5432, "protocol": "TCP"}]}])
}

/// A Service `db` without selector, and its Endpoints.
async fn create(cluster: &Cluster, ips: &[&str]) {
    let ports = json!([{"name": "sql", "port": 5432, "protocol": "TCP"}]);
    let service = json!({"metadata": {"name": "db"}, "spec": {"ports": ports}});
    cluster.call(Method::POST, SERVICES, &service).await;
    create_endpoints(cluster, ips).await;
}

async fn create_endpoints(cluster: &Cluster, ips: &[&str]) {
    let endpoints = json!({"metadata": {"name": "db", "labels": {"team": "a"}}, "subsets": subsets(ips)});
    cluster.call(Method::POST, ENDPOINTS, &endpoints).await;
}

async fn patch(cluster: &Cluster, path: &str, patch: Value) {
    cluster.call(Method::PATCH, &format!("{path}/db"), &patch).await;
}

/// The slices of the controller.
fn mirrors(cluster: &Cluster) -> Vec<Value> {
    let mut slices = cluster.objects("EndpointSlice");
    slices.retain(|slice| slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == MIRRORING);
    slices
}

/// The addresses of all its slices, sorted.
fn addresses(cluster: &Cluster) -> Vec<String> {
    let slices = mirrors(cluster);
    let endpoints =
        slices.iter().flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
    let mut found: Vec<String> =
        endpoints.map(|endpoint| endpoint["addresses"][0].as_str().unwrap().to_owned()).collect();
    found.sort();
    found
}

#[tokio::test(start_paused = true)]
async fn slices_follow_the_endpoints_that_a_user_writes() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 1);
    create(&cluster, &["10.9.0.1", "fd00::9"]).await;
    cluster.eventually(2, "a slice for each family", |c| mirrors(c).len() == 2).await;
    assert_eq!(addresses(&cluster), ["10.9.0.1", "fd00::9"]);
    let slice = mirrors(&cluster).into_iter().find(|slice| slice["addressType"] == "IPv4").unwrap();
    let metadata = &slice["metadata"];
    assert_eq!(metadata["labels"]["kubernetes.io/service-name"], "db");
    assert_eq!(metadata["labels"]["team"], "a");
    assert_eq!(metadata["ownerReferences"][0]["kind"], "Endpoints");
    assert_eq!(slice["ports"], json!([{"name": "sql", "port": 5432, "protocol": "TCP"}]));
    assert_eq!(slice["endpoints"][0]["conditions"], json!({"ready": true}));
    patch(&cluster, ENDPOINTS, json!({"subsets": subsets(&["10.9.0.2", "10.9.0.3"])})).await;
    cluster.eventually(2, "the new ones", |c| addresses(c) == ["10.9.0.2", "10.9.0.3"]).await;
    patch(&cluster, ENDPOINTS, json!({"metadata": {"labels": {"team": "b"}, "annotations": {"note": "x"}}}))
        .await;
    let has_metadata = |c: &Cluster| {
        mirrors(c).iter().all(|slice| {
            slice["metadata"]["labels"]["team"] == "b"
                && slice["metadata"]["annotations"] == json!({"note": "x"})
        })
    };
    cluster.eventually(2, "labels and annotations", has_metadata).await;
    let writes = cluster.writes();
    seconds(3600).await;
    assert_eq!(cluster.writes(), writes, "nothing is written without a change");
    let metrics = daemon.metrics.render();
    for line in [
        "endpoint_slice_mirroring_controller_num_endpoint_slices 1",
        "endpoint_slice_mirroring_controller_endpoints_desired 2",
        "endpoint_slice_mirroring_controller_changes{operation=\"create\"} 2",
        "endpoint_slice_mirroring_controller_endpoints_sync_duration_count",
        "workqueue_adds_total{name=\"endpoint_slice_mirroring\"}",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_selector_and_a_label_decide_whether_endpoints_are_mirrored() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 2);
    create_endpoints(&cluster, &["10.9.0.1"]).await;
    seconds(5).await;
    assert!(mirrors(&cluster).is_empty(), "there is no Service");
    let ports = json!([{"name": "sql", "port": 5432, "protocol": "TCP"}]);
    let service = json!({"metadata": {"name": "db"}, "spec": {"ports": ports}});
    cluster.call(Method::POST, SERVICES, &service).await;
    let is_mirrored = |c: &Cluster| addresses(c) == ["10.9.0.1"];
    let is_not = |c: &Cluster| mirrors(c).is_empty();
    cluster.eventually(2, "with the Service", is_mirrored).await;
    patch(&cluster, SERVICES, json!({"spec": {"selector": {"app": "db"}}})).await;
    cluster.eventually(2, "with a selector", is_not).await;
    patch(&cluster, SERVICES, json!({"spec": {"selector": null}})).await;
    cluster.eventually(2, "without it again", is_mirrored).await;
    let skip =
        |value: Value| json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": value}}});
    patch(&cluster, ENDPOINTS, skip(json!("true"))).await;
    cluster.eventually(2, "with the label", is_not).await;
    patch(&cluster, ENDPOINTS, skip(Value::Null)).await;
    cluster.eventually(2, "without the label", is_mirrored).await;
    let leader = |value: Value| json!({"metadata": {"annotations": {"control-plane.alpha.kubernetes.io/leader": value}}});
    patch(&cluster, ENDPOINTS, leader(json!("{}"))).await;
    cluster.eventually(2, "the lock of an election", is_not).await;
    patch(&cluster, ENDPOINTS, leader(Value::Null)).await;
    cluster.eventually(2, "no lock", is_mirrored).await;
    cluster.call(Method::DELETE, &format!("{SERVICES}/db"), &DELETE).await;
    cluster.eventually(2, "the Service is gone", is_not).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn deleted_endpoints_take_their_slices_along_without_a_collector() {
    let cluster = Cluster::without_collectors(Default::default()).await;
    let daemon = start(&cluster, 3);
    create(&cluster, &["10.9.0.1"]).await;
    cluster.eventually(2, "mirrored", |c| addresses(c) == ["10.9.0.1"]).await;
    cluster.call(Method::DELETE, &format!("{ENDPOINTS}/db"), &DELETE).await;
    cluster.eventually(2, "deleted", |c| mirrors(c).is_empty()).await;
    create_endpoints(&cluster, &["10.9.0.2"]).await;
    cluster.eventually(2, "of the new ones", |c| addresses(c) == ["10.9.0.2"]).await;
    daemon.stop().await;
    // While nobody looks.
    cluster.call(Method::DELETE, &format!("{ENDPOINTS}/db"), &DELETE).await;
    let daemon = start(&cluster, 4);
    cluster.eventually(5, "deleted after the start", |c| mirrors(c).is_empty()).await;
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slices_of_endpoints_that_were_created_again_are_rewritten() {
    let cluster = Cluster::without_collectors(Default::default()).await;
    let daemon = start(&cluster, 5);
    create(&cluster, &["10.9.0.1"]).await;
    cluster.eventually(2, "mirrored", |c| addresses(c) == ["10.9.0.1"]).await;
    daemon.stop().await;
    cluster.call(Method::DELETE, &format!("{ENDPOINTS}/db"), &DELETE).await;
    create_endpoints(&cluster, &["10.9.0.1"]).await;
    let name = mirrors(&cluster)[0]["metadata"]["name"].clone();
    let daemon = start(&cluster, 6);
    let uid = cluster.objects("Endpoints")[0]["metadata"]["uid"].clone();
    let is_owned =
        |c: &Cluster| mirrors(c).iter().all(|it| it["metadata"]["ownerReferences"][0]["uid"] == uid);
    cluster.eventually(5, "the new owner", is_owned).await;
    assert_eq!(mirrors(&cluster)[0]["metadata"]["name"], name);
    assert_eq!(cluster.count("create EndpointSlice"), 1);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slices_that_users_change_are_repaired_and_another_daemon_writes_nothing() {
    let cluster = Cluster::new().await;
    let daemon = start(&cluster, 7);
    create(&cluster, &["10.9.0.1", "10.9.0.2"]).await;
    cluster.eventually(2, "mirrored", |c| addresses(c).len() == 2).await;
    seconds(5).await;
    let before = mirrors(&cluster).remove(0);
    let same = |slice: &Value| {
        slice["endpoints"] == before["endpoints"]
            && slice["metadata"]["labels"] == before["metadata"]["labels"]
            && slice["metadata"]["annotations"].as_object().is_none_or(serde_json::Map::is_empty)
    };
    let path = |c: &Cluster| format!("{SLICES}/{}", mirrors(c)[0]["metadata"]["name"].as_str().unwrap());
    for patch in [
        json!({"endpoints": []}),
        json!({"metadata": {"labels": {"team": "b"}}}),
        json!({"metadata": {"annotations": {"note": "x"}}}),
    ] {
        cluster.call(Method::PATCH, &path(&cluster), &patch).await;
        assert!(!same(&mirrors(&cluster)[0]), "{patch}");
        cluster.eventually(3, "repaired", |c| same(&mirrors(c)[0])).await;
    }
    cluster.call(Method::DELETE, &path(&cluster), &DELETE).await;
    cluster.eventually(3, "created again", |c| mirrors(c).iter().any(same)).await;
    // Given to another writer, it is replaced; the other one stays.
    let labels = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": "example.com"}}});
    cluster.call(Method::PATCH, &path(&cluster), &labels).await;
    cluster
        .eventually(3, "one of ours", |c| c.objects("EndpointSlice").len() == 2 && mirrors(c).len() == 1)
        .await;
    seconds(5).await;
    daemon.stop().await;
    let writes = cluster.count("");
    let daemon = start(&cluster, 8);
    seconds(60).await;
    assert_eq!(cluster.count(""), writes, "{:?}", cluster.writes());
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
    let daemon = start(&cluster, 9);
    create(&cluster, &["10.9.0.1", "fd00::9"]).await;
    cluster.eventually(600, "both", |c| addresses(c).len() == 2).await;
    patch(&cluster, ENDPOINTS, json!({"subsets": subsets(&["10.9.0.2"])})).await;
    cluster.eventually(600, "the new one", |c| addresses(c) == ["10.9.0.2"]).await;
    seconds(120).await;
    assert_eq!(mirrors(&cluster).len(), 1);
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn addresses_that_are_too_many_are_an_event_of_the_endpoints() {
    let cluster = Cluster::new().await;
    let mut config = config();
    config.mirroring_max_endpoints_per_subset = 2;
    let daemon = cluster.start_with(10, config, |router| router);
    create(&cluster, &["10.9.0.1", "10.9.0.2", "10.9.0.3"]).await;
    cluster.eventually(2, "two of them", |c| addresses(c) == ["10.9.0.1", "10.9.0.2"]).await;
    let is_told = |c: &Cluster| {
        c.objects("Event").iter().any(|event| {
            event["reason"] == "TooManyAddressesToMirror"
                && event["type"] == "Warning"
                && event["source"]["component"] == "endpoint-slice-mirroring-controller"
                && event["involvedObject"]["kind"] == "Endpoints"
        })
    };
    cluster.eventually(5, "the event", is_told).await;
    daemon.stop().await;
}

/// The Endpoints of a Service with a selector are written by one controller and mirrored by none; once the selector is gone, they are
/// mirrored as they are, though the cache does not hold their addresses.
#[tokio::test(start_paused = true)]
async fn all_controllers_of_endpoints_run_beside_each_other() {
    let cluster = Cluster::new().await;
    let enabled = Enabled::default()
        .with("endpointslice-controller")
        .with("endpoints-controller")
        .with("endpointslice-mirroring-controller");
    let config = ControllerConfig { enabled, deletes_leftover_endpoint_slices: true, ..unlimited() };
    let daemon = cluster.start_with(11, config, |router| router);
    let service =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    cluster.call(Method::POST, SERVICES, &service).await;
    cluster.create(deployment("web").replicas(3)).await;
    cluster.rolled_out("web").await;
    let listed = |c: &Cluster| {
        let endpoints = c.objects("Endpoints");
        endpoints.iter().map(|it| it["subsets"][0]["addresses"].as_array().map_or(0, Vec::len)).sum::<usize>()
    };
    let in_slices = |c: &Cluster| {
        let slices = c.objects("EndpointSlice");
        slices.iter().map(|it| it["endpoints"].as_array().map_or(0, Vec::len)).sum::<usize>()
    };
    cluster.eventually(5, "three in each", |c| listed(c) == 3 && in_slices(c) == 3).await;
    assert!(mirrors(&cluster).is_empty());
    cluster.call(Method::PATCH, &format!("{SERVICES}/web"), &json!({"spec": {"selector": null}})).await;
    cluster.eventually(5, "mirrored alone", |c| addresses(c).len() == 3 && in_slices(c) == 3).await;
    cluster
        .call(Method::PATCH, &format!("{SERVICES}/web"), &json!({"spec": {"selector": {"app": "web"}}}))
        .await;
    cluster
        .eventually(5, "not mirrored", |c| mirrors(c).is_empty() && in_slices(c) == 3 && listed(c) == 3)
        .await;
    let writes = cluster.writes();
    seconds(600).await;
    assert_eq!(cluster.writes(), writes);
    daemon.stop().await;
}
