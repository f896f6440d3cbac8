//! One run of `windlass-sandbox`: its parts, their order, and its end.
//!
//! Manifests are read and validated before anything is printed or written, so that an invalid one has no effect. All
//! built-in clients use the router in this process; the socket is for kubectl.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use futures::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, Shared},
};
use http::{Request, header::CONTENT_TYPE};
use kube::Client;
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinHandle, task::JoinSet};
use tokio_util::sync::CancellationToken;

use windlass_apiserver::{Admission, Options, Sandbox};
use windlass_nodes::{api_client::Now, kubelet};

use super::{
    cli::Args,
    cluster::{self, Cluster},
    controllers::Running,
    event_lines::{EventLines, plain, plain_lines},
    kubeconfig,
    manifest::{self, Manifests, Object},
    node_flags, nodes,
    progress::{self, Completion, Progress, Target},
    view,
};

/// The longest time that the tasks may take to end after the shutdown began.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The clock, streams and signals of a session.
pub struct Environment {
    /// The time.
    pub now: Now,
    /// The manifest named `-`.
    pub input: Box<dyn Read + Send>,
    /// The destination of lines.
    pub output: Box<dyn Write + Send>,
    /// Whether `output` is a terminal that the live view may use.
    pub terminal: bool,
    /// Whether the live view uses colours.
    pub colour: bool,
    /// Resolves to the name of the signal that ends the session.
    pub interrupted: BoxFuture<'static, &'static str>,
}

/// Starts these controllers, with a client of their own, until the token is cancelled.
pub type StartControllers =
    Box<dyn FnOnce(Client, Running, CancellationToken) -> JoinHandle<anyhow::Result<()>> + Send>;

/// Runs the sandbox until it is interrupted, or, with `--exit-when-complete`, until the rollouts are done.
///
/// `start_controllers` starts Windlass's controllers. It is an argument so that a test can do their work.
///
/// # Errors
/// One message for the user: an invalid manifest, a port in use, a rollout that did not complete.
//
// Boxed, and not generic, so that the compiler generates code for it once, in this library: an `async fn` is generated
// again in each crate that awaits it.
pub fn run(
    args: Args,
    environment: Environment,
    start_controllers: StartControllers,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(session(args, environment, start_controllers))
}

/// Writes a line to standard error. The log is off beside the live view.
#[allow(clippy::print_stderr)] // Nothing else is shown yet.
fn warn(warning: &str) {
    eprintln!("warning: {}", plain_lines(warning));
}

/// Most clusters have a default StorageClass. Its name is one that manifests hardly use for a class of their own; the newest of
/// several defaults counts.
async fn create_default_class(client: &Client) -> anyhow::Result<()> {
    let class = json!({
        "metadata": {
            "name": "windlass-sandbox",
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "windlass.dev/made-up",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    let request =
        Request::post("/apis/storage.k8s.io/v1/storageclasses").header(CONTENT_TYPE, "application/json");
    client.request::<Value>(request.body(class.to_string().into_bytes())?).await?;
    Ok(())
}

async fn session(
    args: Args,
    environment: Environment,
    start_controllers: StartControllers,
) -> anyhow::Result<()> {
    let Environment { now, mut input, output, terminal, colour, interrupted } = environment;
    node_flags::check(args.nodes, &args.node_labels, &args.node_taints)?;
    let mut manifests = manifest::read(&args.filenames, input.as_mut())?;
    if args.create_namespaces {
        manifests.add_namespaces();
    }
    let Manifests { objects, warnings } = manifests;
    warnings.iter().for_each(|warning| warn(warning));

    let mut options = Options::new(now.clone());
    options.seed = args.seed;
    // Accounts and classes that the manifests themselves bring are not there before they are applied.
    let judge = Sandbox::new(options.clone());
    manifest::apply::check(&Client::new(judge.router(), "default"), &objects).await?;
    drop(judge);
    options.admission = Admission::CLUSTER;
    let sandbox = Sandbox::new(options);
    let client = Client::new(sandbox.router(), "default");

    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("--port {}: cannot listen", args.port))?;
    let address = listener.local_addr()?;
    let path = &args.write_kubeconfig;
    // Whoever reads the heading may be in another directory.
    let path = std::path::absolute(path).unwrap_or_else(|_| path.clone());
    if let Some(running) = kubeconfig::running(&path).await {
        bail!(
            "--write-kubeconfig {}: the sandbox at {running} has written it and still runs: stop that one, or name \
             another file",
            path.display()
        );
    }
    kubeconfig::write(&path, address)
        .with_context(|| format!("--write-kubeconfig {}: cannot write the kubeconfig", path.display()))?;
    let _written = Written { path: path.clone(), address };

    let shutdown = CancellationToken::new();
    let mut tasks = Tasks { running: JoinSet::new(), shutdown: shutdown.clone() };
    {
        let (sandbox, shutdown) = (sandbox.clone(), shutdown.clone());
        tasks.add("API server", async move { Ok(sandbox.serve(listener, shutdown).await?) });
    }
    if !args.no_pod_simulator && !args.no_volumes {
        create_default_class(&client).await?;
    }
    if !args.no_pod_simulator {
        let options = kubelet::Options {
            nodes: args.nodes,
            // Two controllers of this process look after the nodes.
            node_lifecycle: false,
            node_labels: args.node_labels.clone(),
            node_taints: args.node_taints.clone(),
            ready_delay: args.ready_delay,
            shutdown_delay: args.shutdown_delay,
            never_ready: args.never_ready.clone(),
            pod_outcomes: args.pod_outcomes.clone(),
            volumes: !args.no_volumes,
            ..kubelet::Options::new(now)
        };
        let simulator = kubelet::run(client.clone(), options, shutdown.clone());
        tasks.add("pod simulator", simulator.map(Ok));
        nodes::created(&sandbox, args.nodes).await;
    }
    let running = Running {
        workloads: !args.no_controllers,
        garbage_collector: !args.no_garbage_collector,
        namespace_controller: !args.no_namespace_controller,
    };
    let controllers = start_controllers(client.clone(), running, shutdown.clone());
    tasks.add("controllers", async move { controllers.await? });

    let heading = [
        format!("windlass-sandbox serves a Kubernetes API on http://{address}"),
        format!("    export KUBECONFIG={}", quoted(&path.display().to_string())),
        "    kubectl get deploy,rs,pods".to_owned(),
    ];
    let mut console = Console { output, terminal, colour };
    let interrupted = interrupted.shared();
    let work = perform(&client, &args, objects, &heading, &mut console, interrupted.clone(), shutdown);
    let end = tokio::select! {
        // While it waits it hears of the signal as well, and says more.
        biased;
        end = work => end,
        signal = interrupted => Ok(End::Interrupted(signal)),
        loss = tasks.first_end() => Err(loss),
    };
    tasks.stop().await;
    match end? {
        End::Interrupted(signal) if args.exit_when_complete => {
            bail!("interrupted by {signal} before everything was rolled out")
        }
        End::Interrupted(_) | End::OutputClosed | End::Complete => Ok(()),
    }
}

/// A kubeconfig that ends with the session.
struct Written {
    path: PathBuf,
    address: SocketAddr,
}

impl Drop for Written {
    fn drop(&mut self) {
        kubeconfig::remove(&self.path, self.address);
    }
}

/// A path, quoted for a shell.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

/// The tasks of a session. None of them may end before the session does.
struct Tasks {
    running: JoinSet<(&'static str, anyhow::Result<()>)>,
    shutdown: CancellationToken,
}

impl Tasks {
    fn add(&mut self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.running.spawn(async move { (name, task.await) });
    }

    /// Waits for a task to end, which is an error even if the task succeeded.
    async fn first_end(&mut self) -> anyhow::Error {
        match self.running.join_next().await {
            Some(Ok((name, Err(error)))) => error.context(format!("the {name} failed")),
            Some(Ok((name, Ok(())))) => anyhow!("the {name} ended unexpectedly"),
            Some(Err(error)) => anyhow!(error).context("a task of the sandbox failed"),
            None => std::future::pending().await,
        }
    }

    /// Cancels all tasks and waits for them, at most [`SHUTDOWN_TIMEOUT`].
    async fn stop(&mut self) {
        self.shutdown.cancel();
        let all = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, all).await.is_err() {
            tracing::warn!(
                "some tasks of the sandbox did not end within {SHUTDOWN_TIMEOUT:?}; aborting them"
            );
            self.running.abort_all();
        }
    }
}

/// The destination of lines, each of which may hold texts of others. A reader that closes the pipe, as with `| head`, ends the session and is no error.
struct Console {
    output: Box<dyn Write + Send>,
    terminal: bool,
    colour: bool,
}

impl Console {
    fn line(&mut self, line: &str) -> std::io::Result<()> {
        writeln!(self.output, "{}", plain(line))?;
        self.output.flush()
    }
}

/// Resolves to the name of the signal that ends the session.
type Interrupted = Shared<BoxFuture<'static, &'static str>>;

/// How the main part of a session ended.
enum End {
    Interrupted(&'static str),
    Complete,
    OutputClosed,
}

/// Applies the manifests, then shows the live view or prints changes.
async fn perform(
    client: &Client,
    args: &Args,
    mut objects: Vec<Object>,
    heading: &[String],
    console: &mut Console,
    interrupted: Interrupted,
    shutdown: CancellationToken,
) -> anyhow::Result<End> {
    for line in heading {
        if console.line(line).is_err() {
            return Ok(End::OutputClosed);
        }
    }
    let mut broken = false;
    manifest::apply::apply(client, &mut objects, |object, applied| {
        broken |= console.line(&format!("{object} {applied}")).is_err();
    })
    .await?;
    if broken {
        return Ok(End::OutputClosed);
    }
    for note in manifest::inert::notes(&objects) {
        if console.line(&note).is_err() {
            return Ok(End::OutputClosed);
        }
    }
    // They never end.
    let cron_jobs = objects.iter().filter(|object| object.kind() == "CronJob").count();
    let target = |object: &Object| Target::new(object.kind(), cluster::key(&object.body));
    let targets: Vec<Target> = objects.iter().filter_map(target).collect();
    // They are a multiple of the manifests' size.
    drop(objects);
    if args.exit_when_complete {
        return wait(client, args, targets, cron_jobs, console, interrupted).await;
    }
    if console.terminal {
        view::show(cluster::changes(client), heading, console.colour, shutdown)
            .await
            .context("cannot use the terminal")?;
        return Ok(End::Interrupted("the keyboard"));
    }
    let mut changes = cluster::changes(client);
    let mut lines = EventLines::default();
    while let Some(change) = changes.next().await {
        if let Some(line) = lines.line(&change)
            && console.line(&line).is_err()
        {
            return Ok(End::OutputClosed);
        }
    }
    Ok(End::OutputClosed)
}

/// Prints changes until every workload of the manifests that the sandbox runs is complete.
async fn wait(
    client: &Client,
    args: &Args,
    targets: Vec<Target>,
    cron_jobs: usize,
    console: &mut Console,
    mut interrupted: Interrupted,
) -> anyhow::Result<End> {
    let end = |text: String, console: &mut Console| {
        let rest =
            if cron_jobs == 0 { String::new() } else { format!("; not waited for: CronJob {cron_jobs}") };
        console.line(&(text + &rest)).map_or(End::OutputClosed, |()| End::Complete)
    };
    let mut progress = Progress::new(targets);
    if progress.is_empty() {
        let kinds = progress::waited_for("or");
        return Ok(end(format!("the manifests have no {kinds}: nothing to wait for"), console));
    }
    let mut changes = cluster::changes(client);
    let mut lines = EventLines::default();
    let mut cluster = Cluster::default();
    let deadline = tokio::time::sleep(args.timeout);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            () = &mut deadline => {
                let why = progress.unfinished(&cluster);
                bail!("not rolled out within --timeout {:?}:\n{why}", args.timeout);
            }
            signal = &mut interrupted => {
                let why = progress.unfinished(&cluster);
                bail!("interrupted by {signal} before everything was rolled out:\n{why}");
            }
            Some(change) = changes.next() => {
                if let Some(line) = lines.line(&change)
                    && console.line(&line).is_err()
                {
                    return Ok(End::OutputClosed);
                }
                let (kind, key) = (change.kind, cluster::key(&change.object));
                cluster.observe(change);
                match progress.completion_after(kind, key, &cluster) {
                    Completion::Pending => {}
                    Completion::Failed(why) => bail!("{why}"),
                    Completion::Complete => return Ok(end(progress.done(&cluster), console)),
                }
            }
        }
    }
}

/// Resolves to the name of the first signal that ends this process: Ctrl-C where there are no signals.
pub fn signalled() -> BoxFuture<'static, &'static str> {
    Box::pin(signal_to_end())
}

#[cfg(unix)]
async fn signal_to_end() -> &'static str {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [
        ("SIGINT", SignalKind::interrupt()),
        ("SIGTERM", SignalKind::terminate()),
        ("SIGHUP", SignalKind::hangup()),
    ];
    let waits = kinds.map(|(name, kind)| {
        Box::pin(async move {
            match signal(kind) {
                Ok(mut signal) => {
                    signal.recv().await;
                }
                Err(error) => {
                    tracing::warn!(name, %error, "cannot listen for the signal");
                    std::future::pending::<()>().await;
                }
            }
            name
        })
    });
    futures::future::select_all(waits).await.0
}

#[cfg(not(unix))]
async fn signal_to_end() -> &'static str {
    match tokio::signal::ctrl_c().await {
        Ok(()) => "Ctrl-C",
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser as _;
    use kube::core::{Request, params::Patch, params::PatchParams};
    use parking_lot::Mutex;
    use serde_json::{Value, json};

    use super::*;
    use windlass_nodes::api_client::send;

    #[test]
    fn a_path_is_quoted_for_a_shell() {
        assert_eq!(quoted("./windlass.kubeconfig"), "./windlass.kubeconfig");
        assert_eq!(quoted("/tmp/it's mine"), r"'/tmp/it'\''s mine'");
    }

    const MANIFEST: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: nginx}]}
";

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Runs a session on `manifest`. Instead of controllers, a task sets the Deployment's status to `status` every
    /// second; with `null` it does nothing. Returns the result and the output.
    async fn session(flags: &[&str], manifest: &'static str, status: Value) -> (Result<(), String>, String) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig").display().to_string();
        let flags =
            ["windlass-sandbox", "--write-kubeconfig", &path].into_iter().chain(flags.iter().copied());
        let args = Args::try_parse_from(flags).unwrap();
        let interrupted_after = Duration::from_mins(if args.exit_when_complete { 20 } else { 1 });
        let interrupted = tokio::time::sleep(interrupted_after).map(|()| "SIGTERM").boxed();
        let buffer = Buffer::default();
        let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let environment = Environment {
            now: Arc::new(move || start),
            input: Box::new(manifest.as_bytes()),
            output: Box::new(buffer.clone()),
            terminal: false,
            colour: false,
            interrupted,
        };
        let controllers = |client: Client, _, shutdown: CancellationToken| {
            tokio::spawn(async move {
                let work = async {
                    loop {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        let deployments = Request::new("/apis/apps/v1/namespaces/default/deployments");
                        let patch = Patch::Merge(json!({"status": status}));
                        let parameters = PatchParams::default();
                        let request = deployments.patch_subresource("status", "web", &parameters, &patch);
                        if !status.is_null() {
                            send(&client, request).await.unwrap();
                        }
                    }
                };
                shutdown.run_until_cancelled(work).await;
                Ok(())
            })
        };
        let end = run(args, environment, Box::new(controllers)).await.map_err(|error| format!("{error:#}"));
        let written = String::from_utf8(buffer.0.lock().clone()).unwrap();
        (end, written)
    }

    #[tokio::test(start_paused = true)]
    async fn exit_when_complete_succeeds_when_every_deployment_is_rolled_out() {
        let status = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
                            "availableReplicas": 1});
        let (end, written) = session(&["-f", "-", "--exit-when-complete"], MANIFEST, status).await;
        assert_eq!(end, Ok(()));
        assert!(written.contains("export KUBECONFIG="), "{written}");
        assert!(written.contains("\nDeployment default/web created\n"), "{written}");
        assert!(written.ends_with("all Deployments are rolled out: 1\n"), "{written}");
    }

    #[tokio::test(start_paused = true)]
    async fn exit_when_complete_fails_with_the_reason_after_the_deadline_or_the_timeout() {
        let late = json!({"observedGeneration": 1, "conditions": [
            {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too late"}]});
        let (end, _) = session(&["-f", "-", "--exit-when-complete"], MANIFEST, late).await;
        let why = end.unwrap_err();
        assert!(
            why.starts_with("Deployment default/web: deployment \"web\" exceeded its progress deadline"),
            "{why}"
        );
        let flags = ["-f", "-", "--exit-when-complete", "--timeout", "30s"];
        let (end, _) = session(&flags, MANIFEST, Value::Null).await;
        let why = end.unwrap_err();
        assert!(
            why.starts_with("not rolled out within --timeout 30s:\nDeployment default/web: Waiting for"),
            "{why}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_names_what_is_not_rolled_out_yet() {
        let flags = ["-f", "-", "--exit-when-complete", "--timeout", "30m"];
        let (end, _) = session(&flags, MANIFEST, Value::Null).await;
        let why = end.unwrap_err();
        let said =
            "interrupted by SIGTERM before everything was rolled out:\nDeployment default/web: Waiting for";
        assert!(why.starts_with(said), "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn exit_when_complete_ends_at_once_without_workloads() {
        let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";
        let (end, written) = session(&["-f", "-", "--exit-when-complete"], map, Value::Null).await;
        assert_eq!(end, Ok(()));
        assert!(
            written.ends_with(
                "the manifests have no Deployments, DaemonSets, StatefulSets, ReplicaSets, \
                 ReplicationControllers, Jobs or Pods: nothing to wait for\n"
            ),
            "{written}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_that_the_manifests_lack_are_created_if_asked_for() {
        let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: istio-system}}";
        let (end, _) = session(&["-f", "-", "--exit-when-complete"], map, Value::Null).await;
        let why = end.unwrap_err();
        let said = "namespaces \"istio-system\" not found; add it to the manifests, or create all with --create-namespaces";
        assert!(why.contains(said), "{why}");
        let flags = ["-f", "-", "--exit-when-complete", "--create-namespaces"];
        let (end, written) = session(&flags, map, Value::Null).await;
        assert_eq!(end, Ok(()));
        let created = "Namespace istio-system created\nConfigMap istio-system/a created\n";
        assert!(written.contains(created), "{written}");
    }

    #[tokio::test(start_paused = true)]
    async fn exit_when_complete_waits_for_daemon_sets() {
        let daemon_set = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: main, image: nginx}]}
";
        let flags = ["-f", "-", "--exit-when-complete", "--timeout", "30s"];
        let (end, written) = session(&flags, daemon_set, Value::Null).await;
        assert_eq!(
            end.unwrap_err(),
            "not rolled out within --timeout 30s:\nDaemonSet default/agent: Waiting for daemon set spec update to be \
             observed..."
        );
        let line = "daemonset default/agent desired=0 current=0 updated=0 ready=0 available=0\n";
        assert_eq!(written.matches(line).count(), 1, "{written}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_invalid_node_flag_fails_before_anything_is_written() {
        let flags = ["--nodes", "1", "--node-label", "2=zone=a"];
        let (end, written) = session(&flags, "", Value::Null).await;
        assert!(end.unwrap_err().starts_with("--node-label: sandbox-node-2 does not exist with --nodes 1"));
        assert_eq!(written, "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_session_prints_changes_until_a_signal_ends_it() {
        let (end, written) = session(&["-f", "-"], MANIFEST, json!({"observedGeneration": 1})).await;
        assert_eq!(end, Ok(()));
        let line = "deployment default/web desired=1 replicas=0 updated=0 ready=0 available=0\n";
        assert_eq!(written.matches(line).count(), 1, "{written}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_invalid_manifest_fails_before_anything_is_written() {
        let (end, written) = session(&["-f", "-"], "kind: [", Value::Null).await;
        assert!(end.unwrap_err().starts_with("standard input: document 1: "));
        assert_eq!(written, "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_of_the_controllers_ends_the_session() {
        let directory = tempfile::tempdir().unwrap();
        let end = with_kubeconfig(&directory.path().join("kubeconfig")).await;
        assert_eq!(format!("{:#}", end.unwrap_err()), "the controllers failed: no luck");
    }

    /// `~/.kube/config` holds the only copy of many credentials.
    #[tokio::test(start_paused = true)]
    async fn a_file_of_somebody_else_ends_the_session_before_it_begins() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "precious: true\n").unwrap();
        let error = format!("{:#}", with_kubeconfig(file.path()).await.unwrap_err());
        for part in [
            "--write-kubeconfig ",
            "is not the kubeconfig of a sandbox alone",
            "name a file that does not exist",
        ] {
            assert!(error.contains(part), "{part:?}: {error}");
        }
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "precious: true\n");
    }

    /// A session with this kubeconfig, whose controllers fail.
    async fn with_kubeconfig(path: &std::path::Path) -> anyhow::Result<()> {
        let path = path.display().to_string();
        let args = Args::try_parse_from(["windlass-sandbox", "--write-kubeconfig", &path]).unwrap();
        let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let environment = Environment {
            now: Arc::new(move || start),
            input: Box::new(std::io::empty()),
            output: Box::new(Buffer::default()),
            terminal: false,
            colour: false,
            interrupted: std::future::pending().boxed(),
        };
        let controllers = |_, _, _| tokio::spawn(async { Err(anyhow!("no luck")) });
        run(args, environment, Box::new(controllers)).await
    }
}
