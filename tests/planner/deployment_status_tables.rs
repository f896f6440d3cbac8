//! The situations and numbers of upstream's tables on status, progress, roles and revisions.
//!
//! | upstream | here |
//! |---|---|
//! | `TestSyncRolloutStatus` | [`the_progressing_condition_per_situation`] |
//! | `TestDeploymentProgressing` | [`more_new_ready_or_available_pods_or_fewer_old_ones_are_progress`] |
//! | `TestDeploymentTimedOut`, `TestRequeueStuckDeployment` | deadlines |
//! | `TestDeploymentComplete`, `TestGetReplicaCountForReplicaSets`, `TestMinAvailable` | counts |
//! | `TestFindNewReplicaSet`, `TestFindOldReplicaSets`, `TestEqualIgnoreHash` | roles |
//! | `TestAnnotationUtils`, `TestReplicasAnnotationsNeedUpdate`, `TestGenerateReplicaSetName` | annotations and names |
//! | `TestSetCondition`, `TestRemoveCondition` | [`each_condition_type_occurs_once`] |
//!
//! Where Windlass gives another answer, on purpose:
//! - The ReplicaSet for the template is found or created in the reconcile that evaluates progress, so that a
//!   missing condition becomes `FoundNewReplicaSet` or `NewReplicaSetCreated`; upstream's table skips
//!   that half and expects `ReplicaSetUpdated`.
//! - A deadline that has passed is evaluated at once; upstream requeues it for a second later.
//! - A condition that is set again under the same reason takes the new message, and no time moves with
//!   it; upstream keeps the old text.
//! - `revision-history` is kept to 2,000 characters, which is no parameter.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use windlass::model::{Condition, Deployment, DeploymentStatus, ReplicaSet, condition};
use windlass::plan::deployment::{Write, new_replica_set, revision, status};
use windlass_planner_testkit::objects::{ReplicaSetBuilder, ago, decode, deployment, now, replica_set};
use windlass_planner_testkit::situation::Situation;

/// A `Progressing` condition of long ago.
fn progressing(status: &str, reason: &str, since: Timestamp) -> Value {
    json!([{"type": "Progressing", "status": status, "reason": reason, "message": "old words",
            "lastUpdateTime": since.to_string(), "lastTransitionTime": since.to_string()}])
}

/// `web` at image v2 as it was: replicas, deadline; pods in all, new, ready, available; conditions.
fn web(replicas: i32, deadline: Option<i32>, was: [i32; 4], conditions: Value) -> Value {
    let mut object = deployment("web").replicas(replicas).image("v2").json();
    object["spec"]["progressDeadlineSeconds"] = json!(deadline);
    let [pods, new, ready, available] = was;
    object["status"] = json!({"observedGeneration": 1, "replicas": pods, "updatedReplicas": new,
        "readyReplicas": ready, "availableReplicas": available, "conditions": conditions});
    object
}

fn progressing_condition(
    object: &Value,
    replica_sets: &[ReplicaSetBuilder],
    at: Timestamp,
) -> Option<Condition> {
    let settled = Situation::of(object, replica_sets).settled_at(at);
    condition::find(&settled.status.conditions, "Progressing").cloned()
}

#[test]
fn the_progressing_condition_per_situation() {
    let old_time = ago(1_000_000);
    let said = |status, reason| progressing(status, reason, old_time);
    let updated = || said("True", "ReplicaSetUpdated");
    let stuck = || said("False", "ProgressDeadlineExceeded");
    let available = || said("True", "NewReplicaSetAvailable");
    // An old pod is terminating and one more than before is available: progress.
    let moving = || vec![replica_set("v1", 0).has(1).available(1), replica_set("v2", 3).has(2).available(2)];
    let standing = || vec![replica_set("v2", 3).has(2).available(2)];
    let done = || vec![replica_set("v2", 3)];
    let (some, all) = ([2, 2, 2, 2], [3, 3, 3, 3]);
    // Then: status, reason, message, whether the update and the transition time are old.
    type Said = (&'static str, &'static str, &'static str, bool, bool);
    const MOVES: &str = "ReplicaSet \"web-v2\" is progressing.";
    const DONE: &str = "ReplicaSet \"web-v2\" has successfully progressed.";
    const LATE: &str = "ReplicaSet \"web-v2\" has timed out progressing.";
    const FOUND: &str = "Found new replica set \"web-v2\"";
    let rows: [(&str, Value, Vec<ReplicaSetBuilder>, Said); 9] = [
        (
            "at rest",
            web(3, Some(60), all, available()),
            done(),
            ("True", "NewReplicaSetAvailable", "old words", true, true),
        ),
        (
            "moves",
            web(3, Some(60), some, updated()),
            moving(),
            ("True", "ReplicaSetUpdated", MOVES, false, true),
        ),
        (
            "moves again",
            web(3, Some(60), some, stuck()),
            moving(),
            ("True", "ReplicaSetUpdated", MOVES, false, false),
        ),
        (
            "no word yet",
            web(3, Some(60), some, json!([])),
            moving(),
            ("True", "FoundNewReplicaSet", FOUND, false, false),
        ),
        (
            "is done",
            web(3, Some(60), all, updated()),
            done(),
            ("True", "NewReplicaSetAvailable", DONE, false, true),
        ),
        (
            "is done late",
            web(3, Some(60), all, stuck()),
            done(),
            ("True", "NewReplicaSetAvailable", DONE, false, false),
        ),
        (
            "is done without a word",
            web(3, Some(60), all, json!([])),
            done(),
            ("True", "NewReplicaSetAvailable", DONE, false, false),
        ),
        (
            "stands",
            web(3, Some(60), some, updated()),
            standing(),
            ("False", "ProgressDeadlineExceeded", LATE, false, false),
        ),
        (
            "still stands",
            web(3, Some(60), some, stuck()),
            standing(),
            ("False", "ProgressDeadlineExceeded", "old words", true, true),
        ),
    ];
    for (what, object, replica_sets, expected) in rows {
        let c = progressing_condition(&object, &replica_sets, now()).expect(what);
        let is_old = |time: Option<Timestamp>| time == Some(old_time);
        let got = (&*c.status, &*c.reason, &*c.message, is_old(c.last_update), is_old(c.last_transition));
        assert_eq!(got, expected, "{what}");
    }
    assert_eq!(progressing_condition(&web(3, None, some, updated()), &moving(), now()), None, "no deadline");
    // Zero replicas and no pods: the ReplicaSet is created all the same, for the history.
    let created =
        progressing_condition(&web(0, Some(60), all, updated()), &[replica_set("v1", 0)], now()).unwrap();
    assert_eq!(&*created.reason, "NewReplicaSetCreated");
}

#[test]
fn more_new_ready_or_available_pods_or_fewer_old_ones_are_progress() {
    // Pods in all, new, ready, available: before and after.
    for (before, after, moves) in [
        ([10, 4, 4, 4], [10, 6, 4, 4], true),
        ([10, 4, 4, 4], [10, 4, 4, 4], false),
        ([10, 4, 6, 6], [8, 4, 6, 6], true),
        ([10, 7, 3, 3], [10, 6, 3, 3], false),
        ([10, 4, 7, 7], [8, 8, 5, 5], true),
        ([10, 10, 9, 8], [10, 10, 10, 8], true),
        ([10, 10, 10, 9], [10, 10, 10, 10], true),
    ] {
        let [pods, new, ready, available] = after;
        let replica_sets = [
            replica_set("v1", pods - new).available(0),
            replica_set("v2", new).available(available).ready(ready),
        ];
        let object = web(20, Some(600), before, progressing("True", "ReplicaSetUpdated", ago(30)));
        let c = progressing_condition(&object, &replica_sets, now()).unwrap();
        let expected = if moves { now() } else { ago(30) };
        assert_eq!(
            (&*c.reason, c.last_update),
            ("ReplicaSetUpdated", Some(expected)),
            "{before:?} {after:?}"
        );
    }
}

#[test]
fn a_rollout_without_progress_exceeds_its_deadline() {
    let late = "ProgressDeadlineExceeded";
    for (deadline, since, reason, expected) in [
        (None, 11, "ReplicaSetUpdated", None),
        (Some(i32::MAX), 11, "ReplicaSetUpdated", None),
        (Some(10), 11, "", Some(late)),
        (Some(10), 11, "ReplicaSetUpdated", Some(late)),
        (Some(10), 9, "ReplicaSetUpdated", Some("ReplicaSetUpdated")),
        // It was complete: pods that are lost later are no rollout.
        (Some(10), 11, "NewReplicaSetAvailable", Some("NewReplicaSetAvailable")),
    ] {
        let object = web(3, deadline, [3, 3, 1, 1], progressing("True", reason, ago(since)));
        let c = progressing_condition(&object, &[replica_set("v2", 3).available(1)], now());
        assert_eq!(c.as_ref().map(|c| &*c.reason), expected, "{deadline:?} {since} {reason}");
    }
}

#[test]
fn a_stuck_rollout_is_requeued_for_its_deadline() {
    let updated = || progressing("True", "ReplicaSetUpdated", ago(0));
    let stuck = || progressing("False", "ProgressDeadlineExceeded", ago(0));
    let three = |available| vec![replica_set("v2", 3).available(available)];
    // Seconds since the last progress, and until the next look.
    for (what, object, replica_sets, since, expected) in [
        ("none", web(4, None, [3, 3, 2, 2], json!([])), three(2), 0, None),
        ("endless", web(4, Some(i32::MAX), [3, 3, 2, 2], json!([])), three(2), 0, None),
        ("begins now", web(4, Some(60), [3, 3, 2, 2], json!([])), three(2), 0, Some(60)),
        ("complete", web(3, Some(60), [3, 3, 3, 3], json!([])), three(3), 0, None),
        ("late already", web(3, Some(60), [3, 3, 0, 0], stuck()), three(0), 90, None),
        ("half way", web(3, Some(60), [3, 3, 1, 1], updated()), three(1), 30, Some(30)),
        ("almost", web(3, Some(60), [3, 3, 1, 1], updated()), three(1), 59, Some(1)),
        ("now", web(3, Some(60), [3, 3, 1, 1], updated()), three(1), 60, None),
        ("a second ago", web(3, Some(60), [3, 3, 1, 1], updated()), three(1), 61, None),
        ("a minute ago", web(3, Some(60), [3, 3, 1, 1], updated()), three(1), 120, None),
    ] {
        let at = now().saturating_add(SignedDuration::from_secs(since)).unwrap();
        let settled = Situation::of(&object, &replica_sets).settled_at(at);
        assert_eq!(settled.requeue_after.map(|wait| wait.as_secs()), expected, "{what}");
    }
}

#[test]
fn a_rollout_is_complete_with_only_new_available_pods() {
    // Wanted; pods in all, new, available.
    for (replicas, pods, new, available, complete) in [
        (5, 5, 5, 4, false),
        (5, 5, 5, 3, false),
        (5, 5, 5, 5, true),
        (5, 5, 4, 5, false),
        (1, 2, 1, 1, false),
        (1, 1, 1, 0, false),
    ] {
        let web: Deployment = decode(&deployment("web").replicas(replicas).json());
        let status = DeploymentStatus {
            replicas: pods,
            updated: new,
            available,
            observed_generation: 1,
            ..DeploymentStatus::default()
        };
        assert_eq!(status::is_complete(&web, &status), complete, "{replicas} {pods} {new} {available}");
    }
}

#[test]
fn available_is_true_from_the_minimum_on() {
    // Wanted, the most that may be missing, and the fewest that are enough.
    for (replicas, unavailable, enough) in [
        (10, json!(5), 5),
        (10, json!(10), 0),
        (5, json!(10), 0),
        (10, json!("60%"), 4),
        (5, json!("100%"), 0),
    ] {
        for available in [enough - 1, enough] {
            let start = deployment("web").replicas(replicas).surge(1).unavailable(unavailable.clone());
            let situation = Situation::new(start, &[replica_set("v1", replicas).available(available.max(0))]);
            let settled = situation.settled_at(now());
            let is_true = condition::find(&settled.status.conditions, "Available").unwrap().is_true();
            assert_eq!(is_true, available.max(0) >= enough, "{replicas} {unavailable} {available}");
        }
    }
}

#[test]
fn the_status_counts_of_several_replica_sets() {
    let one = || replica_set("v1", 1).has(2).terminating(Some(3));
    let two = || replica_set("v2", 2).has(3).terminating(Some(1));
    let unseen = || replica_set("v3", 3).unseen();
    let uncounted = || replica_set("v4", 1).terminating(None);
    // Desired, existing, terminating.
    for (replica_sets, wanted, pods, terminating) in [
        (vec![one()], 1, 2, Some(3)),
        (vec![one(), two()], 3, 5, Some(4)),
        (vec![unseen()], 3, 0, Some(0)),
        (vec![one(), two(), unseen()], 6, 5, Some(4)),
        (vec![uncounted()], 1, 1, None),
        (vec![one(), two(), unseen(), uncounted()], 7, 6, None),
    ] {
        let situation = Situation::new(deployment("web").image("v9"), &replica_sets);
        let observed = situation.observed();
        let roles = observed.replica_sets();
        let counts = status::counts(&situation.deployment, roles);
        assert_eq!((roles.desired(), counts.replicas, counts.terminating), (wanted, pods, terminating));
    }
}

#[test]
fn the_oldest_replica_set_with_the_template_is_the_new_one_and_all_others_are_old() {
    let old = || replica_set("v1", 1);
    let hashed = |tag: &str, hash| replica_set(tag, 1).image("v9").template_label("pod-template-hash", hash);
    let (first, second) = (|| hashed("v2", "different-hash"), || hashed("v3", "hash"));
    for (replica_sets, new, others) in [
        (vec![second(), old()], Some("web-v3"), vec!["web-v1"]),
        (vec![second(), old(), first()], Some("web-v2"), vec!["web-v1", "web-v3"]),
        (vec![old()], None, vec!["web-v1"]),
        (vec![second()], Some("web-v3"), vec![]),
    ] {
        let situation = Situation::new(deployment("web").image("v9"), &replica_sets);
        let observed = situation.observed();
        let roles = observed.replica_sets();
        let name = |replica_set: &std::sync::Arc<ReplicaSet>| replica_set.meta.key.name.to_string();
        assert_eq!(roles.new.as_ref().map(name).as_deref(), new);
        assert_eq!(roles.old.iter().map(name).collect::<Vec<_>>(), others);
    }
}

#[test]
fn templates_are_compared_without_the_hash_label() {
    let plain = || replica_set("v1", 1).template_label("something", "else");
    let hashed = |hash| plain().template_label("pod-template-hash", hash);
    let only_hashed = || replica_set("v1", 1).template_label("pod-template-hash", "value-1");
    for (a, b, same) in [
        (hashed("value-1"), hashed("value-1"), true),
        (hashed("value-1"), hashed("value-2"), true),
        (plain(), hashed("value-2"), true),
        (plain(), only_hashed(), false),
        (only_hashed(), hashed("value-1"), false),
        (plain().image("v2"), plain(), false),
        (hashed("value-1").image("v2"), hashed("value-2"), false),
        (plain().image("v2"), hashed("value-2"), false),
        (plain(), replica_set("v1", 1).template_label("nothing", "else"), false),
        (
            plain().template_annotation("former", "value"),
            plain().template_annotation("latter", "value"),
            false,
        ),
    ] {
        let (a, b) = (a.build(), b.build());
        assert_eq!(a.template.asks_for_the_same_as(&b.template), same);
        assert_eq!(b.template.asks_for_the_same_as(&a.template), same);
    }
}

#[test]
fn a_reused_replica_set_keeps_its_revision_history() {
    let mut back = replica_set("v2", 1).revision("10");
    let mut history: Vec<String> = Vec::new();
    for last in 10..20 {
        history.push(last.to_string());
        let situation = Situation::new(
            deployment("web").image("v2"),
            &[replica_set("v1", 0).revision(&last.to_string()), back.clone()],
        );
        let [Write::Change(_, change)] = &situation.plan().writes[..] else { panic!("{last}") };
        let next = (last + 1).to_string();
        assert_eq!(change.annotations[revision::REVISION], next);
        assert_eq!(change.annotations[revision::REVISION_HISTORY], history.join(","));
        back = back.revision(&next).annotation(revision::REVISION_HISTORY, &history.join(","));
    }
}

#[test]
fn size_annotations_are_written_when_they_differ() {
    let web: Deployment = decode(&deployment("web").replicas(10).surge(10).unavailable(0).json());
    for (annotated, stale) in [
        (replica_set("v1", 10), vec![revision::DESIRED_REPLICAS, revision::MAX_REPLICAS]),
        (replica_set("v1", 10).sized(8, 20), vec![revision::DESIRED_REPLICAS]),
        (replica_set("v1", 10).sized(10, 16), vec![revision::MAX_REPLICAS]),
        (replica_set("v1", 10).sized(10, 20), vec![]),
    ] {
        let written = revision::stale_sizes(&web, &annotated.build());
        assert_eq!(written.keys().map(String::as_str).collect::<Vec<_>>(), stale);
    }
}

#[test]
fn a_long_name_is_truncated_so_that_the_hash_fits() {
    let hash = "abcde12345";
    for (length, kept) in [(13, 13), (242, 242), (250, 242)] {
        let name = new_replica_set::replica_set_name(&"a".repeat(length), hash);
        assert_eq!(name, format!("{}-{hash}", "a".repeat(kept)));
        assert!(name.len() <= 253);
    }
}

#[test]
fn each_condition_type_occurs_once() {
    let new = |kind: &str, reason: &str| Condition::new(kind, "True", reason, "", now());
    let mut all = vec![];
    condition::set(&mut all, new("Available", "AwesomeController"));
    condition::set(&mut all, new("Progressing", "ForSomeReason"));
    condition::set(&mut all, new("Progressing", "BecauseItIs"));
    let reasons: Vec<&str> = all.iter().map(|c| &*c.reason).collect();
    assert_eq!(reasons, ["AwesomeController", "BecauseItIs"]);
    condition::remove(&mut all, "ReplicaFailure");
    condition::remove(&mut all, "Progressing");
    assert!(condition::find(&all, "Progressing").is_none() && condition::find(&all, "Available").is_some());
}
