//! The state of a rollout in one word.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use windlass::model::{Condition, Deployment, condition};
use windlass::plan::deployment::progress::{INVALID_POLICY, PROGRESSING, ROLLOUT_STEP, TIMED_OUT};
use windlass::plan::deployment::status::REPLICA_FAILURE;
use windlass::plan::deployment::{Plan, PlanReason, StatusScope};

use super::last_writes::LastWrites;
use windlass_terminal::layout::Tone;

/// How long a controller may take to observe a change before it counts as absent.
pub const UNOBSERVED_AFTER: SignedDuration = SignedDuration::from_secs(5);

/// The state of a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// All pods are new and available, and no other counts.
    Complete,
    /// It proceeds.
    Rolling,
    /// It waits for pods.
    Waiting,
    /// It is not complete, by its status. What it waits for is unknown, since its ReplicaSets or pods could not be read.
    Unfinished,
    /// Its policy holds it: at a step, between two batches, or until a value of the policy can be read.
    Held,
    /// It has failed, and the ReplicaSet that serves has its pods back.
    Halted,
    /// The progress deadline has passed, or its policy says that it has failed.
    Stuck,
    /// `spec.paused`.
    Paused,
    /// `spec.replicas` has changed in the middle of a rollout.
    Scaling,
    /// The API server refuses ReplicaSets or pods.
    Blocked,
    /// No controller can act on it.
    Refused,
    /// No controller has observed the newest generation.
    Unobserved,
    /// It is being deleted.
    Deleting,
    /// A Job has failed, or the last one of a CronJob.
    Failed,
    /// A Job works, or one of a CronJob.
    Running,
    /// `spec.suspend`.
    Suspended,
    /// No run of a CronJob is under way or due.
    Scheduled,
}

/// How much a state needs a look. The worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It goes on only if somebody does something.
    Trouble,
    /// It waits, mostly for pods.
    Waits,
    /// It proceeds.
    Proceeds,
    /// A user holds it.
    Held,
    /// Nothing is under way.
    AtRest,
}

impl Verdict {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Complete => "complete",
            Verdict::Rolling => "rolling",
            Verdict::Waiting => "waiting",
            Verdict::Unfinished => "unfinished",
            Verdict::Held => "held",
            Verdict::Halted => "halted",
            Verdict::Stuck => "stuck",
            Verdict::Paused => "paused",
            Verdict::Scaling => "scaling",
            Verdict::Blocked => "blocked",
            Verdict::Refused => "refused",
            Verdict::Unobserved => "unobserved",
            Verdict::Deleting => "deleting",
            Verdict::Failed => "failed",
            Verdict::Running => "running",
            Verdict::Suspended => "suspended",
            Verdict::Scheduled => "scheduled",
        }
    }

    /// How much it needs a look, the most first.
    pub fn severity(self) -> Severity {
        match self {
            Verdict::Stuck
            | Verdict::Halted
            | Verdict::Failed
            | Verdict::Blocked
            | Verdict::Refused
            | Verdict::Unobserved => Severity::Trouble,
            Verdict::Waiting | Verdict::Unfinished => Severity::Waits,
            Verdict::Rolling | Verdict::Scaling | Verdict::Running | Verdict::Deleting => Severity::Proceeds,
            Verdict::Paused | Verdict::Held => Severity::Held,
            Verdict::Complete | Verdict::Suspended | Verdict::Scheduled => Severity::AtRest,
        }
    }

    /// Its colour.
    pub fn tone(self) -> Tone {
        match self.severity() {
            Severity::Trouble => Tone::Bad,
            Severity::AtRest => Tone::Good,
            _ if self == Verdict::Deleting => Tone::Bad,
            _ => Tone::Waiting,
        }
    }

    /// Whether nothing is under way.
    pub fn is_at_rest(self) -> bool {
        matches!(
            self,
            Verdict::Complete
                | Verdict::Held
                | Verdict::Halted
                | Verdict::Paused
                | Verdict::Refused
                | Verdict::Unobserved
                | Verdict::Deleting
                | Verdict::Failed
                | Verdict::Suspended
                | Verdict::Scheduled
        )
    }

    /// Whether it goes on at its own pace: nobody knows when a quota is raised or what comes after a deadline.
    pub fn proceeds(self) -> bool {
        !self.is_at_rest() && !matches!(self, Verdict::Blocked | Verdict::Stuck)
    }
}

/// Whether the controllers are done: kubectl's rule, and kstatus'.
pub fn is_done(deployment: &Deployment) -> bool {
    let (wanted, status) = (deployment.replicas, &deployment.status);
    is_observed(deployment)
        && [status.updated, status.replicas, status.available].iter().all(|count| *count == wanted)
}

/// The state of a rollout, from the status of the Deployment alone.
pub(super) fn by_status(deployment: &Deployment, last: &LastWrites, now: Timestamp) -> Verdict {
    let conditions = &deployment.status.conditions;
    let reports_failure = condition::find(conditions, REPLICA_FAILURE).is_some_and(Condition::is_true);
    let progress = condition::find(conditions, PROGRESSING).map_or("", |condition| &*condition.reason);
    if deployment.meta.is_deleting() {
        Verdict::Deleting
    } else if is_unobserved(deployment, last, now) {
        Verdict::Unobserved
    } else if deployment.paused {
        Verdict::Paused
    } else if is_done(deployment) {
        Verdict::Complete
    } else if reports_failure {
        Verdict::Blocked
    } else if progress == TIMED_OUT && is_observed(deployment) {
        Verdict::Stuck
    } else if [ROLLOUT_STEP, INVALID_POLICY].contains(&progress) && is_observed(deployment) {
        Verdict::Held
    } else {
        Verdict::Unfinished
    }
}

fn is_observed(deployment: &Deployment) -> bool {
    deployment.status.observed_generation >= deployment.meta.generation
}

fn is_unobserved(deployment: &Deployment, last: &LastWrites, now: Timestamp) -> bool {
    let changed = last.spec.unwrap_or(deployment.meta.created);
    !is_observed(deployment) && now.duration_since(changed) >= UNOBSERVED_AFTER
}

/// The state of a rollout, from the Deployment, the plan and its reasons.
pub(super) fn verdict(
    deployment: &Deployment,
    plan: &Plan,
    reasons: &[PlanReason],
    last: &LastWrites,
    now: Timestamp,
) -> Verdict {
    let gives = |test: fn(&PlanReason) -> bool| reasons.iter().any(test);
    if deployment.meta.is_deleting() {
        Verdict::Deleting
    } else if plan.status_scope == StatusScope::Refused {
        Verdict::Refused
    } else if is_unobserved(deployment, last, now) {
        Verdict::Unobserved
    } else if deployment.paused {
        Verdict::Paused
    } else if is_done(deployment) {
        Verdict::Complete
    } else if gives(|reason| matches!(reason, PlanReason::Halted { .. })) {
        Verdict::Halted
    } else if gives(|reason| {
        matches!(reason, PlanReason::CreateLimit { .. } | PlanReason::ReplicaFailure { .. })
    }) {
        Verdict::Blocked
    } else if gives(|reason| matches!(reason, PlanReason::InvalidPolicy { .. })) {
        Verdict::Held
    } else if is_observed(deployment)
        && gives(|reason| matches!(reason, PlanReason::DeadlinePassed { .. } | PlanReason::Failed { .. }))
    {
        Verdict::Stuck
    } else if gives(|reason| matches!(reason, PlanReason::Scaling { .. })) {
        Verdict::Scaling
    } else if plan.writes.is_empty() && gives(holds) {
        Verdict::Held
    } else if plan.writes.is_empty() {
        Verdict::Waiting
    } else {
        Verdict::Rolling
    }
}

/// Whether a policy holds the rollout although its pods are available.
fn holds(reason: &PlanReason) -> bool {
    match reason {
        PlanReason::HeldAtStep { step } => step.since.is_some(),
        PlanReason::HeldByDelay { .. } => true,
        _ => false,
    }
}
