//! A simulated world that tries to break the controllers: one seed, one history, byte for byte.
//!
//! The real [`Controllers`](windlass::app::Controllers), as the daemon runs them and through the same client,
//! live in a cluster whose API server, network, users and pods misbehave as a seed says. Every request
//! passes through one place ([`server`]), where it is logged, perhaps lost or late, carried out, and judged
//! by the [`invariants`]. After the misbehaviour ends, everything has to come to rest as it should.
//!
//! * [`scenario`]: what a seed stands for, as a value: the daemons, the faults, and who does what when;
//!   [`draw`]: what a seed draws; [`crash_points`]: misbehaviour that begins with a certain write; [`replay`]: all
//!   of it as a file.
//! * [`server`]: the API server as each party sees it; [`call`]: a request, taken apart; [`request_fault`]: what
//!   becomes of it; [`watch`]: a watch that lags; [`log`]: what happened.
//! * [`knowledge`]: what the author of a write could know.
//! * [`actors`]: carries out what the scenario says.
//! * [`daemons`]: starts, kills and restarts the controllers.
//! * [`invariants`]: the invariants over every committed write.
//! * [`oracle`]: what faults must not change.
//! * [`cost`]: how many calls a wish may cost without faults.
//! * [`convergence`]: what is owed after the faults; [`deadlines`]: what of it in time; [`latency`]: what of it at once;
//!   [`batches`]: what of it beside another's batch; [`published`]: what statuses say of it;
//!   [`rollbacks`]: where a rollback leads; [`frozen`]: what a frozen connection holds up; [`scale_downs`]: which of
//!   pods that are alike go.
//! * [`run`]: one history from its beginning to its verdict.
//! * [`search`]: many seeds; [`mutation_score`]: which planted bugs they find; [`exhaustive`]: all that can happen
//!   within small bounds.
//! * [`shrink`]: the same failure with as little as possible happening; [`transcript`]: a history as its
//!   reader needs it; [`report`]: what is told of a failure.
//! * [`daemon_sets`]: the same for DaemonSets, in a smaller world whose nodes are actors.
//! * [`cli`]: the flags.
//!
//! Time is virtual and there is one thread, so that a history depends on its scenario alone. The library's
//! part of that: where it chooses among what is ready, the order is given (each `select!` below
//! [`Controllers::run`](windlass::app::Controllers::run) is biased), and what it iterates over has an order.
//! Nothing enforces this but that histories are run twice before anything is made of them.

pub mod actors;
pub mod batches;
pub mod call;
pub mod cli;
pub mod convergence;
pub mod cost;
pub mod crash_points;
pub mod daemon_sets;
pub mod daemons;
pub mod deadlines;
pub mod draw;
pub mod exhaustive;
pub mod frozen;
pub mod invariants;
pub mod knowledge;
pub mod latency;
pub mod log;
pub mod mutation_score;
pub mod oracle;
pub mod published;
pub mod replay;
pub mod report;
pub mod request_fault;
pub mod rollbacks;
pub mod run;
pub mod scale_downs;
pub mod scenario;
pub mod search;
pub mod server;
pub mod shrink;
pub mod transcript;
pub mod watch;
