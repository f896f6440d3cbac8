//! When pods leave, and a random history that is judged from the objects alone.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::model::{Interner, Record as _};

fn at(second: i64) -> Timestamp {
    "2026-01-01T00:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(second)
}

fn node(taints: Value) -> Node {
    let json = json!({"metadata": {"name": "n1", "uid": "u-n1", "resourceVersion": "1"}, "spec": {"taints": taints}});
    Node::decode(&json.to_string(), &mut Interner::default()).unwrap()
}

fn pod(tolerations: Value) -> Pod {
    let json = json!({
        "metadata": {"name": "a", "namespace": "shop", "uid": "u-a", "resourceVersion": "1", "generation": 2,
                     "creationTimestamp": at(-100).to_string()},
        "spec": {"nodeName": "n1", "tolerations": tolerations},
    });
    Pod::decode(&json.to_string(), &mut Interner::default()).unwrap()
}

fn taint(key: &str, added: Option<i64>) -> Value {
    let mut taint = json!({"key": key, "effect": "NoExecute"});
    if let Some(second) = added {
        taint["timeAdded"] = at(second).to_string().into();
    }
    taint
}

fn toleration(key: &str, seconds: Option<i64>) -> Value {
    let mut toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
    if let Some(seconds) = seconds {
        toleration["tolerationSeconds"] = seconds.into();
    }
    toleration
}

/// The decision at this second, of a controller that sees the node for the first time.
fn decide(taints: Value, tolerations: Value, second: i64) -> Plan {
    let (pod, taints) = (pod(tolerations), active(&[], &node(taints), at(second)));
    plan(Observed { pod: &pod, taints: &taints, bound: None, is_planned: false, now: at(second) })
}

const STAYS: Plan = Plan::Keep { cancels: false };

#[test]
fn a_pod_without_a_toleration_leaves_at_once_and_one_that_tolerates_for_ever_stays() {
    let taints = || json!([taint("a", None)]);
    assert_eq!(decide(taints(), json!([]), 5), Plan::Evict { due: at(5) });
    assert_eq!(decide(taints(), json!([toleration("a", None)]), 5), STAYS);
    assert_eq!(decide(taints(), json!([{"operator": "Exists"}]), 5), STAYS);
    assert_eq!(decide(taints(), json!([toleration("b", None)]), 5), Plan::Evict { due: at(5) });
    let two = json!([taint("a", None), taint("b", None)]);
    assert_eq!(
        decide(two, json!([toleration("a", None)]), 5),
        Plan::Evict { due: at(5) },
        "all must be tolerated"
    );
    let harmless = json!([{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "PreferNoSchedule"}]);
    assert_eq!(decide(harmless, json!([]), 5), STAYS);
}

#[test]
fn the_smallest_seconds_of_the_tolerations_that_are_used_count() {
    let two = || json!([taint("a", Some(0)), taint("b", Some(0))]);
    let both = |a, b| json!([toleration("a", a), toleration("b", b), toleration("c", Some(1))]);
    assert_eq!(decide(two(), both(Some(300), Some(60)), 10), Plan::Wait { due: at(60) });
    assert_eq!(decide(two(), both(Some(300), None), 10), Plan::Wait { due: at(300) });
    for at_once in [0, -1, i64::MIN] {
        assert_eq!(decide(two(), both(Some(300), Some(at_once)), 10), Plan::Evict { due: at(0) });
    }
    assert_eq!(decide(two(), both(None, Some(i64::MAX)), 10), Plan::Wait { due: Timestamp::MAX });
    // Of two tolerations of one taint the first is used.
    let of_one = json!([toleration("a", Some(50)), toleration("a", Some(20))]);
    assert_eq!(decide(json!([taint("a", Some(0))]), of_one, 10), Plan::Wait { due: at(50) });
}

#[test]
fn a_restart_does_not_begin_the_seconds_anew() {
    let decide = |second| decide(json!([taint("a", Some(0))]), json!([toleration("a", Some(60))]), second);
    assert_eq!(decide(30), Plan::Wait { due: at(60) });
    assert_eq!(decide(90), Plan::Evict { due: at(60) });
}

#[test]
fn a_taint_without_a_time_counts_from_when_it_was_seen_and_one_of_the_future_from_then_too() {
    for added in [None, Some(1000)] {
        let (node, pod) = (node(json!([taint("a", added)])), pod(json!([toleration("a", Some(60))])));
        let seen = active(&[], &node, at(10));
        let taints = active(&seen, &node, at(40));
        let observed = Observed { pod: &pod, taints: &taints, bound: None, is_planned: true, now: at(40) };
        assert_eq!(plan(observed), Plan::Wait { due: at(70) }, "{added:?}");
    }
}

#[test]
fn the_seconds_of_a_pod_that_came_later_begin_later() {
    let (node, pod) = (node(json!([taint("a", Some(-3600))])), pod(json!([toleration("a", Some(60))])));
    let taints = active(&[], &node, at(0));
    let decide = |bound| plan(Observed { pod: &pod, taints: &taints, bound, is_planned: false, now: at(0) });
    // It was created a hundred seconds ago.
    assert_eq!(decide(None), Plan::Evict { due: at(-40) });
    assert_eq!(decide(Some(at(-10))), Plan::Wait { due: at(50) });
}

#[test]
fn an_eviction_that_is_planned_is_cancelled_when_the_taint_is_gone_or_tolerated_for_ever() {
    let (pod, none) = (pod(json!([toleration("a", None)])), active(&[], &node(json!([])), at(0)));
    let tolerated = active(&[], &node(json!([taint("a", None)])), at(0));
    for taints in [none, tolerated] {
        let observed = Observed { pod: &pod, taints: &taints, bound: None, is_planned: true, now: at(0) };
        assert_eq!(plan(observed), Plan::Keep { cancels: true });
    }
    assert_eq!(
        cancellation(&pod),
        EventNote::normal("TaintManagerEviction", "Cancelling deletion of Pod shop/a".into())
    );
    assert_eq!(eviction(&pod).message, "Marking for deletion Pod shop/a");
}

#[test]
fn a_pod_that_is_being_deleted_is_left_alone_and_one_that_has_ended_is_not_disrupted() {
    let mut leaving = pod(json!([]));
    leaving.meta.deletion = Some(at(0));
    let taints = active(&[], &node(json!([taint("a", None)])), at(0));
    let observed = Observed { pod: &leaving, taints: &taints, bound: None, is_planned: true, now: at(0) };
    assert_eq!(plan(observed), STAYS);
    let mut pod = pod(json!([]));
    let body = disrupted(&pod, at(0)).unwrap();
    assert_eq!(body["metadata"], json!({"uid": "u-a"}));
    let expected = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": "2026-01-01T00:00:00Z",
        "observedGeneration": 2});
    assert_eq!(body["status"]["conditions"][0], expected);
    pod.phase = crate::model::Phase::Succeeded;
    assert_eq!(disrupted(&pod, at(0)), None);
}

#[test]
fn the_taints_of_a_node_that_has_recovered_unseen_do_not_count() {
    let with = |ready: &str| {
        let taints = json!([taint("node.kubernetes.io/unreachable", Some(0)), taint("mine", Some(0))]);
        let json = json!({"metadata": {"name": "n1", "uid": "u-n1", "resourceVersion": "1"},
                          "spec": {"taints": taints},
                          "status": {"conditions": [{"type": "Ready", "status": ready}]}});
        Node::decode(&json.to_string(), &mut Interner::default()).unwrap()
    };
    let (ready, lost) = (with("True"), with("Unknown"));
    let count = |live: &Node, cached| credible(&active(&[], live, at(9)), live, cached).len();
    assert_eq!((count(&ready, Some(&lost)), count(&ready, None)), (1, 1));
    assert_eq!(count(&ready, Some(&ready)), 2, "whoever set it knows that it is ready");
    assert_eq!((count(&lost, Some(&lost)), count(&lost, Some(&ready))), (2, 2));
}

#[test]
fn a_heartbeat_concerns_no_pod() {
    let before = node(json!([taint("a", None), {"key": "b", "effect": "NoSchedule"}]));
    assert!(!concerns(&before, &node(json!([taint("a", None)]))));
    assert!(concerns(&before, &node(json!([taint("c", None)]))));
}

/// Whether a pod must be gone by now, counted from the objects and from a log of when each taint came.
fn must_be_gone(
    taints: &[Value],
    tolerations: &Value,
    came: &BTreeMap<String, i64>,
    bound: i64,
    now: i64,
) -> bool {
    taints.iter().filter(|taint| taint["effect"] == "NoExecute").any(|taint| {
        let used = tolerations.as_array().unwrap().iter().find(|toleration| {
            let fits = |field: &str| toleration[field].is_null() || toleration[field] == taint[field];
            let value = toleration["operator"] == "Exists" || toleration["value"] == taint["value"];
            fits("key") && fits("effect") && value
        });
        let since = came[taint["key"].as_str().unwrap()].max(bound);
        match used {
            None => true,
            Some(used) => {
                used["tolerationSeconds"].as_i64().is_some_and(|seconds| now - since >= seconds.max(0))
            }
        }
    })
}

#[test]
fn a_pod_is_evicted_if_and_only_if_it_does_not_tolerate_a_taint_or_no_longer() {
    let mut evictions = 0;
    for seed in 0..400 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let tolerations: Vec<Value> = (0..rng.usize(0..4))
            .map(|_| {
                let seconds = [None, Some(rng.i64(-2..60))][rng.usize(0..2)];
                let mut one = toleration(["a", "b", "c"][rng.usize(0..3)], seconds);
                if rng.bool() {
                    one["operator"] = "Equal".into();
                    one["value"] = ["x", "y"][rng.usize(0..2)].into();
                }
                if rng.u8(0..4) == 0 {
                    one.as_object_mut().unwrap().remove("effect");
                }
                one
            })
            .collect();
        let tolerations = json!(tolerations);
        let bound = rng.i64(0..40);
        let mut pod = pod(tolerations.clone());
        pod.meta.created = at(bound);
        let (mut taints, mut came, mut known) = (Vec::<Value>::new(), BTreeMap::new(), Vec::new());
        for second in 0..120 {
            if rng.u8(0..12) == 0 {
                let key = ["a", "b", "c"][rng.usize(0..3)];
                if came.remove(key).is_some() {
                    taints.retain(|taint| taint["key"] != key);
                } else {
                    let mut new = taint(key, [None, Some(second)][rng.usize(0..2)]);
                    new["value"] = ["x", "y"][rng.usize(0..2)].into();
                    new["effect"] = ["NoExecute", "NoExecute", "NoSchedule"][rng.usize(0..3)].into();
                    taints.push(new);
                    came.insert(key.to_owned(), second);
                }
            }
            // Half of the times the controller has just started, and knows what the objects say.
            let node = node(json!(taints));
            if rng.u8(0..30) == 0 && taints.iter().all(|taint| taint["timeAdded"].is_string()) {
                known.clear();
            }
            known = active(&known, &node, at(second));
            if second < bound {
                continue;
            }
            let observed =
                Observed { pod: &pod, taints: &known, bound: None, is_planned: false, now: at(second) };
            let is_evicted = matches!(plan(observed), Plan::Evict { .. });
            let expected = must_be_gone(&taints, &tolerations, &came, bound, second);
            assert_eq!(is_evicted, expected, "seed {seed}, second {second}: {taints:?} {tolerations}");
            if is_evicted {
                evictions += 1;
                break;
            }
        }
    }
    assert!((100..400).contains(&evictions), "{evictions}");
}
