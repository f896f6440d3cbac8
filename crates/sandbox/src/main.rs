//! `windlass-sandbox`: an API server, a pod simulator and Windlass's controllers in one process.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser as _;
use windlass::clock::Clock;
use windlass::logging::{self, FILTER_VARIABLE, LogOptions};
use windlass::runtime::client::{ClientOptions, connect};
use windlass_sandbox::cli::{self, Args, Command};
use windlass_sandbox::controllers;
use windlass_sandbox::event_lines::plain_lines;
use windlass_sandbox::nodes::{self, NodesArgs};
use windlass_sandbox::session::{self, Environment};

/// Every write builds and drops trees of JSON, on several threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = Args::try_parse().unwrap_or_else(|error| cli::explained(error).exit());
    if let Some(Command::Nodes(args)) = args.command.take() {
        return simulate_nodes(args).await;
    }
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    // Log lines would garble the live view.
    let live = terminal && !args.exit_when_complete && std::io::stderr().is_terminal();
    if !live && let Err(error) = log() {
        return fail(&error);
    }
    let environment = Environment {
        now: Arc::new(|| Clock::System.now()),
        input: Box::new(std::io::stdin()),
        output: Box::new(std::io::stdout()),
        terminal,
        colour: terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        interrupted: session::signalled(),
    };
    let seed = args.seed;
    let start = Box::new(move |client, running, shutdown| {
        controllers::start(client, running, Clock::System, seed, shutdown)
    });
    match session::run(args, environment, start).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}")),
    }
}

/// The nodes alone, beside the API server of a kubeconfig.
async fn simulate_nodes(args: NodesArgs) -> ExitCode {
    if let Err(error) = log() {
        return fail(&error);
    }
    let options = ClientOptions { kubeconfig: args.kubeconfig.clone(), master: args.master.clone() };
    let connection = match connect(&options, &|name| std::env::var(name).ok()).await {
        Ok(connection) => connection,
        Err(error) => return fail(&error),
    };
    let now = Arc::new(|| Clock::System.now());
    let output = Box::new(std::io::stdout());
    match nodes::run(
        args,
        kube::Client::new(connection.client, "default"),
        format!("{} ({})", connection.host, connection.source),
        now,
        output,
        session::signalled(),
    )
    .await
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{error:#}")),
    }
}

/// Logs warnings to standard error, or what `WINDLASS_LOG` selects.
fn log() -> Result<(), logging::LogError> {
    let filter = std::env::var(FILTER_VARIABLE).unwrap_or_else(|_| "warn".into());
    logging::init(&LogOptions { filter: Some(filter), ..LogOptions::default() }).map(drop)
}

#[allow(clippy::print_stderr)] // The error message of a command-line program.
fn fail(error: &impl std::fmt::Display) -> ExitCode {
    eprintln!("windlass-sandbox: {}", plain_lines(&error.to_string()));
    ExitCode::FAILURE
}
