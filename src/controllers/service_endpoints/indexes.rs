//! Indexes that a change of a pod or of a Service looks into, so that its cost does not grow with the namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::model::{EndpointSlice, Meta, ObjectKey, Service};
use crate::runtime::store::{Change, Store};

/// A namespace, and the hash of a label. Services that it finds are matched again, so that labels of one hash cost time only.
type Label = (Arc<str>, u64);

/// The Services by the first label that their selector requires. Upstream evaluates the selectors of all Services of a namespace for
/// each change of a pod in it.
#[derive(Default)]
pub(super) struct SelectorIndex(RwLock<BTreeMap<Label, BTreeSet<Arc<str>>>>);

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
        let (gone, there) = match change {
            Change::Added(service) => (None, Some(service)),
            Change::Updated { old, new } => (Some(old), Some(new)),
            Change::Deleted(service) => (Some(service), None),
        };
        let (before, after) = (gone.and_then(|it| label(it)), there.and_then(|it| label(it)));
        if before == after {
            return;
        }
        let name = &change.object().meta.key.name;
        let mut index = self.0.write();
        if let Some(label) = before
            && let Some(names) = index.get_mut(&label)
        {
            names.remove(name);
            if names.is_empty() {
                index.remove(&label);
            }
        }
        if let Some(label) = after {
            index.entry(label).or_default().insert(name.clone());
        }
    }

    /// The Services that select an object with this metadata.
    pub(super) fn of(&self, services: &Store<Service>, object: &Meta) -> BTreeSet<ObjectKey> {
        let namespace = &object.key.namespace;
        let index = self.0.read();
        let names =
            object.labels.iter().filter_map(|(key, value)| index.get(&(namespace.clone(), hash(key, value))));
        let keys: BTreeSet<ObjectKey> =
            names.flatten().map(|name| ObjectKey::new(namespace.clone(), name.clone())).collect();
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
pub(super) struct SliceIndex(RwLock<BTreeMap<ObjectKey, BTreeSet<Arc<str>>>>);

/// The Service that the label of a slice names, if the slice is of this writer.
pub(super) fn service_of(writer: &str, slice: &EndpointSlice) -> Option<ObjectKey> {
    let name = slice.service().filter(|_| slice.is_managed_by(writer))?;
    Some(ObjectKey::new(slice.meta.key.namespace.clone(), name))
}

impl SliceIndex {
    /// Follows a change of a slice.
    pub(super) fn update(&self, writer: &str, change: &Change<EndpointSlice>) {
        let (gone, there) = match change {
            Change::Added(slice) => (None, Some(slice)),
            Change::Updated { old, new } => (Some(old), Some(new)),
            Change::Deleted(slice) => (Some(slice), None),
        };
        let service_of = |slice: &Arc<EndpointSlice>| service_of(writer, slice);
        let (before, after) = (gone.and_then(service_of), there.and_then(service_of));
        if before == after {
            return;
        }
        let name = &change.object().meta.key.name;
        let mut index = self.0.write();
        if let Some(service) = before
            && let Some(names) = index.get_mut(&service)
        {
            names.remove(name);
            if names.is_empty() {
                index.remove(&service);
            }
        }
        if let Some(service) = after {
            index.entry(service).or_default().insert(name.clone());
        }
    }

    /// The names of the slices of a Service.
    pub(super) fn of(&self, service: &ObjectKey) -> Vec<Arc<str>> {
        self.0.read().get(service).into_iter().flatten().cloned().collect()
    }
}
