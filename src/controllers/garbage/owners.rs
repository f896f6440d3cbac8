//! The states of an object's owners that are known for certain, by the graph or by an answer of the API server.

use tokio::time::Instant;

use super::kinds::Served;
use super::unwatched::Unwatched;
use super::watch::fixed;
use super::{Collector, ENTRY};
use crate::engine::error::SyncError;
use crate::model::discovered::{DiscoveredResource, is_path_segment};
use crate::model::metadata::{Metadata, OwnerReference};
use crate::model::{ObjectKey, Uid};
use crate::plan::garbage::decision::OwnerState;
use crate::plan::garbage::graph::{Address, GraphResource, Known};
use crate::runtime::api::ApiError;
use crate::runtime::events::{EventTarget, EventType};
use crate::runtime::request;

/// The event about a reference to an owner in another namespace; upstream's.
const INVALID_NAMESPACE: &str = "OwnerRefInvalidNamespace";

/// The state of the owner behind a reference, if it is within reach.
pub(super) enum Owner {
    /// For certain.
    Is(OwnerState),
    /// Its kind is not served or may not be read, or it cannot own this object. Nothing is decided before that changes.
    IsBeyondReach,
}

impl Collector {
    /// The state of an owner of this object, as it was just read. Counts in `asked` if that takes a request.
    pub(super) async fn owner_state(
        &self,
        object: &Metadata<'_>,
        address: &Address,
        reference: &OwnerReference<'_>,
        asked: &mut usize,
    ) -> Result<Owner, SyncError> {
        let namespace = object.namespace.as_str();
        let (known, is_elsewhere) = {
            let graph = self.graph.lock();
            (graph.known_by(namespace, reference), graph.is_in_another_namespace(namespace, reference))
        };
        if is_elsewhere {
            self.say_where_it_is_not(object, address, reference);
        }
        match known {
            Known::Solid => return Ok(Owner::Is(OwnerState::Solid)),
            Known::Absent => return Ok(Owner::Is(self.how_absent(&reference.uid))),
            Known::Waiting if self.waiting_owners.lock().contains(&reference.uid, Instant::now()) => {
                return Ok(Owner::Is(OwnerState::Waiting));
            }
            Known::Waiting | Known::Unknown => {}
        }
        let resource = match self.kinds.of_kind(reference.group(), reference.kind.as_str()) {
            Served::As(resource) => resource,
            Served::No => {
                return self.has_gone_with_its_kind(object, reference, asked).await;
            }
            Served::Unreadable => {
                let what = format!("finding the kind {} of an owner", reference.kind.as_str());
                let reason = "its API group cannot be read at the moment".to_owned();
                return Err(SyncError::Unread { what, reason });
            }
        };
        if resource.namespaced && namespace.is_empty() || !is_path_segment(reference.name.as_str()) {
            return Ok(Owner::IsBeyondReach);
        }
        let owner = self.ask(object, reference, resource, asked).await?;
        Ok(match owner {
            Owner::Is(OwnerState::Absent) => Owner::Is(self.how_absent(&reference.uid)),
            known => known,
        })
    }

    /// Whether an owner whose kind is not served was deleted before its kind: its deletion was seen, and its kind has no
    /// definition. If the first was undone, as by a restore of etcd, so was the second.
    async fn has_gone_with_its_kind(
        &self,
        object: &Metadata<'_>,
        reference: &OwnerReference<'_>,
        asked: &mut usize,
    ) -> Result<Owner, SyncError> {
        let doubted = {
            let graph = self.graph.lock();
            let id = graph.doubted(object.namespace.as_str(), reference);
            id.map(|id| (id, graph.resource(id).clone()))
        };
        let definitions = self.kinds.of_kind("apiextensions.k8s.io", "CustomResourceDefinition");
        let (Some((id, GraphResource { group, plural, .. })), Served::As(definitions)) =
            (doubted, definitions)
        else {
            return Ok(Owner::IsBeyondReach);
        };
        *asked += 1;
        let name = format!("{plural}.{group}");
        let path = format!("{}/{name}", definitions.path(None));
        let request = request::get_as(request::METADATA, &path, &[]);
        match self.api.on_behalf_of(&object.uid).call_bytes(request).await {
            Err(error) if is_about(&error, &definitions, &name) => {
                let wakes = self.graph.lock().kind_is_gone(id);
                self.wake(wakes);
                Ok(Owner::Is(self.how_absent(&reference.uid)))
            }
            // It will be served again, or is defined and cannot be. A bounded collector need not have the right to know.
            Ok(_) => Ok(Owner::IsBeyondReach),
            Err(error) if error.is_forbidden() => Ok(Owner::IsBeyondReach),
            Err(error) => Err(SyncError::creation(format!("reading the definition {path}"), error)),
        }
    }

    /// The state of an owner that does not exist. A released one counts as such once it is gone: the finalizer of somebody
    /// else may keep it, and a restored etcd brings it back.
    fn how_absent(&self, owner: &Uid) -> OwnerState {
        if self.is_released(owner) { OwnerState::Released } else { OwnerState::Absent }
    }

    /// Asks the API server for the owner, as the reference claims it.
    async fn ask(
        &self,
        object: &Metadata<'_>,
        reference: &OwnerReference<'_>,
        mut resource: DiscoveredResource,
        asked: &mut usize,
    ) -> Result<Owner, SyncError> {
        // A version that is no longer served is asked for in another: it is the same object.
        if resource.is_served_in(reference.version()) {
            resource.version = reference.version().to_owned();
        }
        let namespace = resource.namespaced.then(|| object.namespace.as_str());
        let name = reference.name.as_str();
        let path = format!("{}/{name}", resource.path(namespace));
        if self.unwatched.is_known(&reference.uid, &path) {
            return Ok(Owner::Is(OwnerState::Solid));
        }
        let what = || format!("reading the owner {path}");
        let absent = || {
            let mut graph = self.graph.lock();
            // The answer is about this reference, and the object may have another one to the same UID by now.
            if graph.has_reference(&object.uid, reference) {
                let wakes = graph.prove_absent(&object.uid, &reference.uid, resource.namespaced);
                drop(graph);
                self.wake(wakes);
            }
            Ok(Owner::Is(OwnerState::Absent))
        };
        if let Some(id) = self.kinds.id_of(&resource) {
            self.graph.lock().expect(&reference.uid, id);
        }
        *asked += 1;
        let request = request::get_as(request::METADATA, &path, &[]);
        let body = match self.api.on_behalf_of(&object.uid).call_bytes(request).await {
            Ok(body) => body,
            Err(error) if is_about(&error, &resource, name) => return absent(),
            // A collector of one namespace need not have the right to read what is in none. Its end would not be seen.
            Err(error) if error.is_forbidden() && self.kinds.namespace.is_some() && !resource.namespaced => {
                return Ok(Owner::IsBeyondReach);
            }
            // There is a difference between an object that does not exist and a path that does not.
            Err(error) => return Err(SyncError::creation(what(), error)),
        };
        let json = std::str::from_utf8(&body).unwrap_or_default();
        let owner = Metadata::decode(json).map_err(|error| SyncError::Json { what: what(), error })?;
        if !owner.has_uid() {
            // It says nothing of whose UID the reference has.
            return Ok(Owner::IsBeyondReach);
        }
        if owner.uid != reference.uid {
            return absent();
        }
        if owner.waits_for_dependents() {
            self.waiting_owners.lock().insert(owner.uid, Instant::now());
            return Ok(Owner::Is(OwnerState::Waiting));
        }
        if !self.kinds.is_seen(&resource) {
            self.begin_to_look_at(owner.uid, Unwatched { resource, name: name.to_owned(), path });
        }
        Ok(Owner::Is(OwnerState::Solid))
    }

    /// Tells users why an owner in another namespace does not count.
    fn say_where_it_is_not(&self, object: &Metadata<'_>, address: &Address, reference: &OwnerReference<'_>) {
        let Some(resource) = self.kinds.watched_as(address.resource) else { return };
        let namespace = object.namespace.as_str();
        let OwnerReference { api_version, kind, name, uid, .. } = reference;
        let (api_version, kind, name) = (api_version.as_str(), kind.as_str(), name.as_str());
        let message = format!(
            "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {uid}] does not exist in \
             namespace {namespace:?}"
        );
        let about = EventTarget {
            resource: fixed(&resource),
            key: ObjectKey::new(namespace, object.name.as_str()),
            uid: object.uid.clone(),
            resource_version: object.version(),
        };
        self.context.recorder.record(&about, EventType::Warning, INVALID_NAMESPACE, message, ENTRY.component);
    }
}

/// Whether an answer says of this object, and not of a path or a group, that it does not exist.
pub(super) fn is_about(error: &ApiError, resource: &DiscoveredResource, name: &str) -> bool {
    let Some(status) = error.status().filter(|status| status.code == 404) else { return false };
    status.details.as_ref().is_some_and(|details| {
        details.name == name && (details.kind == resource.plural || details.kind == resource.kind)
    })
}
