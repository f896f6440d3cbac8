//! The parts that the controllers of the endpoints of Services share: the pods of a Service and the wakes by their changes, the slices
//! of an object and the writes to them, and the memory between syncs.

mod execute;
mod indexes;
mod memory;
mod pods;
mod slices;

use std::time::Duration;

pub(super) use execute::SliceWriter;
pub(super) use memory::SyncMemory;
pub(super) use pods::ServicePods;
pub(super) use slices::ManagedSlices;

/// The least time between two writes of the endpoints of a Service because of its pods.
pub(super) const GATHERING: Duration = Duration::from_millis(100);

/// How long after a change by others the endpoints of a Service are looked at, at least (upstream:
/// `endpointSliceChangeMinSyncDelay`).
pub(super) const REPAIR: Duration = Duration::from_secs(1);
