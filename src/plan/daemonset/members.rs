//! The pods that concern a DaemonSet, sorted by the node that they are for.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::order::Seniority;
use super::placement::{Verdict, Verdicts};
use crate::model::{DaemonSet, Pod};
use crate::plan::claim::{Claim, claim};

/// The pods that concern a DaemonSet.
#[derive(Clone, Debug, Default)]
pub struct Members {
    /// Owned, with a target node. A pod that is being deleted and has not ended is among them.
    mapped: ByNode,
    /// Owned and unbound, without a target node.
    pub without_target: Vec<Arc<Pod>>,
    /// Owned, ended, and being deleted: a finalizer or a slow kubelet holds them (kubernetes#118716).
    pub ended: Vec<Arc<Pod>>,
    /// Owned, and no longer selected.
    pub to_release: Vec<Arc<Pod>>,
    /// Without a controller, and selected.
    pub orphans: Vec<Arc<Pod>>,
}

/// Pods with a target node, those of each node together and by seniority.
///
/// Nodes are found by their hash: to sort 5,000 pods by the names of their nodes took most of a sync, and each new node
/// is a sync of every DaemonSet.
#[derive(Clone, Debug, Default)]
struct ByNode {
    pods: Vec<Arc<Pod>>,
    /// The pods of each node, in the order in which the nodes were first seen.
    ranges: Vec<Range<usize>>,
    /// The place of a node in `ranges`.
    places: HashMap<Arc<str>, usize>,
}

impl ByNode {
    /// Groups pods. Those without a target node are left out.
    fn of(pods: Vec<Arc<Pod>>) -> Self {
        let mut places = HashMap::with_capacity(pods.len());
        let mut placed = Vec::with_capacity(pods.len());
        for pod in pods {
            let Some(node) = pod.target() else { continue };
            let next = places.len();
            placed.push((*places.entry(node.clone()).or_insert(next), pod));
        }
        // Where each node has one pod, they are in order already.
        placed.sort_by_key(|(place, _)| *place);
        let mut ranges = Vec::with_capacity(places.len());
        let mut end = 0;
        for pods in placed.chunk_by_mut(|(a, _), (b, _)| a == b) {
            if pods.len() > 1 {
                pods.sort_by_cached_key(|(_, pod)| Seniority::of(pod));
            }
            ranges.push(end..end + pods.len());
            end += pods.len();
        }
        ByNode { pods: placed.into_iter().map(|(_, pod)| pod).collect(), ranges, places }
    }

    fn at(&self, place: usize) -> &[Arc<Pod>] {
        self.ranges.get(place).and_then(|range| self.pods.get(range.clone())).unwrap_or_default()
    }
}

/// A node, and the DaemonSet's pods there.
#[derive(Clone, Copy, Debug)]
pub struct PodsOfNode<'a> {
    /// The node's name.
    pub node: &'a Arc<str>,
    /// The verdict of the DaemonSet on the node; `None` if the node does not exist.
    pub verdict: Option<Verdict>,
    /// By seniority.
    pub pods: &'a [Arc<Pod>],
}

fn share_owner_and_labels(a: &Pod, b: &Pod) -> bool {
    let (Some(owner), Some(other)) = (&a.meta.controller, &b.meta.controller) else { return false };
    Arc::ptr_eq(owner, other) && Arc::ptr_eq(&a.meta.labels, &b.meta.labels)
}

impl Members {
    /// Sorts the pods whose controller the DaemonSet is (`owned`), and those of the namespace without one.
    pub fn of(daemon_set: &DaemonSet, owned: Vec<Arc<Pod>>, orphans: Vec<Arc<Pod>>) -> Self {
        let (mut members, mut mapped) = (Members::default(), Vec::with_capacity(owned.len()));
        // Pods share their labels and their owner reference, on which alone it depends whether an owned pod is kept.
        let mut judged: Option<(Arc<Pod>, Claim)> = None;
        for pod in owned {
            let claim = match &judged {
                Some((other, claim)) if share_owner_and_labels(other, &pod) => *claim,
                _ => judged.insert((pod.clone(), claim(daemon_set, &daemon_set.selector, &pod.meta))).1,
            };
            let is_deleting = pod.meta.is_deleting();
            if claim == Claim::Release && !is_deleting {
                members.to_release.push(pod);
            } else if is_deleting && pod.is_terminal() {
                members.ended.push(pod);
            } else if pod.target().is_some() {
                mapped.push(pod);
            } else {
                members.without_target.push(pod);
            }
        }
        members.mapped = ByNode::of(mapped);
        let adoptable = |pod: &Arc<Pod>| claim(daemon_set, &daemon_set.selector, &pod.meta) == Claim::Adopt;
        members.orphans = orphans.into_iter().filter(adoptable).collect();
        members
    }

    /// All pods that the DaemonSet controls.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let Members { mapped, without_target, ended, to_release, orphans: _ } = self;
        [&mapped.pods, without_target, ended, to_release].into_iter().flatten()
    }

    /// The nodes that should run a pod or have one, in the order of their names. Other nodes are skipped.
    pub fn places<'a>(&'a self, verdicts: &'a Verdicts) -> Vec<PodsOfNode<'a>> {
        let ByNode { ranges, places, pods: _ } = &self.mapped;
        let mut all = Vec::with_capacity(ranges.len());
        let mut found = 0;
        for (node, verdict) in verdicts.iter() {
            let pods = places.get(node).map(|place| self.mapped.at(*place)).unwrap_or_default();
            found += usize::from(!pods.is_empty());
            if !pods.is_empty() || *verdict == Verdict::Run {
                all.push(PodsOfNode { node, verdict: Some(*verdict), pods });
            }
        }
        if found < places.len() {
            let gone = places.iter().filter(|(node, _)| verdicts.get(node).is_none());
            all.extend(gone.map(|(node, place)| PodsOfNode {
                node,
                verdict: None,
                pods: self.mapped.at(*place),
            }));
            all.sort_unstable_by_key(|place| place.node);
        }
        all
    }
}
