//! (see lib.rs)

pub mod garbage;
pub mod kubelet;
pub mod mirror;
pub mod namespaces;
pub mod resources;
pub mod scheduler;
