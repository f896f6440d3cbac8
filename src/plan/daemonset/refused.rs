//! Refused writes. One holds up the writes that need it, and no others.
//!
//! A quota, a policy or a webhook may refuse a write for ever. A deletion that waited for it might be what makes room:
//! of the pod of a node that should not run one, of a failed pod, of the oldest revision.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Deletion, Reason, Write};

/// An ended pod stays until its replacement was refused so often.
const REFUSALS_UNTIL_DELETION: u32 = 2;

/// How often in a row the pod for each node was refused. In memory only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedCreations {
    /// A new generation starts afresh: it may fix the cause.
    generation: i64,
    nodes: BTreeMap<Arc<str>, u32>,
}

impl RefusedCreations {
    /// A creation for this node was refused. What a quota refuses once, it refuses until there is room.
    pub fn refused(&mut self, generation: i64, node: &Arc<str>, exceeds_quota: bool) {
        if self.generation != generation {
            self.nodes.clear();
            self.generation = generation;
        }
        let times = self.nodes.entry(node.clone()).or_default();
        *times = times.saturating_add(1).max(if exceeds_quota { REFUSALS_UNTIL_DELETION } else { 0 });
    }

    /// The node has got its pod, or was deleted.
    pub fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// How often.
    pub fn times(&self, generation: i64, node: &str) -> u32 {
        if self.generation == generation { self.nodes.get(node).copied().unwrap_or(0) } else { 0 }
    }

    /// Whether an ended pod on this node makes room.
    fn gives_way(&self, generation: i64, node: &str) -> bool {
        self.times(generation, node) >= REFUSALS_UNTIL_DELETION
    }

    /// Whether no creation was refused.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

/// The writes of one plan that were refused so far.
#[derive(Clone, Debug, Default)]
pub struct Refusals {
    is_claim: bool,
    is_history: bool,
    is_revision: bool,
    /// The nodes that have not got the pod of this plan.
    without_pod: BTreeSet<Arc<str>>,
}

impl Refusals {
    /// A write was refused.
    pub fn add(&mut self, write: &Write) {
        match write {
            Write::AdoptPod(_)
            | Write::ReleasePod(_)
            | Write::AdoptRevision(_)
            | Write::ReleaseRevision(_) => {
                self.is_claim = true;
            }
            Write::Relabel { .. } | Write::ChangeRevision(..) => self.is_history = true,
            Write::CreateRevision(_) => self.is_revision = true,
            // See `without_pods`; and nothing needs the end of an object.
            Write::CreatePods { .. } | Write::DeleteRevision(_) | Write::DeletePods(_) => {}
        }
    }

    /// Pods were refused, so that these nodes have not got theirs.
    pub fn without_pods(&mut self, nodes: impl IntoIterator<Item = Arc<str>>) {
        self.without_pod.extend(nodes);
    }

    /// The part of a write that is sent now; `None` where nothing is.
    ///
    /// | refused | still sent |
    /// |---|---|
    /// | an adoption or release | the others (upstream: `ClaimPods`) |
    /// | a change of a revision, or of a pod's hash | deletions of pods where none should run |
    /// | the new revision | the same, and deletions of revisions: the history may use up the quota |
    /// | pods | deletions, but for those of the rollout, and of an ended pod whose replacement may still come |
    /// | a deletion | everything |
    ///
    /// The rollout waits as upstream's does: a pod that becomes unready while a webhook fails would be deleted, and not
    /// replaced.
    pub fn allow<'w>(
        &self,
        write: &'w Write,
        generation: i64,
        refused: &RefusedCreations,
    ) -> Option<Cow<'w, Write>> {
        let is_held = self.is_history || self.is_revision;
        if planted!("a refused creation holds up the deletions of its DaemonSet")
            && !self.without_pod.is_empty()
        {
            return None;
        }
        match write {
            Write::DeletePods(deletions) => {
                if !is_held && self.without_pod.is_empty() {
                    return Some(Cow::Borrowed(write));
                }
                let goes = |Deletion { pod, reason, is_rollout }: &&Deletion| match reason {
                    Reason::NotWanted | Reason::NoNode => true,
                    _ if is_held || *is_rollout => false,
                    Reason::Failed | Reason::Succeeded => pod.target().is_none_or(|node| {
                        !self.without_pod.contains(node) || refused.gives_way(generation, node)
                    }),
                    Reason::Excess | Reason::Outdated | Reason::Replaced => true,
                };
                let deletions: Vec<Deletion> = deletions.iter().filter(goes).cloned().collect();
                (!deletions.is_empty()).then_some(Cow::Owned(Write::DeletePods(deletions)))
            }
            Write::DeleteRevision(_) => (!self.is_history).then_some(Cow::Borrowed(write)),
            Write::AdoptPod(_)
            | Write::ReleasePod(_)
            | Write::AdoptRevision(_)
            | Write::ReleaseRevision(_) => Some(Cow::Borrowed(write)),
            Write::Relabel { .. }
            | Write::ChangeRevision(..)
            | Write::CreateRevision(_)
            | Write::CreatePods { .. } => (!is_held && !self.is_claim).then_some(Cow::Borrowed(write)),
        }
    }
}
