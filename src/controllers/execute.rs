//! Every write to workloads that Windlass makes; nothing else sends one.
//!
//! A write names us as the field manager, carries what it was computed from, and when it has succeeded,
//! what the caches must show before its owner is decided about again.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::StreamExt;
use serde::{Deserialize as _, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cluster::{Cluster, Speaker};
use super::error::SyncError;
use super::patch;
use crate::model::{Deployment, DeploymentStatus, Meta, Pod, Record, ReplicaSet, ReplicaSetStatus, Resource};
use crate::plan::Note;
use crate::plan::deployment::progress::{Failed, Outcome};
use crate::plan::deployment::{self as set_plan, body::set_body};
use crate::plan::replicaset::batch::batches;
use crate::plan::replicaset::body::{OwnerReference, pod_body};
use crate::plan::replicaset::status::Failure;
use crate::plan::replicaset::{self as pod_plan};
use crate::runtime::api::ApiError;
use crate::runtime::request::{self, PatchType};

/// Who writes, for `managedFields`.
pub const FIELD_MANAGER: (&str, &str) = ("fieldManager", "windlass");

/// How many creations or deletions of one batch are under way at once. The client's rate limit holds
/// them back anyway; this keeps the memory and the connections of a batch of 500 within bounds.
const AT_ONCE: usize = 32;

/// How often a new name is tried when a chosen one is taken by somebody else's pod.
const NAMES_TRIED: usize = 3;

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
}

impl Written {
    fn resource_version(&self) -> Option<u64> {
        self.metadata.as_ref()?.resource_version.as_ref()?.parse().ok()
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
    /// Sends a patch; the answer's resourceVersion is what the cache must reach.
    async fn patch(
        &self,
        what: impl Fn() -> String,
        path: &str,
        kind: PatchType,
        body: &impl Serialize,
    ) -> Result<u64, SyncError> {
        let request = request::patch(path, &[FIELD_MANAGER], kind, body)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let written: Written = self.api.call(request).await.map_err(|error| SyncError::api(what(), error))?;
        Ok(written.resource_version().unwrap_or(0))
    }

    async fn adopt<O: Record, T: Record>(&self, owner: &O, object: &T) -> Result<(), SyncError> {
        let api_version = O::RESOURCE.api_version();
        let body = patch::adopt(object.meta(), &owner_of(owner, &api_version));
        let what = || format!("adopting {} {}", T::RESOURCE.kind, object.meta().key);
        let version =
            self.patch(what, &path(T::RESOURCE, object.meta()), PatchType::Strategic, &body).await?;
        self.expectations.wrote(&owner.meta().uid, T::RESOURCE, version);
        Ok(())
    }

    async fn release<O: Record, T: Record>(&self, owner: &O, object: &T) -> Result<(), SyncError> {
        let body = patch::release(object.meta(), &owner.meta().uid);
        let what = || format!("releasing {} {}", T::RESOURCE.kind, object.meta().key);
        match self.patch(what, &path(T::RESOURCE, object.meta()), PatchType::Strategic, &body).await {
            Ok(version) => self.expectations.wrote(&owner.meta().uid, T::RESOURCE, version),
            // What is gone needs no releasing.
            Err(SyncError::Gone { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Deletes exactly the object that was seen. One that is gone already, or has given its name to
    /// another, counts as deleted.
    async fn delete<T: Record>(
        &self,
        owner: &impl Record,
        object: &T,
        preconditions: Value,
    ) -> Result<(), ApiError> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
        let request =
            request::delete(&path(T::RESOURCE, object.meta()), &[], &options).map_err(ApiError::Decode)?;
        let version = match self.api.call::<Written>(request).await {
            Ok(written) => written.resource_version(),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let meta = object.meta();
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
                    if let Some(note) = write.note() {
                        tracing::info!(deployment = %deployment.meta.key, "{}", note.message);
                        self.tell(Speaker::Deployment, deployment, note);
                    }
                }
                Err(error) => {
                    if let (SyncError::OutcomeUnknown { .. }, Some(name)) = (&error, set_name(write)) {
                        self.unresolved.created(&deployment.meta.uid, name);
                    }
                    if error.is_refusal() {
                        executed.outcome.failed = Failed::of(write, error.to_string());
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
                let version = self.patch(what, &target, PatchType::Json, &body).await?;
                self.expectations.wrote(owner, Deployment::RESOURCE, version);
                Ok(())
            }
            set_plan::Write::Change(set, change) => {
                let what = || format!("changing ReplicaSet {}", set.meta.key);
                let body = patch::change(&set.meta, change);
                let target = path(ReplicaSet::RESOURCE, &set.meta);
                let version = self.patch(what, &target, PatchType::Merge, &body).await?;
                self.expectations.wrote(owner, ReplicaSet::RESOURCE, version);
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
                self.delete(deployment, &**set, exactly)
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
        let request = request::post(&collection, &[FIELD_MANAGER], &body)
            .map_err(|error| SyncError::Json { what: what(), error })?;
        let error = match self.api.call::<Written>(request).await {
            Ok(written) => {
                let version = written.resource_version().unwrap_or(0);
                self.expectations.wrote(&deployment.meta.uid, ReplicaSet::RESOURCE, version);
                return Ok(());
            }
            Err(error) => error,
        };
        if error.is_already_exists() {
            let there: ReplicaSet = match self.read(&format!("{collection}/{}", new.name)).await {
                Ok(there) => there,
                Err(error) => {
                    self.unresolved.created(&deployment.meta.uid, new.name.clone());
                    return Err(error);
                }
            };
            if there.meta.is_controlled_by(&deployment.meta.uid)
                && there.template.asks_for_the_same_as(&deployment.template)
            {
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
        let error = SyncError::api(what(), error);
        if error.is_refusal() {
            let text = error.reason();
            let message = format!("Failed to create new replica set {:?}: {text}", new.name);
            self.tell(Speaker::Deployment, deployment, Note::warning("ReplicaSetCreateError", message));
            outcome.create_error = Some(text);
        }
        Err(error)
    }

    /// Writes the status of a Deployment if it differs.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn write_deployment_status(
        &self,
        deployment: &Deployment,
        status: &DeploymentStatus,
        annotations: &BTreeMap<&str, &str>,
    ) -> Result<(), SyncError> {
        let meta = &deployment.meta;
        let Some(body) = patch::deployment_status(meta, &deployment.status, status, annotations) else {
            return Ok(());
        };
        let what = || format!("writing the status of Deployment {}", meta.key);
        let target = path(Deployment::RESOURCE, meta) + "/status";
        let version = self.patch(what, &target, PatchType::Strategic, &body).await?;
        self.wrote_status(meta, Deployment::RESOURCE, version);
        Ok(())
    }

    /// Writes the status of a ReplicaSet if it differs.
    ///
    /// # Errors
    /// When the write fails.
    pub async fn write_set_status(
        &self,
        set: &ReplicaSet,
        status: &ReplicaSetStatus,
    ) -> Result<(), SyncError> {
        let Some(body) = patch::set_status(&set.meta, &set.status, status) else { return Ok(()) };
        let what = || format!("writing the status of ReplicaSet {}", set.meta.key);
        let target = path(ReplicaSet::RESOURCE, &set.meta) + "/status";
        let version = self.patch(what, &target, PatchType::Strategic, &body).await?;
        self.wrote_status(&set.meta, ReplicaSet::RESOURCE, version);
        Ok(())
    }

    /// Carries out the plan for a ReplicaSet, in order, up to the first write that fails.
    pub async fn execute_set(&self, set: &ReplicaSet, plan: &pod_plan::Plan) -> Executed<Option<Failure>> {
        for write in &plan.writes {
            let done = match write {
                pod_plan::Write::Adopt(pod) => self.adopt(set, &**pod).await,
                pod_plan::Write::Release(pod) => self.release(set, &**pod).await,
                pod_plan::Write::Create(count) => self.create_pods(set, *count).await,
                pod_plan::Write::Delete(pods) => self.delete_pods(set, pods).await,
            };
            if let Err(error) = done {
                let outcome = error.is_refusal().then(|| Failure::of(write, error.reason())).flatten();
                return Executed { outcome, error: Some(error) };
            }
        }
        Executed::default()
    }

    /// Creates pods in slow-start batches. After a batch with a failure no further one is sent.
    async fn create_pods(&self, set: &ReplicaSet, count: usize) -> Result<(), SyncError> {
        for batch in batches(count) {
            let created: Vec<Result<(), SyncError>> = futures::stream::iter(0..batch)
                .map(|_| self.create_pod(set))
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
            created.into_iter().collect::<Result<(), SyncError>>()?;
        }
        Ok(())
    }

    async fn create_pod(&self, set: &ReplicaSet) -> Result<(), SyncError> {
        let collection = Pod::RESOURCE.path(Some(&set.meta.key.namespace));
        let mut tries = 1..=NAMES_TRIED;
        loop {
            let name = self.pod_name(set);
            let what = || format!("creating pod {}/{name}", set.meta.key.namespace);
            let body = pod_body(set, &name)
                .and_then(raw)
                .map_err(|error| SyncError::Json { what: what(), error })?;
            let request = request::post(&collection, &[FIELD_MANAGER], &body)
                .map_err(|error| SyncError::Json { what: what(), error })?;
            let error = match self.api.call::<Written>(request).await {
                Ok(written) => {
                    let version = written.resource_version().unwrap_or(0);
                    self.pod_created(set, &name, version);
                    return Ok(());
                }
                Err(error) => error,
            };
            if error.is_already_exists() {
                match self.read::<Pod>(&format!("{collection}/{name}")).await {
                    Ok(there) if there.meta.is_controlled_by(&set.meta.uid) => {
                        self.pod_created(set, &name, there.meta.resource_version);
                        return Ok(());
                    }
                    Ok(_) | Err(SyncError::Gone { .. }) => {}
                    // It may be ours, by an earlier request: to be found out before another is made.
                    Err(error) => {
                        self.unresolved.created(&set.meta.uid, name);
                        return Err(error);
                    }
                }
                if tries.next().is_some() {
                    continue;
                }
            }
            let error = SyncError::api(what(), error);
            match &error {
                SyncError::OutcomeUnknown { .. } => self.unresolved.created(&set.meta.uid, name),
                SyncError::Refused { .. } => {
                    let message = format!("Error creating: {}", error.reason());
                    self.tell(Speaker::ReplicaSet, set, Note::warning("FailedCreate", message));
                }
                // Nothing new can live in a namespace that is on its way out. One call was enough to
                // learn that: as a success it would be followed by a call for every other pod.
                _ => {}
            }
            return Err(error);
        }
    }

    pub(super) fn pod_created(&self, set: &ReplicaSet, name: &str, version: u64) {
        self.expectations.wrote(&set.meta.uid, Pod::RESOURCE, version);
        self.metrics.workloads.pods_created.inc();
        tracing::debug!(replicaset = %set.meta.key, pod = name, "created a pod");
        self.tell(Speaker::ReplicaSet, set, Note::normal("SuccessfulCreate", format!("Created pod: {name}")));
    }

    /// Deletes pods, each only if it is still the one that was seen.
    async fn delete_pods(&self, set: &ReplicaSet, pods: &[Arc<Pod>]) -> Result<(), SyncError> {
        let deleted: Vec<Result<(), SyncError>> = futures::stream::iter(self.doomed_first(set, pods))
            .map(|pod| async move { self.delete_pod(set, &pod).await })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        deleted.into_iter().collect()
    }

    /// As many pods as planned. Those that an earlier deletion may still reach go first: if it does
    /// after all, no further pod is lost (S12).
    fn doomed_first(&self, set: &ReplicaSet, planned: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let owner = &set.meta.uid;
        let mut chosen: Vec<Arc<Pod>> = Vec::with_capacity(planned.len());
        for (key, uid, seen) in self.unresolved.take_doomed(owner, Instant::now()) {
            let pod = self
                .pods
                .get(&key)
                .filter(|pod| pod.meta.uid == uid && pod.is_active() && pod.meta.is_controlled_by(owner));
            match pod {
                Some(pod) if chosen.len() < planned.len() => chosen.push(pod),
                Some(_) => self.unresolved.doomed(owner, key, uid, seen),
                None => {}
            }
        }
        for pod in planned {
            if chosen.len() < planned.len() && chosen.iter().all(|other| other.meta.uid != pod.meta.uid) {
                chosen.push(pod.clone());
            }
        }
        chosen
    }

    async fn delete_pod(&self, set: &ReplicaSet, pod: &Pod) -> Result<(), SyncError> {
        let name = &pod.meta.key.name;
        let Err(error) = self.delete(set, pod, json!({"uid": pod.meta.uid})).await else {
            self.pod_deleted(set, name);
            return Ok(());
        };
        let error = SyncError::api(format!("deleting pod {}", pod.meta.key), error);
        match &error {
            SyncError::OutcomeUnknown { .. } => {
                self.unresolved.deleted(&set.meta.uid, pod.meta.key.clone(), pod.meta.uid.clone());
            }
            SyncError::Refused { .. } => {
                let note = Note::warning("FailedDelete", format!("Error deleting: {}", error.reason()));
                self.tell(Speaker::ReplicaSet, set, note);
            }
            _ => {}
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

/// A body that is JSON already, to be sent as it is.
fn raw(json: Vec<u8>) -> Result<Box<RawValue>, serde_json::Error> {
    Box::<RawValue>::deserialize(&mut serde_json::Deserializer::from_slice(&json))
}
