//! The ReplicaSet controller.

use std::sync::Arc;

use super::replicas::{self, ReplicaController, ReplicaKind};
use crate::engine::context::Context;
use crate::engine::entry::{ControllerEntry, Requests};
use crate::engine::setup::{HandlerOrder, Setup};
use crate::model::{Deployment, Pod, Record, ReplicaSet};
use crate::runtime::store::Change;

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "replicaset-controller",
    aliases: &[],
    kind: ReplicaSet::RESOURCE,
    objects: "ReplicaSets",
    flag: "concurrent-replicaset-syncs",
    workers: 5,
    queue: "replicaset",
    component: "replicaset-controller",
    watches: &[ReplicaSet::RESOURCE, Deployment::RESOURCE, Pod::RESOURCE],
    stale_skips: Some(|metrics| &metrics.replicaset_stale_skips),
    is_on_by_default: true,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install: replicas::install::<ReplicaSet>,
};

impl ReplicaKind for ReplicaSet {
    const ENTRY: &'static ControllerEntry = &ENTRY;

    fn as_replica_set(&self) -> &ReplicaSet {
        self
    }

    /// A ReplicaSet is in scope with its Deployment, whatever its own labels are: a Deployment without its ReplicaSets
    /// would create new ones without end.
    fn in_scope(&self, context: &Context) -> bool {
        let scope = &context.settings().scope;
        match &self.meta.controller {
            _ if scope.selector.is_none() => true,
            Some(owner) if owner.is_of(&Deployment::RESOURCE) => {
                let deployment = context.store::<Deployment>().controller_of(&self.meta);
                deployment.is_some_and(|deployment| scope.selects(&deployment.meta))
            }
            _ => scope.selects(&self.meta),
        }
    }

    fn watch(controller: &Arc<ReplicaController<Self>>, setup: &mut Setup) {
        let controller = controller.clone();
        setup.on_change(HandlerOrder::Indirect, move |change| controller.scope_may_have_changed(change));
    }
}

impl ReplicaController<ReplicaSet> {
    /// A Deployment that has come into scope, or was added to the cache, wakes its ReplicaSets.
    fn scope_may_have_changed(&self, change: &Change<Deployment>) {
        let moved = match change {
            Change::Added(_) => true,
            Change::Updated { old, new } => old.meta.labels != new.meta.labels,
            Change::Deleted(_) => false,
        };
        if moved && self.context.settings().scope.selector.is_some() {
            let queue = self.context.queue_of::<ReplicaSet>();
            let replica_sets = self.owners.owned_by(&change.object().as_owner());
            replica_sets.iter().for_each(|replica_set| queue.add(replica_set.meta.key.clone()));
        }
    }
}
