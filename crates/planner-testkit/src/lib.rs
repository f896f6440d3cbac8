//! What tests of the planners share, compiled once and without an API server:
//!
//! - [`objects`]: Deployments, ReplicaSets and pods, described in sentences. Every other test uses them, too.
//! - [`situation`]: one moment of a Deployment or a ReplicaSet, and what the planners make of it.
//! - [`world`]: a toy cluster in which every write is judged by the safety invariants.
//! - [`rollout`]: rollouts in it, played into transcripts, with mishaps.
//! - [`history`]: random histories of it.

pub mod history;
pub mod objects;
pub mod rollout;
pub mod situation;
pub mod world;
