//! `windlass-sandbox`: an embedded API server, simulated nodes and Windlass's controllers in one process, to see a
//! rollout without a cluster.

pub mod cli;
pub mod cluster;
pub mod event_lines;
pub mod kubeconfig;
pub mod manifest;
pub mod node_flags;
pub mod nodes;
pub mod progress;
pub mod session;
pub mod view;

#[cfg(test)]
mod behaviours;
