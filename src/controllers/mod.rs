//! The shell: wake, observe, plan, execute, settle. The same five steps for each controller.
//!
//! The one guarantee: no decision is taken here. What to do comes from [`crate::plan`]; this module
//! reads what the plan rests on, carries it out in its order, and stops at the first write that fails.
//!
//! * [`wake`]: a change in a store becomes the keys that it concerns.
//! * [`deployment`], [`replicaset`]: observe, plan, execute and settle one key.
//! * [`pod_owner`]: the kinds that keep a number of pods.
//! * [`apis`]: the API server with a rate limit for each controller.
//! * [`pod_names`]: the names that pods have had.
//! * [`execute`]: every write to workloads that Windlass makes.
//! * [`resolve`]: what only the API server itself knows.
//! * [`vanished`]: what vanishes as fast as it is made.
//! * [`unresolved`]: writes of which nobody knows yet whether they happened.
//! * [`lost_creations`]: ReplicaSets that were created although nobody said so.
//! * [`explanations`]: why the last plans were what they were, for people who ask.
//! * [`pace`]: how often a status is written.
//! * [`gated_field`]: a field of statuses that older API servers drop.
//! * [`refused`]: sets whose pods were refused, and who tries next.
//! * [`turns`]: who writes a set of those two who may.
//! * [`words`]: when the text of a failure may change in a status.
//! * [`scope`], [`resync`]: whose objects are ours to act on, and a sync of all of them from time to time.
//! * [`rollouts`]: when rollouts start, end and get stuck, for the metrics.
//! * [`coexistence`]: another controller that acts on the same objects is noticed.

#[cfg(test)]
mod fixture;

pub mod apis;
pub mod cluster;
pub mod coexistence;
pub mod deployment;
pub mod error;
pub mod execute;
pub mod explanations;
pub mod gated_field;
pub mod lost_creations;
pub mod pace;
pub mod patch;
pub mod pod_names;
pub mod pod_owner;
pub mod refused;
pub mod replicaset;
pub mod resolve;
pub mod resync;
pub mod rollouts;
pub mod scope;
pub mod turns;
pub mod unresolved;
pub mod vanished;
pub mod wake;
pub mod words;

pub use apis::Apis;
pub use cluster::Cluster;
pub use error::SyncError;
