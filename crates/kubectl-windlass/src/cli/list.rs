//! The flags of `list`.

use clap::ValueEnum;

use super::Objects;

/// `list`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl windlass list -A                what is stuck or waits anywhere, and why
  kubectl windlass list deploy,sts --all  two kinds, with what is complete
  kubectl windlass list -A --unfinished   for scripts: exit code 0, 3 or 4")]
pub struct ListArgs {
    /// The kinds, such as deploy or sts; all by default.
    #[arg(value_name = "KIND")]
    pub kinds: Vec<String>,
    /// The workloads with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,
    /// In all namespaces.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Only what is not finished. Exit code 0 if that is nothing, 4 if it is something, 3 if something has failed.
    #[arg(long, conflicts_with = "all")]
    pub unfinished: bool,
    /// Also those that are complete, suspended, or scheduled for later, one a line.
    #[arg(long)]
    pub all: bool,
    /// The output format.
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub output: ListFormat,
}

/// How `list` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// A line for each workload, the worst first.
    #[default]
    Text,
    /// The same with more columns, and with whole reasons.
    Wide,
    /// For programs.
    Json,
    /// The same as JSON has.
    Yaml,
}

impl ListArgs {
    /// The list that stands for another command without a name.
    pub fn of(objects: &Objects, output: ListFormat) -> Self {
        let Objects { names: _, selector, all_namespaces } = objects.clone();
        ListArgs { selector, all_namespaces, output, ..ListArgs::default() }
    }
}
