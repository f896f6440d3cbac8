//! The one write for a Service: its Endpoints.

use serde_json::{Value, json};

use super::{ENTRY, EndpointsController};
use crate::engine::error::SyncError;
use crate::engine::execute::Written;
use crate::model::{Endpoints, Record, Service, Uid};
use crate::plan::endpoints::{Plan, Write};
use crate::runtime::api::ApiError;
use crate::runtime::events::{EventTarget, EventType};
use crate::runtime::request::{self, PatchType};

impl EndpointsController {
    /// Executes the plan for a Service, and remembers it once all is written.
    pub(super) async fn carry_out(&self, service: &Service, plan: &Plan) -> Result<(), SyncError> {
        let uid = &service.meta.uid;
        if plan.write.is_some() {
            self.pods.writes(uid);
        }
        match &plan.write {
            None => {}
            Some(Write::Create(body)) => self.create(service, body).await?,
            Some(Write::Update(there, body)) => self.update(service, there, body).await?,
        }
        self.memory.keep(uid, plan.trigger_times.clone());
        Ok(())
    }

    /// Creates the Endpoints. In a namespace that is being deleted, or gone, nothing is left to do.
    async fn create(&self, service: &Service, body: &Value) -> Result<(), SyncError> {
        let (context, meta) = (&self.context, &service.meta);
        let what = || format!("creating Endpoints {}", meta.key);
        let collection = Endpoints::RESOURCE.path(Some(&meta.key.namespace));
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
                context.expect_write(service, Endpoints::RESOURCE, version);
                return Ok(());
            }
            Err(ApiError::NotSent(_)) if !still_wanted() => {
                return Err(SyncError::Overtaken { what: what() });
            }
            Err(error) => error,
        };
        if error.is_namespace_terminating() || error.is_namespace_missing() {
            tracing::debug!(key = %meta.key, %error, "nothing to create");
            return Ok(());
        }
        if error.is_already_exists() {
            // The cache will show them: of an earlier attempt, or of another writer.
            let path = Endpoints::RESOURCE.path_of(&meta.key);
            let there = context.read_by::<Endpoints>(&api, &path).await?;
            context.expect_write(service, Endpoints::RESOURCE, there.meta.resource_version);
            return Err(SyncError::Overtaken { what: what() });
        }
        let error = SyncError::creation(what(), error);
        let about = (service, Uid::new(""), None);
        self.report(about, "FailedToCreateEndpoint", "Failed to create endpoint for service", &error);
        Err(error)
    }

    async fn update(&self, service: &Service, there: &Endpoints, body: &Value) -> Result<(), SyncError> {
        let (context, meta) = (&self.context, &there.meta);
        let what = || format!("changing Endpoints {}", meta.key);
        let query = [context.field_manager()];
        let kind = (PatchType::Merge, &query[..]);
        match context.patch_as::<Endpoints>(&ENTRY, service, what, &meta.key, kind, body).await {
            Ok(version) => {
                self.memory.wrote(&service.meta.uid, meta.uid.clone(), version);
                context.expect_write(service, Endpoints::RESOURCE, version);
                Ok(())
            }
            Err(error) => {
                let about = (service, meta.uid.clone(), Some(meta.resource_version));
                self.report(about, "FailedToUpdateEndpoint", "Failed to update endpoint", &error);
                Err(error)
            }
        }
    }

    /// A refusal is an event of the Endpoints, as upstream words it.
    fn report(
        &self,
        (service, uid, resource_version): (&Service, Uid, Option<u64>),
        reason: &'static str,
        what: &str,
        error: &SyncError,
    ) {
        if !error.is_refusal() {
            return;
        }
        let key = service.meta.key.clone();
        let message = format!("{what} {key}: {}", error.reason());
        let target = EventTarget { resource: Endpoints::RESOURCE, key, uid, resource_version };
        self.context.recorder.record(&target, EventType::Warning, reason, message, ENTRY.component);
    }

    /// Deletes Endpoints whose Service does not exist, if they are still as they were observed: a writer that takes them over
    /// meanwhile keeps them.
    pub(super) async fn delete(&self, endpoints: &Endpoints) -> Result<(), SyncError> {
        let (context, meta) = (&self.context, &endpoints.meta);
        let preconditions = json!({"uid": meta.uid, "resourceVersion": meta.resource_version.to_string()});
        let options = json!({"preconditions": preconditions});
        match context.delete_as(&ENTRY, endpoints, endpoints, options).await {
            Ok(_) => Ok(()),
            Err(error) => Err(SyncError::api(format!("deleting Endpoints {}", meta.key), error)),
        }
    }
}
