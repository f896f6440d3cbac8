//! Rollouts with failures: pods, size annotations, deadlines.

use super::{check, roll_to_v2};
use windlass_planner_testkit::objects::deployment;

const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";

#[test]
fn a_stale_size_annotation_does_not_block_a_rollout() {
    check(
        "stale-annotation",
        "3 replicas, a wrong desired-replicas beside the right size, new image (kubernetes#138839)",
        deployment("web").replicas(3).surge(1).unavailable(0),
        |w| {
            w.settle();
            w.annotate_replica_set("v1", DESIRED, "5");
            w.set_image("v2");
            w.settle();
        },
    );
}

#[test]
fn scaling_to_the_current_size_of_a_replica_set_does_not_block_a_rollout() {
    check(
        "stale-annotation-no-surge",
        "4 replicas, maxSurge 0, scaled to 3 while the only active ReplicaSet has 3 (kubernetes#138036)",
        deployment("web").replicas(4).surge(0).unavailable(1),
        |w| {
            w.settle();
            w.set_image("v2");
            w.rounds(1);
            w.scale(3);
            w.settle();
        },
    );
}

#[test]
fn recreate_undoes_a_broken_version() {
    check(
        "recreate-broken-then-undone",
        "3 replicas, Recreate, v2 never becomes ready, then v1 again",
        deployment("web").replicas(3).recreate().deadline(60),
        |w| {
            w.broken.push("v2".into());
            roll_to_v2(w);
            w.set_image("v1");
            w.settle();
        },
    );
}

#[test]
fn recreate_does_not_wait_for_a_failed_pod_that_is_never_deleted() {
    check(
        "recreate-failed-pod",
        "2 replicas, Recreate, a failed pod of v1 stays for ever (kubernetes#128798)",
        deployment("web").replicas(2).recreate(),
        |w| {
            w.settle();
            w.fail_pods("v1", 1);
            w.settle();
            w.set_image("v2");
            w.settle();
        },
    );
}

#[test]
fn recreate_reports_an_old_pod_that_does_not_terminate() {
    check(
        "recreate-deadline",
        "2 replicas, Recreate, the pods of v1 do not stop, then they do",
        deployment("web").replicas(2).recreate().deadline(60),
        |w| {
            w.stuck.push("v1".into());
            roll_to_v2(w);
            w.terminate_pods("v1");
            w.settle();
        },
    );
}

#[test]
fn new_pods_that_become_unready_block_the_rollout() {
    check(
        "new-pods-flap",
        "4 replicas, maxSurge 1, maxUnavailable 0, a pod of v2 is unready for a while",
        deployment("web").replicas(4).surge(1).unavailable(0),
        |w| {
            w.settle();
            w.set_image("v2");
            w.rounds(7);
            w.unready_pods("v2", 1);
            w.rounds(4);
            w.ready_pods_again("v2", 1);
            w.settle();
        },
    );
}

#[test]
fn old_pods_that_become_unready_are_deleted_first() {
    check(
        "old-pods-flap",
        "6 replicas, maxSurge 1, maxUnavailable 1, two pods of v1 are unready when v2 comes",
        deployment("web").replicas(6).surge(1).unavailable(1),
        |w| {
            w.settle();
            w.unready_pods("v1", 2);
            w.settle();
            w.set_image("v2");
            w.settle();
        },
    );
}

#[test]
fn a_manually_deleted_old_pod_is_replaced_while_its_replica_set_needs_it() {
    check(
        "old-pod-deleted",
        "4 replicas, maxSurge 1, maxUnavailable 0, a pod of v1 is deleted while v2 rolls out",
        deployment("web").replicas(4).surge(1).unavailable(0),
        |w| {
            w.settle();
            w.set_image("v2");
            w.rounds(4);
            w.delete_pods("v1", 1);
            w.settle();
        },
    );
}

#[test]
fn pods_that_fail_after_the_rollout_affect_availability_and_not_progress() {
    check(
        "pods-die-later",
        "3 replicas at rest, all pods unready for a while",
        deployment("web").replicas(3).deadline(60),
        |w| {
            w.settle();
            w.unready_pods("v1", 3);
            w.settle();
            w.ready_pods_again("v1", 3);
            w.settle();
        },
    );
}

#[test]
fn without_a_deadline_there_is_no_progressing_condition() {
    let start = deployment("web").replicas(2).surge(1).unavailable(0).deadline(i32::MAX);
    check("no-deadline", "2 replicas, no deadline, v2 never becomes ready, then v1 again", start, |w| {
        w.broken.push("v2".into());
        roll_to_v2(w);
        w.set_image("v1");
        w.settle();
    });
}

#[test]
fn a_paused_stuck_rollout_keeps_its_deadline_exceeded_condition() {
    let start = deployment("web").replicas(2).surge(1).unavailable(0).deadline(60);
    check("deadline-then-pause", "2 replicas, v2 is stuck, paused and resumed, then heals", start, |w| {
        w.broken.push("v2".into());
        roll_to_v2(w);
        w.edit("pause", |spec| spec["paused"] = true.into());
        w.settle();
        w.edit("resume", |spec| spec["paused"] = false.into());
        w.settle();
        w.broken.clear();
        w.say("kubelet", "v2 can start now");
        w.settle();
    });
}

#[test]
fn a_stuck_rollback_exceeds_its_deadline() {
    let start = deployment("web").replicas(3).surge(1).unavailable(0).deadline(60);
    check("roll-back-stuck", "3 replicas, v2, then v1 again, which no longer becomes ready", start, |w| {
        roll_to_v2(w);
        w.broken.push("v1".into());
        w.set_image("v1");
        w.settle();
    });
}

#[test]
fn recreate_is_scaled_while_it_waits_for_the_old_pods() {
    let start = deployment("web").replicas(2).recreate();
    check("recreate-scale-midway", "2 replicas, Recreate, scaled to 4 while v1 stops", start, |w| {
        w.stop_seconds = 30;
        w.settle();
        w.set_image("v2");
        w.rounds(3);
        w.scale(4);
        w.settle();
    });
}

#[track_caller]
fn way_back_is_noticed(start: windlass_planner_testkit::objects::DeploymentBuilder) {
    let mut w = windlass_planner_testkit::rollout::Rollout::new("the way back is stuck", start.deadline(60));
    roll_to_v2(&mut w);
    w.broken.push("v1".into());
    w.set_image("v1");
    w.settle();
    let transcript = w.transcript();
    let end = transcript.lines().last().unwrap();
    assert!(end.contains("ProgressDeadlineExceeded"), "{transcript}");
}

#[test]
fn a_stuck_rollback_under_recreate_exceeds_its_deadline() {
    way_back_is_noticed(deployment("web").replicas(2).recreate());
}

#[test]
fn a_stuck_rollback_with_full_surge_exceeds_its_deadline() {
    way_back_is_noticed(deployment("web").replicas(4).surge("100%").unavailable("100%"));
}

#[test]
fn a_pause_under_recreate_restores_the_old_version_until_it_is_resumed() {
    let start = deployment("web").replicas(3).recreate();
    check(
        "recreate-pause-while-waiting",
        "Recreate waits for pods that take 30 s, and is paused",
        start,
        |w| {
            w.stop_seconds = 30;
            w.settle();
            w.set_image("v2");
            w.rounds(2);
            w.edit("pause", |spec| spec["paused"] = true.into());
            w.settle();
            w.edit("resume", |spec| spec["paused"] = false.into());
            w.settle();
        },
    );
}
