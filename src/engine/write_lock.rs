//! Serializes the writes of two controllers of one process to one ReplicaSet: its Deployment's controller scales it,
//! and its own writes its status.
//!
//! Each write is computed from a version of the ReplicaSet, and the API server refuses the second of two writes with a
//! conflict. This process knows of its own writes: the second writer backs off locally instead of sending a request
//! that would conflict, and retries when the cache shows the first write, in milliseconds. Otherwise a rollout causes
//! occasional conflicts, and extra calls, though no other client writes. The version in the write is what protects;
//! this only saves calls, and only scaling and statuses take part.
//! saves calls, and nothing but resizes and statuses takes part.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::{Meta, Uid};

/// How long to wait for a write, first for its end and then for the cache to show it. One that takes longer may take
/// half a minute, and scaling must not wait for a status that hangs; nor for a version that a server has lost after a
/// restore from a backup. The price is a conflict.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// The state of an object that was written.
#[derive(Debug, Default)]
struct Written {
    /// Since when a write is under way.
    under_way: Option<Instant>,
    /// The resourceVersion after the last one, and when.
    made: Option<(u64, Instant)>,
}

/// The write locks of objects that two controllers write.
#[derive(Debug, Default)]
pub struct WriteLocks(Mutex<BTreeMap<Uid, Written>>);

/// The right to write an object. It ends when this is dropped, as with a call that is cut off.
#[derive(Debug)]
pub struct WriteLock<'a> {
    write_locks: &'a WriteLocks,
    object: &'a Uid,
    since: Instant,
}

impl WriteLocks {
    /// The right to write an object that was read as `meta`; `None` while another write of ours is under way,
    /// or has created a newer version than `meta`.
    pub fn take<'a>(&'a self, meta: &'a Meta, now: Instant) -> Option<WriteLock<'a>> {
        let mut all = self.0.lock();
        let written = all.entry(meta.uid.clone()).or_default();
        let is_recent = |at: Instant| now.saturating_duration_since(at) < LONGEST_WAIT;
        let unseen = |&(version, at): &(u64, Instant)| version > meta.resource_version && is_recent(at);
        if written.under_way.is_some_and(is_recent) || written.made.as_ref().is_some_and(unseen) {
            return None;
        }
        written.under_way = Some(now);
        Some(WriteLock { write_locks: self, object: &meta.uid, since: now })
    }

    /// The object was deleted.
    pub fn forget(&self, object: &Uid) {
        self.0.lock().remove(object);
    }
}

impl WriteLock<'_> {
    /// The write has created this version.
    pub fn wrote(self, version: u64, now: Instant) {
        if let Some(written) = self.write_locks.0.lock().get_mut(self.object) {
            written.made = Some((version, now));
        }
    }
}

impl Drop for WriteLock<'_> {
    fn drop(&mut self) {
        let mut all = self.write_locks.0.lock();
        // A writer that stopped waiting has the right now.
        let Some(written) = all.get_mut(self.object).filter(|written| written.under_way == Some(self.since))
        else {
            return;
        };
        written.under_way = None;
        if written.made.is_none() {
            all.remove(self.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record as _, ReplicaSet};

    fn replica_set(version: u64) -> Meta {
        let json = format!(
            r#"{{"metadata": {{"name": "web-1", "namespace": "shop", "uid": "u", "resourceVersion": "{version}"}},
                "spec": {{"selector": {{}}, "template": {{}}}}}}"#
        );
        ReplicaSet::decode(&json, &mut Interner::default()).unwrap().meta
    }

    #[test]
    fn one_writes_at_a_time() {
        let (write_locks, now, meta) = (WriteLocks::default(), Instant::now(), replica_set(7));
        let write_lock = write_locks.take(&meta, now);
        assert!(write_lock.is_some());
        assert!(write_locks.take(&meta, now).is_none());
        drop(write_lock);
        assert!(write_locks.take(&meta, now).is_some(), "it was cut off, or refused");
    }

    #[test]
    fn a_writer_with_an_outdated_version_does_not_write() {
        let (write_locks, now) = (WriteLocks::default(), Instant::now());
        write_locks.take(&replica_set(7), now).unwrap().wrote(9, now);
        assert!(write_locks.take(&replica_set(7), now).is_none());
        assert!(write_locks.take(&replica_set(9), now).is_some());
        write_locks.forget(&Uid::new("u"));
        assert!(write_locks.take(&replica_set(7), now).is_some());
    }

    #[test]
    fn a_hanging_write_blocks_others_for_a_second() {
        let (write_locks, now, meta) = (WriteLocks::default(), Instant::now(), replica_set(7));
        let hangs = write_locks.take(&meta, now);
        assert!(write_locks.take(&meta, now + Duration::from_millis(999)).is_none());
        let second = write_locks.take(&meta, now + LONGEST_WAIT);
        assert!(second.is_some());
        drop(hangs);
        assert!(write_locks.take(&meta, now + LONGEST_WAIT).is_none(), "the second is under way");
    }

    #[test]
    fn a_version_that_the_server_has_lost_blocks_writers_briefly() {
        let (write_locks, now) = (WriteLocks::default(), Instant::now());
        write_locks.take(&replica_set(7), now).unwrap().wrote(9000, now);
        assert!(write_locks.take(&replica_set(5), now + LONGEST_WAIT).is_some());
    }

    #[test]
    fn no_state_is_kept_for_an_object_that_was_not_written() {
        let (write_locks, now, meta) = (WriteLocks::default(), Instant::now(), replica_set(7));
        drop(write_locks.take(&meta, now));
        assert!(write_locks.0.lock().is_empty());
    }
}
