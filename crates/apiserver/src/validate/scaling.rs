//! HorizontalPodAutoscalers and PodDisruptionBudgets (upstream `pkg/apis/{autoscaling,policy}/validation`).

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::{names, workload};

/// A number, or at most 100 percent.
pub(super) fn at_most_all(value: &Value, field: &str, errors: &mut Errors) {
    workload::int_or_percent(value, field, errors);
    if value.is_string() && workload::amount(value).is_some_and(|percent| percent > 100) {
        errors.invalid(field, value.clone(), "must not be greater than 100%");
    }
}

pub(crate) fn disruption_budget(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let (least, most) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !least.is_null() && !most.is_null() {
        // The message shows upstream's internal type, whose fields have Go's names.
        let shown = format!(
            "{{\"MinAvailable\":{least},\"Selector\":{},\"MaxUnavailable\":{most},\"UnhealthyPodEvictionPolicy\":{}}}",
            spec["selector"], spec["unhealthyPodEvictionPolicy"]
        );
        errors.invalid_shown("spec", &shown, "minAvailable and maxUnavailable cannot be both set");
    }
    for (field, value) in [("minAvailable", least), ("maxUnavailable", most)] {
        if !value.is_null() {
            at_most_all(value, &format!("spec.{field}"), errors);
        }
    }
    workload::label_selector(&spec["selector"], "spec.selector", errors);
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    errors.one_of("spec.unhealthyPodEvictionPolicy", &spec["unhealthyPodEvictionPolicy"], &policies);
}

pub(crate) fn disruption_budget_status(new: &Value, _old: &Value, errors: &mut Errors) {
    for field in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        errors.non_negative(&format!("status.{field}"), &new["status"][field]);
    }
}

/// The kinds of metrics, and the field that each fills in.
const METRICS: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

pub(crate) fn autoscaler(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let (least, most) = (spec["minReplicas"].as_i64(), spec["maxReplicas"].as_i64().unwrap_or(0));
    if let Some(least) = least.filter(|least| *least < 1) {
        errors.invalid("spec.minReplicas", least, "must be greater than or equal to 1");
    }
    match most {
        0 => errors.required("spec.maxReplicas", "must be set and greater than 0"),
        most if most < 0 => errors.invalid("spec.maxReplicas", most, "must be greater than or equal to 1"),
        _ => {}
    }
    if least.is_some_and(|least| most < least) {
        errors.invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`");
    }
    let target = &spec["scaleTargetRef"];
    for field in ["kind", "name"] {
        let path = format!("spec.scaleTargetRef.{field}");
        match text(target, field) {
            "" => errors.required(&path, ""),
            name => errors.each_invalid(&path, name, names::path_segment(name)),
        }
    }
    // Of the core kinds only the ReplicationController has a scale, and its group has no name.
    let version = text(target, "apiVersion");
    let path = "spec.scaleTargetRef.apiVersion";
    match version.split('/').count() {
        1 if text(target, "kind") != "ReplicationController" => {
            errors.invalid(path, version, "apiVersion must specify API group");
        }
        1 | 2 => {}
        _ => errors.invalid(path, version, format!("unexpected GroupVersion string: {version}")),
    }
    for (path, metric) in elements(spec, "metrics", "spec") {
        self::metric(metric, &path, errors);
    }
    for direction in ["scaleUp", "scaleDown"] {
        scaling_rules(&spec["behavior"][direction], &format!("spec.behavior.{direction}"), errors);
    }
}

fn metric(metric: &Value, path: &str, errors: &mut Errors) {
    let types = METRICS.map(|(kind, _)| kind);
    let Some((_, field)) = METRICS.iter().find(|(kind, _)| *kind == text(metric, "type")) else {
        if text(metric, "type").is_empty() {
            errors.required(&format!("{path}.type"), "must specify a metric source type");
        }
        return errors.not_supported(&format!("{path}.type"), text(metric, "type"), &types);
    };
    if metric[*field].is_null() {
        let why = "must populate information for the given metric source";
        errors.required(&format!("{path}.{field}"), why);
    }
    for (_, other) in METRICS.iter().filter(|(_, other)| other != field) {
        if !metric[*other].is_null() {
            errors.forbidden(&format!("{path}.{other}"), "must populate the given metric source only");
        }
    }
    let target = &metric[*field]["target"];
    if !target.is_object() {
        return;
    }
    let path = format!("{path}.{field}.target");
    if !["Utilization", "Value", "AverageValue"].contains(&text(target, "type")) {
        let why = "must be either Utilization, Value, or AverageValue";
        errors.invalid(&format!("{path}.type"), text(target, "type"), why);
    }
    if let Some(share) = target["averageUtilization"].as_i64().filter(|share| *share < 1) {
        errors.invalid(&format!("{path}.averageUtilization"), share, "must be greater than 0");
    }
    if field.to_lowercase().ends_with("resource") {
        match (target["averageUtilization"].is_null(), target["averageValue"].is_null()) {
            (true, true) => errors.required(
                &format!("{path}.averageUtilization"),
                "must set either a target raw value or a target utilization",
            ),
            (false, false) => errors.forbidden(
                &format!("{path}.averageValue"),
                "may not set both a target raw value and a target utilization",
            ),
            _ => {}
        }
    }
}

fn scaling_rules(rules: &Value, path: &str, errors: &mut Errors) {
    if rules.is_null() {
        return;
    }
    let window = format!("{path}.stabilizationWindowSeconds");
    match rules["stabilizationWindowSeconds"].as_i64() {
        Some(seconds) if seconds < 0 => {
            errors.invalid(&window, seconds, "must be greater than or equal to zero");
        }
        Some(seconds) if seconds > 3600 => {
            errors.invalid(&window, seconds, "must be less than or equal to 3600");
        }
        _ => {}
    }
    errors.one_of(&format!("{path}.selectPolicy"), &rules["selectPolicy"], &["Disabled", "Max", "Min"]);
    if rules["policies"].as_array().is_none_or(Vec::is_empty) {
        errors.required(&format!("{path}.policies"), "must specify at least one Policy");
    }
    for (path, policy) in elements(rules, "policies", path) {
        if !["Percent", "Pods"].contains(&text(policy, "type")) {
            errors.not_supported(&format!("{path}.type"), text(policy, "type"), &["Percent", "Pods"]);
        }
        for field in ["value", "periodSeconds"] {
            let number = policy[field].as_i64().unwrap_or(0);
            if number <= 0 {
                errors.invalid(&format!("{path}.{field}"), number, "must be greater than zero");
            }
        }
        if let Some(seconds) = policy["periodSeconds"].as_i64().filter(|seconds| *seconds > 1800) {
            errors.invalid(&format!("{path}.periodSeconds"), seconds, "must be less than or equal to 1800");
        }
    }
}

pub(crate) fn autoscaler_status(new: &Value, _old: &Value, errors: &mut Errors) {
    for field in ["currentReplicas", "desiredReplicas"] {
        errors.non_negative(&format!("status.{field}"), &new["status"][field]);
    }
}
