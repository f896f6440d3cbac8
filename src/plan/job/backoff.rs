//! How long a Job waits before it replaces failed pods (upstream: `backoff_utils.go`).
//!
//! Upstream keeps the number of failures in memory, and starts with 0 after a restart (kubernetes#114650). Here it also
//! follows from the failed pods that still exist: the larger number counts. A failed pod that was deleted is in the
//! counter of the status, whose distance from its value at the last success is kept.

use jiff::{SignedDuration, Timestamp};

use super::pods::{JobPods, Owned};
use crate::model::Job;

/// The wait after the first failure, in seconds.
pub const BASE: i64 = 10;

/// The longest wait, in seconds (upstream: `MaxJobPodFailureBackOff`; before 1.26 it was 360).
pub const MAX: i64 = 600;

/// The state that is kept between syncs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// How many pods had failed at the last success.
    failed_at_success: i64,
    last_failure: Option<Timestamp>,
    last_success: Option<Timestamp>,
}

/// The failures since the last success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// How many pods have failed since the last success.
    pub failures: i64,
    /// When the last of them failed.
    pub last: Option<Timestamp>,
}

/// The failures since the last success, of which `failed` is the number of all that ever counted, and the new record.
/// Pods without an index that count for nothing, where the Job has indexes, neither fail nor succeed for it.
pub fn failures(
    job: &Job,
    record: Option<Record>,
    pods: &JobPods,
    failed: i64,
    now: Timestamp,
) -> (Backoff, Record) {
    let may_count = |owned: &&Owned| owned.may_count(job);
    // Those that a clock ahead of ours has written are corrected before, where there is a memory of them.
    let ends = |pods: &mut dyn Iterator<Item = Timestamp>| pods.map(|end| end.min(now)).collect::<Vec<_>>();
    let successes = ends(&mut pods.succeeded().filter(may_count).map(|pod| pod.finished));
    // An index that is above `completions` by now was below it when its pod failed.
    let could_count = |owned: &&Owned| !job.is_indexed() || owned.has_index();
    let failed_pods = pods.failed().filter(could_count).filter(|pod| pod.has_failed_itself());
    let all = ends(&mut failed_pods.map(|pod| pod.finished));
    let known = record.unwrap_or_default();
    let last_success = successes.into_iter().max().max(known.last_success);
    let is_later = |end: &Timestamp| last_success.is_none_or(|success| *end > success);
    let seen = i64::try_from(all.iter().filter(|end| is_later(end)).count()).unwrap_or(i64::MAX);
    let failed_at_success = match record {
        Some(known) if known.last_success == last_success => known.failed_at_success,
        _ => failed - seen.min(failed),
    };
    let last_failure = all.into_iter().max().max(known.last_failure).filter(is_later);
    let failures = seen.max(failed - failed_at_success);
    let record = Record { failed_at_success, last_failure, last_success };
    (Backoff { failures: if last_failure.is_some() { failures } else { 0 }, last: last_failure }, record)
}

impl Backoff {
    /// When a pod may be created; `None` if at once.
    pub fn until(&self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        let (base, max) = job.backoff_seconds;
        let max = max.map_or(MAX, i64::from);
        let base = base.map_or(BASE, i64::from).min(max);
        let doublings =
            u32::try_from(self.failures.checked_sub(1).filter(|more| *more >= 0)?).unwrap_or(u32::MAX);
        let factor = 1i64.checked_shl(doublings.min(62)).unwrap_or(i64::MAX);
        let wait = SignedDuration::from_secs(base.saturating_mul(factor).min(max));
        let until = self.last?.min(now).saturating_add(wait).unwrap_or(Timestamp::MAX);
        (until > now).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{PodOf, at, job, job_pods, pod};
    use super::*;

    #[track_caller]
    fn check_wait(spec: &str, failures: i64, seconds: Option<i64>) {
        let until = Backoff { failures, last: Some(at(100)) }.until(&job(spec, ""), at(100));
        assert_eq!(until, seconds.map(|seconds| at(100 + seconds)), "{failures} failures");
    }

    #[test]
    fn the_wait_doubles_from_10_seconds_to_10_minutes() {
        for (failures, seconds) in [(1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (8, 600), (i64::MAX, 600)]
        {
            check_wait("", failures, Some(seconds));
        }
        check_wait("", 0, None);
        assert_eq!(
            Backoff { failures: 2, last: Some(at(0)) }.until(&job("", ""), at(20)),
            None,
            "it is over"
        );
        assert_eq!(Backoff { failures: 3, last: None }.until(&job("", ""), at(0)), None);
    }

    #[test]
    fn annotations_set_the_first_and_the_longest_wait() {
        let mut job = job("", "");
        job.backoff_seconds = (Some(1), Some(5));
        let wait = |failures| Backoff { failures, last: Some(at(0)) }.until(&job, at(0));
        assert_eq!([wait(1), wait(3), wait(4)], [Some(at(1)), Some(at(4)), Some(at(5))]);
        job.backoff_seconds = (Some(900), None);
        assert_eq!(Backoff { failures: 1, last: Some(at(0)) }.until(&job, at(0)), Some(at(600)));
    }

    #[track_caller]
    fn check(
        record: Option<Record>,
        ends: &[(i64, bool)],
        failed: i64,
        expected: (i64, Option<i64>),
    ) -> Record {
        let pods = ends.iter().enumerate().map(|(n, (second, succeeded))| {
            let pod = pod(&format!("p-{n}")).ended_at(*second);
            if *succeeded { pod.succeeded() } else { pod.failed() }
        });
        let (backoff, record) =
            failures(&job("", ""), record, &job_pods(&job("", ""), pods), failed, at(1000));
        assert_eq!((backoff.failures, backoff.last), (expected.0, expected.1.map(at)), "{ends:?}");
        record
    }

    #[test]
    fn failures_after_the_last_success_count() {
        check(None, &[], 0, (0, None));
        check(None, &[(1, false), (5, false)], 2, (2, Some(5)));
        check(None, &[(1, false), (3, true), (5, false)], 2, (1, Some(5)));
        check(None, &[(1, false), (3, true)], 1, (0, None));
        check(None, &[(5000, false)], 1, (1, Some(1000)));
    }

    #[test]
    fn a_pod_that_was_deleted_without_its_finalizer_has_not_failed() {
        let job = job("", "");
        let check = |pod: PodOf, failures: i64| {
            let pods = job_pods(&job, [pod.ended_at(5)]);
            assert_eq!(super::failures(&job, None, &pods, failures, at(9)).0.failures, failures);
        };
        check(pod("p").deleting().untracked(), 0);
        check(pod("p").deleting(), 1);
        check(pod("p").failed().untracked(), 1);
        check(pod("p").failed().deleting().untracked(), 0);
    }

    #[test]
    fn failures_whose_pods_are_gone_still_count_until_a_success() {
        let record = check(None, &[(1, false)], 1, (1, Some(1)));
        let record = check(Some(record), &[(20, false)], 2, (2, Some(20)));
        let record = check(Some(record), &[], 2, (2, Some(20)));
        let record = check(Some(record), &[(60, false)], 3, (3, Some(60)));
        let record = check(Some(record), &[(60, false), (70, true)], 3, (0, None));
        check(Some(record), &[(80, false)], 4, (1, Some(80)));
    }

    #[test]
    fn a_failure_of_an_index_counts_also_once_completions_is_lower() {
        let job = job(r#""completionMode":"Indexed","completions":1"#, "");
        let pods =
            job_pods(&job, [0, 1].map(|index| pod(&format!("p-{index}")).index(index).failed().ended_at(5)));
        // After a restart; and where the failure policy ignores the other failure, so that the number does not tell of it.
        for failed in [2, 1] {
            assert_eq!(failures(&job, None, &pods, failed, at(9)).0.failures, 2);
        }
    }

    #[test]
    fn a_restart_counts_the_failed_pods_that_exist() {
        check(None, &[(1, false), (20, false), (60, false)], 10, (3, Some(60)));
    }

    #[test]
    fn a_sync_that_is_repeated_counts_no_failure_twice() {
        let record = check(None, &[(1, false)], 1, (1, Some(1)));
        let again = check(Some(record), &[(1, false)], 1, (1, Some(1)));
        assert_eq!(record, again);
    }
}
