//! Starts, kills and restarts the daemons: one, or for a while two.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Cluster;
use windlass::app::{Controllers, Parts};
use windlass::config::{ControllerConfig, Enabled, OnConflict};
use windlass::metrics::Metrics;

/// How often a killed daemon is looked for.
const LOOK: Duration = Duration::from_millis(500);

struct Daemon {
    agent: String,
    task: JoinHandle<anyhow::Result<()>>,
    /// When another takes its place.
    ends: Option<Duration>,
}

/// See the module documentation.
pub struct Daemons {
    cluster: Arc<Cluster>,
    seed: u64,
    life: u32,
    running: Vec<Daemon>,
}

impl Daemons {
    /// None yet.
    pub fn new(cluster: Arc<Cluster>, seed: u64) -> Self {
        Daemons { cluster, seed, life: 0, running: Vec::new() }
    }

    /// Starts another.
    pub fn start(&mut self) {
        self.life += 1;
        let agent = format!("d{}", self.life);
        let parts = Parts {
            client: self.cluster.client(&agent).into(),
            host: "simulation".into(),
            clock: self.cluster.clock.clone(),
            seed: self.seed,
            metrics: Metrics::new(),
            election: None,
        };
        let config = ControllerConfig {
            qps: 1e6,
            burst: 1_000_000,
            enabled: Enabled::none()
                .with("replicationcontroller-controller")
                .with("replicaset-controller")
                .with("rollingupdate-controller"),
            on_conflict: OnConflict::Ignore,
            ..ControllerConfig::default()
        };
        let controllers = Controllers::new(config, parts);
        let task = tokio::spawn(controllers.run(CancellationToken::new(), Duration::from_secs(10)));
        self.running.push(Daemon { agent, task, ends: None });
    }

    /// Starts a second one; those that run end after this time.
    pub fn second(&mut self, time: Duration) {
        let end = self.cluster.elapsed() + time;
        self.running.iter_mut().for_each(|daemon| daemon.ends = daemon.ends.or(Some(end)));
        self.start();
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
