//! Objects in Kubernetes' protobuf encoding, for clients that ask for it. Only pods are served so, whose table is complete
//! and which are most of what a controller reads, and the metadata of any object.

use bytes::Bytes;
use k8s_openapi::ByteString;
use serde_json::{Map, Value};

use super::MAGIC;
use super::table::{Field, Message, message};

fn varint(mut value: u64, into: &mut Vec<u8>) {
    while value >= 0x80 {
        into.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

fn put_number(field: u64, value: i64, into: &mut Vec<u8>) {
    varint(field << 3, into);
    varint(value.cast_unsigned(), into);
}

fn put_bytes(field: u64, value: &[u8], into: &mut Vec<u8>) {
    varint(field << 3 | 2, into);
    varint(value.len() as u64, into);
    into.extend_from_slice(value);
}

/// A field of bytes that `write` appends. One byte is kept for their number, and they move if it takes more: most do not.
fn put_part(field: u64, into: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    varint(field << 3 | 2, into);
    let at = into.len();
    into.push(0);
    write(into);
    match into.len() - at - 1 {
        short @ 0..0x80 => into[at] = short as u8,
        long => {
            let mut size = Vec::new();
            varint(long as u64, &mut size);
            into.splice(at..=at, size);
        }
    }
}

/// A message in the envelope that stands around every object of this encoding.
pub(crate) fn envelope(api_version: &str, kind: &str, raw: &[u8]) -> Bytes {
    let mut type_meta = Vec::new();
    put_bytes(1, api_version.as_bytes(), &mut type_meta);
    put_bytes(2, kind.as_bytes(), &mut type_meta);
    let mut body = MAGIC.to_vec();
    put_bytes(1, &type_meta, &mut body);
    put_bytes(2, raw, &mut body);
    put_bytes(3, b"", &mut body);
    put_bytes(4, b"", &mut body);
    body.into()
}

/// An object that names its kind in Kubernetes' protobuf encoding, envelope included, as it is served to clients that ask
/// for `application/vnd.kubernetes.protobuf`. Fields outside of the tables are left out; those of a Pod and a Status are
/// complete.
pub fn value(value: &Value) -> Bytes {
    let text = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
    envelope(text("apiVersion"), text("kind"), &bare(value))
}

/// An object's message, without an envelope, as it stands in a list.
pub(crate) fn bare(value: &Value) -> Bytes {
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default();
    let mut raw = Vec::new();
    if let (Some(message), Value::Object(map)) = (message(kind), value) {
        write_message(message, map, &mut raw);
    }
    raw.into()
}

/// The message of a PartialObjectMetadata with this metadata.
pub(crate) fn metadata(value: &Value) -> Bytes {
    let mut raw = Vec::new();
    write_value(METADATA, value, &mut raw);
    raw.into()
}

const METADATA: Field =
    Field { number: 1, name: "metadata", list: false, map: false, pointer: false, kind: "ObjectMeta" };

/// A list of such messages.
pub(crate) fn list(api_version: &str, kind: &str, metadata: &Value, items: &[Bytes]) -> Bytes {
    let mut raw = Vec::new();
    write_value(Field { kind: "ListMeta", ..METADATA }, metadata, &mut raw);
    for item in items {
        put_bytes(2, item, &mut raw);
    }
    envelope(api_version, &format!("{kind}List"), &raw)
}

/// One event of a watch: its length in four bytes, then the event.
pub(crate) fn event(event: &str, object: &[u8]) -> Bytes {
    let (mut extension, mut body) = (Vec::new(), Vec::new());
    put_bytes(1, object, &mut extension);
    put_bytes(1, event.as_bytes(), &mut body);
    put_bytes(2, &extension, &mut body);
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    [&length.to_be_bytes()[..], &body].concat().into()
}

fn write_message(message: &Message, map: &Map<String, Value>, into: &mut Vec<u8>) {
    for (name, value) in map {
        if let Some(field) = message.named(name) {
            write_field(field, value, into);
        }
    }
    for field in message.embedded() {
        if let Some(embedded) = self::message(field.kind) {
            put_part(field.number, into, |into| write_message(embedded, map, into));
        }
    }
}

fn write_field(field: Field, value: &Value, into: &mut Vec<u8>) {
    match value {
        Value::Array(items) if field.list => items.iter().for_each(|item| write_value(field, item, into)),
        Value::Object(entries) if field.map => {
            for (key, value) in entries {
                put_part(field.number, into, |into| {
                    put_bytes(1, key.as_bytes(), into);
                    write_value(Field { number: 2, ..field }, value, into);
                });
            }
        }
        _ => write_value(field, value, into),
    }
}

fn write_value(Field { number, kind, .. }: Field, value: &Value, into: &mut Vec<u8>) {
    match (kind, value) {
        ("ignored", _) | (_, Value::Null) => {}
        ("string", Value::String(text)) => put_bytes(number, text.as_bytes(), into),
        ("bytes", text) => {
            let bytes = serde_json::from_value::<ByteString>(text.clone()).unwrap_or_default();
            put_bytes(number, &bytes.0, into);
        }
        ("int", value) => put_number(number, value.as_i64().unwrap_or_default(), into),
        ("bool", value) => put_number(number, value.as_bool().unwrap_or_default().into(), into),
        ("Quantity", Value::String(text)) => {
            put_part(number, into, |into| put_bytes(1, text.as_bytes(), into));
        }
        ("Quantity", other) => {
            put_part(number, into, |into| put_bytes(1, other.to_string().as_bytes(), into))
        }
        ("IntOrString", Value::String(text)) => put_part(number, into, |into| {
            put_number(1, 1, into);
            put_bytes(3, text.as_bytes(), into);
        }),
        ("IntOrString", other) => {
            put_part(number, into, |into| put_number(2, other.as_i64().unwrap_or_default(), into));
        }
        ("RawJson", data) => put_part(number, into, |into| put_bytes(1, data.to_string().as_bytes(), into)),
        ("Time" | "MicroTime", Value::String(text)) => {
            if let Ok(time) = text.parse::<jiff::Timestamp>() {
                put_part(number, into, |into| {
                    put_number(1, time.as_second(), into);
                    put_number(2, time.subsec_nanosecond().into(), into);
                });
            }
        }
        (name, Value::Object(map)) => put_part(number, into, |into| {
            if let Some(message) = message(name) {
                write_message(message, map, into);
            }
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn protobuf_encoding_and_decoding_are_inverse() {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 2,
                         "creationTimestamp": "2026-01-01T00:00:00Z", "labels": {"app": "web", "empty": ""},
                         "finalizers": ["a/b"],
                         "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web",
                                              "uid": "r", "controller": true}]},
            "spec": {"nodeName": "n", "terminationGracePeriodSeconds": 0, "overhead": {"cpu": "5m"},
                     "containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "ü"}],
                                     "livenessProbe": {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 3}}],
                     "volumes": [{"name": "v", "configMap": {"name": "m", "defaultMode": 420}}],
                     "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                         "nodeSelectorTerms": [{"matchFields": [
                             {"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}},
            "status": {"phase": "Running", "containerStatuses": [
                {"name": "c", "restartCount": 3, "state": {"running": {"startedAt": "2026-01-01T00:00:09Z"}}}]},
        });
        assert_eq!(super::super::to_json(&value(&pod)), Ok(pod));
    }

    #[test]
    fn a_part_of_any_size_reads_back() {
        // The parts around the text have some more bytes, and each passes 127 and 16,383.
        for size in (0..200).chain(16_300..16_400).chain([2_100_000]) {
            let pod = json!({"apiVersion": "v1", "kind": "Pod",
                             "metadata": {"annotations": {"a": "x".repeat(size)}, "name": "web"}});
            assert!(super::super::to_json(&value(&pod)) == Ok(pod), "{size}");
        }
    }

    #[test]
    fn a_field_outside_the_tables_is_left_out() {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"fromTheFuture": 1}});
        let expected = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        assert_eq!(super::super::to_json(&value(&pod)), Ok(expected));
    }

    #[test]
    fn a_list_has_its_version_and_its_items() {
        let item = bare(&json!({"kind": "Pod", "metadata": {"name": "a"}}));
        let bytes = list("v1", "Pod", &json!({"resourceVersion": "9"}), &[item.clone(), item.clone()]);
        let mut raw = Vec::new();
        put_bytes(
            1,
            &{
                let mut meta = Vec::new();
                put_bytes(2, b"9", &mut meta);
                meta
            },
            &mut raw,
        );
        put_bytes(2, &item, &mut raw);
        put_bytes(2, &item, &mut raw);
        assert_eq!(bytes, envelope("v1", "PodList", &raw));
    }

    #[test]
    fn an_event_begins_with_its_length() {
        let bytes = event("ADDED", b"object");
        assert_eq!(bytes[..4], u32::try_from(bytes.len() - 4).unwrap().to_be_bytes());
        assert_eq!(bytes[4..], *b"\x0a\x05ADDED\x12\x08\x0a\x06object");
    }
}
