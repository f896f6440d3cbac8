//! A simulated world that tries to break the controllers: one seed, one history, byte for byte.
//!
//! The real [`Controllers`](crate::app::Controllers), as the daemon runs them and through the same client,
//! live in a cluster whose API server, network, users and pods misbehave as a seed says. Every request
//! passes through one place ([`server`]), where it is logged, perhaps lost or late, carried out, and judged
//! by the [`monitors`]. After the misbehaviour ends, everything has to come to rest as it should.
//!
//! * [`scenario`]: what a seed stands for, as a value: the daemons, the faults, and who does what when.
//! * [`server`]: the API server as each party sees it, and the log; [`call`]: a request, taken apart;
//!   [`watch`]: a watch that lags.
//! * [`knowledge`]: what the author of a write could know.
//! * [`actors`]: carries out what the scenario says.
//! * [`daemons`]: starts, kills and restarts the controllers.
//! * [`monitors`]: the invariants over every committed write.
//! * [`oracle`]: what faults must not change.
//! * [`rest`]: what is owed after the faults.
//! * [`run`]: one history from its beginning to its verdict.
//! * [`shrink`]: the same failure with as little as possible happening.
//! * [`cli`]: many seeds, and what is printed of them.
//!
//! Time is virtual and there is one thread, so that a history depends on its scenario alone. The library's
//! part of that: every `select!` is biased, and iteration is over ordered maps.

pub mod actors;
pub mod call;
pub mod cli;
pub mod daemons;
pub mod knowledge;
pub mod monitors;
pub mod oracle;
pub mod rest;
pub mod run;
pub mod scenario;
pub mod server;
pub mod shrink;
pub mod watch;
