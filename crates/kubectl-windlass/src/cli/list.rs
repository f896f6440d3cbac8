//! The flags of `list`.

use clap::ValueEnum;

use super::Objects;

/// `list`.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(after_help = "\
Examples:
  kubectl windlass list -A                what is stuck or waits anywhere, and why; at a terminal, until q
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
    /// Only what is not finished, once. Exit code 0 if that is nothing, 3 if something is stuck, halted or has failed, 4
    /// otherwise.
    #[arg(long, conflicts_with = "all")]
    pub unfinished: bool,
    /// Also those that are complete, suspended, or scheduled for later, one a line.
    #[arg(long)]
    pub all: bool,
    /// The output format, text by default. With this flag, the list is printed once.
    #[arg(short, long, value_name = "FORMAT")]
    pub output: Option<ListFormat>,
    /// Whether to follow the list at a terminal: arrows choose, Enter explains, / filters, q leaves.
    #[arg(short = 'w', long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub watch: bool,
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
    pub fn of(objects: &Objects, output: Option<ListFormat>, watch: bool) -> Self {
        let Objects { names: _, selector, all_namespaces } = objects.clone();
        ListArgs { selector, all_namespaces, output, watch, ..ListArgs::default() }
    }
}
