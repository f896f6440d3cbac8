//! A simulated cluster that tries to break the controllers: one seed, one history, byte for byte.
//!
//! The real [`Controllers`](windlass::app::Controllers), as the daemon runs them and through the same client, run in
//! a cluster whose API server, network, users and pods misbehave as a seed decides. Every request passes through one
//! place ([`server`]): there it is logged, lost, delayed or carried out, and judged by the [`invariants`]. After the
//! faults end, every workload has to converge.
//!
//! * [`scenario`]: what a seed stands for, as a value: the daemons, the faults, and which actor does what at which
//!   time; [`draw`]: what a seed draws; [`crash_points`]: faults that begin with a certain write; [`replay`]: a
//!   scenario as a file.
//! * [`server`]: the API server as each client sees it; [`call`]: a parsed request; [`request_fault`]: the fault of
//!   one request; [`watch`]: a watch that lags; [`log`]: what happened.
//! * [`knowledge`]: what the author of a write could know.
//! * [`actors`]: carries out the acts of the scenario.
//! * [`daemons`]: starts, kills and restarts the controllers.
//! * [`invariants`]: the invariants over every committed write.
//! * [`oracle`]: what faults must not change.
//! * [`cost`]: how many calls one change of a Deployment may cost without faults.
//! * [`convergence`]: what must hold after the faults; [`deadlines`]: what must happen in time; [`latency`]: what
//!   must happen at once; [`batches`]: how long one workload may wait for the batch of another; [`published`]:
//!   whether statuses are true; [`rollbacks`]: which template a rollback restores; [`frozen`]: what a frozen
//!   connection may delay; [`scale_downs`]: which of several similar pods are deleted.
//! * [`run`]: one history from its beginning to its verdict.
//! * [`search`]: many seeds; [`mutation_score`]: which planted mistakes they find; [`exhaustive`]: all histories within
//!   small bounds.
//! * [`shrink`]: the smallest scenario with the same failure; [`transcript`]: a history for readers; [`report`]: the
//!   report of a failure.
//! * [`cluster`]: an API server with faults for the smaller simulations beside that of Deployments; [`daemon_sets`]: that
//!   of DaemonSets, whose nodes are actors; [`garbage`]: that of the garbage collector; [`namespaces`]: that of the namespace controller;
//!   [`rolling_updates`]: that of the rolling update of ReplicationControllers.
//! * [`cli`]: the flags.
//!
//! Time is virtual and there is one thread, so that a history depends on its scenario alone. The library's part of
//! that: where it chooses among several ready futures, the order is given (each `select!` below
//! [`Controllers::run`](windlass::app::Controllers::run) is biased), and its collections iterate in a fixed order.
//! The only check of this is that the first history is run twice before any result is used.

pub mod actors;
pub mod batches;
pub mod call;
pub mod cli;
pub mod cluster;
pub mod convergence;
pub mod cost;
pub mod crash_points;
pub mod daemon_sets;
pub mod daemons;
pub mod deadlines;
pub mod draw;
pub mod exhaustive;
pub mod frozen;
pub mod garbage;
pub mod invariants;
pub mod knowledge;
pub mod latency;
pub mod log;
pub mod mutation_score;
pub mod namespaces;
pub mod oracle;
pub mod published;
pub mod replay;
pub mod report;
pub mod request_fault;
pub mod rollbacks;
pub mod rolling_updates;
pub mod run;
pub mod scale_downs;
pub mod scenario;
pub mod search;
pub mod server;
pub mod shrink;
pub mod transcript;
pub mod watch;
