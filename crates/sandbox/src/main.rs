//! `windlass-sandbox`: an API server, a pod simulator and Windlass's controllers in one process.

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass::app::{Controllers, Parts};
use windlass::clock::Clock;
use windlass::config::ControllerConfig;
use windlass::logging::{self, FILTER_VARIABLE, LogOptions};
use windlass::metrics::Metrics;
use windlass::runtime::client::{ClientOptions, connect};
use windlass_sandbox::cli::{Args, Command};
use windlass_sandbox::nodes::{self, NodesArgs};
use windlass_sandbox::session::{self, Environment};

/// The server is in this process: a rate limit would only slow the demonstration down.
const REQUESTS_PER_SECOND: u32 = 5000;

/// How long running syncs may take to finish.
const DRAIN: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> ExitCode {
    let mut args = Args::parse();
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
    let controllers = Box::new(move |client, shutdown| start_controllers(client, seed, shutdown));
    match session::run(args, environment, controllers).await {
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
        connection.host,
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

/// The one place where the sandbox and the controllers meet.
fn start_controllers(
    client: kube::Client,
    seed: u64,
    shutdown: CancellationToken,
) -> JoinHandle<anyhow::Result<()>> {
    let config = ControllerConfig {
        qps: REQUESTS_PER_SECOND.into(),
        burst: REQUESTS_PER_SECOND,
        ..ControllerConfig::default()
    };
    let parts = Parts {
        client: client.into(),
        host: "sandbox".into(),
        clock: Clock::System,
        seed,
        metrics: Metrics::new(),
        election: None,
    };
    tokio::spawn(Controllers::new(config, parts).run(shutdown, DRAIN))
}

/// Logs warnings to standard error, or what `WINDLASS_LOG` selects.
fn log() -> Result<(), logging::LogError> {
    let filter = std::env::var(FILTER_VARIABLE).unwrap_or_else(|_| "warn".into());
    logging::init(&LogOptions { filter: Some(filter), ..LogOptions::default() }).map(drop)
}

#[allow(clippy::print_stderr)] // The error message of a command-line program.
fn fail(error: &impl std::fmt::Display) -> ExitCode {
    eprintln!("windlass-sandbox: {error}");
    ExitCode::FAILURE
}
