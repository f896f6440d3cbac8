//! The bodies of the writes, of the daemon and of the client. Each carries UID and resourceVersion of what it was computed
//! from.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::bookkeeping::{HANDING_OVER, NEXT_CONTROLLER, ORIGINAL_REPLICAS, moved};
use super::request::STEP_AT;
use crate::model::{Meta, ReplicaSet};

fn metadata(meta: &Meta, annotations: Map<String, Value>) -> Value {
    json!({
        "uid": meta.uid, "resourceVersion": meta.resource_version.to_string(), "annotations": annotations,
    })
}

/// Sets annotations, and removes those without a value (merge patch).
pub fn annotate(meta: &Meta, annotations: &[(&'static str, Option<String>)]) -> Value {
    let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
    json!({"metadata": metadata(meta, annotations.collect())})
}

/// Resizes, and notes the time (merge patch).
pub fn resize(meta: &Meta, to: i32, now: Timestamp) -> Value {
    let noted = [(STEP_AT.to_owned(), json!(now.to_string()))].into_iter().collect();
    json!({"metadata": metadata(meta, noted), "spec": {"replicas": to}})
}

/// NEW wants no pods and selects none: its controller releases them all (merge patch).
pub fn step_aside(new: &Meta, key: &str, value: &str, now: Timestamp) -> Value {
    let annotations = [(STEP_AT.to_owned(), json!(now.to_string())), (HANDING_OVER.to_owned(), json!(value))];
    let labels = json!({key: moved(value)});
    json!({
        "metadata": metadata(new, annotations.into_iter().collect()),
        "spec": {"replicas": 0, "selector": labels, "template": {"metadata": {"labels": labels}}},
    })
}

/// OLD gets NEW's selector and template with this label, and its size, in one write (JSON patch: a merge would keep what
/// the new ones do not have). Replacing the resourceVersion makes the server compare it.
///
/// # Errors
/// As for [`crate::model::template::Template::with_labels`].
pub fn take_over(
    old: &ReplicaSet,
    new: &ReplicaSet,
    (key, value): (&str, &str),
    replicas: i32,
    now: Timestamp,
) -> Result<Vec<Value>, serde_json::Error> {
    let selector = new.selector.match_labels();
    let selector: BTreeMap<&str, &str> = selector.chain([(key, value)]).collect();
    let labels: BTreeMap<&str, &str> = new.template.labels.iter().chain([(key, value)]).collect();
    let template = new.template.with_labels(&labels)?;
    let Meta { uid, resource_version, .. } = &old.meta;
    let at = |annotation: &str| format!("/metadata/annotations/{}", annotation.replace('/', "~1"));
    let mut operations = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": uid}),
        json!({"op": "replace", "path": "/metadata/resourceVersion", "value": resource_version.to_string()}),
        // `add` replaces what is there.
        json!({"op": "add", "path": at(STEP_AT), "value": now.to_string()}),
        json!({"op": "add", "path": "/spec/selector", "value": selector}),
        json!({"op": "add", "path": "/spec/template", "value": template}),
        json!({"op": "add", "path": "/spec/replicas", "value": replicas}),
    ];
    let done = [ORIGINAL_REPLICAS, NEXT_CONTROLLER].into_iter();
    let present = done.filter(|annotation| old.annotations.get(annotation).is_some());
    operations.extend(present.map(|annotation| json!({"op": "remove", "path": at(annotation)})));
    Ok(operations)
}
