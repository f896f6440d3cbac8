//! Counts each pod that ends exactly once (upstream: `trackJobStatusAndRemoveFinalizers`).
//!
//! Each link of the chain is a write, in this order, and two consecutive syncs overlap:
//!
//! | write | in the sync |
//! |---|---|
//! | the UID into `uncountedTerminatedPods`, or the index into `completedIndexes` | that finds the pod ended |
//! | the finalizer off the pod | that finds the UID or the index in the status |
//! | the UID out of the list, and the counter up | the same, after the pods |
//!
//! The status carries the resourceVersion that it was computed from, and no decision is made on a cache of pods that is
//! older than our own writes. So whatever write is the last before a crash, the next sync continues with the link that is
//! due.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::fate::{FAILURE_TARGET, Fate, SUCCESS_CRITERIA_MET};
use super::pods::Owned;
use super::{Observed, failure_policy};
use crate::model::job::{FailureAction, Uncounted};
use crate::model::{Indexes, Job, Pod, Uid};

/// The totals, with the pods that ended and are not in the status yet.
#[derive(Clone, Debug, Default)]
pub struct Counting {
    /// Pods that failed, without those that the failure policy ignores.
    pub failed: i64,
    /// Pods that succeeded; of an Indexed Job indexes.
    pub succeeded: i64,
    /// The indexes that succeeded.
    pub completed_indexes: Indexes,
    /// The indexes that failed; `None` without `backoffLimitPerIndex`.
    pub failed_indexes: Option<Indexes>,
    /// The last failed pod of each index that may be replaced. It keeps its finalizer until its replacement is active: its
    /// annotations tell how often the index has failed. Empty without `backoffLimitPerIndex`.
    pub held: BTreeMap<i32, Owned>,
}

/// The links of the chain that are due.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Links {
    /// UIDs of the lists whose pods are gone, or without the finalizer: they go to the counters.
    pub off: BTreeSet<Uid>,
    /// Pods that are counted, or need not be: their finalizers go.
    pub untrack: Vec<Arc<Pod>>,
    /// Pods that succeeded, to be appended to the list.
    pub new_succeeded: Vec<Uid>,
    /// Pods that failed, to be appended to the list.
    pub new_failed: Vec<Uid>,
    /// Active pods that count as failed as soon as they are deleted.
    pub failed_if_deleted: Vec<Uid>,
}

/// The UIDs of both lists.
struct Listed<'a> {
    all: BTreeSet<&'a Uid>,
    failed: BTreeSet<&'a Uid>,
}

impl<'a> Listed<'a> {
    fn of(job: &'a Job) -> Self {
        let uncounted = || job.status.uncounted.iter();
        let failed: BTreeSet<&Uid> = uncounted().flat_map(|lists| &lists.failed).collect();
        let succeeded = uncounted().flat_map(|lists| &lists.succeeded);
        Listed { all: failed.iter().copied().chain(succeeded).collect(), failed }
    }
}

/// Counts.
pub fn count(observed: &Observed<'_>) -> Counting {
    let (job, pods) = (observed.job, &observed.pods);
    let listed = Listed::of(job);
    let is_new =
        |owned: &&Owned| owned.is_tracked && owned.may_count(job) && !listed.all.contains(owned.uid());
    let counts = |owned: &&Owned| failure_policy::action(job, &owned.pod) != FailureAction::Ignore;
    let amount = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let failed = i64::from(job.status.failed)
        + amount(listed.failed.len())
        + amount(pods.failed().filter(is_new).filter(counts).count());
    let completions = job.completions.filter(|_| job.is_indexed()).unwrap_or(0);
    let indexes = pods.succeeded().filter(|owned| owned.is_tracked && !listed.failed.contains(owned.uid()));
    let completed = job.status.completed_indexes.below(completions);
    let completed_indexes = completed.with(indexes.filter_map(|owned| owned.index));
    let succeeded = match job.is_indexed() {
        true => i64::from(completed_indexes.len()),
        false => {
            i64::from(job.status.succeeded)
                + amount(listed.all.len() - listed.failed.len())
                + amount(pods.succeeded().filter(is_new).count())
        }
    };
    let failed_indexes = job.backoff_limit_per_index.map(|limit| {
        let before = job.status.failed_indexes.clone().unwrap_or_default().below(completions);
        let fails = |owned: &&Owned| match failure_policy::action(job, &owned.pod) {
            FailureAction::FailIndex => true,
            FailureAction::Ignore => false,
            FailureAction::Count | FailureAction::FailJob => owned.failures_before.0 >= limit,
        };
        // The indexes of pods that are deleted because the Job has ended have not failed.
        let has_fate = [FAILURE_TARGET, SUCCESS_CRITERIA_MET].iter().any(|kind| job.status.is_true(kind));
        let is_own = |owned: &&Owned| owned.is_tracked && !(has_fate && owned.pod.meta.is_deleting());
        let new = pods.failed().filter(is_own).filter(fails);
        // An index in both sets would make the API server refuse the status for ever.
        before.with(new.filter_map(|owned| owned.index)).without(&completed_indexes)
    });
    let held = match &failed_indexes {
        Some(failed) => held(observed, &completed_indexes, failed),
        None => BTreeMap::new(),
    };
    Counting { failed, succeeded, completed_indexes, failed_indexes, held }
}

fn held(observed: &Observed<'_>, completed: &Indexes, failed: &Indexes) -> BTreeMap<i32, Owned> {
    let pods = &observed.pods;
    let active: BTreeSet<i32> = pods.active().filter_map(|owned| owned.index).collect();
    let is_open =
        |index: &i32| !completed.contains(*index) && !failed.contains(*index) && !active.contains(index);
    let mut held: BTreeMap<i32, Owned> = BTreeMap::new();
    // One that has lost the finalizer still tells of the failures of its index, if its replacement was deleted unfailed.
    for owned in pods.failed().filter(|owned| owned.has_failed_itself()) {
        let Some(index) = owned.index.filter(is_open) else { continue };
        let rank = |owned: &Owned| (owned.all_failures_before(), owned.finished);
        if held.get(&index).is_none_or(|other| rank(other) < rank(owned)) {
            held.insert(index, owned.clone());
        }
    }
    held
}

/// The links that are due, under this fate.
pub fn links(observed: &Observed<'_>, counting: &Counting, fate: Option<&Fate>) -> Links {
    let (job, pods) = (observed.job, &observed.pods);
    let listed = Listed::of(job);
    let tracked: BTreeSet<&Uid> = pods.tracked().map(Owned::uid).collect();
    let off = listed.all.iter().filter(|uid| !tracked.contains(*uid)).map(|uid| (*uid).clone()).collect();
    let mut links = Links { off, ..Links::default() };
    let is_success = fate.is_some_and(|fate| fate.is_success);
    let is_failure = fate.is_some_and(|fate| !fate.is_success);
    for owned in pods.tracked() {
        let (pod, uid) = (&owned.pod, owned.uid());
        let holder = owned.index.and_then(|index| counting.held.get(&index));
        let is_held = fate.is_none() && holder.is_some_and(|held| held.uid() == uid);
        if is_held || (fate.is_none() && pod.is_active()) {
            continue;
        }
        if listed.all.contains(uid) || (!owned.may_count(job) && !pod.is_active()) {
            links.untrack.push(pod.clone());
        } else if owned.has_succeeded() {
            match owned.index {
                None => links.new_succeeded.push(uid.clone()),
                // The set of indexes remembers it.
                Some(index) if job.status.completed_indexes.contains(index) => {
                    links.untrack.push(pod.clone())
                }
                Some(_) => {}
            }
        } else if is_success && pod.meta.is_deleting() {
            // The Job needs it no more, and it has not failed.
            if fate.is_some_and(|fate| fate.is_committed) {
                links.untrack.push(pod.clone());
            }
        } else if owned.is_failed || (is_failure && !pod.is_active()) {
            if failure_policy::action(job, pod) == FailureAction::Ignore {
                links.untrack.push(pod.clone());
            } else {
                links.new_failed.push(uid.clone());
            }
        } else if is_failure && owned.may_count(job) {
            links.failed_if_deleted.push(uid.clone());
        }
    }
    links
}

/// The lists and counters after a sync.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counted {
    /// The lists.
    pub lists: Uncounted,
    /// Pods that succeeded.
    pub succeeded: i32,
    /// Pods that failed.
    pub failed: i32,
    /// Whether pods are left that did not fit into the lists.
    pub is_full: bool,
}

/// The most UIDs in both lists together (upstream: `MaxUncountedPods`).
pub const MOST_UNCOUNTED: usize = 500;

/// The lists and counters after these finalizers went, and these pods were deleted.
pub fn counted(job: &Job, links: &Links, untracked: &BTreeSet<Uid>, deleted: &BTreeSet<Uid>) -> Counted {
    let Uncounted { mut succeeded, mut failed } =
        job.status.uncounted.as_deref().cloned().unwrap_or_default();
    let leave = |list: &mut Vec<Uid>, counter: i32| {
        let all = list.len();
        list.retain(|uid| !links.off.contains(uid) && !untracked.contains(uid));
        counter.saturating_add(i32::try_from(all - list.len()).unwrap_or(i32::MAX))
    };
    let counters = (leave(&mut succeeded, job.status.succeeded), leave(&mut failed, job.status.failed));
    let now_deleted = links.failed_if_deleted.iter().filter(|uid| deleted.contains(uid));
    let new_failed: Vec<&Uid> = links.new_failed.iter().chain(now_deleted).collect();
    let room = MOST_UNCOUNTED.saturating_sub(succeeded.len() + failed.len());
    let is_full = links.new_succeeded.len() + new_failed.len() > room;
    succeeded.extend(links.new_succeeded.iter().take(room).cloned());
    let room = room.saturating_sub(links.new_succeeded.len());
    failed.extend(new_failed.into_iter().take(room).cloned());
    let (lists, (succeeded, failed)) = (Uncounted { succeeded, failed }, counters);
    Counted { lists, succeeded, failed, is_full }
}

#[cfg(test)]
mod tests {
    use super::super::fate::committed;
    use super::super::fixture::{PodOf, job, observed, pod};
    use super::*;

    /// The links that are due: off, untrack, new successes, new failures, failures on deletion.
    #[track_caller]
    fn check(job: &Job, pods: impl IntoIterator<Item = PodOf>, expected: [&[&str]; 5]) {
        let observed = observed(job, pods, 9);
        let counting = count(&observed);
        let Links { off, untrack, new_succeeded, new_failed, failed_if_deleted } =
            links(&observed, &counting, committed(job).as_ref());
        let of =
            |uids: Vec<Uid>| uids.iter().map(|uid| uid.to_string().replace("u-", "")).collect::<Vec<_>>();
        let untrack = untrack.iter().map(|pod| pod.meta.uid.clone()).collect();
        let found =
            [off.into_iter().collect(), untrack, new_succeeded, new_failed, failed_if_deleted].map(of);
        assert_eq!(
            found,
            expected.map(|names| names.iter().map(|name| name.to_string()).collect::<Vec<_>>())
        );
    }

    const LISTED: &str = r#""uncountedTerminatedPods":{"succeeded":["u-a","u-b"],"failed":["u-c","u-d"]}"#;

    #[test]
    fn a_uid_goes_into_the_list_then_the_finalizer_off_then_the_uid_to_the_counter() {
        let ended = [pod("a").succeeded(), pod("c").failed(), pod("r"), pod("p").pending()];
        check(&job("", ""), ended.clone(), [&[], &[], &["a"], &["c"], &[]]);
        check(&job("", LISTED), ended.clone(), [&["b", "d"], &["a", "c"], &[], &[], &[]]);
        let off = ended.map(PodOf::untracked);
        check(&job("", LISTED), off.clone(), [&["a", "b", "c", "d"], &[], &[], &[], &[]]);
        check(&job("", ""), off, [&[], &[], &[], &[], &[]]);
    }

    #[test]
    fn a_uid_stays_in_its_list_whatever_the_phase_becomes() {
        check(
            &job("", LISTED),
            [pod("a").failed(), pod("c").succeeded(), pod("d")],
            [&["b"], &["a", "c"], &[], &[], &[]],
        );
    }

    const INDEXED: &str = r#""completionMode":"Indexed","completions":3,"parallelism":3"#;

    #[test]
    fn an_index_is_in_the_set_before_the_finalizer_goes_and_an_invalid_one_counts_nowhere() {
        let ended = [pod("a").index(1).succeeded(), pod("b").index(3).succeeded(), pod("c").failed()];
        check(&job(INDEXED, ""), ended.clone(), [&[], &["b", "c"], &[], &[], &[]]);
        check(
            &job(INDEXED, r#""completedIndexes":"1""#),
            ended.clone(),
            [&[], &["b", "c", "a"], &[], &[], &[]],
        );
        let job = job(INDEXED, r#""completedIndexes":"0,2,7","failed":4"#);
        let counting = count(&observed(&job, ended, 9));
        assert_eq!(
            (counting.completed_indexes.to_string().as_str(), counting.succeeded, counting.failed),
            ("0-2", 3, 4)
        );
    }

    #[test]
    fn a_pod_that_is_being_deleted_failed_unless_only_ended_ones_are_replaced() {
        let pods = [pod("a").deleting(), pod("b").deleting().succeeded(), pod("c").deleting().failed()];
        check(&job("", ""), pods.clone(), [&[], &[], &["b"], &["a", "c"], &[]]);
        check(&job(r#""podReplacementPolicy":"Failed""#, ""), pods, [&[], &[], &["b"], &["c"], &[]]);
    }

    #[test]
    fn a_failure_that_the_policy_ignores_is_let_go_without_a_count() {
        let policy = r#""podFailurePolicy":{"rules":[{"action":"Ignore","onPodConditions":[{"type":"X"}]}]}"#;
        let ignored = pod("a").failed().status(r#""conditions":[{"type":"X","status":"True"}]"#);
        check(&job(policy, ""), [ignored.clone(), pod("b").failed()], [&[], &["a"], &[], &["b"], &[]]);
        assert_eq!(count(&observed(&job(policy, ""), [ignored, pod("b").failed()], 9)).failed, 1);
    }

    fn with_fate(kind: &str) -> Job {
        job("", &format!(r#""conditions":[{{"type":"{kind}","status":"True"}}]"#))
    }

    #[test]
    fn a_failed_job_counts_every_pod_as_failed_that_has_not_succeeded() {
        let pods =
            [pod("a").succeeded(), pod("b").failed(), pod("c"), pod("d").deleting(), pod("e").untracked()];
        check(&with_fate("FailureTarget"), pods, [&[], &[], &["a"], &["b", "d"], &["c"]]);
    }

    #[test]
    fn pods_that_a_succeeded_job_deletes_have_not_failed() {
        let pods = [
            pod("a").succeeded(),
            pod("b").failed(),
            pod("c"),
            pod("d").deleting(),
            pod("e").deleting().failed(),
        ];
        check(&with_fate("SuccessCriteriaMet"), pods, [&[], &["d", "e"], &["a"], &["b"], &[]]);
    }

    #[test]
    fn the_last_failed_pod_of_an_index_keeps_its_finalizer_until_another_is_active() {
        let spec = format!(r#"{INDEXED},"backoffLimitPerIndex":2"#);
        let (first, second) = (pod("a").index(0).failed(), pod("b").index(0).failed().after_failures(1, 0));
        check(&job(&spec, ""), [first.clone()], [&[], &[], &[], &[], &[]]);
        check(&job(&spec, ""), [first.clone(), second.clone()], [&[], &[], &[], &["a"], &[]]);
        check(
            &job(&spec, ""),
            [first.clone(), second.clone(), pod("c").index(0)],
            [&[], &[], &[], &["a", "b"], &[]],
        );
        let last = pod("c").index(0).failed().after_failures(2, 0);
        check(&job(&spec, ""), [second.clone(), last.clone()], [&[], &[], &[], &["b", "c"], &[]]);
        let counting = count(&observed(&job(&spec, ""), [second, last], 9));
        assert_eq!(counting.failed_indexes.unwrap().to_string(), "0");
        check(&job(&spec, r#""completedIndexes":"0""#), [first], [&[], &[], &[], &["a"], &[]]);
    }

    #[test]
    fn the_index_of_a_pod_that_an_ended_job_deletes_has_not_failed() {
        let spec = format!(r#"{INDEXED},"backoffLimitPerIndex":0"#);
        for (status, failed) in [
            ("", "0,1"),
            (r#""conditions":[{"type":"FailureTarget","status":"True"}]"#, "0"),
            (r#""conditions":[{"type":"SuccessCriteriaMet","status":"True"}]"#, "0"),
        ] {
            let pods = [pod("a").index(0).failed(), pod("b").index(1).deleting()];
            let counting = count(&observed(&job(&spec, status), pods, 9));
            assert_eq!(counting.failed_indexes.unwrap().to_string(), failed, "{status}");
        }
    }

    #[test]
    fn an_index_that_succeeded_has_not_failed() {
        let spec = format!(r#"{INDEXED},"backoffLimitPerIndex":0"#);
        let pods = [pod("a").index(0).failed(), pod("b").index(0).succeeded()];
        let counting = count(&observed(&job(&spec, r#""failedIndexes":"1,5""#), pods, 9));
        assert_eq!(counting.failed_indexes.unwrap().to_string(), "1");
    }

    #[test]
    fn the_lists_hold_500_uids_and_the_rest_waits() {
        let job = job("", LISTED);
        let uid = |n: usize| Uid::new(&format!("n{n}"));
        let links = Links {
            off: [Uid::new("u-a")].into(),
            new_succeeded: (0..400).map(uid).collect(),
            new_failed: (400..600).map(uid).collect(),
            ..Links::default()
        };
        let counted = counted(&job, &links, &[Uid::new("u-c")].into(), &BTreeSet::new());
        assert_eq!((counted.succeeded, counted.failed, counted.is_full), (1, 1, true));
        assert_eq!((counted.lists.succeeded.len(), counted.lists.failed.len()), (401, 99));
    }
}
