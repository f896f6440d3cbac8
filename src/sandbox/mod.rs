//! (see lib.rs)

pub mod cluster;
pub mod garbage;
pub mod kubelet;
pub mod lines;
pub mod manifest;
pub mod mirror;
pub mod namespaces;
pub mod progress;
pub mod resources;
pub mod scheduler;
pub mod view;
pub mod cli;
pub mod kubeconfig;
pub mod session;
