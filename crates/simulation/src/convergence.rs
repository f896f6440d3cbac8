//! What is owed once the faults have ended and nobody wants anything new: L1 and L4.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::invariants::{ANOTHER, Breach, controller, is_deleting, is_live, number, text};
use super::scenario::Scenario;
use super::server::{Picture, Server, Stumble};
use super::{batches, deadlines, frozen, latency, published, rollbacks, scale_downs};

/// By when everything is at rest: the longest a write may still be on its way, the longest wait between
/// two tries, and a rollout.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long calm users wait while there are faults. A process that loses its Lease again and again has hardly acted
/// after [`PATIENCE`].
const CALM_PATIENCE: Duration = Duration::from_secs(1200);

/// By when it is without faults: a place that a request of before may still take is left to it for two
/// minutes, and then there is a rollout.
const SHORT_PATIENCE: Duration = Duration::from_secs(150);

/// By when whoever was stopped, again and again, is back, and its watches have nothing left to wait for.
const LONGEST_ABSENCE: Duration = Duration::from_secs(60);

/// How soon a Deployment tells that its pods are refused: a second, and what the watches take.
const TOLD: Duration = Duration::from_millis(1100);

/// How long a quota refuses pods: two more tries would have to follow each other within a minute and a half,
/// were it not for the longest wait between them.
const REFUSED: Duration = Duration::from_secs(84);

/// How long it may take after that: the longest wait between two tries, and a start.
const AFTER_REFUSAL: Duration = Duration::from_secs(70);

/// Waits until everything is as it should be, and goes on to what has to come right by itself without
/// faults: pods that change hands, hidden deletions, a rollout that is stopped and resized, a quota, a change
/// while all is paused, and a rollout of which each write is refused or lost once. Then looks whether it stays so, over
/// lists, watches and lives of the daemons.
///
/// # Errors
/// What is not as it should be in the end, or was written although nothing was to be done.
pub async fn comes_to_rest(scenario: &Scenario, server: &Server, actors: &Actors) -> Result<(), Breach> {
    until(server, actors, is_at_rest, PATIENCE + server.lagging_for()).await?;
    // What follows is about watches that show what happens.
    tokio::time::sleep(server.lagging_for()).await;
    if !scenario.election && scenario.daemons > 1 {
        // Two leaders have to see it alike, or they undo each other's work.
        tokio::time::sleep(LONGEST_ABSENCE).await;
    }
    if scenario.calm {
        // What comes later depends on when it comes, down to which of two pods is older. Before that, the last
        // answers arrive and the last pods end.
        tokio::time::sleep(Duration::from_secs(60)).await;
        server.remember_ending();
    }
    if scenario.repair {
        goes_on(scenario, server, actors).await?;
    }
    stays_so(scenario, server, actors).await
}

async fn goes_on(scenario: &Scenario, server: &Server, actors: &Actors) -> Result<(), Breach> {
    let seed = scenario.seed;
    let (recreate, stumble) =
        (seed.is_multiple_of(2), if seed % 4 < 2 { Stumble::Refused } else { Stumble::Lost });
    actors.seize_pods().await;
    until(server, actors, is_at_rest, SHORT_PATIENCE).await?;
    // Two leaders may be in each other's way. Where their watches break they see different things until both have asked
    // again, and write what they see over each other's status as fast as the API server answers.
    if scenario.election || scenario.daemons == 1 {
        for (compact, younger) in [(false, false), (true, false), (true, true)] {
            actors.hide_deletions(compact, younger).await;
            until(server, actors, is_at_rest, SHORT_PATIENCE).await?;
        }
        deadlines::rolls_out_in_time(scenario, server, actors).await?;
        deadlines::deadline_is_told(server, actors, seed.is_multiple_of(3)).await?;
        until(server, actors, is_at_rest, SHORT_PATIENCE).await?;
        latency::follows_promptly(scenario, server, actors).await?;
        until(server, actors, is_at_rest, SHORT_PATIENCE).await?;
        if seed % 8 == 3 {
            batches::delay_no_other_workload(server, actors).await?;
        }
        published::statuses_are_true(scenario, server, actors).await?;
        until(server, actors, is_at_rest, SHORT_PATIENCE).await?;
        if seed % 4 == 1 {
            rollbacks::lead_back(server, actors).await?;
            until(server, actors, is_at_rest, SHORT_PATIENCE).await?;
        }
        if seed % 4 == 2 {
            scale_downs::restarts_decide_last(scenario, server, actors).await?;
        }
        if seed.is_multiple_of(8) {
            frozen::connection_is_replaced(scenario, server, actors).await?;
        }
    }
    actors.stop_and_scale().await;
    until(server, actors, is_in_proportion, SHORT_PATIENCE).await?;
    actors.repair().await;
    until(server, actors, is_at_rest, SHORT_PATIENCE).await?;
    actors.want_too_much().await;
    for wait in [TOLD, REFUSED] {
        tokio::time::sleep(wait).await;
        failures_are_told(&server.picture()).map_err(|untold| Breach::new("L8", untold))?;
    }
    server.set_quota(false);
    until(server, actors, is_at_rest, AFTER_REFUSAL).await?;
    let before = server.picture();
    actors.pause_and_change(recreate).await;
    until(server, actors, is_sized, SHORT_PATIENCE).await?;
    if !replica_sets_of(&server.picture()).is_subset(&replica_sets_of(&before)) {
        return Err(Breach::new("S6", "a set was created while all Deployments were paused"));
    }
    server.stumble(Some(stumble));
    actors.pause(false).await;
    until(server, actors, is_at_rest, SHORT_PATIENCE).await?;
    server.stumble(None);
    Ok(())
}

async fn stays_so(scenario: &Scenario, server: &Server, actors: &Actors) -> Result<(), Breach> {
    // The last status, and what is late.
    tokio::time::sleep(Duration::from_secs(130)).await;
    let (writes, events) = (server.acts(), server.cost().events);
    server.settle();
    // Lists anew, a restart or another leader, resyncs: nothing of it is a reason to write.
    server.sandbox.compact();
    server.sandbox.break_watches();
    tokio::time::sleep(scenario.quiet / 3).await;
    deadlines::another_takes_over(scenario, server, actors).await?;
    actors.restart();
    tokio::time::sleep(scenario.quiet / 3 * 2).await;
    is_at_rest(&server.picture()).map_err(|unrest| Breach::new("L1", format!("not for ever: {unrest}")))?;
    match (server.acts() - writes, server.cost().events - events) {
        (0, 0) => Ok(()),
        (writes, events) => {
            Err(Breach::new("L4", format!("{writes} writes and {events} events in a settled cluster")))
        }
    }
}

/// Whether every Deployment says that its pods are refused.
fn failures_are_told(picture: &Picture) -> Result<(), String> {
    let silent = |deployment: &&Value| condition(deployment, "ReplicaFailure").is_none();
    match objects(picture, "deployments").find(silent) {
        Some(deployment) => Err(format!("{} does not say so", text(deployment, "/metadata/name"))),
        None => Ok(()),
    }
}

/// Waits until the picture is as it should be, or a monitor has found something.
///
/// # Errors
/// When it does not come to that within `patience`, or what a monitor has found.
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
    server.say(&format!("at rest after {waited:?}"));
    Ok(())
}

/// Waits for rest, if it comes within the patience of calm users. A history that they give up on cannot be compared with
/// the one without faults, in which they do not.
pub async fn until_rest(server: &Server) {
    for _ in 0..(CALM_PATIENCE + server.lagging_for()).as_secs() {
        if server.is_over() || is_at_rest(&server.picture()).is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    server.patience_ended();
}

/// The objects of a resource.
pub fn objects<'a>(picture: &'a Picture, resource: &str) -> impl Iterator<Item = &'a Value> {
    picture.get(resource).into_iter().flat_map(|all| all.values()).map(|object| &**object)
}

/// The UIDs of the sets that a Deployment has.
fn replica_sets_of(picture: &Picture) -> BTreeSet<&str> {
    let owned = objects(picture, "replicasets").filter(|replica_set| !controller(replica_set).is_empty());
    owned.map(|replica_set| text(replica_set, "/metadata/uid")).collect()
}

/// Whether an owner selects an object by its labels.
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

/// Whether every Deployment has as many pods as it wants, of whatever template.
///
/// # Errors
/// The first one that has not.
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

/// Whether every Deployment that is paused between two sets has all the pods it may, shared by the two (S9).
///
/// # Errors
/// The first one that has not.
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
            return Err(format!("{name} is paused, may have {most} pods, and its sets have {sizes:?}"));
        }
    }
    Ok(())
}

/// Whether every Deployment is complete and has exactly its pods.
///
/// # Errors
/// The first thing that is not as it should be.
pub fn is_at_rest(picture: &Picture) -> Result<(), String> {
    for deployment in objects(picture, "deployments") {
        let name = text(deployment, "/metadata/name");
        if is_deleting(deployment) {
            return Err(format!("{name} has not gone"));
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
        its_sets_are_right(picture, deployment)?;
    }
    replica_sets_are_full(picture)?;
    claims_are_made(picture)
}

/// Sizes, revisions, annotations and the history (S7, S8, S10).
fn its_sets_are_right(picture: &Picture, deployment: &Value) -> Result<(), String> {
    let (name, uid) = (text(deployment, "/metadata/name"), text(deployment, "/metadata/uid"));
    let replicas = number(deployment, "/spec/replicas");
    let mut replica_sets: Vec<&Value> = objects(picture, "replicasets")
        .filter(|replica_set| controller(replica_set) == uid && !is_deleting(replica_set))
        .collect();
    let sizes: Vec<i64> =
        replica_sets.iter().map(|replica_set| number(replica_set, "/spec/replicas")).collect();
    if sizes.iter().sum::<i64>() != replicas || sizes.iter().filter(|size| **size > 0).count() > 1 {
        return Err(format!("{name} wants {replicas} and its sets have {sizes:?}"));
    }
    replica_sets.sort_by_key(|replica_set| annotation(replica_set, "revision"));
    let Some((new, old)) = replica_sets.split_last() else { return Err(format!("{name} has no set")) };
    let ours = text(new, "/metadata/name");
    let most = replicas + super::invariants::surge(deployment);
    let sized = (annotation(new, "desired-replicas"), annotation(new, "max-replicas"));
    if super::invariants::bare(&new["spec"]["template"]) != deployment["spec"]["template"] {
        return Err(format!("{ours} has the highest revision and not the template of {name}"));
    }
    if annotation(new, "revision") != annotation(deployment, "revision") {
        return Err(format!("{name} tells of another revision than {ours}"));
    }
    if sized != (Some(replicas), Some(most)) {
        return Err(format!("{ours} says {sized:?} of {replicas} and at most {most}"));
    }
    if number(new, "/spec/minReadySeconds") != number(deployment, "/spec/minReadySeconds") {
        return Err(format!("{ours} waits for other seconds than {name}"));
    }
    let limit = number(deployment, "/spec/revisionHistoryLimit");
    if i64::try_from(old.len()).unwrap_or(i64::MAX) > limit {
        return Err(format!("{name} keeps {} old sets, and {limit} are allowed", old.len()));
    }
    Ok(())
}

const COUNTS: [&str; 3] = ["replicas", "readyReplicas", "availableReplicas"];

/// Whether every set, whoever owns it, has the pods that it wants and says so.
fn replica_sets_are_full(picture: &Picture) -> Result<(), String> {
    for replica_set in objects(picture, "replicasets").filter(|replica_set| !is_deleting(replica_set)) {
        let (size, uid, name) = (
            number(replica_set, "/spec/replicas"),
            text(replica_set, "/metadata/uid"),
            text(replica_set, "/metadata/name"),
        );
        let pods = objects(picture, "pods").filter(|pod| controller(pod) == uid && is_live(pod)).count();
        // A set without a Deployment may have an image that never starts.
        let counts =
            if matches!(controller(replica_set), "" | ANOTHER) { &["replicas"][..] } else { &COUNTS };
        let exact = counts.iter().all(|field| number(&replica_set["status"], &format!("/{field}")) == size);
        let observed = replica_set["status"]["observedGeneration"] == replica_set["metadata"]["generation"];
        if i64::try_from(pods) != Ok(size)
            || !exact
            || !observed
            || condition(replica_set, "ReplicaFailure").is_some()
        {
            return Err(format!("{name} wants {size}, has {pods} pods and says {}", replica_set["status"]));
        }
    }
    Ok(())
}

/// Whether everything has the owner that selects it, and nobody owns what he does not select (S15, S16).
fn claims_are_made(picture: &Picture) -> Result<(), String> {
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
                        return Err(format!("{name} has not let go of {what}"));
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(())
}
