//! The machinery under the controllers: lists, watches, stores, queues, rate limits, events and leader election.
//!
//! The one guarantee: nothing in here gets stuck or loses a change. A broken watch is resumed, a missed
//! deletion is detected by the next list, a failed key is retried, and a cache that is behind our own writes is
//! detected. Nothing in here depends on a Deployment.
//!
//! Rules and waiting are apart: [`backoff`], [`queue`], [`store`], [`expectations`] and the correlation
//! of events get the time as an argument and never wait; [`worker`], [`rate_limiter`], [`informer`] and the writer of
//! events wait and decide little. In reading order:
//!
//! * [`request`], [`rate_limiter`], [`api`], [`retry_after`], [`client`], `certificate_chain`: calls to the API server.
//! * [`store`], [`index`], `unreadable`, `watch_decoder`, `list_decoder`, `protobuf_decoder`, `delta_handler`, `reflector`, [`list_turns`], [`reachability`], [`lost_history`],
//!   [`informer`], [`read_barrier`]: a cache of one kind, kept current.
//! * [`discovery`]: which resources the server serves.
//! * [`informers`]: the caches of all kinds, which are added and removed.
//! * [`lazy_read_barrier`], [`fresh_list`]: reads past the caches after an election; [`live_list`]: at any time.
//! * [`backoff`], [`queue`], [`worker`]: which key is processed when.
//! * [`expectations`]: no decision on a cache older than our own writes.
//! * [`events`]: what users read in `kubectl describe`.
//! * [`leader_election`]: which of several processes writes, and until when.
//! * [`tasks`]: tasks that are reported by name.
//! * [`shutdown`]: the first signal requests the shutdown, the second ends the process.

pub mod api;
pub mod backoff;
pub(crate) mod certificate_chain;
pub mod client;
mod delta_handler;
pub mod discovery;
mod encoding;
pub mod events;
pub mod expectations;
pub mod fresh_list;
pub mod index;
pub mod informer;
pub mod informers;
pub mod lazy_read_barrier;
pub mod leader_election;
mod list_decoder;
pub mod list_turns;
pub mod live_list;
pub mod lost_history;
pub mod outage;
pub mod parked_keys;
mod protobuf_decoder;
pub mod queue;
pub mod rate_limiter;
pub mod reachability;
pub mod read_barrier;
pub(crate) mod reflector;
pub mod request;
pub mod retry_after;
pub mod shutdown;
pub mod store;
pub mod tasks;
mod unreadable;
mod watch_decoder;
pub mod worker;

#[cfg(test)]
mod fixture;

pub use api::{Api, ApiError};
pub use events::{EventRecorder, EventTarget, EventType};
pub use expectations::{Behind, CacheView, Caches, Expectations, Freshness};
pub use informer::{Informer, InformerOptions, Ready};
pub use informers::{AnyInformer, Informers};
pub use parked_keys::ParkedKeys;
pub use rate_limiter::RateLimiter;
pub use store::{Change, Store};
pub use worker::{Next, SyncFailure, WorkQueue, run_workers};
