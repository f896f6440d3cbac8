//! Everything on: all controllers of kube-controller-manager beside all of Windlass', on an empty cluster and with
//! Services whose pods are endpoints. Upstream runs some forty controllers, Windlass the ones that a test bed needs.

use std::time::Duration;

use http::Method;
use kube::Client;
use serde_json::{Value, json};
use windlass::clock::Clock;
use windlass_testkit::controllers::Side;
use windlass_testkit::figures::{Figures, Goal, Row, Unit};
use windlass_testkit::usage;

use crate::Options;
use crate::cluster::{Cluster, NODE, STEP_TIMEOUT, deployments, idle, request};
use crate::rows::{all_ready, end, megabytes, say_calls};

/// Pods of each Service.
const FEW: usize = 10;

/// How long the processes do nothing in the row about it.
const QUIET: Duration = Duration::from_secs(30);

const PART_OF_MEMORY: Goal = Goal::Part(0.2);
const PART_OF_CPU: Goal = Goal::Part(1.0 / 3.0);

const EMPTY: Row = row("all controllers: resident memory, empty", Unit::Megabytes, PART_OF_MEMORY);
const EMPTY_CPU: Row = row("all controllers: CPU in 30 s, empty", Unit::Milliseconds, PART_OF_CPU);
const FULL: Row = row("all controllers: resident memory, full", Unit::Megabytes, PART_OF_MEMORY);
const FULL_CPU: Row = row("all controllers: CPU in 30 s, full", Unit::Milliseconds, PART_OF_CPU);
const CREATED: Row = row("all controllers: CPU per pod, created", Unit::Milliseconds, PART_OF_CPU);
const ROLLED: Row = row("all controllers: CPU per pod, rolled", Unit::Milliseconds, PART_OF_CPU);
const CALLS: Row = row("all controllers: calls for both", Unit::Calls, Goal::None);

const fn row(name: &'static str, unit: Unit, goal: Goal) -> Row {
    Row { name, unit, goal }
}

/// The rows of one side, on a server of its own.
pub async fn measure(options: &Options, cluster: &Cluster, side: Side, figures: &mut Figures) {
    let node = tokio::spawn(keep_node_alive(cluster.client()));
    let process = cluster.start_all_controllers(side);
    let (used, quiet) = (|| usage::cpu(process.0.id()), || tokio::time::sleep(QUIET));
    let milliseconds = |used: Duration| used.as_secs_f64() * 1000.0;
    cluster.namespace("shop", 0..=0).await;
    idle(&process).await;
    let before = used();
    quiet().await;
    figures.add(EMPTY_CPU, side, milliseconds(used() - before));
    figures.add(EMPTY, side, megabytes(&process));

    let pods = options.services * FEW;
    let (before, calls_before) = (used(), cluster.calls(side));
    let rolling = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
    for name in names(options) {
        let service = json!({"metadata": {"name": name}, "spec": {
            "selector": {"app": name}, "ports": [{"port": 80}]}});
        cluster.call(Method::POST, "/api/v1/namespaces/shop/services", &service).await;
        cluster.create("shop", &name, FEW, &rolling).await;
    }
    settled(cluster, pods, "app:v1").await;
    idle(&process).await;
    let created = used();
    figures.add(CREATED, side, milliseconds(created - before) / pods as f64);
    quiet().await;
    let quiet_after = used();
    figures.add(FULL_CPU, side, milliseconds(quiet_after - created));
    figures.add(FULL, side, megabytes(&process));

    for name in names(options) {
        cluster.set_image(&deployments("shop"), &name, "app:v2").await;
    }
    settled(cluster, pods, "app:v2").await;
    idle(&process).await;
    figures.add(ROLLED, side, milliseconds(used() - quiet_after) / pods as f64);
    let calls = cluster.calls(side).since(&calls_before);
    say_calls(side, "all controllers", &calls);
    figures.add(CALLS, side, calls.all() as f64);
    end(process).await;
    node.abort();
}

fn names(options: &Options) -> impl Iterator<Item = String> {
    (0..options.services).map(|number| format!("web-{number}"))
}

/// Waits until all pods are ready, and endpoints of their Services.
async fn settled(cluster: &Cluster, pods: usize, image: &str) {
    all_ready(cluster, "shop", pods, image).await;
    cluster.complete(&deployments("shop")).await;
    let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
    let settled = async {
        loop {
            let list = cluster.call(Method::GET, slices, &Value::Null).await;
            let slices = list["items"].as_array().unwrap();
            let endpoints = slices.iter().filter_map(|slice| slice["endpoints"].as_array()).flatten();
            if endpoints.filter(|one| one["conditions"]["ready"] == true).count() == pods {
                return;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(STEP_TIMEOUT, settled).await.expect("every ready pod is an endpoint");
}

/// A node without a Lease, as kubelets before 1.14 were: its status is its sign of life.
async fn keep_node_alive(client: Client) {
    let node = json!({"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": NODE}}});
    let created = client.request::<Value>(request(Method::POST, "/api/v1/nodes", &node)).await;
    created.expect("the node is created");
    loop {
        let now = jiff::Timestamp::from_second(Clock::System.now().as_second()).unwrap().to_string();
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady",
                           "lastHeartbeatTime": now, "lastTransitionTime": now});
        let status = json!({"status": {"conditions": [ready]}});
        let path = format!("/api/v1/nodes/{NODE}/status");
        let reported = client.request::<Value>(request(Method::PATCH, &path, &status)).await;
        reported.expect("the node reports");
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}
