//! `kubectl-windlass`: a kubectl plugin that explains rollouts, whichever controller manager drives them.
//!
//! The modules, in reading order:
//!
//! * [`cli`], [`kind`], [`target`], [`owners`], [`invocation`], [`completion`]: the command line, and how it is completed.
//! * [`connection`], [`api`], [`watch`]: the kubeconfig, reads and watches.
//! * [`revisions`]: the history of a Deployment, and the way back. Pure.
//! * [`rollout`]: what the objects of one workload say. Pure, and on the daemon's own planner.
//! * [`mod@list`], [`explain`], [`status`], [`plan`], [`create`], [`rolling_update`], [`history`], [`undo`], [`policy`],
//!   [`mod@version`]: the commands; [`question`]: what they ask; [`mod@write`]: the only writes.
//! * [`absent`]: objects that do not exist.
//! * [`exit`], [`interruption`], [`output`], [`text`], [`trace`]: exit codes, signals, the streams, texts of other people,
//!   and `-v`. `windlass-terminal` has the rows of a terminal.

pub mod absent;
pub mod api;
pub mod cli;
pub mod completion;
pub mod connection;
pub mod create;
pub mod exit;
pub mod explain;
pub mod history;
pub mod interruption;
pub mod invocation;
pub mod kind;
pub mod list;
pub mod output;
pub mod owners;
pub mod plan;
pub mod policy;
pub mod question;
pub mod revisions;
pub mod rolling_update;
pub mod rollout;
pub mod shown;
pub mod status;
pub mod target;
pub mod text;
pub mod trace;
pub mod undo;
pub mod version;
pub mod watch;
pub mod write;

use std::path::Path;

use clap::CommandFactory as _;
use cli::{Args, Command, GlobalArgs};
use completion::install::Installed;
use exit::{CommandError, Exit};
use invocation::Invocation;
use output::Output;

/// Runs a command line to its end, and reports an error on stderr.
pub async fn run(args: Args) -> Exit {
    let mut output = Output::of_process(&args.global);
    trace::set_level(args.global.verbosity);
    let after_interruption = match &args.command {
        Command::RollingUpdate(args) => Some(args.after_interruption()),
        _ => None,
    };
    // Dropping the command closes its connections and gives the terminal back.
    let ended = interruption::run(command(args, &mut output), interruption::signal).await;
    let ended = ended.unwrap_or(Ok(Exit::Interrupted));
    if let (Some(note), Ok(Exit::Interrupted)) = (after_interruption, &ended) {
        output.note(&note);
    }
    match ended {
        Ok(exit) => exit,
        // A reader that closes the pipe, such as `head`, has seen what it wanted.
        Err(CommandError::OutputClosed) => Exit::Success,
        Err(error) => {
            output.error(&error.to_string());
            if matches!(error, CommandError::Usage(_)) { Exit::Usage } else { Exit::Error }
        }
    }
}

async fn command(args: Args, output: &mut Output) -> Result<Exit, CommandError> {
    let Args { global, command } = args;
    match command {
        Command::List(args) => list::run(&global, args, output).await,
        Command::Explain(args) => explain::run(&global, args, output).await,
        Command::Status(args) => status::run(&global, args, output).await,
        Command::Plan(args) => plan::run(&global, args, output).await,
        Command::Create(args) => create::run(&global, args, output).await,
        Command::RollingUpdate(args) => rolling_update::run(&global, args, output).await,
        Command::History(args) => history::run(&global, args, output).await,
        Command::Undo(args) => undo::run(&global, args, output).await,
        Command::Approve(args) => policy::approve(&global, args, output).await,
        Command::Abort(args) => policy::abort(&global, args, output).await,
        Command::Retry(args) => policy::retry(&global, args, output).await,
        Command::Bypass(args) => policy::bypass(&global, args, output).await,
        Command::Version(args) => version::run(&global, args, output).await,
        Command::Completion { target } => {
            let Some(shell) = target.shell() else { return install_completion(output) };
            output.text(&completion::script(shell))?;
            Ok(Exit::Success)
        }
    }
}

fn install_completion(output: &mut Output) -> Result<Exit, CommandError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<_> = std::env::split_paths(&path).collect();
    let installed = completion::install::install(&Invocation::of_process(), &directories);
    let Installed { link, was_there } = installed.map_err(CommandError::Argument)?;
    let verb = if was_there { "is there already" } else { "created" };
    output.line(&format!("{} {verb}: kubectl completes the plugin with it", link.display()))?;
    Ok(Exit::Success)
}

/// Writes the candidates for a command line on stdout. Whoever asks for them has no use for an error.
pub async fn complete(words: Vec<String>) -> Exit {
    let text = completion::complete(words).await;
    let _ = Output::of_process(&GlobalArgs::default()).text(&text);
    Exit::Success
}

/// Writes the manual pages, one for each command, into a directory.
pub fn write_manual(directory: &Path) -> Exit {
    match clap_mangen::generate_to(Args::command(), directory) {
        Ok(()) => Exit::Success,
        Err(error) => {
            refuse(&format!("cannot write manual pages into {}: {error}", directory.display()));
            Exit::Error
        }
    }
}

/// Says on stderr why the program cannot run.
pub fn refuse(problem: &str) {
    Output::of_process(&GlobalArgs::default()).error(problem);
}
