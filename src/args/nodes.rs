//! The flags of the node lifecycle controller, as kube-controller-manager has them.

use clap::Args as Group;
use serde::Serialize;

/// When nodes are lost, and how fast they lose their pods.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Nodelifecycle controller flags")]
pub struct NodeArgs {
    /// Least time between two looks at a node to which nothing has happened, such as 5s. Windlass acts on changes at once.
    #[arg(long, value_name = "DURATION", default_value = "5s", env = "WINDLASS_NODE_MONITOR_PERIOD")]
    pub node_monitor_period: String,
    /// Time that a node may be silent before its conditions become Unknown. With 0s, which --test-bed sets, heartbeats are not
    /// judged, and a node whose condition says that it is not ready is tainted at once, whatever the eviction rate is.
    #[arg(long, value_name = "DURATION", default_value = "50s", env = "WINDLASS_NODE_MONITOR_GRACE_PERIOD")]
    pub node_monitor_grace_period: String,
    /// Time that a new node may be silent before its conditions become Unknown.
    #[arg(long, value_name = "DURATION", default_value = "60s", env = "WINDLASS_NODE_STARTUP_GRACE_PERIOD")]
    pub node_startup_grace_period: String,
    /// Nodes of a zone per second that begin to lose their pods because they are not ready; 0 or less: none.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0.1,
        allow_negative_numbers = true,
        env = "WINDLASS_NODE_EVICTION_RATE"
    )]
    pub node_eviction_rate: f64,
    /// The same while a zone is unhealthy and has more nodes than --large-cluster-size-threshold. In a smaller one no node does.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0.01,
        allow_negative_numbers = true,
        env = "WINDLASS_SECONDARY_NODE_EVICTION_RATE"
    )]
    pub secondary_node_eviction_rate: f64,
    /// The most nodes of an unhealthy zone in which no node begins to lose its pods.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 50,
        allow_negative_numbers = true,
        env = "WINDLASS_LARGE_CLUSTER_SIZE_THRESHOLD"
    )]
    pub large_cluster_size_threshold: i32,
    /// Fraction of the nodes of a zone, and at least 3, that must not be ready for the zone to be unhealthy.
    #[arg(
        long,
        value_name = "FRACTION",
        default_value_t = 0.55,
        allow_negative_numbers = true,
        env = "WINDLASS_UNHEALTHY_ZONE_THRESHOLD"
    )]
    pub unhealthy_zone_threshold: f64,
}
