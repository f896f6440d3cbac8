//! Flags exactly as typed, named as kube-controller-manager names them.
//!
//! The one guarantee: of one setting the command line wins, then the environment (`WINDLASS_` and the
//! flag's name), then the file of `--config`, then the default; see [`load`]. Of a flag that is given more
//! than once the last wins, and lists are joined, as pflag has it. There is no flag here that
//! does nothing: what kube-controller-manager has and Windlass cannot mean is refused with the reason
//! ([`unsupported_flags`]).

pub mod controllers;
pub mod file;
pub mod generic;
pub mod nodes;
pub mod serving;
mod test_bed;
pub mod unsupported_flags;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Args as Group, CommandFactory, FromArgMatches, Parser};
use serde::Serialize;

pub use controllers::ControllerArgs;
pub use generic::{AccountArgs, ClientArgs, ElectionArgs, GenericArgs, ScopeArgs};
pub use nodes::NodeArgs;
pub use serving::{AuthenticationArgs, AuthorizationArgs, InsecureArgs, SecureArgs};

/// The controllers of Kubernetes workloads, in one small daemon.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "windlass", version = crate::version::version(), about, max_term_width = 100, args_override_self = true)]
pub struct Args {
    /// The flags that all controllers share.
    #[command(flatten)]
    #[serde(flatten)]
    pub generic: GenericArgs,
    /// Leader election.
    #[command(flatten)]
    #[serde(flatten)]
    pub election: ElectionArgs,
    /// How much runs at once.
    #[command(flatten)]
    #[serde(flatten)]
    pub controllers: ControllerArgs,
    /// Which objects Windlass acts on, and how.
    #[command(flatten)]
    #[serde(flatten)]
    pub scope: ScopeArgs,
    /// The flags for the objects that each namespace gets.
    #[command(flatten)]
    #[serde(flatten)]
    pub accounts: AccountArgs,
    /// When nodes are lost.
    #[command(flatten)]
    #[serde(flatten)]
    pub nodes: NodeArgs,
    /// Where the flags come from.
    #[command(flatten)]
    #[serde(skip)]
    pub source: SourceArgs,
    /// Serving with TLS.
    #[command(flatten)]
    #[serde(flatten)]
    pub secure: SecureArgs,
    /// Serving without TLS.
    #[command(flatten)]
    #[serde(flatten)]
    pub insecure: InsecureArgs,
    /// Authentication of clients.
    #[command(flatten)]
    #[serde(flatten)]
    pub authentication: AuthenticationArgs,
    /// Authorization of clients.
    #[command(flatten)]
    #[serde(flatten)]
    pub authorization: AuthorizationArgs,
    /// Logging.
    #[command(flatten)]
    #[serde(flatten)]
    pub logging: LoggingArgs,
    /// How to reach the API server.
    #[command(flatten)]
    #[serde(flatten)]
    pub client: ClientArgs,
}

/// Where the flags come from, and where they go to.
#[derive(Clone, Debug, Group)]
#[command(next_help_heading = "Configuration flags")]
pub struct SourceArgs {
    /// YAML file with settings; its keys are the names of the flags without dashes. Flags and environment
    /// variables override it.
    #[arg(long, value_name = "FILE", value_parser = path(), env = "WINDLASS_CONFIG")]
    pub config: Option<PathBuf>,
    /// Print the settings in force, in a form that --config accepts, and exit.
    #[arg(long)]
    pub print_config: bool,
}

/// The flags for the log on stderr.
#[derive(Clone, Debug, Group, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Logs flags")]
pub struct LoggingArgs {
    /// Log verbosity: up to 3 what happens, 4 and 5 why, 6 and above every step. The default of
    /// kube-controller-manager is 0; here 0 to 3 are the same.
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 2, env = "WINDLASS_V")]
    #[serde(rename = "v")]
    pub verbosity: u8,
    /// Format of the log lines.
    #[arg(long, value_name = "FORMAT", value_parser = ["text", "json"], default_value = "text",
          env = "WINDLASS_LOGGING_FORMAT")]
    pub logging_format: String,
}

/// Why the flags cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The command line or the environment; `--help` and `--version` come this way too.
    #[error(transparent)]
    Flags(#[from] clap::Error),
    /// The file of `--config`.
    #[error("--config {}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
}

/// The flags that `-h` lists; `--help` lists all of them.
const COMMON: [&str; 9] = [
    "controllers",
    "config",
    "insecure_port",
    "kubeconfig",
    "leader_elect",
    "namespace",
    "print_config",
    "test_bed",
    "verbosity",
];

const EXAMPLES: &str = "Examples:
  windlass --kubeconfig=cluster.kubeconfig              workloads, with a leader election
  windlass --kubeconfig=envtest.kubeconfig --test-bed   all that an API server alone lacks
  windlass --controllers='*,-job-controller' --print-config";

/// The command line. `-h` fits on one screen.
fn command() -> clap::Command {
    let shortened = |argument: clap::Arg| {
        let id = argument.get_id().to_string();
        if !COMMON.contains(&id.as_str()) {
            return argument.hide_short_help(true);
        }
        let whole = argument.get_help().map(ToString::to_string).unwrap_or_default();
        let short = match id.as_str() {
            "controllers" => "Controllers to run: '*', 'foo', '-foo'",
            "test_bed" => "Run all that an API server without a controller manager lacks, such as envtest's",
            _ => whole.split_inclusive(['.', ';']).next().unwrap_or_default().trim_end_matches(['.', ';']),
        };
        argument.help(short.to_owned()).long_help(whole.clone())
    };
    Args::command().mut_args(shortened).after_help(EXAMPLES)
}

/// Reads the command line `argv` (with the program's name first), the environment, and the file that
/// `--config` names.
///
/// The file's settings are put in front of the command line as flags, each only where neither a flag nor
/// the environment sets it. So a value is read in one way, wherever it comes from.
///
/// # Errors
/// When a flag is unknown or has a value of the wrong kind, or the file cannot be used.
pub fn load(argv: impl IntoIterator<Item = OsString>) -> Result<Args, LoadError> {
    let mut argv: Vec<OsString> = argv.into_iter().collect();
    let command = command();
    let matches = command
        .clone()
        .try_get_matches_from(&argv)
        .map_err(|error| named_by_its_variable(explained(error), &command, &argv))?;
    let path = matches.get_one::<PathBuf>("config").filter(|path| !path.as_os_str().is_empty());
    let Some(path) = path.cloned() else {
        return Ok(read(&with_test_bed(&command, argv, matches)?)?);
    };
    let wrong = |reason: String| LoadError::File { path: path.clone(), reason };
    let settings = file::read(&path).and_then(|file| file.settings()).map_err(wrong)?;
    let is_set = |name: &str| {
        let argument = command.get_arguments().find(|argument| argument.get_long() == Some(name));
        argument.is_some_and(|argument| {
            let source = matches.value_source(argument.get_id().as_str());
            matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable))
        })
    };
    let from_file = settings
        .into_iter()
        .filter(|(name, _)| !is_set(name))
        .map(|(name, value)| OsString::from(format!("--{name}={value}")));
    argv.splice(1.min(argv.len())..1.min(argv.len()), from_file.collect::<Vec<_>>());
    let matches = command.clone().try_get_matches_from(&argv).map_err(|error| wrong(plain(&error)))?;
    let matches = with_test_bed(&command, argv, matches)?;
    read(&matches).map_err(|error| wrong(plain(&error)))
}

/// The same command line with the defaults of `--test-bed`, where that is set.
fn with_test_bed(
    command: &clap::Command,
    mut argv: Vec<OsString>,
    matches: clap::ArgMatches,
) -> Result<clap::ArgMatches, clap::Error> {
    let flags = test_bed::flags(command, &matches);
    if flags.is_empty() {
        return Ok(matches);
    }
    argv.splice(1.min(argv.len())..1.min(argv.len()), flags.into_iter().map(OsString::from));
    command.clone().try_get_matches_from(&argv)
}

/// Reads a path that may be empty, which means that it is not given, as in Go: a template may leave the
/// value empty.
pub(crate) fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// `--flag=` is an empty list, not one of an empty word; an empty text or path is not given.
fn read(matches: &clap::ArgMatches) -> Result<Args, clap::Error> {
    let mut args = Args::from_arg_matches(matches)?;
    for list in [
        &mut args.scope.gc_resources,
        &mut args.scope.gc_ignored_resources,
        &mut args.generic.controllers,
        &mut args.secure.tls_cipher_suites,
        &mut args.authentication.requestheader_allowed_names,
        &mut args.authentication.requestheader_username_headers,
        &mut args.authentication.requestheader_uid_headers,
        &mut args.authentication.requestheader_group_headers,
        &mut args.authentication.requestheader_extra_headers_prefix,
        &mut args.authorization.authorization_always_allow_paths,
    ] {
        list.iter_mut().for_each(|item| *item = item.trim().to_owned());
        list.retain(|item| !item.is_empty());
    }
    for path in [
        &mut args.secure.cert_dir,
        &mut args.secure.tls_cert_file,
        &mut args.secure.tls_private_key_file,
        &mut args.authentication.authentication_kubeconfig,
        &mut args.authentication.client_ca_file,
        &mut args.authentication.requestheader_client_ca_file,
        &mut args.authorization.authorization_kubeconfig,
        &mut args.client.kubeconfig,
        &mut args.accounts.root_ca_file,
    ] {
        path.take_if(|path| path.as_os_str().is_empty());
    }
    for text in [
        &mut args.election.leader_elect_resource_namespace,
        &mut args.scope.namespace,
        &mut args.scope.selector,
        &mut args.client.master,
    ] {
        text.take_if(|text| text.is_empty());
    }
    Ok(args)
}

/// The first paragraph of clap's message: the rest concerns a command line, and this is about a file.
fn plain(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or(&text);
    first.trim_start_matches("error: ").trim().to_owned()
}

/// Explains why a flag of kube-controller-manager is not supported.
fn explained(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg)
        && let Some(reason) = unsupported_flags::reason(given)
    {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![reason.into()]));
    }
    error
}

/// Names the environment variable that a value comes from.
fn named_by_its_variable(mut error: clap::Error, command: &clap::Command, argv: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(given)) = error.get(ContextKind::InvalidArg) else { return error };
    let name = given.trim_start_matches('-').split([' ', '=', '[']).next().unwrap_or_default();
    let argument = command.get_arguments().find(|argument| argument.get_long() == Some(name));
    let Some((argument, variable)) = argument.and_then(|it| Some((it, it.get_env()?.to_str()?))) else {
        return error;
    };
    let is_typed = argv.iter().skip(1).filter_map(|word| word.to_str()).any(|word| {
        let long = word.strip_prefix("--").and_then(|rest| rest.split('=').next());
        let short = word.strip_prefix('-').and_then(|rest| rest.chars().next());
        long == Some(name) || short.is_some() && short == argument.get_short()
    });
    if !is_typed && std::env::var_os(variable).is_some() {
        let tip = format!("the value comes from the environment variable {variable}");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The settings in force as JSON, which `--config` accepts too, since JSON is YAML.
///
/// # Errors
/// When a path is not valid UTF-8.
pub fn print(args: &Args) -> Result<String, serde_json::Error> {
    serde_json::to_string_pretty(args)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::io::Write as _;

    use super::*;
    use crate::controllers::registry::CONTROLLERS;

    fn loaded(flags: &[&str]) -> Result<Args, String> {
        let argv = std::iter::once("windlass").chain(flags.iter().copied()).map(OsString::from);
        load(argv).map_err(|error| error.to_string())
    }

    fn with_file(yaml: &str, flags: &[&str]) -> Result<Args, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(yaml.as_bytes()).unwrap();
        let path = file.path().to_str().unwrap();
        loaded(&[&["--config", path], flags].concat())
    }

    #[test]
    fn every_flag_can_come_from_the_environment_under_its_own_name() {
        for argument in Args::command().get_arguments() {
            let Some(long) = argument.get_long() else { continue };
            if long == "print-config" {
                continue; // It ends the program, so a variable of the environment must not set it.
            }
            let expected = format!("WINDLASS_{}", long.replace('-', "_").to_uppercase());
            assert_eq!(argument.get_env().and_then(|name| name.to_str()), Some(&*expected), "--{long}");
        }
    }

    #[test]
    fn the_short_help_fits_on_a_screen_and_the_long_one_has_every_flag() {
        let short = command().render_help().to_string();
        assert!(short.lines().count() <= 48, "{short}");
        assert!(
            short.contains("--kubeconfig") && short.contains("--test-bed") && short.contains("Examples:")
        );
        let long = command().render_long_help().to_string();
        for argument in Args::command().get_arguments() {
            let Some(flag) = argument.get_long() else { continue };
            assert!(long.contains(&format!("--{flag}")), "{flag}");
        }
        assert!(long.contains("cronjob-controller"));
    }

    #[test]
    fn every_flag_has_a_group_and_a_sentence_of_help() {
        for argument in Args::command().get_arguments() {
            assert!(argument.get_help_heading().is_some_and(|heading| heading.ends_with(" flags")));
            assert!(argument.get_help().is_some(), "{argument}");
        }
    }

    #[test]
    fn a_file_knows_every_flag_and_nothing_else() {
        let unset = serde_json::to_value(file::File::default()).unwrap();
        let keys: BTreeSet<&str> = unset.as_object().unwrap().keys().map(String::as_str).collect();
        let command = Args::command();
        let flags: BTreeSet<&str> = command
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .filter(|long| !["config", "print-config"].contains(long))
            .collect();
        assert_eq!(keys, flags);
    }

    #[test]
    fn printed_settings_are_valid_in_a_file() {
        let args = loaded(&[
            "--kube-api-qps=55.5",
            "--controllers=*,-deployment",
            "--leader-elect=false",
            "--namespace=shop",
            "-v=4",
        ])
        .unwrap();
        let printed = print(&args).unwrap();
        let again = with_file(&printed, &[]).unwrap();
        assert_eq!(print(&again).unwrap(), printed);
        assert_eq!((again.generic.kube_api_qps, again.logging.verbosity), (55.5, 4));
        assert!(!again.election.leader_elect);
    }

    #[test]
    fn a_flag_overrides_the_file_and_the_file_the_default() {
        let yaml = "kube-api-qps: 50\nkube-api-burst: 60\ncontrollers: ['*', -deployment]\n";
        let args = with_file(yaml, &["--kube-api-burst", "70"]).unwrap();
        assert_eq!((args.generic.kube_api_qps, args.generic.kube_api_burst), (50.0, 70));
        assert_eq!(args.generic.controllers, ["*", "-deployment"]);
        assert_eq!(args.controllers.workers_of(CONTROLLERS[0]), 5);
    }

    #[test]
    fn a_wrong_file_is_named_with_the_key_that_is_wrong() {
        for (yaml, words) in [
            ("kube-api-qbs: 1", "kube-api-qbs"),
            ("kubeApiQps: 1", "kubeApiQps"),
            ("kube-api-qps: fast", "kube-api-qps"),
            ("kube-api-qps: .nan", "kube-api-qps"),
            ("leader-elect: 7", "leader-elect"),
            ("logging-format: xml", "--logging-format"),
            ("kube-api-qps: 1\nkube-api-qps: 2", "duplicate"),
            ("- 1", "mapping"),
            ("config: x", "config"),
        ] {
            let error = with_file(yaml, &[]).unwrap_err();
            assert!(error.starts_with("--config /") && error.contains(words), "{yaml}: {error}");
        }
        let error = loaded(&["--config", "/does/not/exist"]).unwrap_err();
        assert!(error.starts_with("--config /does/not/exist: "), "{error}");
    }

    #[test]
    fn a_test_bed_changes_defaults_and_nothing_that_is_set() {
        let settings = |args: &Args| {
            let port = args.secure.secure_port;
            (args.election.leader_elect, args.generic.kube_api_qps, args.scope.on_conflict.clone(), port)
        };
        let args = loaded(&["--test-bed"]).unwrap();
        assert_eq!(settings(&args), (false, -1.0, "ignore".to_owned(), 0));
        let flags = ["--test-bed", "--leader-elect", "--kube-api-qps=7", "--on-conflict=exit"];
        let set = loaded(&[&flags[..], &["--secure-port=10258"]].concat()).unwrap();
        assert_eq!(settings(&set), (true, 7.0, "exit".to_owned(), 10258));
        let from_file = with_file("test-bed: true\nkube-api-qps: 7\n", &["--leader-elect=true"]).unwrap();
        assert_eq!(settings(&from_file), (true, 7.0, "ignore".to_owned(), 0));
        let without = loaded(&["--test-bed=false"]).unwrap();
        assert_eq!(settings(&without), settings(&loaded(&[]).unwrap()));
        let printed = print(&args).unwrap();
        assert_eq!(print(&with_file(&printed, &[]).unwrap()).unwrap(), printed);
    }

    #[test]
    fn of_a_flag_given_twice_the_last_wins_and_lists_are_joined() {
        let args = loaded(&[
            "--secure-port=1",
            "--leader-elect",
            "-v=3",
            "--controllers=*,-deployment",
            "--secure-port=2",
            "--leader-elect=false",
            "--v=4",
            "--controllers=-replicaset",
        ])
        .unwrap();
        assert_eq!((args.secure.secure_port, args.logging.verbosity), (2, 4));
        assert!(!args.election.leader_elect);
        assert_eq!(args.generic.controllers, ["*", "-deployment", "-replicaset"]);
        let error = with_file("v: 1", &["--config=/does/not/exist"]).unwrap_err();
        assert!(error.starts_with("--config /does/not/exist"), "{error}");
        assert!(loaded(&["--print-config", "--print-config"]).unwrap().source.print_config);
    }

    #[test]
    fn an_unsupported_flag_of_upstream_is_refused_with_the_reason() {
        let error = loaded(&["--allocate-node-cidrs=true"]).unwrap_err();
        assert!(error.contains("--allocate-node-cidrs") && error.contains("keep it on"), "{error}");
        let error = loaded(&["--nonsense"]).unwrap_err();
        assert!(error.contains("--nonsense") && !error.contains("tip:"), "{error}");
    }

    #[test]
    fn an_empty_text_or_path_is_not_given() {
        let given = |args: &Args| serde_json::to_value(args).unwrap();
        let nothing = given(&loaded(&[]).unwrap());
        for (name, value) in nothing.as_object().unwrap() {
            if value.is_null() {
                assert_eq!(given(&loaded(&[&format!("--{name}=")]).unwrap()), nothing, "--{name}=");
                assert_eq!(given(&with_file(&format!("{name}: ''"), &[]).unwrap()), nothing, "{name}");
            }
        }
        assert!(nothing["kubeconfig"].is_null() && nothing["cert-dir"].is_null());
        assert_eq!(given(&loaded(&["--config="]).unwrap()), nothing);
    }

    #[test]
    fn flags_that_are_true_or_false_are_typed_as_go_has_them() {
        assert!(loaded(&["--leader-elect"]).unwrap().election.leader_elect);
        assert!(!loaded(&["--leader-elect=false"]).unwrap().election.leader_elect);
        assert!(loaded(&["--leader-elect", "false"]).is_err(), "as in Go, the value needs its `=`");
    }
}
