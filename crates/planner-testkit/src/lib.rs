//! What tests of the planners share, compiled once and without an API server:
//!
//! - [`objects`]: Deployments, ReplicaSets and pods, described in sentences. Every other test uses them, too.
//! - [`situation`]: one moment of a Deployment or a ReplicaSet, and what the planners make of it.
//! - [`world`]: a toy cluster in which rollouts are played into transcripts, with its [`mishap`]s.
//! - [`history`]: a quicker one, in which random histories are judged by the safety invariants.

pub mod history;
pub mod mishap;
pub mod objects;
pub mod situation;
mod statuses;
pub mod world;
