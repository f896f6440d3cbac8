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

/// A node with this status of Ready; without one if it is empty.
fn node(ready: &str, spec: Value) -> Node {
    let conditions = match ready {
        "" => json!([]),
        ready => json!([{"type": "Ready", "status": ready, "lastHeartbeatTime": at(0).to_string(),
                         "lastTransitionTime": at(0).to_string()}]),
    };
    decode(&json!({
        "metadata": {"name": "n1", "uid": "u-n1", "resourceVersion": "7", "creationTimestamp": at(-100).to_string(),
                     "labels": {"kubernetes.io/os": "linux"}},
        "spec": spec, "status": {"conditions": conditions},
    }))
}

fn observed(node: &Node) -> Observed<'_> {
    Observed {
        node,
        pods: Vec::new(),
        fall: Fall::default(),
        silence: Duration::ZERO,
        are_all_disrupted: false,
        turn: Turn::Now,
        known: None,
        started: at(0),
        now: at(30),
        limits: Limits::default(),
    }
}

/// The taints that a node gets: `key:effect@second`; `None` without a change.
fn tainted(observed: &Observed<'_>) -> Option<Vec<String>> {
    let short = |key: &str| key.trim_start_matches("node.kubernetes.io/").to_owned();
    let text = |taint: &Taint| {
        let added = taint.time_added.map(|added| format!("@{}", added.as_second() - at(0).as_second()));
        format!("{}:{}{}", short(&taint.key), taint.effect.as_str(), added.unwrap_or_default())
    };
    plan(observed).taints.map(|change| change.taints.iter().map(text).collect())
}

fn taint(key: &str, effect: &str) -> Value {
    json!({"key": format!("node.kubernetes.io/{key}"), "effect": effect, "timeAdded": at(10).to_string()})
}

#[test]
fn taints_follow_the_conditions_at_once() {
    assert_eq!(tainted(&observed(&node("True", json!({})))), None);
    let both = ["not-ready:NoSchedule@30", "not-ready:NoExecute@30"];
    assert_eq!(tainted(&observed(&node("False", json!({})))).unwrap(), both);
    let both = ["unreachable:NoSchedule@30", "unreachable:NoExecute@30"];
    assert_eq!(tainted(&observed(&node("Unknown", json!({})))).unwrap(), both);
    let own = json!({"taints": [taint("not-ready", "NoSchedule"), taint("unreachable", "NoExecute"),
                                taint("disk-pressure", "NoSchedule")]});
    assert_eq!(tainted(&observed(&node("True", own))).unwrap(), [""; 0]);
    let mut under_pressure = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1"}, "spec": {},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    for kind in ["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable", "Other"] {
        let condition = json!({"type": kind, "status": "True"});
        under_pressure["status"]["conditions"].as_array_mut().unwrap().push(condition);
    }
    let expected = ["memory-pressure", "disk-pressure", "pid-pressure", "network-unavailable"];
    let expected = expected.map(|key| format!("{key}:NoSchedule@30"));
    assert_eq!(tainted(&observed(&decode(&under_pressure))).unwrap(), expected);
}

#[test]
fn a_cordon_adds_a_taint_and_its_end_removes_it() {
    assert_eq!(
        tainted(&observed(&node("True", json!({"unschedulable": true})))).unwrap(),
        ["unschedulable:NoSchedule@30"]
    );
    let cordoned = json!({"unschedulable": true, "taints": [taint("unschedulable", "NoSchedule")]});
    assert_eq!(tainted(&observed(&node("True", cordoned))), None);
    let open = json!({"taints": [taint("unschedulable", "NoSchedule")]});
    assert_eq!(tainted(&observed(&node("True", open))).unwrap(), [""; 0]);
}

#[test]
fn taints_of_others_are_never_touched() {
    let others = json!([{"key": "gpu", "value": "yes", "effect": "NoExecute"}, taint("not-ready", "PreferNoSchedule"),
                        taint("memory-pressure", "NoExecute"), taint("out-of-service", "NoExecute")]);
    let ready = node("True", json!({"taints": others}));
    assert_eq!(tainted(&observed(&ready)), None);
    let broken = node("False", json!({"taints": others}));
    let change = plan(&observed(&broken)).taints.unwrap();
    assert_eq!(change.taints[..4], broken.taints[..]);
    let patch = node_patch(&broken.meta, Some(&change), &[]);
    assert_eq!(patch["metadata"], json!({"uid": "u-n1", "resourceVersion": "7"}));
    assert_eq!(patch["spec"]["taints"][0], others[0]);
    assert_eq!(
        patch["spec"]["taints"][4],
        json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule",
                                                  "timeAdded": "2026-01-01T00:00:30Z"})
    );
    // An effect that this version does not know cannot be written back.
    let odd = node("False", json!({"taints": [{"key": "a", "effect": "Later"}]}));
    assert_eq!(tainted(&observed(&odd)), None);
}

#[test]
fn the_last_taint_is_removed_with_the_list() {
    let node = node("True", json!({"taints": [taint("not-ready", "NoExecute")]}));
    let change = plan(&observed(&node)).taints.unwrap();
    assert_eq!(node_patch(&node.meta, Some(&change), &[])["spec"], json!({"taints": null}));
}

#[test]
fn one_taint_replaces_the_other_at_once_and_keeps_its_time() {
    let spec = json!({"taints": [taint("not-ready", "NoSchedule"), taint("not-ready", "NoExecute")]});
    let node = node("Unknown", spec);
    let waiting = Observed { turn: Turn::Never, ..observed(&node) };
    assert_eq!(tainted(&waiting).unwrap(), ["unreachable:NoSchedule@30", "unreachable:NoExecute@10"]);
    assert!(!plan(&waiting).taints.unwrap().begins_eviction);
}

#[test]
fn the_first_taint_that_evicts_waits_for_its_turn() {
    let node = node("False", json!({}));
    let waits = |turn| {
        let plan = plan(&Observed { turn, silence: Duration::from_secs(1), ..observed(&node) });
        (plan.taints.unwrap().taints.len(), plan.look_again.map(|wait| wait.as_secs()))
    };
    assert_eq!(waits(Turn::Now), (2, Some(49)));
    assert_eq!(waits(Turn::After(Duration::from_secs(3))), (1, Some(3)));
    assert_eq!(waits(Turn::After(Duration::from_secs(30))), (1, Some(5)), "the state of its zone may change");
    assert_eq!(waits(Turn::Never), (1, Some(5)));
}

#[test]
fn where_no_node_is_ready_none_loses_its_pods() {
    let spec = json!({"taints": [taint("not-ready", "NoSchedule"), taint("not-ready", "NoExecute")]});
    for (ready, left) in [("False", "not-ready:NoSchedule@10"), ("Unknown", "unreachable:NoSchedule@30")] {
        let node = node(ready, spec.clone());
        let cut_off = Observed { are_all_disrupted: true, ..observed(&node) };
        assert_eq!(tainted(&cut_off).unwrap(), [left]);
    }
    let bare = node("Unknown", json!({}));
    let cut_off = Observed { are_all_disrupted: true, ..observed(&bare) };
    assert_eq!(tainted(&cut_off).unwrap(), ["unreachable:NoSchedule@30"]);
}

#[test]
fn of_a_node_that_has_never_reported_no_taint_that_evicts_is_known() {
    let spec = json!({"taints": [taint("not-ready", "NoSchedule"), taint("not-ready", "NoExecute")]});
    assert_eq!(tainted(&observed(&node("", spec))).unwrap(), ["not-ready:NoExecute@10"]);
}

#[test]
fn a_silent_node_is_reported_as_unknown_after_its_grace_period() {
    let (known, new, lost) = (node("True", json!({})), node("", json!({})), node("Unknown", json!({})));
    let silent = |node, seconds| Observed { silence: Duration::from_secs(seconds), ..observed(node) };
    let look = |node, seconds| {
        let plan = plan(&silent(node, seconds));
        (plan.is_lost, plan.look_again.map(|wait| wait.as_secs()))
    };
    assert_eq!(look(&known, 0), (false, Some(50)));
    assert_eq!(look(&known, 49), (false, Some(5)), "nodes are not looked at more often than that");
    assert_eq!(look(&known, 50), (true, Some(5)));
    assert_eq!((look(&new, 55).0, look(&new, 60).0), (false, true));
    // It is known already.
    assert_eq!(look(&lost, 500), (false, None));
    // A test bed has no heartbeats.
    let mut bed = silent(&known, 5000);
    bed.limits.monitor_grace_period = Duration::ZERO;
    assert_eq!((plan(&bed).is_lost, plan(&bed).look_again), (false, None));
}

#[test]
fn the_conditions_of_the_kubelet_become_unknown_and_that_of_the_network_does_not() {
    let node = decode(&json!({
        "metadata": {"name": "n1", "uid": "u", "resourceVersion": "7", "creationTimestamp": at(-100).to_string()},
        "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "Unknown"},
            {"type": "MemoryPressure", "status": "False"}, {"type": "NetworkUnavailable", "status": "False"}]},
    }));
    let patch = lost_status(&node, at(30));
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let stopped = |kind: &str| {
        json!({"type": kind, "status": "Unknown", "reason": "NodeStatusUnknown",
               "message": "Kubelet stopped posting node status.", "lastTransitionTime": "2026-01-01T00:00:30Z"})
    };
    let never = json!({"type": "PIDPressure", "status": "Unknown", "reason": "NodeStatusNeverUpdated",
        "message": "Kubelet never posted node status.", "lastTransitionTime": "2026-01-01T00:00:30Z",
        "lastHeartbeatTime": "2025-12-31T23:58:20Z"});
    let expected = json!([stopped("Ready"), stopped("MemoryPressure"), never]);
    assert_eq!(patch["status"]["conditions"], expected);
}

#[test]
fn reports_and_renewals_are_signs_of_life_by_our_own_clock() {
    let second = Duration::from_secs;
    let mut health = Health::default();
    let mut first = node("True", json!({}));
    health.node(&first, second(10));
    health.node(&first, second(20));
    assert_eq!(health.silence(&first, second(25)), second(15), "seen again is not reported again");
    let renewed = |time: i64| Some(at(time));
    let name = first.meta.key.name.clone();
    assert!(health.lease(&name, renewed(-5000), second(30)), "a clock may be wrong");
    assert!(!health.lease(&name, renewed(-5000), second(40)));
    assert!(!health.lease(&name, None, second(40)));
    assert_eq!(health.silence(&first, second(45)), second(15));
    first.conditions.heartbeat = Some(at(-9000));
    health.node(&first, second(50));
    assert_eq!(health.silence(&first, second(50)), second(0));
    // Another node of the name.
    let mut second_node = first.clone();
    second_node.meta.uid = Uid::new("u-2");
    health.node(&second_node, second(60));
    health.node_deleted(&first);
    assert_eq!(health.silence(&second_node, second(70)), second(10));
    health.all_alive(second(70));
    assert_eq!(health.silence(&second_node, second(70)), second(0));
}

#[test]
fn a_renewal_by_a_clock_that_was_set_back_is_a_sign_of_life() {
    let second = Duration::from_secs;
    let (mut health, node) = (Health::default(), node("True", json!({})));
    health.node(&node, second(0));
    assert!(health.lease(&node.meta.key.name, Some(at(3600)), second(10)));
    assert!(health.lease(&node.meta.key.name, Some(at(20)), second(20)));
    assert!(!health.lease(&node.meta.key.name, Some(at(20)), second(30)));
    assert_eq!(health.silence(&node, second(40)), second(20));
}

#[test]
fn a_report_that_is_not_recorded_yet_ends_the_silence() {
    let second = Duration::from_secs;
    let (mut health, mut node) = (Health::default(), node("True", json!({})));
    health.node(&node, second(0));
    assert_eq!(health.silence(&node, second(60)), second(60));
    node.conditions.heartbeat = Some(at(60));
    assert_eq!(health.silence(&node, second(60)), second(0));
}

#[test]
fn a_node_that_changes_its_zone_waits_in_the_new_one_only() {
    let (a, b, c) = (Uid::new("a"), Uid::new("b"), Uid::new("c"));
    let mut turns = Turns::default();
    let mut ask =
        |node: &Uid, zone: &str, second: u64| turns.ask(node, zone, 0.1, Duration::from_secs(second));
    assert_eq!(ask(&a, "x", 0), Turn::Now);
    assert_eq!(ask(&b, "x", 0), Turn::After(Duration::from_secs(10)));
    assert_eq!(ask(&c, "x", 0), Turn::After(Duration::from_secs(20)));
    assert_eq!(ask(&b, "y", 5), Turn::Now, "nobody has asked there");
    assert_eq!(ask(&c, "x", 10), Turn::Now, "nobody is before it any more");
}

#[test]
fn a_zone_is_disrupted_in_part_from_three_nodes_and_a_share_on() {
    let state = |size, unhealthy| Zone { size, unhealthy }.state(&Limits::default());
    assert_eq!([state(0, 0), state(3, 0), state(3, 2)], [ZoneState::Normal; 3]);
    assert_eq!([state(1, 1), state(3, 3)], [ZoneState::FullDisruption; 2]);
    assert_eq!([state(5, 3), state(100, 55)], [ZoneState::PartialDisruption; 2]);
    assert_eq!([state(6, 3), state(100, 54)], [ZoneState::Normal; 2]);
}

#[test]
fn the_rate_of_a_zone_follows_its_state_and_its_size() {
    let of = |ready: &str, zone: &str, labels: Value| {
        let mut node = json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "1", "labels": labels},
                              "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = zone.into();
        decode(&node)
    };
    let nodes = |zone: &'static str, ready: usize, lost: usize| {
        let ready = std::iter::repeat_with(move || of("True", zone, json!({}))).take(ready);
        ready.chain(std::iter::repeat_with(move || of("Unknown", zone, json!({}))).take(lost))
    };
    let all: Vec<Node> = nodes("calm", 2, 1)
        .chain(nodes("small", 10, 40))
        .chain(nodes("large", 11, 40))
        .chain(nodes("gone", 0, 2))
        .chain([of("True", "gone", json!({"node.kubernetes.io/exclude-disruption": ""}))])
        .collect();
    let (zones, limits) = (Zones::of(&all), Limits::default());
    let rate = |zone: &str| zones.rate(&format!(":\0:{zone}"), &limits);
    assert_eq!(
        [rate("calm"), rate("small"), rate("large"), rate("gone"), rate("unheard-of")],
        [0.1, 0.0, 0.01, 0.1, 0.1]
    );
    assert!(!zones.are_all_disrupted());
    assert!(Zones::of(&all[all.len() - 3..]).are_all_disrupted(), "the excluded one does not count");
    assert!(!Zones::of(&[]).are_all_disrupted());
    let of_region = of("True", "a", json!({"topology.kubernetes.io/region": "eu"}));
    assert_eq!(zones::zone_of(&of_region), "eu:\0:a");
    let moved = of("True", "b", json!({}));
    assert!(
        zones::concerns(&of("True", "a", json!({})), &moved)
            && zones::concerns(&of("False", "b", json!({})), &moved)
    );
    assert!(!zones::concerns(&moved, &of("True", "b", json!({"a": "b"}))));
}

#[test]
fn nodes_take_turns_in_the_order_in_which_they_asked() {
    let (a, b, c) = (Uid::new("a"), Uid::new("b"), Uid::new("c"));
    let mut turns = Turns::default();
    let after = |seconds| Turn::After(Duration::from_secs(seconds));
    let mut ask =
        |node: &Uid, rate: f64, second: u64| turns.ask(node, "z", rate, Duration::from_secs(second));
    assert_eq!((ask(&a, 0.1, 0), ask(&b, 0.1, 1), ask(&c, 0.1, 1)), (Turn::Now, after(9), after(19)));
    assert_eq!(ask(&a, 0.1, 2), Turn::Now, "until it is tainted");
    assert_eq!((ask(&b, 0.0, 5), ask(&b, -1.0, 5)), (Turn::Never, Turn::Never));
    assert_eq!((ask(&c, 0.1, 10), ask(&b, 0.1, 10), ask(&c, 0.1, 10)), (after(10), Turn::Now, after(10)));
    assert_eq!(ask(&c, 1e-300, 10), Turn::After(Duration::MAX - Duration::from_secs(10)));
    turns.end(&c);
    assert_eq!(turns.ask(&Uid::new("d"), "z", 0.1, Duration::from_secs(20)), Turn::Now);
    assert_eq!(turns.ask(&Uid::new("e"), "another", 0.1, Duration::from_secs(20)), Turn::Now);
}

fn pod(name: &str, ready: &str, since: i64) -> Arc<Pod> {
    let json = json!({
        "metadata": {"name": name, "namespace": "shop", "uid": format!("u-{name}"), "resourceVersion": "3"},
        "spec": {"nodeName": "n1"},
        "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": at(since).to_string()}]},
    });
    Arc::new(Pod::decode(&json.to_string(), &mut Interner::default()).unwrap())
}

#[test]
fn the_pods_of_a_node_that_is_not_ready_are_not_ready() {
    let pods = vec![
        pod("before", "True", -5),
        pod("same", "True", 0),
        pod("since", "True", 5),
        pod("not", "False", -5),
    ];
    let names = |ready| {
        let node = node(ready, json!({}));
        let plan = plan(&Observed { pods: pods.clone(), ..observed(&node) });
        plan.pods.iter().map(|pod| pod.meta.key.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names("False"), ["before", "same"], "its kubelet has reported one since");
    assert_eq!(names("Unknown"), ["before", "same", "since"]);
    assert_eq!(names("True"), [""; 0]);
    // Without the time of the change it counts when that was seen.
    let (before, after) = (node("True", json!({})), node("False", json!({})));
    assert!(fell(&before, &after) && !fell(&after, &before) && !fell(&after, &after));
    let loses = |seen| Fall::seen_at(at(seen)).loses_readiness(&after, &pods[2]);
    assert!(loses(9) && !loses(4));
    let patch = pods::status(&pods[0], at(30));
    let expected = json!({"metadata": {"uid": "u-before", "resourceVersion": "3"}, "status": {"conditions": [
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:30Z"}]}});
    assert_eq!(patch, expected);
    assert_eq!(pods::not_ready(), EventNote::warning("NodeNotReady", "Node is not ready".into()));
}

#[test]
fn a_pod_is_reported_once_in_each_fall_of_a_kubelet_that_writes_it_back() {
    let (pod, mut fall) = (pod("a", "True", -5), Fall::default());
    let (broken, lost) = (node("False", json!({})), node("Unknown", json!({})));
    assert!(fall.loses_readiness(&broken, &pod));
    fall.reported(&broken, &pod.meta.uid);
    assert!(!fall.loses_readiness(&broken, &pod), "its kubelet has written it back");
    assert!(fall.loses_readiness(&broken, &self::pod("bound", "True", -5)), "bound since");
    assert!(fall.loses_readiness(&lost, &pod), "nobody is there who would write it back again");
    let mut again = broken.clone();
    again.conditions.transition = Some(at(9));
    assert!(fall.loses_readiness(&again, &pod), "another fall");
    fall.reported(&again, &pod.meta.uid);
    assert!(!fall.loses_readiness(&again, &pod));
    let mut fall = Fall::seen_at(at(12));
    fall.reported(&again, &pod.meta.uid);
    assert!(!fall.loses_readiness(&again, &pod));
    fall.forget(&pod.meta.uid);
    assert!(fall.loses_readiness(&again, &pod));
}

#[test]
fn a_heartbeat_is_no_reason_to_look_at_pods() {
    let (ready, broken, lost) =
        (node("True", json!({})), node("False", json!({})), node("Unknown", json!({})));
    let mut beat = broken.clone();
    beat.conditions.heartbeat = Some(at(10));
    assert!(!pods::may_lose_readiness(Some(&broken), &beat));
    beat.conditions.transition = Some(at(10));
    assert!(pods::may_lose_readiness(Some(&broken), &beat));
    assert!(pods::may_lose_readiness(None, &lost) && pods::may_lose_readiness(Some(&broken), &lost));
    assert!(!pods::may_lose_readiness(None, &ready) && !pods::may_lose_readiness(Some(&lost), &ready));
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
