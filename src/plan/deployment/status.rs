//! The status of a Deployment: the counts, and whether it is complete (upstream: `sync.go`,
//! `calculateStatus`).

use jiff::Timestamp;

use super::observed::is_at_rest;
use super::progress::{Failed, Outcome};
use super::{Observed, Plan, ReplicaSets, StatusScope};
use crate::model::int_or_percent::clamp;
use crate::model::{Condition, Deployment, DeploymentStatus, ReplicaSet, condition};
use crate::plan::Urgency;
use crate::plan::replicaset::status::are_fewer;

/// The type of the condition about availability.
pub const AVAILABLE: &str = "Available";
/// The type of the condition that a ReplicaSet's failure is copied to.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";

/// The counts over all ReplicaSets; conditions are still those of the Deployment.
pub fn counts(deployment: &Deployment, replica_sets: &ReplicaSets) -> DeploymentStatus {
    let sum = |of: &dyn Fn(&ReplicaSet) -> i32| {
        clamp(replica_sets.all().map(|replica_set| i64::from(of(replica_set))).sum())
    };
    let available = sum(&|replica_set| replica_set.status.available);
    // Known only when every ReplicaSet has counted its own; one that no controller has synced yet has none.
    let terminating: Option<i64> = replica_sets
        .all()
        .filter(|replica_set| {
            replica_set.status.terminating.is_some() || replica_set.status.observed_generation > 0
        })
        .map(|replica_set| replica_set.status.terminating.map(i64::from))
        .sum();
    DeploymentStatus {
        // A higher one was written by another client, such as a backup that was restored, and is corrected.
        observed_generation: deployment.meta.generation,
        replicas: sum(&|replica_set| replica_set.status.replicas),
        updated: replica_sets.new.as_ref().map_or(0, |new| new.status.replicas),
        ready: sum(&|replica_set| replica_set.status.ready),
        available,
        // The replicas that the ReplicaSets lack. Upstream takes the same sum, never below zero.
        unavailable: clamp((replica_sets.desired() - i64::from(available)).max(0)),
        terminating: terminating.map(clamp),
        collision_count: deployment.status.collision_count,
        conditions: deployment.status.conditions.clone(),
    }
}

/// Whether every desired pod is new and available, and no other is left (upstream:
/// `DeploymentComplete`).
pub fn is_complete(deployment: &Deployment, counts: &DeploymentStatus) -> bool {
    counts.updated == deployment.replicas
        && counts.replicas == deployment.replicas
        && counts.available == deployment.replicas
        && counts.observed_generation >= deployment.meta.generation
}

/// Whether readers wait for this status: a generation that was acted on, a collision, a condition that
/// changed its status, the end of a rollout or of its completeness, or fewer ready or available pods than the status
/// reports (S27). Rises, other counts on the way, and a condition's new text or time, may wait.
///
/// In a rollout the old pods that the controller deletes are such a fall too: a reader of the status cannot tell
/// intended deletions from others. The price is at most one write per step of a rollout, where
/// steps follow each other within a second; those that take longer are reported anyway.
pub fn is_urgent(deployment: &Deployment, after: &DeploymentStatus) -> bool {
    let before = &deployment.status;
    let turned = after.conditions.len() != before.conditions.len()
        || after.conditions.iter().any(|new| {
            let old = condition::find(&before.conditions, &new.kind);
            old.is_none_or(|old| (&old.status, &old.reason) != (&new.status, &new.reason))
        });
    turned
        || before.observed_generation != after.observed_generation
        || before.collision_count != after.collision_count
        || are_fewer([before.ready, before.available], [after.ready, after.available])
        || is_complete(deployment, after) != is_complete(deployment, before)
}

/// How soon this status must be written; `is_annotated` tells whether an annotation is written with it, which
/// readers wait for.
///
/// Each step of a rollout changes two ReplicaSets, whose statuses follow each other closely. What is not urgent waits
/// for both, but no longer than a second: while this sync resizes a ReplicaSet, and until each reports its latest
/// generation. A pod that has become available is followed by the deletion of another: reported in between it would be
/// a rise and, at once, a fall.
pub fn urgency(
    observed: &Observed<'_>,
    plan: &Plan,
    after: &DeploymentStatus,
    is_annotated: bool,
) -> Urgency {
    let Observed { deployment, owned, .. } = observed;
    let rolls = plan.status_scope == StatusScope::Rollout && !is_at_rest(owned);
    let is_behind = || {
        owned.iter().any(|replica_set| replica_set.status.observed_generation != replica_set.meta.generation)
    };
    match () {
        () if is_annotated || is_urgent(deployment, after) => Urgency::Immediate,
        () if rolls && (plan.resizes() || is_behind()) => Urgency::Postponed,
        () => Urgency::Throttled,
    }
}

/// Sets the `Available` condition: whether enough pods are available within `maxUnavailable`.
pub fn set_available(deployment: &Deployment, status: &mut DeploymentStatus, now: Timestamp) {
    let (_, unavailable) = deployment.budget();
    let enough = i64::from(status.available) >= i64::from(deployment.replicas) - i64::from(unavailable);
    let condition = if enough {
        let message = "Deployment has minimum availability.";
        Condition::new(AVAILABLE, "True", "MinimumReplicasAvailable", message, now)
    } else {
        let message = "Deployment does not have minimum availability.";
        Condition::new(AVAILABLE, "False", "MinimumReplicasUnavailable", message, now)
    };
    condition::set(&mut status.conditions, condition);
}

/// The condition of a step that was refused.
fn refused_step(outcome: &Outcome, now: Timestamp) -> Option<Condition> {
    let Failed { reason, message } = outcome.failed.as_ref()?;
    Some(Condition::new(REPLICA_FAILURE, "True", reason, message.as_str(), now))
}

/// Sets the condition of a refused step, and changes nothing without one.
pub fn add_refused_step(outcome: &Outcome, status: &mut DeploymentStatus, now: Timestamp) {
    if let Some(refused) = refused_step(outcome, now) {
        condition::set(&mut status.conditions, refused);
    }
}

/// Reports a refused step, or else copies the failure of a ReplicaSet: the new one's before any other's.
/// Removes the condition without either, except for the refusal of a step that was retried with an unknown outcome:
/// only a success removes that.
pub fn set_replica_failure(
    replica_sets: &ReplicaSets,
    outcome: &Outcome,
    status: &mut DeploymentStatus,
    now: Timestamp,
) {
    let of_a_replica_set = || {
        let mut replica_sets = replica_sets.new.iter().chain(replica_sets.old.iter().rev());
        let failures = |replica_set: &ReplicaSet| {
            condition::find(&replica_set.status.conditions, REPLICA_FAILURE).cloned()
        };
        let mut copy =
            replica_sets.find_map(|replica_set| failures(replica_set).filter(Condition::is_true))?;
        copy.last_update = copy.last_update.or(copy.last_transition);
        Some(copy)
    };
    let of_before = || {
        let before = condition::find(&status.conditions, REPLICA_FAILURE)?;
        (outcome.is_unanswered && Failed::REASONS.contains(&&*before.reason)).then(|| before.clone())
    };
    match refused_step(outcome, now).or_else(of_a_replica_set).or_else(of_before) {
        Some(failure) => condition::set(&mut status.conditions, failure),
        None => condition::remove(&mut status.conditions, REPLICA_FAILURE),
    }
}
