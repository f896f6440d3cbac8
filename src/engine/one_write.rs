//! The interface of a controller that writes at most one thing to each object, and keeps no status and no memory.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::controller::{Controller, Executed, Settled};
use super::driver::Driver;
use super::entry::{ControllerEntry, Worker};
use super::error::SyncError;
use super::setup::Setup;
use crate::model::Record;

/// A controller that writes one thing.
pub trait OneWrite: Send + Sync + 'static {
    /// The kind of the keys in its queue.
    type Object: Record;
    /// The write to make.
    type Write: Send + Sync;

    /// Wake: registers handlers for changes of other objects. Its own objects wake their own keys.
    fn watch(&self, _setup: &mut Setup) {}

    /// Whether an object is in scope.
    fn in_scope(&self, object: &Self::Object) -> bool;

    /// Observe and plan: what to write, if anything. Pure, and may be asked more than once in a sync.
    fn decide(&self, object: &Self::Object) -> Option<Self::Write>;

    /// Execute. A write that has failed is repeated with backoff.
    fn write<'a>(
        &'a self,
        object: &'a Self::Object,
        write: &'a Self::Write,
    ) -> BoxFuture<'a, Result<(), SyncError>>;

    /// When to decide again although nothing has changed.
    fn look_again(&self, _object: &Self::Object) -> Option<Duration> {
        None
    }

    /// A sync has ended with nothing to write.
    fn wrote_nothing(&self) {}
}

/// Builds a controller and registers its handlers.
pub fn install<C: OneWrite>(
    controller: C,
    entry: &'static ControllerEntry,
    setup: &mut Setup,
) -> Box<dyn Worker> {
    Box::new(Driver::new(Arc::new(Single(controller)), entry, setup))
}

struct Single<C>(C);

impl<C: OneWrite> Controller for Single<C> {
    type Object = C::Object;
    type Status = ();
    type Observed<'a> = &'a C::Object;
    type Plan = Option<C::Write>;
    type Outcome = ();

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.0.watch(setup);
    }

    fn in_scope(&self, object: &C::Object) -> bool {
        self.0.in_scope(object)
    }

    fn observe<'a>(&self, object: &'a C::Object, _: bool) -> &'a C::Object {
        object
    }

    fn plan(&self, object: &&C::Object) -> Self::Plan {
        self.0.decide(object)
    }

    fn writes(&self, plan: &Self::Plan) -> bool {
        plan.is_some()
    }

    fn execute<'a>(
        &'a self,
        object: &'a C::Object,
        _: &'a &C::Object,
        plan: &'a Self::Plan,
    ) -> BoxFuture<'a, Executed<()>> {
        Box::pin(async move {
            match plan {
                Some(write) => Executed::new((), self.0.write(object, write).await.err()),
                None => {
                    self.0.wrote_nothing();
                    Executed::new((), None)
                }
            }
        })
    }

    fn settle(&self, object: &&C::Object, _: &Self::Plan, _: &Executed<()>) -> Settled<()> {
        Settled { requeue_after: self.0.look_again(object), ..Settled::default() }
    }

    fn status<'a>(&self, _: &'a C::Object) -> &'a () {
        &()
    }
}
