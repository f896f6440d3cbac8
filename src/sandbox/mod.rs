//! (see lib.rs)

pub mod kubelet;
pub mod mirror;
pub mod resources;
pub mod scheduler;
