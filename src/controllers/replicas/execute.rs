//! The writes for one owner: its pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use futures::{StreamExt, TryFutureExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::{ReplicaController, ReplicaKind};
use crate::engine::controller::Executed;
use crate::engine::error::SyncError;
use crate::engine::execute::{AT_ONCE, Written, first_refusal, owner_of, raw};
use crate::model::{Meta, Pod, Record};
use crate::plan::EventNote;
use crate::plan::replicaset::new_pod::pod_body;
use crate::plan::replicaset::slow_start::slow_start_batches;
use crate::plan::replicaset::status::Failure;
use crate::plan::replicaset::{Plan, Write};
use crate::runtime::api::ApiError;
use crate::runtime::request;

impl<O: ReplicaKind> ReplicaController<O> {
    /// Executes the plan for an owner, in order, up to the first write that fails. A refused claim is followed by the
    /// other claims, as upstream does (`ClaimPods`): a pod that cannot be changed must not keep others from being adopted.
    pub(super) async fn carry_out(&self, owner: &O, plan: &Plan) -> Executed<Option<Failure>> {
        let about_policy = self.policy_notes.to_record(owner.meta(), &plan.policy_notes);
        for note in plan.notes.iter().chain(about_policy) {
            self.context.record_event(O::ENTRY.component, owner, note.clone());
        }
        let mut refused = None;
        for write in &plan.writes {
            if refused.is_some() && !write.is_claim() {
                break;
            }
            let done = match write {
                Write::Adopt(pod) => self.context.adopt(owner, &**pod).await,
                Write::Release(pod) => self.context.release(owner, &**pod).await,
                Write::Create { count, names } => self.create_pods(owner, *count, names).await,
                Write::Delete(pods) => self.delete_pods(owner, pods).await,
                Write::DeleteFailed(pods) => {
                    // A pod that ran has ended: no condition says that it is still there.
                    if let Err(error) = self.delete_failed_pods(owner, pods).await {
                        return Executed::new(None, Some(error));
                    }
                    continue;
                }
            };
            if let Err(error) = done {
                // The text of a claim names the pod; those of the others are upstream's.
                let outcome = error.is_refusal().then(|| match write.is_claim() {
                    true => Failure::of(write, error.to_string()),
                    false => Failure::of(write, error.reason()),
                });
                if !(write.is_claim() && error.is_refusal()) {
                    return Executed::new(outcome, Some(error));
                }
                refused.get_or_insert((outcome, error));
            }
        }
        refused.map_or(Executed::new(None, None), |(outcome, error)| Executed::new(outcome, Some(error)))
    }

    /// Whether to continue: the cache still shows the owner as it was at the decision, and the daemon
    /// is not shutting down. Hundreds of pods take longer than a shutdown may take. The rest is left
    /// to the next sync, for which a change has put the key into the queue.
    fn may_continue(&self, owner: &O) -> bool {
        self.context.is_unchanged(&self.owners, owner.meta())
    }

    /// Whether a creation or deletion that the server delayed is still needed: the owner is as it was,
    /// and the cache has not reached its size meanwhile. Of the pods of the same batch it may show all or none.
    fn still_needs(&self, owner: &O, creates: bool) -> bool {
        let desired = usize::try_from(owner.as_replica_set().replicas).unwrap_or(0);
        let pods = self.pods.owned_by(&owner.as_owner());
        let active = pods.iter().filter(|pod| pod.is_active()).count();
        self.may_continue(owner) && if creates { active < desired } else { active > desired }
    }

    /// Creates pods in slow-start batches. After a refusal the current batch is completed, and no other is sent
    /// (upstream: `slowStartBatch`). After a request without an answer nothing further is sent, not even of the same
    /// batch: each request would take the whole timeout, and leave a name in doubt.
    async fn create_pods(&self, owner: &O, count: usize, names: &[String]) -> Result<(), SyncError> {
        let names = Mutex::new(names.iter());
        let next_name = || names.lock().next().filter(|_| self.may_continue(owner));
        let stopped = AtomicBool::new(false);
        let stop_unless_refused = |error: &SyncError| {
            stopped.fetch_or(!error.is_refusal(), Relaxed);
        };
        for batch in slow_start_batches(count) {
            let created: Vec<Result<(), SyncError>> = futures::stream::iter(0..batch)
                .take_while(|_| std::future::ready(!stopped.load(Relaxed)))
                .map(|_| self.create_pod(owner, &next_name).inspect_err(stop_unless_refused))
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
            first_refusal(created)?;
        }
        Ok(())
    }

    async fn create_pod<'n>(
        &self,
        owner: &O,
        next_name: &impl Fn() -> Option<&'n String>,
    ) -> Result<(), SyncError> {
        let meta = owner.meta();
        let collection = Pod::RESOURCE.path(Some(&meta.key.namespace));
        let api_version = O::RESOURCE.api_version();
        let mut taken = None;
        while let Some(name) = next_name() {
            let what = || format!("creating pod {}/{name}", meta.key.namespace);
            let body = pod_body(owner.as_replica_set(), owner_of(owner, &api_version), name)
                .and_then(raw)
                .map_err(|error| SyncError::Json { what: what(), error })?;
            let request = request::post(&collection, &[self.context.field_manager()], &body)
                .map(request::metadata_only)
                .map_err(|error| SyncError::Json { what: what(), error })?;
            self.names().name_requested(owner, name);
            let still_wanted = || self.still_needs(owner, true);
            let error = match self.context.api_for(owner).call_while::<Written>(request, still_wanted).await {
                Ok(written) => {
                    let version = written.resource_version().unwrap_or(0);
                    self.pod_created(owner, name, version);
                    return Ok(());
                }
                // A change of the owner has put the key into the queue; a daemon that shuts down starts nothing new.
                Err(ApiError::NotSent(_)) if !still_wanted() => return Ok(()),
                Err(error) => error,
            };
            if error.is_already_exists() {
                match self.context.read::<Pod>(owner, &format!("{collection}/{name}")).await {
                    Ok(there) if owner.controls(&there.meta) => {
                        let version = there.meta.resource_version;
                        if there.is_active() {
                            self.pod_created(owner, name, version);
                            return Ok(());
                        }
                        // Created by another client and ended since; the cache has yet to show both.
                        self.names().name_had(owner, name);
                        self.context.expectations.expect_write(&meta.uid, Pod::RESOURCE, version);
                        return Err(SyncError::Conflict { what: what(), error });
                    }
                    Ok(_) | Err(SyncError::Gone { .. }) => {}
                    // An earlier request of ours may have created it: to be resolved before another is created.
                    Err(error) => {
                        self.context.in_doubt_writes.created(&meta.uid, name.clone());
                        return Err(error);
                    }
                }
                // By a pod that the cache does not show yet; the next sync will see it.
                taken = Some(SyncError::Conflict { what: what(), error });
                continue;
            }
            let error = SyncError::creation(what(), error);
            if error.may_have_happened() {
                self.context.in_doubt_writes.created(&meta.uid, name.clone());
            }
            // No event in a namespace that is being deleted, and one call suffices to learn that: upstream counts it
            // as a success, which would be followed by a call for every other pod.
            if let SyncError::Refused { .. } = &error {
                let message = format!("Error creating: {}", error.reason());
                self.context.record_event(
                    O::ENTRY.component,
                    owner,
                    EventNote::warning("FailedCreate", message),
                );
            }
            return Err(error);
        }
        taken.map_or(Ok(()), Err)
    }

    pub(super) fn pod_created(&self, owner: &O, name: &str, version: u64) {
        let meta = owner.meta();
        self.names().name_had(owner, name);
        self.context.expectations.expect_write(&meta.uid, Pod::RESOURCE, version);
        self.context.recreate_guard.created(meta, Instant::now());
        self.context.metrics.workloads.pods_created.inc();
        tracing::debug!(kind = O::RESOURCE.kind, owner = %meta.key, pod = name, "created a pod");
        self.context.record_event(
            O::ENTRY.component,
            owner,
            EventNote::normal("SuccessfulCreate", format!("Created pod: {name}")),
        );
    }

    /// Deletes pods, each with the observed UID as precondition.
    async fn delete_pods(&self, owner: &O, pods: &[Arc<Pod>]) -> Result<(), SyncError> {
        let deleted: Vec<Result<(), SyncError>> =
            futures::stream::iter(self.maybe_deleted_first(owner, pods))
                .map(|pod| async move {
                    if !self.may_continue(owner) {
                        return Ok(());
                    }
                    self.delete_pod(owner, &pod, || self.still_needs(owner, false)).await
                })
                .buffer_unordered(AT_ONCE)
                .collect()
                .await;
        first_refusal(deleted)
    }

    /// Deletes failed pods that are kept no longer, each with the observed UID as precondition.
    async fn delete_failed_pods(&self, owner: &O, pods: &[Arc<Pod>]) -> Result<(), SyncError> {
        let deleted: Vec<Result<(), SyncError>> = futures::stream::iter(pods.to_vec())
            .map(|pod| async move {
                if !self.may_continue(owner) {
                    return Ok(());
                }
                self.delete_pod(owner, &pod, || self.may_continue(owner)).await?;
                self.context.metrics.workloads.failed_pods_deleted.inc();
                Ok(())
            })
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        first_refusal(deleted)
    }

    /// As many pods as planned. Those that an earlier deletion may still reach come first: if it does
    /// reach them, no further pod is lost (S12).
    fn maybe_deleted_first(&self, owner: &O, planned: &[Arc<Pod>]) -> Vec<Arc<Pod>> {
        let Meta { uid: owner_uid, .. } = owner.meta();
        let mut chosen: Vec<Arc<Pod>> = Vec::with_capacity(planned.len());
        for (key, uid, seen) in self.context.in_doubt_writes.take_maybe_deleted(owner_uid, Instant::now()) {
            let pod = self.pods.get(&key).filter(|pod| {
                pod.meta.uid == uid
                    && pod.is_active()
                    && owner.controls(&pod.meta)
                    && owner.as_replica_set().selector.matches(&pod.meta.labels)
            });
            match pod {
                Some(pod) if chosen.len() < planned.len() => chosen.push(pod),
                Some(_) => self.context.in_doubt_writes.maybe_deleted(owner_uid, key, uid, seen),
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

    async fn delete_pod(
        &self,
        owner: &O,
        pod: &Pod,
        still_wanted: impl Fn() -> bool,
    ) -> Result<(), SyncError> {
        let meta = owner.meta();
        let name = &pod.meta.key.name;
        let uid = json!({"uid": pod.meta.uid});
        let Err(error) = self.context.delete_while(owner, pod, uid, &still_wanted).await else {
            self.context.metrics.workloads.pods_deleted.inc();
            tracing::debug!(kind = O::RESOURCE.kind, owner = %meta.key, pod = %name, "deleted a pod");
            self.context.record_event(
                O::ENTRY.component,
                owner,
                EventNote::normal("SuccessfulDelete", format!("Deleted pod: {name}")),
            );
            return Ok(());
        };
        if matches!(error, ApiError::NotSent(_)) && !still_wanted() {
            return Ok(());
        }
        let error = SyncError::api(format!("deleting pod {}", pod.meta.key), error);
        if error.may_have_happened() {
            self.context.in_doubt_writes.deleted(&meta.uid, pod.meta.key.clone(), pod.meta.uid.clone());
        }
        if let SyncError::Refused { .. } = &error {
            let note = EventNote::warning("FailedDelete", format!("Error deleting: {}", error.reason()));
            self.context.record_event(O::ENTRY.component, owner, note);
        }
        Err(error)
    }
}
