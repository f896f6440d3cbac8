//! The share of the workers that one namespace may take: what a tenant stores holds up nobody else.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::model::ObjectKey;
use crate::runtime::worker::WorkQueue;

/// Which namespaces have workers. Cluster-scoped objects count as those of one.
#[derive(Debug)]
pub(super) struct Shares {
    queue: WorkQueue<ObjectKey>,
    /// The most workers of a namespace.
    most: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    namespaces: BTreeMap<String, Share>,
    /// Keys that were queued because their namespace has a worker for them.
    granted: BTreeMap<ObjectKey, String>,
}

#[derive(Debug, Default)]
struct Share {
    busy: usize,
    /// Keys that wait for one of these workers, in their order.
    parked: VecDeque<ObjectKey>,
    are_parked: BTreeSet<ObjectKey>,
}

/// A worker of a namespace. Whoever has waited longest gets it next, and passes it on if it needs none any more.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    shares: &'a Shares,
    namespace: String,
}

impl Shares {
    pub(super) fn new(queue: WorkQueue<ObjectKey>) -> Self {
        Shares { queue, most: AtomicUsize::new(1), state: Mutex::default() }
    }

    /// A quarter of so many workers is the most that a namespace has.
    pub(super) fn of(&self, workers: usize) {
        self.most.store((workers / 4).max(1), Ordering::Relaxed);
    }

    /// The worker that a key was queued for.
    pub(super) fn claim(&self, key: &ObjectKey) -> Option<Slot<'_>> {
        let namespace = self.state.lock().granted.remove(key)?;
        Some(Slot { shares: self, namespace })
    }

    /// A worker for a key of this namespace. `None` if it has its share: the key is queued when one is free.
    pub(super) fn take(&self, namespace: &str, key: &ObjectKey) -> Option<Slot<'_>> {
        let mut state = self.state.lock();
        let share = state.namespaces.entry(namespace.to_owned()).or_default();
        if share.busy < self.most.load(Ordering::Relaxed) {
            share.busy += 1;
            return Some(Slot { shares: self, namespace: namespace.to_owned() });
        }
        if share.are_parked.insert(key.clone()) {
            share.parked.push_back(key.clone());
        }
        None
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut state = self.shares.state.lock();
        let State { namespaces, granted } = &mut *state;
        let Some(share) = namespaces.get_mut(&self.namespace) else { return };
        if let Some(key) = share.parked.pop_front() {
            share.are_parked.remove(&key);
            granted.insert(key.clone(), std::mem::take(&mut self.namespace));
            self.shares.queue.add(key);
            return;
        }
        share.busy -= 1;
        if share.busy == 0 {
            namespaces.remove(&self.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn a_namespace_has_a_quarter_of_the_workers_and_its_other_keys_wait_in_their_order() {
        let queue = WorkQueue::new("test", &Metrics::new());
        let shares = Shares::new(queue.clone());
        shares.of(8);
        let key = |name: &str| ObjectKey::new("", name);
        let first = shares.take("evil", &key("a")).unwrap();
        let second = shares.take("evil", &key("b")).unwrap();
        for name in ["d", "c", "d"] {
            assert!(shares.take("evil", &key(name)).is_none());
        }
        assert!(shares.take("shop", &key("x")).is_some() && queue.is_empty());
        drop(first);
        assert_eq!(
            (queue.len(), shares.state.lock().namespaces["evil"].parked.clone()),
            (1, [key("c")].into())
        );
        assert!(shares.take("evil", &key("late")).is_none(), "it is the turn of the first that has waited");
        // It has nothing to do any more, and passes its worker on.
        drop(shares.claim(&key("d")).unwrap());
        let third = shares.claim(&key("c")).unwrap();
        assert!(shares.claim(&key("c")).is_none());
        drop((second, third));
        assert_eq!(queue.len(), 3);
        drop(shares.claim(&key("late")).unwrap());
        assert!(shares.state.lock().namespaces.is_empty() && shares.state.lock().granted.is_empty());
        shares.of(1);
        assert!(shares.take("evil", &key("a")).is_some(), "one worker is everybody's");
    }
}
