//! The two programs as a user runs them: separate processes, a socket, signals, exit codes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use http::Method;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Nothing here takes a tenth of this on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A child that does not outlive its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill(); // It may have ended by itself.
        let _ = self.0.wait();
    }
}

impl Process {
    fn start(program: &str, args: &[&str], output: &Path) -> Self {
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

    fn terminate(&self) {
        let done = Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    fn exit_code(&mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the process did not end");
    }
}

const WINDLASS: &str = env!("CARGO_BIN_EXE_windlass");
const SANDBOX: &str = env!("CARGO_BIN_EXE_windlass-sandbox");

/// A sandbox without controllers in a process of its own, and a client for it.
struct Server {
    dir: tempfile::TempDir,
    client: kube::Client,
    _process: Process,
}

impl Server {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("kubeconfig");
        let args = [
            "--no-controllers",
            "--ready-delay",
            "300ms",
            "--shutdown-delay",
            "100ms",
            "--write-kubeconfig",
            config.to_str().unwrap(),
        ];
        let process = Process::start(SANDBOX, &args, &dir.path().join("sandbox.log"));
        let end = Instant::now() + PATIENCE;
        while !config.exists() {
            assert!(Instant::now() < end, "the sandbox wrote no kubeconfig");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let config = Kubeconfig::read_from(&config).unwrap();
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options).await.unwrap();
        Server { dir, client: kube::Client::try_from(config).unwrap(), _process: process }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts the daemon against this server.
    fn daemon(&self, log: &str, more: &[&str]) -> Process {
        let config = self.file("kubeconfig");
        let args = [&["--kubeconfig", config.to_str().unwrap()], more].concat();
        Process::start(WINDLASS, &args, &self.file(log))
    }

    async fn call(&self, method: Method, path: &str, body: &Value) -> Value {
        let content_type =
            if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = http::Request::builder().method(method).uri(path).header("content-type", content_type);
        self.client.request(request.body(bytes).unwrap()).await.unwrap()
    }

    async fn create_web(&self, replicas: i32) {
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

    async fn set_image(&self, tag: &str) {
        let containers = json!([{"name": "app", "image": format!("app:{tag}")}]);
        let patch = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        self.call(Method::PATCH, WEB, &patch).await;
    }

    async fn eventually(&self, what: &str, holds: impl Fn(&Value) -> bool) {
        let end = Instant::now() + PATIENCE;
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

    async fn rolled_out(&self) {
        self.eventually("the rollout ends", |web| {
            let status = &web["status"];
            let all = ["replicas", "updatedReplicas", "availableReplicas"];
            status["observedGeneration"] == web["metadata"]["generation"]
                && all.iter().all(|field| status[field] == web["spec"]["replicas"])
        })
        .await;
    }

    /// The names of all pods that the sandbox has ever shown.
    fn pods_seen(&self) -> BTreeSet<String> {
        let log = fs::read_to_string(self.file("sandbox.log")).unwrap();
        log.lines()
            .filter_map(|line| line.strip_prefix("pod default/")?.split(' ').next().map(str::to_string))
            .collect()
    }
}

const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";

#[tokio::test]
async fn the_daemon_killed_in_the_middle_and_started_again_ends_right_with_no_pod_twice() {
    let server = Server::start().await;
    // Alone, so that the second need not wait for the end of the first one's lease; see failover.rs.
    let alone = ["--leader-elect=false"];
    let mut first = server.daemon("daemon.log", &alone);
    server.create_web(4).await;
    server.rolled_out().await;
    server.set_image("2").await;
    server.eventually("the rollout is half way", |web| web["status"]["updatedReplicas"] == 2).await;
    first.0.kill().unwrap();
    first.0.wait().unwrap();

    let second = server.daemon("daemon.log", &alone);
    server.rolled_out().await;
    // The sandbox tells of a pod a moment after it was created.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(server.pods_seen().len(), 8, "four of each version");
    drop(second);
}

#[tokio::test]
async fn sigterm_ends_the_daemon_in_order_and_with_code_0() {
    let server = Server::start().await;
    let mut daemon = server.daemon("daemon.log", &[]);
    server.create_web(2).await;
    server.rolled_out().await;
    daemon.terminate();
    assert_eq!(daemon.exit_code(), Some(0), "{}", fs::read_to_string(server.file("daemon.log")).unwrap());
}

#[tokio::test]
async fn metrics_and_health_are_served_on_loopback() {
    let server = Server::start().await;
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let _daemon = server.daemon("daemon.log", &[&format!("--insecure-port={port}")]);
    server.create_web(1).await;
    server.rolled_out().await;
    let get = async |path: &str| {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    assert!(get("/healthz").await.contains("200 OK"));
    assert!(get("/readyz?verbose").await.contains("[+]informer-pods ok"));
    let metrics = get("/metrics").await;
    assert!(metrics.contains("workqueue_adds_total{name=\"deployment\"}"), "{metrics}");
}

fn run(program: &str, args: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    Command::new(program).args(args).env("HOME", home.path()).env_remove("KUBECONFIG").output().unwrap()
}

#[test]
fn a_daemon_that_cannot_start_says_which_flag_to_mend() {
    for (args, code, text) in [
        (&["--concurrent-deployment-syncs=0"][..], 2, "--concurrent-deployment-syncs must be"),
        (&["--no-such-flag"][..], 2, "--no-such-flag"),
        (&["--kubeconfig=/no/such/file"][..], 1, "--kubeconfig"),
        (&[][..], 1, "give --kubeconfig"),
    ] {
        let output = run(WINDLASS, args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {errors}");
        assert!(errors.contains(text), "{args:?}: {errors}");
    }
}

const GOOD: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: good}
spec:
  selector: {matchLabels: {app: good}}
  template:
    metadata: {labels: {app: good}}
    spec: {containers: [{name: c, image: 'i:1'}]}
";

/// A file of a good Deployment and a changed one: the message must name file, document and field, and
/// nothing may have been applied.
#[track_caller]
fn check_manifest(change: impl FnOnce(&str) -> String, expected: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("app.yaml");
    fs::write(&file, format!("{GOOD}---\n{}", change(&GOOD.replace("good", "bad")))).unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let output = run(
        SANDBOX,
        &[
            "-f",
            file.to_str().unwrap(),
            "--exit-when-complete",
            "--write-kubeconfig",
            kubeconfig.to_str().unwrap(),
        ],
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    for text in [&["app.yaml", "document 2"], expected].concat() {
        assert!(errors.contains(text), "{text:?} is missing in: {errors}");
    }
    assert_eq!(errors.lines().count(), 1, "one message: {errors}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("created"), "nothing is applied");
}

#[test]
fn a_bad_manifest_gets_one_message_with_file_document_and_field() {
    check_manifest(|_| "a: [b\nc: d".into(), &["line"]);
    check_manifest(|bad| bad.replace("apps/v1", "apps/v1beta1"), &["apps/v1beta1", "use apps/v1"]);
    check_manifest(
        |bad| bad.replace("selector: {matchLabels: {app: bad}}", "replicas: 1"),
        &["spec.selector"],
    );
    check_manifest(
        |bad| bad.replace("matchLabels: {app: bad}", "matchLabels: {app: other}"),
        &["spec.template.metadata.labels", "does not match template"],
    );
    check_manifest(|bad| bad.replace("  selector", "  replicas: -1\n  selector"), &["spec.replicas", "-1"]);
    check_manifest(
        |bad| bad.replace("  selector", "  replcas: 1\n  selector"),
        &["unknown field", "spec.replcas"],
    );
    check_manifest(|bad| bad.replace("kind: Deployment", "kind: Deploymint"), &["Deploymint"]);
}
