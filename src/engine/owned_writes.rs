//! Writes in a sync of an owner, by a controller that shares the kind of its keys with others.

use serde::Serialize;
use serde_json::Value;

use super::context::Context;
use super::entry::ControllerEntry;
use super::error::SyncError;
use super::execute::Written;
use crate::model::{ObjectKey, Record};
use crate::runtime::api::ApiError;
use crate::runtime::request::{self, PatchType};

impl Context {
    /// Creates an object in a namespace, in a sync of that namespace. One of that name that exists counts as created, and in a namespace that is
    /// being deleted, or is gone, nothing is left to do: neither is an error.
    ///
    /// # Errors
    /// When the creation fails otherwise, or its outcome is unknown.
    pub(crate) async fn create_in<T: Record>(
        &self,
        entry: &ControllerEntry,
        namespace: &impl Record,
        body: &Value,
    ) -> Result<(), SyncError> {
        let resource = T::RESOURCE;
        let what =
            || format!("creating {} {}/{}", resource.kind, namespace.meta().key, body["metadata"]["name"]);
        let collection = resource.path(Some(&namespace.meta().key.name));
        let request = request::post(&collection, &[self.field_manager()], body)
            .map(request::metadata_only)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        match self.api_of_controller(entry, namespace).call::<Written>(request).await {
            Ok(written) => {
                self.expect_write(namespace, resource, written.resource_version().unwrap_or(0));
                Ok(())
            }
            Err(error)
                if error.is_already_exists() || error.is_namespace_terminating() || error.is_not_found() =>
            {
                tracing::debug!(key = %namespace.meta().key, kind = resource.kind, %error, "nothing to create");
                Ok(())
            }
            Err(error) => Err(SyncError::creation(what(), error)),
        }
    }

    /// Merges this into an object, in a sync of this owner. An object that does not exist needs nothing.
    ///
    /// # Errors
    /// When the write fails, or its outcome is unknown.
    pub(crate) async fn merge_as<T: Record>(
        &self,
        entry: &ControllerEntry,
        owner: &impl Record,
        key: &ObjectKey,
        body: &Value,
    ) -> Result<(), SyncError> {
        let resource = T::RESOURCE;
        let what = || format!("changing {} {key}", resource.kind);
        let query = [self.field_manager()];
        match self.patch_as::<T>(entry, owner, what, key, (PatchType::Merge, &query), body).await {
            Ok(version) => {
                self.expect_write(owner, resource, version);
                Ok(())
            }
            Err(SyncError::Gone { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object with these options, in a sync of this owner. The answer is the version of a deletion that has begun. An object
    /// that does not exist counts as deleted.
    ///
    /// # Errors
    /// When the deletion fails, or its outcome is unknown.
    pub(crate) async fn delete_as<T: Record>(
        &self,
        entry: &ControllerEntry,
        owner: &impl Record,
        object: &T,
        mut options: Value,
    ) -> Result<Option<u64>, ApiError> {
        options["apiVersion"] = "v1".into();
        options["kind"] = "DeleteOptions".into();
        let request = request::delete(&T::RESOURCE.path_of(&object.meta().key), &[], &options)
            .map(request::metadata_only)
            .map_err(ApiError::Decode)?;
        match self.api_of_controller(entry, owner).call::<Written>(request).await {
            Ok(written) => Ok(written.deletion_version()),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Sends a patch in a sync of this owner; the answer is the resourceVersion that the cache must reach.
    ///
    /// # Errors
    /// When the write fails, or its outcome is unknown.
    pub(crate) async fn patch_as<T: Record>(
        &self,
        entry: &ControllerEntry,
        owner: &impl Record,
        what: impl Fn() -> String,
        key: &ObjectKey,
        (kind, query): (PatchType, &[(&str, &str)]),
        body: &impl Serialize,
    ) -> Result<u64, SyncError> {
        self.patch_at(entry, owner, what, &T::RESOURCE.path_of(key), (kind, query), body).await
    }

    /// The same for the status (strategic merge patch).
    ///
    /// # Errors
    /// When the write fails, or its outcome is unknown.
    pub(crate) async fn patch_status_as<T: Record>(
        &self,
        entry: &ControllerEntry,
        owner: &impl Record,
        what: impl Fn() -> String,
        key: &ObjectKey,
        body: &impl Serialize,
    ) -> Result<u64, SyncError> {
        let (path, query) = (T::RESOURCE.path_of(key) + "/status", [self.field_manager()]);
        self.patch_at(entry, owner, what, &path, (PatchType::Strategic, &query), body).await
    }

    async fn patch_at(
        &self,
        entry: &ControllerEntry,
        owner: &impl Record,
        what: impl Fn() -> String,
        path: &str,
        (kind, query): (PatchType, &[(&str, &str)]),
        body: &impl Serialize,
    ) -> Result<u64, SyncError> {
        let request = request::patch(path, query, kind, body)
            .map(request::metadata_only)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let written: Written = self
            .api_of_controller(entry, owner)
            .call(request)
            .await
            .map_err(|error| SyncError::api(what(), error))?;
        Ok(written.resource_version().unwrap_or(0))
    }
}
