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
    namespaces: Mutex<BTreeMap<String, Share>>,
}

#[derive(Debug, Default)]
struct Share {
    busy: usize,
    /// Keys that wait for one of these workers, in their order.
    parked: VecDeque<ObjectKey>,
    are_parked: BTreeSet<ObjectKey>,
}

/// A worker of a namespace.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    shares: &'a Shares,
    namespace: &'a str,
}

impl Shares {
    pub(super) fn new(queue: WorkQueue<ObjectKey>) -> Self {
        Shares { queue, most: AtomicUsize::new(1), namespaces: Mutex::default() }
    }

    /// A quarter of so many workers is the most that a namespace has.
    pub(super) fn of(&self, workers: usize) {
        self.most.store((workers / 4).max(1), Ordering::Relaxed);
    }

    /// A worker for a key of this namespace. `None` if it has its share: the key is queued when one is free.
    pub(super) fn take<'a>(&'a self, namespace: &'a str, key: &ObjectKey) -> Option<Slot<'a>> {
        let mut namespaces = self.namespaces.lock();
        let share = namespaces.entry(namespace.to_owned()).or_default();
        if share.busy < self.most.load(Ordering::Relaxed) {
            share.busy += 1;
            return Some(Slot { shares: self, namespace });
        }
        if share.are_parked.insert(key.clone()) {
            share.parked.push_back(key.clone());
        }
        None
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let mut namespaces = self.shares.namespaces.lock();
        let Some(share) = namespaces.get_mut(self.namespace) else { return };
        share.busy -= 1;
        match share.parked.pop_front() {
            Some(key) => {
                share.are_parked.remove(&key);
                self.shares.queue.add(key);
            }
            None if share.busy == 0 => {
                namespaces.remove(self.namespace);
            }
            None => {}
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
        assert_eq!((queue.len(), shares.namespaces.lock()["evil"].parked.clone()), (1, [key("c")].into()));
        assert!(shares.take("evil", &key("d")).is_some());
        drop(second);
        assert_eq!(queue.len(), 2, "each free worker queues one");
        assert!(shares.namespaces.lock().is_empty());
        shares.of(1);
        assert!(shares.take("evil", &key("a")).is_some(), "one worker is everybody's");
    }
}
