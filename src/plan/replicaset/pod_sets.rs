//! The pods of a set, sorted by what they are to it. One look at each pod per sync.

use std::sync::Arc;

use crate::model::{Pod, ReplicaSet};
use crate::plan::claim::{Claim, claim};

/// The pods that concern a set.
#[derive(Clone, Debug, Default)]
pub struct PodSets {
    /// Ours, selected, and counting towards the size.
    pub active: Vec<Arc<Pod>>,
    /// Ours, selected, on their way out, and still running (KEP-3973).
    pub terminating: Vec<Arc<Pod>>,
    /// Ours, and ended for good; they stay until somebody collects them.
    pub terminal: Vec<Arc<Pod>>,
    /// Ours, and selected no longer.
    pub to_release: Vec<Arc<Pod>>,
    /// Nobody's, and selected.
    pub orphans: Vec<Arc<Pod>>,
    /// Ours, and nothing is to be done about them: on their way out and selected no longer.
    pub ignored: Vec<Arc<Pod>>,
}

impl PodSets {
    /// Sorts the pods whose controller the set is (`owned`), and those of the namespace that have none.
    ///
    /// Pods that have ended, or are on their way out, are neither adopted nor let go: either would
    /// change nothing that counts (upstream claims active pods only).
    pub fn of(replica_set: &ReplicaSet, owned: Vec<Arc<Pod>>, orphans: Vec<Arc<Pod>>) -> Self {
        let mut pod_sets = PodSets { active: Vec::with_capacity(owned.len()), ..PodSets::default() };
        for pod in owned {
            if has_ended(&pod) {
                pod_sets.terminal.push(pod);
                continue;
            }
            match claim(replica_set, &replica_set.selector, &pod.meta) {
                Claim::Keep if pod.is_terminating() && !planted!("pods on their way out count") => {
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

    /// All of them, whatever they are to the set.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let PodSets { active, terminating, terminal, to_release, orphans, ignored } = self;
        [active, terminating, terminal, to_release, orphans, ignored].into_iter().flatten()
    }
}

fn has_ended(pod: &Pod) -> bool {
    pod.is_terminal() && !planted!("failed pods count")
}
