//! The publisher of the CA's certificate: a ConfigMap in each namespace.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::time::Instant;

use crate::engine::context::Context;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::error::SyncError;
use crate::engine::one_write::{OneWrite, install};
use crate::engine::setup::{HandlerOrder, Setup};
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
        install(controller, &ENTRY, setup)
    },
};

/// The publisher of the CA's certificate.
pub struct RootCaPublisher {
    context: Arc<Context>,
    maps: Arc<Store<ConfigMap>>,
}

impl OneWrite for RootCaPublisher {
    type Object = Namespace;
    type Write = Plan;

    fn watch(&self, setup: &mut Setup) {
        let context = self.context.clone();
        setup.on_change(HandlerOrder::Owner, move |change: &Change<ConfigMap>| {
            let namespace = ObjectKey::new("", change.object().meta.key.namespace.clone());
            context.queue_of_controller(&ENTRY).add(namespace);
        });
    }

    fn in_scope(&self, namespace: &Namespace) -> bool {
        self.context.settings().scope.includes_namespace(&namespace.meta.key.name)
    }

    fn decide(&self, namespace: &Namespace) -> Option<Plan> {
        let map = self.maps.get(&ObjectKey::new(namespace.meta.key.name.clone(), planner::NAME));
        let plan = planner::plan(namespace, map.as_deref(), &self.context.settings().root_ca);
        (plan != Plan::Nothing).then_some(plan)
    }

    fn write<'a>(&'a self, namespace: &'a Namespace, plan: &'a Plan) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(async move {
            let begin = Instant::now();
            let key = ObjectKey::new(namespace.meta.key.name.clone(), planner::NAME);
            let written = match plan {
                Plan::Nothing => Ok(()),
                Plan::Create(map) => self.context.create_in::<ConfigMap>(&ENTRY, namespace, map).await,
                Plan::Repair(patch) => {
                    self.context.merge_as::<ConfigMap>(&ENTRY, namespace, &key, patch).await
                }
            };
            self.count(begin.elapsed(), written.as_ref().err());
            written
        })
    }

    /// Upstream counts every sync.
    fn wrote_nothing(&self) {
        self.count(Duration::ZERO, None);
    }
}

impl RootCaPublisher {
    fn count(&self, elapsed: Duration, error: Option<&SyncError>) {
        let code = error.map_or(200, SyncError::code).to_string();
        let metrics = self.context.metrics();
        metrics.root_ca_syncs.with_label_values(&[&*code]).inc();
        metrics.root_ca_sync_duration.with_label_values(&[&*code]).observe(elapsed.as_secs_f64());
    }
}
