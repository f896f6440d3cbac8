//! The state of a rollout in one word.

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use windlass::model::Deployment;
use windlass::plan::deployment::{Plan, PlanReason, StatusScope};

use super::last_writes::LastWrites;

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
    /// The progress deadline has passed.
    Stuck,
    /// `spec.paused`.
    Paused,
    /// `spec.replicas` has changed in the middle of a rollout.
    Scaling,
    /// The API server refuses ReplicaSets or pods.
    Blocked,
    /// No controller can act on the Deployment.
    Refused,
    /// No controller has observed the newest generation.
    Unobserved,
    /// The Deployment is being deleted.
    Deleting,
}

impl Verdict {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Complete => "complete",
            Verdict::Rolling => "rolling",
            Verdict::Waiting => "waiting",
            Verdict::Stuck => "stuck",
            Verdict::Paused => "paused",
            Verdict::Scaling => "scaling",
            Verdict::Blocked => "blocked",
            Verdict::Refused => "refused",
            Verdict::Unobserved => "unobserved",
            Verdict::Deleting => "deleting",
        }
    }

    /// Whether nothing is under way.
    pub fn is_at_rest(self) -> bool {
        matches!(
            self,
            Verdict::Complete | Verdict::Paused | Verdict::Refused | Verdict::Unobserved | Verdict::Deleting
        )
    }
}

/// Whether the controllers are done: kubectl's rule, and kstatus'.
pub fn is_done(deployment: &Deployment) -> bool {
    let (wanted, status) = (deployment.replicas, &deployment.status);
    status.observed_generation >= deployment.meta.generation
        && [status.updated, status.replicas, status.available].iter().all(|count| *count == wanted)
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
    let is_observed = deployment.status.observed_generation >= deployment.meta.generation;
    let changed = last.spec.unwrap_or(deployment.meta.created);
    if deployment.meta.is_deleting() {
        Verdict::Deleting
    } else if plan.status_scope == StatusScope::Refused {
        Verdict::Refused
    } else if !is_observed && now.duration_since(changed) >= UNOBSERVED_AFTER {
        Verdict::Unobserved
    } else if deployment.paused {
        Verdict::Paused
    } else if is_done(deployment) {
        Verdict::Complete
    } else if gives(|reason| {
        matches!(reason, PlanReason::CreateLimit { .. } | PlanReason::ReplicaFailure { .. })
    }) {
        Verdict::Blocked
    } else if is_observed && gives(|reason| matches!(reason, PlanReason::DeadlinePassed { .. })) {
        Verdict::Stuck
    } else if gives(|reason| matches!(reason, PlanReason::Scaling { .. })) {
        Verdict::Scaling
    } else if plan.writes.is_empty() {
        Verdict::Waiting
    } else {
        Verdict::Rolling
    }
}
