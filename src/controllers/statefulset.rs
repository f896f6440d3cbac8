//! The StatefulSet controller: pods with ordinals, and claims that outlive them.

mod execute;
pub mod memory;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::patch;
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
use crate::model::{
    Condition, ControllerRevision, ObjectKey, PersistentVolumeClaim, Pod, Record, Resource, StatefulSet,
    StatefulSetStatus,
};
use crate::plan::Urgency;
use crate::plan::claim::Claim;
use crate::plan::statefulset::revisions::claim_revision;
use crate::plan::statefulset::{self as planner, Members, Observed, Plan, observed, ordinals, status};
use crate::runtime::store::{Change, Store};
use memory::{Remembered, StatefulSetMemory};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "statefulset-controller",
    aliases: &[],
    kind: StatefulSet::RESOURCE,
    objects: "StatefulSets",
    flag: "concurrent-statefulset-syncs",
    workers: 5,
    queue: "statefulset",
    component: "statefulset-controller",
    watches: &[
        StatefulSet::RESOURCE,
        ControllerRevision::RESOURCE,
        PersistentVolumeClaim::RESOURCE,
        Pod::RESOURCE,
    ],
    stale_skips: Some(|metrics| &metrics.statefulset_stale_skips),
    is_on_by_default: true,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let (quota_queue, _) = setup.shared();
    let controller = StatefulSetController {
        sets: context.store(),
        revisions: context.store(),
        claims: context.store(),
        pods: context.store(),
        memory: Arc::default(),
        quota_queue,
        context,
    };
    Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
}

/// The StatefulSet controller.
pub struct StatefulSetController {
    context: Arc<Context>,
    sets: Arc<Store<StatefulSet>>,
    revisions: Arc<Store<ControllerRevision>>,
    claims: Arc<Store<PersistentVolumeClaim>>,
    pods: Arc<Store<Pod>>,
    /// The state of each StatefulSet that is kept between syncs.
    memory: Arc<StatefulSetMemory>,
    /// Owners whose pods a quota refused, of all kinds together: they share the quotas of a namespace.
    quota_queue: Arc<QuotaQueue>,
}

impl Status for StatefulSetStatus {
    fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    fn conditions_mut(&mut self) -> &mut [Condition] {
        &mut self.conditions
    }
}

impl Controller for StatefulSetController {
    type Object = StatefulSet;
    type Status = StatefulSetStatus;
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = status::Outcome;

    /// A claim has no owner, and one that the cache does not show may be on its way out.
    const AWAITED_KINDS: Option<&'static [Resource]> = Some(&[PersistentVolumeClaim::RESOURCE]);

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.memory.clone());
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |change| controller.claim_changed(change));
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |change| controller.revision_changed(change));
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |change| controller.pod_changed(change));
    }

    fn in_scope(&self, set: &StatefulSet) -> bool {
        self.context.settings().scope.selects(&set.meta)
    }

    fn on_deleted(&self, key: &ObjectKey) {
        self.quota_queue.needs_no_room(&self.context, StatefulSet::RESOURCE, key);
    }

    fn resolve<'a>(&'a self, set: &'a StatefulSet) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(async move {
            Context::all_readable(set, &self.revisions)?;
            // The name of a pod is its place: a late creation finds it taken, or is the pod that is wanted.
            drop(self.context.in_doubt_writes.late(&set.meta.uid, Instant::now()));
            let found = |pod: &Pod| self.pod_created(set, &pod.meta.key.name, pod.meta.resource_version);
            self.context.resolve_named(set, found).await
        })
    }

    fn wants_to_adopt(&self, set: &StatefulSet) -> bool {
        let orphans = self.pods.orphans_selected_by(&set.meta.key.namespace, &set.selector);
        let members = Members::of(set, Vec::new(), orphans);
        planner::wants_to_adopt(set, &members, &self.orphan_revisions(set))
    }

    fn observe<'a>(&self, set: &'a StatefulSet, may_adopt: bool) -> Observed<'a> {
        let (namespace, owner) = (&set.meta.key.namespace, set.as_owner());
        let owned = self.pods.owned_by(&owner);
        let orphans = self.pods.orphans_selected_by(namespace, &set.selector);
        let members = Members::of(set, owned, orphans);
        let now = self.context.now();
        let Remembered { backoff, recent, unready } = self.memory.of(set, &members, now);
        let named = |prefix: String| self.claims.named(namespace, &prefix);
        let claims =
            observed::claim_prefixes(set).flat_map(named).map(|claim| (claim.meta.key.name.clone(), claim));
        Observed {
            set,
            claims: claims.collect(),
            foreign: observed::foreign(set, self.pods.named(namespace, &format!("{}-", set.meta.key.name))),
            members,
            unreadable_pods: self.pods.unreadable_of(&owner).len(),
            revisions: self.revisions.owned_by(&owner),
            orphan_revisions: self.orphan_revisions(set),
            may_adopt,
            maybe_deleted: self.context.in_doubt_writes.maybe_deleted_pods(&set.meta.uid, Instant::now()),
            backoff,
            recent,
            unready,
            now,
        }
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
        planner::plan(observed)
    }

    fn creates(&self, plan: &Plan) -> bool {
        plan.repeats || plan.changes_claims()
    }

    fn writes(&self, plan: &Plan) -> bool {
        !plan.writes.is_empty()
    }

    fn children(&self, set: &StatefulSet) -> Vec<Children> {
        let selector = &set.selector;
        if selector.defect().is_some() || selector.selects_everything() {
            return Vec::new();
        }
        let owned = |resource| Children { resource, selector: selector.clone(), owned_by: OwnedBy::Owner };
        vec![owned(&ControllerRevision::RESOURCE), owned(&Pod::RESOURCE)]
    }

    fn is_unsettled(&self, set: &StatefulSet) -> bool {
        planner::is_unsettled(set)
    }

    fn execute<'a>(
        &'a self,
        set: &'a StatefulSet,
        _: &'a Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<status::Outcome>> {
        Box::pin(async move {
            let executed = self.carry_out(set, plan).await;
            let key = &set.meta.key;
            self.quota_queue.tried(
                &self.context,
                StatefulSet::RESOURCE,
                key,
                plan.creates(),
                executed.error(),
            );
            executed
        })
    }

    fn settle(
        &self,
        observed: &Observed<'_>,
        plan: &Plan,
        executed: &Executed<status::Outcome>,
    ) -> Settled<StatefulSetStatus> {
        let status = status::settled(observed.set, plan, *executed.outcome());
        Settled { status, annotations: Default::default(), requeue_after: plan.requeue_after }
    }

    fn status<'a>(&self, set: &'a StatefulSet) -> &'a StatefulSetStatus {
        &set.status
    }

    fn requeue_after(&self, set: &StatefulSet, _: &Observed<'_>, _: &Plan) -> Option<Duration> {
        self.context.in_doubt_writes.maybe_deleted_for(&set.meta.uid, Instant::now())
    }

    fn explain(
        &self,
        observed: &Observed<'_>,
        plan: Plan,
        _: &Settled<StatefulSetStatus>,
    ) -> Option<Explanation> {
        Some(Explanation::new(observed.now, plan.reasons, &plan.writes))
    }

    fn status_patch(
        &self,
        set: &StatefulSet,
        settled: &Settled<StatefulSetStatus>,
        _: bool,
    ) -> Option<Value> {
        patch::stateful_set_status(&set.meta, &set.status, &settled.status)
    }

    fn urgency(
        &self,
        observed: &Observed<'_>,
        _: &Plan,
        _: &Executed<status::Outcome>,
        settled: &Settled<StatefulSetStatus>,
    ) -> Urgency {
        status::urgency(observed.set, &settled.status)
    }
}

impl StatefulSetController {
    /// A claim has changed: wakes the StatefulSet whose name and template its name is made of. Upstream wakes none.
    fn claim_changed(&self, change: &Change<PersistentVolumeClaim>) {
        let key = &change.object().meta.key;
        for (template, name) in ordinals::owners_of_claim(&key.name) {
            let set = self.sets.get(&ObjectKey::new(key.namespace.clone(), name));
            if let Some(set) = set.filter(|set| set.claim_templates.names.iter().any(|name| name == template))
            {
                self.context.queue_of::<StatefulSet>().add(set.meta.key.clone());
            }
        }
    }

    /// A revision has changed: wakes the StatefulSet that controls or controlled it, or that waits for its name. One
    /// without a controller wakes every StatefulSet that selects it.
    fn revision_changed(&self, change: &Change<ControllerRevision>) {
        let revision = change.object();
        let queue = self.context.queue_of::<StatefulSet>();
        if let Change::Updated { old, new } = change
            && old.meta.controller != new.meta.controller
        {
            self.context.wake_owner_of(&self.sets, &**old);
        }
        match &revision.meta.controller {
            Some(owner) if *owner.kind == *StatefulSet::RESOURCE.kind => {
                // By name: a revision of a former StatefulSet of the name may hold up this one.
                let key = ObjectKey::new(revision.meta.key.namespace.clone(), owner.name.clone());
                self.sets.get(&key).iter().for_each(|set| queue.add(set.meta.key.clone()));
            }
            Some(_) => {}
            None if revision.meta.is_deleting() || !may_be_adopted_anew(change) => {}
            None => self.wake_selecting_owners(&**revision),
        }
    }

    /// A pod has changed: the same as for a revision. The changes of the pods of one StatefulSet are gathered. One that
    /// has the name of a pod of a StatefulSet wakes it when it goes, or changes hands.
    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        let is_new = match change {
            Change::Added(_) => true,
            Change::Updated { old, new } => old.meta.controller != new.meta.controller,
            Change::Deleted(_) => true,
        };
        if let Change::Updated { old, .. } = change
            && is_new
        {
            self.context.wake_owner_of(&self.sets, &**old);
        }
        let queue = self.context.queue_of::<StatefulSet>();
        if let Some(owner) = self.sets.controller_of(&pod.meta) {
            let pods = self.pods.count_owned_by(&owner.as_owner());
            queue.add_after(owner.meta.key.clone(), coalescing_delay(pods));
        }
        // The one StatefulSet that may adopt it, or that waits for its name.
        if !is_new && !may_be_adopted_anew(change) {
            return;
        }
        let named = ordinals::split(&pod.meta.key.name)
            .and_then(|(parent, _)| self.sets.get(&ObjectKey::new(pod.meta.key.namespace.clone(), parent)));
        if let Some(set) = named.filter(|set| !set.controls(&pod.meta)) {
            queue.add(set.meta.key.clone());
        }
    }

    fn wake_selecting_owners(&self, object: &impl Record) {
        for set in self.sets.in_namespace(&object.meta().key.namespace) {
            if set.selector.matches(&object.meta().labels) {
                self.context.queue_of::<StatefulSet>().add(set.meta.key.clone());
            }
        }
    }

    /// The revisions that the StatefulSet might adopt. The namespace may hold those of many others.
    fn orphan_revisions(&self, set: &StatefulSet) -> Vec<Arc<ControllerRevision>> {
        let mut orphans = self.revisions.orphans_selected_by(&set.meta.key.namespace, &set.selector);
        orphans.retain(|revision| claim_revision(set, revision) == Claim::Adopt);
        orphans
    }
}
