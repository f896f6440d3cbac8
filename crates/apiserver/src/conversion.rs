//! `events.k8s.io/v1` and `v1` Events are one set of stored objects under two sets of field names.

use std::borrow::Cow;

use serde_json::Value;

use super::kinds::{Kind, Wire};

/// Field names: in `events.k8s.io/v1`, and as stored (`v1`).
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// The object as it is stored.
pub(crate) fn to_storage(kind: &Kind, mut object: Value) -> Value {
    if let (Some(custom), Value::Object(map)) = (kind.custom, &mut object) {
        map.insert("apiVersion".to_owned(), Value::from(custom.storage_version.as_str()));
    }
    if let (Wire::EventsV1, Value::Object(map)) = (kind.wire, &mut object) {
        for (wire, stored) in EVENT_FIELDS {
            if let Some(value) = map.remove(*wire) {
                map.insert((*stored).to_owned(), value);
            }
        }
        map.insert("apiVersion".to_owned(), Value::from("v1"));
    }
    object
}

/// The object as this kind's clients see it.
pub(crate) fn to_wire<'a>(kind: &Kind, stored: &'a Value) -> Cow<'a, Value> {
    if kind.custom.is_some() && stored["apiVersion"] != kind.api_version() {
        let mut object = stored.clone();
        object["apiVersion"] = Value::from(kind.api_version());
        return Cow::Owned(object);
    }
    match kind.wire {
        Wire::AsStored => Cow::Borrowed(stored),
        Wire::EventsV1 => {
            let mut object = stored.clone();
            if let Value::Object(map) = &mut object {
                for (wire, stored) in EVENT_FIELDS {
                    if let Some(value) = map.remove(*stored) {
                        map.insert((*wire).to_owned(), value);
                    }
                }
                map.insert("apiVersion".to_owned(), Value::from(kind.api_version()));
            }
            Cow::Owned(object)
        }
    }
}

/// A field selector of this kind's clients in the names of the stored object.
pub(crate) fn stored_fields(kind: &Kind, selector: &str) -> String {
    if kind.wire == Wire::AsStored {
        return selector.to_owned();
    }
    let rename = |term: &str| match EVENT_FIELDS
        .iter()
        .find(|(wire, _)| term.strip_prefix(wire).is_some_and(|rest| rest.starts_with(['.', '=', '!'])))
    {
        Some((wire, stored)) => format!("{stored}{}", term.strip_prefix(wire).unwrap_or_default()),
        None => term.to_owned(),
    };
    selector.split(',').map(rename).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds;

    #[test]
    fn an_event_keeps_everything_on_the_way_through_the_store() {
        let kind = kinds::find("events.k8s.io", "v1", "events").unwrap();
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "e"},
            "regarding": {"kind": "Pod"}, "note": "hello", "reportingController": "c", "deprecatedCount": 2,
        });
        let stored = to_storage(kind, event.clone());
        assert_eq!(stored["message"], "hello");
        assert_eq!(stored["involvedObject"]["kind"], "Pod");
        assert_eq!(stored["apiVersion"], "v1");
        assert_eq!(*to_wire(kind, &stored), event);
    }

    #[test]
    fn a_field_selector_is_translated_with_the_object() {
        let kind = kinds::find("events.k8s.io", "v1", "events").unwrap();
        let selector = stored_fields(kind, "regarding.name=web,reason!=X");
        assert_eq!(selector, "involvedObject.name=web,reason!=X");
    }
}
