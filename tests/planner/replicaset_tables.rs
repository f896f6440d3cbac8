//! The situations and values of upstream's tables on the pods of a ReplicaSet, put to the planner.
//!
//! | upstream | here |
//! |---|---|
//! | `TestSyncReplicaSetDoesNothing`, `TestDeleteFinalStateUnknown`, `TestControllerBurstReplicas` | [`the_difference_is_created_or_deleted_and_at_most_500_pods_at_a_time`] |
//! | `TestSlowStartBatch` | [`slow_start_batches_per_number_of_accepted_creations`]; with a real quota in `tests/cluster/replica_set_races.rs` |
//! | `TestGetPodsToDelete` | [`pods_chosen_for_deletion`] |
//! | `TestSortingActivePods`, `TestSortingActivePodsWithRanks` | [`deletion_order_of_two_pods`], [`pods_that_differ_only_in_their_uid_have_a_total_order`] |
//! | `TestGetPodsRankedByRelatedPodsOnSameNode` | [`pods_counted_on_the_same_node`]; [`pods_chosen_for_deletion`] |
//! | `TestCalculateStatus` | [`replica_set_status_counts`] |
//! | `TestCalculateStatusConditions` | [`when_replica_failure_is_reported`] |
//! | `TestSetCondition`, `TestRemoveCondition`, `TestGetCondition` | `deployment_status_tables.rs`: one code serves both |
//! | `TestReplicaSetAvailabilityCheck`, `FindMinNextPodAvailabilityCheck` | [`requeue_for_the_next_pod_to_become_available`] |
//! | `TestClaimPods` | [`ownership_of_a_pod`] |
//! | `TestUpdateSelectorControllerRef`, `TestUpdateLabelsRemoveControllerRef`, `TestPatchExtraPodsThenDelete`, `TestDoNotPatchPodWithOtherControlRef` | [`pods_are_released_and_adopted_before_others_are_created_or_deleted`] |
//! | `TestDoNotAdoptOrCreateIfBeingDeleted`, `TestDoNotAdoptOrCreateIfBeingDeletedRace` | [`a_replica_set_that_is_being_deleted_does_not_change_its_pods`] |
//! | `TestDeletionTimestamp` | [`a_terminating_pod_does_not_count`]; what is waited for: `tests/cluster/replica_set_races.rs` |
//! | `TestPodControllerLookup`, `TestUpdatePods`, `TestWatchControllers`, `TestWatchPods`, `TestRelatedPodsLookup`, `TestPatchPodFails`, `TestRSSyncExpectations`, `TestDeleteControllerAndExpectations`, `TestExpectationsOnRecreate`, `TestControllerUpdateRequeue`, `TestControllerUpdateStatusWithFailure`, `TestOverlappingRSs`, `TestSyncReplicaSetDormancy` | `tests/cluster/replica_set_races.rs` |
//! | `TestKeyFunc`, `TestGetPodKeys` | none: keys are values of a type here, not strings to be split |
//!
//! Where Windlass gives another answer, on purpose:
//! - Pods whose ready times, or whose ages, fall into one logarithmic bucket go on to the next
//!   criterion; upstream decides by UID at once, and is no order therefore.
//! - `getPodsToDelete` does not sort when all pods are deleted; here the lowest-ranked pod is always deleted first,
//!   so that a deletion cut short has taken the right ones.
//! - Pods that fail as soon as they are made are replaced one by one, after a growing wait
//!   (`failed_pods.rs`).
//! - A message of `ReplicaFailure` under the same reason is brought up to date; upstream keeps the first.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use windlass::model::Pod;
use windlass::plan::replicaset::slow_start::slow_start_batches;
use windlass::plan::replicaset::status::Failure;
use windlass::plan::replicaset::{BURST, Plan, Write, deletion_order};
use windlass_planner_testkit::objects::{PodBuilder, ReplicaSetBuilder, ago, bare_replica_set, pod};

const MONTH: i64 = 30 * 24 * 3600;
const HOUR: i64 = 3600;

fn running(name: &str) -> PodBuilder {
    pod(name).on("n").ready(600)
}

fn many(count: usize) -> Vec<PodBuilder> {
    (0..count).map(|n| running(&format!("p{n}"))).collect()
}

/// The plan in words: `release a`, `adopt b`, `create 2`, `delete c d`.
fn words(plan: &Plan) -> Vec<String> {
    let word = |write: &Write| match write {
        Write::Adopt(pod) => format!("adopt {}", pod.meta.key.name),
        Write::Release(pod) => format!("release {}", pod.meta.key.name),
        Write::Create { count, .. } => format!("create {count}"),
        Write::DeleteFailed(pods) => {
            let names: Vec<&str> = pods.iter().map(|pod| &*pod.meta.key.name).collect();
            format!("delete failed {}", names.join(" "))
        }
        Write::Delete(pods) => {
            let names: Vec<&str> = pods.iter().map(|pod| &*pod.meta.key.name).collect();
            format!("delete {}", names.join(" "))
        }
    };
    plan.writes.iter().map(word).collect()
}

#[track_caller]
pub fn check(what: &str, replica_set: ReplicaSetBuilder, pods: &[PodBuilder], expected: &[&str]) {
    assert_eq!(words(&replica_set.plan(pods)), expected, "{what}");
}

#[test]
fn the_difference_is_created_or_deleted_and_at_most_500_pods_at_a_time() {
    check("enough", bare_replica_set(2), &many(2), &[]);
    check("none", bare_replica_set(2), &[], &["create 2"]);
    check("too few", bare_replica_set(30), &many(12), &["create 18"]);
    check("too many", bare_replica_set(0), &[running("only")], &["delete only"]);
    assert_eq!(BURST, 500);
    check("far too few", bare_replica_set(1200), &[], &["create 500"]);
    let deleted = bare_replica_set(3).plan(&many(900));
    assert!(matches!(&deleted.writes[..], [Write::Delete(pods)] if pods.len() == 500));
}

#[test]
fn slow_start_batches_per_number_of_accepted_creations() {
    // Wanted, what the server takes; then the calls, and how many of them succeed.
    for (count, taken, calls, made) in [(10, 0, 1, 0), (10, 10, 10, 10), (10, 5, 7, 5)] {
        let (mut called, mut succeeded) = (0, 0);
        for batch in slow_start_batches(count) {
            called += batch;
            succeeded = called.min(taken);
            if called > taken {
                break;
            }
        }
        assert_eq!((called, succeeded), (calls, made), "{taken} of {count}");
    }
}

#[track_caller]
fn check_order(what: &str, pods: &[PodBuilder], siblings: &[PodBuilder], expected: &[&str]) {
    let pods: Vec<Arc<Pod>> = pods.iter().map(PodBuilder::build).collect();
    let siblings: Vec<Arc<Pod>> = siblings.iter().map(PodBuilder::build).collect();
    for turn in 0..pods.len().max(1) {
        let mut turned: Vec<&Arc<Pod>> = pods.iter().collect();
        turned.rotate_left(turn);
        let gone = deletion_order::first_to_delete(&turned, Some(&siblings), expected.len(), ago(0));
        let names: Vec<&str> = gone.iter().map(|pod| &*pod.meta.key.name).collect();
        assert_eq!(names, expected, "{what}");
    }
}

#[test]
fn pods_chosen_for_deletion() {
    let unscheduled = pod("unscheduled");
    let pending = pod("pending").on("n");
    let unready = pod("unready").on("n").phase("Running");
    let (on_1, on_2) = (pod("on-1").on("n1").ready(600), pod("on-2").on("n2").ready(600));
    let all = [on_1.clone(), on_2.clone(), unready.clone(), pending.clone(), unscheduled.clone()];
    check_order("none", &[], &[], &[]);
    check_order("both", &[unready.clone(), on_1.clone()], &[], &["unready", "on-1"]);
    check_order("unready before ready", &[on_1.clone(), unready.clone()], &[], &["unready"]);
    check_order("unscheduled before pending", &[pending.clone(), unscheduled.clone()], &[], &["unscheduled"]);
    check_order("pending before running", &[unready.clone(), pending.clone()], &[], &["pending"]);
    check_order("three of five", &all, &[], &["unscheduled", "pending", "unready"]);
    let other = pod("unready-2").on("n").phase("Running");
    check_order("two unready", &[on_1.clone(), unready, other], &[], &["unready", "unready-2"]);
    let sibling = pod("sibling").of("uid-old").on("n2").ready(600);
    check_order("the node with a sibling", &[on_1, on_2], &[sibling], &["on-2"]);
}

#[test]
fn deletion_order_of_two_pods() {
    let running = |name: &str, ready: i64, created: i64| pod(name).on("n").ready(ready).created(created);
    let unscheduled = pod("a-unscheduled");
    let pending = pod("b-pending").on("n");
    let unknown = pod("c-unknown").on("n").phase("Unknown");
    let unready = pod("d-unready").on("n").phase("Running");
    let undated = pod("e-undated").on("n").ready_since_nobody_knows_when();
    let now = running("f-now", 0, 0);
    let then = running("g-then", MONTH, MONTH);
    let restarting = running("h-restarting", 0, 0).restarts(9001);
    let old_but_ready_now = running("i-old-ready-now", 0, MONTH);
    let cheap = running("z-cheap", 0, MONTH).cost("10");
    let dear = running("a-dear", 0, MONTH).cost("100");
    // The pod deleted first, the pod kept; the number of siblings on the node of each.
    let rows = [
        (&unscheduled, &pending, 1, 2),
        (&unscheduled, &pending, 2, 1),
        (&pending, &unknown, 1, 2),
        (&unknown, &unready, 1, 2),
        (&unready, &undated, 1, 1),
        (&undated, &now, 1, 1),
        (&now, &undated, 2, 1),
        (&now, &then, 1, 1),
        (&now, &then, 2, 1),
        (&restarting, &now, 1, 1),
        (&now, &restarting, 2, 1),
        (&now, &old_but_ready_now, 1, 1),
        (&old_but_ready_now, &now, 2, 1),
        (&cheap, &dear, 2, 1),
        (&cheap, &dear, 1, 2),
        (&running("z", 2 * HOUR, MONTH), &running("a", 5 * HOUR, MONTH), 1, 1),
    ];
    for (nth, (first, second, crowd_of_first, crowd_of_second)) in rows.into_iter().enumerate() {
        let place = |pod: &PodBuilder, node: &str| {
            if pod.build().node().is_some() { pod.clone().on(node) } else { pod.clone() }
        };
        let (first, second) = (place(first, "n1"), place(second, "n2"));
        let sibling = |node: &str, n| pod(&format!("sibling-{node}-{n}")).of("uid-old").on(node);
        let siblings: Vec<PodBuilder> = (1..crowd_of_first)
            .map(|n| sibling("n1", n))
            .chain((1..crowd_of_second).map(|n| sibling("n2", n)))
            .collect();
        let name = first.build().meta.key.name.to_string();
        check_order(&format!("row {nth}"), &[second, first], &siblings, &[&name]);
    }
}

#[test]
fn pods_that_differ_only_in_their_uid_have_a_total_order() {
    // Five and eight hours are one bucket of the logarithm, two hours are another.
    let ready = |name: &str, hours: i64| pod(name).on("n").ready(hours * HOUR).created(MONTH);
    check_order("ready", &[ready("b", 8), ready("a", 5), ready("c", 5)], &[], &["a", "b", "c"]);
    let pending = |name: &str, hours: i64| pod(name).created(hours * HOUR);
    check_order("age", &[pending("b", 8), pending("a", 5), pending("c", 8)], &[], &["a", "b", "c"]);
    check_order("two hours go first", &[ready("a", 5), ready("b", 2)], &[], &["b"]);
    // Where upstream stops at the bucket, the next criterion decides.
    check_order("restarts", &[ready("a", 5), ready("b", 8).restarts(1)], &[], &["b"]);
}

#[test]
fn pods_counted_on_the_same_node() {
    let here = [pod("a").on("n1").ready(600), pod("b").on("n2").ready(600), pod("c").on("n1").ready(600)];
    check_order("its own pods too", &here, &[], &["a", "c", "b"]);
    let two = [pod("x").of("uid-old").on("n2").ready(600), pod("y").of("uid-old").on("n2").ready(600)];
    check_order("two siblings outweigh one pod", &here, &two, &["b", "a", "c"]);
    let unscheduled = [pod("x").of("uid-old"), pod("y").of("uid-old")];
    check_order("siblings without a node do not count", &here, &unscheduled, &["a", "c", "b"]);
}

/// Replicas, fully labelled, ready, available, terminating.
#[track_caller]
fn check_counts(what: &str, replica_set: &ReplicaSetBuilder, pods: &[PodBuilder], expected: [i32; 5]) {
    let status = replica_set.settled(pods, None).status;
    let terminating = status.terminating.unwrap();
    let counts = [status.replicas, status.fully_labeled, status.ready, status.available, terminating];
    assert_eq!(counts, expected, "{what}");
}

#[test]
fn replica_set_status_counts() {
    let plain = bare_replica_set(2);
    let labelled = bare_replica_set(2).template_label("type", "production");
    let full = |name: &str| running(name).label("type", "production");
    check_counts("one", &plain, &[running("a")], [1, 1, 1, 1, 0]);
    check_counts("one with all labels", &labelled, &[full("a")], [1, 1, 1, 1, 0]);
    check_counts("one without", &labelled, &[running("a")], [1, 0, 1, 1, 0]);
    check_counts("two with", &labelled, &[full("a"), full("b")], [2, 2, 2, 2, 0]);
    check_counts("two without", &labelled, &[running("a"), running("b")], [2, 0, 2, 2, 0]);
    check_counts("one of each", &labelled, &[running("a"), full("b")], [2, 1, 2, 2, 0]);
    check_counts("not ready", &labelled, &[pod("a").label("type", "production")], [1, 1, 0, 0, 0]);
    check_counts(
        "not for long enough",
        &bare_replica_set(1).min_ready(3600),
        &[running("a")],
        [1, 1, 1, 0, 0],
    );
    check_counts(
        "ready without a transition time",
        &bare_replica_set(1).min_ready(1),
        &[undated("a")],
        [1, 1, 1, 0, 0],
    );
    check_counts("and no wait", &bare_replica_set(1), &[undated("a")], [1, 1, 1, 1, 0]);
    let ignored = running("b").deleting();
    check_counts("terminating", &plain, &[running("a"), ignored.clone()], [1, 1, 1, 1, 1]);
    check_counts("ended", &plain, &[running("a").phase("Failed"), running("b").phase("Succeeded")], [0; 5]);
    check_counts("terminal and being deleted", &plain, &[ignored.clone().phase("Failed")], [0; 5]);
    let stranger = ignored.clone().of("uid-other");
    let unselected = ignored.label("app", "api");
    check_counts("others being deleted", &plain, &[stranger, unselected], [0; 5]);
}

fn undated(name: &str) -> PodBuilder {
    pod(name).on("n").ready_since_nobody_knows_when()
}

#[test]
fn when_replica_failure_is_reported() {
    let failed = |reason: &'static str| Failure { reason, message: "no".into() };
    let earlier = json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "old",
                          "lastTransitionTime": ago(HOUR).to_string()}]);
    let said = |replica_set: ReplicaSetBuilder, failure: Option<Failure>| {
        let status = replica_set.settled(&many(1), failure.as_ref()).status;
        let text = |condition: &windlass::model::Condition| {
            let since = condition.last_transition.unwrap();
            let since = ago(0).duration_since(since).as_secs();
            format!(
                "{} {} {} {} {since}",
                condition.kind, condition.status, condition.reason, condition.message
            )
        };
        status.conditions.iter().map(text).collect::<Vec<String>>()
    };
    assert_eq!(said(bare_replica_set(2), None), [""; 0]);
    assert_eq!(
        said(bare_replica_set(2), Some(failed("FailedCreate"))),
        ["ReplicaFailure True FailedCreate no 0"]
    );
    assert_eq!(
        said(bare_replica_set(0), Some(failed("FailedDelete"))),
        ["ReplicaFailure True FailedDelete no 0"]
    );
    let was = || bare_replica_set(10).conditions(earlier.clone());
    assert_eq!(said(was(), None), [""; 0]);
    assert_eq!(said(was(), Some(failed("FailedCreate"))), ["ReplicaFailure True FailedCreate no 3600"]);
    let foreign =
        json!([{"type": "ImagePullBackOff", "status": "True", "lastTransitionTime": ago(9).to_string()}]);
    assert_eq!(
        said(bare_replica_set(1).conditions(foreign), None),
        [""; 0],
        "it stays, and is no concern of ours"
    );
}

#[test]
fn a_refused_deletion_is_reported_in_upstreams_words() {
    let message = |write: Write| Failure::of(&write, "pods \"p\" is forbidden".into()).message;
    assert_eq!(message(Write::Delete(Vec::new())), "unable to delete pods: pods \"p\" is forbidden");
    let creation = Write::Create { count: 1, names: Vec::new() };
    assert_eq!(message(creation), "pods \"p\" is forbidden", "that of a creation as it is");
}

#[test]
fn requeue_for_the_next_pod_to_become_available() {
    let at =
        |replica_set: ReplicaSetBuilder, pods: &[PodBuilder]| replica_set.settled(pods, None).requeue_after;
    let ready = |name: &str, seconds: i64| pod(name).on("n").ready(seconds);
    let s = |seconds| Some(Duration::from_secs(seconds));
    assert_eq!(at(bare_replica_set(1).min_ready(30), &[]), None);
    assert_eq!(at(bare_replica_set(1), &[ready("a", 0)]), None, "nothing to wait for");
    assert_eq!(
        at(bare_replica_set(1).min_ready(30), &[pod("a").on("n")]),
        None,
        "its readiness will be an event"
    );
    assert_eq!(at(bare_replica_set(1).min_ready(30), &[ready("a", 10)]), s(20));
    assert_eq!(at(bare_replica_set(1).min_ready(30), &[ready("a", 30)]), None);
    assert_eq!(at(bare_replica_set(1).min_ready(30), &[ready("a", 29), ready("b", 40)]), s(1));
    assert_eq!(
        at(bare_replica_set(3).min_ready(30), &[ready("a", 5), ready("b", 20), ready("c", 1)]),
        s(10),
        "the first"
    );
    assert_eq!(
        at(bare_replica_set(1).min_ready(30), &[ready("a", -5)]),
        s(35),
        "a kubelet's clock that is ahead"
    );
    assert_eq!(
        at(bare_replica_set(1).min_ready(30), &[undated("a")]),
        None,
        "no time will make it available"
    );
    let ignored = ready("b", 20).deleting();
    assert_eq!(
        at(bare_replica_set(3).min_ready(30), &[ready("a", 5), ignored]),
        s(25),
        "not for a terminating pod"
    );
}

#[test]
fn ownership_of_a_pod() {
    let other = |name: &str| running(name).label("app", "api");
    check("orphan", bare_replica_set(1), &[running("a").orphan()], &["adopt a"]);
    check("ours", bare_replica_set(1), &[running("a")], &[]);
    check("another's", bare_replica_set(1), &[running("a").of("uid-other")], &["create 1"]);
    check("orphan, not selected", bare_replica_set(1), &[other("a").orphan()], &["create 1"]);
    check("ours and selected no longer", bare_replica_set(1), &[other("a")], &["release a", "create 1"]);
    check("orphan, being deleted", bare_replica_set(1), &[running("a").orphan().deleting()], &["create 1"]);
    check("owned, being deleted", bare_replica_set(1), &[other("a").deleting()], &["create 1"]);
    check(
        "orphan, terminal",
        bare_replica_set(1),
        &[running("a").orphan().phase("Succeeded")],
        &["create 1"],
    );
    // Of a ReplicaSet that was recreated under the same name.
    check("the predecessor's", bare_replica_set(1), &[running("a").of("uid-web-0")], &["create 1"]);
    let everything = bare_replica_set(1).selecting(json!({}));
    check("an empty selector", everything, &[running("a"), running("b"), running("c").orphan()], &[]);
}

#[test]
fn pods_are_released_and_adopted_before_others_are_created_or_deleted() {
    let orphan = |name: &str| running(name).orphan();
    check(
        "one too many",
        bare_replica_set(2),
        &[orphan("a"), orphan("b"), orphan("c")],
        &["adopt a", "adopt b", "adopt c", "delete a"],
    );
    check("one too few", bare_replica_set(3), &[orphan("a"), running("b")], &["adopt a", "create 1"]);
    let strayed = running("a").label("app", "api");
    check(
        "two strays",
        bare_replica_set(2),
        &[strayed.clone(), running("b").label("app", "api")],
        &["release a", "release b", "create 2"],
    );
    check(
        "a released pod is replaced by an orphan",
        bare_replica_set(1),
        &[strayed, orphan("b")],
        &["release a", "adopt b"],
    );
    check("another's", bare_replica_set(2), &[running("a").of("uid-other")], &["create 2"]);
    // The selector was changed: pods that it no longer selects are released.
    let narrower =
        bare_replica_set(2).selecting(json!({"app": "web", "tier": "front"})).template_label("tier", "front");
    check("a new selector", narrower, &many(2), &["release p0", "release p1", "create 2"]);
}

#[test]
fn a_replica_set_that_is_being_deleted_does_not_change_its_pods() {
    let situations: [&[PodBuilder]; 5] = [
        &[],
        &[running("a").orphan()],
        &[running("a").label("app", "api")],
        &[running("a"), running("b"), running("c")],
        &[running("a"), running("b"), running("c"), running("d").orphan()],
    ];
    for pods in situations {
        check("the cache knows", bare_replica_set(2).deleting(), pods, &[]);
        // A live read because of an orphan has shown that the ReplicaSet is being deleted.
        if pods.iter().any(|pod| pod.build().meta.controller.is_none()) {
            check("only the server knows", bare_replica_set(2).going_behind_the_caches_back(), pods, &[]);
        }
    }
    // It is still reported on.
    check_counts("", &bare_replica_set(2).deleting(), &many(2), [2, 2, 2, 2, 0]);
}

#[test]
fn a_terminating_pod_does_not_count() {
    check("replaced at once", bare_replica_set(2), &[running("a"), running("b").deleting()], &["create 1"]);
    check("not deleted again", bare_replica_set(1), &[running("a"), running("b").deleting()], &[]);
    check(
        "another pod is terminating",
        bare_replica_set(0),
        &[running("a"), running("b").deleting()],
        &["delete a"],
    );
}

#[test]
fn a_template_that_the_selector_does_not_match_creates_no_pods() {
    let labels: Value = json!({"app": "api"});
    check("", bare_replica_set(2).selecting(labels), &[], &[]);
}
