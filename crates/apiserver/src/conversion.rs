//! `events.k8s.io/v1` and `v1` Events are one set of stored objects under two sets of field names, and so are the
//! HorizontalPodAutoscalers of `autoscaling/v1` and `v2`.

mod metrics;

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::kinds::{Kind, Wire};
use super::object::as_map;
use super::validate::internal_types;

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

/// Where `autoscaling/v1` keeps what it has no field for: as JSON in annotations. Upstream uses the same keys.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// The annotation has the names of this internal type.
const BEHAVIOR_TYPE: &str = "HorizontalPodAutoscalerBehavior";
/// Annotations with parts of the status, which a client of this version cannot write.
const OF_STATUS: [&str; 2] =
    ["autoscaling.alpha.kubernetes.io/conditions", "autoscaling.alpha.kubernetes.io/current-metrics"];
/// The one metric for which `autoscaling/v1` has a field.
const CPU: &str = "targetCPUUtilizationPercentage";

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
    if let (Wire::AutoscalerV1, Value::Object(map)) = (kind.wire, &mut object) {
        to_second_version(map);
    }
    object
}

fn to_second_version(map: &mut Map<String, Value>) {
    map.insert("apiVersion".to_owned(), Value::from("autoscaling/v2"));
    let mut annotation = |key: &str| -> Value {
        let annotations = map.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
        let text = annotations.and_then(Value::as_object_mut).and_then(|all| all.remove(key));
        text.and_then(|text| serde_json::from_str(text.as_str()?).ok()).unwrap_or_default()
    };
    let (others, behavior) = (annotation(METRICS), annotation(BEHAVIOR));
    OF_STATUS.iter().for_each(|key| drop(annotation(key)));
    if let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) {
        let mut metrics = metrics::to_second_version(&others).unwrap_or_default();
        if let Some(share) = spec.remove(CPU) {
            let target = json!({"type": "Utilization", "averageUtilization": share});
            metrics.push(json!({"type": "Resource", "resource": {"name": "cpu", "target": target}}));
        }
        if !metrics.is_empty() {
            spec.insert("metrics".to_owned(), Value::Array(metrics));
        }
        if behavior.is_object() {
            spec.insert("behavior".to_owned(), internal_types::read(BEHAVIOR_TYPE, &behavior));
        }
    }
}

fn to_first_version(map: &mut Map<String, Value>) {
    map.insert("apiVersion".to_owned(), Value::from("autoscaling/v1"));
    if let Some(status) = map.get_mut("status").and_then(Value::as_object_mut) {
        // A client of this version cannot write the status.
        status.remove("conditions");
        status.remove("currentMetrics");
        status.entry("currentReplicas").or_insert_with(|| json!(0));
    }
    let Some(spec) = map.get_mut("spec").and_then(Value::as_object_mut) else { return };
    let behavior = spec.remove("behavior");
    let mut metrics = spec.remove("metrics").and_then(|all| all.as_array().cloned()).unwrap_or_default();
    let share = |metric: &Value| {
        let resource = &metric["resource"];
        (resource["name"] == "cpu").then(|| resource["target"]["averageUtilization"].as_i64()).flatten()
    };
    if let Some(index) = metrics.iter().position(|metric| share(metric).is_some()) {
        spec.insert(CPU.to_owned(), json!(share(&metrics.remove(index))));
    }
    let metrics = (!metrics.is_empty())
        .then(|| metrics.iter().map(metrics::to_first_version).collect::<Value>().to_string());
    let behavior = behavior.map(|behavior| internal_types::shown(BEHAVIOR_TYPE, &behavior));
    for (key, value) in [(METRICS, metrics), (BEHAVIOR, behavior)] {
        if let Some(value) = value {
            let metadata = as_map(map.entry("metadata").or_insert(Value::Null));
            let annotations = as_map(metadata.entry("annotations").or_insert(Value::Null));
            annotations.insert(key.to_owned(), Value::from(value));
        }
    }
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
        Wire::AutoscalerV1 => {
            let mut object = stored.clone();
            if let Value::Object(map) = &mut object {
                to_first_version(map);
            }
            Cow::Owned(object)
        }
    }
}

/// A field selector of this kind's clients in the names of the stored object.
pub(crate) fn stored_fields(kind: &Kind, selector: &str) -> String {
    if kind.wire != Wire::EventsV1 {
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

    #[test]
    fn an_autoscaler_of_the_first_version_keeps_what_it_has_no_field_for() {
        let kind = kinds::find("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu",
            "target": {"type": "Utilization", "averageUtilization": 70}}});
        let other = json!({"type": "Resource", "resource": {"name": "memory",
            "target": {"type": "AverageValue", "averageValue": "1Gi"}}});
        let stored = json!({"apiVersion": "autoscaling/v2", "kind": kind.kind, "metadata": {"annotations": {}},
            "spec": {"maxReplicas": 3, "metrics": [other, cpu], "behavior": {"scaleUp": {"selectPolicy": "Max"}}}});
        let wire = to_wire(kind, &stored).into_owned();
        assert_eq!(wire["spec"], json!({"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}));
        assert_eq!(
            wire["metadata"]["annotations"][BEHAVIOR],
            "{\"ScaleUp\":{\"StabilizationWindowSeconds\":null,\"SelectPolicy\":\"Max\",\"Policies\":null,\"Tolerance\":null},\
             \"ScaleDown\":null}"
        );
        assert_eq!(to_storage(kind, wire), stored);
        let behavior = r#"{"scaleUp":{"policies":[{"Type":"Pods","value":1}]}}"#;
        let old = json!({"metadata": {"annotations": {BEHAVIOR: behavior}}, "spec": {}});
        let expected = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 1}]}});
        assert_eq!(to_storage(kind, old)["spec"]["behavior"], expected);
    }
}
