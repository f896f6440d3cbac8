//! The composition root: builds every part once, runs them, and ends them in a stated order.
//!
//! With leader election every process keeps its caches current, and only the elected one syncs. On
//! shutdown no new sync starts, the running ones finish, events are flushed, the lease is released, the
//! watches end, and HTTP last. Whatever ends by itself before that is an error that names it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use futures::FutureExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::config::{Config, ControllerConfig};
use crate::controllers::deployment::sync_deployment;
use crate::controllers::explanations::{Explained, Explanations};
use crate::controllers::replicaset::sync_replica_set;
use crate::controllers::unresolved::Unresolved;
use crate::controllers::words::Words;
use crate::controllers::{Cluster, SyncError};
use crate::http::{self, Checks};
use crate::metrics::Metrics;
use crate::model::{Deployment, ObjectKey, Pod, Record, ReplicaSet};
use crate::runtime::api::Api;
use crate::runtime::client;
use crate::runtime::election::ElectionOptions;
use crate::runtime::events::{EventRecorder, EventWriter};
use crate::runtime::expectations::{Caches, Expectations};
use crate::runtime::fence::{Fence, fence};
use crate::runtime::informer::{Informer, InformerOptions, Ready};
use crate::runtime::lease::{Election, LeaseLost, Tools, Watchdog};
use crate::runtime::limit::Limiter;
use crate::runtime::waiters::Waiters;
use crate::runtime::worker::{self, Next, WorkQueue, panic_text};

/// Runs the daemon until `shutdown`.
///
/// # Errors
/// When the API server cannot be found, a port cannot be had, a part ends by itself, or the lease is lost.
pub async fn run(config: Config, seed: u64, shutdown: CancellationToken) -> anyhow::Result<()> {
    // Without `..`, so that a new setting cannot be forgotten here.
    let Config { client, controllers, election, insecure_address, shutdown_timeout, logging: _ } = config;
    let connect = || client::connect(&client, &|name| std::env::var(name).ok());
    let connection = connect().await?;
    tracing::info!(host = connection.host, source = connection.source, "using this API server");
    let election = match election {
        None => None,
        Some(options) => {
            options.validate()?;
            Some(Candidacy { client: connect().await?.client, options })
        }
    };
    let metrics = Metrics::new();
    let parts = Parts {
        client: connection.client,
        host: connection.host,
        clock: Clock::System,
        seed,
        metrics: metrics.clone(),
        election,
    };
    let controllers = Controllers::new(controllers, parts);

    let stop_http = CancellationToken::new();
    let _stop_on_return = stop_http.clone().drop_guard();
    let mut server = match insecure_address {
        None => None,
        Some(address) => {
            let listener = TcpListener::bind(address)
                .await
                .with_context(|| format!("--insecure-port: cannot listen on {address}"))?;
            tracing::info!(%address, "serving metrics, health and explanations over plain HTTP");
            let router = http_router(metrics, &controllers);
            Some(tokio::spawn(http::serve(listener, router, stop_http.clone())))
        }
    };
    let result = tokio::select! {
        result = controllers.run(shutdown, shutdown_timeout) => result,
        ended = async {
            match &mut server {
                Some(server) => server.await,
                None => std::future::pending().await,
            }
        } => bail!("the HTTP server ended by itself: {ended:?}"),
    };
    stop_http.cancel();
    if let Some(server) = server {
        server.await.context("the HTTP server panicked")?.context("the HTTP server failed")?;
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

/// One readiness check for each cache, which a standby passes as well, and upstream's check of a leader.
fn checks(controllers: &Controllers) -> Checks {
    let checks = match &controllers.election {
        None => Checks::default(),
        Some((_, watchdog)) => {
            let watchdog = watchdog.clone();
            Checks::default().live("leaderElection", move || watchdog.check())
        }
    };
    controllers.caches().into_iter().fold(checks, |checks, (name, ready)| {
        checks.ready(format!("informer-{name}"), move || {
            if ready.is_ready() { Ok(()) } else { Err("the first list is not complete".into()) }
        })
    })
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
    /// With whom to agree who acts; `None` acts at once.
    pub election: Option<Candidacy>,
}

/// What it takes to stand for election.
#[derive(Clone)]
pub struct Candidacy {
    /// A client of its own, with connections that no other call can occupy.
    pub client: kube::Client,
    /// On what terms.
    pub options: ElectionOptions,
}

/// The controllers, built and not yet running.
pub struct Controllers {
    cluster: Arc<Cluster>,
    deployments: Informer<Deployment>,
    sets: Informer<ReplicaSet>,
    pods: Informer<Pod>,
    events: EventWriter,
    election: Option<(Election, Watchdog)>,
    fence: Option<Fence>,
    config: ControllerConfig,
    caches: Vec<(&'static str, Ready)>,
}

/// How long the last events may take to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Requests to the Lease, per second and at once: client-go's defaults. A leader needs one in two seconds.
const ELECTION_RATE: (f64, u32) = (5.0, 10);

/// How long the election may take to say how the lease was lost.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How often a standby drops the keys of what no longer exists from its queues.
const TIDY_PERIOD: Duration = Duration::from_secs(60);

impl Controllers {
    /// Builds both controllers and wires the informers to their queues.
    pub fn new(config: ControllerConfig, parts: Parts) -> Self {
        let Parts { client, host, clock, seed, metrics, election } = parts;
        let limiter = || Limiter::new(config.qps, config.burst);
        let (keeper, fence) = fence();
        let fence = election.is_some().then_some(fence);
        let behind_the_fence = |api: Api| match &fence {
            Some(fence) => api.fenced(fence.clone()),
            None => api,
        };
        let api = behind_the_fence(Api::new(client.clone(), &host, limiter(), metrics.clone()));
        // Events and watches have a limit of their own each: a storm of events holds up no write that
        // matters, and a watch that reopens does not queue behind a burst of writes.
        let events_api = behind_the_fence(Api::new(client.clone(), &host, limiter(), metrics.clone()));
        let watch_api = Api::new(client, &host, limiter(), metrics.clone());
        let (recorder, events) = EventRecorder::new(events_api, clock.clone(), seed);
        let election = election.zip(fence.clone()).map(|(Candidacy { client, options }, fence)| {
            let (qps, burst) = ELECTION_RATE;
            let api = Api::new(client, &host, Limiter::new(qps, burst), metrics.clone());
            let tools = Tools { api, clock: clock.clone(), recorder: recorder.clone(), keeper, seed };
            let election = Election::new(&options, tools);
            let watchdog = Watchdog::new(fence, &election, &options);
            (election, watchdog)
        });

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
        Controllers { cluster, deployments, sets, pods, events, election, fence, config, caches }
    }

    /// The caches by resource, and whether each is complete: for `/readyz`.
    pub fn caches(&self) -> Vec<(&'static str, Ready)> {
        self.caches.clone()
    }

    /// Runs until `shutdown`, then drains for at most `drain`.
    ///
    /// # Errors
    /// When a part ends by itself, the lease is lost, or the running syncs do not finish in time.
    pub async fn run(self, shutdown: CancellationToken, drain: Duration) -> anyhow::Result<()> {
        let Controllers { cluster, deployments, sets, pods, events, election, fence, config, caches } = self;
        let stop = CancellationToken::new();
        // Whatever ends this function, by an error or by being dropped, ends its tasks too.
        let _stop_on_return = stop.clone().drop_guard();
        let stop_events = CancellationToken::new();
        let stop_election = CancellationToken::new();
        let mut watches = JoinSet::new();
        watches.spawn(named("the watch of deployments", deployments.run(stop.clone())));
        watches.spawn(named("the watch of replicasets", sets.run(stop.clone())));
        watches.spawn(named("the watch of pods", pods.run(stop.clone())));
        let events = spawn(events.run(stop_events.clone()));
        let mut running = Running { watches, events, election: None, fence };

        // No decision before every cache is complete: half a list looks like missing pods. Nor does a
        // process stand for election before that, since it could not act.
        for (name, ready) in caches {
            tokio::select! {
                complete = ready.wait() => if !complete { bail!("the watch of {name} ended before its first list") },
                error = running.ended_by_itself() => return Err(error),
                () = shutdown.cancelled() => return Ok(()),
            }
        }
        tracing::info!(
            deployments = cluster.deployments.len(),
            replicasets = cluster.sets.len(),
            pods = cluster.pods.len(),
            "the caches are complete"
        );
        if let Some((election, _)) = election {
            tracing::info!(lease = %election.lease(), identity = election.identity(), "standing for election");
            running.election = Some(spawn(election.run(stop_election.clone())));
        }

        let mut workers = JoinSet::new();
        if running.elected(&cluster, &shutdown).await? {
            tracing::info!("the controllers start");
            workers.spawn(named("the Deployment controller", work_on_deployments(&cluster, &config)));
            workers.spawn(named("the ReplicaSet controller", work_on_sets(&cluster, &config)));
            tokio::select! {
                () = shutdown.cancelled() => {}
                error = running.ended_by_itself() => return Err(error),
                Some(ended) = workers.join_next() => return Err(by_itself(ended)),
            }
        }

        tracing::info!("shutting down: no new sync starts");
        cluster.deployment_queue.shut_down();
        cluster.set_queue.shut_down();
        let finish = async { while workers.join_next().await.is_some() {} };
        let drained = tokio::select! {
            drained = tokio::time::timeout(drain, finish) => drained,
            error = running.ended_by_itself() => return Err(error),
        };
        if drained.is_err() {
            workers.shutdown().await;
        }
        let Running { mut watches, events, election, fence: _ } = running;
        let election = match election {
            None => None,
            Some(election) => {
                stop_election.cancel();
                Some(election.await.context("the election panicked")??)
            }
        };
        if let Some(election) = &election {
            election.announce_end();
        }
        stop_events.cancel();
        let flushed = matches!(tokio::time::timeout(FLUSH_TIMEOUT, events).await, Ok(Ok(true)));
        match election {
            // Only after the last write: another may lead from then on. A write that was cut short may
            // still arrive, so that the lease has to run out by itself.
            Some(election) if drained.is_ok() && flushed => {
                election.release().await;
            }
            _ => {}
        }
        stop.cancel();
        while watches.join_next().await.is_some() {}
        drained.with_context(|| format!("running syncs did not finish within {drain:?}"))?;
        if !flushed {
            tracing::warn!("the last events were not written in time");
        }
        Ok(())
    }
}

/// How a named task ended.
type Ended = (&'static str, Result<(), String>);

/// The tasks that run from the start to the end of a daemon.
struct Running {
    watches: JoinSet<Ended>,
    events: AbortOnDropHandle<bool>,
    election: Option<AbortOnDropHandle<Result<Election, LeaseLost>>>,
    fence: Option<Fence>,
}

impl Running {
    /// Waits until this process may act; `false` means that it is to stop before that.
    async fn elected(&mut self, cluster: &Cluster, shutdown: &CancellationToken) -> anyhow::Result<bool> {
        let Some(fence) = self.fence.clone() else { return Ok(true) };
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => return Ok(false),
                error = self.ended_by_itself() => return Err(error),
                () = fence.opened() => return Ok(true),
                () = tokio::time::sleep(TIDY_PERIOD) => {
                    cluster.deployment_queue.retain(|key| cluster.deployments.get(key).is_some());
                    cluster.set_queue.retain(|key| cluster.sets.get(key).is_some());
                }
            }
        }
    }

    /// Waits until something ends that should not, and names it. Pending for as long as all is well.
    async fn ended_by_itself(&mut self) -> anyhow::Error {
        let election = async {
            match &mut self.election {
                Some(election) => election.await,
                None => std::future::pending().await,
            }
        };
        // The fence is looked at here as well, since the election itself may hang.
        let shut = async {
            match &self.fence {
                Some(fence) => {
                    fence.opened().await;
                    fence.shuts().await
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = election => match ended {
                Ok(Err(lost)) => lost.into(),
                Ok(Ok(_)) => anyhow!("the election ended by itself"),
                Err(error) => anyhow!("the election panicked: {error}"),
            },
            reason = shut => {
                // The election knows more, unless it hangs. Nothing is written meanwhile.
                let told = tokio::time::timeout(LAST_WORDS, async {
                    match &mut self.election {
                        Some(election) => election.await,
                        None => std::future::pending().await,
                    }
                });
                match told.await {
                    Ok(Ok(Err(lost))) => lost.into(),
                    _ => anyhow!("leader election lost: {reason}"),
                }
            }
            Some(ended) = self.watches.join_next() => by_itself(ended),
            ended = &mut self.events => anyhow!("the writer of events ended by itself: {ended:?}"),
        }
    }
}

fn spawn<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> AbortOnDropHandle<T> {
    AbortOnDropHandle::new(tokio::spawn(task))
}

/// Gives a task a name that its end, and even its panic, is reported with.
async fn named(name: &'static str, task: impl Future<Output = ()>) -> Ended {
    // Whatever the task has left behind is not used any more: its end ends the daemon.
    let ended = std::panic::AssertUnwindSafe(task).catch_unwind().await;
    (name, ended.map_err(|panic| panic_text(panic.as_ref()).to_owned()))
}

fn by_itself(ended: Result<Ended, tokio::task::JoinError>) -> anyhow::Error {
    match ended {
        Ok((name, Ok(()))) => anyhow!("{name} ended by itself"),
        Ok((name, Err(panic))) => anyhow!("{name} panicked: {panic}"),
        Err(error) => anyhow!("a task ended by itself: {error}"),
    }
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

fn work_on_deployments(
    cluster: &Arc<Cluster>,
    config: &ControllerConfig,
) -> impl Future<Output = ()> + Send + 'static {
    work(cluster, &cluster.deployment_queue, config.deployment_workers, |cluster, key| {
        Box::pin(async move { sync_deployment(&cluster, &key).await })
    })
}

fn work_on_sets(
    cluster: &Arc<Cluster>,
    config: &ControllerConfig,
) -> impl Future<Output = ()> + Send + 'static {
    work(cluster, &cluster.set_queue, config.set_workers, |cluster, key| {
        Box::pin(async move { sync_replica_set(&cluster, &key).await })
    })
}

fn work(
    cluster: &Arc<Cluster>,
    queue: &WorkQueue<ObjectKey>,
    workers: usize,
    sync: fn(Arc<Cluster>, ObjectKey) -> Syncing,
) -> impl Future<Output = ()> + Send + 'static {
    let cluster = cluster.clone();
    worker::run_workers(queue.clone(), workers, move |key| sync(cluster.clone(), key))
}
