//! Why a plan does what it does, and what it waits for: as data, each with one sentence.
//!
//! The one guarantee: nothing is decided here, and no decision is guessed. The explanation reads the same
//! observation and the same numbers ([`Budget`]) as the plan, and the plan's writes themselves. The price is
//! a second pass over the ReplicaSets, which are few.

mod bounds;
mod names;
mod sentence;

use std::sync::Arc;

pub use bounds::shorten;
pub use names::{NamedPod, Names, Pods};

use jiff::Timestamp;
use serde::{Serialize, Serializer};

use super::course::{Hold, LaterFailure, UnfitStep};
use super::observed::{available, lacks_pods};
use super::progress::{PROGRESSING, TIMED_OUT, deadline};
use super::recreate::old_pods_may_run;
use super::rolling::Budget;
use super::status::{REPLICA_FAILURE, counts, is_complete};
use super::{Observed, Plan, ReplicaSets, StatusScope, Write, scale};
use crate::model::{Deployment, DeploymentStatus, Phase, Pod, ReplicaSet, Strategy, condition};
use crate::plan::policy::StepHold;

/// One reason for a plan. [`Display`](std::fmt::Display) makes a sentence of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlanReason {
    /// The Deployment cannot be acted on.
    Refused {
        /// The defect: the text of the event.
        defect: String,
    },
    /// The Deployment is being deleted.
    BeingDeleted,
    /// ReplicaSets are adopted and released before anything else.
    ChangingHands {
        /// ReplicaSets to adopt.
        adopted: Names,
        /// ReplicaSets to release.
        released: Names,
    },
    /// A rollback by annotation precedes all writes to ReplicaSets; one after a failure follows them.
    RollingBack {
        /// The action of the plan: the text of the event.
        answer: String,
    },
    /// No ReplicaSet is created until the wait is over: the API server stored each one with a changed template.
    #[serde(rename = "blocked")]
    CreateLimit {
        /// The defect, and when the next one is created.
        reason: String,
    },
    /// A value of the policy cannot be read, and nothing is rolled out until it can.
    InvalidPolicy {
        /// Key, value, and what is accepted.
        defect: String,
    },
    /// The rollout waits at a step of its policy.
    HeldAtStep {
        /// The step.
        #[serde(flatten)]
        step: StepHold,
    },
    /// The rollout pauses between two batches.
    HeldByDelay {
        /// Until when.
        #[serde(serialize_with = "as_text")]
        until: Timestamp,
    },
    /// The rollout has failed, and nothing follows from it.
    Failed {
        /// Revision and cause.
        message: String,
    },
    /// The rollout has failed, and another ReplicaSet serves.
    Halted {
        /// Revision, cause, and what serves.
        message: String,
        /// The ReplicaSet that serves.
        replica_set: Arc<str>,
        /// The failure: the first is 1.
        attempt: u32,
    },
    /// The new pod fits no node, and no old pod may go before it, or one has gone in vain.
    SurgeUnschedulable {
        /// The whole sentence, with the scheduler's message.
        message: String,
    },
    /// The new pod fits no node, and an old pod goes first if that does not change.
    TerminatesFirst {
        /// When.
        #[serde(serialize_with = "as_text")]
        at: Timestamp,
    },
    /// The new pod fits no node though an old pod has gone first, which comes back if that does not change.
    GivesBack {
        /// When.
        #[serde(serialize_with = "as_text")]
        at: Timestamp,
    },
    /// The rollout counts as failed by its policy if nothing changes.
    FailsLater {
        /// When.
        #[serde(serialize_with = "as_text")]
        at: Timestamp,
        /// The ReplicaSet that serves from then on; `None` where the failure is only reported.
        #[serde(skip_serializing_if = "Option::is_none")]
        serves: Option<Arc<str>>,
        /// Whether the Deployment gets its template.
        rolls_back: bool,
    },
    /// `spec.paused`.
    Paused,
    /// `spec.replicas` has changed while several ReplicaSets may have pods.
    Scaling {
        /// The replicas that the ReplicaSets were sized for.
        from: i64,
        /// `spec.replicas` now.
        to: i64,
    },
    /// No ReplicaSet has the template, and one is created.
    NewReplicaSet {
        /// Its name.
        replica_set: Arc<str>,
        /// Its first size.
        replicas: i32,
    },
    /// Recreate scales the new ReplicaSet, since no old pod runs.
    Resizing {
        /// Its name.
        replica_set: Arc<str>,
        /// Its size.
        from: i32,
        /// The new one.
        to: i32,
    },
    /// A ReplicaSet gets annotations or `minReadySeconds`, and keeps its size.
    Updating {
        /// Its name.
        replica_set: Arc<str>,
    },
    /// The bounds of a rolling update that is under way.
    Budget {
        /// The numbers that the plan was computed from.
        #[serde(flatten)]
        numbers: Budget,
        /// By how many pods the new ReplicaSet may grow, after the scale-down of this plan.
        up: i64,
        /// By how many pods this plan scales old ReplicaSets down.
        down: i64,
    },
    /// Old pods that must stay until new ones are available.
    OldPodsStay {
        /// How many stay.
        staying: i64,
        /// Which bound keeps them.
        because: Limit,
    },
    /// Recreate scales all old ReplicaSets to zero first.
    OldPodsGoFirst {
        /// How many pods they have.
        pods: i64,
    },
    /// Recreate waits until no old pod runs.
    OldPodsEnding {
        /// How many still run; 0 when only the statuses of their ReplicaSets lag.
        running: i64,
        /// Which.
        pods: Pods,
    },
    /// Surplus pods that their ReplicaSets still report.
    Leaving {
        /// How many.
        pods: i64,
    },
    /// The status of a ReplicaSet reports an earlier generation, so that its counts are out of date.
    StatusBehind {
        /// The name of the ReplicaSet.
        replica_set: Arc<str>,
        /// `status.observedGeneration`.
        observed: i64,
        /// `metadata.generation`.
        generation: i64,
    },
    /// A ReplicaSet has fewer available pods than `spec.replicas`.
    Unavailable(Shortage),
    /// A ReplicaSet cannot create or delete its pods: a quota, a webhook.
    ReplicaFailure {
        /// The name of the ReplicaSet.
        replica_set: Arc<str>,
        /// `FailedCreate` or `FailedDelete`.
        reason: Arc<str>,
        /// The answer of the API server.
        message: Arc<str>,
    },
    /// All pods are new and available, and no other exists.
    Complete {
        /// How many pods.
        replicas: i32,
    },
    /// Old ReplicaSets beyond `revisionHistoryLimit` are deleted.
    TrimmingHistory {
        /// Which.
        replica_sets: Names,
        /// `spec.revisionHistoryLimit`.
        limit: i32,
    },
    /// When the progress deadline passes.
    Deadline {
        /// `spec.progressDeadlineSeconds`.
        seconds: i32,
        /// When it passes.
        #[serde(serialize_with = "as_text")]
        at: Timestamp,
    },
    /// The progress deadline has passed.
    DeadlinePassed {
        /// `spec.progressDeadlineSeconds`.
        seconds: i32,
    },
}

/// The bound that keeps old pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "limit", rename_all = "camelCase")]
pub enum Limit {
    /// Unavailable new pods use up `maxUnavailable`.
    #[serde(rename = "newPodsMissing")]
    NewPodsUnavailable {
        /// How many.
        #[serde(rename = "missing")]
        unavailable_new: i64,
    },
    /// No more pods may become unavailable.
    Availability {
        /// How many pods must be available.
        #[serde(rename = "least")]
        min_available: i64,
        /// How many are.
        available: i64,
    },
    /// The step of the rollout policy keeps them.
    Policy {
        /// How many old pods it keeps.
        #[serde(rename = "leastOld")]
        old_least: i64,
    },
}

/// The pods that a ReplicaSet lacks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Shortage {
    /// Whether it is the new ReplicaSet.
    pub is_new: bool,
    /// The name of the ReplicaSet.
    pub replica_set: Arc<str>,
    /// `spec.replicas` of the ReplicaSet.
    #[serde(rename = "wanted")]
    pub desired: i64,
    /// How many of them are not available, or not certain to stay.
    pub unavailable: i64,
    /// How many of them are not created.
    pub not_created: i64,
    /// How many of them are not ready.
    pub not_ready: i64,
    /// How many of them are ready, but not for `min_ready_seconds`.
    pub not_for_long: i64,
    /// `spec.minReadySeconds` of the ReplicaSet.
    pub min_ready_seconds: i32,
    /// When the next of those becomes available.
    #[serde(serialize_with = "as_text_if_any", skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Pods that are not ready, as far as the cache holds them.
    #[serde(skip_serializing_if = "Pods::is_empty")]
    pub pods: Pods,
    /// Pods that have failed. They do not count, but may show why others do not become ready.
    #[serde(skip_serializing_if = "Pods::is_empty")]
    pub failed: Pods,
}

/// The reasons for the plan. Never empty.
pub(super) fn explain(observed: &Observed<'_>, plan: &Plan) -> Vec<PlanReason> {
    match plan.status_scope {
        StatusScope::Refused => {
            plan.notes.iter().map(|note| PlanReason::Refused { defect: note.message.clone() }).collect()
        }
        StatusScope::CountsOnly => vec![PlanReason::BeingDeleted],
        StatusScope::Handover => match &plan.writes[..] {
            [Write::RollBack(rollback)] => {
                vec![PlanReason::RollingBack { answer: rollback.note.message.clone() }]
            }
            writes => vec![PlanReason::ChangingHands {
                adopted: writes.iter().filter_map(adopted).collect(),
                released: writes.iter().filter_map(released).collect(),
            }],
        },
        StatusScope::Held => held(observed, observed.replica_sets(), plan),
        StatusScope::Rollout => rollout(observed, observed.replica_sets(), plan),
    }
}

fn adopted(write: &Write) -> Option<&Arc<ReplicaSet>> {
    if let Write::Adopt(replica_set) = write { Some(replica_set) } else { None }
}

fn released(write: &Write) -> Option<&Arc<ReplicaSet>> {
    if let Write::Release(replica_set) = write { Some(replica_set) } else { None }
}

fn deleted(write: &Write) -> Option<&Arc<ReplicaSet>> {
    if let Write::Delete(replica_set) = write { Some(replica_set) } else { None }
}

/// The reason about the progress deadline, once the status is known. Only a rollout has one.
pub fn progress(deployment: &Deployment, plan: &Plan, status: &DeploymentStatus) -> Option<PlanReason> {
    // Of a rollout that has failed another reason tells, and no deadline runs.
    let is_judged =
        plan.status_scope == StatusScope::Rollout && !matches!(plan.course.hold, Some(Hold::Failed { .. }));
    let seconds = deployment.progress_deadline_seconds.filter(|_| is_judged)?;
    if condition::find(&status.conditions, PROGRESSING).is_some_and(|c| &*c.reason == TIMED_OUT) {
        return Some(PlanReason::DeadlinePassed { seconds });
    }
    deadline(deployment, status, plan.course.extra_time).map(|at| PlanReason::Deadline { seconds, at })
}

fn held(observed: &Observed<'_>, replica_sets: &ReplicaSets, plan: &Plan) -> Vec<PlanReason> {
    let deployment = observed.deployment;
    let mut reasons = Vec::new();
    if deployment.paused {
        reasons.push(PlanReason::Paused);
    }
    reasons.extend(by_policy(plan));
    if let Some(from) = scale::scaled_from(deployment, replica_sets) {
        reasons.push(PlanReason::Scaling { from, to: deployment.replicas.into() });
    }
    reasons.extend(trimming(deployment, plan));
    if replica_sets.new.as_ref().is_some_and(|new| new.replicas < deployment.replicas) {
        reasons.extend(old_pods_ending(observed, replica_sets));
    }
    reasons.extend(waits(observed, replica_sets));
    reasons
}

fn rollout(observed: &Observed<'_>, replica_sets: &ReplicaSets, plan: &Plan) -> Vec<PlanReason> {
    let deployment = observed.deployment;
    let mut reasons = Vec::new();
    reasons.extend(
        plan.create_limit
            .as_ref()
            .map(|create_limit| PlanReason::CreateLimit { reason: create_limit.message.clone() }),
    );
    if is_complete(deployment, &counts(deployment, replica_sets)) {
        reasons.push(PlanReason::Complete { replicas: deployment.replicas });
        reasons.extend(trimming(deployment, plan));
    }
    reasons.extend(by_policy(plan));
    for write in &plan.writes {
        match write {
            Write::Create(new) => {
                reasons.push(PlanReason::NewReplicaSet {
                    replica_set: new.name.as_str().into(),
                    replicas: new.replicas,
                });
            }
            Write::RollBack(rollback) => {
                reasons.push(PlanReason::RollingBack { answer: rollback.note.message.clone() });
            }
            Write::Change(replica_set, change) if change.replicas.is_none() => {
                reasons.push(PlanReason::Updating { replica_set: replica_set.meta.key.name.clone() });
            }
            _ => {}
        }
    }
    match deployment.strategy {
        Strategy::RollingUpdate { .. } if plan.course.target.is_some() => {}
        Strategy::RollingUpdate { .. } => reasons.extend(rolling(deployment, replica_sets, plan)),
        Strategy::Recreate => match scaled_down(replica_sets, plan) {
            0 => reasons.extend(old_pods_ending(observed, replica_sets).or(resizing(replica_sets, plan))),
            pods => reasons.push(PlanReason::OldPodsGoFirst { pods }),
        },
    }
    reasons.extend(waits(observed, replica_sets));
    reasons
}

/// The reason that its policy gives, and that no policy is needed for: the surge pod fits no node.
fn by_policy(plan: &Plan) -> Vec<PlanReason> {
    let held = plan.course.hold.as_ref().map(|hold| match hold {
        Hold::Invalid { defect } => PlanReason::InvalidPolicy { defect: defect.clone() },
        Hold::Step(step) => PlanReason::HeldAtStep { step: step.clone() },
        Hold::Batch { until } => PlanReason::HeldByDelay { until: *until },
        Hold::Failed { message, serves: None, .. } => PlanReason::Failed { message: message.clone() },
        Hold::Failed { message, serves: Some(serves), attempt } => {
            PlanReason::Halted { message: message.clone(), replica_set: serves.clone(), attempt: *attempt }
        }
    });
    let unfit = plan.course.unfit.clone().map(|message| PlanReason::SurgeUnschedulable { message });
    let unfit_step = plan.course.unfit_step.map(|step| match step {
        UnfitStep::Terminate(at) => PlanReason::TerminatesFirst { at },
        UnfitStep::GiveBack(at) => PlanReason::GivesBack { at },
    });
    let fails_later = plan.course.later_failure.clone();
    let fails_later = fails_later.map(|LaterFailure { at, serves, rolls_back }| PlanReason::FailsLater {
        at,
        serves,
        rolls_back,
    });
    held.into_iter().chain(unfit).chain(unfit_step).chain(fails_later).collect()
}

fn is_new(replica_sets: &ReplicaSets, replica_set: &ReplicaSet) -> bool {
    replica_sets.new.as_ref().is_some_and(|new| new.meta.uid == replica_set.meta.uid)
}

/// By how many pods the plan scales the old ReplicaSets down.
fn scaled_down(replica_sets: &ReplicaSets, plan: &Plan) -> i64 {
    let shrinks = |write: &Write| match write {
        Write::Change(replica_set, change) if !is_new(replica_sets, replica_set) => {
            Some(i64::from(replica_set.replicas) - i64::from(change.replicas?))
        }
        _ => None,
    };
    plan.writes.iter().filter_map(shrinks).sum()
}

/// The next size of the new ReplicaSet under Recreate, once no old pod runs.
fn resizing(replica_sets: &ReplicaSets, plan: &Plan) -> Option<PlanReason> {
    plan.writes.iter().find_map(|write| match write {
        Write::Change(replica_set, change) if is_new(replica_sets, replica_set) => {
            let (replica_set_name, from) = (replica_set.meta.key.name.clone(), replica_set.replicas);
            Some(PlanReason::Resizing { replica_set: replica_set_name, from, to: change.replicas? })
        }
        _ => None,
    })
}

fn rolling(deployment: &Deployment, replica_sets: &ReplicaSets, plan: &Plan) -> Vec<PlanReason> {
    let old: i64 = replica_sets.old.iter().map(|replica_set| i64::from(replica_set.replicas)).sum();
    let size = replica_sets.new.as_ref().map_or(0, |new| new.replicas);
    if old == 0 && size == deployment.replicas {
        return Vec::new();
    }
    let numbers = Budget::of(deployment, replica_sets, &plan.course.limits);
    let down = scaled_down(replica_sets, plan);
    let room = numbers.new_most.map_or(i64::MAX, |most| most - i64::from(size));
    let up = (numbers.scale_up_allowed() + down).min(room).max(0);
    let mut reasons = vec![PlanReason::Budget { numbers, up, down }];
    let staying = old - down;
    if staying > 0 {
        let because = if staying <= numbers.old_least {
            Limit::Policy { old_least: numbers.old_least }
        } else if numbers.scale_down_allowed() <= 0 && numbers.unavailable_new > 0 {
            Limit::NewPodsUnavailable { unavailable_new: numbers.unavailable_new }
        } else {
            Limit::Availability { min_available: numbers.min_available, available: numbers.available }
        };
        reasons.push(PlanReason::OldPodsStay { staying, because });
    }
    reasons
}

fn old_pods_ending(observed: &Observed<'_>, replica_sets: &ReplicaSets) -> Option<PlanReason> {
    let Observed { deployment, running_pods, awaited_pods, .. } = observed;
    if deployment.strategy != Strategy::Recreate || !old_pods_may_run(replica_sets, running_pods) {
        return None;
    }
    let running: usize =
        replica_sets.old.iter().filter_map(|replica_set| running_pods.get(&replica_set.meta.uid)).sum();
    let running = i64::try_from(running).unwrap_or(i64::MAX);
    let pods =
        replica_sets.old.iter().filter_map(|replica_set| awaited_pods.get(&replica_set.meta.uid)).flatten();
    Some(PlanReason::OldPodsEnding { running, pods: Pods::of(pods.filter(|pod| !pod.is_terminal())) })
}

fn trimming(deployment: &Deployment, plan: &Plan) -> Option<PlanReason> {
    let replica_sets: Names = plan.writes.iter().filter_map(deleted).collect();
    let limit = deployment.revision_history_limit?;
    (!replica_sets.names.is_empty()).then_some(PlanReason::TrimmingHistory { replica_sets, limit })
}

/// The steps that ReplicaSets still have to take or to report, whatever the strategy: the new one first.
fn waits(observed: &Observed<'_>, replica_sets: &ReplicaSets) -> Vec<PlanReason> {
    let mut reasons = Vec::new();
    for replica_set in replica_sets.new.iter().chain(&replica_sets.old) {
        let (observed_generation, generation) =
            (replica_set.status.observed_generation, replica_set.meta.generation);
        if observed_generation != generation {
            let replica_set = replica_set.meta.key.name.clone();
            reasons.push(PlanReason::StatusBehind { replica_set, observed: observed_generation, generation });
        } else if lacks_pods(replica_set) {
            reasons.push(PlanReason::Unavailable(shortage(
                observed,
                replica_set,
                is_new(replica_sets, replica_set),
            )));
        }
        let failure =
            condition::find(&replica_set.status.conditions, REPLICA_FAILURE).filter(|c| c.is_true());
        reasons.extend(failure.map(|failure| PlanReason::ReplicaFailure {
            replica_set: replica_set.meta.key.name.clone(),
            reason: failure.reason.clone(),
            message: failure.message.clone(),
        }));
    }
    let surplus = |replica_set: &Arc<ReplicaSet>| {
        i64::from(replica_set.status.replicas) - i64::from(replica_set.replicas)
    };
    let pods: i64 = replica_sets.all().map(surplus).filter(|&surplus| surplus > 0).sum();
    if pods > 0 {
        reasons.push(PlanReason::Leaving { pods });
    }
    reasons
}

/// The pods that a ReplicaSet lacks. The numbers are those of its status, as in the plan; the pods' own state
/// may be a moment ahead of them.
fn shortage(observed: &Observed<'_>, replica_set: &ReplicaSet, is_new: bool) -> Shortage {
    let (desired, status) = (i64::from(replica_set.replicas), &replica_set.status);
    let [created, ready, available_now] = [status.replicas, status.ready, status.available].map(i64::from);
    let ready = ready.max(available_now);
    let pods = || observed.awaited_pods.get(&replica_set.meta.uid).into_iter().flatten();
    let until_available = |pod: &Arc<Pod>| {
        pod.available_at(replica_set.min_ready_seconds).filter(|&at| pod.is_active() && at > observed.now)
    };
    Shortage {
        is_new,
        replica_set: replica_set.meta.key.name.clone(),
        desired,
        unavailable: desired - i64::from(available(replica_set)),
        not_created: (desired - created).max(0),
        not_ready: (created.min(desired) - ready).max(0),
        not_for_long: (ready - available_now).min(desired).max(0),
        min_ready_seconds: replica_set.min_ready_seconds,
        next_at: pods().filter_map(until_available).min(),
        pods: Pods::of(pods().filter(|pod| pod.is_active() && pod.ready_since.is_none())),
        failed: Pods::of(pods().filter(|pod| pod.phase == Phase::Failed && !pod.meta.is_deleting())),
    }
}

fn as_text<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(at)
}

fn as_text_if_any<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => serializer.collect_str(at),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record as _};

    #[test]
    fn a_rollout_that_has_failed_does_not_go_on_as_soon_as_its_pods_are_available() {
        let web = r#"{"metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"1"},
            "spec":{"progressDeadlineSeconds":600,"template":{}},"status":{"conditions":[
                {"type":"Progressing","status":"False","reason":"ProgressDeadlineExceeded"}]}}"#;
        let web = Deployment::decode(web, &mut Interner::default()).unwrap();
        let mut plan = Plan { status_scope: StatusScope::Rollout, ..Plan::default() };
        assert_eq!(progress(&web, &plan, &web.status), Some(PlanReason::DeadlinePassed { seconds: 600 }));
        plan.course.hold =
            Some(Hold::Failed { message: "Revision 2 failed".to_owned(), serves: None, attempt: 1 });
        assert_eq!(progress(&web, &plan, &web.status), None);
    }
}
