//! The floor under the controllers: wake, observe, plan, execute, settle. The same five steps for each controller.
//!
//! The one guarantee: nothing here names a controller or a kind. A controller supplies what concerns its own kind
//! ([`controller`]), and its entry ([`entry`]).
//!
//! * [`entry`]: the entries of kinds and of controllers, and their registry.
//! * [`controller`], [`driver`]: the interface of a controller, and what runs its steps. [`one_write`] is the interface of
//!   those that write one thing.
//! * `gate`: may a controller decide, may it write? All reasons to wait, or to read past the caches first.
//! * [`setup`], [`context`]: how controllers are built and wired, and the services that they use.
//! * [`event_handlers`]: a change in a store becomes the keys that it concerns.
//! * [`execute`], [`owned_writes`]: the writes.
//! * [`live_reads`]: reads of the API server where a cache may lag.
//! * [`past_caches`]: reads past the caches before the first write of a new leader.
//! * [`owner_memory`]: everything that is kept per owner, and dropped with the owner.
//! * [`recreate_guard`]: re-reads an owner before children are created again shortly after.
//! * [`in_doubt_writes`]: writes of unknown outcome.
//! * [`explanations`]: the explanations of the last plans.
//! * [`status_throttle`]: how often a status is written, and how often the text of a failure in it.
//! * [`gated_field`]: a field of statuses that older API servers drop.
//! * [`scope`], [`resync`]: which objects to act on, and a periodic sync of all of them.
//! * [`foreign_writers`]: detects another controller that acts on the same objects.

pub mod context;
pub mod controller;
pub mod driver;
pub mod entry;
pub mod error;
pub mod event_handlers;
pub mod execute;
pub mod explanations;
pub mod foreign_writers;
mod gate;
pub mod gated_field;
pub mod in_doubt_writes;
pub mod live_reads;
pub mod one_write;
pub mod owned_writes;
pub mod owner_memory;
pub mod past_caches;
pub mod recreate_guard;
pub mod resync;
pub mod scope;
pub mod setup;
pub mod status_throttle;

pub use context::Context;
pub use controller::Controller;
pub use entry::Worker;
pub use error::SyncError;
