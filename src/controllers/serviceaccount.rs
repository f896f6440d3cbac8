//! The ServiceAccount controller: the account `default` in each namespace.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::context::Context;
use super::controller::{Controller, Executed, Settled};
use super::driver::{Driver, Worker};
use super::registry::{ControllerEntry, Requests};
use super::setup::{HandlerOrder, Setup};
use crate::model::{Namespace, ObjectKey, Record, ServiceAccount};
use crate::plan::serviceaccount as planner;
use crate::runtime::store::{Change, Store};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "serviceaccount-controller",
    aliases: &[],
    kind: Namespace::RESOURCE,
    objects: "Namespaces, for their ServiceAccounts,",
    flag: "concurrent-serviceaccount-syncs",
    workers: 1,
    queue: "serviceaccount",
    component: "serviceaccount-controller",
    watches: &[Namespace::RESOURCE, ServiceAccount::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install: |setup: &mut Setup| -> Box<dyn Worker> {
        let context = setup.context().clone();
        let controller = ServiceAccountController { accounts: context.store(), context };
        Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
    },
};

/// The ServiceAccount controller.
pub struct ServiceAccountController {
    context: Arc<Context>,
    accounts: Arc<Store<ServiceAccount>>,
}

impl Controller for ServiceAccountController {
    type Object = Namespace;
    type Status = ();
    type Observed<'a> = (&'a Namespace, Option<Arc<ServiceAccount>>);
    type Plan = bool;
    type Outcome = ();

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        let context = self.context.clone();
        setup.on_change(HandlerOrder::Owner, move |change: &Change<ServiceAccount>| {
            if let Change::Deleted(account) = change {
                let namespace = ObjectKey::new("", account.meta.key.namespace.clone());
                context.queue_of_controller(&ENTRY).add(namespace);
            }
        });
    }

    fn in_scope(&self, namespace: &Namespace) -> bool {
        self.context.settings().scope.includes_namespace(&namespace.meta.key.name)
    }

    fn observe<'a>(&self, namespace: &'a Namespace, _: bool) -> Self::Observed<'a> {
        let key = ObjectKey::new(namespace.meta.key.name.clone(), planner::NAME);
        (namespace, self.accounts.get(&key))
    }

    fn plan(&self, (namespace, account): &Self::Observed<'_>) -> bool {
        planner::is_missing(namespace, account.as_deref())
    }

    fn writes(&self, is_missing: &bool) -> bool {
        *is_missing
    }

    fn execute<'a>(
        &'a self,
        namespace: &'a Namespace,
        _: &'a Self::Observed<'_>,
        is_missing: &'a bool,
    ) -> BoxFuture<'a, Executed<()>> {
        Box::pin(async move {
            if !is_missing {
                return Executed::new((), None);
            }
            let account = planner::new_account(namespace);
            let created = self.context.create_in::<ServiceAccount>(&ENTRY, namespace, &account).await;
            Executed::new((), created.err())
        })
    }

    fn settle(&self, _: &Self::Observed<'_>, _: &bool, _: &Executed<()>) -> Settled<()> {
        Settled::default()
    }

    fn status<'a>(&self, _: &'a Namespace) -> &'a () {
        &()
    }
}
