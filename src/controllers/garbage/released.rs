//! Owners whose dependents are to live: those that an orphaning deletion has let go.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::Collector;
use super::recent::Recent;
use crate::model::Uid;

/// How long a dependent may turn up after an orphaning deletion, or after the API that may hold it can be read again.
const RELEASED_FOR: Duration = Duration::from_secs(600);

/// These owners, by UID. They are lost with the process.
#[derive(Debug)]
pub(super) struct Released {
    recent: Recent,
    /// Those that were let go beside API groups that could not be read, each with the time and these groups.
    beside: BTreeMap<Uid, (Instant, BTreeSet<String>)>,
}

impl Default for Released {
    fn default() -> Self {
        Released { recent: Recent::new(RELEASED_FOR), beside: BTreeMap::new() }
    }
}

impl Released {
    /// An owner is let go, although these groups could not be read.
    pub(super) fn insert(&mut self, owner: Uid, unread: BTreeSet<String>, now: Instant) {
        if unread.is_empty() {
            self.recent.insert(owner, now);
        } else {
            self.beside.insert(owner, (now, unread));
        }
    }

    /// Whether it was let go.
    pub(super) fn contains(&mut self, owner: &Uid, now: Instant) -> bool {
        let is_forgotten = planted!("an owner that was let go beside a dead API is forgotten");
        self.beside.contains_key(owner) && !is_forgotten || self.recent.contains(owner, now)
    }

    /// Whether none is remembered.
    pub(super) fn is_empty(&mut self, now: Instant) -> bool {
        self.beside.is_empty() && self.recent.is_empty(now)
    }

    /// Lets the time of an owner begin once all its groups have answered since it was let go, and it has no dependents.
    fn review(
        &mut self,
        now: Instant,
        has_answered: impl Fn(&str, Instant) -> bool,
        has_dependents: impl Fn(&Uid) -> bool,
    ) {
        let Released { recent, beside } = self;
        beside.retain(|owner, (since, groups)| {
            groups.retain(|group| !has_answered(group, *since));
            let is_over = groups.is_empty() && !has_dependents(owner);
            if is_over {
                recent.insert(owner.clone(), now);
            }
            !is_over
        });
    }
}

impl Collector {
    /// To be called now and then.
    pub(super) fn review_released(&self) {
        let has_answered = |group: &str, since| self.kinds.has_answered(group, since);
        let has_dependents = |owner: &Uid| self.graph.lock().is_owner(owner);
        self.released.lock().review(Instant::now(), has_answered, has_dependents);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_beside_a_dead_api_is_remembered_until_ten_minutes_after_its_return() {
        let (start, minute, owner) = (Instant::now(), Duration::from_secs(60), Uid::new("u"));
        let mut released = Released::default();
        released.insert(owner.clone(), BTreeSet::from(["x.io".to_owned(), "y.io".to_owned()]), start);
        let hour = start + 60 * minute;
        released.review(hour, |group, since| group == "x.io" && since == start, |_| false);
        assert!(released.contains(&owner, hour), "y.io cannot be read");
        released.review(hour, |_, _| true, |_| true);
        assert!(released.contains(&owner, hour + 20 * minute), "a dependent still refers to it");
        released.review(hour, |_, _| true, |_| false);
        assert!(released.contains(&owner, hour + 9 * minute));
        assert!(!released.contains(&owner, hour + 10 * minute) && released.is_empty(hour + 10 * minute));
    }
}
