//! The writes to a Deployment's ReplicaSets.

use serde_json::json;
use tokio::time::Instant;

use super::policy_metrics::count;
use super::{DeploymentController, ENTRY};
use crate::controllers::patch;
use crate::engine::controller::Executed;
use crate::engine::error::SyncError;
use crate::engine::execute::{Written, path, raw};
use crate::model::{Deployment, Record, ReplicaSet};
use crate::plan::EventNote;
use crate::plan::deployment::progress::{Failed, Outcome};
use crate::plan::deployment::{self as deployment_plan, new_replica_set::replica_set_body};
use crate::runtime::request::{self, PatchType};

impl DeploymentController {
    /// Executes the plan for a Deployment, in order, up to the first write that fails. Claims, and deletions of old
    /// ReplicaSets, are followed by the others of their kind where one is refused: each is for itself, and one ReplicaSet
    /// that a policy protects would let the history grow for ever.
    pub(super) async fn carry_out(
        &self,
        deployment: &Deployment,
        plan: &deployment_plan::Plan,
    ) -> Executed<Outcome> {
        let about_policy = self.policy_notes.to_record(&deployment.meta, &plan.policy_notes);
        for note in plan.notes.iter().chain(about_policy) {
            self.context.record_event(ENTRY.component, deployment, note.clone());
        }
        let (mut outcome, mut stopped) = (Outcome::default(), None);
        for write in &plan.writes {
            match self.write_replica_set(deployment, write, &mut outcome).await {
                Ok(()) => {
                    if stopped.is_none() {
                        outcome.succeeded();
                    }
                    if let deployment_plan::Write::Create(new) = write {
                        self.lost_creations.reported(&deployment.meta.uid, &new.name);
                    }
                    for note in write.notes() {
                        tracing::info!(deployment = %deployment.meta.key, "{}", note.message);
                        count(write, &note, plan, &self.context.metrics().workloads);
                        self.context.record_event(ENTRY.component, deployment, note);
                    }
                }
                Err(error) => {
                    let claims = matches!(
                        write,
                        deployment_plan::Write::Adopt(_) | deployment_plan::Write::Release(_)
                    );
                    if let Some(name) = replica_set_name(write).filter(|_| error.may_have_happened()) {
                        self.context.in_doubt_writes.created(&deployment.meta.uid, name);
                        if let deployment_plan::Write::Create(new) = write {
                            self.lost_creations.record(&deployment.meta.uid, new.clone());
                        }
                    }
                    let is_for_itself = claims || matches!(write, deployment_plan::Write::Delete(_));
                    if stopped.is_some() && error.is_refusal() {
                        continue;
                    }
                    let goes_on = is_for_itself && error.is_refusal();
                    let refused = error.is_refusal().then(|| Failed::of(write, error.to_string()));
                    outcome.stopped(refused.flatten(), !error.is_refusal());
                    if planted!("the error of a failed write is dropped") {
                        break;
                    }
                    stopped = Some(error);
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        outcome.was_created_before(self.lost_creations.unreported(&deployment.meta.uid));
        Executed::new(outcome, stopped)
    }

    async fn write_replica_set(
        &self,
        deployment: &Deployment,
        write: &deployment_plan::Write,
        outcome: &mut Outcome,
    ) -> Result<(), SyncError> {
        let owner = &deployment.meta.uid;
        match write {
            deployment_plan::Write::Adopt(replica_set) => {
                self.context.adopt(deployment, &**replica_set).await
            }
            deployment_plan::Write::Release(replica_set) => {
                self.context.release(deployment, &**replica_set).await
            }
            deployment_plan::Write::Create(new) => self.create_replica_set(deployment, new, outcome).await,
            deployment_plan::Write::RollBack(rollback) => {
                let what = || format!("rolling back Deployment {}", deployment.meta.key);
                let body = patch::roll_back(&deployment.meta, rollback);
                let target = path(Deployment::RESOURCE, &deployment.meta);
                let version = self.context.patch(deployment, what, &target, PatchType::Json, &body).await?;
                self.context.expectations.expect_write(owner, Deployment::RESOURCE, version);
                Ok(())
            }
            deployment_plan::Write::Change(replica_set, change) => {
                let what = || format!("changing ReplicaSet {}", replica_set.meta.key);
                let body = patch::change(&replica_set.meta, change);
                let target = path(ReplicaSet::RESOURCE, &replica_set.meta);
                let version = self.context.patch(deployment, what, &target, PatchType::Merge, &body).await?;
                self.context.expectations.expect_write(owner, ReplicaSet::RESOURCE, version);
                // The ReplicaSet controller must not act on a version of the ReplicaSet that is older than this.
                self.context.expectations.expect_write(&replica_set.meta.uid, ReplicaSet::RESOURCE, version);
                self.context.forget_if_gone(&self.replica_sets, &replica_set.meta);
                Ok(())
            }
            deployment_plan::Write::Delete(replica_set) => {
                let exactly = json!({
                    "uid": replica_set.meta.uid,
                    "resourceVersion": replica_set.meta.resource_version.to_string(),
                });
                self.context.delete_while(deployment, &**replica_set, exactly, || true).await.map_err(
                    |error| SyncError::api(format!("deleting ReplicaSet {}", replica_set.meta.key), error),
                )
            }
        }
    }

    /// Creates the new ReplicaSet. A taken name counts as success when the ReplicaSet of that name has
    /// our template: the reply to an earlier request was lost.
    async fn create_replica_set(
        &self,
        deployment: &Deployment,
        new: &deployment_plan::NewReplicaSet,
        outcome: &mut Outcome,
    ) -> Result<(), SyncError> {
        let what = || format!("creating ReplicaSet {}/{}", deployment.meta.key.namespace, new.name);
        let body = replica_set_body(deployment, new)
            .and_then(raw)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let collection = ReplicaSet::RESOURCE.path(Some(&deployment.meta.key.namespace));
        let request = request::post(&collection, &[self.context.field_manager()], &body)
            .map(request::metadata_only)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let still_wanted = || self.context.is_unchanged(&self.deployments, &deployment.meta);
        let error = match self.context.api_for(deployment).call_while::<Written>(request, still_wanted).await
        {
            Ok(written) => {
                let version = written.resource_version().unwrap_or(0);
                self.context.expectations.expect_write(&deployment.meta.uid, ReplicaSet::RESOURCE, version);
                self.context.recreate_guard.created(&deployment.meta, Instant::now());
                return Ok(());
            }
            Err(error) => error,
        };
        if error.is_already_exists() {
            let there: ReplicaSet =
                match self.context.read(deployment, &format!("{collection}/{}", new.name)).await {
                    Ok(there) => there,
                    Err(error) => {
                        self.context.in_doubt_writes.created(&deployment.meta.uid, new.name.clone());
                        self.lost_creations.record(&deployment.meta.uid, new.clone());
                        return Err(error);
                    }
                };
            if deployment.controls(&there.meta) && there.template.asks_for_the_same_as(&deployment.template) {
                let version = there.meta.resource_version;
                self.context.expectations.expect_write(&deployment.meta.uid, ReplicaSet::RESOURCE, version);
                if there.replicas != new.replicas {
                    // Created for an earlier size. It is resized, and reported on, once the cache shows it.
                    return Err(SyncError::Conflict { what: what(), error });
                }
                return Ok(());
            }
            // It was orphaned a moment ago, and the cache does not show it yet: it will be adopted. With
            // another name there would be two ReplicaSets for one template (S4).
            if there.meta.controller.is_none()
                && !there.meta.is_deleting()
                && deployment.selector.matches(&there.meta.labels)
                && there.template.asks_for_the_same_as(&deployment.template)
            {
                let version = there.meta.resource_version;
                self.context.expectations.expect_write(&deployment.meta.uid, ReplicaSet::RESOURCE, version);
                return Err(SyncError::Conflict { what: what(), error });
            }
            outcome.name_taken();
            return Err(SyncError::NameTaken { name: new.name.clone() });
        }
        let error = SyncError::creation(what(), error);
        if error.is_refusal() {
            let text = error.reason();
            let message = format!("Failed to create new replica set {:?}: {text}", new.name);
            self.context.record_event(
                ENTRY.component,
                deployment,
                EventNote::warning("ReplicaSetCreateError", message),
            );
            outcome.could_not_create(text);
        }
        Err(error)
    }
}

/// The ReplicaSet of a write. A rollback has none: its resourceVersion lets it happen once.
fn replica_set_name(write: &deployment_plan::Write) -> Option<String> {
    Some(match write {
        deployment_plan::Write::RollBack(_) => return None,
        deployment_plan::Write::Create(new) => new.name.clone(),
        deployment_plan::Write::Adopt(replica_set)
        | deployment_plan::Write::Release(replica_set)
        | deployment_plan::Write::Change(replica_set, _)
        | deployment_plan::Write::Delete(replica_set) => replica_set.meta.key.name.to_string(),
    })
}
