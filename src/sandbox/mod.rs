//! (see lib.rs)

pub mod garbage;
pub mod kubelet;
pub mod manifest;
pub mod mirror;
pub mod namespaces;
pub mod resources;
pub mod scheduler;
