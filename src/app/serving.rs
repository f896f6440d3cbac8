//! The HTTP servers of the daemon: HTTPS with authorization, and plain HTTP on loopback.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Controllers;
use super::workload_index::Index;
use crate::clock::Clock;
use crate::config::ServingConfig;
use crate::engine::Context as Shared;
use crate::engine::explanations::Explained;
use crate::http::health::wedged_after;
use crate::http::{self, Checks, Limits, Reviewers, SecureServer, ServingMetrics};
use crate::logging::Verbosity;
use crate::metrics::Metrics;
use crate::model::{CronJob, DaemonSet, Deployment, Job, ObjectKey, Record, ResourceQuota, StatefulSet};
use crate::runtime::client::{self, ClientOptions, Connection};
use crate::runtime::worker::SYNCS_PER_WORKER;

/// The content to serve, and the addresses.
pub(super) struct Serving {
    pub secure: Option<ServingConfig>,
    pub insecure_address: Option<SocketAddr>,
    pub settings: serde_json::Value,
    pub verbosity: Verbosity,
}

/// The servers, which run until they are stopped.
pub(super) type Servers = JoinSet<std::io::Result<()>>;

impl Serving {
    /// Starts to serve; errors are reported before anything else happens.
    pub async fn start(
        self,
        connection: &Connection,
        metrics: Arc<Metrics>,
        controllers: &Controllers,
        stop: &CancellationToken,
    ) -> anyhow::Result<Servers> {
        let Serving { secure, insecure_address, settings, verbosity } = self;
        let counters = ServingMetrics::new(&metrics);
        let router = http::router(metrics.clone(), checks(controllers))
            .merge(http::zpages(Clock::System, &settings))
            .merge(http::configz("windlass.config", move || settings.clone()));
        let mut servers = Servers::new();
        if let Some(ServingConfig { options, authentication_kubeconfig, authorization_kubeconfig }) = secure {
            let mut router = router.clone().merge(explanations(controllers, Reader::Known));
            if options.serving.profiling {
                // Over HTTPS only: a client that changes the verbosity must be authenticated.
                router = router.merge(http::profiling()).merge(http::verbosity(move |level| {
                    verbosity.set(level).map(|()| format!("the verbosity is {level} now"))
                }));
            }
            let reviewers = |connection: &Connection| {
                Reviewers::new(connection.client.clone(), &connection.host, metrics.clone())
            };
            let mut both = reviewers(connection);
            if let Some(file) = authentication_kubeconfig {
                both.authentication = reviewers(&connect(&file, "authentication").await?).authentication;
            }
            if let Some(file) = authorization_kubeconfig {
                both.authorization = reviewers(&connect(&file, "authorization").await?).authorization;
            }
            let server = SecureServer::bind(&options, router, both, counters.clone(), Clock::System).await?;
            let address = server.local_addr()?;
            tracing::info!(%address, "serving metrics, health and explanations over HTTPS");
            let stop = stop.clone();
            servers.spawn(async move {
                server.run(stop).await;
                Ok(())
            });
        }
        if let Some(address) = insecure_address {
            let router = router.merge(explanations(controllers, Reader::AnyClient));
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("--insecure-port: cannot listen on {address}"))?;
            tracing::info!(%address, "serving metrics, health and explanations over plain HTTP");
            servers.spawn(http::serve(listener, router, Limits::default(), counters, stop.clone()));
        }
        Ok(servers)
    }
}

async fn connect(kubeconfig: &Path, flag: &str) -> anyhow::Result<Connection> {
    let options = ClientOptions { kubeconfig: Some(kubeconfig.to_owned()), master: None };
    let connected = client::connect(&options, &|name| std::env::var(name).ok()).await;
    connected.with_context(|| format!("--{flag}-kubeconfig"))
}

/// The reader of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// Any client that can reach the port.
    AnyClient,
    /// An authenticated and authorized client: its answers include termination messages.
    Known,
}

/// All routes for a reader: metrics, health, and explanations.
pub fn http_router(metrics: Arc<Metrics>, controllers: &Controllers, reader: Reader) -> axum::Router {
    http::router(metrics, checks(controllers)).merge(explanations(controllers, reader))
}

fn explanations(controllers: &Controllers, reader: Reader) -> axum::Router {
    let path = |plural: &str| format!("/debug/{plural}/{{namespace}}/{{name}}");
    let deployments = explained::<Deployment>(controllers, reader, &path(Deployment::RESOURCE.plural));
    let daemon_sets = explained::<DaemonSet>(controllers, reader, &path(DaemonSet::RESOURCE.plural));
    let stateful_sets = explained::<StatefulSet>(controllers, reader, &path(StatefulSet::RESOURCE.plural));
    let jobs = explained::<Job>(controllers, reader, &path(Job::RESOURCE.plural));
    let cron_jobs = explained::<CronJob>(controllers, reader, &path(CronJob::RESOURCE.plural));
    let quotas = explained::<ResourceQuota>(controllers, reader, &path(ResourceQuota::RESOURCE.plural));
    let context = controllers.context.clone();
    let workloads = http::overview("/debug/workloads", move || index(&context));
    deployments
        .merge(daemon_sets)
        .merge(stateful_sets)
        .merge(jobs)
        .merge(cron_jobs)
        .merge(quotas)
        .merge(workloads)
}

/// All workloads that have explanations.
fn index(context: &Shared) -> Index {
    let mut index = Index::default();
    index.add::<Deployment>(context);
    index.add::<StatefulSet>(context);
    index.add::<DaemonSet>(context);
    index.add::<Job>(context);
    index.add::<CronJob>(context);
    index.add::<ResourceQuota>(context);
    index.finish()
}

fn explained<T: Record>(controllers: &Controllers, reader: Reader, path: &str) -> axum::Router {
    let context = controllers.context.clone();
    http::explanations(path, move |namespace, name| {
        let explained = explain::<T>(&context, &ObjectKey::new(namespace, name))?;
        Ok(match reader {
            Reader::AnyClient => explained,
            Reader::Known => explained.with_termination_messages(),
        })
    })
}

/// The current explanation of an object, and the earlier ones; the error says why there is none.
fn explain<T: Record>(context: &Shared, key: &ObjectKey) -> Result<Explained, String> {
    let kind = T::RESOURCE.kind;
    let object = context.store::<T>().get(key).ok_or_else(|| format!("no {kind} {key} is in the cache"))?;
    let explained = context.explanations().of(T::RESOURCE, object.meta());
    explained.ok_or_else(|| {
        format!(
            "{kind} {key} has not been planned for yet, or its explanations have made room for newer ones; \
             its next sync explains it again"
        )
    })
}

/// One readiness check for each cache and for the lease, which a standby passes as well for as long as the API server
/// answers; upstream's check of a leader; and one of life for the workers of each queue.
fn checks(controllers: &Controllers) -> Checks {
    let mut checks = Checks::default();
    if let Some((election, watchdog)) = &controllers.election {
        let watchdog = watchdog.clone();
        let readiness = election.readiness();
        checks = checks.live("leaderElection", move || watchdog.check());
        checks = checks.ready("lease", move || readiness.check());
    }
    for resource in controllers.kinds.resources() {
        let kinds = controllers.kinds.clone();
        checks = checks.ready(format!("informer-{}", resource.plural), move || kinds.check(resource));
    }
    let config = &controllers.config;
    let running = controllers.workers.iter().filter(|worker| config.enabled.runs(worker.entry()));
    // Each controller has a rate limiter of its own.
    let workers = running.map(|worker| config.workers.of(worker.entry())).max().unwrap_or(0);
    let limit = wedged_after(workers * SYNCS_PER_WORKER, config.qps);
    for (at, worker) in controllers.workers.iter().enumerate() {
        let (name, all) = (format!("{}-workers", worker.entry().short_name()), controllers.workers.clone());
        checks = checks.workers(name, limit, move || all[at].longest_running());
    }
    checks
}
