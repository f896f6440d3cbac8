//! The flags of `approve`, `abort`, `retry` and `bypass`.

use std::time::Duration;

use super::{DryRun, Objects, duration};

/// `approve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ApproveArgs {
    /// The Deployment.
    #[command(flatten)]
    pub objects: Objects,
    /// Approve the steps up to this one; without it, the step that holds now.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "all")]
    pub step: Option<u32>,
    /// Approve all steps of the revision.
    #[arg(long)]
    pub all: bool,
    /// The revision to approve. Another current one is an error.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub revision: Option<i64>,
    /// How it is written.
    #[command(flatten)]
    pub consent: Consent,
}

/// `abort` and `retry`.
#[derive(Clone, Debug, clap::Args)]
pub struct RevisionArgs {
    /// The Deployment.
    #[command(flatten)]
    pub objects: Objects,
    /// The revision that is meant. Another current one is an error.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub revision: Option<i64>,
    /// How it is written.
    #[command(flatten)]
    pub consent: Consent,
}

/// `bypass`.
#[derive(Clone, Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("until").args(["time", "end"]).required(true))]
pub struct BypassArgs {
    /// The Deployment.
    #[command(flatten)]
    pub objects: Objects,
    /// How long steps and batch delays hold nothing, such as 30m; 7 days at most.
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub time: Option<Duration>,
    /// End the bypass now.
    #[arg(long)]
    pub end: bool,
    /// How it is written.
    #[command(flatten)]
    pub consent: Consent,
}

/// Whether a command writes, and whether it asks before.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct Consent {
    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,
    /// client: only print what would change; server: also let the server judge it, without keeping it.
    #[arg(long, value_name = "WHERE", default_value = "none")]
    pub dry_run: DryRun,
}
