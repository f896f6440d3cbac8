//! Conditions that must hold once the faults have ended: RU9 to RU12.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::judge::Cluster;
use super::scenario::{Act, Cleanup, NAMES, Scenario};
use super::truth::{
    self, BOOKKEEPING, HANDING_OVER, ORIGINAL, PAUSED, REQUEST, SOURCE, STEP_AT, annotation, condition,
    count, obstacle, reason,
};
use crate::engine::breach::Breach;
use crate::engine::game::Actors as _;
use crate::engine::objects::{is_deleting, name, number, text, uid};

/// By when everything is settled: the longest backoff of requests and of pods, a few times over.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1200);

/// How long an update of three pods may take without faults: six steps, each as long as a pod takes to become ready and
/// another to end, and the pauses of the request.
const LIVENESS: Duration = Duration::from_secs(60);

/// Waits until every update has ended, is paused or refused; has users decide about those; then checks that nothing is
/// written, and that a new update of fresh pods ends in time and exactly.
///
/// # Errors
/// The objects that have not converged.
pub async fn converges(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    cluster.say("the faults end");
    cluster.calm();
    actors.repair().await;
    until_settled(cluster, actors).await?;
    check_quiescence(cluster, actors).await?;
    cluster.say("users decide");
    for _ in 0..3 {
        actors.decide().await;
        until_settled(cluster, actors).await?;
    }
    if let Some(one) =
        truth::controllers(&cluster.sandbox).iter().find(|one| annotation(one, REQUEST).is_some())
    {
        return Err(Breach::new("RU10", format!("{} still has a request: {}", name(one), one["status"])));
    }
    check_quiescence(cluster, actors).await?;
    cluster.say("a last update");
    last_update(cluster, actors).await?;
    check_quiescence(cluster, actors).await
}

async fn until_settled(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    let begun = cluster.elapsed();
    // The controllers have to notice the last change first.
    actors.wait(Duration::from_secs(3)).await;
    while let Err(breach) = settled(cluster) {
        if cluster.failure().is_some() {
            return Ok(());
        }
        if cluster.elapsed() - begun > SETTLE_TIMEOUT {
            return Err(breach);
        }
        actors.heal().await;
        actors.repair().await;
        actors.wait(Duration::from_secs(1)).await;
    }
    cluster.say("settled");
    Ok(())
}

async fn check_quiescence(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    // For what is gathered, and for timeouts.
    actors.wait(Duration::from_secs(310)).await;
    settled(cluster)?;
    let writes = cluster.writes();
    cluster.break_watches(true);
    actors.wait(Duration::from_secs(60)).await;
    actors.crash().await;
    actors.wait(Duration::from_secs(600)).await;
    settled(cluster)?;
    match cluster.writes() - writes {
        0 => Ok(()),
        more => Err(Breach::new("RU12", format!("{more} writes in a settled cluster"))),
    }
}

/// Whether every controller has its pods, every update has ended, is paused or refused, and the conditions say so.
fn settled(cluster: &Cluster) -> Result<(), Breach> {
    let sandbox = &cluster.sandbox;
    let (all, pods, sets) =
        (truth::controllers(sandbox), sandbox.objects("Pod"), sandbox.objects("ReplicaSet"));
    let now = cluster.clock.now();
    for one in &all {
        let name = name(one);
        let breach = |invariant, what: &str| Err(Breach::new(invariant, format!("{name} {what}: {one}")));
        let size = number(one, "/spec/replicas");
        let (live, available) = count(one, &pods, now);
        if is_deleting(one) {
            return breach("RU10", "is still being deleted");
        }
        if live != size || available != size {
            return breach("RU10", &format!("has {live} pods, {available} of them available"));
        }
        let said = reason(one);
        if annotation(one, REQUEST).is_none() {
            let is_open = condition(one).is_some_and(|condition| condition["status"] == "True");
            if is_open {
                return breach("RU9", "has no request, and says that an update is under way");
            }
            if let Some(what) = lingers(one, &all) {
                return breach("RU11", what);
            }
            continue;
        }
        let wanted = match obstacle(one, &all, &sets, now) {
            Some(_) => "Refused",
            None if annotation(one, PAUSED) == Some("true") => "Paused",
            None => return breach("RU10", "is in an update that does not end"),
        };
        if said != wanted {
            return breach(
                "RU9",
                &format!("says {said}, and not {wanted} ({:?})", obstacle(one, &all, &sets, now)),
            );
        }
    }
    Ok(())
}

/// RU11: NEW of an update that has ended loses its bookkeeping.
fn lingers(new: &Value, all: &[Value]) -> Option<&'static str> {
    let source = annotation(new, SOURCE)?;
    annotation(new, STEP_AT)?;
    let old = all.iter().find(|old| truth::source_of(old) == source);
    let is_refused = reason(new) == "Refused";
    let is_over = old.map_or(!is_refused, |old| {
        [REQUEST, ORIGINAL].iter().all(|key| annotation(old, key).is_none())
            && number(old, "/spec/replicas") == 0
            && annotation(new, HANDING_OVER).is_none()
    });
    is_over.then_some("keeps its bookkeeping after the end")
}

/// A new update ends in time, exactly, and with no pod too many.
async fn last_update(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    let (old, desired) = actors.again().await;
    let name_of_new = NAMES[actors.last.pair.1];
    let new = truth::controller(&cluster.sandbox, name_of_new).unwrap_or_default();
    until_ended(cluster, actors, &old, &new, desired).await
}

/// The only update of a history ends in time, exactly, or back where it came from, whatever was killed.
///
/// # Errors
/// The update that has not ended.
pub async fn ends(cluster: &Arc<Cluster>, actors: &mut Actors, scenario: &Scenario) -> Result<(), Breach> {
    let (old, new) = (actors.first.clone(), actors.target.clone());
    let is_rollback = scenario.acts.iter().any(|(_, act)| matches!(act, Act::TakeBack(_, true)));
    match is_rollback {
        false => until_ended(cluster, actors, &old, &new, 3).await?,
        true => {
            actors.wait(LIVENESS).await;
            is_back(cluster, &old).map_err(|what| Breach::new("RU11", what))?;
        }
    }
    let writes = cluster.writes();
    actors.crash().await;
    actors.wait(Duration::from_secs(330)).await;
    match cluster.writes() - writes {
        0 => Ok(()),
        more => Err(Breach::new("RU12", format!("{more} writes after the end"))),
    }
}

/// RU11: after a rollback everything is as it was before the update.
fn is_back(cluster: &Cluster, old: &Value) -> Result<(), String> {
    let all = truth::controllers(&cluster.sandbox);
    let [one] = &*all else { return Err(format!("there are {} controllers after a rollback", all.len())) };
    let (live, available) = count(one, &cluster.sandbox.objects("Pod"), cluster.clock.now());
    let is_same = uid(one) == uid(old) && one["spec"] == old["spec"];
    let is_clean = one["metadata"]["annotations"] == old["metadata"]["annotations"];
    let size = number(old, "/spec/replicas");
    match is_same && is_clean && [live, available] == [size; 2] && reason(one) == "RolledBack" {
        true => Ok(()),
        false => Err(format!("it was {old} before, and after a rollback it has {live} pods and is {one}")),
    }
}

async fn until_ended(
    cluster: &Arc<Cluster>,
    actors: &mut Actors,
    old: &Value,
    new: &Value,
    desired: u32,
) -> Result<(), Breach> {
    let cleanup = actors.last.cleanup;
    let survivor = if cleanup == Cleanup::KeepName { name(old) } else { name(new) };
    let pauses = Duration::from_secs(u64::from(actors.last.period + 1) * 8);
    let begun = cluster.elapsed();
    while let Err(what) = has_ended(cluster, old, new, (survivor, cleanup), desired) {
        if cluster.failure().is_some() {
            return Ok(());
        }
        if cluster.elapsed() - begun > LIVENESS + pauses {
            return Err(Breach::new("RU11", what));
        }
        actors.wait(Duration::from_secs(1)).await;
    }
    cluster.say("the last update has ended");
    Ok(())
}

fn has_ended(
    cluster: &Cluster,
    old: &Value,
    new: &Value,
    (survivor, cleanup): (&str, Cleanup),
    desired: u32,
) -> Result<(), String> {
    let all = truth::controllers(&cluster.sandbox);
    let mut wanted = vec![survivor];
    if cleanup == Cleanup::Preserve {
        wanted.push(name(old));
    }
    wanted.sort_unstable();
    let mut names: Vec<&str> = all.iter().map(name).collect();
    names.sort_unstable();
    if names != wanted {
        return Err(format!("there are {names:?}; expected {wanted:?}"));
    }
    for one in &all {
        let said = reason(one);
        let left = BOOKKEEPING.iter().find(|key| annotation(one, key).is_some());
        if let Some(key) = left {
            return Err(format!("{} still has {key}; it says {said}", name(one)));
        }
        let reports = cleanup != Cleanup::Preserve || name(one) == name(old);
        if reports && said != "Complete" {
            return Err(format!("{} says {said:?}", name(one)));
        }
    }
    let find = |wanted: &str| all.iter().find(|one| name(one) == wanted).ok_or("it is gone".to_owned());
    let one = find(survivor)?;
    let (live, available) = count(one, &cluster.sandbox.objects("Pod"), cluster.clock.now());
    let size = number(one, "/spec/replicas");
    if [size, live, available] != [i64::from(desired); 3] {
        return Err(format!(
            "{survivor} wants {size} pods and has {live}, {available} available; expected {desired}"
        ));
    }
    let expected = if cleanup == Cleanup::KeepName { old } else { new };
    if uid(one) != uid(expected) || one["spec"]["selector"] != new["spec"]["selector"] {
        return Err(format!("{survivor} is another, or selects other pods: {one}"));
    }
    if one["spec"]["template"] != new["spec"]["template"] {
        return Err(format!("{survivor} has another template: {one}"));
    }
    let team = |one: &Value| text(one, "/metadata/annotations/example.com~1team").to_owned();
    if cleanup != Cleanup::Delete && team(find(name(old))?) != "a" {
        return Err("OLD has lost an annotation of its user".to_owned());
    }
    match all.iter().find(|one| annotation(one, HANDING_OVER).is_some()) {
        Some(one) => Err(format!("{} is still handing over", name(one))),
        None => Ok(()),
    }
}
