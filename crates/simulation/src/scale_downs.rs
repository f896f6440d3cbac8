//! S13 where pods are alike: a scale-down of pods that differ by the restarts of a container that runs once, and by
//! nothing that counts before it. The deletions are judged where every deletion is, by
//! [`invariants`](super::invariants).

use std::time::Duration;

use super::actors::Actors;
use super::convergence::objects;
use super::convergence::{is_at_rest, until};
use super::deadlines::{RESERVED, time_of};
use super::invariants::Breach;
use super::scenario::Scenario;
use super::server::Server;

/// How many pods each Deployment has before: more than there are nodes, so that some share one.
const BEFORE: u32 = 6;

/// How many it has after. Only what is deleted first is judged by all criteria: what follows at the same instant has
/// other neighbours.
const AFTER: u32 = 5;

/// Until pods that became ready a moment apart are of the same age on a logarithmic scale, more often than not.
const ALIKE: Duration = Duration::from_secs(80);

/// Has every Deployment lose a pod after containers that run once have restarted, in each pod more often than in the one before.
///
/// # Errors
/// When it does not come to rest, or what a monitor has found.
pub async fn restarts_decide_last(
    scenario: &Scenario,
    server: &Server,
    actors: &Actors,
) -> Result<(), Breach> {
    actors.add_sidecars(BEFORE).await;
    let picture = server.picture();
    let rollout = objects(&picture, "deployments").map(|deployment| time_of(deployment, scenario)).max();
    until(server, actors, is_at_rest, RESERVED + rollout.unwrap_or_default()).await?;
    tokio::time::sleep(ALIKE).await;
    actors.restart_what_runs_once().await;
    // Whoever decides has seen that.
    tokio::time::sleep(Duration::from_secs(1)).await;
    actors.size_all(AFTER).await;
    until(server, actors, is_at_rest, RESERVED).await
}
