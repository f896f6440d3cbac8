//! The writes of rolling updates.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{ENTRY, Observed, RollingUpdates};
use crate::controllers::patch::set_status;
use crate::engine::error::SyncError;
use crate::engine::execute::Written;
use crate::model::{Meta, Record, ReplicaSetStatus, ReplicationController};
use crate::plan::EventNote;
use crate::plan::rolling_update::job::{Plan, Side, Write, resized, second};
use crate::plan::rolling_update::patches;
use crate::plan::rolling_update::report::{Count, Report};
use crate::plan::rolling_update::request::REQUEST;
use crate::runtime::request::{self, PatchType};

impl RollingUpdates {
    /// Executes the one write of a plan.
    pub(super) async fn carry_out(
        &self,
        own: &ReplicationController,
        observed: &Observed<'_>,
        plan: &Plan,
    ) -> Result<(), SyncError> {
        let Some(write) = &plan.write else { return Ok(()) };
        let named = own.0.annotations.get(REQUEST);
        let target = observed.all.iter().find(|one| named == Some(&*one.meta().key.name)).map(Arc::as_ref);
        for one in [Some(own), target].into_iter().flatten() {
            if let Some(note) = self.sizes.changed(&one.0) {
                self.say(own, target, &note);
            }
        }
        let result = self.write(own, target, write, plan.report.as_ref(), observed).await;
        if let Err(error) = &result
            && error.is_refusal()
        {
            let note = EventNote::warning("RollingUpdateWriteFailed", error.to_string());
            self.context.record_event(ENTRY.component, own, note);
        }
        result
    }

    async fn write(
        &self,
        own: &ReplicationController,
        target: Option<&ReplicationController>,
        write: &Write,
        report: Option<&Report>,
        observed: &Observed<'_>,
    ) -> Result<(), SyncError> {
        let now = second(observed.now);
        let side = |side: &Side| match side {
            Side::Own => Some(own),
            Side::Target => target,
        };
        match (write, target) {
            (Write::Report, _) => match report {
                Some(report) => self.report(own, target, report, observed).await,
                None => Ok(()),
            },
            (Write::Annotate(on, annotations), _) => {
                let Some(on) = side(on) else { return Ok(()) };
                let body = patches::annotate(on.meta(), annotations);
                self.patch(own, on, "annotating", PatchType::Merge, &body).await
            }
            (Write::Resize(on, to), _) => {
                let Some(on) = side(on) else { return Ok(()) };
                let body = patches::resize(on.meta(), *to, now);
                self.patch(own, on, "resizing", PatchType::Merge, &body).await?;
                self.sizes.given(&on.0, *to);
                self.say(own, target, &resized(&on.0, *to));
                Ok(())
            }
            (Write::StepAside { key, value }, Some(new)) => {
                let body = patches::step_aside(new.meta(), key, value, now);
                self.patch(own, new, "taking the selector from", PatchType::Merge, &body).await?;
                self.sizes.given(&new.0, 0);
                Ok(())
            }
            (Write::TakeOver { key, value, replicas }, Some(new)) => {
                let body = patches::take_over(&own.0, &new.0, (key, value), *replicas, now);
                let what = || format!("handing pods over to ReplicationController {}", own.meta().key);
                let body = Value::Array(body.map_err(|error| SyncError::Json { what: what(), error })?);
                self.patch(own, own, "handing pods over to", PatchType::Json, &body).await?;
                self.sizes.given(&own.0, *replicas);
                Ok(())
            }
            (Write::Delete(on), _) => {
                let Some(on) = side(on) else { return Ok(()) };
                self.delete(own, on).await
            }
            (Write::StepAside { .. } | Write::TakeOver { .. }, None) => Ok(()),
        }
    }

    /// An event about both.
    fn say(&self, own: &ReplicationController, target: Option<&ReplicationController>, note: &EventNote) {
        tracing::info!(replicationcontroller = %own.meta().key, "{}", note.message);
        for one in [Some(own), target].into_iter().flatten() {
            self.context.record_event(ENTRY.component, one, note.clone());
        }
    }

    /// Reports the condition, and what is new by it.
    async fn report(
        &self,
        own: &ReplicationController,
        target: Option<&ReplicationController>,
        report: &Report,
        observed: &Observed<'_>,
    ) -> Result<(), SyncError> {
        let before = &own.0.status;
        let conditions = report.conditions(&own.0, observed.now);
        let after = ReplicaSetStatus { conditions, ..before.clone() };
        let Some(body) = set_status(own.meta(), before, &after, false) else { return Ok(()) };
        let what = || format!("writing the status of ReplicationController {}", own.meta().key);
        let version = self.send(own, own.meta(), what, "/status", PatchType::Strategic, &body).await?;
        self.context.wrote_status(own.meta(), ReplicationController::RESOURCE, version);
        if !report.reason.is_under_way() {
            [Some(own), target].into_iter().flatten().for_each(|one| self.sizes.end(&one.0));
        }
        let Some(news) = report.news(&own.0) else { return Ok(()) };
        self.say(own, target, &news.note);
        let metrics = &self.context.metrics().workloads;
        match news.count {
            Some(Count::Started) => metrics.rolling_updates_started.inc(),
            Some(Count::Finished) => metrics.rolling_updates_finished.inc(),
            Some(Count::Failed(reason)) => {
                metrics.rolling_updates_failed.with_label_values(&[reason.name()]).inc();
            }
            None => {}
        }
        Ok(())
    }

    /// Patches one of the two in a sync of `own`. No decision about either is made before the cache shows it.
    async fn patch(
        &self,
        own: &ReplicationController,
        on: &ReplicationController,
        doing: &str,
        kind: PatchType,
        body: &Value,
    ) -> Result<(), SyncError> {
        let what = || format!("{doing} ReplicationController {}", on.meta().key);
        let version = self.send(own, on.meta(), what, "", kind, body).await?;
        for one in [own, on] {
            self.context.expect_write(one, ReplicationController::RESOURCE, version);
        }
        self.context.forget_if_gone(&self.controllers, on.meta());
        Ok(())
    }

    async fn send(
        &self,
        own: &ReplicationController,
        on: &Meta,
        what: impl Fn() -> String,
        subresource: &str,
        kind: PatchType,
        body: &Value,
    ) -> Result<u64, SyncError> {
        let context = &self.context;
        let path = ReplicationController::RESOURCE.path_of(&on.key) + subresource;
        let request = request::patch(&path, &[context.field_manager()], kind, body)
            .map(request::metadata_only)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let written = context.api_of_controller(&ENTRY, own).call::<Written>(request).await;
        let written = written.map_err(|error| SyncError::api(what(), error))?;
        Ok(written.resource_version().unwrap_or(0))
    }

    /// Deletes exactly what was observed. It owns nothing, so that no garbage collector is needed.
    async fn delete(&self, own: &ReplicationController, on: &ReplicationController) -> Result<(), SyncError> {
        let (context, meta) = (&self.context, on.meta());
        let what = || format!("deleting ReplicationController {}", meta.key);
        let options = json!({
            "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": {"uid": meta.uid, "resourceVersion": meta.resource_version.to_string()},
        });
        let options =
            if planted!("a controller is deleted whatever its version is") { json!({}) } else { options };
        let request = request::delete(&ReplicationController::RESOURCE.path_of(&meta.key), &[], &options)
            .map(request::metadata_only)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let version = match context.api_of_controller(&ENTRY, own).call::<Written>(request).await {
            Ok(written) => written.deletion_version(),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(SyncError::api(what(), error)),
        };
        let (expectations, resource) = (&context.expectations, ReplicationController::RESOURCE);
        expectations.expect_deletion(&own.meta().uid, resource, &meta.key, &meta.uid, version);
        Ok(())
    }
}
