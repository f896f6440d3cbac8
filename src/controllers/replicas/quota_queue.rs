//! Owners whose pods a quota refused, and that retry as soon as there may be room.
//!
//! Their backoff grows to a minute. When a pod of the namespace ends, there may be room for another at
//! once, so the owner that has waited longest is woken, and if it succeeds, the next. Waking all at once
//! would cost one useless call each for every pod that ends. An owner whose pods something else refuses, such as a
//! policy or a webhook, does not wait here: no pod that ends makes its next attempt succeed.
//!
//! A wake-up is never lost: an owner that was woken and needs no pod passes it on, and one that was
//! woken while no other waited is woken again, because its request may be under way and reach the
//! server too early.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::context::Context;
use crate::engine::error::SyncError;
use crate::model::{ObjectKey, Resource};

type QueuedOwner = (Resource, ObjectKey);

/// The refused owners by namespace.
#[derive(Debug, Default)]
pub struct QuotaQueue(Mutex<BTreeMap<Arc<str>, NamespaceQueue>>);

#[derive(Debug, Default)]
struct NamespaceQueue {
    /// Longest waiting first.
    waiting: VecDeque<QueuedOwner>,
    /// Those that were woken and have not reported an outcome yet; longest ago first.
    called: VecDeque<QueuedOwner>,
}

impl QuotaQueue {
    /// Records that a quota refused an owner's pods: behind all others that wait.
    pub fn add(&self, kind: Resource, key: &ObjectKey) {
        let mut all = self.0.lock();
        let NamespaceQueue { waiting, called } = all.entry(key.namespace.clone()).or_default();
        called.retain(|(resource, other)| (*resource, other) != (kind, key));
        if !waiting.iter().any(|(resource, other)| (*resource, other) == (kind, key)) {
            waiting.push_back((kind, key.clone()));
        }
    }

    /// The owner that retries next, now that there may be room.
    pub fn next(&self, namespace: &str) -> Option<(Resource, ObjectKey)> {
        let mut all = self.0.lock();
        let NamespaceQueue { waiting, called } = all.get_mut(namespace)?;
        let next = waiting.pop_front().or_else(|| called.pop_front())?;
        called.push_back(next.clone());
        Some(next)
    }

    /// Removes an owner that needs no room any more; returns whether it was waiting or woken.
    pub fn remove(&self, kind: Resource, key: &ObjectKey) -> bool {
        let mut all = self.0.lock();
        let Some(line) = all.get_mut(&key.namespace) else { return false };
        let NamespaceQueue { waiting, called } = line;
        let before = waiting.len() + called.len();
        for replica_sets in [&mut *waiting, &mut *called] {
            replica_sets.retain(|(resource, other)| (*resource, other) != (kind, key));
        }
        let was_there = waiting.len() + called.len() < before;
        if waiting.is_empty() && called.is_empty() {
            all.remove(&key.namespace);
        }
        was_there
    }
}

impl QuotaQueue {
    /// A pod of the namespace has ended, or a refused owner got its pods: there may be room for more.
    pub fn wake_next(&self, context: &Context, namespace: &str) {
        if let Some((kind, key)) = self.next(namespace) {
            context.control(kind).queue.add(key);
        }
    }

    /// An owner whose pods a quota refuses waits in the queue; one that needs no more pods, or whose pods are no longer
    /// refused or for another reason, wakes the next one.
    pub fn tried(
        &self,
        context: &Context,
        kind: Resource,
        key: &ObjectKey,
        creates: bool,
        error: Option<&SyncError>,
    ) {
        match error {
            Some(error) if creates && error.is_over_quota() => self.add(kind, key),
            // It will be retried.
            Some(error) if creates && !error.is_refusal() => {}
            _ => self.needs_no_room(context, kind, key),
        }
    }

    /// The owner was deleted, or needs no more pods.
    pub fn needs_no_room(&self, context: &Context, kind: Resource, key: &ObjectKey) {
        if self.remove(kind, key) {
            self.wake_next(context, &key.namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Record, ReplicaSet};

    const KIND: Resource = ReplicaSet::RESOURCE;

    #[test]
    fn the_longest_waiting_owner_retries_first_and_each_namespace_has_its_own_queue() {
        let quota_queue = QuotaQueue::default();
        let (a, b, c) =
            (ObjectKey::new("shop", "a"), ObjectKey::new("shop", "b"), ObjectKey::new("other", "c"));
        for key in [&a, &b, &a, &c] {
            quota_queue.add(KIND, key);
        }
        assert_eq!(quota_queue.next("shop"), Some((KIND, a.clone())));
        quota_queue.add(KIND, &a);
        assert_eq!(quota_queue.next("shop"), Some((KIND, b.clone())));
        assert!(quota_queue.remove(KIND, &a) && !quota_queue.remove(KIND, &a));
        assert!(quota_queue.remove(KIND, &b));
        assert_eq!(quota_queue.next("shop"), None);
        assert_eq!(quota_queue.next("other"), Some((KIND, c.clone())));
        assert!(quota_queue.remove(KIND, &c));
        assert!(quota_queue.0.lock().is_empty());
    }

    #[test]
    fn a_woken_owner_is_woken_again_while_no_other_waits() {
        let quota_queue = QuotaQueue::default();
        let (a, b) = (ObjectKey::new("shop", "a"), ObjectKey::new("shop", "b"));
        quota_queue.add(KIND, &a);
        for _ in 0..3 {
            assert_eq!(quota_queue.next("shop"), Some((KIND, a.clone())));
        }
        quota_queue.add(KIND, &b);
        assert_eq!(quota_queue.next("shop"), Some((KIND, b.clone())));
        assert_eq!(quota_queue.next("shop"), Some((KIND, a.clone())), "called longest ago");
        quota_queue.add(KIND, &a);
        assert_eq!(quota_queue.next("shop"), Some((KIND, a)));
    }
}
