//! Fail-over between real processes: signals, sockets and exit codes, in real time.
//!
//! The API server runs in this process, with a port for each daemon, so that its log tells them apart.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use windlass_planner_testkit::objects::deployment;
use windlass_testkit::cluster::tag;
use windlass_testkit::election::{A, B, Rig, S};
use windlass_testkit::process;

/// Short enough for a test, and long enough for a busy machine.
const LEASE_DURATION: Duration = Duration::from_secs(5);
const RETRY_PERIOD: Duration = Duration::from_millis(500);

/// A daemon in a process of its own, which does not outlive its test.
struct Process {
    child: process::Process,
    log: PathBuf,
}

impl Process {
    fn signal(&self, signal: &str) {
        let done = Command::new("kill").args([signal, &self.child.0.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    async fn exit_code(&mut self) -> Option<i32> {
        let end = Instant::now() + 30 * S;
        while Instant::now() < end {
            if let Some(status) = self.child.0.try_wait().unwrap() {
                return status.code();
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("the process did not end\n{}", self.log());
    }
}

/// A cluster and the daemons that stand for election in it.
struct Field {
    rig: Rig,
    dir: tempfile::TempDir,
}

impl Field {
    async fn new() -> Self {
        Field { rig: Rig::new().await, dir: tempfile::tempdir().unwrap() }
    }

    /// Starts a daemon that reaches the API server through a port of its own.
    async fn start(&self, agent: &'static str) -> Process {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = tag(self.rig.cluster.sandbox.router(), agent);
        tokio::spawn(async move { axum::serve(listener, router).await });
        let log: &Path = &self.dir.path().join(agent);
        let output = std::fs::File::create(log).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .args([
                &format!("--master=http://127.0.0.1:{port}"),
                "--secure-port=0",
                "--leader-elect",
                "--leader-elect-lease-duration=5s",
                "--leader-elect-renew-deadline=3500ms",
                "--leader-elect-retry-period=500ms",
                "--leader-elect-resource-namespace=kube-system",
            ])
            .stdin(Stdio::null())
            .stdout(output.try_clone().unwrap())
            .stderr(output)
            .spawn()
            .unwrap();
        Process { child: process::Process(child), log: log.to_owned() }
    }

    /// Two daemons, of which the first leads and has rolled `web` out.
    async fn two(&self) -> (Process, Process) {
        let a = self.start(A).await;
        self.rig.until(30, "a leads", |rig| !rig.holder().is_empty()).await;
        let b = self.start(B).await;
        self.rig.cluster.create(deployment("web").replicas(3).surge(1).unavailable(0)).await;
        self.rig.cluster.rolled_out("web").await;
        self.stands_by(&b).await;
        (a, b)
    }

    async fn stands_by(&self, daemon: &Process) {
        self.rig.until(30, "it stands by", |_| daemon.log().contains("standing by")).await;
    }

    /// When `agent` first acted as leader, counted from the start.
    async fn acts(&self, agent: &str) -> Duration {
        let first = |rig: &Rig| rig.acts().into_iter().find(|sent| sent.agent == agent);
        self.rig.until(60, "the other one acts", |rig| first(rig).is_some()).await;
        first(&self.rig).unwrap().at
    }

    fn written_by(&self, agent: &str) -> usize {
        self.rig.sent().iter().filter(|sent| sent.agent == agent).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_leader_that_resumes_after_a_takeover_writes_nothing_and_exits() {
    let field = Field::new().await;
    let (mut a, _b) = field.two().await;
    a.signal("-STOP");
    sleep(S / 5).await; // Requests that it sent before have arrived by now.
    let before = field.written_by("a");
    field.acts("b").await;
    // A rollout that the sleeper finds half done, so that it has every reason to act.
    field.rig.cluster.set_image("web", "v2").await;
    let half = |rig: &Rig| rig.cluster.deployment("web")["status"]["updatedReplicas"] == 1;
    field.rig.until(30, "half way", half).await;
    a.signal("-CONT");
    assert_eq!(a.exit_code().await, Some(1), "{}", a.log());
    assert_eq!(field.written_by("a"), before, "no write after it woke");
    assert!(a.log().contains("leader election lost"), "{}", a.log());
    field.rig.cluster.rolled_out("web").await;
    assert_eq!(field.rig.cluster.pods_created(), 6, "three of each version, and not one twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_leader_is_replaced_when_its_lease_expires() {
    let field = Field::new().await;
    let (mut a, _b) = field.two().await;
    field.rig.cluster.set_image("web", "v2").await;
    let half = |rig: &Rig| rig.cluster.deployment("web")["status"]["updatedReplicas"] == 1;
    field.rig.until(30, "half way", half).await;
    a.child.0.kill().unwrap();
    let killed = field.rig.start.elapsed();
    let took_over = field.acts("b").await - killed;
    assert!(took_over <= LEASE_DURATION + RETRY_PERIOD + S / 2, "{took_over:?}");
    field.rig.cluster.rolled_out("web").await;
    assert_eq!(field.rig.cluster.pods_created(), 6);
    assert_eq!(field.rig.lease()["spec"]["leaseTransitions"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_gets_sigterm_releases_the_lease_and_exits_with_0() {
    let field = Field::new().await;
    let (mut a, b) = field.two().await;
    a.signal("-TERM");
    assert_eq!(a.exit_code().await, Some(0), "{}", a.log());
    let released = field.rig.sent().into_iter().find(|sent| sent.release).expect("released").at;
    let took_over = field.acts("b").await - released;
    assert!(took_over <= RETRY_PERIOD + S / 2, "{took_over:?}\n{}", b.log());
    field.rig.one_at_a_time();
    field.rig.cluster.set_image("web", "v2").await;
    field.rig.cluster.rolled_out("web").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_lost_its_lease_exits_with_1_and_names_the_new_holder() {
    let field = Field::new().await;
    let mut a = field.start(A).await;
    field.rig.until(30, "a leads", |rig| !rig.holder().is_empty()).await;
    let patch: Value = json!({"spec": {"holderIdentity": "another-daemon"}});
    field.rig.cluster.call(http::Method::PATCH, windlass_testkit::election::LEASE, &patch).await;
    assert_eq!(a.exit_code().await, Some(1));
    assert!(a.log().contains("another-daemon holds it now"), "{}", a.log());
}

#[test]
fn a_blocked_worker_does_not_cost_the_lease() {
    // The daemon on a runtime with one worker, which does something else for longer than the Lease lasts.
    let field = tokio::runtime::Runtime::new().unwrap();
    let rig = field.block_on(Rig::new());
    let listener = field.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = tag(rig.cluster.sandbox.router(), A);
    field.spawn(async move { axum::serve(listener, router).await });
    let flags = format!(
        "windlass --master=http://127.0.0.1:{port} --secure-port=0 --leader-elect-lease-duration=3s \
         --leader-elect-renew-deadline=2500ms --leader-elect-retry-period=500ms \
         --leader-elect-resource-namespace=kube-system"
    );
    let args = windlass::args::load(flags.split_whitespace().map(Into::into)).unwrap();
    let config = windlass::config::Config::try_from(args).unwrap();
    let (verbosity, shutdown) =
        (windlass::logging::init(&Default::default()).unwrap(), CancellationToken::new());
    let one = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let daemon = one.spawn(windlass::app::run(config, verbosity, 1, shutdown.clone()));
    field.block_on(rig.until(30, "it leads", |rig| !rig.holder().is_empty()));
    let renewed = rig.lease()["spec"]["renewTime"].clone();
    one.spawn(async { std::thread::sleep(6 * S) });
    std::thread::sleep(6 * S);
    assert_ne!(rig.lease()["spec"]["renewTime"], renewed);
    std::thread::sleep(S);
    assert!(!daemon.is_finished(), "{:?}", one.block_on(daemon));
    shutdown.cancel();
    one.block_on(daemon).unwrap().unwrap();
}
