//! The assessment of a CronJob.

use std::sync::Arc;

use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use windlass::model::{CronJob, Interner, Job, Record as _, condition};
use windlass::plan::Reason;
use windlass::plan::cronjob::{self as planner, Observed, Plan, PlanReason};

use super::last_writes::LastWrites;
use super::work::{Runs, Work};
use super::{Assessment, Records, Verdict, decode, partial};
use crate::target::Kind;
use crate::text::harmless;

/// A controller begins a run at most this long after it is due.
const BEGINS_WITHIN: SignedDuration = SignedDuration::from_secs(60);

/// Assesses a CronJob by its Jobs.
///
/// # Errors
/// When the CronJob is not what its kind says.
pub(super) fn assess(records: Records<'_>, now: Timestamp) -> Result<Assessment, serde_json::Error> {
    let Records { object, jobs, is_partial, unreadable, .. } = records;
    let cron_job: CronJob = decode(object, &mut Interner::default())?;
    let last = LastWrites::of(object);
    let by_status = by_status(&cron_job, object, &last, unreadable, now);
    if is_partial {
        return Ok(by_status);
    }
    let jobs: Vec<Arc<Job>> = jobs.into_iter().map(|(job, _)| job).collect();
    let (owned, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|job| cron_job.controls(&job.meta));
    let prefix = format!("{}-", cron_job.meta.key.name);
    let taken = others.iter().map(|job| job.meta.key.name.clone()).filter(|name| name.starts_with(&prefix));
    let zones = TimeZoneDatabase::bundled();
    let observed = Observed {
        cron_job: &cron_job,
        jobs: owned.clone(),
        taken: taken.collect(),
        unreadable_jobs: 0,
        last_run: None,
        rescheduled: None,
        zones: &zones,
        local_zone: &TimeZone::UTC,
        now,
    };
    let plan = planner::plan(&observed);
    let failed = last_failure(&owned);
    let is_active = owned.iter().any(|job| !job.is_finished());
    let verdict = match by_status.verdict {
        Verdict::Unfinished => verdict(&plan, is_active, failed.is_some(), now),
        known => known,
    };
    let next = plan.reasons.iter().find_map(|reason| match reason {
        PlanReason::Next { begins, .. } => Some(*begins),
        _ => None,
    });
    let active = i64::try_from(owned.iter().filter(|job| !job.is_finished()).count()).unwrap_or(i64::MAX);
    let work = by_status.work.map(|work| match work {
        Work::Runs(runs) => Work::Runs(Runs { active, next, ..runs }),
        other => other,
    });
    let since = match (verdict, &plan.reasons[..]) {
        (Verdict::Failed, _) => failed.as_ref().and_then(|(job, _)| job.finished_at()),
        (Verdict::Waiting, reasons) => reasons.iter().find_map(|reason| match reason {
            PlanReason::Forbidden { time, .. } | PlanReason::NameTaken { time, .. } => Some(*time),
            _ => None,
        }),
        (Verdict::Running, reasons) => reasons.iter().find_map(|reason| match reason {
            PlanReason::Running { started, .. } => Some(*started),
            _ => None,
        }),
        (Verdict::Unobserved, _) => cron_job.status.last_schedule.or(plan.due),
        _ => None,
    };
    Ok(Assessment {
        verdict,
        since,
        summary: failed.map(|(_, text)| text),
        work,
        writes: plan.listed(),
        reasons: plan.reasons.into_iter().map(Reason::from).collect(),
        is_partial: false,
        knows_pods: true,
        ..by_status
    })
}

/// The Job of the last run, if it has failed, and why.
fn last_failure(jobs: &[Arc<Job>]) -> Option<(Arc<Job>, String)> {
    let last = jobs.iter().filter(|job| job.is_finished()).max_by_key(|job| job.finished_at())?;
    let failed = condition::find(&last.status.conditions, "Failed").filter(|failed| failed.is_true())?;
    let name = &last.meta.key.name;
    let text = format!("the last Job that ended, {name}, has failed: {}: {}", failed.reason, failed.message);
    Some((last.clone(), harmless(&text)))
}

fn verdict(plan: &Plan, is_active: bool, has_failed: bool, now: Timestamp) -> Verdict {
    let gives = |test: fn(&PlanReason) -> bool| plan.reasons.iter().any(test);
    // Of a schedule for every minute the latest time is never old, but there are others before it.
    let missed = plan.notes.iter().any(|note| note.event.reason == "MissSchedule");
    let is_late = plan.due.is_some_and(|due| now.duration_since(due) > BEGINS_WITHIN);
    let is_overdue = plan.start.is_some() && (is_late || missed);
    if gives(|reason| matches!(reason, PlanReason::Defective { .. })) {
        Verdict::Refused
    } else if is_overdue {
        Verdict::Unobserved
    } else if gives(|reason| {
        matches!(
            reason,
            PlanReason::Forbidden { .. } | PlanReason::NameTaken { .. } | PlanReason::Unreadable { .. }
        )
    }) {
        Verdict::Waiting
    } else if has_failed {
        Verdict::Failed
    } else if is_active || plan.start.is_some() {
        Verdict::Running
    } else {
        Verdict::Scheduled
    }
}

fn by_status(
    cron_job: &CronJob,
    object: &Value,
    last: &LastWrites,
    unreadable: &[String],
    now: Timestamp,
) -> Assessment {
    let status = &cron_job.status;
    let verdict = if cron_job.meta.is_deleting() {
        Verdict::Deleting
    } else if cron_job.is_suspended {
        Verdict::Suspended
    } else {
        Verdict::Unfinished
    };
    let runs = Runs {
        schedule: harmless(&cron_job.schedule),
        time_zone: cron_job.time_zone.as_deref().map(harmless),
        active: i64::try_from(status.active.len()).unwrap_or(i64::MAX),
        last: status.last_schedule,
        last_successful: status.last_successful,
        next: None,
    };
    Assessment {
        // A CronJob has no field for it, and nobody writes its status before the first run.
        observed_generation: match object["status"].as_object().is_none_or(serde_json::Map::is_empty) {
            true => 0,
            false => cron_job.meta.generation,
        },
        verdict,
        work: Some(Work::Runs(runs)),
        ..partial::of_object(Kind::CronJob, &cron_job.meta, object, last, unreadable, now)
    }
}
