//! Code that tests of more than the planners share, compiled once.
//!
//! - [`cluster`]: an API server, nodes and daemons in this process and in virtual time; [`network`] between them.
//! - [`stage`] and [`scenarios`]: what holds on every API server, seen as a user sees it; [`user`] is what users do.
//! - [`election`]: several daemons, of which one leads.
//! - [`process`], [`proxy`]: the daemon as a process, its API server, and a bad connection between the two.
//! - [`serving`], [`https`]: servers and clients on real sockets.
//! - [`apiserver`], [`rights`], [`manifests`]: a real API server, and what ships for one; [`answers`]: its answers beside ours.
//! - [`controllers`], [`usage`], [`figures`]: kube-controller-manager beside the daemon, what each uses, and the table.
//!
//! Objects are described by [`windlass_planner_testkit`].

pub mod answers;
pub mod apiserver;
pub mod cluster;
pub mod controllers;
pub mod election;
pub mod figures;
pub mod https;
pub mod manifests;
pub mod network;
pub mod process;
pub mod proxy;
pub mod rights;
pub mod scenarios;
pub mod serving;
pub mod stage;
pub mod usage;
pub mod user;
