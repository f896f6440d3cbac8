//! The plugin as a process: on a sandbox, and started by the real kubectl where there is one.

mod completion;
mod create;
mod explain;
mod explain_more;
mod front;
mod harness;
mod history;
mod kubectl;
mod plan;
mod real_cluster;
mod rolling_update;
mod server_side;
mod status;
#[cfg(target_os = "linux")]
mod terminal;
