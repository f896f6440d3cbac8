//! The writes for one DaemonSet: its pods and its revisions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use futures::{StreamExt, TryFutureExt};
use serde_json::json;
use tokio::time::Instant;

use super::{DaemonSetController, ENTRY};
use crate::controllers::patch;
use crate::controllers::revisions::RevisionWrite;
use crate::engine::controller::Executed;
use crate::engine::error::SyncError;
use crate::engine::execute::{AT_ONCE, Written, first_open, path, raw};
use crate::model::{DaemonSet, Meta, Pod, Record};
use crate::plan::EventNote;
use crate::plan::daemonset::body::pod_body;
use crate::plan::daemonset::names::{self, Names};
use crate::plan::daemonset::refused::Refusals;
use crate::plan::daemonset::revisions::{self, revision_body};
use crate::plan::daemonset::status::Outcome;
use crate::plan::daemonset::{Deletion, NewPod, Plan, Reason, Write};
use crate::plan::replicaset::slow_start::slow_start_batches;
use crate::plan::revisions::{NewRevision, next_collision};
use crate::runtime::api::ApiError;
use crate::runtime::request::{self, PatchType};

/// The most names that are tried for one pod; taken names belong to pods that the cache does not show yet.
const NAMES: usize = 4;

impl DaemonSetController {
    /// Executes the plan for a DaemonSet, in order, up to the first write without a conclusive answer. What follows a
    /// refused one is decided by [`Refusals`].
    pub(super) async fn carry_out(&self, daemon_set: &DaemonSet, plan: &Plan) -> Executed<Outcome> {
        let about_policy = self.policy_notes.to_record(&daemon_set.meta, &plan.policy_notes);
        for note in plan.notes.iter().chain(about_policy) {
            self.context.record_event(ENTRY.component, daemon_set, note.clone());
        }
        let mut outcome = Outcome::default();
        let Meta { uid, generation, .. } = &daemon_set.meta;
        let (mut refusals, mut first) = (Refusals::default(), None);
        for write in &plan.writes {
            let Some(write) = refusals.allow(write, *generation, &self.memory.refused(uid)) else { continue };
            let Err(error) = self.write(daemon_set, &write, &mut outcome, &mut refusals).await else {
                continue;
            };
            if !error.is_refusal() {
                outcome.is_open = true;
                return Executed::new(outcome, Some(error));
            }
            refusals.add(&write);
            first.get_or_insert(error);
        }
        Executed::new(outcome, first)
    }

    async fn write(
        &self,
        daemon_set: &DaemonSet,
        write: &Write,
        outcome: &mut Outcome,
        refusals: &mut Refusals,
    ) -> Result<(), SyncError> {
        match write {
            Write::AdoptPod(pod) => self.context.adopt(daemon_set, &**pod).await,
            Write::ReleasePod(pod) => self.context.release(daemon_set, &**pod).await,
            Write::AdoptRevision(revision) => self.context.adopt(daemon_set, &**revision).await,
            Write::ReleaseRevision(revision) => self.context.release(daemon_set, &**revision).await,
            Write::Relabel { pod, hash } => {
                self.change(daemon_set, &**pod, &patch::relabel(&pod.meta, hash)).await
            }
            Write::ChangeRevision(revision, change) => {
                let body = patch::change_revision(&revision.meta, change);
                self.change(daemon_set, &**revision, &body).await?;
                for note in &change.notes {
                    self.context.record_event(ENTRY.component, daemon_set, note.clone());
                }
                Ok(())
            }
            Write::DeleteRevision(revision) => {
                let exactly = json!({
                    "uid": revision.meta.uid,
                    "resourceVersion": revision.meta.resource_version.to_string(),
                });
                let what = || format!("deleting ControllerRevision {}", revision.meta.key);
                let deleted = self.context.delete_while(daemon_set, &**revision, exactly, || true).await;
                deleted.map_err(|error| SyncError::api(what(), error))
            }
            Write::CreateRevision(new) => self.create_revision(daemon_set, new, outcome).await,
            Write::CreatePods { pods, hash } => self.create_pods(daemon_set, pods, hash, refusals).await,
            Write::DeletePods(deletions) => self.delete_pods(daemon_set, deletions).await,
        }
    }

    /// Changes fields of an object of the DaemonSet.
    async fn change<T: Record>(
        &self,
        daemon_set: &DaemonSet,
        object: &T,
        body: &serde_json::Value,
    ) -> Result<(), SyncError> {
        let what = || format!("changing {} {}", T::RESOURCE.kind, object.meta().key);
        let target = path(T::RESOURCE, object.meta());
        let version = self.context.patch(daemon_set, what, &target, PatchType::Merge, body).await?;
        self.context.expect_write(daemon_set, T::RESOURCE, version);
        Ok(())
    }

    /// Whether to continue: the cache still shows the DaemonSet as it was at the decision, and the daemon is not
    /// shutting down.
    fn may_continue(&self, daemon_set: &DaemonSet) -> bool {
        self.context.is_unchanged(&self.daemon_sets, &daemon_set.meta)
    }

    /// Creates the revision of the current template.
    async fn create_revision(
        &self,
        daemon_set: &DaemonSet,
        new: &NewRevision,
        outcome: &mut Outcome,
    ) -> Result<(), SyncError> {
        let (component, owners) = (ENTRY.component, &*self.daemon_sets);
        let creation = RevisionWrite { owner: daemon_set, owners, component, name: &new.name };
        let count = |of: &DaemonSet| of.status.collision_count;
        let collided = |fresh: &DaemonSet| {
            next_collision((&daemon_set.meta, count(daemon_set)), (&fresh.meta, count(fresh)))
        };
        let body = |annotations: &_| revision_body(daemon_set, new, annotations);
        let on_taken = |existing: Option<&_>| revisions::on_taken(daemon_set, new, existing);
        let created = creation.create(&self.context, body, on_taken, collided).await;
        created.map_err(|(error, collision)| {
            outcome.collision = collision;
            error
        })
    }

    /// Creates pods in slow-start batches. After a refusal the current batch is completed, and no other is sent
    /// (upstream: `syncNodes`). After a request without an answer nothing further is sent.
    async fn create_pods(
        &self,
        daemon_set: &DaemonSet,
        pods: &[NewPod],
        hash: &str,
        refusals: &mut Refusals,
    ) -> Result<(), SyncError> {
        let mut left = pods.iter();
        let mut created = BTreeSet::new();
        let stopped = AtomicBool::new(false);
        let stop_unless_refused = |error: &SyncError| {
            stopped.fetch_or(!error.is_refusal(), Relaxed);
        };
        for batch in slow_start_batches(pods.len()) {
            let batch: Vec<NewPod> = left.by_ref().take(batch).cloned().collect();
            let results: Vec<Result<Arc<str>, SyncError>> = futures::stream::iter(batch)
                .take_while(|_| std::future::ready(!stopped.load(Relaxed)))
                .map(|new| {
                    let node = new.node.clone();
                    let creation = self.create_pod(daemon_set, new, hash).map_ok(|()| node);
                    creation.inspect_err(stop_unless_refused)
                })
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
            let mut failed = Vec::new();
            for result in results {
                match result {
                    Ok(node) => created.extend([node]),
                    Err(error) => failed.push(error),
                }
            }
            if let Some(error) = first_open(failed) {
                let nodes = pods.iter().map(|new| new.node.clone());
                refusals.without_pods(nodes.filter(|node| !created.contains(node)));
                return Err(error);
            }
        }
        Ok(())
    }

    async fn create_pod(&self, daemon_set: &DaemonSet, mut new: NewPod, hash: &str) -> Result<(), SyncError> {
        let Meta { uid, key, .. } = &daemon_set.meta;
        let names = Names::of(&key.name, uid);
        let collection = Pod::RESOURCE.path(Some(&key.namespace));
        // The node may be deleted, or be tainted, while the rate limiter delays the request.
        let node = new.node.clone();
        let still_wanted = || self.may_continue(daemon_set) && self.memory.runs_on(uid, &node);
        let mut taken = None;
        for _ in 0..NAMES {
            if !still_wanted() {
                return Ok(());
            }
            let what = || format!("creating pod {}/{}", key.namespace, new.name);
            let json = |error| SyncError::Json { what: what(), error };
            let body = pod_body(daemon_set, &new, hash).and_then(raw).map_err(json)?;
            let request = request::post(&collection, &[self.context.field_manager()], &body)
                .map(request::metadata_only)
                .map_err(json)?;
            let answer = self.context.api_for(daemon_set).call_while::<Written>(request, still_wanted).await;
            let error = match answer {
                Ok(written) => {
                    let version = written.resource_version().unwrap_or(0);
                    self.pod_created(daemon_set, &new.node, &new.name, version);
                    return Ok(());
                }
                // A change has put the key into the queue; a daemon that shuts down starts nothing new.
                Err(ApiError::NotSent(_)) if !still_wanted() => return Ok(()),
                Err(error) => error,
            };
            if !error.is_already_exists() {
                return Err(self.creation_failed(daemon_set, &new, SyncError::creation(what(), error)));
            }
            let existing = self.context.read::<Pod>(daemon_set, &format!("{collection}/{}", new.name)).await;
            let existing = match existing {
                Ok(existing) => Some(existing),
                Err(SyncError::Gone { .. }) => None,
                Err(error) => {
                    // An earlier request of ours may have created it: to be resolved before another is created.
                    self.context.in_doubt_writes.created(uid, new.name.clone());
                    return Err(error);
                }
            };
            let version = existing.as_ref().map_or(0, |pod| pod.meta.resource_version);
            match names::on_taken(daemon_set, &new.node, existing.as_ref()) {
                names::Taken::Created => {
                    self.memory.has_arrived(uid, &new.node);
                    self.pod_created(daemon_set, &new.node, &new.name, version);
                    return Ok(());
                }
                names::Taken::Wait => {
                    self.context.expect_write(daemon_set, Pod::RESOURCE, version);
                    return Err(SyncError::Conflict { what: what(), error });
                }
                names::Taken::NextSlot => {
                    self.context.expect_write(daemon_set, Pod::RESOURCE, version);
                    taken = Some(SyncError::Conflict { what: what(), error });
                    new.name = names.after(&new.node, &new.name);
                }
            }
        }
        taken.map_or(Ok(()), Err)
    }

    fn creation_failed(&self, daemon_set: &DaemonSet, new: &NewPod, error: SyncError) -> SyncError {
        let owner = &daemon_set.meta.uid;
        if error.may_have_happened() {
            if planted!("a DaemonSet pod whose creation got no reply is created under another name") {
                self.memory.pod_created(owner, &new.node, &new.name);
                return error;
            }
            self.context.in_doubt_writes.created(owner, new.name.clone());
            self.memory.creation_lost(owner, &new.node, self.context.now());
        }
        // No event in a namespace that is being deleted.
        if let SyncError::Refused { .. } = &error {
            self.memory.creation_refused(daemon_set, &new.node, error.is_over_quota());
            let message = format!("Error creating: {}", error.reason());
            self.context.record_event(
                ENTRY.component,
                daemon_set,
                EventNote::warning("FailedCreate", message),
            );
        }
        error
    }

    /// A pod is known to have been created for a node.
    pub(super) fn pod_created(&self, daemon_set: &DaemonSet, node: &Arc<str>, name: &str, version: u64) {
        let meta = &daemon_set.meta;
        self.memory.pod_created(&meta.uid, node, name);
        self.memory.we_created(&meta.uid, node, self.context.now());
        self.context.expect_write(daemon_set, Pod::RESOURCE, version);
        self.context.recreate_guard.created(meta, Instant::now());
        self.context.metrics.workloads.pods_created.inc();
        tracing::debug!(daemon_set = %meta.key, pod = name, %node, "created a pod");
        let note = EventNote::normal("SuccessfulCreate", format!("Created pod: {name}"));
        self.context.record_event(ENTRY.component, daemon_set, note);
    }

    /// Deletes pods, each with the observed UID as precondition.
    async fn delete_pods(&self, daemon_set: &DaemonSet, deletions: &[Deletion]) -> Result<(), SyncError> {
        let deleted: Vec<Result<(), SyncError>> = futures::stream::iter(deletions.to_vec())
            .map(|deletion| self.delete_pod(daemon_set, deletion))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        first_open(deleted.into_iter().filter_map(Result::err)).map_or(Ok(()), Err)
    }

    async fn delete_pod(&self, daemon_set: &DaemonSet, deletion: Deletion) -> Result<(), SyncError> {
        let Deletion { pod, reason, is_rollout: _ } = &deletion;
        let (owner, name) = (&daemon_set.meta.uid, &pod.meta.key.name);
        let still_wanted = || self.may_continue(daemon_set);
        if !still_wanted() {
            return Ok(());
        }
        let exactly = json!({"uid": pod.meta.uid});
        let Err(error) = self.context.delete_while(daemon_set, &**pod, exactly, still_wanted).await else {
            if let (Reason::Failed, Some(node)) = (*reason, pod.target()) {
                self.memory.failed_pod_deleted(daemon_set, node, self.context.now());
            }
            self.context.metrics.workloads.pods_deleted.inc();
            tracing::debug!(daemon_set = %daemon_set.meta.key, pod = %name, ?reason, "deleted a pod");
            if let Some(note) = deletion.note() {
                self.context.record_event(ENTRY.component, daemon_set, note);
            }
            let note = EventNote::normal("SuccessfulDelete", format!("Deleted pod: {name}"));
            self.context.record_event(ENTRY.component, daemon_set, note);
            return Ok(());
        };
        if matches!(error, ApiError::NotSent(_)) && !still_wanted() {
            return Ok(());
        }
        let error = SyncError::api(format!("deleting pod {}", pod.meta.key), error);
        if error.may_have_happened() {
            self.context.in_doubt_writes.deleted(owner, pod.meta.key.clone(), pod.meta.uid.clone());
        }
        if let SyncError::Refused { .. } = &error {
            let note = EventNote::warning("FailedDelete", format!("Error deleting: {}", error.reason()));
            self.context.record_event(ENTRY.component, daemon_set, note);
        }
        Err(error)
    }
}
