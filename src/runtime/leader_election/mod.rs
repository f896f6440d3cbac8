//! Leader election by a Lease, and the fence that ends a leader's writes on time.
//!
//! * [`rules`]: when a process leads, renews and gives up. Pure.
//! * [`lease`]: the calls to the API server, and the waits between them.
//! * [`fence`]: until when this process may write.

pub mod fence;
pub mod history;
pub mod lease;
pub mod rules;

use crate::model::Resource;

/// The resource of Leases.
pub const LEASES: Resource =
    Resource { group: "coordination.k8s.io", version: "v1", kind: "Lease", plural: "leases" };
