//! The same scripted workload played with kube-controller-manager and with Windlass, and compared.
//!
//! - `play` starts etcd, an API server and the controllers, and plays the workloads.
//! - `stage` is the interface of a workload's script; `kubelet` simulates pods, and `nodes` has those of DaemonSets.
//! - `batches` has minutes, and the ends of Jobs.
//! - `consistency` says when the statuses are correct, so that the script may go on.
//! - `recording` keeps what a watch shows; `canonical` replaces random values, such as names.
//! - `facts` turns a recording into facts; `compare` compares the facts of two plays.
//! - `ties` finds scripts in which chance decides which pod is deleted.
//! - `declared` are the intended differences; `table` renders them for users.
//! - `coverage` says where each of upstream's own integration tests has its counterpart.

#![allow(dead_code)] // The play uses one part of this, the tests of the rules another.

pub mod admission;
pub mod batches;
pub mod canonical;
pub mod compare;
pub mod consistency;
pub mod coverage;
pub mod declared;
pub mod facts;
pub mod kubelet;
pub mod nodes;
pub mod objects;
pub mod play;
pub mod recording;
pub mod report;
pub mod rows;
pub mod rows_of_services;
pub mod stage;
pub mod table;
pub mod ties;
pub mod unseen;
pub mod workloads;
