//! The rolling update of a ReplicationController, at the request of its annotations.
//!
//! The keys are those of ReplicationControllers: of the old one while its update is under way, and of the new one for its
//! last step. Each sync makes at most one write.

mod execute;
mod participants;
mod sizes;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::time::Instant;

use super::replicationcontroller;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::event_handlers::coalescing_delay;
use crate::engine::setup::{HandlerOrder, Setup};
use crate::model::{DaemonSet, ObjectKey, Pod, Record, ReplicaSet, ReplicationController};
use crate::plan::rolling_update::job::{self, Adopter, Plan, Write};
use crate::runtime::store::{Change, Store};
use participants::Participants;
use sizes::Sizes;

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "rollingupdate-controller",
    aliases: &[],
    kind: ReplicationController::RESOURCE,
    objects: "ReplicationControllers in a rolling update",
    flag: "concurrent-rollingupdate-syncs",
    workers: 5,
    queue: "rollingupdate",
    component: "rollingupdate-controller",
    watches: &[
        ReplicationController::RESOURCE,
        Pod::RESOURCE,
        // Others that may adopt the pods of a hand-over.
        ReplicaSet::RESOURCE,
        DaemonSet::RESOURCE,
    ],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: false,
    requests: Requests::AS_CONFIGURED,
    install: |setup: &mut Setup| -> Box<dyn Worker> {
        let context = setup.context().clone();
        let controller = RollingUpdates {
            controllers: context.store(),
            pods: context.store(),
            replica_sets: context.store(),
            daemon_sets: context.store(),
            participants: Participants::default(),
            sizes: Arc::default(),
            controls_pods: setup.is_enabled(&replicationcontroller::ENTRY),
            context,
        };
        Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
    },
};

/// The rolling updates.
pub struct RollingUpdates {
    context: Arc<Context>,
    controllers: Arc<Store<ReplicationController>>,
    pods: Arc<Store<Pod>>,
    replica_sets: Arc<Store<ReplicaSet>>,
    daemon_sets: Arc<Store<DaemonSet>>,
    participants: Participants,
    sizes: Arc<Sizes>,
    /// Whether the controller of ReplicationControllers runs in this process.
    controls_pods: bool,
}

/// The state that a plan is made for.
pub struct Observed<'a> {
    own: &'a ReplicationController,
    /// The controllers of the namespace.
    all: Vec<Arc<ReplicationController>>,
    /// The pods that take part.
    pods: Vec<Arc<Pod>>,
    replica_sets: Vec<Arc<ReplicaSet>>,
    daemon_sets: Vec<Arc<DaemonSet>>,
    now: Timestamp,
}

impl Controller for RollingUpdates {
    type Object = ReplicationController;
    /// The condition is a write of the plan: the rest of the status has another writer in this process.
    type Status = ();
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = ();

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        if !setup.is_enabled(&ENTRY) {
            return;
        }
        self.context.memory().includes(self.sizes.clone());
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |change| controller.controller_changed(change));
        let controller = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| controller.pod_changed(change));
        let controller = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change: &Change<ReplicaSet>| {
            controller.rival_changed(change);
        });
        let controller = self.clone();
        setup.on_change(HandlerOrder::Indirect, move |change: &Change<DaemonSet>| {
            controller.rival_changed(change);
        });
    }

    fn in_scope(&self, own: &ReplicationController) -> bool {
        self.context.settings().scope.selects(own.meta()) && job::concerns(&own.0)
    }

    fn observe<'a>(&self, own: &'a ReplicationController, _: bool) -> Observed<'a> {
        let namespace = &own.meta().key.namespace;
        let all = self.controllers.in_namespace(namespace);
        let mut pods = self.pods.owned_by(&own.as_owner());
        for partner in job::partners(&own.0) {
            if let Some(partner) = all.iter().find(|one| *one.meta().key.name == *partner) {
                pods.extend(self.pods.owned_by(&partner.as_owner()));
            }
        }
        Observed {
            own,
            all,
            pods,
            replica_sets: self.replica_sets.in_namespace(namespace),
            daemon_sets: self.daemon_sets.in_namespace(namespace),
            now: self.context.now(),
        }
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
        let Observed { own, all, pods, replica_sets, daemon_sets, now } = observed;
        let sets = replica_sets.iter().map(|set| Adopter::of(&**set, &set.selector));
        let sets = sets.chain(daemon_sets.iter().map(|set| Adopter::of(&**set, &set.selector)));
        let (own, adopters) = (&own.0, &sets.collect::<Vec<_>>()[..]);
        let controls_pods = self.controls_pods;
        job::plan(&job::Observed { own, all, adopters, pods, controls_pods, now: *now })
    }

    fn writes(&self, plan: &Plan) -> bool {
        plan.write.is_some()
    }

    fn execute<'a>(
        &'a self,
        own: &'a ReplicationController,
        observed: &'a Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<()>> {
        Box::pin(async move {
            if self.postponed(own, plan).is_some() {
                return Executed::new((), None);
            }
            Executed::new((), self.carry_out(own, observed, plan).await.err())
        })
    }

    fn settle(&self, _: &Observed<'_>, plan: &Plan, _: &Executed<()>) -> Settled<()> {
        Settled { requeue_after: plan.look_again, ..Settled::default() }
    }

    fn status<'a>(&self, _: &'a ReplicationController) -> &'a () {
        &()
    }

    fn requeue_after(&self, own: &ReplicationController, _: &Observed<'_>, plan: &Plan) -> Option<Duration> {
        self.postponed(own, plan)
    }
}

impl RollingUpdates {
    /// How long a report waits of which only the message is new: each is an event for every watch.
    fn postponed(&self, own: &ReplicationController, plan: &Plan) -> Option<Duration> {
        let report = plan.report.as_ref().filter(|_| plan.write == Some(Write::Report))?;
        let is_minor = report.is_but_for_the_message_on(&own.0);
        let wait = || self.context.status_throttle.wait(&own.meta().uid, Instant::now());
        is_minor.then(wait).flatten()
    }

    fn wake(&self, key: ObjectKey) {
        self.context.queue_of_controller(&ENTRY).add(key);
    }

    /// A ReplicationController has changed: wakes the updates that it takes part in. Its own key is woken anyway.
    fn controller_changed(&self, change: &Change<ReplicationController>) {
        let (before, after) = change.states();
        let key = &change.object().meta().key;
        let beside = |one: Option<&ReplicationController>| -> Vec<ObjectKey> {
            let partners = one.into_iter().flat_map(|one| job::partners(&one.0));
            partners.map(|name| ObjectKey::new(key.namespace.clone(), name)).collect()
        };
        let (before, after) = (beside(before), beside(after));
        let is_under_way = |one: &ReplicationController| job::concerns(&one.0);
        let stays = !matches!(change, Change::Deleted(_)) && is_under_way(change.object());
        self.participants.set(key, if stays { &after } else { &[] });
        let selects_others = match change {
            Change::Added(_) => false,
            Change::Updated { old, new } => old.0.selector != new.0.selector,
            Change::Deleted(_) => true,
        };
        if selects_others {
            self.participants.of_namespace(&key.namespace).into_iter().for_each(|key| self.wake(key));
        }
        before
            .into_iter()
            .chain(after)
            .chain(self.participants.updates_of(key))
            .for_each(|key| self.wake(key));
    }

    /// Wakes the updates of a deleted controller's namespace: it could have adopted the pods of an update, and was in
    /// its way.
    fn rival_changed<T: Record>(&self, change: &Change<T>) {
        if let Change::Deleted(rival) = change {
            let updates = self.participants.of_namespace(&rival.meta().key.namespace);
            updates.into_iter().for_each(|key| self.wake(key));
        }
    }

    /// A pod has changed: wakes the updates of the controllers that own or owned it.
    fn pod_changed(&self, change: &Change<Pod>) {
        if self.participants.is_empty() {
            return;
        }
        let former = match change {
            Change::Updated { old, new } if old.meta.controller != new.meta.controller => Some(old),
            _ => None,
        };
        for pod in former.into_iter().chain([change.object()]) {
            let Some(owner) = self.controllers.controller_of(&pod.meta) else { continue };
            let updates = self.participants.updates_of(&owner.meta().key);
            if updates.is_empty() {
                continue;
            }
            let wait = coalescing_delay(self.pods.count_owned_by(&owner.as_owner()));
            let queue = self.context.queue_of_controller(&ENTRY);
            updates.into_iter().for_each(|key| queue.add_after(key, wait));
        }
    }
}
