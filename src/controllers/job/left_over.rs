//! Takes the finalizer of Jobs off pods that no Job counts: theirs is gone or finished, or they have no controller. A pod
//! that was created while its Job finished is deleted first.
//!
//! Each such pod is a key with its own retry. Upstream scans the pods of a Job once, when it is deleted, and does not
//! retry (kubernetes#141346).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;

use super::ENTRY;
use crate::controllers::patch;
use crate::engine::context::Context;
use crate::engine::entry::{ControllerEntry, Worker};
use crate::engine::error::SyncError;
use crate::model::{Job, ObjectKey, Pod, Record, Resource, Uid};
use crate::plan::EventNote;
use crate::plan::job::untrack::{came_too_late, is_left_over, may_be_left_over};
use crate::runtime::request::PatchType;
use crate::runtime::store::Store;
use crate::runtime::worker::{Next, WorkQueue, run_workers};

/// How many deleted Jobs are known by UID. The API server is asked about any other, once for a pod.
const MOST_DELETED: usize = 1024;

/// How often a pod looks whether the cache of Jobs is complete.
const LISTED: Duration = Duration::from_secs(1);

/// The pods whose finalizers may be left over.
pub struct LeftOver {
    context: Arc<Context>,
    jobs: Arc<Store<Job>>,
    pods: Arc<Store<Pod>>,
    queue: WorkQueue<ObjectKey>,
    /// Jobs in scope that are known to be deleted; a UID does not come back.
    deleted: Mutex<VecDeque<Uid>>,
}

impl LeftOver {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        LeftOver {
            jobs: context.store(),
            pods: context.store(),
            queue: WorkQueue::new("job_orphan_pod", context.metrics()),
            deleted: Mutex::default(),
            context: context.clone(),
        }
    }

    /// A pod has changed, or what becomes of its finalizer.
    pub(super) fn pod_changed(&self, pod: &Pod) {
        if may_be_left_over(pod, self.jobs.controller_of(&pod.meta).as_deref()) {
            self.queue.add(pod.meta.key.clone());
        }
    }

    /// A Job was deleted.
    pub(super) fn job_deleted(&self, job: &Job, is_in_scope: bool) {
        if is_in_scope && job.managed_by.is_none() {
            self.remember(&job.meta.uid);
        }
    }

    fn remember(&self, job: &Uid) {
        let mut deleted = self.deleted.lock();
        deleted.push_back(job.clone());
        if deleted.len() > MOST_DELETED {
            deleted.pop_front();
        }
    }

    async fn sync(&self, key: ObjectKey) -> Result<Next, SyncError> {
        let Some(pod) = self.pods.get(&key) else { return Ok(Next::Settled) };
        let job = self.jobs.controller_of(&pod.meta);
        if !may_be_left_over(&pod, job.as_deref()) {
            return Ok(Next::Settled);
        }
        if !self.jobs.is_synced() {
            return Ok(Next::After(LISTED));
        }
        let scope = &self.context.settings().scope;
        let reference = pod.meta.controller.as_ref();
        let is_known = |uid: &Uid| self.deleted.lock().contains(uid);
        match (&job, reference) {
            (Some(job), _) if !scope.selects(&job.meta) => return Ok(Next::Settled),
            (Some(_), _) => {}
            (None, Some(owner)) if is_known(&owner.uid) => {}
            // The labels of a Job that is gone are not known.
            (None, _) if scope.selector.is_some() => return Ok(Next::Settled),
            (None, None) => {}
            (None, Some(owner)) => {
                // A cache that lags must not let a pod go that its Job has yet to count.
                let job = ObjectKey::new(key.namespace.clone(), owner.name.clone());
                let api = self.context.api_of_controller(&ENTRY, &*pod);
                match self.context.read_by::<Job>(&api, &Job::RESOURCE.path_of(&job)).await {
                    Ok(fresh) if !is_left_over(&pod, Some(&fresh)) => return Ok(Next::Settled),
                    Ok(_) | Err(SyncError::Gone { .. }) => self.remember(&owner.uid),
                    Err(error) => return Err(error),
                }
            }
        }
        if let Some(job) = job.as_ref().filter(|job| came_too_late(&pod, Some(job))) {
            // Its deletion changes it, so that the finalizer goes next.
            let exactly =
                json!({"uid": pod.meta.uid, "resourceVersion": pod.meta.resource_version.to_string()});
            let deleted = self.context.delete_while(&**job, &*pod, exactly, || true).await;
            deleted.map_err(|error| SyncError::api(format!("deleting pod {key}"), error))?;
            self.context.metrics.workloads.pods_deleted.inc();
            let note = EventNote::normal("SuccessfulDelete", format!("Deleted pod: {}", key.name));
            self.context.record_event(ENTRY.component, &**job, note);
            tracing::info!(pod = %key, "deleted a pod that was created while its Job finished");
            return Ok(Next::Settled);
        }
        let what = || format!("taking the finalizer of Jobs off pod {key}");
        let query = [self.context.field_manager()];
        // Without a controller, it may have been adopted meanwhile by a Job that has yet to count it.
        let body = patch::untrack(&pod.meta, reference.is_none());
        let how = (PatchType::Strategic, &query[..]);
        match self.context.patch_as::<Pod>(&ENTRY, &*pod, what, &key, how, &body).await {
            Ok(_) | Err(SyncError::Gone { .. }) => Ok(Next::Settled),
            Err(error) => Err(error),
        }
    }
}

/// The controller with both of its queues.
pub(super) struct JobWorker {
    pub(super) driver: Box<dyn Worker>,
    pub(super) left_over: Arc<LeftOver>,
}

impl Worker for JobWorker {
    fn entry(&self) -> &'static ControllerEntry {
        self.driver.entry()
    }

    fn run(&self, workers: usize) -> BoxFuture<'static, ()> {
        let (jobs, left_over) = (self.driver.run(workers), self.left_over.clone());
        Box::pin(async move {
            let pods = run_workers(left_over.queue.clone(), workers, move |key: ObjectKey| {
                let left_over = left_over.clone();
                async move { left_over.sync(key).await }
            });
            futures::join!(jobs, pods);
        })
    }

    fn shut_down(&self) {
        self.driver.shut_down();
        self.left_over.queue.shut_down();
    }

    fn longest_running(&self) -> Duration {
        self.driver.longest_running().max(self.left_over.queue.longest_running())
    }

    fn resync(&self) {
        self.driver.resync();
        self.left_over.pods.for_each(|pod| {
            if pod.job.as_ref().is_some_and(|part| part.has_finalizer) {
                self.left_over.queue.add(pod.meta.key.clone());
            }
        });
    }

    fn awaited_kinds(&self) -> &'static [Resource] {
        self.driver.awaited_kinds()
    }

    fn drop_deleted_keys(&self) {
        self.driver.drop_deleted_keys();
        self.left_over.queue.retain(|key| self.left_over.pods.get(key).is_some());
    }
}
