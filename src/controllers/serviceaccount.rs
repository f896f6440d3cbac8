//! The ServiceAccount controller: the account `default` in each namespace.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use crate::engine::SyncError;
use crate::engine::context::Context;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::one_write::{OneWrite, install};
use crate::engine::setup::{HandlerOrder, Setup};
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
        install(controller, &ENTRY, setup)
    },
};

/// The ServiceAccount controller.
pub struct ServiceAccountController {
    context: Arc<Context>,
    accounts: Arc<Store<ServiceAccount>>,
}

impl OneWrite for ServiceAccountController {
    type Object = Namespace;
    type Write = Value;

    fn watch(&self, setup: &mut Setup) {
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

    fn decide(&self, namespace: &Namespace) -> Option<Value> {
        let key = ObjectKey::new(namespace.meta.key.name.clone(), planner::NAME);
        let account = self.accounts.get(&key);
        planner::is_missing(namespace, account.as_deref()).then(|| planner::new_account(namespace))
    }

    fn write<'a>(
        &'a self,
        namespace: &'a Namespace,
        account: &'a Value,
    ) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(self.context.create_in::<ServiceAccount>(&ENTRY, namespace, account))
    }
}
