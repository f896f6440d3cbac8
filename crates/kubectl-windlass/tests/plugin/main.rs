//! The plugin as a process: on a sandbox, and started by the real kubectl where there is one.

mod as_the_daemon;
mod create;
mod explain;
mod harness;
mod history;
mod kubectl;
mod plan;
mod real_cluster;
mod rights;
mod rolling_update;
mod server_side;
mod status;
