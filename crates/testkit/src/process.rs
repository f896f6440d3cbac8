//! The two programs as processes, for the tests that run them as a user does.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use clap::Parser as _;
use futures::FutureExt as _;
use http::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::Instant;
use windlass::clock::Clock;
use windlass_sandbox::cli::Args;
use windlass_sandbox::controllers;
use windlass_sandbox::nodes;
use windlass_sandbox::session::{self, Environment};

use super::user::{another_image, send};

/// Nothing here takes a tenth of this on an idle machine.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A child that does not outlive its test.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill(); // It may have ended by itself.
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts a program whose output goes to a file.
    pub fn start(program: &Path, args: &[&str], output: &Path) -> Self {
        let output = fs::File::create(output).unwrap();
        let errors = output.try_clone().unwrap();
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap();
        Process(child)
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let done = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// Waits for the end, for as long as [`WAIT_TIMEOUT`] lasts.
    pub fn exit_code(&mut self) -> Option<i32> {
        self.exit_code_within(WAIT_TIMEOUT)
    }

    /// Waits for the end; there is no code after a signal.
    pub fn exit_code_within(&mut self, patience: Duration) -> Option<i32> {
        let end = Instant::now() + patience;
        while Instant::now() < end {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the process did not end");
    }
}

/// The daemon, which cargo builds beside the tests of its package: `target/PROFILE/windlass` for
/// `target/PROFILE/deps/TEST`.
pub fn windlass() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().and_then(Path::parent).unwrap().join("windlass")
}

/// `windlass-sandbox nodes` beside any API server, without a process of its own; until `stopped` resolves.
///
/// # Errors
/// Those of the program.
pub async fn simulate_nodes(
    client: kube::Client,
    stopped: oneshot::Receiver<&'static str>,
) -> anyhow::Result<()> {
    let args = Args::try_parse_from(["windlass-sandbox", "nodes"])?;
    let Some(windlass_sandbox::cli::Command::Nodes(args)) = args.command else {
        unreachable!("as typed above")
    };
    let interrupted = async { stopped.await.unwrap_or("the end of the test") }.boxed();
    let now = Arc::new(|| Clock::System.now());
    nodes::run(args, client, "the API server".into(), now, Box::new(std::io::sink()), interrupted).await
}

/// A sandbox without controllers on a thread of its own, and a client for it.
pub struct Server {
    /// For kubeconfigs and logs.
    pub dir: tempfile::TempDir,
    /// A user's client.
    pub client: kube::Client,
    stop: Option<oneshot::Sender<&'static str>>,
    session: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.session.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(Ok(())))), "{ended:?}");
        }
    }
}

/// Runs a sandbox until `stop` is dropped.
fn run_session(args: Args, output: fs::File, stop: oneshot::Receiver<&'static str>) -> anyhow::Result<()> {
    let environment = Environment {
        now: Arc::new(|| Clock::System.now()),
        input: Box::new(std::io::empty()),
        output: Box::new(output),
        terminal: false,
        colour: false,
        interrupted: async { stop.await.unwrap_or("the end of the test") }.boxed(),
    };
    let start = |client, running, shutdown| controllers::start(client, running, Clock::System, 0, shutdown);
    let run = session::run(args, environment, Box::new(start));
    Runtime::new()?.block_on(run)
}

impl Server {
    /// Starts a sandbox and waits until it serves.
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("kubeconfig");
        let args = [
            "windlass-sandbox",
            "--no-controllers",
            "--ready-delay",
            "700ms",
            "--shutdown-delay",
            "100ms",
            "--write-kubeconfig",
            config.to_str().unwrap(),
        ];
        let args = Args::try_parse_from(args).unwrap();
        let output = fs::File::create(dir.path().join("sandbox.log")).unwrap();
        let (stop, stopped) = oneshot::channel();
        let session = std::thread::spawn(move || run_session(args, output, stopped));
        let end = Instant::now() + WAIT_TIMEOUT;
        while !config.exists() {
            assert!(Instant::now() < end, "the sandbox wrote no kubeconfig");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let config = Kubeconfig::read_from(&config).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
        Server {
            dir,
            client: kube::Client::try_from(config).unwrap(),
            stop: Some(stop),
            session: Some(session),
        }
    }

    /// A file of the test.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a kubeconfig for this server whose credentials come from a plugin: this shell script, which
    /// finds the server's directory in `$DIR`. What is to end with the test must end when that is gone.
    pub fn kubeconfig_with_plugin(&self, script: &str) -> PathBuf {
        let config = fs::read_to_string(self.file("kubeconfig")).unwrap();
        let mut config: Value = crate::manifests::object(&config);
        config["users"][0]["user"] = json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "/bin/sh",
            "args": ["-c", script],
            "env": [{"name": "DIR", "value": self.dir.path()}],
            "interactiveMode": "Never",
        }});
        let file = self.file("with-plugin");
        fs::write(&file, config.to_string()).unwrap();
        file
    }

    /// Starts the daemon against this server.
    pub fn daemon(&self, log: &str, more: &[&str]) -> Process {
        let config = self.file("kubeconfig");
        let config = format!("--kubeconfig={}", config.display());
        // Without a secure port: tests run side by side, and the default is one port for all. A test may
        // choose one, or lead the daemon elsewhere.
        let own = ["--secure-port=0", &config];
        let is_left = |own: &&&str| {
            let flag = own.split('=').next().unwrap_or_default();
            !more.iter().any(|given| given.starts_with(flag))
        };
        let args: Vec<&str> = own.iter().filter(is_left).chain(more).copied().collect();
        Process::start(&windlass(), &args, &self.file(log))
    }

    /// Sends a request as a user would; panics unless it succeeds.
    pub async fn call(&self, method: Method, path: &str, body: &Value) -> Value {
        send(&self.client, method, path, body).await.unwrap()
    }

    /// Creates the Deployment `web`.
    pub async fn create_web(&self, replicas: i32) {
        let web = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {
                "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {"metadata": {"labels": {"app": "web"}},
                             "spec": {"containers": [{"name": "app", "image": "app:1"}]}}
            }
        });
        self.call(Method::POST, "/apis/apps/v1/namespaces/default/deployments", &web).await;
    }

    /// Changes the image of `web`.
    pub async fn set_image(&self, tag: &str) {
        self.call(Method::PATCH, WEB, &another_image(tag)).await;
    }

    /// Waits until this holds of `web`.
    pub async fn eventually(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let end = Instant::now() + WAIT_TIMEOUT;
        loop {
            let web = self.call(Method::GET, WEB, &Value::Null).await;
            if holds(&web) {
                return;
            }
            let log = fs::read_to_string(self.file("daemon.log")).unwrap_or_default();
            assert!(Instant::now() < end, "{what}: {}\n{log}", web["status"]);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until `web` has rolled out.
    pub async fn rolled_out(&self) {
        self.eventually("the rollout ends", |web| {
            let status = &web["status"];
            let all = ["replicas", "updatedReplicas", "availableReplicas"];
            status["observedGeneration"] == web["metadata"]["generation"]
                && all.iter().all(|field| status[field] == web["spec"]["replicas"])
        })
        .await;
    }

    /// The names of all pods that the sandbox has ever shown.
    pub fn pods_seen(&self) -> BTreeSet<String> {
        let log = fs::read_to_string(self.file("sandbox.log")).unwrap();
        log.lines()
            .filter_map(|line| line.strip_prefix("pod default/")?.split(' ').next().map(str::to_string))
            .collect()
    }
}

/// The path of the Deployment `web`.
pub const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";

/// Runs a program to its end, without a kubeconfig to be found.
pub fn run(program: &Path, args: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    Command::new(program).args(args).env("HOME", home.path()).env_remove("KUBECONFIG").output().unwrap()
}
