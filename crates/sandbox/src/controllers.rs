//! The one place where the sandbox and Windlass's controllers meet.

use std::time::Duration;

use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::app::{Controllers, Parts};
use windlass::clock::Clock;
use windlass::config::ControllerConfig;
use windlass::metrics::Metrics;

/// The server is in this process: a rate limit would only slow the demonstration down.
const REQUESTS_PER_SECOND: u32 = 5000;

/// How long running syncs may take to finish.
const DRAIN: Duration = Duration::from_secs(3);

/// Starts the controllers until the token is cancelled. They need no election: nobody else is there.
pub fn start(
    client: Client,
    clock: Clock,
    seed: u64,
    shutdown: CancellationToken,
) -> JoinHandle<anyhow::Result<()>> {
    let config = ControllerConfig {
        qps: REQUESTS_PER_SECOND.into(),
        burst: REQUESTS_PER_SECOND,
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
