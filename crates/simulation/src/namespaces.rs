//! The namespace controller among users who delete namespaces and create them again: one seed, one history, judged by NS1
//! to NS9.
//!
//! Namespaces hold objects of four kinds, some of them kept by finalizers, and pods that take their time. Users' tokens
//! keep namespaces beside the controller's own. Requests of the controller may be lost or late, discovery or the lists of
//! a kind fail for a while, collections cannot be deleted at once, watches break, and the controller is killed. In half
//! of the histories the garbage collector runs beside it.
//!
//! * [`scenario`]: what a seed draws; [`actors`]: carries it out.
//! * [`truth`]: what a namespace holds, by the stored objects alone.
//! * [`judge`]: judges every write of the controller; [`convergence`]: what must hold after the faults.

pub mod actors;
pub mod convergence;
pub mod judge;
pub mod scenario;
pub mod truth;

use std::sync::Arc;

use self::actors::Actors;
use self::judge::{Cluster, Judge};
use self::scenario::{Act, Scenario};
use crate::engine::breach::Breach;
use crate::engine::game::{Game, Stage, Staged, Trial};
use crate::engine::outcome::Outcome;
use crate::engine::runner;

/// Namespaces that are deleted and created again.
pub struct Namespaces;

impl Game for Namespaces {
    const NAME: &'static str = "namespaces";
    const BUGS: &'static [&'static str] = windlass::mutations::NAMESPACE_BUGS;
    const RESOURCES: &'static [&'static str] =
        &["namespaces", "pods", "configmaps", "networkpolicies", "secrets"];
    const TRIAL: Trial = Trial { seeds: 0..25, once_failed: &[], planted: 0..60 };
    type Scenario = Scenario;

    fn run(scenario: &Scenario, record: bool) -> std::io::Result<Outcome> {
        runner::run::<Self>(scenario, record)
    }
}

impl Staged for Namespaces {
    type Act = Act;
    type Judge = Judge;
    type Actors = Actors;

    fn stage(scenario: &Scenario) -> Stage<'_, Act> {
        let &Scenario { faults, ref acts, .. } = scenario;
        Stage { faults, acts, nodes: None }
    }

    fn judge(scenario: &Scenario) -> Judge {
        Judge::new(scenario.delay, scenario.faults.staleness())
    }

    fn actors(cluster: &Arc<Cluster>, scenario: &Scenario) -> Actors {
        Actors::new(cluster.clone(), scenario)
    }

    async fn converge(
        cluster: &Arc<Cluster>,
        actors: &mut Actors,
        scenario: &Scenario,
    ) -> Result<(), Breach> {
        convergence::converges(cluster, actors, scenario).await
    }
}
