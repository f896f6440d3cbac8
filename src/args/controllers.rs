//! The flags that each controller brings: they come from the registry.

use std::collections::BTreeMap;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};
use serde::Serialize;

use crate::controllers::registry::CONTROLLERS;
use crate::engine::entry::ControllerEntry;

/// How much runs at once, by the names of the flags.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub struct ControllerArgs(BTreeMap<&'static str, usize>);

impl ControllerArgs {
    /// How many keys a controller syncs at the same time.
    pub fn workers_of(&self, controller: &ControllerEntry) -> usize {
        self.0.get(controller.flag).copied().unwrap_or(controller.workers)
    }
}

impl Args for ControllerArgs {
    fn augment_args(command: Command) -> Command {
        command.args(CONTROLLERS.iter().map(|controller| {
            Arg::new(controller.flag)
                .long(controller.flag)
                .env(controller.variable())
                .value_name("N")
                .value_parser(value_parser!(usize))
                .default_value(controller.workers.to_string())
                .help(format!("{} that are synced at the same time", controller.objects))
                .help_heading(format!("{} controller flags", controller.kind.kind))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ControllerArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |controller: &&ControllerEntry| {
            matches.get_one::<usize>(controller.flag).map(|count| (controller.flag, *count))
        };
        Ok(ControllerArgs(CONTROLLERS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
