//! Conditions that must hold once the faults have ended: SS11, SS16, SS17, and SS26 to SS28.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::identity::{
    HASH, check_identity, check_references, claims, is_member, is_stale, is_update, ordinal, range,
    stateful_set, template,
};
use super::judge::Cluster;
use super::scenario::Scenario;
use crate::engine::breach::Breach;
use crate::engine::objects::{NAMESPACE, is_available, is_deleting, is_live, name, number, owner, text, uid};

/// By when everything is settled: the longest time for which a request stays in doubt, the backoff of a pod that has
/// failed many times, and a rollout, pod by pod.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1200);

/// For longer no daemon waits for the answer to a request, which holds up the key that it belongs to: another daemon may
/// have settled everything meanwhile, and end.
const LONGEST_REQUEST: Duration = Duration::from_secs(60);

/// Waits until everything has converged, then checks that lost claims are replaced at once, and that nothing is written
/// any more.
///
/// # Errors
/// The objects that have not converged.
pub async fn converges(
    cluster: &Arc<Cluster>,
    actors: &mut Actors,
    scenario: &Scenario,
) -> Result<(), Breach> {
    cluster.say("the faults end");
    cluster.calm();
    actors.repair().await;
    // Everything may look settled before nodes that report again have done what they owe.
    tokio::time::sleep(Duration::from_secs(3)).await;
    until_settled(cluster, actors).await?;
    actors.daemons.wait(LONGEST_REQUEST).await;
    claims_are_replaced(cluster, actors, scenario).await?;
    until_settled(cluster, actors).await?;
    actors.free_claims().await;
    until_settled(cluster, actors).await?;
    check_quiescence(cluster, actors).await
}

async fn until_settled(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    let begun = cluster.elapsed();
    while let Err((invariant, unrest)) = is_settled(cluster) {
        if cluster.failure().is_some() {
            return Ok(());
        }
        if cluster.elapsed() - begun > SETTLE_TIMEOUT {
            return Err(Breach::new(invariant, unrest));
        }
        actors.heal().await;
        actors.daemons.wait(Duration::from_secs(1)).await;
    }
    cluster.say("settled");
    Ok(())
}

/// A pod that waits for its claims to be gone is created within a second of that.
async fn claims_are_replaced(
    cluster: &Arc<Cluster>,
    actors: &mut Actors,
    scenario: &Scenario,
) -> Result<(), Breach> {
    let Some(lost) = actors.lose_claims().await else { return Ok(()) };
    let ends = scenario.shutdown.min(Duration::from_secs(5));
    actors.daemons.wait(ends + Duration::from_secs(1)).await;
    actors.release_claims().await;
    actors.daemons.wait(Duration::from_secs(1)).await;
    let Some(stateful_set) = stateful_set(&cluster.sandbox) else { return Ok(()) };
    let Some(last) = range(&stateful_set).last() else { return Ok(()) };
    let pod = cluster.sandbox.object("Pod", NAMESPACE, &super::identity::pod_name(last));
    match pod.is_some_and(|pod| uid(&pod) != lost) {
        true => Ok(()),
        false => Err(Breach::new("SS26", format!("{last} has no pod a second after its claims are gone"))),
    }
}

async fn check_quiescence(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    // For the last status, and the garbage collector.
    actors.daemons.wait(Duration::from_secs(180)).await;
    let writes = cluster.writes();
    cluster.sandbox.compact();
    cluster.sandbox.break_watches();
    actors.daemons.wait(Duration::from_secs(300)).await;
    actors.daemons.crash().await;
    actors.daemons.wait(Duration::from_secs(300)).await;
    is_settled(cluster).map_err(|(invariant, unrest)| {
        Breach::new(invariant, format!("converged, and then no longer: {unrest}"))
    })?;
    match cluster.writes() - writes {
        0 => Ok(()),
        writes => Err(Breach::new("SS28", format!("{writes} writes in a settled cluster"))),
    }
}

/// Checks that everything has converged, or returns the invariant that does not hold, and why.
fn is_settled(cluster: &Cluster) -> Result<(), (&'static str, String)> {
    let liveness = |unrest: String| ("SS27", unrest);
    let stateful_set = stateful_set(&cluster.sandbox)
        .filter(|found| !is_deleting(found))
        .ok_or_else(|| liveness("there is no StatefulSet".into()))?;
    let mut pods = cluster.sandbox.objects("Pod");
    pods.retain(|pod| owner(pod) == uid(&stateful_set));
    let mut revisions = cluster.sandbox.objects("ControllerRevision");
    revisions.retain(|revision| owner(revision) == uid(&stateful_set));
    let update = update_revision(&stateful_set, &revisions).map_err(|unrest| ("SS16", unrest))?;
    check_pods(cluster, &stateful_set, &pods, name(update)).map_err(liveness)?;
    for pod in &pods {
        check_claims(cluster, &stateful_set, pod).map_err(|unrest| ("SS11", unrest))?;
    }
    check_status(&stateful_set, name(update)).map_err(liveness)?;
    let limit = number(&stateful_set, "/spec/revisionHistoryLimit");
    match revisions.len() as i64 - 1 {
        old if limit >= 0 && old > limit => {
            Err(("SS17", format!("{old} old revisions, {limit} are allowed")))
        }
        _ => Ok(()),
    }
}

/// The only revision that has the template, which must have the highest number.
fn update_revision<'a>(stateful_set: &Value, revisions: &'a [Value]) -> Result<&'a Value, String> {
    let all: Vec<&Value> = revisions.iter().filter(|one| is_update(stateful_set, one)).collect();
    let [update] = all.as_slice() else { return Err(format!("{} revisions have the template", all.len())) };
    let number = |revision: &Value| number(revision, "/revision");
    match revisions
        .iter()
        .filter(|other| template(other) != template(update))
        .any(|other| number(other) >= number(update))
    {
        true => Err("the update revision does not have the highest number".into()),
        false => Ok(update),
    }
}

fn check_pods(cluster: &Cluster, stateful_set: &Value, pods: &[Value], update: &str) -> Result<(), String> {
    let seconds = number(stateful_set, "/spec/minReadySeconds");
    for wanted in range(stateful_set) {
        let found = pods.iter().find(|pod| ordinal(name(pod)) == Some(wanted));
        let pod = found.ok_or_else(|| format!("{wanted} has no pod"))?;
        if !is_member(stateful_set, pod) || !is_live(pod) || !is_available(pod, seconds, cluster.clock.now())
        {
            return Err(format!("the pod of {wanted} is not available"));
        }
        if text(pod, HASH) != update {
            return Err(format!("the pod of {wanted} has an older template"));
        }
        check_identity(stateful_set, pod)?;
    }
    match pods.iter().find(|pod| !ordinal(name(pod)).is_some_and(|one| range(stateful_set).contains(&one))) {
        Some(other) => Err(format!("{} is out of range", name(other))),
        None => Ok(()),
    }
}

fn check_claims(cluster: &Cluster, stateful_set: &Value, pod: &Value) -> Result<(), String> {
    let ordinal = ordinal(name(pod)).unwrap_or_default();
    for (_, claim) in claims(stateful_set, ordinal) {
        let found = cluster.sandbox.object("PersistentVolumeClaim", NAMESPACE, &claim);
        // A user may have deleted the claim of a pod that runs: it stays until the pod has ended.
        let Some(found) = found.filter(|found| !is_deleting(found)) else { continue };
        if is_stale(stateful_set, ordinal, Some(pod), &found) {
            return Err(format!("{claim} belongs to a former owner"));
        }
        check_references(stateful_set, ordinal, pod, &found)?;
    }
    Ok(())
}

fn check_status(stateful_set: &Value, update: &str) -> Result<(), String> {
    let size = number(stateful_set, "/spec/replicas");
    let numbers = ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"];
    let generation = ("observedGeneration", number(stateful_set, "/metadata/generation"));
    for (field, wanted) in numbers.map(|field| (field, size)).into_iter().chain([generation]) {
        let said = number(&stateful_set["status"], &format!("/{field}"));
        if said != wanted {
            return Err(format!("{field} is {said}; expected {wanted}"));
        }
    }
    for field in ["currentRevision", "updateRevision"] {
        let said = text(&stateful_set["status"], &format!("/{field}"));
        if said != update {
            return Err(format!("{field} is {said}; expected {update}"));
        }
    }
    Ok(())
}
