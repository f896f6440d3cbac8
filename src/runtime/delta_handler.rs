//! Applies the results of lists and watches: decodes objects, changes the store, and calls the handlers.
//!
//! No waiting happens here. Handlers are called after the store shows a change, in the order of the
//! changes; handlers of the position are called last.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::IntCounter;

use super::store::{Applied, Change, Store};
use super::watch_decoder::Identity;
use crate::metrics::Metrics;
use crate::model::record::Encoded;
use crate::model::{Interner, ObjectKey, Owner, Record, Resource};

/// How many unreadable objects are remembered, so that each is logged once and not at each change.
const REMEMBERED: usize = 1024;

type ChangeHandler<T> = Box<dyn Fn(&Change<T>) + Send + Sync>;
/// Called with a position, or with the number of a list.
type PositionHandler = Box<dyn Fn(u64) + Send + Sync>;

/// The store of one kind with its handlers. All changes of the store pass through here, one at a time, so
/// that handlers are called in the order of the changes.
pub(crate) struct Sink<T: Record> {
    pub(crate) store: Arc<Store<T>>,
    handlers: Mutex<Handlers<T>>,
}

struct Handlers<T: Record> {
    on_change: Vec<ChangeHandler<T>>,
    on_position: Vec<PositionHandler>,
    on_lost_history: Vec<PositionHandler>,
}

impl<T: Record> Sink<T> {
    /// Changes the store and calls the handlers.
    fn apply(&self, change: impl FnOnce(&Store<T>) -> Applied<T>) {
        let handlers = self.handlers.lock();
        let applied = change(&self.store);
        for change in &applied.changes {
            handlers.on_change.iter().for_each(|handler| handler(change));
        }
        if let Some(position) = applied.position {
            handlers.on_position.iter().for_each(|handler| handler(position));
        }
    }

    /// Applies an object that was read past the watch; see [`Store::put_early`]. One that cannot be decoded is
    /// skipped: the list reports it.
    pub(crate) fn put_early(&self, object: Encoded<'_>, interner: &mut Interner) {
        if let Ok(record) = object.decode::<T>(interner) {
            self.apply(|store| store.put_early(record));
        }
    }
}

/// The store of one kind, its decoder and its handlers.
pub(crate) struct DeltaHandler<T: Record> {
    resource: Resource,
    sink: Arc<Sink<T>>,
    pub(crate) store: Arc<Store<T>>,
    interner: Interner,
    unreadable: BTreeSet<ObjectKey>,
    undecodable: IntCounter,
    lists: IntCounter,
}

impl<T: Record> DeltaHandler<T> {
    pub(crate) fn new(resource: Resource, metrics: &Metrics) -> Self {
        let labels = &[resource.group, resource.plural];
        let store: Arc<Store<T>> = Arc::default();
        let handlers = Mutex::new(Handlers {
            on_change: Vec::new(),
            on_position: Vec::new(),
            on_lost_history: Vec::new(),
        });
        DeltaHandler {
            resource,
            sink: Arc::new(Sink { store: store.clone(), handlers }),
            store,
            interner: Interner::default(),
            unreadable: BTreeSet::new(),
            undecodable: metrics.informer_undecodable.with_label_values(labels),
            lists: metrics.informer_lists.with_label_values(labels),
        }
    }

    /// Access to the store for reads past the watch.
    pub(crate) fn sink(&self) -> &Arc<Sink<T>> {
        &self.sink
    }

    pub(crate) fn on_change(&mut self, handler: impl Fn(&Change<T>) + Send + Sync + 'static) {
        self.sink.handlers.lock().on_change.push(Box::new(handler));
    }

    pub(crate) fn on_position(&mut self, handler: impl Fn(u64) + Send + Sync + 'static) {
        self.sink.handlers.lock().on_position.push(Box::new(handler));
    }

    /// Registers a handler for each list that is to be accepted although it is older than the store.
    pub(crate) fn on_lost_history(&mut self, handler: impl Fn(u64) + Send + Sync + 'static) {
        self.sink.handlers.lock().on_lost_history.push(Box::new(handler));
    }

    pub(crate) fn is_listing(&self) -> bool {
        let lists = self.store.lists();
        lists.begun != lists.completed
    }

    /// Applies an object that was listed, added or modified.
    ///
    /// One that cannot be decoded is skipped. Its last readable state stays: dropping it would look
    /// like a deletion, which a controller answers with a new pod, whereas every controller
    /// has to cope with an old state anyway. One that never could be decoded counts for its owner
    /// ([`Store::unreadable_of`]). Other objects and the position are not affected.
    pub(crate) fn put<'a>(&mut self, object: impl Into<Encoded<'a>>) {
        let object = object.into();
        match object.decode::<T>(&mut self.interner) {
            Ok(record) => {
                if !self.unreadable.is_empty() {
                    self.unreadable.remove(&record.meta().key);
                }
                self.sink.apply(|store| store.put(record));
            }
            Err(error) => {
                let identity = Identity::read(object);
                self.report(identity.as_ref(), &error);
                if let Some(identity) = identity {
                    let owner = Owner::of_unreadable(object, &identity.key.namespace);
                    self.sink.apply(|store| store.keep(identity, owner));
                }
            }
        }
    }

    /// Removes an object that was deleted. Its name and UID suffice.
    pub(crate) fn delete<'a>(&mut self, object: impl Into<Encoded<'a>>) {
        let object = object.into();
        let last = object.decode::<T>(&mut self.interner);
        let identity = match &last {
            Ok(record) => {
                let meta = record.meta();
                let version = meta.resource_version;
                Some(Identity { key: meta.key.clone(), uid: meta.uid.clone(), version })
            }
            Err(error) => {
                let identity = Identity::read(object);
                self.report(identity.as_ref(), error);
                identity
            }
        };
        if let Some(Identity { key, uid, version }) = identity {
            self.unreadable.remove(&key);
            self.sink.apply(|store| store.remove(&key, &uid, version, last.ok()));
        }
    }

    pub(crate) fn bookmark(&self, version: u64) {
        self.sink.apply(|store| store.bookmark(version));
    }

    pub(crate) fn begin_list(&self, accept_older: bool) {
        self.store.begin_list(accept_older);
        if accept_older {
            let list = self.store.lists().begun;
            self.sink.handlers.lock().on_lost_history.iter().for_each(|handler| handler(list));
        }
    }

    pub(crate) fn end_list(&self, version: u64) {
        self.lists.inc();
        self.sink.apply(|store| {
            let mut applied = store.end_list(version);
            if planted!("a relist misses deletions") {
                applied.changes.retain(|change| !matches!(change, Change::Deleted(_)));
            }
            applied
        });
    }

    /// Calls the handlers with a change from a test.
    #[cfg(test)]
    pub(crate) fn dispatch(&self, applied: Applied<T>) {
        self.sink.apply(|_| applied);
    }

    /// Logs an object that could not be decoded: by name, never its content, which may be secret.
    fn report(&mut self, identity: Option<&Identity>, error: &serde_json::Error) {
        self.undecodable.inc();
        let resource = self.resource.plural;
        let key = identity.map(|identity| &identity.key);
        if let Some(key) = key {
            if self.unreadable.contains(key) {
                tracing::debug!(resource, %key, %error, "object still cannot be decoded");
                return;
            }
            if self.unreadable.len() < REMEMBERED {
                self.unreadable.insert(key.clone());
            }
        }
        let key = key.map_or_else(|| "unknown".to_owned(), ToString::to_string);
        tracing::error!(resource, key, %error, "object cannot be decoded; the cache keeps its last readable state, and no object is created in its place");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Uid;
    use crate::runtime::fixture::{THINGS, Thing, json_of, key};

    #[test]
    fn handlers_see_the_store_changed_and_the_position_comes_last() {
        let mut delta_handler = DeltaHandler::<Thing>::new(THINGS, &Metrics::new());
        let dispatched = Arc::new(Mutex::new(Vec::new()));
        let (log, store) = (dispatched.clone(), delta_handler.store.clone());
        delta_handler.on_change(move |change| {
            let name = change.object().meta.key.name.to_string();
            log.lock().push(format!("{name} of {}", store.len()));
        });
        let log = dispatched.clone();
        delta_handler.on_position(move |position| log.lock().push(position.to_string()));
        delta_handler.begin_list(false);
        delta_handler.put(&json_of("a", "a", 5).to_string());
        delta_handler.end_list(6);
        delta_handler.put(&json_of("b", "b", 7).to_string());
        assert_eq!(*dispatched.lock(), ["a of 1", "6", "b of 2", "7"]);
    }

    #[test]
    fn an_object_that_became_unreadable_keeps_its_last_readable_state() {
        let metrics = Metrics::new();
        let mut delta_handler = DeltaHandler::<Thing>::new(THINGS, &metrics);
        delta_handler.begin_list(false);
        delta_handler.put(&json_of("a", "a", 5).to_string());
        delta_handler.end_list(6);
        let mut broken = json_of("a", "a", 8);
        broken["spec"]["size"] = "a word".into();
        delta_handler.put(&broken.to_string());
        assert_eq!(delta_handler.store.get(&key("a")).unwrap().meta.resource_version, 5);
        assert_eq!(delta_handler.store.position(), 8, "the watch has gone on");
        assert!(metrics.render().contains(
            "windlass_informer_undecodable_objects_total{group=\"test.io\",resource=\"things\"} 1"
        ));
        delta_handler.begin_list(false);
        delta_handler.put(&broken.to_string());
        delta_handler.end_list(9);
        assert_eq!(delta_handler.store.len(), 1, "it is still there, so a list does not delete it");
        delta_handler.delete(&broken.to_string());
        assert!(delta_handler.store.is_empty(), "to be deleted it need not be readable");
    }

    #[test]
    fn an_object_that_never_was_readable_counts_for_its_owner_until_it_is_gone() {
        let mut delta_handler = DeltaHandler::<Thing>::new(THINGS, &Metrics::new());
        let owner = Owner::by_uid(&THINGS, &key("a").namespace, &Uid::new("o"));
        let unreadable = |name: &str, uid: &str, version: u64| {
            let mut broken = json_of(name, uid, version);
            broken["spec"]["size"] = "a word".into();
            let kind = [THINGS.api_version(), THINGS.kind.to_owned()];
            broken["metadata"]["ownerReferences"] = serde_json::json!(
                [{"apiVersion": "v1", "kind": "Other", "name": "x", "uid": "o"},
                 {"apiVersion": kind[0], "kind": kind[1], "name": "x", "uid": "o", "controller": true}]);
            broken.to_string()
        };
        delta_handler.begin_list(false);
        delta_handler.put(&json_of("b", "b", 4).to_string());
        delta_handler.put(&unreadable("a", "a", 5));
        delta_handler.end_list(6);
        assert_eq!(
            (delta_handler.store.len(), delta_handler.store.unreadable_of(&owner)),
            (1, vec![key("a")])
        );
        // A name is given to a new object, which cannot be read: the one before is no ghost.
        delta_handler.put(&unreadable("b", "new", 7));
        assert_eq!((delta_handler.store.len(), delta_handler.store.unreadable_of(&owner).len()), (0, 2));
        delta_handler.delete(&unreadable("a", "a", 8));
        delta_handler.put(&json_of("b", "new", 9).to_string());
        assert_eq!((delta_handler.store.len(), delta_handler.store.unreadable_of(&owner).len()), (1, 0));
    }

    #[test]
    fn an_object_without_a_name_is_skipped() {
        let mut delta_handler = DeltaHandler::<Thing>::new(THINGS, &Metrics::new());
        for json in ["{}", "null", "[]", "{\"metadata\":{}}", "\"x\"", "{\"metadata\":{\"name\":1}}"] {
            delta_handler.put(json);
            delta_handler.delete(json);
        }
        assert!(delta_handler.store.is_empty());
    }
}
