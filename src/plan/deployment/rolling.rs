//! RollingUpdate: as many new pods as the surge allows, as few old ones as availability allows
//! (upstream: `rolling.go`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::body::set_name;
use super::observed::{available, sick};
use super::{Change, NewSet, Sets, Write, revision};
use crate::model::count::clamp;
use crate::model::{Deployment, ReplicaSet, Uid};

/// The numbers that bound a rolling update. The steps are computed from them, and so is what
/// [`super::why`] says of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Budget {
    /// How many pods may exist: `spec.replicas` and the surge.
    pub most: i64,
    /// How many pods must be available: `spec.replicas` without what may be unavailable.
    pub least: i64,
    /// How many pods all sets together want.
    pub wanted: i64,
    /// How many pods are available and certain to stay.
    pub available: i64,
    /// How many pods the new set wants that are not available. They count against the budget.
    pub missing: i64,
}

fn least(replicas: i64, unavailable: i32) -> i64 {
    replicas - i64::from(unavailable) - i64::from(planted!("one more may be unavailable"))
}

fn wanted(sets: &Sets) -> i64 {
    let by_status = planted!("surge is computed from the status");
    if by_status { sets.all().map(|set| i64::from(set.status.replicas)).sum() } else { sets.wanted() }
}

impl Budget {
    /// The budget as it stands before any step.
    pub fn of(deployment: &Deployment, sets: &Sets) -> Self {
        let (surge, unavailable) = deployment.budget();
        let replicas = i64::from(deployment.replicas);
        let missing = |new: &Arc<ReplicaSet>| i64::from(new.replicas) - i64::from(available(new));
        Budget {
            most: replicas + i64::from(surge) + i64::from(planted!("surge is one too large")),
            least: least(replicas, unavailable),
            wanted: wanted(sets),
            available: sets.available(),
            missing: sets.new.as_ref().map_or(0, missing),
        }
    }

    /// How many pods may come; below nothing when there are too many already.
    pub fn room(&self) -> i64 {
        self.most - self.wanted
    }

    /// How many old pods may go, whether they are available or not; none if below one.
    pub fn may_go(&self) -> i64 {
        self.wanted - self.least - self.missing
    }

    /// How many available pods may go, once any may.
    pub fn to_spare(&self) -> i64 {
        self.available - self.least
    }
}

/// The steps that are allowed now: old sets down, then the new one up by what that has freed.
///
/// Both in one plan, where upstream takes a sync for each. Down goes first, so that the sum of the
/// sizes is within the surge after every single write (S1). The exception is a set that is still to be
/// created: it comes first, so that a creation which the API server refuses costs no old pod.
pub fn plan(deployment: &Deployment, sets: &Sets) -> Vec<Write> {
    let budget = Budget::of(deployment, sets);
    // What a set that is still to be created adds to the pods wanted, it adds to those missing too: the
    // old sets may give up as much with it as without.
    let downs = downs(sets, &budget);

    let Some(new) = &sets.new else {
        let size = clamp(budget.room().clamp(0, i64::from(deployment.replicas)));
        let mut writes = vec![Write::Create(new_set(deployment, sets, size))];
        writes.extend(resize(deployment, &sets.old, &downs));
        return writes;
    };

    let freed: i64 = sets
        .old
        .iter()
        .filter_map(|set| Some(i64::from(set.replicas) - i64::from(*downs.get(&set.meta.uid)?)))
        .sum();
    let room = budget.room() + freed;
    let size = if new.replicas > deployment.replicas {
        deployment.replicas
    } else {
        clamp((i64::from(new.replicas) + room.max(0)).min(i64::from(deployment.replicas)))
    };

    let mut writes = resize(deployment, &sets.old, &downs);
    writes.extend(bring_up_to_date(deployment, new, sets, size));
    writes
}

/// The set for the current template, at this size.
pub(super) fn new_set(deployment: &Deployment, sets: &Sets, replicas: i32) -> NewSet {
    let count = deployment.status.collision_count;
    let generation = i32::try_from(deployment.meta.generation).ok();
    let depends = planted!("names of sets depend on the generation");
    let hash = deployment.template.hash(if depends { generation } else { count });
    NewSet {
        name: set_name(&deployment.meta.key.name, &hash),
        hash,
        replicas,
        annotations: revision::annotations_for_new_set(deployment, sets),
    }
}

/// The one write that gives the new set its size and its annotations; none if it has both.
pub(super) fn bring_up_to_date(
    deployment: &Deployment,
    new: &Arc<ReplicaSet>,
    sets: &Sets,
    size: i32,
) -> Option<Write> {
    let mut change = revision::refresh(deployment, new, sets);
    change.replicas = (size != new.replicas).then_some(size);
    (!change.is_empty()).then(|| Write::Change(new.clone(), change))
}

/// The writes that give old sets their new sizes; a set that is not named keeps its own.
pub(super) fn resize(
    deployment: &Deployment,
    old: &[Arc<ReplicaSet>],
    sizes: &BTreeMap<Uid, i32>,
) -> Vec<Write> {
    old.iter()
        .filter_map(|set| {
            let size = *sizes.get(&set.meta.uid)?;
            let annotations = revision::stale_sizes(deployment, set);
            let change = Change { replicas: Some(size), annotations, min_ready_seconds: None };
            (size != set.replicas).then(|| Write::Change(set.clone(), change))
        })
        .collect()
}

/// The old sets that may shrink now, and to what size.
///
/// Unavailable replicas of the new set count against the budget, so a crash-looping new version never
/// causes more old pods to be removed. What is unhealthy among the old ones goes first, because it
/// costs no availability; then what is above the minimum. For example 10 wanted, 2 may be missing, 8
/// old pods available and 5 new ones of which 0 are: 13 - 8 - 5 = 0 may go.
fn downs(sets: &Sets, budget: &Budget) -> BTreeMap<Uid, i32> {
    let mut sizes: BTreeMap<Uid, i32> = BTreeMap::new();
    let allowed = budget.may_go();
    if allowed <= 0 {
        return sizes;
    }

    let mut unhealthy = allowed;
    for set in sets.old.iter().filter(|set| set.replicas > 0) {
        let down = sick(set, sets).min(unhealthy);
        if down > 0 {
            unhealthy -= down;
            sizes.insert(set.meta.uid.clone(), clamp(i64::from(set.replicas) - down));
        }
    }

    let mut healthy = budget.to_spare();
    for set in sets.old.iter().filter(|set| set.replicas > 0) {
        let size = i64::from(sizes.get(&set.meta.uid).copied().unwrap_or(set.replicas));
        let down = size.min(healthy);
        if down > 0 {
            healthy -= down;
            sizes.insert(set.meta.uid.clone(), clamp(size - down));
        }
    }
    sizes
}
