//! The flags of `history`, `undo` and `version`.

use clap::ValueEnum;

use super::{Format, Objects};

/// `history`.
#[derive(Clone, Debug, clap::Args)]
pub struct HistoryArgs {
    /// The objects, and a range of revisions such as 3..5 to see what differs; `..` is the last two.
    #[command(flatten)]
    pub objects: Objects,
    /// Print the pod template of this revision.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i64).range(1..))]
    pub revision: Option<i64>,
    /// The output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: HistoryFormat,
}

/// How `history` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum HistoryFormat {
    /// A line for each revision; templates as YAML.
    #[default]
    Table,
    /// The same with the names of the containers and the times of creation.
    Wide,
    /// With the templates.
    Json,
    /// With the templates.
    Yaml,
    /// The names of the ReplicaSets or ControllerRevisions.
    Name,
}

/// `undo`.
#[derive(Clone, Debug, clap::Args)]
pub struct UndoArgs {
    /// The Deployment or StatefulSet.
    #[command(flatten)]
    pub objects: Objects,
    /// The revision to go back to; 0 is the one before the current.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..))]
    pub to_revision: i64,
    /// Do not ask.
    #[arg(short, long)]
    pub yes: bool,
    /// client: only print what would change; server: also let the server judge it, without keeping it.
    #[arg(long, value_name = "WHERE", default_value = "none")]
    pub dry_run: DryRun,
}

/// Whether a write is only tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DryRun {
    /// It is kept.
    #[default]
    None,
    /// It is not sent.
    Client,
    /// The server judges it and does not keep it.
    Server,
}

/// `version`.
#[derive(Clone, Debug, clap::Args)]
pub struct VersionArgs {
    /// Ask no server.
    #[arg(long)]
    pub client: bool,
    /// The output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: Format,
}
