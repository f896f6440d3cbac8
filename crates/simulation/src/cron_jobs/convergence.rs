//! Conditions that must hold once the faults have ended: CJ2, CJ4, CJ5, TT2, PG2 and PG3.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::actors::{Actors, THRESHOLD};
use super::judge::pods::{has_ended, is_out_of_service};
use super::judge::{Cluster, condition, expires, is_finished, last_schedule, run_time};
use crate::engine::breach::Breach;
use crate::engine::objects::{is_deleting, owner, text};

/// By when everything is settled: the longest time for which a request stays in doubt, the longest backoff, and a period of
/// the pod garbage collector.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(1500);

/// By when the requests of daemons that are dead have arrived. One that creates the Job of an earlier run again holds up the next.
const LATEST: Duration = Duration::from_secs(40);

/// By when a run begins, and an expired Job is deleted.
const PROMPT: Duration = Duration::from_secs(2);

/// How often a run follows at once where each has ended: one that was held up, and one whose minute has begun meanwhile.
const MADE_UP: u32 = 3;

/// How many runs are waited for.
const RUNS: u32 = 3;

/// Waits until everything has converged, then checks that each minute has its run, and that nothing is written any more once the
/// CronJob is suspended.
///
/// # Errors
/// The objects that have not converged.
pub async fn converges(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    cluster.say("the faults end");
    cluster.calm();
    actors.repair().await;
    until_settled(cluster, actors).await?;
    actors.daemons.wait(LATEST).await;
    for nth in 0..RUNS {
        next_run_begins(cluster, actors, nth).await?;
    }
    jobs_expire(cluster, actors).await?;
    actors.edit(json!({"suspend": true})).await;
    until_settled(cluster, actors).await?;
    check_quiescence(cluster, actors).await
}

/// CJ2, and CJ4: the next minute has its run within two seconds of its begin.
async fn next_run_begins(cluster: &Arc<Cluster>, actors: &mut Actors, nth: u32) -> Result<(), Breach> {
    finish_made_up_runs(cluster, actors, nth.is_multiple_of(2)).await;
    let now = cluster.clock.now();
    let next = now.as_second().div_euclid(60) * 60 + 60;
    let next = Timestamp::from_second(next).unwrap_or_default();
    let wait = Duration::try_from(next.duration_since(now)).unwrap_or_default();
    actors.daemons.wait(wait + PROMPT).await;
    let Some(cron_job) = actors.cron_job() else { return Ok(()) };
    let has_run = cluster.with_judge(|judge| judge.has_run(&cron_job, next));
    match has_run && last_schedule(&cron_job) == Some(next) {
        true => Ok(()),
        false => Err(Breach::new("CJ2", format!("the run of {next} has not begun {PROMPT:?} later"))),
    }
}

/// Ends all runs. One that `Forbid` held up is made up as soon as the one before has ended, and would hold up the next: it ends, too.
async fn finish_made_up_runs(cluster: &Cluster, actors: &mut Actors, succeeds: bool) {
    for _ in 0..MADE_UP {
        actors.finish_all(succeeds).await;
        actors.daemons.wait(PROMPT).await;
        if actors.unfinished().is_empty() || cluster.failure().is_some() {
            return;
        }
    }
}

/// TT2: a TTL that is set when it is over, and one that is over later.
async fn jobs_expire(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    actors.finish_all(true).await;
    actors.daemons.wait(PROMPT).await;
    for seconds in [8, 0] {
        let mut jobs = cluster.sandbox.objects("Job");
        jobs.retain(is_finished);
        let Some(job) = jobs.first() else { return Ok(()) };
        actors.set_ttl(job, seconds).await;
        actors.daemons.wait(Duration::from_secs(seconds.unsigned_abs()) + PROMPT).await;
        if cluster
            .sandbox
            .objects("Job")
            .iter()
            .any(|other| other["metadata"]["uid"] == job["metadata"]["uid"])
        {
            let what = format!("{} is there although it has expired", text(job, "/metadata/name"));
            return Err(Breach::new("TT2", what));
        }
    }
    Ok(())
}

async fn until_settled(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    let begun = cluster.elapsed();
    while let Err((invariant, unrest)) = is_settled(cluster, actors) {
        if cluster.failure().is_some() {
            return Ok(());
        }
        if cluster.elapsed() - begun > SETTLE_TIMEOUT {
            return Err(Breach::new(invariant, unrest));
        }
        // Runs go on, and end.
        actors.finish_all(true).await;
        actors.daemons.wait(PROMPT).await;
    }
    cluster.say("settled");
    Ok(())
}

async fn check_quiescence(cluster: &Arc<Cluster>, actors: &mut Actors) -> Result<(), Breach> {
    actors.daemons.wait(Duration::from_secs(400)).await;
    let writes = cluster.writes();
    cluster.sandbox.compact();
    cluster.sandbox.break_watches();
    actors.daemons.wait(Duration::from_secs(400)).await;
    actors.daemons.crash().await;
    actors.daemons.wait(Duration::from_secs(400)).await;
    is_settled(cluster, actors).map_err(|(invariant, unrest)| {
        Breach::new(invariant, format!("converged, and then no longer: {unrest}"))
    })?;
    match cluster.writes() - writes {
        0 => Ok(()),
        writes => Err(Breach::new("CJ4", format!("{writes} writes while nothing is to be done"))),
    }
}

/// Checks that everything has converged, or returns the invariant that does not hold, and why.
fn is_settled(cluster: &Cluster, actors: &Actors) -> Result<(), (&'static str, String)> {
    let cron_job = actors.cron_job().filter(|found| !is_deleting(found));
    let cron_job = cron_job.ok_or_else(|| ("CJ2", "there is no CronJob".to_owned()))?;
    let of = text(&cron_job, "/metadata/uid");
    let mut jobs = cluster.sandbox.objects("Job");
    jobs.retain(|job| owner(job) == of);
    check_status(cluster, &cron_job, &jobs).map_err(|unrest| ("CJ4", unrest))?;
    for kind in ["Complete", "Failed"] {
        let count = jobs.iter().filter(|job| condition(job, kind).is_some()).count();
        if count > 1 {
            return Err(("CJ5", format!("{count} Jobs are {kind}, and one stays")));
        }
    }
    let now = cluster.clock.now();
    let late = now.saturating_sub(SignedDuration::try_from(PROMPT).unwrap_or_default()).unwrap_or(now);
    let all = cluster.sandbox.objects("Job");
    if let Some(job) = all.iter().find(|job| expires(job).is_some_and(|expires| expires < late)) {
        return Err(("TT2", format!("{} has expired", text(job, "/metadata/name"))));
    }
    check_pods(cluster)
}

fn check_status(cluster: &Cluster, cron_job: &Value, jobs: &[Value]) -> Result<(), String> {
    let unfinished = jobs.iter().filter(|job| !is_finished(job) && run_time(job).is_some());
    let mut expected: Vec<&str> = unfinished.map(|job| text(job, "/metadata/uid")).collect();
    let active = cron_job["status"]["active"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut listed: Vec<&str> = active.iter().map(|entry| text(entry, "/uid")).collect();
    expected.sort_unstable();
    listed.sort_unstable();
    if expected != listed {
        return Err(format!("active lists {listed:?}; expected {expected:?}"));
    }
    let last = jobs.iter().filter_map(run_time).max();
    if last_schedule(cron_job) < last {
        return Err(format!("lastScheduleTime is {:?}; expected {last:?}", last_schedule(cron_job)));
    }
    let completed = jobs.iter().map(|job| text(job, "/status/completionTime")).max().unwrap_or_default();
    let said = text(cron_job, "/status/lastSuccessfulTime");
    let known = cluster.with_judge(|judge| judge.last_completion(cron_job).map(str::to_owned));
    match said < completed || known.is_some_and(|known| known.as_str() < said) {
        true => Err(format!("lastSuccessfulTime is {said:?}; expected {completed:?}")),
        false => Ok(()),
    }
}

/// PG2 and PG3: no pod is left that no kubelet ends, and no more ended ones than stay.
fn check_pods(cluster: &Cluster) -> Result<(), (&'static str, String)> {
    let (pods, nodes) = (cluster.sandbox.objects("Pod"), cluster.sandbox.objects("Node"));
    for pod in &pods {
        let node = text(pod, "/spec/nodeName");
        let found = nodes.iter().find(|other| text(other, "/metadata/name") == node);
        let is_left = match found {
            None => !node.is_empty() || is_deleting(pod),
            Some(node) => is_deleting(pod) && is_out_of_service(node),
        };
        if is_left {
            return Err(("PG2", format!("{} is left behind", text(pod, "/metadata/name"))));
        }
    }
    let ended = pods.iter().filter(|pod| has_ended(pod) && !is_deleting(pod)).count();
    match ended > THRESHOLD {
        true => Err(("PG3", format!("{ended} pods have ended, and {THRESHOLD} stay"))),
        false => Ok(()),
    }
}
