//! ReplicaSets that may have been created although the reply was lost or a refusal.
//!
//! When the cache shows such a ReplicaSet, the event and the condition that follow a creation are emitted:
//! the event exactly once, the condition until a status with it has been written. A process that was restarted
//! has no memory of them, and treats the ReplicaSet as one that existed.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::model::Uid;
use crate::plan::deployment::NewReplicaSet;

/// The creations in doubt of all Deployments, by UID.
#[derive(Debug, Default)]
pub struct LostCreations(Mutex<BTreeMap<Uid, InDoubtCreates>>);

#[derive(Debug, Default)]
struct InDoubtCreates {
    /// Requested, and not seen yet. A Deployment has few: one for each template, each with a name of its own.
    requested: Vec<NewReplicaSet>,
    /// The name of the one that was seen last, whose condition is still to be written.
    seen: Option<String>,
}

impl LostCreations {
    /// Records a creation of unknown outcome.
    pub fn record(&self, deployment: &Uid, new: NewReplicaSet) {
        let mut all = self.0.lock();
        let InDoubtCreates { requested, .. } = all.entry(deployment.clone()).or_default();
        requested.retain(|other| other.name != new.name);
        requested.push(new);
    }

    /// A retry has reported the ReplicaSet of this name.
    pub fn reported(&self, deployment: &Uid, name: &str) {
        let mut all = self.0.lock();
        let Some(InDoubtCreates { requested, seen }) = all.get_mut(deployment) else { return };
        requested.retain(|other| other.name != name);
        if requested.is_empty() && seen.is_none() {
            all.remove(deployment);
        }
    }

    /// The creations that have happened, as the cache shows ReplicaSets of these names. Each is
    /// returned once.
    pub fn seen(&self, deployment: &Uid, exists: impl Fn(&str) -> bool) -> Vec<NewReplicaSet> {
        let mut all = self.0.lock();
        let Some(InDoubtCreates { requested, seen }) = all.get_mut(deployment) else { return Vec::new() };
        let (found, left) = std::mem::take(requested).into_iter().partition(|new| exists(&new.name));
        *requested = left;
        let found: Vec<NewReplicaSet> = found;
        *seen = found.last().map(|new| new.name.clone()).or(seen.take());
        found
    }

    /// The name of a ReplicaSet whose creation the condition has yet to report.
    pub fn unreported(&self, deployment: &Uid) -> Option<String> {
        self.0.lock().get(deployment)?.seen.clone()
    }

    /// The condition has been written.
    pub fn condition_written(&self, deployment: &Uid) {
        let mut all = self.0.lock();
        let Some(creations) = all.get_mut(deployment) else { return };
        creations.seen = None;
        if creations.requested.is_empty() {
            all.remove(deployment);
        }
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

impl Forget for LostCreations {
    fn forget(&self, deployment: &Uid) {
        self.0.lock().remove(deployment);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str) -> NewReplicaSet {
        NewReplicaSet { name: name.into(), hash: String::new(), replicas: 3, annotations: BTreeMap::new() }
    }

    #[test]
    fn a_lost_creation_that_happened_is_returned_once_and_its_condition_until_written() {
        let (lost, web) = (LostCreations::default(), Uid::new("u"));
        lost.record(&web, new("web-1"));
        lost.record(&web, new("web-1"));
        assert_eq!(lost.seen(&web, |_| false), []);
        assert_eq!(lost.seen(&web, |name| name == "web-1"), [new("web-1")]);
        assert_eq!(lost.seen(&web, |name| name == "web-1"), []);
        assert_eq!(lost.unreported(&web).as_deref(), Some("web-1"));
        lost.condition_written(&web);
        assert_eq!(lost.unreported(&web), None);
        assert!(lost.is_empty());
    }

    #[test]
    fn a_creation_reported_by_a_retry_is_not_reported_again() {
        let (lost, web) = (LostCreations::default(), Uid::new("u"));
        lost.record(&web, new("web-1"));
        lost.reported(&web, "web-1");
        assert!(lost.is_empty());
        lost.record(&web, new("web-1"));
        lost.forget(&web);
        assert_eq!(lost.seen(&web, |_| true), []);
    }
}
