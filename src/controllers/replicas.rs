//! The controller of the kinds that keep a number of pods. One core serves them all; a kind supplies its names.

mod execute;
pub mod pod_names;
pub mod quota_queue;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::patch;
use super::policy_notes::PolicyNotes;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled, Status};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Worker};
use crate::engine::error::SyncError;
use crate::engine::event_handlers::{coalescing_delay, may_be_adopted_anew};
use crate::engine::past_caches::{Children, OwnedBy};
use crate::engine::setup::{HandlerOrder, Setup};
use crate::model::{Condition, ObjectKey, Phase, Pod, Record, ReplicaSet, ReplicaSetStatus, Resource};
use crate::plan::Urgency;
use crate::plan::policy::Policy;
use crate::plan::replicaset::status::Failure;
use crate::plan::replicaset::{self as planner, Observed, Plan, PodSets, Write, deletion_order, status};
use crate::runtime::store::{Change, Store};
use pod_names::{NamedPods, PodNames};
use quota_queue::QuotaQueue;

/// A kind whose objects each keep a number of pods.
pub trait ReplicaKind: Record {
    /// Its controller's entry in the registry.
    const ENTRY: &'static ControllerEntry;

    /// The object as the planner knows it.
    fn as_replica_set(&self) -> &ReplicaSet;

    /// The part of a status that the kind can report.
    fn reportable(status: ReplicaSetStatus) -> ReplicaSetStatus {
        status
    }

    /// Whether the object is in scope.
    fn in_scope(&self, context: &Context) -> bool {
        context.settings().scope.selects(self.meta())
    }

    /// Registers the handlers of the kind besides those of its pods.
    fn watch(_controller: &Arc<ReplicaController<Self>>, _setup: &mut Setup) {}
}

/// The controller of one such kind.
pub struct ReplicaController<O: ReplicaKind> {
    pub(super) context: Arc<Context>,
    pub(super) owners: Arc<Store<O>>,
    pods: Arc<Store<Pod>>,
    /// The names that pods have had.
    pod_names: Arc<PodNames>,
    /// Owners whose pods a quota refused, of all these kinds together: they share the quotas of a namespace.
    quota_queue: Arc<QuotaQueue>,
    /// The events about policies that were recorded.
    policy_notes: Arc<PolicyNotes>,
}

/// Builds the controller of a kind and wires it.
pub fn install<O: ReplicaKind>(setup: &mut Setup) -> Box<dyn Worker> {
    Box::new(driver::<O>(setup))
}

pub(super) fn driver<O: ReplicaKind>(setup: &mut Setup) -> Arc<Driver<ReplicaController<O>>> {
    let context = setup.context().clone();
    let (quota_queue, _) = setup.shared();
    let controller = ReplicaController {
        owners: context.store::<O>(),
        pods: context.store(),
        pod_names: Arc::default(),
        quota_queue,
        policy_notes: Arc::default(),
        context,
    };
    Driver::new(Arc::new(controller), O::ENTRY, setup)
}

/// Registers the handler of pods that all these kinds share.
#[derive(Default)]
struct PodsOfAll;

impl Status for ReplicaSetStatus {
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

impl<O: ReplicaKind> Controller for ReplicaController<O> {
    type Object = O;
    type Status = ReplicaSetStatus;
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = Option<Failure>;

    /// A ReplicaSet's Deployment scales it.
    const AWAITED_KINDS: Option<&'static [Resource]> = Some(&[]);

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.pod_names.clone());
        self.context.memory().includes(self.policy_notes.clone());
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |change| controller.pod_changed(change));
        if let (_, true) = setup.shared::<PodsOfAll>() {
            let controller = self.clone();
            setup.on_change(HandlerOrder::Shared, move |change| controller.any_pod_changed(change));
        }
        O::watch(self, setup);
    }

    fn in_scope(&self, owner: &O) -> bool {
        owner.in_scope(&self.context)
    }

    fn on_deleted(&self, key: &ObjectKey) {
        self.quota_queue.needs_no_room(&self.context, O::RESOURCE, key);
    }

    fn resolve<'a>(&'a self, owner: &'a O) -> BoxFuture<'a, Result<(), SyncError>> {
        let found = |pod: &Pod| self.pod_created(owner, &pod.meta.key.name, pod.meta.resource_version);
        Box::pin(self.context.resolve_named(owner, found))
    }

    fn wants_to_adopt(&self, owner: &O) -> bool {
        let replica_set = owner.as_replica_set();
        let orphans = self.pods.orphans_selected_by(&replica_set.meta.key.namespace, &replica_set.selector);
        !PodSets::of(replica_set, Vec::new(), orphans).orphans.is_empty()
    }

    fn observe<'a>(&self, owner: &'a O, may_adopt: bool) -> Observed<'a> {
        self.observed(owner.as_replica_set(), may_adopt)
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
        planner::plan(observed)
    }

    fn creates(&self, plan: &Plan) -> bool {
        plan.creates()
    }

    fn writes(&self, plan: &Plan) -> bool {
        !plan.writes.is_empty()
    }

    fn children(&self, owner: &O) -> Vec<Children> {
        let selector = owner.as_replica_set().selector.clone();
        let is_asked = selector.defect().is_none() && !selector.selects_everything();
        let pods = Children { resource: &Pod::RESOURCE, selector, owned_by: OwnedBy::Owner };
        is_asked.then_some(pods).into_iter().collect()
    }

    fn is_unsettled(&self, owner: &O) -> bool {
        planner::is_unsettled(owner.as_replica_set())
    }

    fn may_run_on_incomplete_caches(&self, plan: &Plan) -> bool {
        plan.compares_no_siblings()
    }

    fn execute<'a>(
        &'a self,
        owner: &'a O,
        observed: &'a Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<Option<Failure>>> {
        for write in &plan.writes {
            if let Write::Delete(victims) = write {
                let histogram = &self.context.metrics().workloads.deletion_age_ratio;
                let ratios = deletion_order::age_ratios(&observed.pod_sets.active, victims, observed.now);
                ratios.for_each(|ratio| histogram.observe(ratio));
            }
        }
        Box::pin(async move {
            let executed = self.carry_out(owner, plan).await;
            let key = &owner.meta().key;
            self.quota_queue.tried(&self.context, O::RESOURCE, key, plan.creates(), executed.error());
            executed
        })
    }

    fn settle(
        &self,
        observed: &Observed<'_>,
        _: &Plan,
        executed: &Executed<Option<Failure>>,
    ) -> Settled<ReplicaSetStatus> {
        let status::Settled { status, requeue_after } =
            status::report(observed, executed.outcome().as_ref(), executed.error().is_some());
        Settled { status: O::reportable(status), annotations: Default::default(), requeue_after }
    }

    fn status<'a>(&self, owner: &'a O) -> &'a ReplicaSetStatus {
        &owner.as_replica_set().status
    }

    fn status_patch(
        &self,
        owner: &O,
        settled: &Settled<ReplicaSetStatus>,
        keeps_terminating: bool,
    ) -> Option<Value> {
        patch::set_status(owner.meta(), &owner.as_replica_set().status, &settled.status, keeps_terminating)
    }

    fn urgency(
        &self,
        observed: &Observed<'_>,
        plan: &Plan,
        executed: &Executed<Option<Failure>>,
        settled: &Settled<ReplicaSetStatus>,
    ) -> Urgency {
        status::urgency(observed.replica_set, plan, executed.error().is_some(), &settled.status)
    }

    fn requeue_after(&self, owner: &O, observed: &Observed<'_>, plan: &Plan) -> Option<Duration> {
        let reserved = (observed.reserved > 0).then(|| self.names().reserved_for(owner));
        plan.requeue_after.into_iter().chain(reserved).min()
    }
}

impl<O: ReplicaKind> ReplicaController<O> {
    /// The names that pods have had.
    fn names(&self) -> NamedPods<'_, O> {
        let ReplicaController { context, owners, pods, pod_names, .. } = self;
        NamedPods { context, owners, pods, pod_names }
    }

    /// A pod has changed: wakes the owner that controls or controlled it. A pod without a controller, or with other
    /// labels, wakes every owner that selects it.
    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        self.names().pod_name_seen(change);
        if let Change::Updated { old, new } = change
            && old.meta.controller != new.meta.controller
        {
            self.wake_owner_of(old);
        }
        match &pod.meta.controller {
            Some(_) => self.wake_owner_of(pod),
            None if pod.is_active() && may_be_adopted_anew(change) => self.wake_selecting_owners(pod),
            None => {}
        }
    }

    /// A pod counts against a quota until it has ended.
    fn any_pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        let ended = matches!(change, Change::Deleted(_)) || pod.is_terminal();
        let counted = match change {
            Change::Added(_) => false,
            Change::Updated { old, .. } => !old.is_terminal(),
            Change::Deleted(last) => !last.is_terminal(),
        };
        if ended && counted {
            self.quota_queue.wake_next(&self.context, &pod.meta.key.namespace);
        }
        if let Change::Updated { old, new } = change
            && new.phase == Phase::Failed
            && old.phase != Phase::Failed
        {
            self.context.metrics().workloads.pods_failed.inc();
        }
    }

    /// Wakes the owner of the pod, if it is of this kind.
    fn wake_owner_of(&self, pod: &Pod) {
        if let Some(owner) = self.owners.controller_of(&pod.meta) {
            let pods = self.pods.count_owned_by(&owner.as_owner());
            self.context.queue_of::<O>().add_after(owner.meta().key.clone(), coalescing_delay(pods));
        }
    }

    fn wake_selecting_owners(&self, pod: &Pod) {
        for owner in self.owners.in_namespace(&pod.meta.key.namespace) {
            if owner.as_replica_set().selector.matches(&pod.meta.labels) {
                self.context.queue_of::<O>().add(owner.meta().key.clone());
            }
        }
    }

    fn observed<'a>(&self, replica_set: &'a ReplicaSet, may_adopt: bool) -> Observed<'a> {
        let owned = self.pods.owned_by(&replica_set.as_owner());
        let orphans = self.pods.orphans_selected_by(&replica_set.meta.key.namespace, &replica_set.selector);
        let pod_sets = PodSets::of(replica_set, owned, orphans);
        let unreadable = self.pods.unreadable_of(&replica_set.as_owner());
        unreadable.iter().for_each(|pod| self.names().name_had(replica_set, &pod.name));
        let pod_named =
            |name: &str| self.pods.get(&ObjectKey::new(replica_set.meta.key.namespace.clone(), name));
        let late = self.context.in_doubt_writes.late(&replica_set.meta.uid, Instant::now());
        let names = planner::choose_names(
            replica_set,
            &pod_sets,
            late,
            &self.names().used_names(replica_set),
            pod_named,
        );
        names.foreign.iter().for_each(|name| self.names().name_had(replica_set, name));
        let siblings = if planner::is_too_large(replica_set, &pod_sets) {
            self.siblings(replica_set)
        } else {
            Vec::new()
        };
        Observed {
            replica_set,
            pod_sets,
            may_adopt,
            siblings,
            free_names: names.free,
            reserved: names.reserved + unreadable.len(),
            failed_pod_backoff: self.context.settings.failed_pod_backoff,
            policy: if self.context.settings.rollout_policy {
                planner::kept_failed_pods::policy_of(replica_set)
            } else {
                Policy::off()
            },
            now: self.context.now(),
        }
    }

    /// Active pods of the others with the same owner.
    fn siblings(&self, replica_set: &ReplicaSet) -> Vec<Arc<Pod>> {
        let Some(owner) = replica_set.meta.owner() else { return Vec::new() };
        let owners = self.owners.owned_by(&owner);
        owners
            .iter()
            .map(|sibling| sibling.as_replica_set())
            .filter(|sibling| sibling.meta.uid != replica_set.meta.uid)
            .flat_map(|sibling| self.pods.owned_by(&sibling.as_owner()))
            .filter(|pod| pod.is_active())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use serde_json::json;

    use super::*;
    use crate::controllers::fixture::{answering, rig};
    use crate::model::{Interner, Meta};
    use crate::runtime::store::{Change, Store};

    fn replica_set() -> ReplicaSet {
        replica_set_at(1, 1)
    }

    fn replica_set_at(generation: i64, replicas: i32) -> ReplicaSet {
        let json = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u", "generation": generation,
                         "resourceVersion": (6 + generation).to_string()},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"a": "b"}},
                     "template": {"metadata": {"labels": {"a": "b"}}}},
        });
        ReplicaSet::decode(&json.to_string(), &mut Interner::default()).unwrap()
    }

    /// A cached pod of the ReplicaSet with this UID, or without an owner.
    fn named_pod(name: &str, owner: Option<&str>) -> Pod {
        let reference = owner.map(|uid| {
            json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": uid, "controller": true})
        });
        let json = json!({"metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": "9",
            "creationTimestamp": "2020-01-01T00:00:00Z", "ownerReferences": reference.as_slice()}});
        Pod::decode(&json.to_string(), &mut Interner::default()).unwrap()
    }

    #[tokio::test]
    async fn pods_that_a_process_finds_have_used_their_names_and_those_of_siblings_have_not() {
        use crate::model::Uid;
        use crate::plan::replicaset::names::Sequence;

        for (length, is_shared) in [(56, false), (57, true), (58, true), (70, true)] {
            let rig = rig(200, |_| {});
            let name = "a".repeat(length);
            let sequence = Sequence::of(&name, &Uid::new("u"));
            let pods = rig.context.store::<Pod>();
            pods.begin_list(false);
            for (position, owner) in [(0, Some("u")), (1, None), (5, Some("sibling"))] {
                pods.put(named_pod(&sequence.name(position), owner));
            }
            pods.end_list(9);
            let mut replica_set = replica_set();
            replica_set.meta.key.name = name.as_str().into();
            let names = rig.replica_sets.controller().names().used_names(&replica_set);
            assert!(names.is_used(0) && names.is_used(1), "{length}: {names:?}");
            assert_eq!(names.is_used(5), !is_shared, "{length}: {names:?}");
            assert_eq!(names.unused().next(), Some(if is_shared { 2 } else { 6 }), "{length}: {names:?}");
        }
    }

    #[tokio::test]
    async fn a_pod_that_is_older_than_its_replica_set_has_not_used_a_name_of_it() {
        use crate::model::Uid;
        use crate::plan::replicaset::names::Sequence;

        for (created, is_its) in [("2019-12-31T23:59:59Z", true), ("2020-01-01T00:00:01Z", false)] {
            let rig = rig(200, |_| {});
            let pods = rig.context.store::<Pod>();
            pods.begin_list(false);
            pods.put(named_pod(&Sequence::of("web", &Uid::new("u")).name(4_000_000), Some("u")));
            pods.end_list(9);
            let mut replica_set = replica_set();
            replica_set.meta.created = created.parse().unwrap();
            let names = rig.replica_sets.controller().names().used_names(&replica_set);
            assert_eq!(names.unused().next(), Some(if is_its { 4_000_001 } else { 0 }), "{created}");
        }
    }

    #[tokio::test]
    async fn the_name_of_a_pod_that_is_released_and_deleted_stays_used_and_an_adopted_one_moves_nothing() {
        use crate::model::Uid;
        use crate::plan::replicaset::names::Sequence;

        let mut rig = rig(200, |_| {});
        let sequence = Sequence::of("web", &Uid::new("u"));
        let replica_sets = rig.context.store::<ReplicaSet>();
        replica_sets.begin_list(false);
        replica_sets.put(replica_set());
        replica_sets.end_list(9);
        let changed = |position, old, new| Change::Updated {
            old: Arc::new(named_pod(&sequence.name(position), old)),
            new: Arc::new(named_pod(&sequence.name(position), new)),
        };
        rig.dispatch(changed(0, Some("u"), None));
        rig.dispatch(Change::Deleted(Arc::new(named_pod(&sequence.name(0), None))));
        rig.dispatch(changed(5, None, Some("u")));
        let names = rig.replica_sets.controller().names().used_names(&replica_set());
        assert_eq!(names.unused().next(), Some(1), "{names:?}");
    }

    /// How many pods one sync requests for a ReplicaSet of three that the cache shows with another size
    /// when the first request is answered with `code`.
    async fn created_when_resized_meanwhile(code: u16, unresolved: bool, replicas: i32) -> usize {
        let (replica_sets, creations) =
            (Arc::new(Mutex::new(None::<Arc<Store<ReplicaSet>>>)), Arc::new(Mutex::new(0)));
        let (cache, count) = (replica_sets.clone(), creations.clone());
        let rig = rig(code, move |request| {
            if let Some(cache) = &*cache.lock() {
                cache.put(replica_set_at(2, replicas));
            }
            *count.lock() += usize::from(request.method() == http::Method::POST);
        });
        rig.context.store::<ReplicaSet>().put(replica_set_at(1, 3));
        *replica_sets.lock() = Some(rig.context.store::<ReplicaSet>());
        if unresolved {
            rig.context.in_doubt_writes.created(&replica_set().meta.uid, "web-x".into());
        }
        let _ends = rig.replica_sets.sync(&replica_set().meta.key).await;
        *creations.lock()
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_set_that_is_scaled_while_a_lost_write_is_resolved_is_synced_at_its_new_size() {
        assert_eq!(created_when_resized_meanwhile(404, true, 0).await, 0);
        assert_ne!(created_when_resized_meanwhile(404, true, 1).await, 0);
    }

    /// The methods of the requests of a second sync, a moment after three pods were created that the cache does
    /// not show. `lags` makes the cache of pods lag.
    async fn requests_of_a_second_sync(lags: bool) -> Vec<http::Method> {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = requests.clone();
        let rig = rig(201, move |request| log.lock().push(request.method().clone()));
        if lags {
            let pods = rig.context.store::<Pod>();
            pods.begin_list(false);
            pods.end_list(1);
            rig.context.caches.add(Pod::RESOURCE, pods);
        }
        rig.context.store::<ReplicaSet>().put(replica_set_at(1, 3));
        let _first = rig.replica_sets.sync(&replica_set().meta.key).await;
        requests.lock().clear();
        let _second = rig.replica_sets.sync(&replica_set().meta.key).await;
        requests.lock().clone()
    }

    /// How many creations one sync requests, for a ReplicaSet of 500 of which this many are answered with a success and
    /// the others with this code.
    async fn creations_before_giving_up(successes: usize, code: u16) -> usize {
        let creations = Arc::new(Mutex::new(0));
        let count = creations.clone();
        let rig = answering(move |request| {
            let mut count = count.lock();
            *count += usize::from(request.method() == http::Method::POST);
            if *count > successes { code } else { 201 }
        });
        rig.context.store::<ReplicaSet>().put(replica_set_at(1, 500));
        let _fails = rig.replica_sets.sync(&replica_set().meta.key).await;
        *creations.lock()
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_with_a_refused_pod_is_completed_and_no_other_follows() {
        for code in [403, 422, 500] {
            assert_eq!(creations_before_giving_up(3, code).await, 1 + 2 + 4, "{code}");
            assert_eq!(creations_before_giving_up(64, code).await, 127, "{code}");
        }
    }

    /// How many requests of a batch are in flight at once.
    const AT_ONCE: usize = 32;

    #[tokio::test(start_paused = true)]
    async fn nothing_more_of_a_batch_is_sent_where_there_is_no_answer() {
        // Concurrent requests are in flight already, and each success makes room for another.
        assert!(creations_before_giving_up(64, 502).await <= 64 + AT_ONCE);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_deleted_as_fast_as_created_are_created_again_only_after_a_read_of_the_replica_set() {
        assert_eq!(requests_of_a_second_sync(false).await.first(), Some(&http::Method::GET));
    }

    #[tokio::test(start_paused = true)]
    async fn replies_to_writes_are_requested_as_metadata_only() {
        let accepted = Arc::new(Mutex::new(Vec::new()));
        for replicas in [1, 0] {
            let log = accepted.clone();
            let rig = rig(201, move |request| {
                let accept = request.headers()[http::header::ACCEPT].to_str().unwrap();
                log.lock().push((request.method().clone(), accept.contains("as=PartialObjectMetadata;")));
            });
            rig.context.store::<ReplicaSet>().put(replica_set_at(1, replicas));
            let _ends = rig.replica_sets.sync(&replica_set().meta.key).await;
        }
        let (a_pod, a_status) = (http::Method::POST, http::Method::PATCH);
        assert_eq!(*accepted.lock(), [(a_pod, true), (a_status, true)]);
    }

    #[tokio::test(start_paused = true)]
    async fn pods_that_the_cache_has_yet_to_show_cause_no_read() {
        assert_eq!(requests_of_a_second_sync(true).await, Vec::<http::Method>::new());
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_set_that_is_scaled_during_a_batch_gets_no_more_pods_of_the_old_size() {
        assert_eq!(created_when_resized_meanwhile(201, false, 1).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_version_of_a_pod_deleted_at_once_does_not_end_the_wait_for_its_deletion() {
        let rig = rig(200, |_| {});
        let pods = rig.context.store::<Pod>();
        pods.begin_list(false);
        let pod = r#"{"metadata":{"name":"web-x","namespace":"shop","uid":"p","resourceVersion":"50","labels":
            {"a":"b"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"web","uid":"u",
            "controller":true}]}}"#;
        pods.put(Pod::decode(pod, &mut Interner::default()).unwrap());
        pods.end_list(60);
        rig.context.caches.add(Pod::RESOURCE, pods);
        rig.context.store::<ReplicaSet>().put(replica_set_at(1, 0));
        let _ends = rig.replica_sets.sync(&replica_set().meta.key).await;
        assert!(
            rig.context.behind(&replica_set_at(1, 0), rig.context.parked_keys_of::<ReplicaSet>()).is_some()
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_state_of_a_replica_set_deleted_during_its_sync_is_dropped() {
        for code in [201, 500] {
            // The cache shows the deletion of the ReplicaSet while a write for it is under way.
            let replica_sets: Arc<Mutex<Option<Arc<Store<ReplicaSet>>>>> = Arc::default();
            let gone = replica_sets.clone();
            let mut rig = rig(code, move |_| {
                if let Some(replica_sets) = &*gone.lock() {
                    let Meta { key, uid, .. } = replica_set().meta;
                    replica_sets.remove(&key, &uid, 60, None);
                }
            });
            rig.context.store::<ReplicaSet>().put(replica_set());
            *replica_sets.lock() = Some(rig.context.store::<ReplicaSet>());
            rig.dispatch(Change::Deleted(Arc::new(replica_set())));
            let _ends = rig.replica_sets.sync(&replica_set().meta.key).await;
            assert!(rig.context.expectations.is_empty() && rig.context.in_doubt_writes.is_empty(), "{code}");
            assert!(rig.replica_sets.controller().pod_names.is_empty(), "{code}");
        }
    }
}
