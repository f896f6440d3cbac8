//! How soon a failed pod is replaced that has a fixed place: at once, then after 1, 2, 4, … 900 seconds, per place. The
//! place of a DaemonSet's pod is its node, that of a StatefulSet's pod is its name.
//!
//! Such a pod cannot be replaced elsewhere: where its node refuses it, each replacement fails like the one before. A new
//! generation of the owner resets the backoff, as it may fix the cause. The state is in memory only.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// The wait after the first failure; it doubles with each further one.
const FIRST: SignedDuration = SignedDuration::from_secs(1);
/// The longest wait.
const LONGEST: SignedDuration = SignedDuration::from_secs(15 * 60);
/// After this long without a failure the backoff of a place is reset.
const FORGOTTEN: SignedDuration = SignedDuration::from_secs(2 * 15 * 60);

/// The places of one owner at which pods have failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedPodBackoff {
    generation: i64,
    places: BTreeMap<Arc<str>, Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    since: Timestamp,
    wait: SignedDuration,
}

impl Step {
    fn is_forgotten(self, now: Timestamp) -> bool {
        now.duration_since(self.since) > FORGOTTEN
    }
}

impl FailedPodBackoff {
    /// Until when failed pods stay at this place; `None` if they may be replaced now.
    pub fn until(&self, generation: i64, place: &str, now: Timestamp) -> Option<Timestamp> {
        let step =
            self.places.get(place).filter(|step| self.generation == generation && !step.is_forgotten(now))?;
        let until = step.since.saturating_add(step.wait).unwrap_or(Timestamp::MAX);
        // A clock that was set back must not delay anything for longer than the wait itself.
        (until > now && step.since <= now.saturating_add(step.wait).unwrap_or(Timestamp::MAX))
            .then_some(until)
    }

    /// A failed pod of this place was deleted.
    pub fn deleted(&mut self, generation: i64, place: &Arc<str>, now: Timestamp) {
        if self.generation != generation {
            self.places.clear();
            self.generation = generation;
        }
        let before = self.places.get(place).filter(|step| !step.is_forgotten(now));
        let wait = before.map_or(FIRST, |step| step.wait.saturating_mul(2).min(LONGEST));
        self.places.insert(place.clone(), Step { since: now, wait });
    }

    /// Drops the places without a failure in the last half hour.
    pub fn collect(&mut self, now: Timestamp) {
        self.places.retain(|_, step| !step.is_forgotten(now));
    }

    /// How many places have had failed pods.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether no place has had failed pods.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn wait(backoff: &FailedPodBackoff, node: &str, now: i64) -> Option<i64> {
        backoff.until(7, node, at(now)).map(|until| until.as_second() - at(now).as_second())
    }

    #[test]
    fn each_failure_doubles_the_wait_up_to_a_quarter_of_an_hour() {
        let (mut backoff, node) = (FailedPodBackoff::default(), Arc::from("n1"));
        assert_eq!(wait(&backoff, "n1", 0), None, "the first is replaced at once");
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..12 {
            backoff.deleted(7, &node, at(now));
            let next = wait(&backoff, "n1", now).unwrap();
            waits.push(next);
            now += next;
            assert_eq!(wait(&backoff, "n1", now), None);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 900, 900]);
        assert_eq!(wait(&backoff, "n2", now), None, "another node");
    }

    #[test]
    fn a_new_generation_and_half_an_hour_without_a_failure_start_afresh() {
        let (mut backoff, node) = (FailedPodBackoff::default(), Arc::from("n1"));
        (0..9).for_each(|_| backoff.deleted(7, &node, at(0)));
        assert_eq!(wait(&backoff, "n1", 0), Some(256));
        assert_eq!(backoff.until(8, "n1", at(0)), None);
        backoff.deleted(8, &node, at(0));
        assert_eq!((backoff.until(8, "n1", at(0)), wait(&backoff, "n1", 0)), (Some(at(1)), None));
        backoff.deleted(8, &node, at(1801));
        assert_eq!(backoff.until(8, "n1", at(1801)), Some(at(1802)));
        backoff.collect(at(1801 + 1800));
        assert_eq!(backoff.len(), 1);
        backoff.collect(at(1801 + 1801));
        assert!(backoff.is_empty());
    }

    #[test]
    fn a_clock_that_is_set_back_by_days_causes_no_delay() {
        let (mut backoff, node) = (FailedPodBackoff::default(), Arc::from("n1"));
        backoff.deleted(7, &node, at(1_000_000));
        assert_eq!(wait(&backoff, "n1", 0), None);
        backoff.deleted(7, &node, Timestamp::MAX);
        assert!(backoff.until(7, "n1", Timestamp::MIN).is_none());
    }
}
