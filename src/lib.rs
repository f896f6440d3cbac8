//! Windlass: a controller manager for Kubernetes workloads.
//!
//! The modules, in reading order:
//!
//! * [`args`], [`config`]: flags as typed, and what they mean once checked.
//! * [`app`]: the composition root. Builds every part once, runs them, drains them in a stated order.
//! * [`clock`]: the only reader of the wall clock.
//! * [`model`]: what the controllers know of the cluster: trimmed records, decoded straight off the wire.
//! * [`plan`]: what to do, decided from what is known. Pure.
//! * [`runtime`]: informers, stores, the work queue, expectations, events. Knows no Deployment.
//! * [`controllers`]: the shell around the plans: wake, observe, plan, execute, settle.
//! * [`metrics`], [`http`], [`logging`]: what operators see.
//! * [`sandbox`]: an embedded API server, a pod simulator and the collectors a real cluster has.
//! * [`sim`], [`planted`]: the controllers in a hostile cluster, one seed one history.
//!
//! Dependencies point one way: `main -> app -> controllers -> {plan, runtime} -> model`; the sandbox
//! stands apart and shares nothing with what it tests. `tests/house/tidy.rs` holds the house to that.

#[macro_use]
pub mod planted;

pub mod app;
pub mod args;
pub mod clock;
pub mod config;
pub mod controllers;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod model;
pub mod plan;
pub mod runtime;
