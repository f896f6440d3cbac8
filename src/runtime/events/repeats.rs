//! How often the count of an event that repeats is written.
//!
//! A ReplicaSet that creates fifty pods has nine events, and a tenth that counts the rest. Written for each pod, that
//! count is a request per pod which nobody reads. Here it is written at most once a second, and the newest text with it.
//! Other events are written at once: each text of a Deployment's is a step of its rollout, and a warning tells a refusal.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::correlate::Decided;
use super::lru::Lru;
use super::{Exact, Recorded};

/// The shortest time between two writes of one event.
const SPACING: Duration = Duration::from_secs(1);

/// The events whose texts differ only in the name of a pod.
const ABOUT_PODS: [&str; 2] = ["SuccessfulCreate", "SuccessfulDelete"];

/// How many events are remembered, and how many may be held back.
const REMEMBERED: usize = 4096;

/// An event, and how it has to be written.
pub(super) type Write = (Recorded, Decided);

/// The counts that are held back.
#[derive(Debug)]
pub(super) struct Repeats {
    written: Lru<Exact, Instant>,
    held: BTreeMap<Exact, (Instant, Write)>,
    by_time: BTreeSet<(Instant, Exact)>,
}

impl Repeats {
    pub(super) fn new() -> Self {
        Repeats { written: Lru::new(REMEMBERED), held: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Returns the event if it may be written now, and else holds it back in place of an earlier count.
    pub(super) fn take(&mut self, write: Write, now: Instant) -> Option<Write> {
        if !ABOUT_PODS.contains(&write.0.reason) {
            return Some(write);
        }
        let exact = &write.1.exact;
        if let Some((_, held)) = self.held.get_mut(exact) {
            *held = write;
            return None;
        }
        let due = (write.1.count > 1).then(|| *self.written.get_or_insert_with(exact, || now) + SPACING);
        match due.filter(|due| *due > now && self.held.len() < REMEMBERED) {
            Some(due) => {
                self.by_time.insert((due, exact.clone()));
                self.held.insert(exact.clone(), (due, write));
                None
            }
            None => {
                *self.written.get_or_insert_with(exact, || now) = now;
                Some(write)
            }
        }
    }

    /// When the next count is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.by_time.first().map(|(due, _)| *due)
    }

    /// The next count, which is written now: the one that is due first, whether it is due already or not.
    pub(super) fn next(&mut self, now: Instant) -> Option<Write> {
        let (_, exact) = self.by_time.pop_first()?;
        *self.written.get_or_insert_with(&exact, || now) = now;
        self.held.remove(&exact).map(|(_, write)| write)
    }

    /// How many counts are held back.
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }
}
