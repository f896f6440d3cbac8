//! HorizontalPodAutoscalers and PodDisruptionBudgets (upstream `pkg/apis/{autoscaling,policy}/validation`).

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::{names, resources, selectors, workload};
use crate::quantity::Quantity;

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
    selectors::label_selector(&spec["selector"], "spec.selector", errors);
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
    reference(&spec["scaleTargetRef"], "spec.scaleTargetRef", errors);
    for (path, metric) in elements(spec, "metrics", "spec") {
        self::metric(metric, &path, errors);
    }
    let counts_things = |(_, metric): (String, &Value)| matches!(text(metric, "type"), "Object" | "External");
    if least == Some(0) && !elements(spec, "metrics", "spec").any(counts_things) {
        let why = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden("spec.metrics", why);
    }
    for direction in ["scaleUp", "scaleDown"] {
        scaling_rules(&spec["behavior"][direction], &format!("spec.behavior.{direction}"), errors);
    }
}

/// An object of any kind in the namespace of the autoscaler.
fn reference(reference: &Value, path: &str, errors: &mut Errors) {
    for field in ["kind", "name"] {
        let path = format!("{path}.{field}");
        match text(reference, field) {
            "" => errors.required(&path, ""),
            name => errors.each_invalid(&path, name, names::path_segment(name)),
        }
    }
    // Of the core kinds only the ReplicationController has a scale, and its group has no name.
    let (version, path) = (text(reference, "apiVersion"), format!("{path}.apiVersion"));
    let is_core = matches!(text(reference, "kind"), "ReplicationController");
    match version.split('/').count() {
        1 if path.starts_with("spec.scaleTargetRef") && !is_core => {
            errors.invalid(&path, version, "apiVersion must specify API group");
        }
        1 | 2 => {}
        _ => errors.invalid(&path, version, format!("unexpected GroupVersion string: {version}")),
    }
}

fn metric(metric: &Value, path: &str, errors: &mut Errors) {
    if text(metric, "type").is_empty() {
        errors.required(&format!("{path}.type"), "must specify a metric source type");
    }
    let types = METRICS.map(|(kind, _)| kind);
    let expected = METRICS.iter().find(|(kind, _)| *kind == text(metric, "type")).map(|(_, field)| *field);
    if expected.is_none() {
        errors.not_supported(&format!("{path}.type"), text(metric, "type"), &types);
    }
    // Of several sources the first in this order is judged.
    let order = ["object", "external", "pods", "resource", "containerResource"];
    let given: Vec<&str> = order.into_iter().filter(|field| !metric[*field].is_null()).collect();
    if let Some(field) = given.first() {
        source(field, &metric[*field], &format!("{path}.{field}"), errors);
    }
    if let Some(field) = expected.filter(|field| !given.contains(field)) {
        let why = "must populate information for the given metric source";
        errors.required(&format!("{path}.{field}"), why);
    }
    for other in given.iter().filter(|field| given.len() > 1 && Some(**field) != expected) {
        errors.forbidden(&format!("{path}.{other}"), "must populate the given metric source only");
    }
}

fn source(kind: &str, source: &Value, path: &str, errors: &mut Errors) {
    let of_resource = kind.to_lowercase().ends_with("resource");
    if kind == "object" {
        reference(&source["describedObject"], &format!("{path}.describedObject"), errors);
    }
    if of_resource {
        if text(source, "name").is_empty() {
            errors.required(&format!("{path}.name"), "must specify a resource name");
        } else if kind == "containerResource" {
            resources::name_for_container(text(source, "name"), &format!("{path}.name"), errors);
        }
        match (kind, text(source, "container")) {
            ("containerResource", "") => {
                errors.required(&format!("{path}.container"), "must specify a container");
            }
            ("containerResource", name) => {
                errors.each_invalid(&format!("{path}.container"), name, names::dns1123_label(name));
            }
            _ => {}
        }
    } else {
        let field = format!("{path}.metric.name");
        match text(&source["metric"], "name") {
            "" => errors.required(&field, "must specify a metric name"),
            name => errors.each_invalid(&field, name, names::path_segment(name)),
        }
    }
    target(&source["target"], &format!("{path}.target"), errors);
    let set = |field: &str| !source["target"][field].is_null();
    let at = |field: &str| format!("{path}.target.{field}");
    match kind {
        "pods" if !set("averageValue") => {
            errors.required(&at("averageValue"), "must specify a positive target averageValue");
        }
        "object" if !set("value") && !set("averageValue") => {
            errors.required(&at("averageValue"), "must set either a target value or averageValue");
        }
        "external" if !set("value") && !set("averageValue") => {
            let why = "must set either a target value for metric or a per-pod target";
            errors.required(&at("averageValue"), why);
        }
        "external" if set("value") && set("averageValue") => {
            let why = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(&at("value"), why);
        }
        _ if of_resource && !set("averageUtilization") && !set("averageValue") => errors.required(
            &at("averageUtilization"),
            "must set either a target raw value or a target utilization",
        ),
        _ if of_resource && set("averageUtilization") && set("averageValue") => errors
            .forbidden(&at("averageValue"), "may not set both a target raw value and a target utilization"),
        _ => {}
    }
}

fn target(target: &Value, path: &str, errors: &mut Errors) {
    let (kind, field) = (text(target, "type"), format!("{path}.type"));
    if kind.is_empty() {
        errors.required(&field, "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        errors.invalid(&field, kind, "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let amount = &target[field];
        if Quantity::of(amount).is_some_and(|amount| amount.is_negative() || amount.is_zero()) {
            errors.invalid(&format!("{path}.{field}"), amount.clone(), "must be positive");
        }
    }
    if let Some(share) = target["averageUtilization"].as_i64().filter(|share| *share < 1) {
        errors.invalid(&format!("{path}.averageUtilization"), share, "must be greater than 0");
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
