//! `windlass.dev/keep-failed-pods`: which failed pods a ReplicaSet deletes.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use windlass::model::POD_TEMPLATE_HASH;
use windlass::plan::replicaset::{Plan, Write};
use windlass_planner_testkit::objects::{PodBuilder, ReplicaSetBuilder, bare_replica_set, pod, replica_set};

use crate::replicaset_tables::check;

const KEY: &str = "windlass.dev/keep-failed-pods";
const HOUR: i64 = 3600;

fn failed(name: &str, seconds: i64) -> PodBuilder {
    pod(name).on("n").created(seconds).phase("Failed")
}

/// Pods `p0`, `p1`, … that failed so many seconds ago.
fn failures(seconds: &[i64]) -> Vec<PodBuilder> {
    seconds.iter().enumerate().map(|(nth, seconds)| failed(&format!("p{nth}"), *seconds)).collect()
}

/// A complete ReplicaSet with such a value.
fn keeping(value: &str, mut pods: Vec<PodBuilder>) -> (ReplicaSetBuilder, Vec<PodBuilder>) {
    pods.push(pod("runs").on("n").ready(600));
    (bare_replica_set(1).annotation(KEY, value), pods)
}

#[track_caller]
fn deletes(value: &str, seconds: &[i64], expected: &[&str]) {
    let (replica_set, pods) = keeping(value, failures(seconds));
    check(value, replica_set, &pods, expected);
}

#[test]
fn without_the_key_failed_pods_stay() {
    let pods = [failures(&[HOUR; 30]), vec![pod("runs").on("n").ready(600)]].concat();
    check("no key", bare_replica_set(1), &pods, &[]);
}

#[test]
fn the_newest_failed_pods_stay_and_the_oldest_are_deleted_first() {
    deletes("3", &[1000, 2000, 3000, 4000, 5000], &["delete failed p4 p3"]);
    deletes("3", &[1000, 2000, 3000], &[]);
    let many: Vec<i64> = (0..30).map(|nth| HOUR + nth).collect();
    deletes("2", &many, &["delete failed p29 p28 p27 p26 p25 p24 p23 p22 p21 p20"]);
}

#[test]
fn a_failed_pod_stays_for_its_time_and_the_next_sync_is_due_then() {
    deletes("3 for 1h", &[HOUR - 10, HOUR, HOUR + 10], &["delete failed p2 p1"]);
    let (replica_set, pods) = keeping("3 for 1h", failures(&[HOUR - 10, HOUR - 30]));
    assert_eq!(replica_set.plan(&pods).requeue_after, Some(Duration::from_secs(10)));
    let (replica_set, pods) = keeping("3", failures(&[HOUR]));
    assert_eq!(replica_set.plan(&pods).requeue_after, None);
}

#[test]
fn pods_that_succeeded_or_are_being_deleted_do_not_count() {
    let others = vec![
        pod("done").on("n").created(HOUR).phase("Succeeded"),
        failed("leaving", HOUR).deleting(),
        failed("a", HOUR),
        failed("b", 2 * HOUR),
    ];
    let (replica_set, pods) = keeping("1", others);
    check("one stays", replica_set, &pods, &["delete failed b"]);
}

#[test]
fn while_the_backoff_lasts_the_pods_that_it_is_computed_from_stay() {
    let every_160 = |count: i64| (0..count).map(|nth| 5 + 160 * nth).collect::<Vec<i64>>();
    let lacking = |seconds: &[i64]| bare_replica_set(1).annotation(KEY, "1").plan(&failures(seconds));
    assert!(lacking(&every_160(7)).writes.is_empty(), "the seven newest stay whatever the number");
    let plan = lacking(&every_160(9));
    assert_eq!(deleted(&plan), BTreeSet::from(["p7".to_owned(), "p8".to_owned()]));
    // Of 13 failed pods the seven newest are two rounds, and all of them five: without the others the wait would be shorter.
    let rounds = [&[10, 100, 100, 100, 100, 100, 100, 100, 100, 100][..], &[240, 260, 300]].concat();
    assert!(lacking(&rounds).writes.is_empty());
    // As many of the missing pods wait as have failed: twelve are missing, and twelve must be seen to have failed.
    let together = bare_replica_set(12).annotation(KEY, "1").plan(&failures(&[3; 14]));
    assert_eq!(deleted(&together).len(), 2, "{together:?}");
    assert!(!together.creates());
}

#[test]
fn the_pod_that_a_verdict_names_stays() {
    let state = |hash: &str| {
        format!(r#"{{"hash":"{hash}","failed":{{"cause":"p2: CrashLoopBackOff for 2m: exit code 1"}}}}"#)
    };
    let uid = replica_set("v1", 1).build().meta.uid.to_string();
    let plan = |state: &str| {
        let pods = failures(&[2 * HOUR, 3 * HOUR, 4 * HOUR]).into_iter().map(|pod| pod.of(&uid));
        let pods: Vec<PodBuilder> = pods.chain([pod("runs").of(&uid).on("n").ready(600)]).collect();
        let replica_set = replica_set("v1", 1).label(POD_TEMPLATE_HASH, "abc").annotation(KEY, "1");
        deleted(&replica_set.annotation("windlass.dev/rollout-state", state).plan(&pods))
    };
    assert_eq!(plan(&state("abc")), BTreeSet::from(["p1".to_owned()]));
    assert_eq!(plan(&state("copied")), BTreeSet::from(["p1".to_owned(), "p2".to_owned()]));
}

#[test]
fn a_value_that_cannot_be_read_keeps_all_and_a_bare_replica_set_says_so() {
    let (replica_set, pods) = keeping("none", failures(&[HOUR; 9]));
    let plan = replica_set.plan(&pods);
    assert!(plan.writes.is_empty());
    assert!(plan.policy_notes[0].message.contains(KEY), "{:?}", plan.policy_notes);
    let owned = replica_set_of_deployment("none").plan(&[]);
    assert!(owned.policy_notes.is_empty(), "its Deployment has the event");
}

fn replica_set_of_deployment(value: &str) -> ReplicaSetBuilder {
    replica_set("v1", 0).annotation(KEY, value)
}

fn deleted(plan: &Plan) -> BTreeSet<String> {
    let names = plan.writes.iter().filter_map(|write| match write {
        Write::DeleteFailed(pods) => Some(pods.iter().map(|pod| pod.meta.key.name.to_string())),
        _ => None,
    });
    names.flatten().collect()
}

fn created(plan: &Plan) -> usize {
    let counts = plan.writes.iter().map(|write| match write {
        Write::Create { count, .. } => *count,
        _ => 0,
    });
    counts.sum()
}

proptest! {
    /// The next pod is created neither sooner nor later, and no more pods are, because failed ones were deleted.
    #[test]
    fn no_deletion_of_a_failed_pod_changes_when_pods_are_created(
        size in 0..9i32, kept in 1..4usize, pods in prop::collection::vec((0..1500i64, 0..9u8), 0..30),
    ) {
        let pods: Vec<PodBuilder> = pods
            .into_iter()
            .enumerate()
            .map(|(nth, (seconds, kind))| {
                let name = format!("p{nth}");
                match kind {
                    0 => pod(&name).on("n").ready(seconds).created(seconds + 1),
                    1 => pod(&name).on("n").created(seconds),
                    _ => failed(&name, seconds),
                }
            })
            .collect();
        let gone = deleted(&bare_replica_set(size).annotation(KEY, &kept.to_string()).plan(&pods));
        let left: Vec<PodBuilder> =
            pods.iter().filter(|pod| !gone.contains(&*pod.build().meta.key.name)).cloned().collect();
        prop_assert!(left.len() + gone.len() == pods.len() && gone.len() <= 10);
        let (before, after) = (bare_replica_set(size).plan(&pods), bare_replica_set(size).plan(&left));
        prop_assert_eq!(created(&before), created(&after));
        prop_assert_eq!(before.requeue_after, after.requeue_after);
    }
}
