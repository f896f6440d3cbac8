//! Completion of command lines, in the protocol of kubectl: a candidate a line, with its help behind a tab, and the
//! directive on the last line. What the cluster knows is read within a second, and an error of any kind only means that
//! there are no candidates.

pub mod install;
mod live;
pub mod words;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _};
use kube::config::Kubeconfig;

use crate::api::Api;
use crate::cli::{Args, GlobalArgs};
use crate::connection::connect_with;
use crate::target::Kind;
use crate::text::harmless;
use words::{Line, Wanted};

/// The longest time for everything that is read from the cluster.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// A word that may stand there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// The word.
    pub word: String,
    /// Its description; may be empty.
    pub help: String,
}

impl Candidate {
    /// A word that explains itself.
    fn bare(word: String) -> Self {
        Candidate { word, help: String::new() }
    }
}

/// Instructions to the shell besides the candidates. The numbers are those of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directive {
    /// Files may stand there, too.
    Files = 0,
    /// Nothing else may stand there.
    Only = 4,
    /// The word goes on behind the candidate.
    Open = 6,
    /// The order of the candidates says something.
    Ordered = 36,
}

/// Completes the words behind the name of the program: the text for stdout.
pub async fn complete(words: Vec<String>) -> String {
    let mut root = Args::command();
    root.build();
    let line = words::read(&root, &words);
    let (candidates, directive) = candidates(&line).await;
    let mut text = String::new();
    for Candidate { word, help } in candidates.iter().filter(|found| found.word.starts_with(&line.prefix)) {
        text.push_str(&harmless(word));
        if !help.is_empty() {
            text.push_str(&format!("\t{}", harmless(help)));
        }
        text.push('\n');
    }
    format!("{text}:{}\n", directive as u8)
}

/// The script of a shell that completes `kubectl-windlass` without kubectl.
pub fn script(shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "kubectl-windlass", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

async fn candidates(line: &Line<'_>) -> (Vec<Candidate>, Directive) {
    match line.wanted {
        Wanted::Command => (commands(line.command), Directive::Only),
        Wanted::Flag => (flags(line), Directive::Only),
        Wanted::Value(arg) => values(line, arg).await,
        Wanted::Name => names(line).await,
    }
}

fn commands(root: &Command) -> Vec<Candidate> {
    let shown = root.get_subcommands().filter(|command| !command.is_hide_set()).flat_map(|command| {
        let help = first_line(command.get_about());
        let names = std::iter::once(command.get_name()).chain(command.get_visible_aliases());
        names.map(move |name| Candidate { word: name.to_owned(), help: help.clone() }).collect::<Vec<_>>()
    });
    shown.collect()
}

fn flags(line: &Line<'_>) -> Vec<Candidate> {
    let is_given = |arg: &Arg| line.flags.iter().any(|(given, _)| given.get_id() == arg.get_id());
    let args = line.command.get_arguments().filter(|arg| !arg.is_positional() && !arg.is_hide_set());
    let shown = args.filter(|arg| words::may_repeat(arg) || !is_given(arg)).flat_map(|arg| {
        let help = first_line(arg.get_help());
        let long = arg.get_long().map(|long| format!("--{long}"));
        let short = arg.get_short().map(|short| format!("-{short}"));
        long.into_iter().chain(short).map(move |word| Candidate { word, help: help.clone() })
    });
    shown.collect()
}

fn first_line(help: Option<&clap::builder::StyledStr>) -> String {
    let text = help.map(ToString::to_string).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim_end_matches('.').to_owned()
}

async fn values(line: &Line<'_>, arg: &Arg) -> (Vec<Candidate>, Directive) {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        let shown = possible
            .iter()
            .filter(|value| !value.is_hide_set())
            .map(|value| Candidate { word: value.get_name().to_owned(), help: first_line(value.get_help()) });
        return (shown.collect(), Directive::Only);
    }
    match (line.command.get_name(), arg.get_id().as_str()) {
        (_, "namespace") => {
            (within_patience(line, async |api, _| live::namespaces(&api).await).await, Directive::Only)
        }
        (_, "context") => (
            of_kubeconfig(line, |config| config.contexts.into_iter().map(|it| it.name).collect()),
            Directive::Only,
        ),
        (_, "cluster") => (
            of_kubeconfig(line, |config| config.clusters.into_iter().map(|it| it.name).collect()),
            Directive::Only,
        ),
        (_, "user") => (
            of_kubeconfig(line, |config| config.auth_infos.into_iter().map(|it| it.name).collect()),
            Directive::Only,
        ),
        (_, "revision" | "to_revision") => (
            within_patience(line, async |api, line| live::revisions(&api, line).await).await,
            Directive::Ordered,
        ),
        ("rolling-update", "container") => (
            within_patience(line, async |api, line| live::containers_of_controller(&api, line).await).await,
            Directive::Only,
        ),
        // The name of a container, and behind it the image, which nobody knows.
        ("plan", "image") => {
            let mut found = within_patience(line, async |api, line| live::containers(&api, line).await).await;
            found.iter_mut().for_each(|container| container.word.push('='));
            (found, Directive::Open)
        }
        (_, "filename") => (Vec::new(), Directive::Files),
        _ if arg.get_value_parser().type_id() == clap::builder::ValueParser::path_buf().type_id() => {
            (Vec::new(), Directive::Files)
        }
        _ => (Vec::new(), Directive::Only),
    }
}

async fn names(line: &Line<'_>) -> (Vec<Candidate>, Directive) {
    let none = line.names.is_empty();
    let found = match line.command.get_name() {
        "explain" => within_patience(line, async |api, line| live::objects(&api, line, true).await).await,
        "status" | "history" => {
            within_patience(line, async |api, line| live::objects(&api, line, false).await).await
        }
        // One object, perhaps behind its kind.
        "plan" | "undo" | "approve" | "promote" | "abort" | "retry" | "bypass"
            if none || Kind::parse(&line.names[0]).is_some_and(|_| line.names.len() == 1) =>
        {
            within_patience(line, async |api, line| live::objects(&api, line, false).await).await
        }
        "rolling-update" if none => within_patience(line, async |api, _| live::controllers(&api).await).await,
        "completion" if none => {
            let args = line.command.get_positionals().next();
            let values = args.map(Arg::get_possible_values).unwrap_or_default();
            let shown = values.iter().map(|value| Candidate {
                word: value.get_name().to_owned(),
                help: first_line(value.get_help()),
            });
            shown.collect()
        }
        _ => Vec::new(),
    };
    (found, Directive::Only)
}

/// The flags of the line that every command has.
fn global(line: &Line<'_>) -> Option<GlobalArgs> {
    let given = line.flags.iter().filter(|(arg, _)| arg.is_global_set()).filter_map(|(arg, value)| {
        let long = arg.get_long()?;
        Some(value.as_ref().map_or(format!("--{long}"), |value| format!("--{long}={value}")))
    });
    let words = std::iter::once("kubectl-windlass".to_owned()).chain(given);
    let command = <GlobalArgs as clap::Args>::augment_args(Command::new("kubectl-windlass"));
    GlobalArgs::from_arg_matches(&command.try_get_matches_from(words).ok()?).ok()
}

/// Asks the cluster, for at most [`READ_TIMEOUT`]. On a task of its own: a credential plugin may block its thread.
async fn within_patience<F>(line: &Line<'_>, ask: F) -> Vec<Candidate>
where
    F: AsyncFnOnce(Api, &Line<'_>) -> Vec<Candidate>,
{
    let Some(mut global) = global(line) else { return Vec::new() };
    global.request_timeout = READ_TIMEOUT;
    let connecting = tokio::spawn(async move {
        // As if stdin were taken: a credential plugin must not ask while the user types.
        connect_with(&global, &|name| std::env::var(name).ok(), true).await.ok()
    });
    let asked = async {
        let connection = connecting.await.ok()??;
        Some(ask(Api::new(connection, READ_TIMEOUT), line).await)
    };
    tokio::time::timeout(READ_TIMEOUT, asked).await.ok().flatten().unwrap_or_default()
}

/// Names from the kubeconfig. A file that cannot be read has none.
fn of_kubeconfig(line: &Line<'_>, names: impl Fn(Kubeconfig) -> Vec<String>) -> Vec<Candidate> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let files: Vec<PathBuf> = match (line.value("kubeconfig"), variable("KUBECONFIG")) {
        (Some(file), _) => vec![file.into()],
        (None, Some(list)) => std::env::split_paths(&list).collect(),
        (None, None) => {
            let home = variable("HOME").or_else(|| variable("USERPROFILE"));
            home.map(|home| PathBuf::from(home).join(".kube/config")).into_iter().collect()
        }
    };
    let mut found: Vec<String> =
        files.iter().filter_map(|file| Kubeconfig::read_from(file).ok()).flat_map(names).collect();
    found.sort();
    found.dedup();
    found.into_iter().map(Candidate::bare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn completed(words: &[&str]) -> String {
        complete(words.iter().map(|word| (*word).to_owned()).collect()).await
    }

    #[tokio::test]
    async fn commands_and_flags_come_with_their_help() {
        let commands = completed(&[""]).await;
        for word in ["explain\t", "status\t", "watch\t", "rolling-update\t", "completion\t"] {
            assert!(commands.lines().any(|line| line.starts_with(word)), "{word}: {commands}");
        }
        assert!(!commands.contains("rollingupdate") && commands.ends_with("\n:4\n"), "{commands}");
        assert_eq!(completed(&["hist"]).await.lines().count(), 2);
        let flags = completed(&["status", "--timeout", "5m", "--t"]).await;
        assert!(flags.contains("--token\t") && !flags.contains("--timeout"), "{flags}");
        assert!(completed(&["undo", "-"]).await.contains("-y\t"));
    }

    #[tokio::test]
    async fn a_flag_with_known_values_offers_them() {
        assert_eq!(
            completed(&["undo", "--dry-run", "s"]).await.lines().next().unwrap().split('\t').next(),
            Some("server")
        );
        assert!(completed(&["status", "--watch="]).await.starts_with("true\nfalse\n"));
        assert!(completed(&["completion", "inst"]).await.starts_with("install\t"));
    }

    #[tokio::test]
    async fn a_flag_for_a_file_leaves_the_files_to_the_shell() {
        for words in [["create", "-f", ""], ["plan", "--filename", ""], ["status", "--kubeconfig", ""]] {
            assert_eq!(completed(&words).await, ":0\n", "{words:?}");
        }
        assert_eq!(completed(&["status", "--token", ""]).await, ":4\n");
    }

    #[tokio::test]
    async fn contexts_come_from_the_file_of_the_command_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = "apiVersion: v1\nkind: Config\ncontexts:\n- {name: b, context: {cluster: c}}\n\
                    - {name: a, context: {cluster: c}}\nclusters: []\nusers: []\n";
        std::fs::write(file.path(), text).unwrap();
        let flag = format!("--kubeconfig={}", file.path().display());
        assert_eq!(completed(&[&flag, "status", "--context", ""]).await, "a\nb\n:4\n");
        assert_eq!(completed(&["--kubeconfig=/missing", "status", "--context", ""]).await, ":4\n");
    }

    #[tokio::test]
    async fn nothing_is_said_about_a_server_that_does_not_answer() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = format!("--server=http://{}", silent.local_addr().unwrap());
        let started = tokio::time::Instant::now();
        assert_eq!(completed(&[&server, "--kubeconfig=/missing", "explain", ""]).await, ":4\n");
        let flag = ["-n", "x", "explain", ""];
        assert_eq!(completed(&[&[server.as_str()], flag.as_slice()].concat()).await, ":4\n");
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    }
}
