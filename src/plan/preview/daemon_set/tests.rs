//! Rollouts of DaemonSets before they begin.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::*;
use crate::model::Interner;
use crate::plan::daemonset::Reason;
use crate::plan::preview::Held;
use crate::plan::revisions::data;

const CREATED: &str = "2026-01-01T00:00:00Z";

fn decode<T: crate::model::Record>(object: &Value) -> T {
    T::decode(&object.to_string(), &mut Interner::default()).unwrap()
}

/// A DaemonSet that has run `agent:1` on so many nodes for an hour, and has changed since. A node whose name is in `dead` is
/// unreachable, and its pod not ready.
fn start(nodes: usize, dead: &[&str], change: impl FnOnce(&mut Value)) -> DaemonStart {
    start_with(nodes, dead, change, |_| {})
}

/// The same, with a change of the nodes.
fn start_with(
    nodes: usize,
    dead: &[&str],
    change: impl FnOnce(&mut Value),
    change_nodes: impl FnOnce(&mut Vec<Value>),
) -> DaemonStart {
    let mut set = json!({
        "metadata": {"name": "agent", "namespace": "ops", "uid": "s", "resourceVersion": "9", "generation": 2,
                     "annotations": {}},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
            "template": {"metadata": {"labels": {"app": "agent"}},
                         "spec": {"containers": [{"name": "c", "image": "agent:1"}]}},
        },
        "status": {"observedGeneration": 1, "desiredNumberScheduled": nodes, "currentNumberScheduled": nodes,
                   "updatedNumberScheduled": nodes, "numberReady": nodes, "numberAvailable": nodes,
                   "numberMisscheduled": 0},
    });
    let owners = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "s", "controller": true}]);
    let data: Value = serde_json::from_str(&data(&decode::<DaemonSet>(&set).template).unwrap()).unwrap();
    let revision = json!({
        "metadata": {"name": "agent-old", "namespace": "ops", "uid": "r", "resourceVersion": "1",
                     "labels": {"app": "agent", "controller-revision-hash": "old"}, "ownerReferences": owners},
        "revision": 4, "data": data,
    });
    let names = || (1..=nodes).map(|nth| format!("n{nth}"));
    let node = |name: String| {
        let taints = if dead.contains(&&*name) {
            json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}])
        } else {
            json!([])
        };
        json!({"metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": "1"},
               "spec": {"taints": taints}})
    };
    let pod = |name: String| {
        let ready = if dead.contains(&&*name) { "False" } else { "True" };
        Arc::new(decode(&json!({
            "metadata": {"name": format!("agent-{name}"), "namespace": "ops", "uid": format!("p-{name}"),
                         "resourceVersion": "7", "creationTimestamp": CREATED,
                         "labels": {"app": "agent", "controller-revision-hash": "old"}, "ownerReferences": owners},
            "spec": {"nodeName": name},
            "status": {"phase": "Running",
                       "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": CREATED}]},
        })))
    };
    change(&mut set);
    let mut all: Vec<Value> = names().map(node).collect();
    change_nodes(&mut all);
    let all: Vec<Arc<crate::model::Node>> = all.iter().map(|node| Arc::new(decode(node))).collect();
    let daemon_set = decode(&set);
    DaemonStart {
        nodes: JudgedNodes::of(&daemon_set, &all),
        daemon_set,
        revisions: vec![Arc::new(decode(&revision))],
        pods: names().map(pod).collect(),
        now: "2026-01-01T01:00:00Z".parse().unwrap(),
        kubelet: Kubelet {
            ready_after: SignedDuration::from_secs(10),
            stop_after: SignedDuration::from_secs(2),
            broken: 0,
        },
        rooms: Vec::new(),
    }
}

fn new_image(set: &mut Value) {
    set["spec"]["template"]["spec"]["containers"][0]["image"] = "agent:2".into();
}

/// A line for each step: seconds, changes, nodes with an available pod of pods.
fn rows(preview: &Preview) -> Vec<String> {
    let change = |change: &Change| match change {
        Change::DeletedOn(node, _) => format!("-{node} "),
        Change::CreatedOn(node) => format!("+{node} "),
        other => panic!("{other:?}"),
    };
    let row = |step: &Step| {
        let changes: String = step.changes.iter().map(change).collect();
        format!("{} {changes}{}/{}", step.after.as_secs(), step.available, step.pods)
    };
    preview.steps.iter().map(row).collect()
}

/// The nodes that got a pod, each once.
fn updated(preview: &Preview) -> BTreeSet<Arc<str>> {
    let changes = preview.steps.iter().flat_map(|step| &step.changes);
    changes
        .filter_map(|change| if let Change::CreatedOn(node) = change { Some(node.clone()) } else { None })
        .collect()
}

#[test]
fn the_pods_are_replaced_node_by_node() {
    let preview = preview_daemon_set(start(2, &[], new_image));
    let [first, second] = ["n1", "n2"]
        .map(|node| preview.steps[1].changes == [Change::DeletedOn(node.into(), Reason::Outdated)]);
    assert!(first != second, "{:?}", preview.steps[1]);
    let (first, second) = if first { ("n1", "n2") } else { ("n2", "n1") };
    let expected = [
        "0 2/2".to_owned(),
        format!("0 -{first} 1/1"),
        format!("2 +{first} 1/2"),
        format!("12 -{second} 1/1"),
        format!("14 +{second} 1/2"),
        "24 2/2".to_owned(),
    ];
    assert_eq!(rows(&preview), expected);
    assert_eq!((preview.end, preview.most_allowed, preview.least_allowed), (End::Complete, 2, 1));
    let parts: Vec<_> = preview.parts.iter().map(|part| (part.revision, part.is_new)).collect();
    assert_eq!(parts, [(Some(4), false), (Some(5), true)]);
}

#[test]
fn with_a_surge_every_node_keeps_an_available_pod() {
    let preview = preview_daemon_set(start(3, &[], |set| {
        new_image(set);
        set["spec"]["updateStrategy"]["rollingUpdate"] = json!({"maxUnavailable": 0, "maxSurge": 2});
    }));
    assert_eq!((preview.end, preview.most(), preview.most_allowed), (End::Complete, 5, 5));
    assert!(preview.steps.iter().all(|step| step.available == 3), "{:#?}", rows(&preview));
    assert_eq!(updated(&preview).len(), 3);
}

#[test]
fn an_unreachable_node_uses_up_the_bound() {
    let preview = preview_daemon_set(start(3, &["n2"], new_image));
    assert_eq!(preview.end, End::Waits);
    // Its old pod is deleted, and no kubelet ends it.
    assert_eq!(rows(&preview), ["0 2/3", "0 -n2 2/2"]);
    let waits = preview.waits_for.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    assert!(waits.contains("Node n2: the pod is being deleted"), "{waits}");
}

#[test]
fn a_pod_that_never_gets_ready_ends_it_with_its_node() {
    let mut start = start(3, &[], new_image);
    start.kubelet.broken = 1;
    let preview = preview_daemon_set(start);
    assert_eq!((preview.end, preview.steps.last().unwrap().available), (End::Waits, 2));
    let waits = preview.waits_for.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    assert!(waits.contains("the pod is not ready"), "{waits}");
}

#[test]
fn nothing_is_replaced_with_on_delete() {
    let preview = preview_daemon_set(start(2, &[], |set| {
        new_image(set);
        set["spec"]["updateStrategy"] = json!({"type": "OnDelete"});
    }));
    assert_eq!((rows(&preview), preview.end), (vec!["0 2/2".to_owned()], End::Waits));
    assert_eq!(preview.least_allowed, 2);
}

#[test]
fn a_step_of_the_policy_is_noted_and_passed() {
    let preview = preview_daemon_set(start(4, &[], |set| {
        new_image(set);
        set["metadata"]["annotations"]["windlass.dev/steps"] = "1, 50% for 60s".into();
    }));
    let held: Vec<Held> = preview.steps.iter().filter_map(|step| step.held).collect();
    let seconds = SignedDuration::from_secs;
    assert_eq!(held, [Held { step: 1, of: 2, time: None }, Held { step: 2, of: 2, time: Some(seconds(60)) }]);
    assert_eq!((preview.end, updated(&preview).len()), (End::Complete, 4));
}

#[test]
fn a_quota_without_room_refuses_the_pod_that_comes_back() {
    let mut start = start(2, &[], new_image);
    start.rooms = vec![Room { free: 0, new_pod: 2, old_pod: 1 }];
    let preview = preview_daemon_set(start);
    let last = preview.steps.last().unwrap();
    assert_eq!((preview.end, last.refused, last.pods), (End::Waits, 1, 1));
}

#[test]
fn after_a_refused_pod_no_other_node_loses_its_own() {
    let mut start = start(3, &[], |set| {
        new_image(set);
        set["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] = 2.into();
    });
    start.rooms = vec![Room { free: 0, new_pod: 3, old_pod: 2 }];
    let preview = preview_daemon_set(start);
    let last = preview.steps.last().unwrap();
    assert_eq!((preview.end, last.available, last.pods), (End::Waits, 2, 2), "{:#?}", rows(&preview));
}

#[test]
fn a_node_that_is_not_ready_and_reports_gets_its_pod() {
    let start = start_with(2, &["n2"], new_image, |nodes| {
        nodes[1]["spec"]["taints"][0]["key"] = "node.kubernetes.io/not-ready".into();
    });
    assert_eq!(preview_daemon_set(start).end, End::Complete);
}

#[test]
fn a_preview_that_ends_before_the_rollout_says_that_it_goes_on() {
    let start = start(20, &[], new_image);
    let began = start.now;
    let mut world = World::new(start);
    let (end, waits_for) = world.play(began, &mut vec![world.step(began, Vec::new())], 40);
    assert_eq!((end, waits_for.is_empty()), (End::GoesOn, false));
    // A node takes eight rounds: gone, created, ready and deleted, each with its status.
    assert!(most_rounds(500) >= 8 * 500 && most_rounds(5_000) >= 8 * 100);
}

#[test]
fn pods_on_nodes_that_should_run_none_are_no_available_nodes() {
    let start = start_with(
        3,
        &[],
        |_| {},
        |nodes| {
            nodes[2]["spec"]["taints"] = json!([{"key": "dedicated", "effect": "NoSchedule"}]);
        },
    );
    let preview = preview_daemon_set(start);
    assert_eq!((preview.steps[0].available, preview.steps[0].pods, preview.most_allowed), (2, 3, 3));
}
