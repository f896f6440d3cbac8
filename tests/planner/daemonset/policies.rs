//! Golden transcripts and random histories of DaemonSets with rollout policies.

use proptest::prelude::*;
use serde_json::Value;

use super::check;
use super::world::{World, daemon_set, surge, unavailable};

/// A DaemonSet with annotations of ours.
fn with(strategy: Value, policies: &[(&str, &str)]) -> Value {
    let mut daemon_set = daemon_set(strategy);
    for (key, value) in policies {
        daemon_set["metadata"]["annotations"][format!("windlass.dev/{key}")] = (*value).into();
    }
    daemon_set
}

fn to_v2(world: &mut World) {
    world.settle();
    world.set_image("v2");
    world.pass(60);
}

/// A user approves steps, as the judge of the world must know.
fn approve(world: &mut World, revision: i64, step: usize) {
    world.policy("rollout", &format!("approve {revision}/{step}"));
    let approved = world.approved.entry(revision).or_default();
    *approved = step.max(*approved);
}

#[test]
fn a_step_holds_until_it_is_approved_or_its_time_is_over() {
    let start = with(unavailable(1), &[("steps", "1, 50% for 10m")]);
    check(
        "policy-steps",
        "4 nodes, steps \"1, 50% for 10m\", the wrong and the right revision",
        4,
        start,
        |w| {
            to_v2(w);
            approve(w, 1, 1);
            w.pass(60);
            approve(w, 2, 1);
            w.settle();
        },
    );
}

#[test]
fn with_surge_a_step_bounds_the_nodes_with_a_new_pod() {
    let start = with(surge("50%"), &[("steps", "1, 3")]);
    check("policy-steps-surge", "4 nodes, maxSurge 50 %, steps \"1, 3\"", 4, start, |w| {
        to_v2(w);
        approve(w, 2, 1);
        w.pass(60);
        approve(w, 2, 2);
        w.settle();
    });
}

#[test]
fn a_lost_a_forged_and_a_copied_state_pass_no_step() {
    let start = with(unavailable(1), &[("steps", "1, 2, 3")]);
    check(
        "policy-state-lost",
        "4 nodes, steps \"1, 2, 3\", the state is lost, unreadable, of another",
        4,
        start,
        |w| {
            to_v2(w);
            approve(w, 2, 1);
            w.pass(60);
            w.policy("rollout", "");
            w.forge_state("v2", "");
            w.pass(60);
            w.forge_state("v2", "{");
            w.pass(60);
            w.forge_state("v2", r#"{"hash":"agent-other","revision":2,"passed":3}"#);
            w.pass(60);
            approve(w, 2, 3);
            w.settle();
        },
    );
}

#[test]
fn steps_that_are_edited_in_a_hold_count_by_the_nodes_that_have_a_new_pod() {
    let start = with(unavailable(1), &[("steps", "2")]);
    check("policy-steps-edited", "6 nodes, steps \"2\", then \"1, 50%\", then none", 6, start, |w| {
        to_v2(w);
        w.policy("steps", "1, 50%");
        w.approved.insert(2, 1);
        w.pass(60);
        w.policy("steps", "");
        w.settle();
    });
}

#[test]
fn a_bypass_holds_nothing_until_it_ends() {
    let start = with(unavailable(1), &[("steps", "1, 2, 5"), ("bypass-until", "2026-01-01T00:00:40Z")]);
    let mut start = start;
    start["spec"]["minReadySeconds"] = 10.into();
    check("policy-bypass", "6 nodes, minReadySeconds 10, a bypass of 40 s", 6, start, |w| {
        to_v2(w);
        w.policy("bypass-until", "");
        approve(w, 2, 3);
        w.settle();
    });
}

#[test]
fn a_return_to_a_proven_template_is_not_stepped() {
    let start = with(unavailable(1), &[("steps", "1")]);
    check("policy-undo", "4 nodes, steps \"1\", undone at the step", 4, start, |w| {
        to_v2(w);
        w.undo(1);
        w.approved.insert(3, 1);
        w.settle();
    });
}

#[test]
fn nodes_that_stop_and_nodes_that_join_pass_no_step() {
    let start = with(unavailable(1), &[("steps", "1, 2")]);
    check(
        "policy-nodes",
        "4 nodes, steps \"1, 2\": three stop at step 1, two join, three return",
        4,
        start,
        |w| {
            to_v2(w);
            let old: Vec<String> = w.nodes.keys().filter(|node| w.on(node) == "v1").cloned().collect();
            old.iter().for_each(|node| w.die(node));
            w.pass(60);
            w.add_node("n5");
            w.add_node("n6");
            w.pass(60);
            old.iter().for_each(|node| w.recover(node));
            w.pass(60);
            approve(w, 2, 2);
            w.settle();
        },
    );
}

#[test]
fn a_node_that_is_not_ready_stops_no_update_and_follows_when_it_is_back() {
    let start = with(unavailable(1), &[("not-ready-nodes", "ignore"), ("progress-deadline", "10m")]);
    check(
        "policy-not-ready",
        "4 nodes, one is dead: not-ready-nodes: ignore, progress-deadline 10m",
        4,
        start,
        |w| {
            w.settle();
            w.die("n2");
            w.settle();
            w.set_image("v2");
            w.settle();
            w.now = "2026-01-01T05:00:00Z".parse().unwrap();
            w.recover("n2");
            w.settle();
        },
    );
}

#[test]
fn a_new_pod_that_makes_its_node_not_ready_stops_the_update() {
    let start = with(unavailable(1), &[("not-ready-nodes", "ignore")]);
    check(
        "policy-not-ready-by-new-pod",
        "4 nodes, v2 makes its node not ready: not-ready-nodes: ignore",
        4,
        start,
        |w| {
            w.broken.insert("v2".into());
            to_v2(w);
            let broken: Vec<String> =
                w.nodes.keys().filter(|node| w.on(node).starts_with("v2")).cloned().collect();
            broken.iter().for_each(|node| w.taint(node, &["node.kubernetes.io/not-ready:NoSchedule"]));
            w.pass(3600);
            let updated = w.nodes.keys().filter(|node| w.on(node).starts_with("v2")).count();
            assert_eq!(updated, 1, "RP15");
        },
    );
}

#[test]
fn a_new_pod_that_fails_and_makes_its_node_not_ready_stops_the_update() {
    let start = with(unavailable(1), &[("not-ready-nodes", "ignore")]);
    let mut w = World::new("", start, 4);
    w.settle();
    w.failing.insert("v2".into());
    w.set_image("v2");
    w.pass(10);
    let failed: Vec<String> = w.nodes.keys().filter(|node| w.on(node).starts_with("v2")).cloned().collect();
    assert_eq!(failed.len(), 1, "{}", w.transcript);
    w.taint(&failed[0], &["node.kubernetes.io/not-ready:NoExecute"]);
    w.pass(3600);
    let old = w.nodes.keys().filter(|node| w.on(node) == "v1").count();
    assert_eq!(old, 3, "RP15: {}", w.transcript);
}

#[test]
fn an_update_without_progress_passes_its_deadline_and_recovers() {
    let start = with(unavailable(1), &[("progress-deadline", "5m")]);
    check(
        "policy-deadline",
        "3 nodes, progress-deadline 5m: v2 is broken, then runs; later a node joins",
        3,
        start,
        |w| {
            w.broken.insert("v2".into());
            to_v2(w);
            w.pass(600);
            w.broken.clear();
            w.say("kubelet", "v2 runs now");
            w.settle();
            w.pass(7200);
            w.add_node("n4");
            w.settle();
            w.policy("progress-deadline", "");
            w.settle();
        },
    );
}

#[test]
fn no_deadline_runs_while_a_step_holds() {
    let start = with(unavailable(1), &[("progress-deadline", "5m"), ("steps", "1 for 1h")]);
    check("policy-deadline-step", "3 nodes, progress-deadline 5m, steps \"1 for 1h\"", 3, start, |w| {
        w.settle();
        w.set_image("v2");
        w.settle();
    });
}

#[test]
fn a_value_that_cannot_be_read_holds_the_update_and_nothing_else() {
    let start = daemon_set(unavailable(1));
    check(
        "policy-invalid",
        "3 nodes, steps \"1,25%%\" and an unknown key; a pod and a node die",
        3,
        start,
        |w| {
            w.settle();
            w.policy("steps", "1,25%%");
            w.policy("step", "1");
            w.set_image("v2");
            w.pass(60);
            w.say("user", "deletes the pod on n2");
            let now = w.now.to_string();
            w.pod_on("n2")["metadata"]["deletionTimestamp"] = now.into();
            w.add_node("n4");
            w.pass(60);
            w.policy("steps", "");
            w.settle();
        },
    );
}

#[test]
fn steps_mean_nothing_under_on_delete() {
    let start = with(serde_json::json!({"type": "OnDelete"}), &[("steps", "1")]);
    check("policy-on-delete", "2 nodes, OnDelete, steps \"1\"", 2, start, |w| {
        to_v2(w);
        w.policy("steps", "");
        w.settle();
    });
}

#[derive(Clone, Debug)]
enum Step {
    Pass(i64),
    Image,
    Approve(i64, usize),
    Die(usize),
    Recover(usize),
    AddNode(usize),
    Unready(usize),
    LoseState,
    Ignore(bool),
    Break(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1..90i64).prop_map(Step::Pass),
        2 => Just(Step::Image),
        3 => (-1..2i64, 1..4usize).prop_map(|(off, step)| Step::Approve(off, step)),
        2 => (1..8usize).prop_map(Step::Die),
        2 => (1..8usize).prop_map(Step::Recover),
        1 => (1..8usize).prop_map(Step::AddNode),
        1 => (1..8usize).prop_map(Step::Unready),
        1 => Just(Step::LoseState),
        1 => any::<bool>().prop_map(Step::Ignore),
        1 => any::<bool>().prop_map(Step::Break),
    ]
}

fn latest(world: &World) -> i64 {
    world.revisions.values().filter_map(|revision| revision["revision"].as_i64()).max().unwrap_or(1)
}

fn take(world: &mut World, step: Step, images: &mut usize) {
    let name = |node: usize| format!("n{node}");
    match step {
        Step::Pass(seconds) => world.pass(seconds),
        Step::Image => {
            *images += 1;
            world.set_image(&format!("v{images}"));
            world.rounds(1);
        }
        Step::Approve(off, step) => {
            // A command for another revision approves nothing, whenever that one comes.
            let revision = latest(world) + off;
            world.policy("rollout", &format!("approve {revision}/{step}"));
            let approved = world.approved.entry(revision).or_default();
            *approved = step.max(*approved);
            world.rounds(2);
        }
        Step::Die(node) if world.nodes.contains_key(&name(node)) => world.die(&name(node)),
        Step::Recover(node) if world.nodes.contains_key(&name(node)) => {
            world.dead.remove(&name(node));
            world.taint(&name(node), &[]);
        }
        Step::AddNode(node) if !world.nodes.contains_key(&name(node)) => world.add_node(&name(node)),
        Step::Unready(node) if world.has_live_pod(&name(node)) => world.set_ready(&name(node), false),
        Step::LoseState => {
            for revision in world.revisions.values_mut() {
                revision["metadata"].as_object_mut().unwrap().remove("annotations");
            }
        }
        Step::Ignore(ignore) => world.policy("not-ready-nodes", if ignore { "ignore" } else { "" }),
        Step::Break(breaks) => {
            world.broken.clear();
            if breaks {
                world.broken.insert(format!("v{images}"));
            }
        }
        Step::Die(_) | Step::Recover(_) | Step::AddNode(_) | Step::Unready(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// RP2, RP3, RP12 and RP15 are checked by the world at each write: no node follows beyond a step that nobody has
    /// approved, and none while new pods on nodes that are not ready use up the budget. RP14: in the end the update ends.
    #[test]
    fn no_history_passes_a_step_that_nobody_has_approved(
        surges in any::<bool>(), steps in prop::collection::vec(step(), 0..40),
    ) {
        let strategy = if surges { surge(2) } else { unavailable(2) };
        let mut world = World::new("", with(strategy, &[("steps", "1, 2, 50%")]), 5);
        let mut images = 1;
        for step in steps {
            take(&mut world, step, &mut images);
        }
        world.broken.clear();
        for node in world.nodes.keys().cloned().collect::<Vec<_>>() {
            world.dead.remove(&node);
            world.taint(&node, &[]);
        }
        images += 1;
        world.set_image(&format!("v{images}"));
        world.pass(60);
        let revision = latest(&world);
        world.policy("rollout", &format!("approve {revision}"));
        world.approved.insert(revision, 3);
        world.pass(3600);
        world.settle();
        let plan = world.plan();
        prop_assert!(plan.writes.is_empty(), "{:?}\n{}", plan, world.transcript);
        for (node, _) in world.verdicts().iter() {
            prop_assert_eq!(world.on(node), format!("v{images}"), "{}\n{}", node, world.transcript);
        }
    }
}
