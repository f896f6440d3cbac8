//! The requests of the garbage collector: reads of what it is about to change, deletions and patches.
//!
//! Each write carries the UID of its object, and the version or, where it does not depend on one, what it removes.

use bytes::Bytes;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::Collector;
use super::owners::is_about;
use crate::engine::error::SyncError;
use crate::model::discovered::{DiscoveredResource, is_path_segment};
use crate::model::metadata::{Metadata, OwnerReference};
use crate::model::{ObjectKey, Uid};
use crate::plan::garbage::decision::Policy;
use crate::plan::garbage::graph::Address;
use crate::plan::garbage::patch::{self, Change};
use crate::runtime::api::{Api, ApiError};
use crate::runtime::leader_election::LEASES;
use crate::runtime::request::{self, PatchType};

/// How often a write is computed again after a conflict, in one sync.
const ATTEMPTS: usize = 4;

/// An object that can be asked for.
pub(super) struct Target {
    pub(super) resource: DiscoveredResource,
    name: String,
    pub(super) path: String,
}

impl Target {
    fn what(&self, doing: &str) -> String {
        format!("{doing} {}", self.path)
    }

    fn failed(&self, doing: &str, error: ApiError) -> SyncError {
        SyncError::api(self.what(doing), error)
    }

    pub(super) fn malformed(&self, doing: &str, error: serde_json::Error) -> SyncError {
        SyncError::Json { what: self.what(doing), error }
    }
}

impl Collector {
    /// `None` if its resource is not watched any more: then it is out of reach.
    pub(super) fn target(&self, address: &Address) -> Option<Target> {
        let resource = self.kinds.watched_as(address.resource)?;
        let Address { namespace, name, .. } = address;
        let namespace = resource.namespaced.then_some(namespace.as_str());
        let path = format!("{}/{name}", resource.path(namespace));
        is_path_segment(name).then(|| Target { resource, name: name.clone(), path })
    }

    fn api_for(&self, uid: &Uid) -> Api {
        self.api.on_behalf_of(uid)
    }

    /// The metadata of an object as the API server has it now; `None` if there is none with this UID.
    pub(super) async fn read(&self, uid: &Uid, target: &Target) -> Result<Option<Value>, SyncError> {
        let request = request::get_as(request::METADATA, &target.path, &[]);
        match self.api_for(uid).call::<Object>(request).await {
            Ok(object) => Ok(Some(object.into_value()).filter(|object| is_of(object, uid))),
            Err(error) if is_about(&error, &target.resource, &target.name) => Ok(None),
            Err(error) => Err(SyncError::creation(target.what("reading"), error)),
        }
        .inspect(|object| {
            if object.is_none() {
                self.outdate(uid);
            }
        })
    }

    /// The API server has, or is about to have, another state of an object than its watch has shown.
    pub(super) fn outdate(&self, uid: &Uid) {
        self.graph.lock().outdate(uid);
    }

    /// The same as it arrived, whatever its UID is: an object may have ten thousand references, and needs to be there once.
    pub(super) async fn read_body(&self, uid: &Uid, target: &Target) -> Result<Option<Bytes>, SyncError> {
        let request = request::get_as(request::METADATA, &target.path, &[]);
        match self.api_for(uid).call_bytes(request).await {
            Ok(body) => Ok(Some(body)),
            Err(error) if is_about(&error, &target.resource, &target.name) => Ok(None),
            Err(error) => Err(SyncError::creation(target.what("reading"), error)),
        }
    }

    pub(super) async fn delete(
        &self,
        uid: &Uid,
        target: &Target,
        version: Option<&str>,
        policy: Policy,
    ) -> Result<(), SyncError> {
        let mut preconditions = json!({ "uid": uid });
        if planted!("deletions by the collector carry no UID") {
            preconditions = json!({});
        }
        if let Some(version) = version {
            preconditions["resourceVersion"] = version.into();
        }
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy.name(),
                             "preconditions": preconditions});
        let request = request::delete(&target.path, &[], &options)
            .map_err(|error| target.malformed("deleting", error))?;
        self.outdate(uid);
        let deletions = &self.context.metrics().garbage.deletions;
        let count = |result| deletions.with_label_values(&[result]).inc();
        match self.api_for(uid).call::<IgnoredAny>(request::metadata_only(request)).await {
            Ok(_) => count("deleted"),
            Err(error) if is_about(&error, &target.resource, &target.name) => {
                count("gone");
                return Ok(());
            }
            Err(error) => {
                count(if error.is_conflict() { "conflict" } else { "failed" });
                return Err(target.failed("deleting", error));
            }
        }
        tracing::debug!(object = target.path, %uid, policy = policy.name(), "deleted an object without an owner");
        Ok(())
    }

    /// The Lease on which the record is; `None` if it does not exist.
    pub(super) async fn read_lease(&self, lease: &ObjectKey) -> Result<Option<Value>, ApiError> {
        match self.api.call(request::get(&LEASES.path_of(lease), &[])).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes it back at the version that was read, or creates it.
    pub(super) async fn write_lease(&self, lease: &ObjectKey, mut object: Value) -> Result<(), ApiError> {
        let request = match object["metadata"]["resourceVersion"].is_string() {
            true => request::put(&LEASES.path_of(lease), &[], &object),
            false => {
                object["metadata"]["name"] = (&*lease.name).into();
                object["metadata"]["namespace"] = (&*lease.namespace).into();
                (object["apiVersion"], object["kind"]) = (LEASES.api_version().into(), LEASES.kind.into());
                request::post(&LEASES.path(Some(&lease.namespace)), &[], &object)
            }
        };
        let request = request.map_err(ApiError::Decode)?;
        self.api.call::<IgnoredAny>(request).await.map(|_| ())
    }

    /// Lets an object no longer block the owners that wait, through others, for itself.
    pub(super) async fn unblock(
        &self,
        uid: &Uid,
        address: &Address,
        owners: &[Uid],
    ) -> Result<(), SyncError> {
        let Some(target) = self.target(address) else { return Ok(()) };
        tracing::info!(object = target.path, %uid, "objects wait for each other's deletion; this one stops blocking it");
        self.change_references(uid, &target, owners, Change::Unblock).await
    }

    /// Changes the references to these owners.
    pub(super) async fn change_references(
        &self,
        uid: &Uid,
        target: &Target,
        owners: &[Uid],
        change: Change,
    ) -> Result<(), SyncError> {
        let body = match change {
            Change::Remove => patch::without_references(uid, owners),
            Change::Unblock => patch::without_blocking(uid, owners),
        };
        // An object without a UID is named by its version, which only the other form has.
        if !is_of(&Value::Null, uid) {
            match self.send(uid, target, PatchType::Strategic, &body).await {
                Err(SyncError::Refused { error, .. }) if error.is_unsupported_media_type() => {}
                result => return result,
            }
        }
        for _ in 1..ATTEMPTS {
            let Some(object) = self.read(uid, target).await? else { return Ok(()) };
            let Some(body) = patch::as_merge_patch(&object, owners, change) else { return Ok(()) };
            match self.send(uid, target, PatchType::Merge, &body).await {
                Err(SyncError::Conflict { .. }) => {}
                result => return result,
            }
        }
        let Some(object) = self.read(uid, target).await? else { return Ok(()) };
        let Some(body) = patch::as_merge_patch(&object, owners, change) else { return Ok(()) };
        self.send(uid, target, PatchType::Merge, &body).await
    }

    /// Removes references that were judged as `live` has them. One that somebody corrects meanwhile may lead to a living
    /// owner: the patch is for that version or, after a conflict, for one with the same references.
    pub(super) async fn drop_references(
        &self,
        uid: &Uid,
        target: &Target,
        owners: &[Uid],
        live: &Metadata<'_>,
    ) -> Result<(), SyncError> {
        let version = live.resource_version.as_str();
        if version.is_empty() {
            return self.change_references(uid, target, owners, Change::Remove).await;
        }
        let mut body = patch::without_references(uid, owners);
        body["metadata"]["resourceVersion"] = version.into();
        let mut result = self.send(uid, target, PatchType::Strategic, &body).await;
        for _ in 0..ATTEMPTS {
            match &result {
                Err(SyncError::Conflict { .. }) => {}
                Err(SyncError::Refused { error, .. }) if error.is_unsupported_media_type() => {}
                _ => break,
            }
            let Some(object) = self.read(uid, target).await? else { return Ok(()) };
            if !has_the_references_of(&object, live) {
                // The watch shows the others, and they are judged then.
                self.outdate(uid);
                return Ok(());
            }
            let Some(body) = patch::as_merge_patch(&object, owners, Change::Remove) else { return Ok(()) };
            result = self.send(uid, target, PatchType::Merge, &body).await;
        }
        result
    }

    /// Sends a patch. An object that does not exist needs none; neither does another that has its name, which the API
    /// server says by refusing a change of the UID.
    async fn send(&self, uid: &Uid, target: &Target, kind: PatchType, body: &Value) -> Result<(), SyncError> {
        let request = request::patch(&target.path, &[self.context.field_manager()], kind, body)
            .map_err(|error| target.malformed("patching", error))?;
        self.outdate(uid);
        match self.api_for(uid).call::<IgnoredAny>(request::metadata_only(request)).await {
            Ok(_) => Ok(()),
            Err(error) if is_about(&error, &target.resource, &target.name) => Ok(()),
            Err(error) if error.is_invalid() => match self.read(uid, target).await? {
                None => Ok(()),
                Some(_) => Err(target.failed("patching", error)),
            },
            Err(error) => Err(target.failed("patching", error)),
        }
    }

    /// Removes one of the two finalizers from an object that is being deleted.
    pub(super) async fn remove_finalizer(
        &self,
        uid: &Uid,
        target: &Target,
        finalizer: &str,
    ) -> Result<(), SyncError> {
        let mut result = Ok(());
        for _ in 0..ATTEMPTS {
            let Some(object) = self.read(uid, target).await? else { return Ok(()) };
            let is_deleting = object["metadata"]["deletionTimestamp"].is_string();
            let body = patch::without_finalizer(&object, finalizer).filter(|_| is_deleting);
            let Some(body) = body else {
                self.outdate(uid);
                return Ok(());
            };
            result = self.send(uid, target, PatchType::Merge, &body).await;
            if !matches!(result, Err(SyncError::Conflict { .. })) {
                break;
            }
        }
        result
    }
}

/// An object, as far as a write of ours depends on it. The rest is skipped and not decoded: `managedFields` of a custom
/// resource can be nested more deeply than a decoder of values goes.
#[derive(Deserialize)]
struct Object {
    metadata: ObjectMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectMetadata {
    name: Option<Value>,
    namespace: Option<Value>,
    uid: Option<Value>,
    resource_version: Option<Value>,
    deletion_timestamp: Option<Value>,
    finalizers: Option<Value>,
    owner_references: Option<Value>,
}

impl Object {
    /// The same as a value, with what is absent left out.
    fn into_value(self) -> Value {
        let ObjectMetadata {
            name,
            namespace,
            uid,
            resource_version,
            deletion_timestamp,
            finalizers,
            owner_references,
        } = self.metadata;
        let fields = [
            ("name", name),
            ("namespace", namespace),
            ("uid", uid),
            ("resourceVersion", resource_version),
            ("deletionTimestamp", deletion_timestamp),
            ("finalizers", finalizers),
            ("ownerReferences", owner_references),
        ];
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        json!({ "metadata": fields.collect::<Map<_, _>>() })
    }
}

/// Whether an object refers to the same owners in the same words, whether they are blocked or not.
fn has_the_references_of(object: &Value, live: &Metadata<'_>) -> bool {
    let now = object["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    let is_same = |(now, then): (&Value, &OwnerReference<'_>)| {
        let claim = ["apiVersion", "kind", "name"].map(|field| now[field].as_str().unwrap_or_default());
        claim == [&then.api_version, &then.kind, &then.name].map(|text| text.as_str())
            && Uid::new(now["uid"].as_str().unwrap_or_default()) == then.uid
    };
    now.len() == live.owners.len() && now.iter().zip(&live.owners).all(is_same)
}

fn is_of(object: &Value, uid: &Uid) -> bool {
    Uid::new(object["metadata"]["uid"].as_str().unwrap_or_default()) == *uid
}
