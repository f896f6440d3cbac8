//! One run of `windlass-sandbox`: what is built, in which order, and how it ends.
//!
//! Manifests are read and checked before anything is shown or written, so that a mistake in them costs
//! nothing. All built-in clients talk to the router in this process; the socket is for kubectl.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use kube::Client;
use tokio::{net::TcpListener, task::JoinHandle, task::JoinSet};
use tokio_util::sync::CancellationToken;

use windlass_apiserver::{Options, Sandbox};
use windlass_nodes::{api_client::Now, garbage, kubelet, namespaces};

use super::{
    cli::Args,
    cluster::{self, Cluster},
    event_lines::EventLines,
    kubeconfig,
    manifest::{self, Object},
    node_flags,
    progress::{Progress, Target, Verdict},
    view,
};

/// How long everything may take to end once it was told to.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a session is given of the world.
pub struct Surroundings {
    /// The time.
    pub now: Now,
    /// Where manifests named `-` come from.
    pub input: Box<dyn Read + Send>,
    /// Where lines go.
    pub output: Box<dyn Write + Send>,
    /// Whether `output` is a terminal that the live view may use.
    pub terminal: bool,
    /// Whether colours are wanted there.
    pub colour: bool,
    /// Becomes ready with the name of the signal that asks the session to end.
    pub interrupted: BoxFuture<'static, &'static str>,
}

/// Starts the controllers, with a client of their own, until the token is cancelled.
pub type StartControllers =
    Box<dyn FnOnce(Client, CancellationToken) -> JoinHandle<anyhow::Result<()>> + Send>;

/// Runs the sandbox until it is interrupted, or, with `--exit-when-complete`, until the rollouts are done.
///
/// `start_controllers` starts the Deployment and ReplicaSet controllers; it is not called with
/// `--no-controllers`. It is an argument because the sandbox knows nothing of them.
///
/// # Errors
/// One message for the person at the keyboard: a manifest that is wrong, a port that is taken, a rollout
/// that did not come to its end.
//
// Boxed, and not generic, so that the compiler makes it once, with this library: an `async fn` is made anew in each
// crate that awaits it.
pub fn run(
    args: Args,
    surroundings: Surroundings,
    start_controllers: StartControllers,
) -> BoxFuture<'static, anyhow::Result<()>> {
    Box::pin(session(args, surroundings, start_controllers))
}

async fn session(
    args: Args,
    surroundings: Surroundings,
    start_controllers: StartControllers,
) -> anyhow::Result<()> {
    let Surroundings { now, mut input, output, terminal, colour, interrupted } = surroundings;
    node_flags::check(args.nodes, &args.node_labels, &args.node_taints)?;
    let objects = manifest::read(&args.filenames, input.as_mut())?;

    let mut options = Options::new(now.clone());
    options.seed = args.seed;
    let sandbox = Sandbox::new(options);
    let client = Client::new(sandbox.router(), "default");
    manifest::apply::check(&client, &objects).await?;

    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener =
        TcpListener::bind(address).await.with_context(|| format!("--port {}: cannot listen", args.port))?;
    let address = listener.local_addr()?;
    let path = &args.write_kubeconfig;
    kubeconfig::write(path, address)
        .with_context(|| format!("--write-kubeconfig {}: cannot write it", path.display()))?;

    let shutdown = CancellationToken::new();
    let mut crew = Crew { members: JoinSet::new(), shutdown: shutdown.clone() };
    {
        let (sandbox, shutdown) = (sandbox.clone(), shutdown.clone());
        crew.add("API server", async move { Ok(sandbox.serve(listener, shutdown).await?) });
    }
    if !args.no_pod_simulator {
        let options = kubelet::Options {
            nodes: args.nodes,
            node_labels: args.node_labels.clone(),
            node_taints: args.node_taints.clone(),
            ready_delay: args.ready_delay,
            shutdown_delay: args.shutdown_delay,
            never_ready: args.never_ready.clone(),
            ..kubelet::Options::new(now.clone())
        };
        let simulator = kubelet::run(client.clone(), options, shutdown.clone());
        crew.add("pod simulator", simulator.map(Ok));
    }
    // These two are part of any cluster that one's own controllers would be tried in.
    let collector = garbage::run(client.clone(), shutdown.clone());
    crew.add("garbage collector", collector.map(Ok));
    let controller = namespaces::run(client.clone(), now, shutdown.clone());
    crew.add("namespace controller", controller.map(Ok));
    if !args.no_controllers {
        let controllers = start_controllers(client.clone(), shutdown.clone());
        crew.add("controllers", async move { controllers.await? });
    }

    let heading = [
        format!("windlass-sandbox serves a Kubernetes API on http://{address}"),
        format!("    export KUBECONFIG={}", quoted(&path.display().to_string())),
        "    kubectl get deploy,rs,pods".to_owned(),
    ];
    let mut console = Console { output, terminal, colour };
    let end = tokio::select! {
        end = perform(&client, &args, &objects, &heading, &mut console, shutdown) => end,
        signal = interrupted => Ok(End::Interrupted(signal)),
        loss = crew.loss() => Err(loss),
    };
    crew.dismiss().await;
    match end? {
        End::Interrupted(signal) if args.exit_when_complete => {
            bail!("interrupted by {signal} before everything was rolled out")
        }
        End::Interrupted(_) | End::ReaderGone | End::Complete => Ok(()),
    }
}

/// A path as a shell takes it.
fn quoted(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%".contains(c);
    if path.chars().all(plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

/// The tasks of a session. None of them may end before the session does.
struct Crew {
    members: JoinSet<(&'static str, anyhow::Result<()>)>,
    shutdown: CancellationToken,
}

impl Crew {
    fn add(&mut self, name: &'static str, task: impl Future<Output = anyhow::Result<()>> + Send + 'static) {
        self.members.spawn(async move { (name, task.await) });
    }

    /// Waits for a task to end, which is an error whatever it says.
    async fn loss(&mut self) -> anyhow::Error {
        match self.members.join_next().await {
            Some(Ok((name, Err(error)))) => error.context(format!("the {name} failed")),
            Some(Ok((name, Ok(())))) => anyhow!("the {name} ended by itself"),
            Some(Err(error)) => anyhow!(error).context("a part of the sandbox failed"),
            None => std::future::pending().await,
        }
    }

    /// Tells all tasks to end and waits for them, but not for ever.
    async fn dismiss(&mut self) {
        self.shutdown.cancel();
        let all = async { while self.members.join_next().await.is_some() {} };
        if tokio::time::timeout(PATIENCE, all).await.is_err() {
            tracing::warn!("some parts of the sandbox did not end in time");
            self.members.abort_all();
        }
    }
}

/// Where lines go. A reader that went away, as with `| head`, ends the session and is no error.
struct Console {
    output: Box<dyn Write + Send>,
    terminal: bool,
    colour: bool,
}

impl Console {
    fn line(&mut self, line: &str) -> std::io::Result<()> {
        writeln!(self.output, "{line}")?;
        self.output.flush()
    }
}

/// How the main part of a session ended.
enum End {
    Interrupted(&'static str),
    Complete,
    ReaderGone,
}

/// Applies the manifests, then shows or tells what happens.
async fn perform(
    client: &Client,
    args: &Args,
    objects: &[Object],
    heading: &[String],
    console: &mut Console,
    shutdown: CancellationToken,
) -> anyhow::Result<End> {
    for line in heading {
        if console.line(line).is_err() {
            return Ok(End::ReaderGone);
        }
    }
    let mut broken = false;
    manifest::apply::apply(client, objects, |object, applied| {
        broken |= console.line(&format!("{object} {applied}")).is_err();
    })
    .await?;
    if broken {
        return Ok(End::ReaderGone);
    }
    if args.exit_when_complete {
        return wait(client, args, objects, console).await;
    }
    if console.terminal {
        view::show(cluster::news(client), heading, console.colour, shutdown)
            .await
            .context("the terminal failed")?;
        return Ok(End::Interrupted("the keyboard"));
    }
    let mut news = cluster::news(client);
    let mut narrator = EventLines::default();
    while let Some(change) = news.next().await {
        if let Some(line) = narrator.tell(&change)
            && console.line(&line).is_err()
        {
            return Ok(End::ReaderGone);
        }
    }
    Ok(End::ReaderGone)
}

/// Tells what happens until every Deployment and DaemonSet of the manifests is rolled out.
async fn wait(
    client: &Client,
    args: &Args,
    objects: &[Object],
    console: &mut Console,
) -> anyhow::Result<End> {
    let targets = objects.iter().filter_map(|object| Target::new(object.kind(), cluster::key(&object.body)));
    let mut progress = Progress::new(targets);
    if progress.is_empty() {
        return match console.line("the manifests have no Deployment or DaemonSet: nothing to wait for") {
            Ok(()) => Ok(End::Complete),
            Err(_) => Ok(End::ReaderGone),
        };
    }
    let mut news = cluster::news(client);
    let mut narrator = EventLines::default();
    let mut cluster = Cluster::default();
    let deadline = tokio::time::sleep(args.timeout);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            () = &mut deadline => {
                let why = progress.unfinished(&cluster);
                bail!("--timeout {:?} has passed:\n{why}", args.timeout);
            }
            Some(change) = news.next() => {
                if let Some(line) = narrator.tell(&change)
                    && console.line(&line).is_err()
                {
                    return Ok(End::ReaderGone);
                }
                let judge = Progress::depends_on(change.kind);
                cluster.observe(change);
                if !judge {
                    continue;
                }
                match progress.judge(&cluster) {
                    Verdict::Pending => {}
                    Verdict::Failed(why) => bail!("{why}"),
                    Verdict::Complete => {
                        return Ok(console.line(&progress.done()).map_or(End::ReaderGone, |()| End::Complete));
                    }
                }
            }
        }
    }
}

/// Becomes ready with the name of the first signal that asks this process to end: Ctrl-C where there are no signals.
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
    fn a_path_can_be_pasted_into_a_shell() {
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
    struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Runs a session on `manifest`. In place of the controllers, the Deployment's status is set to
    /// `status` over and over; with `null`, nothing is done. Gives back the end and what was written.
    async fn session(flags: &[&str], manifest: &'static str, status: Value) -> (Result<(), String>, String) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig").display().to_string();
        let flags =
            ["windlass-sandbox", "--write-kubeconfig", &path].into_iter().chain(flags.iter().copied());
        let args = Args::try_parse_from(flags).unwrap();
        let interrupted = if args.exit_when_complete {
            std::future::pending().boxed()
        } else {
            tokio::time::sleep(Duration::from_secs(60)).map(|()| "SIGTERM").boxed()
        };
        let paper = Paper::default();
        let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let surroundings = Surroundings {
            now: Arc::new(move || start),
            input: Box::new(manifest.as_bytes()),
            output: Box::new(paper.clone()),
            terminal: false,
            colour: false,
            interrupted,
        };
        let controllers = |client: Client, shutdown: CancellationToken| {
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
        let end = run(args, surroundings, Box::new(controllers)).await.map_err(|error| format!("{error:#}"));
        let written = String::from_utf8(paper.0.lock().clone()).unwrap();
        (end, written)
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_well_when_every_deployment_is_rolled_out() {
        let status = json!({"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1,
                            "availableReplicas": 1});
        let (end, written) = session(&["-f", "-", "--exit-when-complete"], MANIFEST, status).await;
        assert_eq!(end, Ok(()));
        assert!(written.contains("export KUBECONFIG="), "{written}");
        assert!(written.contains("\nDeployment default/web created\n"), "{written}");
        assert!(written.ends_with("all Deployments are rolled out: 1\n"), "{written}");
    }

    #[tokio::test(start_paused = true)]
    async fn it_fails_with_the_reason_when_the_deadline_or_the_time_out_passes() {
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
        assert!(why.starts_with("--timeout 30s has passed:\nDeployment default/web: Waiting for"), "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_deployments_there_is_nothing_to_wait_for() {
        let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}";
        let (end, written) = session(&["-f", "-", "--exit-when-complete"], map, Value::Null).await;
        assert_eq!(end, Ok(()));
        assert!(
            written.ends_with("the manifests have no Deployment or DaemonSet: nothing to wait for\n"),
            "{written}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn daemon_sets_are_waited_for_too() {
        let set = "
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
        let (end, written) = session(&flags, set, Value::Null).await;
        assert_eq!(
            end.unwrap_err(),
            "--timeout 30s has passed:\nDaemonSet default/agent: Waiting for daemon set spec update to be \
             observed..."
        );
        let line = "daemonset default/agent desired=0 current=0 updated=0 ready=0 available=0\n";
        assert_eq!(written.matches(line).count(), 1, "{written}");
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_cannot_be_end_it_before_anything_is_written() {
        let flags = ["--nodes", "1", "--node-label", "2=zone=a"];
        let (end, written) = session(&flags, "", Value::Null).await;
        assert!(end.unwrap_err().starts_with("--node-label: sandbox-node-2 does not exist with --nodes 1"));
        assert_eq!(written, "");
    }

    #[tokio::test(start_paused = true)]
    async fn a_signal_ends_it_cleanly_and_until_then_changes_are_told() {
        let (end, written) = session(&["-f", "-"], MANIFEST, json!({"observedGeneration": 1})).await;
        assert_eq!(end, Ok(()));
        let line = "deployment default/web wanted=1 replicas=0 updated=0 ready=0 available=0\n";
        assert_eq!(written.matches(line).count(), 1, "{written}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_bad_manifest_ends_it_before_anything_is_written() {
        let (end, written) = session(&["-f", "-"], "kind: [", Value::Null).await;
        assert!(end.unwrap_err().starts_with("standard input: document 1: "));
        assert_eq!(written, "");
    }

    #[tokio::test(start_paused = true)]
    async fn controllers_that_end_by_themselves_end_the_session() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("kubeconfig").display().to_string();
        let args = Args::try_parse_from(["windlass-sandbox", "--write-kubeconfig", &path]).unwrap();
        let start: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let surroundings = Surroundings {
            now: Arc::new(move || start),
            input: Box::new(std::io::empty()),
            output: Box::new(Paper::default()),
            terminal: false,
            colour: false,
            interrupted: std::future::pending().boxed(),
        };
        let controllers = |_, _| tokio::spawn(async { Err(anyhow!("no luck")) });
        let end = run(args, surroundings, Box::new(controllers)).await;
        assert_eq!(format!("{:#}", end.unwrap_err()), "the controllers failed: no luck");
    }
}
