//! Failed pods beyond those that `windlass.dev/keep-failed-pods` keeps.
//!
//! [`FailedPodBackoff`] is computed from the failed pods that exist. While it lasts, a deletion must neither shorten its wait nor
//! let more pods be created: the newest stay whatever the number, and all that failed at startup where that does not suffice.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::failed_pod_backoff::FailedPodBackoff;
use super::{Observed, PodSets, desired};
use crate::model::{Phase, Pod, Record, ReplicaSet, Uid};
use crate::plan::policy::Policy;
use crate::plan::policy::state::state_of;
use crate::plan::policy::steps::after;

/// The most failed pods that one sync deletes.
const MOST: usize = 10;

/// So many of the newest stay while the backoff lasts: after 5 s · 2^6 it is at its cap.
const OF_BACKOFF: usize = 7;

/// How soon to look again at pods that only the backoff keeps: it ends without an event.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// The failed pods to delete, and when the next is due.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Surplus {
    /// The oldest first.
    pub(super) delete: Vec<Arc<Pod>>,
    /// When a pod that stays will have been kept for its time.
    pub(super) next: Option<Timestamp>,
}

/// The number of failed pods that the annotation of a ReplicaSet keeps. ReplicationControllers, which are planned in the same form, have no such key.
pub fn policy_of(replica_set: &ReplicaSet) -> Policy {
    if replica_set.resource().kind != ReplicaSet::RESOURCE.kind {
        return Policy::default();
    }
    let mut policy = Policy::of_replica_set(&replica_set.annotations);
    if replica_set.meta.controller.is_some() {
        // The Deployment has the annotation that this is a copy of, and the event about it.
        policy.remarks.clear();
    }
    policy
}

/// When a pod failed: its last change of `Ready`, or else its creation.
fn failed_at(pod: &Pod) -> Timestamp {
    let said = pod.waiting.as_ref().and_then(|waiting| waiting.since);
    pod.ready_transition().or(said).map_or(pod.meta.created, |at| at.max(pod.meta.created))
}

/// The failed pods that are not kept.
pub(super) fn surplus(observed: &Observed<'_>) -> Surplus {
    let Observed { replica_set, pod_sets, policy, now, .. } = observed;
    let Some(kept) = policy.kept else { return Surplus::default() };
    let failed = pod_sets.terminal.iter().filter(|pod| pod.phase == Phase::Failed && !pod.meta.is_deleting());
    let mut failed: Vec<&Arc<Pod>> = failed.collect();
    failed.sort_by_cached_key(|pod| Reverse((failed_at(pod), pod.meta.created, pod.meta.uid.clone())));
    let expires = |pod: &Pod| kept.time.map(|time| after(failed_at(pod), time));
    let is_over = |pod: &Pod| expires(pod).is_some_and(|at| at <= *now);
    let next = failed.iter().take(kept.pods).filter_map(|pod| expires(pod)).filter(|at| at > now).min();
    let cause = state_of(replica_set);
    let cause = cause.failed.map(|verdict| verdict.cause).unwrap_or_default();
    let is_witness = |pod: &Pod| cause.split(':').next() == Some(&*pod.meta.key.name);
    let mut delete: Vec<Arc<Pod>> = failed
        .iter()
        .enumerate()
        .filter(|(place, pod)| (*place >= kept.pods || is_over(pod)) && !is_witness(pod))
        .map(|(_, pod)| Arc::clone(pod))
        .collect();
    delete.reverse();
    let all = delete.len();
    if observed.failed_pod_backoff {
        spare_backoff(&mut delete, pod_sets, desired(replica_set), *now);
    }
    let is_spared = delete.len() < all;
    delete.truncate(MOST);
    let look_again = is_spared.then(|| after(*now, LOOK_AGAIN));
    Surplus { delete, next: next.into_iter().chain(look_again).min() }
}

/// Takes out of `delete` the pods that the backoff is computed from.
fn spare_backoff(delete: &mut Vec<Arc<Pod>>, pod_sets: &PodSets, desired: usize, now: Timestamp) {
    let Some(before) = FailedPodBackoff::of(pod_sets, now) else { return };
    let early = || pod_sets.terminal.iter().filter(|pod| pod.failed_early && !pod.meta.is_deleting());
    let mut newest: Vec<&Arc<Pod>> = early().collect();
    newest.sort_by_cached_key(|pod| Reverse((pod.meta.created, pod.meta.uid.clone())));
    // As many of the missing pods wait as have failed, and no more than are desired can be missing.
    newest.truncate(OF_BACKOFF.max(desired));
    let newest: BTreeSet<&Uid> = newest.into_iter().map(|pod| &pod.meta.uid).collect();
    delete.retain(|pod| !newest.contains(&pod.meta.uid));
    delete.truncate(MOST);
    let goes: BTreeSet<&Uid> = delete.iter().map(|pod| &pod.meta.uid).collect();
    let stays =
        |pods: &[Arc<Pod>]| pods.iter().filter(|pod| !goes.contains(&pod.meta.uid)).cloned().collect();
    let left = PodSets { terminal: stays(&pod_sets.terminal), ..pod_sets.clone() };
    let waits = |backoff: &FailedPodBackoff| (backoff.next, backoff.failures.min(desired));
    if FailedPodBackoff::of(&left, now).map(|left| waits(&left)) != Some(waits(&before)) {
        delete.retain(|pod| !pod.failed_early);
    }
}
