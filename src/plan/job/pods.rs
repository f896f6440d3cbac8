//! The pods of a Job, by what they are to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::model::pod::job::JobPod;
use crate::model::{Job, Phase, Pod, Record as _, Uid};
use crate::plan::claim::{Claim, claim};

/// The pods of one Job.
#[derive(Clone, Debug, Default)]
pub struct JobPods {
    /// Pods that it controls, in the order of their names; of an Indexed Job first by index.
    pub owned: Vec<Owned>,
    /// Pods that no longer match the selector.
    pub to_release: Vec<Arc<Pod>>,
    /// Pods without a controller that it adopts.
    pub orphans: Vec<Arc<Pod>>,
}

/// A pod that the Job controls.
#[derive(Clone, Debug)]
pub struct Owned {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Its completion index; `None` where the Job has no such index, or none at all.
    pub index: Option<i32>,
    /// Whether it has failed. A pod that is being deleted has, unless only ended ones are replaced: an orphaned one never
    /// reaches the phase (upstream: `isPodFailed`).
    pub is_failed: bool,
    /// When it ended, if it has.
    pub finished: Timestamp,
    /// Whether it has the finalizer.
    pub is_tracked: bool,
    /// How often its index had failed before it: failures that counted, and ignored ones.
    pub failures_before: (i32, i32),
}

impl JobPods {
    /// Sorts the pods that refer to the Job, and those without a controller that its selector matches.
    pub fn of(job: &Job, owned: Vec<Arc<Pod>>, orphans: Vec<Arc<Pod>>) -> Self {
        let mut pods = JobPods::default();
        for pod in owned.into_iter().chain(orphans) {
            match claim(job, &job.selector, &pod.meta) {
                Claim::Keep => pods.owned.extend(Owned::of(job, pod)),
                Claim::Release => pods.to_release.push(pod),
                Claim::Adopt => pods.orphans.push(pod),
                // Whatever its labels, the finalizer of a deleted Job must go.
                Claim::Ignore if job.meta.is_deleting() && job.controls(&pod.meta) => {
                    pods.owned.extend(Owned::of(job, pod));
                }
                Claim::Ignore => {}
            }
        }
        if job.is_indexed() {
            pods.owned.sort_by_key(|owned| owned.index);
        }
        pods
    }

    /// Whether a pod has ended later than now.
    pub fn has_ends_after(&self, now: Timestamp) -> bool {
        self.owned.iter().any(|owned| !owned.pod.is_active() && owned.finished > now)
    }

    /// A node whose clock is ahead must not prolong the wait of a failed pod, or switch it off: an end in the future is when it
    /// was first seen, also once that time has come. `seen` is kept between syncs.
    pub fn correct_ends(&mut self, seen: &mut BTreeMap<Uid, Timestamp>, now: Timestamp) {
        let before = std::mem::take(seen);
        for owned in self.owned.iter_mut().filter(|owned| !owned.pod.is_active()) {
            let first = before.get(owned.uid()).copied();
            if let Some(first) = first.or_else(|| (owned.finished > now).then_some(now)) {
                owned.finished = first;
                seen.insert(owned.uid().clone(), first);
            }
        }
    }

    /// Pods that are neither ended nor being deleted.
    pub fn active(&self) -> impl Iterator<Item = &Owned> {
        self.owned.iter().filter(|owned| owned.pod.is_active())
    }

    /// Pods that are being deleted and have not ended.
    pub fn terminating(&self) -> impl Iterator<Item = &Owned> {
        self.owned.iter().filter(|owned| owned.pod.is_terminating())
    }

    /// Pods that have succeeded.
    pub fn succeeded(&self) -> impl Iterator<Item = &Owned> {
        self.owned.iter().filter(|owned| owned.has_succeeded())
    }

    /// Pods that have failed.
    pub fn failed(&self) -> impl Iterator<Item = &Owned> {
        self.owned.iter().filter(|owned| owned.is_failed)
    }

    /// Pods with the finalizer.
    pub fn tracked(&self) -> impl Iterator<Item = &Owned> {
        self.owned.iter().filter(|owned| owned.is_tracked)
    }
}

impl Owned {
    fn of(job: &Job, pod: Arc<Pod>) -> Option<Self> {
        let part: &JobPod = pod.job.as_deref()?;
        let completions = job.completions.filter(|_| job.is_indexed()).unwrap_or(0);
        let is_deleted = pod.meta.is_deleting() && !job.replaces_failed_only && pod.phase != Phase::Succeeded;
        Some(Owned {
            index: part.index.filter(|index| *index < completions),
            is_failed: pod.phase == Phase::Failed || is_deleted,
            finished: part.finished,
            is_tracked: part.has_finalizer,
            failures_before: (part.failure_count, part.ignored_failure_count),
            pod,
        })
    }

    /// Its UID.
    pub fn uid(&self) -> &Uid {
        &self.pod.meta.uid
    }

    /// Whether it is one that counts: of an Indexed Job, with an index below `completions`.
    pub fn may_count(&self, job: &Job) -> bool {
        !job.is_indexed() || self.index.is_some()
    }

    /// Whether it has an index, below `completions` or not.
    pub fn has_index(&self) -> bool {
        self.pod.job.as_ref().is_some_and(|part| part.index.is_some())
    }

    /// Whether it failed. One that was deleted without its finalizer, as one too many or for a suspension, has not.
    pub fn has_failed_itself(&self) -> bool {
        self.is_failed && (self.is_tracked || !self.pod.meta.is_deleting())
    }

    /// Whether it has succeeded.
    pub fn has_succeeded(&self) -> bool {
        self.pod.phase == Phase::Succeeded
    }

    /// All failures of its index before it.
    pub fn all_failures_before(&self) -> i64 {
        i64::from(self.failures_before.0) + i64::from(self.failures_before.1)
    }

    /// Restarts of all its containers.
    pub fn restarts(&self) -> i64 {
        self.pod.job.as_ref().map_or(0, |part| part.restarts.into())
    }
}
