//! Limits how often the status of one object is written: about once a second, however fast its pods change. Urgent
//! changes are written at once, a fall of the ready or available pods among them: see `is_urgent` in
//! `plan/replicaset/status.rs` and `plan/deployment/status.rs`.
//!
//! Each write is a revision of the object that every watch of it receives. A rollout whose pods
//! become ready within a minute needs some sixty of them and not one per pod.
//!
//! The text of a failure changes at most once in half a minute. A quota names the pod that it refuses, and a webhook
//! its request: every retry yields another text. Written each time, the text would be a change of the object, which
//! requeues the key, which retries: a loop as fast as the API server answers, past all backoff.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::{Condition, Uid};
use crate::plan::REPLICA_FAILURE;

/// The shortest time between two writes of one status that are not urgent.
pub const SPACING: Duration = Duration::from_secs(1);

/// How long the counts of a rollout that replaces pods one after the other may wait. That a pod ends, is created again and
/// becomes ready often takes less, and is one write then instead of four.
pub const GATHERING: Duration = Duration::from_secs(5);

/// When each object's status was last written, and since when a due one has been delayed.
#[derive(Debug, Default)]
pub struct StatusThrottle(Mutex<Times>);

#[derive(Debug, Default)]
struct Times {
    written: BTreeMap<Uid, Instant>,
    postpone: BTreeMap<Uid, Instant>,
}

impl StatusThrottle {
    /// How long the next write has to wait; `None` when it may be sent at once.
    pub fn wait(&self, object: &Uid, now: Instant) -> Option<Duration> {
        let last = *self.0.lock().written.get(object)?;
        Some((last + SPACING).saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// How long a status may wait for a sync that has more to report; `None` when it has waited for as long as it may.
    pub fn postpone(&self, object: &Uid, longest: Duration, now: Instant) -> Option<Duration> {
        let since = *self.0.lock().postpone.entry(object.clone()).or_insert(now);
        Some((since + longest).saturating_duration_since(now)).filter(|wait| !wait.is_zero())
    }

    /// Nothing differs from what was written last: what is delayed next has not waited yet.
    pub fn is_current(&self, object: &Uid) {
        self.0.lock().postpone.remove(object);
    }

    /// Records a write.
    pub fn wrote(&self, object: &Uid, now: Instant) {
        let mut times = self.0.lock();
        times.postpone.remove(object);
        times.written.insert(object.clone(), now);
    }

    /// The object was deleted.
    pub fn forget(&self, object: &Uid) {
        let mut times = self.0.lock();
        times.postpone.remove(object);
        times.written.remove(object);
    }
}

/// How long a text stays at least.
const SHORTEST: Duration = Duration::from_secs(30);

/// When the text of each owner's failure last changed.
#[derive(Debug, Default)]
pub struct FailureTextThrottle(Mutex<BTreeMap<Uid, Instant>>);

impl FailureTextThrottle {
    /// Restores the text of failures in `after` that are those in `before` in all but the text, unless
    /// the last new text is old enough. The retries continue, so that a text which has changed for good
    /// is written half a minute later.
    pub fn keep(&self, owner: &Uid, before: &[Condition], after: &mut [Condition], now: Instant) {
        for condition in after.iter_mut() {
            let is_failure = &*condition.kind == REPLICA_FAILURE || &*condition.status == "False";
            let Some(old) = before.iter().find(|old| old.kind == condition.kind) else { continue };
            let reworded = Condition { message: old.message.clone(), ..condition.clone() };
            if !is_failure || reworded != *old || condition.message == old.message {
                continue;
            }
            let mut since = self.0.lock();
            let too_soon = since.get(owner).is_some_and(|&at| now.saturating_duration_since(at) < SHORTEST);
            if too_soon {
                *condition = reworded;
            } else {
                since.insert(owner.clone(), now);
            }
        }
    }

    /// The owner was deleted.
    pub fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_second_write_waits_until_a_second_after_the_first() {
        let (status_throttle, object, start) = (StatusThrottle::default(), Uid::new("u"), Instant::now());
        assert_eq!(status_throttle.wait(&object, start), None);
        status_throttle.wrote(&object, start);
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(status_throttle.wait(&object, at(400)), Some(Duration::from_millis(600)));
        assert_eq!(status_throttle.wait(&object, at(1000)), None);
        assert_eq!(status_throttle.wait(&Uid::new("other"), at(1)), None);
        status_throttle.forget(&object);
        assert_eq!(status_throttle.wait(&object, at(400)), None);
    }

    #[test]
    fn a_status_is_delayed_for_as_long_as_it_may_be_however_often_it_changes() {
        for longest in [SPACING, GATHERING] {
            let (status_throttle, object, start) = (StatusThrottle::default(), Uid::new("u"), Instant::now());
            let postpone = |at| status_throttle.postpone(&object, longest, start + at);
            let tenth = longest / 10;
            assert_eq!(postpone(Duration::ZERO), Some(longest));
            assert_eq!(postpone(tenth * 9), Some(tenth));
            assert_eq!(postpone(longest), None);
            status_throttle.wrote(&object, start + longest);
            assert_eq!(postpone(longest), Some(longest));
        }
    }

    #[test]
    fn the_text_of_a_failure_is_updated_every_30_seconds_and_a_new_reason_at_once() {
        let failure = |reason: &str, text: &str| {
            vec![Condition::new(REPLICA_FAILURE, "True", reason, text, Timestamp::UNIX_EPOCH)]
        };
        let (failure_text_throttle, owner, start) =
            (FailureTextThrottle::default(), Uid::new("u"), Instant::now());
        let said = |before: &str, reason: &str, text: &str, seconds: u64| {
            let mut after = failure(reason, text);
            failure_text_throttle.keep(
                &owner,
                &failure("FailedCreate", before),
                &mut after,
                start + Duration::from_secs(seconds),
            );
            after[0].message.to_string()
        };
        assert_eq!(said("a", "FailedCreate", "b", 0), "b");
        assert_eq!(said("b", "FailedCreate", "c", 29), "b");
        assert_eq!(said("b", "FailedDelete", "c", 29), "c");
        assert_eq!(said("b", "FailedCreate", "d", 30), "d");
        failure_text_throttle.forget(&owner);
        assert!(failure_text_throttle.0.lock().is_empty());
    }
}
