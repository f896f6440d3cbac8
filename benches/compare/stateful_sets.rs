//! StatefulSets with a claim for each pod, created all at once and rolled: CPU time, calls and conflicts.

use std::time::Duration;

use http::Method;
use serde_json::json;
use windlass_testkit::controllers::Side;
use windlass_testkit::figures::{Figures, Goal, Row, Unit};
use windlass_testkit::process::Process;
use windlass_testkit::usage;

use crate::Options;
use crate::cluster::{Cluster, idle, template};
use crate::rows::{all_ready, end, say_calls};

const CONTROLLER: &str = "statefulset-controller";

/// Pods of each StatefulSet.
const FEW: usize = 10;

const PART_OF_CPU: Goal = Goal::Part(0.25);
const PART_OF_CALLS: Goal = Goal::Part(0.6);

const CREATED: Row = Row {
    name: "StatefulSets: CPU per pod, created and made ready",
    unit: Unit::Milliseconds,
    goal: PART_OF_CPU,
};
const ROLLED: Row = Row {
    name: "StatefulSets: CPU per pod, rolled to a new image",
    unit: Unit::Milliseconds,
    goal: PART_OF_CPU,
};
const CREATED_CALLS: Row =
    Row { name: "StatefulSets: calls, created", unit: Unit::Calls, goal: PART_OF_CALLS };
const ROLLED_CALLS: Row = Row { name: "StatefulSets: calls, rolled", unit: Unit::Calls, goal: PART_OF_CALLS };
const CONFLICTS: Row =
    Row { name: "StatefulSets: conflicts among both", unit: Unit::Calls, goal: Goal::AtMost(0.0) };

fn collection(namespace: &str) -> String {
    format!("/apis/apps/v1/namespaces/{namespace}/statefulsets")
}

async fn create(cluster: &Cluster, namespace: &str, name: &str, replicas: usize) {
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let object = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}}, "template": template(name), "volumeClaimTemplates": [claim],
        },
    });
    cluster.call(Method::POST, &collection(namespace), &object).await;
}

async fn finished(cluster: &Cluster, namespace: &str, pods: usize, image: &str, process: &Process) {
    all_ready(cluster, namespace, pods, image).await;
    cluster.complete(&collection(namespace)).await;
    idle(process).await;
}

/// The rows of one side, on a server of its own.
pub async fn measure(options: &Options, cluster: &Cluster, side: Side, figures: &mut Figures) {
    let process = cluster.start_controllers(side, CONTROLLER, false);
    cluster.namespace("first", 0..=0).await;
    create(cluster, "first", "first", 1).await;
    finished(cluster, "first", 1, "app:v1", &process).await;

    let pods = options.stateful_sets * FEW;
    let per_pod = |used: Duration| used.as_secs_f64() * 1000.0 / pods as f64;
    cluster.namespace("stateful", 0..=0).await;
    let (before, calls_before) = (usage::cpu(process.0.id()), cluster.calls(side));
    for number in 0..options.stateful_sets {
        create(cluster, "stateful", &format!("db-{number}"), FEW).await;
    }
    finished(cluster, "stateful", pods, "app:v1", &process).await;
    let (created, calls_created) = (usage::cpu(process.0.id()), cluster.calls(side));
    figures.add(CREATED, side, per_pod(created - before));
    let calls = calls_created.clone().since(&calls_before);
    say_calls(side, "StatefulSets created", &calls);
    figures.add(CREATED_CALLS, side, calls.all() as f64);

    for number in 0..options.stateful_sets {
        cluster.set_image(&collection("stateful"), &format!("db-{number}"), "app:v2").await;
    }
    finished(cluster, "stateful", pods, "app:v2", &process).await;
    figures.add(ROLLED, side, per_pod(usage::cpu(process.0.id()) - created));
    let all = cluster.calls(side);
    let calls = all.clone().since(&calls_created);
    say_calls(side, "StatefulSets rolled", &calls);
    figures.add(ROLLED_CALLS, side, calls.all() as f64);
    figures.add(CONFLICTS, side, all.since(&calls_before).conflicts as f64);

    end(process).await;
}
