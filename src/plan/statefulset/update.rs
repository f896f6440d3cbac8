//! The rolling update: outdated pods are deleted from the highest ordinal down, and created again with the new template.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::ordinals::{self, Ordinal};
use super::status::too_long;
use super::{BURST, Deletion, Pass, Reason};
use crate::model::int_or_percent::IntOrPercent;
use crate::model::{Pod, StatefulSet, StatefulSetStrategy, Uid};

/// Decides which pods are deleted for their template.
///
/// A pod that is missing, on its way out, or new and not available yet is *outstanding*: the update has to wait for it. An
/// outdated pod that is not available costs nothing when it goes, and goes first (kubernetes#137409, #96218); it must only
/// leave the number of outstanding pods below `maxUnavailable`. An available one goes only if besides all pods that are not
/// available, those below the partition included, there is room for it.
pub(super) fn decide(pass: &mut Pass<'_>) {
    let observed = pass.observed;
    let set = observed.set;
    let StatefulSetStrategy::RollingUpdate { partition, max_unavailable } = set.strategy else { return };
    // A pod that cannot be created again stays.
    if pass.is_stopped || too_long(set, pass.history).is_some() {
        return;
    }
    let most = most_unavailable(set, max_unavailable);
    let wanted = ordinals::wanted(set);
    let first = wanted.start + i64::from(partition.unwrap_or(0));
    let goners: BTreeSet<&Uid> = pass.delete.iter().map(|deletion| &deletion.pod.meta.uid).collect();
    let is_goner = |pod: &Pod| goners.contains(&pod.meta.uid);
    let (mut there, mut outstanding, mut unavailable) = (0i64, 0i64, 0i64);
    let (mut broken, mut healthy): (Vec<(Ordinal, &Arc<Pod>)>, Vec<_>) = Default::default();
    for (&ordinal, pod) in observed.members.pods.iter().rev() {
        if !wanted.contains(&i64::from(ordinal)) {
            continue;
        }
        there += 1;
        let is_leaving = pass.is_deleting(pod) || is_goner(pod);
        let is_available = !is_leaving && pass.is_available(pod);
        let is_updated = pass.history.is_updated(pod);
        outstanding += i64::from(is_leaving || (is_updated && !is_available));
        unavailable += i64::from(!is_available);
        if !is_leaving && !is_updated && i64::from(ordinal) >= first {
            if is_available { &mut healthy } else { &mut broken }.push((ordinal, pod));
        }
    }
    let missing = (wanted.end - wanted.start).max(0) - there;
    outstanding += missing;
    unavailable += missing;
    let room = usize::try_from((most - outstanding).max(0)).unwrap_or(BURST).min(BURST);
    let broken_ones = broken.len().min(room);
    let (broken_room, healthy_room) = (room, usize::try_from((most - unavailable).max(0)).unwrap_or(BURST));
    let healthy_room = healthy_room.min(room - broken_ones);
    pass.staying = (broken.len() - broken_ones) + healthy.len().saturating_sub(healthy_room);
    let goners = broken.into_iter().take(broken_room).chain(healthy.into_iter().take(healthy_room));
    let deletions =
        goners.map(|(ordinal, pod)| Deletion { pod: pod.clone(), ordinal, reason: Reason::Outdated });
    pass.delete.extend(deletions.collect::<Vec<_>>());
}

/// How many pods may be unavailable: a percentage is rounded down; at least 1, which is also the number where the field is
/// absent (upstream: `getStatefulSetMaxUnavailable`).
pub fn most_unavailable(set: &StatefulSet, max_unavailable: Option<IntOrPercent>) -> i64 {
    max_unavailable.map_or(1, |most| i64::from(most.round_down(set.replicas))).max(1)
}
