//! A CronJob over a clock change, with Jobs that expire and pods that are left behind: one seed, one history, judged by CJ1
//! to CJ8, TT1, TT2 and PG1 to PG3.
//!
//! The CronJob, TTL-after-finished and pod garbage collector controllers run together. No Job controller does: users end the
//! Jobs. Every request of a daemon is judged by [`judge`] with the objects as they are committed. At the end the faults
//! end, and [`convergence`] checks that each time runs and that nothing is left over.
//!
//! * [`scenario`]: what a seed draws; [`actors`]: carries it out.
//! * [`calendar`]: when a schedule is due, minute by minute, and so in another way than by the controller.

pub mod actors;
pub mod calendar;
pub mod convergence;
pub mod judge;
pub mod scenario;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use self::actors::Actors;
use self::judge::{Cluster, Judge};
use self::scenario::{Act, Scenario};
use crate::engine::breach::Breach;
use crate::engine::game::{Game, Nodes, Stage, Staged, Trial};
use crate::engine::outcome::Outcome;
use crate::engine::runner;

/// A CronJob, its Jobs, and pods on nodes that come and go.
pub struct CronJobs;

impl Game for CronJobs {
    const NAME: &'static str = "cron_jobs";
    const BUGS: &'static [&'static str] = &[];
    const RESOURCES: &'static [&'static str] = &["cronjobs", "jobs", "pods", "nodes"];
    const TRIAL: Trial = Trial { seeds: 0..15, once_failed: &[800166, 800544], planted: 0..0 };
    type Scenario = Scenario;

    fn run(scenario: &Scenario, record: bool) -> std::io::Result<Outcome> {
        runner::run::<Self>(scenario, record)
    }
}

impl Staged for CronJobs {
    type Act = Act;
    type Judge = Judge;
    type Actors = Actors;

    fn stage(scenario: &Scenario) -> Stage<'_, Act> {
        let &Scenario { faults, ref acts, .. } = scenario;
        // Users create the nodes.
        let nodes = Nodes { count: 0, garbage: Duration::from_millis(500), ..Nodes::default() };
        Stage { faults, acts, nodes: Some(nodes) }
    }

    fn begins(scenario: &Scenario) -> Timestamp {
        Timestamp::from_second(scenario.begins).unwrap_or_default()
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
