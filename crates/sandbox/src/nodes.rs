//! `windlass-sandbox nodes`: the simulated nodes beside somebody else's API server.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Client;
use regex_lite::Regex;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use windlass_apiserver::Sandbox;
use windlass_nodes::api_client::{Now, send};
use windlass_nodes::kubelet::outcomes::ImageOutcome;
use windlass_nodes::kubelet::{self, NodeLabel, NodeTaint};

use super::event_lines::plain;
use super::{cli, node_flags};

/// How long the tasks may take to end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The kubelet's interval (`nodeStatusUpdateFrequency`).
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Waits until the simulator has created its nodes. A DaemonSet that is observed before there is a node has all of its pods,
/// none, and counts as rolled out.
pub(crate) async fn created(sandbox: &Sandbox, nodes: usize) {
    // It creates them at once. If it cannot, its own error ends the session.
    for _ in 0..5_000 {
        if sandbox.objects("Node").len() >= nodes {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Runs simulated nodes, their kubelets and a scheduler beside any API server, such as envtest's.
///
/// Not beside real nodes: the simulator acts on every pod, on whatever node. It creates nodes unless the cluster has
/// some, reports nodes as ready and removes their taint, assigns pods to them, and reports pods as running.
#[derive(Clone, Debug, clap::Args)]
pub struct NodesArgs {
    /// Path of a kubeconfig. Default: $KUBECONFIG, else ~/.kube/config.
    #[arg(long, value_name = "PATH")]
    pub kubeconfig: Option<PathBuf>,

    /// URL of the API server; overrides the one in the kubeconfig.
    #[arg(long, value_name = "URL")]
    pub master: Option<String>,

    /// The number of simulated nodes; with 0, create nodes with kubectl.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = cli::nodes)]
    pub nodes: usize,

    /// A label for a simulated node, such as 2=zone=a, sandbox-node-2=zone=a or all=zone=a. May be repeated.
    #[arg(long = "node-label", value_name = "NODE=KEY=VALUE", value_parser = node_flags::label)]
    pub node_labels: Vec<NodeLabel>,

    /// A taint for a simulated node, such as 2=gpu=yes:NoSchedule or all=gpu:NoExecute. May be repeated.
    #[arg(long = "node-taint", value_name = "NODE=KEY[=VALUE]:EFFECT", value_parser = node_flags::taint)]
    pub node_taints: Vec<NodeTaint>,

    /// Time until a pod becomes ready, such as 500ms, 2s or 1m.
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = cli::duration)]
    pub ready_delay: Duration,

    /// Time until a pod terminates, unless its grace period is shorter.
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = cli::duration)]
    pub shutdown_delay: Duration,

    /// Containers whose image matches never start: they wait in ImagePullBackOff.
    #[arg(long, value_name = "REGEX", value_parser = Regex::new)]
    pub never_ready: Option<Regex>,

    /// How containers end whose image matches: ^job=exit:3,after:2s. May be repeated; the first that matches counts.
    #[arg(long = "pod-outcome", value_name = "REGEX=OUTCOME", value_parser = node_flags::pod_outcome)]
    pub pod_outcomes: Vec<ImageOutcome>,

    /// Do not bind claims to volumes, and do not let pods wait for their claims: for use with another volume binder, or
    /// without any StorageClass.
    #[arg(long)]
    pub no_volumes: bool,

    /// Do not taint nodes that are not ready or are cordoned, do not report that their pods are not ready, and evict none: for use
    /// with the controllers node-lifecycle and taint-eviction, as `windlass --test-bed` has them.
    #[arg(long)]
    pub no_node_lifecycle: bool,

    /// Do not write the events that `kubectl describe pod` shows. They double the number of requests.
    #[arg(long)]
    pub no_events: bool,
}

/// Runs the nodes until `interrupted`. `connected` says where the API server is.
///
/// # Errors
/// One message for the user: a flag that names no node, an API server that does not answer.
pub fn run(
    args: NodesArgs,
    client: Client,
    connected: String,
    now: Now,
    output: Box<dyn Write + Send>,
    interrupted: BoxFuture<'static, &'static str>,
) -> BoxFuture<'static, anyhow::Result<()>> {
    nodes(args, client, connected, now, output, interrupted).boxed()
}

async fn nodes(
    args: NodesArgs,
    client: Client,
    connected: String,
    now: Now,
    mut output: Box<dyn Write + Send>,
    interrupted: BoxFuture<'static, &'static str>,
) -> anyhow::Result<()> {
    // Without `..`, so that a new flag cannot be forgotten here.
    let NodesArgs {
        kubeconfig: _,
        master: _,
        nodes,
        node_labels,
        node_taints,
        ready_delay,
        shutdown_delay,
        never_ready,
        pod_outcomes,
        no_volumes,
        no_node_lifecycle,
        no_events,
    } = args;
    node_flags::check(nodes, &node_labels, &node_taints)?;
    // The simulator retries for ever: what is wrong with the address or the credentials is said here.
    let version = send(&client, Ok(http::Request::get("/version").body(Vec::new())?));
    let version: Value = version.await.with_context(|| format!("{connected}: cannot use the API server"))?;
    let version = version["gitVersion"].as_str().unwrap_or(kubelet::nodes::KUBELET_VERSION).to_owned();
    let shutdown = CancellationToken::new();
    let options = kubelet::Options {
        version: version.clone(),
        nodes,
        node_labels,
        node_taints,
        heartbeat: Some(HEARTBEAT),
        ready_delay,
        shutdown_delay,
        never_ready,
        pod_outcomes,
        node_lifecycle: !no_node_lifecycle,
        volumes: !no_volumes,
        events: !no_events,
        ..kubelet::Options::new(now)
    };
    let simulator = tokio::spawn(kubelet::run(client, options, shutdown.clone()));
    // A reader that closes the pipe is no error.
    let _ = writeln!(output, "windlass-sandbox simulates {nodes} nodes on {connected} ({})", plain(&version))
        .and_then(|()| output.flush());
    interrupted.await;
    shutdown.cancel();
    tokio::time::timeout(SHUTDOWN_TIMEOUT, simulator).await.ok().transpose().context("the nodes failed")?;
    Ok(())
}
