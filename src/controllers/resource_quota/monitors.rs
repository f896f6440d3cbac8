//! Watches the metadata of the resources that quotas name and that nobody else watches: they come and go with the quotas and with
//! what the API server serves. None holds up another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::counter::{CountWriter, Counter};
use crate::controllers::garbage::fixed;
use crate::controllers::object_counts::{ObjectCounts, Seen, name};
use crate::engine::context::Context;
use crate::metrics::set_gauge;
use crate::model::discovered::{Discovered, DiscoveredResource, Verb};
use crate::plan::resourcequota::{Amounts, Count};
use crate::runtime::api::Api;
use crate::runtime::discovery::Discovery;
use crate::runtime::informer::InformerOptions;
use crate::runtime::list_turns::ListTurns;
use crate::runtime::reachability::Reachability;
use crate::runtime::reflector::Reflector;

/// How often the API server is asked which resources it serves. While nothing changes the answer is a 304.
const PERIOD: Duration = Duration::from_secs(30);

/// The pause after an attempt that failed.
const PAUSE: Duration = Duration::from_secs(2);

/// How many lists are under way at a time: each brings all objects of a resource.
const LISTS_AT_ONCE: usize = 4;

/// How many watches share a connection.
const WATCHES_PER_CONNECTION: u64 = 50;

/// A resource that is watched here.
struct Monitor {
    resource: DiscoveredResource,
    counter: Arc<Counter>,
    reachability: Reachability,
    _task: AbortOnDropHandle<()>,
}

impl Monitor {
    fn seen(&self, namespace: &str) -> Seen {
        let failed = |reason| Seen::Unknown { reason, has_failed: true };
        match (self.reachability.check(), self.counter.of(namespace), self.reachability.failing_lists()) {
            (Err(reason), ..) => failed(reason),
            (Ok(()), Some(objects), _) => Seen::Count { objects, position: self.counter.position() },
            (.., Some((_, error))) => failed(format!("the first list is not complete: {error}")),
            (.., None) => listing(),
        }
    }

    fn state(&self) -> &'static str {
        match self.seen("") {
            Seen::Count { .. } => "synced",
            Seen::Unknown { has_failed: true, .. } => "broken",
            Seen::Unknown { .. } => "listing",
        }
    }
}

fn listing() -> Seen {
    Seen::Unknown { reason: "the first list is not complete".to_owned(), has_failed: false }
}

/// The answer of discovery.
#[derive(Clone, Default)]
enum Served {
    /// It was not asked yet.
    #[default]
    Unasked,
    /// It serves this.
    Known(Arc<Discovered>),
    /// It does not say.
    Failed(String),
}

/// The watches.
pub(super) struct Monitors {
    context: Arc<Context>,
    api: Api,
    counts: Arc<ObjectCounts>,
    turns: ListTurns,
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    served: Served,
    monitors: BTreeMap<String, Monitor>,
    /// How many were begun.
    begun: u64,
}

/// Whether the objects of a resource can be counted: they are in namespaces, and can be watched.
fn is_countable(resource: &DiscoveredResource) -> bool {
    resource.namespaced && resource.verbs.has_all(&[Verb::Create, Verb::Delete, Verb::List, Verb::Watch])
}

impl Monitors {
    pub(super) fn new(context: Arc<Context>, api: Api, counts: Arc<ObjectCounts>) -> Arc<Self> {
        let turns = ListTurns::new(LISTS_AT_ONCE);
        Arc::new(Monitors { context, api, counts, turns, state: RwLock::default() })
    }

    /// The use of a quota by the objects of a resource in a namespace; `of` has that of so many.
    pub(super) fn count(&self, namespace: &str, resource: &str, of: impl Fn(usize) -> Amounts) -> Count {
        match self.seen(namespace, resource) {
            None => Count::NotServed,
            Some(Seen::Count { objects, .. }) => Count::Used(of(objects)),
            Some(Seen::Unknown { reason, has_failed }) => Count::Unknown { reason, has_failed },
        }
    }

    /// The version that the watch of a resource shows; 0 if it is not watched, or does not show all objects.
    pub(super) fn position(&self, resource: &str) -> u64 {
        match self.seen("", resource) {
            Some(Seen::Count { position, .. }) => position,
            Some(Seen::Unknown { .. }) | None => 0,
        }
    }

    /// `None` if the API server does not serve the resource.
    fn seen(&self, namespace: &str, resource: &str) -> Option<Seen> {
        if let Some(seen) = self.counts.seen(namespace, resource) {
            return Some(seen);
        }
        let state = self.state.read();
        if let Some(monitor) = state.monitors.get(resource) {
            return Some(monitor.seen(namespace));
        }
        let failed = |reason| Some(Seen::Unknown { reason, has_failed: true });
        match &state.served {
            Served::Unasked => Some(listing()),
            Served::Failed(error) => failed(error.clone()),
            Served::Known(served) => {
                let known = served.resources.iter().find(|known| name(known) == resource);
                let group = resource.split_once('.').map_or("", |(_, group)| group);
                let unknown = served.failed.iter().find(|failed| failed.group == group);
                match (known, unknown) {
                    (Some(known), _) if is_countable(known) => Some(listing()),
                    (Some(_), _) | (None, None) => None,
                    (None, Some(unknown)) => {
                        let (group, error) = (unknown.group_version(), &unknown.message);
                        failed(format!("the resources of {group} are unknown: {error}"))
                    }
                }
            }
        }
    }

    /// Watches what quotas name, for ever.
    pub(super) async fn run(self: Arc<Self>) {
        let mut discovery = Discovery::new(self.api.clone());
        let (mut changes, mut found) = (self.counts.changes(), self.counts.served());
        loop {
            changes.mark_unchanged();
            let pause = self.look(&mut discovery, &mut found).await;
            let again = Instant::now() + pause;
            tokio::select! {
                // The senders live as long as this.
                _ = changes.changed() => {}
                _ = found.changed() => {}
                () = tokio::time::sleep_until(again) => {}
            }
        }
    }

    /// Learns what the API server serves, if a quota needs to know. When to look again.
    async fn look(
        self: &Arc<Self>,
        discovery: &mut Discovery,
        found: &mut watch::Receiver<Option<Arc<Discovered>>>,
    ) -> Duration {
        let wanted = self.counts.followed();
        let (served, pause) = if wanted.is_empty() {
            (Served::Unasked, PERIOD)
        } else if self.counts.is_counted() {
            let found = found.borrow_and_update().clone();
            (found.map_or(Served::Unasked, Served::Known), PERIOD)
        } else {
            match discovery.refresh().await {
                Ok(found) => (Served::Known(found), PERIOD),
                Err(error) => {
                    tracing::warn!(%error, "the resources of the API server are unknown; their usage stays as it was");
                    (Served::Failed(error.to_string()), PAUSE)
                }
            }
        };
        self.adapt(served, &wanted);
        pause
    }

    fn adapt(self: &Arc<Self>, served: Served, wanted: &[String]) {
        let watched_by_others = |resource: &str| self.counts.seen("", resource).is_some();
        let mut new = Vec::new();
        let mut state = self.state.write();
        let before = state.monitors.len();
        match &served {
            Served::Known(found) => {
                // A resource that was watched and cannot be found now is not gone.
                let last_good = found.failed.iter().filter_map(|failed| failed.last_good.as_ref()).flatten();
                let last_good: Vec<&DiscoveredResource> = last_good.collect();
                let resources = found.resources.iter().chain(last_good.iter().copied());
                let mut now: BTreeMap<String, DiscoveredResource> = BTreeMap::new();
                for resource in resources.filter(|resource| is_countable(resource)) {
                    let name = name(resource);
                    if wanted.contains(&name) && !watched_by_others(&name) {
                        now.entry(name).or_insert_with(|| resource.clone());
                    }
                }
                let is_alike = |name: &String, monitor: &Monitor| {
                    now.get(name).is_some_and(|resource| {
                        let DiscoveredResource { version, kind, .. } = resource;
                        (version, kind) == (&monitor.resource.version, &monitor.resource.kind)
                    })
                };
                state.monitors.retain(|name, monitor| is_alike(name, monitor));
                new.extend(now.into_iter().filter(|(name, _)| !state.monitors.contains_key(name)));
            }
            Served::Unasked | Served::Failed(_) => state.monitors.retain(|name, _| wanted.contains(name)),
        }
        let is_same = match (&state.served, &served) {
            (Served::Known(old), Served::Known(new)) => Arc::ptr_eq(old, new),
            _ => false,
        };
        let has_changed = !is_same || !new.is_empty() || state.monitors.len() != before;
        state.served = served;
        for (name, resource) in new {
            state.begun += 1;
            let monitor = self.begin(name.clone(), resource, state.begun);
            state.monitors.insert(name, monitor);
        }
        drop(state);
        // A resource that was not served before may be, and the other way round.
        if has_changed {
            wanted.iter().for_each(|resource| self.counts.tell(None, resource, false));
        }
    }

    /// Begins to watch a resource.
    fn begin(self: &Arc<Self>, name: String, resource: DiscoveredResource, number: u64) -> Monitor {
        let (counter, reachability) = (Arc::<Counter>::default(), Reachability::default());
        let fixed = fixed(&resource);
        let settings = self.context.settings();
        let labels = [fixed.group, fixed.plural];
        let undecodable = self.context.metrics().informer_undecodable.with_label_values(&labels);
        let counts = self.counts.clone();
        let tell = move |namespace: Option<&str>, is_more| counts.tell(namespace, &name, is_more);
        let writer = CountWriter::new(counter.clone(), undecodable, Box::new(tell));
        let options = InformerOptions {
            namespace: settings.scope.namespace.clone(),
            seed: settings.seed ^ number,
            turns: Some(self.turns.clone()),
            relists_after_breaks: settings.relists_after_breaks,
            lost_history: self.context.lost_history.clone(),
            ..InformerOptions::default()
        };
        let api = self.api.over_shared_connection(number / WATCHES_PER_CONNECTION);
        let (ready, relist) = (watch::Sender::new(false), Arc::<Notify>::default());
        let again = relist.clone();
        let reflector =
            Reflector::new(fixed, api, options, Box::new(writer), ready, relist, reachability.clone());
        let mut lost_histories = self.context.lost_histories.subscribe();
        let task = tokio::spawn(async move {
            let listing_anew = async {
                // The sender lives as long as the context.
                while lost_histories.changed().await.is_ok() {
                    again.notify_one();
                }
            };
            tokio::select! {
                biased;
                never = reflector.run() => match never {},
                () = listing_anew => {}
            }
        });
        Monitor { resource, counter, reachability, _task: AbortOnDropHandle::new(task) }
    }

    /// Updates the gauge of the watches.
    pub(super) fn measure(&self) {
        let mut counts: BTreeMap<_, _> = ["broken", "listing", "synced"].map(|state| (state, 0)).into();
        for monitor in self.state.read().monitors.values() {
            *counts.entry(monitor.state()).or_default() += 1;
        }
        let gauge = &self.context.metrics().quotas.resources;
        for (state, count) in counts {
            set_gauge(&gauge.with_label_values(&[state]), count);
        }
    }
}
