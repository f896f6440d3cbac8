//! How many pods to create or delete, which, and what to report (upstream: `replica_set.go`).

pub mod batch;
pub mod body;
pub mod rank;
pub mod status;

use std::sync::Arc;

use jiff::Timestamp;

use super::claim::{Claim, claim};
use crate::model::{Pod, ReplicaSet};

/// The most pods that one sync creates or deletes, so that one large set does not starve the others.
pub const BURST: usize = 500;

/// All that one decision about a ReplicaSet rests on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The set.
    pub set: &'a ReplicaSet,
    /// Pods whose controller is the set.
    pub owned: Vec<Arc<Pod>>,
    /// Pods of the namespace without a controller.
    pub orphans: Vec<Arc<Pod>>,
    /// Whether a fresh read showed the set unchanged in identity and not on its way out. Only then may
    /// an orphan be adopted (S15).
    pub may_adopt: bool,
    /// Active pods of the other sets of the same Deployment, for the co-location rank.
    pub siblings: Vec<Arc<Pod>>,
    /// The time of the decision.
    pub now: Timestamp,
}

/// What one reconcile of a ReplicaSet should do, in order.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a plan changes nothing until it is executed"]
pub struct Plan {
    /// Writes, in order; the first that fails ends the execution.
    pub writes: Vec<Write>,
}

/// One write to the pods of a ReplicaSet.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Make an orphan ours.
    Adopt(Arc<Pod>),
    /// Let a pod go whose labels no longer match.
    Release(Arc<Pod>),
    /// Create so many pods, in slow-start batches.
    Create(usize),
    /// Delete these pods, the least worthy first.
    Delete(Vec<Arc<Pod>>),
}

/// Whether the orphans of the namespace contain one that the set would adopt: then the caller reads
/// the set afresh before it asks for a plan.
pub fn wants_to_adopt(set: &ReplicaSet, orphans: &[Arc<Pod>]) -> bool {
    orphans.iter().any(|pod| adoptable(set, pod))
}

/// A terminal pod is not worth adopting: it would count for nothing.
fn adoptable(set: &ReplicaSet, pod: &Pod) -> bool {
    !pod.is_terminal() && claim(&set.meta, &set.selector, &pod.meta) == Claim::Adopt
}

/// Whether the set has more active pods than it wants: then the caller gathers the siblings' pods too.
pub fn is_too_large(set: &ReplicaSet, owned: &[Arc<Pod>]) -> bool {
    active(set, owned).count() > wanted(set)
}

fn wanted(set: &ReplicaSet) -> usize {
    usize::try_from(set.replicas).unwrap_or(0)
}

/// The set's pods that count towards its size.
pub(crate) fn active<'p>(set: &'p ReplicaSet, owned: &'p [Arc<Pod>]) -> impl Iterator<Item = &'p Arc<Pod>> {
    owned.iter().filter(|pod| pod.is_active() && claim(&set.meta, &set.selector, &pod.meta) == Claim::Keep)
}

/// Decides.
pub fn plan(observed: &Observed<'_>) -> Plan {
    let Observed { set, owned, orphans, may_adopt, siblings, now } = observed;
    let mut writes = Vec::new();
    // A pod that the selector does not match would be released as soon as it is made, and made again.
    let defective = set.selector.selects_everything() || !set.selector.matches(&set.template.labels);
    if set.meta.is_deleting() || defective {
        return Plan { writes };
    }

    let mut members: Vec<&Arc<Pod>> = active(set, owned).collect();
    for pod in owned {
        if claim(&set.meta, &set.selector, &pod.meta) == Claim::Release {
            writes.push(Write::Release(pod.clone()));
        }
    }
    for pod in orphans.iter().filter(|pod| *may_adopt && adoptable(set, pod)) {
        writes.push(Write::Adopt(pod.clone()));
        members.push(pod);
    }

    let wanted = wanted(set);
    if members.len() < wanted {
        writes.push(Write::Create((wanted - members.len()).min(BURST)));
    } else if members.len() > wanted {
        let surplus = (members.len() - wanted).min(BURST);
        writes.push(Write::Delete(rank::least_worthy(&members, siblings, surplus, *now)));
    }
    Plan { writes }
}
