//! How the simulated cluster behaves.

use std::time::Duration;

use super::outcomes::ImageOutcome;
use crate::api_client::Now;

/// How the simulated cluster behaves.
#[derive(Clone)]
pub struct Options {
    /// The time that is written into statuses.
    pub now: Now,
    /// The kubelet version that the nodes report: that of the API server.
    pub version: String,
    /// How many nodes to create if the cluster has none. Zero creates none.
    pub nodes: usize,
    /// Labels of the nodes that it creates.
    pub node_labels: Vec<NodeLabel>,
    /// Taints of the nodes that it creates.
    pub node_taints: Vec<NodeTaint>,
    /// How often each node renews its Lease; `None` is never. Needed where a node lifecycle controller runs.
    pub heartbeat: Option<Duration>,
    /// Whether the nodes also do the work of a cluster's node lifecycle and taint eviction controllers: taints that follow from the
    /// state of a node, pods that are not ready because their node is not, and evictions. `false` beside these controllers.
    pub node_lifecycle: bool,
    /// From a pod's binding to its readiness.
    pub ready_delay: Duration,
    /// From a pod's deletion to its end, if its grace period is not shorter.
    pub shutdown_delay: Duration,
    /// Containers whose image matches never start: ImagePullBackOff for ever.
    pub never_ready: Option<regex_lite::Regex>,
    /// How the containers end that run certain images; the first that matches counts.
    pub pod_outcomes: Vec<ImageOutcome>,
    /// Whether claims are bound to volumes, made up where a StorageClass has a provisioner, and pods wait for their claims.
    pub volumes: bool,
    /// Whether to write the events that `kubectl describe pod` shows. They double the number of writes.
    pub events: bool,
}

/// A label of one of the nodes, or of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLabel {
    /// The name of the node; `None` is every node.
    pub node: Option<String>,
    /// The key.
    pub key: String,
    /// The value, which may be empty.
    pub value: String,
}

/// A taint of one of the nodes, or of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeTaint {
    /// The name of the node; `None` is every node.
    pub node: Option<String>,
    /// The key.
    pub key: String,
    /// The value, which may be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Options {
            now: _,
            version,
            nodes,
            node_labels,
            node_taints,
            heartbeat,
            node_lifecycle,
            ready_delay,
            shutdown_delay,
            never_ready,
            pod_outcomes,
            volumes,
            events,
        } = self;
        f.debug_struct("Options")
            .field("version", version)
            .field("nodes", nodes)
            .field("node_labels", node_labels)
            .field("node_taints", node_taints)
            .field("heartbeat", heartbeat)
            .field("node_lifecycle", node_lifecycle)
            .field("ready_delay", ready_delay)
            .field("shutdown_delay", shutdown_delay)
            .field("never_ready", never_ready)
            .field("pod_outcomes", pod_outcomes)
            .field("volumes", volumes)
            .field("events", events)
            .finish_non_exhaustive()
    }
}

impl Options {
    /// Three nodes without controllers for them, half a second until ready and to end, every image good, events written, no
    /// heartbeats, no volumes.
    pub fn new(now: Now) -> Self {
        Options {
            now,
            version: super::nodes::KUBELET_VERSION.to_owned(),
            nodes: 3,
            node_labels: Vec::new(),
            node_taints: Vec::new(),
            heartbeat: None,
            node_lifecycle: true,
            ready_delay: Duration::from_millis(500),
            shutdown_delay: Duration::from_millis(500),
            never_ready: None,
            pod_outcomes: Vec::new(),
            volumes: false,
            events: true,
        }
    }
}
