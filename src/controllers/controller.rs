//! What a controller is: five steps, of which it supplies what concerns its own kind.
//!
//! [`Driver`](super::driver::Driver) runs the steps of every controller alike. What a step decides comes from
//! [`crate::plan`]; a controller reads what its plans rest on and carries them out.

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

/// A controller of the objects of one kind.
pub trait Controller: Send + Sync + 'static {
    /// Whose keys are in its queue.
    type Object: Record;
    /// What its objects report; `()` for nothing.
    type Status: Status;
    /// What a plan rests on.
    type Observed<'a>: Send + Sync;
    /// What is to be done.
    type Plan: Send + Sync;
    /// What became of it, as far as a status tells.
    type Outcome: Send + Sync;

    /// Whether another controller of this process writes the objects too: then each waits for the other's writes
    /// instead of sending what would come second ([`super::write_lock`]).
    const SHARES_OBJECTS: bool = false;

    /// The kinds of which [`Controller::children`] says nothing: nothing is decided before their caches are complete, and
    /// nothing written before they show what there was at the election. `None` for all that the controller watches.
    const AWAITED_KINDS: Option<&'static [Resource]> = None;

    /// Wake: the changes of other objects that concern it. Its own objects wake their own keys.
    fn watch(self: &Arc<Self>, _setup: &mut Setup) {}

    /// Whether an object is ours to act on.
    fn in_scope(&self, object: &Self::Object) -> bool;

    /// The object of a key has gone.
    fn has_gone(&self, _key: &ObjectKey) {}

    /// Finds out what became of writes whose replies were lost, before anything is decided.
    fn resolve<'a>(&'a self, _object: &'a Self::Object) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Whether there is something that the object would adopt: then it is read past the cache first.
    fn wants_to_adopt(&self, _object: &Self::Object) -> bool {
        false
    }

    /// Observe. `may_adopt` tells what the read past the cache said.
    fn observe<'a>(&self, object: &'a Self::Object, may_adopt: bool) -> Self::Observed<'a>;

    /// Plan. Pure.
    fn plan(&self, observed: &Self::Observed<'_>) -> Self::Plan;

    /// Whether a plan creates objects. Before some are created again a moment later, the owner is read past the
    /// cache ([`super::recreate_guard`]).
    fn creates(&self, _plan: &Self::Plan) -> bool {
        false
    }

    /// Whether a plan writes anything.
    fn writes(&self, _plan: &Self::Plan) -> bool {
        true
    }

    /// What is read past the caches with an object, where the caches cannot be relied on yet; in this order.
    fn children(&self, _object: &Self::Object) -> Vec<Children> {
        Vec::new()
    }

    /// Whether the object itself shows that there is something to do: then it does not wait until the caches are
    /// complete. Pure.
    fn is_unsettled(&self, _object: &Self::Object) -> bool {
        false
    }

    /// Whether a plan may be carried out before the caches are complete, after the read past them. Pure.
    fn needs_no_others(&self, _plan: &Self::Plan) -> bool {
        true
    }

    /// Execute: all writes in order, up to the first that fails.
    fn execute<'a>(
        &'a self,
        object: &'a Self::Object,
        observed: &'a Self::Observed<'_>,
        plan: &'a Self::Plan,
    ) -> BoxFuture<'a, Executed<Self::Outcome>>;

    /// Settle: what to report. Pure.
    fn settle(
        &self,
        observed: &Self::Observed<'_>,
        plan: &Self::Plan,
        executed: &Executed<Self::Outcome>,
    ) -> Settled<Self::Status>;

    /// The status as the cache shows it.
    fn status<'a>(&self, object: &'a Self::Object) -> &'a Self::Status;

    /// The patch that brings the status up to date; `None` where it would change nothing.
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

    /// The status says what was settled, and nothing is left to be reported.
    fn reported(&self, _observed: &Self::Observed<'_>, _plan: &Self::Plan, _settled: &Settled<Self::Status>) {
    }

    /// When to look again besides what was settled.
    fn requeue_after(
        &self,
        _object: &Self::Object,
        _observed: &Self::Observed<'_>,
        _plan: &Self::Plan,
    ) -> Option<Duration> {
        None
    }

    /// Why it is this plan and no other, for a controller that explains itself.
    fn explain(
        &self,
        _observed: &Self::Observed<'_>,
        _plan: Self::Plan,
        _settled: &Settled<Self::Status>,
    ) -> Option<Explanation> {
        None
    }
}

/// What the driver needs to know of a status.
pub trait Status: PartialEq + Send + Sync {
    /// The conditions, whose texts do not change with every retry.
    fn conditions(&self) -> &[Condition];

    /// The same, to be changed.
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

/// What to report, and when to look again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settled<S> {
    /// The whole status as it should be.
    pub status: S,
    /// Annotations of the object that are written with it.
    pub annotations: BTreeMap<&'static str, String>,
    /// When something is due.
    pub requeue_after: Option<Duration>,
}

/// What became of a plan. Made by the step that carries it out, and by nothing else.
#[derive(Debug)]
#[must_use = "a write that failed must be retried"]
pub struct Executed<T> {
    outcome: T,
    error: Option<SyncError>,
}

impl<T> Executed<T> {
    /// Everything was carried out up to `error`, if there is one.
    pub fn new(outcome: T, error: Option<SyncError>) -> Self {
        Executed { outcome, error }
    }

    /// What the status needs to know.
    pub fn outcome(&self) -> &T {
        &self.outcome
    }

    /// What stopped the execution.
    pub fn error(&self) -> Option<&SyncError> {
        self.error.as_ref()
    }

    /// The error alone.
    pub fn into_error(self) -> Option<SyncError> {
        self.error
    }
}
