//! The metrics of EndpointSlices, under upstream's names (`k8s.io/endpointslice/metrics`).

use prometheus::{Histogram, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec};

use super::catalogue::Catalogue;

/// Upstream's buckets of numbers of endpoints.
pub(super) const ENDPOINT_BUCKETS: &[f64] =
    &[2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0];

/// The default buckets of Prometheus, which upstream uses for numbers of slices.
const SLICE_BUCKETS: &[f64] = prometheus::DEFAULT_BUCKETS;

/// The metrics of EndpointSlices.
pub struct EndpointSliceMetrics {
    /// Endpoints that slices gained in a sync.
    pub added_per_sync: Histogram,
    /// Endpoints that slices lost in a sync.
    pub removed_per_sync: Histogram,
    /// Endpoints that all Services should have.
    pub endpoints_desired: IntGauge,
    /// Slices of all Services.
    pub slices: IntGauge,
    /// Slices that there would be if each but the last of a Service was full.
    pub ideal_slices: IntGauge,
    /// Writes, `{operation}`: create, update or delete.
    pub changes: IntCounterVec,
    /// Slices written in a sync, `{topology, traffic_distribution}`.
    pub changed_per_sync: HistogramVec,
    /// Syncs, `{result}`: success, error, or stale where a cache was older than our own writes.
    pub syncs: IntCounterVec,
    /// Services, `{traffic_distribution}`.
    pub services_by_distribution: IntGaugeVec,
    /// Syncs that were skipped because a cache was behind, `{group, resource}`.
    pub stale_skips: IntCounterVec,
}

impl EndpointSliceMetrics {
    pub(super) fn new(catalogue: &Catalogue<'_>) -> Self {
        EndpointSliceMetrics {
            added_per_sync: catalogue.histogram(
                "endpoint_slice_controller_endpoints_added_per_sync",
                "Endpoints that EndpointSlices gained in a sync of a Service.",
                ENDPOINT_BUCKETS,
            ),
            removed_per_sync: catalogue.histogram(
                "endpoint_slice_controller_endpoints_removed_per_sync",
                "Endpoints that EndpointSlices lost in a sync of a Service.",
                ENDPOINT_BUCKETS,
            ),
            endpoints_desired: catalogue.gauge(
                "endpoint_slice_controller_endpoints_desired",
                "Endpoints that all Services should have.",
            ),
            slices: catalogue
                .gauge("endpoint_slice_controller_num_endpoint_slices", "EndpointSlices of all Services."),
            ideal_slices: catalogue.gauge(
                "endpoint_slice_controller_desired_endpoint_slices",
                "EndpointSlices that there would be if each but the last of a Service was full.",
            ),
            changes: catalogue.counters(
                "endpoint_slice_controller_changes",
                "Writes to EndpointSlices.",
                &["operation"],
            ),
            changed_per_sync: catalogue.histograms(
                "endpoint_slice_controller_endpointslices_changed_per_sync",
                "EndpointSlices that were written in a sync of a Service.",
                &["topology", "traffic_distribution"],
                SLICE_BUCKETS,
            ),
            syncs: catalogue.counters(
                "endpoint_slice_controller_syncs",
                "Syncs of the EndpointSlices of Services, by result.",
                &["result"],
            ),
            services_by_distribution: catalogue.gauges(
                "endpoint_slice_controller_services_count_by_traffic_distribution",
                "Services with each traffic distribution.",
                &["traffic_distribution"],
            ),
            stale_skips: catalogue.counters(
                "endpoint_slice_controller_stale_sync_skips_total",
                "Syncs of Services skipped because a cache was older than Windlass' own writes.",
                &["group", "resource"],
            ),
        }
    }

    /// Counts the skipped syncs among all syncs, as upstream does.
    pub(crate) fn count_stale_syncs(&self) {
        let skipped = self.stale_skips.with_label_values(&["", "services"]).get();
        let stale = self.syncs.with_label_values(&["stale"]);
        stale.inc_by(skipped.saturating_sub(stale.get()));
    }
}
