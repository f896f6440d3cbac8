//! A sandbox on a thread of its own, and the plugin as a process.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use futures::FutureExt as _;
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use windlass::clock::Clock;
use windlass_sandbox::cli::Args;
use windlass_sandbox::controllers;
use windlass_sandbox::session::{self, Environment};

/// The longest time that a test waits for anything.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The plugin.
pub const PLUGIN: &str = env!("CARGO_BIN_EXE_kubectl-windlass");

/// Deployments of the namespace that the tests use.
pub const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

/// A sandbox.
pub struct Sandbox {
    directory: tempfile::TempDir,
    client: kube::Client,
    runtime: tokio::runtime::Runtime,
    stop: Option<oneshot::Sender<&'static str>>,
    session: Option<std::thread::JoinHandle<anyhow::Result<()>>>,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.session.take().map(std::thread::JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(Ok(())))), "{ended:?}");
        }
    }
}

impl Sandbox {
    /// Starts a sandbox with these flags and waits until it serves. Images that end with `:broken` never start.
    pub fn start(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("kubeconfig");
        let own = ["windlass-sandbox", "--never-ready", ":broken$", "--ready-delay", "300ms"];
        let rest = ["--shutdown-delay", "100ms", "--write-kubeconfig", config.to_str().unwrap()];
        let args = Args::try_parse_from(own.iter().chain(&rest).chain(flags)).unwrap();
        let output = std::fs::File::create(directory.path().join("sandbox.log")).unwrap();
        let (stop, stopped) = oneshot::channel::<&'static str>();
        let session = std::thread::spawn(move || {
            let environment = Environment {
                now: Arc::new(|| Clock::System.now()),
                input: Box::new(std::io::empty()),
                output: Box::new(output),
                terminal: false,
                colour: false,
                interrupted: async { stopped.await.unwrap_or("the end of the test") }.boxed(),
            };
            let start =
                |client, running, shutdown| controllers::start(client, running, Clock::System, 0, shutdown);
            let run = session::run(args, environment, Box::new(start));
            tokio::runtime::Runtime::new()?.block_on(run)
        });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let mut waited = Duration::ZERO;
        while !config.exists() {
            assert!(waited < WAIT_TIMEOUT, "the sandbox wrote no kubeconfig");
            std::thread::sleep(Duration::from_millis(20));
            waited += Duration::from_millis(20);
        }
        let client = runtime.block_on(async {
            let read = Kubeconfig::read_from(&config).unwrap();
            let options = KubeConfigOptions::default();
            kube::Client::try_from(kube::Config::from_custom_kubeconfig(read, &options).await.unwrap())
                .unwrap()
        });
        Sandbox { directory, client, runtime, stop: Some(stop), session: Some(session) }
    }

    /// Where it serves.
    pub fn address(&self) -> std::net::SocketAddr {
        let text = std::fs::read_to_string(self.file("kubeconfig")).unwrap();
        let server = text.split("http://").nth(1).unwrap();
        server.lines().next().unwrap().trim().parse().unwrap()
    }

    /// Runs the plugin to its end against what stands in front of the sandbox.
    pub fn plugin_through(&self, front: &crate::front::Front, args: &[&str]) -> Ended {
        let server = format!("--server=http://{}", front.address);
        self.plugin(&[args, &[server.as_str()]].concat())
    }

    /// A client of the API server.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// A file of the test.
    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Sends a request; panics unless it succeeds.
    pub fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let media = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header("content-type", media);
        self.runtime.block_on(self.client.request(request.body(body).unwrap())).unwrap()
    }

    /// An object, or null.
    pub fn get(&self, path: &str) -> Value {
        let request = Request::builder().uri(path).body(Vec::new()).unwrap();
        self.runtime.block_on(self.client.request(request)).unwrap_or_default()
    }

    /// Creates the Deployment `web` with this image; `spec` is merged into its spec.
    pub fn create_web(&self, image: &str, spec: &Value) {
        let mut web = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {
                "replicas": 3, "selector": {"matchLabels": {"app": "web"}},
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {"metadata": {"labels": {"app": "web"}},
                             "spec": {"containers": [{"name": "app", "image": image}]}}
            }
        });
        for (key, value) in spec.as_object().into_iter().flatten() {
            web["spec"][key] = value.clone();
        }
        self.call("POST", DEPLOYMENTS, &web);
    }

    /// Changes the image of `web`.
    pub fn set_image(&self, image: &str) {
        let template = json!({"spec": {"containers": [{"name": "app", "image": image}]}});
        self.call("PATCH", &format!("{DEPLOYMENTS}/web"), &json!({"spec": {"template": template}}));
    }

    /// Waits until the object at `path` is as `holds` says.
    pub fn eventually(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut waited = Duration::ZERO;
        loop {
            let object = self.get(path);
            if holds(&object) {
                return object;
            }
            assert!(waited < WAIT_TIMEOUT, "{path}: {object:#}");
            std::thread::sleep(Duration::from_millis(50));
            waited += Duration::from_millis(50);
        }
    }

    /// Waits until `web` has this reason in its condition `Progressing`.
    pub fn web_reports(&self, reason: &str) {
        self.eventually(&format!("{DEPLOYMENTS}/web"), |web| {
            let is_observed = web["status"]["observedGeneration"] == web["metadata"]["generation"];
            let conditions = web["status"]["conditions"].as_array();
            is_observed && conditions.into_iter().flatten().any(|condition| condition["reason"] == reason)
        });
    }

    /// A program with the kubeconfig of this sandbox and nothing else of the environment that matters.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).env("KUBECONFIG", self.file("kubeconfig")).env("LC_ALL", "C.UTF-8");
        for variable in [
            "GITHUB_ACTIONS",
            "KUBECTL_PATH",
            "WINDLASS_ENDPOINT",
            "HTTPS_PROXY",
            "HTTP_PROXY",
            "https_proxy",
            "http_proxy",
        ] {
            command.env_remove(variable);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs the plugin to its end.
    pub fn plugin(&self, args: &[&str]) -> Ended {
        Ended::of(&self.command(PLUGIN, args).output().unwrap())
    }
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// stdout.
    pub out: String,
    /// stderr.
    pub err: String,
}

impl Ended {
    /// From the output of a process.
    pub fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// The lines of stdout as JSON.
    pub fn json_lines(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The real kubectl: among the programs of Kubernetes, or in PATH. Whoever asks is ignored unless it is asked for.
pub fn kubectl() -> PathBuf {
    let assets = std::env::var_os("KUBEBUILDER_ASSETS").map(|assets| Path::new(&assets).join("kubectl"));
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&paths).map(|directory| directory.join("kubectl"));
    let found = assets.into_iter().chain(in_path).find(|file| file.is_file());
    found.expect("a kubectl in KUBEBUILDER_ASSETS or PATH")
}
