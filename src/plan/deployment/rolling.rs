//! RollingUpdate: as many new pods as the surge allows, as few old ones as availability allows
//! (upstream: `rolling.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::course::{Course, Limits};
use super::new_replica_set::replica_set_name;
use super::observed::{available, unhealthy_replicas};
use super::{Change, NewReplicaSet, ReplicaSets, Write, partial_scale, revision};
use crate::model::int_or_percent::clamp;
use crate::model::{Deployment, ReplicaSet, Uid};
use crate::plan::policy::ROLLOUT_STATE;

/// The numbers that bound a rolling update. The steps are computed from them, and so is what
/// [`super::explain`] says of the steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// How many pods may exist: `spec.replicas` and the surge.
    #[serde(rename = "most")]
    pub max_total: i64,
    /// How many pods must be available: `spec.replicas` minus `maxUnavailable`.
    #[serde(rename = "least")]
    pub min_available: i64,
    /// The sum of `spec.replicas` over all ReplicaSets.
    #[serde(rename = "wanted")]
    pub desired: i64,
    /// How many pods are available and certain to stay.
    pub available: i64,
    /// How many pods of the new ReplicaSet are unavailable or missing. They count against the budget.
    #[serde(rename = "missing")]
    pub unavailable_new: i64,
    /// How many pods still run that no size counts, where they take room.
    #[serde(skip_serializing_if = "is_zero")]
    pub ending: i64,
    /// The most new pods that a step or a pause between batches allows.
    #[serde(rename = "mostNew", skip_serializing_if = "Option::is_none")]
    pub new_most: Option<i64>,
    /// How many old pods a step keeps.
    #[serde(rename = "leastOld", skip_serializing_if = "is_zero")]
    pub old_least: i64,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl Budget {
    /// The budget before any step.
    pub fn of(deployment: &Deployment, replica_sets: &ReplicaSets, limits: &Limits) -> Self {
        let (surge, unavailable) = deployment.budget();
        let replicas = i64::from(deployment.replicas);
        let unavailable_new = |new: &Arc<ReplicaSet>| i64::from(new.replicas) - i64::from(available(new));
        Budget {
            max_total: replicas + i64::from(surge),
            min_available: (replicas - i64::from(unavailable) - limits.below).max(0),
            desired: replica_sets.desired(),
            available: replica_sets.available(),
            unavailable_new: replica_sets.new.as_ref().map_or(0, unavailable_new),
            ending: limits.ending,
            new_most: limits.new_most,
            old_least: limits.old_least,
        }
    }

    /// How many pods may be created; negative when there are too many already.
    pub fn scale_up_allowed(&self) -> i64 {
        self.max_total - self.desired - self.ending
    }

    /// How many old pods may be deleted, whether they are available or not; none if below one.
    pub fn scale_down_allowed(&self) -> i64 {
        self.desired - self.min_available - self.unavailable_new
    }

    /// How many available pods may be deleted, once any may.
    pub fn available_above_min(&self) -> i64 {
        self.available - self.min_available
    }
}

/// The steps that are allowed now: old ReplicaSets down, then the new one up by what that has freed.
///
/// Both in one plan, where upstream takes a sync for each. The scale-down comes first, so that the sum of the
/// sizes is within the surge after every single write (S1). The exception is a ReplicaSet that does not exist yet:
/// its creation comes first, so that a creation which the API server refuses costs no old pod.
///
/// A [`Course`] narrows that: a step bounds the new pods from above and the old ones from below. After a failure the same
/// update goes the other way: to the ReplicaSet that serves.
pub fn plan(deployment: &Deployment, replica_sets: &ReplicaSets, course: &Course) -> Vec<Write> {
    if let Some(exchanged) = course.target.as_ref().and_then(|target| replica_sets.exchanged(target)) {
        return back(deployment, replica_sets, &exchanged, course);
    }
    let limits = &course.limits;
    let budget = Budget::of(deployment, replica_sets, limits);
    // A ReplicaSet that is yet to be created adds the same number to the desired and to the missing pods: the
    // old ReplicaSets may lose as many with it as without.
    let mut sizes = scale_downs(replica_sets, &budget, limits);
    let old = |sizes: &BTreeMap<Uid, i32>| -> i64 {
        let sizes =
            replica_sets.old.iter().map(|old| sizes.get(&old.meta.uid).copied().unwrap_or(old.replicas));
        sizes.map(i64::from).sum()
    };
    let most_new = i64::from(deployment.replicas).min(budget.new_most.unwrap_or(i64::MAX));

    let Some(new) = &replica_sets.new else {
        let size = clamp(budget.scale_up_allowed().clamp(0, most_new));
        let mut writes = vec![Write::Create(new_replica_set(deployment, replica_sets, size, course))];
        writes.extend(resize(deployment, &replica_sets.old, &sizes));
        return writes;
    };

    let freed = if limits.keeps_freed { 0 } else { old(&BTreeMap::new()) - old(&sizes) };
    let allowed = (budget.scale_up_allowed() + freed).max(0);
    let current = i64::from(new.replicas);
    let size = if new.replicas > deployment.replicas {
        deployment.replicas
    } else {
        clamp((current + allowed).min(most_new).max(current))
    };
    let left = allowed - (i64::from(size) - current).max(0);
    if let Some(serving) = &limits.serving
        && let Some(serving) = replica_sets.old.iter().find(|old| &old.meta.uid == serving)
    {
        // It takes the place of the others, which have failed or were replaced before.
        let now = sizes.get(&serving.meta.uid).copied().unwrap_or(serving.replicas);
        let more = (budget.old_least - i64::from(now)).min(left);
        if more > 0 {
            sizes.insert(serving.meta.uid.clone(), clamp(i64::from(now) + more));
        }
    }

    let mut writes = resize(deployment, &replica_sets.old, &sizes);
    // The one that grows comes after those that make room for it.
    writes.sort_by_key(|write| match write {
        Write::Change(old, change) => change.replicas.is_some_and(|to| to > old.replicas),
        _ => false,
    });
    writes.extend(bring_up_to_date(deployment, new, replica_sets, size, course));
    writes
}

/// The same update with the roles exchanged: the new ReplicaSet has failed, and another serves. Its revision stays, and the
/// new one keeps its own: the template is still the Deployment's.
fn back(
    deployment: &Deployment,
    replica_sets: &ReplicaSets,
    exchanged: &ReplicaSets,
    course: &Course,
) -> Vec<Write> {
    let (Some(target), Some(failed)) = (&exchanged.new, &replica_sets.new) else { return Vec::new() };
    let budget = Budget::of(deployment, exchanged, &Limits::default());
    let mut sizes = scale_downs(exchanged, &budget, &Limits::default());
    let freed: i64 = exchanged
        .old
        .iter()
        .filter_map(|old| Some(i64::from(old.replicas) - i64::from(*sizes.get(&old.meta.uid)?)))
        .sum();
    let allowed = (budget.scale_up_allowed() + freed).max(0);
    let size = (i64::from(target.replicas) + allowed).min(deployment.replicas.into());
    let failed_size = sizes.remove(&failed.meta.uid).unwrap_or(failed.replicas);
    let mut writes = resize(deployment, &replica_sets.old, &sizes);
    writes.extend(bring_up_to_date(deployment, failed, replica_sets, failed_size, course));
    let sized = [(target.meta.uid.clone(), clamp(size))].into();
    writes.extend(resize(deployment, std::slice::from_ref(target), &sized));
    writes
}

/// Whether a plan scales an old ReplicaSet down.
pub(super) fn shrinks_old(writes: &[Write], replica_sets: &ReplicaSets) -> bool {
    let is_old =
        |replica_set: &ReplicaSet| replica_sets.old.iter().any(|old| old.meta.uid == replica_set.meta.uid);
    writes.iter().any(|write| match write {
        Write::Change(replica_set, change) => {
            is_old(replica_set) && change.replicas.is_some_and(|to| to < replica_set.replicas)
        }
        _ => false,
    })
}

/// The new ReplicaSet, at this size.
pub(super) fn new_replica_set(
    deployment: &Deployment,
    replica_sets: &ReplicaSets,
    replicas: i32,
    course: &Course,
) -> NewReplicaSet {
    let hash = deployment.template.hash(deployment.status.collision_count);
    let mut annotations = revision::annotations_for_new_replica_set(deployment, replica_sets);
    annotations.extend(course.state_to_write(None).map(|state| (ROLLOUT_STATE.to_owned(), state)));
    NewReplicaSet { name: replica_set_name(&deployment.meta.key.name, &hash), hash, replicas, annotations }
}

/// The one write that gives the new ReplicaSet its size and its annotations; none if it has both.
pub(super) fn bring_up_to_date(
    deployment: &Deployment,
    new: &Arc<ReplicaSet>,
    replica_sets: &ReplicaSets,
    size: i32,
    course: &Course,
) -> Option<Write> {
    let mut change = revision::refresh(deployment, new, replica_sets);
    if let Some(state) = course.state_to_write(Some(new)) {
        change.annotations.insert(ROLLOUT_STATE.to_owned(), state);
        change.notes.clone_from(&course.notes);
    }
    change.replicas = (size != new.replicas).then_some(size);
    if !change.is_empty() {
        partial_scale::unmark(&mut change, new);
    }
    (!change.is_empty()).then(|| Write::Change(new.clone(), change))
}

/// The writes that give old ReplicaSets their new sizes; a ReplicaSet that is not named keeps its own.
pub(super) fn resize(
    deployment: &Deployment,
    old: &[Arc<ReplicaSet>],
    sizes: &BTreeMap<Uid, i32>,
) -> Vec<Write> {
    old.iter()
        .filter_map(|replica_set| {
            let size = *sizes.get(&replica_set.meta.uid)?;
            let annotations = revision::stale_sizes(deployment, replica_set);
            let mut change = Change { replicas: Some(size), annotations, ..Change::default() };
            partial_scale::unmark(&mut change, replica_set);
            (size != replica_set.replicas).then(|| Write::Change(replica_set.clone(), change))
        })
        .collect()
}

/// The old ReplicaSets that may shrink now, and to what size.
///
/// Unavailable replicas of the new ReplicaSet count against the budget, so a crash-looping new version never
/// causes more old pods to be removed. Unhealthy old pods are removed first, because that costs no availability;
/// then those above the minimum. For example 10 desired, 2 may be unavailable, 8 old pods available and 5 new ones
/// of which 0 are: 13 - 8 - 5 = 0 may be removed.
fn scale_downs(replica_sets: &ReplicaSets, budget: &Budget, limits: &Limits) -> BTreeMap<Uid, i32> {
    let mut sizes: BTreeMap<Uid, i32> = BTreeMap::new();
    let allowed = budget.scale_down_allowed();
    if allowed <= 0 {
        return sizes;
    }
    let mut shrinking: Vec<&Arc<ReplicaSet>> =
        replica_sets.old.iter().filter(|replica_set| replica_set.replicas > 0).collect();
    shrinking.sort_by_key(|replica_set| limits.serving.as_ref() == Some(&replica_set.meta.uid));
    let all: i64 = shrinking.iter().map(|replica_set| i64::from(replica_set.replicas)).sum();
    let mut above_least = (all - limits.old_least).max(0);
    // The one that serves gives up no place that it takes: a pod that it has just got would be the first to go, without end.
    let room = |replica_set: &ReplicaSet, size: i64| match limits.serving.as_ref() {
        Some(serving) if serving == &replica_set.meta.uid => (size - limits.old_least).max(0),
        _ => size,
    };

    let mut unhealthy = allowed;
    for replica_set in &shrinking {
        let most = room(replica_set, i64::from(replica_set.replicas));
        let down = unhealthy_replicas(replica_set, replica_sets).min(unhealthy).min(above_least).min(most);
        if down > 0 {
            unhealthy -= down;
            above_least -= down;
            sizes.insert(replica_set.meta.uid.clone(), clamp(i64::from(replica_set.replicas) - down));
        }
    }

    let mut healthy = budget.available_above_min();
    for replica_set in &shrinking {
        let size = i64::from(sizes.get(&replica_set.meta.uid).copied().unwrap_or(replica_set.replicas));
        let down = room(replica_set, size).min(healthy).min(above_least);
        if down > 0 {
            healthy -= down;
            above_least -= down;
            sizes.insert(replica_set.meta.uid.clone(), clamp(size - down));
        }
    }
    sizes
}
