//! Writes of which nobody knows yet whether they happened: the reply was lost, or too late.
//!
//! A pod's name is kept until its outcome is known. The next sync asks for the pod under that name
//! before it decides anything: if it is there, the decision waits for the cache to show it; if not,
//! the name is taken before any other, so that a request which is still on its way meets a taken name
//! and not an empty place. If the pod under that name goes while the request may still arrive, its place stays
//! empty: the name must not come back, and under another one there could be a pod too many. Without a memory, as after a
//! restart, the same name is the first that is unused ([`crate::plan::replicaset::used_names`]).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::{ObjectKey, Uid};

/// How long a creation or deletion may still arrive after the pod was looked up: twice the minute after
/// which an API server gives up a request.
pub const LATEST: Duration = Duration::from_secs(120);

/// The unresolved writes of all owners, by the UID of the ReplicaSet or Deployment.
#[derive(Debug, Default)]
pub struct Unresolved(Mutex<BTreeMap<Uid, Writes>>);

/// The unresolved writes of one owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// Names of pods that may have been created; of a Deployment, sets that may have been written.
    pub creates: Vec<String>,
    /// Names under which no pod was when they were last looked up, and that a creation may still reach,
    /// with the time of the look.
    pub late: Vec<(String, Instant)>,
    /// Pods that may have been deleted.
    pub deletes: Vec<(ObjectKey, Uid)>,
    /// Pods that were there when they were last looked up, and that a deletion may still reach, with
    /// the time of the look.
    pub doomed: Vec<(ObjectKey, Uid, Instant)>,
}

impl Unresolved {
    /// Remembers an object that may have been created or changed.
    pub fn created(&self, set: &Uid, name: String) {
        self.0.lock().entry(set.clone()).or_default().creates.push(name);
    }

    /// Remembers a pod that may have been deleted.
    pub fn deleted(&self, set: &Uid, pod: ObjectKey, uid: Uid) {
        self.0.lock().entry(set.clone()).or_default().deletes.push((pod, uid));
    }

    /// Remembers a name that is free although a creation under it may still be on its way.
    pub fn not_yet_created(&self, set: &Uid, name: String, now: Instant) {
        self.0.lock().entry(set.clone()).or_default().late.push((name, now));
    }

    /// The names that a creation may still reach. Who creates a pod under another name first may get both.
    /// They stay until their time is over: a pod that was made under such a name may be gone before the
    /// late one arrives.
    pub fn late(&self, set: &Uid, now: Instant) -> BTreeSet<String> {
        let mut all = self.0.lock();
        let Some(writes) = all.get_mut(set) else { return BTreeSet::new() };
        writes.late.retain(|(_, seen)| now.saturating_duration_since(*seen) < LATEST);
        writes.late.iter().map(|(name, _)| name.clone()).collect()
    }

    /// When the first of these names is late no longer.
    pub fn late_for(&self, set: &Uid, now: Instant) -> Option<Duration> {
        let all = self.0.lock();
        let ends = all.get(set)?.late.iter().map(|(_, seen)| (*seen + LATEST).saturating_duration_since(now));
        ends.filter(|left| !left.is_zero()).min()
    }

    /// Remembers a pod that is there although its deletion may still be on its way.
    pub fn doomed(&self, set: &Uid, pod: ObjectKey, uid: Uid, now: Instant) {
        self.0.lock().entry(set.clone()).or_default().doomed.push((pod, uid, now));
    }

    /// The pods that a deletion may still reach. Who deletes others of the set first may see both go.
    pub fn take_doomed(&self, set: &Uid, now: Instant) -> Vec<(ObjectKey, Uid, Instant)> {
        let mut all = self.0.lock();
        let Some(writes) = all.get_mut(set) else { return Vec::new() };
        let mut doomed = std::mem::take(&mut writes.doomed);
        doomed.retain(|(_, _, seen)| now.saturating_duration_since(*seen) < LATEST);
        doomed
    }

    /// What is to be looked up for a set; what is not resolved must be put back.
    pub fn take(&self, set: &Uid) -> (Vec<String>, Vec<(ObjectKey, Uid)>) {
        let mut all = self.0.lock();
        let Some(writes) = all.get_mut(set) else { return Default::default() };
        let taken = (std::mem::take(&mut writes.creates), std::mem::take(&mut writes.deletes));
        if writes == &Writes::default() {
            all.remove(set);
        }
        taken
    }

    /// Whether nothing is remembered of anybody.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The owner is gone.
    pub fn forget(&self, set: &Uid) {
        self.0.lock().remove(set);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_free_is_late_for_two_minutes() {
        let (unresolved, set, start) = (Unresolved::default(), Uid::new("u"), Instant::now());
        unresolved.not_yet_created(&set, "web-1".into(), start);
        let at = |seconds| start + Duration::from_secs(seconds);
        for _ in 0..2 {
            assert!(unresolved.late(&set, at(119)).contains("web-1"), "looking does not take it away");
        }
        assert_eq!(unresolved.late_for(&set, at(119)), Some(Duration::from_secs(1)));
        assert!(unresolved.late(&set, at(120)).is_empty());
        assert_eq!(unresolved.late_for(&set, at(120)), None);
        unresolved.take(&set);
        assert!(unresolved.is_empty());
    }

    #[test]
    fn a_name_is_kept_until_it_is_looked_up() {
        let unresolved = Unresolved::default();
        let set = Uid::new("u");
        unresolved.created(&set, "web-1".into());
        assert_eq!(unresolved.take(&set).0, ["web-1"]);
        assert_eq!(unresolved.take(&set), Default::default());
        assert!(unresolved.0.lock().is_empty());
    }
}
