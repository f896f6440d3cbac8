//! A Job whose users, nodes and pods get into its way: one seed, one history, judged by JB1 to JB18.
//!
//! Every request of a daemon is judged by [`judge`] with the objects as they are committed. At the end the faults end, and
//! [`convergence`] checks that the Job finishes.
//!
//! * [`scenario`]: what a seed draws; [`actors`]: carries it out.
//! * [`facts`]: indexes, policies and limits, computed from the objects and in another way than by the controller.
//! * [`cluster`]: the state around a write.

pub mod actors;
pub mod cluster;
pub mod convergence;
pub mod facts;
pub mod judge;
pub mod scenario;

use std::sync::Arc;

use self::actors::Actors;
use self::judge::{Cluster, Judge};
use self::scenario::{Act, Scenario};
use crate::engine::breach::Breach;
use crate::engine::game::{Game, Nodes, Stage, Staged, Trial};
use crate::engine::outcome::Outcome;
use crate::engine::runner;

/// A Job with its pods.
pub struct Jobs;

impl Game for Jobs {
    const NAME: &'static str = "jobs";
    const BUGS: &'static [&'static str] = &[];
    const RESOURCES: &'static [&'static str] = &["jobs", "pods"];
    const TRIAL: Trial = Trial { seeds: 0..10, once_failed: &[2000082, 2000094, 2003349], planted: 0..0 };
    type Scenario = Scenario;

    fn run(scenario: &Scenario, record: bool) -> std::io::Result<Outcome> {
        runner::run::<Self>(scenario, record)
    }
}

impl Staged for Jobs {
    type Act = Act;
    type Judge = Judge;
    type Actors = Actors;

    fn stage(scenario: &Scenario) -> Stage<'_, Act> {
        let &Scenario { faults, ref acts, readiness, shutdown, garbage, .. } = scenario;
        let nodes = Nodes { count: 3, readiness, shutdown, volumes: false, garbage };
        Stage { faults, acts, nodes: Some(nodes) }
    }

    fn judge(scenario: &Scenario) -> Judge {
        Judge::new(scenario.faults)
    }

    fn actors(cluster: &Arc<Cluster>, scenario: &Scenario) -> Actors {
        Actors::new(cluster.clone(), scenario)
    }

    async fn converge(cluster: &Arc<Cluster>, actors: &mut Actors, _: &Scenario) -> Result<(), Breach> {
        convergence::converges(cluster, actors).await
    }
}
