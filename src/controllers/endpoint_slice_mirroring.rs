//! The controller of the EndpointSlices that mirror Endpoints: those that users, or other programs, write for Services without
//! selector.
//!
//! Its keys are Endpoints. It decides anew about them when they change, when their Service appears, goes, or changes between having a
//! selector and having none, and a second after others have changed their slices.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::service_endpoints::{ManagedSlices, REPAIR, SliceWriter, SyncMemory};
use crate::engine::SyncError;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::owner_memory::Forget;
use crate::engine::setup::{HandlerOrder, Setup};
use crate::metrics::{count, set_gauge};
use crate::model::endpoints::FullEndpoints;
use crate::model::endpointslice::ENDPOINT_SLICE_MIRRORING_CONTROLLER;
use crate::model::{EndpointSlice, Endpoints, ObjectKey, Record, Service, Uid};
use crate::plan::endpointslice::{Memory, Plan};
use crate::plan::endpointslice_mirroring::{self as planner, Observed};
use crate::runtime::store::{Change, Store};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "endpointslice-mirroring-controller",
    aliases: &["endpointslicemirroring"],
    kind: Endpoints::RESOURCE,
    objects: "Endpoints",
    flag: "mirroring-concurrent-service-endpoint-syncs",
    workers: 5,
    queue: "endpoint_slice_mirroring",
    component: "endpoint-slice-mirroring-controller",
    watches: &[Endpoints::RESOURCE, EndpointSlice::RESOURCE, Service::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let memory = Arc::default();
    let controller = MirroringController {
        endpoints: context.store(),
        services: context.store(),
        slices: ManagedSlices::new(ENDPOINT_SLICE_MIRRORING_CONTROLLER, context.store()),
        writer: SliceWriter {
            context: context.clone(),
            entry: &ENTRY,
            owners: context.store(),
            memory: Arc::clone(&memory),
            changes: |metrics| &metrics.mirroring.changes,
        },
        memory,
        full: Arc::default(),
        context,
    };
    Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
}

/// The controller of the EndpointSlices that mirror Endpoints.
pub struct MirroringController {
    context: Arc<Context>,
    endpoints: Arc<Store<Endpoints>>,
    services: Arc<Store<Service>>,
    slices: ManagedSlices,
    writer: SliceWriter<Endpoints>,
    /// The memory of each of the Endpoints between syncs.
    memory: Arc<SyncMemory<Memory>>,
    full: Arc<ReadPastCache>,
}

/// Endpoints whose content the cache does not hold: written for a Service that had a selector then.
#[derive(Default)]
struct ReadPastCache(Mutex<BTreeMap<Uid, Arc<Endpoints>>>);

impl Forget for ReadPastCache {
    fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

impl Controller for MirroringController {
    type Object = Endpoints;
    type Status = ();
    /// With the time at which the sync began.
    type Observed<'a> = (Observed, Instant);
    type Plan = Plan;
    type Outcome = ();

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.memory.clone());
        self.context.memory().includes(self.full.clone());
        if !setup.is_enabled(&ENTRY) {
            return;
        }
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.slice_changed(change));
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.service_changed(change));
        let (metrics, weak) = (self.context.metrics().clone(), Arc::downgrade(self));
        let measured = Arc::downgrade(&metrics);
        metrics.before_render(move || match (weak.upgrade(), measured.upgrade()) {
            (Some(own), Some(metrics)) => {
                let (counts, metrics) = (own.memory.counts(), &metrics.mirroring);
                set_gauge(&metrics.endpoints_desired, counts.endpoints);
                set_gauge(&metrics.slices, counts.slices);
                set_gauge(&metrics.ideal_slices, counts.ideal);
                true
            }
            _ => false,
        });
    }

    fn in_scope(&self, endpoints: &Endpoints) -> bool {
        self.context.settings().scope.selects(&endpoints.meta)
    }

    fn resolve<'a>(&'a self, endpoints: &'a Endpoints) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(async {
            self.context.resolve_children(endpoints, self.slices.store()).await?;
            Context::all_readable(endpoints, self.slices.store())?;
            self.read_content(endpoints).await
        })
    }

    fn has_left_over(&self, key: &ObjectKey) -> bool {
        !self.left_over(key).is_empty()
    }

    fn clean_up<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(async {
            for slice in self.left_over(key) {
                self.writer.delete_left_over(&slice).await?;
            }
            Ok(())
        })
    }

    fn observe<'a>(&'a self, endpoints: &'a Endpoints, _: bool) -> (Observed, Instant) {
        let meta = &endpoints.meta;
        let cached = self.endpoints.get(&meta.key).filter(|cached| cached.meta.uid == meta.uid);
        let is_current = |full: &Arc<Endpoints>| full.meta.resource_version >= meta.resource_version;
        let full = self.full.0.lock().get(&meta.uid).cloned().filter(is_current);
        let observed = Observed {
            endpoints: full.or(cached).unwrap_or_else(|| Arc::new(endpoints.clone())),
            service: self.services.get(&meta.key),
            slices: self.slices.of(&meta.key, Some(&endpoints.as_owner())),
            taken: self.slices.taken(&meta.key),
            memory: self.memory.of(&meta.uid),
            most: self.context.settings().mirroring_max_endpoints_per_subset,
        };
        (observed, Instant::now())
    }

    fn plan(&self, (observed, _): &(Observed, Instant)) -> Plan {
        planner::plan(observed)
    }

    fn creates(&self, plan: &Plan) -> bool {
        plan.creates()
    }

    fn writes(&self, plan: &Plan) -> bool {
        !plan.is_empty()
    }

    fn execute<'a>(
        &'a self,
        endpoints: &'a Endpoints,
        (_, began): &'a (Observed, Instant),
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<()>> {
        Box::pin(async move {
            let result = self.carry_out(endpoints, plan).await;
            self.context.metrics.mirroring.sync_duration.observe(began.elapsed().as_secs_f64());
            Executed::new((), result.err())
        })
    }

    fn settle(&self, _: &(Observed, Instant), _: &Plan, _: &Executed<()>) -> Settled<()> {
        Settled::default()
    }

    fn status<'a>(&self, _: &'a Endpoints) -> &'a () {
        &()
    }
}

impl MirroringController {
    /// Reads Endpoints past the cache if they are mirrored and the cache does not hold their content.
    async fn read_content(&self, endpoints: &Endpoints) -> Result<(), SyncError> {
        let meta = &endpoints.meta;
        let service = self.services.get(&meta.key);
        if endpoints.content.is_some() || !planner::is_mirrored(endpoints, service.as_deref()) {
            return Ok(());
        }
        let known = self.full.0.lock().get(&meta.uid).map(|full| full.meta.resource_version);
        if known >= Some(meta.resource_version) {
            return Ok(());
        }
        let api = self.context.api_of_controller(&ENTRY, endpoints);
        match self.context.read_by::<FullEndpoints>(&api, &Endpoints::RESOURCE.path_of(&meta.key)).await {
            Ok(FullEndpoints(full)) => {
                self.full.0.lock().insert(full.meta.uid.clone(), Arc::new(full));
                Ok(())
            }
            // The cache will show it.
            Err(SyncError::Gone { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The slices of Endpoints that do not exist.
    fn left_over(&self, key: &ObjectKey) -> Vec<Arc<EndpointSlice>> {
        let scope = &self.context.settings().scope;
        let mut slices = self.slices.of(key, None);
        slices.retain(|slice| scope.selects(&slice.meta));
        slices
    }

    /// Executes the plan for Endpoints, counts it, and remembers it once all is written.
    async fn carry_out(&self, endpoints: &Endpoints, plan: &Plan) -> Result<(), SyncError> {
        self.writer.write_all(endpoints, plan).await?;
        for event in &plan.events {
            self.context.record_event(ENTRY.component, endpoints, event.clone());
        }
        let (metrics, counts) = (&self.context.metrics.mirroring, &plan.memory.counts);
        metrics.added_per_sync.observe(count(counts.added));
        metrics.updated_per_sync.observe(count(counts.updated));
        metrics.removed_per_sync.observe(count(counts.removed));
        metrics.skipped_per_sync.observe(count(plan.memory.skipped.1));
        self.memory.keep(&endpoints.meta.uid, plan.memory.clone());
        Ok(())
    }

    /// A slice has changed: wakes the Endpoints that it mirrors.
    fn slice_changed(&self, change: &Change<EndpointSlice>) {
        let repair = REPAIR.max(self.context.settings().mirroring_updates_batch_period);
        let queue = self.context.queue_of_controller(&ENTRY);
        let (keys, delay) = self.slices.changed(change, &self.memory, repair);
        keys.into_iter().for_each(|key| queue.add_after(key, delay));
        // One from before the start may have no Endpoints.
        if let Change::Added(slice) = change
            && !self.slices.store().is_synced()
            && let Some(key) = self.slices.key_of(slice)
        {
            queue.add(key);
        }
    }

    /// A Service has changed: wakes the Endpoints of its name if it decides whether they are mirrored.
    fn service_changed(&self, change: &Change<Service>) {
        let (old, new) = change.states();
        if planner::is_concerned(old, new) {
            self.context.queue_of_controller(&ENTRY).add(change.object().meta.key.clone());
        }
    }
}
