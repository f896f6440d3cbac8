//! The taint eviction controller: pods leave a node with taints of effect NoExecute that they do not tolerate, or no longer.
//!
//! It looks at the pods of nodes with such taints, when these or the pods change, and when an eviction is due. Before an eviction
//! the node is read past the cache: a watch that hangs evicts no pod from a node that has recovered.

mod execute;
mod memory;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::pods_on_nodes::PodsOnNodes;
use crate::engine::SyncError;
use crate::engine::context::Context;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::setup::{HandlerOrder, Setup};
use crate::model::{Node, ObjectKey, Pod, Record, Resource};
use crate::plan::taint_eviction::{self as planner, Active, Observed, Plan};
use crate::runtime::lazy_read_barrier::CacheState;
use crate::runtime::store::{Change, Store};
use crate::runtime::worker::{Next, run_workers};
use memory::EvictionMemory;

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "taint-eviction-controller",
    aliases: &[],
    kind: Pod::RESOURCE,
    objects: "Pods on nodes with taints",
    flag: "concurrent-taint-eviction-syncs",
    workers: 8,
    queue: "noexec_taint_pod",
    component: "taint-eviction-controller",
    watches: &[Node::RESOURCE, Pod::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

/// When to look again at a pod whose eviction the node itself does not bear out, until the cache shows why.
const OUTDATED: Duration = Duration::from_secs(1);

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let controller = Arc::new(TaintEviction {
        on_nodes: PodsOnNodes::of_setup(&ENTRY, setup),
        pods: context.store(),
        nodes: context.store(),
        memory: EvictionMemory::default(),
        context,
    });
    if setup.is_enabled(&ENTRY) {
        let own = controller.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.node_changed(change));
        let own = controller.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.pod_changed(change));
    }
    Box::new(PodWorker(controller))
}

/// The taint eviction controller.
pub struct TaintEviction {
    context: Arc<Context>,
    pods: Arc<Store<Pod>>,
    on_nodes: Arc<PodsOnNodes>,
    nodes: Arc<Store<Node>>,
    memory: EvictionMemory,
}

impl TaintEviction {
    fn wake(&self, pod: &Pod) {
        self.context.queue_of_controller(&ENTRY).add(pod.meta.key.clone());
    }

    /// A node has changed: wakes its pods if its taints have.
    fn node_changed(&self, change: &Change<Node>) {
        let concerns = match change {
            Change::Added(_) | Change::Deleted(_) => true,
            Change::Updated { old, new } => planner::concerns(old, new),
        };
        if !concerns {
            return;
        }
        let node = change.object();
        let had = self.memory.has_taints(&node.meta.key.name);
        match change {
            Change::Added(node) | Change::Updated { new: node, .. } => {
                self.memory.node_changed(node, self.context.now());
            }
            Change::Deleted(node) => self.memory.node_deleted(&node.meta.key.name),
        }
        let has = self.memory.has_taints(&node.meta.key.name);
        if had || has {
            self.wake_pods_on(&node.meta.key.name);
        }
    }

    fn wake_pods_on(&self, node: &Arc<str>) {
        self.on_nodes.on(node, &self.pods).iter().for_each(|pod| self.wake(pod));
    }

    fn pod_changed(&self, change: &Change<Pod>) {
        let concerns = match change {
            Change::Added(_) => true,
            Change::Updated { old, new } => old.node() != new.node() || !old.tolerates_as(new),
            Change::Deleted(pod) => {
                self.memory.forget(&pod.meta.uid);
                false
            }
        };
        let pod = change.object();
        let Some(node) = pod.node().filter(|node| concerns && self.memory.has_taints(node)) else { return };
        if let Change::Updated { old, .. } = change
            && old.node() != Some(node)
        {
            self.memory.bound(&pod.meta.uid, self.context.now());
        }
        self.wake(pod);
    }

    async fn sync(&self, key: &ObjectKey) -> Result<Next, SyncError> {
        let context = &self.context;
        if context.barrier.cache_state(ENTRY.watches, &context.caches) != CacheState::Current {
            let parked = &context.control_of(&ENTRY).parked_keys;
            return Ok(context.wait_for_caches(key, ENTRY.watches, parked));
        }
        let Some(pod) = self.pods.get(key) else { return Ok(Next::Settled) };
        if !context.settings().scope.selects(&pod.meta) {
            return Ok(Next::Settled);
        }
        let Some(name) = pod.node() else { return Ok(Next::Settled) };
        match self.decide(&pod, &self.memory.taints(name)) {
            Plan::Keep { cancels } => {
                if cancels {
                    self.memory.cancel(&pod.meta.uid);
                    context.record_event(ENTRY.component, &*pod, planner::cancellation(&pod));
                }
                Ok(Next::Settled)
            }
            Plan::Wait { due } => Ok(self.wait(&pod, due)),
            Plan::Evict { .. } => {
                // A node that is gone is the pod garbage collector's.
                let Some(live) = self.live_taints(&pod, name).await? else { return Ok(Next::Settled) };
                match self.decide(&pod, &live) {
                    Plan::Keep { .. } => Ok(Next::After(OUTDATED)),
                    Plan::Wait { due } => Ok(self.wait(&pod, due)),
                    Plan::Evict { due } => self.evict(&pod, due).await.map(|()| Next::Settled),
                }
            }
        }
    }

    fn decide(&self, pod: &Pod, taints: &[Active]) -> Plan {
        let (bound, is_planned) = self.memory.of(&pod.meta.uid);
        planner::plan(Observed { pod, taints, bound, is_planned, now: self.context.now() })
    }

    fn wait(&self, pod: &Pod, due: jiff::Timestamp) -> Next {
        self.memory.plan(&pod.meta.uid);
        let wait = due.duration_since(self.context.now());
        Next::After(Duration::try_from(wait).unwrap_or(Duration::ZERO))
    }
}

struct PodWorker(Arc<TaintEviction>);

impl Worker for PodWorker {
    fn entry(&self) -> &'static ControllerEntry {
        &ENTRY
    }

    fn run(&self, workers: usize) -> BoxFuture<'static, ()> {
        let controller = self.0.clone();
        let queue = controller.context.queue_of_controller(&ENTRY).clone();
        Box::pin(run_workers(queue, workers, move |key: ObjectKey| {
            let controller = controller.clone();
            async move { controller.sync(&key).await }
        }))
    }

    fn shut_down(&self) {
        self.0.context.queue_of_controller(&ENTRY).shut_down();
    }

    fn longest_running(&self) -> Duration {
        self.0.context.queue_of_controller(&ENTRY).longest_running()
    }

    fn resync(&self) {
        self.0.nodes.for_each(|node| {
            if self.0.memory.has_taints(&node.meta.key.name) {
                self.0.wake_pods_on(&node.meta.key.name);
            }
        });
    }

    fn awaited_kinds(&self) -> &'static [Resource] {
        ENTRY.watches
    }

    fn drop_deleted_keys(&self) {
        let controller = &self.0;
        controller.context.queue_of_controller(&ENTRY).retain(|key| controller.pods.get(key).is_some());
    }
}
