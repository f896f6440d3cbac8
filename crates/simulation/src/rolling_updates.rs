//! The rolling update of ReplicationControllers in the cluster, among users who interfere: one seed, one history, judged by
//! RU1 to RU12.
//!
//! Three ReplicationControllers are updated to each other by requests in annotations. The daemon runs the controllers of
//! ReplicationControllers and of rolling updates. Its requests may be lost, late or refused, watches break, it is killed
//! with any of its writes, and for a while two of it act. Users pause, resume, abort and roll back, scale, edit and delete
//! the controllers, break annotations, name strangers in requests, create rivals and quotas; their client is killed between its writes, or drives some
//! steps of an update itself. Pods fail, or never become ready.
//!
//! * [`scenario`]: what a seed draws; [`actors`]: carries it out, and [`afterwards`] what users do at the end.
//! * [`truth`]: what the stored objects say about an update, computed without the planner.
//! * [`judge`]: judges every write of the daemon: [`moves`] those of sizes, selectors and bookkeeping, [`reports`]
//!   conditions and events; [`convergence`]: what must hold after the faults.

pub mod actors;
pub mod afterwards;
pub mod convergence;
pub mod judge;
pub mod moves;
pub mod reports;
pub mod scenario;
pub mod truth;

use std::sync::Arc;

use self::actors::Actors;
use self::judge::Judge;
use self::scenario::{Act, Scenario};
use crate::engine::breach::Breach;
use crate::engine::game::{Game, Nodes, Stage, Staged, run_staged};
use crate::engine::network;
use crate::engine::runner::Outcome;

/// The API server of this simulation.
pub type Cluster = network::Cluster<Judge>;

/// ReplicationControllers that are updated to each other.
pub struct RollingUpdates;

impl Game for RollingUpdates {
    const NAME: &'static str = "rolling_updates";
    const BUGS: &'static [&'static str] = windlass::mutations::ROLLING_UPDATE_BUGS;
    const RESOURCES: &'static [&'static str] = &["replicationcontrollers", "replicasets", "pods"];
    type Scenario = Scenario;

    fn run(scenario: &Scenario, record: bool) -> std::io::Result<Outcome> {
        run_staged::<Self>(scenario, record)
    }
}

impl Staged for RollingUpdates {
    type Act = Act;
    type Judge = Judge;
    type Actors = Actors;

    fn stage(scenario: &Scenario) -> Stage<'_, Act> {
        let &Scenario { faults, ref acts, readiness, shutdown, .. } = scenario;
        Stage { faults, acts, nodes: Some(Nodes { count: 2, readiness, shutdown }) }
    }

    fn judge(scenario: &Scenario) -> Judge {
        Judge::new(scenario.faults.staleness())
    }

    fn actors(cluster: &Arc<Cluster>, scenario: &Scenario) -> Actors {
        Actors::new(cluster.clone(), scenario)
    }

    async fn converge(
        cluster: &Arc<Cluster>,
        actors: &mut Actors,
        scenario: &Scenario,
    ) -> Result<(), Breach> {
        match scenario.is_single {
            true => convergence::ends(cluster, actors, scenario).await,
            false => convergence::converges(cluster, actors).await,
        }
    }
}
