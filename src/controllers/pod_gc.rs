//! The pod garbage collector: deletes pods that no kubelet will end, and ended pods beyond a threshold.
//!
//! It deletes without grace, and so runs only if it is named. It looks at all pods in passes: its queue holds one key.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::engine::SyncError;
use crate::engine::context::Context;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::execute::{AT_ONCE, path};
use crate::engine::setup::{HandlerOrder, Setup};
use crate::metrics::bounded::BoundedLabel;
use crate::model::{Node, ObjectKey, Pod, Record, Resource};
use crate::plan::pod_gc::{self as planner, Cause, Missing, Pass};
use crate::runtime::lazy_read_barrier::CacheState;
use crate::runtime::request::PatchType;
use crate::runtime::store::{Change, Store};
use crate::runtime::worker::{Next, run_workers};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "pod-garbage-collector-controller",
    aliases: &["podgc"],
    kind: Pod::RESOURCE,
    objects: "Passes over all pods",
    flag: "concurrent-pod-gc-syncs",
    workers: 1,
    queue: "orphaned_pods_nodes",
    component: "pod-garbage-collector-controller",
    watches: &[Node::RESOURCE, Pod::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let collector = Arc::new(PodGarbageCollector {
        pods: context.store(),
        nodes: context.store(),
        missing: Mutex::default(),
        namespaces: BoundedLabel::default(),
        started: Instant::now(),
        context,
    });
    if setup.is_enabled(&ENTRY) {
        let own = collector.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.pod_changed(change));
        let own = collector.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.node_changed(change));
    }
    Box::new(PassWorker(collector))
}

/// The pod garbage collector.
pub struct PodGarbageCollector {
    context: Arc<Context>,
    pods: Arc<Store<Pod>>,
    nodes: Arc<Store<Node>>,
    /// Since when nodes are missing.
    missing: Mutex<Missing>,
    /// The namespaces that have metrics.
    namespaces: BoundedLabel,
    started: Instant,
}

/// The key of a pass.
fn whole() -> ObjectKey {
    ObjectKey::new("", "pass")
}

impl PodGarbageCollector {
    fn pass_after(&self, delay: Duration) {
        self.context.queue_of_controller(&ENTRY).add_after(whole(), delay);
    }

    fn pod_changed(&self, change: &Change<Pod>) {
        if let Change::Added(pod) | Change::Updated { new: pod, .. } = change {
            let has_node = |node: &str| self.nodes.get(&ObjectKey::new("", node)).is_some();
            if let Some(delay) = planner::concerned(pod, has_node) {
                self.pass_after(delay);
            }
        }
    }

    fn node_changed(&self, change: &Change<Node>) {
        let concerns = match change {
            Change::Added(node) => {
                self.missing.lock().is_back(&node.meta.key.name);
                false
            }
            Change::Updated { old, new } => planner::concerns(old, new),
            Change::Deleted(_) => true,
        };
        if concerns {
            self.pass_after(Duration::ZERO);
        }
    }

    async fn pass(&self) -> Result<Next, SyncError> {
        let context = &self.context;
        if context.barrier.cache_state(ENTRY.watches, &context.caches) != CacheState::Current {
            let parked = &context.control_of(&ENTRY).parked_keys;
            return Ok(context.wait_for_caches(&whole(), ENTRY.watches, parked));
        }
        let scope = &context.settings().scope;
        let mut pods = self.pods.all();
        pods.retain(|pod| scope.selects(&pod.meta));
        let nodes: BTreeMap<Arc<str>, Arc<Node>> =
            self.nodes.all().into_iter().map(|node| (node.meta.key.name.clone(), node)).collect();
        let threshold = context.settings().terminated_pod_threshold;
        let now = self.started.elapsed();
        let Pass { pods, next } = planner::pass(&pods, &nodes, &mut self.missing.lock(), threshold, now);
        match self.delete_all(pods).await {
            Ok(()) => Ok(Next::After(next)),
            Err(error) => {
                self.pass_after(next);
                Err(error)
            }
        }
    }

    /// Deletes these pods. A refusal holds up no other of them.
    async fn delete_all(&self, pods: Vec<(Arc<Pod>, Cause)>) -> Result<(), SyncError> {
        let (gone, refused) = self.gone_nodes(&pods).await?;
        let gone = &gone;
        let calls = pods.into_iter().map(|(pod, cause)| async move {
            // A node may have come back since it was read.
            let is_gone = |node: &Arc<str>| {
                gone.contains(node) && self.nodes.get(&ObjectKey::new("", node.clone())).is_none()
            };
            match cause == Cause::Orphaned && !pod.node().is_some_and(is_gone) {
                true => Ok(()),
                false => self.delete(&pod, cause).await,
            }
        });
        let results: Vec<Result<(), SyncError>> =
            futures::stream::iter(calls).buffer_unordered(AT_ONCE).collect().await;
        refused.map_or(Ok(()), Err).and(results.into_iter().collect())
    }

    /// Of the nodes of orphaned pods those that the API server does not have either, and the first refusal to read one. After a
    /// request without an answer, all that follows would be decided on what was true before it.
    async fn gone_nodes(
        &self,
        pods: &[(Arc<Pod>, Cause)],
    ) -> Result<(BTreeSet<Arc<str>>, Option<SyncError>), SyncError> {
        let (mut gone, mut refused) = (BTreeSet::new(), None);
        let mut asked = BTreeSet::new();
        for (pod, _) in pods.iter().filter(|(_, cause)| *cause == Cause::Orphaned) {
            let Some(node) = pod.node().filter(|node| asked.insert((*node).clone())) else { continue };
            let target = Node::RESOURCE.path_of(&ObjectKey::new("", node.clone()));
            match self.context.read::<Node>(&**pod, &target).await {
                Ok(_) => {}
                Err(SyncError::Gone { .. }) => drop(gone.insert(node.clone())),
                Err(error) if error.is_refusal() => drop(refused.get_or_insert(error)),
                Err(error) => return Err(error),
            }
        }
        Ok((gone, refused))
    }

    async fn delete(&self, pod: &Pod, cause: Cause) -> Result<(), SyncError> {
        let deleted = self.fail_and_delete(pod, cause).await;
        let namespace = self.namespaces.of(&pod.meta.key.namespace);
        let labels = [&*namespace, cause.label()];
        let metrics = &self.context.metrics;
        match &deleted {
            Ok(()) => metrics.pod_gc_deletions.with_label_values(&labels).inc(),
            Err(_) => metrics.pod_gc_errors.with_label_values(&labels).inc(),
        }
        deleted
    }

    /// Marks a pod as failed unless it has ended, and deletes it without grace. A pod that is gone, or of another UID, needs nothing.
    async fn fail_and_delete(&self, pod: &Pod, cause: Cause) -> Result<(), SyncError> {
        let (context, meta) = (&self.context, &pod.meta);
        if !planner::has_ended(pod) {
            let body = planner::failed(pod, cause, context.now());
            let what = || format!("marking pod {} as failed", meta.key);
            let target = path(Pod::RESOURCE, meta) + "/status";
            match context.patch(pod, what, &target, PatchType::Strategic, &body).await {
                Ok(_) => {}
                Err(SyncError::Gone { .. } | SyncError::Conflict { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": meta.uid}});
        match context.delete_as(&ENTRY, pod, pod, options).await {
            Ok(_) => {
                tracing::info!(pod = %meta.key, cause = cause.label(), "deleted a pod");
                Ok(())
            }
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(SyncError::api(format!("deleting pod {}", meta.key), error)),
        }
    }
}

struct PassWorker(Arc<PodGarbageCollector>);

impl Worker for PassWorker {
    fn entry(&self) -> &'static ControllerEntry {
        &ENTRY
    }

    fn run(&self, _: usize) -> BoxFuture<'static, ()> {
        let collector = self.0.clone();
        let queue = collector.context.queue_of_controller(&ENTRY).clone();
        queue.add(whole());
        Box::pin(run_workers(queue, 1, move |_: ObjectKey| {
            let collector = collector.clone();
            async move { collector.pass().await }
        }))
    }

    fn shut_down(&self) {
        self.0.context.queue_of_controller(&ENTRY).shut_down();
    }

    fn longest_running(&self) -> Duration {
        self.0.context.queue_of_controller(&ENTRY).longest_running()
    }

    fn resync(&self) {
        self.0.pass_after(Duration::ZERO);
    }

    fn awaited_kinds(&self) -> &'static [Resource] {
        ENTRY.watches
    }

    fn drop_deleted_keys(&self) {}
}
