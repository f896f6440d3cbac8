//! `windlass-sim`: the controllers in a hostile cluster, one history per seed.

use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser as _;
use windlass::clock::Clock;
use windlass::sim::cli::{Args, Host, execute};

/// The version, and the commit: as the build was told, or else of the checkout that it was built from.
fn version() -> String {
    let told = option_env!("WINDLASS_COMMIT").map(str::to_owned);
    let commit = told.or_else(|| {
        let directory = env!("CARGO_MANIFEST_DIR");
        let git = ["-C", directory, "describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"];
        let output = Command::new("git").args(git).output().ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    });
    let version = env!("CARGO_PKG_VERSION");
    commit.map_or_else(|| version.to_owned(), |commit| format!("{version} ({commit})"))
}

fn main() -> ExitCode {
    let start = Clock::System.now();
    let elapsed = || Duration::try_from(Clock::System.now().duration_since(start)).unwrap_or_default();
    let started = u64::try_from(start.as_millisecond()).unwrap_or_default();
    let host = Host { elapsed: &elapsed, started, version: version() };
    match execute(&Args::parse(), &host, &mut std::io::stdout()) {
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
