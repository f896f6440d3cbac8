//! The aggregation of ClusterRoles: a role gets the rules of the roles that it selects.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::context::Context;
use super::controller::{Controller, Executed, Settled};
use super::driver::{Driver, Worker};
use super::registry::{ControllerEntry, Requests};
use super::setup::{HandlerOrder, Setup};
use crate::model::{ClusterRole, Record};
use crate::plan::clusterrole_aggregation as planner;
use crate::runtime::store::{Change, Store};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "clusterrole-aggregation-controller",
    aliases: &[],
    kind: ClusterRole::RESOURCE,
    objects: "ClusterRoles",
    flag: "concurrent-clusterrole-aggregation-syncs",
    workers: 5,
    queue: "ClusterRoleAggregator",
    component: "clusterrole-aggregation-controller",
    watches: &[ClusterRole::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install: |setup: &mut Setup| -> Box<dyn Worker> {
        let context = setup.context().clone();
        let controller = RoleAggregation { roles: context.store(), context };
        Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
    },
};

/// The aggregation of roles.
pub struct RoleAggregation {
    context: Arc<Context>,
    roles: Arc<Store<ClusterRole>>,
}

impl Controller for RoleAggregation {
    type Object = ClusterRole;
    type Status = ();
    type Observed<'a> = (&'a ClusterRole, Vec<Arc<ClusterRole>>);
    type Plan = Option<Vec<Arc<str>>>;
    type Outcome = ();

    /// There are few roles: a change of any of them concerns all that aggregate others.
    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        let controller = self.clone();
        setup.on_change(HandlerOrder::Owner, move |_: &Change<ClusterRole>| {
            let queue = controller.context.queue_of_controller(&ENTRY);
            controller.roles.for_each(|role| {
                if role.selectors.is_some() {
                    queue.add(role.meta.key.clone());
                }
            });
        });
    }

    fn in_scope(&self, role: &ClusterRole) -> bool {
        role.selectors.is_some() && self.context.settings().scope.includes_the_cluster()
    }

    fn observe<'a>(&self, role: &'a ClusterRole, _: bool) -> Self::Observed<'a> {
        (role, self.roles.all())
    }

    fn plan(&self, (role, roles): &Self::Observed<'_>) -> Self::Plan {
        planner::plan(role, roles)
    }

    fn writes(&self, plan: &Self::Plan) -> bool {
        plan.is_some()
    }

    fn execute<'a>(
        &'a self,
        role: &'a ClusterRole,
        _: &'a Self::Observed<'_>,
        plan: &'a Self::Plan,
    ) -> BoxFuture<'a, Executed<()>> {
        Box::pin(async move {
            let Some(rules) = plan else { return Executed::new((), None) };
            Executed::new((), self.context.apply_rules(&ENTRY, role, rules).await.err())
        })
    }

    fn settle(&self, _: &Self::Observed<'_>, _: &Self::Plan, _: &Executed<()>) -> Settled<()> {
        Settled::default()
    }

    fn status<'a>(&self, _: &'a ClusterRole) -> &'a () {
        &()
    }
}
