//! Objects whose bytes the daemon cannot read as it expects: the API server stores and serves them all the same. The server
//! here is left alone; what it sends is changed on the way to the daemon.

use std::time::Duration;

use axum::middleware::{Next, from_fn};
use http::Method;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::{Cluster, Daemon, Faults, unlimited};

/// A text in a template, and what the daemon gets in its place: as many bytes.
struct Damage {
    media_type: &'static str,
    from: &'static [u8],
    to: &'static [u8],
}

/// The value of an annotation, which need not be UTF-8: API servers that decode protobuf do not check it.
const NO_UTF8: Damage = Damage {
    media_type: "application/vnd.kubernetes.protobuf",
    from: b"BADBYTES",
    to: &[0xff, 0xfe, 0xff, b'x', b'y', 0xc3, 0x28, 0xff],
};

/// `spec.hostname`, and in its place `spec.nodeName` as a number, again and again.
const ODD_SHAPE: Damage = Damage {
    media_type: "application/vnd.kubernetes.protobuf",
    from: b"\x82\x01\x08oddshape",
    to: &[0x50, 0x81, 0x01, 0x50, 1, 0x50, 1, 0x50, 1, 0x50, 1],
};

/// The `minReadySeconds` of a ReplicaSet as a list.
const ODD_JSON: Damage =
    Damage { media_type: "application/json", from: b"\"minReadySeconds\":7", to: b"\"minReadySeconds\":[]" };

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut all = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while !rest.is_empty() {
        match rest.strip_prefix(from) {
            Some(after) => {
                all.extend_from_slice(to);
                rest = after;
            }
            None => {
                all.push(rest[0]);
                rest = &rest[1..];
            }
        }
    }
    all
}

/// The server as a daemon sees it, where the lists and watches of this kind are damaged.
fn damaged(router: axum::Router, plural: &'static str, damage: &'static Damage) -> axum::Router {
    router.layer(from_fn(move |request: axum::extract::Request, next: Next| async move {
        let path = request.uri().path().to_owned();
        let is_read = *request.method() == Method::GET && path.ends_with(plural);
        let response = next.run(request).await;
        let media_type = response.headers().get("content-type").and_then(|it| it.to_str().ok());
        if !is_read || !media_type.is_some_and(|it| it.starts_with(damage.media_type)) {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        parts.headers.remove("content-length");
        let body =
            body.map_frame(|frame| frame.map_data(|data| replace(&data, damage.from, damage.to).into()));
        axum::response::Response::from_parts(parts, axum::body::Body::new(body))
    }))
}

fn pods(cluster: &Cluster) -> Vec<Value> {
    let mut pods = cluster.objects("Pod");
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    pods
}

async fn delete_by_force(cluster: &Cluster, pod: &Value) {
    let path = format!("/api/v1/namespaces/shop/pods/{}", pod["metadata"]["name"].as_str().unwrap());
    cluster.call(Method::DELETE, &path, &json!({"gracePeriodSeconds": 0})).await;
}

/// A workload that one daemon has rolled out, and another that reads it damaged.
async fn with_damage(
    path: &str,
    object: Value,
    expected: usize,
    plural: &'static str,
    damage: &'static Damage,
) -> (Cluster, Daemon) {
    let cluster = Cluster::with(Faults::default(), |options| options).await;
    let daemon = cluster.start_controllers(1);
    cluster.call(Method::POST, path, &object).await;
    let ready = |cluster: &Cluster| {
        let is_ready = |pod: &Value| pod["status"]["phase"] == "Running";
        pods(cluster).len() == expected && pods(cluster).iter().all(is_ready)
    };
    cluster.eventually(60, "the workload is rolled out", ready).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    daemon.stop().await;
    let daemon = cluster.start_with(2, unlimited(), |router| damaged(router, plural, damage));
    (cluster, daemon)
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/shop/deployments";
const DAEMON_SETS: &str = "/apis/apps/v1/namespaces/shop/daemonsets";

fn three(template: Value, more: Value) -> Value {
    let mut object = windlass_testkit::user::new_deployment(deployment("web").replicas(3));
    json_patch::merge(&mut object["spec"]["template"], &template);
    json_patch::merge(&mut object["spec"], &more);
    object
}

fn undecodable(daemon: &Daemon, plural: &str) -> bool {
    let line = format!("resource=\"{plural}\"}}");
    let metrics = daemon.metrics.render();
    let counted = |it: &&str| it.starts_with("windlass_informer_undecodable") && it.contains(&line);
    metrics.lines().find(counted).is_some_and(|line| !line.ends_with(" 0"))
}

#[tokio::test(start_paused = true)]
async fn pods_with_text_that_is_no_utf8_are_neither_lost_nor_ghosts() {
    let object = three(json!({"metadata": {"annotations": {"sum": "BADBYTES"}}}), json!({}));
    let (cluster, daemon) = with_damage(DEPLOYMENTS, object, 3, "/pods", &NO_UTF8).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!((pods(&cluster).len(), undecodable(&daemon, "pods")), (3, false));
    let gone = pods(&cluster).remove(0);
    delete_by_force(&cluster, &gone).await;
    cluster.eventually(5, "a deleted pod is replaced", |cluster| pods(cluster).len() == 3).await;
    cluster.patch("web", json!({"spec": {"replicas": 1}})).await;
    cluster.eventually(30, "the surplus is deleted", |cluster| pods(cluster).len() == 1).await;
    cluster.rolled_out("web").await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_an_odd_shape_are_not_created_again() {
    let object = three(json!({"spec": {"hostname": "oddshape"}}), json!({}));
    let (cluster, daemon) = with_damage(DEPLOYMENTS, object, 3, "/pods", &ODD_SHAPE).await;
    let created = cluster.count("create Pod");
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert!(undecodable(&daemon, "pods"));
    assert_eq!((pods(&cluster).len(), cluster.count("create Pod")), (3, created));
    // One more is missing, and no more than that are created.
    for _ in 0..2 {
        let gone = pods(&cluster).remove(0);
        delete_by_force(&cluster, &gone).await;
        cluster.eventually(240, "a deleted pod is replaced", |cluster| pods(cluster).len() == 3).await;
        tokio::time::sleep(Duration::from_secs(900)).await;
        assert_eq!(pods(&cluster).len(), 3);
    }
    cluster.patch("web", json!({"spec": {"replicas": 5}})).await;
    cluster.eventually(30, "a scale-up adds what is missing", |cluster| pods(cluster).len() == 5).await;
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(pods(&cluster).len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_with_pods_of_an_odd_shape_creates_none_beside_them() {
    let template = json!({"metadata": {"labels": {"app": "agent"}},
                          "spec": {"hostname": "oddshape", "containers": [{"name": "c", "image": "i:v1"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "agent"}}, "template": template});
    let object = json!({"metadata": {"name": "agent"}, "spec": spec});
    let nodes = Cluster::new().await.sandbox.objects("Node").len();
    assert!(nodes > 0);
    let (cluster, daemon) = with_damage(DAEMON_SETS, object, nodes, "/pods", &ODD_SHAPE).await;
    let created = cluster.count("create Pod");
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert!(undecodable(&daemon, "pods"));
    assert_eq!((pods(&cluster).len(), cluster.count("create Pod")), (nodes, created));
    let (_, text) = windlass_testkit::cluster::ask(&daemon.http, "/debug/daemonsets/shop/agent").await;
    assert!(text.contains("cannot be decoded"), "{text}");
    for pod in pods(&cluster) {
        delete_by_force(&cluster, &pod).await;
    }
    cluster.eventually(240, "each node has a pod again", |cluster| pods(cluster).len() == nodes).await;
    tokio::time::sleep(Duration::from_secs(900)).await;
    assert_eq!(pods(&cluster).len(), nodes);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_does_nothing_while_one_of_its_replica_sets_cannot_be_decoded() {
    let object = three(json!({}), json!({"minReadySeconds": 7}));
    let (cluster, daemon) = with_damage(DEPLOYMENTS, object, 3, "/replicasets", &ODD_JSON).await;
    cluster.set_image("web", "v2").await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(undecodable(&daemon, "replicasets"));
    assert_eq!((pods(&cluster).len(), cluster.objects("ReplicaSet").len()), (3, 1));
    // The Deployment has it copied.
    cluster.patch("web", json!({"spec": {"minReadySeconds": 8}})).await;
    let name = cluster.objects("ReplicaSet")[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let path = format!("/apis/apps/v1/namespaces/shop/replicasets/{name}");
    cluster.call(Method::PATCH, &path, &json!({"spec": {"minReadySeconds": 8}})).await;
    let image = |cluster: &Cluster| {
        pods(cluster)
            .iter()
            .all(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap().ends_with("v2"))
    };
    cluster.eventually(180, "the rollout goes on once it can be decoded", image).await;
}
