//! The composition root: builds every component once, runs them, and ends them in a stated order.
//!
//! With leader election every process keeps its caches current, and only the elected one syncs. On
//! shutdown no new sync starts, the running ones finish, events are flushed, the lease is released, the
//! watches end, and HTTP last. A component that ends before that is an error that names it.

mod build;
mod kinds;
mod lease_thread;
mod life;
mod root_ca;
mod serving;
mod tasks;
mod work;
mod workload_index;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use futures::future::BoxFuture;
use jiff::tz::TimeZone;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use windlass_cron_schedule::zone;

use crate::clock::Clock;
use crate::config::{Config, ControllerConfig};
use crate::engine::{Context as Shared, Worker};
use crate::logging::Verbosity;
use crate::metrics::Metrics;
use crate::runtime::client::{self, Client};
use crate::runtime::events::EventWriter;
use crate::runtime::informers::Informers;
use crate::runtime::leader_election::fence::Fence;
use crate::runtime::leader_election::lease::{Election, Watchdog};
use crate::runtime::leader_election::rules::ElectionOptions;
use crate::runtime::read_barrier::ReadBarrier;
use crate::version;
use kinds::WatchedKinds;
use lease_thread::LeaseThread;
use life::Life;
pub use serving::{Reader, http_router};
use serving::{Servers, Serving};

/// Runs the daemon until `shutdown`. `verbosity` is what `/debug/flags/v` changes.
///
/// # Errors
/// When the API server cannot be found, a port cannot be bound, a component ends unexpectedly, or the lease is lost.
//
// Boxed, so that the compiler makes it once, with this library: an `async fn` is made anew in each crate that awaits
// it.
pub fn run(
    config: Config,
    verbosity: Verbosity,
    seed: u64,
    shutdown: CancellationToken,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(daemon(config, verbosity, seed, shutdown))
}

async fn daemon(
    config: Config,
    verbosity: Verbosity,
    seed: u64,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let drain = config.shutdown_timeout;
    let stop_http = CancellationToken::new();
    let _stop_on_return = stop_http.clone().drop_guard();
    let lease_thread = config.election.as_ref().map(|_| LeaseThread::start()).transpose();
    let lease_thread = lease_thread.context("cannot start the thread of the leader election")?;
    let lease_handle = lease_thread.as_ref().and_then(LeaseThread::handle);
    // Its credentials may come from a program that hangs, and the API server may be away.
    let starting = start(config, verbosity, seed, lease_handle, &stop_http);
    let Some(started) = shutdown.run_until_cancelled(starting).await else {
        tracing::info!("stopped before the start was complete; nothing was written");
        return Ok(());
    };
    let (controllers, mut servers) = started?;
    let result = tokio::select! {
        result = controllers.run(shutdown, drain) => result,
        Some(ended) = servers.join_next() => bail!("an HTTP server ended unexpectedly: {ended:?}"),
    };
    stop_http.cancel();
    while let Some(ended) = servers.join_next().await {
        ended.context("an HTTP server panicked")?.context("an HTTP server failed")?;
    }
    result
}

/// The zone of schedules that name none: that of `TZ`, else UTC. The zone of the machine would differ between replicas.
fn local_time_zone(name: Option<&str>) -> TimeZone {
    let name = name.unwrap_or_default();
    zone(name.strip_prefix(':').unwrap_or(name), jiff::tz::db()).unwrap_or_else(|error| {
        tracing::warn!(%error, TZ = name, "schedules of CronJobs without a time zone are in UTC");
        TimeZone::UTC
    })
}

/// Finds the API server, builds the controllers, and starts to serve.
async fn start(
    config: Config,
    verbosity: Verbosity,
    seed: u64,
    lease_thread: Option<Handle>,
    stop_http: &CancellationToken,
) -> anyhow::Result<(Controllers, Servers)> {
    // Without `..`, so that a new setting cannot be forgotten here.
    let Config {
        client,
        mut controllers,
        root_ca_file,
        election,
        serving: secure,
        insecure_address,
        settings,
        shutdown_timeout: _,
        logging: _,
    } = config;
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    tracing::info!(version = version::version(), os, arch, "windlass starts");
    let connect = || client::connect(&client, &|name| std::env::var(name).ok());
    let connection = connect().await?;
    tracing::info!(host = connection.host, source = connection.source, "connecting to the API server");
    let election = match election {
        None => None,
        Some(options) => Some(Candidacy { client: connect().await?.client, options, thread: lease_thread }),
    };
    controllers.relists_after_breaks = election.is_none();
    controllers.local_time_zone = local_time_zone(std::env::var("TZ").ok().as_deref());
    controllers.root_ca = root_ca::find(root_ca_file.as_deref(), &connection, &controllers.enabled)?;
    let metrics = Metrics::new();
    let parts = Parts {
        client: connection.client.clone(),
        host: connection.host.clone(),
        clock: Clock::System,
        seed,
        metrics: metrics.clone(),
        election,
    };
    let controllers = Controllers::new(controllers, parts);
    let serving = Serving { secure, insecure_address, settings, verbosity };
    let servers = serving.start(&connection, metrics, &controllers, stop_http).await?;
    Ok((controllers, servers))
}

/// The inputs for the controllers.
#[derive(Clone)]
pub struct Parts {
    /// The client for the API server.
    pub client: Client,
    /// Host and port of the API server, for metrics.
    pub host: String,
    /// The time.
    pub clock: Clock,
    /// Seeds randomness: jitter, and the identity of a candidate.
    pub seed: u64,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The leader election; `None` acts at once.
    pub election: Option<Candidacy>,
}

/// The inputs for the leader election.
#[derive(Clone)]
pub struct Candidacy {
    /// A client of its own, with connections that no other call can occupy.
    pub client: Client,
    /// The options.
    pub options: ElectionOptions,
    /// The runtime that it runs on; `None` runs it among everything else.
    pub thread: Option<Handle>,
}

/// The controllers, built and not yet running.
pub struct Controllers {
    context: Arc<Shared>,
    informers: Informers,
    workers: Arc<[Box<dyn Worker>]>,
    events: EventWriter,
    election: Option<(Election, Watchdog)>,
    lease_thread: Option<Handle>,
    fence: Option<Fence>,
    config: ControllerConfig,
    /// The read barriers of a new leader; empty without an election.
    read_barriers: Vec<Arc<ReadBarrier>>,
    /// The kinds that the controllers wait for.
    kinds: Arc<WatchedKinds>,
    /// Seeds the jitter of what is started later.
    seed: u64,
}

impl Controllers {
    /// Runs until `shutdown`, then drains for at most `drain`.
    ///
    /// # Errors
    /// When a component ends unexpectedly, the lease is lost, or the running syncs do not finish in time.
    //
    // Boxed for the same reason as the function above.
    pub fn run(self, shutdown: CancellationToken, drain: Duration) -> BoxFuture<'static, anyhow::Result<()>> {
        Box::pin(self.run_and_drain(shutdown, drain))
    }

    async fn run_and_drain(self, shutdown: CancellationToken, drain: Duration) -> anyhow::Result<()> {
        let mut life = Life::begin(self, shutdown);
        if !life.fill_caches().await? {
            return Ok(());
        }
        if life.lead().await? {
            life.start_workers().await?;
            life.work().await?;
        }
        life.end(drain).await
    }
}

#[cfg(test)]
mod tests {
    use super::local_time_zone;

    #[test]
    fn schedules_without_a_zone_are_in_utc_or_in_that_of_tz() {
        for (name, zone) in [
            (None, "UTC"),
            (Some(""), "UTC"),
            (Some("Europe/Berlin"), "Europe/Berlin"),
            (Some(":Europe/Berlin"), "Europe/Berlin"),
            (Some("europe/berlin"), "UTC"),
            (Some("/etc/localtime"), "UTC"),
        ] {
            assert_eq!(local_time_zone(name).iana_name(), Some(zone), "{name:?}");
        }
    }
}
