//! When the taints of its node evict a pod (upstream: `pkg/controller/tainteviction`).
//!
//! Only taints of effect NoExecute count. A pod leaves at once if it does not tolerate one of them, and else when the seconds of one
//! of the tolerations that it uses have passed. They count from the time that the taint itself carries, so that a restart of the
//! controller begins nothing anew; never from before the pod was on the node.

#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::event_note::EventNote;
use super::node_lifecycle::taints::{NOT_READY, UNREACHABLE};
use super::tolerations::tolerates;
use crate::model::node::Ready;
use crate::model::{Effect, Node, Pod, Taint};

/// A taint of effect NoExecute, and since when the node has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Active {
    /// The taint.
    pub taint: Taint,
    /// Since when: the time that it carries, or when it was first seen, whichever is earlier. A clock that is ahead puts off no
    /// eviction.
    pub since: Timestamp,
}

/// The taints of a node that evict. Those that it had before keep their time.
pub fn active(before: &[Active], node: &Node, now: Timestamp) -> Vec<Active> {
    let evicting = node.taints.iter().filter(|taint| taint.effect == Effect::NoExecute);
    let since = |taint: &Taint| match before.iter().find(|known| known.taint == *taint) {
        Some(known) => known.since,
        None => taint.time_added.map_or(now, |added| added.min(now)),
    };
    evicting.map(|taint| Active { taint: taint.clone(), since: since(taint) }).collect()
}

/// The taints of a node that was read past the cache, as far as they evict. One that is ready while the cache shows that it is not has
/// recovered, and whoever takes its taints off may have the same outdated cache: those that say that it is not ready do not count.
pub fn credible(taints: &[Active], live: &Node, cached: Option<&Node>) -> Vec<Active> {
    let is_ready = |node: &Node| node.ready == Ready::True;
    let has_recovered = is_ready(live) && !cached.is_some_and(is_ready);
    let is_outdated =
        |active: &&Active| has_recovered && [NOT_READY, UNREACHABLE].contains(&&*active.taint.key);
    taints.iter().filter(|active| !is_outdated(active)).cloned().collect()
}

/// Whether a change of a node may begin or end evictions.
pub fn concerns(before: &Node, after: &Node) -> bool {
    let evicting = |node: &Node| {
        let taints = node.taints.iter().filter(|taint| taint.effect == Effect::NoExecute);
        taints.cloned().collect::<Vec<_>>()
    };
    evicting(before) != evicting(after)
}

/// A pod on a node with taints that evict.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The taints of its node.
    pub taints: &'a [Active],
    /// When it was bound to the node, if that was seen.
    pub bound: Option<Timestamp>,
    /// Whether its eviction is planned.
    pub is_planned: bool,
    /// The time.
    pub now: Timestamp,
}

/// The decision about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It stays.
    Keep {
        /// Its eviction was planned, and is no longer.
        cancels: bool,
    },
    /// It is evicted then.
    Wait {
        /// When.
        due: Timestamp,
    },
    /// It is evicted now.
    Evict {
        /// Since when that is due.
        due: Timestamp,
    },
}

/// Decides about a pod.
pub fn plan(observed: Observed<'_>) -> Plan {
    let Observed { pod, taints, bound, is_planned, now } = observed;
    if pod.meta.is_deleting() {
        return Plan::Keep { cancels: false };
    }
    let due = |active: &Active| {
        let begins = active.since.max(pod.meta.created).max(bound.unwrap_or(Timestamp::MIN));
        // Of several tolerations of one taint the first counts, as in upstream's `GetMatchingTolerations`.
        let used = pod.tolerations().find(|toleration| tolerates(*toleration, &active.taint));
        let seconds = match used {
            None => 0,
            Some(toleration) => toleration.seconds?.max(0),
        };
        Some(begins.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX))
    };
    match taints.iter().filter_map(due).min() {
        None => Plan::Keep { cancels: is_planned },
        Some(due) if due <= now => Plan::Evict { due },
        Some(due) => Plan::Wait { due },
    }
}

/// The event of an eviction.
pub fn eviction(pod: &Pod) -> EventNote {
    EventNote::normal(REASON, format!("Marking for deletion Pod {}", pod.meta.key))
}

/// The event of a planned eviction that does not take place.
pub fn cancellation(pod: &Pod) -> EventNote {
    EventNote::normal(REASON, format!("Cancelling deletion of Pod {}", pod.meta.key))
}

const REASON: &str = "TaintManagerEviction";

/// Marks a pod before its eviction (strategic merge patch); `None` for one that has ended, and is not disrupted.
pub fn disrupted(pod: &Pod, now: Timestamp) -> Option<Value> {
    if pod.is_terminal() {
        return None;
    }
    let mut condition = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": now.to_string(),
    });
    if pod.meta.generation > 0 {
        condition["observedGeneration"] = pod.meta.generation.into();
    }
    Some(json!({"metadata": {"uid": pod.meta.uid}, "status": {"conditions": [condition]}}))
}
