//! The memory of each budget between syncs.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::engine::SyncError;
use crate::engine::owner_memory::Forget;
use crate::model::{Owner, Uid};
use crate::plan::disruption::{Found, Memory};

/// The memory of all budgets, by UID.
#[derive(Debug, Default)]
pub(super) struct DisruptionMemory(Mutex<BTreeMap<Uid, OfBudget>>);

#[derive(Debug, Default)]
struct OfBudget {
    last: Memory,
    /// The owners that this sync has read from the API server.
    live: BTreeMap<Owner, Found>,
    /// The error because of which the sync is repeated although it goes on.
    unanswered: Option<SyncError>,
}

impl DisruptionMemory {
    /// The outcome of the last sync.
    pub(super) fn of(&self, budget: &Uid) -> Memory {
        self.0.lock().get(budget).map(|of| of.last.clone()).unwrap_or_default()
    }

    /// How many pods the last sync has seen.
    pub(super) fn pods_of(&self, budget: &Uid) -> usize {
        self.0.lock().get(budget).map_or(0, |of| of.last.pods)
    }

    /// A sync has decided. The error of a read that it went on without.
    pub(super) fn keep(&self, budget: &Uid, last: Memory) -> Option<SyncError> {
        let before = self.0.lock().insert(budget.clone(), OfBudget { last, ..OfBudget::default() });
        before.and_then(|before| before.unanswered)
    }

    /// The owners that a sync has read from the API server.
    pub(super) fn live_of(&self, budget: &Uid) -> BTreeMap<Owner, Found> {
        self.0.lock().get(budget).map(|of| of.live.clone()).unwrap_or_default()
    }

    /// A sync has read this from the API server.
    pub(super) fn keep_live(
        &self,
        budget: &Uid,
        live: BTreeMap<Owner, Found>,
        unanswered: Option<SyncError>,
    ) {
        let mut all = self.0.lock();
        match all.get_mut(budget) {
            Some(of) => (of.live, of.unanswered) = (live, unanswered),
            None if live.is_empty() => {}
            None => {
                all.insert(budget.clone(), OfBudget { live, unanswered, ..OfBudget::default() });
            }
        }
    }
}

impl Forget for DisruptionMemory {
    fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}
