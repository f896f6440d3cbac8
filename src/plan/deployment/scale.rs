//! A change of `spec.replicas`, spread over the ReplicaSets proportionally (upstream: `sync.go`, `scale`).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::course::Course;
use super::recreate::old_pods_may_run;
use super::revision::{DESIRED_REPLICAS, MAX_REPLICAS, REPLICAS_BEFORE_SCALE, refresh, stale_sizes};
use super::{Change, ReplicaSets, Write, partial_scale as partial};
use crate::model::int_or_percent::clamp;
use crate::model::{Deployment, ReplicaSet, Strategy, Uid};

/// Whether `spec.replicas` has changed since a ReplicaSet with replicas was last sized.
pub fn is_due(deployment: &Deployment, replica_sets: &ReplicaSets) -> bool {
    scaled_from(deployment, replica_sets).is_some()
}

/// The `spec.replicas` that a ReplicaSet with replicas was last sized for, where it is not the current one.
pub fn scaled_from(deployment: &Deployment, replica_sets: &ReplicaSets) -> Option<i64> {
    let now = i64::from(deployment.replicas);
    replica_sets
        .active()
        .filter_map(|replica_set| annotation(replica_set, DESIRED_REPLICAS))
        .find(|&before| before != now)
}

/// A count from an annotation. A value that is not a positive int32 counts as absent, as upstream has it.
fn annotation(replica_set: &ReplicaSet, key: &str) -> Option<i64> {
    replica_set.annotations.get(key)?.parse::<i32>().ok().filter(|&n| n >= 0).map(i64::from)
}

/// Scales the existing ReplicaSets, and in any case updates the size annotations of every ReplicaSet with replicas.
/// Upstream leaves them when the size happens to be right already, takes the next sync for a
/// scaling event again, and never gets back to the rollout (kubernetes#138840, #125568).
pub fn plan(
    deployment: &Deployment,
    replica_sets: &ReplicaSets,
    running: &BTreeMap<Uid, usize>,
    course: &Course,
) -> Vec<Write> {
    let mut sizes = sizes(deployment, replica_sets, running, course);
    narrow(&mut sizes, replica_sets, course);
    let partial = partial::limit(&mut sizes, deployment, replica_sets, course);
    replica_sets
        .all()
        .filter_map(|replica_set| {
            let size = sizes.get(&replica_set.meta.uid).copied().unwrap_or(replica_set.replicas);
            let is_new = replica_sets.new.as_ref().is_some_and(|new| new.meta.uid == replica_set.meta.uid);
            let mut change = match (is_new, replica_set.replicas > 0 || size > 0) {
                (true, _) => refresh(deployment, replica_set, replica_sets),
                (false, true) => {
                    Change { annotations: stale_sizes(deployment, replica_set), ..Change::default() }
                }
                (false, false) => return None,
            };
            partial::mark(&mut change, replica_set, partial.contains(&replica_set.meta.uid));
            change.replicas = (size != replica_set.replicas).then_some(size);
            (!change.is_empty()).then(|| Write::Change(replica_set.clone(), change))
        })
        .collect()
}

/// Lets the new ReplicaSet grow no further than its course allows; the rest goes to the one that serves, or else to the
/// largest old one. Otherwise an autoscaler would promote a canary.
fn narrow(sizes: &mut BTreeMap<Uid, i32>, replica_sets: &ReplicaSets, course: &Course) {
    let Some(new) = &replica_sets.new else { return };
    let most = match (&course.target, course.limits.new_most) {
        (Some(_), _) => 0,
        (None, Some(most)) => most,
        (None, None) => return,
    };
    let (Some(size), largest) =
        (sizes.get(&new.meta.uid).copied(), replica_sets.old.iter().max_by_key(|old| old.replicas))
    else {
        return;
    };
    let excess = i64::from(size) - most.max(new.replicas.into());
    let rest = course.target.clone().or_else(|| Some(largest?.meta.uid.clone()));
    if let Some(rest) = rest.filter(|_| excess > 0) {
        let before = replica_sets.old.iter().find(|old| old.meta.uid == rest).map_or(0, |old| old.replicas);
        let other = sizes.entry(rest).or_insert(before);
        *other = clamp(i64::from(*other) + excess);
        sizes.insert(new.meta.uid.clone(), clamp(i64::from(size) - excess));
    }
}

/// The ReplicaSets that change, and their new sizes.
fn sizes(
    deployment: &Deployment,
    replica_sets: &ReplicaSets,
    running: &BTreeMap<Uid, usize>,
    course: &Course,
) -> BTreeMap<Uid, i32> {
    // The one ReplicaSet with replicas, or without any the new one, or the youngest, gets the whole size.
    let active: Vec<&Arc<ReplicaSet>> = replica_sets.active().collect();
    let only = match active[..] {
        [] => replica_sets.new.as_ref().or(replica_sets.old.last()),
        [only] => Some(only),
        _ => None,
    };
    if let Some(only) = only {
        let is_new = replica_sets.new.as_ref().is_some_and(|new| new.meta.uid == only.meta.uid);
        let grows = only.replicas < deployment.replicas;
        // A pause must not be a way around the wait for the old pods (S3).
        if deployment.strategy == Strategy::Recreate
            && is_new
            && grows
            && old_pods_may_run(replica_sets, running)
        {
            return BTreeMap::new();
        }
        return [(only.meta.uid.clone(), deployment.replicas)].into();
    }
    if active.is_empty() {
        return BTreeMap::new();
    }
    // The new ReplicaSet is complete: the rest of the old ones can be scaled down.
    if let Some(new) = &replica_sets.new
        && new.replicas == deployment.replicas
        && annotation(new, DESIRED_REPLICAS) == Some(i64::from(deployment.replicas))
        && new.status.available.min(new.replicas) == deployment.replicas
    {
        return replica_sets.old.iter().map(|replica_set| (replica_set.meta.uid.clone(), 0)).collect();
    }
    match deployment.strategy {
        Strategy::RollingUpdate { .. } => in_proportion(deployment, active, course),
        // The strategy itself scales all old ReplicaSets to zero next.
        Strategy::Recreate => BTreeMap::new(),
    }
}

/// Spreads the difference over the active ReplicaSets in proportion to their sizes; the remainder of the rounding
/// goes to the largest. The changes add up to the difference exactly (S9).
///
/// For example 10 desired and 3 surge, ReplicaSets of 8 and 5, scaled to 20: 23 - 13 = 10 more, of which
/// 8 * 23 / 13 - 8 = 6 go to the first and 5 * 23 / 13 - 5 = 4 to the second.
fn in_proportion(
    deployment: &Deployment,
    mut active: Vec<&Arc<ReplicaSet>>,
    course: &Course,
) -> BTreeMap<Uid, i32> {
    let (surge, _) = deployment.budget();
    let max_total =
        if deployment.replicas > 0 { i64::from(deployment.replicas) + i64::from(surge) } else { 0 };
    let total: i64 = active.iter().map(|replica_set| i64::from(replica_set.replicas)).sum();
    let difference = max_total - total;

    // The largest first; of equal ones the newer when growing, the older when shrinking.
    if difference > 0 {
        active.sort_by_key(|replica_set| {
            (
                Reverse(replica_set.replicas),
                Reverse(replica_set.meta.created),
                Reverse(replica_set.meta.key.clone()),
            )
        });
    } else {
        active.sort_by_key(|replica_set| {
            (Reverse(replica_set.replicas), replica_set.meta.created, replica_set.meta.key.clone())
        });
    }

    let mut left = difference;
    let mut sizes: Vec<(Uid, i64)> = active
        .iter()
        .map(|replica_set| {
            let share = share(deployment, replica_set, max_total, course);
            // Never more than is left, never in the other direction, never below zero.
            let share = if difference > 0 {
                share.clamp(0, left)
            } else {
                share.clamp(left, 0).max(-i64::from(replica_set.replicas))
            };
            left -= share;
            (replica_set.meta.uid.clone(), i64::from(replica_set.replicas) + share)
        })
        .collect();
    for (_, size) in &mut sizes {
        let more = left.max(-*size);
        *size += more;
        left -= more;
    }
    sizes.into_iter().map(|(uid, size)| (uid, clamp(size))).collect()
}

/// The change of one ReplicaSet when the total becomes `max_total`. Upstream multiplies two int32 here, and
/// wraps from about 46,341 pods on.
fn share(deployment: &Deployment, replica_set: &ReplicaSet, max_total: i64, course: &Course) -> i64 {
    let size = i64::from(replica_set.replicas);
    if deployment.replicas == 0 {
        return -size;
    }
    // A scaling that is not complete goes on from the size before it.
    let unfinished = annotation(replica_set, REPLICAS_BEFORE_SCALE).filter(|_| course.limits.keeps_freed);
    let base = unfinished.unwrap_or(size);
    let before = annotation(replica_set, MAX_REPLICAS)
        .filter(|&before| before > 0)
        .unwrap_or_else(|| i64::from(deployment.status.replicas));
    if before <= 0 {
        return 0;
    }
    // Rounded to the nearest, halves away from zero. 128 bits, because the product of a size and a
    // maximum of twice that has 64 already.
    let (size, base) = (i128::from(size), i128::from(base));
    let (max_total, before) = (i128::from(max_total), i128::from(before));
    let share = (2 * base * max_total + before) / (2 * before) - size;
    share.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}
