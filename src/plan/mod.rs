//! The decisions, computed from the observed state. Pure: the same observation gives the same plan.
//!
//! The one guarantee: nothing here waits, reads a clock, uses randomness or does I/O. A plan is a
//! value that can be printed, compared, refused and simulated.

pub mod claim;
pub mod clusterrole_aggregation;
pub mod cronjob;
pub mod daemonset;
pub mod deployment;
pub mod disruption;
pub mod endpoints;
pub mod endpointslice;
pub mod endpointslice_mirroring;
pub mod event_note;
pub mod fixed_place_backoff;
pub mod garbage;
pub mod job;
pub mod namespace;
pub mod node_lifecycle;
pub mod outcome_of;
mod pod_body;
pub mod pod_gc;
pub mod policy;
pub mod preview;
pub mod protection;
pub mod reason;
pub mod recent_creations;
pub mod replicaset;
pub mod resourcequota;
pub mod revisions;
pub mod rolling_update;
pub mod root_ca_cert;
pub mod serviceaccount;
pub mod statefulset;
pub mod taint_eviction;
pub mod tolerations;
pub mod ttl;

pub use deployment::explain::shorten;
pub use event_note::{EventNote, Urgency};
pub use node_lifecycle::Limits as NodeLimits;
pub use reason::Reason;
pub use replicaset::new_pod::OwnerReference;
pub use replicaset::status::REPLICA_FAILURE;
