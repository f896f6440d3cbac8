//! The pods of a node that is not ready are not ready either.
//!
//! A kubelet that is not ready still runs, and compares a pod with its own memory: it writes each pod back as it was ready before, with
//! the time of before. So each pod is reported once while the node reports that it is not ready, as upstream does at the transition
//! (`MarkPodsNotReady`). A kubelet that does not report writes nothing back, and its pods are reported for as long as one is ready.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{preconditions, whole_second};
use crate::model::node::{ConditionStatus, ConditionType, Ready};
use crate::model::{Node, Pod, Uid};
use crate::plan::event_note::EventNote;

/// Whether a node has stopped to be ready by a change that kept the time of the last one, as `kubectl patch` does.
pub fn fell(before: &Node, after: &Node) -> bool {
    before.ready == Ready::True
        && after.ready != Ready::True
        && before.conditions.transition == after.conditions.transition
}

/// Whether the pods of a node are to be looked at because it has changed. `before` is none for one that is new.
pub fn may_lose_readiness(before: Option<&Node>, after: &Node) -> bool {
    let state = |node: &Node| (node.ready, node.conditions.transition);
    after.ready != Ready::True && before.map(state) != Some(state(after))
}

/// The time since which a node is not ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fall {
    /// When that was seen, if whoever wrote it did not write when: see [`fell`].
    seen: Option<Timestamp>,
    /// The time at which the node had stopped to be ready when the pods were reported.
    reported_of: Option<Timestamp>,
    /// The pods that were.
    reported: BTreeSet<Uid>,
}

impl Fall {
    /// One that was seen at this time, and that whoever wrote it did not time.
    pub fn seen_at(time: Timestamp) -> Self {
        Fall { seen: Some(time), ..Fall::default() }
    }

    /// When a node stopped to be ready.
    fn time(&self, node: &Node) -> Option<Timestamp> {
        self.seen.max(node.conditions.transition)
    }

    /// Whether a pod is to be reported. The kubelet of a node that is not ready may report that a pod has become ready since; one that
    /// does not report cannot.
    pub fn loses_readiness(&self, node: &Node, pod: &Pod) -> bool {
        let Some(since) = pod.ready_since else { return false };
        let time = self.time(node);
        match node.conditions.get(ConditionType::Ready) {
            Some(ConditionStatus::False) => {
                let is_reported = self.reported_of == time && self.reported.contains(&pod.meta.uid);
                !is_reported && time.is_none_or(|lost| since <= lost)
            }
            Some(ConditionStatus::Unknown) => true,
            Some(ConditionStatus::True) | None => false,
        }
    }

    /// A pod of a node was reported.
    pub fn reported(&mut self, node: &Node, pod: &Uid) {
        let time = self.time(node);
        if self.reported_of != time {
            self.reported_of = time;
            self.reported.clear();
        }
        self.reported.insert(pod.clone());
    }

    /// A pod is gone.
    pub fn forget(&mut self, pod: &Uid) {
        self.reported.remove(pod);
    }
}

/// Reports that a pod is not ready (strategic merge patch of the status).
pub fn status(pod: &Pod, now: Timestamp) -> Value {
    let mut patch = preconditions(&pod.meta);
    let at = whole_second(now).to_string();
    patch["status"] = json!({"conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": at}]});
    patch
}

/// The event of such a pod.
pub fn not_ready() -> EventNote {
    EventNote::warning("NodeNotReady", "Node is not ready".to_owned())
}
