//! The admission plugins of a real API server for new objects: LimitRanger for pods, ResourceQuota for everything in a
//! namespace, and those that are options.
//!
//! The guarantee: in a namespace without a LimitRange and without a ResourceQuota, a write costs two look-ups and no lock.

pub(crate) mod limit_range;
pub(crate) mod plugins;
mod pod_resources;
pub(crate) mod quota;
pub(crate) mod services;
