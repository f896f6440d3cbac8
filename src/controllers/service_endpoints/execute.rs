//! The writes of the slices of one object.

use std::sync::Arc;

use prometheus::IntCounterVec;
use serde_json::json;
use tokio::time::Instant;

use super::memory::SyncMemory;
use crate::engine::context::Context;
use crate::engine::entry::ControllerEntry;
use crate::engine::error::SyncError;
use crate::engine::execute::Written;
use crate::metrics::Metrics;
use crate::model::{EndpointSlice, ObjectKey, Record};
use crate::plan::endpointslice::{Create, Memory, Plan, Update, Writes};
use crate::runtime::api::ApiError;
use crate::runtime::request::{self, PatchType};
use crate::runtime::store::Store;

/// Writes the slices of objects of one kind.
pub(in crate::controllers) struct SliceWriter<O: Record> {
    /// The state that all controllers share.
    pub context: Arc<Context>,
    /// The controller.
    pub entry: &'static ControllerEntry,
    /// The objects.
    pub owners: Arc<Store<O>>,
    /// The versions that were written.
    pub memory: Arc<SyncMemory<Memory>>,
    /// The counter of its writes, `{operation}`.
    pub changes: fn(&Metrics) -> &IntCounterVec,
}

impl<O: Record> SliceWriter<O> {
    /// Executes a plan. A refusal for one address type holds up no other. After a request without an answer nothing follows.
    ///
    /// # Errors
    /// When a write fails, or its outcome is unknown.
    pub(in crate::controllers) async fn write_all(&self, owner: &O, plan: &Plan) -> Result<(), SyncError> {
        let mut first = None;
        for writes in &plan.by_type {
            match self.write(owner, writes).await {
                Ok(()) => {}
                Err(error) if error.is_refusal() => drop(first.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        for slice in &plan.left_over {
            let what = || {
                let (name, of) = (&slice.meta.key.name, of(owner));
                format!("error deleting {name} EndpointSlice for {of}")
            };
            match self.delete(owner, slice, what).await {
                Ok(()) => {}
                Err(error) if error.is_refusal() => drop(first.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Deletes a slice whose owner does not exist.
    ///
    /// # Errors
    /// When the deletion fails, or its outcome is unknown.
    pub(in crate::controllers) async fn delete_left_over(
        &self,
        slice: &EndpointSlice,
    ) -> Result<(), SyncError> {
        let (context, meta) = (&self.context, &slice.meta);
        let preconditions = json!({"uid": meta.uid, "resourceVersion": meta.resource_version.to_string()});
        let options = json!({"preconditions": preconditions});
        match context.delete_as(self.entry, slice, slice, options).await {
            Ok(_) => {
                self.count("delete");
                Ok(())
            }
            Err(error) => Err(SyncError::api(format!("deleting EndpointSlice {}", meta.key), error)),
        }
    }

    /// The writes for one address type, up to the first that fails. In a namespace that is being deleted nothing is left to do.
    async fn write(&self, owner: &O, writes: &Writes) -> Result<(), SyncError> {
        for create in &writes.creates {
            if !self.create(owner, create).await? {
                return Ok(());
            }
        }
        for update in &writes.updates {
            self.update(owner, update).await?;
        }
        for slice in &writes.deletes {
            let what = || {
                let (name, of) = (&slice.meta.key.name, of(owner));
                format!("failed to delete {name} EndpointSlice for {of}")
            };
            self.delete(owner, slice, what).await?;
        }
        Ok(())
    }

    /// Creates a slice. `false` if its namespace is being deleted, or gone.
    async fn create(&self, owner: &O, create: &Create) -> Result<bool, SyncError> {
        let (context, meta) = (&self.context, owner.meta());
        let Create { name, body } = create;
        let what = || format!("failed to create EndpointSlice for {}", of(owner));
        let collection = EndpointSlice::RESOURCE.path(Some(&meta.key.namespace));
        let request = request::post(&collection, &[context.field_manager()], body)
            .map(request::metadata_only)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let still_wanted = || context.is_unchanged(&self.owners, meta);
        let api = context.api_of_controller(self.entry, owner);
        let error = match api.call_while::<Written>(request, still_wanted).await {
            Ok(written) => {
                let version = written.resource_version().unwrap_or(0);
                if let Some(uid) = written.uid() {
                    self.memory.wrote(&meta.uid, uid, version);
                }
                self.wrote(owner, version, "create");
                context.recreate_guard.created(meta, Instant::now());
                return Ok(true);
            }
            // A change has put the key into the queue; a daemon that shuts down starts nothing new.
            Err(ApiError::NotSent(_)) if !still_wanted() => {
                return Err(SyncError::Overtaken { what: what() });
            }
            Err(error) => error,
        };
        if error.is_namespace_terminating() || error.is_namespace_missing() {
            tracing::debug!(key = %meta.key, %error, "nothing to create");
            return Ok(false);
        }
        if error.is_already_exists() {
            return self.adopt_name(owner, name, &collection).await.map(|()| true);
        }
        let error = SyncError::creation(what(), error);
        if error.may_have_happened() {
            context.in_doubt_writes.created(&meta.uid, name.clone());
        }
        Err(error)
    }

    /// The name of a new slice is taken. If the slice is of this object, an earlier request has created it.
    async fn adopt_name(&self, owner: &O, name: &str, collection: &str) -> Result<(), SyncError> {
        let (context, uid) = (&self.context, &owner.meta().uid);
        let api = context.api_of_controller(self.entry, owner);
        let there = match context.read_by::<EndpointSlice>(&api, &format!("{collection}/{name}")).await {
            Ok(there) => there,
            Err(unread) => {
                context.in_doubt_writes.created(uid, name.to_owned());
                return Err(unread);
            }
        };
        context.expect_write(owner, EndpointSlice::RESOURCE, there.meta.resource_version);
        if owner.controls(&there.meta) {
            return Ok(());
        }
        Err(SyncError::NameTaken { name: name.to_owned() })
    }

    async fn update(&self, owner: &O, update: &Update) -> Result<(), SyncError> {
        let Update { slice, body } = update;
        let (context, key) = (&self.context, &slice.meta.key);
        let what = || format!("failed to update {} EndpointSlice for {}", key.name, of(owner));
        let query = [context.field_manager()];
        let kind = (PatchType::Merge, &query[..]);
        match context.patch_as::<EndpointSlice>(self.entry, owner, what, key, kind, body).await {
            Ok(version) => {
                self.memory.wrote(&owner.meta().uid, slice.meta.uid.clone(), version);
                self.wrote(owner, version, "update");
                Ok(())
            }
            Err(error) => {
                self.is_in_doubt(owner, key, &error);
                Err(error)
            }
        }
    }

    async fn delete(
        &self,
        owner: &O,
        slice: &EndpointSlice,
        what: impl Fn() -> String,
    ) -> Result<(), SyncError> {
        let (context, meta, uid) = (&self.context, &slice.meta, &owner.meta().uid);
        self.memory.deletes(uid, meta.uid.clone());
        // A slice that was given to another writer meanwhile stays.
        let preconditions = json!({"uid": meta.uid, "resourceVersion": meta.resource_version.to_string()});
        let options = json!({"preconditions": preconditions});
        match context.delete_as(self.entry, owner, slice, options).await {
            Ok(version) => {
                let resource = EndpointSlice::RESOURCE;
                context.expectations.expect_deletion(uid, resource, &meta.key, &meta.uid, version);
                self.count("delete");
                Ok(())
            }
            Err(error) => {
                let error = SyncError::api(what(), error);
                // Its next change is one by others.
                self.memory.wrote(uid, meta.uid.clone(), meta.resource_version);
                self.is_in_doubt(owner, &meta.key, &error);
                Err(error)
            }
        }
    }

    fn wrote(&self, owner: &O, version: u64, operation: &str) {
        self.context.expect_write(owner, EndpointSlice::RESOURCE, version);
        self.count(operation);
    }

    fn count(&self, operation: &str) {
        (self.changes)(&self.context.metrics).with_label_values(&[operation]).inc();
    }

    /// A slice that may have been changed is read before the next decision.
    fn is_in_doubt(&self, owner: &O, slice: &ObjectKey, error: &SyncError) {
        if error.may_have_happened() {
            self.context.in_doubt_writes.created(&owner.meta().uid, slice.name.to_string());
        }
    }
}

/// An object in the words of upstream's errors: `Service shop/web`.
fn of<O: Record>(owner: &O) -> String {
    format!("{} {}", O::RESOURCE.kind, owner.meta().key)
}
