//! Two controllers of one process write one set: its Deployment's resizes it, and its own reports its status.
//!
//! Each write is computed from a version of the set, and the API server refuses the one that comes second. What
//! this process wrote itself it need not be told by the API server: who would come second does not send, and is
//! tried again when the cache shows the other write, in milliseconds. Otherwise a rollout costs a conflict now and
//! then, and a call more, though nobody else writes.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::{Meta, Uid};

/// How long a write that is under way is waited for. One that takes longer may take half a minute, and a resize is
/// not to wait for a status that hangs: the price is a conflict.
const LONGEST: Duration = Duration::from_secs(1);

/// What is known of an object that was written.
#[derive(Debug, Default)]
struct Written {
    /// Since when a write is under way.
    under_way: Option<Instant>,
    /// The version that the last one made; 0 if none did.
    version: u64,
}

/// Who writes an object that has two writers.
#[derive(Debug, Default)]
pub struct Turns(Mutex<BTreeMap<Uid, Written>>);

/// The right to write an object. It ends when this is dropped, as with a call that is cut off.
#[derive(Debug)]
pub struct Turn<'a> {
    turns: &'a Turns,
    object: &'a Uid,
}

impl Turns {
    /// The right to write an object that was read as `meta` says; `None` while another write of ours is under way,
    /// or has made a version that is newer than what was read.
    pub fn take<'a>(&'a self, meta: &'a Meta, now: Instant) -> Option<Turn<'a>> {
        let mut all = self.0.lock();
        let written = all.entry(meta.uid.clone()).or_default();
        let busy = written.under_way.is_some_and(|since| now.saturating_duration_since(since) < LONGEST);
        if busy || written.version > meta.resource_version {
            return None;
        }
        written.under_way = Some(now);
        Some(Turn { turns: self, object: &meta.uid })
    }

    /// The object is gone.
    pub fn forget(&self, object: &Uid) {
        self.0.lock().remove(object);
    }
}

impl Turn<'_> {
    /// The write has made this version.
    pub fn wrote(self, version: u64) {
        if let Some(written) = self.turns.0.lock().get_mut(self.object) {
            written.version = written.version.max(version);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(written) = self.turns.0.lock().get_mut(self.object) {
            written.under_way = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record as _, ReplicaSet};

    fn set(version: u64) -> Meta {
        let json = format!(
            r#"{{"metadata": {{"name": "web-1", "namespace": "shop", "uid": "u", "resourceVersion": "{version}"}},
                "spec": {{"selector": {{}}, "template": {{}}}}}}"#
        );
        ReplicaSet::decode(&json, &mut Interner::default()).unwrap().meta
    }

    #[test]
    fn one_writes_at_a_time() {
        let (turns, now, meta) = (Turns::default(), Instant::now(), set(7));
        let turn = turns.take(&meta, now);
        assert!(turn.is_some());
        assert!(turns.take(&meta, now).is_none());
        drop(turn);
        assert!(turns.take(&meta, now).is_some(), "it was cut off, or refused");
    }

    #[test]
    fn who_has_not_seen_the_last_write_does_not_write() {
        let (turns, now) = (Turns::default(), Instant::now());
        turns.take(&set(7), now).unwrap().wrote(9);
        assert!(turns.take(&set(7), now).is_none());
        assert!(turns.take(&set(9), now).is_some());
        turns.forget(&Uid::new("u"));
        assert!(turns.take(&set(7), now).is_some());
    }

    #[test]
    fn a_write_that_hangs_is_waited_for_a_second() {
        let (turns, now, meta) = (Turns::default(), Instant::now(), set(7));
        let _hangs = turns.take(&meta, now);
        assert!(turns.take(&meta, now + Duration::from_millis(999)).is_none());
        assert!(turns.take(&meta, now + LONGEST).is_some());
    }
}
