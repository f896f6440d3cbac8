//! Keeps a [`Store`] current by listing and watching one kind.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::api::Api;
use super::delta_handler::DeltaHandler;
use super::fresh_list::FreshList;
use super::list_turns::ListTurns;
use super::lost_history::LostHistory;
use super::reachability::{OUT_OF_REACH, Reachability};
use super::read_barrier::ReadBarrier;
use super::reflector::Reflector;
#[cfg(test)]
use super::store::Applied;
use super::store::{Change, Store};
use crate::metrics::{Metrics, set_gauge};
use crate::model::{Record, Resource};

/// Which part of a kind an informer watches, and how.
#[derive(Clone, Debug)]
pub struct InformerOptions {
    /// One namespace, or all.
    pub namespace: Option<String>,
    /// A label selector in the API's own notation.
    pub label_selector: Option<String>,
    /// A field selector in the API's own notation, such as `metadata.name=default`.
    pub field_selector: Option<&'static str>,
    /// Objects per page, where the list comes in pages; client-go's 500.
    pub page_size: u32,
    /// Seeds the jitter of timeouts and delays.
    pub seed: u64,
    /// Whether the first list may be outdated, which costs the API server less. For a cache that is
    /// brought up to date ([`Informer::read_barrier`]) before any decision depends on it.
    pub may_lag: bool,
    /// The turns that its lists wait for; `None` if they begin at once.
    pub turns: Option<ListTurns>,
    /// Whether a watch that broke, or that the server ended before its time, is followed by a list instead of being
    /// resumed: the server may be another one at the same address, or have been restored. For a process without a Lease,
    /// which would tell ([`super::leader_election::history`]). The price is a list of each kind after each
    /// restart of the API server.
    pub relists_after_breaks: bool,
    /// The other parts that have noticed that the API server has lost its history.
    pub lost_history: LostHistory,
}

impl Default for InformerOptions {
    fn default() -> Self {
        InformerOptions {
            namespace: None,
            label_selector: None,
            field_selector: None,
            page_size: 500,
            seed: 0,
            may_lag: false,
            turns: None,
            relists_after_breaks: false,
            lost_history: LostHistory::default(),
        }
    }
}

/// Lists and watches the objects of one kind for as long as the program lives.
///
/// The initial state comes as a streaming list (KEP-3157), or in pages where the server refuses that.
/// A watch continues from there. A watch that breaks is resumed where it was; one that the server
/// cannot resume any more (410) leads to a new list, whose missing objects are reported as deletions. An
/// object that cannot be decoded is reported and skipped. None of this ever ends by itself.
pub struct Informer<T: Record> {
    resource: Resource,
    api: Api,
    options: InformerOptions,
    delta_handler: DeltaHandler<T>,
    ready: watch::Sender<bool>,
    relist: Relist,
    reachability: Reachability,
}

impl<T: Record> Informer<T> {
    /// An informer that has not started; see [`Informer::run`].
    pub fn new(api: Api, options: InformerOptions) -> Self {
        Self::of(T::RESOURCE, api, options)
    }

    /// The same for objects of a resource that the type does not fix: metadata, for example, is decoded alike
    /// whatever the kind is that discovery has found.
    pub fn of(resource: Resource, api: Api, options: InformerOptions) -> Self {
        let delta_handler = DeltaHandler::new(resource, api.metrics());
        export(resource, api.metrics(), &delta_handler.store);
        Informer {
            resource,
            api,
            options,
            delta_handler,
            ready: watch::Sender::new(false),
            relist: Relist { relist_requested: Arc::default() },
            reachability: Reachability::default(),
        }
    }

    /// The resource that is listed and watched.
    pub fn resource(&self) -> Resource {
        self.resource
    }

    /// The store that this informer fills.
    pub fn store(&self) -> Arc<Store<T>> {
        self.delta_handler.store.clone()
    }

    /// Registers `handler` for every change, called right after the store shows it. Several handlers are called in
    /// the order of their registration. A handler blocks the watch: it must only record what to do.
    pub fn on_change(&mut self, handler: impl Fn(&Change<T>) + Send + Sync + 'static) {
        self.delta_handler.on_change(handler);
    }

    /// Registers `handler` for every new [`Store::position`], called after the changes that led there.
    pub fn on_position(&mut self, handler: impl Fn(u64) + Send + Sync + 'static) {
        self.delta_handler.on_position(handler);
    }

    /// Registers `handler` for every list that is accepted although it is older than the store, since the API server has
    /// lost the history after it: called with its number when it begins.
    pub fn on_lost_history(&mut self, handler: impl Fn(u64) + Send + Sync + 'static) {
        self.delta_handler.on_lost_history(handler);
    }

    /// Calls the handlers with a change from a test.
    #[cfg(test)]
    pub(crate) fn dispatch(&self, change: Change<T>) {
        self.delta_handler.dispatch(Applied { changes: vec![change], position: None });
    }

    /// Tells when the first list is complete and the handlers were called for its changes.
    pub fn ready(&self) -> Ready {
        Ready { synced: self.ready.subscribe(), reachability: self.reachability.clone() }
    }

    /// Requests a new list, for callers with a reason to distrust the store.
    pub fn relist(&self) -> Relist {
        self.relist.clone()
    }

    /// The read barrier of the store, for a process that starts to act where another has acted before.
    pub fn read_barrier(&self) -> ReadBarrier {
        ReadBarrier {
            resource: self.resource,
            api: self.api.clone(),
            path: self.resource.path(self.options.namespace.as_deref()),
            field_selector: self.options.field_selector,
            cache: self.store(),
            relist: self.relist(),
        }
    }

    /// Reads past the store.
    pub fn fresh_list(&self) -> FreshList {
        FreshList::new(self.resource, self.options.label_selector.as_deref(), self.delta_handler.sink())
    }

    /// Lists and watches until `shutdown`.
    pub async fn run(self, shutdown: CancellationToken) {
        let Informer { resource, api, options, delta_handler, ready, relist, reachability } = self;
        let reflector = Reflector::new(
            resource,
            api,
            options,
            Box::new(delta_handler),
            ready,
            relist.relist_requested,
            reachability,
        );
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            never = reflector.run() => match never {},
        }
    }
}

/// Whether an informer's store is complete, and kept current. Clones look at the same informer.
#[derive(Clone, Debug)]
pub struct Ready {
    synced: watch::Receiver<bool>,
    reachability: Reachability,
}

impl Ready {
    /// Waits for the first complete list. Returns `false` if the informer was dropped before that.
    pub async fn wait(&self) -> bool {
        self.synced.clone().wait_for(|synced| *synced).await.is_ok()
    }

    /// The same, or until the first list has been failing for `patience`.
    pub async fn wait_unless_failing(&self, patience: Duration) -> bool {
        tokio::select! {
            biased;
            complete = self.wait() => complete,
            () = self.reachability.lists_fail_for(patience) => true,
        }
    }

    /// Whether the first list is complete.
    pub fn is_ready(&self) -> bool {
        *self.synced.borrow()
    }

    /// The last error of a list that is under way and has failed.
    pub fn list_error(&self) -> Option<String> {
        self.reachability.failing_lists().map(|(_, error)| error)
    }

    /// Whether the first list is complete, a later one does not fail again and again, and the API server has answered
    /// recently, for `/readyz`.
    ///
    /// # Errors
    /// When not, with the reason.
    pub fn check(&self) -> Result<(), String> {
        self.reachability.check()?;
        match (self.is_ready(), self.reachability.failing_lists()) {
            (false, None) => Err("the first list is not complete".into()),
            (false, Some((_, error))) => Err(format!("the first list is not complete: {error}")),
            (true, Some((since, error))) if since.elapsed() > OUT_OF_REACH => {
                Err(format!("no list has been complete for {} s: {error}", since.elapsed().as_secs()))
            }
            (true, _) => Ok(()),
        }
    }
}

/// Requests new lists from an informer.
#[derive(Clone, Debug)]
pub struct Relist {
    relist_requested: Arc<Notify>,
}

impl Relist {
    /// Ends the current watch and lists again. Concurrent requests lead to one list.
    pub fn request_relist(&self) {
        self.relist_requested.notify_one();
    }
}

/// The bytes that a store keeps of an object beside its record; see [`Store`].
const INDEX_BYTES: usize = 40;

/// Exports the store's size and position whenever the metrics are read.
fn export<T: Record>(resource: Resource, metrics: &Metrics, store: &Arc<Store<T>>) {
    let objects = metrics.informer_objects.with_label_values(&[resource.group, resource.plural]);
    let bytes = metrics.informer_bytes.with_label_values(&[resource.group, resource.plural]);
    let version = metrics.informer_resource_version.with_label_values(&[
        "windlass",
        resource.group,
        resource.version,
        resource.plural,
    ]);
    let store = Arc::downgrade(store);
    metrics.before_render(move || {
        let Some(store) = store.upgrade() else { return false };
        set_gauge(&objects, store.len());
        let mut size = 0usize;
        store.for_each(|object| size = size.saturating_add(object.heap_bytes() + INDEX_BYTES));
        set_gauge(&bytes, size);
        version.set((store.position() % 1_000_000_000_000_000) as i64);
        true
    });
}
