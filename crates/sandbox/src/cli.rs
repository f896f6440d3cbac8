//! The flags of `windlass-sandbox`, exactly as typed, each checked by itself. What they do is in
//! [`session`](super::session).

use std::{path::PathBuf, time::Duration};

use regex_lite::Regex;
use windlass_nodes::kubelet::{NodeLabel, NodeTaint};

use super::node_flags;

/// A Kubernetes API server, a pod simulator and Windlass's controllers in one process, for trying things
/// out and for tests.
///
/// With -f it creates what the manifests say, once all of them have been checked.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "windlass-sandbox", version, max_term_width = 100)]
pub struct Args {
    /// Manifests to create: a file, a directory of *.yaml, *.yml and *.json, or - for standard input. May
    /// be repeated.
    #[arg(short = 'f', long = "filename", value_name = "FILE|DIR|-")]
    pub filenames: Vec<PathBuf>,

    /// The port on 127.0.0.1 to serve the API on; 0 takes any free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,

    /// Where to write the kubeconfig that points kubectl here. It stays when the sandbox ends.
    #[arg(long, value_name = "PATH", default_value = "./windlass.kubeconfig")]
    pub write_kubeconfig: PathBuf,

    /// How long a pod takes to become ready, such as 500ms, 2s or 1m.
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration)]
    pub ready_delay: Duration,

    /// How long a pod takes to end, unless its grace period is shorter.
    #[arg(long, value_name = "DURATION", default_value = "500ms", value_parser = duration)]
    pub shutdown_delay: Duration,

    /// Containers whose image matches never start: they wait with ImagePullBackOff.
    #[arg(long, value_name = "REGEX", value_parser = Regex::new)]
    pub never_ready: Option<Regex>,

    /// Run without the Deployment and ReplicaSet controllers: the API server, the pod simulator and what
    /// cleans up after deletions. For use with a controller manager of your own.
    #[arg(long)]
    pub no_controllers: bool,

    /// Leave pods as they are: unscheduled, and pending for ever.
    #[arg(long)]
    pub no_pod_simulator: bool,

    /// End with code 0 as soon as every Deployment and DaemonSet of the manifests is rolled out, or with code 1
    /// and the reason if a Deployment passes its progress deadline or --timeout passes.
    #[arg(long, requires = "filenames")]
    pub exit_when_complete: bool,

    /// How long --exit-when-complete waits.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = duration)]
    pub timeout: Duration,

    /// How many nodes to simulate; 0 waits for those that you create with kubectl.
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

    /// Where UIDs and generated names begin: the same seed gives the same ones.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub seed: u64,
}

/// Reads `500ms`, `2s`, `1m 30s` and so on; `0` needs no unit.
fn duration(text: &str) -> Result<Duration, String> {
    if text.trim() == "0" {
        return Ok(Duration::ZERO);
    }
    let hint = "write it like 500ms, 2s or 1m30s";
    let parsed: jiff::SignedDuration = text.parse().map_err(|_| format!("no duration; {hint}"))?;
    let parsed = Duration::try_from(parsed).map_err(|_| format!("must not be negative; {hint}"))?;
    // Beyond this, adding it to a time could overflow.
    if parsed > Duration::from_secs(366 * 24 * 60 * 60) {
        return Err("must not be longer than a year".to_owned());
    }
    Ok(parsed)
}

fn nodes(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 0..=5000) => Ok(number),
        _ => Err("must be a number from 0 to 5000".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn parse(flags: &[&str]) -> Result<Args, String> {
        let words = ["windlass-sandbox"].iter().chain(flags);
        Args::try_parse_from(words).map_err(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })
    }

    #[test]
    fn durations_are_humane() {
        for (text, milliseconds) in
            [("500ms", 500), ("2s", 2_000), ("1m30s", 90_000), ("1m 30s", 90_000), ("0", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
    }

    #[test]
    fn a_bad_value_is_refused_with_the_name_of_its_flag() {
        for (flags, name) in [
            (["--ready-delay", "soon"], "--ready-delay"),
            (["--ready-delay", "5"], "--ready-delay"),
            (["--timeout", "1000y"], "--timeout"),
            (["--never-ready", "("], "--never-ready"),
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
    fn nodes_can_be_none_or_labelled_and_tainted() {
        assert_eq!(parse(&["--nodes", "0"]).unwrap().nodes, 0);
        let args =
            parse(&["--node-label=1=a=b", "--node-label=all=c=", "--node-taint=2=gpu:NoExecute"]).unwrap();
        assert_eq!((args.node_labels.len(), args.node_taints.len()), (2, 1));
        assert!(parse(&["--no-pod-simulator", "--node-label=1=a=b"]).unwrap_err().contains("--node-label"));
    }

    #[test]
    fn waiting_for_completion_needs_something_to_complete() {
        assert!(parse(&["--exit-when-complete"]).unwrap_err().contains("--filename"));
        assert!(parse(&["--exit-when-complete", "-f", "a.yaml", "-f", "b.yaml"]).is_ok());
    }

    #[test]
    fn without_flags_the_defaults_hold() {
        let args = parse(&[]).unwrap();
        assert_eq!((args.port, args.nodes, args.timeout), (0, 3, Duration::from_secs(300)));
        assert_eq!(args.write_kubeconfig, PathBuf::from("./windlass.kubeconfig"));
    }
}
