//! `kubectl-windlass`: a kubectl plugin that explains rollouts, whichever controller manager drives them.
//!
//! The modules, in reading order:
//!
//! * [`cli`], [`target`]: the command line.
//! * [`connection`], [`api`], [`watch`]: the kubeconfig, reads and watches.
//! * [`revisions`]: the history of a Deployment, and the way back. Pure.
//! * [`rollout`]: what the objects of one Deployment say. Pure, and on the daemon's own planner.
//! * [`explain`], [`status`], [`plan`], [`create`], [`rolling_update`], [`history`], [`undo`], [`mod@version`]: the
//!   commands; [`mod@write`]: the only writes.
//! * [`absent`]: objects that do not exist.
//! * [`exit`], [`interruption`], [`output`], [`text`]: exit codes, signals, the streams, and texts of other people.

pub mod absent;
pub mod api;
pub mod cli;
pub mod connection;
pub mod create;
pub mod exit;
pub mod explain;
pub mod history;
pub mod interruption;
pub mod output;
pub mod plan;
pub mod revisions;
pub mod rolling_update;
pub mod rollout;
pub mod status;
pub mod target;
pub mod text;
pub mod undo;
pub mod version;
pub mod watch;
pub mod write;

use clap::CommandFactory as _;
use cli::{Args, Command};
use exit::{CommandError, Exit};
use output::Output;

/// Runs a command line to its end, and reports an error on stderr.
pub async fn run(args: Args) -> Exit {
    let mut output = Output::of_process(&args.global);
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
        Command::Explain(args) => explain::run(&global, args, output).await,
        Command::Status(args) => status::run(&global, args, output).await,
        Command::Plan(args) => plan::run(&global, args, output).await,
        Command::Create(args) => create::run(&global, args, output).await,
        Command::RollingUpdate(args) => rolling_update::run(&global, args, output).await,
        Command::History(args) => history::run(&global, args, output).await,
        Command::Undo(args) => undo::run(&global, args, output).await,
        Command::Version(args) => version::run(&global, args, output).await,
        Command::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Args::command(), "kubectl-windlass", &mut script);
            output.text(&String::from_utf8_lossy(&script))?;
            Ok(Exit::Success)
        }
    }
}
