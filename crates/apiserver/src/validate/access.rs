//! Roles and their bindings, and requests for certificates (upstream `pkg/apis/{rbac,certificates}/validation`).

use std::collections::BTreeSet;

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

/// The usages of certificates.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(crate) fn certificate_request(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    // The request is PEM in base64; a beginning of three letters is four of base64.
    if !text(spec, "request").starts_with("LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNU") {
        let why = "PEM block type must be CERTIFICATE REQUEST";
        errors.invalid("spec.request", spec["request"].clone(), why);
    }
    if spec["usages"].as_array().is_none_or(Vec::is_empty) {
        errors.required("spec.usages", "");
    }
    let mut seen = BTreeSet::new();
    for (path, usage) in elements(spec, "usages", "spec") {
        errors.one_of(&path, usage, &USAGES);
        if !seen.insert(usage.as_str()) {
            errors.duplicate(&path, usage.clone());
        }
    }
    let signer = text(spec, "signerName");
    match signer.split_once('/') {
        _ if signer.is_empty() => errors.required("spec.signerName", ""),
        _ if signer == "kubernetes.io/legacy-unknown" => {
            let why = "the legacy signerName is not allowed via this API version";
            errors.invalid("spec.signerName", signer, why);
        }
        Some((domain, path)) if domain.contains('.') && !path.is_empty() => {
            errors.each_invalid("spec.signerName", domain, names::dns1123_subdomain(domain));
        }
        _ => {
            let why = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            errors.invalid("spec.signerName", signer, why);
        }
    }
    if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|seconds| *seconds < 600) {
        let why = "may not specify a duration less than 600 seconds (10 minutes)";
        errors.invalid("spec.expirationSeconds", seconds, why);
    }
}

pub(crate) fn certificate_request_status(new: &Value, _old: &Value, errors: &mut Errors) {
    let conditions = new["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let has = |kind: &str| conditions.iter().any(|condition| condition["type"] == kind);
    if has("Approved") && has("Denied") {
        let last = conditions.iter().rfind(|one| one["type"] == "Approved" || one["type"] == "Denied");
        let why = "Approved and Denied conditions are mutually exclusive";
        errors.invalid("status.conditions", last.map_or(Value::Null, |one| one["type"].clone()), why);
    }
    let mut seen = BTreeSet::new();
    for (path, condition) in elements(&new["status"], "conditions", "status") {
        let kind = text(condition, "type");
        if kind.is_empty() {
            errors.required(&format!("{path}.type"), "");
        }
        let field = format!("{path}.status");
        match (kind, text(condition, "status")) {
            (_, "") => errors.required(&field, ""),
            ("Approved" | "Denied" | "Failed", status) if status != "True" => {
                errors.not_supported(&field, status, &["True"]);
            }
            (_, status) if !["False", "True", "Unknown"].contains(&status) => {
                errors.not_supported(&field, status, &["False", "True", "Unknown"]);
            }
            _ => {}
        }
        if !seen.insert(kind) {
            errors.duplicate(&format!("{path}.type"), kind);
        }
    }
}
