//! The publisher of the CA's certificate: a ConfigMap in each namespace.

use std::sync::Arc;

use futures::future::BoxFuture;
use tokio::time::Instant;

use super::context::Context;
use super::controller::{Controller, Executed, Settled};
use super::driver::{Driver, Worker};
use super::error::SyncError;
use super::registry::{ControllerEntry, Requests};
use super::setup::{HandlerOrder, Setup};
use crate::model::{ConfigMap, Namespace, ObjectKey, Record};
use crate::plan::root_ca_cert::{self as planner, Plan};
use crate::runtime::store::{Change, Store};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "root-ca-certificate-publisher-controller",
    aliases: &["root-ca-cert-publisher"],
    kind: Namespace::RESOURCE,
    objects: "Namespaces, for the certificate of the CA,",
    flag: "concurrent-root-ca-cert-syncs",
    workers: 1,
    queue: "root_ca_cert_publisher",
    component: "root-ca-certificate-publisher-controller",
    watches: &[Namespace::RESOURCE, ConfigMap::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install: |setup: &mut Setup| -> Box<dyn Worker> {
        let context = setup.context().clone();
        let controller = RootCaPublisher { maps: context.store(), context };
        Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
    },
};

/// The publisher of the CA's certificate.
pub struct RootCaPublisher {
    context: Arc<Context>,
    maps: Arc<Store<ConfigMap>>,
}

impl Controller for RootCaPublisher {
    type Object = Namespace;
    type Status = ();
    type Observed<'a> = (&'a Namespace, Option<Arc<ConfigMap>>);
    type Plan = Plan;
    type Outcome = ();

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        let context = self.context.clone();
        setup.on_change(HandlerOrder::Owner, move |change: &Change<ConfigMap>| {
            let namespace = ObjectKey::new("", change.object().meta.key.namespace.clone());
            context.queue_of_controller(&ENTRY).add(namespace);
        });
    }

    fn in_scope(&self, namespace: &Namespace) -> bool {
        self.context.settings().scope.includes_namespace(&namespace.meta.key.name)
    }

    fn observe<'a>(&self, namespace: &'a Namespace, _: bool) -> Self::Observed<'a> {
        let key = ObjectKey::new(namespace.meta.key.name.clone(), planner::NAME);
        (namespace, self.maps.get(&key))
    }

    fn plan(&self, (namespace, map): &Self::Observed<'_>) -> Plan {
        planner::plan(namespace, map.as_deref(), &self.context.settings().root_ca)
    }

    fn writes(&self, plan: &Plan) -> bool {
        *plan != Plan::Nothing
    }

    fn execute<'a>(
        &'a self,
        namespace: &'a Namespace,
        _: &'a Self::Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<()>> {
        Box::pin(async move {
            let begin = Instant::now();
            let error = self.carry_out(namespace, plan).await.err();
            let code = error.as_ref().map_or(200, SyncError::code).to_string();
            let metrics = self.context.metrics();
            metrics.root_ca_syncs.with_label_values(&[&*code]).inc();
            metrics.root_ca_sync_duration.with_label_values(&[&*code]).observe(begin.elapsed().as_secs_f64());
            Executed::new((), error)
        })
    }

    fn settle(&self, _: &Self::Observed<'_>, _: &Plan, _: &Executed<()>) -> Settled<()> {
        Settled::default()
    }

    fn status<'a>(&self, _: &'a Namespace) -> &'a () {
        &()
    }
}

impl RootCaPublisher {
    async fn carry_out(&self, namespace: &Namespace, plan: &Plan) -> Result<(), SyncError> {
        match plan {
            Plan::Nothing => Ok(()),
            Plan::Create(map) => self.context.create_in::<ConfigMap>(&ENTRY, namespace, map).await,
            Plan::Repair(patch) => {
                let key = ObjectKey::new(namespace.meta.key.name.clone(), planner::NAME);
                self.context.merge_as::<ConfigMap>(&ENTRY, namespace, &key, patch).await
            }
        }
    }
}
