//! The pods of a ReplicaSet, sorted by what the ReplicaSet does with them. Each pod is visited once per sync.

use std::sync::Arc;

use crate::model::{Pod, ReplicaSet};
use crate::plan::claim::{Claim, claim};

/// The pods that concern a ReplicaSet.
#[derive(Clone, Debug, Default)]
pub struct PodSets {
    /// Owned, selected, and counting towards the size.
    pub active: Vec<Arc<Pod>>,
    /// Owned, selected, terminating, and still running (KEP-3973).
    pub terminating: Vec<Arc<Pod>>,
    /// Owned, and ended; they stay until another component deletes them.
    pub terminal: Vec<Arc<Pod>>,
    /// Owned, and no longer selected.
    pub to_release: Vec<Arc<Pod>>,
    /// Without a controller, and selected.
    pub orphans: Vec<Arc<Pod>>,
    /// Owned, and ignored: terminating and no longer selected.
    pub ignored: Vec<Arc<Pod>>,
}

impl PodSets {
    /// Sorts the pods whose controller the ReplicaSet is (`owned`), and those of the namespace without one.
    ///
    /// Pods that have ended, or are terminating, are neither adopted nor released: neither would
    /// change a count (upstream claims active pods only).
    pub fn of(replica_set: &ReplicaSet, owned: Vec<Arc<Pod>>, orphans: Vec<Arc<Pod>>) -> Self {
        let mut pod_sets = PodSets { active: Vec::with_capacity(owned.len()), ..PodSets::default() };
        for pod in owned {
            if pod.is_terminal() {
                pod_sets.terminal.push(pod);
                continue;
            }
            match claim(replica_set, &replica_set.selector, &pod.meta) {
                Claim::Keep if pod.is_terminating() => {
                    pod_sets.terminating.push(pod);
                }
                Claim::Keep => pod_sets.active.push(pod),
                Claim::Release if !pod.is_terminating() => pod_sets.to_release.push(pod),
                Claim::Release | Claim::Adopt | Claim::Ignore => pod_sets.ignored.push(pod),
            }
        }
        let adoptable = |pod: &Arc<Pod>| {
            !pod.is_terminal() && claim(replica_set, &replica_set.selector, &pod.meta) == Claim::Adopt
        };
        pod_sets.orphans = orphans.into_iter().filter(adoptable).collect();
        pod_sets
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let PodSets { active, terminating, terminal, to_release, orphans, ignored } = self;
        [active, terminating, terminal, to_release, orphans, ignored].into_iter().flatten()
    }
}
