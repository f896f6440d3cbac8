//! Which pods of a Job are created, deleted and counted, and how it ends (upstream: `job_controller.go`).
//!
//! | step | module |
//! |---|---|
//! | which pods ended, and which count | [`counting`] |
//! | whether the Job succeeds or fails | [`fate`] |
//! | how many pods it runs | [`manage`] |
//! | the finalizers that go, and the UIDs that are counted | [`counting`] |
//! | the status | [`status`] |
//!
//! A sync executes its writes to pods first, and then writes the status once. So a link of the chain that [`counting`]
//! describes is written in one sync, and the next link in the sync that finds it in the status.

pub mod backoff;
pub mod counting;
#[cfg(test)]
mod crash;
pub mod explain;
pub mod failure_policy;
pub mod fate;
#[cfg(test)]
mod fixture;
pub mod manage;
pub mod names;
pub mod new_pod;
pub mod pods;
pub mod refused_pods;
pub mod status;
pub mod success_policy;
pub mod tally;
#[cfg(test)]
mod tests;
pub mod untrack;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use self::backoff::Record;
use self::counting::{Counting, Links};
pub use self::explain::PlanReason;
use self::fate::Fate;
use self::manage::Managed;
pub use self::names::Names;
pub use self::pods::JobPods;
use super::EventNote;
use super::replicaset::status::until;
use crate::model::{CompletionMode, Job, Pod};

/// The most pods that one sync creates, deletes, or takes the finalizer off.
pub const BURST: usize = 500;

/// The input of one decision about a Job.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The Job.
    pub job: &'a Job,
    /// Its pods, and those that it might adopt.
    pub pods: JobPods,
    /// How many of its pods exist and cannot be decoded. Nothing is known of them, so nothing is decided.
    pub unreadable_pods: usize,
    /// Whether a fresh read showed the Job with the same identity and not being deleted. Only then may an orphan be adopted.
    pub may_adopt: bool,
    /// The names that new pods may have.
    pub names: Names,
    /// For how many pods places are kept for earlier requests.
    pub reserved: usize,
    /// The failures since the last success, as the last sync knew them.
    pub record: Option<Record>,
    /// The time of the decision.
    pub now: Timestamp,
}

/// The plan for one reconcile of a Job: writes in order, and what the status depends on.
#[derive(Clone, Debug, Default)]
#[must_use = "a plan changes nothing until it is executed"]
pub struct Plan {
    /// Writes to pods, in order.
    pub writes: Vec<Write>,
    /// An event about something that stays as it is. It is recorded once for each generation.
    pub note: Option<EventNote>,
    /// The input of the status besides the outcome of the writes.
    pub report: Report,
    /// When the next sync is due although nothing changes: the deadline, or the end of a backoff.
    pub requeue_after: Option<Duration>,
    /// The failures since the last success, to be kept.
    pub record: Option<Record>,
    /// The reasons for the plan, and what it waits for.
    pub reasons: Vec<PlanReason>,
}

/// The input of the status.
#[derive(Clone, Debug, Default)]
pub enum Report {
    /// It stays as it is.
    #[default]
    Nothing,
    /// The numbers of pods alone.
    Pods,
    /// Everything.
    All(Box<Account>),
}

/// The account of the pods of a Job.
#[derive(Clone, Debug)]
pub struct Account {
    /// The totals.
    pub counting: Counting,
    /// The links of the chain that are due.
    pub links: Links,
    /// The fate.
    pub fate: Option<Fate>,
}

/// One write to the pods of a Job.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Adopt an orphan, and give it the finalizer.
    Adopt(Arc<Pod>),
    /// Release a pod whose labels no longer match, and take its finalizer.
    Release(Arc<Pod>),
    /// Take the finalizer off pods that are counted, or need not be.
    Untrack(Vec<Arc<Pod>>),
    /// Give active pods the finalizer back.
    Track(Vec<Arc<Pod>>),
    /// Delete pods.
    Delete(Vec<Deletion>),
    /// Create pods.
    Create(Vec<NewPod>),
}

/// A pod to delete.
#[derive(Clone, Debug, PartialEq)]
pub struct Deletion {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Why.
    pub cause: Cause,
}

impl Deletion {
    fn of(pod: &Arc<Pod>, cause: Cause) -> Self {
        Deletion { pod: pod.clone(), cause }
    }

    /// Whether the finalizer goes before the pod is deleted, so that the pod counts neither as succeeded nor as failed.
    pub fn untracks(&self) -> bool {
        self.cause != Cause::Fate && self.pod.job.as_ref().is_some_and(|part| part.has_finalizer)
    }
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// More pods are active than wanted.
    Surplus,
    /// It has no index of the Job, or another pod has the same, or the index has ended.
    Stray,
    /// The Job is suspended.
    Suspended,
    /// The Job has succeeded or failed.
    Fate,
}

/// A pod to create.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewPod {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: Option<i32>,
    /// How often its index has failed before: failures that count, and ignored ones. With `backoffLimitPerIndex` only.
    pub failures_before: Option<(i32, i32)>,
}

impl Plan {
    /// Whether it creates pods.
    pub fn creates(&self) -> bool {
        self.writes.iter().any(|write| matches!(write, Write::Create(_)))
    }

    /// Whether it counts pods that the status does not count yet, or takes some off the list of the uncounted: the cache
    /// may not show yet a pod that another process has listed, and its finalizer may still be on.
    pub fn counts(&self) -> bool {
        let Report::All(account) = &self.report else { return false };
        let Links { new_succeeded, new_failed, failed_if_deleted, off, .. } = &account.links;
        let is_empty = [new_succeeded, new_failed, failed_if_deleted].into_iter().all(Vec::is_empty);
        !is_empty || !off.is_empty()
    }

    fn idle(reason: PlanReason) -> Self {
        Plan { reasons: vec![reason], ..Plan::default() }
    }
}

/// Whether the Job itself shows that work is left.
pub fn is_unsettled(job: &Job) -> bool {
    !job.is_finished() && job.managed_by.is_none()
}

/// Whether there is an orphan that the Job would adopt: then the caller reads it afresh before it computes a plan.
pub fn wants_to_adopt(job: &Job, pods: &JobPods) -> bool {
    refusal(job).is_none() && !pods.orphans.is_empty()
}

/// Why the Job is nothing to decide about.
fn is_of_others_or_finished(job: &Job) -> Option<PlanReason> {
    match &job.managed_by {
        Some(by) => Some(PlanReason::ManagedBy { controller: by.clone() }),
        None => job.is_finished().then(|| PlanReason::finished(job)),
    }
}

/// Why no decision can be made, and the event about it.
fn refusal(job: &Job) -> Option<(PlanReason, Option<EventNote>)> {
    if job.completion_mode == CompletionMode::Unknown {
        let message = "Skipped Job sync because completion mode is unknown".to_owned();
        let reason = PlanReason::Refused { defect: "its completionMode is of a newer API server".into() };
        return Some((reason, Some(EventNote::warning("UnknownCompletionMode", message))));
    }
    if let Some(defect) = job.selector.defect() {
        return Some((PlanReason::Refused { defect: defect.to_string() }, None));
    }
    job.selector.selects_everything().then(|| {
        let message = "This job is selecting all pods. A non-empty selector is required.".to_owned();
        let reason = PlanReason::Refused { defect: "its selector selects every pod".into() };
        (reason, Some(EventNote::warning("SelectingAll", message)))
    })
}

/// Decides.
///
/// | situation | writes |
/// |---|---|
/// | another controller manages the Job, or it is finished | none |
/// | a pod cannot be decoded | none: it may be one that seems to be gone |
/// | being deleted | finalizers go |
/// | it cannot be understood, or selects every pod | none |
/// | found gone by the read before an adoption | none |
/// | pods to adopt or release | those, and nothing else until the cache shows them |
/// | it has succeeded or failed | finalizers go, active pods are deleted |
/// | otherwise | finalizers go, pods are deleted or created |
pub fn plan(observed: &Observed<'_>) -> Plan {
    let Observed { job, pods, unreadable_pods, may_adopt, now, .. } = observed;
    if let Some(reason) = is_of_others_or_finished(job) {
        return Plan::idle(reason);
    }
    if *unreadable_pods > 0 {
        return Plan::idle(PlanReason::Unreadable { pods: *unreadable_pods });
    }
    if job.meta.is_deleting() {
        let tracked: Vec<Arc<Pod>> = pods.tracked().map(|owned| owned.pod.clone()).collect();
        let writes = untrack_writes(tracked);
        return Plan { writes, report: Report::Pods, ..Plan::idle(PlanReason::BeingDeleted) };
    }
    if let Some((reason, note)) = refusal(job) {
        return Plan { note, ..Plan::idle(reason) };
    }
    if !pods.orphans.is_empty() && !may_adopt {
        return Plan::idle(PlanReason::Gone);
    }
    let adoptions = pods.orphans.iter().cloned().map(Write::Adopt);
    let claims: Vec<Write> = adoptions.chain(pods.to_release.iter().cloned().map(Write::Release)).collect();
    if !claims.is_empty() {
        return Plan {
            writes: claims,
            ..Plan::idle(PlanReason::ChangingHands { pods: pods_to_claim(pods) })
        };
    }

    let counting = counting::count(observed);
    let (backoff, record) = backoff::failures(job, observed.record, pods, counting.failed, *now);
    let fate = fate::decide(observed, &counting);
    let managed = match &fate {
        Some(_) => Managed::default(),
        None => manage::manage(observed, &counting, &backoff),
    };
    let fate = fate.or_else(|| fate::is_complete(job, &counting, pods.active().count()));
    let links = counting::links(observed, &counting, fate.as_ref());
    let reasons = explain::explain(observed, &counting, &links, fate.as_ref(), &managed, &backoff);
    let delete = match &fate {
        Some(fate) if fate.is_committed => {
            pods.active().map(|owned| Deletion::of(&owned.pod, Cause::Fate)).collect()
        }
        // The fate is written before a pod goes for it: if that write were lost, its pods would count as failed for another.
        Some(_) => Vec::new(),
        None => managed.delete,
    };
    let is_more = links.untrack.len() > BURST;
    let mut writes = untrack_writes(links.untrack.clone());
    if !managed.track.is_empty() {
        writes.push(Write::Track(managed.track));
    }
    if !delete.is_empty() {
        writes.push(Write::Delete(delete));
    }
    if !managed.create.is_empty() && fate.is_none() {
        writes.push(Write::Create(managed.create));
    }
    let deadline = fate::deadline(job, *now).filter(|_| fate.is_none());
    let backing_off = managed.backing_off.map(|(_, until)| until);
    let trying = managed.trying.and_then(|(_, refused)| refused.awaited_until);
    let timers = [deadline, backing_off, trying, is_more.then_some(*now)];
    Plan {
        writes,
        note: job.bad_annotation.map(|annotation| {
            let message = format!(
                "annotation {annotation} is not a whole number of seconds above 0; the default applies"
            );
            EventNote::warning("InvalidAnnotation", message)
        }),
        report: Report::All(Box::new(Account { counting, links, fate })),
        requeue_after: timers.into_iter().flatten().min().map(|at| until(at, *now)),
        record: Some(record),
        reasons,
    }
}

fn pods_to_claim(pods: &JobPods) -> usize {
    pods.orphans.len() + pods.to_release.len()
}

fn untrack_writes(mut pods: Vec<Arc<Pod>>) -> Vec<Write> {
    pods.truncate(BURST);
    if pods.is_empty() { Vec::new() } else { vec![Write::Untrack(pods)] }
}
