//! `windlass`: flags become a configuration, the configuration runs, an error becomes an exit code.

use std::io::Write as _;
use std::process::ExitCode;

use windlass::args::{self, LoadError};
use windlass::config::Config;
use windlass::logging::Verbosity;
use windlass::runtime::client::ClientError;
use windlass::runtime::shutdown::{shutdown_on_signals, signals};
use windlass::{app, logging};

#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code for flags, variables and files that cannot be used, as clap has it.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let args = match args::load(std::env::args_os()) {
        Ok(args) => args,
        Err(LoadError::Flags(error)) => error.exit(),
        Err(error) => return fail(&error, USAGE),
    };
    let print = args.source.print_config.then(|| args::print(&args));
    let config = match Config::try_from(args) {
        Ok(config) => config,
        Err(error) => return fail(&error, USAGE),
    };
    match print {
        Some(Ok(text)) => return say(&text),
        Some(Err(error)) => return fail(&error, USAGE),
        None => {}
    }
    let verbosity = match logging::init(&config.logging) {
        Ok(verbosity) => verbosity,
        Err(error) => return fail(&error, USAGE),
    };
    // One thread; only the Lease has another. The work between two requests is short, and of two threads each wakes the
    // other for nothing: that took a sixth of the CPU time. The price: a large list is decoded on this thread alone.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error, 1),
    };
    let code = runtime.block_on(run(config, verbosity));
    // A second signal must not wait for a task that hangs.
    runtime.shutdown_background();
    code
}

async fn run(config: Config, verbosity: Verbosity) -> ExitCode {
    let signals = match signals() {
        Ok(signals) => signals,
        Err(error) => return fail(&error, 1),
    };
    let shutdown = tokio_util::sync::CancellationToken::new();
    // The one seed that is not passed in: two daemons must not choose the same names.
    #[allow(clippy::disallowed_methods)]
    let seed = fastrand::Rng::new().u64(..);
    tokio::select! {
        result = app::run(config, verbosity, seed, shutdown.clone()) => match result {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                let of_configuration = error.downcast_ref::<ClientError>().is_some_and(ClientError::is_of_configuration);
                fail(&format!("{error:#}"), if of_configuration { USAGE } else { 1 })
            }
        },
        second = shutdown_on_signals(signals, shutdown) => ExitCode::from(second.exit_code()),
    }
}

/// For `--print-config`. A reader that closed the pipe is no error of ours, here and in [`fail`].
fn say(text: &str) -> ExitCode {
    let _ = writeln!(std::io::stdout(), "{text}");
    ExitCode::SUCCESS
}

/// The final error; logging may not be set up.
fn fail(error: &impl std::fmt::Display, code: u8) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "windlass: {error}");
    ExitCode::from(code)
}
