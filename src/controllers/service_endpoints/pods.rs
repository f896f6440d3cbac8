//! The pods of Services, and the wakes of Services by their changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::GATHERING;
use super::indexes::SelectorIndex;
use crate::engine::context::Context;
use crate::engine::entry::ControllerEntry;
use crate::engine::owner_memory::Forget;
use crate::engine::setup::{HandlerOrder, Setup};
use crate::model::{Meta, ObjectKey, Pod, Service, Uid};
use crate::plan::endpointslice::{self as planner, Affected};
use crate::runtime::store::{Change, Store};

/// The pods of Services, for one controller of their endpoints.
pub(in crate::controllers) struct ServicePods {
    context: Arc<Context>,
    entry: &'static ControllerEntry,
    services: Arc<Store<Service>>,
    pods: Arc<Store<Pod>>,
    /// The Services by one of the labels that they select.
    by_selector: Arc<SelectorIndex>,
    /// How long changes of pods are gathered.
    batch_period: Duration,
    /// When the last writes for a Service began.
    last_writes: Arc<LastWrites>,
}

impl ServicePods {
    /// The pods of Services, for a controller that gathers their changes for so long. The index of the Services is one for all
    /// controllers.
    pub(in crate::controllers) fn new(
        entry: &'static ControllerEntry,
        batch_period: Duration,
        setup: &mut Setup,
    ) -> Arc<Self> {
        let context = setup.context().clone();
        let by_selector = if setup.is_enabled(entry) {
            let (index, is_first) = setup.shared::<SelectorIndex>();
            if is_first {
                let own = index.clone();
                // Before the driver, which queues the key: a worker must not miss a pod that the index does not know yet.
                setup.on_change(HandlerOrder::Owner, move |change| own.update(change));
            }
            index
        } else {
            Arc::default()
        };
        Arc::new(ServicePods {
            services: context.store(),
            pods: context.store(),
            context,
            entry,
            by_selector,
            batch_period,
            last_writes: Arc::default(),
        })
    }

    /// Wakes the Services of pods that change.
    pub(in crate::controllers) fn watch(self: &Arc<Self>, setup: &mut Setup) {
        self.context.memory().includes(self.last_writes.clone());
        if setup.is_enabled(self.entry) {
            let own = self.clone();
            setup.on_change(HandlerOrder::Indirect, move |change| own.pod_changed(change));
        }
    }

    /// The pods that a Service selects.
    pub(in crate::controllers) fn of(&self, service: &Service) -> Vec<Arc<Pod>> {
        let Some(selector) = service.pods() else { return Vec::new() };
        // Pods of one template share their labels, and stand side by side.
        let mut last = None;
        self.pods.select(&service.meta.key.namespace, |pod| {
            let labels = Arc::as_ptr(&pod.meta.labels);
            match last {
                Some((same, matches)) if same == labels => matches,
                _ => {
                    let matches = selector.matches(&pod.meta.labels);
                    last = Some((labels, matches));
                    matches
                }
            }
        })
    }

    /// The Services that select a pod with this metadata.
    pub(in crate::controllers) fn services_of(&self, pod: &Meta) -> BTreeSet<ObjectKey> {
        self.by_selector.of(&self.services, pod)
    }

    /// The writes for a Service begin.
    pub(in crate::controllers) fn writes(&self, service: &Uid) {
        self.last_writes.0.lock().insert(service.clone(), Instant::now());
    }

    /// A pod has changed: wakes the Services that select it or did.
    fn pod_changed(&self, change: &Change<Pod>) {
        let (old, new) = change.states();
        let affected = planner::affected(old, new);
        if affected == Affected::None {
            return;
        }
        let services = |pod: &Pod| self.services_of(&pod.meta);
        let (before, after) = (old.map(services).unwrap_or_default(), new.map(services).unwrap_or_default());
        let mut woken: BTreeSet<ObjectKey> = before.union(&after).cloned().collect();
        if affected == Affected::Changed {
            woken.retain(|key| before.contains(key) != after.contains(key));
        }
        for key in woken {
            self.wake(key);
        }
    }

    /// Wakes a Service whose pods have changed: after the batch period, and so that its endpoints are not written too often.
    pub(in crate::controllers) fn wake(&self, key: ObjectKey) {
        let Some(service) = self.services.get(&key) else { return };
        let wrote = self.last_writes.0.lock().get(&service.meta.uid).copied();
        let quiet =
            wrote.map_or(Duration::ZERO, |at| (at + GATHERING).saturating_duration_since(Instant::now()));
        self.context.queue_of_controller(self.entry).add_after(key, quiet.max(self.batch_period));
    }
}

/// When the last writes for each Service began.
#[derive(Default)]
struct LastWrites(Mutex<BTreeMap<Uid, Instant>>);

impl Forget for LastWrites {
    fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}
