//! The pods that concern a StatefulSet, by ordinal.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::ordinals::{self, Ordinal};
use crate::model::{Phase, Pod, StatefulSet};
use crate::plan::claim::{Claim, claim};

/// The pods that concern a StatefulSet.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// Owned, selected, and named after the StatefulSet.
    pub pods: BTreeMap<Ordinal, Arc<Pod>>,
    /// The same, but what is behind the name is no ordinal, as in `db-01`. They are left alone.
    pub odd: Vec<Arc<Pod>>,
    /// Owned, and no longer selected, or with a name of another parent.
    pub to_release: Vec<Arc<Pod>>,
    /// Without a controller, selected, and named after the StatefulSet.
    pub orphans: Vec<Arc<Pod>>,
}

impl Members {
    /// Sorts the pods whose controller the StatefulSet is (`owned`), and those of the namespace without one.
    pub fn of(set: &StatefulSet, owned: Vec<Arc<Pod>>, orphans: Vec<Arc<Pod>>) -> Self {
        let mut members = Members::default();
        for pod in owned {
            let name = parse(set, &pod);
            match (claim(set, &set.selector, &pod.meta), name) {
                (Claim::Keep, Some(Some(ordinal))) => _ = members.pods.insert(ordinal, pod),
                (Claim::Keep, Some(None)) => members.odd.push(pod),
                (Claim::Keep, None) if set.meta.is_deleting() => {}
                (Claim::Keep, None) | (Claim::Release, _) => members.to_release.push(pod),
                (Claim::Adopt | Claim::Ignore, _) => {}
            }
        }
        let adoptable = |pod: &Arc<Pod>| {
            claim(set, &set.selector, &pod.meta) == Claim::Adopt && matches!(parse(set, pod), Some(Some(_)))
        };
        members.orphans = orphans.into_iter().filter(adoptable).collect();
        members
    }
}

/// Whether a pod runs and is ready. The condition of one that has failed may still say so (upstream: `isRunningAndReady`).
pub fn is_ready(pod: &Pod) -> bool {
    pod.phase == Phase::Running && pod.ready_since.is_some()
}

/// Whether a pod has been ready for `minReadySeconds`.
pub fn is_available(set: &StatefulSet, pod: &Pod, now: Timestamp) -> bool {
    is_ready(pod) && pod.is_available(set.min_ready_seconds, now)
}

/// The ordinal of a pod whose parent the StatefulSet is by name; `Some(None)` where it is none.
fn parse(set: &StatefulSet, pod: &Pod) -> Option<Option<Ordinal>> {
    let (parent, digits) = ordinals::split(&pod.meta.key.name)?;
    (*parent == *set.meta.key.name).then(|| ordinals::ordinal(digits))
}
