//! Indexes that a change of a pod or of a Service looks into, so that its cost does not grow with the namespace.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::model::{EndpointSlice, Meta, ObjectKey, Service};
use crate::runtime::index::Index;
use crate::runtime::store::{Change, Store};

/// Names of objects, by what they are looked up by.
type Names<K> = Index<K, Arc<str>>;

/// A namespace, and the hash of a label. Services that it finds are matched again, so that labels of one hash cost time only.
type Label = (Arc<str>, u64);

/// The Services by the first label that their selector requires. Upstream evaluates the selectors of all Services of a namespace for
/// each change of a pod in it.
#[derive(Default)]
pub(super) struct SelectorIndex(RwLock<Names<Label>>);

fn hash(key: &str, value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (key, value).hash(&mut hasher);
    hasher.finish()
}

fn label(service: &Service) -> Option<Label> {
    let (key, value) = service.pods()?.match_labels().next()?;
    Some((service.meta.key.namespace.clone(), hash(key, value)))
}

impl SelectorIndex {
    /// Follows a change of a Service.
    pub(super) fn update(&self, change: &Change<Service>) {
        let (gone, there) = change.states();
        let (before, after) = (gone.and_then(label), there.and_then(label));
        self.0.write().change(&change.object().meta.key.name, before, after);
    }

    /// The Services that select an object with this metadata.
    pub(super) fn of(&self, services: &Store<Service>, object: &Meta) -> BTreeSet<ObjectKey> {
        let namespace = &object.key.namespace;
        let index = self.0.read();
        let names =
            object.labels.iter().flat_map(|(key, value)| index.get(&(namespace.clone(), hash(key, value))));
        let keys: BTreeSet<ObjectKey> =
            names.map(|name| ObjectKey::new(namespace.clone(), name.clone())).collect();
        drop(index);
        let selects = |key: &ObjectKey| {
            let service = services.get(key);
            service.is_some_and(|it| it.pods().is_some_and(|selector| selector.matches(&object.labels)))
        };
        keys.into_iter().filter(selects).collect()
    }
}

/// The slices of one writer, by the Service that their label names. It finds those that another object owns, such as a Service that
/// had the name before.
#[derive(Default)]
pub(super) struct SliceIndex(RwLock<Names<ObjectKey>>);

/// The Service that the label of a slice names, if the slice is of this writer.
pub(super) fn service_of(writer: &str, slice: &EndpointSlice) -> Option<ObjectKey> {
    let name = slice.service().filter(|_| slice.is_managed_by(writer))?;
    Some(ObjectKey::new(slice.meta.key.namespace.clone(), name))
}

impl SliceIndex {
    /// Follows a change of a slice.
    pub(super) fn update(&self, writer: &str, change: &Change<EndpointSlice>) {
        let (gone, there) = change.states();
        let service_of = |slice: &EndpointSlice| service_of(writer, slice);
        let (before, after) = (gone.and_then(service_of), there.and_then(service_of));
        self.0.write().change(&change.object().meta.key.name, before, after);
    }

    /// The names of the slices of a Service.
    pub(super) fn of(&self, service: &ObjectKey) -> Vec<Arc<str>> {
        self.0.read().get(service).cloned().collect()
    }
}
