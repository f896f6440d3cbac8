//! Takes in what lists and watches bring: decodes it, changes the store, and tells the handlers.
//!
//! No waiting happens here. Handlers are told after the store shows a change, in the order of the
//! changes; those that listen to the position are told last.

use std::collections::BTreeSet;
use std::sync::Arc;

use prometheus::IntCounter;

use super::frame::Identity;
use super::store::{Applied, Change, Store};
use crate::metrics::Metrics;
use crate::model::record::Encoded;
use crate::model::{Interner, ObjectKey, Record, Resource};

/// How many unreadable objects are remembered, so that each is logged once and not at each change.
const REMEMBERED: usize = 1024;

type ChangeHandler<T> = Box<dyn Fn(&Change<T>) + Send + Sync>;
type PositionHandler = Box<dyn Fn(u64) + Send + Sync>;

/// The store of one kind, its decoder and its handlers.
pub(crate) struct Intake<T: Record> {
    resource: Resource,
    pub(crate) store: Arc<Store<T>>,
    interner: Interner,
    on_change: Vec<ChangeHandler<T>>,
    on_position: Vec<PositionHandler>,
    unreadable: BTreeSet<ObjectKey>,
    undecodable: IntCounter,
    lists: IntCounter,
}

impl<T: Record> Intake<T> {
    pub(crate) fn new(resource: Resource, metrics: &Metrics) -> Self {
        let labels = &[resource.group, resource.plural];
        Intake {
            resource,
            store: Arc::default(),
            interner: Interner::default(),
            on_change: Vec::new(),
            on_position: Vec::new(),
            unreadable: BTreeSet::new(),
            undecodable: metrics.informer_undecodable.with_label_values(labels),
            lists: metrics.informer_lists.with_label_values(labels),
        }
    }

    pub(crate) fn on_change(&mut self, handler: impl Fn(&Change<T>) + Send + Sync + 'static) {
        self.on_change.push(Box::new(handler));
    }

    pub(crate) fn on_position(&mut self, handler: impl Fn(u64) + Send + Sync + 'static) {
        self.on_position.push(Box::new(handler));
    }

    pub(crate) fn is_listing(&self) -> bool {
        let lists = self.store.lists();
        lists.begun != lists.completed
    }

    /// Takes in an object that was listed, added or modified.
    ///
    /// One that cannot be decoded is passed over. Its last readable state stays: to drop it would look
    /// like a deletion, which a controller answers with a new pod, whereas an old state is what every
    /// controller has to live with anyway. The others go on, and the position too.
    pub(crate) fn put<'a>(&mut self, object: impl Into<Encoded<'a>>) {
        let object = object.into();
        match object.decode::<T>(&mut self.interner) {
            Ok(record) => {
                if !self.unreadable.is_empty() {
                    self.unreadable.remove(&record.meta().key);
                }
                let applied = self.store.put(record);
                self.tell(applied);
            }
            Err(error) => {
                let identity = Identity::read(object);
                self.report(identity.as_ref(), &error);
                if let Some(identity) = identity {
                    let applied = self.store.keep(&identity.key, identity.version);
                    self.tell(applied);
                }
            }
        }
    }

    /// Takes out an object that was deleted. For that its name and UID are enough.
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
            let applied = self.store.remove(&key, &uid, version, last.ok());
            self.tell(applied);
        }
    }

    pub(crate) fn bookmark(&self, version: u64) {
        self.tell(self.store.bookmark(version));
    }

    pub(crate) fn begin_list(&self, trusting: bool) {
        self.store.begin_list(trusting);
    }

    pub(crate) fn end_list(&self, version: u64) {
        self.lists.inc();
        let mut applied = self.store.end_list(version);
        if planted!("relists lose deletions") {
            applied.changes.retain(|change| !matches!(change, Change::Deleted(_)));
        }
        self.tell(applied);
    }

    pub(crate) fn tell(&self, applied: Applied<T>) {
        for change in &applied.changes {
            self.on_change.iter().for_each(|handler| handler(change));
        }
        if let Some(position) = applied.position {
            self.on_position.iter().for_each(|handler| handler(position));
        }
    }

    /// Logs what could not be read: by name, never its content, which may be secret.
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
        tracing::error!(resource, key, %error, "object cannot be decoded; its last readable state is kept");
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::runtime::fixture::{THINGS, Thing, json_of, key};

    #[test]
    fn handlers_see_the_store_changed_and_the_position_comes_last() {
        let mut intake = Intake::<Thing>::new(THINGS, &Metrics::new());
        let told = Arc::new(Mutex::new(Vec::new()));
        let (log, store) = (told.clone(), intake.store.clone());
        intake.on_change(move |change| {
            let name = change.object().meta.key.name.to_string();
            log.lock().push(format!("{name} of {}", store.len()));
        });
        let log = told.clone();
        intake.on_position(move |position| log.lock().push(position.to_string()));
        intake.begin_list(false);
        intake.put(&json_of("a", "a", 5).to_string());
        intake.end_list(6);
        intake.put(&json_of("b", "b", 7).to_string());
        assert_eq!(*told.lock(), ["a of 1", "6", "b of 2", "7"]);
    }

    #[test]
    fn an_object_that_became_unreadable_keeps_its_last_readable_state() {
        let metrics = Metrics::new();
        let mut intake = Intake::<Thing>::new(THINGS, &metrics);
        intake.begin_list(false);
        intake.put(&json_of("a", "a", 5).to_string());
        intake.end_list(6);
        let mut broken = json_of("a", "a", 8);
        broken["spec"]["size"] = "a word".into();
        intake.put(&broken.to_string());
        assert_eq!(intake.store.get(&key("a")).unwrap().meta.resource_version, 5);
        assert_eq!(intake.store.position(), 8, "the watch has gone on");
        assert!(metrics.render().contains(
            "windlass_informer_undecodable_objects_total{group=\"test.io\",resource=\"things\"} 1"
        ));
        intake.begin_list(false);
        intake.put(&broken.to_string());
        intake.end_list(9);
        assert_eq!(intake.store.len(), 1, "it is still there, so a list does not delete it");
        intake.delete(&broken.to_string());
        assert!(intake.store.is_empty(), "to be deleted it need not be readable");
    }

    #[test]
    fn what_has_not_even_a_name_is_passed_over() {
        let mut intake = Intake::<Thing>::new(THINGS, &Metrics::new());
        for json in ["{}", "null", "[]", "{\"metadata\":{}}", "\"x\"", "{\"metadata\":{\"name\":1}}"] {
            intake.put(json);
            intake.delete(json);
        }
        assert!(intake.store.is_empty());
    }
}
