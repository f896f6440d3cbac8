//! Which finished Jobs of a CronJob are deleted.

use std::sync::Arc;

use jiff::Timestamp;

use crate::model::{CronJob, Job};

/// When a Job that a CronJob has created was due; `None` for one that a user has created for it.
pub fn run_time(job: &Job) -> Option<Timestamp> {
    job.scheduled
}

/// Whether a Job is the only proof of its run: the CronJob's status does not show the run yet. Without the Job, and with it its
/// name, the run would be repeated after a crash. A user's Job proves nothing.
pub fn is_only_proof(job: &Job, last_schedule: Option<Timestamp>) -> bool {
    run_time(job).is_some_and(|time| last_schedule.is_none_or(|last| time > last))
}

/// The finished Jobs beyond the limits, oldest first (upstream: `cleanupFinishedJobs`).
pub fn surplus(cron_job: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let CronJob { successful_history_limit, failed_history_limit, status, .. } = cron_job;
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
        surplus.extend(deleted.filter(|job| !is_only_proof(job, status.last_schedule)).cloned());
    }
    surplus
}
