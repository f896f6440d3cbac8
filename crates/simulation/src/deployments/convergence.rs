//! Conditions that must hold once the faults have ended and users make no more changes: L1 and L4.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::objects::{condition, controller, objects};
use super::scenario::Scenario;
use super::server::{FirstAttempt, Server};
use super::settling::{is_in_proportion, is_settled, is_sized, until};
use super::{batches, deadlines, frozen, latency, published, rollbacks, scale_downs};
use crate::engine::breach::Breach;
use crate::engine::objects::{Picture, text};

/// By when everything is settled: the longest delay of a write, the longest backoff, and a rollout.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(240);

/// By when everything is settled without faults: a pod that an earlier request may still create is accounted for
/// during two minutes, and a rollout follows.
const SHORT_PATIENCE: Duration = Duration::from_secs(150);

/// By when a daemon that was stopped again and again is back, and its watches show everything.
const LONGEST_ABSENCE: Duration = Duration::from_secs(60);

/// How soon a Deployment reports that its pods are refused: a second, and the delay of the watches.
const REPORTED: Duration = Duration::from_millis(1100);

/// How long a quota refuses pods: long enough for the backoff to reach its cap.
const REFUSED: Duration = Duration::from_secs(84);

/// How long it may take after that: the longest backoff, and the start of a pod.
const AFTER_REFUSAL: Duration = Duration::from_secs(70);

/// Waits until everything has converged, and goes on to changes that the controllers have to handle without faults:
/// pods that change their owner, hidden deletions, a rollout that is paused and resized, a quota, a change while all
/// Deployments are paused, and a rollout of which each write is refused or lost once. Then checks that nothing is
/// written any more, over lists, watches and restarts of the daemons.
///
/// # Errors
/// The objects that have not converged, or a write although nothing was to be done.
pub async fn converges(scenario: &Scenario, server: &Server, actors: &Actors) -> Result<(), Breach> {
    until(server, actors, is_settled, SETTLE_TIMEOUT + server.lagging_for()).await?;
    // The following checks need watches that show everything.
    tokio::time::sleep(server.lagging_for()).await;
    if !scenario.election && scenario.daemons > 1 {
        // Two leaders have to see the same state, or they undo each other's work.
        tokio::time::sleep(LONGEST_ABSENCE).await;
    }
    if scenario.calm {
        // Later results depend on timing, down to which of two pods is older. Before that, the last replies arrive
        // and the last pods end.
        tokio::time::sleep(Duration::from_secs(60)).await;
        server.record_ending();
    }
    if scenario.repair {
        undergoes_changes(scenario, server, actors).await?;
    }
    check_quiescence(scenario, server, actors).await
}

async fn undergoes_changes(scenario: &Scenario, server: &Server, actors: &Actors) -> Result<(), Breach> {
    let seed = scenario.seed;
    let (recreate, first_attempt) =
        (seed.is_multiple_of(2), if seed % 4 < 2 { FirstAttempt::Refused } else { FirstAttempt::Lost });
    actors.change_owners().await;
    until(server, actors, is_settled, SHORT_PATIENCE).await?;
    // Two leaders may interfere with each other. Where their watches break they see different states until both have
    // watched again, and each writes what it sees over the other's status as fast as the API server replies.
    if scenario.election || scenario.daemons == 1 {
        for (compact, younger) in [(false, false), (true, false), (true, true)] {
            actors.hide_deletions(compact, younger).await;
            until(server, actors, is_settled, SHORT_PATIENCE).await?;
        }
        deadlines::rolls_out_in_time(scenario, server, actors).await?;
        deadlines::deadline_is_reported(server, actors, seed.is_multiple_of(3)).await?;
        until(server, actors, is_settled, SHORT_PATIENCE).await?;
        latency::follows_promptly(scenario, server, actors).await?;
        until(server, actors, is_settled, SHORT_PATIENCE).await?;
        if seed % 8 == 3 {
            batches::delay_no_other_workload(server, actors).await?;
        }
        published::statuses_are_true(scenario, server, actors).await?;
        until(server, actors, is_settled, SHORT_PATIENCE).await?;
        if seed % 4 == 1 {
            rollbacks::restore_the_previous_template(server, actors).await?;
            until(server, actors, is_settled, SHORT_PATIENCE).await?;
        }
        if seed % 4 == 2 {
            scale_downs::restart_count_breaks_ties(scenario, server, actors).await?;
        }
        if seed.is_multiple_of(8) {
            frozen::connection_is_replaced(scenario, server, actors).await?;
        }
    }
    actors.pause_and_scale().await;
    until(server, actors, is_in_proportion, SHORT_PATIENCE).await?;
    actors.repair().await;
    until(server, actors, is_settled, SHORT_PATIENCE).await?;
    actors.exceed_quota().await;
    for wait in [REPORTED, REFUSED] {
        tokio::time::sleep(wait).await;
        failures_are_reported(&server.picture()).map_err(|unreported| Breach::new("L8", unreported))?;
    }
    server.set_quota(false);
    until(server, actors, is_settled, AFTER_REFUSAL).await?;
    let before = server.picture();
    actors.pause_and_change(recreate).await;
    until(server, actors, is_sized, SHORT_PATIENCE).await?;
    if !replica_sets_of(&server.picture()).is_subset(&replica_sets_of(&before)) {
        return Err(Breach::new("S6", "a ReplicaSet was created while all Deployments were paused"));
    }
    server.fail_first_attempts(Some(first_attempt));
    actors.pause(false).await;
    until(server, actors, is_settled, SHORT_PATIENCE).await?;
    server.fail_first_attempts(None);
    Ok(())
}

async fn check_quiescence(scenario: &Scenario, server: &Server, actors: &Actors) -> Result<(), Breach> {
    // For the last status, and late requests.
    tokio::time::sleep(Duration::from_secs(130)).await;
    let (writes, events) = (server.acts(), server.cost().events);
    server.settle();
    // New lists, a restart or another leader, resyncs: none of these is a reason to write.
    server.sandbox.compact();
    server.sandbox.break_watches();
    tokio::time::sleep(scenario.quiet / 3).await;
    deadlines::another_takes_over(scenario, server, actors).await?;
    actors.restart();
    tokio::time::sleep(scenario.quiet / 3 * 2).await;
    is_settled(&server.picture())
        .map_err(|unrest| Breach::new("L1", format!("converged, and then no longer: {unrest}")))?;
    match (server.acts() - writes, server.cost().events - events) {
        (0, 0) => Ok(()),
        (writes, events) => {
            Err(Breach::new("L4", format!("{writes} writes and {events} events in a settled cluster")))
        }
    }
}

/// Whether every Deployment reports that its pods are refused.
fn failures_are_reported(picture: &Picture) -> Result<(), String> {
    let silent = |deployment: &&Value| condition(deployment, "ReplicaFailure").is_none();
    match objects(picture, "deployments").find(silent) {
        Some(deployment) => {
            Err(format!("{} does not report ReplicaFailure", text(deployment, "/metadata/name")))
        }
        None => Ok(()),
    }
}

/// The UIDs of all ReplicaSets with a Deployment.
fn replica_sets_of(picture: &Picture) -> BTreeSet<&str> {
    let owned = objects(picture, "replicasets").filter(|replica_set| !controller(replica_set).is_empty());
    owned.map(|replica_set| text(replica_set, "/metadata/uid")).collect()
}
