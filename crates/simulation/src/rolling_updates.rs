//! The rolling update of ReplicationControllers in the cluster, among users who interfere: one seed, one history, judged by
//! RU1 to RU12.
//!
//! Three ReplicationControllers are updated to each other by requests in annotations. The daemon runs the controllers of
//! ReplicationControllers and of rolling updates. Its requests may be lost, late or refused, watches break, it is killed
//! with any of its writes, and for a while two of it act. Users pause, resume, abort and roll back, scale, edit and delete
//! the controllers, break annotations, name strangers in requests, create rivals and quotas; their client is killed between its writes, or drives some
//! steps of an update itself. Pods fail, or never become ready.
//!
//! * [`scenario`]: what a seed draws; [`actors`]: carries it out, and [`afterwards`] what users do at the end; [`daemons`]: starts, kills and restarts the
//!   daemons.
//! * [`truth`]: what the stored objects say about an update, computed without the planner.
//! * [`judge`]: judges every write of the daemon: [`moves`] those of sizes, selectors and bookkeeping, [`reports`]
//!   conditions and events; [`convergence`]: what must hold after the faults.

pub mod actors;
pub mod afterwards;
pub mod convergence;
pub mod daemons;
pub mod judge;
pub mod moves;
pub mod reports;
pub mod scenario;
pub mod truth;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::actors::Actors;
use self::judge::Judge;
use self::scenario::{Cleanup, Scenario};
use super::daemon_sets::Outcome;
use super::invariants::Breach;
use windlass_nodes::kubelet;

/// The API server of this simulation.
pub type Cluster = super::cluster::Cluster<Judge>;

/// Runs the history of a seed, with this bug planted, or none with "".
///
/// # Errors
/// When no runtime can be started.
pub fn run(seed: u64, bug: &'static str) -> std::io::Result<Outcome> {
    play(Scenario::new(seed), bug)
}

/// Runs one update without other interference, in which the daemon is killed with its `nth` write: after it is carried
/// out, or before.
///
/// # Errors
/// When no runtime can be started.
pub fn run_with_crash(
    cleanup: Cleanup,
    takes_back: bool,
    nth: u32,
    is_carried_out: bool,
) -> std::io::Result<Outcome> {
    play(Scenario::with_crash(cleanup, takes_back, nth, is_carried_out), "")
}

fn play(scenario: Scenario, bug: &'static str) -> std::io::Result<Outcome> {
    windlass::mutations::plant(bug);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let outcome = runtime.block_on(history(scenario));
    windlass::mutations::plant("");
    Ok(outcome)
}

async fn history(scenario: Scenario) -> Outcome {
    let judge = Judge::new(scenario.faults.staleness());
    let cluster = Cluster::collecting(scenario.seed, scenario.faults, judge);
    let end = CancellationToken::new();
    let time = cluster.clock.clone();
    let options = kubelet::Options {
        nodes: 2,
        never_ready: regex_lite::Regex::new(":broken$").ok(),
        ready_delay: scenario.readiness,
        shutdown_delay: scenario.shutdown,
        events: false,
        ..kubelet::Options::new(Arc::new(move || time.now()))
    };
    let kubelets = tokio::spawn(kubelet::run(cluster.client("kubelet"), options, end.clone()));
    let mut actors = Actors::new(cluster.clone(), scenario.clone());
    actors.begin().await;
    if let Err(breach) = acts(&scenario, &cluster, &mut actors).await {
        cluster.fail(breach);
    }
    end.cancel();
    actors.end();
    drop(kubelets);
    Outcome { failure: cluster.failure(), log: cluster.log() }
}

async fn acts(scenario: &Scenario, cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    let mut last = Duration::ZERO;
    for (at, act) in &scenario.acts {
        actors.wait(at.saturating_sub(last)).await;
        last = *at;
        if cluster.failure().is_some() {
            return Ok(());
        }
        actors.act(act).await;
    }
    actors.wait(Duration::from_secs(5)).await;
    match scenario.is_single {
        true => convergence::ends(cluster, actors, scenario).await,
        false => convergence::converges(cluster, actors).await,
    }
}
