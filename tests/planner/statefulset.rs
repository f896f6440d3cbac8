//! Golden transcripts of StatefulSets: rollouts, scaling and retention, step by step, for reviewers.
//!
//! Planner and a toy cluster; no tokio, no HTTP. `UPDATE_EXPECT=1 cargo test --test planner statefulset` writes the files
//! under `tests/planner/statefulset/` anew: read the difference before it is committed.

mod properties;
mod world;
mod writes;

use serde_json::{Value, json};
use world::{World, max_unavailable, parallel, stateful_set, with_claims};

/// Plays a scenario and compares its transcript with `tests/planner/statefulset/<name>.txt`.
#[track_caller]
fn check(name: &str, title: &str, start: Value, play: impl FnOnce(&mut World)) {
    let mut world = World::new(title, start);
    play(&mut world);
    world.check_backoff();
    let path = format!("{}/../../tests/planner/statefulset/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &world.transcript).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        world.transcript == expected,
        "{path} expects another course (UPDATE_EXPECT=1 rewrites it). Now:\n{}",
        world.transcript
    );
}

fn roll_to_v2(world: &mut World) {
    world.settle();
    world.set_image("v2");
    world.settle();
}

#[test]
fn pods_are_created_one_by_one_or_all_at_once() {
    let ordered = with_claims(stateful_set(3), "Retain", "Retain");
    check("create-ordered", "3 replicas with claims, OrderedReady", ordered.clone(), World::settle);
    check("create-parallel", "3 replicas with claims, Parallel", parallel(ordered), World::settle);
}

#[test]
fn a_lost_pod_comes_back_on_its_claim() {
    let start = with_claims(stateful_set(3), "Retain", "Retain");
    check("lost-pod", "3 replicas; db-1 is deleted by a user", start, |w| {
        w.settle();
        w.delete_pod("db-1");
        w.settle();
    });
}

#[test]
fn scaling_goes_up_from_the_lowest_and_down_from_the_highest() {
    for (name, start) in [("scale-ordered", stateful_set(3)), ("scale-parallel", parallel(stateful_set(3)))] {
        check(name, &format!("{name}: 3, 5, 2, 0 replicas"), start, |w| {
            w.settle();
            for replicas in [5, 2, 0] {
                w.scale(replicas);
                w.settle();
            }
        });
    }
}

#[test]
fn a_scale_down_halts_at_a_broken_pod_unless_it_is_the_lowest_broken_one() {
    check("scale-down-halts", "4 replicas; two of three condemned pods are broken", stateful_set(4), |w| {
        w.settle();
        w.set_ready("db-3", false);
        w.set_ready("db-2", false);
        w.scale(1);
        w.settle();
        w.set_ready("db-3", true);
        w.settle();
    });
}

#[test]
fn a_new_start_moves_the_range_and_the_new_pods_come_first() {
    for (name, start) in [("start-ordered", stateful_set(3)), ("start-parallel", parallel(stateful_set(3)))] {
        check(name, &format!("{name}: 3 replicas from 0, from 2, from 0"), start, |w| {
            w.settle();
            w.start(2);
            w.settle();
            w.start(0);
            w.settle();
        });
    }
}

#[test]
fn a_partition_holds_back_the_pods_below_it() {
    let mut start = stateful_set(4);
    start["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = 3.into();
    check("partition", "4 replicas, new image with partition 3, 2, 0", start, |w| {
        roll_to_v2(w);
        w.delete_pod("db-0");
        w.delete_pod("db-3");
        w.settle();
        w.partition(2);
        w.settle();
        w.partition(0);
        w.settle();
    });
}

#[test]
fn a_partition_counts_from_the_start_ordinal() {
    let mut start = stateful_set(3);
    start["spec"]["ordinals"] = json!({"start": 5});
    start["spec"]["updateStrategy"]["rollingUpdate"]["partition"] = 1.into();
    check("partition-start", "3 replicas from 5, new image with partition 1", start, |w| {
        roll_to_v2(w);
        w.delete_pod("db-5");
        w.settle();
    });
}

#[test]
fn a_rolling_update_without_fields_keeps_missing_pods_of_low_index_at_the_current_revision() {
    let mut start = stateful_set(3);
    start["spec"]["updateStrategy"] = json!({"type": "RollingUpdate"});
    check("no-rolling-update", "3 replicas, no rollingUpdate; db-0 is deleted in mid-rollout", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(3);
        w.delete_pod("db-0");
        w.settle();
    });
}

#[test]
fn as_many_pods_as_may_be_unavailable_are_replaced_at_once() {
    for (name, most) in [("2", json!(2)), ("half", json!("50%"))] {
        let ordered = max_unavailable(stateful_set(5), most.clone());
        for (policy, start) in [("ordered", ordered.clone()), ("parallel", parallel(ordered))] {
            let name = format!("unavailable-{name}-{policy}");
            check(&name, &format!("{name}: 5 replicas, maxUnavailable {most}, new image"), start, roll_to_v2);
        }
    }
}

#[test]
fn broken_old_pods_are_replaced_first_and_do_not_use_up_the_budget() {
    let start = parallel(max_unavailable(stateful_set(5), 2));
    check(
        "broken-old-parallel",
        "5 replicas, maxUnavailable 2; db-0 and db-1 are broken, new image",
        start,
        |w| {
            w.settle();
            w.set_ready("db-0", false);
            w.set_ready("db-1", false);
            w.set_image("v2");
            w.settle();
        },
    );
}

#[test]
fn a_pod_that_never_started_makes_way_for_the_corrected_template() {
    for (name, start) in [("broken-ordered", stateful_set(3)), ("broken-parallel", parallel(stateful_set(3)))]
    {
        check(name, &format!("{name}: v2 cannot be pulled, v3 can"), start, |w| {
            w.missing_images.insert("v2".into());
            roll_to_v2(w);
            w.set_image("v3");
            w.settle();
        });
    }
}

#[test]
fn a_crashing_template_blocks_its_correction_only_where_pods_go_one_by_one() {
    let mut patient = stateful_set(2);
    patient["metadata"]["annotations"] = json!({"windlass.dev/replace-broken-pods-after-seconds": "30"});
    let all = [
        ("crash-ordered", stateful_set(2)),
        ("crash-parallel", parallel(stateful_set(2))),
        ("crash-opt-in", patient),
    ];
    for (name, start) in all {
        check(name, &format!("{name}: v2 crashes, v3 does not"), start, |w| {
            w.crashing.insert("v2".into());
            roll_to_v2(w);
            w.set_image("v3");
            w.settle();
        });
    }
}

#[test]
fn an_undo_takes_up_the_old_revision_with_a_new_number() {
    check("undo", "2 replicas, v2, then undo", stateful_set(2), |w| {
        roll_to_v2(w);
        w.undo(1);
        w.settle();
    });
}

#[test]
fn on_delete_waits_for_deletions() {
    let mut start = stateful_set(3);
    start["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    check("on-delete", "3 replicas, OnDelete; pods are deleted by hand", start, |w| {
        roll_to_v2(w);
        for pod in ["db-1", "db-0", "db-2"] {
            w.delete_pod(pod);
            w.settle();
        }
    });
}

#[test]
fn pods_count_after_min_ready_seconds() {
    for (name, start) in
        [("min-ready-ordered", stateful_set(2)), ("min-ready-parallel", parallel(stateful_set(2)))]
    {
        let mut start = start;
        start["spec"]["minReadySeconds"] = 10.into();
        check(name, &format!("{name}: minReadySeconds 10, new image, scaled to 1"), start, |w| {
            roll_to_v2(w);
            w.scale(1);
            w.settle();
        });
    }
}

#[test]
fn failed_pods_are_replaced_ever_more_slowly() {
    for (name, start) in [("failed-ordered", stateful_set(2)), ("failed-parallel", parallel(stateful_set(2)))]
    {
        check(name, &format!("{name}: pods of v2 fail for 20 s"), start, |w| {
            w.settle();
            w.failing.insert("v2".into());
            w.set_image("v2");
            w.pass(20);
            w.failing.clear();
            w.say("kubelet", "v2 runs now");
            w.settle();
        });
    }
}

const POLICIES: [(&str, &str); 4] =
    [("Retain", "Retain"), ("Delete", "Retain"), ("Retain", "Delete"), ("Delete", "Delete")];

fn retention(of: &str, play: impl Fn(&mut World)) {
    for (when_deleted, when_scaled) in POLICIES {
        let name = format!("{of}-{}-{}", when_deleted.to_lowercase(), when_scaled.to_lowercase());
        let title = format!("{of}: whenDeleted {when_deleted}, whenScaled {when_scaled}");
        check(&name, &title, with_claims(stateful_set(2), when_deleted, when_scaled), |w| {
            w.settle();
            play(w);
        });
    }
}

#[test]
fn the_retention_policy_says_what_becomes_of_claims_when_pods_are_scaled_away() {
    retention("scale-down", |w| {
        w.scale(1);
        w.settle();
        w.scale(2);
        w.settle();
    });
}

#[test]
fn the_retention_policy_says_what_becomes_of_claims_when_the_statefulset_is_deleted() {
    retention("delete", |w| {
        w.delete_set(false);
        w.settle();
    });
    retention("delete-foreground", |w| {
        w.delete_set(true);
        w.settle();
    });
    retention("delete-orphan", |w| {
        w.orphan();
        w.settle();
    });
}

#[test]
fn a_statefulset_that_is_created_again_waits_for_what_is_about_to_be_deleted() {
    retention("re-create", |w| {
        w.delete_set(false);
        w.create_again();
        w.settle();
    });
}

#[test]
fn an_ordinal_that_is_wanted_again_while_its_pod_terminates_keeps_its_data() {
    let start = with_claims(stateful_set(2), "Retain", "Delete");
    check("scaled-back", "scaled down and up again within the grace period, whenScaled Delete", start, |w| {
        w.settle();
        w.stop_seconds = 30;
        w.scale(1);
        w.rounds(2);
        w.scale(2);
        w.settle();
        assert_eq!(w.vanished, [""; 0]);
    });
}

#[test]
fn a_change_of_the_retention_policy_reaches_the_claims() {
    check(
        "policy-change",
        "from Retain to Delete and back",
        with_claims(stateful_set(2), "Retain", "Retain"),
        |w| {
            w.settle();
            for policy in ["Delete", "Retain"] {
                w.edit(&format!("whenDeleted {policy}"), |spec| {
                    spec["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] = policy.into();
                });
                w.settle();
            }
        },
    );
}

#[test]
fn the_claim_of_a_pending_pod_is_created_again() {
    check(
        "claim-of-pending",
        "the claim of a Pending pod is deleted",
        with_claims(stateful_set(1), "Retain", "Retain"),
        |w| {
            w.missing_images.insert("v1".into());
            w.settle();
            w.say("user", "deletes the claim data-db-0 at once");
            w.claims.remove("data-db-0");
            w.settle();
        },
    );
}

#[test]
fn a_pod_waits_until_its_claim_on_the_way_out_is_gone() {
    check(
        "claim-of-running",
        "claim and pod are deleted by a user",
        with_claims(stateful_set(1), "Retain", "Retain"),
        |w| {
            w.settle();
            w.say("user", "deletes the claim data-db-0");
            w.delete_claim("data-db-0");
            w.settle();
            w.delete_pod("db-0");
            w.settle();
        },
    );
}

#[test]
fn a_claim_that_another_object_manages_is_left_alone() {
    check(
        "foreign-manager",
        "whenDeleted and whenScaled Delete; a backup controls data-db-1",
        with_claims(stateful_set(2), "Delete", "Delete"),
        |w| {
            w.settle();
            w.say("backup", "takes data-db-1 and is controller beside the StatefulSet");
            let owners = &mut w.claims.get_mut("data-db-1").unwrap()["metadata"]["ownerReferences"];
            owners.as_array_mut().unwrap().push(json!({"apiVersion": "x/v1", "kind": "Backup", "name": "b", "uid": "uid-b", "controller": true}));
            w.settle();
            w.scale(1);
            w.settle();
        },
    );
}

#[test]
fn a_taken_name_is_waited_for_and_told_once() {
    for (name, start) in [("taken-ordered", stateful_set(3)), ("taken-parallel", parallel(stateful_set(3)))] {
        check(name, &format!("{name}: a pod of a ReplicaSet is called db-1"), start, |w| {
            w.take_name("db-1");
            w.settle();
            w.say("user", "deletes the other pod");
            w.pods.remove("db-1");
            w.settle();
        });
    }
}

#[test]
fn a_quota_holds_up_creations_and_nothing_else() {
    for (name, start) in [("quota-ordered", stateful_set(4)), ("quota-parallel", parallel(stateful_set(4)))] {
        check(name, &format!("{name}: a quota of 2 pods, raised later"), start, |w| {
            w.quota = Some(2);
            w.settle();
            w.say("user", "raises the quota");
            w.quota = None;
            w.settle();
        });
    }
}

#[test]
fn a_revision_name_with_other_contents_counts_as_a_collision() {
    check("collision", "the name of the revision of v2 is taken", stateful_set(1), |w| {
        w.settle();
        w.set_image("v2");
        let taken = w.plan().status.unwrap().update_revision.to_string();
        let mut other = w.revisions.values().next().unwrap().clone();
        other["metadata"]["name"] = taken.as_str().into();
        other["metadata"]["ownerReferences"][0]["uid"] = "uid-other".into();
        other["metadata"]["ownerReferences"][0]["name"] = "other".into();
        other["data"]["spec"]["template"]["spec"]["containers"][0]["image"] = "store:v9".into();
        w.revisions.insert(taken, other);
        w.settle();
    });
}

#[test]
fn an_ordinal_that_cannot_be_created_does_not_hold_up_scaling_and_updates_of_the_others() {
    check(
        "one-refused",
        "Parallel; db-1 is refused, new image, scaled from 4 to 3",
        parallel(stateful_set(4)),
        |w| {
            w.settle();
            w.refused.insert("db-1".into());
            w.delete_pod("db-1");
            w.settle();
            w.scale(3);
            w.set_image("v2");
            w.settle();
            w.say("user", "allows db-1");
            w.refused.clear();
            w.settle();
        },
    );
}

#[test]
fn pods_are_adopted_by_name_and_released_when_they_are_not_selected() {
    check("adopt-release", "orphans are adopted, pods of other labels released", stateful_set(2), |w| {
        w.settle();
        w.orphan();
        w.create_again();
        w.settle();
        w.say("user", "takes the label off db-1");
        w.pods.get_mut("db-1").unwrap()["metadata"]["labels"]["app"] = "none".into();
        w.settle();
        w.say("user", "deletes the released pod");
        w.pods.remove("db-1");
        w.settle();
    });
}

#[test]
fn the_history_is_trimmed_to_its_limit() {
    let mut start = stateful_set(1);
    start["spec"]["revisionHistoryLimit"] = 1.into();
    check("history-1", "revisionHistoryLimit 1, images v1 to v4", start, |w| {
        w.settle();
        for tag in ["v2", "v3", "v4"] {
            w.set_image(tag);
            w.settle();
        }
    });
}
