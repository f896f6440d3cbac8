//! Writes of unknown outcome: the reply was lost, or too late.
//!
//! A pod's name is kept until its outcome is known. The next sync reads the pod of that name
//! before it decides anything: if it exists, the decision waits for the cache to show it; if not,
//! the name is used before any other, so that a request which is still in flight meets a taken name
//! and not an empty place. If the pod of that name is deleted while the request may still arrive, its place stays
//! empty: the name must not be used again, and under another one there could be a pod too many. Without a memory, as
//! after a restart, the same name is the first unused one ([`crate::plan::replicaset::used_names`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::{ObjectKey, Uid};

/// How long a creation or deletion may still arrive after the pod was read: twice the minute after
/// which an API server gives up a request.
pub const LATEST: Duration = Duration::from_secs(120);

/// The unresolved writes of all owners, by the UID of the owner.
#[derive(Debug, Default)]
pub struct InDoubtWrites(Mutex<BTreeMap<Uid, Writes>>);

/// The unresolved writes of one owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Names of pods that may have been created; for a Deployment, of ReplicaSets that may have been written.
    pub creates: Vec<String>,
    /// Names without a pod at the last read that a creation may still reach,
    /// with the time of the read.
    pub late: Vec<(String, Instant)>,
    /// Pods that may have been deleted.
    pub deletes: Vec<(ObjectKey, Uid)>,
    /// Pods that existed at the last read and that a deletion may still reach, with
    /// the time of the read.
    pub maybe_deleted: Vec<(ObjectKey, Uid, Instant)>,
}

impl InDoubtWrites {
    /// Remembers an object that may have been created or changed.
    pub fn created(&self, owner: &Uid, name: String) {
        self.0.lock().entry(owner.clone()).or_default().creates.push(name);
    }

    /// Remembers a pod that may have been deleted.
    pub fn deleted(&self, owner: &Uid, pod: ObjectKey, uid: Uid) {
        self.0.lock().entry(owner.clone()).or_default().deletes.push((pod, uid));
    }

    /// Remembers a name that is free although a creation under it may still arrive.
    pub fn not_yet_created(&self, owner: &Uid, name: String, now: Instant) {
        self.0.lock().entry(owner.clone()).or_default().late.push((name, now));
    }

    /// The names that a creation may still reach. A pod that is created under another name first may be one too many.
    /// They stay until their time is over: a pod of such a name may be deleted before the late request
    /// arrives.
    pub fn late(&self, owner: &Uid, now: Instant) -> BTreeSet<String> {
        let mut all = self.0.lock();
        let Some(writes) = all.get_mut(owner) else { return BTreeSet::new() };
        writes.late.retain(|(_, seen)| now.saturating_duration_since(*seen) < LATEST);
        writes.late.iter().map(|(name, _)| name.clone()).collect()
    }

    /// When the first of these names cannot be reached any more.
    pub fn late_for(&self, owner: &Uid, now: Instant) -> Option<Duration> {
        let all = self.0.lock();
        let ends =
            all.get(owner)?.late.iter().map(|(_, seen)| (*seen + LATEST).saturating_duration_since(now));
        ends.filter(|left| !left.is_zero()).min()
    }

    /// Remembers a pod that exists although its deletion may still arrive.
    pub fn maybe_deleted(&self, owner: &Uid, pod: ObjectKey, uid: Uid, now: Instant) {
        self.0.lock().entry(owner.clone()).or_default().maybe_deleted.push((pod, uid, now));
    }

    /// The pods that a deletion may still reach. Deleting other pods of the owner first may lose both.
    pub fn take_maybe_deleted(&self, owner: &Uid, now: Instant) -> Vec<(ObjectKey, Uid, Instant)> {
        let mut all = self.0.lock();
        let Some(writes) = all.get_mut(owner) else { return Vec::new() };
        let mut maybe_deleted = std::mem::take(&mut writes.maybe_deleted);
        maybe_deleted.retain(|(_, _, seen)| now.saturating_duration_since(*seen) < LATEST);
        maybe_deleted
    }

    /// The UIDs of the pods that a deletion may still reach, for budgets that must not count them.
    pub fn maybe_deleted_pods(&self, owner: &Uid, now: Instant) -> BTreeSet<Uid> {
        let mut all = self.0.lock();
        let Some(writes) = all.get_mut(owner) else { return BTreeSet::new() };
        writes.maybe_deleted.retain(|(_, _, seen)| now.saturating_duration_since(*seen) < LATEST);
        writes.maybe_deleted.iter().map(|(_, uid, _)| uid.clone()).collect()
    }

    /// When the first of these pods counts again.
    pub fn maybe_deleted_for(&self, owner: &Uid, now: Instant) -> Option<Duration> {
        let all = self.0.lock();
        let ends = all
            .get(owner)?
            .maybe_deleted
            .iter()
            .map(|(_, _, seen)| (*seen + LATEST).saturating_duration_since(now));
        ends.min()
    }

    /// The writes of an owner that must be resolved; unresolved ones must be put back.
    pub fn take(&self, owner: &Uid) -> (Vec<String>, Vec<(ObjectKey, Uid)>) {
        let mut all = self.0.lock();
        let Some(writes) = all.get_mut(owner) else { return Default::default() };
        let taken = (std::mem::take(&mut writes.creates), std::mem::take(&mut writes.deletes));
        if writes == &Writes::default() {
            all.remove(owner);
        }
        taken
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The owner was deleted.
    pub fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_free_is_late_for_two_minutes() {
        let (in_doubt_writes, owner, start) = (InDoubtWrites::default(), Uid::new("u"), Instant::now());
        in_doubt_writes.not_yet_created(&owner, "web-1".into(), start);
        let at = |seconds| start + Duration::from_secs(seconds);
        for _ in 0..2 {
            assert!(in_doubt_writes.late(&owner, at(119)).contains("web-1"), "looking does not take it away");
        }
        assert_eq!(in_doubt_writes.late_for(&owner, at(119)), Some(Duration::from_secs(1)));
        assert!(in_doubt_writes.late(&owner, at(120)).is_empty());
        assert_eq!(in_doubt_writes.late_for(&owner, at(120)), None);
        in_doubt_writes.take(&owner);
        assert!(in_doubt_writes.is_empty());
    }

    #[test]
    fn a_pod_that_a_deletion_may_reach_does_not_count_for_two_minutes() {
        let (in_doubt_writes, owner, start) = (InDoubtWrites::default(), Uid::new("u"), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        in_doubt_writes.maybe_deleted(&owner, ObjectKey::new("shop", "agent-1"), Uid::new("u-pod"), start);
        assert!(in_doubt_writes.maybe_deleted_pods(&owner, at(119)).contains(&Uid::new("u-pod")));
        assert_eq!(in_doubt_writes.maybe_deleted_for(&owner, at(119)), Some(Duration::from_secs(1)));
        assert!(in_doubt_writes.maybe_deleted_pods(&owner, at(120)).is_empty());
        assert_eq!(in_doubt_writes.maybe_deleted_for(&owner, at(120)), None);
    }

    #[test]
    fn a_name_is_kept_until_it_is_resolved() {
        let in_doubt_writes = InDoubtWrites::default();
        let owner = Uid::new("u");
        in_doubt_writes.created(&owner, "web-1".into());
        assert_eq!(in_doubt_writes.take(&owner).0, ["web-1"]);
        assert_eq!(in_doubt_writes.take(&owner), Default::default());
        assert!(in_doubt_writes.0.lock().is_empty());
    }
}
