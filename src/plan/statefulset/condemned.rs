//! Pods out of range, descending: they are deleted, and their claims with them if the policy says so.

use std::sync::Arc;

use super::claims::ClaimPod;
use super::explain::Wait;
use super::ordinals::Ordinal;
use super::{BURST, Deletion, Pass, Reason};
use crate::model::Pod;

/// Decides about all of them. One by one, only once all pods in range are available.
pub(super) fn decide(pass: &mut Pass<'_>) {
    let observed = pass.observed;
    let condemned: Vec<(Ordinal, &Arc<Pod>)> = observed
        .members
        .pods
        .iter()
        .rev()
        .map(|(ordinal, pod)| (*ordinal, pod))
        .filter(|(ordinal, _)| !pass.is_in_range(*ordinal))
        .collect();
    if pass.is_stopped || condemned.is_empty() {
        return;
    }
    // Before the first of them goes: the policy must have reached the claims when the pod ends.
    for (ordinal, pod) in &condemned {
        let of = ClaimPod { name: &pod.meta.key.name, pod: Some(pod), is_condemned: true };
        pass.set_owners(*ordinal, of);
    }
    let delete = |pass: &mut Pass<'_>, (ordinal, pod): (Ordinal, &Arc<Pod>)| {
        pass.delete.push(Deletion { pod: pod.clone(), ordinal, reason: Reason::Condemned });
    };
    if observed.set.is_parallel {
        let left: Vec<_> = condemned.into_iter().filter(|(_, pod)| !pass.is_deleting(pod)).collect();
        left.into_iter().take(BURST).for_each(|one| delete(pass, one));
        return;
    }
    pass.is_stopped = true;
    let Some(&(ordinal, pod)) = condemned.first() else { return };
    if pass.is_deleting(pod) {
        return pass.wait(ordinal, Wait::Terminating);
    }
    // A conformance test demands that a broken pod halts a scale-down, unless it is the lowest broken one itself.
    let lowest_broken =
        condemned.iter().rev().find(|(_, pod)| pass.is_deleting(pod) || !pass.is_available(pod));
    if pass.is_available(pod) || lowest_broken.is_some_and(|(lowest, _)| *lowest == ordinal) {
        delete(pass, (ordinal, pod));
    } else {
        pass.wait(ordinal, Wait::ScaleDownHalted);
    }
}
