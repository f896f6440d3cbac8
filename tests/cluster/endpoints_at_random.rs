//! The three controllers of endpoints in one cluster where users do anything, and every fifth write is lost or its answer is.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use windlass::config::{ControllerConfig, Enabled};
use windlass_apiserver::{FaultDecision, RequestInfo};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, USER_AGENT, unlimited};

const CORE: &str = "/api/v1/namespaces/shop";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";

fn is_write(request: &RequestInfo) -> bool {
    request.user_agent == USER_AGENT
        && matches!(request.kind, "Endpoints" | "EndpointSlice")
        && matches!(request.verb, "create" | "patch" | "delete")
}

fn list<'a>(object: &'a Value, field: &str) -> &'a [Value] {
    object[field].as_array().map_or(&[], Vec::as_slice)
}

/// The pods that run and have an address, and whether each is ready and stays.
fn expected(cluster: &Cluster) -> Vec<(String, bool)> {
    let is_ready = |pod: &Value| {
        list(&pod["status"], "conditions").iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
            && pod["metadata"]["deletionTimestamp"].is_null()
    };
    let pods = cluster.objects("Pod").into_iter();
    let counted = pods.filter(|pod| {
        pod["metadata"]["labels"]["app"] == "web"
            && pod["status"]["podIP"].is_string()
            && !["Failed", "Succeeded"].iter().any(|phase| pod["status"]["phase"] == *phase)
    });
    let mut found: Vec<(String, bool)> =
        counted.map(|pod| (pod["metadata"]["name"].as_str().unwrap().to_owned(), is_ready(&pod))).collect();
    found.sort();
    found
}

/// The pods of all slices of one writer, and whether each is listed as ready.
fn in_slices(cluster: &Cluster, writer: &str) -> Vec<(String, bool)> {
    let mut slices = cluster.objects("EndpointSlice");
    slices.retain(|slice| slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == writer);
    let endpoints = slices.iter().flat_map(|slice| list(slice, "endpoints"));
    let name = |it: &Value| it["targetRef"]["name"].as_str().unwrap_or_default().to_owned();
    let mut found: Vec<(String, bool)> =
        endpoints.map(|it| (name(it), it["conditions"]["ready"] == true)).collect();
    found.sort();
    found
}

/// The pods of the Endpoints.
fn in_endpoints(cluster: &Cluster) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for subset in cluster.objects("Endpoints").iter().flat_map(|it| list(it, "subsets")) {
        for (field, ready) in [("addresses", true), ("notReadyAddresses", false)] {
            let names =
                list(subset, field).iter().map(|it| it["targetRef"]["name"].as_str().unwrap_or_default());
            found.extend(names.map(|name| (name.to_owned(), ready)));
        }
    }
    found.sort();
    found
}

fn is_settled(cluster: &Cluster) -> bool {
    let expected = expected(cluster);
    // Those that are being deleted are in slices alone.
    let is_deleting = |name: &String| {
        let pods = cluster.objects("Pod");
        pods.iter()
            .any(|pod| pod["metadata"]["name"] == *name && !pod["metadata"]["deletionTimestamp"].is_null())
    };
    let staying: Vec<(String, bool)> =
        expected.iter().filter(|(name, _)| !is_deleting(name)).cloned().collect();
    let service = cluster.objects("Service");
    let has_selector = service.iter().any(|it| it["spec"]["selector"].is_object());
    let (slices, mirrors) = (
        in_slices(cluster, "endpointslice-controller.k8s.io"),
        in_slices(cluster, "endpointslicemirroring-controller.k8s.io"),
    );
    match has_selector {
        true => slices == expected && in_endpoints(cluster) == staying && mirrors.is_empty(),
        false => slices.is_empty() && mirrors == in_endpoints(cluster),
    }
}

/// A user does something.
async fn act(cluster: &Cluster, rng: &mut fastrand::Rng) {
    let any = |rng: &mut fastrand::Rng, kind: &str| -> Option<String> {
        let all = cluster.objects(kind);
        (!all.is_empty())
            .then(|| all[rng.usize(0..all.len())]["metadata"]["name"].as_str().unwrap().to_owned())
    };
    let service = format!("{CORE}/services/web");
    let (method, path, body) = match rng.u8(0..12) {
        0..3 => {
            let replicas = rng.u8(0..9);
            return cluster.patch("web", json!({"spec": {"replicas": replicas}})).await;
        }
        3 => {
            let image = ["v1", "v2", "broken"][rng.usize(0..3)];
            return cluster.set_image("web", image).await;
        }
        4 => match any(rng, "Pod") {
            Some(pod) => (Method::DELETE, format!("{CORE}/pods/{pod}"), Value::Null),
            None => return,
        },
        5 => (Method::PATCH, service, json!({"spec": {"selector": null}})),
        6..8 => (Method::PATCH, service, json!({"spec": {"selector": {"app": "web"}}})),
        8 => match any(rng, "EndpointSlice") {
            Some(slice) => (Method::PATCH, format!("{SLICES}/{slice}"), json!({"endpoints": []})),
            None => return,
        },
        9 => match any(rng, "EndpointSlice") {
            Some(slice) => (Method::DELETE, format!("{SLICES}/{slice}"), Value::Null),
            None => return,
        },
        10 => (Method::PATCH, format!("{CORE}/endpoints/web"), json!({"subsets": null})),
        _ => (Method::DELETE, format!("{CORE}/endpoints/web"), Value::Null),
    };
    // Another was faster.
    drop(cluster.try_call(method, &path, &body).await);
}

async fn play(seed: u64) {
    let chance = parking_lot::Mutex::new(fastrand::Rng::with_seed(seed));
    let cluster = Cluster::answering(move |request| match chance.lock().u8(0..20) {
        0 | 1 if is_write(request) => FaultDecision::LoseReply,
        2 if is_write(request) => FaultDecision::LoseRequest,
        3 if is_write(request) => FaultDecision::DelayReply(Duration::from_secs(3)),
        _ => FaultDecision::Proceed,
    })
    .await;
    let enabled = Enabled::default()
        .with("endpointslice-controller")
        .with("endpoints-controller")
        .with("endpointslice-mirroring-controller");
    let config = ControllerConfig {
        enabled,
        deletes_leftover_endpoint_slices: true,
        max_endpoints_per_slice: 3,
        ..unlimited()
    };
    let start = |seed| cluster.start_with(seed, config.clone(), |router| router);
    let mut daemon = start(seed);
    let service =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    cluster.call(Method::POST, &format!("{CORE}/services"), &service).await;
    cluster.create(deployment("web").replicas(4)).await;
    let mut rng = fastrand::Rng::with_seed(seed);
    for _ in 0..60 {
        act(&cluster, &mut rng).await;
        tokio::time::sleep(Duration::from_millis(rng.u64(0..3000))).await;
        if rng.u8(0..20) == 0 {
            daemon.kill();
            daemon = start(rng.u64(..));
        }
    }
    let what = format!("seed {seed} settles");
    cluster.eventually(900, &what, is_settled).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    cluster.eventually(900, &what, is_settled).await;
    let writes = cluster.writes();
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(is_settled(&cluster), "seed {seed}");
    let more = cluster.writes().split_off(writes.len());
    assert!(more.iter().all(|write| !write.contains("Endpoint")), "seed {seed}: {more:?}");
    daemon.stop().await;
}

#[tokio::test(start_paused = true)]
async fn endpoints_settle_whatever_users_do_and_the_network_loses() {
    for seed in 0..8 {
        play(seed).await;
    }
}
