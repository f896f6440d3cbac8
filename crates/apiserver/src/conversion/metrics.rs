//! The metrics of autoscalers as `autoscaling/v1` has them in an annotation: in the form of `autoscaling/v2beta1`
//! (upstream `pkg/apis/autoscaling/v1/conversion.go`).

use serde_json::{Value, json};

use crate::quantity::Quantity;

/// The fields for the sources of a metric, in Go's order.
const SOURCES: [&str; 5] = ["object", "pods", "resource", "containerResource", "external"];

/// The metrics of the second version for those in an annotation; `None` if Go could not read them.
pub(super) fn to_second_version(metrics: &Value) -> Option<Vec<Value>> {
    let metric = |metric: &Value| {
        let mut new = fields([("type", metric["type"].clone())]);
        for field in SOURCES.into_iter().filter(|field| metric[*field].is_object()) {
            new[field] = second_source(field, &metric[field])?;
        }
        Some(new)
    };
    metrics.as_array()?.iter().map(metric).collect()
}

fn second_source(field: &str, old: &Value) -> Option<Value> {
    let amount = |name: &str| match &old[name] {
        Value::Null => Some(Value::Null),
        set => Some(Value::from(Quantity::of(set)?.canonical())),
    };
    let (value, average) = (amount("targetValue")?, amount("averageValue")?);
    let target_average = amount("targetAverageValue")?;
    let of_metric =
        |selector: &str| fields([("name", old["metricName"].clone()), ("selector", old[selector].clone())]);
    Some(match field {
        "object" => {
            // Go's form always has the value, so that a zero beside an average says nothing.
            let (kind, value) = match (&average, or_zero(value)) {
                (Value::Null, value) => ("Value", value),
                (_, value) if value == "0" => ("AverageValue", Value::Null),
                (_, value) => ("AverageValue", value),
            };
            let target = fields([("type", kind.into()), ("value", value), ("averageValue", average)]);
            fields([
                ("describedObject", reference(&old["target"])),
                ("metric", of_metric("selector")),
                ("target", target),
            ])
        }
        "pods" => {
            let target = fields([("type", "AverageValue".into()), ("averageValue", or_zero(target_average))]);
            fields([("metric", of_metric("selector")), ("target", target)])
        }
        "external" => {
            let kind = if value.is_null() { "AverageValue" } else { "Value" };
            let target = fields([("type", kind.into()), ("value", value), ("averageValue", target_average)]);
            fields([("metric", of_metric("metricSelector")), ("target", target)])
        }
        _ => {
            let share = &old["targetAverageUtilization"];
            let kind = if share.is_null() { "AverageValue" } else { "Utilization" };
            let target = fields([
                ("type", kind.into()),
                ("averageValue", target_average),
                ("averageUtilization", share.clone()),
            ]);
            fields([
                ("name", old["name"].clone()),
                ("container", old["container"].clone()),
                ("target", target),
            ])
        }
    })
}

/// A metric of the second version as it stands in the annotation.
pub(super) fn to_first_version(metric: &Value) -> Value {
    let mut old = fields([("type", metric["type"].clone())]);
    for field in SOURCES.into_iter().filter(|field| metric[*field].is_object()) {
        old[field] = first_source(field, &metric[field]);
    }
    old
}

fn first_source(field: &str, new: &Value) -> Value {
    let (metric, target) = (&new["metric"], &new["target"]);
    let (name, selector) = (metric["name"].clone(), metric["selector"].clone());
    let (value, average) = (target["value"].clone(), target["averageValue"].clone());
    match field {
        "object" => fields([
            ("target", reference(&new["describedObject"])),
            ("metricName", name),
            ("targetValue", or_zero(value)),
            ("selector", selector),
            ("averageValue", average),
        ]),
        "pods" => {
            fields([("metricName", name), ("targetAverageValue", or_zero(average)), ("selector", selector)])
        }
        "external" => fields([
            ("metricName", name),
            ("metricSelector", selector),
            ("targetValue", value),
            ("targetAverageValue", average),
        ]),
        _ => fields([
            ("name", new["name"].clone()),
            ("targetAverageUtilization", target["averageUtilization"].clone()),
            ("targetAverageValue", average),
            ("container", new["container"].clone()),
        ]),
    }
}

fn reference(object: &Value) -> Value {
    fields(["kind", "name", "apiVersion"].map(|field| (field, object[field].clone())))
}

/// An amount that Go holds without a pointer.
fn or_zero(amount: Value) -> Value {
    if amount.is_null() { json!("0") } else { amount }
}

/// An object of the fields that are set.
fn fields<const N: usize>(all: [(&str, Value); N]) -> Value {
    let set = all.into_iter().filter(|(_, value)| !value.is_null());
    Value::Object(set.map(|(field, value)| (field.to_owned(), value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_metric_has_another_form_in_each_version() {
        let deployment = json!({"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"});
        let selector = json!({"matchLabels": {"a": "b"}});
        for (first, second) in [
            (
                json!({"type": "Pods", "pods": {"metricName": "x", "targetAverageValue": "1"}}),
                json!({"type": "Pods", "pods": {
                    "metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": "1"},
                }}),
            ),
            (
                json!({"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 70}}),
                json!({"type": "Resource", "resource": {
                    "name": "memory", "target": {"type": "Utilization", "averageUtilization": 70},
                }}),
            ),
            (
                json!({"type": "ContainerResource", "containerResource": {
                    "name": "cpu", "container": "app", "targetAverageValue": "2",
                }}),
                json!({"type": "ContainerResource", "containerResource": {
                    "name": "cpu", "container": "app", "target": {"type": "AverageValue", "averageValue": "2"},
                }}),
            ),
            (
                json!({"type": "External", "external": {
                    "metricName": "queue", "metricSelector": selector, "targetValue": "5",
                }}),
                json!({"type": "External", "external": {
                    "metric": {"name": "queue", "selector": selector}, "target": {"type": "Value", "value": "5"},
                }}),
            ),
            (
                json!({"type": "Object", "object": {
                    "target": deployment, "metricName": "hits", "targetValue": "0", "averageValue": "3",
                }}),
                json!({"type": "Object", "object": {
                    "describedObject": deployment, "metric": {"name": "hits"},
                    "target": {"type": "AverageValue", "averageValue": "3"},
                }}),
            ),
        ] {
            assert_eq!(to_second_version(&json!([first])), Some(vec![second.clone()]));
            assert_eq!(to_first_version(&second), first);
        }
    }

    #[test]
    fn an_annotation_without_amounts_is_not_read() {
        let metric = json!({"type": "Pods", "pods": {"metricName": "x", "targetAverageValue": "lots"}});
        assert_eq!(to_second_version(&json!([metric])), None);
        assert_eq!(to_second_version(&json!("x")), None);
    }
}
