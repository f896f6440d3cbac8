//! Every write to workloads that Windlass makes; nothing else sends one. Here what a Deployment needs;
//! `pods` has what a set needs.
//!
//! A write names us as the field manager, carries what it was computed from, and when it has succeeded,
//! what the caches must show before its owner is decided about again.

mod pods;

use serde::{Deserialize as _, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cluster::{Cluster, Speaker};
use super::error::SyncError;
use super::patch;
use crate::model::{Deployment, Meta, Record, ReplicaSet, Resource};
use crate::plan::Note;
use crate::plan::deployment::progress::{Failed, Outcome};
use crate::plan::deployment::{self as set_plan, body::set_body};
use crate::plan::replicaset::body::OwnerReference;
use crate::runtime::api::ApiError;
use crate::runtime::request::{self, PatchType};
use crate::runtime::store::Store;

/// Who writes, for `managedFields`.
pub const FIELD_MANAGER: &str = "windlass";

/// What became of a plan.
#[derive(Debug, Default)]
#[must_use = "a write that failed must be retried"]
pub struct Executed<T> {
    /// What the status needs to know.
    pub outcome: T,
    /// What stopped the execution.
    pub error: Option<SyncError>,
}

/// The metadata of an answer, as far as it is read.
#[derive(serde::Deserialize)]
struct Written {
    metadata: Option<WrittenMeta>,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct WrittenMeta {
    resource_version: Option<String>,
    deletion_timestamp: Option<serde::de::IgnoredAny>,
}

impl Written {
    fn resource_version(&self) -> Option<u64> {
        self.metadata.as_ref()?.resource_version.as_ref()?.parse().ok()
    }

    /// The version of a deletion that has begun. An object that went at once comes back as it was, from
    /// older servers with the version that it had: that says nothing of when it went.
    fn deletion_version(&self) -> Option<u64> {
        self.metadata.as_ref()?.deletion_timestamp.as_ref()?;
        self.resource_version()
    }
}

pub(super) fn path(resource: Resource, object: &Meta) -> String {
    format!("{}/{}", resource.path(Some(&object.key.namespace)), object.key.name)
}

fn owner_of<'a, T: Record>(owner: &'a T, api_version: &'a str) -> OwnerReference<'a> {
    let meta = owner.meta();
    OwnerReference::controller(api_version, T::RESOURCE.kind, &meta.key.name, &meta.uid)
}

impl Cluster {
    /// Who writes, as a query parameter.
    fn field_manager(&self) -> (&'static str, &str) {
        ("fieldManager", &self.field_manager)
    }

    /// Sends a patch in a sync of this owner; the answer's resourceVersion is what the cache must reach.
    async fn patch(
        &self,
        owner: &impl Record,
        what: impl Fn() -> String,
        path: &str,
        kind: PatchType,
        body: &impl Serialize,
    ) -> Result<u64, SyncError> {
        let request = request::patch(path, &[self.field_manager()], kind, body)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let written: Written =
            self.api_for(owner).call(request).await.map_err(|error| SyncError::api(what(), error))?;
        Ok(written.resource_version().unwrap_or(0))
    }

    /// Whether the cache still shows an owner as it was when it was decided about, and the daemon is not to end.
    fn is_unchanged<T: Record>(&self, owners: &Store<T>, owner: &Meta) -> bool {
        let Meta { key, uid, generation, .. } = owner;
        let now = owners.get(key).filter(|_| !self.draining.is_cancelled());
        now.is_some_and(|now| (&now.meta().uid, &now.meta().generation) == (uid, generation))
    }

    /// Patches a set, unless another write of ours to it comes first; see [`super::turns`].
    async fn in_turn(
        &self,
        owner: &impl Record,
        set: &Meta,
        what: impl Fn() -> String,
        path: &str,
        kind: PatchType,
        body: &impl Serialize,
    ) -> Result<u64, SyncError> {
        let Some(turn) = self.turns.take(set, Instant::now()) else {
            return Err(SyncError::Overtaken { what: what() });
        };
        let version = self.patch(owner, what, path, kind, body).await?;
        turn.wrote(version, Instant::now());
        Ok(version)
    }

    async fn adopt<O: Record, T: Record>(&self, owner: &O, object: &T) -> Result<(), SyncError> {
        let api_version = O::RESOURCE.api_version();
        let body = patch::adopt(object.meta(), &owner_of(owner, &api_version));
        let what = || format!("adopting {} {}", T::RESOURCE.kind, object.meta().key);
        let version =
            self.patch(owner, what, &path(T::RESOURCE, object.meta()), PatchType::Strategic, &body).await?;
        self.expectations.wrote(&owner.meta().uid, T::RESOURCE, version);
        Ok(())
    }

    async fn release<O: Record, T: Record>(&self, owner: &O, object: &T) -> Result<(), SyncError> {
        let body = patch::release(object.meta(), &owner.meta().uid);
        let what = || format!("releasing {} {}", T::RESOURCE.kind, object.meta().key);
        match self.patch(owner, what, &path(T::RESOURCE, object.meta()), PatchType::Strategic, &body).await {
            Ok(version) => self.expectations.wrote(&owner.meta().uid, T::RESOURCE, version),
            // What is gone needs no releasing.
            Err(SyncError::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Deletes exactly the object that was seen. One that is gone already counts as deleted; one that
    /// has given its name to another is a conflict.
    async fn delete_while<T: Record>(
        &self,
        owner: &impl Record,
        object: &T,
        preconditions: Value,
        still_wanted: impl Fn() -> bool,
    ) -> Result<(), ApiError> {
        let preconditions = if planted!("deletions carry no UID") { Value::Null } else { preconditions };
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        let request =
            request::delete(&path(T::RESOURCE, object.meta()), &[], &options).map_err(ApiError::Decode)?;
        let version = match self.api_for(owner).call_while::<Written>(request, still_wanted).await {
            Ok(written) => written.deletion_version(),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let meta = object.meta();
        if planted!("deletions are not waited for") {
            return Ok(());
        }
        self.expectations.deleted(&owner.meta().uid, T::RESOURCE, &meta.key, &meta.uid, version);
        Ok(())
    }

    /// Carries out the plan for a Deployment, in order, up to the first write that fails.
    pub async fn execute_deployment(
        &self,
        deployment: &Deployment,
        plan: &set_plan::Plan,
    ) -> Executed<Outcome> {
        for note in &plan.notes {
            self.tell(Speaker::Deployment, deployment, note.clone());
        }
        let mut executed = Executed::<Outcome>::default();
        for write in &plan.writes {
            match self.write_set(deployment, write, &mut executed.outcome).await {
                Ok(()) => {
                    executed.outcome.done += 1;
                    if let set_plan::Write::Create(new) = write {
                        self.lost_creations.reported(&deployment.meta.uid, &new.name);
                    }
                    if let Some(note) = write.note() {
                        tracing::info!(deployment = %deployment.meta.key, "{}", note.message);
                        self.tell(Speaker::Deployment, deployment, note);
                    }
                }
                Err(error) => {
                    let claims = matches!(write, set_plan::Write::Adopt(_) | set_plan::Write::Release(_));
                    if let Some(name) = set_name(write).filter(|_| error.may_have_happened()) {
                        self.unresolved.created(&deployment.meta.uid, name);
                        if let set_plan::Write::Create(new) = write {
                            self.lost_creations.asked(&deployment.meta.uid, new.clone());
                        }
                    }
                    if error.is_reported(claims) {
                        executed.outcome.failed = Failed::of(write, error.to_string());
                    }
                    executed.outcome.is_unanswered = !error.is_refusal();
                    if planted!("a failed step is swallowed") {
                        break;
                    }
                    executed.error = Some(error);
                    break;
                }
            }
        }
        executed
    }

    async fn write_set(
        &self,
        deployment: &Deployment,
        write: &set_plan::Write,
        outcome: &mut Outcome,
    ) -> Result<(), SyncError> {
        let owner = &deployment.meta.uid;
        match write {
            set_plan::Write::Adopt(set) => self.adopt(deployment, &**set).await,
            set_plan::Write::Release(set) => self.release(deployment, &**set).await,
            set_plan::Write::Create(new) => self.create_set(deployment, new, outcome).await,
            set_plan::Write::RollBack(rollback) => {
                let what = || format!("rolling back Deployment {}", deployment.meta.key);
                let body = patch::roll_back(&deployment.meta, rollback);
                let target = path(Deployment::RESOURCE, &deployment.meta);
                let version = self.patch(deployment, what, &target, PatchType::Json, &body).await?;
                self.expectations.wrote(owner, Deployment::RESOURCE, version);
                Ok(())
            }
            set_plan::Write::Change(set, change) => {
                let what = || format!("changing ReplicaSet {}", set.meta.key);
                let body = patch::change(&set.meta, change);
                let target = path(ReplicaSet::RESOURCE, &set.meta);
                let version =
                    self.in_turn(deployment, &set.meta, what, &target, PatchType::Merge, &body).await?;
                if !planted!("writes to sets are not waited for") {
                    self.expectations.wrote(owner, ReplicaSet::RESOURCE, version);
                }
                // The other controller must not size its pods by a set that is older than this.
                self.expectations.wrote(&set.meta.uid, ReplicaSet::RESOURCE, version);
                self.forget_if_gone(&self.sets, &set.meta);
                Ok(())
            }
            set_plan::Write::Delete(set) => {
                let exactly = json!({
                    "uid": set.meta.uid,
                    "resourceVersion": set.meta.resource_version.to_string(),
                });
                self.delete_while(deployment, &**set, exactly, || true)
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
        let request = request::post(&collection, &[self.field_manager()], &body)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let still_wanted = || self.is_unchanged(&self.deployments, &deployment.meta);
        let error = match self.api_for(deployment).call_while::<Written>(request, still_wanted).await {
            Ok(written) => {
                let version = written.resource_version().unwrap_or(0);
                self.expectations.wrote(&deployment.meta.uid, ReplicaSet::RESOURCE, version);
                self.creations.created(&deployment.meta, Instant::now());
                return Ok(());
            }
            Err(error) => error,
        };
        if error.is_already_exists() {
            let there: ReplicaSet = match self.read(deployment, &format!("{collection}/{}", new.name)).await {
                Ok(there) => there,
                Err(error) => {
                    self.unresolved.created(&deployment.meta.uid, new.name.clone());
                    self.lost_creations.asked(&deployment.meta.uid, new.clone());
                    return Err(error);
                }
            };
            if deployment.controls(&there.meta) && there.template.asks_for_the_same_as(&deployment.template) {
                let version = there.meta.resource_version;
                self.expectations.wrote(&deployment.meta.uid, ReplicaSet::RESOURCE, version);
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
                self.expectations.wrote(&deployment.meta.uid, ReplicaSet::RESOURCE, version);
                return Err(SyncError::Conflict { what: what(), error });
            }
            outcome.collided = true;
            return Err(SyncError::NameTaken { name: new.name.clone() });
        }
        let error = SyncError::creation(what(), error);
        if error.is_refusal() {
            let text = error.reason();
            let message = format!("Failed to create new replica set {:?}: {text}", new.name);
            self.tell(Speaker::Deployment, deployment, Note::warning("ReplicaSetCreateError", message));
            outcome.create_error = Some(text);
        }
        Err(error)
    }

    /// Writes the status of a Deployment: the patch that [`patch::deployment_status`] made.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn write_deployment_status(
        &self,
        deployment: &Deployment,
        body: &Value,
    ) -> Result<(), SyncError> {
        let meta = &deployment.meta;
        let what = || format!("writing the status of Deployment {}", meta.key);
        let target = path(Deployment::RESOURCE, meta) + "/status";
        let version = self.patch(deployment, what, &target, PatchType::Strategic, body).await?;
        let before = deployment.status.terminating;
        self.terminating_field.wrote(before, body, version != meta.resource_version);
        self.wrote_status(meta, Deployment::RESOURCE, version);
        Ok(())
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

/// A body that is JSON already, to be sent as it is.
fn raw(json: Vec<u8>) -> Result<Box<RawValue>, serde_json::Error> {
    Box::<RawValue>::deserialize(&mut serde_json::Deserializer::from_slice(&json))
}
