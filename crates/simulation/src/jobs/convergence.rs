//! Conditions that must hold once the faults have ended: JB3, JB13, JB16 and JB18.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::actors::Actors;
use super::facts::{account, canonical, indexes, is_finished, is_indexed, is_tracked, owner};
use super::judge::Cluster;
use super::scenario::Form;
use crate::engine::breach::Breach;
use crate::engine::objects::{is_deleting, is_live, name, number, text, uid};

/// By when a Job is finished: seven backoffs of up to ten minutes for each of six indexes one after the other, and the
/// longest time for which a request stays in doubt.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(30_000);

/// By when the numbers of a status are right: they are gathered, and written with the next change or after the throttle.
const SHOWN: Duration = Duration::from_secs(90);

/// Waits until the Job is finished, then checks that a lost finalizer goes again, that nothing is written any more, and
/// that the next Job of the name starts afresh.
///
/// # Errors
/// The condition that does not hold.
pub async fn converges(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    cluster.say("the faults end");
    cluster.calm();
    actors.repair().await;
    actors.daemons.wait(SHOWN).await;
    check_numbers(actors)?;
    actors.resume().await;
    until_finished(cluster, actors).await?;
    if cluster.failure().is_some() {
        return Ok(());
    }
    check_finished(actors)?;
    finalizers_go(actors).await?;
    check_quiescence(cluster, actors).await?;
    the_next_job_starts_afresh(cluster, actors).await
}

/// JB13.
fn check_numbers(actors: &Actors) -> Result<(), Breach> {
    let Some(job) = actors.job().filter(|job| !job["spec"]["managedBy"].is_string() && !is_deleting(job))
    else {
        return Ok(());
    };
    let pods = actors.pods();
    let account = account(&job, pods.iter());
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let mut ready = conditions.filter(|c| c["type"] == "Ready" && c["status"] == "True");
        owner(pod) == uid(&job) && is_live(pod) && ready.next().is_some()
    };
    let ready = pods.iter().filter(is_ready).count() as i64;
    let expected = [("active", account.active), ("ready", ready), ("terminating", account.terminating)];
    // Pods that end by themselves change the numbers all the time.
    let outcome = "/spec/template/metadata/annotations/windlass.dev~1pod-outcome";
    if !is_finished(&job) && text(&job, outcome) != "after:never" {
        return Ok(());
    }
    for (field, wanted) in expected {
        let said = number(&job["status"], &format!("/{field}"));
        if said != wanted {
            return Err(Breach::new("JB13", format!("{field} is {said}; expected {wanted}")));
        }
    }
    Ok(())
}

async fn until_finished(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    let begun = cluster.elapsed();
    loop {
        if cluster.failure().is_some() {
            return Ok(());
        }
        let job = actors.job();
        let is_left = |pod: &Value| is_tracked(pod) && job.as_ref().is_some_and(|job| owner(pod) == uid(job));
        match &job {
            Some(job) if job["spec"]["managedBy"].is_string() && is_finished(job) => return Ok(()),
            Some(job) if is_finished(job) && !actors.pods().iter().any(is_left) => break,
            None => actors.repair().await,
            Some(_) => actors.end_foreign().await,
        }
        if cluster.elapsed() - begun > SETTLE_TIMEOUT {
            let status = job.map(|job| job["status"].clone());
            return Err(Breach::new("JB18", format!("the Job is not finished: {status:?}")));
        }
        actors.succeed_one().await;
        actors.daemons.wait(Duration::from_secs(3)).await;
    }
    cluster.say("finished");
    Ok(())
}

/// JB3, JB16: what a finished Job leaves.
fn check_finished(actors: &Actors) -> Result<(), Breach> {
    let Some(job) = actors.job().filter(|job| !job["spec"]["managedBy"].is_string()) else { return Ok(()) };
    let status = &job["status"];
    if is_indexed(&job) {
        let completed = text(status, "/completedIndexes");
        let count = indexes(completed).len() as i64;
        if count != number(status, "/succeeded") || canonical(&indexes(completed)) != completed {
            return Err(Breach::new("JB3", format!("{count} indexes of {completed:?}: {status}")));
        }
    }
    let may_be_left = |pod: &&Value| is_tracked(pod) && (owner(pod) == uid(&job) || owner(pod).is_empty());
    match actors.pods().iter().find(may_be_left) {
        Some(pod) => Err(Breach::new("JB16", format!("{} has the finalizer", name(pod)))),
        None => Ok(()),
    }
}

/// JB16: a finalizer on a pod of a finished Job goes within 5 seconds.
async fn finalizers_go(actors: &mut Actors) -> Result<(), Breach> {
    if !actors.track_one().await {
        return Ok(());
    }
    actors.daemons.wait(Duration::from_secs(5)).await;
    let job = actors.job();
    let is_left = |pod: &&Value| is_tracked(pod) && job.as_ref().is_some_and(|job| owner(pod) == uid(job));
    match actors.pods().iter().find(is_left) {
        Some(pod) => Err(Breach::new("JB16", format!("{} has the finalizer after 5 seconds", name(pod)))),
        None => Ok(()),
    }
}

/// JB18: a finished Job is left alone, by a restarted daemon too.
async fn check_quiescence(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    actors.daemons.wait(Duration::from_secs(60)).await;
    let writes = cluster.writes();
    cluster.sandbox.compact();
    cluster.sandbox.break_watches();
    actors.daemons.wait(Duration::from_secs(120)).await;
    actors.daemons.crash().await;
    actors.daemons.wait(Duration::from_secs(120)).await;
    match cluster.writes() - writes {
        0 => Ok(()),
        writes => Err(Breach::new("JB18", format!("{writes} writes about a finished Job"))),
    }
}

/// JB18: a Job that fails is deleted, and the next of its name neither waits for its backoff nor counts its pods.
async fn the_next_job_starts_afresh(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    let form = |outcome: &'static str, completions| Form {
        mode: "NonIndexed".into(),
        completions,
        limit: 6,
        per_index: None,
        failure_policy: false,
        enough: None,
        replaces_failed_only: false,
        outcome: outcome.into(),
        is_foreign: false,
    };
    cluster.say("a Job that fails, and another of its name");
    actors.recreate("Background", form("exit:1,after:1s", 1)).await;
    // Three failures; the next pod comes after 40 seconds.
    actors.daemons.wait(Duration::from_secs(45)).await;
    let failed = actors.job().map_or(0, |job| number(&job, "/status/failed"));
    if failed != 3 && cluster.failure().is_none() {
        return Err(Breach::new("JB10", format!("{failed} pods have failed within 45 seconds, and not 3")));
    }
    actors.recreate("Background", form("exit:0,after:1s", 2)).await;
    actors.daemons.wait(Duration::from_secs(15)).await;
    let Some(job) = actors.job().filter(|_| cluster.failure().is_none()) else { return Ok(()) };
    let numbers = [number(&job, "/status/succeeded"), number(&job, "/status/failed")];
    match is_finished(&job) && numbers == [2, 0] {
        true => Ok(()),
        false => {
            Err(Breach::new("JB18", format!("it has not finished within 15 seconds: {}", job["status"])))
        }
    }
}
