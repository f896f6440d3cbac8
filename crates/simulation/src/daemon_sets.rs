//! DaemonSets in a cluster whose nodes are added and removed: one seed, one history, judged by DS1 to DS21.
//!
//! A cluster of its own beside that of Deployments ([`super::run`]): the same API server, kubelets and collectors,
//! but the nodes are actors, too. Every request of a daemon passes through [`super::cluster`], where it may be lost or late,
//! is carried out at one instant, and is judged by [`judge`] with the state that [`cluster`] has found. At the end the faults end, and [`convergence`] checks
//! that each node has the pod that it should have.
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
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::actors::Actors;
use self::cluster::Cluster;
use self::judge::Judge;
use self::scenario::Scenario;
use super::invariants::Breach;
use windlass_nodes::kubelet;

/// How a history ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The first breach, if any.
    pub failure: Option<Breach>,
    /// The history, one line for each act and for each write of a daemon.
    pub log: Vec<String>,
}

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
    let judge = Judge::new(scenario.faults.staleness());
    let cluster = Cluster::collecting(scenario.seed, scenario.faults, judge);
    let end = CancellationToken::new();
    let time = cluster.clock.clone();
    let options = kubelet::Options {
        nodes: scenario.nodes,
        never_ready: regex_lite::Regex::new(":broken$").ok(),
        ready_delay: scenario.readiness,
        shutdown_delay: scenario.shutdown,
        events: false,
        ..kubelet::Options::new(Arc::new(move || time.now()))
    };
    let kubelets = tokio::spawn(kubelet::run(cluster.client("kubelet"), options, end.clone()));
    let mut actors = Actors::new(cluster.clone(), scenario.clone());
    actors.begin().await;
    let played = play(&scenario, &cluster, &mut actors).await;
    if let Err(breach) = played {
        cluster.fail(breach);
    }
    end.cancel();
    actors.end();
    drop(kubelets);
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
    convergence::converges(cluster, actors).await
}
