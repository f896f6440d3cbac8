//! What must hold once the faults have ended: GC6, GC7, GC12 and GC13.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::Cluster;
use super::actors::Actors;
use super::truth::{self, Truth};
use crate::invariants::{Breach, text};

/// By when everything is settled: the longest backoff, a few times over, for chains.
const PATIENCE: Duration = Duration::from_secs(600);

/// For how long a settled collector is watched.
const QUIET: Duration = Duration::from_secs(600);

/// Waits until what has no owner is gone and every deletion has ended, then checks that nothing is written any more.
///
/// # Errors
/// What has not converged.
pub async fn converges(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    cluster.say("the faults end");
    cluster.calm();
    cluster.with_judge(|judge| (judge.paths_lost_until, judge.broken) = (Duration::ZERO, None));
    let begun = cluster.elapsed();
    while let Err(breach) = settled(cluster) {
        if cluster.failure().is_some() {
            return Ok(());
        }
        if cluster.elapsed() - begun > PATIENCE {
            return Err(breach);
        }
        actors.release().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    cluster.say("settled");
    // For what is only retried.
    tokio::time::sleep(Duration::from_secs(180)).await;
    let writes = cluster.with_judge(|judge| judge.writes);
    cluster.break_watches(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    actors.crash().await;
    tokio::time::sleep(QUIET).await;
    match cluster.with_judge(|judge| judge.writes) - writes {
        0 => settled(cluster),
        more => Err(Breach::new("GC13", format!("{more} writes of a settled collector"))),
    }
}

fn settled(cluster: &Cluster) -> Result<(), Breach> {
    let all = truth::objects(&cluster.sandbox);
    for object in &all {
        let breach = |invariant, what: &str| {
            let refers = |other: &&Value| {
                truth::references(other).any(|reference| reference["uid"] == object["metadata"]["uid"])
            };
            let around = std::iter::once(object).chain(all.iter().filter(refers));
            let around: Vec<String> =
                around.map(|object| format!("{} {}", object["kind"], object["metadata"])).collect();
            let name = text(object, "/metadata/name");
            Err(Breach::new(invariant, format!("{} {name} {what}\n{}", object["kind"], around.join("\n"))))
        };
        if truth::is_deleting(object) {
            for (finalizer, invariant) in [("orphan", "GC6"), ("foregroundDeletion", "GC7")] {
                if truth::has_finalizer(object, finalizer) {
                    return breach(invariant, &format!("is still kept by {finalizer}"));
                }
            }
            continue;
        }
        let owners = truth::owners(object, &all);
        if owners.is_empty() {
            continue;
        }
        let gone: Vec<&Value> = truth::references(object)
            .zip(&owners)
            .filter(|(_, owner)| matches!(owner, Truth::Absent))
            .map(|(reference, _)| reference)
            .collect();
        if gone.len() == owners.len() {
            return breach("GC6", "has only owners that are gone");
        }
        if let Some(reference) = gone.first() {
            return breach("GC6", &format!("refers to an owner that is gone: {reference}"));
        }
    }
    Ok(())
}
