//! Owners whose dependents are to live: those that an orphaning deletion has let go.
//!
//! Those that were let go beside an API that could not be read are in a record, too: see [`super::record`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::Collector;
use super::expiring_uids::ExpiringUids;
use crate::model::Uid;

/// How long a dependent may turn up after an orphaning deletion, or after the API that may hold it can be read again.
const RELEASED_FOR: Duration = Duration::from_secs(600);

/// These owners, by UID.
#[derive(Debug)]
pub(super) struct Released {
    recent: ExpiringUids,
    beside: BTreeMap<Uid, Beside>,
    /// Those of them that were forgotten since the record was last written.
    forgotten: BTreeSet<Uid>,
}

/// An owner that was let go beside API groups that could not be read.
#[derive(Debug)]
struct Beside {
    since: Instant,
    /// Those of the groups that have not answered since.
    groups: BTreeSet<String>,
    /// When all had answered, and nothing referred to it.
    over: Option<Instant>,
}

impl Default for Released {
    fn default() -> Self {
        Released {
            recent: ExpiringUids::new(RELEASED_FOR),
            beside: BTreeMap::new(),
            forgotten: BTreeSet::new(),
        }
    }
}

impl Released {
    /// An owner is let go, although these groups could not be read.
    pub(super) fn insert(&mut self, owner: Uid, unread: BTreeSet<String>, now: Instant) {
        if unread.is_empty() {
            self.recent.insert(owner, now);
        } else {
            self.forgotten.remove(&owner);
            self.beside.insert(owner, Beside { since: now, groups: unread, over: None });
        }
    }

    /// Whether it was let go.
    pub(super) fn contains(&mut self, owner: &Uid, now: Instant) -> bool {
        self.beside.contains_key(owner) || self.recent.contains(owner, now)
    }

    /// Whether none is remembered.
    pub(super) fn is_empty(&mut self, now: Instant) -> bool {
        self.beside.is_empty() && self.recent.is_empty(now)
    }

    /// Those that were let go beside groups that could not be read, with these.
    pub(super) fn beside(&self) -> BTreeMap<Uid, BTreeSet<String>> {
        self.beside.iter().map(|(owner, known)| (owner.clone(), known.groups.clone())).collect()
    }

    /// Takes over what another process has remembered. Whether its groups have answered is not known: that begins anew.
    pub(super) fn adopt(&mut self, theirs: BTreeMap<Uid, BTreeSet<String>>, now: Instant) {
        for (owner, groups) in theirs {
            if !self.forgotten.contains(&owner) {
                self.beside.entry(owner).or_insert(Beside { since: now, groups, over: None });
            }
        }
    }

    /// The record has been written without those that were forgotten.
    pub(super) fn is_recorded(&mut self) {
        self.forgotten.clear();
    }

    /// Lets the time of an owner begin once all its groups have answered since it was let go, and it has no dependents. Forgets
    /// those whose time is over; whether there are any.
    fn review(
        &mut self,
        now: Instant,
        has_answered: impl Fn(&str, Instant) -> bool,
        has_dependents: impl Fn(&Uid) -> bool,
    ) -> bool {
        let before = self.forgotten.len();
        let Released { beside, forgotten, .. } = self;
        beside.retain(|owner, known| {
            let since = known.since;
            known.groups.retain(|group| !has_answered(group, since));
            if known.over.is_none() && known.groups.is_empty() && !has_dependents(owner) {
                known.over = Some(now);
            }
            let is_over = known.over.is_some_and(|over| now >= over + RELEASED_FOR);
            if is_over {
                forgotten.insert(owner.clone());
            }
            !is_over
        });
        forgotten.len() > before
    }
}

impl Collector {
    /// To be called now and then.
    pub(super) async fn review_released(&self) {
        let has_answered = |group: &str, since| self.kinds.has_answered(group, since);
        let has_dependents = |owner: &Uid| self.graph.lock().is_owner(owner);
        let has_forgotten = self.released.lock().review(Instant::now(), has_answered, has_dependents);
        if has_forgotten && let Err(error) = self.keep_record().await {
            // It is written without them when the next is added or forgotten.
            tracing::debug!(%error, "the record of owners that were let go names some that are forgotten");
        }
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
        assert!(!released.review(hour, |_, _| true, |_| false));
        assert!(!released.review(hour + 9 * minute, |_, _| true, |_| true));
        assert!(released.contains(&owner, hour + 9 * minute) && released.beside().len() == 1);
        assert!(released.review(hour + 10 * minute, |_, _| true, |_| false));
        assert!(!released.contains(&owner, hour + 10 * minute) && released.is_empty(hour + 10 * minute));
    }

    #[test]
    fn what_another_process_remembers_is_taken_over_unless_it_was_forgotten_here() {
        let (start, owner, other) = (Instant::now(), Uid::new("u"), Uid::new("v"));
        let groups = |group: &str| BTreeSet::from([group.to_owned()]);
        let mut released = Released::default();
        released.insert(owner.clone(), groups("x.io"), start);
        let theirs = BTreeMap::from([(owner.clone(), groups("z.io")), (other.clone(), groups("y.io"))]);
        released.adopt(theirs.clone(), start);
        assert_eq!(
            released.beside(),
            BTreeMap::from([(owner.clone(), groups("x.io")), (other, groups("y.io"))])
        );
        let later = start + RELEASED_FOR;
        released.review(start, |_, _| true, |_| false);
        assert!(released.review(later, |_, _| true, |_| false) && released.beside().is_empty());
        released.adopt(theirs.clone(), later);
        assert!(released.beside().is_empty(), "the record still names them");
        released.is_recorded();
        released.adopt(theirs, later);
        assert_eq!(released.beside().len(), 2);
    }
}
