//! Keeps a watch on every resource that is served: they come and go while the others run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::Collector;
use super::kinds::{Monitor, is_same};
use super::monitor::GraphWriter;
use crate::model::Resource;
use crate::model::discovered::{Discovered, DiscoveredResource};
use crate::plan::garbage::graph::{GraphResource, ResourceId};
use crate::runtime::discovery::Discovery;
use crate::runtime::informer::InformerOptions;
use crate::runtime::reachability::Reachability;
use crate::runtime::reflector::Reflector;

/// How often the API server is asked which resources it serves. While nothing changes the answer is a 304.
const PERIOD: Duration = Duration::from_secs(30);

/// How long after a definition has changed; the API server serves the kind a moment later.
const SETTLES_IN: Duration = Duration::from_millis(100);

/// The pause after an attempt that failed.
const PAUSE: Duration = Duration::from_secs(2);

/// How many lists are under way at a time: each brings all objects of a resource.
pub(super) const LISTS_AT_ONCE: usize = 4;

/// How many watches share a connection. API servers allow 100 requests, and a watch that is resumed may be two for a moment.
const WATCHES_PER_CONNECTION: u64 = 50;

/// How long the first list of a resource, once it has begun, may keep the dependents of its objects waiting.
const LONGEST_FIRST_LIST: Duration = Duration::from_secs(30);

/// How long the watch of a resource that is not served any more may go on. It ends soon by itself: until then it may bring
/// the deletions of the last objects, which nobody could ask for afterwards.
const DRAINED_FOR: Duration = Duration::from_secs(30);

/// The watch of a resource that is not served any more.
struct Leaving {
    monitor: Monitor,
    until: Instant,
}

/// The watches. They hold the collector, so that it holds none of them, and they end with the future that keeps them.
#[derive(Default)]
struct Watches {
    tasks: BTreeMap<ResourceId, AbortOnDropHandle<()>>,
    leaving: BTreeMap<ResourceId, Leaving>,
}

impl Watches {
    fn leave_soon(&mut self, id: ResourceId, mut monitor: Monitor) {
        monitor.ends.mark_unchanged();
        self.leaving.insert(id, Leaving { monitor, until: Instant::now() + DRAINED_FOR });
    }

    /// The first that is not served any more and whose watch ends, or has had its time; for ever, if there is none.
    async fn next(&mut self) -> ResourceId {
        let ends = self.leaving.iter_mut().map(|(id, Leaving { monitor, until })| {
            let (id, end) = (*id, tokio::time::timeout_at(*until, monitor.ends.changed()));
            end.map(move |_| id).boxed()
        });
        let ends: Vec<_> = ends.collect();
        if ends.is_empty() {
            return std::future::pending().await;
        }
        futures::future::select_all(ends).await.0
    }
}

impl Collector {
    /// Watches what is served, for ever.
    pub(super) async fn watch(self: Arc<Self>) {
        let mut discovery = Discovery::new(self.api.clone());
        let mut last: Option<Arc<Discovered>> = None;
        let mut watches = Watches::default();
        loop {
            let pause = match discovery.refresh().await {
                Ok(found) => {
                    if last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, &found)) {
                        self.adapt(&found, &mut watches);
                        last = Some(found);
                    }
                    PERIOD
                }
                Err(error) => {
                    self.context.metrics().garbage.sync_errors.inc();
                    tracing::warn!(%error, "the resources of the API server are unknown; those that are watched stay");
                    PAUSE
                }
            };
            self.review_released().await;
            let again = Instant::now() + pause;
            loop {
                tokio::select! {
                    () = self.kinds_changed.notified() => {
                        tokio::time::sleep(SETTLES_IN).await;
                        break;
                    }
                    () = tokio::time::sleep_until(again) => break,
                    id = watches.next() => self.leave(id, &mut watches),
                }
            }
        }
    }

    fn adapt(self: &Arc<Self>, found: &Arc<Discovered>, watches: &mut Watches) {
        for failed in &found.failed {
            self.context.metrics().garbage.sync_errors.inc();
            let (group, error) = (failed.group_version(), &failed.message);
            tracing::warn!(group, error, "discovery failed for a group; what is known of it stays");
        }
        let serves_more = self.kinds.serves_more(found);
        let (new, gone) = self.kinds.found(found.clone());
        for (id, monitor) in gone {
            let resource = &monitor.resource.plural;
            tracing::info!(resource, "resource is not served any more; its objects are left alone");
            watches.leave_soon(id, monitor);
        }
        let is_new = |(_, leaving): &(&ResourceId, &Leaving)| {
            new.iter().any(|resource| is_same(resource, &leaving.monitor.resource))
        };
        let replaced: Vec<ResourceId> = watches.leaving.iter().filter(is_new).map(|(id, _)| *id).collect();
        replaced.into_iter().for_each(|id| self.leave(id, watches));
        for resource in new {
            watches.tasks.extend(self.begin(resource));
        }
        self.counts.found(found);
        // Objects whose owners are of a kind that is not watched can be judged now.
        if serves_more {
            let wakes = self.graph.lock().more_is_served();
            self.wake(wakes);
        }
    }

    fn leave(&self, id: ResourceId, watches: &mut Watches) {
        watches.leaving.remove(&id);
        watches.tasks.remove(&id);
        let wakes = self.graph.lock().remove_resource(id);
        self.wake(wakes);
    }

    /// Begins to watch a resource.
    fn begin(self: &Arc<Self>, resource: DiscoveredResource) -> Option<(ResourceId, AbortOnDropHandle<()>)> {
        let DiscoveredResource { group, kind, plural, namespaced, .. } = &resource;
        let (group, kind, plural) = (group.clone(), kind.clone(), plural.clone());
        let added =
            self.graph.lock().add_resource(&GraphResource { group, kind, plural, namespaced: *namespaced });
        let Some((id, wakes)) = added else {
            tracing::error!(
                resource = resource.plural,
                "too many resources have come and gone; this one is not watched"
            );
            return None;
        };
        let (position, reachability) = (Arc::new(AtomicU64::new(0)), Reachability::default());
        let ((moves, moved), (ended, ends)) = (watch::channel(0), watch::channel(()));
        let fixed = fixed(&resource);
        let begun = Arc::<Notify>::default();
        let writer =
            GraphWriter::new(self.clone(), id, fixed, position.clone(), (moves, ended), begun.clone());
        let options = InformerOptions {
            namespace: self.kinds.namespace.clone(),
            seed: self.context.settings().seed ^ u64::from(id),
            turns: Some(self.turns.clone()),
            relists_after_breaks: self.context.settings().relists_after_breaks,
            lost_history: self.context.lost_history.clone(),
            ..InformerOptions::default()
        };
        let api = self.api.over_shared_connection(u64::from(id) / WATCHES_PER_CONNECTION);
        let (ready, relist) = (watch::Sender::new(false), Arc::<Notify>::default());
        let again = relist.clone();
        let reflector =
            Reflector::new(fixed, api, options, Box::new(writer), ready, relist, reachability.clone());
        let mut lost_histories = self.context.lost_histories.subscribe();
        let collector = self.clone();
        let task = tokio::spawn(async move {
            let patience = async {
                begun.notified().await;
                tokio::time::sleep(LONGEST_FIRST_LIST).await;
                collector.stop_waiting_for(id);
                std::future::pending().await
            };
            // The sender lives as long as the collector.
            let listing_anew = async {
                while lost_histories.changed().await.is_ok() {
                    again.notify_one();
                }
            };
            tokio::select! {
                biased;
                never = reflector.run() => match never {},
                () = patience => {}
                () = listing_anew => {}
            }
        });
        self.kinds.watched(id, Monitor { resource, position, moved, reachability, ends });
        self.wake(wakes);
        Some((id, AbortOnDropHandle::new(task)))
    }

    fn stop_waiting_for(&self, id: ResourceId) {
        let wakes = self.graph.lock().stop_waiting_for(id);
        self.wake(wakes);
    }
}

/// A discovered resource in the form of those that the program is written for.
///
/// Their names live as long as the process. Each is kept once, so that the price is a few bytes for each name that the API
/// server has ever served, and not for each time that a definition comes and goes.
pub(in crate::controllers) fn fixed(resource: &DiscoveredResource) -> Resource {
    let DiscoveredResource { group, version, kind, plural, .. } = resource;
    Resource {
        group: lasting(group),
        version: lasting(version),
        kind: lasting(kind),
        plural: lasting(plural),
    }
}

fn lasting(name: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock();
    match names.get(name) {
        Some(known) => known,
        None => {
            let name: &'static str = Box::leak(name.into());
            names.insert(name);
            name
        }
    }
}
