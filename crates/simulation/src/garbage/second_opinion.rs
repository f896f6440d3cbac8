//! The same history without faults, once with the collector of the daemon and once with that of the sandbox
//! (`crates/nodes`), which shares no code with it: both must end with the same objects.
//!
//! Each act comes after the collector has settled, so that users meet the same objects in both.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::Cluster;
use super::actors::Actors;
use super::judge::Judge;
use super::scenario::Scenario;
use super::truth;
use crate::invariants::text;
use windlass_nodes::{garbage, namespaces};

/// How long a collector has for what an act has made necessary.
const SETTLES_IN: Duration = Duration::from_secs(45);

/// Which collector runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collector {
    /// The daemon's.
    Daemon,
    /// The sandbox's.
    Sandbox,
}

/// The objects after each act, by kind, namespace and name: whether they are being deleted, their finalizers, and their
/// owners.
pub type Pictures = Vec<(String, BTreeMap<String, Value>)>;

/// Plays the history of a seed.
///
/// # Errors
/// When no runtime can be started.
pub fn play(seed: u64, collector: Collector) -> std::io::Result<Pictures> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(history(Scenario::without_faults(seed), collector)))
}

async fn history(scenario: Scenario, collector: Collector) -> Pictures {
    let judge = Judge::new(scenario.faults.staleness(), scenario.scope);
    let cluster = Arc::new(Cluster::new(scenario.seed, scenario.faults, judge));
    let mut actors = Actors::new(cluster.clone(), &scenario);
    let mut tasks = Vec::new();
    match collector {
        Collector::Daemon => actors.begin().await,
        Collector::Sandbox => {
            actors.prepare().await;
            let (time, end) = (cluster.clock.clone(), CancellationToken::new());
            let namespaces =
                namespaces::run(cluster.client("namespaces"), Arc::new(move || time.now()), end.clone());
            tasks.push(AbortOnDropHandle::new(tokio::spawn(namespaces)));
            let garbage = garbage::run(cluster.client("garbage"), end);
            tasks.push(AbortOnDropHandle::new(tokio::spawn(garbage)));
        }
    }
    let mut pictures = Vec::new();
    for (_, act) in &scenario.acts {
        tokio::time::sleep(SETTLES_IN).await;
        actors.act(act).await;
        tokio::time::sleep(SETTLES_IN).await;
        pictures.push((format!("{act:?}"), picture(&cluster)));
    }
    actors.end();
    pictures
}

fn picture(cluster: &Cluster) -> BTreeMap<String, Value> {
    let described = |object: Value| {
        let metadata = &object["metadata"];
        let owners: Vec<Value> = truth::references(&object)
            .map(|owner| json!([owner["kind"], owner["name"], owner["blockOwnerDeletion"] == true]))
            .collect();
        let finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
        let key = format!(
            "{} {}/{}",
            text(&object, "/kind"),
            text(metadata, "/namespace"),
            text(metadata, "/name")
        );
        (key, json!({"deleting": truth::is_deleting(&object), "finalizers": finalizers, "owners": owners}))
    };
    truth::objects(&cluster.sandbox).into_iter().map(described).collect()
}
