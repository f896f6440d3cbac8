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
use std::time::Duration;

use self::actors::Actors;
use self::judge::Judge;
use self::scenario::Scenario;
use super::daemon_sets::Outcome;
use super::invariants::Breach;

/// The API server of this simulation.
pub type Cluster = super::cluster::Cluster<Judge>;

/// Runs the history of a seed, with this bug planted, or none with "".
///
/// # Errors
/// When no runtime can be started.
pub fn run(seed: u64, bug: &'static str) -> std::io::Result<Outcome> {
    windlass::mutations::plant(bug);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let outcome = runtime.block_on(history(Scenario::new(seed)));
    windlass::mutations::plant("");
    Ok(outcome)
}

async fn history(scenario: Scenario) -> Outcome {
    let judge = Judge::new(scenario.delay, scenario.faults.staleness());
    let cluster = Cluster::new(scenario.seed, scenario.faults, judge);
    let mut actors = Actors::new(cluster.clone(), scenario.clone());
    actors.begin();
    if let Err(breach) = play(&scenario, &cluster, &mut actors).await {
        cluster.fail(breach);
    }
    actors.end();
    Outcome { failure: cluster.failure(), log: cluster.log() }
}

async fn play(scenario: &Scenario, cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    let mut last = Duration::ZERO;
    for (at, act) in &scenario.acts {
        tokio::time::sleep(at.saturating_sub(last)).await;
        last = *at;
        if cluster.failure().is_some() {
            return Ok(());
        }
        actors.act(act).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    convergence::converges(cluster, actors, scenario).await
}
