//! Requests and limits of containers and of whole pods (upstream: `validateResourceRequirements`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::names;
use crate::quantity::{self, Quantity};

/// The resources of a container or of a pod. `spec` is that of the pod, which lists the claims.
pub(super) fn validate(resources: &Value, path: &str, spec: &Value, errors: &mut Errors) {
    for (name, amount) in resources["limits"].as_object().into_iter().flatten() {
        resource(name, amount, &format!("{path}.limits[{name}]"), errors);
    }
    for (name, amount) in resources["requests"].as_object().into_iter().flatten() {
        let field = format!("{path}.requests[{name}]");
        let request = resource(name, amount, &field, errors);
        let limit = &resources["limits"][name];
        let field = format!("{path}.requests");
        // Extended resources and huge pages cannot be overcommitted.
        let is_exact = name.contains('/') || is_huge(name);
        match (request, parsed(limit)) {
            (Some(request), Some(limit)) if is_exact && request != limit => {
                let why = format!("must be equal to {name} limit of {}", limit.canonical());
                errors.invalid(&field, amount.clone(), why);
            }
            (Some(request), Some(limit)) if request > limit => {
                let why = format!("must be less than or equal to {name} limit of {}", limit.canonical());
                errors.invalid(&field, amount.clone(), why);
            }
            (Some(_), None) if is_exact && limit.is_null() => {
                let why = "Limit must be set for non overcommitable resources";
                errors.required(&format!("{path}.limits"), why);
            }
            _ => {}
        }
    }
    let names = ["limits", "requests"].iter().filter_map(|list| resources[*list].as_object());
    let names: BTreeSet<&str> = names.flat_map(|list| list.keys().map(String::as_str)).collect();
    if names.iter().any(|name| is_huge(name)) && !names.contains("cpu") && !names.contains("memory") {
        errors.forbidden(path, "HugePages require cpu or memory");
    }
    claims(resources, path, spec, errors);
}

fn claims(resources: &Value, path: &str, spec: &Value, errors: &mut Errors) {
    let known: BTreeSet<&str> =
        elements(spec, "resourceClaims", "").map(|(_, claim)| text(claim, "name")).collect();
    let mut seen = BTreeSet::new();
    for (path, claim) in elements(resources, "claims", path) {
        let (name, request) = (text(claim, "name"), text(claim, "request"));
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{request}") };
        if !seen.insert(key.clone()) {
            errors.duplicate(&path, key);
        }
        if !known.contains(name) {
            let shown = known.iter().copied().collect::<Vec<_>>().join(", ");
            let which = if known.is_empty() { " which is empty".to_owned() } else { format!(": {shown}") };
            let why = format!("must be one of the names in pod.spec.resourceClaims{which}");
            errors.push(&path, "FieldValueNotFound", format!("Not found: {name:?}: {why}"));
        }
    }
}

fn is_huge(name: &str) -> bool {
    name.starts_with("hugepages-")
}

fn parsed(amount: &Value) -> Option<Quantity> {
    Quantity::parse(amount.as_str().unwrap_or_default())
}

/// Judges the name of a resource that a container may have.
pub(super) fn name_for_container(name: &str, field: &str, errors: &mut Errors) {
    errors.each_invalid(field, name, names::label_key(name));
    if !name.contains('/') && !is_standard(name) {
        errors.invalid(field, name, "must be a standard resource for containers");
    }
}

fn is_standard(name: &str) -> bool {
    matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_huge(name)
}

/// Judges the name and the amount of a resource at `field`; the amount.
fn resource(name: &str, amount: &Value, field: &str, errors: &mut Errors) -> Option<Quantity> {
    errors.each_invalid(field, name, names::label_key(name));
    if !name.contains('/') && !is_standard(name) {
        if !super::limits::is_limited_by_quotas(name) {
            errors.invalid(field, name, "must be a standard resource type or fully qualified");
        }
        errors.invalid(field, name, "must be a standard resource for containers");
    }
    let quantity = parsed(amount);
    match quantity {
        None => errors.invalid(field, amount.clone(), quantity::PATTERN),
        Some(value) if value.is_negative() => {
            errors.invalid(field, amount.clone(), "must be greater than or equal to 0");
        }
        Some(value) if name.contains('/') && !value.is_integer() => {
            errors.invalid(field, amount.clone(), "must be an integer");
        }
        Some(value) => {
            let page = name.strip_prefix("hugepages-").and_then(Quantity::parse);
            if page.is_some_and(|page| !value.is_multiple_of(page)) {
                let shown = amount.as_str().unwrap_or_default();
                let why = format!("{shown} is not positive integer multiple of {name}");
                errors.invalid(field, amount.clone(), why);
            }
        }
    }
    quantity
}

/// Resources that may change without a restart of the container.
pub(super) fn resize_policy(container: &Value, path: &str, spec: &Value, errors: &mut Errors) {
    let all = format!("{path}.resizePolicy");
    let mut seen = BTreeSet::new();
    for (path, policy) in elements(container, "resizePolicy", path) {
        let (resource, restart) = (text(policy, "resourceName"), text(policy, "restartPolicy"));
        if !seen.insert(resource) {
            errors.duplicate(&path, resource);
        }
        let known = [(resource, ["cpu", "memory"]), (restart, ["NotRequired", "RestartContainer"])];
        for (value, known) in known {
            if value.is_empty() {
                errors.required(&all, "");
            } else if !known.contains(&value) {
                errors.not_supported(&all, value, &known);
            }
        }
        if spec["restartPolicy"] == "Never" && restart != "NotRequired" {
            let why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(&all, restart, why);
        }
    }
}
