//! The metadata of an object are the same whether they came as JSON or as protobuf.

use proptest::prelude::*;
use serde_json::{Value, json};
use windlass::model::metadata::Metadata;
use windlass::model::protobuf::unwrap_object;
use windlass_apiserver::to_protobuf;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z]{1,8}", "\\PC{0,12}"]
}

fn flag() -> impl Strategy<Value = Value> {
    prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from)]
}

fn time() -> impl Strategy<Value = Value> {
    let stamp = |second| json!(jiff::Timestamp::from_second(second).unwrap().to_string());
    prop_oneof![Just(Value::Null), (1i64..4_000_000_000).prop_map(stamp)]
}

/// A UID, or any other string in its place.
fn uid() -> impl Strategy<Value = String> {
    prop_oneof!["[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}", text()]
}

fn owner() -> impl Strategy<Value = Value> {
    let version = prop_oneof![Just("v1".to_owned()), Just("apps/v1".to_owned()), text()];
    (version, text(), text(), uid(), flag(), flag()).prop_map(
        |(version, kind, name, uid, controller, blocks)| {
            json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": controller,
               "blockOwnerDeletion": blocks})
        },
    )
}

fn object() -> impl Strategy<Value = Value> {
    let finalizers = prop_oneof![Just("orphan".to_owned()), Just("foregroundDeletion".to_owned()), text()];
    let version = prop_oneof![Just("12"), Just("18446744073709551615"), Just("x"), Just("-1"), Just("")];
    (
        ("[a-z]{0,6}", text(), uid(), version),
        (prop::collection::vec(owner(), 0..6), prop::collection::vec(finalizers, 0..4)),
        (time(), time(), prop::collection::btree_map("[a-z]{1,4}", text(), 0..3)),
    )
        .prop_map(
            |((name, namespace, uid, version), (owners, finalizers), (created, deleted, labels))| {
                json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
                   "metadata": {"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version,
                                "creationTimestamp": created, "deletionTimestamp": deleted, "labels": labels,
                                "annotations": labels, "ownerReferences": owners, "finalizers": finalizers}})
            },
        )
}

proptest! {
    #[test]
    fn both_encodings_give_the_same_metadata(object in object()) {
        let (text, protobuf) = (object.to_string(), to_protobuf(&object));
        let json = Metadata::decode(&text).ok();
        prop_assert_eq!(json, Metadata::decode_protobuf(unwrap_object(&protobuf).unwrap()).ok());
    }

    #[test]
    fn any_damage_to_a_message_is_read_or_refused_without_a_panic(
        object in object(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = to_protobuf(&object).to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        if let Ok(message) = unwrap_object(&bytes) {
            let _ = Metadata::decode_protobuf(message).is_ok();
        }
    }
}
