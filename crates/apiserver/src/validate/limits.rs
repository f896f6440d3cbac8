//! ResourceQuotas and LimitRanges (upstream: `ValidateResourceQuotaSpec` and `ValidateLimitRange`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::names;
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
        let is_whole = COUNTED.contains(&name.as_str()) || name.contains('/');
        if is_whole && quantity.is_some_and(|amount| !amount.is_integer()) {
            errors.invalid(&field, amount.clone(), "must be an integer");
        }
    }
    let scopes: BTreeSet<&str> =
        spec["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for _ in scopes.iter().filter(|scope| !SCOPES.contains(scope)) {
        errors.invalid("spec.scopes", spec["scopes"].clone(), "unsupported scope");
    }
    for pair in [["BestEffort", "NotBestEffort"], ["Terminating", "NotTerminating"]] {
        if pair.iter().all(|scope| scopes.contains(scope)) {
            errors.invalid("spec.scopes", spec["scopes"].clone(), "conflicting scopes");
        }
    }
}

fn is_limited_by_quotas(name: &str) -> bool {
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
        errors.each_invalid(&field, kind, names::label_key(kind));
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
            bounds(limit, name, &path, errors);
        }
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
}
