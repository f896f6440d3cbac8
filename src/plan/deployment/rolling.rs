//! RollingUpdate: as many new pods as the surge allows, as few old ones as availability allows
//! (upstream: `rolling.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::new_replica_set::replica_set_name;
use super::observed::{available, unhealthy_replicas};
use super::{Change, NewReplicaSet, ReplicaSets, Write, revision};
use crate::model::int_or_percent::clamp;
use crate::model::{Deployment, ReplicaSet, Uid};

/// The numbers that bound a rolling update. The steps are computed from them, and so is what
/// [`super::explain`] says of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
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
}

impl Budget {
    /// The budget before any step.
    pub fn of(deployment: &Deployment, replica_sets: &ReplicaSets) -> Self {
        let (surge, unavailable) = deployment.budget();
        let replicas = i64::from(deployment.replicas);
        let unavailable_new = |new: &Arc<ReplicaSet>| i64::from(new.replicas) - i64::from(available(new));
        Budget {
            max_total: replicas + i64::from(surge),
            min_available: replicas - i64::from(unavailable),
            desired: replica_sets.desired(),
            available: replica_sets.available(),
            unavailable_new: replica_sets.new.as_ref().map_or(0, unavailable_new),
        }
    }

    /// How many pods may be created; negative when there are too many already.
    pub fn scale_up_allowed(&self) -> i64 {
        self.max_total - self.desired
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
pub fn plan(deployment: &Deployment, replica_sets: &ReplicaSets) -> Vec<Write> {
    let budget = Budget::of(deployment, replica_sets);
    // A ReplicaSet that is yet to be created adds the same number to the desired and to the missing pods: the
    // old ReplicaSets may lose as many with it as without.
    let scale_downs = scale_downs(replica_sets, &budget);

    let Some(new) = &replica_sets.new else {
        let size = clamp(budget.scale_up_allowed().clamp(0, i64::from(deployment.replicas)));
        let mut writes = vec![Write::Create(new_replica_set(deployment, replica_sets, size))];
        writes.extend(resize(deployment, &replica_sets.old, &scale_downs));
        return writes;
    };

    let freed: i64 = replica_sets
        .old
        .iter()
        .filter_map(|replica_set| {
            Some(i64::from(replica_set.replicas) - i64::from(*scale_downs.get(&replica_set.meta.uid)?))
        })
        .sum();
    let allowed = budget.scale_up_allowed() + freed;
    let size = if new.replicas > deployment.replicas {
        deployment.replicas
    } else {
        clamp((i64::from(new.replicas) + allowed.max(0)).min(i64::from(deployment.replicas)))
    };

    let mut writes = resize(deployment, &replica_sets.old, &scale_downs);
    writes.extend(bring_up_to_date(deployment, new, replica_sets, size));
    writes
}

/// The new ReplicaSet, at this size.
pub(super) fn new_replica_set(
    deployment: &Deployment,
    replica_sets: &ReplicaSets,
    replicas: i32,
) -> NewReplicaSet {
    let hash = deployment.template.hash(deployment.status.collision_count);
    NewReplicaSet {
        name: replica_set_name(&deployment.meta.key.name, &hash),
        hash,
        replicas,
        annotations: revision::annotations_for_new_replica_set(deployment, replica_sets),
    }
}

/// The one write that gives the new ReplicaSet its size and its annotations; none if it has both.
pub(super) fn bring_up_to_date(
    deployment: &Deployment,
    new: &Arc<ReplicaSet>,
    replica_sets: &ReplicaSets,
    size: i32,
) -> Option<Write> {
    let mut change = revision::refresh(deployment, new, replica_sets);
    change.replicas = (size != new.replicas).then_some(size);
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
            let change = Change { replicas: Some(size), annotations, min_ready_seconds: None };
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
fn scale_downs(replica_sets: &ReplicaSets, budget: &Budget) -> BTreeMap<Uid, i32> {
    let mut sizes: BTreeMap<Uid, i32> = BTreeMap::new();
    let allowed = budget.scale_down_allowed();
    if allowed <= 0 {
        return sizes;
    }

    let mut unhealthy = allowed;
    for replica_set in replica_sets.old.iter().filter(|replica_set| replica_set.replicas > 0) {
        let down = unhealthy_replicas(replica_set, replica_sets).min(unhealthy);
        if down > 0 {
            unhealthy -= down;
            sizes.insert(replica_set.meta.uid.clone(), clamp(i64::from(replica_set.replicas) - down));
        }
    }

    let mut healthy = budget.available_above_min();
    for replica_set in replica_sets.old.iter().filter(|replica_set| replica_set.replicas > 0) {
        let size = i64::from(sizes.get(&replica_set.meta.uid).copied().unwrap_or(replica_set.replicas));
        let down = size.min(healthy);
        if down > 0 {
            healthy -= down;
            sizes.insert(replica_set.meta.uid.clone(), clamp(size - down));
        }
    }
    sizes
}
