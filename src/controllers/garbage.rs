//! The garbage collector: deletes what has lost its last owner, and ends the deletions that wait for dependents.
//!
//! It watches the metadata of everything that the API server serves, and so needs rights over everything: it runs only if
//! it is named in `--controllers`. Its graph is built when the process begins to lead, not on a standby: what an owner's
//! absence needs is a proof and no complete graph, so that it acts while the first lists still arrive.

mod barrier;
mod execute;
mod expiring_uids;
mod finalizers;
mod judge;
mod kinds;
mod monitor;
mod owners;
mod record;
mod referents;
mod released;
mod shares;
mod unwatched;
mod watch;

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::namespace_content::NamespaceContent;
use super::object_counts::{ObjectCounts, Seen};
use crate::engine::context::Context;
use crate::engine::entry::{ControllerEntry, Requests, Worker};
use crate::engine::error::SyncError;
use crate::engine::setup::Setup;
use crate::metrics::set_gauge;
use crate::model::{ObjectKey, Resource, Uid};
use crate::plan::garbage::graph::{Emptied, Graph, NextStep, Wake};
use crate::runtime::api::Api;
use crate::runtime::list_turns::ListTurns;
use crate::runtime::worker::{Next, WorkQueue, run_workers};
use barrier::{Barrier, Deletion};
use expiring_uids::ExpiringUids;
use finalizers::Waiting;
use judge::Turns;
use kinds::Kinds;
use record::Record;
use released::Released;
use shares::Shares;
use unwatched::UnwatchedOwners;
pub(super) use watch::fixed;

/// Placeholder for the kind of a controller of objects of any kind. Its keys are UIDs, and none of its objects are
/// cached here.
pub const OF_ANY_KIND: Resource = Resource { group: "", version: "", kind: "GarbageCollector", plural: "" };

/// Its entry in the registry.
pub static ENTRY: ControllerEntry = ControllerEntry {
    name: "garbage-collector-controller",
    aliases: &["garbagecollector"],
    kind: OF_ANY_KIND,
    objects: "Objects whose owners may be gone",
    flag: "concurrent-gc-syncs",
    workers: 20,
    queue: "garbage_collector_attempt_to_delete",
    component: "garbage-collector-controller",
    watches: &[],
    stale_skips: None,
    is_on_by_default: false,
    is_upstream: true,
    // A deletion is one call, and a barrier a list of each kind, of which there are some 60. Upstream has 2 and 2.
    requests: Requests { qps: 5.0, burst: 10 },
    install,
};

/// The names of its other queues: objects that are deleted without their dependents, and after them.
const ORPHAN_QUEUE: &str = "garbage_collector_attempt_to_orphan";
const FOREGROUND_QUEUE: &str = "garbage_collector_end_foreground";

/// How long an owner that has not been seen may be late: the watches of two kinds are not equally fast.
const LATE: Duration = Duration::from_millis(500);

/// How long an answer about an owner that waits for its dependents counts for all of them: a second deletion can change the
/// policy, and then they must live.
const WAITS_FOR: Duration = Duration::from_secs(1);

fn install(setup: &mut Setup) -> Box<dyn Worker> {
    let context = setup.context().clone();
    let metrics = context.metrics().clone();
    let control = context.control_of(&ENTRY);
    if let Some(limits) = context.settings().resources.limits() {
        tracing::warn!("{limits}");
    }
    let collector = Arc::new(Collector {
        api: control.api.clone(),
        queue: control.queue.clone(),
        shares: Shares::new(control.queue.clone()),
        orphans: WorkQueue::new(ORPHAN_QUEUE, &metrics),
        foregrounds: WorkQueue::new(FOREGROUND_QUEUE, &metrics),
        graph: Mutex::default(),
        changes: monitor::GraphChanges::new(&metrics),
        kinds: Kinds::new(context.settings().resources.clone(), context.settings().scope.namespace.clone()),
        kinds_changed: Notify::new(),
        turns: ListTurns::new(watch::LISTS_AT_ONCE),
        turns_of_owners: Turns::default(),
        released: Mutex::default(),
        record: Record::default(),
        waiting_owners: Mutex::new(ExpiringUids::new(WAITS_FOR)),
        unwatched: UnwatchedOwners::default(),
        waiting: Waiting::default(),
        barrier: Barrier::default(),
        namespaces: setup.shared().0,
        counts: setup.shared().0,
        stop: CancellationToken::new(),
        context,
    });
    let weak = Arc::downgrade(&collector);
    collector.namespaces.counted_by(move |namespace, resource| {
        let collector = weak.upgrade()?;
        let resource = collector.kinds.synced(resource)?;
        Some(collector.graph.lock().count(namespace, resource))
    });
    if setup.is_enabled(&ENTRY) {
        let weak = Arc::downgrade(&collector);
        collector.counts.counted_by(move |namespace, resource| weak.upgrade()?.seen(namespace, resource));
    }
    let weak = Arc::downgrade(&collector);
    metrics.before_render(move || {
        let Some(collector) = weak.upgrade() else { return false };
        collector.measure();
        true
    });
    Box::new(collector)
}

/// The garbage collector.
pub struct Collector {
    context: Arc<Context>,
    api: Api,
    /// Objects to look at, by UID.
    queue: WorkQueue<ObjectKey>,
    /// How many of its workers each namespace has.
    shares: Shares,
    /// Objects that are being deleted without their dependents.
    orphans: WorkQueue<Uid>,
    /// Objects that are being deleted after their dependents, of which none is left that is known.
    foregrounds: WorkQueue<Uid>,
    graph: Mutex<Graph>,
    changes: monitor::GraphChanges,
    kinds: Kinds,
    /// Called when a resource may have come or gone.
    kinds_changed: Notify,
    /// The turns of the lists that fill the graph.
    turns: ListTurns,
    turns_of_owners: Turns,
    /// Owners whose `orphan` we took off.
    released: Mutex<Released>,
    record: Record,
    /// Owners that were read and waited for their dependents.
    waiting_owners: Mutex<ExpiringUids>,
    /// Owners of resources that are not watched.
    unwatched: UnwatchedOwners,
    /// Owners that wait for a barrier.
    waiting: Waiting,
    barrier: Barrier,
    /// The namespaces that wait for the last object of a kind.
    namespaces: Arc<NamespaceContent>,
    /// Whoever needs to know how many objects there are.
    counts: Arc<ObjectCounts>,
    stop: CancellationToken,
}

impl Collector {
    /// Looks at one object.
    ///
    /// # Errors
    /// When a request fails, or an owner can neither be seen nor be proved absent; the object is then looked at again.
    async fn sync(&self, uid: &Uid) -> Result<Next, SyncError> {
        let granted = self.shares.claim(&key(uid));
        if let Some(next) = self.look_at_unwatched(uid).await? {
            return Ok(next);
        }
        let next_step = self.graph.lock().next_step(uid);
        let namespace = match &next_step {
            NextStep::Delete { address, .. } | NextStep::Read(address) => Some(address.namespace.clone()),
            // That takes no requests, or a few.
            NextStep::Nothing | NextStep::Foreground { .. } => None,
        };
        let _slot = match namespace {
            // A slot granted to an object that needs no worker is passed on when this sync ends, which is now.
            None => granted,
            Some(namespace) => match granted.or_else(|| self.shares.take(&namespace, &key(uid))) {
                None => return Ok(Next::Unfinished),
                slot => slot,
            },
        };
        match next_step {
            NextStep::Nothing => {
                self.turns_of_owners.forget(uid);
                Ok(Next::Settled)
            }
            // The object loses the reference, and may live.
            NextStep::Delete { address, .. } if self.has_released_owner(uid) => {
                self.judge(uid, &address).await
            }
            NextStep::Delete { address, version, policy } => {
                self.delete_as_seen(uid, &address, version, policy).await
            }
            NextStep::Foreground { address, is_blocked, circle } => {
                if !is_blocked {
                    self.foregrounds.add(uid.clone());
                    return Ok(Next::Settled);
                }
                self.forget_foreground(uid);
                if !circle.is_empty() {
                    self.unblock(uid, &address, &circle).await?;
                }
                // It is woken when the last that blocks it is gone.
                Ok(Next::Settled)
            }
            NextStep::Read(address) => self.judge(uid, &address).await,
        }
    }

    /// Queues what an event has made necessary.
    fn wake(&self, wakes: Vec<Wake>) {
        for wake in wakes {
            match wake {
                Wake::Check(uid) => self.queue.add(key(&uid)),
                Wake::CheckLater(uid) => self.queue.add_after(key(&uid), LATE),
                Wake::Orphan(uid) => {
                    // An answer to an earlier deletion does not count for this one.
                    self.barrier.forget(&uid, Deletion::Orphaning);
                    self.orphans.add(uid);
                }
            }
        }
    }

    /// Tells who waits for it that nothing of a kind is left in a namespace.
    fn tell_of_ends(&self, emptied: Vec<Emptied>) {
        for Emptied { namespace, resource } in emptied {
            if !self.namespaces.is_awaited(&namespace) {
                continue;
            }
            if let Some(resource) = self.kinds.watched_as(resource) {
                self.namespaces.emptied(&namespace, &(resource.group, resource.plural));
            }
        }
    }

    /// How many objects of a resource a namespace has; `None` if the resource is not watched.
    fn seen(&self, namespace: &str, resource: &str) -> Option<Seen> {
        Some(match self.kinds.shown(resource)? {
            Ok((id, position)) => Seen::Count { objects: self.graph.lock().count(namespace, id), position },
            Err((reason, has_failed)) => Seen::Unknown { reason, has_failed },
        })
    }

    fn has_released_owner(&self, uid: &Uid) -> bool {
        if self.released.lock().is_empty(Instant::now()) {
            return false;
        }
        let owners = self.graph.lock().owners(uid);
        owners.iter().any(|owner| self.is_released(owner))
    }

    fn is_released(&self, owner: &Uid) -> bool {
        self.released.lock().contains(owner, Instant::now())
    }

    fn measure(&self) {
        let metrics = &self.context.metrics().garbage;
        let graph = self.graph.lock();
        set_gauge(&metrics.objects, graph.len());
        set_gauge(&metrics.bytes, graph.bytes());
        set_gauge(&metrics.unseen_owners, graph.unseen());
        drop(graph);
        set_gauge(&metrics.stuck_orphanings, self.waiting.stuck());
        for (state, count) in self.kinds.by_state() {
            set_gauge(&metrics.resources.with_label_values(&[state]), count);
        }
    }
}

/// The key of an object in the queue.
fn key(uid: &Uid) -> ObjectKey {
    ObjectKey::new("", uid.to_string())
}

impl Worker for Arc<Collector> {
    fn entry(&self) -> &'static ControllerEntry {
        &ENTRY
    }

    fn run(&self, workers: usize) -> BoxFuture<'static, ()> {
        let collector = self.clone();
        Box::pin(async move {
            collector.shares.of(workers);
            let (checking, orphaning, ending) = (collector.clone(), collector.clone(), collector.clone());
            let check = move |key: ObjectKey| {
                let collector = checking.clone();
                let sync: BoxFuture<'static, Result<Next, SyncError>> =
                    Box::pin(async move { collector.sync(&Uid::new(&key.name)).await });
                sync
            };
            let orphan = move |uid: Uid| {
                let collector = orphaning.clone();
                let sync: BoxFuture<'static, Result<Next, SyncError>> =
                    Box::pin(async move { collector.orphan(&uid).await });
                sync
            };
            let end = move |uid: Uid| {
                let collector = ending.clone();
                let sync: BoxFuture<'static, Result<Next, SyncError>> =
                    Box::pin(async move { collector.end_foreground(&uid).await });
                sync
            };
            let work = async {
                // Nothing is deleted before it is known which owners another process has let go.
                collector.stop.run_until_cancelled(collector.recall()).await;
                tokio::join!(
                    run_workers(collector.queue.clone(), workers, check),
                    run_workers(collector.orphans.clone(), workers, orphan),
                    run_workers(collector.foregrounds.clone(), workers, end),
                );
            };
            tokio::join!(
                work,
                collector.stop.run_until_cancelled(collector.clone().watch()),
                collector.stop.run_until_cancelled(collector.raise_barriers()),
            );
        })
    }

    fn shut_down(&self) {
        self.queue.shut_down();
        self.orphans.shut_down();
        self.foregrounds.shut_down();
        self.stop.cancel();
    }

    fn longest_running(&self) -> Duration {
        let others = self.orphans.longest_running().max(self.foregrounds.longest_running());
        self.queue.longest_running().max(others)
    }

    /// Nothing: what an owner's end makes necessary is found by the lists of a new leader, and retried until it is done.
    fn resync(&self) {}

    fn awaited_kinds(&self) -> &'static [Resource] {
        &[]
    }

    /// A standby has no keys: nothing is watched there.
    fn drop_deleted_keys(&self) {}
}
