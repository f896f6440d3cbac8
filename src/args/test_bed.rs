//! The changes that `--test-bed` makes to the defaults of other flags. A flag that is set anywhere keeps its value.

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};

/// Flags with their defaults on a test bed: one daemon beside one API server, for the duration of a test. A flag that this
/// program does not have is left out.
const DEFAULTS: [(&str, &str); 7] = [
    // There is no second daemon, and a Lease costs the first second.
    ("leader-elect", "false"),
    // The API server serves nobody else.
    ("kube-api-qps", "-1"),
    // Tests write statuses themselves.
    ("on-conflict", "ignore"),
    // Test beds run side by side, and a port is for one of them.
    ("secure-port", "0"),
    // No other API server has to learn of the deletion.
    ("namespace-deletion-delay", "0s"),
    // Nodes that a test creates have no heartbeats.
    ("node-monitor-grace-period", "0s"),
    // Tests change the types of Services.
    ("delete-leftover-endpoint-slices", "true"),
];

/// The flags to add to a command line, where `--test-bed` is set.
pub(super) fn flags(command: &Command, matches: &ArgMatches) -> Vec<String> {
    if !matches.get_flag("test_bed") {
        return Vec::new();
    }
    let is_unset = |name: &str| {
        let argument = command.get_arguments().find(|argument| argument.get_long() == Some(name));
        argument.is_some_and(|argument| {
            matches.value_source(argument.get_id().as_str()) == Some(ValueSource::DefaultValue)
        })
    };
    let unset = DEFAULTS.iter().filter(|(name, _)| is_unset(name));
    unset.map(|(name, value)| format!("--{name}={value}")).collect()
}
