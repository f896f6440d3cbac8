//! The plan for a CronJob: which Jobs are deleted, which run begins, and what the status says.
//!
//! The name of a Job is derived from the time of its run. It is the lock against a second run until the status shows the
//! run: so a Job that proves a run which the status does not show is not deleted, and repairs the status.
//!
//! | question | module |
//! |---|---|
//! | which run is due | [`due`] |
//! | which finished Jobs are deleted | [`history`] |
//! | the Job that is created | [`new_job`] |
//! | what the plan waits for | [`explain`] |

pub mod due;
pub mod explain;
pub mod history;
pub mod new_job;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};

use self::due::{Defect, Due, Timetable};
pub use self::explain::PlanReason;
use self::history::run_time;
use super::EventNote;
use super::replicaset::status::until;
use crate::model::cronjob::Options;
use crate::model::{ActiveJob, Concurrency, CronJob, CronJobStatus, Job, Uid};

/// The longest time without a sync. Timers follow the monotonic clock, schedules the wall clock, which may be set.
const LONGEST_WAIT: Duration = Duration::from_secs(600);

/// A run that begins later than this was missed, where a CronJob does not catch up.
const PUNCTUAL_SECONDS: i64 = 60;

/// A last run that is less far ahead was written by a clock that is ahead of ours, and not by a wrong one: it is waited for, or a
/// leader whose clock is behind would repeat runs.
const SKEW: SignedDuration = SignedDuration::from_hours(1);

/// More missed times than this are worth an event of their own (upstream's number).
const MANY: i64 = 100;

/// The input of one decision about a CronJob.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The CronJob.
    pub cron_job: &'a CronJob,
    /// The Jobs that it controls.
    pub jobs: Vec<Arc<Job>>,
    /// The names of Jobs that it does not control and whose names begin with its own, or that its status lists.
    pub taken: BTreeSet<Arc<str>>,
    /// How many of its Jobs exist and cannot be decoded.
    pub unreadable_jobs: usize,
    /// The time of the last run that this process knows of.
    pub last_run: Option<Timestamp>,
    /// The last change of its schedule or zone that this process has seen.
    pub rescheduled: Option<Rescheduled>,
    /// The time zones.
    pub zones: &'a TimeZoneDatabase,
    /// The zone of a CronJob that names none.
    pub local_zone: &'a TimeZone,
    /// The time of the decision.
    pub now: Timestamp,
}

/// The plan for one sync of a CronJob: deletions, then the run, then the status.
#[derive(Clone, Debug, Default)]
#[must_use = "a plan changes nothing until it is executed"]
pub struct Plan {
    /// Jobs to delete, in order.
    pub deletions: Vec<Deletion>,
    /// The run that begins.
    pub start: Option<Start>,
    /// The time that is due, whether its run begins or waits.
    pub due: Option<Timestamp>,
    /// The status without the outcome of these writes.
    pub status: CronJobStatus,
    /// Events about changes of the status, due when it is written.
    pub changes: Vec<EventNote>,
    /// Events about what lasts: each is due once for as long as plans have it.
    pub notes: Vec<Note>,
    /// When the next sync is due although nothing changes.
    pub requeue_after: Option<Duration>,
    /// The reasons for the plan, and what it waits for.
    pub reasons: Vec<PlanReason>,
}

/// A change of the schedule or the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rescheduled {
    /// When it was first seen.
    pub since: Timestamp,
    /// The time that was due then, and whose run had not begun.
    pub due: Option<Timestamp>,
}

/// A Job to delete.
#[derive(Clone, Debug, PartialEq)]
pub struct Deletion {
    /// The Job.
    pub job: Arc<Job>,
    /// Why.
    pub cause: Cause,
}

/// Why a Job is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It is finished, and beyond the limits of the history.
    History,
    /// A run replaces it.
    Replaced {
        /// Whether its pods go first.
        pods_first: bool,
    },
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The name of its Job.
    pub name: String,
    /// The time of the schedule.
    pub time: Timestamp,
    /// The zone in which the Job shows it.
    pub zone: TimeZone,
}

/// An event about something that lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// It is the same for as long as it lasts.
    pub about: String,
    /// The event.
    pub event: EventNote,
}

/// The outcome of a plan, as far as the status depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Jobs that were deleted.
    pub deleted: BTreeSet<Uid>,
    /// The run that has begun: its time, and its Job unless that is finished already.
    pub started: Option<(Timestamp, Option<ActiveJob>)>,
}

impl fmt::Display for Deletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delete {}", self.job.meta.key.name)
    }
}

impl Plan {
    /// Whether it writes anything but the status.
    pub fn writes(&self) -> bool {
        !self.deletions.is_empty() || self.start.is_some()
    }

    /// The writes, by name.
    pub fn listed(&self) -> Vec<String> {
        let start = self.start.iter().map(|start| format!("create {}", start.name));
        self.deletions.iter().map(ToString::to_string).chain(start).collect()
    }

    fn note(&mut self, about: impl fmt::Display, reason: &'static str, message: String) {
        let event = EventNote::warning(reason, message);
        self.notes.push(Note { about: format!("{reason} {about}"), event });
    }
}

/// Whether a change of a Job concerns its CronJob: most changes are counts of pods.
pub fn concerns(before: &Job, after: &Job) -> bool {
    before.is_finished() != after.is_finished()
        || before.status.completion_time != after.status.completion_time
        || before.meta.controller != after.meta.controller
        || before.meta.is_deleting() != after.meta.is_deleting()
}

/// Decides.
///
/// | situation | plan |
/// |---|---|
/// | any | finished Jobs beyond the limits are deleted; finished and missing Jobs leave `status.active` |
/// | being deleted, suspended, or no next time | nothing else |
/// | no run is due, or it is too late for it | timer for the next |
/// | the name of the Job is taken by another | event, timer |
/// | Forbid, and a run is not finished | event; the run is made up when that one ends |
/// | Replace, and a run is not finished | it is deleted first |
/// | otherwise | the Job is created |
pub fn plan(observed: &Observed<'_>) -> Plan {
    let Observed { cron_job, jobs, unreadable_jobs, zones, local_zone, now, .. } = observed;
    let mut plan = Plan::default();
    if *unreadable_jobs > 0 {
        // One of them may be unfinished, or the proof of a run.
        plan.status = cron_job.status.clone();
        plan.reasons.push(PlanReason::Unreadable { jobs: *unreadable_jobs });
        return plan;
    }
    let surplus = history::surplus(cron_job, jobs, *now).into_iter();
    plan.deletions = surplus.map(|job| Deletion { job, cause: Cause::History }).collect();
    status(observed, &mut plan);
    if cron_job.meta.is_deleting() {
        plan.reasons.push(PlanReason::BeingDeleted);
        return plan;
    }
    let timetable = match Timetable::of(cron_job, zones, local_zone) {
        Err(Defect::UnknownZone { error }) => {
            defective(&mut plan, cron_job, Defect::UnknownZone { error });
            return plan;
        }
        other => other,
    };
    if cron_job.is_suspended {
        plan.reasons.push(PlanReason::Suspended);
        return plan;
    }
    let runs = timetable.and_then(|timetable| {
        let last = earliest(observed, &timetable);
        let runs = timetable.due(last, deadline(cron_job), *now)?;
        let runs = since_the_change(observed, &timetable, last, runs)?;
        Ok((timetable, runs))
    });
    match runs {
        Ok((timetable, due)) => {
            plan.due = due.time;
            run(observed, &timetable, due, &mut plan);
        }
        Err(defect) => defective(&mut plan, cron_job, defect),
    }
    plan
}

/// The status, and the Jobs that are not finished.
fn status(observed: &Observed<'_>, plan: &mut Plan) {
    let Observed { cron_job, jobs, .. } = observed;
    let before = &cron_job.status;
    let is_listed = |uid: &Uid| before.active.iter().any(|active| active.uid == *uid);
    let mut status = CronJobStatus { active: Vec::new(), ..before.clone() };
    for listed in &before.active {
        let job = jobs.iter().find(|job| job.meta.uid == listed.uid);
        match job {
            Some(job) if job.is_finished() => {
                let kind = if job.status.is_true("Complete") { "Complete" } else { "Failed" };
                let message = format!("Saw completed job: {}, condition: {kind}", listed.name);
                plan.changes.push(EventNote::normal("SawCompletedJob", message));
            }
            Some(_) => status.active.push(listed.clone()),
            // Its Jobs lose their owner, or go with it; another's Job is not missing.
            None if cron_job.meta.is_deleting() || observed.taken.contains(&*listed.name) => {}
            None => {
                let message = format!("Active job went missing: {}", listed.name);
                plan.changes.push(EventNote::normal("MissingJob", message));
            }
        }
    }
    for job in jobs.iter().filter(|job| !job.is_finished() && !is_listed(&job.meta.uid)) {
        let name = &job.meta.key.name;
        // The status was not written after the Job was created, or a user created it.
        if run_time(job).is_some() {
            status.active.push(reference(job));
        }
        let message = format!("Saw a job that the controller did not create or forgot: {name}");
        plan.note(&job.meta.uid, "UnexpectedJob", message);
    }
    let completed = jobs.iter().filter(|job| job.status.is_true("Complete"));
    let last = completed.filter_map(|job| job.status.completion_time).max();
    status.last_successful = status.last_successful.max(last);
    status.last_schedule = status.last_schedule.max(last_run(observed));
    plan.status = status;
}

/// A Job as `status.active` has it.
pub fn reference(job: &Job) -> ActiveJob {
    let meta = &job.meta;
    ActiveJob { name: meta.key.name.clone(), uid: meta.uid.clone(), resource_version: meta.resource_version }
}

/// The last run that Jobs and this process prove. A Job that is a little ahead is that of a leader whose clock is ahead: an earlier
/// time must not replace it.
fn last_run(observed: &Observed<'_>) -> Option<Timestamp> {
    let Observed { cron_job, jobs, last_run, now, .. } = observed;
    let latest = now.saturating_add(SKEW).unwrap_or(*now);
    let proofs = jobs.iter().filter_map(|job| history::proven(cron_job, job, latest));
    proofs.chain(last_run.filter(|time| time <= now)).max()
}

/// Runs later than this are considered.
fn earliest(observed: &Observed<'_>, timetable: &Timetable) -> Timestamp {
    let Observed { cron_job, last_run: remembered, now, .. } = observed;
    let shown = cron_job.status.last_schedule;
    let is_credible = |last: &Timestamp| !is_in_future(*last, timetable, *now);
    let (remembered, proven) = (remembered.filter(is_credible), last_run(observed));
    let known = remembered.max(proven);
    match shown {
        None => known.unwrap_or(cron_job.meta.created),
        Some(last) if is_credible(&last) => known.map_or(last, |known| known.max(last)),
        // The runs of this process are known. Of those of another, Jobs may be gone: as if it had last run a minute ago;
        // names guard what has run.
        Some(_) => remembered.and(known).unwrap_or_else(|| {
            let due = timetable.due_before(*now);
            let recent = due.saturating_sub(SignedDuration::from_secs(60)).unwrap_or(*now);
            proven.map_or(recent, |proven| proven.max(recent))
        }),
    }
}

/// A new schedule begins when it is written: at noon, 5 o'clock was not missed because it was 3 o'clock before (upstream:
/// `updateCronJob`). A time that both schedules have, and that was due already, stays due. A process that starts later
/// cannot know of the change, and a clock that was wrong holds nothing up.
fn since_the_change(
    observed: &Observed<'_>,
    timetable: &Timetable,
    last: Timestamp,
    due: Due,
) -> Result<Due, Defect> {
    let Observed { rescheduled, now, .. } = observed;
    let Some(change) = rescheduled.filter(|change| change.since <= *now) else { return Ok(due) };
    let since = timetable.due_before(change.since);
    match due.time.or(due.too_late) {
        Some(latest) if latest > since => {
            let later = timetable.due(since.max(last), None, *now)?;
            Ok(Due { missed: due.missed.min(later.missed.max(1)), ..due })
        }
        Some(latest) if change.due != Some(latest) => {
            Ok(Due { time: None, too_late: None, missed: 0, next: due.next })
        }
        _ => Ok(due),
    }
}

/// Whether the last run is further ahead than the next one, and than clocks differ: no clock that this one follows has
/// written it.
fn is_in_future(last: Timestamp, timetable: &Timetable, now: Timestamp) -> bool {
    last.duration_since(now) > SKEW && is_ahead(last, timetable, now)
}

/// Whether the last run is further ahead than the next one.
fn is_ahead(last: Timestamp, timetable: &Timetable, now: Timestamp) -> bool {
    last > now && timetable.next(now).is_some_and(|next| last > next)
}

fn deadline(cron_job: &CronJob) -> Option<i64> {
    let punctual = cron_job.options.skips_missed.then_some(PUNCTUAL_SECONDS);
    [cron_job.starting_deadline_seconds, punctual].into_iter().flatten().min()
}

/// A CronJob cannot run.
fn defective(plan: &mut Plan, cron_job: &CronJob, defect: Defect) {
    let schedule = &cron_job.schedule;
    let generation = cron_job.meta.generation;
    match &defect {
        Defect::UnknownZone { error } => {
            let zone = cron_job.time_zone.as_deref().unwrap_or_default();
            plan.note(generation, "UnknownTimeZone", format!("invalid timeZone: {zone:?}: {error}"));
        }
        Defect::Unparseable { error } => {
            let message = format!("unparseable schedule: {schedule:?} : {error}");
            plan.note(generation, "UnparseableSchedule", message);
        }
        Defect::Never => {
            let message = format!(
                "invalid schedule: {schedule} : time difference between two schedules is less than 1 second"
            );
            plan.note(generation, "InvalidSchedule", message);
        }
    }
    plan.reasons.push(PlanReason::defective(cron_job, defect));
}

fn run(observed: &Observed<'_>, timetable: &Timetable, due: Due, plan: &mut Plan) {
    let Observed { cron_job, jobs, taken, now, .. } = observed;
    let wakes = due.next.map(|next| until(timetable.begins(next), *now));
    plan.requeue_after = Some(wakes.map_or(LONGEST_WAIT, |wakes| wakes.min(LONGEST_WAIT)));
    advise(cron_job, timetable, *now, plan);
    let active: Vec<&Arc<Job>> = jobs
        .iter()
        .filter(|job| plan.status.active.iter().any(|active| active.uid == job.meta.uid))
        .collect();
    let stretch = cron_job.status.last_schedule.unwrap_or(cron_job.meta.created);
    let missed = |plan: &mut Plan, time: Timestamp, why: &str| {
        let at = time.strftime("%a, %d %b %Y %H:%M:%S +0000");
        let times = if due.missed == 1 { "1 time".into() } else { format!("about {} times", due.missed) };
        let message = format!("Missed scheduled time to start a job: {at} ({times} since {stretch}: {why})");
        plan.note(stretch, "MissSchedule", message);
    };
    if let Some(time) = due.too_late {
        let deadline = deadline(cron_job).unwrap_or_default();
        missed(plan, time, &format!("a run must begin within {deadline} s"));
        plan.reasons.push(PlanReason::TooLate { time, deadline_seconds: deadline });
    }
    // Times that it is too late for are not made up, whatever their number (upstream counts from the deadline, too).
    let since = cron_job
        .starting_deadline_seconds
        .map(|seconds| now.saturating_sub(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MIN));
    let in_time = since.and_then(|since| timetable.due(since, None, *now).ok()).map(|due| due.missed);
    if in_time.map_or(due.missed, |in_time| in_time.min(due.missed)) > MANY {
        let message =
            "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.note(stretch, "TooManyMissedTimes", message.to_owned());
    }
    if let Some(time) = due.time {
        let name = new_job::name(cron_job, time);
        let has_name = last_run(observed).max(cron_job.status.last_schedule.filter(|last| last <= now));
        if has_name.is_some_and(|last| new_job::name(cron_job, last) == name) {
            plan.reasons.push(PlanReason::SameMinute { time });
        } else if taken.contains(&*name) {
            let message = format!(
                "Error creating job: jobs.batch {name:?} already exists and belongs to another owner"
            );
            plan.note(&name, "FailedCreate", message);
            plan.reasons.push(PlanReason::NameTaken { job: name.into(), time });
        } else if let Some(other) = active.first().filter(|_| cron_job.concurrency == Concurrency::Forbid) {
            let message =
                "Not starting job because prior execution is running and concurrency policy is Forbid";
            let event = EventNote::normal("JobAlreadyActive", message.to_owned());
            plan.notes.push(Note { about: format!("JobAlreadyActive {}", other.meta.uid), event });
            if due.missed > 1 {
                missed(
                    plan,
                    time,
                    &format!("Job {} is not finished, and runs must not overlap", other.meta.key.name),
                );
            }
            plan.reasons.push(PlanReason::Forbidden {
                job: other.meta.key.name.clone(),
                started: explain::started(other),
                time,
            });
        } else {
            if due.missed > timetable.most_a_minute() {
                missed(plan, time, "of several missed times only the latest runs");
            }
            begin(observed, timetable, &active, time, plan);
        }
    } else if !active.is_empty() {
        plan.reasons.push(PlanReason::running(&active));
    }
    if let Some(next) = due.next {
        let begins = timetable.begins(next);
        plan.reasons.push(PlanReason::Next { time: new_job::written(next, &timetable.zone).into(), begins });
    }
}

/// Replaces the Jobs of earlier runs, if they are to be replaced, and starts the run.
fn begin(
    observed: &Observed<'_>,
    timetable: &Timetable,
    active: &[&Arc<Job>],
    time: Timestamp,
    plan: &mut Plan,
) {
    let cron_job = observed.cron_job;
    let pods_first = cron_job.options.waits_for_pods;
    if cron_job.concurrency == Concurrency::Replace {
        let old = active.iter().filter(|job| !job.meta.is_deleting());
        let replaced = old.map(|job| Deletion { job: (*job).clone(), cause: Cause::Replaced { pods_first } });
        plan.deletions.extend(replaced);
        if pods_first && !active.is_empty() {
            // The deletion of the last one wakes the CronJob.
            plan.reasons.push(PlanReason::Replacing { jobs: active.len(), time });
            return;
        }
    }
    let name = new_job::name(cron_job, time);
    plan.reasons.push(PlanReason::Starting { job: name.as_str().into(), time });
    let zone = if cron_job.time_zone.is_some() { timetable.zone.clone() } else { TimeZone::UTC };
    plan.start = Some(Start { name, time, zone });
}

/// Events about a schedule that does not do what its author may think.
fn advise(cron_job: &CronJob, timetable: &Timetable, now: Timestamp, plan: &mut Plan) {
    let (schedule, generation) = (&cron_job.schedule, cron_job.meta.generation);
    if schedule.contains("TZ") {
        let message = format!(
            "CRON_TZ or TZ used in schedule {schedule:?} is not officially supported, see \
             https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
        );
        plan.note(generation, "UnsupportedSchedule", message);
    }
    if timetable.most_a_minute() > 1 {
        let message =
            format!("schedule {schedule:?} is due more than once a minute; one Job a minute is created");
        plan.note(generation, "TooFrequentSchedule", message);
    }
    if let Some((annotation, value)) = &cron_job.options.bad {
        let values = Options::values(annotation);
        let message = format!("annotation {annotation}: {value:?} is not {values}; the default applies");
        plan.note(generation, "InvalidAnnotation", message);
    }
    if let Some(last) = cron_job.status.last_schedule.filter(|last| is_ahead(*last, timetable, now)) {
        let consequence = match is_in_future(last, timetable, now) {
            true => "runs are counted from now on",
            false => "no run begins before it",
        };
        let message = format!("status.lastScheduleTime {last} is in the future; {consequence}");
        plan.note(last, "LastScheduleTimeInFuture", message);
    }
}

/// The status after the writes.
pub fn settled(plan: &Plan, outcome: &Outcome) -> CronJobStatus {
    let Outcome { deleted, started } = outcome;
    let mut status = plan.status.clone();
    status.active.retain(|active| !deleted.contains(&active.uid));
    if let Some((time, job)) = started {
        status.last_schedule = status.last_schedule.max(Some(*time));
        let is_listed = |job: &ActiveJob| status.active.iter().any(|active| active.uid == job.uid);
        status.active.extend(job.clone().filter(|job| !is_listed(job)));
    }
    status
}
