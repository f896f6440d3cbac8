//! The fate of a node, and a random cluster that is judged from the objects alone.

mod property;

use serde_json::{Value, json};

use super::*;
use crate::model::{Interner, Record as _};
use health::Health;
use turns::Turns;
use zones::{Zone, ZoneState, Zones};

pub(super) fn at(second: i64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(second)
}

pub(super) fn decode(node: &Value) -> Node {
    Node::decode(&node.to_string(), &mut Interner::default()).unwrap()
}

#[test]
fn zones_show_whether_they_are_of_before_a_node_changed() {
    let (ready, lost) = (node("True", json!({})), node("Unknown", json!({})));
    assert!(Zones::of([&ready]).show(&ready) && !Zones::of([&ready]).show(&lost));
    assert!(Zones::of([&lost]).show(&lost) && !Zones::of([&lost]).show(&ready));
    let label = json!({"node.kubernetes.io/exclude-disruption": ""});
    let excluded = |ready: &str| {
        decode(&json!({"metadata": {"name": "x", "uid": "u", "resourceVersion": "1", "labels": label},
                       "status": {"conditions": [{"type": "Ready", "status": ready}]}}))
    };
    assert!(Zones::of([&ready]).show(&excluded("True")) && Zones::of([&ready]).show(&excluded("False")));
}

#[test]
fn events_are_told_once() {
    let messages = |node: &Node, known: Option<Known>, started| {
        let plan = plan(&Observed { known, started: at(started), ..observed(node) });
        let messages = plan.events.iter().map(|event| format!("{}: {}", event.reason, event.message));
        (messages.collect::<Vec<_>>(), plan.replaced)
    };
    let (ready, lost) = (node("True", json!({})), node("Unknown", json!({})));
    let registered = ["RegisteredNode: Node n1 event: Registered Node n1 in Controller".to_owned()];
    assert_eq!(messages(&ready, None, -100), (registered.to_vec(), None));
    assert_eq!(messages(&ready, None, 0).0, [""; 0], "it was there before the controller");
    assert_eq!(messages(&ready, Some(remember(&ready)), -100).0, [""; 0]);
    let fell = ["NodeNotReady: Node n1 status is now: NodeNotReady"];
    assert_eq!(messages(&lost, Some(remember(&ready)), 0).0, fell);
    assert_eq!(messages(&lost, Some(remember(&lost)), 0).0, [""; 0]);
    let other = Known { uid: Uid::new("u-0"), was_ready: true };
    assert_eq!(messages(&lost, Some(other), -100), (registered.to_vec(), Some(Uid::new("u-0"))));
    assert_eq!(removal("n1").message, "Node n1 event: Removing Node n1 from Controller");
}

#[test]
fn the_labels_of_before_follow_those_of_today() {
    let labels = |labels: Value| {
        let node =
            decode(&json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "labels": labels}}));
        plan(&observed(&node)).labels
    };
    assert_eq!(labels(json!({"kubernetes.io/os": "linux"})), [("beta.kubernetes.io/os", "linux".to_owned())]);
    let both = json!({"kubernetes.io/arch": "arm64", "beta.kubernetes.io/arch": "amd64"});
    assert_eq!(labels(both), [("beta.kubernetes.io/arch", "arm64".to_owned())]);
    assert_eq!(labels(json!({"beta.kubernetes.io/os": "linux"})), []);
    let node = node("True", json!({}));
    let patch = node_patch(&node.meta, None, &plan(&observed(&node)).labels);
    assert_eq!(patch["metadata"]["labels"], json!({"beta.kubernetes.io/os": "linux"}));
    assert!(patch["spec"].is_null());
}
