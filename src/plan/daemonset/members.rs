//! The pods that concern a DaemonSet, sorted by the node that they are for.

use std::cmp::Ordering;
use std::sync::Arc;

use super::order::Seniority;
use super::placement::{Verdict, Verdicts};
use crate::model::{DaemonSet, Pod};
use crate::plan::claim::{Claim, claim};

/// The pods that concern a DaemonSet.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// Owned, with a target node: by node, and by seniority on each. A pod that is being deleted and has not ended is
    /// among them.
    mapped: Vec<Arc<Pod>>,
    /// Owned and unbound, without a target node.
    pub without_target: Vec<Arc<Pod>>,
    /// Owned, ended, and being deleted: a finalizer or a slow kubelet holds them (kubernetes#118716).
    pub ended: Vec<Arc<Pod>>,
    /// Owned, and no longer selected.
    pub to_release: Vec<Arc<Pod>>,
    /// Without a controller, and selected.
    pub orphans: Vec<Arc<Pod>>,
}

/// A node, and the DaemonSet's pods there.
#[derive(Clone, Copy, Debug)]
pub struct PodsOfNode<'a> {
    /// The node's name.
    pub node: &'a Arc<str>,
    /// What the DaemonSet wants of the node; `None` if it does not exist.
    pub verdict: Option<Verdict>,
    /// By seniority.
    pub pods: &'a [Arc<Pod>],
}

impl Members {
    /// Sorts the pods whose controller the DaemonSet is (`owned`), and those of the namespace without one.
    pub fn of(daemon_set: &DaemonSet, owned: Vec<Arc<Pod>>, orphans: Vec<Arc<Pod>>) -> Self {
        let mut members = Members { mapped: Vec::with_capacity(owned.len()), ..Members::default() };
        for pod in owned {
            let claim = claim(daemon_set, &daemon_set.selector, &pod.meta);
            let is_deleting = pod.meta.is_deleting();
            if claim == Claim::Release && !is_deleting {
                members.to_release.push(pod);
            } else if is_deleting && pod.is_terminal() {
                members.ended.push(pod);
            } else if pod.target().is_some() {
                members.mapped.push(pod);
            } else {
                members.without_target.push(pod);
            }
        }
        members.mapped.sort_by_cached_key(|pod| (pod.target().cloned(), Seniority::of(pod)));
        let adoptable = |pod: &Arc<Pod>| claim(daemon_set, &daemon_set.selector, &pod.meta) == Claim::Adopt;
        members.orphans = orphans.into_iter().filter(adoptable).collect();
        members
    }

    /// All pods that the DaemonSet controls.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let Members { mapped, without_target, ended, to_release, orphans: _ } = self;
        [mapped, without_target, ended, to_release].into_iter().flatten()
    }

    /// The nodes that should run a pod or have one, in the order of their names. Other nodes are skipped.
    pub fn places<'a>(&'a self, verdicts: &'a Verdicts) -> impl Iterator<Item = PodsOfNode<'a>> {
        let mut groups = self.mapped.chunk_by(|a, b| a.target() == b.target()).peekable();
        let mut nodes = verdicts.iter().peekable();
        std::iter::from_fn(move || {
            loop {
                let target = groups.peek().and_then(|pods| pods.first()?.target());
                let order = match (nodes.peek(), target) {
                    (None, None) => return None,
                    (Some(_), None) => Ordering::Less,
                    (None, Some(_)) => Ordering::Greater,
                    (Some((node, _)), Some(target)) => node.cmp(target),
                };
                let judged = if order.is_le() { nodes.next() } else { None };
                let pods = if order.is_ge() { groups.next().unwrap_or_default() } else { &[] };
                let verdict = judged.map(|(_, verdict)| *verdict);
                let node = judged.map(|(node, _)| node).or_else(|| pods.first()?.target())?;
                if !pods.is_empty() || verdict == Some(Verdict::Run) {
                    return Some(PodsOfNode { node, verdict, pods });
                }
            }
        })
    }
}
