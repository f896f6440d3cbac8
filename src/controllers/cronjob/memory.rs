//! The memory of each CronJob between syncs: its last run, and which events its users have seen.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::model::{CronJob, Uid};
use crate::plan::EventNote;
use crate::plan::cronjob::Note;

/// The memory of all CronJobs, by UID.
#[derive(Debug, Default)]
pub(super) struct CronJobMemory(Mutex<BTreeMap<Uid, Known>>);

#[derive(Debug, Default)]
struct Known {
    last_run: Option<Timestamp>,
    noted: BTreeSet<String>,
    /// The fingerprint of the schedule and the zone, and when they were first seen after others.
    schedule: Option<(u64, Option<Timestamp>)>,
}

impl Forget for CronJobMemory {
    fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

impl CronJobMemory {
    /// The time of the last run that this process has started.
    pub fn last_run(&self, owner: &Uid) -> Option<Timestamp> {
        self.0.lock().get(owner)?.last_run
    }

    /// A run has started. A later one that is remembered was made while the clock was wrong. `about` is the event
    /// that would tell of its Job if the status did not.
    pub fn started(&self, owner: &Uid, time: Timestamp, about: String) {
        let mut all = self.0.lock();
        let known = all.entry(owner.clone()).or_default();
        known.last_run = Some(time);
        known.noted.insert(about);
    }

    /// When the schedule and the zone that a CronJob has now were first seen, if there were others before.
    pub fn rescheduled(&self, cron_job: &CronJob, now: Timestamp) -> Option<Timestamp> {
        let mut hasher = DefaultHasher::new();
        (&cron_job.schedule, &cron_job.time_zone).hash(&mut hasher);
        let seen = hasher.finish();
        let mut all = self.0.lock();
        let known = &mut all.entry(cron_job.meta.uid.clone()).or_default().schedule;
        match *known {
            Some((schedule, since)) if schedule == seen => since,
            other => {
                let since = other.map(|_| now);
                *known = Some((seen, since));
                since
            }
        }
    }

    /// Of the notes of a plan those that the plan before did not have.
    pub fn news<'n>(&self, owner: &Uid, notes: &'n [Note]) -> Vec<&'n EventNote> {
        let mut all = self.0.lock();
        if notes.is_empty() && !all.contains_key(owner) {
            return Vec::new();
        }
        let known = all.entry(owner.clone()).or_default();
        let news = notes.iter().filter(|note| !known.noted.contains(&note.about));
        let news = news.map(|note| &note.event).collect();
        known.noted = notes.iter().map(|note| note.about.clone()).collect();
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_news_until_a_plan_no_longer_has_it() {
        let (memory, owner) = (CronJobMemory::default(), Uid::new("u"));
        let note = |about: &str| Note { about: about.into(), event: EventNote::warning("R", about.into()) };
        let (a, b) = (note("a"), note("b"));
        let count = |notes: &[&Note]| {
            let notes: Vec<Note> = notes.iter().map(|note| (*note).clone()).collect();
            memory.news(&owner, &notes).len()
        };
        assert_eq!(
            [count(&[&a]), count(&[&a, &b]), count(&[&a]), count(&[&b]), count(&[&b])],
            [1, 1, 0, 1, 0]
        );
        memory.started(&owner, Timestamp::UNIX_EPOCH, "c".into());
        assert_eq!(count(&[&note("c")]), 0);
        assert_eq!(memory.last_run(&owner), Some(Timestamp::UNIX_EPOCH));
        memory.forget(&owner);
        assert_eq!((memory.last_run(&owner), count(&[&b])), (None, 1));
    }
}
