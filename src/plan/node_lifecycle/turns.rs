//! The order in which the nodes of a zone are tainted, so that a failure that is not theirs does not evict all pods at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::Uid;

/// Whether a node may be tainted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Now.
    Now,
    /// After this time.
    After(Duration),
    /// Not as long as its zone is in this state.
    Never,
}

/// The nodes that wait, by zone. The time is counted by a clock that nobody sets.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    zones: BTreeMap<String, Queue>,
    /// The zone in which each of them waits.
    waits_in: BTreeMap<Uid, String>,
    /// The nodes whose turn has come, and that are not tainted yet.
    granted: BTreeSet<Uid>,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    waiting: Vec<Uid>,
    /// When the last turn was.
    last: Option<Duration>,
}

impl Turns {
    /// Whether the turn of a node has come; if not, it waits behind those that have asked before. `rate` is in nodes per second, with
    /// a burst of one. A node that has come into another zone waits there only.
    pub fn ask(&mut self, node: &Uid, zone: &str, rate: f64, now: Duration) -> Turn {
        if self.granted.contains(node) {
            return Turn::Now;
        }
        if self.waits_in.get(node).is_some_and(|before| before != zone) {
            self.leave(node);
        }
        let queue = self.zones.entry(zone.to_owned()).or_default();
        let position = queue.waiting.iter().position(|waiting| waiting == node).unwrap_or_else(|| {
            queue.waiting.push(node.clone());
            self.waits_in.insert(node.clone(), zone.to_owned());
            queue.waiting.len() - 1
        });
        let Some(interval) = interval(rate) else { return Turn::Never };
        let next = queue.last.map_or(now, |last| last.saturating_add(interval));
        if position == 0 && next <= now {
            queue.waiting.remove(0);
            self.waits_in.remove(node);
            queue.last = Some(now);
            self.granted.insert(node.clone());
            return Turn::Now;
        }
        let before = u32::try_from(position).unwrap_or(u32::MAX);
        let at = next.max(now).saturating_add(interval.saturating_mul(before));
        Turn::After(at.saturating_sub(now))
    }

    /// A node is tainted, ready or gone.
    pub fn end(&mut self, node: &Uid) {
        self.granted.remove(node);
        self.leave(node);
    }

    /// A node waits no longer.
    fn leave(&mut self, node: &Uid) {
        let zone = self.waits_in.remove(node);
        if let Some(queue) = zone.and_then(|zone| self.zones.get_mut(&zone)) {
            queue.waiting.retain(|waiting| waiting != node);
        }
    }

    /// All begins anew.
    pub fn reset(&mut self) {
        *self = Turns::default();
    }
}

/// The time between two turns; `None` if there is none.
fn interval(rate: f64) -> Option<Duration> {
    (rate > 0.0).then(|| Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::MAX))
}
