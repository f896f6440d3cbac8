//! Takes the condition `DisruptionTarget` back from pods that were not disrupted. Each such pod is a key of a queue of its own.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::ENTRY;
use crate::engine::context::Context;
use crate::engine::entry::{ControllerEntry, Worker};
use crate::engine::error::SyncError;
use crate::model::{ObjectKey, Pod, Resource};
use crate::plan::disruption::stale_target as planner;
use crate::runtime::request::PatchType;
use crate::runtime::store::Store;
use crate::runtime::worker::{Next, WorkQueue, run_workers};

/// The pods with the condition.
pub(super) struct StaleTargets {
    context: Arc<Context>,
    pods: Arc<Store<Pod>>,
    queue: WorkQueue<ObjectKey>,
}

impl StaleTargets {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        StaleTargets {
            pods: context.store(),
            queue: WorkQueue::new("stale_pod_disruption", context.metrics()),
            context: context.clone(),
        }
    }

    /// A pod has changed.
    pub(super) fn pod_changed(&self, pod: &Pod) {
        if let Some(wait) = planner::clear_in(pod, self.context.now()) {
            self.queue.add_after(pod.meta.key.clone(), wait);
        }
    }

    async fn sync(&self, key: ObjectKey) -> Result<Next, SyncError> {
        let Some(pod) = self.pods.get(&key) else { return Ok(Next::Settled) };
        if !self.context.settings().scope.selects(&pod.meta) {
            return Ok(Next::Settled);
        }
        let now = self.context.now();
        match planner::clear_in(&pod, now) {
            None => return Ok(Next::Settled),
            Some(wait) if !wait.is_zero() => return Ok(Next::After(wait)),
            Some(_) => {}
        }
        let what = || format!("taking the condition DisruptionTarget of pod {key} back");
        let status = ObjectKey::new(key.namespace.clone(), format!("{}/status", key.name));
        let query = [self.context.field_manager()];
        let how = (PatchType::Strategic, &query[..]);
        let body = planner::cleared(&pod.meta, now);
        match self.context.patch_as::<Pod>(&ENTRY, &*pod, what, &status, how, &body).await {
            Ok(_) => {
                tracing::info!(pod = %key, "took a stale condition DisruptionTarget back");
                Ok(Next::Settled)
            }
            Err(SyncError::Gone { .. }) => Ok(Next::Settled),
            Err(error) => Err(error),
        }
    }
}

/// The controller with both of its queues.
pub(super) struct DisruptionWorker {
    pub(super) driver: Box<dyn Worker>,
    pub(super) stale_targets: Arc<StaleTargets>,
}

impl Worker for DisruptionWorker {
    fn entry(&self) -> &'static ControllerEntry {
        self.driver.entry()
    }

    fn run(&self, workers: usize) -> BoxFuture<'static, ()> {
        let (budgets, stale_targets) = (self.driver.run(workers), self.stale_targets.clone());
        Box::pin(async move {
            let pods = run_workers(stale_targets.queue.clone(), 1, move |key: ObjectKey| {
                let stale_targets = stale_targets.clone();
                async move { stale_targets.sync(key).await }
            });
            futures::join!(budgets, pods);
        })
    }

    fn shut_down(&self) {
        self.driver.shut_down();
        self.stale_targets.queue.shut_down();
    }

    fn longest_running(&self) -> Duration {
        self.driver.longest_running().max(self.stale_targets.queue.longest_running())
    }

    fn resync(&self) {
        self.driver.resync();
        self.stale_targets.pods.for_each(|pod| self.stale_targets.pod_changed(pod));
    }

    fn awaited_kinds(&self) -> &'static [Resource] {
        self.driver.awaited_kinds()
    }

    fn drop_deleted_keys(&self) {
        self.driver.drop_deleted_keys();
        self.stale_targets.queue.retain(|key| self.stale_targets.pods.get(key).is_some());
    }
}
