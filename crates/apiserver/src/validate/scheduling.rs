//! The parts of a pod that its scheduler reads: affinity, tolerations, gates, spread constraints.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::names;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

pub(super) fn affinity(affinity: &Value, path: &str, errors: &mut Errors) {
    node_affinity(&affinity["nodeAffinity"], &format!("{path}.nodeAffinity"), errors);
    for kind in ["podAffinity", "podAntiAffinity"] {
        let (affinity, path) = (&affinity[kind], format!("{path}.{kind}"));
        for (path, term) in elements(affinity, REQUIRED, &path) {
            pod_term(term, &path, errors);
        }
        for (path, preference) in elements(affinity, PREFERRED, &path) {
            weight(preference, &path, errors);
            pod_term(&preference["podAffinityTerm"], &format!("{path}.podAffinityTerm"), errors);
        }
    }
}

fn node_affinity(affinity: &Value, path: &str, errors: &mut Errors) {
    node_selector(&affinity[REQUIRED], &format!("{path}.{REQUIRED}"), errors);
    for (path, preference) in elements(affinity, PREFERRED, path) {
        weight(preference, &path, errors);
        node_term(&preference["preference"], false, &format!("{path}.preference"), errors);
    }
}

fn node_selector(selector: &Value, path: &str, errors: &mut Errors) {
    if selector.is_null() {
        return;
    }
    if selector["nodeSelectorTerms"].as_array().is_none_or(Vec::is_empty) {
        let field = format!("{path}.nodeSelectorTerms");
        errors.required(&field, "must have at least one node selector term");
    }
    for (path, term) in elements(selector, "nodeSelectorTerms", path) {
        node_term(term, true, &path, errors);
    }
}

/// The nodes that can reach a PersistentVolume.
pub(super) fn volume_affinity(affinity: &Value, path: &str, errors: &mut Errors) {
    let required = &affinity["required"];
    if required.is_null() {
        errors.required(&format!("{path}.required"), "must specify required node constraints");
    }
    node_selector(required, &format!("{path}.required"), errors);
}

fn weight(preference: &Value, path: &str, errors: &mut Errors) {
    let weight = preference["weight"].as_i64().unwrap_or(0);
    if !(1..=100).contains(&weight) {
        errors.invalid(&format!("{path}.weight"), weight, "must be in the range 1-100");
    }
}

fn node_term(term: &Value, required: bool, path: &str, errors: &mut Errors) {
    for (path, expression) in elements(term, "matchExpressions", path) {
        let count = expression["values"].as_array().map_or(0, Vec::len);
        let (field, values) = (format!("{path}.operator"), format!("{path}.values"));
        match text(expression, "operator") {
            "In" | "NotIn" if count == 0 => {
                errors.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
            }
            "Exists" | "DoesNotExist" if count > 0 => {
                let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.forbidden(&values, why);
            }
            "Gt" | "Lt" if count != 1 => {
                errors.required(&values, "must be specified single value when `operator` is 'Lt' or 'Gt'");
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt" => {}
            other => errors.invalid(&field, other, "not a valid selector operator"),
        }
        let key = text(expression, "key");
        errors.each_invalid(&format!("{path}.key"), key, names::label_key(key));
        for (path, value) in elements(expression, "values", &path).filter(|_| required) {
            let value = value.as_str().unwrap_or_default();
            errors.each_invalid(&path, value, names::label_value(value));
        }
    }
    for (path, expression) in elements(term, "matchFields", path) {
        let values = expression["values"].as_array().map(Vec::as_slice).unwrap_or_default();
        match text(expression, "operator") {
            "In" | "NotIn" if values.len() == 1 => {}
            "In" | "NotIn" => {
                let why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
                errors.required(&format!("{path}.values"), why);
            }
            other => errors.invalid(&format!("{path}.operator"), other, "not a valid selector operator"),
        }
        match text(expression, "key") {
            "metadata.name" => {
                for (index, value) in values.iter().filter_map(Value::as_str).enumerate() {
                    let field = format!("{path}.values[{index}]");
                    errors.each_invalid(&field, value, names::dns1123_subdomain(value));
                }
            }
            other => errors.invalid(&format!("{path}.key"), other, "not a valid field selector key"),
        }
    }
}

/// Labels of the pod itself that a selector takes over: they need a selector, and each stands once.
fn label_keys(object: &Value, path: &str, errors: &mut Errors) {
    let keys = |field: &str| -> Vec<&str> {
        object[field].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
    };
    let lists =
        [("matchLabelKeys", keys("matchLabelKeys")), ("mismatchLabelKeys", keys("mismatchLabelKeys"))];
    for (field, keys) in &lists {
        if object["labelSelector"].is_null() && !keys.is_empty() {
            let why = "must not be specified when labelSelector is not set";
            errors.forbidden(&format!("{path}.{field}"), why);
            continue;
        }
        for (index, key) in keys.iter().enumerate() {
            errors.each_invalid(&format!("{path}.{field}[{index}]"), key, names::label_key(key));
        }
    }
    for (index, key) in lists[0].1.iter().enumerate().filter(|(_, key)| lists[1].1.contains(key)) {
        let why = "exists in both matchLabelKeys and mismatchLabelKeys";
        errors.invalid(&format!("{path}.matchLabelKeys[{index}]"), *key, why);
    }
}

fn pod_term(term: &Value, path: &str, errors: &mut Errors) {
    for selector in ["labelSelector", "namespaceSelector"] {
        if !term[selector].is_null() {
            super::selectors::label_selector(&term[selector], &format!("{path}.{selector}"), errors);
        }
    }
    for name in term["namespaces"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        errors.each_invalid(&format!("{path}.namespace"), name, names::dns1123_label(name));
    }
    label_keys(term, path, errors);
    let (key, field) = (text(term, "topologyKey"), format!("{path}.topologyKey"));
    if key.is_empty() {
        errors.required(&field, "can not be empty");
    }
    errors.each_invalid(&field, key, names::label_key(key));
}

pub(super) fn gates(spec: &Value, path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (path, gate) in elements(spec, "schedulingGates", path) {
        let name = text(gate, "name");
        errors.each_invalid(&path, name, names::label_key(name));
        if !seen.insert(name) {
            errors.duplicate(&path, name);
        }
    }
}

pub(super) fn tolerations(spec: &Value, path: &str, errors: &mut Errors) {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    for (path, toleration) in elements(spec, "tolerations", path) {
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        if !key.is_empty() {
            errors.each_invalid(&format!("{path}.key"), key, names::label_key(key));
        } else if operator != "Exists" {
            let why =
                "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.invalid(&format!("{path}.operator"), operator, why);
        }
        let effect = text(toleration, "effect");
        if toleration["tolerationSeconds"].is_i64() && effect != "NoExecute" {
            let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
            errors.invalid(&format!("{path}.effect"), effect, why);
        }
        let value = text(toleration, "value");
        match operator {
            "" | "Equal" => {
                errors.each_invalid(&format!("{path}.operator"), value, names::label_value(value))
            }
            "Exists" if !value.is_empty() => {
                let why = "value must be empty when `operator` is 'Exists'";
                errors.invalid(&format!("{path}.operator"), value, why);
            }
            "Exists" => {}
            "Lt" | "Gt" => {
                let supported = ["Equal", "Exists", "Lt", "Gt"];
                errors.not_supported(&format!("{path}.operator"), operator, &supported);
            }
            _ => errors.not_supported(&format!("{path}.operator"), operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            errors.one_of(&format!("{path}.effect"), &toleration["effect"], &EFFECTS);
        }
    }
}

pub(super) fn spread_constraints(spec: &Value, path: &str, errors: &mut Errors) {
    fn identity(constraint: &Value) -> (&str, &str) {
        (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"))
    }
    let all: Vec<_> = elements(spec, "topologySpreadConstraints", path).collect();
    let last: BTreeMap<_, _> =
        all.iter().enumerate().map(|(index, (_, constraint))| (identity(constraint), index)).collect();
    for (index, (path, constraint)) in all.iter().enumerate() {
        let skew = constraint["maxSkew"].as_i64().unwrap_or(0);
        if skew <= 0 {
            errors.invalid(&format!("{path}.maxSkew"), skew, "must be greater than zero");
        }
        let key = text(constraint, "topologyKey");
        if key.is_empty() {
            errors.required(&format!("{path}.topologyKey"), "can not be empty");
        } else {
            errors.each_invalid(&format!("{path}.topologyKey"), key, names::label_key(key));
        }
        let action = text(constraint, "whenUnsatisfiable");
        if !matches!(action, "DoNotSchedule" | "ScheduleAnyway") {
            let supported = ["DoNotSchedule", "ScheduleAnyway"];
            errors.not_supported(&format!("{path}.whenUnsatisfiable"), action, &supported);
        }
        if last.get(&identity(constraint)).is_some_and(|last| *last > index) {
            let field = format!("{path}.{{topologyKey, whenUnsatisfiable}}");
            errors.duplicate(&field, format!("{{{key}, {action}}}"));
        }
        if let Some(domains) = constraint["minDomains"].as_i64() {
            let field = format!("{path}.minDomains");
            if domains <= 0 {
                errors.invalid(&field, domains, "must be greater than zero");
            }
            if action != "DoNotSchedule" {
                let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
                errors.invalid(&field, domains, why);
            }
        }
        for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
            errors.one_of(&format!("{path}.{field}"), &constraint[field], &["Honor", "Ignore"]);
        }
        label_keys(constraint, path, errors);
        if !constraint["labelSelector"].is_null() {
            let path = format!("{path}.labelSelector");
            super::selectors::label_selector(&constraint["labelSelector"], &path, errors);
        }
    }
}
