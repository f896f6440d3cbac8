//! The Deployment controller: scales the ReplicaSets of each Deployment.

mod execute;
pub mod lost_creations;
mod policy_metrics;
pub mod rollout_metrics;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::patch;
use super::policy_notes::PolicyNotes;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled, Status};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::error::SyncError;
use crate::engine::event_handlers::may_be_adopted_anew;
use crate::engine::explanations::Explanation;
use crate::engine::past_caches::{Children, OwnedBy};
use crate::engine::setup::{HandlerOrder, Setup};
use crate::model::{
    Condition, Deployment, DeploymentStatus, Pod, Record, ReplicaSet, Resource, Strategy, condition,
};
use crate::plan::deployment::{
    self as planner, Observed, Plan, StatusScope, Write, explain, progress, revision, status,
};
use crate::plan::{REPLICA_FAILURE, Urgency, policy};
use crate::runtime::store::{Change, Store};
use lost_creations::LostCreations;
use policy_metrics::{PolicyMetrics, show_bypasses};
use rollout_metrics::{NewReplicaSet, RolloutMetrics, show_stuck};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "deployment-controller",
    aliases: &[],
    kind: Deployment::RESOURCE,
    objects: "Deployments",
    flag: "concurrent-deployment-syncs",
    workers: 5,
    queue: "deployment",
    component: "deployment-controller",
    watches: &[Deployment::RESOURCE, ReplicaSet::RESOURCE, Pod::RESOURCE],
    stale_skips: Some(|metrics| &metrics.deployment_stale_skips),
    is_on_by_default: true,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let controller = DeploymentController {
        deployments: context.store(),
        replica_sets: context.store(),
        pods: context.store(),
        lost_creations: Arc::default(),
        rollout_metrics: Arc::default(),
        policy_notes: Arc::default(),
        policy_metrics: Arc::default(),
        context,
    };
    Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
}

/// The Deployment controller.
pub struct DeploymentController {
    context: Arc<Context>,
    deployments: Arc<Store<Deployment>>,
    replica_sets: Arc<Store<ReplicaSet>>,
    pods: Arc<Store<Pod>>,
    /// ReplicaSets that may have been created although the reply was lost.
    lost_creations: Arc<LostCreations>,
    /// The rollouts that are under way, for the metrics.
    rollout_metrics: Arc<RolloutMetrics>,
    /// The events about policies that were recorded.
    policy_notes: Arc<PolicyNotes>,
    /// Holds and verdicts of policies, for the metrics.
    policy_metrics: Arc<PolicyMetrics>,
}

impl Status for DeploymentStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut [Condition] {
        &mut self.conditions
    }

    fn terminating(&self) -> Option<i32> {
        self.terminating
    }
}

impl Controller for DeploymentController {
    type Object = Deployment;
    type Status = DeploymentStatus;
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = progress::Outcome;

    const AWAITED_KINDS: Option<&'static [Resource]> = Some(&[]);

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.lost_creations.clone());
        self.context.memory().includes(self.rollout_metrics.clone());
        self.context.memory().includes(self.policy_notes.clone());
        self.context.memory().includes(self.policy_metrics.clone());
        let controller = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| controller.replica_set_changed(change));
        let controller = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| controller.pod_changed(change));
        let (deployments, metrics) = (Arc::downgrade(&self.deployments), self.context.metrics());
        let weak = Arc::downgrade(metrics);
        let (context, held) = (Arc::downgrade(&self.context), Arc::downgrade(&self.policy_metrics));
        metrics.before_render(move || {
            let (Some((deployments, metrics)), Some((context, held))) =
                (deployments.upgrade().zip(weak.upgrade()), context.upgrade().zip(held.upgrade()))
            else {
                return false;
            };
            show_stuck(&deployments, &metrics.workloads);
            if context.settings().rollout_policy {
                show_bypasses(&deployments, context.now(), &metrics.workloads);
            }
            held.show(&metrics.workloads);
            true
        });
    }

    fn in_scope(&self, deployment: &Deployment) -> bool {
        self.context.settings().scope.selects(&deployment.meta)
    }

    fn resolve<'a>(&'a self, deployment: &'a Deployment) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(async move {
            Context::all_readable(deployment, &self.replica_sets)?;
            self.context.resolve_children(deployment, &*self.replica_sets).await
        })
    }

    fn wants_to_adopt(&self, deployment: &Deployment) -> bool {
        planner::wants_to_adopt(deployment, &self.replica_sets.orphans(&deployment.meta.key.namespace))
    }

    fn observe<'a>(&self, deployment: &'a Deployment, may_adopt: bool) -> Observed<'a> {
        self.observed(deployment, may_adopt)
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
        planner::plan(observed)
    }

    fn creates(&self, plan: &Plan) -> bool {
        plan.writes.iter().any(|write| matches!(write, Write::Create(_)))
    }

    fn writes(&self, plan: &Plan) -> bool {
        !plan.writes.is_empty()
    }

    /// The ReplicaSets, and their pods. An adopted one may have pods that the Deployment does not select.
    fn children(&self, deployment: &Deployment) -> Vec<Children> {
        let selector = &deployment.selector;
        if selector.defect().is_some() || selector.selects_everything() {
            return Vec::new();
        }
        let replica_sets = self.replica_sets.owned_by(&deployment.as_owner());
        let unselected = replica_sets
            .iter()
            .filter(|replica_set| !selector.matches(&replica_set.template.labels))
            .map(|replica_set| &replica_set.selector);
        let pods = std::iter::once(selector).chain(unselected).map(|selector| Children {
            resource: &Pod::RESOURCE,
            selector: selector.clone(),
            owned_by: OwnedBy::Children,
        });
        let replica_sets = Children {
            resource: &ReplicaSet::RESOURCE,
            selector: selector.clone(),
            owned_by: OwnedBy::Owner,
        };
        std::iter::once(replica_sets).chain(pods).collect()
    }

    fn is_unsettled(&self, deployment: &Deployment) -> bool {
        planner::is_unsettled(deployment)
    }

    fn execute<'a>(
        &'a self,
        deployment: &'a Deployment,
        observed: &'a Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<progress::Outcome>> {
        self.report_lost_creations(observed);
        Box::pin(self.carry_out(deployment, plan))
    }

    fn settle(
        &self,
        observed: &Observed<'_>,
        plan: &Plan,
        executed: &Executed<progress::Outcome>,
    ) -> Settled<DeploymentStatus> {
        let progress::Settled { status, revision, requeue_after } =
            progress::settle(observed, plan, executed.outcome());
        let shown = observed.deployment.annotations.get(revision::REVISION);
        let revision = revision.filter(|revision| shown != Some(revision));
        let annotations = revision.map(|revision| (revision::REVISION, revision)).into_iter().collect();
        Settled { status, annotations, requeue_after }
    }

    fn status<'a>(&self, deployment: &'a Deployment) -> &'a DeploymentStatus {
        &deployment.status
    }

    fn status_patch(
        &self,
        deployment: &Deployment,
        settled: &Settled<DeploymentStatus>,
        keeps_terminating: bool,
    ) -> Option<Value> {
        let Settled { status, annotations, .. } = settled;
        let annotations: BTreeMap<&str, &str> =
            annotations.iter().map(|(key, value)| (*key, value.as_str())).collect();
        patch::deployment_status(
            &deployment.meta,
            &deployment.status,
            status,
            &annotations,
            keeps_terminating,
        )
    }

    fn urgency(
        &self,
        observed: &Observed<'_>,
        plan: &Plan,
        _: &Executed<progress::Outcome>,
        settled: &Settled<DeploymentStatus>,
    ) -> Urgency {
        status::urgency(observed, plan, &settled.status, !settled.annotations.is_empty())
    }

    fn reported(&self, observed: &Observed<'_>, plan: &Plan, settled: &Settled<DeploymentStatus>) {
        let deployment = observed.deployment;
        if plan.status_scope == StatusScope::Rollout {
            self.lost_creations.condition_written(&deployment.meta.uid);
        }
        let new = || observed.replica_sets().new.as_deref().map(NewReplicaSet::from);
        let metrics = &self.context.metrics().workloads;
        let why = || {
            let progress = explain::progress(deployment, plan, &settled.status);
            let reasons = plan.reasons.iter().chain(&progress).map(ToString::to_string);
            reasons.collect::<Vec<_>>().join("; ")
        };
        self.rollout_metrics.note(deployment, &settled.status, new, why, observed.now, metrics);
        let failure = |status: &DeploymentStatus| {
            condition::find(&status.conditions, REPLICA_FAILURE).filter(|it| it.is_true()).cloned()
        };
        if let (None, Some(failure)) = (failure(&deployment.status), failure(&settled.status)) {
            let (deployment, reason, why) = (&deployment.meta.key, &*failure.reason, &*failure.message);
            tracing::warn!(%deployment, reason, why, "rollout is blocked: the API server refuses pods or ReplicaSets");
        }
        self.policy_metrics.note(deployment, plan, observed.now, metrics);
    }

    fn explain(
        &self,
        observed: &Observed<'_>,
        mut plan: Plan,
        settled: &Settled<DeploymentStatus>,
    ) -> Option<Explanation> {
        plan.reasons.extend(explain::progress(observed.deployment, &plan, &settled.status));
        Some(Explanation::new(observed.now, plan.reasons, &plan.writes))
    }
}

impl DeploymentController {
    /// A ReplicaSet has changed: wakes the Deployment that controls or controlled it. A ReplicaSet without a
    /// controller, or with other labels, wakes every Deployment that selects it.
    fn replica_set_changed(&self, change: &Change<ReplicaSet>) {
        let replica_set = change.object();
        if let Change::Updated { old, new } = change
            && old.meta.controller != new.meta.controller
        {
            self.wake_owner_of(old);
        }
        match &replica_set.meta.controller {
            Some(_) => self.wake_owner_of(replica_set),
            None if replica_set.meta.is_deleting() || !may_be_adopted_anew(change) => {}
            None => {
                for deployment in self.deployments.in_namespace(&replica_set.meta.key.namespace) {
                    if deployment.selector.matches(&replica_set.meta.labels) {
                        self.wake(&deployment);
                    }
                }
            }
        }
    }

    /// A pod has changed: wakes the Deployment of its ReplicaSet, where the change matters to it.
    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        let ended = matches!(change, Change::Deleted(_)) || pod.is_terminal();
        let is_ending = ended || pod.meta.is_deleting();
        // `ImagePullBackOff` changes no count of the ReplicaSet, and would not be explained before the deadline.
        // The price is a sync without a write for each pod that starts or stops to fail.
        let said = match change {
            Change::Added(new) => new.startup_failure().is_some(),
            Change::Updated { old, new } => old.startup_failure() != new.startup_failure(),
            Change::Deleted(_) => false,
        };
        // Recreate waits for its old pods to end: the last one that is deleted, or fails, unblocks it. So do some policies.
        if (is_ending || said)
            && let Some(replica_set) = self.replica_sets.controller_of(&pod.meta)
            && let Some(deployment) = self.deployments.controller_of(&replica_set.meta)
            && (said
                || (ended && deployment.strategy == Strategy::Recreate)
                || policy::waits_for_ends(&deployment.annotations))
        {
            self.wake(&deployment);
        }
    }

    /// An owner that is not in the cache yet is woken once it is added.
    fn wake_owner_of(&self, replica_set: &ReplicaSet) {
        if let Some(deployment) = self.deployments.controller_of(&replica_set.meta) {
            self.wake(&deployment);
        }
    }

    fn wake(&self, deployment: &Deployment) {
        self.context.queue_of::<Deployment>().add(deployment.meta.key.clone());
    }

    /// Emits the events of ReplicaSets whose creation lost its reply and which the cache now shows.
    fn report_lost_creations(&self, observed: &Observed<'_>) {
        let deployment = observed.deployment;
        let exists = |name: &str| observed.owned.iter().any(|owned| &*owned.meta.key.name == name);
        for new in self.lost_creations.seen(&deployment.meta.uid, exists) {
            for note in Write::Create(new).notes() {
                tracing::info!(deployment = %deployment.meta.key, "{}; the reply to the creation was lost", note.message);
                self.context.record_event(ENTRY.component, deployment, note);
            }
        }
    }

    /// The input of the decision.
    fn observed<'a>(&self, deployment: &'a Deployment, may_adopt: bool) -> Observed<'a> {
        let owned = self.replica_sets.owned_by(&deployment.as_owner());
        let orphans = self.replica_sets.orphans(&deployment.meta.key.namespace);
        let pods_of = |replica_set: &ReplicaSet| self.pods.owned_by(&replica_set.as_owner());
        let gather =
            if self.context.settings().rollout_policy { Observed::gather } else { Observed::without_policy };
        gather(deployment, owned, orphans, may_adopt, pods_of, self.context.now())
    }
}
