//! The garbage collector among users who give objects wrong owners and change their minds: one seed, one history, judged by
//! GC1 to GC15.
//!
//! Objects of two namespaced kinds, of a cluster-scoped one and of one that comes and goes own each other, by references of
//! which some name another kind, name or namespace, nobody, or the object itself. Requests of the collector may be lost or
//! late. Paths are not found for a while. The lists of a kind fail or get no answer, and its watch lags behind the others.
//! Discovery lacks a group, is empty or fails. Watches break. An object gets another owner while it is read. The collector is
//! killed, two of them act at a time, and etcd goes back to an earlier state. Some look after a part of all kinds, or after
//! one namespace. A fourth of the histories has no faults: there the bounds are strict.
//!
//! * [`scenario`]: what a seed draws; [`actors`]: carries it out, by [`requests`].
//! * [`truth`]: who owns whom, computed from the stored objects alone.
//! * [`judge`]: judges every write of the collector; [`convergence`]: what must hold after the faults.
//! * [`second_opinion`]: the end of a history without faults, by this collector and by a sweep of the store.

pub mod actors;
pub mod convergence;
pub mod judge;
pub mod requests;
pub mod scenario;
pub mod second_opinion;
pub mod truth;

use std::sync::Arc;

use self::actors::Actors;
use self::judge::{Cluster, Judge};
use self::scenario::{Act, Scenario};
use crate::engine::breach::Breach;
use crate::engine::game::{Game, Stage, Staged, Trial};
use crate::engine::outcome::Outcome;
use crate::engine::runner;

/// Objects that own each other.
pub struct Garbage;

impl Game for Garbage {
    const NAME: &'static str = "garbage";
    const BUGS: &'static [&'static str] = windlass::mutations::GARBAGE_BUGS;
    const RESOURCES: &'static [&'static str] = &["configmaps", "secrets", "clusterroles", "gadgets"];
    // 10: a cluster-scoped object lost its reference to an owner that was kept after an orphaning deletion. 283: a reference
    // was corrected while its owner was asked for, and the answer counted for the new one. 278 and 296: a kind that is not
    // watched, and one that a disputed UID is of, was served again, and nothing that refers to it was looked at. 285 and
    // 355 are cases that the judges took for breaches, as is 1055. 172 and 1076: a restored etcd undid a deletion, and
    // nobody looked at the object again. 201: a reference was corrected after its owner had been asked for, and was removed.
    const TRIAL: Trial = Trial {
        seeds: 0..25,
        once_failed: &[10, 172, 201, 278, 283, 285, 296, 355, 1055, 1076],
        planted: 0..100,
    };
    type Scenario = Scenario;

    fn run(scenario: &Scenario, record: bool) -> std::io::Result<Outcome> {
        runner::run::<Self>(scenario, record)
    }
}

impl Staged for Garbage {
    type Act = Act;
    type Judge = Judge;
    type Actors = Actors;

    fn stage(scenario: &Scenario) -> Stage<'_, Act> {
        let &Scenario { faults, ref acts, .. } = scenario;
        Stage { faults, acts, nodes: None }
    }

    fn judge(scenario: &Scenario) -> Judge {
        Judge::new(scenario)
    }

    fn actors(cluster: &Arc<Cluster>, scenario: &Scenario) -> Actors {
        Actors::new(cluster.clone(), scenario)
    }

    async fn converge(
        cluster: &Arc<Cluster>,
        actors: &mut Actors,
        scenario: &Scenario,
    ) -> Result<(), Breach> {
        convergence::outlasts_faults(actors, scenario).await;
        convergence::converges(cluster, actors, scenario).await
    }
}
