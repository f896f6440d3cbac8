//! `docs/plugin-flags.md` has the flags of the program.
//!
//! `UPDATE_EXPECT=1 cargo test --test plugin documented_flags` writes its tables anew.

use std::fs;
use std::path::Path;

use clap::builder::PossibleValue;
use clap::{Arg, Command, CommandFactory as _};
use kubectl_windlass::cli::Args;

/// The row of a flag; arguments without a name have none.
fn row(flag: &Arg) -> Option<String> {
    let long = flag.get_long()?;
    let short = flag.get_short().map_or(String::new(), |short| format!("`-{short}`, "));
    let choices = flag.get_possible_values();
    let choices = choices.iter().filter(|choice| !choice.is_hide_set()).map(PossibleValue::get_name);
    let mut values = choices.collect::<Vec<_>>().join("|");
    if values.is_empty() && flag.get_action().takes_values() {
        values = flag.get_value_names().unwrap_or_default().join(" ");
    }
    let values = match (values.is_empty(), flag.is_require_equals_set()) {
        (true, _) => values,
        (false, true) => format!("[={values}]"),
        (false, false) => format!(" {values}"),
    };
    let defaults = flag.get_default_values().iter().map(|value| value.to_string_lossy());
    let default = defaults.collect::<Vec<_>>().join(",");
    let help = flag.get_help().map(ToString::to_string).unwrap_or_default();
    let cells = [format!("{short}`--{long}{values}`"), default, help].map(|cell| cell.replace('|', "\\|"));
    Some(format!("| {} |\n", cells.join(" | ")))
}

/// The flags that `--help` shows for a command, if it has any of its own.
fn section(name: &str, command: &Command) -> String {
    let rows: String = command.get_arguments().filter(|flag| !flag.is_hide_set()).filter_map(row).collect();
    if rows.is_empty() {
        return rows;
    }
    format!("\n## {name}\n\n| Flag | Default | Meaning |\n|---|---|---|\n{rows}")
}

#[test]
fn documented_flags_are_those_of_the_program() {
    let program = Args::command();
    let commands = program.get_subcommands().map(|command| section(command.get_name(), command));
    let sections = commands.chain([section("Every command", &program)]).collect::<String>();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plugin-flags.md");
    let page = fs::read_to_string(&path).unwrap();
    let (head, _) = page.split_once("<!-- flags -->\n").unwrap();
    let is = format!("{head}<!-- flags -->\n{sections}");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, &is).unwrap();
    }
    let page = fs::read_to_string(&path).unwrap();
    assert!(page == is, "docs/plugin-flags.md is out of date; UPDATE_EXPECT=1 writes it anew:\n{is}");
}

#[test]
fn the_short_help_fits_one_screen_and_begins_a_day() {
    let help = |command: &str, flag: &str| {
        let output =
            std::process::Command::new(crate::harness::PLUGIN).args([command, flag]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    for command in ["list", "explain", "status"] {
        let short = help(command, "-h");
        assert!(short.lines().count() <= 40, "{short}");
        assert!(short.contains("Examples:\n") && !short.contains("--tls-server-name"), "{short}");
        assert!(help(command, "--help").contains("--tls-server-name"), "{command}");
    }
}
