//! How long the batch of one workload may delay another, where there are no faults: L12.
//!
//! The daemons have no rate limit elsewhere, so that a history takes no longer than it must. Here they are restarted
//! with a rate limit that is slow enough to show which request waits for which.

use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::objects::{controller, objects};
use super::scenario::Act;
use super::server::Server;
use super::settling::{is_settled, until};
use crate::engine::breach::Breach;
use crate::engine::objects::{Picture, is_deleting, number, text};

/// Requests per second, and the burst. 32 pods, as many as a daemon creates at a time, take six seconds.
const RATE: (f64, u32) = (5.0, 10);

/// The number of pods in the batch.
const BATCH: u32 = 70;

/// When the requests of the batch wait in the rate limiter: after the burst and the slow start.
const QUEUED: Duration = Duration::from_secs(6);

/// How long a write may wait for the batch of another workload.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The interval between two checks.
const STEP: Duration = Duration::from_millis(50);

/// Until stopped daemons have ended, run again and lead, and their last events are written.
const RESTART: Duration = Duration::from_secs(60);

/// How long a rollout takes with this rate.
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(240);

/// The Deployment with many pods, and the one that must not wait for them.
const LARGE: &str = "large";
const SMALL: &str = "small";

/// L12: while one Deployment gets many pods, another gets its new ReplicaSet and a pod without delay.
///
/// # Errors
/// When one of them takes longer than a second.
pub async fn delay_no_other_workload(server: &Server, actors: &Actors) -> Result<(), Breach> {
    server.limit(Some(RATE));
    actors.restart();
    tokio::time::sleep(RESTART).await;
    for name in [LARGE, SMALL] {
        actors.act(&Act::Create { name, replicas: 1, surge: 1, unavailable: 0, recreate: false }).await;
    }
    until(server, actors, is_settled, ROLLOUT_TIMEOUT).await?;
    // The token buckets are full again.
    tokio::time::sleep(Duration::from_secs(10)).await;
    actors.act(&Act::Scale { name: LARGE, replicas: BATCH }).await;
    tokio::time::sleep(QUEUED).await;
    let before = server.picture();
    actors.act(&Act::Image { name: SMALL, tag: 12 }).await;
    within(server, "has no ReplicaSet for its new template", |now| new_replica_set(&before, now).is_some())
        .await?;
    within(server, "has no pod of its new template", |now| {
        new_replica_set(&before, now).is_some_and(|replica_set| pods_of(now, replica_set) > 0)
    })
    .await?;
    let created =
        replica_set_of(&before, LARGE).map_or(0, |replica_set| pods_of(&server.picture(), replica_set));
    if created >= BATCH as usize && !server.is_over() {
        return Err(Breach::new("the simulation", "the batch ended before another write could wait for it"));
    }
    until(server, actors, is_settled, ROLLOUT_TIMEOUT).await?;
    for name in [LARGE, SMALL] {
        actors.act(&Act::Delete { name, policy: "Background" }).await;
    }
    server.limit(None);
    actors.restart();
    tokio::time::sleep(RESTART).await;
    until(server, actors, is_settled, ROLLOUT_TIMEOUT).await
}

/// Waits until `is_so` holds, for no longer than a write may wait.
async fn within(server: &Server, unless: &str, is_so: impl Fn(&Picture) -> bool) -> Result<(), Breach> {
    let mut waited = Duration::ZERO;
    while !is_so(&server.picture()) && !server.is_over() {
        if waited > LONGEST_WAIT {
            let what = format!("{SMALL} {unless} after {waited:?}, while {LARGE} gets {BATCH} pods");
            return Err(Breach::new("L12", what));
        }
        tokio::time::sleep(STEP).await;
        waited += STEP;
    }
    Ok(())
}

/// A ReplicaSet of the small Deployment that did not exist before.
fn new_replica_set<'p>(before: &Picture, now: &'p Picture) -> Option<&'p Value> {
    let old = replica_set_of(before, SMALL).map_or("", |replica_set| text(replica_set, "/metadata/uid"));
    let owner = deployment(now, SMALL)?;
    replica_sets_of(now, owner).find(|replica_set| text(replica_set, "/metadata/uid") != old)
}

/// A ReplicaSet of this Deployment that wants pods.
fn replica_set_of<'p>(picture: &'p Picture, name: &str) -> Option<&'p Value> {
    let owner = deployment(picture, name)?;
    replica_sets_of(picture, owner).find(|replica_set| number(replica_set, "/spec/replicas") > 0)
}

fn deployment<'p>(picture: &'p Picture, name: &str) -> Option<&'p Value> {
    objects(picture, "deployments").find(|deployment| text(deployment, "/metadata/name") == name)
}

fn replica_sets_of<'p>(picture: &'p Picture, owner: &Value) -> impl Iterator<Item = &'p Value> {
    let uid = text(owner, "/metadata/uid").to_owned();
    objects(picture, "replicasets")
        .filter(move |replica_set| controller(replica_set) == uid && !is_deleting(replica_set))
}

fn pods_of(picture: &Picture, replica_set: &Value) -> usize {
    let uid = text(replica_set, "/metadata/uid");
    objects(picture, "pods").filter(|pod| controller(pod) == uid).count()
}
