//! The interface of a controller: five steps, of which it supplies what concerns its own kind.
//!
//! [`Driver`](super::driver::Driver) runs the steps of every controller alike. The decisions come from
//! [`crate::plan`]; a controller reads the input of its plans and executes them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use super::error::SyncError;
use super::explanations::Explanation;
use super::past_caches::Children;
use super::setup::Setup;
use crate::model::{Condition, ObjectKey, Record, Resource};
use crate::plan::Urgency;
use crate::runtime::store::Change;

/// A controller of the objects of one kind.
pub trait Controller: Send + Sync + 'static {
    /// The kind of the keys in its queue.
    type Object: Record;
    /// The status of its objects; `()` for none.
    type Status: Status;
    /// The input of a plan.
    type Observed<'a>: Send + Sync;
    /// The plan.
    type Plan: Send + Sync;
    /// The outcome of a plan, as far as the status depends on it.
    type Outcome: Send + Sync;

    /// The kinds that [`Controller::children`] does not list: no decision is made before their caches are complete, and
    /// no write before they show the state at the election. `None` for all that the controller watches.
    const AWAITED_KINDS: Option<&'static [Resource]> = None;

    /// Wake: registers handlers for changes of other objects. Its own objects wake their own keys.
    fn watch(self: &Arc<Self>, _setup: &mut Setup) {}

    /// Whether an object is in scope.
    fn in_scope(&self, object: &Self::Object) -> bool;

    /// The object of a key was deleted.
    fn on_deleted(&self, _key: &ObjectKey) {}

    /// Whether something is left of an object that does not exist, which the garbage collector does not delete. Pure, and often
    /// asked.
    fn has_left_over(&self, _key: &ObjectKey) -> bool {
        false
    }

    /// Deletes what is left of an object that does not exist.
    fn clean_up<'a>(&'a self, _key: &'a ObjectKey) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Resolves writes whose replies were lost, before any decision.
    fn resolve<'a>(&'a self, _object: &'a Self::Object) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// After which time a change of an object wakes its own key; `None` for a change that means nothing. Called with each change.
    fn wakes_after(&self, _change: &Change<Self::Object>) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    /// Whether there is an orphan that the object would adopt: then the object is read past the cache first.
    fn wants_to_adopt(&self, _object: &Self::Object) -> bool {
        false
    }

    /// Observe. `may_adopt` is the result of the read past the cache.
    fn observe<'a>(&'a self, object: &'a Self::Object, may_adopt: bool) -> Self::Observed<'a>;

    /// Plan. Pure.
    fn plan(&self, observed: &Self::Observed<'_>) -> Self::Plan;

    /// Whether a plan creates objects, or makes its object their owner. Before that is done again shortly after, the owner is
    /// read past the cache ([`super::recreate_guard`]).
    fn creates(&self, _plan: &Self::Plan) -> bool {
        false
    }

    /// Whether a plan counts what another process may have counted: the object and its children are then read past the
    /// caches first.
    fn may_count_again(&self, _object: &Self::Object, _plan: &Self::Plan) -> bool {
        false
    }

    /// The object and its children were read past the caches, because the plan might have counted something again.
    fn was_read(&self, _object: &Self::Object) {}

    /// Whether a plan writes anything.
    fn writes(&self, _plan: &Self::Plan) -> bool {
        true
    }

    /// The objects that are read past the caches with an object, where the caches cannot be relied on yet; in this
    /// order.
    fn children(&self, _object: &Self::Object) -> Vec<Children> {
        Vec::new()
    }

    /// Whether the object itself shows that work is left: then it does not wait until the caches are
    /// complete. Pure.
    fn is_unsettled(&self, _object: &Self::Object) -> bool {
        false
    }

    /// Whether a plan may be executed before the caches are complete, after the read past them. Pure.
    fn may_run_on_incomplete_caches(&self, _plan: &Self::Plan) -> bool {
        true
    }

    /// Execute: all writes in order, up to the first that fails.
    fn execute<'a>(
        &'a self,
        object: &'a Self::Object,
        observed: &'a Self::Observed<'_>,
        plan: &'a Self::Plan,
    ) -> BoxFuture<'a, Executed<Self::Outcome>>;

    /// Settle: the status to report. Pure.
    fn settle(
        &self,
        observed: &Self::Observed<'_>,
        plan: &Self::Plan,
        executed: &Executed<Self::Outcome>,
    ) -> Settled<Self::Status>;

    /// The status as the cache shows it.
    fn status<'a>(&self, object: &'a Self::Object) -> &'a Self::Status;

    /// The patch that updates the status; `None` where it would change nothing.
    fn status_patch(
        &self,
        _object: &Self::Object,
        _settled: &Settled<Self::Status>,
        _keeps_terminating: bool,
    ) -> Option<Value> {
        None
    }

    /// Whether that patch may wait. Pure.
    fn urgency(
        &self,
        _observed: &Self::Observed<'_>,
        _plan: &Self::Plan,
        _executed: &Executed<Self::Outcome>,
        _settled: &Settled<Self::Status>,
    ) -> Urgency {
        Urgency::Throttled
    }

    /// The status has been written as settled, or needed no write.
    fn reported(&self, _observed: &Self::Observed<'_>, _plan: &Self::Plan, _settled: &Settled<Self::Status>) {
    }

    /// When to sync again besides what was settled.
    fn requeue_after(
        &self,
        _object: &Self::Object,
        _observed: &Self::Observed<'_>,
        _plan: &Self::Plan,
    ) -> Option<Duration> {
        None
    }

    /// The reasons for the plan, for a controller that explains itself.
    fn explain(
        &self,
        _observed: &Self::Observed<'_>,
        _plan: Self::Plan,
        _settled: &Settled<Self::Status>,
    ) -> Option<Explanation> {
        None
    }
}

/// The parts of a status that the driver reads.
pub trait Status: PartialEq + Send + Sync {
    /// The conditions, whose texts do not change with every retry.
    fn conditions(&self) -> &[Condition];

    /// The same, mutable.
    fn conditions_mut(&mut self) -> &mut [Condition];

    /// The count of terminating pods, which some API servers drop ([`super::gated_field`]).
    fn terminating(&self) -> Option<i32> {
        None
    }
}

impl Status for () {
    fn conditions(&self) -> &[Condition] {
        &[]
    }

    fn conditions_mut(&mut self) -> &mut [Condition] {
        &mut []
    }
}

/// The status to report, and when to sync again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled<S> {
    /// The whole status as it should be.
    pub status: S,
    /// Annotations of the object that are written with it.
    pub annotations: BTreeMap<&'static str, String>,
    /// When the next sync is due.
    pub requeue_after: Option<Duration>,
}

/// The outcome of a plan. Only the execution of the plan creates it.
#[derive(Debug)]
#[must_use = "a write that failed must be retried"]
pub struct Executed<T> {
    outcome: T,
    error: Option<SyncError>,
}

impl<T> Executed<T> {
    /// Everything was executed up to `error`, if there is one.
    pub fn new(outcome: T, error: Option<SyncError>) -> Self {
        Executed { outcome, error }
    }

    /// The part that the status depends on.
    pub fn outcome(&self) -> &T {
        &self.outcome
    }

    /// The error that stopped the execution.
    pub fn error(&self) -> Option<&SyncError> {
        self.error.as_ref()
    }

    /// The error alone.
    pub fn into_error(self) -> Option<SyncError> {
        self.error
    }
}
