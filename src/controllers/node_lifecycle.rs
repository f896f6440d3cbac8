//! The node lifecycle controller: taints and conditions of nodes whose kubelets are silent or report trouble, and their pods.
//!
//! It acts on each change of a node at once, and looks again when a node has been silent for too long or waits for its turn.

mod execute;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::pods_on_nodes::PodsOnNodes;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::owner_memory::Forget;
use crate::engine::setup::{HandlerOrder, Setup};
use crate::metrics::bounded::BoundedLabel;
use crate::metrics::{NodeMetrics, set_gauge};
use crate::model::node::Ready;
use crate::model::{Lease, Node, ObjectKey, Pod, Record, Uid};
use crate::plan::node_lifecycle::health::Health;
use crate::plan::node_lifecycle::turns::{Turn, Turns};
use crate::plan::node_lifecycle::zones::{self, Zones};
use crate::plan::node_lifecycle::{self as planner, Fall, Known, Limits, Observed, Plan, taints};
use crate::runtime::events::{EventTarget, EventType};
use crate::runtime::store::{Change, Store};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "node-lifecycle-controller",
    aliases: &["nodelifecycle"],
    kind: Node::RESOURCE,
    objects: "Nodes",
    flag: "concurrent-node-lifecycle-syncs",
    workers: 8,
    queue: "node_lifecycle_controller",
    component: "node-controller",
    watches: &[Node::RESOURCE, Lease::RESOURCE, Pod::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let on_nodes = PodsOnNodes::of_setup(&ENTRY, setup);
    let controller = Arc::new(NodeLifecycle::new(setup.context().clone(), on_nodes));
    if setup.is_enabled(&ENTRY) {
        let own = controller.clone();
        // Before the driver, which queues the key: a worker must not decide about a node by what was known before.
        setup.on_change(HandlerOrder::Owner, move |change| own.node_changed(change));
    }
    Box::new(Driver::new(controller, &ENTRY, setup))
}

/// The node lifecycle controller.
pub struct NodeLifecycle {
    context: Arc<Context>,
    nodes: Arc<Store<Node>>,
    pods: Arc<Store<Pod>>,
    on_nodes: Arc<PodsOnNodes>,
    memory: Arc<NodeMemory>,
    /// The zones, until a node changes that concerns them: heartbeats do not.
    zones: Mutex<Option<Arc<Zones>>>,
    /// Whether no node was ready anywhere, when the zones were last computed.
    was_cut_off: AtomicBool,
    /// The zones that have metrics.
    zone_labels: BoundedLabel,
    started: (Timestamp, Instant),
}

/// The memory of the nodes between syncs.
#[derive(Debug, Default)]
struct NodeMemory {
    health: Mutex<Health>,
    turns: Mutex<Turns>,
    known: Mutex<BTreeMap<ObjectKey, Known>>,
    /// Of nodes that are not ready.
    falls: Mutex<BTreeMap<Uid, Fall>>,
    /// The nodes that are not ready and whose pods are to be looked at, each with the number of the last change because of which they
    /// are: a sync that only waits for its turn looks at no pod.
    changes: Mutex<(u64, BTreeMap<Uid, u64>)>,
}

impl Forget for NodeMemory {
    fn forget(&self, node: &Uid) {
        self.turns.lock().end(node);
        self.falls.lock().remove(node);
        self.changes.lock().1.remove(node);
    }
}

/// A node in a sync.
pub struct NodeSync<'a> {
    observed: Observed<'a>,
    /// The change because of which its pods are looked at.
    change: Option<u64>,
    begun: Instant,
}

impl Controller for NodeLifecycle {
    type Object = Node;
    type Status = ();
    type Observed<'a> = NodeSync<'a>;
    type Plan = Plan;
    type Outcome = ();

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.memory.clone());
        if !setup.is_enabled(&ENTRY) {
            return;
        }
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.lease_changed(change));
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.pod_changed(change));
        let (metrics, weak) = (self.context.metrics().clone(), Arc::downgrade(self));
        let measured = Arc::downgrade(&metrics);
        metrics.before_render(move || match (weak.upgrade(), measured.upgrade()) {
            (Some(own), Some(metrics)) => {
                own.measure(&metrics.nodes);
                true
            }
            _ => false,
        });
    }

    fn in_scope(&self, _: &Node) -> bool {
        true
    }

    fn on_deleted(&self, key: &ObjectKey) {
        if let Some(known) = self.memory.known.lock().remove(key) {
            self.record_removal(key, known.uid);
        }
    }

    fn observe<'a>(&'a self, node: &'a Node, _: bool) -> Self::Observed<'a> {
        let (started, since) = self.started;
        let now = since.elapsed();
        let limits = self.limits();
        let zones = self.zones_with(node);
        let are_all_disrupted = zones.are_all_disrupted();
        let mut turns = self.memory.turns.lock();
        let turn = match taints::needs_turn(node, are_all_disrupted) {
            true if limits.judges_heartbeats() => {
                let zone = zones::zone_of(node);
                turns.ask(&node.meta.uid, &zone, zones.rate(&zone, &limits), now)
            }
            true => Turn::Now,
            false => {
                turns.end(&node.meta.uid);
                Turn::Now
            }
        };
        drop(turns);
        // A newer change is for the sync of that: this one may not know of it, and would tick it off.
        let is_current = |_: &u64| {
            let version = self.nodes.get(&node.meta.key).map(|stored| stored.meta.resource_version);
            version == Some(node.meta.resource_version)
        };
        let change = self.memory.change_of(&node.meta.uid).filter(is_current);
        let has_pods = node.ready != Ready::True && change.is_some();
        let observed = Observed {
            node,
            pods: if has_pods { self.on_nodes.on(&node.meta.key.name, &self.pods) } else { Vec::new() },
            fall: if has_pods { self.memory.fall_of(&node.meta.uid) } else { Fall::default() },
            silence: self.memory.health.lock().silence(node, now),
            are_all_disrupted,
            turn,
            known: self.memory.known.lock().get(&node.meta.key).cloned(),
            started,
            now: self.context.now(),
            limits,
        };
        NodeSync { observed, change, begun: Instant::now() }
    }

    fn plan(&self, sync: &NodeSync<'_>) -> Plan {
        planner::plan(&sync.observed)
    }

    fn writes(&self, plan: &Plan) -> bool {
        plan.writes()
    }

    fn execute<'a>(
        &'a self,
        node: &'a Node,
        sync: &'a NodeSync<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<()>> {
        Box::pin(async move {
            let error = self.carry_out(node, plan).await.err();
            if error.is_none() && !plan.is_lost {
                self.memory.looked(&node.meta.uid, sync.change);
            }
            Executed::new((), error)
        })
    }

    fn settle(&self, sync: &NodeSync<'_>, plan: &Plan, _: &Executed<()>) -> Settled<()> {
        self.context.metrics().nodes.update_one.observe(sync.begun.elapsed().as_secs_f64());
        Settled { requeue_after: plan.look_again, ..Settled::default() }
    }

    fn status<'a>(&self, _: &'a Node) -> &'a () {
        &()
    }
}

impl NodeMemory {
    fn fall_of(&self, node: &Uid) -> Fall {
        self.falls.lock().get(node).cloned().unwrap_or_default()
    }

    fn loses_readiness(&self, node: &Node, pod: &Pod) -> bool {
        let falls = self.falls.lock();
        falls.get(&node.meta.uid).unwrap_or(&Fall::default()).loses_readiness(node, pod)
    }

    /// The pods of a node are to be looked at.
    fn changed(&self, node: &Uid) {
        let mut changes = self.changes.lock();
        changes.0 += 1;
        let number = changes.0;
        changes.1.insert(node.clone(), number);
    }

    /// The change because of which they are, if there is one.
    fn change_of(&self, node: &Uid) -> Option<u64> {
        self.changes.lock().1.get(node).copied()
    }

    /// They were, as of this change.
    fn looked(&self, node: &Uid, change: Option<u64>) {
        let mut changes = self.changes.lock();
        if change.is_some() && changes.1.get(node).copied() == change {
            changes.1.remove(node);
        }
    }

    /// A pod of a node was reported as not ready.
    fn reported(&self, node: &Node, pod: &Uid) {
        self.falls.lock().entry(node.meta.uid.clone()).or_default().reported(node, pod);
    }
}

impl NodeLifecycle {
    fn new(context: Arc<Context>, on_nodes: Arc<PodsOnNodes>) -> Self {
        NodeLifecycle {
            nodes: context.store(),
            pods: context.store(),
            on_nodes,
            memory: Arc::default(),
            zones: Mutex::default(),
            was_cut_off: AtomicBool::new(false),
            zone_labels: BoundedLabel::default(),
            started: (context.now(), Instant::now()),
            context,
        }
    }

    fn limits(&self) -> Limits {
        self.context.settings().node_limits
    }

    fn elapsed(&self) -> Duration {
        self.started.1.elapsed()
    }

    /// The zones with a node as it is: the cache shows a change before the handler is called for it.
    fn zones_with(&self, node: &Node) -> Arc<Zones> {
        let zones = self.zones();
        if zones.show(node) {
            return zones;
        }
        *self.zones.lock() = None;
        self.zones()
    }

    /// The zones as the cache shows them. Where the first node becomes ready, or the last one is lost, all nodes are concerned.
    fn zones(&self) -> Arc<Zones> {
        let mut cached = self.zones.lock();
        if let Some(zones) = &*cached {
            return zones.clone();
        }
        let begun = Instant::now();
        let nodes = self.nodes.all();
        let zones = Arc::new(Zones::of(nodes.iter().map(|node| &**node)));
        self.context.metrics().nodes.update_all.observe(begun.elapsed().as_secs_f64());
        *cached = Some(zones.clone());
        let is_cut_off = zones.are_all_disrupted();
        let was_cut_off = self.was_cut_off.swap(is_cut_off, Ordering::SeqCst);
        drop(cached);
        if was_cut_off == is_cut_off {
            return zones;
        }
        if is_cut_off {
            tracing::warn!("no node is ready: no node loses its pods until one is");
        } else {
            self.memory.health.lock().all_alive(self.elapsed());
            self.memory.turns.lock().reset();
            tracing::info!("a node is ready again: nodes that are not may lose their pods");
        }
        self.nodes.for_each(|node| self.wake(node.meta.key.clone()));
        zones
    }

    fn wake(&self, node: ObjectKey) {
        self.context.queue_of_controller(&ENTRY).add(node);
    }

    /// A node has changed: it may have given a sign of life, and the zones may have another state.
    fn node_changed(&self, change: &Change<Node>) {
        let concerns = match change {
            Change::Updated { old, new } => zones::concerns(old, new),
            Change::Added(_) | Change::Deleted(_) => true,
        };
        match change {
            Change::Added(node) | Change::Updated { new: node, .. } => {
                self.memory.health.lock().node(node, self.elapsed());
            }
            Change::Deleted(node) => self.memory.health.lock().node_deleted(node),
        }
        if let Change::Updated { old, new } = change {
            if planner::fell(old, new) {
                let fall = Fall::seen_at(self.context.now());
                self.memory.falls.lock().insert(new.meta.uid.clone(), fall);
            } else if new.ready == Ready::True {
                self.memory.falls.lock().remove(&new.meta.uid);
            }
        }
        let (old, new) = change.states();
        if let Some(node) = new.filter(|new| planner::pods::may_lose_readiness(old, new)) {
            self.memory.changed(&node.meta.uid);
        }
        if concerns {
            *self.zones.lock() = None;
        }
        if concerns && self.nodes.is_synced() {
            self.zones();
            // Its own sync may have begun before this was known.
            self.wake(change.object().meta.key.clone());
        }
    }

    fn lease_changed(&self, change: &Change<Lease>) {
        let mut health = self.memory.health.lock();
        match change {
            Change::Added(lease) | Change::Updated { new: lease, .. } => {
                health.lease(&lease.meta.key.name, lease.renew_time, self.elapsed());
            }
            Change::Deleted(lease) => health.lease_deleted(&lease.meta.key.name),
        }
    }

    /// A pod has become ready, or was bound, on a node that is not ready.
    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        let Some(name) = pod.node() else { return };
        let key = ObjectKey::new("", name.clone());
        let Some(node) = self.nodes.get(&key).filter(|node| node.ready != Ready::True) else { return };
        if let Change::Deleted(_) = change {
            if let Some(fall) = self.memory.falls.lock().get_mut(&node.meta.uid) {
                fall.forget(&pod.meta.uid);
            }
        } else if self.memory.loses_readiness(&node, pod) {
            self.memory.changed(&node.meta.uid);
            self.wake(key);
        }
    }

    fn record_removal(&self, key: &ObjectKey, uid: Uid) {
        let note = planner::removal(&key.name);
        let target = EventTarget { resource: Node::RESOURCE, key: key.clone(), uid, resource_version: None };
        let recorder = &self.context.recorder;
        recorder.record(&target, EventType::Normal, note.reason, note.message, ENTRY.component);
    }

    /// Updates the gauges.
    fn measure(&self, metrics: &NodeMetrics) {
        if !self.nodes.is_synced() {
            return;
        }
        metrics.zone_health.reset();
        metrics.zone_size.reset();
        metrics.unhealthy.reset();
        for (name, zone) in self.zones().iter() {
            let label = self.zone_labels.of(&name.into());
            metrics.zone_health.with_label_values(&[&*label]).set(zone.health());
            set_gauge(&metrics.zone_size.with_label_values(&[&*label]), zone.size);
            set_gauge(&metrics.unhealthy.with_label_values(&[&*label]), zone.unhealthy);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::fixture::rig;
    use crate::model::Interner;

    fn node(name: &str, ready: &str, second: i64) -> Node {
        let at = Timestamp::from_second(second).unwrap().to_string();
        let json = json!({
            "metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": (5 + second).to_string()},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastHeartbeatTime": at, "lastTransitionTime": at}]},
        });
        Node::decode(&json.to_string(), &mut Interner::default()).unwrap()
    }

    /// The cache shows a change before the handler is called for it, and a sync of another change may be under way.
    #[tokio::test(start_paused = true)]
    async fn a_sync_before_the_handler_of_a_change_decides_by_the_change() {
        let rig = rig(200, |_| {});
        let controller = NodeLifecycle::new(rig.context.clone(), Arc::default());
        let store: Arc<Store<Node>> = rig.context.store();
        let put = |node: Node| {
            store.put(node.clone());
            Arc::new(node)
        };
        let lost = put(node("a", "Unknown", 0));
        controller.node_changed(&Change::Added(lost));
        let last = put(node("b", "True", 0));
        controller.node_changed(&Change::Added(last.clone()));
        let plan = |node: &Node| controller.plan(&controller.observe(node, false));
        assert!(!plan(&last).is_lost);
        // A kubelet that was silent for an hour returns.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(plan(&last).is_lost);
        assert!(!plan(&put(node("b", "True", 3600))).is_lost);
        // The last node that was ready is not: now none loses its pods.
        let fell = put(node("b", "False", 3601));
        let taints = plan(&fell).taints.unwrap().taints;
        assert!(taints.iter().all(|taint| taint.effect == crate::model::Effect::NoSchedule), "{taints:?}");
    }
}
