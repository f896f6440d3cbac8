//! The writes of controllers whose objects are no workloads: what namespaces, volumes and roles need.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::context::Context;
use super::error::SyncError;
use super::execute::Written;
use super::registry::ControllerEntry;
use crate::model::{ClusterRole, Namespace, ObjectKey, Record};
use crate::runtime::request::{self, PatchType};

/// A ClusterRole as it is applied: its rules, and nothing else.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Applied<'a> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Value,
    rules: Vec<Box<RawValue>>,
}

impl Context {
    /// Creates an object in a namespace. One of that name that exists counts as created, and in a namespace that is
    /// being deleted, or is gone, nothing is left to do: neither is an error.
    ///
    /// # Errors
    /// When the creation fails otherwise, or its outcome is unknown.
    pub(super) async fn create_in<T: Record>(
        &self,
        entry: &ControllerEntry,
        namespace: &Namespace,
        body: &Value,
    ) -> Result<(), SyncError> {
        let resource = T::RESOURCE;
        let what =
            || format!("creating {} {}/{}", resource.kind, namespace.meta.key, body["metadata"]["name"]);
        let collection = resource.path(Some(&namespace.meta.key.name));
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
                tracing::debug!(key = %namespace.meta.key, kind = resource.kind, %error, "nothing to create");
                Ok(())
            }
            Err(error) => Err(SyncError::creation(what(), error)),
        }
    }

    /// Merges this into an object, in a sync of this owner. An object that does not exist needs nothing.
    ///
    /// # Errors
    /// When the write fails, or its outcome is unknown.
    pub(super) async fn merge_as<T: Record>(
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

    /// Gives a role these rules, whoever else has written them. Where the API server has no server-side apply, they are
    /// merged (upstream: `syncClusterRole`).
    ///
    /// # Errors
    /// When the write fails, or its outcome is unknown.
    pub(super) async fn apply_rules(
        &self,
        entry: &ControllerEntry,
        role: &ClusterRole,
        rules: &[Arc<str>],
    ) -> Result<(), SyncError> {
        let (meta, resource) = (&role.meta, ClusterRole::RESOURCE);
        let what = || format!("aggregating the rules of {} {}", resource.kind, meta.key);
        let raw = rules.iter().map(|rule| RawValue::from_string(rule.to_string()));
        let rules: Vec<Box<RawValue>> =
            raw.collect::<Result<_, _>>().map_err(|error| SyncError::Json { what: what(), error })?;
        let body = Applied {
            api_version: &resource.api_version(),
            kind: resource.kind,
            // With the UID, an object that was deleted meanwhile is not created again.
            metadata: json!({"name": meta.key.name, "uid": meta.uid}),
            rules,
        };
        let manager = [("fieldManager", entry.component), ("force", "true")];
        let applied = (PatchType::Apply, &manager[..]);
        let version = match self.patch_as::<ClusterRole>(entry, role, what, &meta.key, applied, &body).await {
            Err(SyncError::Refused { error, .. }) if error.is_unsupported_media_type() => {
                let metadata = json!({"uid": meta.uid, "resourceVersion": meta.resource_version.to_string()});
                let body = json!({"metadata": metadata, "rules": body.rules});
                let merged = (PatchType::Merge, &manager[..1]);
                self.patch_as::<ClusterRole>(entry, role, what, &meta.key, merged, &body).await?
            }
            other => other?,
        };
        self.expect_write(role, resource, version);
        Ok(())
    }

    async fn patch_as<T: Record>(
        &self,
        entry: &ControllerEntry,
        owner: &impl Record,
        what: impl Fn() -> String,
        key: &ObjectKey,
        (kind, query): (PatchType, &[(&str, &str)]),
        body: &impl Serialize,
    ) -> Result<u64, SyncError> {
        let request = request::patch(&T::RESOURCE.path_of(key), query, kind, body)
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
