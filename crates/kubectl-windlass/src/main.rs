//! `kubectl-windlass`: kubectl runs it for `kubectl windlass`.

use std::process::ExitCode;

use clap::Parser as _;
use kubectl_windlass::cli::Args;

#[tokio::main]
async fn main() -> ExitCode {
    ExitCode::from(kubectl_windlass::run(Args::parse()).await.code())
}
