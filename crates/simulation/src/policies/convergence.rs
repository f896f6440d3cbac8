//! Conditions that must hold once the faults have ended: RP5, RP7, RP9, RP13 and RP14.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::judge::{Cluster, deployment};
use super::terms::{Terms, template};
use crate::engine::breach::Breach;
use crate::engine::game::Actors as _;
use crate::engine::objects::{is_live, number, owner, text};

/// By when everything is settled: the longest time for which a request stays in doubt, the backoff of pods that have failed,
/// and a rollout with pauses.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1200);

/// Waits until a held rollout rests, approves it, then removes the policy, and each time waits until everything is settled.
///
/// With an agent, an image that never starts is applied again and again after that.
///
/// # Errors
/// The objects that have not converged.
pub async fn converges(cluster: &Arc<Cluster>, actors: &mut Actors, has_agent: bool) -> Result<(), Breach> {
    cluster.say("the faults end");
    cluster.calm();
    // Without pods that serve there is nothing that a step could protect.
    let serves = cluster.sandbox.objects("ReplicaSet").iter().any(|all| number(all, "/spec/replicas") > 0);
    actors.enlarge().await;
    actors.resume().await;
    match serves {
        true => rests_at_the_step(cluster, actors).await?,
        false => until(cluster, actors, "RP14", is_complete).await?,
    }
    // For the last status.
    actors.wait(Duration::from_secs(130)).await;
    let writes = cluster.writes();
    actors.wait(Duration::from_secs(600)).await;
    if cluster.writes() > writes {
        let writes = cluster.writes() - writes;
        return Err(Breach::new("RP14", format!("{writes} writes while a step holds")));
    }
    actors.approve().await;
    until(cluster, actors, "RP14", is_complete).await?;
    actors.repair().await;
    until(cluster, actors, "RP14", is_complete).await?;
    if !has_agent || deployment(&cluster.sandbox).is_none_or(|one| Terms::of(&one).replicas == 0) {
        return Ok(());
    }
    fails_for_ever(cluster, actors).await?;
    actors.repair().await;
    until(cluster, actors, "RP14", is_complete).await
}

/// RP9: where an agent applies a template that fails for ever, there is an end of writes, and the pods serve. RP7: the ReplicaSet
/// that serves has all of them.
async fn fails_for_ever(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    actors.fail_for(Duration::from_secs(1500)).await;
    actors.wait(Duration::from_secs(900)).await;
    let writes = cluster.writes();
    actors.wait(Duration::from_secs(600)).await;
    let writes = cluster.writes() - writes;
    if writes > 0 {
        return Err(Breach::new("RP9", format!("{writes} writes while a failure stands")));
    }
    until(cluster, actors, "RP7", |deployment, replica_sets, _| {
        let replicas = number(deployment, "/spec/replicas");
        let serves =
            |all: &&Value| template(all) != template(deployment) && number(all, "/spec/replicas") > 0;
        let [serving] = replica_sets.iter().filter(serves).collect::<Vec<_>>()[..] else {
            return Err("not one ReplicaSet serves".to_owned());
        };
        let counts = ["/spec/replicas", "/status/availableReplicas"].map(|count| number(serving, count));
        match counts == [replicas, replicas] {
            true => Ok(()),
            false => Err(format!("{counts:?} pods of {replicas} serve")),
        }
    })
    .await
}

/// RP5: at rest in the step there is one new pod, and the others are old.
async fn rests_at_the_step(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    until(cluster, actors, "RP5", |deployment, replica_sets, pods| {
        let replicas = number(deployment, "/spec/replicas");
        let (new, old): (Vec<&Value>, Vec<&Value>) =
            replica_sets.iter().partition(|all| template(all) == template(deployment));
        let sum = |all: &[&Value]| all.iter().map(|all| number(all, "/spec/replicas")).sum::<i64>();
        let reason = progressing(deployment);
        let held = reason == "RolloutStep" && (sum(&new), sum(&old)) == (1, replicas - 1);
        // One pod, or none, needs no step.
        let is_small = replicas < 2 && is_complete(deployment, replica_sets, pods).is_ok();
        let live = pods.iter().filter(|pod| is_live(pod)).count() as i64;
        match (held && live == replicas) || is_small {
            true => Ok(()),
            false => {
                Err(format!("{reason}, {} new and {} old of {replicas}, {live} pods", sum(&new), sum(&old)))
            }
        }
    })
    .await
}

type Check = fn(&Value, &[Value], &[Value]) -> Result<(), String>;

async fn until(
    cluster: &Arc<Cluster>,
    actors: &mut Actors,
    invariant: &'static str,
    check: Check,
) -> Result<(), Breach> {
    let begun = cluster.elapsed();
    loop {
        if cluster.failure().is_some() {
            return Ok(());
        }
        let Some(deployment) = deployment(&cluster.sandbox) else { return Ok(()) };
        let mut replica_sets = cluster.sandbox.objects("ReplicaSet");
        replica_sets.retain(|all| owner(all) == text(&deployment, "/metadata/uid"));
        let Err(unrest) = check(&deployment, &replica_sets, &cluster.sandbox.objects("Pod")) else { break };
        actors.heal().await;
        if cluster.elapsed() - begun > SETTLE_TIMEOUT {
            return Err(Breach::new(invariant, format!("{unrest}: {}", deployment["status"])));
        }
        actors.wait(Duration::from_secs(1)).await;
    }
    cluster.say("settled");
    Ok(())
}

fn progressing(deployment: &Value) -> &str {
    let conditions = deployment["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let progressing = conditions.iter().find(|condition| condition["type"] == "Progressing");
    progressing.map(|condition| text(condition, "/reason")).unwrap_or_default()
}

fn is_complete(deployment: &Value, replica_sets: &[Value], _: &[Value]) -> Result<(), String> {
    let replicas = Terms::of(deployment).replicas;
    let counts = ["replicas", "updatedReplicas", "availableReplicas"];
    let exact = counts.iter().all(|field| deployment["status"][*field].as_i64().unwrap_or(0) == replicas);
    let sum: i64 = replica_sets.iter().map(|all| number(all, "/spec/replicas")).sum();
    let reason = progressing(deployment);
    match exact && sum == replicas && reason == "NewReplicaSetAvailable" {
        true => Ok(()),
        false => Err(format!("{reason}, {sum} of {replicas} pods wanted")),
    }
}
