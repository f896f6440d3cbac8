//! The daemon as a process of its own: flags, signals, exit codes, and connections to an API server, in real time.

mod chaos;
mod daemon;
mod failover;
mod flags;
mod https;
