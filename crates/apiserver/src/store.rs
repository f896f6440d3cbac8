//! The objects, their history and the one revision counter.
//!
//! The guarantee: every write gets the next revision, and the changes of one kind are kept in the order
//! of their revisions. So a list at a revision and the changes after it are together a consistent
//! prefix of that kind's history, which is what a watch promises.

mod backup;
mod change;
mod log;
mod quotas;
mod revision;
mod services;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use serde_json::Value;

use super::object::Object;
use super::object::recent::Recent;
pub(crate) use backup::Backup;
use change::at_revision;
pub(crate) use change::{Change, Key};
use log::Log;
pub(crate) use log::{Cursor, Limits};
pub(crate) use quotas::{Charge, Charged};
use quotas::{QUOTA, Written};
pub(crate) use revision::Unreadable;
pub(crate) use services::Held;
use services::SERVICE;

/// The stored object is not the one the write was computed from.
#[derive(Debug, PartialEq)]
pub(crate) struct Raced;

/// Objects as of one revision, ordered by namespace and name.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) revision: u64,
    pub(crate) objects: Vec<(Arc<Key>, Arc<Object>)>,
}

/// The objects and history of one kind.
#[derive(Debug)]
struct Shelf {
    objects: BTreeMap<Arc<Key>, Arc<Object>>,
    log: Log,
    /// Notifies watchers of changes; the value itself is not used.
    /// Not a `tokio::sync::watch`, which wakes its receivers in an order drawn by chance.
    bell: tokio::sync::broadcast::Sender<u64>,
}

#[derive(Debug)]
struct State {
    revision: u64,
    shelves: BTreeMap<&'static str, Shelf>,
    held: Held,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Store {
    state: RwLock<State>,
    limits: Limits,
    charge: Charge,
    recent: Arc<Recent>,
}

impl Store {
    /// An empty store for these kinds that keeps so much of the history of each, and charges quotas so.
    pub(crate) fn new(limits: Limits, kinds: impl Iterator<Item = &'static str>, charge: Charge) -> Self {
        let shelves = kinds.map(|kind| (kind, Shelf::default())).collect();
        let state = State { revision: 1, shelves, held: Held::default() };
        Store { state: RwLock::new(state), limits, charge, recent: Arc::default() }
    }

    /// Has a place for the objects of a custom kind. What is there stays.
    pub(crate) fn open(&self, kind: &'static str) {
        self.state.write().shelves.entry(kind).or_default();
    }

    /// Ends the open watches of a kind, once they have delivered what has happened. The history stays for them.
    pub(crate) fn close(&self, kind: &str) {
        if let Some(shelf) = self.state.write().shelves.get_mut(kind) {
            shelf.bell = tokio::sync::broadcast::Sender::new(1);
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.state.read().revision
    }

    pub(crate) fn get(&self, kind: &str, key: &Key) -> Option<Arc<Object>> {
        self.state.read().shelves.get(kind)?.objects.get(key).cloned()
    }

    /// Stores `value` under the next revision if the object is still `expected` (None: absent).
    pub(crate) fn put(
        &self,
        kind: &str,
        key: &Key,
        expected: Option<&Arc<Object>>,
        value: Value,
    ) -> Result<Arc<Object>, Raced> {
        self.commit(|state| self.put_locked(state, kind, key, expected, value))
    }

    /// Removes the object if it is still `expected`. The answer is its last state under the deletion's
    /// revision.
    pub(crate) fn remove(&self, kind: &str, key: &Key, expected: &Arc<Object>) -> Result<Arc<Object>, Raced> {
        self.commit(|state| self.remove_locked(state, kind, key, expected))
    }

    /// Stores the last state of an object and removes it. Nobody writes in between: a kubelet that has seen the last
    /// state would remove the object itself, and the deletion would answer that there is none.
    pub(crate) fn put_and_remove(
        &self,
        kind: &str,
        key: &Key,
        expected: &Arc<Object>,
        last: Value,
    ) -> Result<Arc<Object>, Raced> {
        self.commit(|state| {
            let last = self.put_locked(state, kind, key, Some(expected), last)?;
            self.remove_locked(state, kind, key, &last)
        })
    }

    fn commit<T>(&self, write: impl FnOnce(&mut State) -> Result<T, Raced>) -> Result<T, Raced> {
        let written = write(&mut self.state.write())?;
        self.recent.packer.pack();
        Ok(written)
    }

    fn put_locked(
        &self,
        state: &mut State,
        kind: &str,
        key: &Key,
        expected: Option<&Arc<Object>>,
        value: Value,
    ) -> Result<Arc<Object>, Raced> {
        let revision = state.revision + 1;
        // The usage in a quota's status is the server's to know.
        let value = if kind == QUOTA { state.counted(&self.charge, &key.namespace, value) } else { value };
        let shelf = state.shelves.get_mut(kind).ok_or(Raced)?;
        let stored = shelf.objects.get_key_value(key);
        if !same(stored.map(|(_, object)| object), expected) {
            return Err(Raced);
        }
        // A client that has written another status has changed nothing.
        if let Some((_, stored)) = stored.filter(|(_, stored)| kind == QUOTA && *stored.peek() == value) {
            return Ok(stored.clone());
        }
        let key = stored.map_or_else(|| Arc::new(key.clone()), |(key, _)| key.clone());
        let after = Arc::new(at_revision(value, revision, &self.recent));
        let before = shelf.objects.insert(key.clone(), after.clone());
        shelf.record(self.limits, revision, key.clone(), before.clone(), Some(after.clone()));
        let (namespace, before) = (key.namespace.as_str(), before.as_ref());
        state.written(revision, kind, before, Some(&after));
        let written = Written { kind, namespace, before, after: Some(&after) };
        state.charge(&self.charge, self.limits, &self.recent, &written);
        Ok(after)
    }

    fn remove_locked(
        &self,
        state: &mut State,
        kind: &str,
        key: &Key,
        expected: &Arc<Object>,
    ) -> Result<Arc<Object>, Raced> {
        let revision = state.revision + 1;
        let shelf = state.shelves.get_mut(kind).ok_or(Raced)?;
        if !same(shelf.objects.get(key), Some(expected)) {
            return Err(Raced);
        }
        let (key, before) = shelf.objects.remove_entry(key).ok_or(Raced)?;
        let departed = shelf.record(self.limits, revision, key.clone(), Some(before.clone()), None);
        state.written(revision, kind, Some(&before), None);
        let written = Written { kind, namespace: &key.namespace, before: Some(&before), after: None };
        state.charge(&self.charge, self.limits, &self.recent, &written);
        departed.ok_or(Raced)
    }

    /// The objects of a kind now or at an earlier revision, in one namespace or ("") in all, starting
    /// after `after`. An earlier revision is rebuilt by undoing the changes since, so it costs as much
    /// as has been written meanwhile, and works only as far back as the history reaches.
    pub(crate) fn list(
        &self,
        kind: &str,
        namespace: &str,
        after: Option<&Key>,
        at: Option<u64>,
    ) -> Result<Snapshot, Unreadable> {
        let state = self.state.read();
        let current = state.revision;
        let Some(shelf) = state.shelves.get(kind) else {
            return Ok(Snapshot { revision: current, objects: Vec::new() });
        };
        let wanted = |key: &Key| {
            (namespace.is_empty() || key.namespace == namespace) && after.is_none_or(|after| key > after)
        };
        let first = Key::new(namespace, "");
        let start = match after {
            Some(after) => Bound::Excluded(after.max(&first)),
            None => Bound::Included(&first),
        };
        let now = shelf
            .objects
            .range::<Key, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| namespace.is_empty() || key.namespace == namespace)
            .map(|(key, object)| (key.clone(), object.clone()));
        match at {
            Some(at) if at > current => Err(Unreadable::Future { current }),
            Some(at) if at < shelf.log.floor() => Err(Unreadable::Compacted { oldest: shelf.log.floor() }),
            Some(at) if at < current => {
                let mut then: BTreeMap<Arc<Key>, Arc<Object>> = now.collect();
                for change in shelf.log.newest_first().take_while(|change| change.revision > at) {
                    if wanted(&change.key) {
                        match &change.before {
                            Some(before) => then.insert(change.key.clone(), before.clone()),
                            None => then.remove(&change.key),
                        };
                    }
                }
                Ok(Snapshot { revision: at, objects: then.into_iter().collect() })
            }
            _ => Ok(Snapshot { revision: current, objects: now.collect() }),
        }
    }

    /// Whether a watch may start from `revision`.
    pub(crate) fn check_watchable(&self, kind: &str, revision: u64) -> Result<(), Unreadable> {
        match self.state.read().shelves.get(kind) {
            Some(shelf) if revision < shelf.log.floor() => {
                Err(Unreadable::Compacted { oldest: shelf.log.floor() })
            }
            _ => Ok(()),
        }
    }

    /// Up to `limit` changes after `position`, and the position after them. An error if some have been
    /// lost meanwhile, because the reader was too slow for the history.
    pub(crate) fn changes(
        &self,
        kind: &str,
        position: u64,
        limit: usize,
    ) -> Result<(Vec<Arc<Change>>, u64), Unreadable> {
        let state = self.state.read();
        let Some(shelf) = state.shelves.get(kind) else { return Ok((Vec::new(), position)) };
        let (found, is_rest) = shelf.log.after(position, limit)?;
        let position = match found.last() {
            Some(last) if !is_rest => last.revision,
            _ => state.revision.max(position),
        };
        Ok((found, position))
    }

    /// The cursor of a watch that has read everything up to `position`. The history keeps what it has not read.
    pub(crate) fn cursor(&self, kind: &str, position: u64) -> Cursor {
        let cursor = Cursor::at(position);
        if let Some(shelf) = self.state.write().shelves.get_mut(kind) {
            shelf.log.follow(&cursor);
        }
        cursor
    }

    /// The addresses and ports that Services hold.
    pub(crate) fn held<T>(&self, ask: impl FnOnce(&Held) -> T) -> T {
        ask(&self.state.read().held)
    }

    /// A receiver that is notified after each change of the kind.
    pub(crate) fn subscribe(&self, kind: &str) -> Option<tokio::sync::broadcast::Receiver<u64>> {
        Some(self.state.read().shelves.get(kind)?.bell.subscribe())
    }

    /// Forgets the history: lists and watches from before this revision are too old from now on.
    /// Watches that are up to date go on.
    pub(crate) fn compact(&self) {
        let mut state = self.state.write();
        let revision = state.revision;
        for shelf in state.shelves.values_mut() {
            shelf.log.clear(revision);
        }
    }
}

impl State {
    /// Brings what follows from the objects in step with a write.
    fn written(
        &mut self,
        revision: u64,
        kind: &str,
        before: Option<&Arc<Object>>,
        after: Option<&Arc<Object>>,
    ) {
        self.revision = revision;
        if kind == SERVICE {
            let (before, after) = (before.map(|object| object.peek()), after.map(|object| object.peek()));
            self.held.follow(before.as_deref(), after.as_deref());
        }
    }
}

impl Default for Shelf {
    fn default() -> Self {
        Shelf { objects: BTreeMap::new(), log: Log::default(), bell: tokio::sync::broadcast::Sender::new(1) }
    }
}

impl Shelf {
    fn record(
        &mut self,
        limits: Limits,
        revision: u64,
        key: Arc<Key>,
        before: Option<Arc<Object>>,
        after: Option<Arc<Object>>,
    ) -> Option<Arc<Object>> {
        let change = Change { revision, key, before, after, departed: OnceLock::new() };
        let departed = if change.after.is_none() { change.departed() } else { None };
        self.log.push(change, limits);
        // An error means that there is no watcher.
        let _listeners = self.bell.send(revision);
        departed
    }
}

fn same(stored: Option<&Arc<Object>>, expected: Option<&Arc<Object>>) -> bool {
    match (stored, expected) {
        (None, None) => true,
        (Some(stored), Some(expected)) => Arc::ptr_eq(stored, expected),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admission::quota;
    use crate::kinds;
    use crate::options::Options;

    fn charge() -> Charge {
        quota::charge(&Options::new(Arc::new(|| jiff::Timestamp::UNIX_EPOCH)))
    }

    fn store(changes: usize) -> Store {
        Store::new(Limits { changes, ..Limits::default() }, kinds::all().map(|row| row.kind), charge())
    }

    fn names(snapshot: &Snapshot) -> Vec<&str> {
        snapshot.objects.iter().map(|(key, _)| key.name.as_str()).collect()
    }

    #[test]
    fn an_earlier_revision_is_listed_as_it_was() {
        let store = store(10);
        let (a, b) = (Key::new("ns", "a"), Key::new("ns", "b"));
        let first = store.put("Pod", &a, None, json!({})).unwrap();
        let then = store.revision();
        store.put("Pod", &b, None, json!({})).unwrap();
        store.remove("Pod", &a, &first).unwrap();
        assert_eq!(names(&store.list("Pod", "ns", None, Some(then)).unwrap()), ["a"]);
        assert_eq!(names(&store.list("Pod", "ns", None, None).unwrap()), ["b"]);
    }

    #[test]
    fn a_write_computed_from_another_state_is_refused() {
        let store = store(10);
        let key = Key::new("ns", "a");
        let first = store.put("Pod", &key, None, json!({})).unwrap();
        store.put("Pod", &key, Some(&first), json!({"spec": 1})).unwrap();
        assert_eq!(store.put("Pod", &key, Some(&first), json!({})).unwrap_err(), Raced);
        assert_eq!(store.put("Pod", &key, None, json!({})).unwrap_err(), Raced);
    }

    #[test]
    fn a_reader_slower_than_the_history_gets_an_error() {
        let store = store(2);
        let start = store.revision();
        for name in ["a", "b", "c"] {
            store.put("Pod", &Key::new("ns", name), None, json!({})).unwrap();
        }
        assert_eq!(store.changes("Pod", start, 10).unwrap_err(), Unreadable::Compacted { oldest: 2 });
        assert_eq!(store.changes("Pod", 2, 10).unwrap().0.len(), 2);
    }

    #[test]
    fn the_history_keeps_what_an_open_watch_has_not_read() {
        let store = store(2);
        let create = |name: &str| store.put("Pod", &Key::new("ns", name), None, json!({})).unwrap();
        let start = store.revision();
        let cursor = store.cursor("Pod", start);
        ["a", "b", "c", "d"].iter().for_each(|name| drop(create(name)));
        let (read, position) = store.changes("Pod", start, 3).unwrap();
        assert_eq!(read.len(), 3);
        cursor.advance(position);
        create("e");
        assert!(store.changes("Pod", start, 10).is_err(), "what every watch has read is dropped");
        assert_eq!(store.changes("Pod", position, 10).unwrap().0.len(), 2);
        drop(cursor);
        create("f");
        assert!(store.changes("Pod", position, 10).is_err(), "the watch has ended");
    }

    #[test]
    fn a_watch_that_never_reads_holds_only_so_much() {
        let store = store(2);
        let start = store.revision();
        let _stopped = store.cursor("Pod", start);
        for number in 0..=2 * log::BEHIND_FACTOR {
            store.put("Pod", &Key::new("ns", &number.to_string()), None, json!({})).unwrap();
        }
        assert!(store.changes("Pod", start, 10).is_err());
    }

    #[test]
    fn the_history_is_bounded_by_its_bytes() {
        let store = Store::new(
            Limits { bytes: 1000, ..Limits::default() },
            kinds::all().map(|row| row.kind),
            charge(),
        );
        let start = store.revision();
        let data = "x".repeat(400);
        let create =
            |name: &str| store.put("Pod", &Key::new("ns", name), None, json!({"data": data})).unwrap();
        ["a", "b"].iter().for_each(|name| drop(create(name)));
        assert!(store.changes("Pod", start, 10).is_ok());
        create("c");
        assert!(store.changes("Pod", start, 10).is_err());
        assert_eq!(store.changes("Pod", start + 1, 10).unwrap().0.len(), 2);
    }

    #[test]
    fn compaction_spares_a_reader_that_is_up_to_date() {
        let store = store(10);
        store.put("Pod", &Key::new("ns", "a"), None, json!({})).unwrap();
        let position = store.revision();
        store.put("Node", &Key::new("", "n"), None, json!({})).unwrap();
        store.compact();
        assert!(store.changes("Pod", position, 10).is_ok());
        assert!(store.check_watchable("Pod", position).is_err());
    }
}
