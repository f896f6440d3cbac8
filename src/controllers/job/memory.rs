//! The state of each Job that is kept between syncs: how its pods have failed, and which names its indexes have had.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::engine::owner_memory::Forget;
use crate::model::job::Counted;
use crate::model::{Job, Pod, Uid};
use crate::plan::job::JobPods;
use crate::plan::job::backoff::Record;
use crate::plan::job::names::of_index;

/// The state of all Jobs, by UID: a Job of the same name that is created anew starts without one.
#[derive(Debug, Default)]
pub struct JobMemory(Mutex<BTreeMap<Uid, Known>>);

/// The state of one Job. A sync shares it, and it is copied only if it changes meanwhile.
#[derive(Debug, Default)]
struct Known {
    record: Option<Record>,
    /// Of each index, the number below which its names were used.
    marks: Arc<BTreeMap<i32, u32>>,
    /// Pods whose finalizer we took off, until the cache shows it, and the version since when it is off.
    untracked: BTreeMap<Uid, u64>,
    /// Of pods that ended in the future, when that was first seen.
    ends: BTreeMap<Uid, Timestamp>,
    /// The generation that an event tells of.
    noted: Option<i64>,
    /// The last status that this process has counted, or after which it has read the pods past the caches.
    counted: Counted,
}

impl Forget for JobMemory {
    fn forget(&self, owner: &Uid) {
        self.0.lock().remove(owner);
    }
}

impl JobMemory {
    /// The failures since the last success, and the marks of the indexes.
    pub fn of(&self, owner: &Uid) -> (Option<Record>, Arc<BTreeMap<i32, u32>>) {
        let all = self.0.lock();
        all.get(owner).map(|known| (known.record, known.marks.clone())).unwrap_or_default()
    }

    /// Keeps the failures since the last success. A Job without any keeps none.
    pub fn failures(&self, owner: &Uid, record: Record) {
        let mut all = self.0.lock();
        if record != Record::default() || all.contains_key(owner) {
            all.entry(owner.clone()).or_default().record = Some(record);
        }
    }

    /// The finalizer of a pod is off since this version. A later one that has it was given it anew, and counts anew;
    /// `u64::MAX` for a pod that is gone.
    pub fn untracked(&self, owner: &Uid, pod: &Uid, version: u64) {
        self.0.lock().entry(owner.clone()).or_default().untracked.insert(pod.clone(), version);
    }

    /// Corrects pods of the cache whose finalizers are known to be off, and ends that a clock ahead of ours has written.
    pub fn correct(&self, owner: &Uid, pods: &mut JobPods, now: Timestamp) {
        let is_ahead = pods.has_ends_after(now);
        let mut all = self.0.lock();
        let is_known =
            all.get(owner).is_some_and(|known| !known.untracked.is_empty() || !known.ends.is_empty());
        if !is_known && !is_ahead {
            return;
        }
        let known = all.entry(owner.clone()).or_default();
        pods.correct_ends(&mut known.ends, now);
        let tracked: BTreeMap<&Uid, u64> =
            pods.tracked().map(|owned| (owned.uid(), owned.pod.meta.resource_version)).collect();
        known.untracked.retain(|uid, off| tracked.get(uid).is_some_and(|shown| shown < off));
        for owned in &mut pods.owned {
            owned.is_tracked &= !known.untracked.contains_key(owned.uid());
        }
    }

    /// A pod of an index is gone, or its name is taken: its name is not used again.
    pub fn name_used(&self, job: &Job, pod: &str, index: i32) {
        // Few pods of an index are created; a name beyond is none of ours.
        const FURTHEST: u64 = 1 << 20;
        let position = of_index(job, index).position(pod).filter(|position| *position < FURTHEST);
        let Some(next) = position.and_then(|position| u32::try_from(position + 1).ok()) else { return };
        let mut all = self.0.lock();
        let marks = &mut all.entry(job.meta.uid.clone()).or_default().marks;
        let mark = Arc::make_mut(marks).entry(index).or_default();
        *mark = next.max(*mark);
    }

    /// The cache shows that a pod of the Job is gone.
    pub fn pod_gone(&self, job: &Job, pod: &Pod) {
        let index = pod.job.as_ref().and_then(|part| part.index).filter(|_| job.is_indexed());
        // A finished Job creates no more.
        if let Some(index) = index.filter(|_| !job.is_finished()) {
            self.name_used(job, &pod.meta.key.name, index);
        }
    }

    /// A status was written, or needs no write, where there was another `before`.
    pub fn counted(&self, owner: &Uid, before: Counted, now: Counted) {
        if before != now && !self.is_counted_elsewhere(owner, before) {
            self.pods_read(owner, now);
        }
    }

    /// The pods were read past the caches after a status.
    pub fn pods_read(&self, owner: &Uid, after: Counted) {
        self.0.lock().entry(owner.clone()).or_default().counted = after;
    }

    /// Whether another process has written what a status counts. The cache of pods may not show yet that their finalizers
    /// are off, which `uncountedTerminatedPods` no longer tells.
    pub fn is_counted_elsewhere(&self, owner: &Uid, status: Counted) -> bool {
        self.0.lock().get(owner).map_or(Counted::default(), |known| known.counted) != status
    }

    /// Whether an event about this generation is due: it is recorded once.
    pub fn is_news(&self, owner: &Uid, generation: i64) -> bool {
        let mut all = self.0.lock();
        all.entry(owner.clone()).or_default().noted.replace(generation) != Some(generation)
    }

    /// Whether no state is kept.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record as _};

    #[test]
    fn the_name_of_a_pod_that_is_gone_is_below_the_mark_of_its_index() {
        let json = r#"{"metadata":{"name":"j","namespace":"shop","uid":"u","resourceVersion":"1"},
            "spec":{"completionMode":"Indexed","completions":3}}"#;
        let job = Job::decode(json, &mut Interner::default()).unwrap();
        let memory = JobMemory::default();
        let name = |position| of_index(&job, 2).name(position);
        for gone in [name(1), name(0), "j-2-other".into(), of_index(&job, 1).name(7)] {
            memory.name_used(&job, &gone, 2);
        }
        assert_eq!(*memory.of(&job.meta.uid).1, [(2, 2)].into());
        memory.forget(&job.meta.uid);
        assert!(memory.is_empty());
    }

    #[test]
    fn a_status_that_another_process_has_written_is_known_after_a_read() {
        let (memory, owner) = (JobMemory::default(), Uid::new("u"));
        let counted = |pods, listed| Counted { pods, listed };
        assert!(!memory.is_counted_elsewhere(&owner, counted(0, 0)));
        memory.counted(&owner, counted(0, 0), counted(2, 2));
        assert!(!memory.is_counted_elsewhere(&owner, counted(2, 2)));
        assert!(memory.is_counted_elsewhere(&owner, counted(2, 0)), "another has taken their finalizers off");
        memory.counted(&owner, counted(2, 0), counted(3, 1));
        assert!(memory.is_counted_elsewhere(&owner, counted(3, 1)), "a write on top of that proves nothing");
        memory.pods_read(&owner, counted(3, 1));
        assert!(!memory.is_counted_elsewhere(&owner, counted(3, 1)));
    }

    #[test]
    fn a_pod_that_is_given_the_finalizer_anew_counts_anew() {
        let decode = |version: u64| {
            let json = format!(
                r#"{{"metadata":{{"name":"p","namespace":"shop","uid":"u-p","resourceVersion":"{version}","labels":{{"a":"b"}},
                    "finalizers":["batch.kubernetes.io/job-tracking"],"ownerReferences":[{{"apiVersion":"batch/v1",
                    "kind":"Job","name":"j","uid":"u","controller":true}}]}},"status":{{"phase":"Succeeded"}}}}"#
            );
            Arc::new(Pod::decode(&json, &mut Interner::default()).unwrap())
        };
        let json = r#"{"metadata":{"name":"j","namespace":"shop","uid":"u","resourceVersion":"1"},
            "spec":{"selector":{"matchLabels":{"a":"b"}}}}"#;
        let job = Job::decode(json, &mut Interner::default()).unwrap();
        let (memory, owner) = (JobMemory::default(), Uid::new("u"));
        let is_tracked = |version| {
            let mut pods = JobPods::of(&job, vec![decode(version)], Vec::new());
            memory.correct(&owner, &mut pods, Timestamp::UNIX_EPOCH);
            pods.owned[0].is_tracked
        };
        memory.untracked(&owner, &Uid::new("u-p"), 9);
        assert_eq!([is_tracked(7), is_tracked(8), is_tracked(10)], [false, false, true]);
        memory.untracked(&owner, &Uid::new("u-p"), u64::MAX);
        assert!(!is_tracked(11), "it is gone");
    }

    #[test]
    fn an_event_is_recorded_once_for_a_generation() {
        let (memory, owner) = (JobMemory::default(), Uid::new("u"));
        assert_eq!(
            [1, 1, 2, 2].map(|generation| memory.is_news(&owner, generation)),
            [true, false, true, false]
        );
    }
}
