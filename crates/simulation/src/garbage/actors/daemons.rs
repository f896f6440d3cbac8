//! The collectors: started, killed, and one beside the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::garbage::Cluster;
use crate::garbage::scenario::{Scenario, Scope};
use crate::garbage::truth::{GROUP, KINDS};
use crate::server::NAMESPACE;
use windlass::app::{Controllers, Parts};
use windlass::config::{ControllerConfig, Enabled, OnConflict};
use windlass::engine::context::ResourceFilter;
use windlass::metrics::Metrics;
use windlass::model::ObjectKey;

pub(super) struct Daemons {
    cluster: Arc<Cluster>,
    scenario: Scenario,
    life: u32,
    /// Those that may still act.
    running: Vec<(String, AbortHandle)>,
    namespaces: Option<AbortOnDropHandle<anyhow::Result<()>>>,
}

/// The name of a kind in flags.
fn resource(kind: usize) -> String {
    let (name, plural, _) = KINDS[kind];
    match name {
        "ClusterRole" => format!("{plural}.rbac.authorization.k8s.io"),
        "Gadget" => format!("{plural}.{GROUP}"),
        _ => plural.to_owned(),
    }
}

impl Daemons {
    pub(super) fn new(cluster: Arc<Cluster>, scenario: Scenario) -> Self {
        Daemons { cluster, scenario, life: 0, running: Vec::new(), namespaces: None }
    }

    /// Starts a collector, and the namespace controller, whose requests are those of a user here.
    pub(super) fn begin(&mut self) {
        let config = ControllerConfig {
            enabled: Enabled::none().with("namespace-controller"),
            namespace_deletion_delay: Duration::ZERO,
            ..ControllerConfig::default()
        };
        self.namespaces = Some(AbortOnDropHandle::new(self.run("namespaces", config)));
        self.start();
    }

    /// Starts a collector.
    pub(super) fn start(&mut self) -> JoinHandle<anyhow::Result<()>> {
        self.life += 1;
        let (agent, now) = (format!("d{}", self.life), self.cluster.elapsed());
        self.cluster.with_judge(|judge| judge.daemon_started(&agent, now));
        let daemon = self.run(&agent, self.config());
        self.running.push((agent, daemon.abort_handle()));
        daemon
    }

    fn run(&self, agent: &str, config: ControllerConfig) -> JoinHandle<anyhow::Result<()>> {
        let parts = Parts {
            client: self.cluster.client(agent).into(),
            host: "simulation".into(),
            clock: self.cluster.clock.clone(),
            seed: self.scenario.seed ^ u64::from(self.life) << 32,
            metrics: Metrics::new(),
            election: None,
        };
        tokio::spawn(Controllers::new(config, parts).run(CancellationToken::new(), Duration::from_secs(10)))
    }

    fn config(&self) -> ControllerConfig {
        let mut config = ControllerConfig {
            qps: self.scenario.qps,
            burst: if self.scenario.qps < 100.0 { 3 } else { 1_000_000 },
            enabled: Enabled::none().with("garbage-collector-controller"),
            on_conflict: OnConflict::Ignore,
            garbage_record: Some(ObjectKey::new("kube-system", "windlass")),
            ..ControllerConfig::default()
        };
        let resources = |only: Vec<String>, ignored| ResourceFilter { only, ignored };
        match self.scenario.scope {
            Scope::All => {}
            Scope::Only(kinds) => {
                config.garbage_resources =
                    resources(kinds.iter().map(|kind| resource(*kind)).collect(), vec![]);
            }
            Scope::AllBut(kind) => config.garbage_resources = resources(vec![], vec![resource(kind)]),
            Scope::Namespace => config.scope.namespace = Some(NAMESPACE.to_owned()),
        }
        config
    }

    /// Kills the collectors.
    pub(super) fn end(&mut self) {
        for (agent, daemon) in self.running.drain(..) {
            daemon.abort();
            self.cluster.dies(&agent);
        }
    }

    /// Kills the collectors, and starts another.
    pub(super) async fn crash(&mut self) {
        self.end();
        tokio::time::sleep(Duration::from_millis(700)).await;
        self.start();
    }

    /// Starts another collector. Those that run go on for a while.
    pub(super) fn hand_over(&mut self, goes_on: Duration, is_cut_off: bool) {
        for (agent, daemon) in &self.running {
            if is_cut_off {
                self.cluster.with_judge(|judge| judge.faults.cut_off(agent));
            }
            let (cluster, agent, daemon) = (self.cluster.clone(), agent.clone(), daemon.clone());
            tokio::spawn(async move {
                tokio::time::sleep(goes_on).await;
                daemon.abort();
                cluster.dies(&agent);
            });
        }
        self.start();
    }
}
