//! Objects as stored, and their fields.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

/// The namespace in which most scenarios play.
pub const NAMESPACE: &str = "shop";

/// Objects by resource and name, as stored.
pub type Picture = BTreeMap<String, BTreeMap<String, Arc<Value>>>;

/// As [`Value::pointer`], which allocates two strings for each token: that took a twentieth of a history's time.
fn at<'a>(object: &'a Value, pointer: &str) -> Option<&'a Value> {
    if pointer.contains('~') {
        return object.pointer(pointer);
    }
    pointer.split('/').skip(1).try_fold(object, |value, token| match value {
        Value::Object(fields) => fields.get(token),
        Value::Array(items) => items.get(token.parse::<usize>().ok()?),
        _ => None,
    })
}

/// The text at `pointer`, or "".
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    at(object, pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The number at `pointer`, or 0.
pub fn number(object: &Value, pointer: &str) -> i64 {
    at(object, pointer).and_then(Value::as_i64).unwrap_or(0)
}

/// The UID of an object.
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// The name of an object.
pub fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// The owner references of an object.
pub fn references(object: &Value) -> &[Value] {
    list(&object["metadata"]["ownerReferences"])
}

/// The reference to the controller of an object.
pub fn controller(object: &Value) -> Option<&Value> {
    references(object).iter().find(|reference| reference["controller"] == true)
}

/// The UID of the controller of an object, or "".
pub fn owner(object: &Value) -> &str {
    controller(object).map_or("", |reference| text(reference, "/uid"))
}

/// The element of this number; after the last comes the first.
pub fn nth<T>(all: Vec<T>, nth: u32) -> Option<T> {
    let count = all.len().max(1);
    all.into_iter().nth(nth as usize % count)
}

/// A time in whole seconds, as the API server writes it.
pub fn written(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The elements of a list; none where it is absent.
pub fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A condition of an object, whatever its status.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    list(&object["status"]["conditions"]).iter().find(|condition| condition["type"] == kind)
}

/// Whether an object is being deleted.
pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether a pod counts as a replica of its ReplicaSet.
pub fn is_live(pod: &Value) -> bool {
    !is_deleting(pod) && !matches!(text(pod, "/status/phase"), "Failed" | "Succeeded")
}

/// Whether a pod has been ready for that many seconds.
pub fn is_available(pod: &Value, min_ready_seconds: i64, now: Timestamp) -> bool {
    list(&pod["status"]["conditions"]).iter().any(|condition| {
        let since: Option<Timestamp> =
            condition["lastTransitionTime"].as_str().and_then(|since| since.parse().ok());
        condition["type"] == "Ready"
            && condition["status"] == "True"
            && (min_ready_seconds == 0
                || since.is_some_and(|since| now.as_second() - since.as_second() >= min_ready_seconds))
    })
}
