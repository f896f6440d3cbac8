//! The taints that evict, and the pods that they concern.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::{Node, Uid};
use crate::plan::taint_eviction::{Active, active, credible};

/// How long a read of a node counts: its pods are evicted together.
const LIVE: Duration = Duration::from_secs(1);

/// The memory of the controller. It is as large as the nodes with taints and the pods on them.
#[derive(Debug, Default)]
pub(super) struct EvictionMemory(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The taints of each node that has any.
    taints: BTreeMap<Arc<str>, Arc<[Active]>>,
    /// The last reads of nodes past the cache.
    live: BTreeMap<Arc<str>, (Instant, Arc<[Active]>)>,
    /// When pods were bound to a node with taints.
    bound: BTreeMap<Uid, Timestamp>,
    /// The pods whose eviction is planned.
    planned: BTreeSet<Uid>,
    /// The pods that are marked, and those whose eviction an event has reported.
    marked: BTreeSet<Uid>,
    reported: BTreeSet<Uid>,
}

impl EvictionMemory {
    /// A node was seen.
    pub(super) fn node_changed(&self, node: &Node, now: Timestamp) {
        let mut state = self.0.lock();
        let name = &node.meta.key.name;
        let now = active(state.taints.get(name).map_or(&[], |known| &**known), node, now);
        match now.is_empty() {
            true => drop(state.taints.remove(name)),
            false => drop(state.taints.insert(name.clone(), now.into())),
        }
    }

    /// A node is gone.
    pub(super) fn node_deleted(&self, node: &str) {
        let mut state = self.0.lock();
        state.taints.remove(node);
        state.live.remove(node);
    }

    /// Whether a node has taints that evict.
    pub(super) fn has_taints(&self, node: &str) -> bool {
        self.0.lock().taints.contains_key(node)
    }

    /// The taints of a node that evict.
    pub(super) fn taints(&self, node: &str) -> Arc<[Active]> {
        self.0.lock().taints.get(node).cloned().unwrap_or_else(|| Arc::new([]))
    }

    /// The taints of a node that was read past the cache a moment ago.
    pub(super) fn live(&self, node: &str) -> Option<Arc<[Active]>> {
        let state = self.0.lock();
        state.live.get(node).filter(|(at, _)| at.elapsed() < LIVE).map(|(_, taints)| taints.clone())
    }

    /// A node was read past the cache. Its taints keep the time at which they were first seen. The credible ones.
    pub(super) fn was_read(&self, node: &Node, cached: Option<&Node>, now: Timestamp) -> Arc<[Active]> {
        let mut state = self.0.lock();
        let name = &node.meta.key.name;
        let taints = active(state.taints.get(name).map_or(&[], |known| &**known), node, now);
        let taints: Arc<[Active]> = credible(&taints, node, cached).into();
        state.live.retain(|_, (at, _)| at.elapsed() < LIVE);
        state.live.insert(name.clone(), (Instant::now(), taints.clone()));
        taints
    }

    /// A pod was bound to a node with taints.
    pub(super) fn bound(&self, pod: &Uid, now: Timestamp) {
        self.0.lock().bound.insert(pod.clone(), now);
    }

    /// When a pod was bound, if that was seen, and whether its eviction is planned.
    pub(super) fn of(&self, pod: &Uid) -> (Option<Timestamp>, bool) {
        let state = self.0.lock();
        (state.bound.get(pod).copied(), state.planned.contains(pod))
    }

    /// The eviction of a pod is planned.
    pub(super) fn plan(&self, pod: &Uid) {
        self.0.lock().planned.insert(pod.clone());
    }

    /// It is not planned any more.
    pub(super) fn cancel(&self, pod: &Uid) {
        let mut state = self.0.lock();
        state.planned.remove(pod);
        state.reported.remove(pod);
    }

    /// Whether the eviction of a pod is reported now, for the first time.
    pub(super) fn reports(&self, pod: &Uid) -> bool {
        self.0.lock().reported.insert(pod.clone())
    }

    /// A pod is marked.
    pub(super) fn mark(&self, pod: &Uid) {
        self.0.lock().marked.insert(pod.clone());
    }

    /// Whether a pod is marked.
    pub(super) fn is_marked(&self, pod: &Uid) -> bool {
        self.0.lock().marked.contains(pod)
    }

    /// A pod is gone.
    pub(super) fn forget(&self, pod: &Uid) {
        let mut state = self.0.lock();
        state.bound.remove(pod);
        state.planned.remove(pod);
        state.marked.remove(pod);
        state.reported.remove(pod);
    }
}
