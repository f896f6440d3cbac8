//! Golden transcripts: whole rollouts, step by step, for reviewers.
//!
//! Planner, pod planner and a toy kubelet; no tokio, no HTTP. `UPDATE_EXPECT=1 cargo test --test
//! planner rollout` writes the files under `tests/planner/rollout/` anew: read the difference before it is
//! committed.

mod failures;
mod midway;
mod policies;
use windlass_planner_testkit::objects::{DeploymentBuilder, deployment};
use windlass_planner_testkit::rollout::Rollout;

/// Plays a rollout and compares its transcript with `tests/planner/rollout/<name>.txt`.
#[track_caller]
fn check(name: &str, title: &str, start: DeploymentBuilder, play: impl FnOnce(&mut Rollout)) {
    let mut rollout = Rollout::new(title, start);
    play(&mut rollout);
    let path = format!("{}/../../tests/planner/rollout/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, rollout.transcript()).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        rollout.transcript() == expected,
        "{path} expects another rollout (UPDATE_EXPECT=1 rewrites it). Now:\n{}",
        rollout.transcript()
    );
}

/// A Deployment settled with version v1, then gets v2.
fn roll_to_v2(rollout: &mut Rollout) {
    rollout.settle();
    rollout.set_image("v2");
    rollout.settle();
}

#[test]
fn a_new_deployment_rolls_out() {
    check("create", "3 replicas, new", deployment("web").replicas(3), Rollout::settle);
}

#[test]
fn a_deployment_with_zero_replicas() {
    check("zero", "0 replicas, then a new image", deployment("web").replicas(0), roll_to_v2);
}

#[test]
fn surge_of_one_and_no_unavailability() {
    let start = deployment("web").replicas(3).surge(1).unavailable(0);
    check("surge-1", "3 replicas, maxSurge 1, maxUnavailable 0, new image", start, roll_to_v2);
}

#[test]
fn unavailability_of_one_and_no_surge() {
    let start = deployment("web").replicas(3).surge(0).unavailable(1);
    check("unavailable-1", "3 replicas, maxSurge 0, maxUnavailable 1, new image", start, roll_to_v2);
}

#[test]
fn surge_and_unavailability_of_a_quarter() {
    check(
        "quarter-of-10",
        "10 replicas, 25 % and 25 %, new image",
        deployment("web").replicas(10),
        roll_to_v2,
    );
}

#[test]
fn a_quarter_of_one_pod_is_a_surge_of_one_and_no_unavailability() {
    check("quarter-of-1", "1 replica, 25 % and 25 %, new image", deployment("web").replicas(1), roll_to_v2);
}

#[test]
fn zero_surge_and_zero_unavailability_still_progress() {
    let start = deployment("web").replicas(2).surge(0).unavailable("10%");
    check("both-zero", "2 replicas, maxSurge 0, maxUnavailable 10 % (none), new image", start, roll_to_v2);
}

#[test]
fn all_at_once() {
    let start = deployment("web").replicas(4).surge("100%").unavailable("100%");
    check("all-at-once", "4 replicas, 100 % and 100 %, new image", start, roll_to_v2);
}

#[test]
fn recreate_waits_for_slow_pods() {
    check(
        "recreate",
        "3 replicas, Recreate, pods take 30 s to stop",
        deployment("web").replicas(3).recreate(),
        |w| {
            w.stop_seconds = 30;
            roll_to_v2(w);
        },
    );
}

#[test]
fn a_template_is_rolled_back() {
    let start = deployment("web").replicas(3).surge(1).unavailable(0);
    check("roll-back", "3 replicas, v2 rolls out, then the template is v1 again", start, |w| {
        roll_to_v2(w);
        w.set_image("v1");
        w.settle();
    });
}

#[test]
fn a_third_version_overtakes_the_second() {
    let start = deployment("web").replicas(4).surge(1).unavailable(1);
    check("rollover", "4 replicas, v3 comes while v2 rolls out", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(3);
        w.set_image("v3");
        w.settle();
    });
}

#[test]
fn a_broken_version_stops_at_the_budget_and_is_undone() {
    let start = deployment("web").replicas(4).surge(1).unavailable(1).deadline(60);
    check("broken-then-undone", "4 replicas, v2 never becomes ready, then v1 again", start, |w| {
        w.broken.push("v2".into());
        roll_to_v2(w);
        w.set_image("v1");
        w.settle();
    });
}

#[test]
fn a_stuck_rollout_recovers() {
    let start = deployment("web").replicas(2).surge(1).unavailable(0).deadline(60);
    check("deadline-then-recovery", "2 replicas, v2 is stuck past its deadline, then heals", start, |w| {
        w.broken.push("v2".into());
        roll_to_v2(w);
        w.broken.clear();
        w.say("kubelet", "v2 can start now");
        w.settle();
    });
}

#[test]
fn a_scale_up_in_mid_rollout() {
    let start = deployment("web").replicas(10).surge(3).unavailable(2);
    check("scale-up-midway", "10 replicas, scaled to 20 while v2 rolls out", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(2);
        w.scale(20);
        w.settle();
    });
}

#[test]
fn a_scale_down_in_mid_rollout() {
    let start = deployment("web").replicas(10).surge(3).unavailable(2);
    check("scale-down-midway", "10 replicas, scaled to 4 while v2 rolls out", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(3);
        w.scale(4);
        w.settle();
    });
}

#[test]
fn a_pause_in_mid_rollout() {
    let start = deployment("web").replicas(4).surge(1).unavailable(1);
    check("pause-midway", "4 replicas, paused while v2 rolls out, scaled, resumed", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(2);
        w.edit("pause", |spec| spec["paused"] = true.into());
        w.settle();
        w.scale(6);
        w.settle();
        w.edit("resume", |spec| spec["paused"] = false.into());
        w.settle();
    });
}

#[test]
fn pods_are_available_after_min_ready_seconds() {
    let start = deployment("web").replicas(2).surge(1).unavailable(0).min_ready(10);
    check("min-ready-seconds", "2 replicas, minReadySeconds 10, new image", start, roll_to_v2);
}

#[test]
fn the_history_keeps_revision_history_limit_revisions() {
    let start = deployment("web").replicas(1).history(1);
    check("history-1", "1 replica, revisionHistoryLimit 1, v1 to v4", start, |w| {
        roll_to_v2(w);
        for tag in ["v3", "v4"] {
            w.set_image(tag);
            w.settle();
        }
    });
}

#[test]
fn recreate_with_two_active_replica_sets_and_new_replicas_rolls_out() {
    let start = deployment("web").replicas(4).surge(1).unavailable(1);
    check(
        "switch-to-recreate",
        "strategy and replicas change while two ReplicaSets have pods (kubernetes#125568)",
        start,
        |w| {
            w.settle();
            w.set_image("v2");
            w.rounds(2);
            w.edit("Recreate, replicas 6", |spec| {
                spec["strategy"] = serde_json::json!({"type": "Recreate"});
                spec["replicas"] = 6.into();
            });
            w.settle();
        },
    );
}

#[test]
fn odd_percentages_of_small_numbers_round_surge_up_and_unavailability_down() {
    for (name, replicas, surge, unavailable) in [
        ("quarter-of-2", 2, "25%", "25%"),
        ("quarter-of-3", 3, "25%", "25%"),
        ("quarter-of-4", 4, "25%", "25%"),
        ("third-of-3", 3, "33%", "34%"),
        ("odd-of-7", 7, "29%", "43%"),
        ("tenth-of-3", 3, "0%", "10%"),
    ] {
        let title = format!("{replicas} replicas, maxSurge {surge}, maxUnavailable {unavailable}, new image");
        let start = deployment("web").replicas(replicas).surge(surge).unavailable(unavailable);
        check(name, &title, start, roll_to_v2);
    }
}

#[test]
fn a_complete_deployment_is_scaled() {
    check("scale-at-rest", "3 replicas, then 5, 2, 0 and 4", deployment("web").replicas(3), |w| {
        w.settle();
        for replicas in [5, 2, 0, 4] {
            w.scale(replicas);
            w.settle();
        }
    });
}

#[test]
fn no_history_at_all() {
    let start = deployment("web").replicas(2).surge(1).unavailable(0).history(0);
    check("history-0", "2 replicas, revisionHistoryLimit 0, v1 to v3 and back to v1", start, |w| {
        roll_to_v2(w);
        for tag in ["v3", "v1"] {
            w.set_image(tag);
            w.settle();
        }
    });
}

#[test]
fn the_first_of_five_revisions_becomes_the_sixth() {
    let start = deployment("web").replicas(1).surge(1).unavailable(0);
    check("roll-back-to-first", "1 replica, v1 to v5, then v1 again", start, |w| {
        roll_to_v2(w);
        for tag in ["v3", "v4", "v5", "v1"] {
            w.set_image(tag);
            w.settle();
        }
    });
}

#[test]
fn recreate_is_scaled_without_deleting_pods() {
    let start = deployment("web").replicas(2).recreate();
    check("recreate-scale", "2 replicas, Recreate, v2, then 3 replicas and 1", start, |w| {
        roll_to_v2(w);
        for replicas in [3, 1] {
            w.scale(replicas);
            w.settle();
        }
    });
}

#[test]
fn under_recreate_a_superseded_version_never_starts() {
    let start = deployment("web").replicas(2).recreate();
    check("recreate-rollover", "2 replicas, Recreate, v3 comes while the pods of v1 stop", start, |w| {
        w.stop_seconds = 30;
        w.settle();
        w.set_image("v2");
        w.rounds(3);
        w.set_image("v3");
        w.settle();
    });
}

#[test]
fn a_rollback_is_requested_by_annotation() {
    let start = deployment("web").replicas(2).surge(1).unavailable(0);
    check("rollback-annotation", "deprecated.deployment.rollback.to: 0, then 1, then 7", start, |w| {
        roll_to_v2(w);
        for revision in ["0", "1", "7"] {
            w.say("user", &format!("rolls back to {revision}"));
            w.annotate("deprecated.deployment.rollback.to", revision);
            w.settle();
        }
    });
}
