//! The context of a controller: the caches, the queues, and the services for its writes.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::entry::ControllerEntry;
use super::explanations::Explanations;
use super::foreign_writers::ForeignWriters;
use super::gated_field::GatedField;
use super::in_doubt_writes::InDoubtWrites;
use super::owner_memory::OwnerMemory;
use super::recreate_guard::RecreateGuard;
use super::scope::Scope;
use super::status_throttle::{FailureTextThrottle, StatusThrottle};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::model::{Meta, ObjectKey, Record, Resource, Uid};
use crate::plan::{EventNote, NodeLimits};
use crate::runtime::api::Api;
use crate::runtime::events::{EventRecorder, EventTarget, EventType};
use crate::runtime::expectations::{CacheView as _, Caches, Expectations, Freshness};
use crate::runtime::fresh_list::FreshList;
use crate::runtime::lazy_read_barrier::LazyReadBarrier;
use crate::runtime::lost_history::LostHistory;
use crate::runtime::parked_keys::ParkedKeys;
use crate::runtime::store::Store;
use crate::runtime::worker::{Next, WorkQueue};

/// The state that all controllers share. One per daemon, handed to each controller behind an `Arc`.
#[derive(Debug)]
pub struct Context {
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) recorder: EventRecorder,
    pub(crate) draining: CancellationToken,
    pub(crate) settings: Settings,
    /// The store of each kind of the registry.
    pub(crate) stores: BTreeMap<Resource, Arc<dyn Any + Send + Sync>>,
    /// The queue of each controller, in the order of the registry.
    pub(crate) controls: Vec<Control>,
    /// The caches, as far as expectations read them.
    pub(crate) caches: Caches,
    /// The writes that the caches must show before the next decision about an owner.
    pub(crate) expectations: Expectations,
    /// Which caches can be relied on since this process leads.
    pub(crate) barrier: Arc<LazyReadBarrier>,
    /// Reads past the cache of each kind.
    pub(crate) fresh_lists: BTreeMap<Resource, FreshList>,
    /// Everything that is kept per owner, to be dropped with the owner.
    pub(crate) memory: OwnerMemory,
    /// Writes whose outcome is unknown.
    pub(crate) in_doubt_writes: Arc<InDoubtWrites>,
    /// Recent creations, by owner.
    pub(crate) recreate_guard: Arc<RecreateGuard>,
    /// When each status was last written.
    pub(crate) status_throttle: Arc<StatusThrottle>,
    /// When the text of each failure last changed.
    pub(crate) failure_text_throttle: Arc<FailureTextThrottle>,
    /// The reasons for the last plans.
    pub(crate) explanations: Arc<Explanations>,
    /// Whether the API server stores the counts of terminating pods.
    pub(crate) terminating_field: GatedField,
    /// Evidence of another controller that acts on the same objects.
    pub(crate) foreign_writers: ForeignWriters,
    /// The parts of the daemon that have noticed that the API server has lost its history.
    pub(crate) lost_history: LostHistory,
    /// How often the API server has lost its history, for caches that are not among [`Context::caches`].
    pub(crate) lost_histories: tokio::sync::watch::Sender<u64>,
}

/// The settings of the controllers.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The objects to act on.
    pub scope: Scope,
    /// The field manager of our writes.
    pub field_manager: String,
    /// Whether pods that fail at startup are replaced one by one, after a wait.
    pub failed_pod_backoff: bool,
    /// Whether the annotations of a rollout policy have an effect.
    pub rollout_policy: bool,
    /// How long after its deletion a namespace stays at least.
    pub namespace_deletion_delay: Duration,
    /// The most endpoints of an EndpointSlice.
    pub max_endpoints_per_slice: usize,
    /// How long changes of pods are gathered before the EndpointSlices of their Services are written.
    pub endpoint_slice_updates_batch_period: Duration,
    /// How long changes of pods are gathered before the Endpoints of their Services are written.
    pub endpoint_updates_batch_period: Duration,
    /// The most addresses of a subset of Endpoints that EndpointSlices mirror.
    pub mirroring_max_endpoints_per_subset: usize,
    /// How long changes of EndpointSlices by others are gathered before those that mirror Endpoints are written.
    pub mirroring_updates_batch_period: Duration,
    /// Whether the EndpointSlices of a Service without pods are deleted.
    pub deletes_leftover_endpoint_slices: bool,
    /// How often each quota is counted again; `None`: when something changes only.
    pub resource_quota_sync_period: Option<Duration>,
    /// How many ended pods may be left; 0 or less: any number.
    pub terminated_pod_threshold: i64,
    /// When nodes are lost, and how fast they lose their pods.
    pub node_limits: NodeLimits,
    /// The time zones.
    pub time_zones: TimeZoneDatabase,
    /// The zone of a schedule that names none.
    pub local_time_zone: TimeZone,
    /// The resources that a controller of objects of any kind looks after.
    pub resources: ResourceFilter,
    /// The Lease on which it keeps what a restart must not make it forget, if there is one.
    pub garbage_record: Option<ObjectKey>,
    /// Seeds the jitter of what is started while the program runs.
    pub seed: u64,
    /// Whether a broken watch is followed by a list; see [`crate::runtime::informer::InformerOptions`].
    pub relists_after_breaks: bool,
    /// The certificates of the API server's CA, in PEM; empty if they are not known.
    pub root_ca: Arc<str>,
}

/// The resources that a controller of objects of any kind looks after.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceFilter {
    /// These alone, as `plural.group`; empty: all.
    pub only: Vec<String>,
    /// All but these.
    pub ignored: Vec<String>,
}

/// The queue of a controller, and its client.
#[derive(Debug)]
pub(crate) struct Control {
    /// The controller. Several may share the kind of their keys.
    pub entry: &'static ControllerEntry,
    /// Keys to sync.
    pub queue: WorkQueue<ObjectKey>,
    /// Keys that wait for a cache.
    pub parked_keys: ParkedKeys<ObjectKey>,
    /// The API server, with a rate limit of its own: a large scale-up of one kind delays no write of another
    /// controller. Upstream has a client for each controller, too.
    pub api: Api,
}

impl Context {
    /// The store of a kind.
    ///
    /// # Panics
    /// When the registry does not list the kind: the daemon does not start then.
    pub fn store<T: Record>(&self) -> Arc<Store<T>> {
        let store = self.stores.get(&T::RESOURCE).cloned();
        let store = store.and_then(|store| store.downcast::<Store<T>>().ok());
        store.unwrap_or_else(|| panic!("the registry lists no kind {}", T::RESOURCE.kind))
    }

    /// The queue of the controller of this kind: of several the first of the registry.
    pub fn queue_of<T: Record>(&self) -> &WorkQueue<ObjectKey> {
        &self.control(T::RESOURCE).queue
    }

    /// The keys of this kind that wait for a cache: of several controllers those of the first of the registry.
    pub fn parked_keys_of<T: Record>(&self) -> &ParkedKeys<ObjectKey> {
        &self.control(T::RESOURCE).parked_keys
    }

    /// The queue of a controller that shares the kind of its keys with others.
    pub fn queue_of_controller(&self, entry: &ControllerEntry) -> &WorkQueue<ObjectKey> {
        &self.control_of(entry).queue
    }

    /// The API server, for the calls of a controller that shares the kind of its keys with others, in a sync of this
    /// owner.
    pub fn api_of_controller<O: Record>(&self, entry: &ControllerEntry, owner: &O) -> Api {
        self.control_of(entry).api.on_behalf_of(&owner.meta().uid)
    }

    pub(crate) fn control(&self, kind: Resource) -> &Control {
        let control = self.controls.iter().find(|control| control.entry.kind == kind);
        control.unwrap_or_else(|| panic!("the registry lists no controller of {}", kind.plural))
    }

    pub(crate) fn control_of(&self, entry: &ControllerEntry) -> &Control {
        let control = self.controls.iter().find(|control| control.entry.name == entry.name);
        control.unwrap_or_else(|| panic!("the registry lists no {}", entry.name))
    }

    /// The API server, for calls in a sync of this owner: the controller's rate limiter serves the owners in turn.
    /// Upstream serves requests in the order of arrival; here no owner waits behind the batch of another.
    pub fn api_for<O: Record>(&self, owner: &O) -> Api {
        if planted!("all controllers share one rate limiter") {
            return self.controls[0].api.clone();
        }
        self.control(O::RESOURCE).api.on_behalf_of(&owner.meta().uid)
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The settings of the controllers.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The reasons for the last plans.
    pub fn explanations(&self) -> &Explanations {
        &self.explanations
    }

    /// Everything that is kept per owner.
    pub fn memory(&self) -> &OwnerMemory {
        &self.memory
    }

    /// Which caches can be relied on since this process leads.
    pub fn barrier(&self) -> &LazyReadBarrier {
        &self.barrier
    }

    /// The same, to be kept.
    pub fn shared_barrier(&self) -> Arc<LazyReadBarrier> {
        self.barrier.clone()
    }

    /// Cancelled at the shutdown: running syncs create no further pod.
    pub fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Records an Event about an object, as this `source.component`. Never waits.
    pub fn record_event<T: Record>(&self, component: &'static str, about: &T, note: EventNote) {
        let EventNote { warning, reason, message } = note;
        let kind = if warning { EventType::Warning } else { EventType::Normal };
        let meta = about.meta();
        let target = EventTarget {
            resource: T::RESOURCE,
            key: meta.key.clone(),
            uid: meta.uid.clone(),
            resource_version: Some(meta.resource_version),
        };
        self.recorder.record(&target, kind, reason, message, component);
    }

    /// Whether the caches show all our writes to an owner's objects (S23). If not, the key is parked:
    /// it wakes when the watch has caught up, and the result is when to check again at the latest.
    pub fn behind<T: Record>(&self, owner: &T, parked_keys: &ParkedKeys<ObjectKey>) -> Option<Next> {
        let meta = owner.meta();
        let Freshness::Behind(behind) = self.expectations.check(&meta.uid, &self.caches, Instant::now())
        else {
            return None;
        };
        tracing::debug!(kind = T::RESOURCE.kind, key = %meta.key, ?behind, "cache is behind an own write; the key waits");
        parked_keys.park(&meta.key, &behind, &self.caches);
        Some(Next::After(behind.check_again))
    }

    /// The API server has lost the history that the caches show: nothing is decided before they are listed anew, which the
    /// caller requests afterwards.
    pub fn history_lost(&self) {
        for resource in self.caches.resources() {
            let list = self.caches.lists(resource).begun + 1;
            self.expectations.history_lost(resource, list);
            self.barrier.history_lost(resource, list);
        }
        self.lost_histories.send_modify(|count| *count += 1);
    }

    /// A write to an object of this owner, or to the owner itself, was answered with this version: no decision about
    /// the owner is made before the cache of that kind shows it.
    pub fn expect_write<T: Record>(&self, owner: &T, resource: Resource, version: u64) {
        self.expectations.expect_write(&owner.meta().uid, resource, version);
    }

    /// Drops everything that is kept for an owner.
    pub fn forget(&self, owner: &Uid) {
        self.memory.forget(owner);
    }

    /// Drops what was kept for an owner after the cache had shown its deletion: the event that would have
    /// dropped it has passed, and no other follows.
    pub fn forget_if_gone<T: Record>(&self, owners: &Store<T>, owner: &Meta) {
        if owners.get(&owner.key).is_none_or(|there| there.meta().uid != owner.uid) {
            self.forget(&owner.uid);
        }
    }
}
