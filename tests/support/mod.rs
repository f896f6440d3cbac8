//! What the tests share: objects built in sentences, a toy world without an API server, and
//! stages with one.
#![allow(dead_code)] // Every test file uses its own part of this.

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
pub mod set;
pub mod situation;
pub mod stage;
pub mod statuses;
pub mod world;
