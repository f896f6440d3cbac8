//! `kubectl-windlass`: kubectl runs it for `kubectl windlass`.

use std::process::ExitCode;

use clap::Parser as _;
use kubectl_windlass::cli::Args;

#[allow(clippy::print_stderr)] // Without a runtime, there are no streams.
fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let exit = runtime.block_on(kubectl_windlass::run(args));
    // A name that is being resolved must not hold the end up.
    runtime.shutdown_background();
    ExitCode::from(exit.code())
}
