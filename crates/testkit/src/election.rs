//! Several daemons and one cluster: their requests with sender and time, and the invariants of leadership over those.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass::runtime::leader_election::rules::ElectionOptions;
use windlass_apiserver::{FaultDecision, RequestInfo};

use super::cluster::{Cluster, Daemon, Faults};
use windlass_planner_testkit::objects::deployment;

/// A request of a candidate that changes something.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When it was sent, counted from the start.
    pub at: Duration,
    /// Its sender.
    pub agent: String,
    /// The request: `patch Deployment/web`.
    pub what: String,
    /// Whether it is about the Lease; all else is an act of leadership.
    pub lease: bool,
    /// Whether it may have been carried out.
    pub arrived: bool,
    /// Whether it releases the Lease.
    pub release: bool,
}

/// A cluster in which candidates stand for election.
pub struct Rig {
    /// Where the candidates meet.
    pub cluster: Cluster,
    /// When the first of them was started.
    pub start: Instant,
    sent: Arc<Mutex<Vec<Sent>>>,
}

/// A second.
pub const S: Duration = Duration::from_secs(1);
/// A millisecond.
pub const MS: Duration = Duration::from_millis(1);

/// The first candidate.
pub const A: &str = "candidate-a";
/// The second candidate.
pub const B: &str = "candidate-b";
/// The third candidate.
pub const C: &str = "candidate-c";

/// The path of the Lease.
pub const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/windlass";

/// The deadline of the default options.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// A candidate's user agent begins with this; the rest is its identity.
const CANDIDATE: &str = "candidate-";

impl Rig {
    /// A cluster whose API server is sound.
    pub async fn new() -> Self {
        Self::with(|_, _| FaultDecision::Proceed).await
    }

    /// A cluster whose API server has this decision for a request and the time since the start.
    pub async fn with(
        decision: impl Fn(&RequestInfo, Duration) -> FaultDecision + Send + Sync + 'static,
    ) -> Self {
        let start = Instant::now();
        let sent = Arc::new(Mutex::new(Vec::new()));
        let log = sent.clone();
        let fault_injector = Arc::new(move |request: &RequestInfo| {
            let at = start.elapsed();
            let decision = decision(request, at);
            let changes = matches!(request.verb, "create" | "update" | "patch" | "delete");
            if let Some(agent) = request.user_agent.strip_prefix(CANDIDATE).filter(|_| changes) {
                let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
                let lease = request.kind == "Lease";
                log.lock().unwrap().push(Sent {
                    at,
                    agent: agent.to_owned(),
                    what: format!("{} {}/{}", request.verb, request.kind, request.name),
                    lease,
                    arrived: !matches!(decision, FaultDecision::LoseRequest | FaultDecision::Refuse { .. }),
                    release: lease && body["spec"]["holderIdentity"] == "",
                });
            }
            decision
        });
        let cluster = Cluster::with(Faults(Some(fault_injector)), |options| options).await;
        Rig { cluster, start, sent }
    }

    /// Starts a candidate. `agent` is `candidate-` and its name.
    pub fn start(&self, agent: &'static str, seed: u64) -> Daemon {
        self.cluster.start(seed, agent, Some(options(agent)))
    }

    /// The holder of the Lease.
    pub fn holder(&self) -> String {
        self.lease()["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// The Lease as stored.
    pub fn lease(&self) -> Value {
        self.cluster.sandbox.objects("Lease").first().cloned().unwrap_or_default()
    }

    /// The requests that the candidates have sent so far.
    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// The requests that they have sent as leaders.
    pub fn acts(&self) -> Vec<Sent> {
        self.sent().into_iter().filter(|sent| !sent.lease).collect()
    }

    /// Waits in steps until `holds`; panics after `seconds`. Returns the time it took.
    #[track_caller]
    pub fn until<'a>(
        &'a self,
        seconds: u64,
        what: &'a str,
        holds: impl Fn(&Rig) -> bool + 'a,
    ) -> impl Future<Output = Duration> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let start = Instant::now();
            while !holds(self) {
                assert!(
                    start.elapsed() < Duration::from_secs(seconds),
                    "{caller}: not within {seconds} s: {what}: {}",
                    self.lease()["spec"]
                );
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            start.elapsed()
        }
    }

    /// Makes a Deployment that never comes to rest: its size changes twice a second, for ever.
    pub async fn unrest(&self) -> tokio_util::task::AbortOnDropHandle<()> {
        self.cluster.create(deployment("web").replicas(1)).await;
        let client = self.cluster.client.clone();
        tokio_util::task::AbortOnDropHandle::new(tokio::spawn(async move {
            for n in 0u32.. {
                tokio::time::sleep(Duration::from_millis(500)).await;
                let patch = json!({"spec": {"replicas": 1 + n % 3}}).to_string().into_bytes();
                let request = http::Request::builder()
                    .method(Method::PATCH)
                    .uri("/apis/apps/v1/namespaces/shop/deployments/web")
                    .header("content-type", "application/merge-patch+json");
                // The API server may be away.
                let _ = client.request::<Value>(request.body(patch).unwrap()).await;
            }
        }))
    }

    /// H1, and that no two terms interleave: a daemon that writes has renewed within the deadline, and no daemon
    /// acts again after another has acted.
    #[track_caller]
    pub fn one_at_a_time(&self) {
        let mut renewed: BTreeMap<String, Duration> = BTreeMap::new();
        let mut terms: Vec<String> = Vec::new();
        let mut released: Vec<String> = Vec::new();
        for sent in self.sent() {
            if sent.lease {
                if sent.release {
                    released.push(sent.agent.clone());
                } else if sent.arrived {
                    renewed.insert(sent.agent.clone(), sent.at);
                }
                continue;
            }
            let last = renewed.get(&sent.agent).unwrap_or_else(|| panic!("never elected: {sent:?}"));
            assert!(sent.at < *last + RENEW_DEADLINE, "H1: renewed at {last:?}, and acts: {sent:?}");
            assert!(!released.contains(&sent.agent), "acts after it gave the lease up: {sent:?}");
            if terms.last() != Some(&sent.agent) {
                assert!(!terms.contains(&sent.agent), "two leaders: {terms:?} and again {sent:?}");
                terms.push(sent.agent);
            }
        }
    }
}

/// The default options for this candidate.
pub fn options(agent: &str) -> ElectionOptions {
    ElectionOptions {
        namespace: Some("kube-system".into()),
        identity: Some(agent.strip_prefix(CANDIDATE).unwrap().into()),
        ..ElectionOptions::default()
    }
}

/// A rig in which `a` leads, `b` stands by, and there is always something to do.
pub async fn led_by_a(
    decision: impl Fn(&RequestInfo, Duration) -> FaultDecision + Send + Sync + 'static,
) -> (Rig, Daemon, Daemon, tokio_util::task::AbortOnDropHandle<()>) {
    let rig = Rig::with(decision).await;
    let a = rig.start(A, 1);
    rig.until(5, "a leads", |rig| rig.holder() == "a").await;
    let b = rig.start(B, 2);
    let unrest = rig.unrest().await;
    let written = |rig: &Rig| rig.acts().iter().any(|sent| sent.what.contains("Pod"));
    rig.until(5, "a acts", written).await;
    (rig, a, b, unrest)
}

/// Waits until `agent` has acted, and returns when it first did.
pub async fn acts(rig: &Rig, seconds: u64, agent: &str) -> Duration {
    let by = |rig: &Rig| rig.acts().into_iter().find(|sent| sent.agent == agent);
    rig.until(seconds, "the other one acts", |rig| by(rig).is_some()).await;
    by(rig).unwrap().at
}

/// Waits for a daemon to end by itself, and returns its error.
pub async fn ends(daemon: Daemon) -> String {
    let ended = tokio::time::timeout(120 * S, daemon.task).await.expect("the daemon ends");
    format!("{:#}", ended.unwrap().expect_err("with an error"))
}

/// Whether a daemon shows itself as the leader.
pub fn leads(daemon: &Daemon) -> bool {
    let metrics = daemon.metrics.render();
    let line = |value| format!("leader_election_master_status{{name=\"windlass\"}} {value}\n");
    assert!(metrics.contains(&line(0)) || metrics.contains(&line(1)), "{metrics}");
    metrics.contains(&line(1))
}
