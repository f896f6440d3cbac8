//! The command line. Each global flag is accepted before and after the subcommand: kubectl refuses flags in front of a
//! plugin's name and passes none of its own on.

mod create;
mod list;
mod plan;
mod policy;
mod revisions;
mod rolling_update;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub use create::{CreateArgs, ObjectFormat, Trial, Validate};
pub use list::{ListArgs, ListFormat};
pub use plan::{PlanArgs, PlanOutput, StrategyName};
pub use policy::{ApproveArgs, BypassArgs, Consent, RevisionArgs};
pub use revisions::{DryRun, HistoryArgs, HistoryFormat, UndoArgs, VersionArgs};
pub use rolling_update::{RollingUpdateArgs, UpdateOutput};

/// Explains rollouts: why they wait, what they would do, and when they are done.
#[derive(Clone, Debug, Parser)]
#[command(name = "kubectl-windlass", bin_name = "kubectl windlass", version = windlass::version::version())]
pub struct Args {
    /// The flags of every command.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The flags of every command; they mean what they mean to kubectl.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Global options")]
pub struct GlobalArgs {
    /// The kubeconfig to read instead of those in $KUBECONFIG or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// The cluster of the kubeconfig.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub cluster: Option<String>,
    /// The user of the kubeconfig.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub user: Option<String>,
    /// The namespace, instead of the context's.
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The URL of the API server.
    #[arg(short, long, global = true, hide_short_help = true, value_name = "URL")]
    pub server: Option<String>,
    /// The bearer token.
    #[arg(long, global = true, hide_short_help = true, value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// The user to impersonate.
    #[arg(long = "as", global = true, hide_short_help = true, value_name = "USER")]
    pub impersonate: Option<String>,
    /// A group to impersonate. May be repeated.
    #[arg(long = "as-group", global = true, hide_short_help = true, value_name = "GROUP")]
    pub impersonate_groups: Vec<String>,
    /// The UID to impersonate.
    #[arg(long = "as-uid", global = true, hide_short_help = true, value_name = "UID")]
    pub impersonate_uid: Option<String>,
    /// The file with the CA of the API server.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// The file with the client certificate.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub client_certificate: Option<PathBuf>,
    /// The file with the key of the client certificate.
    #[arg(long, global = true, hide_short_help = true, value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// The name that the server's certificate must have.
    #[arg(long, global = true, hide_short_help = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// Accept any certificate of the server. Insecure.
    #[arg(long, global = true, hide_short_help = true)]
    pub insecure_skip_tls_verify: bool,
    /// The longest time that one request may take, such as 5s; 0 sets no limit. Watches have none. Of a list of a whole
    /// namespace or cluster, it limits each pause in the answer.
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub request_timeout: Duration,
    /// Whether to use colours. auto: in a terminal, unless NO_COLOR is set or TERM is dumb.
    #[arg(long, global = true, hide_short_help = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// Draw bars and branches without Unicode.
    #[arg(long, global = true, hide_short_help = true)]
    pub ascii: bool,
    /// Log to stderr up to this level; from 6 on, log each request with its answer's code and the time it took.
    #[arg(
        short = 'v',
        long = "v",
        global = true,
        hide_short_help = true,
        value_name = "LEVEL",
        default_value_t = 0
    )]
    pub verbosity: u8,
}

/// Whether to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// In a terminal.
    #[default]
    Auto,
    /// Also in files and pipes.
    Always,
    /// Nowhere.
    Never,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// The workloads, one a line, the worst first: what is stuck or waits, since when, and why.
    List(ListArgs),
    /// Why a rollout is as it is: the planner's numbers, the pods in its way, and what happens next.
    Explain(ExplainArgs),
    /// Follow rollouts to their end, with reasons and an estimate of the time left.
    #[command(visible_alias = "watch")]
    Status(StatusArgs),
    /// Preview a change, step by step, before it is made.
    Plan(PlanArgs),
    /// Create the objects of files, directories, URLs or stdin, as kubectl create -f does.
    Create(CreateArgs),
    /// Replace the pods of a ReplicationController by those of another, step by step.
    #[command(name = "rolling-update", alias = "rollingupdate")]
    RollingUpdate(RollingUpdateArgs),
    /// The revisions of Deployments and StatefulSets, and what differs between two of them.
    History(HistoryArgs),
    /// Take a Deployment or StatefulSet back to an earlier revision, after a look at what that changes.
    Undo(UndoArgs),
    /// Approve a step of a rollout that its policy holds, after a look at what follows.
    #[command(visible_alias = "promote")]
    Approve(ApproveArgs),
    /// Give a rollout up: the pods that serve get the places of the new ones back.
    Abort(RevisionArgs),
    /// Try a rollout again that has failed or was aborted.
    Retry(RevisionArgs),
    /// Let the steps and batch delays of a rollout policy hold nothing for a time.
    Bypass(BypassArgs),
    /// The versions of the plugin and of the server, and which controller manager leads.
    Version(VersionArgs),
    /// Print the completion script of a shell, or let kubectl complete the plugin.
    Completion {
        /// The shell, or install.
        target: CompletionTarget,
    },
}

/// A way to complete command lines of the plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletionTarget {
    /// Put a link beside the plugin, by which kubectl completes `kubectl windlass`.
    Install,
    /// The script of Bash, for kubectl-windlass as a command of its own.
    Bash,
    /// The same for Elvish.
    Elvish,
    /// The same for fish.
    Fish,
    /// The same for PowerShell.
    Powershell,
    /// The same for Z shell.
    Zsh,
}

impl CompletionTarget {
    /// The shell, if it is one.
    pub fn shell(self) -> Option<Shell> {
        match self {
            CompletionTarget::Install => None,
            CompletionTarget::Bash => Some(Shell::Bash),
            CompletionTarget::Elvish => Some(Shell::Elvish),
            CompletionTarget::Fish => Some(Shell::Fish),
            CompletionTarget::Powershell => Some(Shell::PowerShell),
            CompletionTarget::Zsh => Some(Shell::Zsh),
        }
    }
}

/// The objects of a command.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Objects {
    /// The objects: deploy/NAME, sts/NAME, deploy NAME, or NAME for a Deployment. rs/NAME and pod/NAME stand for their owners.
    #[arg(value_name = "OBJECT")]
    pub names: Vec<String>,
    /// All Deployments with these labels; behind a kind such as sts, all of that kind.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// In all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}

impl Objects {
    /// Whether they choose nothing, not even by a selector.
    pub fn are_none(&self) -> bool {
        self.names.is_empty() && self.selector.is_none() && !self.all_namespaces
    }
}

/// `explain`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl windlass explain web               a Deployment
  kubectl windlass explain pod/web-7d54-x2x  the owner of a pod
  kubectl windlass explain ds -A             all DaemonSets
  kubectl windlass explain                   a list of all workloads, the worst first")]
pub struct ExplainArgs {
    /// The objects.
    #[command(flatten)]
    pub objects: Objects,
    /// The output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: ExplainFormat,
    /// Also print so many last lines of the crashed container of each pod that is shown.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub logs: Option<u32>,
    /// The URL of a daemon of Windlass, for what only it knows: earlier plans, the write that failed, and when it looks
    /// again. The credentials of the kubeconfig are not sent to it.
    #[arg(long, value_name = "URL", env = "WINDLASS_ENDPOINT", hide_env_values = true)]
    pub endpoint: Option<String>,
    /// The file with the bearer token for --endpoint.
    #[arg(long, value_name = "FILE")]
    pub endpoint_token_file: Option<PathBuf>,
    /// The file with the CA of --endpoint.
    #[arg(long, value_name = "FILE")]
    pub endpoint_ca: Option<PathBuf>,
}

/// How `explain` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ExplainFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
    /// The same as JSON has.
    Yaml,
}

/// `status`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl windlass status web                             follow a Deployment to the end of its rollout
  kubectl windlass status sts/db --timeout=5m --fail-fast in a pipeline
  kubectl windlass status -A --watch=false                all Deployments, once
  kubectl windlass status                                 a list of all workloads, the worst first")]
pub struct StatusArgs {
    /// The objects.
    #[command(flatten)]
    pub objects: Objects,
    /// The output format; json prints one object a line.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Format,
    /// The longest time to wait, such as 5m; 0 waits without limit. Exit code 4 when it passes.
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = duration)]
    pub timeout: Duration,
    /// Whether to wait for the end. With false, exit with 0, 3 or 4 at once.
    #[arg(short = 'w', long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub watch: bool,
    /// The revision to wait for. Another one is a failure.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub revision: Option<i64>,
    /// Fail as soon as the rollout cannot complete by itself: every unready new pod has been failing for this time,
    /// its pods are refused, or it is paused.
    #[arg(long, value_name = "DURATION", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "30s", value_parser = duration)]
    pub fail_fast: Option<Duration>,
    /// Report a progress deadline that has passed and go on waiting.
    #[arg(long)]
    pub past_deadline: bool,
    /// Print lines in a terminal, too.
    #[arg(long)]
    pub plain: bool,
    /// Report to the CI about a rollout that does not complete. auto: in GitHub Actions an annotation, and a table in
    /// the summary of the job.
    #[arg(long, value_name = "WHAT", default_value = "auto")]
    pub ci: Ci,
}

/// The report that a CI job gets besides the exit code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Ci {
    /// The form that the CI understands.
    #[default]
    Auto,
    /// Nothing.
    None,
}

/// An output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Parses a duration such as `500ms`, `90s`, `1m30s` or `2h`; a number alone counts seconds.
///
/// # Errors
/// With what is accepted, when the text is something else.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration such as 500ms, 90s, 1m30s or 2h");
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(Duration::from_secs(seconds.into()));
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let number: u32 = rest.get(..digits).and_then(|digits| digits.parse().ok()).ok_or_else(wrong)?;
        rest = rest.get(digits..).unwrap_or_default();
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let unit = match rest.get(..letters) {
            Some("ms") => Duration::from_millis(1),
            Some("s") => Duration::from_secs(1),
            Some("m") => Duration::from_secs(60),
            Some("h") => Duration::from_secs(3600),
            _ => return Err(wrong()),
        };
        total += unit * number;
        rest = rest.get(letters..).unwrap_or_default();
    }
    if text.is_empty() { Err(wrong()) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn durations_have_units_and_a_bare_number_counts_seconds() {
        let millis = |text: &str| duration(text).map(|duration| duration.as_millis());
        assert_eq!(millis("500ms"), Ok(500));
        assert_eq!(millis("1m30s"), Ok(90_000));
        assert_eq!((millis("2h"), millis("0"), millis("7")), (Ok(7_200_000), Ok(0), Ok(7000)));
        for wrong in ["", "s", "5x", "-1s", "1.5s", "99999999999s", "5m "] {
            assert!(duration(wrong).unwrap_err().contains("500ms"), "{wrong:?}");
        }
    }

    #[test]
    fn a_global_flag_may_stand_on_either_side_of_the_command() {
        for line in [["-n", "shop", "status", "web"], ["status", "web", "-n", "shop"]] {
            let args = Args::try_parse_from(["kubectl-windlass"].iter().chain(&line)).unwrap();
            assert_eq!(args.global.namespace.as_deref(), Some("shop"));
        }
    }

    #[test]
    fn watch_false_and_fail_fast_need_an_equals_sign_so_that_a_name_may_follow() {
        let parse = |line: &[&str]| {
            let args = Args::try_parse_from(["kubectl-windlass", "status"].iter().chain(line)).unwrap();
            let Command::Status(status) = args.command else { panic!("{args:?}") };
            (status.watch, status.fail_fast.map(|limit| limit.as_secs()), status.objects.names)
        };
        assert_eq!(parse(&["--fail-fast", "web"]), (true, Some(30), vec!["web".to_owned()]));
        assert_eq!(
            parse(&["--watch=false", "--fail-fast=5s", "web"]),
            (false, Some(5), vec!["web".to_owned()])
        );
    }
}
