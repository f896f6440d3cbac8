//! Windlass: a controller manager for Kubernetes workloads.
//!
//! The modules, in reading order:
//!
//! * [`args`], [`config`]: flags as typed, and their validated values.
//! * [`app`]: the composition root. Builds every component once, runs them, drains them in a stated order.
//! * [`clock`]: the only reader of the wall clock.
//! * [`model`]: records of cluster objects: trimmed, decoded directly from the response.
//! * [`plan`]: the decisions, computed from the observed state. Pure.
//! * [`runtime`]: informers, stores, the work queue, expectations, events. Knows no Deployment.
//! * [`engine`]: the floor under the controllers: wake, observe, plan, execute, settle. Knows no controller and no kind.
//! * [`controllers`]: the shells of the plans, a file or folder each.
//! * [`metrics`], [`http`], [`logging`]: the interfaces for operators.
//! * [`version`]: the version and the commit of the build.
//! * [`mutations`]: bugs that the simulation must find; never in a release.
//!
//! Dependencies point one way: `main -> app -> controllers -> engine -> {plan, runtime} -> model`. The embedded API server, the
//! simulated nodes, the sandbox and the simulation are crates of their own below `crates/`; the first two use nothing
//! of this one. `tests/house/tidy.rs` enforces these rules, and `docs/architecture.md` follows one change through the
//! modules.

#[macro_use]
pub mod mutations;

pub mod app;
pub mod args;
pub mod clock;
pub mod config;
pub mod controllers;
pub mod engine;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod model;
pub mod plan;
pub mod runtime;
pub mod version;
