//! What the tests share: objects built in sentences, and a toy world without an API server.
#![allow(dead_code)] // Every test file uses its own part of this.

pub mod build;
pub mod cluster;
pub mod history;
pub mod mishap;
pub mod network;
pub mod set;
pub mod situation;
pub mod world;
