//! Mistakes of upstream's DaemonSet controller that a plan can show.

use serde_json::json;
use windlass::plan::daemonset::{Reason, Write};

use super::world::{World, daemon_set, surge, unavailable};

fn settled(strategy: serde_json::Value, nodes: usize) -> World {
    let mut world = World::new("", daemon_set(strategy), nodes);
    world.settle();
    world
}

fn status(world: &World) -> windlass::model::DaemonSetStatus {
    world.plan().status.unwrap()
}

fn reasons(world: &World) -> Vec<Reason> {
    let writes = world.plan().writes;
    let reasons = writes.iter().filter_map(|write| match write {
        Write::DeletePods(deletions) => Some(deletions.iter().map(|deletion| deletion.reason)),
        _ => None,
    });
    reasons.flatten().collect()
}

fn creates(world: &World) -> usize {
    let writes = world.plan().writes;
    let creates =
        writes.iter().map(|write| if let Write::CreatePods { pods, .. } = write { pods.len() } else { 0 });
    creates.sum()
}

fn explained(world: &World) -> String {
    world.plan().reasons.iter().map(|reason| format!("{reason}\n")).collect()
}

#[test]
fn a_deleted_node_no_longer_counts_as_desired() {
    let mut world = settled(unavailable(1), 3);
    world.remove_node("n2");
    let status = status(&world);
    assert_eq!((status.desired, status.current, status.misscheduled), (2, 2, 0));
    assert!(explained(&world).contains("n2, which no longer exists"), "{}", explained(&world));
}

#[test]
fn an_unbound_pod_is_deleted_with_its_node_or_when_the_node_becomes_unsuitable() {
    for remove in [true, false] {
        let mut world = settled(unavailable(1), 2);
        let pod = world.pod_on("n1");
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
        pod["status"] = json!({"phase": "Pending"});
        if remove {
            world.remove_node("n1");
            assert_eq!(reasons(&world), [Reason::NoNode]);
        } else {
            world.taint("n1", &["a:NoExecute"]);
            assert_eq!(reasons(&world), [Reason::NotWanted]);
        }
    }
}

#[test]
fn a_taint_shows_in_the_status() {
    let mut world = settled(unavailable(1), 2);
    world.taint("n1", &["a:NoSchedule"]);
    let status = status(&world);
    assert_eq!((status.desired, status.misscheduled, status.available), (1, 1, 1));
    assert!(reasons(&world).is_empty());
    assert!(explained(&world).contains("Pods stay on node n1"), "{}", explained(&world));
}

#[test]
fn with_surge_a_failed_pod_that_backs_off_is_not_replaced_at_every_sync() {
    let mut world = World::new("", daemon_set(surge(1)), 1);
    world.failing.insert("v1".into());
    world.pass(3600);
    world.check_backoff();
    let created = world.transcript.matches("create on n1").count();
    assert!((10..20).contains(&created), "{created} pods in an hour\n{}", world.transcript);
    assert!(world.pods.len() <= 2);
}

#[test]
fn a_pod_of_an_earlier_daemon_set_is_not_new_because_of_its_generation() {
    let mut world = settled(unavailable(1), 1);
    for object in world.pods.values_mut().chain(world.revisions.values_mut()) {
        object["metadata"].as_object_mut().unwrap().remove("ownerReferences");
    }
    world.daemon_set = daemon_set(unavailable(1));
    world.daemon_set["metadata"]["uid"] = "uid-another".into();
    world.daemon_set["spec"]["template"]["spec"]["containers"][0]["image"] = "agent:v2".into();
    world.settle();
    assert_eq!(world.on("n1"), "v2");
}

#[test]
fn unavailable_old_pods_are_deleted_at_once_as_upstream_does() {
    let mut world = settled(unavailable(1), 4);
    ["n1", "n2", "n3"].iter().for_each(|node| world.set_ready(node, false));
    world.set_image("v2");
    assert_eq!(reasons(&world).len(), 3);
}

#[test]
fn a_deleting_pod_on_a_dead_node_uses_up_the_budget_and_the_explanation_names_it() {
    let mut world = settled(unavailable(1), 3);
    world.dead.insert("n1".into());
    world.set_ready("n1", false);
    world.set_image("v2");
    world.settle();
    assert_eq!(["n2", "n3"].map(|node| world.on(node)), ["v1", "v1"]);
    assert!(explained(&world).contains("Node n1: the pod is being deleted"), "{}", explained(&world));
    assert!(explained(&world).contains("maxUnavailable is 1 and 1 node has no"), "{}", explained(&world));
}

#[test]
fn a_deleted_node_does_not_block_a_surge_on_other_nodes() {
    let mut world = settled(surge(1), 3);
    world.remove_node("n2");
    world.set_image("v2");
    world.settle();
    assert_eq!(["n1", "n3"].map(|node| world.on(node)), ["v2", "v2"]);
}

#[test]
fn a_pod_of_ours_without_a_node_is_deleted() {
    let mut world = settled(unavailable(1), 1);
    let mut foreign = world.pod_on("n1").clone();
    foreign["metadata"]["name"] = "foreign".into();
    foreign["metadata"]["uid"] = "uid-foreign".into();
    foreign["spec"] = json!({"containers": [{"name": "agent", "image": "agent:v1"}]});
    foreign["status"] = json!({"phase": "Pending"});
    world.pods.insert("foreign".into(), foreign);
    assert_eq!(reasons(&world), [Reason::NoNode]);
    assert_eq!(status(&world).current, 1);
}

#[test]
fn an_edit_of_the_node_selector_deletes_pods_at_once_as_upstream_does() {
    let mut world = settled(unavailable(1), 3);
    world.label("n1", "disk", "ssd");
    world.edit("nodeSelector", |spec| spec["template"]["spec"]["nodeSelector"] = json!({"disk": "ssd"}));
    assert_eq!(reasons(&world), [Reason::NotWanted, Reason::NotWanted]);
}

#[test]
fn an_unschedulable_pod_is_explained_with_the_schedulers_message() {
    let mut world = settled(surge(1), 2);
    world.broken.insert("v2".into());
    world.set_image("v2");
    world.settle();
    let conditions = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/2 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."}]);
    for pod in world.pods.values_mut().filter(|pod| pod["status"]["phase"] == "Pending") {
        pod["status"]["conditions"] = conditions.clone();
        pod["spec"].as_object_mut().unwrap().remove("nodeName");
    }
    let explained = explained(&world);
    assert!(explained.contains("the pod is not scheduled: Unschedulable: 0/2 nodes"), "{explained}");
    assert!(explained.contains("free ports") && explained.contains("maxSurge is 1"), "{explained}");
}

#[test]
fn a_failed_pod_is_deleted_after_its_replacement_was_created() {
    let mut world = settled(unavailable(1), 1);
    let failed = world.name_on("n1");
    world.pod_on("n1")["status"] = json!({"phase": "Failed", "reason": "Evicted"});
    let plan = world.plan();
    let [Write::CreatePods { pods, .. }, Write::DeletePods(deletions)] = &plan.writes[..] else {
        panic!("{plan:?}")
    };
    assert_ne!(pods[0].name, failed);
    assert_eq!((&*deletions[0].pod.meta.key.name, deletions[0].reason), (failed.as_str(), Reason::Failed));
    world.settle();
    assert!(!world.pods.contains_key(&failed));
}

#[test]
fn a_deleting_pod_is_not_ready_and_a_node_with_an_available_new_pod_is_up_to_date() {
    let mut world = settled(surge(1), 1);
    let now = world.now.to_string();
    world.pod_on("n1")["metadata"]["deletionTimestamp"] = now.into();
    let before = status(&world);
    assert_eq!((before.current, before.ready, before.available), (1, 0, 0));

    let mut world = settled(surge(1), 1);
    world.stop_seconds = 30;
    world.set_image("v2");
    world.pass(5);
    assert_eq!(world.on("n1").matches("v").count(), 2, "{}", world.on("n1"));
    let handover = status(&world);
    assert_eq!((handover.updated, handover.available), (1, 1), "{}", world.on("n1"));
}

#[test]
fn a_settled_daemon_set_writes_nothing() {
    for strategy in [unavailable(1), surge(1), json!({"type": "OnDelete"})] {
        let world = settled(strategy, 3);
        let plan = world.plan();
        assert_eq!((plan.writes.len(), plan.notes.len(), plan.requeue_after), (0, 0, None));
        assert!(explained(&world).contains("3 of 3 nodes"), "{}", explained(&world));
    }
}

#[test]
fn a_daemon_set_with_the_longest_name_runs() {
    let mut start = daemon_set(unavailable(1));
    let name = format!("{}.{}", "a".repeat(126), "b".repeat(126));
    start["metadata"]["name"] = name.into();
    let mut world = World::new("", start, 2);
    world.settle();
    assert_eq!(["n1", "n2"].map(|node| world.on(node)), ["v1", "v1"]);
    assert!(
        world.pods.keys().all(|name| name.len() <= 63)
            && world.revisions.keys().all(|name| name.len() <= 253)
    );
}

#[test]
fn ds_10_a_sync_creates_and_deletes_no_more_than_a_burst() {
    let mut world = World::new("", daemon_set(unavailable("100%")), 260);
    assert_eq!(creates(&world), 250);
    world.rounds(2);
    assert_eq!(world.pods.len(), 260);
    for pod in world.pods.values_mut() {
        pod["status"] = json!({"phase": "Failed"});
    }
    assert_eq!((creates(&world), reasons(&world).len()), (250, 250));
    for pod in world.pods.values_mut() {
        pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    }
    world.set_image("v2");
    assert_eq!(reasons(&world).len(), 250);
}

#[test]
fn ds_19_a_daemon_set_that_is_being_deleted_or_does_not_select_its_template_writes_nothing() {
    let plan = |change: fn(&mut serde_json::Value)| {
        let mut world = settled(unavailable(1), 1);
        world.remove_node("n1");
        world.add_node("n2");
        change(&mut world.daemon_set);
        world.plan()
    };
    let deleting = plan(|ds| ds["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    assert_eq!((deleting.writes.len(), deleting.status, deleting.notes.len()), (0, None, 0));
    let empty = plan(|ds| ds["spec"]["selector"] = json!({}));
    assert_eq!((empty.writes.len(), empty.status, empty.notes[0].reason), (0, None, "SelectingAll"));
    let foreign = plan(|ds| ds["spec"]["selector"] = json!({"matchLabels": {"app": "other"}}));
    assert_eq!((foreign.writes.len(), foreign.status, foreign.notes[0].reason), (0, None, "InvalidSelector"));
    let invalid =
        plan(|ds| ds["spec"]["selector"] = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]}));
    assert_eq!((invalid.writes.len(), invalid.status), (0, None));
}

#[test]
fn a_refused_pod_holds_up_no_deletion_but_that_of_the_ended_pod_that_it_replaces() {
    let mut world = settled(unavailable(1), 3);
    world.refuses = Some(false);
    world.taint("n1", &["a:NoExecute"]);
    world.pod_on("n2")["status"] = json!({"phase": "Failed"});
    world.rounds(1);
    let gone = |world: &World, node: &str| world.on(node) == "-" || world.on(node).contains("stopping");
    assert!(gone(&world, "n1"), "{}", world.transcript);
    assert!(!gone(&world, "n2"), "refused once: {}", world.transcript);
    world.rounds(1);
    assert!(gone(&world, "n2"), "refused twice: {}", world.transcript);
    assert_eq!(world.transcript.matches("FailedDaemonPod").count(), 1, "{}", world.transcript);
    world.refuses = None;
    world.settle();
    assert_eq!((world.on("n2"), world.on("n3")), ("v1".into(), "v1".into()));
}

#[test]
fn an_ended_pod_makes_room_for_its_replacement_as_soon_as_a_quota_refuses_it() {
    for phase in ["Failed", "Succeeded"] {
        let mut world = settled(unavailable(1), 1);
        world.refuses = Some(true);
        let name = world.name_on("n1");
        world.pod_on("n1")["status"] = json!({"phase": phase});
        world.rounds(1);
        assert!(!world.pods.contains_key(&name), "{}", world.transcript);
    }
}

#[test]
fn a_node_that_was_refused_more_often_comes_later() {
    let mut world = World::new("", daemon_set(unavailable(1)), 3);
    world.refuses = Some(false);
    world.rounds(1);
    let first = |world: &World| {
        let creates = world.plan().writes.into_iter().find_map(|write| match write {
            Write::CreatePods { pods, .. } => Some(pods[0].node.to_string()),
            _ => None,
        });
        creates.unwrap()
    };
    let mut tried = vec![first(&world)];
    for _ in 0..3 {
        world.rounds(1);
        tried.push(first(&world));
    }
    assert_eq!(tried, ["n2", "n3", "n1", "n2"]);
    world.edit("a new generation", |spec| spec["minReadySeconds"] = 1.into());
    assert_eq!(first(&world), "n1");
}

#[test]
fn while_pods_are_refused_no_rollout_deletes_a_pod_that_would_not_be_replaced() {
    let mut world = settled(unavailable(2), 3);
    world.taint("n3", &["a:NoExecute"]);
    world.settle();
    world.taint("n3", &[]);
    world.refuses = Some(true);
    world.set_image("v2");
    world.rounds(1);
    world.set_ready("n1", false);
    world.rounds(3);
    assert_eq!(
        (world.on("n1"), world.on("n2"), world.on("n3")),
        ("v1 not ready".into(), "v1".into(), "-".into())
    );
    world.refuses = None;
    world.settle();
    assert_eq!(["n1", "n2", "n3"].map(|node| world.on(node)), ["v2", "v2", "v2"]);
}
