//! ResourceQuotas and LimitRanges (upstream: `ValidateResourceQuotaSpec` and `ValidateLimitRange`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::{internal_types, names};
use crate::object::strings;
use crate::quantity::Quantity;

/// Resources without a prefix that a quota can limit in whole numbers.
const COUNTED: [&str; 9] = [
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// Those that a pod uses, with or without `requests.` and `limits.` before them.
const COMPUTED: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];

const SCOPES: [&str; 7] = [
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

pub(crate) fn quota(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    for (name, amount) in spec["hard"].as_object().into_iter().flatten() {
        let field = format!("spec.hard[{name}]");
        errors.each_invalid(&field, name, names::label_key(name));
        if !name.contains('/') && !is_limited_by_quotas(name) {
            if name != "storage" {
                errors.invalid(&field, name.as_str(), "must be a standard resource type or fully qualified");
            }
            errors.invalid(&field, name.as_str(), "must be a standard resource for quota");
        }
        let quantity = Quantity::of(amount);
        if quantity.is_some_and(|amount| amount.is_negative()) {
            errors.invalid(&field, amount.clone(), "must be greater than or equal to 0");
        }
        let is_whole = COUNTED.contains(&name.as_str())
            || name.contains('/') && !name.starts_with("requests.") && !name.starts_with("count/");
        if is_whole && quantity.is_some_and(|amount| !amount.is_integer()) {
            errors.invalid(&field, amount.clone(), "must be an integer");
        }
    }
    let hard: Vec<&str> =
        spec["hard"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let scopes: Vec<&str> =
        spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            errors.invalid("spec.scopes", spec["scopes"].clone(), "unsupported scope");
        }
        for _ in hard.iter().filter(|name| is_limited_by_quotas(name) && !is_in_scope(scope, name)) {
            errors.invalid("spec.scopes", spec["scopes"].clone(), "unsupported scope applied to resource");
        }
    }
    conflicts(&scopes, spec, errors);
    selector(spec, &hard, errors);
}

/// A quota keeps its scopes: what it has counted would be wrong.
pub(crate) fn quota_update(new: &Value, old: &Value, errors: &mut Errors) {
    quota(new, errors);
    let scopes = |quota: &Value| -> BTreeSet<String> {
        strings(quota.pointer("/spec/scopes")).into_iter().map(str::to_owned).collect()
    };
    if scopes(new) != scopes(old) {
        errors.invalid("spec.scopes", new["spec"]["scopes"].clone(), "field is immutable");
    }
}

fn conflicts(scopes: &[&str], spec: &Value, errors: &mut Errors) {
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid("spec.scopes", spec["scopes"].clone(), "conflicting scopes");
        }
    }
}

fn selector(spec: &Value, hard: &[&str], errors: &mut Errors) {
    // Upstream names no index.
    let path = "spec.scopeSelector.matchExpressions";
    let mut scopes = Vec::new();
    for (_, expression) in elements(&spec["scopeSelector"], "matchExpressions", "") {
        let (scope, operator) = (text(expression, "scopeName"), text(expression, "operator"));
        if !SCOPES.contains(&scope) {
            errors.invalid(&format!("{path}.scopeName"), scope, "unsupported scope");
        }
        for _ in hard.iter().filter(|name| is_limited_by_quotas(name) && !is_in_scope(scope, name)) {
            let shown = internal_types::shown("ScopeSelector", &spec["scopeSelector"]);
            errors.invalid_shown(path, &shown, "unsupported scope applied to resource");
        }
        let exists = !["PriorityClass", "VolumeAttributesClass"].contains(&scope) && SCOPES.contains(&scope);
        if exists && operator != "Exists" {
            let why = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, \
                       ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, \
                       ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity";
            errors.invalid(&format!("{path}.operator"), operator, why);
        }
        let (values, field) = (&expression["values"], format!("{path}.values"));
        let count = values.as_array().map_or(0, Vec::len);
        match operator {
            "In" | "NotIn" if count == 0 => {
                let why = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.required(&field, why);
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.invalid(&field, values.clone(), why);
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.invalid(&format!("{path}.operator"), operator, "not a valid selector operator"),
        }
        scopes.push(scope);
    }
    conflicts(&scopes, spec, errors);
}

/// Whether a scope says something of a resource that quotas can limit.
fn is_in_scope(scope: &str, name: &str) -> bool {
    let rest = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    match scope {
        "BestEffort" => name == "pods",
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => name == "pods" || matches!(rest, "cpu" | "memory"),
        "VolumeAttributesClass" => matches!(name, "persistentvolumeclaims" | "requests.storage"),
        _ => true,
    }
}

pub(super) fn is_limited_by_quotas(name: &str) -> bool {
    let rest = name.strip_prefix("requests.").or_else(|| name.strip_prefix("limits.")).unwrap_or(name);
    COUNTED.contains(&name)
        || COMPUTED.contains(&rest)
        || name == "requests.storage"
        || (!name.starts_with("limits.") && rest.starts_with("hugepages-"))
}

pub(crate) fn range(object: &Value, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (path, limit) in elements(&object["spec"], "limits", "spec") {
        let (kind, field) = (text(limit, "type"), format!("{path}.type"));
        let why = names::label_key(kind);
        let is_name = why.is_empty();
        errors.each_invalid(&field, kind, why);
        if is_name && !kind.contains('/') && !matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim") {
            errors.invalid(&field, kind, "must be a standard limit type or fully qualified");
        }
        if !seen.insert(kind) {
            errors.duplicate(&field, kind);
        }
        if kind == "Pod" {
            for field in ["default", "defaultRequest"] {
                if !limit[field].is_null() {
                    let field = format!("{path}.{field}");
                    errors.forbidden(&field, "may not be specified when `type` is 'Pod'");
                }
            }
        }
        if kind == "PersistentVolumeClaim"
            && ["min", "max"].iter().all(|end| limit[*end]["storage"].is_null())
        {
            let why = "either minimum or maximum storage value is required, but neither was provided";
            errors.required(&format!("{path}.limits"), why);
        }
        let fields = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"];
        let names = fields.iter().filter_map(|field| limit[*field].as_object()).flat_map(|map| map.keys());
        for name in names.collect::<BTreeSet<_>>() {
            for list in fields.iter().filter(|list| !limit[**list][name].is_null()) {
                resource_name(kind, name, &format!("{path}.{list}[{name}]"), errors);
            }
            bounds(limit, name, &path, errors);
        }
    }
}

fn resource_name(kind: &str, name: &str, field: &str, errors: &mut Errors) {
    errors.each_invalid(field, name, names::label_key(name));
    if name.contains('/') {
        return;
    }
    if !is_limited_by_quotas(name) && name != "storage" {
        errors.invalid(field, name, "must be a standard resource type or fully qualified");
    }
    let of_containers = COMPUTED.contains(&name) || name.starts_with("hugepages-");
    if matches!(kind, "Pod" | "Container") && !of_containers {
        errors.invalid(field, name, "must be a standard resource for containers");
    }
}

/// The order of the numbers of one resource.
fn bounds(limit: &Value, name: &str, path: &str, errors: &mut Errors) {
    let amount = |field: &str| Some((limit[field].get(name)?, Quantity::of(limit[field].get(name)?)?));
    let mut ordered = |low: (&str, &str), high: (&str, &str), field: &str, shown: &str| {
        let (Some((low_text, least)), Some((high_text, most))) = (amount(low.0), amount(high.0)) else {
            return;
        };
        if least > most {
            let [low_text, high_text] = [low_text, high_text].map(|text| text.as_str().unwrap_or_default());
            let why = format!("{} value {low_text} is greater than {} value {high_text}", low.1, high.1);
            let shown = if shown == low.0 { low_text } else { high_text };
            errors.invalid(&format!("{path}.{field}[{name}]"), shown, why);
        }
    };
    let (min, max) = (("min", "min"), ("max", "max"));
    let request = ("defaultRequest", "default request");
    ordered(min, max, "min", "min");
    ordered(min, request, "defaultRequest", "defaultRequest");
    ordered(request, max, "defaultRequest", "defaultRequest");
    ordered(request, ("default", "default limit"), "defaultRequest", "defaultRequest");
    ordered(min, ("default", "default"), "default", "min");
    ordered(("default", "default"), max, "default", "max");
    if let Some((text, _)) = amount("maxLimitRequestRatio").filter(|(_, ratio)| *ratio < Quantity::count(1)) {
        let text = text.as_str().unwrap_or_default();
        let field = format!("{path}.maxLimitRequestRatio[{name}]");
        errors.invalid(&field, text, format!("ratio {text} is less than 1"));
    }
    if let (Some((text, ratio)), Some((_, least)), Some((_, most))) =
        (amount("maxLimitRequestRatio"), amount("min"), amount("max"))
    {
        let (text, largest) = (text.as_str().unwrap_or_default(), most.ratio(least));
        if ratio.ratio(Quantity::count(1)) > largest {
            let field = format!("{path}.maxLimitRequestRatio[{name}]");
            errors.invalid(&field, text, format!("ratio {text} is greater than max/min = {largest:.6}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::tests::{check_create, check_update};

    #[test]
    fn the_ratio_of_a_limit_is_no_larger_than_its_bounds_allow() {
        let range = |ratio: &str| {
            let limit = json!({"type": "Container", "max": {"cpu": "1500m"}, "min": {"cpu": "1"},
                               "maxLimitRequestRatio": {"cpu": ratio}});
            json!({"metadata": {"name": "r", "namespace": "shop"}, "spec": {"limits": [limit]}})
        };
        check_create("LimitRange", range("1500m"), &[]);
        let why = "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"2\": ratio 2 is greater than max/min = \
                   1.500000";
        check_create("LimitRange", range("2"), &[why]);
    }

    #[test]
    fn a_scope_that_says_nothing_of_a_resource_is_shown_as_upstream_holds_it() {
        let scopes = json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]});
        check_create(
            "ResourceQuota",
            json!({
                "metadata": {"name": "q", "namespace": "shop"},
                "spec": {"hard": {"services": "9"}, "scopeSelector": scopes},
            }),
            &[
                "spec.scopeSelector.matchExpressions: Invalid value: {\"MatchExpressions\":[{\"ScopeName\":\"PriorityClass\",\
               \"Operator\":\"Exists\",\"Values\":null}]}: unsupported scope applied to resource",
            ],
        );
    }

    #[test]
    fn a_quota_keeps_its_scopes() {
        let quota = |scopes: &[&str]| json!({"metadata": {"name": "q", "namespace": "shop"}, "spec": {"scopes": scopes}});
        check_update("ResourceQuota", quota(&["Terminating"]), quota(&["Terminating"]), &[]);
        check_update(
            "ResourceQuota",
            quota(&["Terminating"]),
            quota(&["BestEffort"]),
            &["spec.scopes: Invalid value: [\"Terminating\"]: field is immutable"],
        );
    }
}
