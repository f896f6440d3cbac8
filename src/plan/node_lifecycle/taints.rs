//! The taints that follow from the state of a node. Those of others are never touched.

use jiff::Timestamp;

use super::turns::Turn;
use crate::model::node::{ConditionStatus, ConditionType};
use crate::model::{Effect, Node, Taint};

/// The taint of a node whose kubelet reports that it is not ready.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// The taint of a node whose kubelet does not report.
pub const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// The taint of a node that is cordoned.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// A condition, its status, and the taint of effect NoSchedule that follows.
const NO_SCHEDULE: [(ConditionType, ConditionStatus, &str); 6] = [
    (ConditionType::Ready, ConditionStatus::False, NOT_READY),
    (ConditionType::Ready, ConditionStatus::Unknown, UNREACHABLE),
    (ConditionType::MemoryPressure, ConditionStatus::True, "node.kubernetes.io/memory-pressure"),
    (ConditionType::DiskPressure, ConditionStatus::True, "node.kubernetes.io/disk-pressure"),
    (ConditionType::PIDPressure, ConditionStatus::True, "node.kubernetes.io/pid-pressure"),
    (ConditionType::NetworkUnavailable, ConditionStatus::True, "node.kubernetes.io/network-unavailable"),
];

/// The taints of a node as they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaintChange {
    /// All of them, in their order.
    pub taints: Vec<Taint>,
    /// Whether the node begins to lose its pods.
    pub begins_eviction: bool,
}

/// Whether a node has the taint of this key and effect.
fn has(node: &Node, key: &str, effect: Effect) -> bool {
    node.taints.iter().any(|taint| &*taint.key == key && taint.effect == effect)
}

/// The taint of effect NoExecute that a node should have by its condition, and the one that this replaces.
fn no_execute(node: &Node) -> Option<(&'static str, &'static str)> {
    match node.conditions.get(ConditionType::Ready)? {
        ConditionStatus::True => None,
        ConditionStatus::False => Some((NOT_READY, UNREACHABLE)),
        ConditionStatus::Unknown => Some((UNREACHABLE, NOT_READY)),
    }
}

/// Whether a node must wait for its turn before it loses its pods: it should, and has neither of the two taints.
pub fn needs_turn(node: &Node, are_all_disrupted: bool) -> bool {
    let is_evicted = [NOT_READY, UNREACHABLE].iter().any(|key| has(node, key, Effect::NoExecute));
    !are_all_disrupted && !is_evicted && no_execute(node).is_some()
}

/// The change of a node's taints, if they are not as they should be.
pub fn change(node: &Node, are_all_disrupted: bool, turn: Turn, now: Timestamp) -> Option<TaintChange> {
    // The list is replaced as a whole, and an effect that is not known cannot be written back.
    if node.taints.iter().any(|taint| taint.effect == Effect::Other) {
        return None;
    }
    let mut wanted: Vec<(&str, Effect)> = NO_SCHEDULE
        .iter()
        .filter(|(kind, status, _)| node.conditions.get(*kind) == Some(*status))
        .map(|(_, _, key)| (*key, Effect::NoSchedule))
        .collect();
    if node.is_unschedulable {
        wanted.push((UNSCHEDULABLE, Effect::NoSchedule));
    }
    let (mut inherited, mut begins_eviction) = (None, false);
    let is_known = node.conditions.get(ConditionType::Ready).is_some();
    let evicting = if are_all_disrupted { None } else { no_execute(node) };
    if let Some((key, other)) = evicting {
        // The seconds that pods tolerate do not begin anew when the one taint replaces the other.
        let replaced =
            node.taints.iter().find(|taint| &*taint.key == other && taint.effect == Effect::NoExecute);
        inherited = replaced.and_then(|taint| taint.time_added);
        let is_free = has(node, key, Effect::NoExecute) || replaced.is_some();
        begins_eviction = !is_free && turn == Turn::Now;
        if is_free || begins_eviction {
            wanted.push((key, Effect::NoExecute));
        }
    }
    let is_ours = |taint: &Taint| match taint.effect {
        Effect::NoSchedule => {
            &*taint.key == UNSCHEDULABLE || NO_SCHEDULE.iter().any(|(_, _, key)| **key == *taint.key)
        }
        // Of a node without the condition nothing is known.
        Effect::NoExecute => {
            (is_known || are_all_disrupted) && [NOT_READY, UNREACHABLE].contains(&&*taint.key)
        }
        Effect::PreferNoSchedule | Effect::Other => false,
    };
    let is_wanted = |taint: &&Taint| wanted.contains(&(&*taint.key, taint.effect));
    let mut taints: Vec<Taint> =
        node.taints.iter().filter(|taint| !is_ours(taint) || is_wanted(taint)).cloned().collect();
    let kept = taints.len();
    let added = wanted.iter().filter(|(key, effect)| !has(node, key, *effect)).map(|(key, effect)| Taint {
        key: (*key).into(),
        value: "".into(),
        effect: *effect,
        time_added: Some(inherited.filter(|_| *effect == Effect::NoExecute).unwrap_or(now)),
    });
    taints.extend(added);
    (kept != node.taints.len() || taints.len() != kept).then_some(TaintChange { taints, begins_eviction })
}
