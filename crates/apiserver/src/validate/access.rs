//! Roles and their bindings (upstream `pkg/apis/rbac/validation`).

use serde_json::{Value, json};

use super::errors::{Errors, elements, text};
use super::{names, selectors};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(crate) fn role(object: &Value, errors: &mut Errors) {
    rules(object, true, errors);
}

pub(crate) fn cluster_role(object: &Value, errors: &mut Errors) {
    rules(object, false, errors);
    let aggregation = &object["aggregationRule"];
    if aggregation.is_null() {
        return;
    }
    let path = "aggregationRule.clusterRoleSelectors";
    if aggregation["clusterRoleSelectors"].as_array().is_none_or(Vec::is_empty) {
        errors.required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil");
    }
    for (path, selector) in elements(aggregation, "clusterRoleSelectors", "aggregationRule") {
        let before = errors.len();
        selectors::label_selector(selector, &path, errors);
        if errors.len() > before {
            errors.invalid(&path, Value::Null, "invalid label selector.");
        }
    }
}

fn rules(object: &Value, namespaced: bool, errors: &mut Errors) {
    for (path, rule) in elements(object, "rules", "") {
        let is_empty = |field: &str| rule[field].as_array().is_none_or(Vec::is_empty);
        if is_empty("verbs") {
            errors.required(&format!("{path}.verbs"), "verbs must contain at least one value");
        }
        if !is_empty("nonResourceURLs") {
            let (field, urls) = (format!("{path}.nonResourceURLs"), &rule["nonResourceURLs"]);
            if namespaced {
                let why = "namespaced rules cannot apply to non-resource URLs";
                errors.invalid(&field, urls.clone(), why);
            }
            if !["apiGroups", "resources", "resourceNames"].into_iter().all(is_empty) {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                errors.invalid(&field, urls.clone(), why);
            }
            continue;
        }
        if is_empty("apiGroups") {
            errors
                .required(&format!("{path}.apiGroups"), "resource rules must supply at least one api group");
        }
        if is_empty("resources") {
            errors.required(&format!("{path}.resources"), "resource rules must supply at least one resource");
        }
    }
}

pub(crate) fn role_binding(object: &Value, errors: &mut Errors) {
    binding(object, true, errors);
}

pub(crate) fn cluster_role_binding(object: &Value, errors: &mut Errors) {
    binding(object, false, errors);
}

pub(crate) fn role_binding_update(new: &Value, old: &Value, errors: &mut Errors) {
    role_binding(new, errors);
    fixed_role(new, old, errors);
}

pub(crate) fn cluster_role_binding_update(new: &Value, old: &Value, errors: &mut Errors) {
    cluster_role_binding(new, errors);
    fixed_role(new, old, errors);
}

fn fixed_role(new: &Value, old: &Value, errors: &mut Errors) {
    let (new, old) = (&new["roleRef"], &old["roleRef"]);
    if new != old {
        // The message shows upstream's internal type, whose fields have Go's names.
        let shown = json!({"APIGroup": new["apiGroup"], "Kind": new["kind"], "Name": new["name"]});
        errors.invalid("roleRef", shown, "cannot change roleRef");
    }
}

fn binding(object: &Value, namespaced: bool, errors: &mut Errors) {
    let role = &object["roleRef"];
    if text(role, "apiGroup") != GROUP {
        errors.not_supported("roleRef.apiGroup", text(role, "apiGroup"), &[GROUP]);
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(role, "kind")) {
        errors.not_supported("roleRef.kind", text(role, "kind"), kinds);
    }
    match text(role, "name") {
        "" => errors.required("roleRef.name", ""),
        name => errors.each_invalid("roleRef.name", name, names::path_segment(name)),
    }
    for (path, subject) in elements(object, "subjects", "") {
        let (name, group) = (text(subject, "name"), text(subject, "apiGroup"));
        let field = format!("{path}.apiGroup");
        if name.is_empty() {
            errors.required(&format!("{path}.name"), "");
        }
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !name.is_empty() {
                    errors.each_invalid(&format!("{path}.name"), name, names::dns1123_subdomain(name));
                }
                if !group.is_empty() {
                    errors.not_supported(&field, group, &[""]);
                }
                if !namespaced && text(subject, "namespace").is_empty() {
                    errors.required(&format!("{path}.namespace"), "");
                }
            }
            "User" | "Group" if group != GROUP => errors.not_supported(&field, group, &[GROUP]),
            "User" | "Group" => {}
            other => {
                let kinds = ["ServiceAccount", "User", "Group"];
                errors.not_supported(&format!("{path}.kind"), other, &kinds);
            }
        }
    }
}
