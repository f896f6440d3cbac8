//! Windlass: a controller manager for Kubernetes workloads.
//!
//! The modules, in reading order:
//!
//! * [`clock`]: the only reader of the wall clock.
//! * [`model`]: what the controllers know of the cluster: trimmed records, decoded straight off the wire.
//! * [`runtime`]: informers, stores, the work queue and its workers. Knows no Deployment.
//! * [`metrics`], [`http`], [`logging`]: what the daemon shows of itself.
//! * [`sandbox`]: an embedded API server, a pod simulator and the collectors a real cluster has.

pub mod clock;
pub mod http;
pub mod logging;
pub mod metrics;
pub mod model;
pub mod runtime;
pub mod sandbox;
