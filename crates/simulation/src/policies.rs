//! A Deployment under a rollout policy: one seed, one history, judged by RP2 to RP14.
//!
//! Users roll out images that work and images that do not, approve, abort and retry with right and wrong revisions, change the
//! policy, write values that cannot be read, bypass it, and scale as an autoscaler does. An agent applies again what has failed.
//! Somebody copies, forges and loses the state of a rollout. In some seeds a pod fits a node only in the place of another. The
//! daemon is killed, requests are lost, late or refused, and for a while two daemons act.
//!
//! * [`scenario`]: what a seed draws; [`actors`]: carries it out.
//! * [`terms`]: what a policy allows, read from the annotations and in another way than by the controller.
//! * [`judge`]: judges every write of a daemon; [`convergence`]: what must hold after the faults.

pub mod actors;
pub mod convergence;
pub mod judge;
pub mod scenario;
pub mod terms;

use std::sync::Arc;

use self::actors::Actors;
use self::judge::{Cluster, Judge};
use self::scenario::{Act, Scenario};
use crate::engine::breach::Breach;
use crate::engine::game::{Game, Nodes, Stage, Staged, Trial};
use crate::engine::outcome::Outcome;
use crate::engine::runner;

/// A Deployment under a rollout policy.
pub struct Policies;

impl Game for Policies {
    const NAME: &'static str = "policies";
    const BUGS: &'static [&'static str] = &[];
    const RESOURCES: &'static [&'static str] = &["deployments", "replicasets", "pods"];
    const TRIAL: Trial = Trial { seeds: 0..20, once_failed: &[], planted: 0..0 };
    type Scenario = Scenario;

    fn run(scenario: &Scenario, record: bool) -> std::io::Result<Outcome> {
        runner::run::<Self>(scenario, record)
    }
}

impl Staged for Policies {
    type Act = Act;
    type Judge = Judge;
    type Actors = Actors;

    fn stage(scenario: &Scenario) -> Stage<'_, Act> {
        let &Scenario { faults, ref acts, readiness, shutdown, is_cramped, .. } = scenario;
        let count = if is_cramped { actors::REPLICAS } else { 3 };
        Stage { faults, acts, nodes: Some(Nodes { count, readiness, shutdown, ..Nodes::default() }) }
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
        convergence::converges(cluster, actors, scenario.has_agent()).await
    }
}
