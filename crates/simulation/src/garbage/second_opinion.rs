//! The same history without faults, once with the collector of the daemon and once with the sweep of the API server
//! (`crates/apiserver/src/collect.rs`), which shares no code with it, watches nothing and remembers nothing: both must end
//! with the same objects.
//!
//! Each act comes after the collector has settled, so that users meet the same objects in both.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::actors::Actors;
use super::judge::{Cluster, Judge};
use super::scenario::Scenario;
use super::truth;
use crate::engine::game::Actors as _;
use crate::engine::objects::text;

/// How long a collector has for what an act has made necessary.
const SETTLES_IN: Duration = Duration::from_secs(45);

/// Which collector runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Collector {
    Daemon,
    Sweep,
}

/// Objects by kind, namespace and name: whether they are being deleted, their finalizers, and their owners.
type Picture = BTreeMap<String, Value>;

/// Plays the history of a seed with both. The first difference between the objects after an act, if there is one.
///
/// # Errors
/// When no runtime can be started.
pub fn disagree(seed: u64) -> std::io::Result<Option<String>> {
    let [ours, theirs] = [Collector::Daemon, Collector::Sweep].map(|collector| {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        std::io::Result::Ok(runtime.block_on(history(Scenario::without_faults(seed), collector)))
    });
    let (ours, theirs) = (ours?, theirs?);
    let differs = ours.iter().zip(&theirs).find(|(ours, theirs)| ours != theirs);
    Ok(differs.map(|((act, ours), (_, theirs))| {
        let keys: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
        let of = |picture: &Picture, key| picture.get(key).map_or("none".to_owned(), Value::to_string);
        let lines = keys.into_iter().filter(|key| ours.get(*key) != theirs.get(*key));
        let lines =
            lines.map(|key| format!("{key}: {}\n  after a sweep: {}", of(ours, key), of(theirs, key)));
        format!("after {act}\n{}", lines.collect::<Vec<_>>().join("\n"))
    }))
}

async fn history(scenario: Scenario, collector: Collector) -> Vec<(String, Picture)> {
    let judge = Judge::new(&scenario);
    let cluster = Cluster::new(scenario.seed, scenario.faults, judge, None, |options| {
        options.collect_after = (collector == Collector::Sweep).then_some(Duration::ZERO);
    });
    let mut actors = Actors::new(cluster.clone(), &scenario);
    match collector {
        Collector::Daemon => actors.begin().await,
        Collector::Sweep => actors.prepare().await,
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

fn picture(cluster: &Cluster) -> Picture {
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
