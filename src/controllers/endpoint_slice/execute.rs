//! The writes for one Service: its slices.

use serde_json::json;
use tokio::time::Instant;

use super::{ENTRY, EndpointSliceController};
use crate::engine::error::SyncError;
use crate::engine::execute::Written;
use crate::model::{EndpointSlice, ObjectKey, Record, Service};
use crate::plan::EventNote;
use crate::plan::endpointslice::{Create, FAILED, Plan, Update, Writes};
use crate::runtime::api::ApiError;
use crate::runtime::request::{self, PatchType};

impl EndpointSliceController {
    /// Executes the plan for a Service, counts it, and remembers it once all is written.
    pub(super) async fn carry_out(&self, service: &Service, plan: &Plan) -> Result<(), SyncError> {
        let result = self.write_all(service, plan).await;
        let metrics = &self.context.metrics.endpoint_slices;
        let label = if result.is_ok() { "success" } else { "error" };
        metrics.syncs.with_label_values(&[label]).inc();
        match result {
            Ok(()) => {
                for event in &plan.events {
                    self.context.record_event(ENTRY.component, service, event.clone());
                }
                self.count(service, plan);
                self.memory.keep(&service.meta.uid, plan.memory.clone());
                Ok(())
            }
            Err(error) => {
                if error.is_refusal() {
                    let key = &service.meta.key;
                    let message = format!("Error updating Endpoint Slices for Service {key}: {error}");
                    let note = EventNote::warning(FAILED, message);
                    self.context.record_event(ENTRY.component, service, note);
                }
                Err(error)
            }
        }
    }

    fn count(&self, service: &Service, plan: &Plan) {
        let metrics = &self.context.metrics.endpoint_slices;
        let topology = if service.is_topology_auto { "Auto" } else { "Disabled" };
        let distribution = service.traffic_distribution.filter(|_| !service.is_topology_auto);
        let distribution = distribution.map_or("", |distribution| distribution.as_str());
        let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        metrics.changed_per_sync.with_label_values(&[topology, distribution]).observe(count(plan.len()));
        metrics.added_per_sync.observe(count(plan.memory.counts.added));
        metrics.removed_per_sync.observe(count(plan.memory.counts.removed));
    }

    /// A refusal for one address type holds up no other. After a request without an answer nothing follows.
    async fn write_all(&self, service: &Service, plan: &Plan) -> Result<(), SyncError> {
        if plan.is_empty() {
            return Ok(());
        }
        self.memory.writes(&service.meta.uid, Instant::now());
        let mut first = None;
        for writes in &plan.by_type {
            match self.write(service, writes).await {
                Ok(()) => {}
                Err(error) if error.is_refusal() => drop(first.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        for slice in &plan.left_over {
            let what = || {
                let (name, key) = (&slice.meta.key.name, &service.meta.key);
                format!("error deleting {name} EndpointSlice for Service {key}")
            };
            match self.delete(service, slice, what).await {
                Ok(()) => {}
                Err(error) if error.is_refusal() => drop(first.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// The writes for one address type, up to the first that fails. In a namespace that is being deleted nothing is left to do.
    async fn write(&self, service: &Service, writes: &Writes) -> Result<(), SyncError> {
        let key = &service.meta.key;
        for create in &writes.creates {
            if !self.create(service, create).await? {
                return Ok(());
            }
        }
        for update in &writes.updates {
            self.update(service, update).await?;
        }
        for slice in &writes.deletes {
            let what = || {
                let name = &slice.meta.key.name;
                format!("failed to delete {name} EndpointSlice for Service {key}")
            };
            self.delete(service, slice, what).await?;
        }
        Ok(())
    }

    /// Creates a slice. `false` if its namespace is being deleted, or gone.
    async fn create(&self, service: &Service, create: &Create) -> Result<bool, SyncError> {
        let (context, meta) = (&self.context, &service.meta);
        let Create { name, body } = create;
        let what = || format!("failed to create EndpointSlice for Service {}", meta.key);
        let collection = EndpointSlice::RESOURCE.path(Some(&meta.key.namespace));
        let request = request::post(&collection, &[context.field_manager()], body)
            .map(request::metadata_only)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let still_wanted = || context.is_unchanged(&self.services, meta);
        let api = context.api_of_controller(&ENTRY, service);
        let error = match api.call_while::<Written>(request, still_wanted).await {
            Ok(written) => {
                let version = written.resource_version().unwrap_or(0);
                if let Some(uid) = written.uid() {
                    self.memory.wrote(&meta.uid, uid, version);
                }
                self.wrote(service, version, "create");
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
            return self.adopt_name(service, name, &collection).await.map(|()| true);
        }
        let error = SyncError::creation(what(), error);
        if error.may_have_happened() {
            context.in_doubt_writes.created(&meta.uid, name.clone());
        }
        Err(error)
    }

    /// The name of a new slice is taken. If the slice is of this Service, an earlier request has created it.
    async fn adopt_name(&self, service: &Service, name: &str, collection: &str) -> Result<(), SyncError> {
        let (context, uid) = (&self.context, &service.meta.uid);
        let api = context.api_of_controller(&ENTRY, service);
        let there = match context.read_by::<EndpointSlice>(&api, &format!("{collection}/{name}")).await {
            Ok(there) => there,
            Err(unread) => {
                context.in_doubt_writes.created(uid, name.to_owned());
                return Err(unread);
            }
        };
        context.expect_write(service, EndpointSlice::RESOURCE, there.meta.resource_version);
        if service.controls(&there.meta) {
            return Ok(());
        }
        Err(SyncError::NameTaken { name: name.to_owned() })
    }

    async fn update(&self, service: &Service, update: &Update) -> Result<(), SyncError> {
        let Update { slice, body } = update;
        let (context, key) = (&self.context, &slice.meta.key);
        let what = || format!("failed to update {} EndpointSlice for Service {}", key.name, service.meta.key);
        let query = [context.field_manager()];
        let kind = (PatchType::Merge, &query[..]);
        match context.patch_as::<EndpointSlice>(&ENTRY, service, what, key, kind, body).await {
            Ok(version) => {
                self.memory.wrote(&service.meta.uid, slice.meta.uid.clone(), version);
                self.wrote(service, version, "update");
                Ok(())
            }
            Err(error) => {
                self.is_in_doubt(service, key, &error);
                Err(error)
            }
        }
    }

    async fn delete(
        &self,
        service: &Service,
        slice: &EndpointSlice,
        what: impl Fn() -> String,
    ) -> Result<(), SyncError> {
        let (context, meta, owner) = (&self.context, &slice.meta, &service.meta.uid);
        self.memory.deletes(owner, meta.uid.clone());
        // A slice that was given to another writer meanwhile stays.
        let preconditions = json!({"uid": meta.uid, "resourceVersion": meta.resource_version.to_string()});
        let options = json!({"preconditions": preconditions});
        match context.delete_as(&ENTRY, service, slice, options).await {
            Ok(version) => {
                let resource = EndpointSlice::RESOURCE;
                context.expectations.expect_deletion(owner, resource, &meta.key, &meta.uid, version);
                context.metrics.endpoint_slices.changes.with_label_values(&["delete"]).inc();
                Ok(())
            }
            Err(error) => {
                let error = SyncError::api(what(), error);
                // Its next change is one by others.
                self.memory.wrote(owner, meta.uid.clone(), meta.resource_version);
                self.is_in_doubt(service, &meta.key, &error);
                Err(error)
            }
        }
    }

    fn wrote(&self, service: &Service, version: u64, operation: &str) {
        self.context.expect_write(service, EndpointSlice::RESOURCE, version);
        self.context.metrics.endpoint_slices.changes.with_label_values(&[operation]).inc();
    }

    /// A slice that may have been changed is read before the next decision.
    fn is_in_doubt(&self, service: &Service, slice: &ObjectKey, error: &SyncError) {
        if error.may_have_happened() {
            self.context.in_doubt_writes.created(&service.meta.uid, slice.name.to_string());
        }
    }
}
