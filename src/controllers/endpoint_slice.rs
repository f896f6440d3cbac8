//! The EndpointSlice controller: the endpoints of Services with a selector.
//!
//! It decides anew about a Service at once when the Service changes, after `--endpointslice-updates-batch-period` when its pods do,
//! and a second after others have changed its slices. While pods keep changing, the slices of a Service are written at most ten
//! times a second.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;

use super::pods_on_nodes::PodsOnNodes;
use super::service_endpoints::{ManagedSlices, REPAIR, ServicePods, SliceWriter, SyncMemory};
use crate::engine::SyncError;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::setup::{HandlerOrder, Setup};
use crate::metrics::{count, set_gauge};
use crate::model::endpointslice::ENDPOINT_SLICE_CONTROLLER;
use crate::model::{EndpointSlice, Node, ObjectKey, Pod, Record, Service};
use crate::plan::EventNote;
use crate::plan::endpointslice::{self as planner, CpuShares, Limits, Memory, Observed, Plan};
use crate::runtime::store::{Change, Store};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "endpointslice-controller",
    aliases: &[],
    kind: Service::RESOURCE,
    objects: "Services",
    flag: "concurrent-service-endpoint-syncs",
    workers: 5,
    queue: "endpoint_slice",
    component: "endpoint-slice-controller",
    watches: &[Service::RESOURCE, EndpointSlice::RESOURCE, Node::RESOURCE, Pod::RESOURCE],
    stale_skips: Some(|metrics| &metrics.endpoint_slices.stale_skips),
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let memory = Arc::default();
    let controller = EndpointSliceController {
        services: context.store(),
        all_pods: context.store(),
        on_nodes: PodsOnNodes::of_setup(&ENTRY, setup),
        nodes: context.store(),
        pods: ServicePods::new(&ENTRY, context.settings().endpoint_slice_updates_batch_period, setup),
        slices: ManagedSlices::new(ENDPOINT_SLICE_CONTROLLER, context.store()),
        writer: SliceWriter {
            context: context.clone(),
            entry: &ENTRY,
            owners: context.store(),
            memory: Arc::clone(&memory),
            changes: |metrics| &metrics.endpoint_slices.changes,
        },
        shares: Mutex::default(),
        memory,
        context,
    };
    Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
}

/// The EndpointSlice controller.
pub struct EndpointSliceController {
    context: Arc<Context>,
    services: Arc<Store<Service>>,
    all_pods: Arc<Store<Pod>>,
    on_nodes: Arc<PodsOnNodes>,
    nodes: Arc<Store<Node>>,
    pods: Arc<ServicePods>,
    slices: ManagedSlices,
    writer: SliceWriter<Service>,
    /// The shares of the zones in the CPUs; `None` until they are computed again.
    shares: Mutex<Option<Option<Arc<CpuShares>>>>,
    /// The memory of each Service between syncs.
    memory: Arc<SyncMemory<Memory>>,
}

impl Controller for EndpointSliceController {
    type Object = Service;
    type Status = ();
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = ();

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.memory.clone());
        self.pods.watch(setup);
        if !setup.is_enabled(&ENTRY) {
            return;
        }
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.slice_changed(change));
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.node_changed(change));
        let (metrics, weak) = (self.context.metrics().clone(), Arc::downgrade(self));
        let measured = Arc::downgrade(&metrics);
        metrics.before_render(move || match (weak.upgrade(), measured.upgrade()) {
            (Some(own), Some(metrics)) => {
                own.measure(&metrics.endpoint_slices);
                true
            }
            _ => false,
        });
    }

    fn in_scope(&self, service: &Service) -> bool {
        self.context.settings().scope.selects(&service.meta)
    }

    fn resolve<'a>(&'a self, service: &'a Service) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(async {
            self.context.resolve_children(service, self.slices.store()).await?;
            Context::all_readable(service, self.slices.store())
        })
    }

    fn observe<'a>(&'a self, service: &'a Service, _: bool) -> Observed<'a> {
        let key = &service.meta.key;
        let pods = self.pods.of(service);
        let nodes = self.nodes_of(&pods);
        Observed {
            service,
            pods,
            nodes,
            slices: self.slices_of(service),
            taken: self.slices.taken(key),
            shares: if service.is_topology_auto { self.shares() } else { None },
            memory: self.memory.of(&service.meta.uid),
            limits: self.limits(),
        }
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
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
        service: &'a Service,
        _: &'a Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<()>> {
        Box::pin(async move { Executed::new((), self.carry_out(service, plan).await.err()) })
    }

    fn settle(&self, _: &Observed<'_>, _: &Plan, _: &Executed<()>) -> Settled<()> {
        Settled::default()
    }

    fn status<'a>(&self, _: &'a Service) -> &'a () {
        &()
    }
}

impl EndpointSliceController {
    fn limits(&self) -> Limits {
        let settings = self.context.settings();
        Limits {
            endpoints_per_slice: settings.max_endpoints_per_slice,
            deletes_left_over: settings.deletes_leftover_endpoint_slices,
        }
    }

    fn nodes_of(&self, pods: &[Arc<Pod>]) -> BTreeMap<Arc<str>, Arc<Node>> {
        let names: BTreeSet<&Arc<str>> = pods.iter().filter_map(|pod| pod.node()).collect();
        let node = |name: &Arc<str>| Some((name.clone(), self.nodes.get(&ObjectKey::new("", name.clone()))?));
        names.into_iter().filter_map(node).collect()
    }

    fn slices_of(&self, service: &Service) -> Vec<Arc<EndpointSlice>> {
        self.slices.of(&service.meta.key, Some(&service.as_owner()))
    }

    /// The shares of the zones in the CPUs.
    fn shares(&self) -> Option<Arc<CpuShares>> {
        let mut shares = self.shares.lock();
        shares.get_or_insert_with(|| CpuShares::of(&self.nodes.all()).map(Arc::new)).clone()
    }

    fn wake_after(&self, key: ObjectKey, delay: Duration) {
        self.context.queue_of_controller(&ENTRY).add_after(key, delay);
    }

    /// A slice has changed: wakes its Service.
    fn slice_changed(&self, change: &Change<EndpointSlice>) {
        let repair = REPAIR.max(self.context.settings().endpoint_slice_updates_batch_period);
        let (services, delay) = self.slices.changed(change, &self.memory, repair);
        services.into_iter().for_each(|service| self.wake_after(service, delay));
    }

    /// A node has changed: wakes the Services that have pods on it if it has become known or is in another zone, and those with hints
    /// by CPUs whose shares are wrong by now.
    fn node_changed(&self, change: &Change<Node>) {
        let (old, new) = change.states();
        let meaning = planner::node_change(old, new);
        let is_synced = self.nodes.is_synced();
        if meaning.changes_shares {
            *self.shares.lock() = None;
            if is_synced {
                self.wake_overloaded();
            }
        }
        if meaning.changes_endpoints && is_synced {
            self.wake_services_on(&change.object().meta.key.name);
        }
    }

    fn wake_services_on(&self, node: &Arc<str>) {
        let pods = self.on_nodes.on(node, &self.all_pods);
        let services: BTreeSet<ObjectKey> =
            pods.iter().flat_map(|pod| self.pods.services_of(&pod.meta)).collect();
        services.into_iter().for_each(|key| self.pods.wake(key));
    }

    fn wake_overloaded(&self) {
        let mut hinted = Vec::new();
        self.services.for_each(|service| {
            if service.is_topology_auto && self.in_scope(service) {
                hinted.push(service.clone());
            }
        });
        if hinted.is_empty() {
            return;
        }
        let shares = self.shares();
        for service in hinted {
            if planner::topology_is_concerned(&self.slices_of(&service), shares.as_deref()) {
                self.wake_after(service.meta.key.clone(), Duration::ZERO);
            }
        }
    }

    /// Executes the plan for a Service, counts it, and remembers it once all is written.
    async fn carry_out(&self, service: &Service, plan: &Plan) -> Result<(), SyncError> {
        if !plan.is_empty() {
            self.pods.writes(&service.meta.uid);
        }
        let result = self.writer.write_all(service, plan).await;
        let metrics = &self.context.metrics.endpoint_slices;
        let label = if result.is_ok() { "success" } else { "error" };
        metrics.syncs.with_label_values(&[label]).inc();
        match &result {
            Ok(()) => {
                for event in &plan.events {
                    self.context.record_event(ENTRY.component, service, event.clone());
                }
                self.count(service, plan);
                self.memory.keep(&service.meta.uid, plan.memory.clone());
            }
            Err(error) if error.is_refusal() => {
                let key = &service.meta.key;
                let message = format!("Error updating Endpoint Slices for Service {key}: {error}");
                let note = EventNote::warning(planner::FAILED, message);
                self.context.record_event(ENTRY.component, service, note);
            }
            Err(_) => {}
        }
        result
    }

    fn count(&self, service: &Service, plan: &Plan) {
        let metrics = &self.context.metrics.endpoint_slices;
        let topology = if service.is_topology_auto { "Auto" } else { "Disabled" };
        let distribution = service.traffic_distribution.filter(|_| !service.is_topology_auto);
        let distribution = distribution.map_or("", |distribution| distribution.as_str());
        metrics.changed_per_sync.with_label_values(&[topology, distribution]).observe(count(plan.len()));
        metrics.added_per_sync.observe(count(plan.memory.counts.added));
        metrics.removed_per_sync.observe(count(plan.memory.counts.removed));
    }

    /// Updates the gauges.
    fn measure(&self, metrics: &crate::metrics::EndpointSliceMetrics) {
        let counts = self.memory.counts();
        set_gauge(&metrics.endpoints_desired, counts.endpoints);
        set_gauge(&metrics.slices, counts.slices);
        set_gauge(&metrics.ideal_slices, counts.ideal);
        let mut by_distribution = BTreeMap::new();
        self.services.for_each(|service| {
            let distribution = service.traffic_distribution.filter(|_| !service.is_topology_auto);
            if let Some(distribution) = distribution.filter(|_| service.pods().is_some()) {
                *by_distribution.entry(distribution).or_insert(0_usize) += 1;
            }
        });
        metrics.services_by_distribution.reset();
        for (distribution, count) in by_distribution {
            let gauge = metrics.services_by_distribution.with_label_values(&[distribution.as_str()]);
            set_gauge(&gauge, count);
        }
        metrics.count_stale_syncs();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::fixture::{Rig, rig};
    use crate::model::Interner;

    fn decode<T: Record>(object: &Value) -> Arc<T> {
        Arc::new(T::decode(&object.to_string(), &mut Interner::default()).unwrap())
    }

    fn service(name: &str, selector: Value) -> Value {
        json!({"metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}"), "resourceVersion": "1"},
               "spec": {"selector": selector}})
    }

    fn pod(labels: Value) -> Value {
        json!({"metadata": {"name": "p", "namespace": "shop", "uid": "u-p", "resourceVersion": "2", "labels": labels},
               "spec": {"nodeName": "n1"},
               "status": {"phase": "Running", "podIP": "10.0.0.1"}})
    }

    /// Three Services, and no nodes and slices.
    fn shop() -> Rig {
        let mut rig = rig(200, |_| {});
        for (name, selector) in [
            ("web", json!({"app": "web"})),
            ("front", json!({"app": "web", "tier": "front"})),
            ("db", json!({"app": "db"})),
            ("by-hand", Value::Null),
        ] {
            let service = service(name, selector);
            rig.context
                .store::<Service>()
                .put(Service::decode(&service.to_string(), &mut Interner::default()).unwrap());
            rig.dispatch(Change::<Service>::Added(decode(&service)));
        }
        let (slices, nodes) = (rig.context.store::<EndpointSlice>(), rig.context.store::<Node>());
        slices.begin_list(false);
        slices.end_list(1);
        nodes.begin_list(false);
        nodes.end_list(1);
        rig.woken();
        rig
    }

    fn woken<T: Record>(rig: &mut Rig, change: Change<T>) -> Vec<String> {
        rig.dispatch(change);
        let woken = rig.woken();
        let ours = woken.iter().filter_map(|key| key.strip_prefix("endpointslice shop/"));
        ours.map(str::to_owned).collect()
    }

    fn updated<T: Record>(old: &Value, new: &Value) -> Change<T> {
        Change::Updated { old: decode(old), new: decode(new) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_wakes_the_services_that_select_it_or_did() {
        let mut rig = shop();
        let (web, front, db) = (
            pod(json!({"app": "web"})),
            pod(json!({"app": "web", "tier": "front"})),
            pod(json!({"app": "db"})),
        );
        assert_eq!(woken(&mut rig, Change::<Pod>::Added(decode(&web))), ["web"]);
        assert_eq!(woken(&mut rig, Change::<Pod>::Deleted(decode(&front))), ["front", "web"]);
        assert_eq!(woken(&mut rig, updated::<Pod>(&web, &front)), ["front"], "the other one has it already");
        assert_eq!(woken(&mut rig, updated::<Pod>(&web, &db)), ["db", "web"]);
        assert_eq!(woken(&mut rig, updated::<Pod>(&web, &web)), [""; 0]);
        assert_eq!(woken(&mut rig, Change::<Pod>::Added(decode(&pod(json!({"tier": "front"}))))), [""; 0]);
        let mut elsewhere = front;
        elsewhere["metadata"]["namespace"] = json!("other");
        assert_eq!(woken(&mut rig, Change::<Pod>::Added(decode(&elsewhere))), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_service_with_another_selector_is_found_by_it() {
        let mut rig = shop();
        let (before, after) = (service("web", json!({"app": "web"})), service("web", json!({"a": "b"})));
        let stored = Service::decode(&after.to_string().replace("\"1\"", "\"9\""), &mut Interner::default());
        rig.context.store::<Service>().put(stored.unwrap());
        assert_eq!(woken(&mut rig, updated::<Service>(&before, &after)), ["web"]);
        assert_eq!(woken(&mut rig, Change::<Pod>::Added(decode(&pod(json!({"app": "web"}))))), [""; 0]);
        assert_eq!(woken(&mut rig, Change::<Pod>::Added(decode(&pod(json!({"a": "b"}))))), ["web"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slice_wakes_the_service_that_its_label_names() {
        let mut rig = shop();
        let slice = |name: &str| {
            json!({"metadata": {"name": "web-x", "namespace": "shop", "uid": "u-x", "resourceVersion": "5", "labels": {
                       "kubernetes.io/service-name": name,
                       "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}},
                   "addressType": "IPv4", "endpoints": []})
        };
        let added = Change::<EndpointSlice>::Added(decode(&slice("web")));
        assert_eq!(woken(&mut rig, added), ["web"]);
        let moved = updated::<EndpointSlice>(&slice("web"), &slice("db"));
        assert_eq!(woken(&mut rig, moved), ["db", "web"]);
        assert_eq!(woken(&mut rig, Change::<EndpointSlice>::Deleted(decode(&slice("db")))), ["db"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_becomes_known_wakes_the_services_of_its_pods() {
        let mut rig = shop();
        let front = pod(json!({"app": "web", "tier": "front"}));
        rig.context.store::<Pod>().put(Pod::decode(&front.to_string(), &mut Interner::default()).unwrap());
        // The index of pods by node follows them.
        rig.dispatch(Change::<Pod>::Added(decode(&front)));
        rig.woken();
        let node = |name: &str, zone: &str| {
            json!({"metadata": {"name": name, "uid": name, "resourceVersion": "3",
                                "labels": {"topology.kubernetes.io/zone": zone}}})
        };
        assert_eq!(woken(&mut rig, Change::<Node>::Added(decode(&node("n2", "a")))), [""; 0]);
        assert_eq!(woken(&mut rig, Change::<Node>::Added(decode(&node("n1", "a")))), ["front", "web"]);
        let moved = updated::<Node>(&node("n1", "a"), &node("n1", "b"));
        assert_eq!(woken(&mut rig, moved), ["front", "web"]);
        let heartbeat = updated::<Node>(&node("n1", "a"), &node("n1", "a"));
        assert_eq!(woken(&mut rig, heartbeat), [""; 0]);
    }
}
