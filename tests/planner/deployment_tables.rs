//! The situations and numbers of upstream's tables on sizes and budgets, put to the planner.
//!
//! | upstream | here |
//! |---|---|
//! | `TestScale`, `TestGetReplicaSetFraction`, `IsSaturated` | scaling: the first five tests |
//! | `TestGetNonNegativeInt32FromAnnotation` | [`an_invalid_size_annotation_is_no_scaling_event`] |
//! | `reconcileNewReplicaSet`, `TestNewRSNewReplicas` | [`the_new_replica_set_is_scaled_up_to_the_surge`] |
//! | `reconcileOldReplicaSets`, `cleanupUnhealthyReplicas`, `scaleDownOldReplicaSetsForRollingUpdate` | [`old_replica_sets_are_scaled_down_as_far_as_availability_allows`] |
//! | `TestResolveFenceposts`, `TestMaxUnavailable`, `TestMinAvailable` | budgets |
//! | `TestOldPodsRunning`, `TestScaleDownOldReplicaSets` | Recreate |
//! | `cleanupDeployment`, `cleanupDeploymentOrder` | history |
//!
//! Where Windlass gives another answer, on purpose:
//! - Upstream's tables cover one step at a time. A plan of Windlass has them all: what is unhealthy and what is
//!   above the minimum is deleted, and the new ReplicaSet is scaled up, in one reconcile. So the rows give
//!   the size of every ReplicaSet, and rows in which upstream covers one half only are completed.
//! - Availability counts only up to the size of a ReplicaSet, so that a status from before a resize frees no budget.
//! - A new ReplicaSet above `spec.replicas` is scaled down to it; upstream's `NewRSNewReplicas` alone leaves it, and
//!   its caller shrinks it.
//! - An absent `maxSurge` or `maxUnavailable` is the API's default of 25 %, as in any stored object;
//!   upstream's function takes it for nothing.

use serde_json::{Value, json};
use windlass::model::{Deployment, Interner, POD_TEMPLATE_HASH, Pod, Record};
use windlass::plan::deployment::{StatusScope, Write, history};
use windlass_planner_testkit::objects::{
    DeploymentBuilder, ReplicaSetBuilder, decode, deployment, replica_set,
};
use windlass_planner_testkit::situation::Situation;

#[track_caller]
fn check_sizes(what: &str, start: DeploymentBuilder, replica_sets: &[ReplicaSetBuilder], expected: &[i32]) {
    assert_eq!(Situation::new(start, replica_sets).sizes_after(), expected, "{what}");
}

/// `web` at the image of the youngest ReplicaSet, with a budget in pods.
fn web(replicas: i32, surge: i32, unavailable: i32, image: &str) -> DeploymentBuilder {
    deployment("web").replicas(replicas).surge(surge).unavailable(unavailable).image(image)
}

#[test]
fn a_single_replica_set_is_scaled_to_the_desired_replicas() {
    for (from, to) in [(10, 12), (10, 5), (10, 0)] {
        check_sizes("", web(to, 0, 1, "v1"), &[replica_set("v1", from).sized(from, from)], &[to]);
    }
}

#[test]
fn a_change_of_replicas_is_distributed_proportionally() {
    // Replicas before and after; sizes before and after, oldest first, the last one the new ReplicaSet.
    let rows: [(i32, i32, &[i32], &[i32]); 9] = [
        (5, 10, &[3, 2], &[6, 4]),
        (5, 3, &[3, 2], &[2, 1]),
        (9, 4, &[1, 8], &[0, 4]),
        (7, 10, &[2, 3, 2], &[3, 4, 3]),
        (13, 8, &[3, 8, 2], &[2, 5, 1]),
        // The rounding remainder is added to the youngest of equals, and subtracted from the oldest.
        (3, 4, &[1, 1, 1], &[1, 1, 2]),
        (3, 2, &[1, 1, 1], &[0, 1, 1]),
        (6, 0, &[1, 2, 3], &[0, 0, 0]),
        // Nothing is left of the old sizes to be in proportion to: the new ReplicaSet gets all replicas.
        (0, 6, &[0, 0, 0], &[0, 0, 6]),
    ];
    for (before, after, from, to) in rows {
        let replica_sets: Vec<ReplicaSetBuilder> = from
            .iter()
            .enumerate()
            .map(|(at, &size)| replica_set(&format!("v{}", at + 1), size).sized(before, before))
            .collect();
        let image = format!("v{}", from.len());
        check_sizes(&format!("{before} -> {after}"), web(after, 0, 1, &image), &replica_sets, to);
    }
}

#[test]
fn surge_pods_a_missing_new_replica_set_and_a_failed_write_are_scaled_too() {
    let both = |a, b, replicas, most| {
        [replica_set("v1", a).sized(replicas, most), replica_set("v2", b).sized(replicas, most)]
    };
    check_sizes("surge", web(20, 2, 0, "v2"), &both(6, 6, 10, 12), &[11, 11]);
    check_sizes("surge and size", web(50, 6, 0, "v2"), &both(8, 5, 10, 13), &[34, 22]);
    check_sizes("no new ReplicaSet", web(5, 0, 1, "v3"), &both(2, 2, 4, 4), &[2, 3]);
    check_sizes("size and template", web(14, 0, 1, "v3"), &both(3, 7, 10, 10), &[4, 10]);
    // From 3 to 5: the write to v3 got through and the one to v2 did not.
    let replica_sets = [
        replica_set("v1", 1).sized(5, 5),
        replica_set("v2", 1).sized(3, 3),
        replica_set("v3", 2).sized(5, 5),
    ];
    check_sizes("half done", web(5, 0, 1, "v3"), &replica_sets, &[1, 2, 2]);
    let broken =
        [replica_set("v1", 1).available(0).sized(2, 3), replica_set("v2", 2).available(0).sized(2, 3)];
    check_sizes("a full but broken new ReplicaSet", web(2, 1, 1, "v2"), &broken, &[1, 2]);
}

#[test]
fn a_share_is_a_fraction_of_replicas_plus_surge() {
    // Replicas and surge; the most there could be before; sizes before and after.
    for (replicas, surge, before, from, to) in [
        (120, 0, 100, [50, 50], [60, 60]),
        (120, 10, 110, [50, 60], [59, 71]),
        (10, 0, 12, [6, 6], [5, 5]),
        (100, 10, 130, [50, 80], [42, 68]),
        (0, 0, 10, [10, 1], [0, 0]),
    ] {
        let replica_sets =
            [replica_set("v1", from[0]).sized(1, before), replica_set("v2", from[1]).sized(1, before)];
        check_sizes(&format!("{from:?} of {before}"), web(replicas, surge, 1, "v2"), &replica_sets, &to);
    }
    // The annotation was removed or set to 0: the pods in the status are used instead.
    for most in [None, Some("0")] {
        let replica_sets = ["v1", "v2"].map(|tag| {
            let replica_set =
                replica_set(tag, 50).annotation("deployment.kubernetes.io/desired-replicas", "100");
            most.map_or(replica_set.clone(), |most| {
                replica_set.annotation("deployment.kubernetes.io/max-replicas", most)
            })
        });
        let mut object = web(120, 0, 1, "v2").json();
        object["status"] = json!({"replicas": 100});
        assert_eq!(Situation::of(&object, &replica_sets).sizes_after(), [60, 60], "{most:?}");
        // Without pods there are no shares either, and the largest gets the whole remainder.
        object["status"] = json!({"replicas": 0});
        assert_eq!(Situation::of(&object, &replica_sets).sizes_after(), [50, 70], "{most:?}");
    }
}

#[test]
fn with_a_complete_new_replica_set_scaling_brings_the_old_ones_to_zero() {
    let old = replica_set("v1", 2).sized(5, 6);
    check_sizes("saturated", web(3, 1, 0, "v2"), &[old.clone(), replica_set("v2", 3).sized(3, 4)], &[0, 3]);
    let not_yet = replica_set("v2", 3).available(2).sized(3, 4);
    check_sizes("not yet", web(3, 1, 0, "v2"), &[old, not_yet], &[1, 3]);
}

#[test]
fn an_invalid_size_annotation_is_no_scaling_event() {
    for (text, is_count) in [
        ("", false),
        ("invalid", false),
        ("-1", false),
        ("0", true),
        ("13", true),
        ("2147483647", true),
        ("2147483648", false),
        ("4294967296", false),
    ] {
        let old = replica_set("v1", 3).annotation("deployment.kubernetes.io/desired-replicas", text);
        let plan = Situation::new(web(3, 1, 0, "v2"), &[old]).plan();
        assert_eq!(plan.status_scope == StatusScope::Held, is_count, "{text:?}");
    }
}

#[test]
fn the_new_replica_set_is_scaled_up_to_the_surge() {
    for (what, start, old, new, expected) in [
        (
            "no surge: by the replicas that the old ReplicaSet loses",
            web(10, 0, 0, "v2"),
            replica_set("v1", 10),
            replica_set("v2", 0),
            [9, 1],
        ),
        ("two of surge", web(10, 2, 0, "v2"), replica_set("v1", 10), replica_set("v2", 0), [10, 2]),
        (
            "two of surge and five missing",
            web(10, 2, 0, "v2"),
            replica_set("v1", 5),
            replica_set("v2", 0),
            [5, 7],
        ),
        (
            "the surge is used up",
            web(10, 2, 0, "v2"),
            replica_set("v1", 10),
            replica_set("v2", 2).available(0),
            [10, 2],
        ),
        (
            "more than desired",
            web(10, 2, 0, "v2"),
            replica_set("v1", 2),
            replica_set("v2", 11).available(0),
            [2, 10],
        ),
        (
            "more than desired, all healthy",
            web(10, 2, 0, "v2"),
            replica_set("v1", 2),
            replica_set("v2", 11),
            [0, 10],
        ),
        (
            "never above the desired replicas",
            web(6, 10, 1, "v2"),
            replica_set("v1", 5),
            replica_set("v2", 2).available(0),
            [5, 6],
        ),
        (
            "above it to begin with",
            web(1, 1, 1, "v2"),
            replica_set("v1", 5),
            replica_set("v2", 5).available(0),
            [0, 1],
        ),
    ] {
        check_sizes(what, start, &[old, new], &expected);
    }
}

#[test]
fn old_replica_sets_are_scaled_down_as_far_as_availability_allows() {
    // Unavailable at most; old size and available; new size and available; sizes after.
    for (unavailable, old, new, expected) in [
        (0, (10, 10), (0, 0), [9, 1]),
        (2, (10, 10), (0, 0), [8, 2]),
        // Unhealthy pods are deleted first, without loss of availability, up to the budget.
        (2, (10, 8), (0, 0), [8, 2]),
        (2, (10, 9), (0, 0), [8, 2]),
        (1, (10, 8), (0, 0), [9, 1]),
        (2, (10, 1), (0, 0), [8, 2]),
        // Two unhealthy ones, and one of the others.
        (3, (10, 8), (0, 0), [7, 3]),
        // None is unhealthy, three may be unavailable.
        (3, (10, 10), (0, 0), [7, 3]),
        // Unhealthy pods of the new ReplicaSet use up the budget.
        (2, (8, 8), (2, 0), [8, 2]),
        (1, (10, 8), (1, 0), [9, 1]),
        // A ReplicaSet of size 0 has no available pods, whatever its status says.
        (2, (0, 10), (0, 0), [0, 10]),
    ] {
        let replica_sets =
            [replica_set("v1", old.0).available(old.1), replica_set("v2", new.0).available(new.1)];
        check_sizes(
            &format!("{unavailable}: {old:?} {new:?}"),
            web(10, 0, unavailable, "v2"),
            &replica_sets,
            &expected,
        );
    }
    // The whole surge is in use and maxUnavailable is 0: no pod is deleted, not even an unhealthy one.
    let replica_sets = [replica_set("v1", 10).available(8), replica_set("v2", 2).available(0)];
    check_sizes("no budget", web(10, 2, 0, "v2"), &replica_sets, &[10, 2]);
}

/// `web` with these two fields, either of which may be absent.
fn with_budget(replicas: i32, surge: Option<Value>, unavailable: Option<Value>) -> Value {
    let mut object = deployment("web").replicas(replicas).json();
    let mut rolling = json!({});
    surge.into_iter().for_each(|surge| rolling["maxSurge"] = surge);
    unavailable.into_iter().for_each(|unavailable| rolling["maxUnavailable"] = unavailable);
    object["spec"]["strategy"]["rollingUpdate"] = rolling;
    object
}

#[test]
fn surge_rounds_up_unavailable_rounds_down_and_they_are_never_both_zero() {
    let percent = |p: &str| Some(json!(p));
    for (replicas, surge, unavailable, expected) in [
        (0, percent("0%"), percent("0%"), (0, 1)),
        (10, percent("39%"), percent("39%"), (4, 3)),
        (10, Some(json!(0)), percent("39%"), (0, 3)),
        (10, percent("39%"), Some(json!(0)), (4, 0)),
        (10, Some(json!(0)), Some(json!(0)), (0, 1)),
        (10, None, percent("39%"), (3, 3)),
        (10, percent("39%"), None, (4, 2)),
        (10, None, None, (3, 2)),
    ] {
        let web: Deployment = decode(&with_budget(replicas, surge.clone(), unavailable.clone()));
        assert_eq!(web.budget(), expected, "{replicas} {surge:?} {unavailable:?}");
    }
    for (surge, unavailable) in [("oops", "39%"), ("55%", "urg")] {
        let object = with_budget(10, percent(surge), percent(unavailable)).to_string();
        assert!(Deployment::decode(&object, &mut Interner::default()).is_err(), "{surge} {unavailable}");
    }
}

#[test]
fn max_unavailable_is_at_most_the_replicas() {
    for (replicas, unavailable, missing) in [
        (10, json!(5), 5),
        (10, json!(10), 10),
        (5, json!(10), 5),
        (0, json!(10), 0),
        (10, json!("50%"), 5),
        (10, json!("60%"), 6),
        (10, json!("100%"), 10),
        (5, json!("100%"), 5),
    ] {
        let web: Deployment = decode(&with_budget(replicas, Some(json!(1)), Some(unavailable.clone())));
        assert_eq!(web.budget().1, missing, "{replicas} {unavailable}");
    }
    let web: Deployment = decode(&deployment("web").replicas(10).recreate().json());
    assert_eq!(web.budget(), (0, 0));
}

#[test]
fn recreate_scales_old_replica_sets_to_zero_and_waits_for_their_pods() {
    let web = || deployment("web").replicas(3).recreate().image("v2");
    check_sizes(
        "the old ReplicaSet is scaled to zero",
        web(),
        &[replica_set("v1", 3), replica_set("v2", 1)],
        &[0, 1],
    );
    check_sizes("no old ReplicaSet", web(), &[replica_set("v2", 1)], &[3]);
    check_sizes("nothing left", web(), &[replica_set("v1", 0), replica_set("v2", 0)], &[0, 3]);
    check_sizes("pods in the status", web(), &[replica_set("v1", 0).has(1), replica_set("v2", 0)], &[0, 0]);
    let situation = Situation::new(web(), &[replica_set("v1", 0), replica_set("v2", 0)]);
    for (running, writes) in [(0, true), (1, false), (2, false)] {
        let mut observed = situation.observed();
        observed.running_pods = [(situation.replica_sets[0].meta.uid.clone(), running)].into();
        let grows = windlass::plan::deployment::plan(&observed)
            .writes
            .iter()
            .any(|write| matches!(write, Write::Change(_, change) if change.replicas == Some(3)));
        assert_eq!(grows, writes, "{running} pods run");
    }
}

#[test]
fn recreate_waits_for_all_old_pods_except_terminal_ones() {
    for (phase, runs) in
        [("Pending", true), ("Running", true), ("Unknown", true), ("Succeeded", false), ("Failed", false)]
    {
        let pod: Pod = decode(&json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "1"},
            "spec": {}, "status": {"phase": phase}}));
        assert_eq!(!pod.is_terminal(), runs, "{phase}");
    }
}

#[track_caller]
fn check_deleted(limit: i32, old: &[ReplicaSetBuilder], expected: &[&str]) {
    let all = [old, &[replica_set("v9", 1)]].concat();
    check_deleted_of(limit, &all, expected);
}

/// The same without a ReplicaSet for the current template, unless there is one among `replica_sets`.
#[track_caller]
fn check_deleted_of(limit: i32, replica_sets: &[ReplicaSetBuilder], expected: &[&str]) {
    let situation = Situation::new(deployment("web").image("v9").history(limit), replica_sets);
    let observed = situation.observed();
    let deleted: Vec<String> =
        history::plan(&situation.deployment, observed.replica_sets(), &observed.policy)
            .into_iter()
            .map(|write| match write {
                Write::Delete(replica_set) => replica_set.meta.key.name.to_string(),
                other => panic!("{other:?}"),
            })
            .collect();
    assert_eq!(deleted, expected);
}

#[test]
fn only_replica_sets_without_desired_and_actual_pods_are_trimmed_from_the_history() {
    let empty = |tag| replica_set(tag, 0);
    check_deleted(1, &[empty("v1"), empty("v2"), empty("v3")], &["web-v1", "web-v2"]);
    let replica_sets = [empty("v1"), empty("v2").has(1), replica_set("v3", 1).has(0), replica_set("v4", 1)];
    check_deleted(0, &replica_sets, &["web-v1"]);
    check_deleted(0, &[empty("v1"), empty("v2")], &["web-v1", "web-v2"]);
    check_deleted(0, &[replica_set("v1", 1), replica_set("v2", 1)], &[]);
    check_deleted(0, &[empty("v1").deleting()], &[]);
    check_deleted(i32::MAX, &[empty("v1"), empty("v2"), empty("v3")], &[]);
}

/// A Deployment of no replicas under Recreate waited for terminating pods, lost its only ReplicaSet meanwhile, and
/// began with revision 1 again.
#[test]
fn the_latest_revision_is_kept_until_there_is_a_newer_one() {
    let at = |tag, revision| replica_set(tag, 0).revision(revision);
    check_deleted_of(0, &[at("v1", "7")], &[]);
    check_deleted_of(0, &[at("v1", "7"), at("v2", "6")], &["web-v2"]);
    check_deleted_of(1, &[at("v1", "5"), at("v2", "6"), at("v3", "7")], &["web-v1"]);
    check_deleted_of(0, &[at("v1", "7"), at("v9", "8")], &["web-v1"]);
}

#[test]
fn the_lowest_revisions_are_trimmed_first() {
    let at = |tag, revision| replica_set(tag, 0).revision(revision);
    check_deleted(1, &[at("v1", "1"), at("v2", "2")], &["web-v1"]);
    check_deleted(1, &[at("v1", "2"), at("v2", "1")], &["web-v2"]);
    check_deleted(1, &[at("v1", "1"), replica_set("v2", 0)], &["web-v2"]);
    check_deleted(1, &[replica_set("v1", 0), at("v2", "2")], &["web-v1"]);
    // One with pods keeps its place in the count.
    let busy = |tag, revision| replica_set(tag, 1).revision(revision);
    check_deleted(1, &[busy("v1", "1"), at("v2", "2"), at("v3", "3")], &["web-v2"]);
    check_deleted(1, &[busy("v1", "1"), busy("v2", "2"), at("v3", "3")], &[]);
    check_deleted(2, &[at("v1", "3"), at("v2", "1"), at("v3", "4"), at("v4", "2")], &["web-v2", "web-v4"]);
}

/// Without the verdict the template would be rolled back again and again.
#[test]
fn three_replica_sets_that_have_failed_for_the_current_one_are_kept_whatever_the_limit() {
    let failed = |tag: &str, revision: &str, to: &str| {
        let state = format!(r#"{{"hash":"{tag}","failed":{{"cause":"no pod is ready","to":"{to}"}}}}"#);
        let empty = replica_set(tag, 0).revision(revision).label(POD_TEMPLATE_HASH, tag);
        empty.annotation("windlass.dev/rollout-state", &state)
    };
    let new = || replica_set("v9", 1).revision("9").label(POD_TEMPLATE_HASH, "v9");
    check_deleted_of(0, &[failed("v1", "1", "v9"), failed("v2", "2", "v8"), new()], &["web-v2"]);
    let failures = ["1", "2", "3", "4", "5"].map(|n| failed(&format!("v{n}"), n, "v9"));
    check_deleted_of(0, &[&failures[..], &[new()]].concat(), &["web-v1", "web-v2"]);
}

#[test]
fn the_mark_of_a_scaling_that_is_over_changes_no_size_and_goes_with_the_next_write() {
    let mark = "deployment.kubernetes.io/replicaset-replicas-before-scale";
    // 5 replicas and a surge of 1, scaled to 10: as without the mark.
    let marked = [replica_set("v1", 3).sized(5, 6), replica_set("v2", 2).sized(5, 6)];
    let sizes = |sets: &[ReplicaSetBuilder]| Situation::new(web(10, 1, 0, "v2"), sets).sizes_after();
    let with_mark = marked.clone().map(|replica_set| replica_set.annotation(mark, "1"));
    assert_eq!(sizes(&with_mark), sizes(&marked));
    let rolls = [replica_set("v1", 3).sized(3, 4), replica_set("v2", 0).annotation(mark, "1")];
    let writes = Situation::new(web(3, 1, 0, "v2"), &rolls).plan().writes;
    let [Write::Change(_, change)] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!((change.replicas, &change.removed[..]), (Some(1), &[mark][..]));
}

#[test]
fn failed_pods_are_kept_no_longer_than_the_deployment_says_so() {
    let key = "windlass.dev/keep-failed-pods";
    let kept = replica_set("v1", 3).sized(3, 4).annotation(key, "3");
    let removed = |start: DeploymentBuilder| {
        let writes = Situation::new(start, std::slice::from_ref(&kept)).plan().writes;
        writes.iter().any(|write| matches!(write, Write::Change(_, change) if change.removed == [key]))
    };
    assert!(removed(web(3, 1, 0, "v1")));
    assert!(!removed(web(3, 1, 0, "v1").annotation(key, "3")));
}
