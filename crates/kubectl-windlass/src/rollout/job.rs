//! The assessment of a Job.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{Interner, Job, Pod, Record as _, condition};
use windlass::plan::Reason;
use windlass::plan::job::{self as planner, JobPods, Names, Observed, Plan, PlanReason};
use windlass::plan::replicaset::names::Sequence;

use super::last_writes::LastWrites;
use super::pods::PodView;
use super::verdict::UNOBSERVED_AFTER;
use super::work::{JobCounts, Work};
use super::{Assessment, Records, Verdict, decode, partial, refusal};
use crate::target::Kind;
use crate::text::harmless;

/// Assesses a Job.
///
/// # Errors
/// When the Job is not what its kind says.
pub(super) fn assess(records: Records<'_>, now: Timestamp) -> Result<Assessment, serde_json::Error> {
    let Records { object, pods, events, is_partial, unreadable, .. } = records;
    let job: Job = decode(object, &mut Interner::default())?;
    let last = LastWrites::of(object);
    let by_status = by_status(&job, object, &last, unreadable, now);
    if is_partial {
        return Ok(by_status);
    }
    let pods_where = |holds: &dyn Fn(&Pod) -> bool| -> Vec<Arc<Pod>> {
        pods.iter().filter(|(pod, _)| holds(pod)).map(|(pod, _)| pod.clone()).collect()
    };
    let owned = pods_where(&|pod| job.controls(&pod.meta));
    let orphans = pods_where(&|pod| pod.meta.controller.is_none());
    let job_pods = JobPods::of(&job, owned, orphans);
    let taken: BTreeSet<&str> = pods.iter().map(|(pod, _)| &*pod.meta.key.name).collect();
    let sequence = Sequence::of(&job.meta.key.name, &job.meta.uid);
    let wanted = usize::try_from(job.parallelism).unwrap_or(0).min(planner::BURST);
    let free = (0..).map(|position| sequence.name(position)).filter(|name| !taken.contains(name.as_str()));
    let observed = Observed {
        job: &job,
        pods: job_pods,
        unreadable_pods: 0,
        may_adopt: true,
        names: if job.is_indexed() {
            Names::Indexed(Arc::default())
        } else {
            Names::Free(free.take(wanted).collect())
        },
        reserved: 0,
        record: None,
        now,
    };
    let plan = planner::plan(&observed);
    let mut in_the_way: Vec<PodView> = pods
        .iter()
        .filter(|(pod, _)| job.controls(&pod.meta))
        .map(|(pod, object)| PodView::new(pod, object, &job.meta.key.name, true, events, now))
        .filter(|pod| (!pod.is_ready || pod.is_deleting) && pod.state != "Succeeded")
        .collect();
    in_the_way.sort_by_key(|pod| (pod.is_deleting, !pod.is_failing, pod.created, pod.name.clone()));
    let creates = plan.creates();
    let refusal = refusal::current(&job.meta.uid, creates, events, &last, now);
    let verdict = match by_status.verdict {
        Verdict::Unfinished => verdict(&plan, refusal.is_some()),
        known => known,
    };
    Ok(Assessment {
        verdict,
        writes: plan.writes.iter().map(ToString::to_string).collect(),
        reasons: plan.reasons.into_iter().map(Reason::from).collect(),
        refusal,
        pods: in_the_way,
        is_partial: false,
        knows_pods: true,
        ..by_status
    })
}

/// The state of a Job that is neither finished nor suspended.
fn verdict(plan: &Plan, is_refused: bool) -> Verdict {
    let gives = |test: fn(&PlanReason) -> bool| plan.reasons.iter().any(test);
    let waits = |reason: &PlanReason| {
        matches!(
            reason,
            PlanReason::BackingOff { .. }
                | PlanReason::Trying { .. }
                | PlanReason::Waiting { .. }
                | PlanReason::Unreadable { .. }
        )
    };
    if gives(|reason| matches!(reason, PlanReason::Refused { .. })) {
        Verdict::Refused
    } else if is_refused {
        Verdict::Blocked
    } else if gives(waits) {
        Verdict::Waiting
    } else {
        Verdict::Running
    }
}

fn by_status(
    job: &Job,
    object: &Value,
    last: &LastWrites,
    unreadable: &[String],
    now: Timestamp,
) -> Assessment {
    let status = &job.status;
    let failed = condition::find(&status.conditions, "Failed").filter(|failed| failed.is_true());
    let is_unseen = status.start_time.is_none()
        && status.conditions.is_empty()
        && !job.is_suspended
        && job.managed_by.is_none()
        && now.duration_since(job.meta.created) >= UNOBSERVED_AFTER;
    // How it ended comes first: a Job with `ttlSecondsAfterFinished: 0` is deleted as soon as it has.
    let verdict = if failed.is_some() {
        Verdict::Failed
    } else if job.is_finished() {
        Verdict::Complete
    } else if job.meta.is_deleting() {
        Verdict::Deleting
    } else if is_unseen {
        Verdict::Unobserved
    } else if job.is_suspended {
        Verdict::Suspended
    } else {
        Verdict::Unfinished
    };
    let since = match verdict {
        Verdict::Unobserved => Some(job.meta.created),
        Verdict::Complete | Verdict::Failed => job.finished_at(),
        Verdict::Suspended => {
            condition::find(&status.conditions, "Suspended").and_then(|it| it.last_transition)
        }
        _ => status.start_time,
    };
    let succeeded = match job.is_indexed() {
        true => status.completed_indexes.len().into(),
        false => status.succeeded.into(),
    };
    let counts = JobCounts {
        active: status.active.into(),
        ready: status.ready.map(i64::from),
        succeeded,
        failed: status.failed.into(),
        completions: job.completions.map(i64::from),
        parallelism: job.parallelism.into(),
    };
    Assessment {
        // A Job has no field for it: a status of any kind shows that a controller has seen it.
        observed_generation: if is_unseen { 0 } else { job.meta.generation },
        verdict,
        since,
        summary: failed.map(|failed| harmless(&format!("{}: {}", failed.reason, failed.message))),
        work: Some(Work::Job(counts)),
        ..partial::of_object(Kind::Job, &job.meta, object, last, unreadable, now)
    }
}
