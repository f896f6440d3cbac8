//! Which objects the scopes of a quota include.

use serde_json::Value;

use crate::object::{strings, text};

/// Whether the scopes of a quota include an object.
pub(super) fn matches(quota: &Value, resource: &str, object: &Value) -> bool {
    let spec = &quota["spec"];
    let scopes = strings(spec.get("scopes"));
    let selectors: Vec<&Value> =
        spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten().collect();
    let named = |selector: &&Value| {
        let operator = selector["operator"].as_str().unwrap_or_default();
        let scope = selector["scopeName"].as_str().unwrap_or_default();
        in_scope(resource, scope, operator, &selector["values"], object)
    };
    scopes.iter().all(|scope| in_scope(resource, scope, "Exists", &Value::Null, object))
        && selectors.iter().all(named)
}

fn in_scope(resource: &str, scope: &str, operator: &str, values: &Value, object: &Value) -> bool {
    match resource {
        "pods" => pod_in_scope(scope, operator, values, &object["spec"], object),
        "persistentvolumeclaims" if scope == "VolumeAttributesClass" => {
            let classes = [
                "/spec/volumeAttributesClassName",
                "/status/currentVolumeAttributesClassName",
                "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
            ];
            let classes = classes.map(|pointer| text(object, pointer));
            selects(
                operator,
                values,
                &classes.into_iter().filter(|class| !class.is_empty()).collect::<Vec<_>>(),
            )
        }
        _ => false,
    }
}

/// Whether one of an object's values is as required, or whether it has none.
fn selects(operator: &str, values: &Value, own: &[&str]) -> bool {
    let is_listed = |value: &&str| strings(Some(values)).contains(value);
    match operator {
        "In" => own.iter().any(is_listed),
        "NotIn" => own.is_empty() || own.iter().any(|value| !is_listed(value)),
        "Exists" => !own.is_empty(),
        "DoesNotExist" => own.is_empty(),
        _ => false,
    }
}

fn pod_in_scope(scope: &str, operator: &str, values: &Value, spec: &Value, pod: &Value) -> bool {
    let is_terminating = spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0);
    let is_best_effort = text(pod, "/status/qosClass") == "BestEffort";
    match scope {
        "Terminating" => is_terminating,
        "NotTerminating" => !is_terminating,
        "BestEffort" => is_best_effort,
        "NotBestEffort" => !is_best_effort,
        "PriorityClass" => {
            let class = spec["priorityClassName"].as_str().filter(|class| !class.is_empty());
            selects(operator, values, &class.into_iter().collect::<Vec<_>>())
        }
        "CrossNamespacePodAffinity" => crosses_namespaces(&spec["affinity"]),
        _ => false,
    }
}

/// Whether a pod has a term of affinity that looks at other namespaces.
fn crosses_namespaces(affinity: &Value) -> bool {
    let crosses = |term: &Value| {
        term["namespaces"].as_array().is_some_and(|namespaces| !namespaces.is_empty())
            || term["namespaceSelector"].is_object()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let terms = |field: &str| affinity[*kind][field].as_array().into_iter().flatten();
        terms("requiredDuringSchedulingIgnoredDuringExecution").any(crosses)
            || terms("preferredDuringSchedulingIgnoredDuringExecution")
                .any(|term| crosses(&term["podAffinityTerm"]))
    })
}
