//! `windlass-sim`: the controllers in a hostile cluster, one history per seed.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;
use windlass::clock::Clock;
use windlass::sim::cli::{Args, execute};

fn main() -> ExitCode {
    let start = Clock::System.now();
    let elapsed = || Duration::try_from(Clock::System.now().duration_since(start)).unwrap_or_default();
    match execute(&Args::parse(), elapsed, &mut std::io::stdout()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            #[allow(clippy::print_stderr)] // There is nowhere else to say it.
            {
                eprintln!("error: {error}");
            }
            ExitCode::from(2)
        }
    }
}
