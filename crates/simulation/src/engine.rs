//! The parts that all games share; it names none of them.
//!
//! * [`game`]: a game, and its parts; [`runner`]: one history from its beginning to its verdict, the [`outcome`]; [`daemons`]: starts, kills
//!   and restarts the controllers; [`user`]: a client of the actors.
//! * [`network`]: the API server as each client sees it; [`call`]: a parsed request; [`request_fault`]: the fault of
//!   one request; [`log`]: the history.
//! * [`objects`]: reads stored objects; [`breach`]: a broken invariant; [`blind`]: what the author of a write may not know.
//! * [`search`]: many seeds; [`mutation_score`]: which planted mistakes they find.
//! * [`replay`]: a scenario as a file; [`shrink`]: the smallest scenario with the same failure; [`transcript`]: a
//!   history for readers; [`report`]: the report of a failure; [`any_game`]: a game, for these tools.

pub mod any_game;
pub mod blind;
pub mod breach;
pub mod call;
pub mod daemons;
pub mod game;
pub mod log;
pub mod mutation_score;
pub mod network;
pub mod objects;
pub mod outcome;
pub mod replay;
pub mod report;
pub mod request_fault;
pub mod runner;
pub mod search;
pub mod shrink;
pub mod transcript;
pub mod user;
