//! The state of each StatefulSet that is kept between syncs: which of its pods have failed, which were created a moment ago,
//! and which events have been recorded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::model::{Meta, StatefulSet, Uid};
use crate::plan::fixed_place_backoff::FailedPodBackoff;
use crate::plan::recent_creations::RecentCreations;
use crate::plan::statefulset::{Members, Note};

/// The state of all StatefulSets, by UID.
#[derive(Debug, Default)]
pub struct StatefulSetMemory(Mutex<BTreeMap<Uid, Known>>);

/// The state of one StatefulSet. A sync shares it, and it is copied only if it changes meanwhile.
#[derive(Debug, Default)]
struct Known {
    backoff: Arc<FailedPodBackoff>,
    /// The generation of the recent creations.
    generation: i64,
    recent: Arc<RecentCreations>,
    unready: Arc<BTreeMap<Uid, Timestamp>>,
    /// The subjects of events that were recorded.
    noted: BTreeSet<String>,
}

/// The part of the state that a sync reads.
#[derive(Debug, Default)]
pub struct Remembered {
    /// Which pods have failed.
    pub backoff: Arc<FailedPodBackoff>,
    /// Which pods were created within the last minute.
    pub recent: Arc<RecentCreations>,
    /// Since when pods were seen not to be ready.
    pub unready: Arc<BTreeMap<Uid, Timestamp>>,
}

impl Forget for StatefulSetMemory {
    fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

impl StatefulSetMemory {
    /// The state of a StatefulSet with these pods.
    pub fn of(&self, set: &StatefulSet, members: &Members, now: Timestamp) -> Remembered {
        let mut all = self.0.lock();
        if set.replace_broken_after.is_some() {
            all.entry(set.meta.uid.clone()).or_default();
        }
        let Some(known) = all.get_mut(&set.meta.uid) else { return Remembered::default() };
        if !known.backoff.is_empty() {
            Arc::make_mut(&mut known.backoff).collect(now);
        }
        if !known.recent.is_empty() {
            Arc::make_mut(&mut known.recent).collect(now);
        }
        if set.replace_broken_after.is_some() {
            let pods = members.pods.values().filter(|pod| pod.ready_since.is_none());
            let since = |uid: &Uid| known.unready.get(uid).copied().unwrap_or(now);
            known.unready = Arc::new(pods.map(|pod| (pod.meta.uid.clone(), since(&pod.meta.uid))).collect());
        }
        let Known { backoff, recent, unready, .. } = known;
        Remembered { backoff: backoff.clone(), recent: recent.clone(), unready: unready.clone() }
    }

    /// We have created a pod of this name. Only creations for one generation are repetitions.
    pub fn created(&self, owner: &Meta, name: &Arc<str>, now: Timestamp) {
        self.with(&owner.uid, |known| {
            if known.generation != owner.generation {
                (known.generation, known.recent) = (owner.generation, Arc::default());
            }
            Arc::make_mut(&mut known.recent).created(name, now);
        });
    }

    /// An ended pod of this name was deleted.
    pub fn ended_pod_deleted(&self, owner: &Meta, name: &Arc<str>, now: Timestamp) {
        self.with(&owner.uid, |known| {
            Arc::make_mut(&mut known.backoff).deleted(owner.generation, name, now);
        });
    }

    /// Those of the notes that were not recorded yet. A subject that is no longer among them is forgotten, so that it is
    /// told again if it comes back.
    pub fn news(&self, owner: &Uid, notes: &[Note]) -> Vec<Note> {
        if notes.is_empty() && !self.0.lock().contains_key(owner) {
            return Vec::new();
        }
        let mut news = Vec::new();
        self.with(owner, |known| {
            known.noted.retain(|subject| notes.iter().any(|note| note.subject == *subject));
            news.extend(notes.iter().filter(|note| known.noted.insert(note.subject.clone())).cloned());
        });
        news
    }

    /// Whether no state is kept.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    fn with(&self, owner: &Uid, change: impl FnOnce(&mut Known)) {
        change(self.0.lock().entry(owner.clone()).or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::EventNote;

    #[test]
    fn an_event_about_a_state_is_told_once_and_again_when_the_state_comes_back() {
        let (memory, owner) = (StatefulSetMemory::default(), Uid::new("u"));
        let note = |subject: &str| Note {
            subject: subject.into(),
            event: EventNote::warning("FailedCreate", "m".into()),
        };
        let told = |notes: &[Note]| memory.news(&owner, notes).len();
        assert_eq!([told(&[note("a")]), told(&[note("a"), note("b")]), told(&[note("b")])], [1, 1, 0]);
        assert_eq!((told(&[]), told(&[note("b")])), (0, 1));
        memory.forget(&owner);
        assert!(memory.is_empty());
    }
}
