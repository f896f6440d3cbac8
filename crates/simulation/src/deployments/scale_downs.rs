//! S13 for similar pods: a scale-down of pods that differ only by the restarts of an init container. The deletions
//! are judged like all others by [`invariants`](super::invariants).

use std::time::Duration;

use super::actors::Actors;
use super::deadlines::{RESERVED, time_of};
use super::objects::objects;
use super::scenario::Scenario;
use super::server::Server;
use super::settling::{is_settled, until};
use crate::engine::breach::Breach;

/// The size of each Deployment before: more pods than nodes, so that some share a node.
const BEFORE: u32 = 6;

/// The size after. Only the first deletion is judged by all criteria: for later ones at the same instant the number
/// of pods per node has changed.
const AFTER: u32 = 5;

/// After this time, pods that became ready a moment apart usually have the same age on a logarithmic scale.
const ALIKE: Duration = Duration::from_secs(80);

/// Scales every Deployment down by one pod after init containers have restarted, in each pod more often than in the
/// one before.
///
/// # Errors
/// When it does not converge, or an invariant breaks.
pub async fn restart_count_breaks_ties(
    scenario: &Scenario,
    server: &Server,
    actors: &Actors,
) -> Result<(), Breach> {
    actors.add_sidecars(BEFORE).await;
    let picture = server.picture();
    let rollout = objects(&picture, "deployments").map(|deployment| time_of(deployment, scenario)).max();
    until(server, actors, is_settled, RESERVED + rollout.unwrap_or_default()).await?;
    tokio::time::sleep(ALIKE).await;
    actors.restart_what_runs_once().await;
    // The daemons have seen the restarts.
    tokio::time::sleep(Duration::from_secs(1)).await;
    actors.size_all(AFTER).await;
    until(server, actors, is_settled, RESERVED).await
}
