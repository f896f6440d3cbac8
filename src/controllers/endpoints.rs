//! The controller of Endpoints: the addresses of Services with a selector, as they were before EndpointSlices.
//!
//! It decides anew about a Service at once when the Service changes, after `--endpoint-updates-batch-period` when its pods do, and a
//! second after others have changed its Endpoints. Endpoints without Service that it has written are deleted. There is no owner
//! reference, so that the garbage collector does not do it.

mod execute;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

use super::service_endpoints::{REPAIR, ServicePods, SyncMemory};
use crate::engine::SyncError;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::setup::{HandlerOrder, Setup};
use crate::model::{Endpoints, ObjectKey, Pod, Record, Service};
use crate::plan::endpoints::{self as planner, Observed, Plan};
use crate::plan::endpointslice::TriggerTimes;
use crate::runtime::store::{Change, Store};

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "endpoints-controller",
    aliases: &["endpoint"],
    kind: Service::RESOURCE,
    objects: "Services with their Endpoints",
    flag: "concurrent-endpoint-syncs",
    workers: 5,
    queue: "endpoint",
    component: "endpoint-controller",
    watches: &[Service::RESOURCE, Endpoints::RESOURCE, Pod::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    requests: Requests::AS_CONFIGURED,
    install,
};

/// How long Endpoints that others have created or changed are left alone where no Service has their name.
const BEFORE_SERVICE: Duration = Duration::from_secs(30);

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let controller = EndpointsController {
        services: context.store(),
        endpoints: context.store(),
        pods: ServicePods::new(&ENTRY, context.settings().endpoint_updates_batch_period, setup),
        memory: Arc::default(),
        context,
    };
    Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
}

/// The controller of Endpoints.
pub struct EndpointsController {
    context: Arc<Context>,
    services: Arc<Store<Service>>,
    endpoints: Arc<Store<Endpoints>>,
    pods: Arc<ServicePods>,
    /// When the pods of each Service became ready or unready, as of the last sync.
    memory: Arc<SyncMemory<Option<Arc<TriggerTimes>>>>,
}

impl Controller for EndpointsController {
    type Object = Service;
    type Status = ();
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = ();

    fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.memory.clone());
        self.pods.watch(setup);
        if setup.is_enabled(&ENTRY) {
            let own = self.clone();
            setup.on_change(HandlerOrder::Indirect, move |change| own.endpoints_changed(change));
        }
    }

    fn in_scope(&self, service: &Service) -> bool {
        self.context.settings().scope.selects(&service.meta)
    }

    fn has_left_over(&self, key: &ObjectKey) -> bool {
        self.left_over(key).is_some()
    }

    fn clean_up<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<(), SyncError>> {
        Box::pin(async {
            match self.left_over(key) {
                Some(endpoints) if !self.service_exists(&endpoints).await? => self.delete(&endpoints).await,
                Some(_) | None => Ok(()),
            }
        })
    }

    fn observe<'a>(&'a self, service: &'a Service, _: bool) -> Observed<'a> {
        Observed {
            service,
            pods: self.pods.of(service),
            endpoints: self.endpoints.get(&service.meta.key),
            trigger_times: self.memory.of(&service.meta.uid),
        }
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
        planner::plan(observed)
    }

    fn writes(&self, plan: &Plan) -> bool {
        plan.write.is_some()
    }

    fn execute<'a>(
        &'a self,
        service: &'a Service,
        _: &'a Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<()>> {
        Box::pin(async move { Executed::new((), self.carry_out(service, plan).await.err()) })
    }

    fn settle(&self, _: &Observed<'_>, _: &Plan, _: &Executed<()>) -> Settled<()> {
        Settled::default()
    }

    fn status<'a>(&self, _: &'a Service) -> &'a () {
        &()
    }
}

impl EndpointsController {
    /// The Endpoints of a Service that does not exist, if they are to be deleted. They have the labels of the Service.
    fn left_over(&self, key: &ObjectKey) -> Option<Arc<Endpoints>> {
        let scope = &self.context.settings().scope;
        let there = self.endpoints.get(key).filter(|there| scope.selects(&there.meta))?;
        planner::is_left_over(&there).then_some(there)
    }

    /// Whether the API server has the Service of Endpoints: the cache may not show it yet, and wakes it when it does.
    async fn service_exists(&self, endpoints: &Endpoints) -> Result<bool, SyncError> {
        let api = self.context.api_of_controller(&ENTRY, endpoints);
        let path = Service::RESOURCE.path_of(&endpoints.meta.key);
        match self.context.read_by::<Service>(&api, &path).await {
            Ok(_) => Ok(true),
            Err(SyncError::Gone { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// When to look at Endpoints that others have changed. Those without Service may have been applied before it.
    fn repair_delay(&self, key: &ObjectKey) -> Duration {
        match self.services.get(key) {
            Some(_) => REPAIR.max(self.context.settings().endpoint_updates_batch_period),
            None => BEFORE_SERVICE,
        }
    }

    /// Endpoints have changed: wakes their Service unless this process has made the change.
    fn endpoints_changed(&self, change: &Change<Endpoints>) {
        let queue = self.context.queue_of_controller(&ENTRY);
        let key = change.object().meta.key.clone();
        match change {
            Change::Deleted(_) => {
                self.memory.has_deleted(&change.object().meta);
                queue.add(key);
            }
            // A Service that exists is in the queue already; one that does not may have left these.
            Change::Added(_) if !self.endpoints.is_synced() => queue.add(key),
            Change::Added(new) if !self.memory.has_written(&new.meta) => match self.services.get(&key) {
                Some(_) => queue.add(key),
                None => queue.add_after(key, BEFORE_SERVICE),
            },
            // A restore of etcd: later versions may be those of others.
            Change::Updated { old, new } if new.meta.resource_version < old.meta.resource_version => {
                self.memory.forget_object(&new.meta.uid);
                queue.add(key);
            }
            Change::Updated { old, new }
                if (old.is_managed() || new.is_managed()) && !self.memory.has_written(&new.meta) =>
            {
                let delay = self.repair_delay(&key);
                queue.add_after(key, delay);
            }
            Change::Added(_) | Change::Updated { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::fixture::{Rig, rig};
    use crate::model::Interner;

    fn decode<T: Record>(object: &Value) -> T {
        T::decode(&object.to_string(), &mut Interner::default()).unwrap()
    }

    fn endpoints(version: &str, managed_by: &str) -> Value {
        json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u-e", "resourceVersion": version,
                            "labels": {"endpoints.kubernetes.io/managed-by": managed_by}}})
    }

    fn woken<T: Record>(rig: &mut Rig, change: Change<T>) -> Vec<String> {
        rig.dispatch(change);
        let woken = rig.woken();
        let ours = woken.iter().filter_map(|key| key.strip_prefix("endpoints shop/"));
        ours.map(str::to_owned).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn endpoints_wake_the_service_of_their_name() {
        let mut rig = rig(200, |_| {});
        let ours = |version| Arc::new(decode::<Endpoints>(&endpoints(version, "endpoint-controller")));
        let theirs = |version| Arc::new(decode::<Endpoints>(&endpoints(version, "another")));
        let added = |endpoints| Change::Added(endpoints);
        assert_eq!(woken(&mut rig, added(ours("5"))), ["web"]);
        assert_eq!(woken(&mut rig, added(theirs("5"))), ["web"]);
        assert_eq!(woken(&mut rig, Change::Updated { old: ours("5"), new: ours("6") }), ["web"]);
        assert_eq!(woken(&mut rig, Change::Updated { old: ours("6"), new: theirs("7") }), ["web"]);
        // The lock of an election, every other second.
        assert_eq!(woken(&mut rig, Change::Updated { old: theirs("7"), new: theirs("8") }), [""; 0]);
        assert_eq!(woken(&mut rig, Change::Deleted(theirs("8"))), ["web"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_wakes_both_controllers_of_endpoints() {
        let mut rig = rig(200, |_| {});
        let service = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "u-web", "resourceVersion": "1"},
                             "spec": {"selector": {"app": "web"}}});
        rig.context.store::<Service>().put(decode(&service));
        rig.dispatch(Change::<Service>::Added(Arc::new(decode(&service))));
        rig.woken();
        let pod = json!({"metadata": {"name": "p", "namespace": "shop", "uid": "u-p", "resourceVersion": "2",
                                      "labels": {"app": "web"}},
                         "spec": {"nodeName": "n1"}, "status": {"phase": "Running", "podIP": "10.0.0.1"}});
        rig.dispatch(Change::<Pod>::Added(Arc::new(decode(&pod))));
        let woken = rig.woken();
        for key in ["endpoints shop/web", "endpointslice shop/web"] {
            assert!(woken.iter().any(|woken| woken == key), "{woken:?}");
        }
    }
}
