//! The DaemonSet controller: one pod on each node that should run one.

mod execute;
pub mod memory;
pub mod node_pods;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::patch;
use super::policy_notes::PolicyNotes;
use super::replicas::quota_queue::QuotaQueue;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled, Status};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::error::SyncError;
use crate::engine::event_handlers::{coalescing_delay, may_be_adopted_anew};
use crate::engine::explanations::Explanation;
use crate::engine::past_caches::{Children, OwnedBy};
use crate::engine::setup::{HandlerOrder, Setup};
use crate::metrics::set_gauge;
use crate::model::{
    Condition, ControllerRevision, DaemonSet, DaemonSetStatus, Node, ObjectKey, Pod, Record, Resource, Uid,
};
use crate::plan::Urgency;
use crate::plan::daemonset::course::is_not_ready;
use crate::plan::daemonset::{
    self as planner, IsTaken, Members, Observed, Plan, revisions::claim_revision, status,
};
use crate::plan::policy::{NOT_READY_NODES, Policy};
use crate::runtime::store::{Change, Store};
use memory::{DaemonSetMemory, Remembered};
use node_pods::NodePods;

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "daemonset-controller",
    aliases: &[],
    kind: DaemonSet::RESOURCE,
    objects: "DaemonSets",
    flag: "concurrent-daemonset-syncs",
    workers: 2,
    queue: "daemonset",
    component: "daemonset-controller",
    watches: &[DaemonSet::RESOURCE, ControllerRevision::RESOURCE, Node::RESOURCE, Pod::RESOURCE],
    stale_skips: Some(|metrics| &metrics.daemonset_stale_skips),
    is_on_by_default: true,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let (quota_queue, _) = setup.shared();
    let controller = DaemonSetController {
        daemon_sets: context.store(),
        nodes: context.store(),
        revisions: context.store(),
        pods: context.store(),
        memory: Arc::default(),
        node_pods: NodePods::default(),
        quota_queue,
        policy_notes: Arc::default(),
        context,
    };
    Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
}

/// The DaemonSet controller.
pub struct DaemonSetController {
    context: Arc<Context>,
    daemon_sets: Arc<Store<DaemonSet>>,
    nodes: Arc<Store<Node>>,
    revisions: Arc<Store<ControllerRevision>>,
    pods: Arc<Store<Pod>>,
    /// The state of each DaemonSet that is kept between syncs.
    memory: Arc<DaemonSetMemory>,
    /// Which DaemonSets have pods for each node.
    node_pods: NodePods,
    /// Owners whose pods a quota refused, of all kinds together: they share the quotas of a namespace.
    quota_queue: Arc<QuotaQueue>,
    /// The events about policies that were recorded.
    policy_notes: Arc<PolicyNotes>,
}

impl Status for DaemonSetStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut [Condition] {
        &mut self.conditions
    }
}

impl Controller for DaemonSetController {
    type Object = DaemonSet;
    type Status = DaemonSetStatus;
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = status::Outcome;

    /// A node has no owner, and one that the cache does not show, or shows with other taints, may have got its pod
    /// from the leader before.
    const AWAITED_KINDS: Option<&'static [Resource]> = Some(&[Node::RESOURCE]);

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.memory.clone());
        self.context.memory().includes(self.policy_notes.clone());
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |change| controller.node_changed(change));
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |change| controller.revision_changed(change));
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |change| controller.pod_changed(change));
        let (memory, metrics) = (Arc::downgrade(&self.memory), self.context.metrics());
        let (backing_off, clock) =
            (metrics.workloads.daemonset_nodes_backing_off.clone(), self.context.clock.clone());
        metrics.before_render(move || {
            let Some(memory) = memory.upgrade() else { return false };
            set_gauge(&backing_off, memory.backing_off(clock.now()));
            true
        });
    }

    fn in_scope(&self, daemon_set: &DaemonSet) -> bool {
        self.context.settings().scope.selects(&daemon_set.meta)
    }

    fn on_deleted(&self, key: &ObjectKey) {
        self.quota_queue.needs_no_room(&self.context, DaemonSet::RESOURCE, key);
    }

    fn resolve<'a>(&'a self, daemon_set: &'a DaemonSet) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(async move {
            let owner = &daemon_set.meta.uid;
            Context::all_readable(daemon_set, &self.revisions)?;
            // These names are remembered by node: see `Marks::doubt`.
            drop(self.context.in_doubt_writes.late(owner, Instant::now()));
            let found = |pod: &Pod| {
                if let Some(node) = pod.target() {
                    self.memory.has_arrived(owner, node);
                    self.pod_created(daemon_set, node, &pod.meta.key.name, pod.meta.resource_version);
                }
            };
            self.context.resolve_named(daemon_set, found).await
        })
    }

    fn wants_to_adopt(&self, daemon_set: &DaemonSet) -> bool {
        let namespace = &daemon_set.meta.key.namespace;
        let orphans = self.pods.orphans_selected_by(namespace, &daemon_set.selector);
        let members = Members::of(daemon_set, Vec::new(), orphans);
        planner::wants_to_adopt(daemon_set, &members, &self.orphan_revisions(daemon_set))
    }

    fn observe<'a>(&self, daemon_set: &'a DaemonSet, may_adopt: bool) -> Observed<'a> {
        let namespace = daemon_set.meta.key.namespace.clone();
        let owned = self.pods.owned_by(&daemon_set.as_owner());
        let orphans = self.pods.orphans_selected_by(&namespace, &daemon_set.selector);
        let members = Members::of(daemon_set, owned, orphans);
        let now = self.context.now();
        let Remembered { verdicts, unreadable, marks, backoff, recent, refused, judged } =
            self.memory.of(daemon_set, &members, &self.nodes, now);
        self.context.metrics().workloads.daemonset_verdicts.inc_by(judged);
        let pods = self.pods.clone();
        let policy = if self.context.settings().rollout_policy {
            planner::policy_of(daemon_set, now)
        } else {
            Policy::off()
        };
        let not_ready = if policy.ignores_not_ready_nodes { self.not_ready() } else { BTreeSet::new() };
        Observed {
            daemon_set,
            verdicts,
            unreadable,
            unreadable_pods: self.pods.unreadable_of(&daemon_set.as_owner()).len(),
            members,
            revisions: self.revisions.owned_by(&daemon_set.as_owner()),
            orphan_revisions: self.orphan_revisions(daemon_set),
            may_adopt,
            maybe_deleted: self
                .context
                .in_doubt_writes
                .maybe_deleted_pods(&daemon_set.meta.uid, Instant::now()),
            backoff,
            marks,
            recent,
            refused,
            policy,
            not_ready,
            is_taken: IsTaken::new(move |name| pods.get(&ObjectKey::new(namespace.clone(), name)).is_some()),
            now,
        }
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
        planner::plan(observed)
    }

    fn creates(&self, plan: &Plan) -> bool {
        plan.repeats
    }

    fn writes(&self, plan: &Plan) -> bool {
        !plan.writes.is_empty()
    }

    fn children(&self, daemon_set: &DaemonSet) -> Vec<Children> {
        let selector = &daemon_set.selector;
        if selector.defect().is_some() || selector.selects_everything() {
            return Vec::new();
        }
        let owned = |resource| Children { resource, selector: selector.clone(), owned_by: OwnedBy::Owner };
        vec![owned(&ControllerRevision::RESOURCE), owned(&Pod::RESOURCE)]
    }

    fn is_unsettled(&self, daemon_set: &DaemonSet) -> bool {
        planner::is_unsettled(daemon_set)
    }

    fn execute<'a>(
        &'a self,
        daemon_set: &'a DaemonSet,
        _: &'a Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<status::Outcome>> {
        Box::pin(async move {
            let executed = self.carry_out(daemon_set, plan).await;
            let key = &daemon_set.meta.key;
            self.quota_queue.tried(&self.context, DaemonSet::RESOURCE, key, plan.creates(), executed.error());
            executed
        })
    }

    fn settle(
        &self,
        observed: &Observed<'_>,
        plan: &Plan,
        executed: &Executed<status::Outcome>,
    ) -> Settled<DaemonSetStatus> {
        let status = status::settled(observed.daemon_set, plan, *executed.outcome());
        Settled { status, annotations: Default::default(), requeue_after: plan.requeue_after }
    }

    fn status<'a>(&self, daemon_set: &'a DaemonSet) -> &'a DaemonSetStatus {
        &daemon_set.status
    }

    fn requeue_after(&self, daemon_set: &DaemonSet, _: &Observed<'_>, _: &Plan) -> Option<Duration> {
        self.context.in_doubt_writes.maybe_deleted_for(&daemon_set.meta.uid, Instant::now())
    }

    fn explain(
        &self,
        observed: &Observed<'_>,
        plan: Plan,
        _: &Settled<DaemonSetStatus>,
    ) -> Option<Explanation> {
        Some(Explanation::new(observed.now, plan.reasons, &plan.writes))
    }

    fn status_patch(
        &self,
        daemon_set: &DaemonSet,
        settled: &Settled<DaemonSetStatus>,
        _: bool,
    ) -> Option<Value> {
        patch::daemon_set_status(&daemon_set.meta, &daemon_set.status, &settled.status)
    }

    fn urgency(
        &self,
        observed: &Observed<'_>,
        _: &Plan,
        _: &Executed<status::Outcome>,
        settled: &Settled<DaemonSetStatus>,
    ) -> Urgency {
        status::urgency(&observed.daemon_set.status, &settled.status)
    }
}

impl DaemonSetController {
    /// A node has changed: wakes the DaemonSets whose verdict on it has changed. A heartbeat changes no verdict.
    fn node_changed(&self, change: &Change<Node>) {
        if let Change::Updated { old, new } = change
            && old.places_pods_as(new)
        {
            return;
        }
        // Daemon pods tolerate these taints, so that no verdict need change with them.
        if let Change::Updated { old, new } = change
            && is_not_ready(old) != is_not_ready(new)
            && self.context.settings().rollout_policy
        {
            let ignores = |daemon_set: &DaemonSet| daemon_set.policies.get(NOT_READY_NODES).is_some();
            for daemon_set in self.daemon_sets.select_all(ignores) {
                self.context.queue_of::<DaemonSet>().add(daemon_set.meta.key.clone());
            }
        }
        let has_pods = |owner: &Uid| self.node_pods.has(&change.object().meta.key.name, owner);
        let (judged, concerned) = self.memory.node_changed(change, has_pods);
        self.context.metrics().workloads.daemonset_verdicts.inc_by(judged);
        let queue = self.context.queue_of::<DaemonSet>();
        concerned.into_iter().for_each(|key| queue.add(key));
    }

    /// A revision has changed: wakes the DaemonSet that controls or controlled it. A revision without a controller,
    /// or with other labels, wakes every DaemonSet that selects it.
    fn revision_changed(&self, change: &Change<ControllerRevision>) {
        let revision = change.object();
        if let Change::Updated { old, new } = change
            && old.meta.controller != new.meta.controller
        {
            self.context.wake_owner_of(&self.daemon_sets, &**old);
        }
        match &revision.meta.controller {
            // Upstream looks at it when anything else of the DaemonSet changes (`addHistory`), and the conformance test of
            // the lifecycle of a ControllerRevision counts on it: a duplicate of the current revision stays until then.
            Some(_) if matches!(change, Change::Added(_)) => {}
            Some(_) => self.context.wake_owner_of(&self.daemon_sets, &**revision),
            None if revision.meta.is_deleting() || !may_be_adopted_anew(change) => {}
            None => self.wake_selecting_owners(&**revision),
        }
    }

    /// A pod has changed: the same as for a revision. The changes of the pods of one DaemonSet are gathered.
    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        self.node_pods.changed(change);
        let is_new = match change {
            Change::Added(_) => true,
            Change::Updated { old, new } => old.meta.controller != new.meta.controller,
            Change::Deleted(_) => false,
        };
        if let Change::Updated { old, .. } = change
            && is_new
        {
            self.context.wake_owner_of(&self.daemon_sets, &**old);
        }
        match &pod.meta.controller {
            Some(_) => {
                if let Some(owner) = self.daemon_sets.controller_of(&pod.meta) {
                    if is_new && let Some(node) = pod.target() {
                        self.memory.pod_created(&owner.meta.uid, node, &pod.meta.key.name);
                    }
                    let pods = self.pods.count_owned_by(&owner.as_owner());
                    let queue = self.context.queue_of::<DaemonSet>();
                    queue.add_after(owner.meta.key.clone(), coalescing_delay(pods));
                }
            }
            None if pod.meta.is_deleting() || !may_be_adopted_anew(change) => {}
            None => self.wake_selecting_owners(&**pod),
        }
    }

    fn wake_selecting_owners(&self, object: &impl Record) {
        for daemon_set in self.daemon_sets.in_namespace(&object.meta().key.namespace) {
            if daemon_set.selector.matches(&object.meta().labels) {
                self.context.queue_of::<DaemonSet>().add(daemon_set.meta.key.clone());
            }
        }
    }

    /// The nodes that are not ready.
    fn not_ready(&self) -> BTreeSet<Arc<str>> {
        let nodes = self.nodes.select_all(is_not_ready);
        nodes.iter().map(|node| node.meta.key.name.clone()).collect()
    }

    /// The revisions that the DaemonSet might adopt. The namespace may hold those of many others.
    fn orphan_revisions(&self, daemon_set: &DaemonSet) -> Vec<Arc<ControllerRevision>> {
        let namespace = &daemon_set.meta.key.namespace;
        let mut orphans = self.revisions.orphans_selected_by(namespace, &daemon_set.selector);
        orphans.retain(|revision| claim_revision(daemon_set, revision) == crate::plan::claim::Claim::Adopt);
        orphans
    }
}
