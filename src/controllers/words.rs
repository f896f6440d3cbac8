//! When the text of a failure may change in a status.
//!
//! A quota names the pod that it refuses, and a webhook its request: every try brings another text.
//! Written each time, the text would be a change of the object, which wakes the key, which tries again:
//! a loop as fast as the API server answers, past all backoff.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::{Condition, Uid};
use crate::plan::replicaset::status::REPLICA_FAILURE;

/// How long a text stays at least.
const SHORTEST: Duration = Duration::from_secs(30);

/// When each owner's failure was last worded anew.
#[derive(Debug, Default)]
pub struct Words(Mutex<BTreeMap<Uid, Instant>>);

impl Words {
    /// Puts back the text of failures in `after` that are those in `before` in all but the text, unless
    /// the last new text is old enough. The retries go on, so that a text which has changed for good
    /// comes through half a minute later.
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

    /// The owner is gone.
    pub fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_failure_is_worded_anew_once_in_half_a_minute_and_a_new_reason_at_once() {
        let failure = |reason: &str, text: &str| {
            vec![Condition::new(REPLICA_FAILURE, "True", reason, text, Timestamp::UNIX_EPOCH)]
        };
        let (words, owner, start) = (Words::default(), Uid::new("u"), Instant::now());
        let said = |before: &str, reason: &str, text: &str, seconds: u64| {
            let mut after = failure(reason, text);
            words.keep(
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
        words.forget(&owner);
        assert!(words.0.lock().is_empty());
    }
}
