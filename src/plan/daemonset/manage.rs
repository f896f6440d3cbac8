//! Which pods one node needs and which it has to lose, whatever the rollout (upstream: `podsShouldBeOnNode`).
//!
//! One node at a time: what is decided depends on the DaemonSet, on its current revision and on the node's own pods. So a
//! result can be kept until one of the three changes.

use std::sync::Arc;

use jiff::Timestamp;

use super::backoff::FailedPodBackoff;
use super::members::Place;
use super::placement::Verdict;
use super::revisions::History;
use super::{Deletion, Reason};
use crate::model::{DaemonSet, Phase, Pod};

/// All but the node that the decision about a node rests on.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The DaemonSet.
    pub daemon_set: &'a DaemonSet,
    /// Its revisions.
    pub history: &'a History<'a>,
    /// The nodes on which pods have failed.
    pub backoff: &'a FailedPodBackoff,
    /// The time of the decision.
    pub now: Timestamp,
}

impl Context<'_> {
    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        pod.is_available(self.daemon_set.min_ready_seconds, self.now)
    }
}

/// What happens on one node before the rollout is considered, and what the rollout finds there.
#[derive(Clone, Debug)]
pub struct Managed<'a> {
    /// Whether a pod is created.
    pub create: bool,
    /// Pods to delete.
    pub delete: Vec<Deletion>,
    /// What stays.
    pub class: Class<'a>,
    /// Until when failed pods stay.
    pub backs_off_until: Option<Timestamp>,
}

/// The live pods that stay on a node, as a rollout sees them.
#[derive(Clone, Copy, Debug)]
pub enum Class<'a> {
    /// The node does not exist: its bound pods are left to the pod garbage collector, and nothing else waits for them.
    Gone,
    /// None.
    Missing,
    /// More than may be there: the surplus is being deleted.
    Excess,
    /// One of the current template.
    New {
        /// Whether it is available.
        is_available: bool,
    },
    /// One of an older template.
    Old {
        /// The pod.
        pod: &'a Arc<Pod>,
        /// Whether it is available.
        is_available: bool,
    },
    /// An old one that waits for a new one, which is not available or has failed and is not replaced yet.
    Both {
        /// Whether the old one is available.
        is_old_available: bool,
    },
}

/// Decides about one node.
pub fn manage<'a>(context: Context<'_>, place: Place<'a>) -> Managed<'a> {
    let deletion = |reason: Reason| move |pod: &Arc<Pod>| Deletion { pod: pod.clone(), reason };
    let live = || place.pods.iter().filter(|pod| !pod.meta.is_deleting());
    let only = |delete: Vec<Deletion>, class| Managed { create: false, delete, class, backs_off_until: None };
    match place.verdict {
        None => {
            let unbound = live().filter(|pod| pod.node().is_none());
            only(unbound.map(deletion(Reason::NoNode)).collect(), Class::Gone)
        }
        Some(Verdict::Leave) => only(live().map(deletion(Reason::NotWanted)).collect(), Class::Missing),
        Some(Verdict::Continue) => stay(context, place, false),
        Some(Verdict::Run) => stay(context, place, true),
    }
}

fn stay<'a>(context: Context<'_>, place: Place<'a>, runs: bool) -> Managed<'a> {
    let Context { daemon_set, history, backoff, now } = context;
    let surge = daemon_set.allows_surge();
    let mut delete = Vec::new();
    let mut going = |pod: &Arc<Pod>, reason| delete.push(Deletion { pod: pod.clone(), reason });
    let live = || place.pods.iter().filter(|pod| !pod.meta.is_deleting());
    let in_phase = |phase| live().filter(move |pod| pod.phase == phase);

    let has_failed = in_phase(Phase::Failed).next().is_some();
    let generation = daemon_set.meta.generation;
    let until = if has_failed { backoff.until(generation, place.node, now) } else { None };
    if until.is_none() {
        in_phase(Phase::Failed).for_each(|pod| going(pod, Reason::Failed));
    }
    in_phase(Phase::Succeeded).for_each(|pod| going(pod, Reason::Succeeded));

    let (mut new, mut old, mut has_excess) = (None, None, false);
    for pod in live().filter(|pod| !pod.is_terminal()) {
        let is_new = history.is_new(pod);
        // With surge the first of each kind stays, and without the first of all.
        let stays = if surge && !is_new { old.is_none() } else { new.is_none() && (surge || old.is_none()) };
        match (stays, is_new) {
            (false, _) => {
                has_excess = true;
                going(pod, Reason::Excess);
            }
            (true, true) => new = Some(pod),
            (true, false) => old = Some(pod),
        }
    }
    if let (Some(replacement), Some(replaced)) = (new, old) {
        let reason = if replaced.ready_since.is_none() {
            Some(Reason::Outdated)
        } else {
            context.is_available(replacement).then_some(Reason::Replaced)
        };
        if let Some(reason) = reason {
            going(replaced, reason);
            old = None;
        }
    }

    let is_empty = new.is_none() && old.is_none();
    let is_free = surge || !place.pods.iter().any(|pod| pod.meta.is_deleting());
    let class = match (new, old) {
        _ if has_excess => Class::Excess,
        (None, None) => Class::Missing,
        (Some(new), None) => Class::New { is_available: context.is_available(new) },
        (None, Some(pod)) if until.is_none() => Class::Old { pod, is_available: context.is_available(pod) },
        (_, Some(old)) => Class::Both { is_old_available: context.is_available(old) },
    };
    Managed { create: runs && is_empty && is_free && until.is_none(), delete, class, backs_off_until: until }
}
