//! One driver for all controllers: it runs the five steps, retries, throttles the status, and publishes the
//! explanation. No decision is made here.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::context::Context;
use super::controller::{Controller, Settled, Status};
use super::entry::{ControllerEntry, Worker};
use super::error::SyncError;
use super::execute::path;
use super::explanations::Explanation;
use super::gate::{self, Gate, Pass};
use super::setup::{HandlerOrder, Setup};
use super::status_throttle::{GATHERING, SPACING};
use crate::model::{ObjectKey, Record, Resource};
use crate::plan::Urgency;
use crate::runtime::parked_keys::ParkedKeys;
use crate::runtime::request::PatchType;
use crate::runtime::store::{Change, Store};
use crate::runtime::worker::{Next, WorkQueue, run_workers};

/// A controller with its queue.
pub struct Driver<C: Controller> {
    pub(super) controller: Arc<C>,
    pub(super) context: Arc<Context>,
    pub(super) entry: &'static ControllerEntry,
    pub(super) objects: Arc<Store<C::Object>>,
    queue: WorkQueue<ObjectKey>,
    pub(super) parked_keys: ParkedKeys<ObjectKey>,
}

impl<C: Controller> Driver<C> {
    /// Registers a controller's handlers.
    pub fn new(controller: Arc<C>, entry: &'static ControllerEntry, setup: &mut Setup) -> Arc<Self> {
        let context = setup.context().clone();
        let driver = Arc::new(Driver {
            objects: context.store::<C::Object>(),
            queue: context.control_of(entry).queue.clone(),
            parked_keys: context.control_of(entry).parked_keys.clone(),
            entry,
            context,
            controller: controller.clone(),
        });
        let (own, is_enabled) = (driver.clone(), setup.is_enabled(entry));
        setup.on_change::<C::Object>(HandlerOrder::Owner, move |change| own.changed(change, is_enabled));
        controller.watch(setup);
        driver
    }

    /// The controller.
    pub fn controller(&self) -> &C {
        &self.controller
    }

    /// An object of the controller's kind has changed: wakes its own key. A controller that is switched off may share its
    /// kind with one that is not: nobody would take its keys.
    fn changed(&self, change: &Change<C::Object>, is_enabled: bool) {
        let (object, context) = (change.object(), &self.context);
        if let Change::Deleted(_) = change {
            context.forget(&object.meta().uid);
        }
        if !is_enabled {
            return;
        }
        let key = object.meta().key.clone();
        match self.controller.wakes_after(change) {
            Some(Duration::ZERO) => self.queue.add(key),
            Some(delay) => self.queue.add_after(key, delay),
            None => {}
        }
        // Objects out of scope may have another controller.
        if self.controller.in_scope(object) {
            let controller = &self.controller;
            context
                .foreign_writers
                .status_changed(change, |old, new| controller.status(old) != controller.status(new));
        }
    }

    /// Observe, plan, execute, settle.
    ///
    /// # Errors
    /// When a write or a read fails; the key is then retried with backoff.
    pub async fn sync(&self, key: &ObjectKey) -> Result<Next, SyncError> {
        let Some(object) = self.objects.get(key) else {
            self.controller.on_deleted(key);
            return self.clean_up(key).await;
        };
        if !self.controller.in_scope(&object) {
            return Ok(Next::Settled);
        }
        let result = self.decide(&object).await;
        self.context.forget_if_gone(&self.objects, object.meta());
        result
    }

    /// Deletes what is left of an object that does not exist, once the caches show the state at the election: the object may be
    /// there all the same.
    async fn clean_up(&self, key: &ObjectKey) -> Result<Next, SyncError> {
        if !self.controller.has_left_over(key) {
            return Ok(Next::Settled);
        }
        match gate::before_clean_up(self, key) {
            Some(wait) => Ok(wait),
            None => self.controller.clean_up(key).await.map(|()| Next::Settled),
        }
    }

    /// Observe and plan behind the gate, until a plan may be carried out or the key must wait.
    async fn decide(&self, object: &C::Object) -> Result<Next, SyncError> {
        let controller = &self.controller;
        controller.resolve(object).await?;
        let mut gate = Gate::new(self);
        if let Pass::Wait(next) = gate.enter(object).await? {
            return Ok(next);
        }
        loop {
            let object = match gate.before_decision(object.meta()) {
                Ok(object) => object,
                Err(next) => return Ok(next),
            };
            let observed = controller.observe(&object, gate.may_adopt());
            let plan = controller.plan(&observed);
            match gate.before_write(&object, &plan).await? {
                Pass::Open => return self.carry_out(&object, &observed, plan).await,
                Pass::Wait(next) => return Ok(next),
                Pass::Again => {}
            }
        }
    }

    async fn carry_out(
        &self,
        object: &C::Object,
        observed: &C::Observed<'_>,
        plan: C::Plan,
    ) -> Result<Next, SyncError> {
        let Driver { controller, context, .. } = self;
        let executed = controller.execute(object, observed, &plan).await;
        let mut settled = controller.settle(observed, &plan, &executed);
        let (before, meta) = (controller.status(object), object.meta());
        context.failure_text_throttle.keep(
            &meta.uid,
            before.conditions(),
            settled.status.conditions_mut(),
            Instant::now(),
        );

        let stale = executed.error().is_some_and(SyncError::is_stale);
        let mut written = Ok(());
        let mut later = None;
        let patch = self.status_patch(object, &settled);
        if patch.is_none() {
            context.status_throttle.is_current(&meta.uid);
        }
        if let Some(patch) = patch.filter(|_| !stale) {
            let now = Instant::now();
            later = match controller.urgency(observed, &plan, &executed, &settled) {
                Urgency::Immediate => None,
                Urgency::Throttled => context.status_throttle.wait(&meta.uid, now),
                Urgency::Postponed => context.status_throttle.postpone(&meta.uid, SPACING, now),
                Urgency::Gathered => context.status_throttle.postpone(&meta.uid, GATHERING, now),
            };
            if later.is_none() {
                match self.before_status_write(object).await? {
                    Pass::Open => written = self.write_status(object, &patch).await,
                    Pass::Wait(next) => return Ok(next),
                    // The status is computed from what the caches show then.
                    Pass::Again => return Ok(Next::After(Duration::ZERO)),
                }
            }
        }
        if written.is_ok() && later.is_none() && !stale {
            controller.reported(observed, &plan, &settled);
        }
        let more = controller.requeue_after(object, observed, &plan);
        let requeue_after = [settled.requeue_after, more, later].into_iter().flatten().min();
        settled.requeue_after = requeue_after;
        let explanation = controller.explain(observed, plan, &settled);
        let error = executed.into_error().or(written.err());
        if let Some(explanation) = explanation {
            self.publish(object, explanation, requeue_after, error.as_ref());
        }
        let Some(error) = error else { return Ok(requeue_after.map_or(Next::Settled, Next::After)) };
        // A due sync is kept while steps are refused, too: their backoff may be a minute. The price is one
        // more call that fails.
        if let Some(wait) = requeue_after {
            self.queue.add_after(meta.key.clone(), wait);
        }
        Err(error)
    }

    fn status_patch(&self, object: &C::Object, settled: &Settled<C::Status>) -> Option<Value> {
        let field = &self.context.terminating_field;
        field.observed(self.controller.status(object).terminating());
        self.controller.status_patch(object, settled, field.is_kept())
    }

    async fn write_status(&self, object: &C::Object, patch: &Value) -> Result<(), SyncError> {
        let (context, meta, resource) = (&self.context, object.meta(), C::Object::RESOURCE);
        let what = || format!("writing the status of {} {}", resource.kind, meta.key);
        let target = path(resource, meta) + "/status";
        let version = context.patch(object, what, &target, PatchType::Strategic, patch).await?;
        let before = self.controller.status(object).terminating();
        context.terminating_field.wrote(before, patch, version != meta.resource_version);
        context.wrote_status(meta, resource, version);
        Ok(())
    }

    fn publish(
        &self,
        object: &C::Object,
        mut explanation: Explanation,
        requeue_after: Option<Duration>,
        error: Option<&SyncError>,
    ) {
        match error {
            None => explanation.requeue_after = requeue_after,
            Some(error) => explanation.fail(error),
        }
        let meta = object.meta();
        // Formatted only if the level is enabled.
        tracing::debug!(
            kind = C::Object::RESOURCE.kind,
            key = %meta.key,
            writes = ?explanation.writes,
            error = explanation.error,
            requeue_after = ?explanation.requeue_after,
            "{explanation}"
        );
        self.context.explanations.keep(&meta.uid, explanation);
    }
}

/// A [`Driver`] is shared by its workers and by the handlers of changes.
impl<C: Controller> Worker for Arc<Driver<C>> {
    fn entry(&self) -> &'static ControllerEntry {
        self.entry
    }

    fn run(&self, workers: usize) -> BoxFuture<'static, ()> {
        let driver = self.clone();
        Box::pin(run_workers(self.queue.clone(), workers, move |key: ObjectKey| {
            let driver = driver.clone();
            // Behind a pointer, so that the worker is compiled once and not for each controller.
            let sync: BoxFuture<'static, Result<Next, SyncError>> =
                Box::pin(async move { driver.sync(&key).await });
            sync
        }))
    }

    fn shut_down(&self) {
        self.queue.shut_down();
    }

    fn longest_running(&self) -> Duration {
        self.queue.longest_running()
    }

    fn resync(&self) {
        self.objects.for_each(|object| self.queue.add(object.meta().key.clone()));
    }

    fn awaited_kinds(&self) -> &'static [Resource] {
        gate::awaited_kinds(self)
    }

    fn drop_deleted_keys(&self) {
        self.queue.retain(|key| self.objects.get(key).is_some() || self.controller.has_left_over(key));
    }
}
