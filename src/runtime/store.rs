//! The cache of one kind: its objects by key, by owner, and those without one.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::RwLock;

use super::unreadable::Unreadable;
use super::watch_decoder::Identity;
use crate::model::{Meta, ObjectKey, Owner, Record, Selector, Uid};

/// A change of an object, passed to handlers after the store shows it.
///
/// A name that was given to a new object is two changes, `Deleted` and `Added`, even if the watch had
/// only one event for it. Deletions that a broken watch missed are reported after the next list.
#[derive(Debug)]
pub enum Change<T> {
    /// The object is new.
    Added(Arc<T>),
    /// The object changed.
    Updated {
        /// Its state before.
        old: Arc<T>,
        /// Its state now.
        new: Arc<T>,
    },
    /// The object was deleted. This is its last known state.
    Deleted(Arc<T>),
}

impl<T> Change<T> {
    /// The object's latest state.
    pub fn object(&self) -> &Arc<T> {
        match self {
            Change::Added(object) | Change::Updated { new: object, .. } | Change::Deleted(object) => object,
        }
    }

    /// The state before the change, and the one after it.
    pub fn states(&self) -> (Option<&T>, Option<&T>) {
        match self {
            Change::Added(new) => (None, Some(new)),
            Change::Updated { old, new } => (Some(old), Some(new)),
            Change::Deleted(old) => (Some(old), None),
        }
    }
}

impl<T> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Change::Added(object) => Change::Added(object.clone()),
            Change::Updated { old, new } => Change::Updated { old: old.clone(), new: new.clone() },
            Change::Deleted(object) => Change::Deleted(object.clone()),
        }
    }
}

/// Counts the lists of a kind. Each list has a number, from 1 on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// The number of the list that was begun last.
    pub begun: u64,
    /// The number of the list that was completed last; 0 before the first.
    pub completed: u64,
}

/// The result of a change to the store.
#[derive(Debug)]
pub(crate) struct Applied<T> {
    pub(crate) changes: Vec<Change<T>>,
    /// The new position, if it moved.
    pub(crate) position: Option<u64>,
}

/// The objects of one kind, as far as the watch has delivered them. The informer writes, all others read.
///
/// All lists are in the order of keys. Next to a record an object costs about forty bytes: a pointer and
/// a mark among all objects, and a pointer in the index of its owner or of the orphans. The keys are
/// those of the records themselves.
pub struct Store<T: Record> {
    inner: RwLock<Inner<T>>,
}

struct Inner<T> {
    /// Each object with the number of the list (or of the watch after it) that has shown it.
    objects: BTreeMap<ByKey<T>, u64>,
    owned: BTreeMap<Owner, BTreeSet<ByKey<T>>>,
    /// The objects by UID, where they own others: a reference names its owner by UID.
    owners: BTreeMap<Uid, ByKey<T>>,
    orphans: BTreeSet<ByKey<T>>,
    /// The orphans again, by namespace and label: a selector finds its own among thousands of others.
    labeled: BTreeMap<Label, BTreeSet<ByKey<T>>>,
    position: u64,
    lists: Lists,
    /// Accept the list's objects even where they are older than ours.
    accept_older: bool,
    unreadable: Unreadable,
}

/// A namespace, and the hash of a label; `None` for the objects that have more than [`INDEXED_LABELS`]. What a look-up
/// finds is matched again, so that labels of one hash cost time only.
type Label = (Arc<str>, Option<u64>);

/// The most labels of an orphan in the index. A user can write 100,000 in one object, and each costs some 300 bytes here.
const INDEXED_LABELS: usize = 64;

/// A record as a set element, ordered by its key.
struct ByKey<T>(Arc<T>);

impl<T: Record> ByKey<T> {
    fn key(&self) -> &ObjectKey {
        &self.0.meta().key
    }
}

impl<T> Clone for ByKey<T> {
    fn clone(&self) -> Self {
        ByKey(self.0.clone())
    }
}

impl<T: Record> Borrow<ObjectKey> for ByKey<T> {
    fn borrow(&self) -> &ObjectKey {
        self.key()
    }
}

impl<T: Record> PartialEq for ByKey<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T: Record> Eq for ByKey<T> {}

impl<T: Record> PartialOrd for ByKey<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T: Record> Ord for ByKey<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(other.key())
    }
}

impl<T: Record> fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.inner.read();
        f.debug_struct("Store")
            .field("resource", &T::RESOURCE.plural)
            .field("objects", &inner.objects.len())
            .field("position", &inner.position)
            .finish_non_exhaustive()
    }
}

impl<T: Record> Default for Store<T> {
    fn default() -> Self {
        Store {
            inner: RwLock::new(Inner {
                objects: BTreeMap::new(),
                owned: BTreeMap::new(),
                owners: BTreeMap::new(),
                orphans: BTreeSet::new(),
                labeled: BTreeMap::new(),
                position: 0,
                lists: Lists::default(),
                accept_older: false,
                unreadable: Unreadable::default(),
            }),
        }
    }
}

impl<T: Record> Store<T> {
    /// The object of this name.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<T>> {
        self.inner.read().objects.get_key_value(key).map(|(object, _)| object.0.clone())
    }

    /// The objects that this owner controls.
    pub fn owned_by(&self, owner: &Owner) -> Vec<Arc<T>> {
        self.inner.read().owned.get(owner).into_iter().flatten().map(|object| object.0.clone()).collect()
    }

    /// The objects that this owner controls and that could never be decoded: they exist, and nothing else is known of them.
    pub fn unreadable_of(&self, owner: &Owner) -> Vec<ObjectKey> {
        self.inner.read().unreadable.of(owner)
    }

    /// How many objects this owner controls.
    pub fn count_owned_by(&self, owner: &Owner) -> usize {
        self.inner.read().owned.get(owner).map_or(0, BTreeSet::len)
    }

    /// The object of this kind that controls the one with this metadata. Found by the UID, so that a wrong
    /// name in the reference hides nothing from its owner.
    pub fn controller_of(&self, object: &Meta) -> Option<Arc<T>> {
        const { assert!(T::IS_OWNER, "only kinds that own others are found by UID") }
        let reference = object.controller.as_ref()?;
        let inner = self.inner.read();
        inner.owners.get(&reference.uid).map(|owner| &owner.0).filter(|owner| owner.controls(object)).cloned()
    }

    /// The objects of a namespace whose names begin with `prefix`, whoever controls them.
    pub fn named(&self, namespace: &Arc<str>, prefix: &str) -> Vec<Arc<T>> {
        let inner = self.inner.read();
        inner
            .objects
            .range((Bound::Included(ObjectKey::new(namespace.clone(), prefix)), Bound::Unbounded))
            .map(|(object, _)| &object.0)
            .take_while(|object| {
                let ObjectKey { namespace: of, name } = &object.meta().key;
                of == namespace && name.starts_with(prefix)
            })
            .cloned()
            .collect()
    }

    /// The objects of a namespace without a controller that the selector matches.
    ///
    /// Costs as much as there are orphans with the rarest of the labels that the selector requires; only
    /// a selector without `matchLabels` visits all orphans of the namespace.
    pub fn orphans_selected_by(&self, namespace: &Arc<str>, selector: &Selector) -> Vec<Arc<T>> {
        let selected = |object: &Arc<T>| selector.matches(&object.meta().labels);
        let inner = self.inner.read();
        let labeled = |label| inner.labeled.get(&(namespace.clone(), label));
        let required = selector.match_labels().take(INDEXED_LABELS);
        let sets = required.map(|(key, value)| labeled(Some(hash_of(key, value))));
        match sets.min_by_key(|objects| objects.map_or(0, BTreeSet::len)) {
            Some(rarest) => {
                let found = rarest.into_iter().chain(labeled(None)).flatten();
                found.map(|object| &object.0).filter(|o| selected(o)).cloned().collect()
            }
            None => {
                drop(inner);
                self.orphans(namespace).into_iter().filter(selected).collect()
            }
        }
    }

    /// The objects of a namespace without a controller.
    pub fn orphans(&self, namespace: &str) -> Vec<Arc<T>> {
        let inner = self.inner.read();
        inner
            .orphans
            .range((Bound::Included(first_of(namespace)), Bound::Unbounded))
            .map(|object| &object.0)
            .take_while(|object| *object.meta().key.namespace == *namespace)
            .cloned()
            .collect()
    }

    /// The objects of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<T>> {
        self.select(namespace, |_| true)
    }

    /// Those objects of a namespace that `keep` accepts. It is called under the store's lock: it must be quick and must not use
    /// the store.
    pub fn select(&self, namespace: &str, mut keep: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let inner = self.inner.read();
        inner
            .objects
            .range((Bound::Included(first_of(namespace)), Bound::Unbounded))
            .map(|(object, _)| &object.0)
            .take_while(|object| *object.meta().key.namespace == *namespace)
            .filter(|object| keep(object))
            .cloned()
            .collect()
    }

    /// All objects.
    pub fn all(&self) -> Vec<Arc<T>> {
        self.inner.read().objects.keys().map(|object| object.0.clone()).collect()
    }

    /// Those objects of all namespaces that `keep` accepts, see [`Store::select`].
    pub fn select_all(&self, mut keep: impl FnMut(&T) -> bool) -> Vec<Arc<T>> {
        let inner = self.inner.read();
        inner.objects.keys().map(|object| &object.0).filter(|object| keep(object)).cloned().collect()
    }

    /// Visits all objects under the store's lock: `visit` must be quick and must not use the store.
    pub fn for_each(&self, mut visit: impl FnMut(&Arc<T>)) {
        self.inner.read().objects.keys().for_each(|object| visit(&object.0));
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.inner.read().objects.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The resourceVersion up to which the store shows everything that happened to this kind: that of
    /// the last event, bookmark or complete list. It does not move while a list is under way, because a
    /// list delivers its objects in any order.
    pub fn position(&self) -> u64 {
        self.inner.read().position
    }

    /// Whether a complete list has been applied.
    pub fn is_synced(&self) -> bool {
        self.lists().completed > 0
    }

    /// How many lists have been begun and completed.
    pub fn lists(&self) -> Lists {
        self.inner.read().lists
    }

    /// Whether the object with this name and UID is absent, or being deleted.
    pub fn is_gone_or_deleting(&self, key: &ObjectKey, uid: &Uid) -> bool {
        match self.inner.read().objects.get_key_value(key) {
            Some((object, _)) if object.0.meta().uid == *uid => object.0.meta().is_deleting(),
            _ => true,
        }
    }

    /// Begins a list. Objects that it has not shown by [`Store::end_list`] are deleted. With `accept_older` its objects
    /// count even where they are older than ours: the server's history was set back.
    pub(crate) fn begin_list(&self, accept_older: bool) {
        let mut inner = self.inner.write();
        inner.lists.begun += 1;
        inner.accept_older = accept_older;
    }

    /// Applies an object that a list or a watch shows.
    pub(crate) fn put(&self, record: T) -> Applied<T> {
        let mut inner = self.inner.write();
        let version = record.meta().resource_version;
        inner.unreadable.remove(&record.meta().key);
        let changes = inner.put(Arc::new(record));
        Applied { changes, position: inner.advance(version) }
    }

    /// Applies an object that was read past the watch, while the first list is under way. The position stays.
    ///
    /// A list that shows neither it nor a later state of it tells by its version whether the object was deleted by
    /// then, or created afterwards, which the watch will deliver; see [`Store::end_list`].
    pub(crate) fn put_early(&self, record: T) -> Applied<T> {
        let mut inner = self.inner.write();
        let changes = if inner.lists.completed > 0 { Vec::new() } else { inner.put_early(Arc::new(record)) };
        Applied { changes, position: None }
    }

    /// Records an object that exists but could not be decoded: its last readable state stays. One that never could counts
    /// for its owner ([`Store::unreadable_of`]). An object that had its name before is gone.
    pub(crate) fn keep(&self, identity: Identity, owner: Option<Owner>) -> Applied<T> {
        let Identity { key, uid, version } = identity;
        let mut inner = self.inner.write();
        let epoch = inner.lists.begun;
        let stored = inner.objects.get_key_value(&key).map(|(object, _)| object.0.meta());
        let stored = stored.map(|stored| (stored.uid == uid, stored.resource_version < version));
        let mut changes = Vec::new();
        match stored {
            Some((false, true)) if uid != Uid::new("") => {
                changes.extend(inner.unlink(&key).map(Change::Deleted));
                inner.unreadable.add(&key, uid, owner, epoch);
            }
            Some(_) => {
                if let Some(mark) = inner.objects.get_mut(&key) {
                    *mark = epoch;
                }
            }
            None => inner.unreadable.add(&key, uid, owner, epoch),
        }
        Applied { changes, position: inner.advance(version) }
    }

    /// Removes the object with this name and UID. `last` is its last state, if it could be decoded.
    pub(crate) fn remove(&self, key: &ObjectKey, uid: &Uid, version: u64, last: Option<T>) -> Applied<T> {
        let mut inner = self.inner.write();
        // A UID is never used again, so a deletion is accepted whatever its version is.
        let is_stored =
            inner.objects.get_key_value(key).is_some_and(|(object, _)| object.0.meta().uid == *uid);
        let stored = if is_stored { inner.unlink(key) } else { None };
        inner.unreadable.deleted(key, uid);
        let changes = stored.map(|stored| Change::Deleted(last.map_or(stored, Arc::new)));
        Applied { changes: changes.into_iter().collect(), position: inner.advance(version) }
    }

    /// Applies a bookmark.
    pub(crate) fn bookmark(&self, version: u64) -> Applied<T> {
        Applied { changes: Vec::new(), position: self.inner.write().advance(version) }
    }

    /// Ends the list that was begun last: objects that it has not shown are deleted, and `version` is the
    /// position from now on, even if it is lower than before.
    pub(crate) fn end_list(&self, version: u64) -> Applied<T> {
        let mut inner = self.inner.write();
        let epoch = inner.lists.begun;
        let came_later = |object: &ByKey<T>, mark: u64| {
            mark == EARLY && object.0.meta().resource_version > version && !inner.accept_older
        };
        let missed: Vec<ObjectKey> = inner
            .objects
            .iter()
            .filter(|(object, mark)| **mark != epoch && !came_later(object, **mark))
            .map(|(object, _)| object.key().clone())
            .collect();
        let changes = missed.iter().filter_map(|key| inner.unlink(key)).map(Change::Deleted).collect();
        inner.unreadable.listed(epoch);
        inner.lists.completed = epoch;
        inner.accept_older = false;
        inner.position = version;
        Applied { changes, position: Some(version) }
    }
}

/// The list number of an object that no list has shown.
const EARLY: u64 = u64::MAX;

/// The labels of an object, in the form of the index of orphans.
fn labels<T: Record>(object: &Arc<T>) -> impl Iterator<Item = Label> {
    let Meta { key: ObjectKey { namespace, .. }, labels, .. } = object.meta();
    let has_many = labels.len() > INDEXED_LABELS;
    let indexed = labels.iter().take(if has_many { 0 } else { INDEXED_LABELS });
    let hashes = indexed.map(|(key, value)| Some(hash_of(key, value)));
    hashes.chain(has_many.then_some(None)).map(|hash| (namespace.clone(), hash))
}

fn hash_of(key: &str, value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, value).hash(&mut hasher);
    hasher.finish()
}

/// Sorts before all objects of the namespace.
fn first_of(namespace: &str) -> ObjectKey {
    ObjectKey::new(namespace, "")
}

impl<T: Record> Inner<T> {
    fn is_listing(&self) -> bool {
        self.lists.begun != self.lists.completed
    }

    fn advance(&mut self, version: u64) -> Option<u64> {
        if self.is_listing() || version <= self.position {
            return None;
        }
        self.position = version;
        Some(version)
    }

    fn put_early(&mut self, new: Arc<T>) -> Vec<Change<T>> {
        let Some((stored, &mark)) = self.objects.get_key_value(&new.meta().key) else {
            self.link(new.clone(), EARLY);
            return vec![Change::Added(new)];
        };
        let old = stored.0.clone();
        if new.meta().resource_version <= old.meta().resource_version {
            return Vec::new();
        }
        let same = old.meta().uid == new.meta().uid;
        self.unlink(&old.meta().key);
        self.link(new.clone(), if same { mark } else { EARLY });
        if same { vec![Change::Updated { old, new }] } else { vec![Change::Deleted(old), Change::Added(new)] }
    }

    fn put(&mut self, new: Arc<T>) -> Vec<Change<T>> {
        let epoch = self.lists.begun;
        let Some((stored, _)) = self.objects.get_key_value(&new.meta().key) else {
            self.link(new.clone(), epoch);
            return vec![Change::Added(new)];
        };
        let old = stored.0.clone();
        let same = old.meta().uid == new.meta().uid;
        let order = new.meta().resource_version.cmp(&old.meta().resource_version);
        let passed = match order {
            Ordering::Greater => false,
            Ordering::Equal => same,
            // An earlier state of this object, or an object that had the name before it.
            Ordering::Less => !self.accept_older,
        };
        if passed {
            if let Some(mark) = self.objects.get_mut(&new.meta().key) {
                *mark = epoch;
            }
            return Vec::new();
        }
        self.unlink(&old.meta().key);
        self.link(new.clone(), epoch);
        if same { vec![Change::Updated { old, new }] } else { vec![Change::Deleted(old), Change::Added(new)] }
    }

    fn link(&mut self, object: Arc<T>, mark: u64) {
        let entry = ByKey(object);
        if T::IS_OWNER {
            self.owners.insert(entry.0.meta().uid.clone(), entry.clone());
        }
        match entry.0.meta().owner() {
            Some(owner) => {
                self.owned.entry(owner).or_default().insert(entry.clone());
            }
            None => {
                for label in labels(&entry.0) {
                    self.labeled.entry(label).or_default().insert(entry.clone());
                }
                self.orphans.insert(entry.clone());
            }
        }
        self.objects.insert(entry, mark);
    }

    fn unlink(&mut self, key: &ObjectKey) -> Option<Arc<T>> {
        let (ByKey(object), _) = self.objects.remove_entry(key)?;
        let uid = &object.meta().uid;
        if T::IS_OWNER && self.owners.get(uid).is_some_and(|owner| owner.key() == key) {
            self.owners.remove(uid);
        }
        match object.meta().owner() {
            Some(owner) => {
                if let Some(siblings) = self.owned.get_mut(&owner) {
                    siblings.remove(key);
                    if siblings.is_empty() {
                        self.owned.remove(&owner);
                    }
                }
            }
            None => {
                for label in labels(&object) {
                    if let Some(objects) = self.labeled.get_mut(&label) {
                        objects.remove(key);
                        if objects.is_empty() {
                            self.labeled.remove(&label);
                        }
                    }
                }
                self.orphans.remove(key);
            }
        }
        Some(object)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::model::Interner;
    use crate::runtime::fixture::{Thing, json_of, key, owned, thing, uid};

    /// Changes as short words: `+a`, `~a`, `-a`, each with the version.
    fn words(applied: &Applied<Thing>) -> Vec<String> {
        let word = |change: &Change<Thing>| {
            let sign = match change {
                Change::Added(_) => '+',
                Change::Updated { .. } => '~',
                Change::Deleted(_) => '-',
            };
            let meta = change.object().meta();
            format!("{sign}{}{}@{}", meta.key.name, meta.uid, meta.resource_version)
        };
        applied.changes.iter().map(word).collect()
    }

    /// A store that has applied an empty list at version 10.
    fn synced() -> Store<Thing> {
        let store = Store::default();
        store.begin_list(false);
        store.end_list(10);
        store
    }

    #[test]
    fn an_object_put_early_stays_unless_the_list_shows_its_deletion() {
        let store = Store::<Thing>::default();
        store.begin_list(false);
        let _listed_first = store.put(thing("changed", "changed", 5));
        for (name, version) in [("gone", 20), ("later", 40), ("listed", 22), ("changed", 25), ("older", 21)] {
            assert_eq!(store.put_early(thing(name, name, version)).position, None);
        }
        assert!(store.put_early(thing("changed", "changed", 7)).changes.is_empty(), "an earlier state");
        // The list shows the state at 30.
        store.put(thing("listed", "listed", 22));
        assert!(store.put(thing("older", "older", 19)).changes.is_empty(), "not taken back");
        let applied = store.end_list(30);
        assert_eq!(applied.changes.len(), 1);
        assert_eq!(&*applied.changes[0].object().meta.key.name, "gone");
        let versions: Vec<_> = store
            .all()
            .iter()
            .map(|thing| (thing.meta.key.name.to_string(), thing.meta.resource_version))
            .collect();
        let expected = [("changed", 25), ("later", 40), ("listed", 22), ("older", 21)];
        assert_eq!(versions, expected.map(|(name, version)| (name.to_owned(), version)));
        // From here on only the watch counts.
        assert!(store.put_early(thing("late", "late", 50)).changes.is_empty());
        store.begin_list(false);
        store.put(thing("changed", "changed", 25));
        store.end_list(60);
        assert_eq!(store.len(), 1, "a list after that shows all there is");
    }

    #[test]
    fn another_object_of_the_name_that_was_put_early_replaces_the_earlier_one() {
        let store = Store::<Thing>::default();
        store.begin_list(false);
        store.put(thing("a", "1", 5));
        let applied = store.put_early(thing("a", "2", 8));
        assert!(matches!(&applied.changes[..], [Change::Deleted(_), Change::Added(_)]));
        store.end_list(6);
        assert_eq!(store.get(&key("a")).unwrap().meta.uid, uid("2"), "it came after the list");
    }

    #[test]
    fn an_event_that_is_not_newer_than_the_store_changes_nothing() {
        let store = synced();
        assert_eq!(words(&store.put(thing("a", "1", 20))), ["+a1@20"]);
        assert!(store.put(thing("a", "1", 20)).changes.is_empty());
        assert!(store.put(thing("a", "1", 15)).changes.is_empty());
        assert_eq!(words(&store.put(thing("a", "1", 21))), ["~a1@21"]);
        assert_eq!(store.position(), 21);
    }

    #[test]
    fn a_name_given_to_a_new_object_is_a_deletion_and_an_addition() {
        let store = synced();
        store.put(thing("a", "1", 20));
        assert_eq!(words(&store.put(thing("a", "2", 30))), ["-a1@20", "+a2@30"]);
        assert!(store.put(thing("a", "1", 25)).changes.is_empty(), "the earlier object does not come back");
        assert!(store.remove(&key("a"), &uid("1"), 26, None).changes.is_empty());
        assert_eq!(words(&store.remove(&key("a"), &uid("2"), 31, Some(thing("a", "2", 31)))), ["-a2@31"]);
        assert!(store.is_empty());
    }

    #[test]
    fn a_list_reports_the_deletions_that_were_missed() {
        let store = synced();
        for (name, version) in [("a", 11), ("b", 12), ("c", 13)] {
            store.put(thing(name, name, version));
        }
        store.begin_list(false);
        assert!(store.put(thing("a", "a", 11)).changes.is_empty());
        assert_eq!(words(&store.put(thing("b", "b2", 20))), ["-bb@12", "+bb2@20"]);
        assert_eq!(words(&store.end_list(25)), ["-cc@13"]);
        assert_eq!((store.len(), store.position()), (2, 25));
    }

    #[test]
    fn the_position_stands_still_until_the_list_is_complete() {
        let store: Store<Thing> = Store::default();
        store.begin_list(false);
        assert_eq!(store.put(thing("z", "z", 90)).position, None);
        assert_eq!((store.position(), store.is_synced()), (0, false));
        assert_eq!(store.end_list(80).position, Some(80));
        assert_eq!((store.position(), store.is_synced()), (80, true));
        store.begin_list(false);
        assert_eq!(store.put(thing("z", "z", 95)).position, None);
        assert_eq!(store.position(), 80);
        assert!(store.is_synced(), "an earlier list stays good while the next is under way");
    }

    #[test]
    fn an_aborted_list_deletes_nothing() {
        let store = synced();
        store.put(thing("a", "a", 11));
        store.begin_list(false);
        store.begin_list(false);
        store.put(thing("a", "a", 11));
        assert!(store.end_list(30).changes.is_empty());
        assert_eq!(store.lists(), Lists { begun: 3, completed: 3 });
    }

    #[test]
    fn after_a_restored_backup_the_list_is_accepted_even_where_it_is_older() {
        let store = synced();
        store.put(thing("a", "a", 50));
        store.begin_list(true);
        assert_eq!(words(&store.put(thing("a", "a", 5))), ["~aa@5"]);
        assert!(store.end_list(7).changes.is_empty());
        assert_eq!(store.position(), 7);
    }

    #[test]
    fn a_bookmark_moves_the_position_and_never_back() {
        let store = synced();
        assert_eq!(store.bookmark(40).position, Some(40));
        assert_eq!(store.bookmark(40).position, None);
        assert_eq!(store.bookmark(30).position, None);
        assert_eq!(store.position(), 40);
    }

    #[test]
    fn objects_are_found_by_owner_by_namespace_and_without_owner_in_the_order_of_names() {
        let store = synced();
        for thing in [owned("c", "1", 11, "o"), owned("a", "2", 12, "o"), owned("b", "3", 13, "p")] {
            store.put(thing);
        }
        store.put(thing("d", "4", 14));
        let names =
            |things: Vec<Arc<Thing>>| things.iter().map(|t| t.meta.key.name.to_string()).collect::<Vec<_>>();
        let owner = owned("x", "x", 1, "o").meta.owner().unwrap();
        assert_eq!(names(store.owned_by(&owner)), ["a", "c"]);
        assert_eq!(store.count_owned_by(&owner), 2);
        assert_eq!(names(store.orphans("shop")), ["d"]);
        assert_eq!(names(store.in_namespace("shop")), ["a", "b", "c", "d"]);
        for other in ["sho", "shop2", "", "z"] {
            assert!(store.in_namespace(other).is_empty() && store.orphans(other).is_empty());
        }
        store.put(owned("d", "4", 15, "o"));
        assert_eq!(names(store.owned_by(&owner)), ["a", "c", "d"], "adopted");
        assert!(store.orphans("shop").is_empty());
    }

    #[test]
    fn orphans_are_found_by_the_labels_that_a_selector_requires() {
        let store = synced();
        let labeled = |name: &str, version, labels: &[(&str, &str)]| {
            let mut thing = thing(name, name, version);
            thing.meta.labels = Arc::new(labels.iter().copied().collect());
            thing
        };
        store.put(labeled("a", 11, &[("app", "web"), ("tier", "1")]));
        store.put(labeled("b", 12, &[("app", "web")]));
        store.put(labeled("c", 13, &[("app", "api"), ("tier", "1")]));
        let selector = |json: &str| Selector::compile(serde_json::from_str(json).unwrap());
        let found = |json: &str| -> Vec<String> {
            let found = store.orphans_selected_by(&"shop".into(), &selector(json));
            found.iter().map(|thing| thing.meta.key.name.to_string()).collect()
        };
        assert_eq!(found(r#"{"matchLabels":{"app":"web"}}"#), ["a", "b"]);
        assert_eq!(found(r#"{"matchLabels":{"app":"web","tier":"1"}}"#), ["a"]);
        assert_eq!(found(r#"{"matchLabels":{"app":"db"}}"#), [""; 0]);
        assert_eq!(found(r#"{"matchExpressions":[{"key":"tier","operator":"Exists"}]}"#), ["a", "c"]);
        let exists =
            r#"{"matchLabels":{"app":"web"},"matchExpressions":[{"key":"tier","operator":"Exists"}]}"#;
        assert_eq!(found(exists), ["a"]);
        store.put(labeled("a", 21, &[("app", "api")]));
        store.remove(&key("b"), &uid("b"), 22, None);
        assert_eq!(found(r#"{"matchLabels":{"app":"web"}}"#), [""; 0]);
        assert_eq!(found(r#"{"matchLabels":{"app":"api"}}"#), ["a", "c"]);
    }

    #[test]
    fn an_orphan_with_more_labels_than_are_indexed_is_found_and_costs_one_entry() {
        let store = synced();
        let mut many = thing("a", "a", 11);
        many.meta.labels = Arc::new((0..1000).map(|n| (format!("k{n}"), "v")).collect());
        store.put(many);
        let selector = |json: &str| Selector::compile(serde_json::from_str(json).unwrap());
        let found = |json: &str| store.orphans_selected_by(&"shop".into(), &selector(json)).len();
        assert_eq!(found(r#"{"matchLabels":{"k999":"v"}}"#), 1);
        assert_eq!(found(r#"{"matchLabels":{"k999":"v","k1000":"v"}}"#), 0);
        assert_eq!(found("{}"), 1);
        assert_eq!(store.inner.read().labeled.len(), 1);
        store.remove(&key("a"), &uid("a"), 12, None);
        assert!(store.inner.read().labeled.is_empty());
        assert_eq!(found(r#"{"matchLabels":{"k999":"v"}}"#), 0);
    }

    #[test]
    fn objects_are_compared_by_uid_and_a_deleting_one_counts_as_deleted() {
        let store = synced();
        store.put(thing("a", "1", 11));
        assert!(!store.is_gone_or_deleting(&key("a"), &uid("1")));
        assert!(store.is_gone_or_deleting(&key("a"), &uid("2")));
        assert!(store.is_gone_or_deleting(&key("b"), &uid("1")));
        let mut deleting = thing("a", "1", 12);
        deleting.meta.deletion = Some(deleting.meta.created);
        store.put(deleting);
        assert!(store.is_gone_or_deleting(&key("a"), &uid("1")));
    }

    #[test]
    fn an_owner_has_what_names_it_by_kind_group_and_uid_in_its_own_namespace_and_nothing_else() {
        let store = synced();
        let owner = thing("o", "o", 11);
        store.put(owner.clone());
        let child = |namespace: &str, name: &str, api_version: &str, kind: &str, of: &str| {
            let mut json = json_of(name, name, 12);
            json["metadata"]["namespace"] = namespace.into();
            json["metadata"]["ownerReferences"] = serde_json::json!([{"apiVersion": api_version, "kind": kind,
                "name": of, "uid": "o", "controller": true}]);
            Thing::decode(&json.to_string(), &mut Interner::default()).unwrap()
        };
        let children = [
            (child("shop", "a", "test.io/v1", "Thing", "o"), true),
            (child("shop", "b", "test.io/v2", "Thing", "o"), true),
            (child("shop", "c", "test.io/v1", "Thing", "misnamed"), true),
            (child("shop", "d", "test.io/v1", "Other", "o"), false),
            (child("shop", "e", "other.io/v1", "Thing", "o"), false),
            (child("shop", "f", "v1", "Thing", "o"), false),
            (child("other", "g", "test.io/v1", "Thing", "o"), false),
        ];
        for (child, is_its) in children {
            let found = store.controller_of(&child.meta).map(|owner| owner.meta.key.to_string());
            assert_eq!(found, is_its.then(|| "shop/o".to_owned()), "{}", child.meta.key);
            store.put(child);
        }
        let names: Vec<String> =
            store.owned_by(&owner.as_owner()).iter().map(|child| child.meta.key.to_string()).collect();
        assert_eq!(names, ["shop/a", "shop/b", "shop/c"]);
        assert_eq!(store.count_owned_by(&owner.as_owner()), 3);
        store.remove(&owner.meta.key, &uid("o"), 20, None);
        let orphaned = child("shop", "a", "test.io/v1", "Thing", "o");
        assert!(store.controller_of(&orphaned.meta).is_none(), "who is gone owns nothing");
    }

    proptest! {
        /// After any changes, the indexes equal those that are rebuilt from the objects.
        #[test]
        fn the_indexes_always_equal_rebuilt_ones(
            steps in prop::collection::vec((0..6u8, 0..3u8, 0..4u8, 0..60u64, 0..4u8), 0..150),
        ) {
            let store = synced();
            for (name, id, owner, version, action) in steps {
                let (name, id) = (format!("n{name}"), format!("u{name}-{id}"));
                let thing = match owner {
                    0 => thing(&name, &id, version),
                    owner => owned(&name, &id, version, &format!("o{owner}")),
                };
                match action {
                    0 => { store.remove(&key(&name), &uid(&id), version, Some(thing)); }
                    1 => {
                        store.begin_list(version % 2 == 0);
                        store.put(thing);
                        store.end_list(version);
                    }
                    _ => { store.put(thing); }
                }
                let inner = store.inner.read();
                let mut by_owner: BTreeMap<Owner, Vec<ObjectKey>> = BTreeMap::new();
                let mut orphans = Vec::new();
                for object in inner.objects.keys() {
                    match object.0.meta.owner() {
                        Some(owner) => by_owner.entry(owner).or_default().push(object.key().clone()),
                        None => orphans.push(object.key().clone()),
                    }
                }
                let known: BTreeMap<Owner, Vec<ObjectKey>> = inner.owned.iter()
                    .map(|(owner, set)| (owner.clone(), set.iter().map(|o| o.key().clone()).collect()))
                    .collect();
                prop_assert_eq!(known, by_owner);
                let by_uid: BTreeMap<Uid, ObjectKey> =
                    inner.objects.keys().map(|o| (o.0.meta.uid.clone(), o.key().clone())).collect();
                prop_assert!(inner.owners.iter().all(|(id, o)| by_uid.contains_key(id) && o.0.meta.uid == *id));
                prop_assert!(by_uid.keys().all(|id| inner.owners.contains_key(id)));
                let labeled: Vec<Label> = inner.labeled.keys().cloned().collect();
                let mut expected: Vec<Label> = inner.orphans.iter().flat_map(|o| labels(&o.0)).collect();
                expected.sort();
                expected.dedup();
                prop_assert_eq!(labeled, expected);
                prop_assert_eq!(inner.orphans.iter().map(|o| o.key().clone()).collect::<Vec<_>>(), orphans);
                // Each index holds the very record that the map holds, not an earlier state of it.
                for set in inner.owned.values() {
                    for object in set {
                        let stored = inner.objects.get_key_value(object.key()).map(|(o, _)| &o.0);
                        prop_assert!(stored.is_some_and(|stored| Arc::ptr_eq(stored, &object.0)));
                    }
                }
            }
        }
    }
}
