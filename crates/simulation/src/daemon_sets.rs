//! DaemonSets in a cluster whose nodes are added and removed: one seed, one history, judged by DS1 to DS21, and
//! under a policy by RP1 to RP6 and RP13 to RP15.
//!
//! The nodes are actors. Every request of a daemon is judged by [`judge`] with the state that [`cluster`] has found. At
//! the end the faults end, and [`convergence`] checks that each node has the pod that it should have.
//!
//! * [`scenario`]: what a seed draws; [`actors`]: carries it out.
//! * [`placement`]: on which nodes a DaemonSet runs, computed from the objects and in another way than by the
//!   controller.

pub mod actors;
pub mod cluster;
pub mod convergence;
pub mod judge;
pub mod placement;
pub mod scenario;

use std::sync::Arc;

use self::actors::Actors;
use self::judge::{Cluster, Judge};
use self::scenario::{Act, Scenario};
use crate::engine::breach::Breach;
use crate::engine::game::{Game, Nodes, Stage, Staged, Trial};
use crate::engine::outcome::Outcome;
use crate::engine::runner;

/// DaemonSets on nodes that come and go.
pub struct DaemonSets;

impl Game for DaemonSets {
    const NAME: &'static str = "daemon_sets";
    const BUGS: &'static [&'static str] = windlass::mutations::DAEMON_SET_BUGS;
    const RESOURCES: &'static [&'static str] = &["daemonsets", "controllerrevisions", "nodes", "pods"];
    const TRIAL: Trial = Trial { seeds: 0..15, once_failed: &[], planted: 0..100 };
    type Scenario = Scenario;

    fn run(scenario: &Scenario, record: bool) -> std::io::Result<Outcome> {
        runner::run::<Self>(scenario, record)
    }
}

impl Staged for DaemonSets {
    type Act = Act;
    type Judge = Judge;
    type Actors = Actors;

    fn stage(scenario: &Scenario) -> Stage<'_, Act> {
        let &Scenario { faults, ref acts, readiness, shutdown, .. } = scenario;
        Stage {
            faults,
            acts,
            nodes: Some(Nodes { count: scenario.nodes, readiness, shutdown, ..Nodes::default() }),
        }
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
        convergence::converges(cluster, actors, scenario.has_policy()).await
    }
}
