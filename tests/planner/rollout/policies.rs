//! Rollouts under policies: the transcripts of `docs/rollout-policy.md`.

use windlass_planner_testkit::objects::{DeploymentBuilder, deployment};
use windlass_planner_testkit::rollout::Rollout;

use super::check;

fn with(replicas: i32, policy: &[(&str, &str)]) -> DeploymentBuilder {
    let start = deployment("web").replicas(replicas).surge(1).unavailable(0);
    policy.iter().fold(start, |start, (key, value)| start.annotation(&format!("windlass.dev/{key}"), value))
}

/// Rolls out v1, and sets the image v2.
fn to_v2(w: &mut Rollout) {
    w.settle();
    w.set_image("v2");
    w.run_for(60);
}

#[test]
fn steps_are_approved_and_waited_for() {
    let start = with(4, &[("steps", "1, 50% for 10m")]);
    check("steps-approved", "4 replicas, maxSurge 1, steps \"1, 50% for 10m\", new image", start, |w| {
        to_v2(w);
        w.policy("rollout", "approve 1/1");
        w.run_for(60);
        w.policy("rollout", "approve 2/1");
        w.settle();
    });
}

#[test]
fn another_revision_takes_the_place_of_the_canary() {
    let start = with(4, &[("steps", "2, 3")]);
    check("steps-rollover", "4 replicas, steps \"2, 3\", v3 while v2 is held", start, |w| {
        to_v2(w);
        w.set_image("v3");
        w.run_for(60);
        w.policy("rollout", "approve 2");
        w.run_for(60);
        w.policy("rollout", "approve 3");
        w.settle();
    });
}

#[test]
fn an_undo_is_not_stepped() {
    let start = with(4, &[("steps", "1"), ("batch-delay", "5m")]);
    check("steps-undo-is-fast", "4 replicas, steps \"1\", v2 is undone at its step", start, |w| {
        to_v2(w);
        w.set_image("v1");
        w.run_for(60);
        w.say("end", "one minute later");
    });
}

#[test]
fn an_autoscaler_promotes_no_canary() {
    let start = with(4, &[("steps", "1")]);
    check("steps-hpa", "4 replicas, steps \"1\", scaled while held", start, |w| {
        to_v2(w);
        w.scale(8);
        w.run_for(60);
        w.scale(2);
        w.run_for(60);
        w.policy("rollout", "approve 2");
        w.settle();
    });
}

#[test]
fn a_lost_state_skips_no_step() {
    let start = with(4, &[("steps", "1, 2 for 10m, 3")]);
    check(
        "steps-state-lost",
        "4 replicas, steps \"1, 2 for 10m, 3\", the state is lost, forged, copied",
        start,
        |w| {
            to_v2(w);
            w.policy("rollout", "approve 2/1");
            w.run_for(300);
            w.annotate_replica_set("v2", "windlass.dev/rollout-state", "{");
            w.run_for(500);
            w.annotate_replica_set(
                "v2",
                "windlass.dev/rollout-state",
                r#"{"hash":"other","revision":2,"passed":3}"#,
            );
            w.run_for(3600);
            w.policy("rollout", "approve 2");
            w.settle();
        },
    );
}

#[test]
fn a_bypass_holds_nothing_until_it_ends() {
    let start = with(6, &[("steps", "1, 2, 5"), ("bypass-until", "2026-01-01T00:00:40Z")]);
    check("steps-bypass", "6 replicas, minReadySeconds 10, a bypass of 40 s", start.min_ready(10), |w| {
        to_v2(w);
        w.run_for(3600);
        w.policy("rollout", "approve 2/3");
        w.settle();
    });
}

#[test]
fn a_failed_rollout_halts_and_is_retried() {
    let start = with(4, &[("fail-after", "2m"), ("on-failure", "halt")]);
    check("fail-halt", "4 replicas, fail-after 2m, on-failure halt, a broken image", start, |w| {
        w.failing.push("v2".into());
        to_v2(w);
        w.settle();
        w.policy("rollout", "retry 2/1");
        w.settle();
        w.failing.clear();
        w.policy("rollout", "retry 2/2");
        w.settle();
    });
}

#[test]
fn a_halt_is_scaled_and_ends_with_another_template() {
    let start = with(4, &[("fail-after", "2m"), ("on-failure", "halt")]);
    check("fail-halt-scaled", "4 replicas, halted, scaled to 6 and to 2, then v3", start, |w| {
        w.failing.push("v2".into());
        to_v2(w);
        w.settle();
        w.scale(6);
        w.run_for(60);
        w.scale(2);
        w.run_for(60);
        w.set_image("v3");
        w.settle();
    });
}

#[test]
fn one_broken_pod_of_many_fails_no_rollout() {
    let start =
        deployment("web").replicas(4).surge(0).unavailable(2).annotation("windlass.dev/fail-after", "2m");
    check(
        "fail-one-of-many-goes-on",
        "4 replicas, maxUnavailable 2, one new pod is unready for long",
        start,
        |w| {
            w.settle();
            w.set_image("v2");
            (w.failing, w.failing_at_most) = (vec!["v2".into()], 1);
            w.settle();
        },
    );
}

#[test]
fn a_rollback_happens_once_and_then_the_rollout_halts() {
    let start = with(3, &[("fail-after", "1m"), ("on-failure", "rollback")]);
    check("rollback-once-then-halt", "3 replicas, on-failure rollback, Git applies v2 again", start, |w| {
        w.failing.push("v2".into());
        to_v2(w);
        w.settle();
        w.set_image("v2");
        w.settle();
    });
}

#[test]
fn an_abort_halts_without_on_failure() {
    let start = with(4, &[("steps", "1")]);
    check("abort", "4 replicas, steps \"1\", aborted, and retried", start, |w| {
        to_v2(w);
        w.policy("rollout", "abort 2");
        w.settle();
        w.policy("rollout", "retry 2/1");
        w.run_for(60);
        w.policy("rollout", "approve 2");
        w.settle();
    });
}

#[test]
fn on_a_full_cluster_an_old_pod_is_terminated_first() {
    let start = with(3, &[("when-unschedulable", "terminate-first")]);
    check("unschedulable-helps", "3 replicas on a node for 3 pods, terminate-first", start, |w| {
        w.room_for(3);
        w.one_below();
        w.settle();
        w.set_image("v2");
        w.settle();
    });
}

#[test]
fn an_old_pod_comes_back_if_its_end_does_not_help() {
    let start = with(2, &[("when-unschedulable", "terminate-first")]);
    check("unschedulable-does-not-help", "2 replicas, no room for the new pod whatever ends", start, |w| {
        w.settle();
        w.room_for(0);
        w.one_below();
        w.set_image("v2");
        w.run_for(240);
        w.room_for(9);
        w.settle();
    });
}

#[test]
fn batches_are_delayed() {
    let start = with(3, &[("batch-delay", "5m")]);
    check("batch-delay", "3 replicas, batch-delay 5m, new image", start, to_v2_at_last);
}

fn to_v2_at_last(w: &mut Rollout) {
    w.settle();
    w.set_image("v2");
    w.settle();
}

#[test]
fn terminating_pods_are_counted() {
    let start = with(3, &[("pod-replacement", "TerminationComplete")]);
    check("terminating-counted", "3 replicas, TerminationComplete, pods take 30 s to stop", start, |w| {
        w.stop_seconds = 30;
        to_v2_at_last(w);
    });
}

#[test]
fn recreate_starts_when_termination_has_started() {
    let start = deployment("web").replicas(2).recreate();
    let start = start.annotation("windlass.dev/pod-replacement", "TerminationStarted");
    check(
        "recreate-termination-started",
        "2 replicas, Recreate, TerminationStarted, pods take 30 s to stop",
        start,
        |w| {
            w.stop_seconds = 30;
            to_v2_at_last(w);
        },
    );
}

#[test]
fn a_value_that_cannot_be_read_holds_the_next_change() {
    let start = with(3, &[("steps", "1,25%%")]);
    check(
        "invalid-holds",
        "3 replicas, steps \"1,25%%\": created, then a new image, then corrected",
        start,
        |w| {
            w.settle();
            w.set_image("v2");
            w.run_for(3600);
            w.scale(4);
            w.run_for(60);
            w.policy("steps", "1,25%");
            w.run_for(60);
            w.policy("rollout", "approve 2");
            w.settle();
        },
    );
}

#[test]
fn the_one_that_serves_grows_after_the_canary_has_shrunk() {
    let start = deployment("web").replicas(4).surge(2).unavailable(0).annotation("windlass.dev/steps", "2");
    check(
        "steps-rollover-order",
        "4 replicas, maxSurge 2, steps \"2\" and then \"1\", v3 comes",
        start,
        |w| {
            w.settle();
            w.set_image("v2");
            w.run_for(60);
            w.policy("steps", "1");
            w.set_image("v3");
            w.run_for(60);
            w.say("end", "v1 serves, v3 is held");
        },
    );
}

#[test]
fn scaling_waits_for_terminating_pods_and_keeps_the_ratio() {
    let start = deployment("web").replicas(6).surge(2).unavailable(0);
    let start = start.annotation("windlass.dev/pod-replacement", "TerminationComplete");
    let title = "6 replicas, maxSurge 2, TerminationComplete, pods take 60 s to stop, scaled to 12 midway";
    check("terminating-scale", title, start, |w| {
        w.stop_seconds = 60;
        w.settle();
        w.set_image("v2");
        w.run_for(62);
        w.scale(12);
        w.settle();
    });
}

#[test]
fn a_complete_deployment_is_scaled_up_as_its_pods_end() {
    let start = deployment("web").replicas(4).surge(1).unavailable(0);
    let start = start.annotation("windlass.dev/pod-replacement", "TerminationComplete");
    check(
        "terminating-scale-at-rest",
        "4 replicas, TerminationComplete, scaled to 1 and at once to 4",
        start,
        |w| {
            w.stop_seconds = 60;
            w.settle();
            w.scale(1);
            w.run_for(1);
            w.scale(4);
            w.settle();
        },
    );
}

#[test]
fn an_abort_stops_a_rollout_that_is_under_way() {
    let start = with(6, &[("fail-after", "1h")]);
    check("abort-midway", "6 replicas, aborted while it rolls", start, |w| {
        w.settle();
        w.set_image("v2");
        w.rounds(4);
        w.policy("rollout", "abort 2");
        w.settle();
    });
}

#[test]
fn a_template_that_had_no_pods_is_not_proven() {
    let start = with(0, &[("steps", "1")]);
    check(
        "steps-without-pods",
        "0 replicas, steps \"1\": v1, then v2 gets 3 pods, then v1 again",
        start,
        |w| {
            w.settle();
            w.set_image("v2");
            w.settle();
            w.scale(3);
            w.settle();
            w.set_image("v1");
            w.run_for(60);
            w.say("end", "v1 never had a pod: it is held");
        },
    );
}

#[test]
fn each_pod_that_fits_no_node_waits_for_its_own_time() {
    let start = with(3, &[("when-unschedulable", "terminate-first")]).min_ready(90);
    let title = "3 replicas on a node for 3 pods, terminate-first, pods are available after 90 s";
    check("unschedulable-slow-start", title, start, |w| {
        w.room_for(3);
        w.one_below();
        w.settle();
        w.set_image("v2");
        w.settle();
    });
}

#[test]
fn a_rollout_that_is_stuck_already_halts_once_its_policy_says_so() {
    check("deadline-then-halt", "2 replicas, v2 is never ready, on-failure comes later", with(2, &[]), |w| {
        w.broken.push("v2".into());
        to_v2(w);
        w.settle();
        w.policy("on-failure", "halt");
        w.settle();
    });
}

#[test]
fn a_retried_rollout_gets_its_whole_deadline_again() {
    let start = with(2, &[("on-failure", "halt")]);
    check("deadline-halt-retried", "2 replicas, on-failure halt, v2 is never ready, retried", start, |w| {
        w.broken.push("v2".into());
        to_v2(w);
        w.settle();
        w.policy("rollout", "retry 2/1");
        w.run_for(590);
        w.say("time", "590 s later");
        w.settle();
    });
}

#[test]
fn recreate_keeps_the_pods_that_serve_from_a_template_that_has_failed() {
    let start = deployment("web").replicas(2).recreate();
    let start = start.annotation("windlass.dev/fail-after", "1m");
    let start = start.annotation("windlass.dev/on-failure", "rollback");
    check("recreate-rollback-once", "2 replicas, Recreate, rollback, Git applies v2 again", start, |w| {
        w.failing.push("v2".into());
        to_v2(w);
        w.settle();
        w.set_image("v2");
        w.settle();
    });
}

#[test]
fn an_abort_with_nothing_to_go_back_to_changes_nothing() {
    let start = deployment("web").replicas(2).recreate();
    check("abort-recreate", "2 replicas, Recreate, v2 is never ready, aborted", start, |w| {
        w.broken.push("v2".into());
        to_v2(w);
        w.policy("rollout", "abort 2");
        w.run_for(60);
        w.say("end", "nothing serves, and v2 stays");
    });
}

#[test]
fn the_last_old_pod_comes_back_if_its_end_does_not_help() {
    let start = with(1, &[("when-unschedulable", "terminate-first")]);
    check("unschedulable-last-pod", "1 replica, no room for the new pod whatever ends", start, |w| {
        w.settle();
        w.room_for(0);
        w.one_below();
        w.set_image("v2");
        w.run_for(240);
        w.room_for(9);
        w.settle();
    });
}

#[test]
fn recreate_scaled_to_nothing_and_back_grows_the_one_that_serves() {
    let start = deployment("web").replicas(2).recreate();
    let start = start.annotation("windlass.dev/fail-after", "1m");
    let start = start.annotation("windlass.dev/on-failure", "rollback");
    check("recreate-halt-scaled", "2 replicas, Recreate, halted, scaled to 0 and to 2", start, |w| {
        w.failing.push("v2".into());
        to_v2(w);
        w.settle();
        w.set_image("v2");
        w.settle();
        w.scale(0);
        w.run_for(60);
        w.scale(2);
        w.settle();
    });
}
