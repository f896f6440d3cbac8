//! The last changes of one kind.
//!
//! The log is bounded by a number of changes and by their bytes. Beyond that it keeps what an open watch has not read yet,
//! within reason: a slow watch of the same process does not expire, and one whose client has stopped does not hold the
//! whole history.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::change::Change;
use super::revision::Unreadable;

/// So many times the log's bounds are kept for watches that are behind.
pub(crate) const BEHIND_FACTOR: usize = 8;

/// The part of the log that is kept when no open watch is behind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The number of changes, at least 1.
    pub(crate) changes: usize,
    /// The bytes of the objects in them, as JSON.
    pub(crate) bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { changes: 10_000, bytes: 2 << 20 }
    }
}

/// How far an open watch has read. The watch ends with its drop.
#[derive(Debug)]
pub(crate) struct Cursor(Arc<AtomicU64>);

impl Cursor {
    pub(super) fn at(position: u64) -> Self {
        Cursor(Arc::new(AtomicU64::new(position)))
    }

    /// Everything up to `position` has been read.
    pub(crate) fn advance(&self, position: u64) {
        self.0.store(position, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(super) struct Log {
    changes: VecDeque<Arc<Change>>,
    /// The bytes of the objects that the changes have led to.
    bytes: usize,
    /// The revision of the newest change that was dropped.
    lost: u64,
    /// The oldest revision that a list or watch may start from.
    floor: u64,
    cursors: Vec<Weak<AtomicU64>>,
}

impl Default for Log {
    fn default() -> Self {
        Log { changes: VecDeque::new(), bytes: 0, lost: 0, floor: 1, cursors: Vec::new() }
    }
}

impl Log {
    /// An empty one that begins at this revision.
    pub(super) fn from(revision: u64) -> Self {
        Log { lost: revision, floor: revision, ..Log::default() }
    }

    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Arc<Change>> {
        self.changes.iter().rev()
    }

    /// Appends a change, and drops the oldest ones beyond the limits.
    pub(super) fn push(&mut self, change: Change, Limits { changes, bytes }: Limits) {
        self.bytes += size(&change);
        self.changes.push_back(Arc::new(change));
        let exceeds = |log: &Log, times: usize| {
            log.changes.len() > changes.max(1).saturating_mul(times)
                || log.bytes > bytes.saturating_mul(times)
        };
        if !exceeds(self, 1) {
            return;
        }
        let read = self.read_by_all();
        while self.changes.len() > 1 && exceeds(self, 1) {
            let is_read = self.changes.front().is_some_and(|oldest| oldest.revision <= read);
            if !is_read && !exceeds(self, BEHIND_FACTOR) {
                return;
            }
            if let Some(lost) = self.changes.pop_front() {
                self.bytes -= size(&lost);
                self.lost = lost.revision;
                self.floor = self.floor.max(lost.revision);
            }
        }
    }

    /// Up to `limit` changes after `position`, and whether they are all that there are. An error if some have been dropped.
    pub(super) fn after(&self, position: u64, limit: usize) -> Result<(Vec<Arc<Change>>, bool), Unreadable> {
        if position < self.lost {
            return Err(Unreadable::Compacted { oldest: self.floor });
        }
        let start = self.changes.partition_point(|change| change.revision <= position);
        let found: Vec<_> = self.changes.range(start..).take(limit).cloned().collect();
        let is_rest = self.changes.len() - start == found.len();
        Ok((found, is_rest))
    }

    pub(super) fn follow(&mut self, cursor: &Cursor) {
        self.cursors.retain(|cursor| cursor.strong_count() > 0);
        self.cursors.push(Arc::downgrade(&cursor.0));
    }

    /// Up to where the open watches have read: the newest revision if there are none.
    fn read_by_all(&self) -> u64 {
        let positions = self.cursors.iter().filter_map(Weak::upgrade);
        positions.map(|position| position.load(Ordering::Relaxed)).min().unwrap_or(u64::MAX)
    }

    /// Drops everything: lists and watches start from `revision` at the earliest.
    pub(super) fn clear(&mut self, revision: u64) {
        if let Some(last) = self.changes.back() {
            self.lost = last.revision;
        }
        self.changes.clear();
        self.bytes = 0;
        self.floor = revision;
    }
}

fn size(change: &Change) -> usize {
    change.after.as_ref().or(change.before.as_ref()).map_or(0, |object| object.size())
}
