//! The namespace controller: empties a namespace that is being deleted, and lets it go.
//!
//! It deletes whatever the API server serves, and so needs rights over everything: it runs only if it is named in
//! `--controllers`.

mod execute;
mod memory;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;
use tokio::time::Instant;

use super::namespace_content::NamespaceContent;
use super::patch;
use crate::engine::context::Context;
use crate::engine::controller::{Controller, Executed, Settled, Status};
use crate::engine::driver::Driver;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::setup::Setup;
use crate::metrics::set_gauge;
use crate::model::{Condition, Namespace, NamespaceStatus, ObjectKey, Record};
use crate::plan::Urgency;
use crate::plan::namespace::{self as planner, Cause, Observed, Outcome, Plan};
use execute::SharedDiscovery;
use memory::NamespaceMemory;

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "namespace-controller",
    aliases: &[],
    kind: Namespace::RESOURCE,
    objects: "Namespaces",
    flag: "concurrent-namespace-syncs",
    workers: 10,
    queue: "namespace",
    component: "namespace-controller",
    watches: &[Namespace::RESOURCE],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    // One namespace costs a request for each kind. These are upstream's factors.
    requests: Requests { qps: 20.0, burst: 100 },
    install,
};

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let controller = NamespaceController {
        discovery: SharedDiscovery::new(context.control(Namespace::RESOURCE).api.clone()),
        memory: Arc::default(),
        content: setup.shared().0,
        context,
    };
    Box::new(Driver::new(Arc::new(controller), &ENTRY, setup))
}

/// The namespace controller.
pub struct NamespaceController {
    context: Arc<Context>,
    discovery: SharedDiscovery,
    /// The memory of each namespace between rounds.
    memory: Arc<NamespaceMemory>,
    /// The content that the garbage collector sees, if it runs.
    content: Arc<NamespaceContent>,
}

/// They follow the content, which changes fast: none keeps an old text.
impl Status for NamespaceStatus {
    fn conditions(&self) -> &[Condition] {
        &[]
    }

    fn conditions_mut(&mut self) -> &mut [Condition] {
        &mut []
    }
}

impl Controller for NamespaceController {
    type Object = Namespace;
    type Status = NamespaceStatus;
    type Observed<'a> = Observed<'a>;
    type Plan = Plan;
    type Outcome = Outcome;

    fn watch(self: &Arc<Self>, _: &mut Setup) {
        self.context.memory().includes(self.memory.clone());
        self.context.memory().includes(self.content.clone());
        let queue = self.context.queue_of::<Namespace>().clone();
        self.content.woken_by(move |name| queue.add(ObjectKey::new("", name)));
        let (memory, metrics) = (Arc::downgrade(&self.memory), self.context.metrics());
        let terminating = metrics.workloads.namespaces_terminating.clone();
        metrics.before_render(move || {
            let Some(memory) = memory.upgrade() else { return false };
            for (cause, count) in memory.waiting() {
                set_gauge(&terminating.with_label_values(&[cause.label()]), count);
            }
            true
        });
    }

    fn in_scope(&self, namespace: &Namespace) -> bool {
        self.context.settings().scope.selects(&namespace.meta)
    }

    fn observe<'a>(&self, namespace: &'a Namespace, _: bool) -> Observed<'a> {
        let (waited, last) = self.memory.observe(namespace, Instant::now());
        let delay = self.context.settings().namespace_deletion_delay;
        Observed { namespace, waited, delay, last, now: self.context.now() }
    }

    fn plan(&self, observed: &Observed<'_>) -> Plan {
        planner::plan(observed)
    }

    fn writes(&self, plan: &Plan) -> bool {
        *plan != Plan::Nothing
    }

    fn execute<'a>(
        &'a self,
        namespace: &'a Namespace,
        observed: &'a Observed<'_>,
        plan: &'a Plan,
    ) -> BoxFuture<'a, Executed<Outcome>> {
        Box::pin(async move {
            match plan {
                Plan::Nothing => Executed::new(Outcome::Nothing, None),
                Plan::MarkTerminating => {
                    Executed::new(Outcome::Nothing, self.mark_terminating(namespace).await.err())
                }
                Plan::Round => {
                    let (outcome, error) = self.round(namespace, observed).await;
                    self.memory.finished(namespace, observed.waited, &outcome);
                    Executed::new(outcome, error)
                }
            }
        })
    }

    fn settle(
        &self,
        observed: &Observed<'_>,
        _: &Plan,
        executed: &Executed<Outcome>,
    ) -> Settled<NamespaceStatus> {
        let (status, requeue_after) = planner::settle(observed, executed.outcome());
        Settled { status, annotations: Default::default(), requeue_after }
    }

    fn status<'a>(&self, namespace: &'a Namespace) -> &'a NamespaceStatus {
        &namespace.status
    }

    fn status_patch(
        &self,
        namespace: &Namespace,
        settled: &Settled<NamespaceStatus>,
        _: bool,
    ) -> Option<Value> {
        patch::namespace_status(&namespace.meta, &namespace.status, &settled.status)
    }

    fn urgency(
        &self,
        _: &Observed<'_>,
        _: &Plan,
        executed: &Executed<Outcome>,
        _: &Settled<NamespaceStatus>,
    ) -> Urgency {
        match planner::is_urgent(executed.outcome()) {
            true => Urgency::Immediate,
            false => Urgency::Postponed,
        }
    }
}

/// How many namespaces wait for each cause.
type Waiting = [(Cause, usize); Cause::ALL.len()];
