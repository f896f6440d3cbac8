//! Deployments and ReplicaSets: the largest game. Its daemons are led by an election, their clocks may be wrong, and its
//! judge knows what the author of a write could know.
//!
//! * [`scenario`]: what a seed stands for, as a value: the daemons, the faults, and which actor does what at which
//!   time; [`draw`]: what a seed draws; [`crash_points`]: faults that begin with a certain write; [`bounds`]: what
//!   a file may say.
//! * [`server`]: what this game adds to the network.
//! * [`knowledge`]: what the author of a write could know.
//! * [`actors`]: carries out the acts of the scenario.
//! * [`daemons`]: starts, kills and restarts the controllers.
//! * [`objects`]: reads the objects of this game.
//! * [`invariants`]: the invariants over every committed write.
//! * [`oracle`]: what faults must not change.
//! * [`cost`]: how many calls one change of a Deployment may cost without faults.
//! * [`convergence`]: what must hold after the faults; [`settling`]: whether a cluster is settled; [`deadlines`]: what
//!   must happen in time; [`latency`]: what must happen at once; [`batches`]: how long one workload may wait for the
//!   batch of another; [`published`]: whether statuses are true; [`rollbacks`]: which template a rollback restores;
//!   [`frozen`]: what a frozen connection may delay; [`scale_downs`]: which of several similar pods are deleted.
//! * [`run`]: one history from its beginning to its verdict; [`exhaustive`]: all histories within small bounds.

pub mod actors;
pub mod batches;
pub mod bounds;
pub mod convergence;
pub mod cost;
pub mod crash_points;
pub mod daemons;
pub mod deadlines;
pub mod draw;
pub mod exhaustive;
pub mod frozen;
pub mod invariants;
pub mod knowledge;
pub mod latency;
pub mod objects;
pub mod oracle;
pub mod published;
pub mod rollbacks;
pub mod run;
pub mod scale_downs;
pub mod scenario;
pub mod server;
pub mod settling;

use self::scenario::Scenario;
use crate::engine::game::{Game, Trial};
use crate::engine::outcome::Outcome;

/// Deployments that are rolled out, scaled, paused and rolled back.
pub struct Deployments;

impl Game for Deployments {
    const NAME: &'static str = "deployments";
    const BUGS: &'static [&'static str] = windlass::mutations::BUGS;
    const RESOURCES: &'static [&'static str] = run::RESOURCES;
    // A history takes long.
    const TRIAL: Trial = Trial { seeds: 1..13, once_failed: &[], planted: 0..0 };
    type Scenario = Scenario;

    fn run(scenario: &Scenario, record: bool) -> std::io::Result<Outcome> {
        run::run(scenario, record)
    }
}
