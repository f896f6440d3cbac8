//! The input of the planner, and how it is made of lists.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::members::Members;
use super::ordinals::{self, Ordinal};
use crate::model::{ControllerRevision, PersistentVolumeClaim, Pod, Record as _, StatefulSet, Uid};
use crate::plan::fixed_place_backoff::FailedPodBackoff;
use crate::plan::recent_creations::RecentCreations;

/// The input of one decision about a StatefulSet.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The StatefulSet.
    pub set: &'a StatefulSet,
    /// Its pods, and those that it might adopt.
    pub members: Members,
    /// How many of its pods exist and cannot be decoded. Their names are not known, so nothing is created or deleted.
    pub unreadable_pods: usize,
    /// The claims whose names begin as those of its templates do, by name.
    pub claims: BTreeMap<Arc<str>, Arc<PersistentVolumeClaim>>,
    /// Revisions whose controller it is.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// Revisions of the namespace without a controller.
    pub orphan_revisions: Vec<Arc<ControllerRevision>>,
    /// Whether a fresh read showed the StatefulSet with the same identity and not being deleted. Only then may an orphan
    /// be adopted. Read only where an orphan exists ([`wants_to_adopt`](super::wants_to_adopt)); if the read failed, the
    /// plan is empty.
    pub may_adopt: bool,
    /// Pods that a deletion whose reply was lost may still reach: they count as being deleted.
    pub maybe_deleted: BTreeSet<Uid>,
    /// Which pods have failed, by name.
    pub backoff: Arc<FailedPodBackoff>,
    /// Which pods were created within the last minute, by name.
    pub recent: Arc<RecentCreations>,
    /// Since when pods were seen not to be ready. Only where an annotation asks for it.
    pub unready: Arc<BTreeMap<Uid, Timestamp>>,
    /// Pods of the names of its own that it does not control, by ordinal.
    pub foreign: BTreeMap<Ordinal, Arc<Pod>>,
    /// The time of the decision.
    pub now: Timestamp,
}

impl<'a> Observed<'a> {
    /// The observation of a reader that has listed all pods and claims of the namespace, and the revisions that the
    /// selector matches. It remembers nothing from earlier plans: no failed pod is backed off from, and a pod that is not
    /// ready counts as such from now on.
    pub fn of_lists(
        set: &'a StatefulSet,
        pods: &[Arc<Pod>],
        claims: &[Arc<PersistentVolumeClaim>],
        revisions: &[Arc<ControllerRevision>],
        now: Timestamp,
    ) -> Self {
        let owned = pods.iter().filter(|pod| set.controls(&pod.meta)).cloned().collect();
        let orphans = pods.iter().filter(|pod| pod.meta.controller.is_none()).cloned().collect();
        let owned_revisions = revisions.iter().filter(|revision| set.controls(&revision.meta));
        let orphan_revisions = revisions.iter().filter(|revision| revision.meta.controller.is_none());
        let prefixes: Vec<String> = claim_prefixes(set).collect();
        let has_prefix = |claim: &&Arc<PersistentVolumeClaim>| {
            prefixes.iter().any(|prefix| claim.meta.key.name.starts_with(prefix))
        };
        let claims =
            claims.iter().filter(has_prefix).map(|claim| (claim.meta.key.name.clone(), claim.clone()));
        Observed {
            set,
            members: Members::of(set, owned, orphans),
            unreadable_pods: 0,
            claims: claims.collect(),
            revisions: owned_revisions.cloned().collect(),
            orphan_revisions: orphan_revisions.cloned().collect(),
            may_adopt: true,
            maybe_deleted: BTreeSet::new(),
            backoff: Arc::default(),
            recent: Arc::default(),
            unready: Arc::default(),
            foreign: foreign(set, pods.iter().cloned()),
            now,
        }
    }
}

/// How the names of the claims of a StatefulSet begin, for each of its templates.
pub fn claim_prefixes(set: &StatefulSet) -> impl Iterator<Item = String> {
    set.claim_templates.names.iter().map(|template| format!("{template}-{}-", set.meta.key.name))
}

/// The pods that have the name of one of a StatefulSet, which it does not control.
pub fn foreign(set: &StatefulSet, pods: impl IntoIterator<Item = Arc<Pod>>) -> BTreeMap<Ordinal, Arc<Pod>> {
    let others = pods.into_iter().filter(|pod| !set.controls(&pod.meta));
    let by_ordinal = others.filter_map(|pod| {
        let (parent, digits) = ordinals::split(&pod.meta.key.name)?;
        let ordinal = (*parent == *set.meta.key.name).then(|| ordinals::ordinal(digits))??;
        Some((ordinal, pod))
    });
    by_ordinal.collect()
}
