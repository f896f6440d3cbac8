//! Which finished Jobs of a CronJob are deleted.

use std::sync::Arc;

use jiff::Timestamp;

use super::{SKEW, new_job};
use crate::model::{CronJob, Job};

/// When a Job that a CronJob has created was due; `None` for one that a user has created for it.
pub fn run_time(job: &Job) -> Option<Timestamp> {
    job.scheduled
}

/// The run until `latest` that a Job proves: its name is that of the run. A user may have copied the annotation, or a wrong clock
/// written it.
pub fn proven(cron_job: &CronJob, job: &Job, latest: Timestamp) -> Option<Timestamp> {
    let time = run_time(job).filter(|time| *time <= latest)?;
    (*job.meta.key.name == *new_job::name(cron_job, time)).then_some(time)
}

/// Whether a Job is the only proof of its run: the CronJob's status does not show the run yet. Without the Job, and with it its
/// name, the run would be repeated after a crash. Where a wrong clock wrote the status, so is each Job of the last hours.
pub fn is_only_proof(cron_job: &CronJob, job: &Job, now: Timestamp) -> bool {
    let latest = now.saturating_add(SKEW).unwrap_or(now);
    let shown = cron_job.status.last_schedule.map(|last| match last > latest {
        true => now.saturating_sub(SKEW * 2).unwrap_or(now),
        false => last,
    });
    proven(cron_job, job, latest).is_some_and(|time| shown.is_none_or(|shown| time > shown))
}

/// The finished Jobs beyond the limits, oldest first (upstream: `cleanupFinishedJobs`).
pub fn surplus(cron_job: &CronJob, jobs: &[Arc<Job>], now: Timestamp) -> Vec<Arc<Job>> {
    let CronJob { successful_history_limit, failed_history_limit, .. } = cron_job;
    let mut surplus = Vec::new();
    for (kind, limit) in [("Complete", successful_history_limit), ("Failed", failed_history_limit)] {
        let Some(limit) = limit else { continue };
        let mut finished: Vec<&Arc<Job>> =
            jobs.iter().filter(|job| job.status.is_true(kind) && !job.meta.is_deleting()).collect();
        // One without a start is the newest.
        finished.sort_by_key(|job| {
            let start = job.status.start_time;
            (start.is_none(), start, job.meta.key.name.clone())
        });
        let beyond = finished.len().saturating_sub(usize::try_from(*limit).unwrap_or(0));
        let deleted = finished.into_iter().take(beyond);
        surplus.extend(deleted.filter(|job| !is_only_proof(cron_job, job, now)).cloned());
    }
    surplus
}
