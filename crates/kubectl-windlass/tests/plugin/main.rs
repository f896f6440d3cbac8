//! The plugin as a process: on a sandbox, and started by the real kubectl where there is one.

mod answering_front;
mod as_the_daemon;
mod completion;
mod create;
mod crowd;
mod daemon_sets;
mod documented_flags;
mod explain;
mod explain_more;
mod foreign_texts;
mod front;
mod harness;
mod history;
mod kubectl;
mod list;
mod missing_rights;
mod plan;
mod policy;
mod proxies;
mod real_cluster;
mod rights;
mod rolling_update;
mod rolling_update_forms;
mod rolling_update_trouble;
mod server_side;
mod signals;
mod stateful_sets;
mod status;
#[cfg(target_os = "linux")]
mod terminal;
