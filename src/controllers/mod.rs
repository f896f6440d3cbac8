//! The controllers, a file or folder each: what they watch, and how they observe and execute.
//!
//! The one guarantee: no decision is made here. Decisions come from [`crate::plan`]; a controller reads the input of a
//! plan and executes it in its order, and [`crate::engine`] runs its steps.
//!
//! * [`registry`]: the two lists, of the kinds and of the controllers.
//! * [`deployment`], [`daemonset`], [`replicas`], [`replicaset`], [`replicationcontroller`],
//!   [`rolling_update`], [`statefulset`], [`job`], [`cronjob`], [`namespace`], [`garbage`], [`pod_gc`],
//!   [`endpoint_slice`], [`endpoints`], [`endpoint_slice_mirroring`], [`disruption`], [`resource_quota`],
//!   [`node_lifecycle`], [`taint_eviction`]: the controllers.
//! * [`serviceaccount`], [`root_ca_cert`], [`pvc_protection`], [`pv_protection`], [`clusterrole_aggregation`]: those of a
//!   test bed, and [`ttl_after_finished`], which write one thing each.
//! * [`patch`]: the bodies of the patches of workloads.

#[cfg(test)]
pub(crate) mod fixture;

pub mod clusterrole_aggregation;
pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod disruption;
pub mod endpoint_slice;
pub mod endpoint_slice_mirroring;
pub mod endpoints;
pub mod garbage;
pub mod job;
pub mod namespace;
mod namespace_content;
pub mod node_lifecycle;
mod object_counts;
pub mod patch;
pub mod pod_gc;
mod pods_on_nodes;
mod policy_notes;
pub mod pv_protection;
pub mod pvc_protection;
pub mod registry;
pub mod replicas;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resource_quota;
mod revisions;
pub mod rolling_update;
pub mod root_ca_cert;
mod service_endpoints;
pub mod serviceaccount;
pub mod statefulset;
pub mod taint_eviction;
pub mod ttl_after_finished;
