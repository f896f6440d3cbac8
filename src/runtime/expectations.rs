//! Read your own writes: no decision for an owner on a cache older than our last write to its objects.
//!
//! After each write the caller records what the cache must show before that owner is planned again: a
//! position of the written kind's stream, or that an object was deleted. Everything is keyed by the owner's
//! UID. Keyed by name, a re-created owner would inherit the waits of its predecessor
//! (kubernetes#69376); counted instead of named, a wait that fails can only expire, and then the next
//! decision is made on the stale cache after all, and creates pods twice (kubernetes#129795).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use super::store::{Lists, Store};
use crate::metrics::Metrics;
use crate::model::{Meta, ObjectKey, Owner, Record, Resource, Selector, Uid};

/// How long a wait may take before a fresh list is requested; as long as client-go's expectations.
pub const SAFETY_NET: Duration = Duration::from_secs(300);

/// How often to check whether the requested list is complete.
const OVERDUE_CHECK: Duration = Duration::from_secs(1);

/// How long a cache that was found to be behind the API server may take to catch up before a fresh list is requested. A
/// healthy watch delivers changes within a fraction of a second. One of a loaded API server may be seconds behind, and a list
/// of 150,000 pods takes it longer than that to send; nobody is served from the cache meanwhile. What has lost an event, which
/// no API server should, keeps its owners waiting for so long.
const EARLY_RELIST: Duration = Duration::from_secs(10);

/// The interface of [`Expectations`] to the caches.
pub trait CacheView {
    /// The position that the cache of this kind has reached; see [`Store::position`].
    fn position(&self, resource: Resource) -> u64;

    /// Whether this object is absent from the cache, or being deleted there.
    fn is_gone_or_deleting(&self, resource: Resource, key: &ObjectKey, uid: &Uid) -> bool;

    /// Whether this object is in the cache, being deleted or not.
    fn holds(&self, resource: Resource, key: &ObjectKey, uid: &Uid) -> bool;

    /// How many lists the cache of this kind has begun and completed.
    fn lists(&self, resource: Resource) -> Lists;

    /// The version of this object in the cache, if it is there.
    fn version_of(&self, resource: Resource, key: &ObjectKey) -> Option<u64>;

    /// The objects in the cache that this owner controls and the selector matches.
    fn owned_by(&self, resource: Resource, owner: &Owner, selector: &Selector) -> Vec<Shown>;
}

/// An object as a cache or a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: Uid,
    /// Its version.
    pub version: u64,
}

/// One kind's store, whatever the type of its records is.
pub type Cache = Arc<dyn CacheView + Send + Sync>;

/// The caches of several kinds as one view. A kind without a cache is never awaited. Clones share them.
#[derive(Clone, Default)]
pub struct Caches {
    stores: Arc<RwLock<BTreeMap<Resource, Cache>>>,
}

impl Caches {
    /// Adds a kind's store.
    #[must_use]
    pub fn with<T: Record>(self, store: Arc<Store<T>>) -> Self {
        self.add(T::RESOURCE, store);
        self
    }

    /// Adds the cache of a kind.
    pub fn add(&self, resource: Resource, cache: Cache) {
        self.stores.write().insert(resource, cache);
    }

    /// The kinds that have one.
    pub fn resources(&self) -> Vec<Resource> {
        self.stores.read().keys().copied().collect()
    }

    /// Removes the cache of a kind: no wait depends on it any more.
    pub fn remove(&self, resource: Resource) {
        self.stores.write().remove(&resource);
    }

    fn of(&self, resource: Resource) -> Option<Cache> {
        self.stores.read().get(&resource).cloned()
    }
}

impl fmt::Debug for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.stores.read().keys()).finish()
    }
}

impl CacheView for Caches {
    fn position(&self, resource: Resource) -> u64 {
        self.of(resource).map_or(u64::MAX, |store| store.position(resource))
    }

    fn is_gone_or_deleting(&self, resource: Resource, key: &ObjectKey, uid: &Uid) -> bool {
        self.of(resource).is_none_or(|store| store.is_gone_or_deleting(resource, key, uid))
    }

    fn holds(&self, resource: Resource, key: &ObjectKey, uid: &Uid) -> bool {
        self.of(resource).is_some_and(|store| store.holds(resource, key, uid))
    }

    fn lists(&self, resource: Resource) -> Lists {
        self.of(resource).map_or_else(Lists::default, |store| store.lists(resource))
    }

    fn version_of(&self, resource: Resource, key: &ObjectKey) -> Option<u64> {
        self.of(resource)?.version_of(resource, key)
    }

    fn owned_by(&self, resource: Resource, owner: &Owner, selector: &Selector) -> Vec<Shown> {
        self.of(resource).map_or_else(Vec::new, |store| store.owned_by(resource, owner, selector))
    }
}

impl<T: Record> CacheView for Store<T> {
    fn position(&self, _: Resource) -> u64 {
        Store::position(self)
    }

    fn is_gone_or_deleting(&self, _: Resource, key: &ObjectKey, uid: &Uid) -> bool {
        Store::is_gone_or_deleting(self, key, uid)
    }

    fn holds(&self, _: Resource, key: &ObjectKey, uid: &Uid) -> bool {
        self.get(key).is_some_and(|object| object.meta().uid == *uid)
    }

    fn lists(&self, _: Resource) -> Lists {
        Store::lists(self)
    }

    fn version_of(&self, _: Resource, key: &ObjectKey) -> Option<u64> {
        self.get(key).map(|object| object.meta().resource_version)
    }

    fn owned_by(&self, _: Resource, owner: &Owner, selector: &Selector) -> Vec<Shown> {
        let shown = |object: &Arc<T>| {
            let Meta { key, uid, resource_version, .. } = object.meta();
            Shown { key: key.clone(), uid: uid.clone(), version: *resource_version }
        };
        let owned = Store::owned_by(self, owner);
        owned.iter().filter(|object| selector.matches(&object.meta().labels)).map(shown).collect()
    }
}

/// Whether an owner may be planned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an owner must not be planned on a cache that is behind"]
pub enum Freshness {
    /// The caches show all our writes to this owner's objects.
    Fresh,
    /// They do not.
    Behind(Behind),
}

/// The changes that the caches do not show yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The missing changes, in the order of the kinds.
    pub awaited: Vec<Awaited>,
    /// When to check again at the latest, whatever the watch brings.
    pub check_again: Duration,
}

/// One thing that a cache does not show yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// The kind whose cache is behind.
    pub resource: Resource,
    /// The position that the cache has to reach. `None` where the deletion's version is not known: then
    /// the object's own event ends the wait; or where a list is awaited.
    pub position: Option<u64>,
    /// The object that has to be removed; `None` where only the position counts.
    pub object: Option<ObjectKey>,
}

/// The changes that the caches must show, by owner. Clones share them.
#[derive(Clone)]
pub struct Expectations {
    shared: Arc<Shared>,
}

struct Shared {
    owners: Mutex<BTreeMap<Uid, Pending>>,
    relists: Mutex<BTreeMap<Resource, Relists>>,
    metrics: Arc<Metrics>,
}

type RequestRelist = Arc<dyn Fn() + Send + Sync>;

/// How lists of a kind are requested.
struct Relists {
    request: RequestRelist,
    /// The number of the list that had begun last when one was last requested. The next shows everything that was written
    /// before it began, which a list that nobody requested need not do.
    requested_after: Option<u64>,
}

#[derive(Default)]
struct Pending {
    positions: BTreeMap<Resource, u64>,
    deletions: BTreeMap<(Resource, Uid), Deletion>,
    /// The numbers of lists that take the place of what was awaited in a lost history.
    lists: BTreeMap<Resource, u64>,
    /// When a check first found the caches behind.
    behind_since: Option<Instant>,
    /// By kind, the number of the list that had begun last by then: each later one shows the writes.
    begun_by_then: BTreeMap<Resource, u64>,
    /// By kind, the number of the list that settles everything, once the limit has been reached.
    settled_by: BTreeMap<Resource, u64>,
    /// The awaited state was read past the cache, and exists by then.
    is_overdue_soon: bool,
}

struct Deletion {
    key: ObjectKey,
    position: Option<u64>,
    /// The object is gone: that it is being deleted does not show it.
    is_gone: bool,
}

impl fmt::Debug for Expectations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expectations").field("owners", &self.len()).finish_non_exhaustive()
    }
}

impl Expectations {
    /// Nothing expected.
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Expectations {
            shared: Arc::new(Shared { owners: Mutex::default(), relists: Mutex::default(), metrics }),
        }
    }

    /// Registers `request_relist`, called when the wait for this kind's cache is overdue; pass the informer's
    /// [`super::informer::Relist::request_relist`].
    pub fn relist_with(&self, resource: Resource, request_relist: impl Fn() + Send + Sync + 'static) {
        let relists = Relists { request: Arc::new(request_relist), requested_after: None };
        self.shared.relists.lock().insert(resource, relists);
    }

    /// Requests no list of this kind any more: its informer has ended.
    pub fn no_relist_of(&self, resource: Resource) {
        self.shared.relists.lock().remove(&resource);
    }

    /// Records a write to an object of `owner`, or to the owner itself: the cache of its kind must reach
    /// the resourceVersion that the server returned.
    pub fn expect_write(&self, owner: &Uid, resource: Resource, resource_version: u64) {
        let mut owners = self.shared.owners.lock();
        let pending = owners.entry(owner.clone()).or_default();
        let position = pending.positions.entry(resource).or_default();
        *position = (*position).max(resource_version);
        pending.start_over();
    }

    /// Records a deletion: the cache must show the object deleted or being deleted, or reach the version
    /// that the server returned, if it returned one. "Not found" counts as a deletion; a deletion of
    /// unknown outcome does not, because the object may stay: read it first.
    pub fn expect_deletion(
        &self,
        owner: &Uid,
        resource: Resource,
        object: &ObjectKey,
        uid: &Uid,
        resource_version: Option<u64>,
    ) {
        let deletion = Deletion { key: object.clone(), position: resource_version, is_gone: false };
        self.expect(owner, resource, uid, deletion);
    }

    /// Records that an object was found to be gone: the cache must no longer show it, not even as one that is being deleted.
    /// A Job would count a pod again whose finalizer has let it go. A list of this version did not show it: the key is
    /// looked at when the cache has come so far, as its deletion may wake nobody.
    pub fn expect_absence(
        &self,
        owner: &Uid,
        resource: Resource,
        object: &ObjectKey,
        uid: &Uid,
        version: u64,
    ) {
        let deletion = Deletion { key: object.clone(), position: Some(version), is_gone: true };
        self.expect(owner, resource, uid, deletion);
    }

    fn expect(&self, owner: &Uid, resource: Resource, uid: &Uid, deletion: Deletion) {
        let mut owners = self.shared.owners.lock();
        let pending = owners.entry(owner.clone()).or_default();
        pending.deletions.insert((resource, uid.clone()), deletion);
        pending.start_over();
    }

    /// Everything expected for `owner` has happened, and a healthy watch shows it at once: a cache that
    /// does not is relisted after ten seconds. A list that is under way is not interrupted for that.
    pub fn expect_at_once(&self, owner: &Uid) {
        if let Some(pending) = self.shared.owners.lock().get_mut(owner) {
            pending.is_overdue_soon = true;
        }
    }

    /// The API server has lost the history in which this kind was written, as after a restore of etcd: no cache will ever
    /// show the writes until now. The list of this number is awaited in their place.
    pub fn history_lost(&self, resource: Resource, list: u64) {
        for pending in self.shared.owners.lock().values_mut() {
            let deletions = pending.deletions.len();
            pending.deletions.retain(|(kind, _), _| *kind != resource);
            if pending.positions.remove(&resource).is_some() || pending.deletions.len() < deletions {
                pending.lists.insert(resource, list);
            }
        }
    }

    /// Whether `owner` may be planned on these caches; drops the expectations that they meet.
    ///
    /// A wait of more than [`SAFETY_NET`] is counted and logged, and a fresh list is requested. The wait
    /// ends when a list that was begun afterwards is complete, because such a
    /// list shows everything that was written before it began, and settles even a write that the server
    /// has lost with its history. A list that another owner has requested since the wait began does as well, and one that is
    /// under way is not interrupted: owners that become overdue one after the other would else end each other's list.
    pub fn check(&self, owner: &Uid, view: &impl CacheView, now: Instant) -> Freshness {
        let mut owners = self.shared.owners.lock();
        let Some(pending) = owners.get_mut(owner) else { return Freshness::Fresh };
        pending.drop_satisfied(view);
        let awaited = pending.awaited();
        if awaited.is_empty() {
            owners.remove(owner);
            return Freshness::Fresh;
        }
        if pending.behind_since.is_none() {
            let begun = |awaited: &Awaited| (awaited.resource, view.lists(awaited.resource).begun);
            pending.begun_by_then = awaited.iter().map(begun).collect();
        }
        let waited = now.saturating_duration_since(*pending.behind_since.get_or_insert(now));
        let limit = if pending.is_overdue_soon { EARLY_RELIST } else { SAFETY_NET };
        if waited < limit {
            // Nothing wakes a key when a list is complete.
            let check_again = if pending.lists.is_empty() { limit - waited } else { OVERDUE_CHECK };
            return Freshness::Behind(Behind { awaited, check_again });
        }
        let mut overdue = BTreeSet::new();
        for &Awaited { resource, .. } in &awaited {
            if pending.settled_by.contains_key(&resource) {
                continue;
            }
            let begun_by_then = pending.begun_by_then.get(&resource).copied().unwrap_or(u64::MAX);
            if let Some(list) = self.list_after(begun_by_then, resource, view.lists(resource)) {
                pending.settled_by.insert(resource, list);
                overdue.insert(resource);
            }
        }
        let is_overdue_soon = pending.is_overdue_soon;
        drop(owners);
        for resource in overdue.into_iter().filter(|_| !is_overdue_soon) {
            self.report_overdue(owner, resource, view, &awaited);
        }
        Freshness::Behind(Behind { awaited, check_again: OVERDUE_CHECK })
    }

    /// Forgets what was expected for `owner`, which was deleted.
    pub fn forget(&self, owner: &Uid) {
        self.shared.owners.lock().remove(owner);
    }

    /// For how many owners something is expected.
    pub fn len(&self) -> usize {
        self.shared.owners.lock().len()
    }

    /// Whether nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn report_overdue(&self, owner: &Uid, resource: Resource, view: &impl CacheView, awaited: &[Awaited]) {
        let Resource { group, plural, .. } = resource;
        self.shared.metrics.expectations_expired.with_label_values(&[group, plural]).inc();
        let awaited = awaited.iter().filter(|a| a.resource == resource).find_map(|a| a.position);
        let position = view.position(resource);
        tracing::error!(%owner, resource = plural, position, ?awaited, "cache does not show an own write; listing again");
    }

    /// The number of a list that shows everything up to the begin of that with the number `after`: one that was requested
    /// since, or a new one. `None` while another is under way.
    fn list_after(&self, after: u64, resource: Resource, lists: Lists) -> Option<u64> {
        let mut relists = self.shared.relists.lock();
        let Some(Relists { request, requested_after }) = relists.get_mut(&resource) else {
            return Some(lists.begun + 1);
        };
        if let Some(requested_after) = requested_after.filter(|requested_after| *requested_after >= after) {
            return Some(requested_after + 1);
        }
        if lists.begun != lists.completed {
            return None;
        }
        *requested_after = Some(lists.begun);
        let request = request.clone();
        drop(relists);
        request();
        Some(lists.begun + 1)
    }
}

impl Pending {
    /// A new write restarts the wait, and no list requested before can settle it.
    fn start_over(&mut self) {
        self.behind_since = None;
        self.begun_by_then.clear();
        self.settled_by.clear();
    }

    fn drop_satisfied(&mut self, view: &impl CacheView) {
        let Pending { positions, deletions, lists, settled_by, .. } = self;
        let settled = |resource| {
            settled_by.get(&resource).is_some_and(|number| view.lists(resource).completed >= *number)
        };
        positions.retain(|&resource, awaited| view.position(resource) < *awaited && !settled(resource));
        deletions.retain(|(resource, uid), deletion| {
            let reached = deletion.position.is_some_and(|awaited| view.position(*resource) >= awaited);
            let gone = match deletion.is_gone {
                true => !view.holds(*resource, &deletion.key, uid),
                false => reached || view.is_gone_or_deleting(*resource, &deletion.key, uid),
            };
            // It went after that version: only its own event tells.
            deletion.position = deletion.position.filter(|_| !reached);
            !gone && !settled(*resource)
        });
        lists.retain(|&resource, number| view.lists(resource).completed < *number && !settled(resource));
    }

    fn awaited(&self) -> Vec<Awaited> {
        let positions = self.positions.iter().map(|(&resource, &position)| Awaited {
            resource,
            position: Some(position),
            object: None,
        });
        let deletions = self.deletions.iter().map(|((resource, _), deletion)| Awaited {
            resource: *resource,
            position: deletion.position,
            object: Some(deletion.key.clone()),
        });
        let lists = self.lists.keys().map(|&resource| Awaited { resource, position: None, object: None });
        positions.chain(deletions).chain(lists).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::runtime::fixture::{THINGS, Thing, key, thing, uid};

    const OTHERS: Resource = Resource { group: "", version: "v1", kind: "Other", plural: "others" };

    fn store_at(position: u64) -> Arc<Store<Thing>> {
        let store = Arc::new(Store::default());
        store.begin_list(false);
        store.end_list(position);
        store
    }

    fn expectations() -> Expectations {
        Expectations::new(Metrics::new())
    }

    fn is_fresh(expectations: &Expectations, owner: &str, store: &Arc<Store<Thing>>) -> bool {
        let view = Caches::default().with(store.clone());
        expectations.check(&uid(owner), &view, Instant::now()) == Freshness::Fresh
    }

    #[test]
    fn an_owner_waits_until_the_cache_has_reached_the_last_write() {
        let (expectations, store) = (expectations(), store_at(10));
        expectations.expect_write(&uid("o"), THINGS, 20);
        expectations.expect_write(&uid("o"), THINGS, 15);
        assert!(!is_fresh(&expectations, "o", &store));
        assert!(is_fresh(&expectations, "another", &store));
        store.bookmark(19);
        assert!(!is_fresh(&expectations, "o", &store));
        store.bookmark(20);
        assert!(is_fresh(&expectations, "o", &store));
        assert!(expectations.is_empty());
    }

    #[test]
    fn a_deletion_is_seen_by_its_mark_its_absence_or_the_position() {
        let (expectations, store) = (expectations(), store_at(10));
        let owner = uid("o");
        let delete = |version| expectations.expect_deletion(&owner, THINGS, &key("a"), &uid("1"), version);
        store.put(thing("a", "1", 11));
        delete(None);
        assert!(!is_fresh(&expectations, "o", &store));
        let mut deleting = thing("a", "1", 12);
        deleting.meta.deletion = Some(deleting.meta.created);
        store.put(deleting);
        assert!(is_fresh(&expectations, "o", &store), "marked");

        let store = store_at(10);
        store.put(thing("a", "1", 11));
        delete(None);
        assert!(!is_fresh(&expectations, "o", &store));
        store.put(thing("a", "2", 13));
        assert!(is_fresh(&expectations, "o", &store), "another object has the name now");

        let store = store_at(10);
        store.put(thing("a", "1", 11));
        delete(Some(14));
        assert!(!is_fresh(&expectations, "o", &store));
        store.bookmark(14);
        assert!(is_fresh(&expectations, "o", &store), "the position is past the deletion");
    }

    #[test]
    fn an_object_that_was_found_to_be_gone_is_awaited_though_the_cache_shows_its_deletion() {
        let (expectations, store) = (expectations(), store_at(10));
        let mut deleting = thing("a", "1", 12);
        deleting.meta.deletion = Some(deleting.meta.created);
        store.put(deleting);
        expectations.expect_absence(&uid("o"), THINGS, &key("a"), &uid("1"), 13);
        let awaited = || match expectations.check(&uid("o"), &*store, Instant::now()) {
            Freshness::Behind(behind) => behind.awaited.iter().map(|one| one.position).collect(),
            Freshness::Fresh => Vec::new(),
        };
        assert_eq!(awaited(), [Some(13)], "the key is woken there");
        store.bookmark(13);
        assert_eq!(awaited(), [None], "and not again and again");
        store.put(thing("a", "2", 14));
        assert!(is_fresh(&expectations, "o", &store), "another object has the name now");
    }

    #[test]
    fn all_kinds_count_and_one_without_a_cache_is_not_awaited() {
        let (expectations, store) = (expectations(), store_at(10));
        expectations.expect_write(&uid("o"), THINGS, 20);
        expectations.expect_write(&uid("o"), OTHERS, 1_000);
        let view = Caches::default().with(store.clone());
        let Freshness::Behind(behind) = expectations.check(&uid("o"), &view, Instant::now()) else {
            panic!("the things are behind")
        };
        assert_eq!(behind.awaited, [Awaited { resource: THINGS, position: Some(20), object: None }]);
        assert_eq!(behind.check_again, SAFETY_NET);
        expectations.forget(&uid("o"));
        assert!(is_fresh(&expectations, "o", &store));
    }

    #[test]
    fn a_cache_behind_a_read_is_relisted_after_ten_seconds_and_once_for_all_owners() {
        let metrics = Metrics::new();
        let expectations = Expectations::new(metrics.clone());
        let demands = Arc::new(AtomicUsize::new(0));
        let counted = demands.clone();
        expectations.relist_with(THINGS, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let store = store_at(10);
        let (view, start) = (Caches::default().with(store.clone()), Instant::now());
        let is_fresh = |owner: &str, milliseconds| {
            let now = start + Duration::from_millis(milliseconds);
            matches!(expectations.check(&uid(owner), &view, now), Freshness::Fresh)
        };
        for owner in ["a", "b"] {
            expectations.expect_write(&uid(owner), THINGS, 20);
            expectations.expect_at_once(&uid(owner));
            assert!(!is_fresh(owner, 0) && !is_fresh(owner, 9_999));
        }
        assert_eq!(demands.load(Ordering::Relaxed), 0);
        assert!(!is_fresh("a", 10_000) && !is_fresh("b", 10_000) && !is_fresh("a", 11_000));
        assert_eq!(demands.load(Ordering::Relaxed), 1);
        // A list that is under way is awaited, and does not suffice for an owner that did not request it.
        store.begin_list(false);
        expectations.expect_write(&uid("c"), THINGS, 20);
        expectations.expect_at_once(&uid("c"));
        assert!(!is_fresh("c", 11_000) && !is_fresh("c", 21_500));
        assert_eq!(demands.load(Ordering::Relaxed), 1);
        store.end_list(12);
        assert!(is_fresh("a", 21_500) && is_fresh("b", 21_500) && !is_fresh("c", 21_500));
        assert_eq!(demands.load(Ordering::Relaxed), 2);
        assert!(!metrics.render().contains("windlass_expectations_expired_total{"), "nothing was lost");
    }

    #[test]
    fn owners_that_become_overdue_one_after_the_other_are_settled_by_one_list() {
        let expectations = expectations();
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = requests.clone();
        expectations.relist_with(THINGS, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let store = store_at(10);
        let (view, start) = (Caches::default().with(store.clone()), Instant::now());
        let second = Duration::from_secs(1);
        let is_fresh = |owner: &str, after: Duration| {
            matches!(expectations.check(&uid(owner), &view, start + after), Freshness::Fresh)
        };
        for (owner, after) in [("a", Duration::ZERO), ("b", 5 * second)] {
            expectations.expect_write(&uid(owner), THINGS, 20);
            assert!(!is_fresh(owner, after));
        }
        assert!(!is_fresh("a", SAFETY_NET));
        store.begin_list(false);
        // It writes while the list is under way, which need not show that.
        expectations.expect_write(&uid("c"), THINGS, 21);
        assert!(!is_fresh("c", SAFETY_NET + second));
        assert!(!is_fresh("b", SAFETY_NET + 5 * second));
        assert_eq!(requests.load(Ordering::Relaxed), 1, "the list that is under way is not interrupted");
        store.end_list(12);
        assert!(is_fresh("a", SAFETY_NET + 9 * second) && is_fresh("b", SAFETY_NET + 9 * second));
        assert!(!is_fresh("c", 2 * SAFETY_NET));
        assert!(!is_fresh("c", 2 * SAFETY_NET + second));
        assert_eq!(requests.load(Ordering::Relaxed), 2);
        store.begin_list(false);
        store.end_list(13);
        assert!(is_fresh("c", 2 * SAFETY_NET + 2 * second));
    }

    #[test]
    fn a_list_that_nobody_requested_settles_nothing_since_it_may_be_an_old_one() {
        let (expectations, store) = (expectations(), store_at(10));
        expectations.relist_with(THINGS, || {});
        let (view, start) = (Caches::default().with(store.clone()), Instant::now());
        let is_fresh =
            |after| matches!(expectations.check(&uid("o"), &view, start + after), Freshness::Fresh);
        expectations.expect_write(&uid("o"), THINGS, 20);
        assert!(!is_fresh(Duration::ZERO));
        store.begin_list(false);
        store.end_list(12);
        assert!(!is_fresh(SAFETY_NET));
        store.begin_list(false);
        store.end_list(13);
        assert!(is_fresh(SAFETY_NET + OVERDUE_CHECK));
    }

    #[test]
    fn what_was_written_in_a_lost_history_is_not_awaited() {
        let (expectations, store) = (expectations(), store_at(10));
        store.put(thing("a", "1", 11));
        expectations.expect_write(&uid("o"), THINGS, 20);
        expectations.expect_deletion(&uid("o"), THINGS, &key("a"), &uid("1"), None);
        expectations.expect_write(&uid("o"), OTHERS, 20);
        assert!(!is_fresh(&expectations, "o", &store));
        expectations.history_lost(THINGS, 2);
        store.begin_list(true);
        assert!(!is_fresh(&expectations, "o", &store));
        // A write in the new history.
        expectations.expect_write(&uid("o"), THINGS, 7);
        store.end_list(6);
        assert!(!is_fresh(&expectations, "o", &store));
        store.bookmark(7);
        assert!(is_fresh(&expectations, "o", &store), "there is no cache of the others");
    }

    #[test]
    fn an_overdue_wait_ends_with_a_list_begun_afterwards_and_not_by_itself() {
        let metrics = Metrics::new();
        let expectations = Expectations::new(metrics.clone());
        let relist_requests = Arc::new(AtomicUsize::new(0));
        let counted = relist_requests.clone();
        expectations.relist_with(THINGS, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let store = store_at(10);
        let (view, start) = (Caches::default().with(store.clone()), Instant::now());
        let check = |after| expectations.check(&uid("o"), &view, start + after);
        let behind = |after| match check(after) {
            Freshness::Behind(behind) => behind.check_again,
            Freshness::Fresh => panic!("fresh after {after:?}"),
        };
        expectations.expect_write(&uid("o"), THINGS, 20);
        assert_eq!(behind(Duration::ZERO), SAFETY_NET);
        assert_eq!(behind(SAFETY_NET / 3), SAFETY_NET - SAFETY_NET / 3);
        assert_eq!(relist_requests.load(Ordering::Relaxed), 0);
        // A list is under way already when the limit is reached: it may be too old.
        store.begin_list(true);
        assert_eq!(behind(SAFETY_NET), OVERDUE_CHECK);
        store.end_list(11);
        assert_eq!(behind(2 * SAFETY_NET), OVERDUE_CHECK);
        assert_eq!(relist_requests.load(Ordering::Relaxed), 1, "demanded once");
        store.begin_list(true);
        store.end_list(12);
        assert_eq!(check(2 * SAFETY_NET), Freshness::Fresh, "the write is lost with the server's history");
        assert!(
            metrics
                .render()
                .contains("windlass_expectations_expired_total{group=\"test.io\",resource=\"things\"} 1")
        );
    }
}
