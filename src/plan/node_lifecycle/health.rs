//! The signs of life of nodes, each dated by our own clock when it was seen: the clocks of nodes may be wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use crate::model::node::ConditionType;
use crate::model::{Node, Uid};

/// The last signs of life, by the name of the node. The time is counted by a clock that nobody sets.
#[derive(Clone, Debug, Default)]
pub struct Health {
    nodes: BTreeMap<Arc<str>, Sign>,
    /// The renewals of Leases, whose nodes may not be known yet.
    renewed: BTreeMap<Arc<str>, Timestamp>,
}

#[derive(Clone, Debug)]
struct Sign {
    uid: Uid,
    reported: Reported,
    at: Duration,
}

/// Whether a node has the condition Ready, and the heartbeat in it.
type Reported = Option<Option<Timestamp>>;

fn reported(node: &Node) -> Reported {
    node.conditions.get(ConditionType::Ready).map(|_| node.conditions.heartbeat)
}

impl Health {
    /// A node was seen. A new report of its kubelet is a sign of life; so is that it is new.
    pub fn node(&mut self, node: &Node, now: Duration) {
        let reported = reported(node);
        let known = self.nodes.get(&node.meta.key.name);
        if known.is_none_or(|known| (&known.uid, &known.reported) != (&node.meta.uid, &reported)) {
            let sign = Sign { uid: node.meta.uid.clone(), reported, at: now };
            self.nodes.insert(node.meta.key.name.clone(), sign);
        }
    }

    /// The Lease of a node was seen. Whether it has been renewed since: each other time counts, since the clock of the node may have
    /// been set back.
    pub fn lease(&mut self, node: &Arc<str>, renewed: Option<Timestamp>, now: Duration) -> bool {
        let Some(renewed) = renewed else { return false };
        if self.renewed.get(node) == Some(&renewed) {
            return false;
        }
        self.renewed.insert(node.clone(), renewed);
        if let Some(sign) = self.nodes.get_mut(node) {
            sign.at = sign.at.max(now);
        }
        true
    }

    /// A Lease is gone.
    pub fn lease_deleted(&mut self, node: &str) {
        self.renewed.remove(node);
    }

    /// A node is gone.
    pub fn node_deleted(&mut self, node: &Node) {
        if self.nodes.get(&node.meta.key.name).is_some_and(|known| known.uid == node.meta.uid) {
            self.nodes.remove(&node.meta.key.name);
        }
    }

    /// All nodes count as alive: it was not they that were silent.
    pub fn all_alive(&mut self, now: Duration) {
        self.nodes.values_mut().for_each(|sign| sign.at = now);
    }

    /// How long a node has been silent. One whose report was not recorded yet has not.
    pub fn silence(&self, node: &Node, now: Duration) -> Duration {
        let is_recorded = |sign: &&Sign| (&sign.uid, &sign.reported) == (&node.meta.uid, &reported(node));
        let sign = self.nodes.get(&node.meta.key.name).filter(is_recorded);
        sign.map_or(Duration::ZERO, |sign| now.saturating_sub(sign.at))
    }
}
