//! `windlass-sandbox`: an API server, a pod simulator and Windlass's controllers in one process.

use std::{io::IsTerminal as _, process::ExitCode, sync::Arc};

use anyhow::anyhow;
use clap::Parser as _;
use futures::FutureExt as _;
use tracing_subscriber::EnvFilter;
use windlass::{
    clock::Clock,
    sandbox::{
        cli::Args,
        session::{self, Surroundings},
    },
};

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    log(terminal && !args.exit_when_complete, plain);
    let surroundings = Surroundings {
        now: Arc::new(|| Clock::System.now()),
        input: Box::new(std::io::stdin()),
        output: Box::new(std::io::stdout()),
        terminal,
        colour: terminal && !plain,
        interrupted: session::signalled().boxed(),
    };
    // The one place where the controllers are wired in.
    let start_controllers = |_client, _shutdown| {
        tokio::spawn(async { Err(anyhow!("controllers are not linked in: run with --no-controllers")) })
    };
    match session::run(args, surroundings, start_controllers).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::FAILURE
        }
    }
}

#[allow(clippy::print_stderr)] // The end of a program at a terminal, not a library.
fn report(error: &anyhow::Error) {
    eprintln!("windlass-sandbox: {error:#}");
}

/// Warnings go to standard error, or what `RUST_LOG` says; but nowhere while the live view has the
/// screen, which they would tear apart.
fn log(live: bool, plain: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(terminal && !plain);
    if live && terminal {
        builder.with_writer(std::io::sink).init();
    } else {
        builder.with_writer(std::io::stderr).init();
    }
}
