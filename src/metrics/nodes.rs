//! The metrics of nodes and of evictions by their taints, under upstream's names (`pkg/controller/nodelifecycle/metrics.go`,
//! `pkg/controller/tainteviction/metrics`).

use prometheus::{GaugeVec, Histogram, IntCounter, IntCounterVec, IntGaugeVec};

use super::catalogue::Catalogue;

/// Upstream's buckets of the look at one node, in seconds.
const NODE_BUCKETS: &[f64] = &[0.001, 0.004, 0.016, 0.064, 0.256, 1.024, 4.096, 16.384];

/// Upstream's buckets of the look at all nodes, in seconds.
const ALL_NODES_BUCKETS: &[f64] = &[0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84];

/// Upstream's buckets of evictions, in seconds.
const EVICTION_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];

/// The metrics of nodes.
pub struct NodeMetrics {
    /// The percentage of nodes that are ready, `{zone}`.
    pub zone_health: GaugeVec,
    /// Nodes, `{zone}`.
    pub zone_size: IntGaugeVec,
    /// Nodes that are not ready, `{zone}`.
    pub unhealthy: IntGaugeVec,
    /// Nodes that began to lose their pods, `{zone}`.
    pub evictions: IntCounterVec,
    /// Seconds of a sync of a node.
    pub update_one: Histogram,
    /// Seconds of the look at the zones of all nodes.
    pub update_all: Histogram,
    /// Pods that were evicted because of taints.
    pub pod_deletions: IntCounter,
    /// Seconds from when an eviction was due to the deletion.
    pub pod_deletion_duration: Histogram,
}

impl NodeMetrics {
    pub(super) fn new(catalogue: &Catalogue<'_>) -> Self {
        NodeMetrics {
            zone_health: catalogue.float_gauges(
                "node_collector_zone_health",
                "Percentage of the nodes of a zone that are ready.",
                &["zone"],
            ),
            zone_size: catalogue.gauges("node_collector_zone_size", "Nodes of a zone.", &["zone"]),
            unhealthy: catalogue.gauges(
                "node_collector_unhealthy_nodes_in_zone",
                "Nodes of a zone that are not ready.",
                &["zone"],
            ),
            evictions: catalogue.counters(
                "node_collector_evictions_total",
                "Nodes that began to lose their pods because they were not ready.",
                &["zone"],
            ),
            update_one: catalogue.histogram(
                "node_collector_update_node_health_duration_seconds",
                "Duration of a sync of a node.",
                NODE_BUCKETS,
            ),
            update_all: catalogue.histogram(
                "node_collector_update_all_nodes_health_duration_seconds",
                "Duration of the computation of the zones of all nodes.",
                ALL_NODES_BUCKETS,
            ),
            pod_deletions: catalogue.counter(
                "taint_eviction_controller_pod_deletions_total",
                "Pods evicted because of taints of their nodes.",
            ),
            pod_deletion_duration: catalogue.histogram(
                "taint_eviction_controller_pod_deletion_duration_seconds",
                "Time from when the eviction of a pod was due to its deletion.",
                EVICTION_BUCKETS,
            ),
        }
    }
}
