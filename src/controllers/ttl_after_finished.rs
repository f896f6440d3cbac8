//! The TTL-after-finished controller: deletes Jobs some time after their end.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::json;

use crate::engine::SyncError;
use crate::engine::context::Context;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::one_write::{OneWrite, install};
use crate::engine::setup::Setup;
use crate::model::{CronJob, Job, ObjectKey, Record};
use crate::plan::ttl as planner;

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "ttl-after-finished-controller",
    aliases: &[],
    kind: Job::RESOURCE,
    objects: "finished Jobs",
    flag: "concurrent-ttl-after-finished-syncs",
    workers: 5,
    queue: "ttl_jobs_to_delete",
    component: "ttl-after-finished-controller",
    watches: &[Job::RESOURCE],
    stale_skips: None,
    is_on_by_default: true,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install: |setup: &mut Setup| -> Box<dyn Worker> {
        let controller = TtlAfterFinished { context: setup.context().clone() };
        install(controller, &ENTRY, setup)
    },
};

/// The TTL-after-finished controller.
pub struct TtlAfterFinished {
    context: Arc<Context>,
}

impl OneWrite for TtlAfterFinished {
    type Object = Job;
    /// The deletion.
    type Write = ();

    fn in_scope(&self, job: &Job) -> bool {
        self.context.settings().scope.selects(&job.meta)
    }

    fn decide(&self, job: &Job) -> Option<()> {
        planner::is_due(job, self.context.now()).then_some(())
    }

    fn look_again(&self, job: &Job) -> Option<Duration> {
        planner::look_again(job, self.context.now())
    }

    fn write<'a>(&'a self, job: &'a Job, (): &'a ()) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(self.delete(job))
    }
}

impl TtlAfterFinished {
    /// Deletes a Job that is still due when it is read from the API server: its TTL may have been raised.
    async fn delete(&self, job: &Job) -> Result<(), SyncError> {
        let Some(fresh) = self.read::<Job>(job, &job.meta.key).await? else { return Ok(()) };
        let (meta, now) = (&fresh.meta, self.context.now());
        if meta.uid != job.meta.uid || !planner::is_due(&fresh, now) {
            return Ok(());
        }
        if fresh.scheduled.is_some()
            && let Some(owner) = &meta.controller
        {
            let key = ObjectKey::new(meta.key.namespace.clone(), owner.name.clone());
            let cron_job = self.read::<CronJob>(job, &key).await?;
            if planner::is_spared(&fresh, cron_job.as_ref(), now) {
                return Ok(());
            }
        }
        let version = meta.resource_version.to_string();
        let preconditions = json!({"uid": meta.uid, "resourceVersion": version});
        let options = json!({"propagationPolicy": "Foreground", "preconditions": preconditions});
        let deleted = self.context.delete_as(&ENTRY, job, &fresh, options).await;
        let version = deleted.map_err(|error| SyncError::api(format!("deleting job {}", meta.key), error))?;
        self.context.expectations.expect_deletion(&meta.uid, Job::RESOURCE, &meta.key, &meta.uid, version);
        if let Some(expired) = planner::expires(&fresh) {
            let late = now.duration_since(expired).as_secs_f64();
            self.context.metrics().workloads.ttl_deletion_duration.observe(late);
        }
        Ok(())
    }

    /// Reads an object past the caches; `None` if there is none.
    async fn read<T: Record>(&self, job: &Job, key: &ObjectKey) -> Result<Option<T>, SyncError> {
        let api = self.context.api_of_controller(&ENTRY, job);
        match self.context.read_by::<T>(&api, &T::RESOURCE.path_of(key)).await {
            Ok(object) => Ok(Some(object)),
            Err(SyncError::Gone { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
