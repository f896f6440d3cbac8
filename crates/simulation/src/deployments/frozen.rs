//! The delays that a frozen connection may cause where there are no other faults: L11.
//!
//! A load balancer, a node or a firewall that dies silently leaves a connection on which nothing arrives any more: no
//! event, no bookmark, and not the end of the watch either. What is judged here is how the informer reacts to that
//! silence. The connections themselves, their keep-alive and the replacement of dead ones are not judged: the
//! daemons' client is in this process, and the first request after the silence is lost as it would be there.

use std::time::Duration;

use super::actors::Actors;
use super::deadlines::time_of;
use super::objects::objects;
use super::scenario::Scenario;
use super::server::Server;
use super::settling::{is_settled, until};
use crate::engine::breach::Breach;

/// How long a connection may relay nothing before the informer notices.
const NOTICED: Duration = Duration::from_secs(45);

/// The resources over whose watches a connection freezes, one in each history.
const FROZEN: [&str; 3] = ["pods", "deployments", "replicasets"];

/// L11: a rollout whose watches have frozen continues within 45 s, and takes no longer from then on.
///
/// # Errors
/// When it takes longer.
pub async fn connection_is_replaced(
    scenario: &Scenario,
    server: &Server,
    actors: &Actors,
) -> Result<(), Breach> {
    let picture = server.picture();
    let rollout = objects(&picture, "deployments").map(|deployment| time_of(deployment, scenario)).max();
    let Some(rollout) = rollout else { return Ok(()) };
    let resource = FROZEN[usize::try_from(scenario.seed / 8 % 3).unwrap_or(0)];
    for daemon in 0..scenario.daemons {
        server.freeze(daemon, resource);
    }
    actors.images("thawed").await;
    tokio::time::sleep(NOTICED).await;
    until(server, actors, is_settled, rollout).await.map_err(|Breach { what, .. }| {
        let what = format!("the watches of {resource} froze {:?} ago: {what}", NOTICED + rollout);
        Breach::new("L11", what)
    })
}
