//! The shell: wake, observe, plan, execute, settle. The same five steps for each controller.
//!
//! The one guarantee: no decision is taken here. What to do comes from [`crate::plan`]; this module
//! reads what the plan rests on, carries it out in its order, and stops at the first write that fails.
//!
//! * [`registry`]: the two lists, of the kinds and of the controllers.
//! * [`controller`], [`driver`]: what a controller is, and what runs the steps of each.
//! * [`setup`], [`context`]: how controllers are built and wired, and what they ask for.
//! * [`deployment`], [`replicas`], [`replicaset`], [`replicationcontroller`]: the controllers.
//! * [`wake`]: a change in a store becomes the keys that it concerns.
//! * [`execute`], [`patch`]: every write to workloads that Windlass makes.
//! * [`resolve`]: what only the API server itself knows.
//! * [`owner_memory`]: what is remembered of owners, and forgotten with them.
//! * [`vanished`]: what vanishes as fast as it is made.
//! * [`unresolved`]: writes of which nobody knows yet whether they happened.
//! * [`explanations`]: why the last plans were what they were, for people who ask.
//! * [`pace`]: how often a status is written.
//! * [`gated_field`]: a field of statuses that older API servers drop.
//! * [`turns`]: who writes an object of those two who may.
//! * [`words`]: when the text of a failure may change in a status.
//! * [`scope`], [`resync`]: whose objects are ours to act on, and a sync of all of them from time to time.
//! * [`coexistence`]: another controller that acts on the same objects is noticed.

#[cfg(test)]
mod fixture;

pub mod coexistence;
pub mod context;
pub mod controller;
pub mod deployment;
pub mod driver;
pub mod error;
pub mod execute;
pub mod explanations;
pub mod gated_field;
pub mod owner_memory;
pub mod pace;
pub mod patch;
pub mod registry;
pub mod replicas;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resolve;
pub mod resync;
pub mod scope;
pub mod setup;
pub mod turns;
pub mod unresolved;
pub mod vanished;
pub mod wake;
pub mod words;

pub use context::Context;
pub use controller::Controller;
pub use driver::Worker;
pub use error::SyncError;
pub use registry::{ControllerEntry, KindEntry, Registry};
