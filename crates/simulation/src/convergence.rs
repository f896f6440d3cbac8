//! Conditions that must hold once the faults have ended and users make no more changes: L1 and L4.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::invariants::{ANOTHER, Breach, controller, is_deleting, is_live, number, text};
use super::scenario::Scenario;
use super::server::{FirstAttempt, Picture, Server};
use super::{batches, deadlines, frozen, latency, published, rollbacks, scale_downs};

/// By when everything is settled: the longest delay of a write, the longest backoff, and a rollout.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(240);

/// How long calm users wait during faults. A process that loses its Lease again and again has hardly acted after
/// [`SETTLE_TIMEOUT`].
const CALM_PATIENCE: Duration = Duration::from_secs(1200);

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

/// Waits until `is_so` holds, or an invariant is broken.
///
/// # Errors
/// When it does not hold within `patience`, or the breach.
pub async fn until(
    server: &Server,
    actors: &Actors,
    is_so: fn(&Picture) -> Result<(), String>,
    patience: Duration,
) -> Result<(), Breach> {
    let step = Duration::from_secs(1);
    let mut waited = Duration::ZERO;
    while let Err(unrest) = is_so(&server.picture()) {
        if let Some(failure) = server.failure() {
            return Err(failure);
        }
        if server.is_over() {
            break;
        }
        if waited >= patience {
            return Err(Breach::new("L1", unrest));
        }
        actors.heal().await;
        tokio::time::sleep(step).await;
        waited += step;
    }
    server.say(&format!("settled after {waited:?}"));
    Ok(())
}

/// Waits until the cluster is settled, for at most the patience of calm users. A history in which they give up cannot
/// be compared with the one without faults, in which they do not.
pub async fn until_settled(server: &Server) {
    for _ in 0..(CALM_PATIENCE + server.lagging_for()).as_secs() {
        if server.is_over() || is_settled(&server.picture()).is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    server.users_gave_up();
}

/// The objects of a resource.
pub fn objects<'a>(picture: &'a Picture, resource: &str) -> impl Iterator<Item = &'a Value> {
    picture.get(resource).into_iter().flat_map(|all| all.values()).map(|object| &**object)
}

/// The UIDs of all ReplicaSets with a Deployment.
fn replica_sets_of(picture: &Picture) -> BTreeSet<&str> {
    let owned = objects(picture, "replicasets").filter(|replica_set| !controller(replica_set).is_empty());
    owned.map(|replica_set| text(replica_set, "/metadata/uid")).collect()
}

/// Whether the selector of an owner matches an object.
pub fn selects(owner: &Value, object: &Value) -> bool {
    let wanted = owner["spec"]["selector"]["matchLabels"].as_object();
    let labels = &object["metadata"]["labels"];
    wanted.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
}

/// The condition of a type, if there is one.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

fn annotation(object: &Value, name: &str) -> Option<i64> {
    object["metadata"]["annotations"][format!("deployment.kubernetes.io/{name}")].as_str()?.parse().ok()
}

/// Checks that every Deployment has as many pods as it wants, of whatever template.
///
/// # Errors
/// The first Deployment that has not.
pub fn is_sized(picture: &Picture) -> Result<(), String> {
    for deployment in objects(picture, "deployments") {
        let (name, uid) = (text(deployment, "/metadata/name"), text(deployment, "/metadata/uid"));
        let replicas = number(deployment, "/spec/replicas");
        let replica_sets =
            objects(picture, "replicasets").filter(|replica_set| controller(replica_set) == uid);
        let size: i64 = replica_sets.map(|replica_set| number(replica_set, "/spec/replicas")).sum();
        let observed = deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"];
        if size != replicas || number(deployment, "/status/availableReplicas") != replicas || !observed {
            return Err(format!(
                "{name} is paused, wants {replicas} and has {size}: {}",
                deployment["status"]
            ));
        }
    }
    replica_sets_are_full(picture)
}

/// Checks that every Deployment that is paused between two ReplicaSets has all the pods it may, shared by the two in
/// proportion (S9).
///
/// # Errors
/// The first Deployment that has not.
pub fn is_in_proportion(picture: &Picture) -> Result<(), String> {
    for deployment in objects(picture, "deployments") {
        let (name, uid) = (text(deployment, "/metadata/name"), text(deployment, "/metadata/uid"));
        let replica_sets =
            objects(picture, "replicasets").filter(|replica_set| controller(replica_set) == uid);
        let sizes: Vec<i64> = replica_sets
            .map(|replica_set| number(replica_set, "/spec/replicas"))
            .filter(|size| *size > 0)
            .collect();
        let most = number(deployment, "/spec/replicas") + super::invariants::surge(deployment);
        let observed = deployment["status"]["observedGeneration"] == deployment["metadata"]["generation"];
        let rolling = deployment["spec"]["strategy"]["type"] != "Recreate";
        if !observed || rolling && sizes.len() > 1 && sizes.iter().sum::<i64>() != most {
            return Err(format!(
                "{name} is paused, may have {most} pods, and its ReplicaSets have {sizes:?}"
            ));
        }
    }
    Ok(())
}

/// Checks that every Deployment is complete and has exactly its pods.
///
/// # Errors
/// The first difference.
pub fn is_settled(picture: &Picture) -> Result<(), String> {
    for deployment in objects(picture, "deployments") {
        let name = text(deployment, "/metadata/name");
        if is_deleting(deployment) {
            return Err(format!("{name} is not deleted"));
        }
        if !text(deployment, "/metadata/annotations/deprecated.deployment.rollback.to").is_empty() {
            return Err(format!("{name} has not been rolled back"));
        }
        let replicas = number(deployment, "/spec/replicas");
        let status = &deployment["status"];
        let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
        let exact = counts.iter().all(|field| status[*field].as_i64().unwrap_or(0) == replicas);
        let observed = status["observedGeneration"] == deployment["metadata"]["generation"];
        let complete = condition(deployment, "Progressing")
            .is_some_and(|condition| condition["reason"] == "NewReplicaSetAvailable");
        let available = condition(deployment, "Available").is_some_and(|c| c["status"] == "True");
        let fails = condition(deployment, "ReplicaFailure").is_some();
        if !exact || !observed || !complete || !available || fails {
            return Err(format!("{name} wants {replicas} and has the status {status}"));
        }
        its_replica_sets_are_correct(picture, deployment)?;
    }
    replica_sets_are_full(picture)?;
    owners_match_selectors(picture)
}

/// Sizes, revisions, annotations and the history (S7, S8, S10).
fn its_replica_sets_are_correct(picture: &Picture, deployment: &Value) -> Result<(), String> {
    let (name, uid) = (text(deployment, "/metadata/name"), text(deployment, "/metadata/uid"));
    let replicas = number(deployment, "/spec/replicas");
    let mut replica_sets: Vec<&Value> = objects(picture, "replicasets")
        .filter(|replica_set| controller(replica_set) == uid && !is_deleting(replica_set))
        .collect();
    let sizes: Vec<i64> =
        replica_sets.iter().map(|replica_set| number(replica_set, "/spec/replicas")).collect();
    if sizes.iter().sum::<i64>() != replicas || sizes.iter().filter(|size| **size > 0).count() > 1 {
        return Err(format!("{name} wants {replicas} and its ReplicaSets have {sizes:?}"));
    }
    replica_sets.sort_by_key(|replica_set| annotation(replica_set, "revision"));
    let Some((new, old)) = replica_sets.split_last() else { return Err(format!("{name} has no ReplicaSet")) };
    let ours = text(new, "/metadata/name");
    let most = replicas + super::invariants::surge(deployment);
    let sized = (annotation(new, "desired-replicas"), annotation(new, "max-replicas"));
    if super::invariants::bare(&new["spec"]["template"]) != deployment["spec"]["template"] {
        return Err(format!("{ours} has the highest revision, but not the template of {name}"));
    }
    if annotation(new, "revision") != annotation(deployment, "revision") {
        return Err(format!("{name} has another revision annotation than {ours}"));
    }
    if sized != (Some(replicas), Some(most)) {
        return Err(format!("the size annotations of {ours} are {sized:?}; expected {replicas} and {most}"));
    }
    if number(new, "/spec/minReadySeconds") != number(deployment, "/spec/minReadySeconds") {
        return Err(format!("{ours} has another minReadySeconds than {name}"));
    }
    let limit = number(deployment, "/spec/revisionHistoryLimit");
    if i64::try_from(old.len()).unwrap_or(i64::MAX) > limit {
        return Err(format!("{name} keeps {} old ReplicaSets, {limit} are allowed", old.len()));
    }
    Ok(())
}

const COUNTS: [&str; 3] = ["replicas", "readyReplicas", "availableReplicas"];

/// Checks that every ReplicaSet, with an owner or without, has the pods that it wants and reports them.
fn replica_sets_are_full(picture: &Picture) -> Result<(), String> {
    for replica_set in objects(picture, "replicasets").filter(|replica_set| !is_deleting(replica_set)) {
        let (size, uid, name) = (
            number(replica_set, "/spec/replicas"),
            text(replica_set, "/metadata/uid"),
            text(replica_set, "/metadata/name"),
        );
        let pods = objects(picture, "pods").filter(|pod| controller(pod) == uid && is_live(pod)).count();
        // A ReplicaSet without a Deployment may have an image that never starts.
        let counts =
            if matches!(controller(replica_set), "" | ANOTHER) { &["replicas"][..] } else { &COUNTS };
        let exact = counts.iter().all(|field| number(&replica_set["status"], &format!("/{field}")) == size);
        let observed = replica_set["status"]["observedGeneration"] == replica_set["metadata"]["generation"];
        if i64::try_from(pods) != Ok(size)
            || !exact
            || !observed
            || condition(replica_set, "ReplicaFailure").is_some()
        {
            return Err(format!(
                "{name} wants {size}, has {pods} pods and the status {}",
                replica_set["status"]
            ));
        }
    }
    Ok(())
}

/// Checks that every object has the owner whose selector matches it, and that no owner has an object that its
/// selector does not match (S15, S16).
fn owners_match_selectors(picture: &Picture) -> Result<(), String> {
    for (owners, owned) in [("deployments", "replicasets"), ("replicasets", "pods")] {
        for owner in objects(picture, owners).filter(|owner| !is_deleting(owner)) {
            let (name, uid) = (text(owner, "/metadata/name"), text(owner, "/metadata/uid"));
            let there = |object: &&Value| {
                if owned == "pods" { is_live(object) } else { !is_deleting(object) }
            };
            for object in objects(picture, owned).filter(there) {
                let what = text(object, "/metadata/name");
                match controller(object) {
                    "" if selects(owner, object) => return Err(format!("{name} has not adopted {what}")),
                    of if of == uid && !selects(owner, object) => {
                        return Err(format!("{name} has not released {what}"));
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(())
}
