//! What is owed once the faults have ended and nobody wants anything new: L1 and L4.

use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::monitors::{Breach, controller, is_deleting, is_live, number, text};
use super::scenario::{Act, Scenario};
use super::server::{Picture, Server};

/// By when everything is at rest: the longest a write may still be on its way, the longest wait between
/// two tries, and a rollout.
const PATIENCE: Duration = Duration::from_secs(600);

/// Waits until everything is as it should be, and then looks whether it stays so.
///
/// # Errors
/// What is not as it should be in the end, or was written although nothing was to be done.
pub async fn comes_to_rest(scenario: &Scenario, server: &Server, actors: &Actors) -> Result<(), Breach> {
    let step = Duration::from_secs(1);
    let mut waited = Duration::ZERO;
    while let Err(unrest) = is_at_rest(&server.picture()) {
        if server.failure().is_some() {
            return Ok(());
        }
        if waited >= PATIENCE {
            return Err(Breach::new("L1", unrest));
        }
        actors.heal().await;
        tokio::time::sleep(step).await;
        waited += step;
    }
    // The last status, and what is late.
    tokio::time::sleep(Duration::from_secs(130)).await;
    let before = server.acts();
    // Lists anew, a restart or another leader, resyncs: nothing of it is a reason to write.
    server.sandbox.compact();
    server.sandbox.break_watches();
    tokio::time::sleep(scenario.quiet / 3).await;
    actors.act(&Act::Stop { daemon: 0 }).await;
    tokio::time::sleep(scenario.quiet / 3 * 2).await;
    is_at_rest(&server.picture()).map_err(|unrest| Breach::new("L1", format!("not for ever: {unrest}")))?;
    match server.acts() - before {
        0 => Ok(()),
        writes => Err(Breach::new("L4", format!("{writes} writes in a settled cluster"))),
    }
}

/// Waits for rest, if it comes within the patience of users.
pub async fn until_rest(server: &Server) {
    for _ in 0..PATIENCE.as_secs() {
        if server.failure().is_some() || is_at_rest(&server.picture()).is_ok() {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn objects<'a>(picture: &'a Picture, resource: &str) -> impl Iterator<Item = &'a Value> {
    picture.get(resource).into_iter().flat_map(|all| all.values()).map(|object| &**object)
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
        let conditions = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let complete =
            conditions.iter().any(|c| c["type"] == "Progressing" && c["reason"] == "NewReplicaSetAvailable");
        if !exact || !observed || !complete {
            return Err(format!("{name} wants {replicas} and has the status {status}"));
        }
        let uid = text(deployment, "/metadata/uid");
        let sets: Vec<&Value> =
            objects(picture, "replicasets").filter(|set| controller(set) == uid).collect();
        let sizes: Vec<i64> = sets.iter().map(|set| number(set, "/spec/replicas")).collect();
        if sizes.iter().sum::<i64>() != replicas || sizes.iter().filter(|size| **size > 0).count() > 1 {
            return Err(format!("{name} wants {replicas} and its sets have {sizes:?}"));
        }
        for set in sets {
            let size = number(set, "/spec/replicas");
            let uid = text(set, "/metadata/uid");
            let pods = objects(picture, "pods").filter(|pod| controller(pod) == uid && is_live(pod)).count();
            let ours = text(set, "/metadata/name");
            if i64::try_from(pods) != Ok(size) || number(set, "/status/replicas") != size {
                return Err(format!("{ours} wants {size}, has {pods} pods and says {}", set["status"]));
            }
        }
    }
    Ok(())
}
