//! Which pods a ResourceQuota with scopes is about. Pure.

use serde_json::Value;

/// The verdict of a quota's scopes on a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Matches {
    /// The quota counts it.
    Yes,
    /// The quota does not count it.
    No,
    /// One of the scopes is not known here.
    Unknown(String),
}

/// Whether the scopes of a quota include a pod: all of them must.
pub fn matches(quota: &Value, pod: &Value) -> Matches {
    let spec = &quota["spec"];
    let plain = spec["scopes"].as_array().into_iter().flatten();
    let plain = plain.map(|scope| (scope.as_str().unwrap_or_default(), "Exists", &Value::Null));
    let selected = spec["scopeSelector"]["matchExpressions"].as_array().into_iter().flatten();
    let selected = selected.map(|expression| {
        let text = |field: &str| expression[field].as_str().unwrap_or_default();
        (text("scopeName"), text("operator"), &expression["values"])
    });
    let mut is_in = true;
    for (scope, operator, values) in plain.chain(selected) {
        match includes(scope, operator, values, pod) {
            Some(includes) => is_in &= includes,
            None => return Matches::Unknown(format!("{scope} {operator}")),
        }
    }
    if is_in { Matches::Yes } else { Matches::No }
}

fn includes(scope: &str, operator: &str, values: &Value, pod: &Value) -> Option<bool> {
    let spec = &pod["spec"];
    let exists = match scope {
        "Terminating" => ends_by_itself(spec),
        "NotTerminating" => !ends_by_itself(spec),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "CrossNamespacePodAffinity" => crosses_namespaces(&spec["affinity"]),
        "PriorityClass" => {
            let class = &spec["priorityClassName"];
            let is_listed = values.as_array().is_some_and(|values| values.contains(class));
            let has_class = class.as_str().is_some_and(|class| !class.is_empty());
            return match operator {
                "In" => Some(is_listed),
                "NotIn" => Some(!is_listed),
                "Exists" => Some(has_class),
                "DoesNotExist" => Some(!has_class),
                _ => None,
            };
        }
        _ => return None,
    };
    (operator == "Exists").then_some(exists)
}

fn ends_by_itself(spec: &Value) -> bool {
    spec["activeDeadlineSeconds"].as_i64().is_some_and(|seconds| seconds >= 0)
}

/// By the class in the status, which the server's dry run fills in; else by the containers.
fn is_best_effort(pod: &Value) -> bool {
    if let Some(class) = pod["status"]["qosClass"].as_str() {
        return class == "BestEffort";
    }
    let spec = &pod["spec"];
    let containers =
        ["containers", "initContainers"].iter().flat_map(|list| spec[*list].as_array()).flatten();
    let asks = |holder: &Value| {
        ["requests", "limits"].iter().any(|field| {
            ["cpu", "memory"]
                .iter()
                .any(|name| !matches!(holder["resources"][*field][*name].as_str(), None | Some("0")))
        })
    };
    !asks(spec) && !containers.into_iter().any(asks)
}

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_scopes_must_include_the_pod_and_an_unknown_one_is_named() {
        let small = json!({"spec": {"containers": [{"name": "a"}], "priorityClassName": "low"}});
        let sized = json!({"spec": {"containers": [{"resources": {"requests": {"cpu": "1m"}}}], "activeDeadlineSeconds": 5}});
        let scopes = |scopes: Value| json!({"spec": {"scopes": scopes}});
        let class = |operator: &str, values: Value| {
            json!({"spec": {"scopeSelector": {"matchExpressions": [
                {"scopeName": "PriorityClass", "operator": operator, "values": values}]}}})
        };
        for (quota, pod, expected) in [
            (json!({"spec": {}}), &small, Matches::Yes),
            (scopes(json!(["BestEffort"])), &small, Matches::Yes),
            (scopes(json!(["BestEffort"])), &sized, Matches::No),
            (scopes(json!(["NotBestEffort", "Terminating"])), &sized, Matches::Yes),
            (scopes(json!(["NotBestEffort", "NotTerminating"])), &sized, Matches::No),
            (scopes(json!(["CrossNamespacePodAffinity"])), &sized, Matches::No),
            (class("In", json!(["low"])), &small, Matches::Yes),
            (class("NotIn", json!(["low"])), &small, Matches::No),
            (class("Exists", Value::Null), &sized, Matches::No),
            (class("DoesNotExist", Value::Null), &sized, Matches::Yes),
            (scopes(json!(["Tomorrow"])), &sized, Matches::Unknown("Tomorrow Exists".to_owned())),
        ] {
            assert_eq!(matches(&quota, pod), expected, "{quota} {pod}");
        }
        let of_the_server =
            json!({"spec": {"containers": [{"name": "a"}]}, "status": {"qosClass": "Burstable"}});
        assert_eq!(matches(&scopes(json!(["BestEffort"])), &of_the_server), Matches::No);
    }
}
