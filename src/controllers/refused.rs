//! Sets whose pods were refused, most often by a quota, and that try again as soon as there may be room.
//!
//! Their backoff grows to a minute. When a pod of the namespace ends, there may be room for another at
//! once, so the set that has waited longest tries, and if it succeeds, the next. All of them at once would
//! be one doomed call each for every pod that ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::model::{ObjectKey, Resource};

type Waiting = VecDeque<(Resource, ObjectKey)>;

/// The refused sets by namespace, longest waiting first.
#[derive(Debug, Default)]
pub struct Refused(Mutex<BTreeMap<Arc<str>, Waiting>>);

impl Refused {
    /// Notes that a set's pods were refused: behind all others that wait.
    pub fn add(&self, kind: Resource, key: &ObjectKey) {
        let mut all = self.0.lock();
        let waiting = all.entry(key.namespace.clone()).or_default();
        if !waiting.iter().any(|(resource, other)| (*resource, other) == (kind, key)) {
            waiting.push_back((kind, key.clone()));
        }
    }

    /// The set that tries next, now that there may be room. It waits no longer, unless it is refused again.
    pub fn next(&self, namespace: &str) -> Option<(Resource, ObjectKey)> {
        let mut all = self.0.lock();
        let waiting = all.get_mut(namespace)?;
        let next = waiting.pop_front();
        if waiting.is_empty() {
            all.remove(namespace);
        }
        next
    }

    /// Forgets a set; returns whether it had been waiting.
    pub fn remove(&self, kind: Resource, key: &ObjectKey) -> bool {
        let mut all = self.0.lock();
        let Some(waiting) = all.get_mut(&key.namespace) else { return false };
        let before = waiting.len();
        waiting.retain(|(resource, other)| (*resource, other) != (kind, key));
        let was_there = waiting.len() < before;
        if waiting.is_empty() {
            all.remove(&key.namespace);
        }
        was_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Record, ReplicaSet};

    #[test]
    fn who_has_waited_longest_tries_first_and_each_namespace_has_a_line_of_its_own() {
        let refused = Refused::default();
        let kind = ReplicaSet::RESOURCE;
        let (a, b, c) =
            (ObjectKey::new("shop", "a"), ObjectKey::new("shop", "b"), ObjectKey::new("other", "c"));
        for key in [&a, &b, &a, &c] {
            refused.add(kind, key);
        }
        assert_eq!(refused.next("shop"), Some((kind, a.clone())));
        refused.add(kind, &a);
        assert_eq!(refused.next("shop"), Some((kind, b)));
        assert!(refused.remove(kind, &a) && !refused.remove(kind, &a));
        assert_eq!(refused.next("shop"), None);
        assert_eq!(refused.next("other"), Some((kind, c)));
        assert!(refused.0.lock().is_empty());
    }
}
