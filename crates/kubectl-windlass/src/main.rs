//! `kubectl-windlass`: kubectl runs it for `kubectl windlass`, and as `kubectl_complete-windlass` for completions.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use kubectl_windlass::cli::Args;
use kubectl_windlass::exit::Exit;
use kubectl_windlass::invocation::Invocation;

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            kubectl_windlass::refuse(&format!("cannot start threads: {error}"));
            return ExitCode::from(Exit::Error.code());
        }
    };
    let exit = runtime.block_on(run());
    // A thread that reads a terminal or waits for a credential plugin must not hold the end up.
    runtime.shutdown_background();
    ExitCode::from(exit.code())
}

async fn run() -> Exit {
    let invocation = Invocation::of_process();
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(words) = invocation.completes(&arguments) {
        return kubectl_windlass::complete(words).await;
    }
    if let Some(directory) = Invocation::writes_manual(&arguments) {
        return kubectl_windlass::write_manual(&directory);
    }
    let matches = Args::command().bin_name(invocation.command()).get_matches();
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    kubectl_windlass::run(args).await
}
