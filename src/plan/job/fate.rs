//! When a Job succeeds or fails (upstream: the first part of `syncJob`).
//!
//! The fate is written first as an interim condition, `SuccessCriteriaMet` or `FailureTarget`, and never changes then.
//! `Complete` or `Failed` follow when no pod is left to count, or terminating.

use jiff::{SignedDuration, Timestamp};

use super::counting::Counting;
use super::pods::{JobPods, Owned};
use super::{Observed, failure_policy, success_policy};
use crate::model::condition::find;
use crate::model::job::FailureAction;
use crate::model::{Job, Phase};

/// The condition of a Job that has succeeded while pods are left.
pub const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";

/// The condition of a Job that has failed while pods are left.
pub const FAILURE_TARGET: &str = "FailureTarget";

/// The fate of a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fate {
    /// Whether it succeeds.
    pub is_success: bool,
    /// The reason of its conditions.
    pub reason: String,
    /// Their message.
    pub message: String,
    /// Whether the interim condition is written already.
    pub is_committed: bool,
}

impl Fate {
    fn success(reason: &str, message: impl Into<String>) -> Self {
        Fate { is_success: true, reason: reason.into(), message: message.into(), is_committed: false }
    }

    fn failure(reason: &str, message: impl Into<String>) -> Self {
        Fate { is_success: false, reason: reason.into(), message: message.into(), is_committed: false }
    }

    /// The type of the interim condition.
    pub fn interim(&self) -> &'static str {
        if self.is_success { SUCCESS_CRITERIA_MET } else { FAILURE_TARGET }
    }

    /// The type of the last condition.
    pub fn terminal(&self) -> &'static str {
        if self.is_success { "Complete" } else { "Failed" }
    }
}

/// The fate that is written already.
pub(super) fn committed(job: &Job) -> Option<Fate> {
    let of = |kind: &str, is_success| {
        let condition = find(&job.status.conditions, kind).filter(|condition| condition.is_true())?;
        let (reason, message) = (condition.reason.to_string(), condition.message.to_string());
        Some(Fate { is_success, reason, message, is_committed: true })
    };
    of(SUCCESS_CRITERIA_MET, true).or_else(|| of(FAILURE_TARGET, false))
}

/// The fate by what is observed, before pods are created or deleted.
pub(super) fn decide(observed: &Observed<'_>, counting: &Counting) -> Option<Fate> {
    let Observed { job, pods, now, .. } = observed;
    committed(job)
        .or_else(|| by_failure_policy(job, pods))
        .or_else(|| {
            let is_exceeded =
                counting.failed > i64::from(job.backoff_limit) || restarts_exceed_limit(job, pods);
            is_exceeded
                .then(|| Fate::failure("BackoffLimitExceeded", "Job has reached the specified backoff limit"))
        })
        .or_else(|| {
            deadline(job, *now)
                .filter(|deadline| deadline <= now)
                .map(|_| Fate::failure("DeadlineExceeded", "Job was active longer than specified deadline"))
        })
        .or_else(|| by_failed_indexes(job, counting))
        .or_else(|| {
            success_policy::met(job, &counting.completed_indexes)
                .map(|message| Fate::success("SuccessPolicy", message))
        })
}

/// Whether all completions are there and no pod is active: after the pods that are too many were deleted.
pub(super) fn is_complete(job: &Job, counting: &Counting, active: usize) -> Option<Fate> {
    let is_complete = active == 0
        && match job.completions {
            Some(completions) => counting.succeeded >= i64::from(completions),
            None => counting.succeeded > 0,
        };
    is_complete.then(|| Fate::success("CompletionsReached", "Reached expected number of succeeded pods"))
}

fn by_failure_policy(job: &Job, pods: &JobPods) -> Option<Fate> {
    // One that was deleted without its finalizer, as one too many or for a suspension, has not failed.
    let counts = |owned: &&Owned| owned.is_tracked || !owned.pod.meta.is_deleting();
    let matched = pods.failed().filter(counts).filter_map(|owned| failure_policy::matched(job, &owned.pod));
    let fails = matched.filter(|matched| matched.action == FailureAction::FailJob);
    fails.map(|matched| Fate::failure("PodFailurePolicy", matched.message)).next()
}

/// Whether containers that are restarted in place have used up the limit (upstream: `pastBackoffLimitOnFailure`).
fn restarts_exceed_limit(job: &Job, pods: &JobPods) -> bool {
    let lives = |phase| matches!(phase, Phase::Pending | Phase::Running);
    let restarts: i64 =
        pods.owned.iter().filter(|owned| lives(owned.pod.phase)).map(|owned| owned.restarts()).sum();
    job.restarts_in_place && restarts > 0 && restarts >= i64::from(job.backoff_limit)
}

/// When the Job exceeds `activeDeadlineSeconds`. Not while it is suspended, nor in the sync that resumes it: the time
/// starts anew then. A Job without a start begins now, so that one with 0 seconds gets no pod.
pub(super) fn deadline(job: &Job, now: Timestamp) -> Option<Timestamp> {
    let seconds = job.active_deadline_seconds?;
    if job.is_suspended || job.status.is_true("Suspended") {
        return None;
    }
    let start = job.status.start_time.unwrap_or(now);
    // Longer than any time that can be told is for ever.
    start.checked_add(SignedDuration::from_secs(seconds.max(0))).ok()
}

fn by_failed_indexes(job: &Job, counting: &Counting) -> Option<Fate> {
    let failed = counting.failed_indexes.as_ref()?.len();
    if job.max_failed_indexes.is_some_and(|max| failed > max) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(Fate::failure("MaxFailedIndexesExceeded", message));
    }
    let all = i64::from(failed) + i64::from(counting.completed_indexes.len());
    let is_over = failed > 0 && all >= i64::from(job.completions.unwrap_or(0));
    is_over.then(|| Fate::failure("FailedIndexes", "Job has failed indexes"))
}

#[cfg(test)]
mod tests {
    use super::super::counting;
    use super::super::fixture::{PodOf, at, job, observed, pod};
    use super::*;

    #[track_caller]
    fn check(spec: &str, status: &str, pods: impl IntoIterator<Item = PodOf>, second: i64, expected: &str) {
        let job = job(spec, status);
        let observed = observed(&job, pods, second);
        let fate = decide(&observed, &counting::count(&observed));
        assert_eq!(fate.map(|fate| fate.reason).unwrap_or_default(), expected, "{spec} {status}");
    }

    fn failed(count: usize) -> Vec<PodOf> {
        (0..count).map(|n| pod(&format!("p-{n}")).failed()).collect()
    }

    #[test]
    fn one_failure_more_than_the_limit_fails_the_job() {
        check(r#""backoffLimit":2"#, "", failed(2), 9, "");
        check(r#""backoffLimit":2"#, "", failed(3), 9, "BackoffLimitExceeded");
        check(r#""backoffLimit":2"#, r#""failed":2"#, failed(1), 9, "BackoffLimitExceeded");
        check(r#""backoffLimit":0"#, "", failed(0), 9, "");
        let uncounted = r#""failed":1,"uncountedTerminatedPods":{"failed":["u-p-0","u-gone"]}"#;
        check(r#""backoffLimit":3"#, uncounted, failed(1), 9, "");
        check(r#""backoffLimit":2"#, uncounted, failed(1), 9, "BackoffLimitExceeded");
    }

    #[test]
    fn restarts_in_place_count_for_pods_that_live() {
        let on_failure = |limit: i32| {
            format!(
                r#""backoffLimit":{limit},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"restartPolicy":"OnFailure"}}}}"#
            )
        };
        let restarted = |count: i32| {
            let container = |count: i32| format!(r#"[{{"name":"c","restartCount":{count}}}]"#);
            pod("p").status(&format!(
                r#""containerStatuses":{},"initContainerStatuses":{}"#,
                container(count - 1),
                container(1)
            ))
        };
        check(&on_failure(3), "", [restarted(2)], 9, "");
        check(&on_failure(3), "", [restarted(3)], 9, "BackoffLimitExceeded");
        check(&on_failure(3), "", [restarted(3).succeeded()], 9, "");
        check(&on_failure(0), "", [restarted(1)], 9, "BackoffLimitExceeded");
        check(&on_failure(0), "", [pod("p")], 9, "");
        check(r#""backoffLimit":3"#, "", [restarted(30)], 9, "");
    }

    #[test]
    fn the_deadline_counts_from_the_start_and_not_while_suspended() {
        let started = format!(r#""startTime":"{}""#, at(100));
        check(r#""activeDeadlineSeconds":30"#, &started, [], 129, "");
        check(r#""activeDeadlineSeconds":30"#, &started, [], 130, "DeadlineExceeded");
        check(r#""activeDeadlineSeconds":30,"suspend":true"#, &started, [], 500, "");
        let resumed = format!(r#"{started},"conditions":[{{"type":"Suspended","status":"True"}}]"#);
        check(r#""activeDeadlineSeconds":30"#, &resumed, [], 500, "");
        check(r#""activeDeadlineSeconds":30"#, "", [], 500, "");
        check(r#""activeDeadlineSeconds":0"#, "", [], 500, "DeadlineExceeded");
        check(r#""activeDeadlineSeconds":9223372036854775807"#, &started, [], 500, "");
    }

    #[test]
    fn a_failed_pod_that_a_rule_matches_fails_the_job_before_the_limit_does() {
        let policy =
            r#""podFailurePolicy":{"rules":[{"action":"FailJob","onPodConditions":[{"type":"X"}]}]}"#;
        let matched = |phase: &str| {
            let pod = pod("p").untracked().status(r#""conditions":[{"type":"X","status":"True"}]"#);
            if phase == "Failed" { pod.failed() } else { pod.deleting() }
        };
        check(
            &format!(r#""backoffLimit":0,{policy}"#),
            "",
            [pod("q").failed(), matched("Failed")],
            9,
            "PodFailurePolicy",
        );
        check(policy, "", [matched("Running")], 9, "");
        let suspended = matched("Failed").deleting();
        check(policy, "", [suspended], 9, "");
    }

    #[test]
    fn failed_indexes_fail_the_job_when_too_many_or_when_all_indexes_ended() {
        let spec = |max: &str| {
            format!(
                r#""completionMode":"Indexed","completions":4,"backoffLimitPerIndex":0,"backoffLimit":2147483647,"maxFailedIndexes":{max}"#
            )
        };
        check(&spec("1"), r#""failedIndexes":"0,1""#, [], 9, "MaxFailedIndexesExceeded");
        check(&spec("2"), r#""failedIndexes":"0,1""#, [], 9, "");
        check(&spec("null"), r#""failedIndexes":"0,1","completedIndexes":"2,3""#, [], 9, "FailedIndexes");
        check(&spec("0"), "", [pod("p").index(3).failed()], 9, "MaxFailedIndexesExceeded");
    }

    #[test]
    fn a_written_fate_stays_and_success_comes_first() {
        let condition =
            |kind: &str| format!(r#"{{"type":"{kind}","status":"True","reason":"R","message":"m"}}"#);
        let both =
            format!(r#""conditions":[{},{}]"#, condition("FailureTarget"), condition("SuccessCriteriaMet"));
        let job = job(r#""backoffLimit":0"#, &both);
        let observed = observed(&job, failed(9), 9);
        let fate = decide(&observed, &counting::count(&observed)).unwrap();
        assert_eq!(
            (fate.is_success, fate.is_committed, &*fate.reason, &*fate.message),
            (true, true, "R", "m")
        );
    }

    #[test]
    fn a_success_policy_decides_after_all_failures() {
        let spec =
            r#""completionMode":"Indexed","completions":4,"successPolicy":{"rules":[{"succeededCount":1}]}"#;
        check(spec, "", [pod("p").index(2).succeeded()], 9, "SuccessPolicy");
        check(spec, r#""failed":7"#, [pod("p").index(2).succeeded()], 9, "BackoffLimitExceeded");
        check(spec, "", [pod("p").index(4).succeeded()], 9, "");
    }
}
