//! The assessment of a Deployment's rollout from its objects. Pure, and on the daemon's own functions: the plan, its
//! reasons and the deadline are computed by `windlass::plan`, and nothing is decided twice.

pub mod estimate;
pub mod failing_pods;
pub mod json;
pub mod last_writes;
pub mod live;
mod partial;
pub mod pods;
pub mod verdict;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;
use windlass::model::{Deployment, Interner, Pod, Record, ReplicaSet};
use windlass::plan::deployment::progress::{PROGRESSING, REPLICA_SET_UPDATED, TIMED_OUT};
use windlass::plan::deployment::{self as planner, Observed, Plan, PlanReason, explain, revision};

use last_writes::{Actor, LastWrites};
use pods::PodView;
pub use verdict::Verdict;

/// The objects of one Deployment, as the API server sent them.
#[derive(Clone, Debug, Default)]
pub struct Workload {
    /// The Deployment.
    pub deployment: Value,
    /// ReplicaSets that it selects.
    pub replica_sets: Vec<Value>,
    /// Pods that it selects.
    pub pods: Vec<Value>,
    /// Events, by the UID of the pod.
    pub events: BTreeMap<String, Vec<Value>>,
    /// Whether the ReplicaSets or the pods could not be read: then nothing is planned, and the status counts alone.
    pub is_partial: bool,
    /// The objects that could not be read, with the server's answer.
    pub unreadable: Vec<String>,
}

/// The same, decoded.
pub struct Records<'a> {
    /// The Deployment, which tells its writers besides.
    pub deployment: &'a Value,
    /// ReplicaSets that it selects.
    pub replica_sets: Vec<Arc<ReplicaSet>>,
    /// Pods that it selects.
    pub pods: Vec<(Arc<Pod>, &'a Value)>,
    /// As [`Workload::events`].
    pub events: &'a BTreeMap<String, Vec<Value>>,
    /// As [`Workload::is_partial`].
    pub is_partial: bool,
    /// As [`Workload::unreadable`].
    pub unreadable: &'a [String],
}

/// Everything known of a rollout at one time.
#[derive(Clone, Debug)]
pub struct Assessment {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
    /// `metadata.generation`.
    pub generation: i64,
    /// `status.observedGeneration`.
    pub observed_generation: i64,
    /// The revision that the Deployment reports.
    pub revision: Option<i64>,
    /// The state in one word.
    pub verdict: Verdict,
    /// Since when the Deployment is in that state, as its conditions report it.
    pub since: Option<Timestamp>,
    /// The reasons of the plan, as the daemon publishes them.
    pub reasons: Vec<PlanReason>,
    /// The writes of the plan, in words.
    pub writes: Vec<String>,
    /// The counts of its status.
    pub counts: Counts,
    /// The conditions of its status, in words.
    pub conditions: Vec<String>,
    /// Its ReplicaSets with pods, the new one first.
    pub replica_sets: Vec<SetView>,
    /// Active pods that are not ready, the worst first.
    pub pods: Vec<PodView>,
    /// When the progress deadline passes.
    pub deadline: Option<Timestamp>,
    /// The time until the rollout is complete, if that can be told.
    pub estimate: Option<std::time::Duration>,
    /// The last writer of the status.
    pub acts: Option<Actor>,
    /// When the template was written last.
    pub template_written: Option<Timestamp>,
    /// The newest revision before this one that still has its ReplicaSet, with its images.
    pub previous: Option<(i64, String)>,
    /// Whether only the status is known: reasons, writes, ReplicaSets and pods are then empty, and say nothing.
    pub is_partial: bool,
    /// The objects that could not be read.
    pub unreadable: Vec<String>,
    /// The time of the assessment.
    pub now: Timestamp,
}

impl Assessment {
    /// Whether a controller has observed the newest generation.
    pub fn is_observed(&self) -> bool {
        self.observed_generation >= self.generation
    }

    /// The ReplicaSet with the Deployment's template.
    pub fn new_replica_set(&self) -> Option<&SetView> {
        self.replica_sets.iter().find(|replica_set| replica_set.is_new)
    }

    /// Whether another template runs than in an earlier assessment.
    pub fn supersedes(&self, before: &Assessment) -> bool {
        let name_of_new = |assessment: &Assessment| assessment.new_replica_set().map(|new| new.name.clone());
        !self.is_partial
            && name_of_new(before).is_some()
            && name_of_new(before) != name_of_new(self)
            && before.generation != self.generation
    }

    /// How many new pods are available; `None` where only the status is known, which counts all pods alike.
    pub fn new_available(&self) -> Option<i64> {
        (!self.is_partial).then(|| self.new_replica_set().map_or(0, |new| new.available))
    }
}

/// The numbers of pods that a Deployment reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// `spec.replicas`.
    pub desired: i64,
    /// `status.replicas`.
    pub replicas: i64,
    /// `status.updatedReplicas`.
    pub updated: i64,
    /// `status.readyReplicas`.
    pub ready: i64,
    /// `status.availableReplicas`.
    pub available: i64,
}

/// A ReplicaSet of the Deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetView {
    /// Its name.
    pub name: String,
    /// Whether it has the Deployment's template.
    pub is_new: bool,
    /// `spec.replicas`.
    pub desired: i64,
    /// `status.replicas`.
    pub replicas: i64,
    /// `status.readyReplicas`.
    pub ready: i64,
    /// `status.availableReplicas`.
    pub available: i64,
    /// How many of its pods are in each state, most first.
    pub states: Vec<(String, usize)>,
}

/// Decodes a record of the daemon from an object.
///
/// # Errors
/// When the object is not what its kind says.
pub fn decode<T: Record>(object: &Value, interner: &mut Interner) -> Result<T, serde_json::Error> {
    T::decode(&object.to_string(), interner)
}

/// Assesses a rollout.
///
/// # Errors
/// When the Deployment is not what its kind says. Other objects that cannot be read are left out.
pub fn assess(workload: &Workload, now: Timestamp) -> Result<Assessment, serde_json::Error> {
    let interner = &mut Interner::default();
    let replica_sets = workload
        .replica_sets
        .iter()
        .filter_map(|object| decode(object, interner).ok())
        .map(Arc::new)
        .collect();
    let pods = workload
        .pods
        .iter()
        .filter_map(|object| Some((Arc::new(decode(object, interner).ok()?), object)))
        .collect();
    let records = Records {
        deployment: &workload.deployment,
        replica_sets,
        pods,
        events: &workload.events,
        is_partial: workload.is_partial,
        unreadable: &workload.unreadable,
    };
    assess_records(records, now)
}

/// The same, where the objects are decoded already.
///
/// # Errors
/// When the Deployment is not what its kind says.
pub fn assess_records(records: Records<'_>, now: Timestamp) -> Result<Assessment, serde_json::Error> {
    let Records { deployment: object, replica_sets, pods, events, is_partial, unreadable } = records;
    let mut deployment: Deployment = decode(object, &mut Interner::default())?;
    let last = LastWrites::of(object);
    let deadline_is_stale = forget_stale_deadline(&mut deployment, last.template);
    let by_status = partial::assess(&deployment, object, &last, unreadable, now);
    if is_partial {
        return Ok(by_status);
    }
    let (owned, others): (Vec<_>, Vec<_>) =
        replica_sets.into_iter().partition(|replica_set| deployment.controls(&replica_set.meta));
    let orphans = others.into_iter().filter(|replica_set| replica_set.meta.controller.is_none()).collect();
    let pods_of = |replica_set: &ReplicaSet| {
        let owned = pods.iter().filter(|(pod, _)| replica_set.controls(&pod.meta));
        owned.map(|(pod, _)| pod.clone()).collect::<Vec<_>>()
    };

    let observed = Observed::gather(&deployment, owned, orphans, true, pods_of, now);
    let plan: Plan = planner::plan(&observed);
    let mut reasons = plan.reasons.clone();
    reasons.extend(explain::progress(&deployment, &plan, &deployment.status));
    // A controller has yet to notice it: it judged an earlier template.
    if deadline_is_stale {
        for reason in &mut reasons {
            if let PlanReason::Deadline { seconds, at } = *reason
                && at <= now
            {
                *reason = PlanReason::DeadlinePassed { seconds };
            }
        }
    }
    let deadline = reasons.iter().find_map(|reason| match reason {
        PlanReason::Deadline { at, .. } => Some(*at),
        _ => None,
    });

    let roles = observed.replica_sets();
    let mut views = Vec::new();
    let mut unready = Vec::new();
    for (replica_set, is_new) in
        roles.new.iter().map(|new| (new, true)).chain(roles.old.iter().rev().map(|old| (old, false)))
    {
        let owned = pods.iter().filter(|(pod, _)| replica_set.controls(&pod.meta));
        let mut states: BTreeMap<String, usize> = BTreeMap::new();
        for (pod, object) in owned {
            let view = PodView::new(pod, object, replica_set, is_new, events, now);
            *states.entry(view.summary()).or_default() += 1;
            if !view.is_ready && !view.is_deleting {
                unready.push(view);
            }
        }
        let mut states: Vec<(String, usize)> = states.into_iter().collect();
        states.sort_by_key(|(state, count)| (std::cmp::Reverse(*count), state.clone()));
        let status = &replica_set.status;
        if is_new || replica_set.replicas > 0 || status.replicas > 0 || !states.is_empty() {
            views.push(SetView {
                name: replica_set.meta.key.name.to_string(),
                is_new,
                desired: replica_set.replicas.into(),
                replicas: status.replicas.into(),
                ready: status.ready.into(),
                available: status.available.into(),
                states,
            });
        }
    }
    unready.sort_by_key(|pod| (!pod.is_new, !pod.is_failing, pod.created, pod.name.clone()));

    let verdict = verdict::verdict(&deployment, &plan, &reasons, &last, now);
    let estimate = roles.new.as_ref().filter(|_| !verdict.is_at_rest()).and_then(|new| {
        let started = last.template.unwrap_or(new.meta.created);
        estimate::estimate(&pods_of(new), new.min_ready_seconds, deployment.replicas, started, now)
    });
    let current = roles.new.as_ref().and_then(|new| revision::revision_of(new));
    let earlier = roles.old.iter().filter_map(|old| Some((revision::revision_of(old)?, old)));
    let previous = earlier
        .filter(|(number, _)| current.is_none_or(|current| *number < current))
        .max_by_key(|(number, _)| *number)
        .map(|(number, old)| (number, images(old)));
    Ok(Assessment {
        revision: current.or(by_status.revision),
        since: partial::since(verdict, &deployment, &last),
        verdict,
        writes: plan.writes.iter().map(ToString::to_string).collect(),
        reasons,
        replica_sets: views,
        pods: unready,
        deadline,
        estimate,
        previous,
        is_partial: false,
        ..by_status
    })
}

/// Whether the condition reports a deadline of an earlier template, and is no failure of this one: after an undo a
/// controller keeps the condition until it sees progress. The deadline of this template counts from its write.
fn forget_stale_deadline(deployment: &mut Deployment, template_written: Option<Timestamp>) -> bool {
    let condition = deployment.status.conditions.iter_mut().find(|condition| &*condition.kind == PROGRESSING);
    let Some((condition, written)) = condition.zip(template_written) else { return false };
    let is_stale =
        &*condition.reason == TIMED_OUT && condition.last_update.is_some_and(|update| update <= written);
    if is_stale {
        condition.reason = REPLICA_SET_UPDATED.into();
        condition.last_update = Some(written);
    }
    is_stale
}

/// The images of a ReplicaSet's containers, in their order.
fn images(replica_set: &ReplicaSet) -> String {
    let template: Value = serde_json::from_str(&replica_set.template.json()).unwrap_or_default();
    let containers = template["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let images: Vec<String> = containers
        .iter()
        .filter_map(|container| Some(crate::text::harmless(container["image"].as_str()?)))
        .collect();
    images.join(", ")
}

#[cfg(test)]
mod tests;
