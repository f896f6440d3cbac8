//! The ResourceQuota controller: what the objects of a namespace use.
//!
//! Pods, Services and claims are counted from the caches of the daemon, and other objects by their metadata: as the garbage collector
//! sees them, or by a watch of the resources that quotas name. A resource that cannot be counted keeps its numbers, and holds up no
//! other. It decides anew about a quota when its objects come to use less or more, and every `--resource-quota-sync-period`.

mod counter;
mod memory;
mod monitors;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::object_counts::ObjectCounts;
use crate::engine::SyncError;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::explanations::Explanation;
use crate::engine::setup::{HandlerOrder, Setup};
use crate::model::{ObjectKey, PersistentVolumeClaim, Pod, Record, Resource, ResourceQuota, Service};
use crate::plan::resourcequota::usage::{self, PodSum};
use crate::plan::resourcequota::wakes::{self, Meaning};
use crate::plan::resourcequota::{self as planner, Amounts, Count, Plan, Source, names};
use crate::runtime::lazy_read_barrier::CacheState;
use crate::runtime::request::PatchType;
use crate::runtime::store::{Change, Store};
use memory::QuotaMemory;
use monitors::Monitors;

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "resourcequota-controller",
    aliases: &[],
    kind: ResourceQuota::RESOURCE,
    objects: "ResourceQuotas",
    flag: "concurrent-resource-quota-syncs",
    workers: 5,
    queue: "resourcequota_primary",
    component: "resourcequota-controller",
    watches: &[ResourceQuota::RESOURCE, Pod::RESOURCE, Service::RESOURCE, PersistentVolumeClaim::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

/// How long changes are gathered before a quota is counted again: those that free something, and those that use more, which the API
/// server has charged already.
const FREED: Duration = Duration::from_millis(50);
const TAKEN: Duration = Duration::from_millis(500);

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let counts: Arc<ObjectCounts> = setup.shared().0;
    let monitors = Monitors::new(context.clone(), context.control_of(&ENTRY).api.clone(), counts.clone());
    let controller = Arc::new(QuotaController {
        quotas: context.store(),
        pods: context.store(),
        services: context.store(),
        claims: context.store(),
        memory: Arc::default(),
        monitors: monitors.clone(),
        counts,
        context,
    });
    if setup.is_enabled(&ENTRY) {
        let own = controller.clone();
        // Before the driver, which queues the key: a count must not take back a charge that is not recorded yet.
        setup.on_change(HandlerOrder::Owner, move |change| own.quota_changed(change));
    }
    let driver = Driver::new(controller, &ENTRY, setup);
    Box::new(QuotaWorker { driver, monitors, stop: CancellationToken::new() })
}

/// The ResourceQuota controller.
pub struct QuotaController {
    context: Arc<Context>,
    quotas: Arc<Store<ResourceQuota>>,
    pods: Arc<Store<Pod>>,
    services: Arc<Store<Service>>,
    claims: Arc<Store<PersistentVolumeClaim>>,
    /// The memory of each quota between syncs.
    memory: Arc<QuotaMemory>,
    monitors: Arc<Monitors>,
    /// How many objects there are of other resources.
    counts: Arc<ObjectCounts>,
}

/// A quota and its objects.
pub struct Observed<'a> {
    quota: planner::Observed<'a>,
    now: Timestamp,
    /// The time after which the next pod is not counted any more.
    overdue_after: Option<Timestamp>,
}

impl Controller for QuotaController {
    type Object = ResourceQuota;
    type Status = ();
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = ();

    /// The numbers of a cache that is not complete stay as they were.
    const AWAITED_KINDS: Option<&'static [Resource]> = Some(&[ResourceQuota::RESOURCE]);

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.memory.clone());
        if !setup.is_enabled(&ENTRY) {
            return;
        }
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.pod_changed(change));
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| {
            own.object_changed(change, &own.services, wakes::of_service);
        });
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| {
            own.object_changed(change, &own.claims, wakes::of_claim);
        });
        let weak = Arc::downgrade(self);
        self.counts.followed_by(move |namespace, resource, is_more| {
            if let Some(own) = weak.upgrade() {
                own.count_changed(namespace, resource, is_more);
            }
        });
        let monitors = Arc::downgrade(&self.monitors);
        self.context.metrics().before_render(move || {
            let Some(monitors) = monitors.upgrade() else { return false };
            monitors.measure();
            true
        });
    }

    fn in_scope(&self, _: &ResourceQuota) -> bool {
        true
    }

    /// The API server charges a quota for each object that it admits. A recount at each charge would cost the square of their number.
    fn wakes_after(&self, change: &Change<ResourceQuota>) -> Option<Duration> {
        match change {
            Change::Updated { old, new } if wakes::is_of_numbers(old, new) => {
                (!self.memory.has_written(new)).then_some(TAKEN)
            }
            Change::Added(_) | Change::Updated { .. } | Change::Deleted(_) => Some(Duration::ZERO),
        }
    }

    /// Whether a resource can be counted shows when its quota is observed.
    fn is_unsettled(&self, _: &ResourceQuota) -> bool {
        true
    }

    fn observe<'a>(&'a self, quota: &'a ResourceQuota, _: bool) -> Observed<'a> {
        let now = self.context.now();
        let (mut counts, mut overdue_after) = (BTreeMap::new(), None);
        for source in planner::sources(quota) {
            let count = match &source {
                Source::Pods => {
                    let (count, due) = self.count_pods(quota, now);
                    overdue_after = due;
                    count
                }
                Source::Services => self.sum(quota, &self.services, usage::of_service),
                Source::Claims => self.sum(quota, &self.claims, usage::of_claim),
                Source::Objects(resource) => self.count_objects(quota, resource),
            };
            counts.insert(source, count);
        }
        // A position that is newer than the count is no matter: it begins a while.
        let position = |key: &str| names::source(key).map_or(u64::MAX, |source| self.position(&source));
        let (charged, has_just_changed) = self.memory.charged(&quota.meta.uid, position, now);
        let quota = planner::Observed { quota, counts, charged, has_just_changed };
        Observed { quota, now, overdue_after }
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
        planner::plan(&observed.quota)
    }

    fn writes(&self, plan: &Plan) -> bool {
        plan.status.is_some()
    }

    fn execute<'a>(
        &'a self,
        quota: &'a ResourceQuota,
        observed: &'a Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<()>> {
        Box::pin(async move {
            for kept in self.memory.to_tell(&quota.meta.uid, plan, observed.now) {
                self.context.record_event(ENTRY.component, quota, kept.event());
            }
            Executed::new((), self.write(quota, plan).await.err())
        })
    }

    fn settle(&self, observed: &Observed<'_>, plan: &Plan, _: &Executed<()>) -> Settled<()> {
        let period = self.context.settings().resource_quota_sync_period;
        let requeue_after = plan.look_again(period, observed.overdue_after, observed.now);
        Settled { requeue_after, ..Settled::default() }
    }

    fn status<'a>(&self, _: &'a ResourceQuota) -> &'a () {
        &()
    }

    fn explain(&self, observed: &Observed<'_>, plan: Plan, _: &Settled<()>) -> Option<Explanation> {
        let writes: &[&str] = if plan.status.is_some() { &["write the status"] } else { &[] };
        Some(Explanation::new(observed.now, plan.reasons(), writes))
    }
}

impl QuotaController {
    /// Why the cache of a kind cannot be counted; `None` if it can.
    fn unknown<T: Record>(&self) -> Option<Count> {
        let (kind, context) = ([T::RESOURCE], &self.context);
        let plural = T::RESOURCE.plural;
        let reason = match context.barrier().cache_state(&kind, &context.caches) {
            CacheState::Current => return None,
            CacheState::Unconfirmed => format!("the cache of {plural} may be older than the election"),
            CacheState::Incomplete => format!("the first list of {plural} is not complete"),
        };
        context.barrier().request(&kind);
        Some(Count::Unknown { reason, has_failed: false })
    }

    fn count_pods(&self, quota: &ResourceQuota, now: Timestamp) -> (Count, Option<Timestamp>) {
        if let Some(unknown) = self.unknown::<Pod>() {
            return (unknown, None);
        }
        let mut sum = PodSum::new(now);
        self.pods.select(&quota.meta.key.namespace, |pod| {
            sum.add(pod);
            false
        });
        (Count::Used(sum.of(quota)), sum.overdue_after())
    }

    fn sum<T: Record>(
        &self,
        quota: &ResourceQuota,
        objects: &Store<T>,
        of: fn(&ResourceQuota, &T) -> Amounts,
    ) -> Count {
        if let Some(unknown) = self.unknown::<T>() {
            return unknown;
        }
        let mut sum = Amounts::new();
        objects.select(&quota.meta.key.namespace, |object| {
            usage::add(&mut sum, &of(quota, object));
            false
        });
        Count::Used(sum)
    }

    fn count_objects(&self, quota: &ResourceQuota, resource: &str) -> Count {
        let namespace = &quota.meta.key.namespace;
        let of = |count| usage::of_objects(quota, resource, count);
        if resource == ResourceQuota::RESOURCE.plural {
            return Count::Used(of(self.quotas_of(namespace).len()));
        }
        self.monitors.count(namespace, resource, of)
    }

    /// The version that the cache of a source shows.
    fn position(&self, source: &Source) -> u64 {
        match source {
            Source::Pods => self.pods.position(),
            Source::Services => self.services.position(),
            Source::Claims => self.claims.position(),
            Source::Objects(resource) if resource == ResourceQuota::RESOURCE.plural => self.quotas.position(),
            Source::Objects(resource) => self.monitors.position(resource),
        }
    }

    fn quotas_of(&self, namespace: &str) -> Vec<Arc<ResourceQuota>> {
        self.quotas.in_namespace(namespace)
    }

    async fn write(&self, quota: &ResourceQuota, plan: &Plan) -> Result<(), SyncError> {
        let Some(status) = &plan.status else { return Ok(()) };
        let key = &quota.meta.key;
        let what = || format!("writing the status of ResourceQuota {key}");
        let path = ResourceQuota::RESOURCE.path_of(key) + "/status";
        let body = planner::patch(quota, status);
        self.memory.writes(&quota.meta.uid, &status.used);
        let written = self.context.patch(quota, what, &path, PatchType::Merge, &body).await;
        self.memory.wrote(&quota.meta.uid, written.as_ref().ok().copied());
        match written {
            Ok(version) => {
                self.context.expect_write(quota, ResourceQuota::RESOURCE, version);
                Ok(())
            }
            Err(SyncError::Gone { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// A change means this for a quota: what appears is no open charge any more, and the quota is counted again. What a list shows may
    /// have been charged long ago, and stands for no charge.
    fn changed(&self, quota: &ResourceQuota, meaning: &Meaning, is_listing: bool) {
        if meaning.is_none() {
            return;
        }
        if !is_listing {
            self.memory.appeared(&quota.meta.uid, &meaning.more, self.context.now());
        }
        let delay = if meaning.is_less { FREED } else { TAKEN };
        self.wake(quota.meta.key.clone(), delay);
    }

    fn wake(&self, key: ObjectKey, delay: Duration) {
        self.context.queue_of_controller(&ENTRY).add_after(key, delay);
    }

    fn pod_changed(&self, change: &Change<Pod>) {
        let (old, new) = change.states();
        // The objects of a first list are counted when it is complete.
        if !self.pods.is_synced() || !wakes::may_concern(old, new) {
            return;
        }
        let now = self.context.now();
        for quota in self.quotas_of(&change.object().meta.key.namespace) {
            self.changed(&quota, &wakes::of_pod(&quota, old, new, now), is_listing(&self.pods));
        }
    }

    fn object_changed<T: Record>(
        &self,
        change: &Change<T>,
        objects: &Store<T>,
        meaning: fn(&ResourceQuota, Option<&T>, Option<&T>) -> Meaning,
    ) {
        if !objects.is_synced() {
            return;
        }
        let (old, new) = change.states();
        for quota in self.quotas_of(&change.object().meta().key.namespace) {
            self.changed(&quota, &meaning(&quota, old, new), is_listing(objects));
        }
    }

    /// There is an object more or less of a resource.
    fn count_changed(&self, namespace: Option<&str>, resource: &str, is_more: bool) {
        let names =
            |quota: &ResourceQuota| planner::sources(quota).contains(&Source::Objects(resource.to_owned()));
        match namespace {
            Some(namespace) => {
                for quota in self.quotas_of(namespace) {
                    self.changed(&quota, &wakes::of_object(&quota, resource, is_more), false);
                }
            }
            None => {
                let quotas = self.quotas.select_all(names);
                quotas.iter().for_each(|quota| self.wake(quota.meta.key.clone(), FREED));
            }
        }
    }

    /// A quota has changed: others may name other resources, and the API server may have charged it.
    fn quota_changed(&self, change: &Change<ResourceQuota>) {
        let (old, new) = change.states();
        let named = |quota: Option<&ResourceQuota>| {
            let sources = quota.map(planner::sources).unwrap_or_default();
            sources.into_iter().filter_map(|source| match source {
                Source::Objects(resource) if resource != ResourceQuota::RESOURCE.plural => Some(resource),
                _ => None,
            })
        };
        if old.map(|quota| &quota.hard) != new.map(|quota| &quota.hard) {
            self.counts.follow(named(new), named(old));
        }
        if let (Some(old), Some(new)) = (old, new) {
            self.memory.changed(old, new, self.context.now());
        } else if self.quotas.is_synced() {
            let namespace = &change.object().meta.key.namespace;
            self.count_changed(Some(namespace), ResourceQuota::RESOURCE.plural, new.is_some());
        }
    }
}

/// Whether a list of these objects is under way.
fn is_listing<T: Record>(objects: &Store<T>) -> bool {
    let lists = objects.lists();
    lists.begun > lists.completed
}

/// The workers, and the watches of the resources that quotas name.
struct QuotaWorker {
    driver: Arc<Driver<QuotaController>>,
    monitors: Arc<Monitors>,
    stop: CancellationToken,
}

impl Worker for QuotaWorker {
    fn entry(&self) -> &'static ControllerEntry {
        &ENTRY
    }

    fn run(&self, workers: usize) -> BoxFuture<'static, ()> {
        let (syncs, monitors, stop) = (self.driver.run(workers), self.monitors.clone(), self.stop.clone());
        Box::pin(async move {
            tokio::join!(syncs, stop.run_until_cancelled(monitors.run()));
        })
    }

    fn shut_down(&self) {
        self.driver.shut_down();
        self.stop.cancel();
    }

    fn longest_running(&self) -> Duration {
        self.driver.longest_running()
    }

    fn resync(&self) {
        self.driver.resync();
    }

    fn awaited_kinds(&self) -> &'static [Resource] {
        self.driver.awaited_kinds()
    }

    fn drop_deleted_keys(&self) {
        self.driver.drop_deleted_keys();
    }
}
