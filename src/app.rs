//! The composition root: builds every part once, runs them, and ends them in a stated order.
//!
//! On shutdown no new sync starts, the running ones finish, events are flushed, and the watches end last.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::{Config, ControllerConfig};
use crate::controllers::deployment::sync_deployment;
use crate::controllers::explanations::{Explained, Explanations};
use crate::controllers::replicaset::sync_replica_set;
use crate::controllers::unresolved::Unresolved;
use crate::controllers::words::Words;
use crate::controllers::{Cluster, SyncError};
use crate::http::health::wedged_after;
use crate::http::{self, Checks, Limits, Reviewers, SecureServer, ServingMetrics};
use crate::logging::Verbosity;
use crate::metrics::Metrics;
use crate::model::{Deployment, ObjectKey, Pod, Record, ReplicaSet};
use crate::runtime::api::Api;
use crate::runtime::client;
use crate::runtime::events::{EventRecorder, EventWriter};
use crate::runtime::expectations::{Caches, Expectations};
use crate::runtime::informer::{Informer, InformerOptions, Ready};
use crate::runtime::limit::Limiter;
use crate::runtime::waiters::Waiters;
use crate::runtime::worker::{self, Next, WorkQueue};

/// Runs the daemon until `shutdown`.
///
/// # Errors
/// When the API server cannot be found, a port cannot be had, or a part ends by itself.
pub async fn run(
    config: Config,
    verbosity: Verbosity,
    seed: u64,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    // Without `..`, so that a new setting cannot be forgotten here.
    let Config { client, controllers, insecure_address, secure, shutdown_timeout, logging: _ } = config;
    let connection = client::connect(&client, &|name| std::env::var(name).ok()).await?;
    tracing::info!(host = connection.host, source = connection.source, "using this API server");
    let metrics = Metrics::new();
    let reviewers = Reviewers::new(connection.client.clone(), &connection.host, metrics.clone());
    let parts = Parts {
        client: connection.client,
        host: connection.host,
        clock: Clock::System,
        seed,
        metrics: metrics.clone(),
    };
    let controllers = Controllers::new(controllers, parts);

    let stop_http = CancellationToken::new();
    let _stop_on_return = stop_http.clone().drop_guard();
    let counters = ServingMetrics::new(&metrics);
    let router = http_router(metrics.clone(), &controllers);
    let mut servers = JoinSet::new();
    if secure.serving.secure_port != 0 {
        let mut router = router.clone();
        if secure.serving.profiling {
            // Over HTTPS only: who may change what is logged must be known.
            router = router.merge(http::profiling()).merge(http::verbosity(move |level| {
                verbosity.set(level).map(|()| format!("the verbosity is {level} now"))
            }));
        }
        let server = SecureServer::bind(&secure, router, reviewers, counters.clone(), Clock::System).await?;
        tracing::info!(address = %server.local_addr()?, "serving metrics, health and explanations over HTTPS");
        let stop = stop_http.clone();
        servers.spawn(async move {
            server.run(stop).await;
            Ok(())
        });
    }
    if let Some(address) = insecure_address {
        let listener = TcpListener::bind(address)
            .await
            .with_context(|| format!("--insecure-port: cannot listen on {address}"))?;
        tracing::info!(%address, "serving metrics, health and explanations over plain HTTP");
        servers.spawn(http::serve(listener, router, Limits::default(), counters, stop_http.clone()));
    }
    let result = controllers.run(shutdown, shutdown_timeout).await;
    stop_http.cancel();
    while let Some(ended) = servers.join_next().await {
        ended.context("the HTTP server panicked")?.context("the HTTP server failed")?;
    }
    result
}

/// All that the daemon serves: metrics, health, and why its Deployments are where they are.
pub fn http_router(metrics: Arc<Metrics>, controllers: &Controllers) -> axum::Router {
    let cluster = controllers.cluster.clone();
    http::router(metrics, checks(controllers))
        .merge(http::explanations("/debug/deployments/{namespace}/{name}", move |namespace, name| {
            explain(&cluster, &ObjectKey::new(namespace, name))
        }))
}

/// The current explanation of a Deployment, and the earlier ones; an error says why there is none.
fn explain(cluster: &Cluster, key: &ObjectKey) -> Result<Explained, String> {
    let deployment =
        cluster.deployments.get(key).ok_or_else(|| format!("no Deployment {key} is in the cache"))?;
    let explained = cluster.explanations.of(&deployment.meta);
    explained.ok_or_else(|| format!("Deployment {key} has not been planned for yet"))
}

/// One readiness check for each cache, and one of life for the workers of each queue.
fn checks(controllers: &Controllers) -> Checks {
    let checks = controllers.caches().into_iter().fold(Checks::default(), |checks, (name, ready)| {
        checks.ready(format!("informer-{name}"), move || {
            if ready.is_ready() { Ok(()) } else { Err("the first list is not complete".into()) }
        })
    });
    let config = &controllers.config;
    let limit = wedged_after(config.deployment_workers + config.set_workers, config.qps);
    let deployments = controllers.cluster.deployment_queue.clone();
    let sets = controllers.cluster.set_queue.clone();
    checks.workers("deployment-workers", limit, move || deployments.longest_running()).workers(
        "replicaset-workers",
        limit,
        move || sets.longest_running(),
    )
}

/// What the controllers are built from.
#[derive(Clone)]
pub struct Parts {
    /// The client for the API server.
    pub client: kube::Client,
    /// Host and port of the API server, for metrics.
    pub host: String,
    /// The time.
    pub clock: Clock,
    /// Seeds chance: pod names, jitter.
    pub seed: u64,
    /// Where everything is counted.
    pub metrics: Arc<Metrics>,
}

/// The controllers, built and not yet running.
pub struct Controllers {
    cluster: Arc<Cluster>,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    events: EventWriter,
    config: ControllerConfig,
    caches: Vec<(&'static str, Ready)>,
}

/// How long the last events may take to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

impl Controllers {
    /// Builds both controllers and wires the informers to their queues.
    pub fn new(config: ControllerConfig, parts: Parts) -> Self {
        let Parts { client, host, clock, seed, metrics } = parts;
        let limiter = || Limiter::new(config.qps, config.burst);
        let api = Api::new(client.clone(), &host, limiter(), metrics.clone());
        // Events and watches have a limit of their own each: a storm of events holds up no write that
        // matters, and a watch that reopens does not queue behind a burst of writes.
        let events_api = Api::new(client.clone(), &host, limiter(), metrics.clone());
        let watch_api = Api::new(client, &host, limiter(), metrics.clone());
        let (recorder, events) = EventRecorder::new(events_api, clock.clone(), seed);

        let options = |salt: u64| InformerOptions { seed: seed ^ salt, ..InformerOptions::default() };
        let mut deployments = Informer::<Deployment>::new(watch_api.clone(), options(1));
        let mut sets = Informer::<ReplicaSet>::new(watch_api.clone(), options(2));
        let mut pods = Informer::<Pod>::new(watch_api.clone(), options(3));

        let deployment_queue = WorkQueue::new("deployment", &metrics);
        let set_queue = WorkQueue::new("replicaset", &metrics);
        let expectations = Expectations::new(metrics.clone());
        let cluster = Arc::new(Cluster {
            api,
            clock,
            caches: Caches::default().with(deployments.store()).with(sets.store()).with(pods.store()),
            deployments: deployments.store(),
            sets: sets.store(),
            pods: pods.store(),
            deployment_waiters: Waiters::new(deployment_queue.clone()),
            set_waiters: Waiters::new(set_queue.clone()),
            deployment_queue,
            set_queue,
            expectations,
            unresolved: Unresolved::default(),
            words: Words::default(),
            explanations: Explanations::default(),
            recorder,
            metrics,
            rng: parking_lot::Mutex::new(fastrand::Rng::with_seed(seed)),
        });

        wire(&cluster, &mut deployments, Cluster::deployment_changed);
        wire(&cluster, &mut sets, Cluster::set_changed);
        wire(&cluster, &mut pods, Cluster::pod_changed);
        let caches = vec![
            (Deployment::RESOURCE.plural, deployments.ready()),
            (ReplicaSet::RESOURCE.plural, sets.ready()),
            (Pod::RESOURCE.plural, pods.ready()),
        ];
        Controllers { cluster, deployments, sets, pods, events, config, caches }
    }

    /// The caches by resource, and whether each is complete: for `/readyz`.
    pub fn caches(&self) -> Vec<(&'static str, Ready)> {
        self.caches.clone()
    }

    /// Runs until `shutdown`, then drains for at most `drain`.
    ///
    /// # Errors
    /// When a part ends by itself, or the running syncs do not finish in time.
    pub async fn run(self, shutdown: CancellationToken, drain: Duration) -> anyhow::Result<()> {
        let Controllers { cluster, deployments, sets, pods, events, config, caches } = self;
        let stop = CancellationToken::new();
        // Whatever ends this function, by an error or by being dropped, ends its tasks too.
        let _stop_on_return = stop.clone().drop_guard();

        let mut watches = JoinSet::new();
        watches.spawn(named(Deployment::RESOURCE.plural, deployments.run(stop.clone())));
        watches.spawn(named(ReplicaSet::RESOURCE.plural, sets.run(stop.clone())));
        watches.spawn(named(Pod::RESOURCE.plural, pods.run(stop.clone())));
        let events_stop = CancellationToken::new();
        let events = tokio::spawn(events.run(events_stop.clone()));

        // No decision before every cache is complete: half a list looks like missing pods.
        for (name, ready) in caches {
            tokio::select! {
                complete = ready.wait() => if !complete { bail!("the watch of {name} ended before its first list") },
                () = shutdown.cancelled() => return Ok(()),
            }
        }
        tracing::info!(
            deployments = cluster.deployments.len(),
            replicasets = cluster.sets.len(),
            pods = cluster.pods.len(),
            "the caches are complete; the controllers start"
        );

        let mut workers = JoinSet::new();
        workers.spawn(work(
            &cluster,
            &cluster.deployment_queue,
            config.deployment_workers,
            |cluster, key| Box::pin(async move { sync_deployment(&cluster, &key).await }),
        ));
        workers.spawn(work(&cluster, &cluster.set_queue, config.set_workers, |cluster, key| {
            Box::pin(async move { sync_replica_set(&cluster, &key).await })
        }));

        tokio::select! {
            () = shutdown.cancelled() => {}
            ended = watches.join_next() => bail!("a watch ended by itself: {ended:?}"),
            ended = workers.join_next() => bail!("the workers ended by themselves: {ended:?}"),
        }

        tracing::info!("shutting down: no new sync starts");
        cluster.deployment_queue.shut_down();
        cluster.set_queue.shut_down();
        let drained =
            tokio::time::timeout(drain, async { while workers.join_next().await.is_some() {} }).await;
        events_stop.cancel();
        let flushed = tokio::time::timeout(FLUSH_TIMEOUT, events).await;
        stop.cancel();
        while watches.join_next().await.is_some() {}
        drained.with_context(|| format!("running syncs did not finish within {drain:?}"))?;
        if flushed.is_err() {
            tracing::warn!("the last events were not written in time");
        }
        Ok(())
    }
}

async fn named(name: &'static str, task: impl Future<Output = ()>) -> &'static str {
    task.await;
    name
}

/// Has a change told to the cluster, and the keys woken that wait for this cache.
fn wire<T: Record>(
    cluster: &Arc<Cluster>,
    informer: &mut Informer<T>,
    changed: impl Fn(&Cluster, &crate::runtime::store::Change<T>) + Send + Sync + 'static,
) {
    let told = cluster.clone();
    informer.on_change(move |change| changed(&told, change));
    let woken = cluster.clone();
    informer.on_position(move |position| {
        woken.deployment_waiters.reached(T::RESOURCE, position);
        woken.set_waiters.reached(T::RESOURCE, position);
    });
    let relist = informer.relist();
    cluster.expectations.relist_with(T::RESOURCE, move || relist.demand());
}

type Syncing = futures::future::BoxFuture<'static, Result<Next, SyncError>>;

fn work(
    cluster: &Arc<Cluster>,
    queue: &WorkQueue<ObjectKey>,
    workers: usize,
    sync: fn(Arc<Cluster>, ObjectKey) -> Syncing,
) -> impl Future<Output = ()> + Send + 'static {
    let cluster = cluster.clone();
    worker::run_workers(queue.clone(), workers, move |key| sync(cluster.clone(), key))
}
