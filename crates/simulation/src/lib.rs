//! A simulated cluster that tries to break the controllers: one seed, one history, byte for byte.
//!
//! The real [`Controllers`](windlass::app::Controllers), as the daemon runs them and through the same client, run in
//! a cluster whose API server, network, users and pods misbehave as a seed decides. After the faults end, everything
//! has to converge.
//!
//! * [`engine`]: the network, the faults, and everything that is done with a history: run, search, shrink, replay,
//!   print.
//! * The games, each with its scenario, its actors and its judge: [`deployments`]; [`daemon_sets`], whose nodes are
//!   actors; [`cron_jobs`]; [`garbage`], [`jobs`], [`namespaces`], [`rolling_updates`] of ReplicationControllers;
//!   [`stateful_sets`]; and [`policies`] of Deployments.
//!
//! Time is virtual and there is one thread, so that a history depends on its scenario alone. The library's part of
//! that: where it chooses among several ready futures, the order is given (each `select!` below
//! [`Controllers::run`](windlass::app::Controllers::run) is biased), and its collections iterate in a fixed order.
//! The only check of this is that the first history is run twice before any result is used.

use engine::any_game::AnyGame;

pub mod cli;
pub mod cron_jobs;
pub mod daemon_sets;
pub mod deployments;
pub mod engine;
pub mod garbage;
pub mod jobs;
pub mod namespaces;
pub mod policies;
pub mod rolling_updates;
pub mod stateful_sets;

/// Passes all games to a macro, each by its module and its type. This is the one list of them.
#[macro_export]
macro_rules! games {
    ($with:ident) => {
        $with! {
            deployments::Deployments
            daemon_sets::DaemonSets
            garbage::Garbage
            jobs::Jobs
            namespaces::Namespaces
            rolling_updates::RollingUpdates
            stateful_sets::StatefulSets
            cron_jobs::CronJobs
            policies::Policies
        }
    };
}

macro_rules! list {
    ($($game:ident::$name:ident)*) => {
        /// All games, as `windlass-sim` plays them.
        pub const GAMES: &[&dyn AnyGame] = &[$(&$game::$name),*];
    };
}

games!(list);
