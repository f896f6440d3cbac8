//! The trees of the objects that were used last.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;

use super::packed::Packer;
use crate::protobuf::write;

/// How many bytes of text the remembered trees have. The trees themselves are about ten times as large, and have to stay in
/// the cache of the processor: with sixteen times as many, a rollout of 10,000 pods took a tenth more CPU time.
const CAPACITY: usize = 1 << 15;

/// A tree, and what is computed from it once.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(super) value: Arc<Value>,
    message: OnceLock<Bytes>,
}

impl Decoded {
    pub(super) fn new(value: Value) -> Self {
        Decoded { value: Arc::new(value), message: OnceLock::new() }
    }

    /// The object as a protobuf message.
    pub(super) fn message(&self) -> Bytes {
        self.message.get_or_init(|| write::bare(&self.value)).clone()
    }
}

/// Keeps trees alive, first in, first out. Who holds a [`Weak`](std::sync::Weak) finds a tree as long as it is recent. The
/// texts of the same objects are in its packer.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    queue: Mutex<Queue>,
    pub(crate) packer: Packer,
}

#[derive(Debug, Default)]
struct Queue {
    trees: VecDeque<(usize, Arc<Decoded>)>,
    bytes: usize,
}

impl Recent {
    /// Remembers a tree whose text has this size, and forgets the oldest ones. The newest one always stays.
    pub(super) fn add(&self, size: usize, decoded: Arc<Decoded>) {
        let mut forgotten = Vec::new();
        {
            let mut queue = self.queue.lock();
            queue.bytes = queue.bytes.saturating_add(size);
            queue.trees.push_back((size, decoded));
            while queue.bytes > CAPACITY && queue.trees.len() > 1 {
                if let Some((size, decoded)) = queue.trees.pop_front() {
                    queue.bytes = queue.bytes.saturating_sub(size);
                    forgotten.push(decoded);
                }
            }
        }
        // A tree takes a while to drop, and the queue is everybody's.
        drop(forgotten);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_oldest_trees_are_forgotten_and_the_newest_one_never() {
        let recent = Recent::default();
        let add = |size| {
            let decoded = Arc::new(Decoded::new(json!({})));
            let tree = Arc::downgrade(&decoded);
            recent.add(size, decoded);
            tree
        };
        let (first, second) = (add(CAPACITY / 2), add(CAPACITY / 2));
        assert!(first.upgrade().is_some());
        let large = add(CAPACITY * 2);
        assert!(first.upgrade().is_none() && second.upgrade().is_none() && large.upgrade().is_some());
        let small = add(1);
        assert!(large.upgrade().is_none() && small.upgrade().is_some());
    }
}
