//! A pod is the same record whether it came as JSON or as protobuf.

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass::model::protobuf::unwrap_object;
use windlass::model::{Interner, Pod, Record};
use windlass_apiserver::to_protobuf;

/// The record of a pod by either encoding, or that it cannot be decoded.
fn decoded(pod: &Value) -> [Option<Pod>; 2] {
    let mut interner = Interner::default();
    let protobuf = to_protobuf(pod);
    let message = unwrap_object(&protobuf).unwrap();
    [Pod::decode(&pod.to_string(), &mut interner).ok(), Pod::decode_protobuf(message, &mut interner).ok()]
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z]{1,8}", "\\PC{0,12}"]
}

fn time() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        (1i64..4_000_000_000)
            .prop_map(|second| json!(jiff::Timestamp::from_second(second).unwrap().to_string())),
    ]
}

fn state() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        time().prop_map(|at| json!({"running": {"startedAt": at}})),
        (text(), text())
            .prop_map(|(reason, message)| json!({"waiting": {"reason": reason, "message": message}})),
        (-3..300i32, text(), text(), time()).prop_map(|(code, reason, message, at)| {
            json!({"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": at}})
        }),
    ]
}

fn container() -> impl Strategy<Value = Value> {
    ("[abc]", any::<i32>(), state(), state()).prop_map(|(name, restarts, state, last)| {
        json!({"name": name, "restartCount": restarts, "ready": true, "state": state, "lastState": last})
    })
}

fn condition() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![Just("Ready"), Just("PodScheduled"), Just("Initialized")];
    (kind, prop_oneof![Just("True"), Just("False")], time(), text(), text()).prop_map(
        |(kind, status, at, reason, message)| {
            json!({"type": kind, "status": status, "lastTransitionTime": at, "reason": reason, "message": message})
        },
    )
}

fn status() -> impl Strategy<Value = Value> {
    let phase = prop_oneof![
        Just("Pending"),
        Just("Running"),
        Just("Succeeded"),
        Just("Failed"),
        Just("Unknown"),
        Just(""),
        Just("News")
    ];
    (
        (phase, text(), text(), time()),
        prop::collection::vec(condition(), 0..4),
        prop::collection::vec(container(), 0..3),
        prop::collection::vec(container(), 0..3),
    )
        .prop_map(|((phase, reason, message, start), conditions, containers, init)| {
            json!({"phase": phase, "reason": reason, "message": message, "startTime": start, "conditions": conditions,
                   "containerStatuses": containers, "initContainerStatuses": init})
        })
}

fn metadata() -> impl Strategy<Value = Value> {
    let labels = prop::collection::btree_map("[a-z]{1,4}", text(), 0..3);
    let cost = prop_oneof![Just("7"), Just("-3"), Just("+1"), Just("")];
    (
        ("[a-z]{0,6}", "[a-z]{0,6}", "[a-z]{0,4}", prop_oneof![Just("12"), Just("x"), Just("")]),
        (labels, cost, any::<bool>(), any::<i64>()),
        (time(), time()),
    )
        .prop_map(|((name, namespace, uid, version), (labels, cost, controller, generation), (created, deleted))| {
            json!({"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version,
                   "generation": generation, "creationTimestamp": created, "deletionTimestamp": deleted,
                   "labels": labels,
                   "annotations": {"controller.kubernetes.io/pod-deletion-cost": cost},
                   "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r",
                                        "controller": controller}]})
        })
}

fn pod() -> impl Strategy<Value = Value> {
    let sidecars = prop::collection::vec(("[abc]", prop_oneof![Just("Always"), Just("")]), 0..3);
    (metadata(), text(), sidecars, status()).prop_map(|(metadata, node, sidecars, status)| {
        let init: Vec<Value> =
            sidecars.iter().map(|(name, policy)| json!({"name": name, "restartPolicy": policy})).collect();
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": status,
               "spec": {"nodeName": node, "initContainers": init, "containers": [{"name": "c", "image": "i"}]}})
    })
}

proptest! {
    #[test]
    fn both_encodings_give_the_same_record(pod in pod()) {
        let [json, protobuf] = decoded(&pod);
        prop_assert_eq!(json, protobuf);
    }

    #[test]
    fn any_damage_to_a_message_is_read_or_refused_without_a_panic(
        pod in pod(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = to_protobuf(&pod).to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(message) = unwrap_object(&bytes) {
            let _ = Pod::decode_protobuf(message, &mut Interner::default()).is_ok();
        }
    }
}
