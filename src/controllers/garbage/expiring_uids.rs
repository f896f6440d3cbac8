//! UIDs that count for a while after they were added.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::model::Uid;

/// UIDs, each with the time at which it was last added.
///
/// Each call drops what has expired since the last one, oldest first, so that a lookup costs no walk over the others.
#[derive(Debug)]
pub(super) struct ExpiringUids {
    counts_for: Duration,
    added: BTreeMap<Uid, Instant>,
    /// The same by age. A UID that was added again is in it twice, and counts as of the later time.
    by_age: VecDeque<(Instant, Uid)>,
}

impl ExpiringUids {
    pub(super) fn new(counts_for: Duration) -> Self {
        ExpiringUids { counts_for, added: BTreeMap::new(), by_age: VecDeque::new() }
    }

    /// Adds a UID, or begins its time anew.
    pub(super) fn insert(&mut self, uid: Uid, now: Instant) {
        self.expire(now);
        self.added.insert(uid.clone(), now);
        self.by_age.push_back((now, uid));
    }

    /// Whether a UID counts.
    pub(super) fn contains(&mut self, uid: &Uid, now: Instant) -> bool {
        self.expire(now);
        self.added.contains_key(uid)
    }

    /// Whether none counts.
    pub(super) fn is_empty(&mut self, now: Instant) -> bool {
        self.expire(now);
        self.added.is_empty()
    }

    fn expire(&mut self, now: Instant) {
        while let Some((at, _)) = self.by_age.front()
            && now.saturating_duration_since(*at) >= self.counts_for
        {
            let Some((at, uid)) = self.by_age.pop_front() else { return };
            if self.added.get(&uid) == Some(&at) {
                self.added.remove(&uid);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_uid_counts_for_its_time_and_is_dropped_once() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let uid = |n: u32| Uid::new(&format!("u{n}"));
        let mut recent = ExpiringUids::new(10 * second);
        for n in 0..1000 {
            recent.insert(uid(n), start);
        }
        recent.insert(uid(7), start + 5 * second);
        assert!(recent.contains(&uid(1), start + 9 * second));
        assert_eq!(recent.by_age.len(), 1001, "nothing has expired");
        assert!(!recent.contains(&uid(1), start + 10 * second));
        assert_eq!((recent.added.len(), recent.by_age.len()), (1, 1), "what has expired is gone at once");
        assert!(recent.contains(&uid(7), start + 14 * second), "it was added again");
        assert!(!recent.is_empty(start + 14 * second) && recent.is_empty(start + 15 * second));
        assert!(recent.by_age.is_empty());
    }
}
