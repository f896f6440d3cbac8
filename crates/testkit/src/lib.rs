//! What the tests share, compiled once: objects built in sentences, a toy world without an API server, stages with one,
//! and the programs as processes.
#![allow(missing_docs)] // The names say it, and the readers are the tests beside them.

pub mod apiserver;
pub mod build;
pub mod cluster;
pub mod election;
pub mod history;
pub mod https;
pub mod manifests;
pub mod mishap;
pub mod network;
pub mod process;
pub mod proxy;
pub mod rights;
pub mod scenarios;
pub mod serving;
pub mod set;
pub mod situation;
pub mod stage;
pub mod statuses;
pub mod world;
