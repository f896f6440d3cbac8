//! A map that drops the entries that were not used for longest.

use std::collections::BTreeMap;

/// At most `capacity` values; a further one replaces the one used least recently.
#[derive(Debug)]
pub(super) struct Lru<K, V> {
    values: BTreeMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
    clock: u64,
    capacity: usize,
}

impl<K: Ord + Clone, V> Lru<K, V> {
    pub(super) fn new(capacity: usize) -> Self {
        Lru { values: BTreeMap::new(), by_use: BTreeMap::new(), clock: 0, capacity: capacity.max(1) }
    }

    /// The value of `key`, created by `make` if absent. Counts as a use.
    pub(super) fn get_or_insert_with(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.clock += 1;
        if let Some((used, _)) = self.values.get(key) {
            self.by_use.remove(used);
        } else if self.values.len() >= self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.values.remove(&oldest);
        }
        self.by_use.insert(self.clock, key.clone());
        let (used, value) = self.values.entry(key.clone()).or_insert_with(|| (0, make()));
        *used = self.clock;
        value
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some((used, _)) = self.values.remove(key) {
            self.by_use.remove(&used);
        }
    }

    #[cfg(test)]
    fn keys(&self) -> Vec<&K> {
        self.values.keys().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_used_least_recently_is_dropped_first() {
        let mut lru = Lru::new(2);
        for key in ["a", "b", "a", "c"] {
            *lru.get_or_insert_with(&key, || 0) += 1;
        }
        assert_eq!(lru.keys(), [&"a", &"c"]);
        assert_eq!(*lru.get_or_insert_with(&"a", || 0), 2);
        lru.remove(&"a");
        *lru.get_or_insert_with(&"d", || 0) += 1;
        assert_eq!(lru.keys(), [&"c", &"d"]);
        assert_eq!(lru.by_use.len(), 2);
    }
}
