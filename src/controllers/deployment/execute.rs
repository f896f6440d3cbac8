//! The writes to a Deployment's ReplicaSets.

use serde_json::json;
use tokio::time::Instant;

use super::{DeploymentController, ENTRY};
use crate::controllers::controller::Executed;
use crate::controllers::error::SyncError;
use crate::controllers::execute::{Written, path, raw};
use crate::controllers::patch;
use crate::model::{Deployment, Record, ReplicaSet};
use crate::plan::Note;
use crate::plan::deployment::progress::{Failed, Outcome};
use crate::plan::deployment::{self as set_plan, body::set_body};
use crate::runtime::request::{self, PatchType};

impl DeploymentController {
    /// Carries out the plan for a Deployment, in order, up to the first write that fails.
    pub(super) async fn carry_out(
        &self,
        deployment: &Deployment,
        plan: &set_plan::Plan,
    ) -> Executed<Outcome> {
        for note in &plan.notes {
            self.context.tell(ENTRY.component, deployment, note.clone());
        }
        let (mut outcome, mut stopped) = (Outcome::default(), None);
        for write in &plan.writes {
            match self.write_set(deployment, write, &mut outcome).await {
                Ok(()) => {
                    outcome.succeeded();
                    if let set_plan::Write::Create(new) = write {
                        self.lost_creations.reported(&deployment.meta.uid, &new.name);
                    }
                    if let Some(note) = write.note() {
                        tracing::info!(deployment = %deployment.meta.key, "{}", note.message);
                        self.context.tell(ENTRY.component, deployment, note);
                    }
                }
                Err(error) => {
                    let claims = matches!(write, set_plan::Write::Adopt(_) | set_plan::Write::Release(_));
                    if let Some(name) = set_name(write).filter(|_| error.may_have_happened()) {
                        self.context.unresolved.created(&deployment.meta.uid, name);
                        if let set_plan::Write::Create(new) = write {
                            self.lost_creations.asked(&deployment.meta.uid, new.clone());
                        }
                    }
                    let refused = error.is_reported(claims).then(|| Failed::of(write, error.to_string()));
                    outcome.stopped(refused.flatten(), !error.is_refusal());
                    if planted!("a failed step is swallowed") {
                        break;
                    }
                    stopped = Some(error);
                    break;
                }
            }
        }
        outcome.was_created_before(self.lost_creations.unreported(&deployment.meta.uid));
        Executed::new(outcome, stopped)
    }

    async fn write_set(
        &self,
        deployment: &Deployment,
        write: &set_plan::Write,
        outcome: &mut Outcome,
    ) -> Result<(), SyncError> {
        let owner = &deployment.meta.uid;
        match write {
            set_plan::Write::Adopt(set) => self.context.adopt(deployment, &**set).await,
            set_plan::Write::Release(set) => self.context.release(deployment, &**set).await,
            set_plan::Write::Create(new) => self.create_set(deployment, new, outcome).await,
            set_plan::Write::RollBack(rollback) => {
                let what = || format!("rolling back Deployment {}", deployment.meta.key);
                let body = patch::roll_back(&deployment.meta, rollback);
                let target = path(Deployment::RESOURCE, &deployment.meta);
                let version = self.context.patch(deployment, what, &target, PatchType::Json, &body).await?;
                self.context.expectations.wrote(owner, Deployment::RESOURCE, version);
                Ok(())
            }
            set_plan::Write::Change(set, change) => {
                let what = || format!("changing ReplicaSet {}", set.meta.key);
                let body = patch::change(&set.meta, change);
                let target = path(ReplicaSet::RESOURCE, &set.meta);
                let version = self
                    .context
                    .in_turn(deployment, &set.meta, what, &target, PatchType::Merge, &body)
                    .await?;
                if !planted!("writes to sets are not waited for") {
                    self.context.expectations.wrote(owner, ReplicaSet::RESOURCE, version);
                }
                // The other controller must not size its pods by a set that is older than this.
                self.context.expectations.wrote(&set.meta.uid, ReplicaSet::RESOURCE, version);
                self.context.forget_if_gone(&self.sets, &set.meta);
                Ok(())
            }
            set_plan::Write::Delete(set) => {
                let exactly = json!({
                    "uid": set.meta.uid,
                    "resourceVersion": set.meta.resource_version.to_string(),
                });
                self.context
                    .delete_while(deployment, &**set, exactly, || true)
                    .await
                    .map_err(|error| SyncError::api(format!("deleting ReplicaSet {}", set.meta.key), error))
            }
        }
    }

    /// Creates the set for the current template. A name that is taken is ours when the set there has
    /// our template: the reply to an earlier request was lost.
    async fn create_set(
        &self,
        deployment: &Deployment,
        new: &set_plan::NewSet,
        outcome: &mut Outcome,
    ) -> Result<(), SyncError> {
        let what = || format!("creating ReplicaSet {}/{}", deployment.meta.key.namespace, new.name);
        let body = set_body(deployment, new)
            .and_then(raw)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let collection = ReplicaSet::RESOURCE.path(Some(&deployment.meta.key.namespace));
        let request = request::post(&collection, &[self.context.field_manager()], &body)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let still_wanted = || self.context.is_unchanged(&self.deployments, &deployment.meta);
        let error = match self.context.api_for(deployment).call_while::<Written>(request, still_wanted).await
        {
            Ok(written) => {
                let version = written.resource_version().unwrap_or(0);
                self.context.expectations.wrote(&deployment.meta.uid, ReplicaSet::RESOURCE, version);
                self.context.creations.created(&deployment.meta, Instant::now());
                return Ok(());
            }
            Err(error) => error,
        };
        if error.is_already_exists() {
            let there: ReplicaSet =
                match self.context.read(deployment, &format!("{collection}/{}", new.name)).await {
                    Ok(there) => there,
                    Err(error) => {
                        self.context.unresolved.created(&deployment.meta.uid, new.name.clone());
                        self.lost_creations.asked(&deployment.meta.uid, new.clone());
                        return Err(error);
                    }
                };
            if deployment.controls(&there.meta) && there.template.asks_for_the_same_as(&deployment.template) {
                let version = there.meta.resource_version;
                self.context.expectations.wrote(&deployment.meta.uid, ReplicaSet::RESOURCE, version);
                return Ok(());
            }
            // Orphaned a moment ago, and the cache does not show it yet: it will be adopted. With
            // another name there would be two sets for one template (S4).
            if there.meta.controller.is_none()
                && !there.meta.is_deleting()
                && deployment.selector.matches(&there.meta.labels)
                && there.template.asks_for_the_same_as(&deployment.template)
            {
                let version = there.meta.resource_version;
                self.context.expectations.wrote(&deployment.meta.uid, ReplicaSet::RESOURCE, version);
                return Err(SyncError::Conflict { what: what(), error });
            }
            outcome.name_taken();
            return Err(SyncError::NameTaken { name: new.name.clone() });
        }
        let error = SyncError::creation(what(), error);
        if error.is_refusal() {
            let text = error.reason();
            let message = format!("Failed to create new replica set {:?}: {text}", new.name);
            self.context.tell(ENTRY.component, deployment, Note::warning("ReplicaSetCreateError", message));
            outcome.could_not_create(text);
        }
        Err(error)
    }
}

/// The set that a write is about. A rollback is about none: its resourceVersion lets it happen once.
fn set_name(write: &set_plan::Write) -> Option<String> {
    Some(match write {
        set_plan::Write::RollBack(_) => return None,
        set_plan::Write::Create(new) => new.name.clone(),
        set_plan::Write::Adopt(set)
        | set_plan::Write::Release(set)
        | set_plan::Write::Change(set, _)
        | set_plan::Write::Delete(set) => set.meta.key.name.to_string(),
    })
}
