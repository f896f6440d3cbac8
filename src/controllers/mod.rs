//! The shell: wake, observe, plan, execute, settle. The same five steps for each controller.
//!
//! The one guarantee: no decision is made here. Decisions come from [`crate::plan`]; this module
//! reads the input of a plan, executes it in its order, and stops at the first write that fails.
//!
//! * [`registry`]: the two lists, of the kinds and of the controllers.
//! * [`controller`], [`driver`]: the interface of a controller, and what runs its steps.
//! * [`setup`], [`context`]: how controllers are built and wired, and the services that they use.
//! * [`deployment`], [`daemonset`], [`replicas`], [`replicaset`], [`replicationcontroller`],
//!   [`rolling_update`], [`namespace`], [`garbage`]: the controllers.
//! * [`serviceaccount`], [`root_ca_cert`], [`pvc_protection`], [`pv_protection`], [`clusterrole_aggregation`]: those of a
//!   test bed.
//! * [`event_handlers`]: a change in a store becomes the keys that it concerns.
//! * [`execute`], [`patch`]: every write to workloads that Windlass makes.
//! * [`live_reads`]: reads of the API server where a cache may lag.
//! * [`past_caches`]: reads past the caches before the first write of a new leader.
//! * [`owner_memory`]: everything that is kept per owner, and dropped with the owner.
//! * [`recreate_guard`]: re-reads an owner before children are created again shortly after.
//! * [`in_doubt_writes`]: writes of unknown outcome.
//! * [`explanations`]: the explanations of the last plans.
//! * [`status_throttle`]: how often a status is written, and how often the text of a failure in it.
//! * [`gated_field`]: a field of statuses that older API servers drop.
//! * [`write_lock`]: serializes the writes of two controllers to one object.
//! * [`scope`], [`resync`]: which objects to act on, and a periodic sync of all of them.
//! * [`foreign_writers`]: detects another controller that acts on the same objects.

#[cfg(test)]
mod fixture;

mod cluster_writes;
pub mod clusterrole_aggregation;
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
pub mod garbage;
pub mod gated_field;
pub mod in_doubt_writes;
pub mod live_reads;
pub mod namespace;
mod namespace_content;
pub mod owner_memory;
pub mod past_caches;
pub mod patch;
pub mod pv_protection;
pub mod pvc_protection;
pub mod recreate_guard;
pub mod registry;
pub mod replicas;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resync;
pub mod rolling_update;
pub mod root_ca_cert;
pub mod scope;
pub mod serviceaccount;
pub mod setup;
pub mod status_throttle;
pub mod write_lock;

pub use context::Context;
pub use controller::Controller;
pub use driver::Worker;
pub use error::SyncError;
pub use registry::{ControllerEntry, KindEntry, Registry};
