//! The status of a Job after a sync, and the events about it.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::counting::{Counting, Links, counted};
use super::fate::Fate;
use super::{Account, Observed, Plan, Report};
use crate::model::condition::{self, Condition, find};
use crate::model::job::Uncounted;
use crate::model::{Job, JobStatus, Uid};
use crate::plan::{EventNote, Urgency};

/// The outcome of the writes.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Pods whose finalizer is known to be off.
    pub untracked: BTreeSet<Uid>,
    /// Pods that were deleted.
    pub deleted: BTreeSet<Uid>,
    /// How many pods were created.
    pub created: usize,
    /// How many creations failed. Those that were left to a later sync are neither.
    pub not_created: usize,
}

/// The status to report.
pub fn settled(observed: &Observed<'_>, plan: &Plan, outcome: &Outcome) -> JobStatus {
    let before = &observed.job.status;
    match &plan.report {
        Report::Nothing => before.clone(),
        Report::Pods => with_pods(observed, outcome),
        Report::All(account) => {
            let Account { counting, links, fate } = &**account;
            let mut status = with_pods(observed, outcome);
            let is_counted = count(observed, counting, links, outcome, &mut status);
            match fate {
                None => suspend_or_start(observed, &mut status),
                Some(fate) => {
                    start(observed, &mut status);
                    set(&mut status, fate.interim(), "True", (&fate.reason, &fate.message), observed.now);
                    if fate.is_committed && is_counted && is_at_rest(observed, outcome) {
                        finish(observed, fate, &mut status);
                    }
                }
            }
            status
        }
    }
}

fn number(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// The numbers of pods after the writes.
fn with_pods(observed: &Observed<'_>, outcome: &Outcome) -> JobStatus {
    let pods = &observed.pods;
    let kept = || pods.active().filter(|owned| !outcome.deleted.contains(owned.uid()));
    let active = kept().count() + outcome.created;
    let ready = kept().filter(|owned| owned.pod.ready_since.is_some()).count();
    let terminating = pods.terminating().count() + pods.active().count() - kept().count();
    JobStatus {
        active: number(active),
        ready: Some(number(ready)),
        terminating: Some(number(terminating)),
        ..observed.job.status.clone()
    }
}

/// Sets the lists, the counters and the sets of indexes. Returns whether nothing is left to count.
fn count(
    observed: &Observed<'_>,
    counting: &Counting,
    links: &Links,
    outcome: &Outcome,
    status: &mut JobStatus,
) -> bool {
    let job = observed.job;
    let counted = counted(job, links, &outcome.untracked, &outcome.deleted);
    let is_counted = !counted.is_full && counted.lists == Uncounted::default();
    status.failed = counted.failed;
    status.succeeded = counted.succeeded;
    if job.is_indexed() {
        status.succeeded = counting.completed_indexes.len();
        status.completed_indexes = counting.completed_indexes.clone();
    }
    status.failed_indexes = counting.failed_indexes.clone();
    status.uncounted = Some(Box::new(counted.lists));
    is_counted
}

/// Whether no pod is left that the end of the Job must wait for: none is active or terminating, or has the finalizer.
fn is_at_rest(observed: &Observed<'_>, outcome: &Outcome) -> bool {
    let mut tracked = observed.pods.tracked();
    let mut others = observed.pods.active().chain(observed.pods.terminating());
    tracked.all(|owned| outcome.untracked.contains(owned.uid())) && others.next().is_none()
}

/// The time as the API stores it.
fn seconds(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// Sets a condition; one with the same status, reason and message stays as it is. Returns whether it was set.
fn set(
    status: &mut JobStatus,
    kind: &str,
    value: &str,
    (reason, message): (&str, &str),
    now: Timestamp,
) -> bool {
    let new = Condition { last_update: None, ..Condition::new(kind, value, reason, message, now) };
    let is_same = |old: &Condition| {
        (&old.status, &old.reason, &old.message) == (&new.status, &new.reason, &new.message)
    };
    let old = find(&status.conditions, kind);
    if old.is_some_and(is_same) || (old.is_none() && value == "False") {
        return false;
    }
    condition::remove(&mut status.conditions, kind);
    status.conditions.push(new);
    true
}

/// The start time of a Job that runs.
fn start(observed: &Observed<'_>, status: &mut JobStatus) {
    if status.start_time.is_none() && !observed.job.is_suspended {
        status.start_time = Some(seconds(observed.now));
    }
}

/// A Job that is suspended has no start time, and one that is resumed starts anew.
fn suspend_or_start(observed: &Observed<'_>, status: &mut JobStatus) {
    let now = observed.now;
    if observed.job.is_suspended {
        set(status, "Suspended", "True", ("JobSuspended", "Job suspended"), now);
        status.start_time = None;
    } else {
        if set(status, "Suspended", "False", ("JobResumed", "Job resumed"), now) {
            status.start_time = Some(seconds(now));
        }
        start(observed, status);
    }
}

/// The last condition. The API server refuses it without a start time, and a completion before the start.
fn finish(observed: &Observed<'_>, fate: &Fate, status: &mut JobStatus) {
    let job = observed.job;
    let is_empty = job.is_suspended && job.completions == Some(0);
    if status.start_time.is_none() && !is_empty {
        let pods = observed.pods.owned.iter().map(|owned| owned.pod.meta.created).min();
        status.start_time = Some(pods.unwrap_or(job.meta.created));
    }
    let now = seconds(observed.now).max(status.start_time.unwrap_or(Timestamp::MIN));
    if set(status, fate.terminal(), "True", (&fate.reason, &fate.message), now) && fate.is_success {
        status.completion_time = Some(now);
    }
}

/// Whether the status must be written at once: the next link of the chain waits for it, or users do. The numbers of pods
/// alone wait for a sync that has more to report, and never follow each other at once: two processes of which one has an
/// older cache of pods would answer each other.
pub fn urgency(job: &Job, settled: &JobStatus) -> Urgency {
    let before = &job.status;
    let JobStatus { active, ready, terminating, .. } = settled.clone();
    let only_pods = JobStatus { active, ready, terminating, ..before.clone() } == *settled;
    match (only_pods, before.start_time) {
        (true, Some(_)) => Urgency::Postponed,
        (true, None) => Urgency::Throttled,
        (false, _) => Urgency::Immediate,
    }
}

/// The events about conditions that a written status has and the one before had not.
pub fn events(job: &Job, settled: &JobStatus) -> Vec<EventNote> {
    let mut events = Vec::new();
    let turned = |kind: &str, value: &str| {
        let now = find(&settled.conditions, kind).filter(|condition| &*condition.status == value)?;
        let before = find(&job.status.conditions, kind);
        before.is_none_or(|before| &*before.status != value).then_some(now)
    };
    if turned("Suspended", "True").is_some() {
        events.push(EventNote::normal("Suspended", "Job suspended".into()));
    }
    if turned("Suspended", "False").is_some() {
        events.push(EventNote::normal("Resumed", "Job resumed".into()));
    }
    if turned("Complete", "True").is_some() {
        if job.completions.is_some_and(|completions| settled.succeeded > completions) {
            let message = "Too many succeeded pods running after completion count reached".to_owned();
            events.push(EventNote::warning("TooManySucceededPods", message));
        }
        events.push(EventNote::normal("Completed", "Job completed".into()));
    }
    if let Some(failed) = turned("Failed", "True") {
        let reason = super::explain::known_failure(&failed.reason);
        events.push(EventNote::warning(reason, failed.message.to_string()));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{at, job, observed, pod};
    use super::super::plan;
    use super::*;

    #[track_caller]
    fn finished(spec: &str, status: &str, start: Option<i64>) -> JobStatus {
        let job = job(spec, status);
        let observed = observed(&job, [pod("p").failed().untracked().ended_at(40)], 50);
        let status = settled(&observed, &plan(&observed), &Outcome::default());
        assert!(status.is_true("Failed") || status.is_true("Complete"), "{status:?}");
        assert_eq!(status.start_time, start.map(at));
        status
    }

    /// The API server refuses the last status without a start time, and one whose completion comes before its start.
    #[test]
    fn a_job_that_ends_while_it_is_suspended_gets_a_start_time() {
        let failed = r#""conditions":[{"type":"FailureTarget","status":"True","reason":"PodFailurePolicy"},
            {"type":"Suspended","status":"True"}]"#;
        finished(r#""suspend":true"#, failed, Some(0));
        let succeeded = r#""startTime":"2027-01-15T08:01:40Z","conditions":[
            {"type":"SuccessCriteriaMet","status":"True","reason":"CompletionsReached"}]"#;
        let status = finished("", succeeded, Some(100));
        assert_eq!(status.completion_time, Some(at(100)), "the clock of the one that started it was ahead");
    }
}
