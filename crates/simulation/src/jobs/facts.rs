//! The meaning of the objects of a Job: indexes, policies and limits.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use crate::engine::objects::{self, controller, is_deleting, is_live, list, number, text, uid};

/// The name of the Job.
pub const NAME: &str = "work";

/// The finalizer by which pods are counted.
pub const TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// The key of the index of a pod: a label and an annotation.
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// The UID of the Job that controls a pod, or "".
pub fn owner(pod: &Value) -> &str {
    let of_job = |reference: &&Value| reference["kind"] == "Job" && reference["apiVersion"] == "batch/v1";
    controller(pod).filter(of_job).map_or("", |reference| text(reference, "/uid"))
}

/// Whether a pod has the finalizer.
pub fn is_tracked(pod: &Value) -> bool {
    list(&pod["metadata"]["finalizers"]).iter().any(|finalizer| finalizer == TRACKING)
}

/// Whether a pod has ended.
pub fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Failed" | "Succeeded")
}

/// Whether a pod has succeeded.
pub fn has_succeeded(pod: &Value) -> bool {
    pod["status"]["phase"] == "Succeeded"
}

/// Whether a pod is being deleted and has not ended.
pub fn is_terminating(pod: &Value) -> bool {
    is_deleting(pod) && !has_ended(pod)
}

/// Whether only pods that have ended are replaced.
pub fn replaces_failed_only(job: &Value) -> bool {
    job["spec"]["podReplacementPolicy"] == "Failed" || !job["spec"]["podFailurePolicy"].is_null()
}

/// Whether a pod has failed.
pub fn has_failed(job: &Value, pod: &Value) -> bool {
    match text(pod, "/status/phase") {
        "Failed" => true,
        "Succeeded" => false,
        _ => is_deleting(pod) && !replaces_failed_only(job),
    }
}

/// Whether the Job has indexes.
pub fn is_indexed(job: &Value) -> bool {
    job["spec"]["completionMode"] == "Indexed"
}

/// The index of a pod, if the Job has it.
pub fn index(job: &Value, pod: &Value) -> Option<i64> {
    let index: i64 = pod["metadata"]["annotations"][INDEX].as_str()?.parse().ok()?;
    (is_indexed(job) && (0..number(job, "/spec/completions")).contains(&index)).then_some(index)
}

/// How often the index of a pod had failed before it: failures that count, and ignored ones.
pub fn failures_before(pod: &Value) -> (i64, i64) {
    let of = |key: &str| {
        let text =
            pod["metadata"]["annotations"][format!("batch.kubernetes.io/job-index-{key}-count")].as_str();
        text.and_then(|text| text.parse().ok()).unwrap_or(0)
    };
    (of("failure"), of("ignored-failure"))
}

/// The indexes of a list such as `1,3-5`.
pub fn indexes(list: &str) -> BTreeSet<i64> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// The only list for these indexes.
pub fn canonical(indexes: &BTreeSet<i64>) -> String {
    let mut parts: Vec<(i64, i64)> = Vec::new();
    for &index in indexes {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => parts.push((index, index)),
        }
    }
    let text = |(first, last): (i64, i64)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    };
    parts.into_iter().map(text).collect::<Vec<_>>().join(",")
}

/// A list of indexes of the status.
pub fn status_indexes(job: &Value, field: &str) -> BTreeSet<i64> {
    indexes(text(&job["status"], &format!("/{field}")))
}

/// The UIDs of both lists, those that succeeded and those that failed.
pub fn uncounted(job: &Value) -> [Vec<&str>; 2] {
    ["succeeded", "failed"].map(|of| {
        list(&job["status"]["uncountedTerminatedPods"][of]).iter().filter_map(Value::as_str).collect()
    })
}

/// A condition that is True.
pub fn condition<'a>(job: &'a Value, kind: &str) -> Option<&'a Value> {
    objects::condition(job, kind).filter(|condition| condition["status"] == "True")
}

/// Whether the Job is finished.
pub fn is_finished(job: &Value) -> bool {
    condition(job, "Complete").or(condition(job, "Failed")).is_some()
}

/// The action of the failure policy on a failed pod, or "Count".
pub fn action<'a>(job: &'a Value, pod: &Value) -> &'a str {
    let codes =
        || list(&pod["status"]["containerStatuses"]).iter().map(|c| number(c, "/state/terminated/exitCode"));
    let matches = |rule: &&Value| {
        let wanted = list(&rule["onExitCodes"]["values"]);
        let by_code = codes().any(|code| code != 0 && wanted.iter().any(|value| *value == code));
        let by_condition = list(&rule["onPodConditions"]).iter().any(|pattern| {
            let is_like = |c: &Value| c["type"] == pattern["type"] && c["status"] == pattern["status"];
            list(&pod["status"]["conditions"]).iter().any(is_like)
        });
        by_code || by_condition
    };
    let rules = list(&job["spec"]["podFailurePolicy"]["rules"]);
    rules.iter().find(matches).map_or("Count", |rule| text(rule, "/action"))
}

/// A time of an object.
pub fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer).parse().ok()
}

/// The seconds that pass after so many failures.
pub fn backoff(failures: i64) -> i64 {
    (0..failures - 1).fold(10, |wait: i64, _| (wait * 2).min(600))
}

/// The account of a Job's pods, from the objects alone.
#[derive(Clone, Debug)]
pub struct Account {
    /// Pods that are neither ended nor being deleted.
    pub active: i64,
    /// Pods that are being deleted and have not ended.
    pub terminating: i64,
    /// Pods that succeeded, counted or not; of an Indexed Job indexes.
    pub succeeded: i64,
    /// Pods that failed, counted or not, but not ignored ones.
    pub failed: i64,
    /// The indexes that succeeded.
    pub completed_indexes: BTreeSet<i64>,
    /// The indexes that failed.
    pub failed_indexes: BTreeSet<i64>,
}

/// The account.
pub fn account<'a>(job: &Value, pods: impl Iterator<Item = &'a Value> + Clone) -> Account {
    let [succeeded, failed] = uncounted(job);
    let is_new = |pod: &&&Value| {
        let counts = !is_indexed(job) || index(job, pod).is_some();
        is_tracked(pod) && counts && !succeeded.contains(&uid(pod)) && !failed.contains(&uid(pod))
    };
    let pods = pods.filter(|pod| owner(pod) == uid(job)).collect::<Vec<_>>();
    let count = |filter: &dyn Fn(&Value) -> bool| pods.iter().filter(|pod| filter(pod)).count() as i64;
    let completions = number(job, "/spec/completions");
    let mut completed_indexes = status_indexes(job, "completedIndexes");
    completed_indexes.extend(
        pods.iter()
            .filter(|pod| is_tracked(pod) && has_succeeded(pod) && !failed.contains(&uid(pod)))
            .filter_map(|pod| index(job, pod)),
    );
    completed_indexes.retain(|index| *index < completions);
    let mut failed_indexes = status_indexes(job, "failedIndexes");
    if let Some(limit) = job["spec"]["backoffLimitPerIndex"].as_i64() {
        let fails = |pod: &&&Value| match action(job, pod) {
            "FailIndex" => true,
            "Ignore" => false,
            _ => failures_before(pod).0 >= limit,
        };
        let failed = pods.iter().filter(|pod| is_tracked(pod) && has_failed(job, pod)).filter(fails);
        failed_indexes.extend(failed.filter_map(|pod| index(job, pod)));
    }
    let is_failure = |pod: &&&Value| has_failed(job, pod) && action(job, pod) != "Ignore";
    let new_failed = pods.iter().filter(is_new).filter(is_failure).count() as i64;
    let new_succeeded = pods.iter().filter(is_new).filter(|pod| has_succeeded(pod)).count() as i64;
    Account {
        active: count(&is_live),
        terminating: count(&is_terminating),
        succeeded: match is_indexed(job) {
            true => completed_indexes.len() as i64,
            false => number(job, "/status/succeeded") + succeeded.len() as i64 + new_succeeded,
        },
        failed: number(job, "/status/failed") + failed.len() as i64 + new_failed,
        completed_indexes,
        failed_indexes,
    }
}

/// How many pods should be active.
pub fn wanted(job: &Value, account: &Account) -> i64 {
    let parallelism = number(job, "/spec/parallelism");
    match job["spec"]["completions"].as_i64() {
        None if account.succeeded > 0 => account.active,
        None => parallelism,
        Some(completions) => (completions - account.succeeded).clamp(0, parallelism),
    }
}

/// Whether the Job may now get a fate for this reason.
pub fn may_be(job: &Value, pods: &[Value], now: Timestamp, reason: &str) -> bool {
    let account = account(job, pods.iter());
    let completions = number(job, "/spec/completions");
    let of_job = || pods.iter().filter(|pod| owner(pod) == uid(job));
    match reason {
        "BackoffLimitExceeded" => account.failed > number(job, "/spec/backoffLimit"),
        "DeadlineExceeded" => {
            let start = time(job, "/status/startTime");
            let deadline = job["spec"]["activeDeadlineSeconds"].as_i64();
            let passed =
                |start: Timestamp| deadline.is_some_and(|d| now.as_second() - start.as_second() >= d);
            job["spec"]["suspend"] != true && start.is_some_and(passed)
        }
        "PodFailurePolicy" => of_job().any(|pod| has_failed(job, pod) && action(job, pod) == "FailJob"),
        "MaxFailedIndexesExceeded" => job["spec"]["maxFailedIndexes"]
            .as_i64()
            .is_some_and(|most| account.failed_indexes.len() as i64 > most),
        "FailedIndexes" => {
            let ended = account.failed_indexes.union(&account.completed_indexes).count() as i64;
            !account.failed_indexes.is_empty() && ended >= completions
        }
        "SuccessPolicy" => list(&job["spec"]["successPolicy"]["rules"]).iter().any(|rule| {
            let listed = rule["succeededIndexes"].as_str().map(indexes);
            let met = match &listed {
                Some(listed) => account.completed_indexes.intersection(listed).count(),
                None => account.completed_indexes.len(),
            };
            let all = listed.map_or(usize::MAX, |listed| listed.len());
            met >= rule["succeededCount"].as_u64().map_or(all, |count| count as usize)
        }),
        "CompletionsReached" => match job["spec"]["completions"].as_i64() {
            None => account.succeeded > 0,
            Some(completions) => account.succeeded >= completions,
        },
        _ => false,
    }
}

/// All reasons of a fate but the completions, whose pods end by themselves.
pub const REASONS: [&str; 6] = [
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "PodFailurePolicy",
    "MaxFailedIndexesExceeded",
    "FailedIndexes",
    "SuccessPolicy",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_list_for_a_set_of_indexes() {
        for list in ["", "1", "1,2", "0-2", "1,3-5,7,8"] {
            assert_eq!(canonical(&indexes(list)), list);
        }
        assert_eq!(canonical(&indexes("1-2")), "1,2");
    }

    #[test]
    fn the_wait_doubles_up_to_ten_minutes() {
        assert_eq!([1, 2, 3, 6, 7, 99].map(backoff), [10, 20, 40, 320, 600, 600]);
    }
}
