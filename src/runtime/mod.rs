//! The machinery under the controllers: what lists, watches, stores, queues, waits and writes events.
//!
//! The one guarantee: nothing in here gets stuck or forgets. A broken watch is resumed, a missed
//! deletion is made up for, a failed key is retried, and a cache that is behind our own writes says so.
//! Nothing in here knows a Deployment.
//!
//! Rules and waiting are apart: [`backoff`], [`queue`], [`store`], [`expectations`] and the correlation
//! of events are told the time and never wait; [`worker`], [`limit`], [`informer`] and the writer of
//! events wait and decide little. In reading order:
//!
//! * [`request`], [`limit`], [`api`], [`patience`], [`client`]: how the API server is called.
//! * [`store`], `frame`, `list_decoder`, `protobuf_decoder`, `intake`, `reflect`, [`contact`], [`informer`], [`catch_up`]: a cache of one
//!   kind, kept current.
//! * [`informers`]: the caches of all kinds, which come and go.
//! * [`backoff`], [`queue`], [`worker`]: which key is processed when.
//! * [`expectations`]: no decision on a cache older than our own writes.
//! * [`events`]: what users read in `kubectl describe`.
//! * [`election`], [`fence`], [`lease`]: one of several processes writes, and until when.
//! * [`tasks`]: tasks that are reported by name.
//! * [`shutdown`]: the first signal asks, the second insists.

pub mod api;
pub mod backoff;
pub mod catch_up;
pub mod client;
pub mod contact;
pub mod election;
pub mod events;
pub mod expectations;
pub mod fence;
mod frame;
pub mod informer;
pub mod informers;
mod intake;
pub mod lease;
pub mod limit;
mod list_decoder;
pub mod patience;
mod protobuf_decoder;
pub mod queue;
mod reflect;
pub mod request;
pub mod shutdown;
pub mod store;
pub mod tasks;
pub mod waiters;
pub mod worker;

#[cfg(test)]
mod fixture;

pub use api::{Api, ApiError};
pub use events::{EventRecorder, EventTarget, EventType};
pub use expectations::{Behind, CacheView, Caches, Expectations, Freshness};
pub use informer::{Informer, InformerOptions, Ready};
pub use informers::{AnyInformer, Informers};
pub use limit::Limiter;
pub use store::{Change, Store};
pub use waiters::Waiters;
pub use worker::{Next, SyncFailure, WorkQueue, run_workers};
