//! All writes of Windlass to workloads pass through here, except for the creations, which are in the `execute`
//! modules of the controllers.
//!
//! A write names us as the field manager, carries the version that it was computed from, and when it has succeeded,
//! records what the caches must show before the next decision about its owner.

use serde::{Deserialize as _, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::context::Context;
use super::error::SyncError;
use crate::model::{Meta, Record, Resource, Uid};
use crate::plan::OwnerReference;
use crate::runtime::api::ApiError;
use crate::runtime::request::{self, PatchType};
use crate::runtime::store::Store;

/// The field manager, for `managedFields`.
pub const FIELD_MANAGER: &str = "windlass";

/// How many creations or deletions of one batch are in flight at once. The client's rate limiter delays
/// them anyway; this bounds the memory and the connections of a batch of 500.
pub(crate) const AT_ONCE: usize = 32;

/// The metadata of an answer, as far as it is decoded.
#[derive(serde::Deserialize)]
pub(crate) struct Written {
    metadata: Option<WrittenMeta>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMeta {
    uid: Option<String>,
    resource_version: Option<String>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

impl Written {
    pub(crate) fn resource_version(&self) -> Option<u64> {
        self.metadata.as_ref()?.resource_version.as_ref()?.parse().ok()
    }

    /// The identity of what was written.
    pub(crate) fn uid(&self) -> Option<Uid> {
        self.metadata.as_ref()?.uid.as_deref().map(Uid::new)
    }

    /// The version of a deletion that has begun. An object that is removed at once is returned as it was, from
    /// older servers with the version that it had: that version does not tell when it was removed.
    pub(crate) fn deletion_version(&self) -> Option<u64> {
        self.metadata.as_ref()?.deletion_timestamp.as_ref()?;
        self.resource_version()
    }
}

pub(crate) fn path(resource: Resource, object: &Meta) -> String {
    resource.path_of(&object.key)
}

pub(crate) fn owner_of<'a, T: Record>(owner: &'a T, api_version: &'a str) -> OwnerReference<'a> {
    let meta = owner.meta();
    OwnerReference::controller(api_version, T::RESOURCE.kind, &meta.key.name, &meta.uid)
}

/// Adopts an object (strategic merge: the list of owners is merged by UID).
fn adoption(object: &Meta, owner: &OwnerReference<'_>) -> Value {
    json!({"metadata": {
        "uid": object.uid,
        "resourceVersion": object.resource_version.to_string(),
        "ownerReferences": [owner],
    }})
}

/// Releases an object; its other owners stay.
fn release_of(object: &Meta, owner: &Uid) -> Value {
    json!({"metadata": {
        "uid": object.uid,
        "resourceVersion": object.resource_version.to_string(),
        "ownerReferences": [{"$patch": "delete", "uid": owner}],
    }})
}

impl Context {
    /// The field manager, as a query parameter.
    pub(crate) fn field_manager(&self) -> (&'static str, &str) {
        ("fieldManager", &self.settings.field_manager)
    }

    /// Sends a patch in a sync of this owner; the answer's resourceVersion is what the cache must reach.
    ///
    /// # Errors
    /// When the write fails, or its outcome is unknown.
    pub async fn patch(
        &self,
        owner: &impl Record,
        what: impl Fn() -> String,
        path: &str,
        kind: PatchType,
        body: &impl Serialize,
    ) -> Result<u64, SyncError> {
        let request = request::patch(path, &[self.field_manager()], kind, body)
            .map(request::metadata_only)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let written: Written =
            self.api_for(owner).call(request).await.map_err(|error| SyncError::api(what(), error))?;
        Ok(written.resource_version().unwrap_or(0))
    }

    /// Whether the cache still shows an owner as it was at the decision, and the daemon is not shutting down.
    pub(crate) fn is_unchanged<T: Record>(&self, owners: &Store<T>, owner: &Meta) -> bool {
        let Meta { key, uid, generation, .. } = owner;
        let now = owners.get(key).filter(|_| !self.draining.is_cancelled());
        now.is_some_and(|now| (&now.meta().uid, &now.meta().generation) == (uid, generation))
    }

    pub(crate) async fn adopt<O: Record, T: Record>(&self, owner: &O, object: &T) -> Result<(), SyncError> {
        let api_version = O::RESOURCE.api_version();
        let body = adoption(object.meta(), &owner_of(owner, &api_version));
        let what = || format!("adopting {} {}", T::RESOURCE.kind, object.meta().key);
        let version =
            self.patch(owner, what, &path(T::RESOURCE, object.meta()), PatchType::Strategic, &body).await?;
        self.expectations.expect_write(&owner.meta().uid, T::RESOURCE, version);
        Ok(())
    }

    pub(crate) async fn release<O: Record, T: Record>(&self, owner: &O, object: &T) -> Result<(), SyncError> {
        let body = release_of(object.meta(), &owner.meta().uid);
        let what = || format!("releasing {} {}", T::RESOURCE.kind, object.meta().key);
        match self.patch(owner, what, &path(T::RESOURCE, object.meta()), PatchType::Strategic, &body).await {
            Ok(version) => self.expectations.expect_write(&owner.meta().uid, T::RESOURCE, version),
            // A deleted object needs no release.
            Err(SyncError::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Deletes exactly the observed object. One that does not exist counts as deleted; another object of the same
    /// name is a conflict.
    pub(crate) async fn delete_while<T: Record>(
        &self,
        owner: &impl Record,
        object: &T,
        preconditions: Value,
        still_wanted: impl Fn() -> bool,
    ) -> Result<(), ApiError> {
        let preconditions = if planted!("deletions carry no UID") { Value::Null } else { preconditions };
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        let request = request::delete(&path(T::RESOURCE, object.meta()), &[], &options)
            .map(request::metadata_only)
            .map_err(ApiError::Decode)?;
        let version = match self.api_for(owner).call_while::<Written>(request, still_wanted).await {
            Ok(written) => written.deletion_version(),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let meta = object.meta();
        self.expectations.expect_deletion(&owner.meta().uid, T::RESOURCE, &meta.key, &meta.uid, version);
        Ok(())
    }
}

/// A body that is JSON already, to be sent as it is.
pub(crate) fn raw(json: Vec<u8>) -> Result<Box<RawValue>, serde_json::Error> {
    Box::<RawValue>::deserialize(&mut serde_json::Deserializer::from_slice(&json))
}

/// The error of concurrent calls: one without a conclusive answer before a refusal, because nothing may follow it.
pub(crate) fn first_open(errors: impl IntoIterator<Item = SyncError>) -> Option<SyncError> {
    let mut errors: Vec<SyncError> = errors.into_iter().collect();
    let first = errors.iter().position(|error| !error.is_refusal()).unwrap_or(0);
    (!errors.is_empty()).then(|| errors.swap_remove(first))
}

/// The result of concurrent calls: where several failed, a refusal before an unknown outcome, because the status
/// reports it.
pub(crate) fn first_refusal(results: Vec<Result<(), SyncError>>) -> Result<(), SyncError> {
    let mut errors: Vec<SyncError> = results.into_iter().filter_map(Result::err).collect();
    let first = errors.iter().position(SyncError::is_refusal).unwrap_or(0);
    if errors.is_empty() { Ok(()) } else { Err(errors.swap_remove(first)) }
}
