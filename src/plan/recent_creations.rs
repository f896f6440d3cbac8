//! At which places a pod was created within the last minute: the nodes of a DaemonSet, the names of a StatefulSet's pods.
//!
//! A pod that is deleted as fast as it is created may show that its owner was deleted, which a lagging cache does not
//! show. So before a place gets another pod within a minute, the owner is read afresh. A rollout gives each place one
//! pod, and causes no read.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

/// How long a creation is remembered.
const REMEMBERED: SignedDuration = SignedDuration::from_secs(60);

/// The places at which a pod was created within the last minute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentCreations(BTreeMap<Arc<str>, Timestamp>);

impl RecentCreations {
    /// A pod was created at this place.
    pub fn created(&mut self, place: &Arc<str>, now: Timestamp) {
        self.0.insert(place.clone(), now);
    }

    /// Whether a pod was created less than a minute ago. Also true where the clock was set back.
    pub fn contains(&self, place: &str, now: Timestamp) -> bool {
        self.0.get(place).is_some_and(|at| is_recent(*at, now))
    }

    /// Drops entries older than a minute.
    pub fn collect(&mut self, now: Timestamp) {
        self.0.retain(|_, at| is_recent(*at, now));
    }

    /// Whether no place has an entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn is_recent(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at) < REMEMBERED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creation_is_remembered_for_a_minute() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut recent = RecentCreations::default();
        recent.created(&"n1".into(), at(0));
        assert!(recent.contains("n1", at(59)) && !recent.contains("n2", at(0)));
        assert!(!recent.contains("n1", at(60)));
        recent.collect(at(59));
        assert!(!recent.is_empty());
        recent.collect(at(60));
        assert!(recent.is_empty());
    }
}
