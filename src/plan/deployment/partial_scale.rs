//! Scaling up while terminating pods take the room (KEP-5882): in parts, and each part by the ratio from before the first.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::course::Course;
use super::revision::{DESIRED_REPLICAS, MAX_REPLICAS, REPLICAS_BEFORE_SCALE};
use super::rolling::Budget;
use super::{Change, ReplicaSets};
use crate::model::int_or_percent::clamp;
use crate::model::{Deployment, ReplicaSet, Uid};

/// Cuts what the ReplicaSets grow by to the room that running pods leave. The largest grows first. Returns the ReplicaSets
/// that get less than their share.
pub(super) fn limit(
    sizes: &mut BTreeMap<Uid, i32>,
    deployment: &Deployment,
    replica_sets: &ReplicaSets,
    course: &Course,
) -> BTreeSet<Uid> {
    let mut partial = BTreeSet::new();
    if !course.limits.keeps_freed {
        return partial;
    }
    let mut room = Budget::of(deployment, replica_sets, &course.limits).scale_up_allowed().max(0);
    let mut growing: Vec<&Arc<ReplicaSet>> = replica_sets.all().collect();
    growing.sort_by_key(|replica_set| Reverse(replica_set.replicas));
    for replica_set in growing {
        let Some(size) = sizes.get_mut(&replica_set.meta.uid) else { continue };
        let by = i64::from(*size) - i64::from(replica_set.replicas);
        if by > room {
            *size = clamp(i64::from(replica_set.replicas) + room);
            partial.insert(replica_set.meta.uid.clone());
        }
        room -= by.clamp(0, room);
    }
    partial
}

/// Lets a ReplicaSet that got less than its share keep the ratio from before, and forgets it once the share is complete.
pub(super) fn mark(change: &mut Change, replica_set: &ReplicaSet, is_partial: bool) {
    if !is_partial {
        return unmark(change, replica_set);
    }
    change.annotations.remove(DESIRED_REPLICAS);
    change.annotations.remove(MAX_REPLICAS);
    if !is_marked(replica_set) {
        let before = replica_set.replicas.to_string();
        change.annotations.insert(REPLICAS_BEFORE_SCALE.to_owned(), before);
    }
}

/// Forgets the ratio of a scaling that is over: a later one would be computed from it.
pub(super) fn unmark(change: &mut Change, replica_set: &ReplicaSet) {
    if is_marked(replica_set) {
        change.removed.push(REPLICAS_BEFORE_SCALE);
    }
}

fn is_marked(replica_set: &ReplicaSet) -> bool {
    replica_set.annotations.get(REPLICAS_BEFORE_SCALE).is_some()
}
