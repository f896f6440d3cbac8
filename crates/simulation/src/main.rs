//! `windlass-sim`: the controllers in a hostile cluster, one history per seed.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, SystemTime};

use clap::Parser as _;
use windlass::clock::Clock;
use windlass::version::COMMIT;
use windlass_simulation::cli::{Args, Host, execute};

/// A history allocates many small objects; with the system's allocator it takes a quarter longer.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The version, and the commit: from the build's environment, or else from the checkout that the program was built
/// from, if its sources have not changed since. A build script that runs git would be more precise, but would rebuild
/// everything after every commit.
fn version() -> String {
    let checkout = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let told = (!COMMIT.is_empty()).then(|| COMMIT.to_owned());
    let commit = told.or_else(|| {
        let built = std::env::current_exe().and_then(|program| program.metadata()?.modified()).ok()?;
        let git = ["describe", "--always", "--dirty", "--exclude=*", "--abbrev=12"];
        let output = Command::new("git").current_dir(checkout).args(git).output().ok()?;
        let commit = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        let sources = ["src", "crates", "Cargo.toml", "Cargo.lock"];
        Some(match sources.iter().any(|source| is_newer(&checkout.join(source), built)) {
            // By the same rule as cargo: cargo would rebuild.
            true => format!("not the sources of {}", commit.trim()),
            false => commit.trim().to_owned(),
        })
    });
    let version = env!("CARGO_PKG_VERSION");
    commit.map_or_else(|| version.to_owned(), |commit| format!("{version} ({commit})"))
}

/// Whether a file at or below `path` was changed after `built`. An unreadable file counts as changed.
fn is_newer(path: &Path, built: SystemTime) -> bool {
    let unchanged =
        |path: &Path| path.metadata().and_then(|file| file.modified()).is_ok_and(|then| then <= built);
    let Ok(entries) = std::fs::read_dir(path) else { return !unchanged(path) };
    entries.flatten().any(|entry| is_newer(&entry.path(), built))
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
