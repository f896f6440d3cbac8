//! The one place where the sandbox and Windlass's controllers meet.

use std::time::Duration;

use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::app::{Controllers, Parts};
use windlass::clock::Clock;
use windlass::config::{ControllerConfig, Enabled};
use windlass::controllers::registry::CONTROLLERS;
use windlass::engine::entry::ControllerEntry;
use windlass::metrics::Metrics;
use windlass::plan::node_lifecycle::Limits;

/// The server is in this process: a rate limit would only slow the demonstration down.
const REQUESTS_PER_SECOND: u32 = 5000;

/// How long running syncs may take to finish.
const DRAIN: Duration = Duration::from_secs(3);

/// Which controllers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Those of workloads, which the daemon runs by default.
    pub workloads: bool,
    /// The garbage collector.
    pub garbage_collector: bool,
    /// The one that ends namespaces.
    pub namespace_controller: bool,
}

impl Running {
    /// All of them.
    pub const ALL: Running = Running { workloads: true, garbage_collector: true, namespace_controller: true };

    /// Those that any cluster has beside the workload controllers always run.
    fn enabled(self) -> Enabled {
        let Running { workloads, garbage_collector, namespace_controller } = self;
        let is_left_out = |entry: &&&ControllerEntry| match entry.name {
            // Nothing here has a certificate.
            "root-ca-certificate-publisher-controller" => true,
            "garbage-collector-controller" => !garbage_collector,
            "namespace-controller" => !namespace_controller,
            // It needs the one of ReplicationControllers beside it.
            "rollingupdate-controller" => !workloads,
            // A controller manager beside the sandbox has its own, and would write slices of other names.
            "endpointslice-controller" | "endpoints-controller" | "endpointslice-mirroring-controller" => {
                !workloads
            }
            // The same of the statuses of budgets, and of clocks.
            "disruption-controller" => !workloads,
            _ => entry.is_on_by_default && !workloads,
        };
        let left_out = CONTROLLERS.iter().filter(is_left_out);
        left_out.fold(Enabled::all(), |enabled, entry| enabled.without(entry.name))
    }
}

/// Starts controllers until the token is cancelled. They need no election: nobody else is there.
pub fn start(
    client: Client,
    running: Running,
    clock: Clock,
    seed: u64,
    shutdown: CancellationToken,
) -> JoinHandle<anyhow::Result<()>> {
    let config = ControllerConfig {
        qps: REQUESTS_PER_SECOND.into(),
        burst: REQUESTS_PER_SECOND,
        enabled: running.enabled(),
        // No other API server has to learn of the deletion.
        namespace_deletion_delay: Duration::ZERO,
        deletes_leftover_endpoint_slices: true,
        // The nodes have no heartbeats, and what a user writes about one is obeyed at once.
        node_limits: Limits { monitor_grace_period: Duration::ZERO, ..Limits::default() },
        ..ControllerConfig::default()
    };
    let parts = Parts {
        client: client.into(),
        host: "sandbox".into(),
        clock,
        seed,
        metrics: Metrics::new(),
        election: None,
    };
    tokio::spawn(Controllers::new(config, parts).run(shutdown, DRAIN))
}
