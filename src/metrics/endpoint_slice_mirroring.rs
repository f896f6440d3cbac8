//! The metrics of EndpointSlices that mirror Endpoints, under upstream's names (`pkg/controller/endpointslicemirroring/metrics`).

use prometheus::{Histogram, IntCounterVec, IntGauge};

use super::catalogue::Catalogue;
use super::endpoint_slices::ENDPOINT_BUCKETS;

/// Upstream's buckets of the duration of a sync, in seconds.
const DURATION_BUCKETS: &[f64] = &[
    0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384,
];

/// The metrics of EndpointSlices that mirror Endpoints.
pub struct EndpointSliceMirroringMetrics {
    /// Endpoints that slices gained in a sync.
    pub added_per_sync: Histogram,
    /// Endpoints of slices that changed in a sync.
    pub updated_per_sync: Histogram,
    /// Endpoints that slices lost in a sync.
    pub removed_per_sync: Histogram,
    /// Addresses that a sync left out.
    pub skipped_per_sync: Histogram,
    /// The duration of a sync, in seconds.
    pub sync_duration: Histogram,
    /// Endpoints that all slices should have.
    pub endpoints_desired: IntGauge,
    /// Slices of all Endpoints.
    pub slices: IntGauge,
    /// Slices that there would be if each but the last was full.
    pub ideal_slices: IntGauge,
    /// Writes, `{operation}`: create, update or delete.
    pub changes: IntCounterVec,
}

impl EndpointSliceMirroringMetrics {
    pub(super) fn new(catalogue: &Catalogue<'_>) -> Self {
        EndpointSliceMirroringMetrics {
            added_per_sync: catalogue.histogram(
                "endpoint_slice_mirroring_controller_endpoints_added_per_sync",
                "Endpoints that mirroring EndpointSlices gained in a sync.",
                ENDPOINT_BUCKETS,
            ),
            updated_per_sync: catalogue.histogram(
                "endpoint_slice_mirroring_controller_endpoints_updated_per_sync",
                "Endpoints of mirroring EndpointSlices that changed in a sync.",
                ENDPOINT_BUCKETS,
            ),
            removed_per_sync: catalogue.histogram(
                "endpoint_slice_mirroring_controller_endpoints_removed_per_sync",
                "Endpoints that mirroring EndpointSlices lost in a sync.",
                ENDPOINT_BUCKETS,
            ),
            skipped_per_sync: catalogue.histogram(
                "endpoint_slice_mirroring_controller_addresses_skipped_per_sync",
                "Addresses of Endpoints that were not mirrored in a sync, since they are invalid or too many.",
                ENDPOINT_BUCKETS,
            ),
            sync_duration: catalogue.histogram(
                "endpoint_slice_mirroring_controller_endpoints_sync_duration",
                "Duration of a sync of Endpoints in seconds.",
                DURATION_BUCKETS,
            ),
            endpoints_desired: catalogue.gauge(
                "endpoint_slice_mirroring_controller_endpoints_desired",
                "Endpoints that all mirroring EndpointSlices should have.",
            ),
            slices: catalogue.gauge(
                "endpoint_slice_mirroring_controller_num_endpoint_slices",
                "EndpointSlices that mirror Endpoints.",
            ),
            ideal_slices: catalogue.gauge(
                "endpoint_slice_mirroring_controller_desired_endpoint_slices",
                "EndpointSlices that there would be if each but the last of Endpoints was full.",
            ),
            changes: catalogue.counters(
                "endpoint_slice_mirroring_controller_changes",
                "Writes to EndpointSlices that mirror Endpoints.",
                &["operation"],
            ),
        }
    }
}
