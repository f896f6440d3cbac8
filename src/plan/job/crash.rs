//! Jobs on a toy cluster: any prefix of a plan is executed, everything is forgotten, and the next plan continues. Whatever
//! the prefix, each pod that ended is counted exactly once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::backoff::Record;
use super::fixture::{PodOf, job, observed, pod};
use super::status::{Outcome, settled};
use super::{Names, Report, Write, plan};
use crate::model::condition::find;
use crate::model::{Job, Pod, Uid};

/// A Job, its pods, and what has become of all that ever were.
struct World {
    job: Job,
    pods: BTreeMap<String, PodOf>,
    /// Pods that ended with the finalizer, and whether they succeeded.
    ended: BTreeMap<String, bool>,
    record: Option<Record>,
    created: usize,
    second: i64,
    rng: fastrand::Rng,
}

impl World {
    fn new(spec: &str, seed: u64) -> Self {
        let rng = fastrand::Rng::with_seed(seed);
        let (pods, ended) = (BTreeMap::new(), BTreeMap::new());
        World { job: job(spec, ""), pods, ended, record: None, created: 0, second: 0, rng }
    }

    /// Pods end, and those that are being deleted go. So does what is left of a pod without the finalizer.
    fn kubelet(&mut self, failing: u8) {
        let World { pods, ended, rng, second, .. } = self;
        for (name, pod) in pods.iter_mut() {
            let is_running = pod.phase == "Running";
            if is_running && rng.u8(..100) < 60 {
                pod.phase = if pod.is_deleting || rng.u8(..100) < failing { "Failed" } else { "Succeeded" };
                pod.end = *second;
                if pod.is_tracked {
                    ended.insert(name.clone(), pod.phase == "Succeeded");
                }
            }
        }
        pods.retain(|_, pod| !pod.is_deleting || pod.is_tracked);
    }

    fn is_counted(&self, pod: &Pod) -> bool {
        let status = &self.job.status;
        let listed = |uid: &Uid| {
            status.uncounted.iter().any(|lists| lists.succeeded.contains(uid) || lists.failed.contains(uid))
        };
        let index = pod.job.as_ref().and_then(|part| part.index);
        listed(&pod.meta.uid) || index.is_some_and(|index| status.completed_indexes.contains(index))
    }

    fn change(&mut self, pod: &Pod, change: impl FnOnce(&mut PodOf)) {
        if let Some(pod) = self.pods.get_mut(&*pod.meta.key.name) {
            change(pod);
        }
    }

    /// One sync. It is cut off after some of its writes in a third of the cases.
    fn sync(&mut self) {
        let job = self.job.clone();
        let mut observed = observed(&job, self.pods.values().cloned().collect::<Vec<_>>(), self.second);
        observed.record = self.record;
        observed.names = match job.is_indexed() {
            true => Names::Indexed(Arc::default()),
            false => Names::Free((0..9).map(|n| format!("p-{}", self.created + n)).collect()),
        };
        let plan = plan(&observed);
        let is_success = matches!(&plan.report, Report::All(account) if account.fate.as_ref().is_some_and(|fate| fate.is_success));
        let mut left = if self.rng.u8(..3) == 0 { self.rng.usize(..12) } else { usize::MAX };
        let mut outcome = Outcome::default();
        let mut may_write = || {
            let may = left > 0;
            left = left.saturating_sub(1);
            may
        };
        for write in &plan.writes {
            match write {
                Write::Untrack(pods) => {
                    for pod in pods.iter().filter(|_| may_write()) {
                        let is_needless = is_success && pod.meta.is_deleting();
                        assert!(self.is_counted(pod) || is_needless, "{} is not counted", pod.meta.key);
                        self.change(pod, |pod| pod.is_tracked = false);
                        outcome.untracked.insert(pod.meta.uid.clone());
                    }
                }
                Write::Delete(deletions) => {
                    for deletion in deletions.iter().filter(|_| may_write()) {
                        let untracks = deletion.untracks();
                        self.change(&deletion.pod, |pod| {
                            pod.is_tracked &= !untracks;
                            pod.is_deleting = true;
                        });
                        outcome.deleted.insert(deletion.pod.meta.uid.clone());
                    }
                }
                Write::Create(pods) => {
                    for new in pods.iter().filter(|_| may_write()) {
                        let mut created = pod(&new.name);
                        created.index = new.index;
                        created.failures = new.failures_before.unwrap_or((0, 0));
                        assert!(self.pods.insert(new.name.clone(), created).is_none(), "{} exists", new.name);
                        outcome.created += 1;
                        self.created += 1;
                    }
                }
                Write::Track(_) | Write::Adopt(_) | Write::Release(_) => panic!("{write:?}"),
            }
        }
        // Crashed: forgotten is what was in memory, and the status is not written.
        let is_cut_off = !may_write();
        self.record = plan.record.filter(|_| !is_cut_off);
        if !is_cut_off {
            self.job.status = settled(&observed, &plan, &outcome);
            self.judge(&job);
        }
    }

    /// Counters never fall, UIDs occur once, and conditions follow each other.
    fn judge(&self, before: &Job) {
        let (before, now) = (&before.status, &self.job.status);
        assert!(now.failed >= before.failed && now.succeeded >= before.succeeded);
        let lists = now.uncounted.as_deref().cloned().unwrap_or_default();
        let all: Vec<&Uid> = lists.succeeded.iter().chain(&lists.failed).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len(), "{lists:?}");
        for (interim, terminal) in [("SuccessCriteriaMet", "Complete"), ("FailureTarget", "Failed")] {
            if now.is_true(terminal) {
                let words =
                    |kind: &str| find(&now.conditions, kind).map(|c| (c.reason.clone(), c.message.clone()));
                assert!(before.is_true(interim), "{interim} is written first");
                assert_eq!(words(interim), words(terminal));
                assert!(all.is_empty());
            }
        }
        let failed = now.failed_indexes.clone().unwrap_or_default();
        assert_eq!(failed.shared_with(&now.completed_indexes), 0);
    }

    /// Runs until the Job is finished.
    fn run(mut self, failing: u8) -> Self {
        for _ in 0..400 {
            self.kubelet(failing);
            self.sync();
            self.second += 700;
            if self.job.is_finished() {
                return self;
            }
        }
        panic!("not finished: {:?}\n{:?}", self.job.status, self.pods);
    }
}

#[track_caller]
fn check(spec: &str, failing: u8) {
    for seed in 0..300 {
        let world = World::new(spec, seed).run(failing);
        let World { job, pods, ended, .. } = &world;
        let status = &job.status;
        assert!(pods.values().all(|pod| !pod.is_tracked), "seed {seed}: finalizers are left");
        let count = |succeeded| i32::try_from(ended.values().filter(|it| **it == succeeded).count()).unwrap();
        let is_complete = status.is_true("Complete");
        if job.is_indexed() {
            assert_eq!(status.succeeded, status.completed_indexes.len(), "seed {seed}");
        } else {
            assert_eq!(status.succeeded, count(true), "seed {seed}: {status:?}");
        }
        // Pods that a failed Job deletes count as failed even if they would have succeeded or go without an end.
        if is_complete && job.success_policy.is_none() {
            assert_eq!(status.failed, count(false), "seed {seed}: {status:?}");
        } else {
            assert!(status.failed >= count(false) || job.success_policy.is_some(), "seed {seed}: {status:?}");
        }
    }
}

#[test]
fn every_pod_counts_once_whatever_is_cut_off() {
    check(r#""completions":9,"parallelism":4,"backoffLimit":1000"#, 20);
    check(r#""parallelism":3,"backoffLimit":1000"#, 20);
}

#[test]
fn a_job_that_fails_counts_every_pod_once() {
    check(r#""completions":9,"parallelism":4,"backoffLimit":2"#, 70);
    check(
        r#""completions":9,"parallelism":4,"activeDeadlineSeconds":1500,"podReplacementPolicy":"Failed""#,
        30,
    );
}

#[test]
fn every_index_completes_once_whatever_is_cut_off() {
    check(r#""completionMode":"Indexed","completions":9,"parallelism":4,"backoffLimit":1000"#, 20);
    check(
        r#""completionMode":"Indexed","completions":9,"parallelism":9,"successPolicy":{"rules":[{"succeededCount":4}]}"#,
        10,
    );
}

#[test]
fn every_failure_of_an_index_counts_once() {
    let spec = r#""completionMode":"Indexed","completions":6,"parallelism":4,"backoffLimit":2147483647"#;
    check(&format!(r#"{spec},"backoffLimitPerIndex":2"#), 40);
    check(&format!(r#"{spec},"backoffLimitPerIndex":1,"maxFailedIndexes":2"#), 40);
}
