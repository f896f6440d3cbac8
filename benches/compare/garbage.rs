//! The garbage collector among many objects: what it costs to know them, and to delete the dependents of one.

use std::time::Duration;

use futures::StreamExt as _;
use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_testkit::controllers::Side;
use windlass_testkit::figures::{Figures, Goal, Row, Unit};
use windlass_testkit::usage;

use crate::cluster::{Cluster, STEP_TIMEOUT, idle};
use crate::rows::{end, megabytes};
use crate::{Options, say};

const CONTROLLER: &str = "garbage-collector-controller";

/// The namespace of the ConfigMaps.
const NAMESPACE: &str = "garbage";

/// How many dependents the deleted owner has.
const DEPENDENTS: usize = 1000;

/// How many objects are created at a time.
const AT_ONCE: usize = 50;

const FIRST: Row = Row { name: "collector: start to first deletion", unit: Unit::Seconds, goal: Goal::None };
const START_CPU: Row = Row { name: "collector: CPU of a start", unit: Unit::Seconds, goal: Goal::None };
const MEMORY: Row = Row { name: "collector: resident memory", unit: Unit::Megabytes, goal: Goal::None };
const CASCADE: Row =
    Row { name: "collector: 1,000 dependents are gone", unit: Unit::Seconds, goal: Goal::None };
const CPU: Row = Row { name: "collector: CPU per dependent", unit: Unit::Milliseconds, goal: Goal::None };

fn collection() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps")
}

/// Creates the ConfigMaps that nobody owns.
pub async fn fill(options: &Options, cluster: &Cluster) {
    say(&format!("creating {} ConfigMaps", options.config_maps));
    cluster.namespace(NAMESPACE, 0..=0).await;
    let names = (0..options.config_maps).map(|number| format!("quiet-{number}"));
    create(cluster, names, &json!({})).await;
}

async fn create(cluster: &Cluster, names: impl Iterator<Item = String>, metadata: &Value) {
    let path = collection();
    let calls = names.map(|name| {
        let mut body =
            json!({"metadata": metadata, "data": {"key": "the value of a setting of some program"}});
        body["metadata"]["name"] = name.into();
        let path = &path;
        async move { cluster.call(Method::POST, path, &body).await }
    });
    futures::stream::iter(calls).buffer_unordered(AT_ONCE).for_each(|_| std::future::ready(())).await;
}

/// Creates an owner with dependents, deletes it, and waits until the dependents are gone. How long that took.
async fn cascade(cluster: &Cluster, name: &str, dependents: usize) -> Duration {
    let owner = cluster.call(Method::POST, &collection(), &json!({"metadata": {"name": name}})).await;
    let reference =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"]});
    let metadata = json!({"labels": {"of": name}, "ownerReferences": [reference]});
    create(cluster, (0..dependents).map(|number| format!("{name}-{number}")), &metadata).await;
    let begun = Instant::now();
    let background = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    cluster.call(Method::DELETE, &format!("{}/{name}", collection()), &background).await;
    let left = format!("{}?labelSelector=of%3D{name}&limit=1", collection());
    loop {
        let list = cluster.call(Method::GET, &left, &Value::Null).await;
        if list["items"].as_array().is_none_or(Vec::is_empty) {
            return begun.elapsed();
        }
        assert!(begun.elapsed() < STEP_TIMEOUT, "the dependents of {name} are not collected");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The rows of one side.
pub async fn measure(cluster: &Cluster, side: Side, round: u32, figures: &mut Figures) {
    let begun = Instant::now();
    let process = cluster.start_controllers(side, CONTROLLER, false);
    cascade(cluster, &format!("{}-first-{round}", side.name()), 1).await;
    figures.add(FIRST, side, begun.elapsed().as_secs_f64());
    idle(&process).await;
    let started = usage::cpu(process.0.id());
    figures.add(START_CPU, side, started.as_secs_f64());
    figures.add(MEMORY, side, megabytes(&process));
    let took = cascade(cluster, &format!("{}-{round}", side.name()), DEPENDENTS).await;
    figures.add(CASCADE, side, took.as_secs_f64());
    idle(&process).await;
    let used = usage::cpu(process.0.id()) - started;
    figures.add(CPU, side, used.as_secs_f64() * 1000.0 / DEPENDENTS as f64);
    end(process).await;
}
