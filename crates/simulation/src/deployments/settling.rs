//! Whether the Deployments of a cluster are settled, and the wait for it.

use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::invariants::surge;
use super::objects::{ANOTHER, bare, condition, controller, objects, selects};
use super::server::Server;
use crate::engine::breach::Breach;
use crate::engine::objects::{Picture, is_deleting, is_live, number, text};

/// How long calm users wait during faults. A process that loses its Lease again and again has hardly acted after
/// four minutes.
const CALM_PATIENCE: Duration = Duration::from_secs(1200);

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
        let most = number(deployment, "/spec/replicas") + surge(deployment);
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
    let most = replicas + surge(deployment);
    let sized = (annotation(new, "desired-replicas"), annotation(new, "max-replicas"));
    if bare(&new["spec"]["template"]) != deployment["spec"]["template"] {
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
