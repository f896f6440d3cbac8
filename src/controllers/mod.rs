//! The shell: wake, observe, plan, execute, settle. The same five steps for each controller.
//!
//! The one guarantee: no decision is taken here. What to do comes from [`crate::plan`]; this module
//! reads what the plan rests on, carries it out in its order, and stops at the first write that fails.
//!
//! * [`registry`]: the two lists, of the kinds and of the controllers.
//! * [`controller`], [`driver`]: what a controller is, and what runs the steps of each.
//! * [`setup`], [`context`]: how controllers are built and wired, and what they ask for.
//! * [`deployment`], [`daemonset`], [`replicas`], [`replicaset`], [`replicationcontroller`]: the controllers.
//! * [`event_handlers`]: a change in a store becomes the keys that it concerns.
//! * [`execute`], [`patch`]: every write to workloads that Windlass makes.
//! * [`live_reads`]: what only the API server itself knows.
//! * [`past_caches`]: what is read past the caches before the first write of a new leader.
//! * [`owner_memory`]: what is remembered of owners, and forgotten with them.
//! * [`recreate_guard`]: what vanishes as fast as it is made.
//! * [`in_doubt_writes`]: writes of which nobody knows yet whether they happened.
//! * [`explanations`]: why the last plans were what they were, for people who ask.
//! * [`status_throttle`]: how often a status is written, and how often the text of a failure in it.
//! * [`gated_field`]: a field of statuses that older API servers drop.
//! * [`write_lock`]: who writes an object of those two who may.
//! * [`scope`], [`resync`]: whose objects are ours to act on, and a sync of all of them from time to time.
//! * [`foreign_writers`]: another controller that acts on the same objects is noticed.

#[cfg(test)]
mod fixture;

pub mod context;
pub mod controller;
pub mod daemonset;
pub mod deployment;
pub mod driver;
pub mod error;
pub mod event_handlers;
pub mod execute;
pub mod explanations;
pub mod foreign_writers;
pub mod gated_field;
pub mod in_doubt_writes;
pub mod live_reads;
pub mod owner_memory;
pub mod past_caches;
pub mod patch;
pub mod recreate_guard;
pub mod registry;
pub mod replicas;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resync;
pub mod scope;
pub mod setup;
pub mod status_throttle;
pub mod write_lock;

pub use context::Context;
pub use controller::Controller;
pub use driver::Worker;
pub use error::SyncError;
pub use registry::{ControllerEntry, KindEntry, Registry};
