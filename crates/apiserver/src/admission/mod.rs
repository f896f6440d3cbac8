//! What the admission plugins of a real API server do to new objects: LimitRanger to pods, ResourceQuota to everything in a
//! namespace.
//!
//! The guarantee: in a namespace without a LimitRange and without a ResourceQuota, a write costs two look-ups and no lock.

pub(crate) mod limit_range;
mod pod_resources;
pub(crate) mod quota;
