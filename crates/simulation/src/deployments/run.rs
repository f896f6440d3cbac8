//! One history from its beginning to its verdict.

use std::time::Duration;

use tokio::task::JoinSet;

use super::actors::Actors;
use super::cost::ChangeCost;
use super::oracle::{self, Ending};
use super::scenario::Scenario;
use super::server::{Judge, Server};
use super::settling::until_settled;
use super::{convergence, daemons};
use crate::engine::breach::Breach;
use crate::engine::game::Nodes;
use crate::engine::network::Faults;
use crate::engine::objects::NAMESPACE;
use crate::engine::outcome::Outcome;
use crate::engine::runner::{alone, kubelets};

/// The resources that a transcript shows.
pub const RESOURCES: &[&str] = &["deployments", "replicasets", "pods"];

/// Runs a scenario on a runtime of its own. `record` keeps the log.
///
/// # Errors
/// When the simulation itself panics, or no runtime can be started.
pub fn run(scenario: &Scenario, record: bool) -> std::io::Result<Outcome> {
    let (mut outcome, ending) = alone(scenario.seed, scenario.bug, || history(scenario, record))?;
    if outcome.failure.is_none() && oracle::applies(scenario) {
        let calm = oracle::without_faults(scenario);
        if calm != *scenario {
            let (owed, owed_ending) = alone(calm.seed, calm.bug, || history(&calm, false))?;
            outcome.requests += owed.requests;
            outcome.lasted += owed.lasted;
            outcome.busy += owed.busy;
            outcome.failure = match owed.failure {
                // Nothing to compare with. Without its faults the history is shorter, too.
                Some(Breach { invariant, what }) => {
                    Some(Breach { invariant, what: format!("without the faults: {what}") })
                }
                None => oracle::compare(&owed_ending, &ending).err(),
            };
        }
    }
    Ok(outcome)
}

pub(super) async fn history(scenario: &Scenario, record: bool) -> (Outcome, Ending) {
    let record = record.then_some(RESOURCES);
    // It has faults of its own.
    let server = Server::new(scenario.seed, Faults::default(), Judge::new(scenario), record, |options| {
        options.streaming_lists = scenario.streaming_lists;
        // As often as a real API server.
        options.bookmark_interval = Duration::from_secs(60);
        options.collect_after = Some(Duration::ZERO);
    });
    let mut tasks = JoinSet::new();
    let &Scenario { readiness, shutdown, .. } = scenario;
    tasks.spawn(named(
        "the kubelet",
        kubelets(&Nodes { count: 3, readiness, shutdown, ..Nodes::default() }, &server),
    ));
    let mut stops = Vec::new();
    for number in 0..scenario.daemons {
        let (stop, stopped) = tokio::sync::mpsc::unbounded_channel();
        stops.push(stop);
        let daemon = daemons::run(server.clone(), scenario.clone(), number, stopped);
        tasks.spawn(named("the supervisor of the daemons", daemon));
    }
    let actors = Actors::new(server.clone(), stops);
    actors.make_namespace().await;
    // Usually the caches are complete and a leader is elected by now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    if server.sandbox.object("Namespace", "", NAMESPACE).is_none() {
        // Without its namespace the history would be empty and pass.
        server.fail(Breach::new("the simulation", "the namespace was not created"));
    }
    // A task that ends before the history does leaves the simulation incomplete, and everything after it wrong.
    let played = tokio::select! {
        biased;
        Some(ended) = tasks.join_next() => {
            let what = ended.map_or_else(|panic| panic.to_string(), |name| format!("{name} ended by itself"));
            Err(Breach::new("the simulation", what))
        }
        played = play(scenario, &server, &actors) => played,
    };
    if let Err(breach) = played {
        server.fail(breach);
    }
    server.check_panics();
    drop(tasks);
    let outcome = server.outcome();
    let busy = server.settled().unwrap_or(outcome.lasted);
    let outcome = Outcome { writes: server.acts(), busy, ..outcome };
    (outcome, server.ending())
}

/// Whether there are no faults, except for a planted mistake.
fn is_without_faults(scenario: &Scenario) -> bool {
    Scenario { bug: scenario.bug, ..oracle::without_faults(scenario) } == *scenario
}

async fn named(name: &'static str, task: impl Future<Output = ()>) -> &'static str {
    task.await;
    name
}

async fn play(scenario: &Scenario, server: &Server, actors: &Actors) -> Result<(), Breach> {
    let (begin, mut last) = (server.start.elapsed(), Duration::ZERO);
    let nothing_is_wrong = oracle::applies(scenario) && is_without_faults(scenario);
    let mut meter: Option<ChangeCost> = None;
    for (at, act) in &scenario.acts {
        if scenario.calm {
            tokio::time::sleep(at.saturating_sub(last)).await;
            last = *at;
            if act.is_user_change() {
                until_settled(server).await;
            }
            meter.take().map_or(Ok(()), |meter| meter.end(server))?;
        } else {
            tokio::time::sleep((begin + *at).saturating_sub(server.start.elapsed())).await;
        }
        if server.is_over() {
            return Ok(());
        }
        server.say(&format!("{act:?}"));
        let begun = nothing_is_wrong.then(|| ChangeCost::begin(server, act));
        actors.act(act).await;
        if let Some(mut begun) = begun {
            until_settled(server).await;
            begun.fulfilled(server);
            meter = Some(begun);
        }
    }
    tokio::time::sleep(scenario.tail()).await;
    if scenario.calm {
        until_settled(server).await;
    }
    if server.is_over() {
        return Ok(());
    }
    meter.map_or(Ok(()), |meter| meter.end(server))?;
    server.say("the faults end");
    server.calm();
    if scenario.repair {
        actors.repair().await;
    }
    if scenario.must_converge() {
        return convergence::converges(scenario, server, actors).await;
    }
    // Late requests arrive, and are judged.
    tokio::time::sleep(Duration::from_secs(60)).await;
    Ok(())
}
