//! Lookups that do not go through a whole store: the values of each key, kept with each change.

use std::collections::{BTreeMap, BTreeSet};

/// The values of each key. A key without values takes no memory.
#[derive(Debug)]
pub struct Index<K, V>(BTreeMap<K, BTreeSet<V>>);

impl<K, V> Default for Index<K, V> {
    fn default() -> Self {
        Index(BTreeMap::new())
    }
}

impl<K: Ord, V: Ord + Clone> Index<K, V> {
    /// A value was found by one key, and is by another now.
    pub fn change(&mut self, value: &V, before: Option<K>, after: Option<K>) {
        if before == after {
            return;
        }
        if let Some(key) = before
            && let Some(values) = self.0.get_mut(&key)
        {
            values.remove(value);
            if values.is_empty() {
                self.0.remove(&key);
            }
        }
        if let Some(key) = after {
            self.0.entry(key).or_default().insert(value.clone());
        }
    }

    /// The values of a key, in their order.
    pub fn get<'a>(&'a self, key: &K) -> impl Iterator<Item = &'a V> + use<'a, K, V> {
        self.0.get(key).into_iter().flatten()
    }

    /// Whether it has no value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
