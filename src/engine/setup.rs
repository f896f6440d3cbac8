//! Builds every controller of a registry once and wires it to the informers of the kinds that it watches.

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::context::{Context, Control, Settings};
use super::entry::{ControllerEntry, KindEntry, Registry, Worker};
use super::owner_memory::OwnerMemory;
use crate::clock::Clock;
use crate::metrics::{Metrics, set_gauge};
use crate::model::{Record, Resource};
use crate::runtime::api::Api;
use crate::runtime::events::EventRecorder;
use crate::runtime::expectations::{Caches, Expectations};
use crate::runtime::informer::{Informer, InformerOptions};
use crate::runtime::informers::{AnyInformer, Informers};
use crate::runtime::parked_keys::ParkedKeys;
use crate::runtime::store::Change;
use crate::runtime::worker::WorkQueue;

/// The services that controllers are built on.
pub struct Plumbing<'a> {
    /// The time.
    pub clock: Clock,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Events.
    pub recorder: EventRecorder,
    /// Cancelled at the shutdown.
    pub draining: CancellationToken,
    /// Creates the client of a controller. No two share a rate limiter.
    pub api: &'a dyn Fn(&ControllerEntry) -> Api,
    /// The client of all informers.
    pub watch_api: Api,
    /// Which part of each kind the informers watch, and how.
    pub informers: InformerOptions,
    /// The names of the controllers that are switched off.
    pub switched_off: BTreeSet<&'static str>,
}

/// The controllers, built and not yet running.
pub struct Shell {
    /// The state that they share.
    pub context: Arc<Context>,
    /// The informers, not started.
    pub informers: Informers,
    /// The controllers, in the order of the registry; those that are switched off are among them.
    pub workers: Vec<Box<dyn Worker>>,
}

/// When a handler is called for a change, relative to others of the same kind. Handlers with the same value are
/// called in the order of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandlerOrder {
    /// Of the object's own controller, or its owner's.
    Owner,
    /// Of the handlers that several controllers share.
    Shared,
    /// Of controllers of an indirect owner, such as a Deployment's for the pods of its ReplicaSets.
    Indirect,
}

pub(crate) type ByResource = BTreeMap<Resource, Box<dyn AnyInformer>>;
type Attach = Box<dyn FnOnce(&mut ByResource)>;

/// The parts that a controller is built from.
pub struct Setup {
    context: Arc<Context>,
    switched_off: BTreeSet<&'static str>,
    handlers: Vec<(HandlerOrder, Attach)>,
    shared: BTreeMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl Setup {
    /// The state that all controllers share.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Whether a controller is not switched off.
    pub fn is_enabled(&self, entry: &ControllerEntry) -> bool {
        !self.switched_off.contains(entry.name)
    }

    /// Calls `handler` for every change of a kind. It must only record what to do.
    ///
    /// # Panics
    /// When the registry does not list the kind.
    pub fn on_change<T: Record>(
        &mut self,
        order: HandlerOrder,
        handler: impl Fn(&Change<T>) + Send + Sync + 'static,
    ) {
        let attach = move |informers: &mut ByResource| {
            let informer = informers.get_mut(&T::RESOURCE).map(|informer| informer.as_any());
            let informer = informer.and_then(|informer| informer.downcast_mut::<Informer<T>>());
            match informer {
                Some(informer) => informer.on_change(handler),
                None => panic!("the registry lists no kind {}", T::RESOURCE.kind),
            }
        };
        self.handlers.push((order, Box::new(attach)));
    }

    /// Passes the handlers to the informers.
    pub(crate) fn attach(self, informers: &mut ByResource) {
        let Setup { mut handlers, .. } = self;
        // A stable sort: equal values stay in the order of the registry.
        handlers.sort_by_key(|(order, _)| *order);
        handlers.into_iter().for_each(|(_, attach)| attach(informers));
    }

    /// State that several controllers share, built by the first caller; and whether this call is the first.
    pub fn shared<S: Default + Send + Sync + 'static>(&mut self) -> (Arc<S>, bool) {
        let mut is_first = false;
        let entry = self.shared.entry(TypeId::of::<S>()).or_insert_with(|| {
            is_first = true;
            Arc::new(S::default())
        });
        let shared = entry.clone().downcast::<S>().unwrap_or_else(|_| unreachable!("kept by its type"));
        (shared, is_first)
    }
}

/// The parts that exist before the controllers.
pub(crate) struct Assembly {
    pub context: Arc<Context>,
    pub setup: Setup,
    pub informers: ByResource,
}

/// Builds the controllers of a registry.
pub fn build(registry: &Registry, settings: Settings, plumbing: Plumbing<'_>) -> Shell {
    let Assembly { context, mut setup, informers: mut by_resource } = assemble(registry, settings, plumbing);
    let workers = registry.controllers().iter().map(|entry| (entry.install)(&mut setup)).collect();
    // A kind that only switched-off controllers watch is not listed, and needs no permissions.
    let running: Vec<_> = registry.controllers().iter().filter(|entry| setup.is_enabled(entry)).collect();
    let is_watched = |kind: &&KindEntry| running.iter().any(|entry| entry.watches.contains(&kind.resource));
    setup.attach(&mut by_resource);
    let woken = context.clone();
    let reached = move |resource, position| {
        woken.controls.iter().for_each(|control| control.parked_keys.reached(resource, position));
    };
    let informers = Informers::new(context.caches.clone(), context.expectations.clone(), reached);
    let watched = registry.kinds().iter().filter(is_watched);
    let in_order = watched.filter_map(|kind| by_resource.remove(&kind.resource));
    in_order.for_each(|informer| informers.add(informer));
    Shell { context, informers, workers }
}

pub(crate) fn assemble(registry: &Registry, settings: Settings, plumbing: Plumbing<'_>) -> Assembly {
    let Plumbing { clock, metrics, recorder, draining, api, watch_api, informers, switched_off } = plumbing;
    let control = |entry: &&'static ControllerEntry| {
        let queue = WorkQueue::new(entry.queue, &metrics);
        Control { entry, parked_keys: ParkedKeys::new(queue.clone()), queue, api: api(entry) }
    };
    let controls: Vec<Control> = registry.controllers().iter().map(control).collect();
    let (mut stores, mut by_resource) = (BTreeMap::new(), ByResource::new());
    for kind in registry.kinds() {
        let (informer, store) = kind.build(watch_api.clone(), informers.clone());
        stores.insert(kind.resource, store);
        by_resource.insert(kind.resource, informer);
    }
    let fresh_lists =
        by_resource.iter().map(|(resource, informer)| (*resource, informer.fresh_list())).collect();
    let expectations = Expectations::new(metrics.clone());
    let context = Arc::new(Context {
        clock,
        metrics,
        recorder,
        draining,
        settings,
        stores,
        controls,
        caches: Caches::default(),
        expectations,
        barrier: Arc::default(),
        fresh_lists,
        memory: OwnerMemory::default(),
        in_doubt_writes: Arc::default(),
        recreate_guard: Arc::default(),
        status_throttle: Arc::default(),
        failure_text_throttle: Arc::default(),
        explanations: Arc::default(),
        terminating_field: Default::default(),
        foreign_writers: Default::default(),
        lost_history: informers.lost_history.clone(),
        lost_histories: Default::default(),
    });
    remember(&context);
    let setup =
        Setup { context: context.clone(), switched_off, handlers: Vec::new(), shared: BTreeMap::new() };
    Assembly { context, setup, informers: by_resource }
}

/// Registers what all controllers share with the memory of owners and with the metrics.
fn remember(context: &Arc<Context>) {
    let Context { memory, .. } = &**context;
    memory.includes(Arc::new(context.expectations.clone()));
    memory.includes(context.barrier.clone());
    memory.includes(context.in_doubt_writes.clone());
    memory.includes(context.recreate_guard.clone());
    memory.includes(context.status_throttle.clone());
    memory.includes(context.failure_text_throttle.clone());
    memory.includes(context.explanations.clone());
    let explanations = Arc::downgrade(&context.explanations);
    let gauge = context.metrics.workloads.explanations_bytes.clone();
    context.metrics.before_render(move || {
        let Some(explanations) = explanations.upgrade() else { return false };
        set_gauge(&gauge, explanations.bytes());
        true
    });
}
