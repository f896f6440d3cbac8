//! Decisions about a Job as a whole.

use std::collections::BTreeMap;

use super::fixture::{at, job, job_with, observed, pod};
use super::*;

const DELETING: &str = r#","deletionTimestamp":"2027-01-15T08:00:00Z","finalizers":["foregroundDeletion"]"#;

/// The names of the pods whose finalizer goes.
fn untracked(plan: &Plan) -> Vec<String> {
    let pods = plan.writes.iter().flat_map(|write| match write {
        Write::Untrack(pods) => pods.as_slice(),
        _ => &[],
    });
    pods.map(|pod| pod.meta.key.name.to_string()).collect()
}

/// The names of the pods that are deleted.
fn deleted(plan: &Plan) -> Vec<String> {
    let deletions = plan.writes.iter().flat_map(|write| match write {
        Write::Delete(deletions) => deletions.as_slice(),
        _ => &[],
    });
    deletions.map(|deletion| deletion.pod.meta.key.name.to_string()).collect()
}

fn deletes(plan: &Plan) -> bool {
    plan.writes.iter().any(|write| matches!(write, Write::Delete(_)))
}

#[test]
fn a_job_that_selects_every_pod_says_so_and_is_left_alone() {
    let job = job(r#""selector":{},"manualSelector":true"#, "");
    let plan = plan(&observed(&job, [pod("p").failed()], 9));
    assert!(plan.writes.is_empty());
    assert_eq!(plan.note.unwrap().reason, "SelectingAll");
}

#[test]
fn a_job_that_is_deleted_lets_its_pods_go_whatever_its_selector_says_of_them() {
    for selector in [r#"{}"#, r#"{"matchLabels":{"a":"other"}}"#] {
        let job = job_with(DELETING, &format!(r#""selector":{selector}"#), "");
        let plan = plan(&observed(&job, [pod("p").failed()], 9));
        assert_eq!(untracked(&plan), ["p"], "{selector}");
        assert_eq!(plan.note, None);
    }
}

#[test]
fn the_workers_of_a_queue_stay_after_the_first_success_although_fewer_are_wanted() {
    let workers = || [pod("done").succeeded(), pod("p"), pod("q")];
    let queue = job(r#""parallelism":1"#, "");
    assert!(!deletes(&plan(&observed(&queue, workers(), 9))));
    let fixed = job(r#""parallelism":1,"completions":5"#, "");
    assert!(deletes(&plan(&observed(&fixed, workers(), 9))));
}

#[test]
fn an_index_that_waits_lets_the_next_one_run() {
    let indexed = r#""completionMode":"Indexed","completions":3,"parallelism":1,"backoffLimitPerIndex":2"#;
    let job = job(indexed, "");
    let plan = plan(&observed(&job, [pod("p").index(0).failed().ended_at(8)], 9));
    let created = plan.writes.iter().find_map(|write| match write {
        Write::Create(pods) => Some(pods.iter().map(|pod| pod.index).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(created, Some(vec![Some(1)]));
}

#[test]
fn an_index_keeps_its_failures_when_its_replacement_is_deleted_and_has_not_failed() {
    let indexed = r#""completionMode":"Indexed","completions":2,"parallelism":1,"backoffLimitPerIndex":3"#;
    let job = job(indexed, "");
    let failures = |pod: fixture::PodOf| {
        let plan = plan(&observed(&job, [pod.index(0).failed().untracked().ended_at(1)], 60));
        plan.writes.iter().find_map(|write| match write {
            Write::Create(pods) => pods[0].failures_before.filter(|_| pods[0].index == Some(0)),
            _ => None,
        })
    };
    assert_eq!(failures(pod("p")), Some((1, 0)));
    assert_eq!(failures(pod("p").after_failures(1, 1)), Some((2, 1)));
    assert_eq!(failures(pod("p").deleting()), Some((0, 0)), "it was the replacement");
}

#[test]
fn no_pod_is_deleted_for_a_fate_that_is_not_written() {
    let policy = r#""completionMode":"Indexed","completions":3,"parallelism":3,"backoffLimit":0,
        "successPolicy":{"rules":[{"succeededCount":1}]}"#;
    let pods = || [pod("a").index(0).succeeded(), pod("b").index(1), pod("c").index(2)];
    let first = job(policy, "");
    let decided = plan(&observed(&first, pods(), 9));
    assert!(!deletes(&decided));
    let Report::All(account) = &decided.report else { panic!("nothing is counted") };
    assert!(account.fate.as_ref().is_some_and(|fate| fate.is_success));
    let written = job(policy, r#""conditions":[{"type":"SuccessCriteriaMet","status":"True"}]"#);
    assert!(deletes(&plan(&observed(&written, pods(), 9))));
}

#[test]
fn the_cheapest_pod_goes_first_when_parallelism_falls() {
    let job = job(r#""parallelism":2,"completions":9"#, "");
    let of_cost = |name: &str, cost: i32| {
        let mut pod = pod(name).build();
        pod.deletion_cost = cost;
        Arc::new(pod)
    };
    let owned = vec![of_cost("a", 0), of_cost("b", -5), of_cost("c", 7)];
    let observed = Observed { pods: JobPods::of(&job, owned, Vec::new()), ..observed(&job, [], 9) };
    assert_eq!(deleted(&plan(&observed)), ["b"]);
}

#[test]
fn a_second_pod_of_an_index_that_has_succeeded_is_deleted() {
    let job =
        job(r#""completionMode":"Indexed","completions":2,"parallelism":2"#, r#""completedIndexes":"0""#);
    let plan = plan(&observed(&job, [pod("a").index(0), pod("b").index(1)], 9));
    assert_eq!(deleted(&plan), ["a"]);
}

#[test]
fn a_wait_that_is_no_number_of_seconds_is_told_of() {
    let with = |value: &str| {
        let metadata = format!(r#","annotations":{{"windlass.dev/backoff-max-seconds":"{value}"}}"#);
        let job = job_with(&metadata, "", "");
        plan(&observed(&job, [pod("a")], 9)).note.map(|note| (note.reason, note.message))
    };
    assert_eq!(with("30"), None);
    for value in ["0", "-1", "1m", ""] {
        let (reason, message) = with(value).unwrap();
        assert_eq!(reason, "InvalidAnnotation");
        assert!(message.contains("windlass.dev/backoff-max-seconds"), "{message}");
    }
}

#[test]
fn an_end_in_the_future_is_when_it_was_first_seen() {
    let job = job("", "");
    let mut seen = BTreeMap::new();
    let mut record = None;
    let mut backoff = |pods: &[(&str, i64, bool)], now| {
        let pods = pods.iter().map(|(name, end, succeeded)| {
            let pod = pod(name).ended_at(*end);
            if *succeeded { pod.succeeded() } else { pod.failed() }
        });
        let mut pods = fixture::job_pods(&job, pods);
        pods.correct_ends(&mut seen, at(now));
        let failed = i64::try_from(pods.failed().count()).unwrap();
        let (backoff, known) = backoff::failures(&job, record, &pods, failed, at(now));
        record = Some(known);
        (backoff.failures, backoff.last)
    };
    let (a, b) = (("a", 5000, false), ("b", 5001, false));
    // It does not prolong the wait.
    assert_eq!(backoff(&[a], 100), (1, Some(at(100))));
    assert_eq!(backoff(&[a, b], 110), (2, Some(at(110))));
    assert_eq!(backoff(&[a, b], 150), (2, Some(at(110))));
    // It is before a later success, whatever fails next, and when its time has come.
    let good = ("c", 160, true);
    assert_eq!(backoff(&[a, b, good], 161), (0, None));
    let failure = ("d", 170, false);
    assert_eq!(backoff(&[a, b, good, failure], 170), (1, Some(at(170))));
    assert_eq!(backoff(&[a, b, good, failure], 6000), (1, Some(at(170))));
    // A success of such a node does not switch off what fails later.
    let (success, later) = (("e", 9000, true), ("f", 6200, false));
    assert_eq!(backoff(&[a, b, good, failure, success], 6100), (0, None));
    assert_eq!(backoff(&[a, b, good, failure, success, later], 6200), (1, Some(at(6200))));
    assert_eq!(backoff(&[a, b, good, failure, success, later], 9100), (1, Some(at(6200))));
}
