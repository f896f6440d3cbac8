//! Starts, kills and restarts the daemons of a game: one, or for a while two.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;

use super::network::{Cluster, Judge};
use windlass::app::{Controllers, Parts};
use windlass::clock::Clock;
use windlass::config::{ControllerConfig, Enabled, OnConflict};
use windlass::controllers::registry;
use windlass::engine::entry::Registry;
use windlass::metrics::Metrics;

/// How often a killed daemon is looked for.
const LOOK: Duration = Duration::from_millis(500);

struct Daemon {
    agent: String,
    task: AbortHandle,
    /// When another takes its place.
    ends: Option<Duration>,
}

/// See the module documentation.
pub struct Daemons<J: Judge> {
    cluster: Arc<Cluster<J>>,
    config: ControllerConfig,
    registry: Registry,
    clock: Clock,
    seed: fn(u64, u32) -> u64,
    scenario: u64,
    life: u32,
    running: Vec<Daemon>,
}

/// The configuration of a daemon that runs these controllers and is not held up by a rate limit.
pub fn unlimited(enabled: Enabled) -> ControllerConfig {
    ControllerConfig {
        qps: 1e6,
        burst: 1_000_000,
        enabled,
        on_conflict: OnConflict::Ignore,
        ..ControllerConfig::default()
    }
}

/// Runs the daemon's controllers as a client until they are aborted.
pub fn controllers<J: Judge>(
    cluster: &Arc<Cluster<J>>,
    agent: &str,
    config: ControllerConfig,
    seed: u64,
) -> JoinHandle<anyhow::Result<()>> {
    run(&registry::standard(), cluster, cluster.clock.clone(), agent, config, seed)
}

fn run<J: Judge>(
    registry: &Registry,
    cluster: &Arc<Cluster<J>>,
    clock: Clock,
    agent: &str,
    config: ControllerConfig,
    seed: u64,
) -> JoinHandle<anyhow::Result<()>> {
    let parts = Parts {
        client: cluster.client(agent).into(),
        host: "simulation".into(),
        clock,
        seed,
        metrics: Metrics::new(),
        election: None,
    };
    let controllers = Controllers::with(registry, config, parts);
    tokio::spawn(controllers.run(CancellationToken::new(), Duration::from_secs(10)))
}

impl<J: Judge> Daemons<J> {
    /// None yet. `seed` gives the seed of each, from that of the scenario and the number of the daemon.
    pub fn new(
        cluster: Arc<Cluster<J>>,
        config: ControllerConfig,
        scenario: u64,
        seed: fn(u64, u32) -> u64,
    ) -> Self {
        let registry = registry::standard();
        let clock = cluster.clock.clone();
        Daemons { cluster, config, registry, clock, seed, scenario, life: 0, running: Vec::new() }
    }

    /// Daemons that start from now on have this clock.
    pub fn set_clock(&mut self, clock: Clock) {
        self.clock = clock;
    }

    /// The same with the controllers of this registry.
    #[must_use]
    pub fn of(self, registry: Registry) -> Self {
        Daemons { registry, ..self }
    }

    /// Starts another.
    pub fn start(&mut self) {
        self.life += 1;
        let (agent, now) = (format!("d{}", self.life), self.cluster.elapsed());
        self.cluster.with_judge(|judge| judge.daemon_started(&agent, now));
        let seed = (self.seed)(self.scenario, self.life);
        let (clock, config) = (self.clock.clone(), self.config.clone());
        let task = run(&self.registry, &self.cluster, clock, &agent, config, seed).abort_handle();
        self.running.push(Daemon { agent, task, ends: None });
    }

    /// Starts a second one; those that run end after this time, when they are looked for.
    pub fn second(&mut self, time: Duration) {
        let end = self.cluster.elapsed() + time;
        self.running.iter_mut().for_each(|daemon| daemon.ends = daemon.ends.or(Some(end)));
        self.start();
    }

    /// Starts a second one. Those that run end by themselves after this time. Returns their agents.
    pub fn hand_over(&mut self, goes_on: Duration) -> Vec<String> {
        for Daemon { agent, task, .. } in &self.running {
            let (cluster, agent, task) = (self.cluster.clone(), agent.clone(), task.clone());
            tokio::spawn(async move {
                tokio::time::sleep(goes_on).await;
                task.abort();
                cluster.dies(&agent);
            });
        }
        let before = self.running.iter().map(|daemon| daemon.agent.clone()).collect();
        self.start();
        before
    }

    /// Kills all.
    pub fn end(&mut self) {
        for daemon in self.running.drain(..) {
            daemon.task.abort();
            self.cluster.dies(&daemon.agent);
        }
    }

    /// Kills all, and starts another.
    pub async fn crash(&mut self) {
        self.end();
        tokio::time::sleep(Duration::from_millis(700)).await;
        self.start();
    }

    /// Waits, and meanwhile restarts what was killed and ends what is replaced.
    pub async fn wait(&mut self, time: Duration) {
        let end = self.cluster.elapsed() + time;
        loop {
            let now = self.cluster.elapsed();
            let cluster = self.cluster.clone();
            let goes = |daemon: &Daemon| {
                cluster.is_dead(&daemon.agent) || daemon.ends.is_some_and(|ends| ends <= now)
            };
            let (gone, running): (Vec<_>, Vec<_>) = self.running.drain(..).partition(goes);
            self.running = running;
            for daemon in gone {
                daemon.task.abort();
                self.cluster.dies(&daemon.agent);
            }
            if self.running.is_empty() {
                self.start();
            }
            let left = end.saturating_sub(now);
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(LOOK)).await;
        }
    }
}
