//! The flags of `windlass-sandbox`, as typed; each is validated by itself. [`session`](super::session) acts on them.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clap::error::{ContextKind, ContextValue};
use regex_lite::Regex;
use windlass_nodes::kubelet::outcomes::ImageOutcome;
use windlass_nodes::kubelet::{NodeLabel, NodeTaint};

use super::node_flags;
use super::nodes::NodesArgs;

/// A Kubernetes API server, a pod simulator and Windlass's controllers in one process, for demonstrations and
/// tests.
///
/// With -f the sandbox creates the objects of the manifests after it has validated all of them.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "windlass-sandbox", version = windlass::version::version(), max_term_width = 100)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Something else than the whole sandbox.
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Manifests to create: a file, a directory of *.yaml, *.yml and *.json, or - for standard input. May
    /// be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-")]
    pub filenames: Vec<PathBuf>,

    /// Create the namespaces that the manifests name and do not create.
    #[arg(long, requires = "filenames")]
    pub create_namespaces: bool,

    /// The port on 127.0.0.1 to serve the API on; 0 selects a free port.
    #[arg(long, default_value_t = 0)]
    pub port: u16,

    /// Where to write the kubeconfig for kubectl: a new file, or that of a sandbox that has ended. Any other file is left as
    /// it is, and the sandbox does not start. It deletes the file when it ends.
    #[arg(long, value_name = "PATH", default_value = "./windlass.kubeconfig")]
    pub write_kubeconfig: PathBuf,

    /// Time until a pod becomes ready, such as 500ms, 2s or 1m.
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration)]
    pub ready_delay: Duration,

    /// Time until a pod terminates, unless its grace period is shorter.
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration)]
    pub shutdown_delay: Duration,

    /// Containers whose image matches never start: they wait in ImagePullBackOff.
    #[arg(long, value_name = "REGEX", value_parser = Regex::new)]
    pub never_ready: Option<Regex>,

    /// How containers end whose image matches: ^job=exit:3,after:2s. May be repeated; the first that matches counts.
    #[arg(long = "pod-outcome", value_name = "REGEX=OUTCOME", value_parser = node_flags::pod_outcome)]
    pub pod_outcomes: Vec<ImageOutcome>,

    /// Run without the controllers of workloads, for use with another controller manager. The API server, the pod
    /// simulator, the garbage collector and the namespace controller still run.
    #[arg(long)]
    pub no_controllers: bool,

    /// Leave dependents of deleted objects to another garbage collector, such as a windlass with --test-bed.
    #[arg(long)]
    pub no_garbage_collector: bool,

    /// Leave namespaces that are being deleted to another controller, such as a windlass with
    /// --controllers=namespace-controller.
    #[arg(long)]
    pub no_namespace_controller: bool,

    /// Run without nodes, scheduler and kubelet: pods stay unscheduled and pending.
    #[arg(long)]
    pub no_pod_simulator: bool,

    /// Do not bind claims to volumes, and do not let pods wait for their claims: for use with another volume binder, or
    /// without any StorageClass.
    #[arg(long)]
    pub no_volumes: bool,

    /// Exit with code 0 as soon as every Deployment, DaemonSet, StatefulSet, ReplicaSet and ReplicationController of the
    /// manifests is rolled out, every Job is complete, and every pod is ready or has succeeded, or with code 1 and the reason
    /// if a Deployment exceeds its progress deadline, a Job or a pod fails, or --timeout expires.
    #[arg(long, requires = "filenames")]
    pub exit_when_complete: bool,

    /// The longest time that --exit-when-complete waits.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub timeout: Duration,

    /// The number of simulated nodes; with 0, create nodes with kubectl.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = nodes)]
    pub nodes: usize,

    /// A label for a simulated node, such as 2=zone=a, sandbox-node-2=zone=a or all=zone=a. May be repeated.
    #[arg(long = "node-label", value_name = "NODE=KEY=VALUE", value_parser = node_flags::label)]
    #[arg(conflicts_with = "no_pod_simulator")]
    pub node_labels: Vec<NodeLabel>,

    /// A taint for a simulated node, such as 2=gpu=yes:NoSchedule or all=gpu:NoExecute. May be repeated.
    #[arg(long = "node-taint", value_name = "NODE=KEY[=VALUE]:EFFECT", value_parser = node_flags::taint)]
    #[arg(conflicts_with = "no_pod_simulator")]
    pub node_taints: Vec<NodeTaint>,

    /// The seed of UIDs and generated names: the same seed gives the same ones.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
}

/// A part of the sandbox.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Run simulated nodes, their kubelets and a scheduler beside any API server, such as envtest's.
    Nodes(NodesArgs),
}

/// Parses `500ms`, `2s`, `1m 30s` and so on; `0` needs no unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    let hint = "write it like 500ms, 2s or 1m30s";
    let parsed: jiff::SignedDuration = text.parse().map_err(|_| format!("not a duration; {hint}"))?;
    let parsed = Duration::try_from(parsed).map_err(|_| format!("must not be negative; {hint}"))?;
    // Beyond this, adding it to a time could overflow.
    if parsed > Duration::from_secs(366 * 24 * 60 * 60) {
        return Err("must be at most one year".to_owned());
    }
    Ok(parsed)
}

pub(super) fn nodes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 0..=5000) => Ok(number),
        _ => Err("must be a number from 0 to 5000".to_owned()),
    }
}

/// An error about the command line, with the flag for a manifest that stands without one.
pub fn explained(mut error: clap::Error) -> clap::Error {
    let word = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg]
        .into_iter()
        .find_map(|kind| error.get(kind));
    let Some(ContextValue::String(word)) = word else { return error };
    let end = Path::new(word).extension().and_then(|end| end.to_str());
    let tip = if matches!(&**word, "-k" | "--kustomize") {
        "use `kubectl kustomize DIR | windlass-sandbox -f -`".to_owned()
    } else if Path::new(word).exists() || matches!(end, Some("yaml" | "yml" | "json")) {
        format!("manifests follow a flag: windlass-sandbox -f {word}")
    } else {
        return error;
    };
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    error
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn a_manifest_without_its_flag_is_recognized() {
        let said =
            |word: &str| explained(Args::try_parse_from(["windlass-sandbox", word]).unwrap_err()).to_string();
        assert!(said("shop.yaml").contains("windlass-sandbox -f shop.yaml"), "{}", said("shop.yaml"));
        assert!(said("-k").contains("kubectl kustomize DIR"), "{}", said("-k"));
        assert!(!said("node").contains("-f node"), "{}", said("node"));
    }

    fn parse(flags: &[&str]) -> Result<Args, String> {
        let words = ["windlass-sandbox"].iter().chain(flags);
        Args::try_parse_from(words).map_err(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })
    }

    #[test]
    fn durations_have_units_and_zero_needs_none() {
        for (text, milliseconds) in
            [("500ms", 500), ("2s", 2_000), ("1m30s", 90_000), ("1m 30s", 90_000), ("0", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn an_invalid_value_is_refused_with_the_name_of_its_flag() {
        for (flags, name) in [
            (["--ready-delay", "soon"], "--ready-delay"),
            (["--ready-delay", "5"], "--ready-delay"),
            (["--timeout", "1000y"], "--timeout"),
            (["--never-ready", "("], "--never-ready"),
            (["--pod-outcome", "job=never"], "--pod-outcome"),
            (["--nodes", "5001"], "--nodes"),
            (["--node-label", "2"], "--node-label"),
            (["--node-taint", "2=gpu:Never"], "--node-taint"),
            (["--port", "70000"], "--port"),
        ] {
            let error = parse(&flags).unwrap_err();
            assert!(error.contains(name), "{flags:?}: {error}");
        }
        assert!(parse(&["--timeout=-5s"]).unwrap_err().contains("must not be negative"));
    }

    #[test]
    fn nodes_can_be_zero_or_labelled_and_tainted() {
        assert_eq!(parse(&["--nodes", "0"]).unwrap().nodes, 0);
        let args =
            parse(&["--node-label=1=a=b", "--node-label=all=c=", "--node-taint=2=gpu:NoExecute"]).unwrap();
        assert_eq!((args.node_labels.len(), args.node_taints.len()), (2, 1));
        assert!(parse(&["--no-pod-simulator", "--node-label=1=a=b"]).unwrap_err().contains("--node-label"));
    }

    #[test]
    fn nodes_alone_have_flags_of_their_own() {
        let args = parse(&["nodes", "--kubeconfig", "k", "--nodes=5", "--node-label=2=a=b"]).unwrap();
        let Some(Command::Nodes(args)) = args.command else { panic!() };
        assert_eq!((args.nodes, args.node_labels.len()), (5, 1));
        assert_eq!(args.ready_delay, Duration::from_millis(100));
        assert!(parse(&["nodes", "--port=1"]).unwrap_err().contains("--port"));
        assert!(parse(&["--port=1", "nodes"]).is_err(), "flags of the sandbox mean nothing to it");
    }

    #[test]
    fn exit_when_complete_needs_a_manifest() {
        assert!(parse(&["--exit-when-complete"]).unwrap_err().contains("--filename"));
        assert!(parse(&["--exit-when-complete", "-f", "a.yaml", "-f", "b.yaml"]).is_ok());
    }

    #[test]
    fn the_defaults_apply_without_flags() {
        let args = parse(&[]).unwrap();
        assert_eq!((args.port, args.nodes, args.timeout), (0, 3, Duration::from_secs(300)));
        assert_eq!(args.write_kubeconfig, PathBuf::from("./windlass.kubeconfig"));
    }
}
