//! Code that tests of the planners share, compiled once and without an API server:
//!
//! - [`objects`]: Deployments, ReplicaSets and pods, as builders. Every other test uses them, too.
//! - [`situation`]: one moment of a Deployment or a ReplicaSet, and the plans for it.
//! - [`world`]: a toy cluster that checks every write against the safety invariants.
//! - [`rollout`]: rollouts in it as transcripts, with foreign changes.
//! - [`history`]: random histories of it.

pub mod history;
pub mod objects;
pub mod rollout;
pub mod situation;
pub mod world;
