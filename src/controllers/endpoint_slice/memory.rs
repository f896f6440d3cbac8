//! The memory of each Service between syncs.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::engine::owner_memory::Forget;
use crate::model::{Meta, Uid};
use crate::plan::endpointslice::{Counts, Memory};

/// The memory of all Services, by UID.
#[derive(Debug, Default)]
pub(super) struct SliceMemory(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    services: BTreeMap<Uid, OfService>,
    /// The Service of each slice that this process has written or deleted.
    slices: BTreeMap<Uid, (Uid, Write)>,
}

#[derive(Debug, Default)]
struct OfService {
    last: Memory,
    last_write: Option<Instant>,
}

/// The last write to a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    /// It has this resourceVersion.
    Version(u64),
    /// It is deleted.
    Deletion,
}

impl SliceMemory {
    /// The outcome of the last sync.
    pub(super) fn of(&self, service: &Uid) -> Memory {
        self.0.lock().services.get(service).map(|of| of.last.clone()).unwrap_or_default()
    }

    /// A sync has succeeded.
    pub(super) fn keep(&self, service: &Uid, memory: Memory) {
        self.0.lock().services.entry(service.clone()).or_default().last = memory;
    }

    /// The writes of a sync begin.
    pub(super) fn writes(&self, service: &Uid, now: Instant) {
        self.0.lock().services.entry(service.clone()).or_default().last_write = Some(now);
    }

    /// When the last writes began.
    pub(super) fn last_write(&self, service: &Uid) -> Option<Instant> {
        self.0.lock().services.get(service)?.last_write
    }

    /// A slice was written.
    pub(super) fn wrote(&self, service: &Uid, slice: Uid, version: u64) {
        self.0.lock().slices.insert(slice, (service.clone(), Write::Version(version)));
    }

    /// A slice is about to be deleted.
    pub(super) fn deletes(&self, service: &Uid, slice: Uid) {
        self.0.lock().slices.insert(slice, (service.clone(), Write::Deletion));
    }

    /// Whether the state of a slice is one that this process has written, or an earlier one.
    pub(super) fn has_written(&self, slice: &Meta) -> bool {
        match self.0.lock().slices.get(&slice.uid) {
            Some((_, Write::Version(version))) => slice.resource_version <= *version,
            Some((_, Write::Deletion)) => true,
            None => false,
        }
    }

    /// Whether this process has deleted a slice that is gone now, which it forgets.
    pub(super) fn has_deleted(&self, slice: &Meta) -> bool {
        let write = self.0.lock().slices.remove(&slice.uid);
        write.is_some_and(|(_, write)| write == Write::Deletion)
    }

    /// The sums over all Services.
    pub(super) fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for of in self.0.lock().services.values() {
            let Counts { endpoints, slices, ideal, .. } = of.last.counts;
            sum.endpoints += endpoints;
            sum.slices += slices;
            sum.ideal += ideal;
        }
        sum
    }
}

impl Forget for SliceMemory {
    fn forget(&self, owner: &Uid) {
        let mut state = self.0.lock();
        if state.services.remove(owner).is_some() {
            state.slices.retain(|_, (service, _)| service != owner);
        }
    }
}
