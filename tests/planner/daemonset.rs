//! Golden transcripts of DaemonSets: whole rollouts over changing nodes, step by step, for reviewers.
//!
//! Planner and a toy cluster; no tokio, no HTTP. `UPDATE_EXPECT=1 cargo test --test planner daemonset` writes the files
//! under `tests/planner/daemonset/` anew: read the difference before it is committed.

mod defects;
mod policies;
mod properties;
mod world;
mod writes;

use serde_json::{Value, json};
use world::{World, daemon_set, surge, unavailable};

/// Plays a rollout and compares its transcript with `tests/planner/daemonset/<name>.txt`.
#[track_caller]
fn check(name: &str, title: &str, nodes: usize, start: Value, play: impl FnOnce(&mut World)) {
    let mut world = World::new(title, start, nodes);
    play(&mut world);
    world.check_backoff();
    let path = format!("{}/../../tests/planner/daemonset/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &world.transcript).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        world.transcript == expected,
        "{path} expects another rollout (UPDATE_EXPECT=1 rewrites it). Now:\n{}",
        world.transcript
    );
}

/// A DaemonSet settled with version v1, then gets v2.
fn roll_to_v2(world: &mut World) {
    world.settle();
    world.set_image("v2");
    world.settle();
}

#[test]
fn every_node_gets_a_pod() {
    check("create", "3 nodes, new", 3, daemon_set(unavailable(1)), World::settle);
}

#[test]
fn without_a_node_nothing_happens() {
    check("no-nodes", "no node, then a new image", 0, daemon_set(unavailable(1)), roll_to_v2);
}

#[test]
fn nodes_are_added_deleted_and_added_again() {
    check("nodes", "a node is added, one is removed and added again", 2, daemon_set(unavailable(1)), |w| {
        w.settle();
        w.add_node("n3");
        w.settle();
        w.remove_node("n1");
        w.settle();
        w.collect_pods();
        w.settle();
        w.add_node("n1");
        w.settle();
    });
}

#[test]
fn a_node_that_is_added_again_before_its_pod_is_collected_keeps_the_pod() {
    check("node-re-added", "a node is replaced by one of its name", 2, daemon_set(unavailable(1)), |w| {
        w.settle();
        w.remove_node("n1");
        w.settle();
        w.add_node("n1");
        w.settle();
    });
}

#[test]
fn taints_prevent_and_evict_pods() {
    check("taints", "NoSchedule, NoExecute, cordoned, dead", 3, daemon_set(unavailable(1)), |w| {
        w.settle();
        w.taint("n1", &["maintenance:NoSchedule"]);
        w.settle();
        w.taint("n2", &["maintenance:NoExecute"]);
        w.settle();
        w.taint("n1", &[]);
        w.taint("n2", &[]);
        w.settle();
        w.taint("n3", &["node.kubernetes.io/unschedulable:NoSchedule"]);
        w.settle();
        w.taint("n3", &["node.kubernetes.io/not-ready:NoSchedule", "node.kubernetes.io/not-ready:NoExecute"]);
        w.settle();
    });
}

#[test]
fn labels_decide_where_pods_run() {
    let mut start = daemon_set(unavailable(1));
    start["spec"]["template"]["spec"]["nodeSelector"] = json!({"disk": "ssd"});
    check("labels", "nodeSelector disk=ssd, and nodes that are relabelled", 3, start, |w| {
        w.settle();
        w.label("n1", "disk", "ssd");
        w.label("n2", "disk", "ssd");
        w.settle();
        w.label("n1", "disk", "hdd");
        w.settle();
        w.edit("no nodeSelector", |spec| {
            drop(spec["template"]["spec"].as_object_mut().unwrap().remove("nodeSelector"))
        });
        w.settle();
    });
}

#[test]
fn one_node_at_a_time() {
    check("unavailable-1", "3 nodes, maxUnavailable 1, new image", 3, daemon_set(unavailable(1)), roll_to_v2);
}

#[test]
fn a_percentage_of_the_nodes_rounds_up() {
    check(
        "third-of-10",
        "10 nodes, maxUnavailable 30 %, new image",
        10,
        daemon_set(unavailable("30%")),
        roll_to_v2,
    );
    check(
        "tenth-of-3",
        "3 nodes, maxUnavailable 10 %, new image",
        3,
        daemon_set(unavailable("10%")),
        roll_to_v2,
    );
}

#[test]
fn with_surge_new_pods_are_created_before_old_ones_are_deleted() {
    check("surge-1", "3 nodes, maxSurge 1, new image", 3, daemon_set(surge(1)), roll_to_v2);
    check("fifth-of-6", "6 nodes, maxSurge 20 %, new image", 6, daemon_set(surge("20%")), roll_to_v2);
}

#[test]
fn an_old_pod_that_is_not_ready_is_replaced_outside_the_budget() {
    for (name, strategy) in [("surge-unready", surge(1)), ("unavailable-unready", unavailable(1))] {
        let title = format!("4 nodes, {name}: pods of two nodes turn unready before the new image");
        check(name, &title, 4, daemon_set(strategy), |w| {
            w.settle();
            w.set_ready("n1", false);
            w.set_ready("n3", false);
            w.set_image("v2");
            w.settle();
        });
    }
}

#[test]
fn a_surge_over_nodes_that_should_not_run_keeps_their_pods_until_others_are_available() {
    check(
        "surge-tolerations",
        "maxSurge 1, a taint on two of 4 nodes, new image",
        4,
        daemon_set(surge(1)),
        |w| {
            w.settle();
            w.taint("n1", &["maintenance:NoSchedule"]);
            w.taint("n2", &["maintenance:NoSchedule"]);
            w.set_image("v2");
            w.settle();
        },
    );
}

#[test]
fn zero_surge_and_zero_unavailability_still_progress() {
    let start =
        daemon_set(json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}));
    check("both-zero", "2 nodes, maxUnavailable 0 and maxSurge 0, new image", 2, start, roll_to_v2);
}

#[test]
fn on_delete_waits_for_deletions_and_a_switch_to_rolling_update_does_not() {
    check(
        "on-delete",
        "3 nodes, OnDelete, one pod deleted by hand, then RollingUpdate",
        3,
        daemon_set(json!({"type": "OnDelete"})),
        |w| {
            roll_to_v2(w);
            w.say("user", "deletes the pod on n2");
            let now = w.now.to_string();
            w.pod_on("n2")["metadata"]["deletionTimestamp"] = now.into();
            w.settle();
            w.edit("RollingUpdate", |spec| spec["updateStrategy"] = unavailable(1));
            w.settle();
        },
    );
}

#[test]
fn a_switch_of_strategy_in_mid_rollout() {
    check(
        "surge-to-unavailable",
        "3 nodes, maxSurge 1, then maxUnavailable 1 in mid-rollout",
        3,
        daemon_set(surge(1)),
        |w| {
            w.settle();
            w.set_image("v2");
            w.rounds(1);
            w.edit("maxUnavailable 1", |spec| spec["updateStrategy"] = unavailable(1));
            w.settle();
        },
    );
}

#[test]
fn a_pod_is_available_after_min_ready_seconds() {
    for (name, strategy) in [("min-ready-seconds", unavailable(1)), ("min-ready-surge", surge(1))] {
        let mut start = daemon_set(strategy);
        start["spec"]["minReadySeconds"] = 10.into();
        check(name, &format!("2 nodes, minReadySeconds 10, {name}, new image"), 2, start, roll_to_v2);
    }
}

#[test]
fn a_broken_image_stops_at_the_budget_and_is_undone() {
    for (name, strategy) in [("broken", unavailable(1)), ("broken-surge", surge(1))] {
        let title = format!("4 nodes, {name}: v2 never becomes ready, then undo");
        check(name, &title, 4, daemon_set(strategy), |w| {
            w.broken.insert("v2".into());
            roll_to_v2(w);
            w.undo(1);
            w.settle();
        });
    }
}

#[test]
fn failed_pods_are_replaced_with_backoff() {
    for (name, strategy) in [("failed", unavailable(1)), ("failed-surge", surge(1))] {
        check(
            name,
            &format!("{name}: pods of one node fail, later they do not"),
            1,
            daemon_set(strategy),
            |w| {
                w.settle();
                w.failing.insert("v2".into());
                w.set_image("v2");
                w.pass(40);
                w.failing.clear();
                w.say("kubelet", "v2 runs now");
                w.settle();
            },
        );
    }
}

#[test]
fn a_succeeded_pod_is_replaced_at_once() {
    check(
        "succeeded",
        "the pods of two nodes end, one is held by a finalizer",
        2,
        daemon_set(unavailable(1)),
        |w| {
            w.settle();
            for node in ["n1", "n2"] {
                w.say("kubelet", &format!("the pod on {node} ends"));
                w.pod_on(node)["status"] = json!({"phase": "Succeeded"});
            }
            let now = w.now.to_string();
            w.pod_on("n2")["metadata"]["deletionTimestamp"] = now.into();
            w.dead.insert("n2".into());
            w.rounds(1);
            w.dead.clear();
            w.settle();
        },
    );
}

#[test]
fn a_dead_node_uses_up_the_budget_in_mid_rollout() {
    check(
        "dead-node",
        "3 nodes, maxUnavailable 1, one dies in mid-rollout, and is removed",
        3,
        daemon_set(unavailable(1)),
        |w| {
            w.settle();
            w.set_image("v2");
            w.rounds(1);
            let old = ["n1", "n2", "n3"].into_iter().find(|node| w.on(node) == "v1").unwrap();
            w.say("cluster", &format!("{old} dies"));
            w.dead.insert(old.into());
            w.set_ready(old, false);
            w.taint(
                old,
                &["node.kubernetes.io/unreachable:NoSchedule", "node.kubernetes.io/unreachable:NoExecute"],
            );
            w.settle();
            w.remove_node(old);
            w.settle();
            w.collect_pods();
            w.settle();
        },
    );
}

#[test]
fn the_history_keeps_revision_history_limit_revisions() {
    for limit in [0, 1, 10] {
        let mut start = daemon_set(unavailable("100%"));
        start["spec"]["revisionHistoryLimit"] = limit.into();
        check(
            &format!("history-{limit}"),
            &format!("revisionHistoryLimit {limit}, v1 to v4, then v2"),
            1,
            start,
            |w| {
                w.settle();
                for tag in ["v2", "v3", "v4", "v2"] {
                    w.set_image(tag);
                    w.settle();
                }
            },
        );
    }
}

#[test]
fn the_first_of_three_revisions_becomes_the_fourth() {
    check("undo", "v1 to v3, then undo to revision 1", 2, daemon_set(unavailable(1)), |w| {
        roll_to_v2(w);
        w.set_image("v3");
        w.settle();
        w.undo(1);
        w.settle();
    });
}

#[test]
fn a_revision_name_in_use_is_a_collision() {
    check("collision", "a foreign revision has the name", 1, daemon_set(unavailable(1)), |w| {
        w.settle();
        w.set_image("v2");
        let plan = w.plan();
        let name = plan.writes.iter().find_map(|write| match write {
            windlass::plan::daemonset::Write::CreateRevision(new) => Some(new.name.clone()),
            _ => None,
        });
        let name = name.unwrap();
        let mut foreign = w.revisions.values().next().unwrap().clone();
        foreign["metadata"]["name"] = name.as_str().into();
        foreign["metadata"]["labels"] = json!({});
        foreign["metadata"].as_object_mut().unwrap().remove("ownerReferences");
        w.say("user", "creates a revision of that name");
        w.revisions.insert(name, foreign);
        w.settle();
    });
}

#[test]
fn duplicates_of_the_current_revision_are_merged() {
    check(
        "duplicate",
        "a copy of the current revision with a higher number, while old pods are left",
        3,
        daemon_set(json!({"type": "OnDelete"})),
        |w| {
            roll_to_v2(w);
            let now = w.now.to_string();
            w.pod_on("n1")["metadata"]["deletionTimestamp"] = now.into();
            w.settle();
            let mut copy = w.revisions.values().find(|r| r["revision"] == 2).unwrap().clone();
            copy["metadata"]["name"] = "agent-copy".into();
            copy["metadata"]["uid"] = "uid-copy".into();
            copy["metadata"]["labels"]["controller-revision-hash"] = "copy".into();
            copy["revision"] = 7.into();
            w.say("user", "creates a copy of revision 2 as revision 7");
            w.revisions.insert("agent-copy".into(), copy);
            w.settle();
            w.edit("RollingUpdate", |spec| spec["updateStrategy"] = unavailable(1));
            w.settle();
        },
    );
}

#[test]
fn orphans_are_adopted_with_their_history() {
    check(
        "orphans",
        "deleted with --cascade=orphan and recreated with v2",
        2,
        daemon_set(unavailable(1)),
        |w| {
            w.settle();
            w.say("user", "deletes the DaemonSet, orphans its pods, and creates it with v2");
            for object in w.pods.values_mut().chain(w.revisions.values_mut()) {
                object["metadata"].as_object_mut().unwrap().remove("ownerReferences");
            }
            w.daemon_set = daemon_set(unavailable(1));
            w.daemon_set["metadata"]["uid"] = "uid-agent-2".into();
            w.daemon_set["spec"]["template"]["spec"]["containers"][0]["image"] = "agent:v2".into();
            w.settle();
        },
    );
}
