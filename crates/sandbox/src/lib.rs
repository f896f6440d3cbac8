//! `windlass-sandbox`: an embedded API server, simulated nodes and Windlass's controllers in one process, to see a
//! rollout without a cluster. A test uses the same parts as a [`TestCluster`]:
//!
//! ```
//! use windlass_sandbox::TestCluster;
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! let cluster = TestCluster::start();
//! cluster.apply(include_str!("../../../examples/nginx.yaml")).await.unwrap();
//! cluster.rolled_out("Deployment", "default", "web").await.unwrap();
//! assert_eq!(cluster.api_server().objects("Pod").len(), 3);
//! # });
//! ```

pub mod cli;
pub mod cluster;
pub mod controllers;
pub mod event_lines;
pub mod kubeconfig;
pub mod manifest;
pub mod node_flags;
pub mod nodes;
pub mod progress;
pub mod session;
mod test_cluster;
pub mod view;

pub use test_cluster::{NotRolledOut, TestCluster, TestOptions};

#[cfg(test)]
mod behaviours;
