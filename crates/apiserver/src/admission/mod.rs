//! The admission plugins of a real API server for new objects: LimitRanger for pods, ResourceQuota for everything in a
//! namespace.
//!
//! The guarantee: in a namespace without a LimitRange and without a ResourceQuota, a write costs two look-ups and no lock.

pub(crate) mod limit_range;
mod pod_resources;
pub(crate) mod quota;
pub(crate) mod services;
