//! Wakes the keys that wait for a cache as soon as it has caught up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug};
use std::sync::Arc;

use parking_lot::Mutex;

use super::expectations::{Behind, CacheView};
use super::worker::WorkQueue;
use crate::model::Resource;

/// Keys whose sync was skipped because a cache was behind, by the position that they wait for.
///
/// Without this a skipped key would wait for an event of one of its own objects, or for a timer. The
/// position is reached by any event or bookmark of that kind. Clones share the list. Each event asks each list, so that a
/// kind for which nothing waits has no entry: the names of resources are long texts to compare.
pub struct ParkedKeys<K> {
    parked: Arc<Mutex<BTreeMap<Resource, Parked<K>>>>,
    queue: WorkQueue<K>,
}

/// The parked keys of a kind; at least one.
struct Parked<K> {
    /// In the order of the positions.
    waiting: BTreeSet<(u64, K)>,
    /// The position that the cache reached last.
    reached: u64,
}

impl<K> Clone for ParkedKeys<K> {
    fn clone(&self) -> Self {
        ParkedKeys { parked: self.parked.clone(), queue: self.queue.clone() }
    }
}

impl<K> Debug for ParkedKeys<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiters").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl<K: Ord + Clone + Send + 'static> ParkedKeys<K> {
    /// No parked keys. Woken ones are added to `queue`.
    pub fn new(queue: WorkQueue<K>) -> Self {
        ParkedKeys { parked: Arc::default(), queue }
    }

    /// Parks a key until one of the positions that it waits for is reached.
    ///
    /// The position is read once more afterwards: if it was reached between the check and now,
    /// no event would wake the key.
    pub fn park(&self, key: &K, behind: &Behind, view: &impl CacheView) {
        let mut parked = self.parked.lock();
        for awaited in &behind.awaited {
            if let Some(position) = awaited.position {
                let reached =
                    || Parked { waiting: BTreeSet::new(), reached: view.position(awaited.resource) };
                let parked = parked.entry(awaited.resource).or_insert_with(reached);
                parked.waiting.insert((position, key.clone()));
            }
        }
        drop(parked);
        for awaited in &behind.awaited {
            if awaited.position.is_some_and(|position| view.position(awaited.resource) >= position) {
                self.reached(awaited.resource, view.position(awaited.resource));
            }
        }
    }

    /// Wakes the keys that waited for this position or an earlier one; all of them when positions go back, as after a
    /// restore of etcd. To be called for each [`super::Informer::on_position`].
    pub fn reached(&self, resource: Resource, position: u64) {
        let mut parked = self.parked.lock();
        let Some(Parked { waiting, reached }) = parked.get_mut(&resource) else { return };
        let went_back = position < std::mem::replace(reached, position);
        while waiting.first().is_some_and(|(awaited, _)| went_back || *awaited <= position) {
            if let Some((_, key)) = waiting.pop_first() {
                self.queue.add(key);
            }
        }
        if waiting.is_empty() {
            parked.remove(&resource);
        }
    }

    /// How many parked keys there are.
    pub fn len(&self) -> usize {
        self.parked.lock().values().map(|parked| parked.waiting.len()).sum()
    }

    /// Whether no key is parked.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::metrics::Metrics;
    use crate::runtime::expectations::{Expectations, Freshness};
    use crate::runtime::fixture::{THINGS, Thing, uid};
    use crate::runtime::store::Store;

    fn behind(store: &Store<Thing>, position: u64) -> Behind {
        let expectations = Expectations::new(Metrics::new());
        expectations.expect_write(&uid("o"), THINGS, position);
        match expectations.check(&uid("o"), store, Instant::now()) {
            Freshness::Behind(behind) => behind,
            Freshness::Fresh => panic!("not behind"),
        }
    }

    #[test]
    fn a_parked_key_is_enqueued_at_its_position_and_not_before() {
        let (queue, store) = (WorkQueue::new("test", &Metrics::new()), Store::<Thing>::default());
        let parked_keys = ParkedKeys::new(queue.clone());
        parked_keys.park(&"a", &behind(&store, 20), &store);
        parked_keys.park(&"b", &behind(&store, 30), &store);
        parked_keys.reached(THINGS, 19);
        assert_eq!(queue.len(), 0);
        parked_keys.reached(THINGS, 25);
        assert_eq!((queue.len(), parked_keys.len()), (1, 1));
        parked_keys.reached(THINGS, 1000);
        assert_eq!((queue.len(), parked_keys.len()), (2, 0));
    }

    #[test]
    fn a_position_reached_between_the_check_and_the_parking_is_not_missed() {
        let (queue, store) = (WorkQueue::new("test", &Metrics::new()), Store::<Thing>::default());
        let parked_keys = ParkedKeys::new(queue.clone());
        let behind = behind(&store, 20);
        store.begin_list(false);
        store.end_list(20);
        parked_keys.park(&"a", &behind, &store);
        assert_eq!(queue.len(), 1);
        assert!(parked_keys.is_empty());
    }
}
