//! The invariants over every committed write of a daemon: CJ1 to CJ6, CJ8, TT1 and PG1 to PG3, from the objects alone.
//!
//! A write is judged by the versions of the CronJob that its author could know: the current one, and those that were
//! replaced within the time that a decision may be old.

mod jobs;
pub mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::calendar::Calendar;
use crate::engine::blind::Blind;
use crate::engine::breach::Breach;
use crate::engine::call::{Call, OpenCalls};
use crate::engine::network::{self, BLIND, Faults};
use crate::engine::objects::{self, NAMESPACE, is_deleting, name, number, owner, text, uid};
use windlass_apiserver::Sandbox;

/// The name of the CronJob.
pub const NAME: &str = "tick";

/// The pointer to the time of a run in its Job.
pub const SCHEDULED: &str = "/metadata/annotations/batch.kubernetes.io~1cronjob-scheduled-timestamp";

/// By when a run begins where nobody interferes.
const PROMPT: SignedDuration = SignedDuration::from_secs(2);

/// For how long nobody may have interfered before that is expected.
const CALM: Duration = Duration::from_secs(75);

/// The API server of this game.
pub type Cluster = network::Cluster<Judge>;

/// A committed write, and the objects right before it.
pub struct Commit<'a> {
    /// When, since the beginning of the history.
    pub at: Duration,
    /// When, by the clock of the cluster.
    pub now: Timestamp,
    /// The request.
    pub call: &'a Call,
    /// The object before.
    pub before: Option<&'a Value>,
    /// The object after.
    pub after: Option<&'a Value>,
    /// The CronJob as it is after the write.
    pub cron_job: Option<Arc<Value>>,
    /// The Jobs before the write.
    pub jobs: Vec<Value>,
    /// The pods before the write.
    pub pods: Vec<Value>,
    /// The nodes before the write.
    pub nodes: Vec<Value>,
}

/// The state before a write.
pub struct Before {
    object: Option<Arc<Value>>,
    jobs: Vec<Value>,
    pods: Vec<Value>,
    nodes: Vec<Value>,
}

/// All invariants and their state.
#[derive(Debug, Default)]
pub struct Judge {
    /// The changes that the author of a write may not know.
    blind: Blind,
    /// The Jobs that are gone, and since when: a decision may have counted them.
    gone: Vec<(Duration, Value)>,
    has_faults: bool,
    /// Until when the watches of Jobs show nothing.
    lags_until: Duration,
    /// When a user or a fault last interfered.
    pub disturbed: Duration,
    /// How far the clocks of daemons are behind and ahead at most.
    skew: (SignedDuration, SignedDuration),
    /// Earlier versions of the CronJob, and until when each was current.
    versions: Vec<(Duration, Value)>,
    /// When each Job was created.
    created: BTreeMap<String, Duration>,
    /// The runs that Jobs were created for, by the UID of the CronJob and the name of the Job.
    runs: BTreeSet<(String, String)>,
    /// Their times.
    times: BTreeSet<(String, Timestamp)>,
    /// When Jobs completed, as the objects say it, by the UID of the CronJob.
    completions: BTreeSet<(String, String)>,
    /// Since when each node is not there; since the beginning if it never was.
    absent: BTreeMap<String, Duration>,
    /// When each node was last changed.
    node_changed: BTreeMap<String, Duration>,
    /// When a user last changed a pod.
    pods_changed: Duration,
    /// The daemons that run.
    running: BTreeSet<String>,
    calls: OpenCalls,
}

/// A condition of a Job that is true.
pub fn condition<'a>(job: &'a Value, kind: &str) -> Option<&'a Value> {
    objects::condition(job, kind).filter(|condition| condition["status"] == "True")
}

/// When a Job ended.
pub fn finished(job: &Value) -> Option<Timestamp> {
    let condition = condition(job, "Complete").or_else(|| condition(job, "Failed"))?;
    text(condition, "/lastTransitionTime").parse().ok()
}

/// Whether a Job has ended.
pub fn is_finished(job: &Value) -> bool {
    finished(job).is_some()
}

/// When a Job that has ended expires.
pub fn expires(job: &Value) -> Option<Timestamp> {
    let seconds = job["spec"]["ttlSecondsAfterFinished"].as_i64()?;
    finished(job)?.saturating_add(SignedDuration::from_secs(seconds)).ok()
}

/// The time of the run that a Job is for, unless a user created it.
pub fn run_time(job: &Value) -> Option<Timestamp> {
    text(job, SCHEDULED).parse().ok()
}

/// The last run that the status of a CronJob shows.
pub fn last_schedule(cron_job: &Value) -> Option<Timestamp> {
    text(cron_job, "/status/lastScheduleTime").parse().ok()
}

/// The name of the Job for a time.
fn job_name(time: Timestamp) -> String {
    format!("{NAME}-{}", time.as_second().div_euclid(60))
}

/// Whether it is an unfinished run of a CronJob.
fn is_active(job: &Value, cron_job: &Value) -> bool {
    owner(job) == uid(cron_job) && run_time(job).is_some() && !is_finished(job)
}

impl Commit<'_> {
    fn breach(&self, invariant: &'static str, what: impl std::fmt::Display) -> Result<(), Breach> {
        Err(Breach::new(invariant, format!("{what}: {}", self.call)))
    }
}

impl Judge {
    /// Invariants that have seen nothing yet.
    pub fn new(faults: Faults) -> Self {
        let has_faults = faults != Faults::default();
        Judge { blind: Blind::new(faults.staleness()), has_faults, ..Judge::default() }
    }

    /// Daemons that start from now on have this clock.
    pub fn skewed(&mut self, ahead: SignedDuration) {
        self.skew = (self.skew.0.min(ahead), self.skew.1.max(ahead));
    }

    /// Whether a daemon runs.
    pub fn has_daemon(&self) -> bool {
        !self.running.is_empty()
    }

    /// From now on the watches of Jobs show nothing for this time.
    pub fn job_watches_lag(&mut self, at: Duration, time: Duration) {
        self.lags_until = at + time;
        network::Judge::is_blind(self, at + BLIND);
    }

    /// The clocks of all daemons are right again.
    pub fn clocks_are_right(&mut self) {
        self.skew = Default::default();
    }

    /// The versions of the CronJob of this UID that a decision may be based on.
    fn versions<'a>(&'a self, commit: &'a Commit<'_>, of: &str) -> Vec<&'a Value> {
        let since = self.blind.since(commit.at);
        let earlier = self.versions.iter().filter(|(until, _)| *until >= since).map(|(_, version)| version);
        let mut all: Vec<&Value> = earlier.chain(commit.cron_job.as_deref()).collect();
        all.retain(|version| uid(version) == of);
        all
    }

    /// The earliest time at which a decision that is carried out now can have been made, by the clock of its daemon.
    fn decided(&self, commit: &Commit<'_>) -> Timestamp {
        let age = SignedDuration::try_from(commit.at - self.blind.since(commit.at)).unwrap_or_default();
        let now = commit.now.saturating_add(self.skew.0).unwrap_or(commit.now);
        now.saturating_sub(age).unwrap_or(now)
    }

    fn remember(&mut self, commit: &Commit<'_>) {
        let Commit { at, call, before, after, .. } = *commit;
        match &*call.resource {
            "cronjobs" => {
                if let Some(before) = before {
                    self.versions.push((at, before.clone()));
                }
                let long_ago = at.saturating_sub(Duration::from_secs(200));
                self.versions.retain(|(until, _)| *until >= long_ago);
            }
            "jobs" => self.remember_job(commit),
            "nodes" => {
                let node = call.name.clone();
                self.node_changed.insert(node.clone(), at);
                match after {
                    Some(_) => drop(self.absent.remove(&node)),
                    None => drop(self.absent.insert(node, at)),
                }
            }
            "pods" if !call.of_daemon() || call.abandoned || self.running.len() > 1 => self.pods_changed = at,
            _ => {}
        }
    }

    fn remember_job(&mut self, commit: &Commit<'_>) {
        let Commit { at, call, before, after, .. } = *commit;
        if let (None, Some(job)) = (before, after) {
            self.created.insert(uid(job).to_owned(), at);
        }
        if let Some(time) =
            after.map(|job| text(job, "/status/completionTime")).filter(|time| !time.is_empty())
        {
            let owner = after.map(owner).unwrap_or_default().to_owned();
            self.completions.insert((owner, time.to_owned()));
        }
        if let (Some(job), None) = (before, after) {
            let long_ago = at.saturating_sub(Duration::from_secs(200));
            self.gone.retain(|(since, _)| *since >= long_ago);
            self.gone.push((at, job.clone()));
        }
        // Whoever deletes the proof of a run before the status shows it has the run repeated.
        if let (Some(job), None) = (before, after)
            && !call.of_daemon()
            && let Some(time) = run_time(job)
            && commit.cron_job.as_deref().and_then(last_schedule).is_none_or(|last| last < time)
        {
            self.runs.remove(&(owner(job).to_owned(), name(job).to_owned()));
        }
    }

    fn judge(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let call = commit.call;
        match (&*call.resource, commit.before, commit.after) {
            ("cronjobs", Some(before), Some(after)) if call.subresource == "status" => {
                self.judge_status(commit, before, after)
            }
            ("cronjobs", ..) => commit.breach("CJ4", "the only write to a CronJob is its status"),
            ("jobs", None, Some(job)) => self.judge_creation(commit, job),
            ("jobs", Some(job), _) if call.method == Method::DELETE => self.judge_deletion(commit, job),
            ("jobs", ..) => commit.breach("CJ6", "a Job is created and deleted, and not written"),
            ("pods", Some(before), after) => self.judge_pod(commit, before, after),
            _ => commit.breach("PG1", "nobody asked for this write"),
        }
    }

    /// CJ4: the status only moves on, and says what has happened.
    fn judge_status(&self, commit: &Commit<'_>, before: &Value, after: &Value) -> Result<(), Breach> {
        let of = uid(after);
        let (old, new) = (last_schedule(before), last_schedule(after));
        if new < old {
            return commit.breach("CJ4", format!("lastScheduleTime falls from {old:?} to {new:?}"));
        }
        if let Some(time) = new.filter(|_| new != old)
            && !self.times.contains(&(of.to_owned(), time))
        {
            return commit.breach("CJ4", format!("lastScheduleTime is {time}, when no run was due"));
        }
        let [old, new] = [before, after].map(|object| text(object, "/status/lastSuccessfulTime"));
        if new < old || new != old && !self.completions.contains(&(of.to_owned(), new.to_owned())) {
            return commit.breach("CJ4", format!("lastSuccessfulTime changes from {old:?} to {new:?}"));
        }
        let active = after["status"]["active"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut listed = BTreeSet::new();
        for entry in active {
            let (job, entry) = (text(entry, "/name"), text(entry, "/uid"));
            if !listed.insert(entry) {
                return commit.breach("CJ4", format!("{job} is in active twice"));
            }
            if !self.runs.contains(&(of.to_owned(), job.to_owned())) && !self.created.contains_key(entry) {
                return commit.breach("CJ4", format!("{job} is in active and was never created"));
            }
        }
        Ok(())
    }

    /// CJ2: where nobody has interfered for a while, the latest time that is due has run, unless it may not.
    ///
    /// # Errors
    /// The time that did not run.
    pub fn check_runs(
        &self,
        at: Duration,
        now: Timestamp,
        cron_job: Option<&Value>,
        jobs: &[Value],
    ) -> Result<(), Breach> {
        let Some(cron_job) = cron_job.filter(|cron_job| !is_deleting(cron_job)) else { return Ok(()) };
        let is_calm = !self.has_faults
            && self.skew == Default::default()
            && self.running.len() == 1
            && at.saturating_sub(self.disturbed) > CALM
            && !self.blind.lags(at);
        let Some(calendar) = Calendar::of(cron_job).filter(|calendar| is_calm && !calendar.is_every()) else {
            return Ok(());
        };
        let spec = &cron_job["spec"];
        let is_blocked = spec["suspend"] == true
            || spec["startingDeadlineSeconds"] == 0
            || spec["concurrencyPolicy"] == "Forbid" && jobs.iter().any(|job| is_active(job, cron_job));
        let until = now.saturating_sub(PROMPT).unwrap_or(now);
        let after = until.saturating_sub(CALM - Duration::from_secs(10)).unwrap_or(until);
        let last = last_schedule(cron_job);
        for time in calendar.between(after, until) {
            let job = job_name(time);
            let is_taken = jobs.iter().any(|other| name(other) == job && owner(other) != uid(cron_job));
            let has_run = self.runs.contains(&(uid(cron_job).to_owned(), job)) || last >= Some(time);
            if !has_run && !is_blocked && !is_taken {
                let written = calendar.written_time(time);
                return Err(Breach::new("CJ2", format!("the run of {written} has not begun at {now}")));
            }
        }
        Ok(())
    }

    /// Whether the run of a time has had its Job.
    pub fn has_run(&self, cron_job: &Value, time: Timestamp) -> bool {
        self.runs.contains(&(uid(cron_job).to_owned(), job_name(time)))
    }

    /// The last completion of a Job of a CronJob.
    pub fn last_completion(&self, cron_job: &Value) -> Option<&str> {
        let of = |(owner, _): &&(String, String)| owner == uid(cron_job);
        self.completions.iter().rev().find(of).map(|(_, time)| &**time)
    }
}

fn kind(call: &Call) -> Option<&'static str> {
    match &*call.resource {
        "cronjobs" => Some("CronJob"),
        "jobs" => Some("Job"),
        "pods" => Some("Pod"),
        "nodes" => Some("Node"),
        _ => None,
    }
}

fn stored(sandbox: &Sandbox, call: &Call) -> Option<Arc<Value>> {
    let namespace = if call.resource == "nodes" { "" } else { NAMESPACE };
    sandbox.object(kind(call)?, namespace, &call.name)
}

impl network::Judge for Judge {
    type Before = Before;

    fn before(&self, sandbox: &Sandbox, call: &Call) -> Option<Before> {
        kind(call)?;
        let [jobs, pods, nodes] = ["Job", "Pod", "Node"].map(|kind| sandbox.objects(kind));
        Some(Before { object: stored(sandbox, call), jobs, pods, nodes })
    }

    fn committed(&mut self, moment: network::Moment<'_>, before: Before) -> Result<(), Breach> {
        let network::Moment { sandbox, at, now, call } = moment;
        let after = stored(sandbox, call);
        let Before { object, jobs, pods, nodes } = before;
        if object == after {
            return Ok(());
        }
        let (before, after) = (object.as_deref(), after.as_deref());
        let cron_job = sandbox.object("CronJob", NAMESPACE, NAME);
        let commit = Commit { at, now, call, before, after, cron_job, jobs, pods, nodes };
        let judged = if call.of_daemon() { self.judge(&commit) } else { Ok(()) };
        self.remember(&commit);
        judged
    }

    fn open_calls(&mut self) -> Option<&mut OpenCalls> {
        Some(&mut self.calls)
    }

    fn daemon_started(&mut self, agent: &str, _: Duration) {
        self.running.insert(agent.to_owned());
    }

    fn daemon_died(&mut self, agent: &str) {
        self.running.remove(agent);
    }

    fn is_blind(&mut self, until: Duration) {
        self.disturbed = self.disturbed.max(until.saturating_sub(BLIND));
        self.blind.lags_until(until);
    }

    fn lags_for(&self, at: Duration, call: &Call) -> Duration {
        if call.resource == "jobs" { self.lags_until.saturating_sub(at) } else { Duration::ZERO }
    }

    fn faults_end(&mut self) {
        self.has_faults = false;
        self.lags_until = Duration::ZERO;
    }
}

/// A number of a specification, or this.
fn limit(cron_job: &Value, field: &str) -> usize {
    usize::try_from(number(cron_job, &format!("/spec/{field}"))).unwrap_or(0)
}
