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
use self::judge::{Cluster, Judge};
use self::scenario::{Act, Scenario};
use crate::engine::breach::Breach;
use crate::engine::game::{Game, Nodes, Stage, Staged, Trial};
use crate::engine::outcome::Outcome;
use crate::engine::runner;

/// ReplicationControllers that are updated to each other.
pub struct RollingUpdates;

impl Game for RollingUpdates {
    const NAME: &'static str = "rolling_updates";
    const BUGS: &'static [&'static str] = windlass::mutations::ROLLING_UPDATE_BUGS;
    const RESOURCES: &'static [&'static str] = &["replicationcontrollers", "replicasets", "pods"];
    // Two updates of one controller resized it against each other (10), and what an earlier update had left on NEW stopped
    // the update of NEW itself (120), and an update that was refused because of a rival stayed so when the rival was gone
    // (400). The others are cases that the judges took for breaches: late requests (161), an OLD that is deleted while its
    // NEW is updated (96), two daemons at one instant (237), a NEW that is deleted midway by hand (373), two requests for
    // one controller (452), an OLD that was NEW before (604), and a NEW without its OLD that a client begins to update
    // itself (132).
    const TRIAL: Trial = Trial {
        seeds: 0..25,
        once_failed: &[10, 96, 120, 132, 161, 237, 373, 400, 452, 604, 1795903869618],
        planted: 0..100,
    };
    type Scenario = Scenario;

    fn run(scenario: &Scenario, record: bool) -> std::io::Result<Outcome> {
        runner::run::<Self>(scenario, record)
    }
}

impl Staged for RollingUpdates {
    type Act = Act;
    type Judge = Judge;
    type Actors = Actors;

    fn stage(scenario: &Scenario) -> Stage<'_, Act> {
        let &Scenario { faults, ref acts, readiness, shutdown, .. } = scenario;
        Stage { faults, acts, nodes: Some(Nodes { count: 2, readiness, shutdown, ..Nodes::default() }) }
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
