//! Claims that keep a StatefulSet waiting: not bound, missing, or about to be deleted.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::pods::{EventView, as_optional_text, with_event};
use crate::text::harmless;

/// A claim of a StatefulSet that is in the way, or will be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimView {
    /// Its name.
    pub name: String,
    /// The pod that it is for.
    pub pod: String,
    /// Its UID; empty if it does not exist.
    pub uid: String,
    /// `Pending`, `Lost`, `terminating`, `missing`.
    pub state: String,
    /// When it was created.
    #[serde(serialize_with = "as_optional_text", skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Its StorageClass, its finalizers and its newest warning event, for one line of a terminal.
    #[serde(skip)]
    pub reason: String,
    /// The same, whole and as it was sent, without the times of the event.
    #[serde(rename = "reason")]
    pub whole_reason: String,
    /// Its newest warning event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<EventView>,
}

impl ClaimView {
    /// A claim that is in the way; `None` for one that is bound and stays.
    pub fn of(
        object: &Value,
        pod: &str,
        events: &BTreeMap<String, Vec<Value>>,
        now: Timestamp,
    ) -> Option<Self> {
        let metadata = &object["metadata"];
        let is_deleting = metadata["deletionTimestamp"].is_string();
        let phase = object["status"]["phase"].as_str().unwrap_or("Pending");
        if phase == "Bound" && !is_deleting {
            return None;
        }
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let uid = text("uid").to_owned();
        let events = events.get(&uid).map_or(&[][..], Vec::as_slice);
        let event = EventView::newest(events);
        let composed = |clean: &dyn Fn(&str) -> String, now: Option<Timestamp>| {
            let message = match is_deleting {
                true => Some(deletion(metadata, pod, clean)),
                false => Some(storage_class(&object["spec"], clean)),
            };
            with_event(message, event.as_ref(), clean, now)
        };
        Some(ClaimView {
            name: harmless(text("name")),
            pod: pod.to_owned(),
            uid,
            state: if is_deleting { "terminating".to_owned() } else { harmless(phase) },
            created: text("creationTimestamp").parse().ok(),
            reason: composed(&harmless, Some(now)),
            whole_reason: composed(&str::to_owned, None),
            event,
        })
    }

    /// A claim that does not exist although a pod needs it.
    pub fn missing(name: String, pod: &str) -> Self {
        let reason = "the controller creates it before the pod can start".to_owned();
        ClaimView {
            name,
            pod: pod.to_owned(),
            uid: String::new(),
            state: "missing".to_owned(),
            created: None,
            whole_reason: reason.clone(),
            reason,
            event: None,
        }
    }
}

/// The reason why a deleted claim is still there.
fn deletion(metadata: &Value, pod: &str, clean: &dyn Fn(&str) -> String) -> String {
    let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
    let finalizers: Vec<String> = finalizers.filter_map(Value::as_str).map(clean).collect();
    match finalizers.as_slice() {
        [] => "it is about to be gone".to_owned(),
        [one] if one == "kubernetes.io/pvc-protection" => {
            format!("its data is deleted once no pod uses it: when {pod} is deleted, at the latest")
        }
        all => format!("held by the finalizers {}", all.join(", ")),
    }
}

fn storage_class(spec: &Value, clean: &dyn Fn(&str) -> String) -> String {
    match spec["storageClassName"].as_str() {
        Some("") => "no volume is bound, and without a StorageClass none is created for it".to_owned(),
        Some(class) => format!("no volume is bound yet, StorageClass {}", clean(class)),
        None => "no volume is bound, and it has no StorageClass: is there a default one?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn seen(object: &Value) -> Option<(String, String)> {
        let now = "2026-01-01T00:01:00Z".parse().unwrap();
        let event = json!({"type": "Warning", "reason": "ProvisioningFailed", "message": "no room\u{1b}[2J", "count": 3,
                           "lastTimestamp": "2026-01-01T00:00:55Z"});
        let events = [("u".to_owned(), vec![event])].into();
        ClaimView::of(object, "db-1", &events, now).map(|claim| (claim.state, claim.reason))
    }

    #[test]
    fn a_claim_is_in_the_way_until_it_is_bound_and_when_it_is_deleted() {
        let claim = |uid: &str, deleted: Value, phase: &str| {
            json!({"metadata": {"name": "data-db-1", "uid": uid, "deletionTimestamp": deleted,
                                "finalizers": ["kubernetes.io/pvc-protection"]},
                   "spec": {"storageClassName": "fast"}, "status": {"phase": phase}})
        };
        assert_eq!(seen(&claim("u", Value::Null, "Bound")), None);
        let (state, reason) = seen(&claim("u", Value::Null, "Pending")).unwrap();
        assert_eq!(state, "Pending");
        assert_eq!(
            reason,
            "no volume is bound yet, StorageClass fast; ProvisioningFailed: no room[2J (3 times, last 5s ago)"
        );
        let (state, reason) = seen(&claim("v", json!("2026-01-01T00:00:00Z"), "Bound")).unwrap();
        assert_eq!(state, "terminating");
        assert!(reason.contains("when db-1 is deleted"), "{reason}");
    }
}
