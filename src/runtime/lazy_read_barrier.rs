//! The read barrier of a process that starts to act where another has acted before, or before its caches are complete.
//!
//! A cache that lags is harmless to a process that acts alone, because each of its own writes is awaited. A new leader
//! has no such memory: with an old `spec.replicas` it would undo the work of the leader before it, pods included. So
//! until the watch of a kind is known to have passed the version that was current at the election, an owner and its
//! children are read past the caches before the first write for it. An owner without writes costs nothing,
//! so that the price of a takeover grows with the work and not with the size of the caches.
//!
//! No decision is made on the reads alone. They are compared with the caches, and what the caches do not show yet is
//! awaited as our own writes are ([`super::expectations`]): a decision always depends on one view.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::expectations::{CacheView, Shown};
use super::store::Lists;
use crate::model::{ObjectKey, Resource, Uid};

/// How many objects that the cache shows and a list does not are read one by one.
const LOOKED_UP: usize = 16;

/// How far the caches of some kinds can be relied on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheState {
    /// They show everything up to the start of this process' leadership.
    Current,
    /// They are complete, and may be older than that.
    Unconfirmed,
    /// One of them is not complete: a part of an owner's children looks like all of them.
    Incomplete,
}

/// How far each cache must be, and which owners were read past the caches.
#[derive(Debug, Default)]
pub struct LazyReadBarrier {
    state: Mutex<State>,
    /// The kinds whose caches a key waits for.
    requested: watch::Sender<BTreeSet<Resource>>,
}

#[derive(Debug, Default)]
struct State {
    /// The version at the election, of each kind whose watch is not known to have passed it.
    ahead: BTreeMap<Resource, u64>,
    /// The kinds that were incomplete at the last check.
    incomplete: BTreeSet<Resource>,
    /// The number of the list that a cache needs which shows a history that the API server has lost.
    lost: BTreeMap<Resource, u64>,
    read: BTreeSet<Uid>,
}

impl LazyReadBarrier {
    /// This version of a kind was current when the process was elected.
    pub fn elected(&self, resource: Resource, version: u64) {
        self.state.lock().ahead.insert(resource, version);
    }

    /// How far the caches of these kinds can be relied on. A kind without a cache does not count.
    pub fn cache_state(&self, kinds: &[Resource], view: &impl CacheView) -> CacheState {
        let mut state = self.state.lock();
        let cache_state =
            kinds.iter().map(|&kind| state.state_of(kind, view)).max().unwrap_or(CacheState::Current);
        if state.ahead.is_empty() && state.incomplete.is_empty() {
            state.read.clear();
        }
        cache_state
    }

    /// The cache of a kind shows a history that the API server has lost, until the list of this number is complete.
    pub fn history_lost(&self, resource: Resource, list: u64) {
        let mut state = self.state.lock();
        state.lost.insert(resource, list);
        // That version was current in the lost history. The list shows a later state.
        state.ahead.remove(&resource);
    }

    /// Whether one of these kinds' caches shows a lost history: nothing may be decided on it.
    pub fn is_history_lost(&self, kinds: &[Resource], view: &impl CacheView) -> bool {
        let mut state = self.state.lock();
        state
            .lost
            .retain(|&kind, list| view.position(kind) != u64::MAX && view.lists(kind).completed < *list);
        kinds.iter().any(|kind| state.lost.contains_key(kind))
    }

    /// The position from which on the cache of a kind can be relied on.
    pub fn awaited(&self, resource: Resource) -> u64 {
        self.state.lock().ahead.get(&resource).copied().unwrap_or(0).max(1)
    }

    /// A key waits for the caches of these kinds.
    pub fn request(&self, kinds: &[Resource]) {
        self.requested.send_if_modified(|requested| {
            let before = requested.len();
            requested.extend(kinds);
            requested.len() > before
        });
    }

    /// Waits until a key waits for the cache of a kind.
    pub async fn requested(&self, resource: Resource) {
        let is_requested = |requested: &BTreeSet<Resource>| requested.contains(&resource);
        // The sender lives as long as this.
        let _ = self.requested.subscribe().wait_for(is_requested).await;
    }

    /// An owner and its children were read past the caches.
    pub fn was_read(&self, owner: &Uid) {
        self.state.lock().read.insert(owner.clone());
    }

    /// Whether they were, since the election.
    pub fn is_read(&self, owner: &Uid) -> bool {
        self.state.lock().read.contains(owner)
    }

    /// The owner was deleted.
    pub fn forget(&self, owner: &Uid) {
        self.state.lock().read.remove(owner);
    }
}

impl State {
    fn state_of(&mut self, kind: Resource, view: &impl CacheView) -> CacheState {
        let position = view.position(kind);
        if position == u64::MAX {
            return CacheState::Current;
        }
        let Lists { completed, .. } = view.lists(kind);
        if completed == 0 {
            self.incomplete.insert(kind);
            return CacheState::Incomplete;
        }
        self.incomplete.remove(&kind);
        match self.ahead.get(&kind) {
            Some(version) if position < *version => CacheState::Unconfirmed,
            Some(_) => {
                self.ahead.remove(&kind);
                CacheState::Current
            }
            None => CacheState::Current,
        }
    }
}

/// The objects of a list past the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The version that the list shows.
    pub version: u64,
    /// The objects.
    pub objects: Vec<Shown>,
}

/// The differences between a list and the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// The position that the cache must reach to show the list; `None` where it shows all of it.
    pub reach: Option<u64>,
    /// Objects that the cache shows and the list does not: to be read, since they may be deleted, or have other
    /// labels.
    pub unlisted: Vec<(ObjectKey, Uid)>,
}

/// Compares a list with the state of the same objects in the cache, `cached`.
pub fn difference(
    resource: Resource,
    listed: &Listed,
    cached: Vec<Shown>,
    view: &impl CacheView,
) -> Difference {
    let position = view.position(resource);
    let is_shown = |object: &&Shown| {
        position >= object.version
            || view.version_of(resource, &object.key).is_some_and(|version| version >= object.version)
    };
    let unshown = listed.objects.iter().filter(|object| !is_shown(object));
    let mut reach = unshown.map(|object| object.version).max();
    let there: BTreeSet<&Uid> = listed.objects.iter().map(|object| &object.uid).collect();
    // Objects that were created after the list do not count.
    let is_unlisted = |object: &Shown| object.version <= listed.version && !there.contains(&object.uid);
    let mut unlisted: Vec<_> =
        cached.into_iter().filter(is_unlisted).map(|object| (object.key, object.uid)).collect();
    if unlisted.len() > LOOKED_UP {
        unlisted.clear();
        reach = Some(listed.version);
    }
    Difference { reach, unlisted }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt as _;

    use super::*;
    use crate::runtime::expectations::Caches;
    use crate::runtime::fixture::{THINGS, Thing, key, thing, uid};
    use crate::runtime::store::Store;

    fn store(things: &[(&str, u64)], position: u64) -> Arc<Store<Thing>> {
        let store = Arc::new(Store::default());
        store.begin_list(false);
        for (name, version) in things {
            store.put(thing(name, name, *version));
        }
        store.end_list(position);
        store
    }

    fn shown(name: &str, version: u64) -> Shown {
        Shown { key: key(name), uid: uid(name), version }
    }

    fn compared(store: &Store<Thing>, listed: &[(&str, u64)], version: u64) -> Difference {
        let objects = listed.iter().map(|(name, version)| shown(name, *version)).collect();
        let cached =
            store.all().into_iter().map(|thing| shown(&thing.meta.key.name, thing.meta.resource_version));
        difference(THINGS, &Listed { version, objects }, cached.collect(), store)
    }

    #[test]
    fn a_cache_is_reliable_once_its_watch_has_passed_the_version_of_the_election() {
        let (barrier, store) = (LazyReadBarrier::default(), store(&[], 10));
        let view = Caches::default().with(store.clone());
        barrier.elected(THINGS, 20);
        assert_eq!(barrier.cache_state(&[THINGS], &view), CacheState::Unconfirmed);
        barrier.was_read(&uid("o"));
        assert!(barrier.is_read(&uid("o")) && !barrier.is_read(&uid("another")));
        store.bookmark(20);
        assert_eq!(barrier.cache_state(&[THINGS], &view), CacheState::Current);
        assert!(!barrier.is_read(&uid("o")), "no key waits any more");
        // A list that is under way later does not bring the barrier back.
        store.begin_list(true);
        assert_eq!(barrier.cache_state(&[THINGS], &view), CacheState::Current);
    }

    #[test]
    fn an_incomplete_list_is_worse_than_an_old_one_and_a_kind_without_a_cache_is_not_awaited() {
        let (barrier, store) = (LazyReadBarrier::default(), Arc::new(Store::<Thing>::default()));
        let view = Caches::default().with(store.clone());
        store.begin_list(false);
        store.put(thing("a", "a", 5));
        assert_eq!(barrier.cache_state(&[THINGS], &view), CacheState::Incomplete);
        barrier.elected(THINGS, 20);
        store.end_list(10);
        assert_eq!(barrier.cache_state(&[THINGS], &view), CacheState::Unconfirmed);
        let none = Resource { plural: "others", ..THINGS };
        assert_eq!(barrier.cache_state(&[none], &view), CacheState::Current);
        assert_eq!(barrier.cache_state(&[none, THINGS], &view), CacheState::Unconfirmed);
    }

    #[test]
    fn a_read_counts_until_all_caches_are_reliable_and_not_only_some() {
        let (barrier, store) = (LazyReadBarrier::default(), Arc::new(Store::<Thing>::default()));
        let view = Caches::default().with(store.clone());
        let none = Resource { plural: "others", ..THINGS };
        store.begin_list(false);
        assert_eq!(barrier.cache_state(&[THINGS], &view), CacheState::Incomplete);
        barrier.was_read(&uid("o"));
        assert_eq!(barrier.cache_state(&[none], &view), CacheState::Current);
        assert_eq!(barrier.cache_state(&[], &view), CacheState::Current);
        assert!(barrier.is_read(&uid("o")));
        store.end_list(10);
        assert_eq!(barrier.cache_state(&[THINGS], &view), CacheState::Current);
        assert!(!barrier.is_read(&uid("o")));
    }

    #[test]
    fn a_cache_without_waiting_keys_is_not_requested() {
        let barrier = LazyReadBarrier::default();
        let mut requested = Box::pin(barrier.requested(THINGS));
        assert!(requested.as_mut().now_or_never().is_none());
        barrier.request(&[Resource { plural: "others", ..THINGS }]);
        assert!(requested.as_mut().now_or_never().is_none());
        barrier.request(&[THINGS]);
        assert!(requested.as_mut().now_or_never().is_some());
        assert!(barrier.requested(THINGS).now_or_never().is_some(), "whoever comes later is told, too");
    }

    #[test]
    fn a_cache_of_a_lost_history_is_not_relied_on_until_it_is_listed_anew() {
        let (barrier, store) = (LazyReadBarrier::default(), store(&[("a", 5)], 10));
        let view = Caches::default().with(store.clone());
        let others = Resource { plural: "others", ..THINGS };
        barrier.elected(THINGS, 20);
        barrier.history_lost(THINGS, 2);
        barrier.history_lost(others, 2);
        assert!(barrier.is_history_lost(&[THINGS], &view) && !barrier.is_history_lost(&[others], &view));
        store.begin_list(true);
        assert!(barrier.is_history_lost(&[others, THINGS], &view));
        store.end_list(3);
        assert!(!barrier.is_history_lost(&[THINGS], &view));
        assert_eq!(barrier.cache_state(&[THINGS], &view), CacheState::Current, "20 was in the lost history");
    }

    #[test]
    fn a_deleted_owner_is_forgotten() {
        let barrier = LazyReadBarrier::default();
        barrier.was_read(&uid("o"));
        barrier.forget(&uid("o"));
        assert!(!barrier.is_read(&uid("o")));
    }

    #[test]
    fn a_cache_with_the_listed_objects_shows_no_difference() {
        let store = store(&[("a", 5), ("b", 7)], 8);
        assert_eq!(compared(&store, &[("a", 5), ("b", 7)], 30), Difference::default());
        // One was deleted after the list, and the cache has seen the deletion.
        assert_eq!(compared(&store, &[("a", 5), ("b", 7), ("gone", 6)], 30), Difference::default());
    }

    #[test]
    fn objects_that_the_cache_does_not_show_must_be_reached() {
        let store = store(&[("a", 5), ("b", 7)], 8);
        let difference = compared(&store, &[("a", 20), ("b", 7), ("c", 12)], 30);
        assert_eq!(difference, Difference { reach: Some(20), unlisted: Vec::new() });
    }

    #[test]
    fn objects_that_the_list_does_not_show_are_read_unless_created_afterwards() {
        let store = store(&[("a", 5), ("b", 7), ("new", 35)], 35);
        let difference = compared(&store, &[("a", 5)], 30);
        assert_eq!(difference, Difference { reach: None, unlisted: vec![(key("b"), uid("b"))] });
    }

    #[test]
    fn where_too_many_objects_would_have_to_be_read_the_cache_must_reach_the_list() {
        let names: Vec<String> = (0..=LOOKED_UP).map(|n| format!("thing-{n:02}")).collect();
        let things: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 5)).collect();
        let difference = compared(&store(&things, 8), &[], 30);
        assert_eq!(difference, Difference { reach: Some(30), unlisted: Vec::new() });
    }

    #[test]
    fn a_cache_that_is_not_complete_shows_what_was_put_into_it_early() {
        let store = Store::<Thing>::default();
        store.begin_list(false);
        store.put_early(thing("a", "a", 25));
        assert_eq!(compared(&store, &[("a", 25)], 30), Difference::default());
        assert_eq!(compared(&store, &[("a", 25), ("b", 26)], 30).reach, Some(26));
    }
}
