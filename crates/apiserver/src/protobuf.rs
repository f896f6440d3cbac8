//! Bodies in Kubernetes' protobuf encoding, turned into JSON.
//!
//! Go clients since client-go 1.32 send the objects of built-in kinds this way unless they are configured
//! otherwise, `kubectl create deployment` among them. They accept answers in JSON; pods, and the metadata of any
//! object, are served in protobuf to those who ask for it ([`write`]). The price of hand-made tables of messages is that a rare field may be
//! missing from them; a request with such a field is refused with a message that names it.

pub(crate) mod go_order;
mod kinds;
mod messages;
mod pod;
mod table;
pub(crate) mod write;

use k8s_openapi::ByteString;
use serde_json::{Map, Value, json};

use table::message;

/// The Content-Type of these bodies.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of every body.
const MAGIC: &[u8] = b"k8s\0";
/// Deeper messages do not occur in the API; a body of nothing but nesting is an attack.
const MAX_DEPTH: usize = 32;

/// Why a body could not be read.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(crate) enum Error {
    #[error("the protobuf body is malformed")]
    Malformed,
    #[error("the sandbox cannot decode objects of kind {0:?} from protobuf; send JSON")]
    Kind(String),
    #[error("the sandbox cannot decode field {number} of {message} from protobuf; send JSON")]
    Field { message: String, number: u64 },
}

/// The object in `body` as JSON.
pub(crate) fn to_json(body: &[u8]) -> Result<Value, Error> {
    let envelope = body.strip_prefix(MAGIC).ok_or(Error::Malformed)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for entry in Wire(envelope) {
        match entry? {
            (1, Item::Bytes(type_meta)) => {
                for entry in Wire(type_meta) {
                    match entry? {
                        (1, item) => api_version = item.text()?,
                        (2, item) => kind = item.text()?,
                        _ => {}
                    }
                }
            }
            (2, Item::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let name = message_of(&api_version, &kind);
    if message(name).is_none() {
        return Err(Error::Kind(kind));
    }
    let mut object = Map::new();
    read_message(name, raw, MAX_DEPTH, &mut object)?;
    object.insert("apiVersion".to_owned(), json!(api_version));
    object.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(object))
}

/// The message of a kind.
fn message_of<'a>(api_version: &str, kind: &'a str) -> &'a str {
    match (api_version, kind) {
        ("events.k8s.io/v1", "Event") => "EventsV1Event",
        ("autoscaling/v1", "HorizontalPodAutoscaler") => "AutoscalerV1",
        _ => kind,
    }
}

fn read_message(
    message: &str,
    bytes: &[u8],
    depth: usize,
    into: &mut Map<String, Value>,
) -> Result<(), Error> {
    let table = self::message(message).ok_or_else(|| Error::Kind(message.to_owned()))?;
    let depth = depth.checked_sub(1).ok_or(Error::Malformed)?;
    for entry in Wire(bytes) {
        let (number, item) = entry?;
        let field =
            table.numbered(number).ok_or_else(|| Error::Field { message: message.to_owned(), number })?;
        if field.kind == "ignored" {
        } else if field.name == "." {
            read_message(field.kind, item.bytes()?, depth, into)?;
        } else if field.map {
            let (mut key, mut value) = (String::new(), Value::Null);
            for entry in Wire(item.bytes()?) {
                match entry? {
                    (1, item) => key = item.text()?,
                    (2, item) => value = read_value(field.kind, &item, depth)?,
                    _ => {}
                }
            }
            if let Value::Object(map) = into.entry(field.name).or_insert_with(|| json!({})) {
                map.insert(key, value);
            }
        } else if field.list {
            let value = read_value(field.kind, &item, depth)?;
            if let Value::Array(list) = into.entry(field.name).or_insert_with(|| json!([])) {
                list.push(value);
            }
        } else {
            let value = read_value(field.kind, &item, depth)?;
            // A time of nothing is "not set" even behind a pointer.
            let set = !value.is_null() && (field.pointer || !is_zero(&value));
            if set {
                into.insert(field.name.to_owned(), value);
            }
        }
    }
    Ok(())
}

fn read_value(kind: &str, item: &Item<'_>, depth: usize) -> Result<Value, Error> {
    Ok(match kind {
        "string" => json!(item.text()?),
        "bytes" => json!(ByteString(item.bytes()?.to_vec())),
        "int" => json!(item.number()?),
        "bool" => json!(item.number()? != 0),
        "Quantity" => Wire(item.bytes()?)
            .next()
            .transpose()?
            .map_or(Ok(json!("0")), |(_, item)| item.text().map(Value::from))?,
        "IntOrString" => int_or_string(item.bytes()?)?,
        "RawJson" => raw_json(item.bytes()?)?,
        "Time" | "MicroTime" => time(item.bytes()?, kind == "MicroTime")?,
        message => {
            let mut object = Map::new();
            read_message(message, item.bytes()?, depth, &mut object)?;
            Value::Object(object)
        }
    })
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Error> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for entry in Wire(bytes) {
        match entry? {
            (1, item) => is_text = item.number()? == 1,
            (2, item) => number = item.number()?,
            (3, item) => text = item.text()?,
            _ => {}
        }
    }
    Ok(if is_text { json!(text) } else { json!(number) })
}

/// A `RawExtension`, whose one field is the text of a JSON value. Without a text there is no value.
fn raw_json(bytes: &[u8]) -> Result<Value, Error> {
    let mut value = Value::Null;
    for entry in Wire(bytes) {
        if let (1, item) = entry?
            && !item.bytes()?.is_empty()
        {
            value = serde_json::from_slice(item.bytes()?).map_err(|_| Error::Malformed)?;
        }
    }
    Ok(value)
}

fn time(bytes: &[u8], micro: bool) -> Result<Value, Error> {
    let (mut seconds, mut nanos) = (None, 0);
    for entry in Wire(bytes) {
        match entry? {
            (1, item) => seconds = Some(item.number()?),
            (2, item) => nanos = item.number()?,
            _ => {}
        }
    }
    let Some(seconds) = seconds else { return Ok(Value::Null) };
    let nanos = if micro { i32::try_from(nanos).map_err(|_| Error::Malformed)? } else { 0 };
    let stamp = jiff::Timestamp::new(seconds, nanos).map_err(|_| Error::Malformed)?;
    Ok(json!(if micro { format!("{stamp:.6}") } else { stamp.to_string() }))
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(set) => !set,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// The fields of one message.
struct Wire<'a>(&'a [u8]);

#[derive(Debug)]
enum Item<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

impl<'a> Item<'a> {
    fn bytes(&self) -> Result<&'a [u8], Error> {
        match self {
            Item::Bytes(bytes) => Ok(bytes),
            Item::Number(_) => Err(Error::Malformed),
        }
    }

    fn text(&self) -> Result<String, Error> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Error::Malformed)
    }

    /// Negative numbers are on the wire as their two's complement in 64 bits.
    fn number(&self) -> Result<i64, Error> {
        match self {
            Item::Number(number) => Ok(number.cast_signed()),
            Item::Bytes(_) => Err(Error::Malformed),
        }
    }
}

impl<'a> Iterator for Wire<'a> {
    type Item = Result<(u64, Item<'a>), Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let entry = self.entry();
        if entry.is_none() {
            self.0 = &[];
        }
        Some(entry.ok_or(Error::Malformed))
    }
}

impl<'a> Wire<'a> {
    fn entry(&mut self) -> Option<(u64, Item<'a>)> {
        let tag = self.varint()?;
        let item = match tag & 7 {
            0 => Item::Number(self.varint()?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                let (bytes, rest) = self.0.split_at_checked(length)?;
                self.0 = rest;
                Item::Bytes(bytes)
            }
            // Fixed-width numbers occur in none of the messages.
            _ => return None,
        };
        Some((tag >> 3, item))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn varint(mut value: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        while value >= 0x80 {
            bytes.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        bytes.push(value as u8);
        bytes
    }

    fn number(field: u64, value: i64) -> Vec<u8> {
        [varint(field << 3), varint(value.cast_unsigned())].concat()
    }

    fn bytes(field: u64, value: impl AsRef<[u8]>) -> Vec<u8> {
        let value = value.as_ref();
        [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
    }

    fn body(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let type_meta = [bytes(1, api_version), bytes(2, kind)].concat();
        [MAGIC.to_vec(), bytes(1, type_meta), bytes(2, raw)].concat()
    }

    #[test]
    fn zeroes_that_go_writes_for_unset_fields_are_absent_and_others_stay() {
        let metadata = [
            bytes(1, "web"),
            bytes(2, ""),
            bytes(8, ""),
            bytes(11, [bytes(1, "app"), bytes(2, "")].concat()),
        ];
        let spec = [number(1, 0), number(5, 0), number(7, 0), bytes(4, bytes(1, ""))];
        let raw = [bytes(1, metadata.concat()), bytes(2, spec.concat()), bytes(3, "")].concat();
        let expected = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "labels": {"app": ""}},
            "spec": {"replicas": 0},
        });
        assert_eq!(to_json(&body("apps/v1", "Deployment", &raw)), Ok(expected));
    }

    #[test]
    fn a_replication_controller_arrives_with_its_map_of_labels() {
        let label = [bytes(1, "app"), bytes(2, "web")].concat();
        let template = bytes(1, bytes(11, &label));
        let spec = [number(1, 0), bytes(2, &label), bytes(3, template), number(4, 7)].concat();
        let status = [number(1, 2), number(2, 2), number(3, 5), number(4, 1), number(5, 1)].concat();
        let condition = bytes(6, [bytes(1, "ReplicaFailure"), bytes(2, "True")].concat());
        let raw =
            [bytes(1, bytes(1, "web")), bytes(2, spec), bytes(3, [status, condition].concat())].concat();
        let expected = json!({
            "apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "web"},
            "spec": {"replicas": 0, "selector": {"app": "web"}, "minReadySeconds": 7,
                     "template": {"metadata": {"labels": {"app": "web"}}}},
            "status": {"replicas": 2, "fullyLabeledReplicas": 2, "observedGeneration": 5, "readyReplicas": 1,
                       "availableReplicas": 1,
                       "conditions": [{"type": "ReplicaFailure", "status": "True"}]},
        });
        assert_eq!(to_json(&body("v1", "ReplicationController", &raw)), Ok(expected));
    }

    #[test]
    fn a_daemon_set_arrives_with_its_strategy() {
        let rolling = [bytes(1, number(2, 0)), bytes(2, [number(1, 1), bytes(3, "10%")].concat())].concat();
        let strategy = [bytes(1, "RollingUpdate"), bytes(2, rolling)].concat();
        let template = bytes(1, bytes(11, [bytes(1, "app"), bytes(2, "web")].concat()));
        let spec = [bytes(2, template), bytes(3, strategy), number(4, 7), number(6, 0)].concat();
        let counts =
            (1..=9).map(|field| number(field, i64::try_from(field).unwrap())).collect::<Vec<_>>().concat();
        let condition = bytes(10, [bytes(1, "Paused"), bytes(2, "True")].concat());
        let raw =
            [bytes(1, bytes(1, "web")), bytes(2, spec), bytes(3, [counts, condition].concat())].concat();
        let expected = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "web"},
            "spec": {"template": {"metadata": {"labels": {"app": "web"}}}, "minReadySeconds": 7,
                     "revisionHistoryLimit": 0,
                     "updateStrategy": {"type": "RollingUpdate",
                                        "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "10%"}}},
            "status": {"currentNumberScheduled": 1, "numberMisscheduled": 2, "desiredNumberScheduled": 3,
                       "numberReady": 4, "observedGeneration": 5, "updatedNumberScheduled": 6,
                       "numberAvailable": 7, "numberUnavailable": 8, "collisionCount": 9,
                       "conditions": [{"type": "Paused", "status": "True"}]},
        });
        assert_eq!(to_json(&body("apps/v1", "DaemonSet", &raw)), Ok(expected));
    }

    #[test]
    fn the_data_of_a_revision_is_json_within_protobuf() {
        let raw = |data: &str| [bytes(1, bytes(1, "web-1")), bytes(2, bytes(1, data)), number(3, 4)].concat();
        let json = to_json(&body("apps/v1", "ControllerRevision", &raw(r#"{"spec":{"a":null}}"#))).unwrap();
        assert_eq!((&json["data"], &json["revision"]), (&json!({"spec": {"a": null}}), &json!(4)));
        assert_eq!(to_json(&write::value(&json)), Ok(json), "it is written as it is read");
        let empty = to_json(&body("apps/v1", "ControllerRevision", &raw(""))).unwrap();
        assert_eq!(empty["data"], Value::Null);
        assert_eq!(to_json(&body("apps/v1", "ControllerRevision", &raw("{"))), Err(Error::Malformed));
    }

    #[test]
    fn an_autoscaler_and_a_request_for_a_certificate_arrive() {
        let target = [bytes(1, "Deployment"), bytes(2, "web"), bytes(3, "apps/v1")].concat();
        let usage = [bytes(1, "Utilization"), number(4, 80)].concat();
        let metric = [bytes(1, "Resource"), bytes(4, [bytes(1, "cpu"), bytes(2, usage)].concat())].concat();
        let spec = [bytes(1, target), number(3, 3), bytes(4, metric)].concat();
        let raw = [bytes(1, bytes(1, "web")), bytes(2, spec)].concat();
        let expected = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 3,
                     "metrics": [{"type": "Resource", "resource": {
                         "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]},
        });
        assert_eq!(to_json(&body("autoscaling/v2", "HorizontalPodAutoscaler", &raw)), Ok(expected));
        let approved = [bytes(1, "Approved"), bytes(6, "True")].concat();
        let raw =
            [bytes(2, [bytes(7, "a/b"), bytes(5, "client auth")].concat()), bytes(3, bytes(1, approved))]
                .concat();
        let request = to_json(&body("certificates.k8s.io/v1", "CertificateSigningRequest", &raw)).unwrap();
        assert_eq!(request["spec"], json!({"signerName": "a/b", "usages": ["client auth"]}));
        assert_eq!(request["status"], json!({"conditions": [{"type": "Approved", "status": "True"}]}));
    }

    #[test]
    fn special_types_have_their_json_forms() {
        let port = [number(3, 80), bytes(4, [number(1, 1), bytes(3, "http")].concat())].concat();
        let service = bytes(2, bytes(1, port));
        let json = to_json(&body("v1", "Service", &service)).unwrap();
        assert_eq!(json["spec"]["ports"], json!([{"port": 80, "targetPort": "http"}]));
        let time = [number(1, 1_767_225_600), number(2, 5_000_000)].concat();
        let lease = bytes(2, [bytes(4, &time), number(5, -1)].concat());
        let json = to_json(&body("coordination.k8s.io/v1", "Lease", &lease)).unwrap();
        assert_eq!(json["spec"], json!({"renewTime": "2026-01-01T00:00:00.005000Z", "leaseTransitions": -1}));
        let secret = bytes(2, [bytes(1, "k"), bytes(2, [0, 255])].concat());
        assert_eq!(to_json(&body("v1", "Secret", &secret)).unwrap()["data"], json!({"k": "AP8="}));
    }

    #[test]
    fn a_field_outside_the_table_is_named_not_dropped() {
        let pod = bytes(2, bytes(999, ""));
        let error = Error::Field { message: "PodSpec".to_owned(), number: 999 };
        assert_eq!(to_json(&body("v1", "Pod", &pod)), Err(error));
        assert_eq!(
            to_json(&body("storage.k8s.io/v1", "CSIDriver", &[])),
            Err(Error::Kind("CSIDriver".to_owned()))
        );
    }

    #[test]
    fn malformed_bodies_are_refused() {
        for bad in [
            &b"{}"[..],
            b"k8s\0\xff",
            b"k8s\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"k8s\0\x0a\x05a",
        ] {
            assert!(to_json(bad).is_err(), "{bad:?}");
        }
    }
}
