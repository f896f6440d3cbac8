//! Users change the Deployment while a rollout is under way.

use serde_json::json;

use super::{check, roll_to_v2};
use windlass_planner_testkit::objects::deployment;

#[test]
fn a_third_version_is_set_before_the_first_pod_of_the_second() {
    let start = deployment("web").replicas(4).surge(1).unavailable(1);
    check("rollover-at-once", "4 replicas, v3 comes one step after v2", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(1);
        w.set_image("v3");
        w.settle();
    });
}

#[test]
fn a_third_version_is_set_when_the_second_is_almost_complete() {
    let start = deployment("web").replicas(4).surge(1).unavailable(0);
    check("rollover-late", "4 replicas, v3 comes when one pod of v1 is left", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(19);
        w.set_image("v3");
        w.settle();
    });
}

#[test]
fn the_first_version_is_restored_before_the_second_is_rolled_out() {
    let start = deployment("web").replicas(6).surge(2).unavailable(1);
    check("rollover-back", "6 replicas, back to v1 while v2 rolls out", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(5);
        w.set_image("v1");
        w.settle();
    });
}

#[test]
fn three_new_versions_in_a_row_leave_only_the_last() {
    let start = deployment("web").replicas(6).surge(2).unavailable(1);
    check("rollover-of-three", "6 replicas, v2, v3 and v4 within a few steps", start, |w| {
        w.settle();
        for tag in ["v2", "v3", "v4"] {
            w.set_image(tag);
            w.rounds(2);
        }
        w.settle();
    });
}

#[test]
fn a_working_third_version_replaces_a_broken_second() {
    let start = deployment("web").replicas(4).surge(1).unavailable(1).deadline(60);
    check("broken-then-fixed", "4 replicas, v2 never becomes ready, v3 does", start, |w| {
        w.broken.push("v2".into());
        roll_to_v2(w);
        w.set_image("v3");
        w.settle();
    });
}

#[test]
fn a_rollout_is_scaled_to_zero_and_back() {
    let start = deployment("web").replicas(5).surge(2).unavailable(1);
    check("scale-to-0-midway", "5 replicas, scaled to 0 while v2 rolls out, then to 5", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(3);
        w.scale(0);
        w.settle();
        w.scale(5);
        w.settle();
    });
}

#[test]
fn a_rollout_is_scaled_down_to_one_replica() {
    let start = deployment("web").replicas(6).surge("50%").unavailable("50%");
    check("scale-to-1-midway", "6 replicas, 50 % and 50 %, scaled to 1 while v2 rolls out", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(2);
        w.scale(1);
        w.settle();
    });
}

#[test]
fn a_scale_up_is_distributed_over_three_replica_sets() {
    let start = deployment("web").replicas(6).surge(3).unavailable(0);
    check("scale-up-three-replica-sets", "6 replicas, v3 overtakes v2, then 12 replicas", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(7);
        w.set_image("v3");
        w.rounds(2);
        w.scale(12);
        w.settle();
    });
}

#[test]
fn a_scale_up_and_down_in_mid_rollout() {
    let start = deployment("web").replicas(4).surge(1).unavailable(1);
    check("scale-up-and-down-midway", "4 replicas, 9 and then 3 while v2 rolls out", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(3);
        w.scale(9);
        w.rounds(2);
        w.scale(3);
        w.settle();
    });
}

#[test]
fn a_broken_version_gets_only_its_share_of_new_replicas() {
    let start = deployment("web").replicas(4).surge(1).unavailable(1).deadline(60);
    check("scale-up-broken", "4 replicas, v2 never becomes ready, scaled to 8, then v1 again", start, |w| {
        w.broken.push("v2".into());
        roll_to_v2(w);
        w.scale(8);
        w.settle();
        w.set_image("v1");
        w.settle();
    });
}

#[test]
fn image_and_replicas_change_in_one_edit() {
    let start = deployment("web").replicas(3).surge(1).unavailable(0);
    check("image-and-replicas", "3 replicas, then v2 and 5 replicas in one edit", start, |w| {
        w.settle();
        w.edit("image v2, replicas 5", |spec| {
            spec["template"]["spec"]["containers"][0]["image"] = "app:v2".into();
            spec["replicas"] = 5.into();
        });
        w.settle();
    });
}

#[test]
fn another_budget_in_mid_rollout() {
    let start = deployment("web").replicas(6).surge(1).unavailable(0);
    check("budget-midway", "6 replicas, from 1 above to 3 below while v2 rolls out", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(4);
        w.edit("maxSurge 0, maxUnavailable 3", |spec| {
            spec["strategy"]["rollingUpdate"] = json!({"maxSurge": 0, "maxUnavailable": 3});
        });
        w.settle();
    });
}

#[test]
fn a_smaller_budget_in_mid_rollout() {
    let start = deployment("web").replicas(6).surge("100%").unavailable(0);
    check("budget-shrinks-midway", "6 replicas, from 6 above to 1 above while v2 comes up", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(2);
        w.edit("maxSurge 1", |spec| spec["strategy"]["rollingUpdate"]["maxSurge"] = 1.into());
        w.settle();
    });
}

#[test]
fn min_ready_seconds_in_mid_rollout() {
    let start = deployment("web").replicas(3).surge(1).unavailable(0);
    check("min-ready-midway", "3 replicas, minReadySeconds 20 while v2 rolls out", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(4);
        w.edit("minReadySeconds 20", |spec| spec["minReadySeconds"] = 20.into());
        w.settle();
    });
}

#[test]
fn a_paused_deployment_keeps_a_new_template_until_it_is_resumed() {
    let start = deployment("web").replicas(3).surge(1).unavailable(0);
    check("pause-change-resume", "3 replicas, paused, v2 and then v3, resumed", start, |w| {
        w.settle();
        w.edit("pause", |spec| spec["paused"] = true.into());
        w.settle();
        w.set_image("v2");
        w.settle();
        w.set_image("v3");
        w.settle();
        w.edit("resume", |spec| spec["paused"] = false.into());
        w.settle();
    });
}

#[test]
fn a_paused_rollout_that_is_reverted_rolls_back_when_it_is_resumed() {
    let start = deployment("web").replicas(4).surge(1).unavailable(1);
    check("pause-revert-resume", "4 replicas, paused while v2 rolls out, v1 again, resumed", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(3);
        w.edit("pause", |spec| spec["paused"] = true.into());
        w.settle();
        w.set_image("v1");
        w.settle();
        w.edit("resume", |spec| spec["paused"] = false.into());
        w.settle();
    });
}

#[test]
fn a_deployment_created_paused_has_no_replica_set_before_it_is_resumed() {
    check("born-paused", "2 replicas, paused from the start, resumed", deployment("web").replicas(2), |w| {
        w.edit("pause", |spec| spec["paused"] = true.into());
        w.settle();
        w.edit("resume", |spec| spec["paused"] = false.into());
        w.settle();
    });
}

#[test]
fn the_strategy_is_changed_and_restored_in_mid_rollout() {
    let start = deployment("web").replicas(4).surge(1).unavailable(1);
    check("recreate-and-back", "4 replicas, Recreate while v2 rolls out, then RollingUpdate", start, |w| {
        w.stop_seconds = 30;
        w.settle();
        w.set_image("v2");
        w.rounds(3);
        w.edit("Recreate", |spec| spec["strategy"] = json!({"type": "Recreate"}));
        w.rounds(2);
        w.edit("RollingUpdate", |spec| {
            spec["strategy"] =
                json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}});
        });
        w.settle();
    });
}
