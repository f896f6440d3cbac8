//! The disruption controller: how many pods of each PodDisruptionBudget the API server may evict.
//!
//! A change of a pod wakes every budget that selects it or did, and a change of the replicas of a workload those of its pods. The
//! scales of other owners are read from the API server in each sync, once each, and every half minute. Upstream's queue `disruption_recheck` is part of the
//! one queue here.

mod memory;
mod scale;
mod stale_targets;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::patch;
use crate::engine::SyncError;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled, Status};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::event_handlers::coalescing_delay;
use crate::engine::setup::{HandlerOrder, Setup};
use crate::model::{
    Condition, ControllerRef, Deployment, DisruptionStatus, Meta, ObjectKey, Owner, Pod, PodDisruptionBudget,
    Record, ReplicaSet, ReplicationController, Scale, StatefulSet,
};
use crate::plan::Urgency;
use crate::plan::disruption::{self as planner, Found, Observed, Plan, Source};
use crate::runtime::lazy_read_barrier::CacheState;
use crate::runtime::store::{Change, Store};
use crate::runtime::worker::SyncFailure as _;
use memory::DisruptionMemory;
use scale::Scales;
use stale_targets::{DisruptionWorker, StaleTargets};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "disruption-controller",
    aliases: &[],
    kind: PodDisruptionBudget::RESOURCE,
    objects: "PodDisruptionBudgets",
    flag: "concurrent-disruption-syncs",
    workers: 1,
    queue: "disruption",
    component: "controllermanager",
    watches: &[
        PodDisruptionBudget::RESOURCE,
        Deployment::RESOURCE,
        ReplicaSet::RESOURCE,
        ReplicationController::RESOURCE,
        StatefulSet::RESOURCE,
        Pod::RESOURCE,
    ],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let stale_targets = Arc::new(StaleTargets::new(&context));
    let controller = DisruptionController {
        budgets: context.store(),
        pods: context.store(),
        deployments: context.store(),
        replica_sets: context.store(),
        replication_controllers: context.store(),
        stateful_sets: context.store(),
        scales: Scales::default(),
        stale_targets: stale_targets.clone(),
        memory: Arc::default(),
        started: Instant::now(),
        context,
    };
    let driver = Box::new(Driver::new(Arc::new(controller), &ENTRY, setup));
    Box::new(DisruptionWorker { driver, stale_targets })
}

/// The disruption controller.
pub struct DisruptionController {
    context: Arc<Context>,
    budgets: Arc<Store<PodDisruptionBudget>>,
    pods: Arc<Store<Pod>>,
    deployments: Arc<Store<Deployment>>,
    replica_sets: Arc<Store<ReplicaSet>>,
    replication_controllers: Arc<Store<ReplicationController>>,
    stateful_sets: Arc<Store<StatefulSet>>,
    /// Where owners of other kinds have their scales.
    scales: Scales,
    /// Pods that may have been spared a disruption.
    stale_targets: Arc<StaleTargets>,
    /// The memory of each budget between syncs.
    memory: Arc<DisruptionMemory>,
    started: Instant,
}

impl Status for DisruptionStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut [Condition] {
        &mut self.conditions
    }
}

impl Controller for DisruptionController {
    type Object = PodDisruptionBudget;
    type Status = DisruptionStatus;
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = ();

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.memory.clone());
        if !setup.is_enabled(&ENTRY) {
            return;
        }
        let own = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| own.pod_changed(change));
        let own = self.clone();
        setup.on_change::<Deployment>(HandlerOrder::Indirect, move |change| {
            let scale_of = |deployment: &Deployment| deployment.replicas;
            own.workload_changed(change, scale_of, |deployment| {
                let sets = own.replica_sets.owned_by(&deployment.as_owner());
                sets.iter().flat_map(|set| own.pods.owned_by(&set.as_owner())).collect()
            });
        });
        let own = self.clone();
        setup.on_change::<ReplicaSet>(HandlerOrder::Indirect, move |change| {
            own.workload_changed(change, |set| set.replicas, |set| own.pods.owned_by(&set.as_owner()));
        });
        let own = self.clone();
        setup.on_change::<ReplicationController>(HandlerOrder::Indirect, move |change| {
            own.workload_changed(change, |set| set.0.replicas, |set| own.pods.owned_by(&set.as_owner()));
        });
        let own = self.clone();
        setup.on_change::<StatefulSet>(HandlerOrder::Indirect, move |change| {
            own.workload_changed(change, |set| set.replicas, |set| own.pods.owned_by(&set.as_owner()));
        });
    }

    fn in_scope(&self, budget: &PodDisruptionBudget) -> bool {
        self.context.settings().scope.selects(&budget.meta)
    }

    /// Reads the scales of owners of other kinds. While the caches are not complete, nothing is decided. An owner about which the API
    /// server does not answer does not hold up the plan, and is no reason to ask about the others as long.
    fn resolve<'a>(&'a self, budget: &'a PodDisruptionBudget) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(async move {
            let context = &self.context;
            if context.barrier.cache_state(ENTRY.watches, &context.caches) != CacheState::Current {
                return Ok(());
            }
            let pods = self.pods_of(budget);
            let api = context.api_for(budget);
            let (mut found, mut unanswered) = (BTreeMap::new(), None);
            for (owner, reference) in planner::live_owners(budget, &pods) {
                let scale = match &unanswered {
                    None => self.scales.read(&api, &budget.meta.key.namespace, reference).await,
                    Some(error) => Ok(Found::Unanswered(SyncError::to_string(error))),
                };
                let scale = match scale {
                    Ok(scale) => scale,
                    // Nothing was learned, and the status stays until then.
                    Err(error) if error.retry_after().is_some() => return Err(error),
                    Err(error) => {
                        let how = error.to_string();
                        unanswered = Some(error);
                        Found::Unanswered(how)
                    }
                };
                let is_failed = matches!(scale, Found::Failed(_));
                found.insert(owner, scale);
                if is_failed {
                    break;
                }
            }
            self.memory.keep_live(&budget.meta.uid, found, unanswered);
            Ok(())
        })
    }

    fn observe<'a>(&'a self, budget: &'a PodDisruptionBudget, _: bool) -> Observed<'a> {
        // The version first: the pods may be newer, and must not be older.
        let pods_version = self.pods.position();
        let pods = self.pods_of(budget);
        Observed {
            budget,
            owners: self.owners_of(&budget.meta, &pods),
            pods,
            pods_version,
            memory: self.memory.of(&budget.meta.uid),
            now: self.context.now(),
            elapsed: self.started.elapsed(),
        }
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
        planner::plan(observed)
    }

    fn execute<'a>(
        &'a self,
        budget: &'a PodDisruptionBudget,
        _: &'a Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<()>> {
        let context = &self.context;
        for event in &plan.events {
            context.record_event(ENTRY.component, budget, event.clone());
        }
        for pod in &plan.overdue {
            context.record_event(ENTRY.component, &**pod, planner::not_deleted(budget));
        }
        let unanswered = self.memory.keep(&budget.meta.uid, plan.memory.clone());
        let failure = || {
            plan.failure.as_ref().map(|why| SyncError::Unread {
                what: format!("counting the pods of PodDisruptionBudget {}", budget.meta.key),
                reason: why.clone(),
            })
        };
        let error = unanswered.or_else(failure);
        Box::pin(std::future::ready(Executed::new((), error)))
    }

    fn settle(&self, _: &Observed<'_>, plan: &Plan, _: &Executed<()>) -> Settled<DisruptionStatus> {
        Settled { status: plan.status.clone(), annotations: BTreeMap::new(), requeue_after: plan.look_again }
    }

    fn status<'a>(&self, budget: &'a PodDisruptionBudget) -> &'a DisruptionStatus {
        &budget.status
    }

    fn status_patch(
        &self,
        budget: &PodDisruptionBudget,
        settled: &Settled<DisruptionStatus>,
        _: bool,
    ) -> Option<Value> {
        patch::disruption_status(&budget.meta, &budget.status, &settled.status)
    }

    fn urgency(
        &self,
        observed: &Observed<'_>,
        _: &Plan,
        _: &Executed<()>,
        settled: &Settled<DisruptionStatus>,
    ) -> Urgency {
        planner::urgency(&observed.budget.status, &settled.status)
    }
}

impl DisruptionController {
    /// The pods that a budget selects, in the order of their names.
    fn pods_of(&self, budget: &PodDisruptionBudget) -> Vec<Arc<Pod>> {
        self.pods.select(&budget.meta.key.namespace, |pod| budget.selects(&pod.meta))
    }

    /// The controllers of these pods, as far as they are known.
    fn owners_of(&self, budget: &Meta, pods: &[Arc<Pod>]) -> BTreeMap<Owner, Found> {
        let mut owners = self.memory.live_of(&budget.uid);
        for pod in pods {
            let (Some(owner), Some(reference)) = (pod.meta.owner(), &pod.meta.controller) else { continue };
            if !owners.contains_key(&owner)
                && let Some(found) = self.cached(&budget.key.namespace, reference)
            {
                owners.insert(owner, found);
            }
        }
        owners
    }

    /// A controller of pods as the caches show it; `None` for one of another kind.
    fn cached(&self, namespace: &Arc<str>, reference: &ControllerRef) -> Option<Found> {
        let key = ObjectKey::new(namespace.clone(), reference.name.clone());
        let is_it = |meta: &Meta| meta.uid == reference.uid;
        let scaled = |meta: &Meta, replicas| Found::Scaled(Scale { uid: meta.uid.clone(), replicas });
        let found = match planner::source(reference) {
            Source::Live => return None,
            Source::ReplicationController => {
                let found = self.replication_controllers.get(&key).filter(|found| is_it(&found.0.meta));
                found.map(|found| scaled(&found.0.meta, found.0.replicas))
            }
            Source::StatefulSet => {
                let found = self.stateful_sets.get(&key).filter(|found| is_it(&found.meta));
                found.map(|found| scaled(&found.meta, found.replicas))
            }
            Source::ReplicaSet => {
                let found = self.replica_sets.get(&key).filter(|found| is_it(&found.meta));
                found.map(|found| {
                    let above = self.deployments.controller_of(&found.meta);
                    Found::ReplicaSet(found, above)
                })
            }
        };
        Some(found.unwrap_or(Found::Absent))
    }

    /// The budgets that select an object with this metadata.
    fn budgets_of(&self, object: &Meta) -> BTreeSet<ObjectKey> {
        let budgets = self.budgets.select(&object.key.namespace, |budget| budget.selects(object));
        budgets.iter().map(|budget| budget.meta.key.clone()).collect()
    }

    fn wake_all(&self, keys: impl IntoIterator<Item = ObjectKey>) {
        let queue = self.context.queue_of_controller(&ENTRY);
        for key in keys {
            let pods = self.budgets.get(&key).map_or(0, |budget| self.memory.pods_of(&budget.meta.uid));
            queue.add_after(key, coalescing_delay(pods));
        }
    }

    /// A pod has changed: wakes the budgets that select it or did.
    fn pod_changed(&self, change: &Change<Pod>) {
        let (old, new) = change.states();
        if let Some(pod) = new {
            self.stale_targets.pod_changed(pod);
        }
        if planner::wakes::is_concerned(old, new) {
            let keys: BTreeSet<ObjectKey> =
                [old, new].into_iter().flatten().flat_map(|pod| self.budgets_of(&pod.meta)).collect();
            self.wake_all(keys);
        }
    }

    /// A workload has changed: wakes the budgets of its pods.
    fn workload_changed<T: Record>(
        &self,
        change: &Change<T>,
        replicas: impl Fn(&T) -> i32,
        pods: impl Fn(&T) -> Vec<Arc<Pod>>,
    ) {
        let (old, new) = change.states();
        let scale = |object: &T| (replicas(object), object.meta().controller.clone());
        if !planner::wakes::changes_scale(old.map(scale), new.map(scale)) {
            return;
        }
        // Pods of one template share their labels.
        let mut judged = BTreeSet::new();
        let mut keys = BTreeSet::new();
        for pod in pods(change.object()) {
            if judged.insert(Arc::as_ptr(&pod.meta.labels)) {
                keys.extend(self.budgets_of(&pod.meta));
            }
        }
        self.wake_all(keys);
    }
}

#[cfg(test)]
mod tests;
