//! The informers of a program: one for each resource, added and removed also while the program runs.
//!
//! The one guarantee: whatever an informer shows can be awaited. Adding one makes its store part of the
//! [`Caches`] that expectations read, wakes the keys that wait for its position, and lets expectations
//! request a new list. Removing it undoes all that, so that nothing waits for a cache that stands still.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{Id, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use super::expectations::{Cache, Caches, Expectations};
use super::fresh_list::FreshList;
use super::informer::{Informer, Ready, Relist};
use super::read_barrier::ReadBarrier;
use super::tasks::{Ended, named};
use crate::model::{Record, Resource};

/// An informer of whatever type its records have.
pub trait AnyInformer: Send {
    /// The resource that it lists and watches.
    fn resource(&self) -> Resource;
    /// Its store, as far as expectations look at it.
    fn cache(&self) -> Cache;
    /// See [`Informer::ready`].
    fn ready(&self) -> Ready;
    /// See [`Informer::read_barrier`].
    fn read_barrier(&self) -> ReadBarrier;
    /// See [`Informer::relist`].
    fn relist(&self) -> Relist;
    /// See [`Informer::fresh_list`].
    fn fresh_list(&self) -> FreshList;
    /// See [`Informer::on_position`].
    fn on_any_position(&mut self, handler: Box<dyn Fn(u64) + Send + Sync>);
    /// See [`Informer::on_lost_history`].
    fn on_any_lost_history(&mut self, handler: Box<dyn Fn(u64) + Send + Sync>);
    /// See [`Informer::run`].
    fn run_boxed(self: Box<Self>, shutdown: CancellationToken) -> BoxFuture<'static, ()>;
    /// The informer with its type, for callers that know it.
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<T: Record> AnyInformer for Informer<T> {
    fn resource(&self) -> Resource {
        Informer::resource(self)
    }

    fn cache(&self) -> Cache {
        self.store()
    }

    fn ready(&self) -> Ready {
        Informer::ready(self)
    }

    fn read_barrier(&self) -> ReadBarrier {
        Informer::read_barrier(self)
    }

    fn relist(&self) -> Relist {
        Informer::relist(self)
    }

    fn fresh_list(&self) -> FreshList {
        Informer::fresh_list(self)
    }

    fn on_any_position(&mut self, handler: Box<dyn Fn(u64) + Send + Sync>) {
        self.on_position(handler);
    }

    fn on_any_lost_history(&mut self, handler: Box<dyn Fn(u64) + Send + Sync>) {
        self.on_lost_history(handler);
    }

    fn run_boxed(self: Box<Self>, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin((*self).run(shutdown))
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

/// Called with each new position of a cache.
type Reached = Arc<dyn Fn(Resource, u64) + Send + Sync>;

/// The informers of a program. Clones share them.
#[derive(Clone)]
pub struct Informers {
    shared: Arc<Shared>,
}

struct Shared {
    caches: Caches,
    expectations: Expectations,
    reached: Reached,
    state: Mutex<State>,
    /// Called when a task begins.
    begun: Notify,
}

#[derive(Default)]
struct State {
    /// In the order of their addition.
    entries: Vec<Entry>,
    tasks: JoinSet<Ended>,
    /// Ends all of them; `None` before [`Informers::start`].
    stop: Option<CancellationToken>,
}

struct Entry {
    resource: Resource,
    ready: Ready,
    read_barrier: Arc<ReadBarrier>,
    relist: Relist,
    /// Until it starts.
    waiting: Option<Box<dyn AnyInformer>>,
    /// Its task, and what ends that.
    running: Option<(Id, CancellationToken)>,
}

impl fmt::Debug for Informers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.resources()).finish()
    }
}

impl Informers {
    /// No informer yet. `reached` is called with each position that a cache reaches, for
    /// [`super::ParkedKeys::reached`].
    pub fn new(
        caches: Caches,
        expectations: Expectations,
        reached: impl Fn(Resource, u64) + Send + Sync + 'static,
    ) -> Self {
        let reached = Arc::new(reached);
        let (state, begun) = (Mutex::default(), Notify::new());
        Informers { shared: Arc::new(Shared { caches, expectations, reached, state, begun }) }
    }

    /// Adds an informer, which starts with the others, or at once where those run already. It replaces an existing one
    /// of the same resource.
    pub fn add(&self, mut informer: Box<dyn AnyInformer>) {
        let resource = informer.resource();
        self.remove(resource);
        let Shared { caches, expectations, reached, state, .. } = &*self.shared;
        caches.add(resource, informer.cache());
        let relist = informer.relist();
        let overdue = relist.clone();
        expectations.relist_with(resource, move || overdue.request_relist());
        let reached = reached.clone();
        informer.on_any_position(Box::new(move |position| reached(resource, position)));
        let lost = expectations.clone();
        informer.on_any_lost_history(Box::new(move |list| lost.history_lost(resource, list)));
        let (ready, read_barrier) = (informer.ready(), Arc::new(informer.read_barrier()));
        let mut state = state.lock();
        state.entries.push(Entry {
            resource,
            ready,
            read_barrier,
            relist,
            waiting: Some(informer),
            running: None,
        });
        if let Some(stop) = state.stop.clone() {
            state.start(&stop);
            self.shared.begun.notify_one();
        }
    }

    /// Ends the informer of this resource. Its store stays as it is with its users; nothing waits for it any
    /// more. Returns whether there was one.
    pub fn remove(&self, resource: Resource) -> bool {
        let mut state = self.shared.state.lock();
        let Some(at) = state.entries.iter().position(|entry| entry.resource == resource) else {
            return false;
        };
        if let Some((_, stop)) = &state.entries.remove(at).running {
            stop.cancel();
        }
        drop(state);
        self.shared.caches.remove(resource);
        self.shared.expectations.no_relist_of(resource);
        // Keys that waited for this cache are checked again, and find nothing to wait for.
        (self.shared.reached)(resource, u64::MAX);
        true
    }

    /// Starts to list and watch, until `stop`.
    pub fn start(&self, stop: &CancellationToken) {
        let mut state = self.shared.state.lock();
        state.stop = Some(stop.clone());
        state.start(stop);
        self.shared.begun.notify_one();
    }

    /// Lists everything anew.
    pub fn relist_all(&self) {
        self.shared.state.lock().entries.iter().for_each(|entry| entry.relist.request_relist());
    }

    /// The resources that are listed and watched, in the order of the additions.
    pub fn resources(&self) -> Vec<Resource> {
        self.shared.state.lock().entries.iter().map(|entry| entry.resource).collect()
    }

    /// For each resource, whether its store is complete.
    pub fn ready(&self) -> Vec<(Resource, Ready)> {
        self.shared.state.lock().entries.iter().map(|entry| (entry.resource, entry.ready.clone())).collect()
    }

    /// The read barriers of all stores.
    pub fn read_barriers(&self) -> Vec<Arc<ReadBarrier>> {
        self.shared.state.lock().entries.iter().map(|entry| entry.read_barrier.clone()).collect()
    }

    /// Waits until an informer ends unexpectedly. Pending otherwise.
    pub async fn ended_by_itself(&self) -> Result<Ended, JoinError> {
        loop {
            let begun = self.shared.begun.notified();
            tokio::pin!(begun);
            begun.as_mut().enable();
            let ended = poll_fn(|context| {
                let mut state = self.shared.state.lock();
                while let Poll::Ready(Some(ended)) = state.tasks.poll_join_next_with_id(context) {
                    let (id, ended) = match ended {
                        Ok((id, ended)) => (id, Ok(ended)),
                        Err(error) => (error.id(), Err(error)),
                    };
                    // A removed informer is not among the entries any more.
                    if state.entries.iter().any(|entry| entry.is_task(id)) {
                        return Poll::Ready(Some(ended));
                    }
                }
                match begun.as_mut().poll(context) {
                    Poll::Ready(()) => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            });
            if let Some(ended) = ended.await {
                return ended;
            }
        }
    }

    /// Waits until all have ended, after the token of [`Informers::start`] was cancelled.
    pub async fn finished(&self) {
        let mut tasks = std::mem::take(&mut self.shared.state.lock().tasks);
        while tasks.join_next().await.is_some() {}
    }
}

impl State {
    fn start(&mut self, stop: &CancellationToken) {
        for entry in &mut self.entries {
            if let Some(informer) = entry.waiting.take() {
                let own = stop.child_token();
                let name = format!("the watch of {}", entry.resource.plural);
                let task = self.tasks.spawn(named(name, informer.run_boxed(own.clone())));
                entry.running = Some((task.id(), own));
            }
        }
    }
}

impl Entry {
    fn is_task(&self, task: Id) -> bool {
        self.running.as_ref().is_some_and(|(id, _)| *id == task)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::metrics::Metrics;
    use crate::model::Uid;
    use crate::runtime::api::Api;
    use crate::runtime::expectations::Freshness;
    use crate::runtime::fixture::{THINGS, Thing, json_of, key};
    use crate::runtime::informer::InformerOptions;
    use crate::runtime::rate_limiter::RateLimiter;
    use crate::runtime::store::Store;

    /// A kind that is found while the program runs, and is decoded as things are.
    const FOUND: Resource = Resource { group: "found.io", version: "v1", kind: "Found", plural: "founds" };

    /// An API server that offers no streaming lists, has one object of each kind, and on which nothing happens.
    fn api() -> Api {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let query = request.uri().query().unwrap_or_default();
            if query.contains("watch=") && !query.contains("sendInitialEvents") {
                return std::future::pending::<Result<Response<Body>, Infallible>>().await;
            }
            let (code, body) = match query.contains("sendInitialEvents") {
                true => {
                    (422, json!({"kind": "Status", "status": "Failure", "reason": "Invalid", "code": 422}))
                }
                false => {
                    let items = [json_of(request.uri().path().rsplit('/').next().unwrap(), "u", 7)];
                    (200, json!({"metadata": {"resourceVersion": "9"}, "items": items}))
                }
            };
            let answer = Response::builder().status(code).header("content-type", "application/json");
            Ok(answer.body(Body::from(body.to_string().into_bytes())).unwrap())
        });
        Api::new(kube::Client::new(service, "default"), "h", RateLimiter::unlimited(), Metrics::new())
    }

    fn informer(resource: Resource) -> (Box<dyn AnyInformer>, Arc<Store<Thing>>) {
        let informer = Informer::<Thing>::of(resource, api(), InformerOptions::default());
        let store = informer.store();
        (Box::new(informer), store)
    }

    #[tokio::test(start_paused = true)]
    async fn informers_are_added_and_removed_while_the_others_run() {
        let (caches, expectations) = (Caches::default(), Expectations::new(Metrics::new()));
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = told.clone();
        let reached = move |resource: Resource, position| log.lock().push((resource.plural, position));
        let informers = Informers::new(caches.clone(), expectations.clone(), reached);
        let (things, store) = informer(THINGS);
        informers.add(things);
        let stop = CancellationToken::new();
        informers.start(&stop);
        assert!(informers.ready()[0].1.wait().await);
        assert!(store.get(&key("things")).is_some());

        // Kinds are found, and one is removed again.
        let (found, there) = informer(FOUND);
        informers.add(found);
        assert_eq!(informers.resources(), [THINGS, FOUND]);
        assert!(informers.ready()[1].1.wait().await);
        assert!(there.get(&key("founds")).is_some());
        assert_eq!(*told.lock(), [("things", 9), ("founds", 9)]);

        // A wait for a removed cache ends.
        let owner = Uid::new("o");
        expectations.expect_write(&owner, FOUND, 50);
        let now = tokio::time::Instant::now();
        assert!(matches!(expectations.check(&owner, &caches, now), Freshness::Behind(_)));
        assert!(informers.remove(FOUND) && !informers.remove(FOUND));
        assert_eq!(told.lock().last(), Some(&("founds", u64::MAX)));
        assert!(matches!(expectations.check(&owner, &caches, now), Freshness::Fresh));

        // Its end does not end the daemon, and the others continue.
        let hour = Duration::from_secs(3600);
        assert!(tokio::time::timeout(hour, informers.ended_by_itself()).await.is_err());
        stop.cancel();
        informers.finished().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_informer_that_ends_unexpectedly_is_named_even_if_it_was_added_last() {
        let informers = Informers::new(Caches::default(), Expectations::new(Metrics::new()), |_, _| {});
        let stop = CancellationToken::new();
        informers.start(&stop);
        let watching = informers.clone();
        let ended = tokio::spawn(async move { watching.ended_by_itself().await });
        tokio::task::yield_now().await;
        informers.add(informer(FOUND).0);
        stop.cancel();
        let (name, ended) = ended.await.unwrap().unwrap();
        assert_eq!((&*name, ended), ("the watch of founds", Ok(())));
    }
}
