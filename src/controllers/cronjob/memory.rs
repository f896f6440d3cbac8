//! The memory of each CronJob between syncs: its last run, and which events its users have seen.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::model::{CronJob, Uid};
use crate::plan::EventNote;
use crate::plan::cronjob::{Note, Rescheduled};

/// The memory of all CronJobs, by UID.
#[derive(Debug, Default)]
pub(super) struct CronJobMemory(Mutex<BTreeMap<Uid, Known>>);

#[derive(Debug, Default)]
struct Known {
    last_run: Option<Timestamp>,
    noted: BTreeSet<String>,
    /// The time that is due, and whose run has not begun.
    due: Option<Timestamp>,
    /// The fingerprint of the schedule and the zone, and when they were first seen after others.
    schedule: Option<(u64, Option<Rescheduled>)>,
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
        (known.last_run, known.due) = (Some(time), None);
        known.noted.insert(about);
    }

    /// A run is due, or none.
    pub fn is_due(&self, owner: &Uid, due: Option<Timestamp>) {
        if let Some(known) = self.0.lock().get_mut(owner) {
            known.due = due;
        }
    }

    /// The change to the schedule and the zone that a CronJob has now, if there were others before.
    pub fn rescheduled(&self, cron_job: &CronJob, now: Timestamp) -> Option<Rescheduled> {
        let mut hasher = DefaultHasher::new();
        (&cron_job.schedule, &cron_job.time_zone).hash(&mut hasher);
        let seen = hasher.finish();
        let mut all = self.0.lock();
        let known = all.entry(cron_job.meta.uid.clone()).or_default();
        match known.schedule {
            Some((schedule, change)) if schedule == seen => change,
            other => {
                let change = other.map(|_| Rescheduled { since: now, due: known.due });
                known.schedule = Some((seen, change));
                change
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
    use crate::model::Record as _;

    #[test]
    fn a_change_of_the_schedule_remembers_what_was_due() {
        let cron_job = |schedule: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"c","namespace":"shop","uid":"u","resourceVersion":"1"}},"spec":{{"schedule":"{schedule}"}}}}"#
            );
            CronJob::decode(&json, &mut crate::model::Interner::default()).unwrap()
        };
        let (memory, owner) = (CronJobMemory::default(), Uid::new("u"));
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(memory.rescheduled(&cron_job("0 * * * *"), at(1)), None, "the first that is seen");
        memory.is_due(&owner, Some(at(60)));
        let change = Some(Rescheduled { since: at(70), due: Some(at(60)) });
        assert_eq!(memory.rescheduled(&cron_job("@hourly"), at(70)), change);
        memory.started(&owner, at(60), String::new());
        assert_eq!(memory.rescheduled(&cron_job("@hourly"), at(80)), change);
        let next = Some(Rescheduled { since: at(90), due: None });
        assert_eq!(memory.rescheduled(&cron_job("@daily"), at(90)), next);
    }

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
