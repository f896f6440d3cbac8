//! The kinds that controllers watch: whether each is listed, and, since the election, which version was current then.
//!
//! A controller starts when that is known of all its kinds. One right that is missing stops the controllers that need
//! it, and no other.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, select_all};
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::engine::entry::{ControllerEntry, Registry};
use crate::model::Resource;
use crate::runtime::informer::Ready;
use crate::runtime::informers::Informers;
use crate::runtime::lazy_read_barrier::LazyReadBarrier;
use crate::runtime::read_barrier::ReadBarrier;

/// How long the first list of a kind may fail before the election goes on without it. A failure that is over by then does
/// not change the order in which controllers start.
const KINDS_TIMEOUT: Duration = Duration::from_secs(10);

/// The kinds that are listed and watched for controllers.
pub(super) struct WatchedKinds {
    kinds: Vec<WatchedKind>,
    /// Those that run.
    controllers: Vec<&'static ControllerEntry>,
    barrier: Arc<LazyReadBarrier>,
}

struct WatchedKind {
    resource: Resource,
    /// Whether its first list is not awaited.
    is_in_bulk: bool,
    ready: Ready,
    /// `None` without an election.
    read_barrier: Option<Arc<ReadBarrier>>,
    /// Once the version at the election is recorded.
    elected: OnceCell<()>,
    /// Why that version could not be read.
    error: Mutex<Option<String>>,
}

impl WatchedKinds {
    pub fn new(
        informers: &Informers,
        registry: &Registry,
        controllers: Vec<&'static ControllerEntry>,
        read_barriers: &[Arc<ReadBarrier>],
        barrier: Arc<LazyReadBarrier>,
    ) -> Self {
        let is_in_bulk =
            |resource| registry.kinds().iter().any(|kind| kind.resource == resource && kind.is_in_bulk);
        let kind = |(resource, ready)| WatchedKind {
            resource,
            is_in_bulk: is_in_bulk(resource),
            ready,
            read_barrier: read_barriers.iter().find(|barrier| barrier.resource() == resource).cloned(),
            elected: OnceCell::new(),
            error: Mutex::default(),
        };
        let kinds = informers.ready().into_iter().map(kind).collect();
        WatchedKinds { kinds, controllers, barrier }
    }

    fn of(&self, entry: &'static ControllerEntry) -> impl Iterator<Item = &WatchedKind> {
        self.kinds.iter().filter(|kind| entry.watches.contains(&kind.resource))
    }

    /// Waits until each kind is listed or cannot be listed, and one controller could act.
    pub async fn listed(&self) {
        let start = Instant::now();
        for kind in self.kinds.iter().filter(|kind| !kind.is_in_bulk) {
            kind.ready.wait_unless_failing(KINDS_TIMEOUT).await;
        }
        let can_act = self
            .controllers
            .iter()
            .map(|&entry| Box::pin(async move { join_all(self.of(entry).map(WatchedKind::listed)).await }));
        let can_act: Vec<_> = can_act.collect();
        if !can_act.is_empty() {
            select_all(can_act).await;
        }
        let (complete, missing): (Vec<_>, Vec<_>) =
            self.kinds.iter().filter(|kind| !kind.is_in_bulk).partition(|kind| kind.ready.is_ready());
        let kinds: Vec<_> = complete.iter().map(|kind| kind.resource.plural).collect();
        if missing.is_empty() {
            let (names, milliseconds) = (kinds.join(","), start.elapsed().as_millis());
            tracing::info!(kinds = kinds.len(), names, milliseconds, "the caches of the owners are complete");
        }
        for kind in missing {
            let (resource, reason) = (kind.resource.plural, kind.missing().unwrap_or_default());
            let controllers = self.waiting_for(kind.resource);
            tracing::warn!(resource, controllers, "{reason}; these controllers wait, the others go on");
        }
    }

    /// Records the version at the election of each kind that is listed, by one request; those that fail are left out.
    pub async fn record(&self) {
        let listed = self.kinds.iter().filter(|kind| kind.is_in_bulk || kind.ready.is_ready());
        join_all(listed.map(|kind| kind.try_record(&self.barrier))).await;
    }

    /// Whether a controller may act.
    pub fn may_start(&self, entry: &'static ControllerEntry) -> bool {
        self.of(entry).all(WatchedKind::may_be_used)
    }

    /// Waits until a controller may act.
    pub async fn prepare(&self, entry: &'static ControllerEntry) {
        let missing: Vec<_> = self.of(entry).filter_map(WatchedKind::missing).collect();
        tracing::warn!(controller = entry.name, "controller waits: {}", missing.join("; "));
        join_all(self.of(entry).map(|kind| async {
            kind.listed().await;
            kind.record(&self.barrier).await;
        }))
        .await;
    }

    /// The controllers that need a kind, in a text.
    fn waiting_for(&self, resource: Resource) -> String {
        let all = self.controllers.iter().filter(|entry| entry.watches.contains(&resource));
        all.map(|entry| entry.name).collect::<Vec<_>>().join(", ")
    }

    /// Whether a kind is listed and kept current, and, after an election, its version could be read: for `/readyz`.
    ///
    /// # Errors
    /// When not, with the reason, and with the controllers that wait.
    pub fn check(&self, resource: Resource) -> Result<(), String> {
        let Some(kind) = self.kinds.iter().find(|kind| kind.resource == resource) else { return Ok(()) };
        match kind.missing() {
            None => kind.ready.check(),
            Some(missing) => Err(format!("{missing}; waiting: {}", self.waiting_for(resource))),
        }
    }

    /// The resources, in the order in which they are listed.
    pub fn resources(&self) -> impl Iterator<Item = Resource> {
        self.kinds.iter().map(|kind| kind.resource)
    }
}

impl WatchedKind {
    async fn listed(&self) {
        if !self.is_in_bulk && !self.ready.wait().await {
            // The end of its watch ends the daemon.
            std::future::pending().await
        }
    }

    fn may_be_used(&self) -> bool {
        let is_recorded = self.read_barrier.is_none() || self.elected.initialized();
        (self.is_in_bulk || self.ready.is_ready()) && is_recorded
    }

    async fn try_record(&self, barrier: &LazyReadBarrier) {
        let Some(read) = &self.read_barrier else { return };
        let read = self.elected.get_or_try_init(|| async {
            read.read().await.map(|version| barrier.elected(self.resource, version))
        });
        if let Err(error) = read.await {
            *self.error.lock() = Some(error.to_string());
        }
    }

    async fn record(&self, barrier: &LazyReadBarrier) {
        let Some(read) = &self.read_barrier else { return };
        let record = async || {
            let failed = |error: &_| *self.error.lock() = Some(ToString::to_string(error));
            barrier.elected(self.resource, read.current_version_reporting(failed).await);
            *self.error.lock() = None;
        };
        self.elected.get_or_init(record).await;
    }

    /// The kind that cannot be listed, and the reason; `None` if the controllers have the kinds that they need.
    fn missing(&self) -> Option<String> {
        let plural = self.resource.plural;
        let error = self.error.lock().clone();
        let error = error.or_else(|| if self.ready.is_ready() { None } else { self.ready.list_error() });
        match error {
            Some(error) => Some(format!("cannot list {plural}: {error}")),
            None if self.is_in_bulk || self.ready.is_ready() => None,
            None => Some(format!("the first list of {plural} is not complete")),
        }
    }
}
