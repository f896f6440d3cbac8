//! Passes the metadata of one resource on to the graph.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use prometheus::{Histogram, IntCounter};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::Collector;
use crate::controllers::object_counts::full_name;
use crate::metrics::Metrics;
use crate::model::Resource;
use crate::model::metadata::Metadata;
use crate::model::record::Encoded;
use crate::model::wire::Version;
use crate::plan::garbage::graph::{Graph, ResourceId};
use crate::runtime::reflector::{Accept, Destination};
use crate::runtime::request;

/// The groups whose objects say which resources there are.
const DEFINE_RESOURCES: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];

/// The queue of changes that kube-controller-manager's collector has before its graph.
const CHANGES_QUEUE: &str = "garbage_collector_graph_changes";

/// The metrics of that queue. Here a change waits for the graph alone, and the queue is always empty.
pub(super) struct GraphChanges {
    adds: IntCounter,
    waited: Histogram,
    took: Histogram,
}

impl GraphChanges {
    pub(super) fn new(metrics: &Metrics) -> Self {
        let name = &[CHANGES_QUEUE];
        metrics.workqueue_depth.with_label_values(name).set(0);
        GraphChanges {
            adds: metrics.workqueue_adds.with_label_values(name),
            waited: metrics.workqueue_queue_duration.with_label_values(name),
            took: metrics.workqueue_work_duration.with_label_values(name),
        }
    }

    /// Changes the graph.
    fn apply<R>(&self, graph: &Mutex<Graph>, change: impl FnOnce(&mut Graph) -> R) -> R {
        let arrived = Instant::now();
        let mut graph = graph.lock();
        let begun = Instant::now();
        let result = change(&mut graph);
        drop(graph);
        self.adds.inc();
        self.waited.observe(begun.duration_since(arrived).as_secs_f64());
        self.took.observe(begun.elapsed().as_secs_f64());
        result
    }
}

/// The destination of a resource's lists and watches.
pub(super) struct GraphWriter {
    collector: Arc<Collector>,
    id: ResourceId,
    resource: Resource,
    /// The name of the resource as in quotas.
    name: String,
    is_listing: bool,
    has_listed: bool,
    position: Arc<AtomicU64>,
    /// The last version, if it was no number: the watch goes on from there.
    opaque: Option<Version>,
    moved: watch::Sender<u64>,
    ends: watch::Sender<()>,
    /// Called when a list begins.
    begun: Arc<Notify>,
    objects: usize,
    undecodable: IntCounter,
}

impl GraphWriter {
    pub(super) fn new(
        collector: Arc<Collector>,
        id: ResourceId,
        resource: Resource,
        position: Arc<AtomicU64>,
        (moved, ends): (watch::Sender<u64>, watch::Sender<()>),
        begun: Arc<Notify>,
    ) -> Self {
        let labels = [resource.group, resource.plural];
        let undecodable = collector.context.metrics().informer_undecodable.with_label_values(&labels);
        GraphWriter {
            collector,
            id,
            name: full_name(resource.group, resource.plural),
            resource,
            is_listing: false,
            has_listed: false,
            position,
            opaque: None,
            moved,
            ends,
            begun,
            objects: 0,
            undecodable,
        }
    }

    fn advance(&mut self, object: &Metadata<'_>) {
        if let Ok(version) = Version::read(object.resource_version.as_str()) {
            self.advance_to(&version);
        }
    }

    fn advance_to(&mut self, version: &Version) {
        match version {
            _ if self.is_listing => {}
            Version::Number(number) => {
                self.opaque = None;
                if *number > self.position() {
                    self.set_position(*number);
                }
            }
            Version::Other(_) => self.opaque = Some(version.clone()),
        }
    }

    fn set_position(&mut self, version: u64) {
        self.position.store(version, Ordering::Release);
        self.moved.send_replace(version);
    }

    fn decode<'a>(&self, object: Encoded<'a>) -> Option<Metadata<'a>> {
        Metadata::read(object)
            .inspect_err(|error| {
                self.undecodable.inc();
                let resource = self.resource.plural;
                tracing::debug!(resource, %error, "an object without readable metadata is not collected");
            })
            .ok()
            .filter(|metadata| {
                self.undecodable.inc_by(u64::from(!metadata.has_uid()));
                metadata.has_uid()
            })
    }

    fn tell_of_kinds(&self) {
        if self.has_listed && DEFINE_RESOURCES.contains(&self.resource.group) {
            self.collector.kinds_changed.notify_one();
        }
    }
}

impl Destination for GraphWriter {
    fn accept(&self) -> Accept {
        let (list, watch) = (request::METADATA_LIST_PROTOBUF, request::METADATA_PROTOBUF);
        Accept { list, watch, list_in_json: request::METADATA_LIST, watch_in_json: request::METADATA }
    }

    fn may_be_removed(&self) -> bool {
        true
    }

    fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    fn resumes_at(&self) -> Version {
        self.opaque.clone().unwrap_or(Version::Number(self.position()))
    }

    fn takes_any_version(&self) -> bool {
        true
    }

    fn len(&self) -> usize {
        self.objects
    }

    fn is_listing(&self) -> bool {
        self.is_listing
    }

    fn begin_list(&mut self, _: bool) {
        (self.is_listing, self.objects) = (true, 0);
        self.collector.graph.lock().begin_list(self.id);
        self.begun.notify_one();
    }

    fn end_list(&mut self, version: &Version) {
        let (wakes, emptied) = {
            let mut graph = self.collector.graph.lock();
            (graph.end_list(self.id), graph.take_emptied())
        };
        self.collector.wake(wakes);
        self.collector.tell_of_ends(emptied);
        (self.is_listing, self.has_listed) = (false, true);
        // Kinds may have come since discovery was asked, and stand in this list.
        self.tell_of_kinds();
        // Beside versions that cannot be compared, 1 says that there has been a list, and that nothing else is known.
        self.set_position(version.number().unwrap_or_else(|_| self.position().max(1)));
        self.opaque = Some(version.clone()).filter(|version| version.number().is_err());
        if self.collector.counts.is_followed(&self.name) {
            self.collector.counts.tell(None, &self.name, false);
        }
    }

    fn end_watch(&mut self) {
        self.collector.graph.lock().doubt(self.id);
        self.ends.send_replace(());
    }

    fn put(&mut self, object: Encoded<'_>) {
        let Some(metadata) = self.decode(object) else { return };
        self.objects += usize::from(self.is_listing);
        let Collector { changes, graph, counts, .. } = &*self.collector;
        let (namespace, is_followed) = (metadata.namespace.as_str(), counts.is_followed(&self.name));
        let count = |graph: &Graph| if is_followed { graph.count(namespace, self.id) } else { 0 };
        let (wakes, is_more) = changes.apply(graph, |graph| {
            let before = count(graph);
            let wakes = graph.put(self.id, &metadata);
            (wakes, count(graph) > before)
        });
        self.collector.wake(wakes);
        // The end of a list is told of as a whole.
        if is_more && !self.is_listing {
            self.collector.counts.tell(Some(namespace), &self.name, true);
        }
        self.advance(&metadata);
        self.tell_of_kinds();
    }

    fn delete(&mut self, object: Encoded<'_>) {
        let Some(metadata) = self.decode(object) else { return };
        let Collector { changes, graph, .. } = &*self.collector;
        let remove = |graph: &mut Graph| (graph.remove(&metadata.uid), graph.take_emptied());
        let (wakes, emptied) = changes.apply(graph, remove);
        self.collector.wake(wakes);
        self.collector.tell_of_ends(emptied);
        if self.collector.counts.is_followed(&self.name) {
            self.collector.counts.tell(Some(metadata.namespace.as_str()), &self.name, false);
        }
        self.advance(&metadata);
        self.tell_of_kinds();
    }

    fn bookmark(&mut self, version: &Version) {
        self.advance_to(version);
    }
}
