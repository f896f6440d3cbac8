//! The parts of a cluster beside its API server and its workload controllers: nodes whose kubelet starts and ends pods,
//! a scheduler, and a binder of volumes, all simulated.
//!
//! Everything here is a client of an API server, by a [`kube::Client`], and works beside any: the one of
//! `windlass-apiserver` in this process, or a real one. Time is handed in, so that a test runs under a paused clock.

pub mod api_client;
mod events;
pub mod kubelet;
pub mod reflector;
pub mod scheduler;
mod volumes;

#[cfg(test)]
mod behaviours;
