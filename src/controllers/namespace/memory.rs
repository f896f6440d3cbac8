//! The memory of each namespace between rounds. Lost with the process, it costs one delay and one full look.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Waiting;
use crate::engine::owner_memory::Forget;
use crate::model::{Namespace, Uid};
use crate::plan::namespace::{Cause, Last, Outcome, Verdict};

/// The namespaces that are being deleted, by UID.
#[derive(Debug, Default)]
pub(super) struct NamespaceMemory(Mutex<BTreeMap<Uid, Known>>);

#[derive(Debug)]
struct Known {
    /// When the deletion was first seen, by our own clock: that of the API server may differ.
    seen: Instant,
    last: Last,
    waits_for: Option<Cause>,
}

impl NamespaceMemory {
    /// How long ago the deletion of a namespace was first seen, and what the last round has found.
    pub(super) fn observe(&self, namespace: &Namespace, now: Instant) -> (Duration, Last) {
        if !namespace.meta.is_deleting() {
            return (Duration::ZERO, Last::default());
        }
        let mut all = self.0.lock();
        let new = || Known { seen: now, last: Last::default(), waits_for: None };
        let known = all.entry(namespace.meta.uid.clone()).or_insert_with(new);
        (now.saturating_duration_since(known.seen), known.last.clone())
    }

    /// A round has ended that began so long after the deletion was seen.
    pub(super) fn finished(&self, namespace: &Namespace, waited: Duration, outcome: &Outcome) {
        let mut all = self.0.lock();
        let Some(known) = all.get_mut(&namespace.meta.uid) else { return };
        known.waits_for = None;
        if let Outcome::Looked(findings, verdict) = outcome {
            known.last = known.last.next(findings, waited);
            if let Verdict::Wait(_, cause) = verdict {
                known.waits_for = Some(*cause);
            }
        }
    }

    /// How many namespaces wait for each cause.
    pub(super) fn waiting(&self) -> Waiting {
        let all = self.0.lock();
        Cause::ALL.map(|cause| (cause, all.values().filter(|known| known.waits_for == Some(cause)).count()))
    }
}

impl Forget for NamespaceMemory {
    fn forget(&self, namespace: &Uid) {
        self.0.lock().remove(namespace);
    }
}
