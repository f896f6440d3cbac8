//! Conditions that must hold once the faults have ended: GC6, GC7, GC12, GC13 and GC14.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::judge::{Cluster, SHARE};
use super::scenario::{Act, KindFault, Scenario, Scope};
use super::truth::{self, KINDS, Stored, Truth};
use crate::engine::breach::Breach;
use crate::engine::game::Actors as _;
use crate::engine::objects::text;

/// How long a deletion may take that nothing holds up, besides the time that the rate limiter takes.
const PROMPT: Duration = Duration::from_secs(5);

/// How much longer it may take after faults. A request that has got no answer is given up after half a minute, a key that
/// has failed again and again waits for a minute, and a watch that has failed begins anew within half a minute.
const AFTER_FAULTS: Duration = Duration::from_secs(130);

/// How often an owner is read that is not watched.
const UNWATCHED: Duration = Duration::from_secs(310);

/// For how long a settled collector is watched.
const QUIET: Duration = Duration::from_secs(600);

/// In some scenarios: a kind that is down for longer than an orphaning deletion waits for it, and an owner that is blocked by
/// a dependent which the collector has not seen.
pub async fn outlasts_faults(actors: &mut Actors, scenario: &Scenario) {
    let is_calm = scenario.is_calm;
    if !is_calm && scenario.seed % 4 == 3 {
        let kind = (scenario.seed / 4 % KINDS.len() as u64) as usize;
        let fault = if scenario.seed % 8 == 3 { KindFault::Broken } else { KindFault::Lost };
        actors.act(&Act::OfKind(fault, kind, 240)).await;
        for number in 100..104 {
            actors.act(&Act::CreateAndDelete(number, "Orphan".into())).await;
            actors.act(&Act::Delete(number * 7, Some("Orphan".into()))).await;
        }
        tokio::time::sleep(Duration::from_secs(180)).await;
        if scenario.seed % 16 > 7 {
            // It has let go of them by now, and the kind is still down.
            actors.act(&Act::Crash).await;
            tokio::time::sleep(Duration::from_secs(90)).await;
        }
    }
    if !is_calm && scenario.seed % 4 == 1 {
        let kinds = [[0, 1], [1, 0], [0, 3], [2, 1]][(scenario.seed / 4 % 4) as usize];
        actors.act(&Act::BlockUnseen(200, kinds)).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
    }
}

/// Waits until what has no owner is gone and every deletion has ended, then checks what the collector sends.
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
    cluster.with_judge(|judge| judge.faults.end());
    let mut patience = if scenario.is_calm { Duration::ZERO } else { AFTER_FAULTS };
    if scenario.scope != Scope::All {
        patience += UNWATCHED;
    }
    let (mut begun, mut calls) = (cluster.elapsed(), calls(cluster));
    while let Err(breach) = settled(cluster) {
        if cluster.failure().is_some() {
            return Ok(());
        }
        if cluster.elapsed() - begun > patience + bound(cluster, scenario, calls) {
            return Err(breach);
        }
        if actors.release().await {
            // The deletions that waited for it begin now.
            (begun, calls) = (cluster.elapsed(), self::calls(cluster));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    if scenario.scope != Scope::All {
        // An owner that is not watched may have begun to wait for its dependents since it was read.
        tokio::time::sleep(UNWATCHED).await;
    }
    cluster.say("settled");
    // For what is only retried.
    tokio::time::sleep(Duration::from_secs(180)).await;
    if scenario.scope.includes(0, crate::engine::objects::NAMESPACE) {
        cascade(cluster, actors, scenario).await?;
    }
    is_quiet(cluster, actors, scenario).await
}

fn calls(cluster: &Cluster) -> usize {
    cluster.with_judge(|judge| judge.calls.len())
}

/// GC6: the time for the requests since then, and five seconds.
fn bound(cluster: &Cluster, scenario: &Scenario, since: usize) -> Duration {
    let sent = calls(cluster) - since;
    PROMPT + Duration::from_secs_f64(sent as f64 / (scenario.qps * SHARE))
}

/// GC6 and GC14: what depends on a deleted owner goes promptly, and each object costs one request.
async fn cascade(cluster: &Arc<Cluster>, actors: &Actors, scenario: &Scenario) -> Result<(), Breach> {
    let dependents = 2 + (scenario.seed % 40) as usize;
    let owner = actors.create_tree(dependents).await;
    tokio::time::sleep(PROMPT).await;
    let (begun, before) = (cluster.elapsed(), calls(cluster));
    actors.delete(&owner, Some("Background")).await;
    loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let left = truth::objects(&cluster.sandbox);
        let left = left.iter().filter(|object| text(object, "/metadata/name").starts_with("x-tree")).count();
        if left == 0 || cluster.failure().is_some() {
            break;
        }
        if cluster.elapsed() - begun > bound(cluster, scenario, before) {
            let what = format!(
                "{left} dependents of a deleted owner are left after {:?}",
                cluster.elapsed() - begun
            );
            return Err(Breach::new("GC6", what));
        }
    }
    tokio::time::sleep(PROMPT).await;
    let sent = cluster.with_judge(|judge| judge.calls[before..].to_vec());
    if sent.len() > dependents + 2 {
        let what =
            format!("{dependents} dependents of a deleted owner cost {} requests: {sent:#?}", sent.len());
        return Err(Breach::new("GC14", what));
    }
    Ok(())
}

/// GC13: a settled collector sends nothing besides watches and discovery. A new one lists, and looks once at what refers to
/// owners of which nobody can tell, and says why.
async fn is_quiet(cluster: &Arc<Cluster>, actors: &mut Actors, scenario: &Scenario) -> Result<(), Breach> {
    let writes = cluster.with_judge(|judge| judge.writes);
    // Owners that are not watched are read again and again.
    let reads_owners = scenario.scope != Scope::All;
    let is_silent = |since: usize, when: &str| {
        let sent = cluster.with_judge(|judge| judge.calls[since..].to_vec());
        match sent.is_empty() || reads_owners {
            true => Ok(()),
            false => Err(Breach::new("GC13", format!("requests of a settled collector {when}: {sent:#?}"))),
        }
    };
    let about_the_record = || cluster.with_judge(|judge| judge.record_calls);
    let (since, of_record) = (calls(cluster), about_the_record());
    tokio::time::sleep(QUIET).await;
    is_silent(since, "")?;
    // It has forgotten owners, each once.
    let forgotten = cluster.with_judge(|judge| judge.remembered());
    if about_the_record() - of_record > 2 * forgotten {
        let what = format!("more requests for the record than 2 for each of {forgotten} owners");
        return Err(Breach::new("GC13", what));
    }
    cluster.break_watches(true);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let sent = cluster.with_judge(|judge| judge.calls[since..].to_vec());
    let is_list = |call: &String| call.contains(" GET ") && call.contains("/?");
    if !reads_owners && !sent.iter().all(is_list) {
        return Err(Breach::new("GC13", format!("more than lists after the watches broke: {sent:#?}")));
    }
    let (since, of_record) = (calls(cluster), about_the_record());
    actors.crash().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    if about_the_record() - of_record > 1 + 2 * forgotten {
        return Err(Breach::new("GC13", "a new collector reads its record more than once".to_owned()));
    }
    let sent = cluster.with_judge(|judge| judge.calls[since..].to_vec());
    let unresolvable = unresolvable(cluster);
    let is_look = |call: &String| {
        let is_read = |object: &String| call.contains(" GET ") && call.contains(&format!("/{object}?"));
        let is_event = |object: &String| call.contains(&format!(" events/{object}."));
        unresolvable.iter().any(|object| is_read(object) || is_event(object))
    };
    if let Some(call) = sent.iter().find(|call| !reads_owners && !is_list(call) && !is_look(call)) {
        let objects = truth::objects(&cluster.sandbox);
        let is_named = |object: &&Value| call.contains(&format!("/{}?", text(object, "/metadata/name")));
        let named: Vec<&Value> = objects.iter().filter(is_named).collect();
        let what = format!("a request of a new collector that has nothing to do: {call}\n{named:#?}");
        return Err(Breach::new("GC13", what));
    }
    let since = calls(cluster);
    tokio::time::sleep(QUIET).await;
    is_silent(since, "after a restart")?;
    match cluster.with_judge(|judge| judge.writes) - writes {
        0 => settled(cluster),
        more => Err(Breach::new("GC13", format!("{more} writes of a settled collector"))),
    }
}

/// The names of objects with an owner of which nobody can tell, and of their owners.
fn unresolvable(cluster: &Cluster) -> Vec<String> {
    let all = Stored::now(&cluster.sandbox);
    let refers = |object: &&Value| truth::owners(object, &all).contains(&Truth::Unresolvable);
    let names = |object: &Value| -> Vec<String> {
        let owners = truth::references(object).map(|owner| text(owner, "/name").to_owned());
        owners.chain([text(object, "/metadata/name").to_owned()]).collect()
    };
    all.objects.iter().filter(refers).flat_map(names).collect()
}

fn settled(cluster: &Cluster) -> Result<(), Breach> {
    let all = Stored::now(&cluster.sandbox);
    for object in &all.objects {
        if !cluster.with_judge(|judge| judge.is_in_scope(object)) {
            continue;
        }
        let breach = |invariant, what: &str| {
            let refers = |other: &&Value| {
                truth::references(other).any(|reference| reference["uid"] == object["metadata"]["uid"])
            };
            let around = std::iter::once(object).chain(all.objects.iter().filter(refers));
            let around: Vec<String> =
                around.map(|object| format!("{} {}", object["kind"], object["metadata"])).collect();
            let name = text(object, "/metadata/name");
            Err(Breach::new(invariant, format!("{} {name} {what}\n{}", object["kind"], around.join("\n"))))
        };
        if truth::is_deleting(object) {
            for (finalizer, invariant) in [("orphan", "GC6"), ("foregroundDeletion", "GC7")] {
                if truth::has_finalizer(object, finalizer) {
                    return breach(invariant, &format!("is still kept by {finalizer}"));
                }
            }
            continue;
        }
        let owners = truth::owners(object, &all);
        if owners.is_empty() {
            continue;
        }
        let gone: Vec<&Value> = truth::references(object)
            .zip(&owners)
            .filter(|(_, owner)| matches!(owner, Truth::Absent))
            .map(|(reference, _)| reference)
            .collect();
        if gone.len() == owners.len() {
            return breach("GC6", "has only owners that are gone");
        }
        if let Some(reference) = gone.first() {
            return breach("GC6", &format!("refers to an owner that is gone: {reference}"));
        }
    }
    Ok(())
}
