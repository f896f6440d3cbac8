//! The writes for one Job: its pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{ENTRY, JobController};
use crate::controllers::patch;
use crate::engine::controller::Executed;
use crate::engine::error::SyncError;
use crate::engine::execute::{AT_ONCE, Written, first_open, owner_of, path, raw};
use crate::model::{Job, Meta, Pod, Record, Uid};
use crate::plan::EventNote;
use crate::plan::job::new_pod::pod_body;
use crate::plan::job::status::Outcome;
use crate::plan::job::{Deletion, NewPod, Plan, Write};
use crate::plan::replicaset::slow_start::slow_start_batches;
use crate::runtime::api::ApiError;
use crate::runtime::request::{self, PatchType};

impl JobController {
    /// Executes the plan for a Job, in order. After a request without an answer nothing further is sent. A refused one
    /// holds up the creations alone: each of the other pods stands for itself.
    pub(super) async fn carry_out(&self, job: &Job, plan: &Plan) -> Executed<Outcome> {
        let meta = &job.meta;
        if let Some(note) = plan.note.as_ref().filter(|_| self.memory.is_news(&meta.uid, meta.generation)) {
            self.context.record_event(ENTRY.component, job, note.clone());
        }
        let mut outcome = Outcome::default();
        let mut first = None;
        for write in &plan.writes {
            let done = match write {
                Write::Adopt(pod) => self.adopt(job, pod).await,
                Write::Release(pod) => self.release(job, pod).await,
                Write::Untrack(pods) => self.untrack(job, pods, &mut outcome).await,
                Write::Track(pods) => self.track(job, pods).await,
                Write::Delete(deletions) => self.delete_pods(job, deletions, &mut outcome).await,
                Write::Create(_) if first.is_some() => continue,
                Write::Create(pods) => self.create_pods(job, pods, &mut outcome).await,
            };
            let Err(error) = done else { continue };
            if !error.is_refusal() {
                return Executed::new(outcome, Some(error));
            }
            first.get_or_insert(error);
        }
        Executed::new(outcome, first)
    }

    /// Whether to continue: the cache still shows the Job as it was at the decision, and the daemon is not shutting down.
    fn may_continue(&self, job: &Job) -> bool {
        self.context.is_unchanged(&self.jobs, &job.meta)
    }

    /// Changes a pod of the Job. Returns its new version.
    async fn change(&self, job: &Job, pod: &Pod, doing: &str, body: &Value) -> Result<u64, SyncError> {
        let what = || format!("{doing} pod {}", pod.meta.key);
        let target = path(Pod::RESOURCE, &pod.meta);
        let version = self.context.patch(job, what, &target, PatchType::Strategic, body).await?;
        self.context.expect_write(job, Pod::RESOURCE, version);
        Ok(version)
    }

    async fn adopt(&self, job: &Job, pod: &Pod) -> Result<(), SyncError> {
        let api_version = Job::RESOURCE.api_version();
        let body = patch::adopt_tracked(&pod.meta, &owner_of(job, &api_version));
        self.change(job, pod, "adopting", &body).await.map(drop)
    }

    async fn release(&self, job: &Job, pod: &Pod) -> Result<(), SyncError> {
        let body = patch::release_untracked(&pod.meta, &job.meta.uid);
        match self.change(job, pod, "releasing", &body).await {
            // A deleted pod needs no release.
            Err(SyncError::Gone { .. }) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Takes the finalizer off a pod; `exactly` as it was observed, or whatever became of it.
    async fn untrack_pod(&self, job: &Job, pod: &Pod, exactly: bool) -> Result<(), SyncError> {
        let body = patch::untrack(&pod.meta, exactly);
        let version = match self.change(job, pod, "taking the finalizer off", &body).await {
            Ok(version) => version,
            Err(SyncError::Gone { .. }) => u64::MAX,
            Err(error) => return Err(error),
        };
        // A pod that is being deleted may go at once: its last version does not tell when the cache shows that.
        let version = if pod.meta.is_deleting() { u64::MAX } else { version };
        self.memory.untracked(&job.meta.uid, &pod.meta.uid, version);
        Ok(())
    }

    async fn untrack(&self, job: &Job, pods: &[Arc<Pod>], outcome: &mut Outcome) -> Result<(), SyncError> {
        let calls: Vec<Call<'_, _>> = pods
            .iter()
            .map(|pod| async move { (pod.meta.uid.clone(), self.untrack_pod(job, pod, false).await) }.boxed())
            .collect();
        collect(all(calls).await, &mut outcome.untracked)
    }

    async fn track(&self, job: &Job, pods: &[Arc<Pod>]) -> Result<(), SyncError> {
        let calls: Vec<Call<'_, _>> = pods
            .iter()
            .map(|pod| {
                async move {
                    let tracked =
                        self.change(job, pod, "giving the finalizer to", &patch::track(&pod.meta)).await;
                    (pod.meta.uid.clone(), tracked.map(drop))
                }
                .boxed()
            })
            .collect();
        collect(all(calls).await, &mut BTreeSet::new())
    }

    async fn delete_pods(
        &self,
        job: &Job,
        deletions: &[Deletion],
        outcome: &mut Outcome,
    ) -> Result<(), SyncError> {
        let calls: Vec<Call<'_, _>> = deletions
            .iter()
            .map(|deletion| {
                async move { (deletion.pod.meta.uid.clone(), self.delete_pod(job, deletion).await) }.boxed()
            })
            .collect();
        collect(all(calls).await, &mut outcome.deleted)
    }

    /// Deletes a pod, unless the Job has changed meanwhile.
    async fn delete_pod(&self, job: &Job, deletion: &Deletion) -> Result<(), SyncError> {
        let pod = &deletion.pod;
        let name = &pod.meta.key.name;
        let still_wanted = || self.may_continue(job);
        if !still_wanted() {
            return Err(SyncError::Overtaken { what: format!("deleting pod {}", pod.meta.key) });
        }
        if deletion.untracks() {
            self.untrack_pod(job, pod, true).await?;
        }
        let uid = json!({"uid": pod.meta.uid});
        let Err(error) = self.context.delete_while(job, &**pod, uid, || true).await else {
            self.context.metrics.workloads.pods_deleted.inc();
            tracing::debug!(job = %job.meta.key, pod = %name, cause = ?deletion.cause, "deleted a pod");
            let note = EventNote::normal("SuccessfulDelete", format!("Deleted pod: {name}"));
            self.context.record_event(ENTRY.component, job, note);
            return Ok(());
        };
        let error = SyncError::api(format!("deleting pod {}", pod.meta.key), error);
        if error.may_have_happened() {
            self.context.in_doubt_writes.deleted(&job.meta.uid, pod.meta.key.clone(), pod.meta.uid.clone());
        }
        if let SyncError::Refused { .. } = &error {
            let note = EventNote::warning("FailedDelete", format!("Error deleting: {}", error.reason()));
            self.context.record_event(ENTRY.component, job, note);
        }
        Err(error)
    }

    /// Creates pods in slow-start batches. After a refusal the current batch is completed, and no other is sent.
    async fn create_pods(&self, job: &Job, pods: &[NewPod], outcome: &mut Outcome) -> Result<(), SyncError> {
        let mut left = pods;
        for size in slow_start_batches(pods.len()) {
            let (batch, rest) = left.split_at(size);
            left = rest;
            let calls: Vec<Call<'_, _>> = batch
                .iter()
                .map(|new| {
                    async move {
                        match self.create_pod(job, new).await {
                            Ok(is_created) => (is_created, Ok(())),
                            Err(error) => (false, Err(error)),
                        }
                    }
                    .boxed()
                })
                .collect();
            let results = all(calls).await;
            outcome.created += results.iter().filter(|(is_created, _)| *is_created).count();
            outcome.not_created += results.iter().filter(|(_, done)| done.is_err()).count();
            if let Some(error) = first_open(results.into_iter().filter_map(|(_, done)| done.err())) {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Creates a pod. Whether it was created, and not left to a later sync, since the Job has changed meanwhile.
    async fn create_pod(&self, job: &Job, new: &NewPod) -> Result<bool, SyncError> {
        let Meta { uid, key, .. } = &job.meta;
        let name = &new.name;
        let what = || format!("creating pod {}/{name}", key.namespace);
        let json = |error| SyncError::Json { what: what(), error };
        let still_wanted = || self.may_continue(job);
        if !still_wanted() {
            return Ok(false);
        }
        let collection = Pod::RESOURCE.path(Some(&key.namespace));
        let body = pod_body(job, new).and_then(raw).map_err(json)?;
        let request = request::post(&collection, &[self.context.field_manager()], &body)
            .map(request::metadata_only)
            .map_err(json)?;
        if new.index.is_none() {
            self.names().name_requested(job, name);
        }
        let error = match self.context.api_for(job).call_while::<Written>(request, still_wanted).await {
            Ok(written) => {
                self.pod_created(job, name, written.resource_version().unwrap_or(0));
                return Ok(true);
            }
            // A change has put the key into the queue; a daemon that shuts down starts nothing new.
            Err(ApiError::NotSent(_)) if !still_wanted() => return Ok(false),
            Err(error) => error,
        };
        if error.is_already_exists() {
            return match self.context.read::<Pod>(job, &format!("{collection}/{name}")).await {
                Ok(there)
                    if job.controls(&there.meta) && there.is_active() && has_index(&there, new.index) =>
                {
                    self.pod_created(job, name, there.meta.resource_version);
                    Ok(true)
                }
                Ok(there) => {
                    // It has ended since, is somebody else's, or a user has given it another index.
                    self.name_taken(job, new);
                    self.context.expect_write(job, Pod::RESOURCE, there.meta.resource_version);
                    Err(SyncError::Conflict { what: what(), error })
                }
                Err(SyncError::Gone { .. }) => {
                    self.name_taken(job, new);
                    Err(SyncError::Conflict { what: what(), error })
                }
                // An earlier request of ours may have created it: to be resolved before another is created.
                Err(unread) => {
                    self.context.in_doubt_writes.created(uid, name.clone());
                    Err(unread)
                }
            };
        }
        let error = SyncError::creation(what(), error);
        if error.may_have_happened() {
            self.context.in_doubt_writes.created(uid, name.clone());
        }
        if let SyncError::Refused { .. } = &error {
            let note = EventNote::warning("FailedCreate", format!("Error creating: {}", error.reason()));
            self.context.record_event(ENTRY.component, job, note);
        }
        Err(error)
    }

    fn name_taken(&self, job: &Job, new: &NewPod) {
        match new.index {
            Some(index) => self.memory.name_used(job, &new.name, index),
            None => self.names().name_had(job, &new.name),
        }
    }

    /// A pod is known to have been created.
    pub(super) fn pod_created(&self, job: &Job, name: &str, version: u64) {
        let meta = &job.meta;
        if !job.is_indexed() {
            self.names().name_had(job, name);
        }
        self.context.expect_write(job, Pod::RESOURCE, version);
        self.context.recreate_guard.created(meta, Instant::now());
        self.context.metrics.workloads.pods_created.inc();
        tracing::debug!(job = %meta.key, pod = name, "created a pod");
        let note = EventNote::normal("SuccessfulCreate", format!("Created pod: {name}"));
        self.context.record_event(ENTRY.component, job, note);
    }
}

/// A call, and what it is for.
type Call<'c, T> = BoxFuture<'c, (T, Result<(), SyncError>)>;

/// Whether a pod is of this index; of a Job without indexes any is.
fn has_index(pod: &Pod, index: Option<i32>) -> bool {
    index.is_none() || pod.job.as_ref().is_some_and(|part| part.index == index)
}

/// Some calls, up to one without an answer. Those that run then are completed.
async fn all<T>(calls: Vec<Call<'_, T>>) -> Vec<(T, Result<(), SyncError>)> {
    let mut calls = calls.into_iter();
    let (mut running, mut results) = (FuturesUnordered::new(), Vec::new());
    let mut is_stopped = false;
    loop {
        while !is_stopped && running.len() < AT_ONCE {
            let Some(call) = calls.next() else { break };
            running.push(call);
        }
        let Some((of, done)) = running.next().await else { return results };
        is_stopped |= done.as_ref().is_err_and(|error| !error.is_refusal());
        results.push((of, done));
    }
}

/// Keeps the UIDs of the calls that succeeded, and returns the error that counts.
fn collect(
    results: impl IntoIterator<Item = (Uid, Result<(), SyncError>)>,
    done: &mut BTreeSet<Uid>,
) -> Result<(), SyncError> {
    let mut errors = Vec::new();
    for (uid, result) in results {
        match result {
            Ok(()) => drop(done.insert(uid)),
            Err(error) => errors.push(error),
        }
    }
    first_open(errors).map_or(Ok(()), Err)
}
