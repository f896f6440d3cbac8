//! The metrics of the garbage collector.

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use super::catalogue::Catalogue;

/// Ten milliseconds to five minutes: a barrier is a list of each resource.
const BARRIER_BUCKETS: &[f64] = &[0.01, 0.03, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

/// Metrics of the garbage collector.
pub struct GarbageMetrics {
    /// Objects in the graph.
    pub objects: IntGauge,
    /// Bytes that the graph takes.
    pub bytes: IntGauge,
    /// Owners that were not seen and not proved absent.
    pub unseen_owners: IntGauge,
    /// Resources, `{state}`: `synced`, `listing`, or `broken` for one that has not answered for a minute.
    pub resources: IntGaugeVec,
    /// How often discovery failed, for all groups or for one; upstream's.
    pub sync_errors: IntCounter,
    /// Deletions of objects because no owner is left, `{result}`: `deleted`; `gone` for one that was deleted before;
    /// `conflict` for one that has changed, and is judged again; `failed`.
    pub deletions: IntCounterVec,
    /// Attempts to end a deletion without the dependents, `{result}`: `orphaned`; `dropped` for one that was deleted
    /// otherwise meanwhile; `unread` while an object that cannot be read may be a dependent; `failed`.
    pub orphanings: IntCounterVec,
    /// Owners that keep `orphan` because a resource cannot be read.
    pub stuck_orphanings: IntGauge,
    /// Seconds that it took to learn from all resources who refers to the owners that wait.
    pub barrier_duration: Histogram,
}

impl GarbageMetrics {
    pub(super) fn new(catalogue: &Catalogue<'_>) -> Self {
        GarbageMetrics {
            objects: catalogue.gauge("windlass_garbage_objects", "Objects in the graph of the garbage collector."),
            bytes: catalogue
                .gauge("windlass_garbage_graph_bytes", "Bytes that the graph of the garbage collector takes."),
            unseen_owners: catalogue.gauge(
                "windlass_garbage_unseen_owners",
                "Owners that objects refer to and that were neither seen nor proved absent.",
            ),
            resources: catalogue.gauges(
                "windlass_garbage_resources",
                "Resources that the garbage collector watches, by state; broken ones have not answered for a minute.",
                &["state"],
            ),
            sync_errors: catalogue.counter(
                "garbagecollector_controller_resources_sync_error_total",
                "Failures of discovery, for all API groups or for one.",
            ),
            deletions: catalogue.counters(
                "windlass_garbage_deletions_total",
                "Deletions of objects without an owner that the garbage collector requested, by result: deleted, gone, conflict or failed.",
                &["result"],
            ),
            orphanings: catalogue.counters(
                "windlass_garbage_orphanings_total",
                "Attempts to end a deletion that leaves the dependents, by result: orphaned, dropped, unread or failed.",
                &["result"],
            ),
            stuck_orphanings: catalogue.gauge(
                "windlass_garbage_stuck_orphanings",
                "Owners that keep the finalizer orphan, because a resource with possible dependents cannot be read.",
            ),
            barrier_duration: catalogue.histogram(
                "windlass_garbage_barrier_duration_seconds",
                "Time to learn from all resources who refers to the owners whose deletion waits for that.",
                BARRIER_BUCKETS,
            ),
        }
    }
}
