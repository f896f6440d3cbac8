//! The EndpointSlice controller: the endpoints of Services with a selector.
//!
//! It decides anew about a Service at once when the Service changes, after `--endpointslice-updates-batch-period` when its pods do,
//! and a second after others have changed its slices. While pods keep changing, the slices of a Service are written at most ten
//! times a second.

mod execute;
mod indexes;
mod memory;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::engine::SyncError;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::setup::{HandlerOrder, Setup};
use crate::metrics::set_gauge;
use crate::model::{EndpointSlice, Node, ObjectKey, Pod, Record, Service};
use crate::plan::endpointslice::{self as planner, Affected, CpuShares, Limits, Observed, Plan};
use crate::runtime::store::{Change, Store};
use indexes::{SelectorIndex, SliceIndex};
use memory::SliceMemory;

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

/// The least time between two writes of the slices of a Service.
const GATHERING: Duration = Duration::from_millis(100);

/// How long after a change of a slice by others its Service is looked at, at least (upstream:
/// `endpointSliceChangeMinSyncDelay`).
const REPAIR: Duration = Duration::from_secs(1);

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let controller = EndpointSliceController {
        services: context.store(),
        slices: context.store(),
        pods: context.store(),
        nodes: context.store(),
        by_selector: SelectorIndex::default(),
        by_service: SliceIndex::default(),
        shares: Mutex::default(),
        memory: Arc::default(),
        context,
    };
    Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
}

/// The EndpointSlice controller.
pub struct EndpointSliceController {
    context: Arc<Context>,
    services: Arc<Store<Service>>,
    slices: Arc<Store<EndpointSlice>>,
    pods: Arc<Store<Pod>>,
    nodes: Arc<Store<Node>>,
    /// The Services by one of the labels that they select.
    by_selector: SelectorIndex,
    /// The slices by the Service that their label names.
    by_service: SliceIndex,
    /// The shares of the zones in the CPUs; `None` until they are computed again.
    shares: Mutex<Option<Option<Arc<CpuShares>>>>,
    /// The memory of each Service between syncs.
    memory: Arc<SliceMemory>,
}

impl Controller for EndpointSliceController {
    type Object = Service;
    type Status = ();
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = ();

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.memory.clone());
        if !setup.is_enabled(&ENTRY) {
            return;
        }
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.by_selector.update(change));
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.slice_changed(change));
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.pod_changed(change));
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
            self.context.resolve_children(service, &self.slices).await?;
            Context::all_readable(service, &self.slices)
        })
    }

    fn observe<'a>(&'a self, service: &'a Service, _: bool) -> Observed<'a> {
        let key = &service.meta.key;
        let base = planner::name_base(&key.name);
        let named = self.slices.named(&key.namespace, &base);
        let pods = self.pods_of(service);
        let nodes = self.nodes_of(&pods);
        Observed {
            service,
            pods,
            nodes,
            slices: self.slices_of(service),
            taken: named.iter().map(|slice| slice.meta.key.name.clone()).collect(),
            shares: if service.is_topology_auto { self.shares() } else { None },
            memory: self.memory.of(&service.meta.uid),
            limits: self.limits(),
        }
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
        planner::plan(observed)
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

    /// The pods that a Service selects.
    fn pods_of(&self, service: &Service) -> Vec<Arc<Pod>> {
        let Some(selector) = service.pods() else { return Vec::new() };
        // Pods of one template share their labels, and stand side by side.
        let mut last = None;
        self.pods.select(&service.meta.key.namespace, |pod| {
            let labels = Arc::as_ptr(&pod.meta.labels);
            match last {
                Some((same, matches)) if same == labels => matches,
                _ => {
                    let matches = selector.matches(&pod.meta.labels);
                    last = Some((labels, matches));
                    matches
                }
            }
        })
    }

    fn nodes_of(&self, pods: &[Arc<Pod>]) -> BTreeMap<Arc<str>, Arc<Node>> {
        let names: BTreeSet<&Arc<str>> = pods.iter().filter_map(|pod| pod.node()).collect();
        let node = |name: &Arc<str>| Some((name.clone(), self.nodes.get(&ObjectKey::new("", name.clone()))?));
        names.into_iter().filter_map(node).collect()
    }

    /// The slices of a Service that we manage and that are not being deleted, whoever owns them.
    fn slices_of(&self, service: &Service) -> Vec<Arc<EndpointSlice>> {
        let key = &service.meta.key;
        let owned = self.slices.owned_by(&service.as_owner());
        let named = self.by_service.of(key);
        let named = named
            .into_iter()
            .filter_map(|name| self.slices.get(&ObjectKey::new(key.namespace.clone(), name)));
        let is_of_service = |slice: &Arc<EndpointSlice>| {
            slice.is_managed() && slice.service() == Some(&*key.name) && !slice.meta.is_deleting()
        };
        let all = owned.into_iter().chain(named).filter(is_of_service);
        let by_name: BTreeMap<Arc<str>, Arc<EndpointSlice>> =
            all.map(|slice| (slice.meta.key.name.clone(), slice)).collect();
        by_name.into_values().collect()
    }

    /// The shares of the zones in the CPUs.
    fn shares(&self) -> Option<Arc<CpuShares>> {
        let mut shares = self.shares.lock();
        shares.get_or_insert_with(|| CpuShares::of(&self.nodes.all()).map(Arc::new)).clone()
    }

    fn wake_after(&self, key: ObjectKey, delay: Duration) {
        self.context.queue_of_controller(&ENTRY).add_after(key, delay);
    }

    /// A pod has changed: wakes the Services that select it or did.
    fn pod_changed(&self, change: &Change<Pod>) {
        let (old, new) = match change {
            Change::Added(pod) => (None, Some(pod)),
            Change::Updated { old, new } => (Some(old), Some(new)),
            Change::Deleted(pod) => (Some(pod), None),
        };
        let affected = planner::affected(old.map(|pod| &**pod), new.map(|pod| &**pod));
        if affected == Affected::None {
            return;
        }
        let services = |pod: &Arc<Pod>| self.by_selector.of(&self.services, &pod.meta);
        let (before, after) = (old.map(services).unwrap_or_default(), new.map(services).unwrap_or_default());
        let mut woken: BTreeSet<ObjectKey> = before.union(&after).cloned().collect();
        if affected == Affected::Changed {
            woken.retain(|key| before.contains(key) != after.contains(key));
        }
        for key in woken {
            self.wake_for_pods(key);
        }
    }

    /// Wakes a Service whose pods have changed: after the batch period, and so that its slices are not written too often.
    fn wake_for_pods(&self, key: ObjectKey) {
        let Some(service) = self.services.get(&key) else { return };
        let wrote = self.memory.last_write(&service.meta.uid);
        let quiet =
            wrote.map_or(Duration::ZERO, |at| (at + GATHERING).saturating_duration_since(Instant::now()));
        self.wake_after(key, quiet.max(self.context.settings().endpoint_updates_batch_period));
    }

    /// A slice has changed: wakes its Service unless this process has made the change.
    fn slice_changed(&self, change: &Change<EndpointSlice>) {
        self.by_service.update(change);
        let (old, new) = match change {
            Change::Added(slice) => (None, Some(slice)),
            Change::Updated { old, new } => (Some(old), Some(new)),
            Change::Deleted(slice) => (Some(slice), None),
        };
        let is_expected = match change {
            // The Services are in the queue already.
            Change::Added(_) if !self.slices.is_synced() => true,
            Change::Added(slice) | Change::Updated { new: slice, .. } => self.memory.has_written(&slice.meta),
            Change::Deleted(slice) => self.memory.has_deleted(&slice.meta),
        };
        let namespace = &change.object().meta.key.namespace;
        let delay = REPAIR.max(self.context.settings().endpoint_updates_batch_period);
        let (old, new) = (old.map(|slice| &**slice), new.map(|slice| &**slice));
        for name in planner::services_of_slice(old, new, is_expected) {
            self.wake_after(ObjectKey::new(namespace.clone(), name), delay);
        }
    }

    /// A node has changed: wakes the Services that have pods on it if it has become known or is in another zone, and those with hints
    /// by CPUs whose shares are wrong by now.
    fn node_changed(&self, change: &Change<Node>) {
        let (old, new) = match change {
            Change::Added(node) => (None, Some(node)),
            Change::Updated { old, new } => (Some(old), Some(new)),
            Change::Deleted(node) => (Some(node), None),
        };
        let meaning = planner::node_change(old.map(|node| &**node), new.map(|node| &**node));
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
        let mut pods = Vec::new();
        self.pods.for_each(|pod| {
            if pod.node() == Some(node) {
                pods.push(pod.clone());
            }
        });
        let services: BTreeSet<ObjectKey> =
            pods.iter().flat_map(|pod| self.by_selector.of(&self.services, &pod.meta)).collect();
        services.into_iter().for_each(|key| self.wake_for_pods(key));
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
