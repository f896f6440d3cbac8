//! Runs one history, from its beginning to its verdict.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::breach::Breach;
use super::game::{Actors as _, Nodes, Scenario as _, Stage, Staged};
use super::network::{Cluster, Judge};
use super::outcome::Outcome;
use windlass_nodes::kubelet;

/// Runs a scenario of a game in the engine's own cluster.
///
/// # Errors
/// When the simulation itself panics, or no runtime can be started.
pub fn run<G: Staged>(scenario: &G::Scenario, record: bool) -> io::Result<Outcome> {
    alone(scenario.seed(), scenario.bug(), || history::<G>(scenario, record))
}

/// Runs a history on a runtime of its own, with this bug planted, or none with "".
///
/// # Errors
/// When the simulation itself panics, or no runtime can be started.
pub fn alone<T, F: Future<Output = T>>(
    seed: u64,
    bug: &'static str,
    history: impl FnOnce() -> F,
) -> io::Result<T> {
    windlass::mutations::plant(bug);
    let ended = naming_the_seed(seed, || {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        Ok(runtime.block_on(history()))
    });
    windlass::mutations::plant("");
    ended
}

/// A panic here is a bug of the simulation: panics of the daemons' tasks are caught. Histories share no state, so a
/// panic affects no other history.
fn naming_the_seed<T>(seed: u64, history: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(history)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        Err(io::Error::other(format!("seed {seed}: the simulation panicked: {text}")))
    })
}

async fn history<G: Staged>(scenario: &G::Scenario, record: bool) -> Outcome {
    let stage = G::stage(scenario);
    let judge = G::judge(scenario);
    let shown = record.then_some(G::RESOURCES);
    let (begins, seed) = (G::begins(scenario), scenario.seed());
    let cluster = Cluster::beginning(begins, seed, stage.faults, judge, shown, |options| {
        options.collect_after = stage.nodes.as_ref().map(|nodes| nodes.garbage);
    });
    let nodes =
        stage.nodes.as_ref().map(|nodes| AbortOnDropHandle::new(tokio::spawn(kubelets(nodes, &cluster))));
    let mut actors = G::actors(&cluster, scenario);
    actors.begin().await;
    if let Err(breach) = play::<G>(&stage, scenario, &cluster, &mut actors).await {
        cluster.fail(breach);
    }
    actors.end();
    drop(nodes);
    cluster.outcome()
}

async fn play<G: Staged>(
    stage: &Stage<'_, G::Act>,
    scenario: &G::Scenario,
    cluster: &Arc<Cluster<G::Judge>>,
    actors: &mut G::Actors,
) -> Result<(), Breach> {
    let mut last = Duration::ZERO;
    for (at, act) in stage.acts {
        actors.wait(at.saturating_sub(last)).await;
        last = *at;
        if cluster.is_over() {
            return Ok(());
        }
        actors.act(act).await;
    }
    actors.wait(Duration::from_secs(5)).await;
    G::converge(cluster, actors, scenario).await
}

/// Runs the nodes.
pub fn kubelets<J: Judge>(nodes: &Nodes, cluster: &Arc<Cluster<J>>) -> impl Future<Output = ()> + use<J> {
    let time = cluster.clock.clone();
    let options = kubelet::Options {
        nodes: nodes.count,
        never_ready: regex_lite::Regex::new(":broken$").ok(),
        ready_delay: nodes.readiness,
        shutdown_delay: nodes.shutdown,
        volumes: nodes.volumes,
        events: false,
        ..kubelet::Options::new(Arc::new(move || time.now()))
    };
    kubelet::run(cluster.client("kubelet"), options, CancellationToken::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_the_simulation_is_an_error_that_names_the_seed() {
        let error = naming_the_seed(7, || -> io::Result<()> { panic!("no {}", "pods") }).unwrap_err();
        assert_eq!(error.to_string(), "seed 7: the simulation panicked: no pods");
    }
}
