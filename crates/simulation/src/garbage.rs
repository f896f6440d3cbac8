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
//! * [`scenario`]: what a seed draws; [`actors`]: carries it out.
//! * [`truth`]: who owns whom, computed from the stored objects alone.
//! * [`judge`]: judges every write of the collector; [`convergence`]: what must hold after the faults.
//! * [`second_opinion`]: the end of a history without faults, by this collector and by a sweep of the store.

pub mod actors;
pub mod convergence;
pub mod judge;
pub mod scenario;
pub mod second_opinion;
pub mod truth;

use std::sync::Arc;
use std::time::Duration;

use self::actors::Actors;
use self::judge::Judge;
use self::scenario::{Act, KindFault, Scenario};
use self::truth::KINDS;
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
    let judge = Judge::new(&scenario);
    let cluster = Cluster::new(scenario.seed, scenario.faults, judge);
    let mut actors = Actors::new(cluster.clone(), &scenario);
    actors.begin().await;
    if let Err(breach) = play(&scenario, &cluster, &mut actors).await {
        cluster.fail(breach);
    }
    actors.end();
    Outcome { failure: cluster.failure(), log: cluster.log() }
}

async fn play(scenario: &Scenario, cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    let Scenario { scope, qps, is_calm, .. } = scenario;
    cluster.say(&format!("{scope:?}, {qps} requests per second, calm: {is_calm}"));
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
    if !is_calm && scenario.seed % 4 == 3 {
        // A kind that is down for longer than an orphaning deletion waits for it.
        let kind = (scenario.seed / 4 % KINDS.len() as u64) as usize;
        let fault = if scenario.seed % 8 == 3 { KindFault::Broken } else { KindFault::Lost };
        actors.act(&Act::OfKind(fault, kind, 240)).await;
        for number in 100..104 {
            actors.act(&Act::CreateAndDelete(number, "Orphan")).await;
            actors.act(&Act::Delete(number * 7, Some("Orphan"))).await;
        }
        tokio::time::sleep(Duration::from_secs(180)).await;
        if scenario.seed % 16 > 7 {
            // It has let go of them by now, and the kind is still down.
            actors.act(&Act::Crash).await;
            tokio::time::sleep(Duration::from_secs(90)).await;
        }
    }
    if !is_calm && scenario.seed % 4 == 1 {
        let kinds = [[0, 1], [1, 0], [0, 3], [2, 1]][(scenario.seed / 4 % 4) as usize];
        actors.act(&Act::BlockUnseen(200, kinds)).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
    convergence::converges(cluster, actors, scenario).await
}
