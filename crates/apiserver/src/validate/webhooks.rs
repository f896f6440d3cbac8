//! Webhooks for admission, and servers of other groups (upstream `pkg/apis/admissionregistration/validation` and
//! kube-aggregator's `apis/apiregistration/validation`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::{names, selectors};
use crate::object::strings;

pub(crate) fn validating(object: &Value, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (path, webhook) in elements(object, "webhooks", "") {
        self::webhook(webhook, &path, errors);
        let name = text(webhook, "name");
        if !name.is_empty() && !seen.insert(name) {
            errors.duplicate(&format!("{path}.name"), name);
        }
    }
}

pub(crate) fn mutating(object: &Value, errors: &mut Errors) {
    validating(object, errors);
    for (path, webhook) in elements(object, "webhooks", "") {
        let field = format!("{path}.reinvocationPolicy");
        errors.one_of(&field, &webhook["reinvocationPolicy"], &["IfNeeded", "Never"]);
    }
}

fn webhook(webhook: &Value, path: &str, errors: &mut Errors) {
    let (field, name) = (format!("{path}.name"), text(webhook, "name"));
    let wrong = names::dns1123_subdomain(name);
    if name.is_empty() {
        errors.required(&field, "");
    } else if !wrong.is_empty() {
        errors.invalid(&field, name, wrong.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(&field, name, "should be a domain with at least three segments separated by dots");
    }
    for (path, rule) in elements(webhook, "rules", path) {
        self::rule(rule, &path, errors);
    }
    errors.one_of(&format!("{path}.failurePolicy"), &webhook["failurePolicy"], &["Fail", "Ignore"]);
    errors.one_of(&format!("{path}.matchPolicy"), &webhook["matchPolicy"], &["Equivalent", "Exact"]);
    let (field, effects) = (format!("{path}.sideEffects"), ["None", "NoneOnDryRun"]);
    match &webhook["sideEffects"] {
        Value::Null => errors.required(&field, "must specify one of None, NoneOnDryRun"),
        other => errors.one_of(&field, other, &effects),
    }
    if let Some(seconds) = webhook["timeoutSeconds"].as_i64().filter(|seconds| !(1..=30).contains(seconds)) {
        let why = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&format!("{path}.timeoutSeconds"), seconds, why);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        selectors::label_selector(&webhook[field], &format!("{path}.{field}"), errors);
    }
    client(&webhook["clientConfig"], &format!("{path}.clientConfig"), errors);
    review_versions(webhook, path, errors);
}

fn review_versions(webhook: &Value, path: &str, errors: &mut Errors) {
    let field = format!("{path}.admissionReviewVersions");
    let versions = webhook["admissionReviewVersions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.is_empty() {
        return errors.required(&field, "must specify one of v1, v1beta1");
    }
    let mut seen = BTreeSet::new();
    for (path, version) in elements(webhook, "admissionReviewVersions", path) {
        let version = version.as_str().unwrap_or_default();
        if !seen.insert(version) {
            errors.invalid(&path, version, "duplicate version");
            continue;
        }
        errors.each_invalid(&path, version, names::dns1035_label(version));
    }
    if !versions.iter().any(|version| version == "v1" || version == "v1beta1") {
        let why = "must include at least one of v1, v1beta1";
        errors.invalid(&field, webhook["admissionReviewVersions"].clone(), why);
    }
}

fn client(client: &Value, path: &str, errors: &mut Errors) {
    let (url, service) = (&client["url"], &client["service"]);
    if url.is_null() == service.is_null() {
        return errors.required(path, "exactly one of url or service is required");
    }
    if let Some(url) = url.as_str() {
        let (field, form) = (format!("{path}.url"), "; desired format: https://host[/path]");
        match url.split_once("://") {
            Some(("https", rest)) if rest.starts_with('/') || rest.is_empty() => {
                errors.invalid(&field, "", format!("host must be specified{form}"));
            }
            Some(("https", _)) => {}
            other => {
                let scheme = other.map_or("", |(scheme, _)| scheme);
                errors.invalid(&field, scheme, format!("'https' is the only allowed URL scheme{form}"));
                if other.is_none() {
                    errors.invalid(&field, "", format!("host must be specified{form}"));
                }
            }
        }
        return;
    }
    let path = format!("{path}.service");
    // Upstream takes the one for the other.
    for (field, shown) in [("namespace", "name"), ("name", "namespace")] {
        if text(service, field).is_empty() {
            errors.required(&format!("{path}.{shown}"), "");
        }
    }
    port(service, &path, errors);
}

fn port(service: &Value, path: &str, errors: &mut Errors) {
    let number = service["port"].as_i64().unwrap_or(0);
    let wrong = names::port_number(number);
    if !wrong.is_empty() {
        errors.invalid(&format!("{path}.port"), number, format!("port is not valid: {}", wrong.join(", ")));
    }
}

fn rule(rule: &Value, path: &str, errors: &mut Errors) {
    let operations = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (field, others) in
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let list = rule[field].as_array().map(Vec::as_slice).unwrap_or_default();
        if list.is_empty() {
            errors.required(&format!("{path}.{field}"), "");
        }
        if list.len() > 1 && list.iter().any(|item| item == "*") {
            let why = format!("if '*' is present, must not specify other {others}");
            errors.invalid(&format!("{path}.{field}"), rule[field].clone(), why);
        }
    }
    for (path, operation) in elements(rule, "operations", path) {
        errors.one_of(&path, operation, &operations);
    }
    for (path, version) in elements(rule, "apiVersions", path) {
        if version == "" {
            errors.required(&path, "");
        }
    }
    resources(rule, path, errors);
    errors.one_of(&format!("{path}.scope"), &rule["scope"], &["*", "Cluster", "Namespaced"]);
}

/// Resources and subresources, `*` for all of them. One that another covers is refused.
fn resources(rule: &Value, path: &str, errors: &mut Errors) {
    let (all, field) = (strings(rule.get("resources")), format!("{path}.resources"));
    if all.is_empty() {
        errors.required(&field, "");
    }
    let (mut every_part, mut of_every) = (BTreeSet::new(), BTreeSet::new());
    let mut has_plain = false;
    for (index, name) in all.iter().enumerate() {
        let path = format!("{field}[{index}]");
        if name.is_empty() {
            errors.required(&path, "");
            continue;
        }
        let Some((resource, part)) = name.split_once('/') else {
            // Upstream remembers the last one.
            has_plain = *name != "*";
            continue;
        };
        if every_part.contains(resource) {
            let why = format!("if '{resource}/*' is present, must not specify {name}");
            errors.invalid(&path, *name, why);
        }
        if of_every.contains(part) {
            errors.invalid(&path, *name, format!("if '*/{part}' is present, must not specify {name}"));
        }
        if part == "*" {
            every_part.insert(resource);
        }
        if resource == "*" {
            of_every.insert(part);
        }
    }
    if all.len() > 1 && all.contains(&"*/*") {
        let why = "if '*/*' is present, must not specify other resources";
        errors.invalid(&field, rule["resources"].clone(), why);
    }
    if all.contains(&"*") && has_plain {
        let why = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(&field, rule["resources"].clone(), why);
    }
}

pub(crate) fn api_service(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let (group, version) = (text(spec, "group"), text(spec, "version"));
    let (name, wanted) = (text(&object["metadata"], "name"), format!("{version}.{group}"));
    if name != wanted && names::path_segment(name).is_empty() {
        errors.invalid("metadata.name", name, format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"));
    }
    if group.is_empty() {
        if version != "v1" {
            let why = "only v1 may have an empty group and it better be legacy kube";
            errors.required("spec.group", why);
        }
    } else {
        errors.each_invalid("spec.group", group, names::dns1123_subdomain(group));
    }
    errors.each_invalid("spec.version", version, names::dns1035_label(version));
    for (field, limit) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let number = spec[field].as_i64().unwrap_or(0);
        if !(1..=limit).contains(&number) {
            let why = format!("must be positive and less than {limit}");
            errors.invalid(&format!("spec.{field}"), number, why);
        }
    }
    let service = &spec["service"];
    let is_insecure = spec["insecureSkipTLSVerify"] == true;
    if service.is_null() {
        if is_insecure {
            let why = "local APIServices may not have insecureSkipTLSVerify";
            errors.invalid("spec.insecureSkipTLSVerify", true, why);
        }
        return;
    }
    for field in ["namespace", "name"] {
        if text(service, field).is_empty() {
            errors.required(&format!("spec.service.{field}"), "");
        }
    }
    port(service, "spec.service", errors);
    if is_insecure && !text(spec, "caBundle").is_empty() {
        errors.invalid("spec.insecureSkipTLSVerify", true, "may not be true if caBundle is present");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::create;

    #[test]
    fn a_rule_names_no_resource_that_another_covers() {
        let check = |resources: Value, expected: &[&str]| {
            let rule = json!({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources});
            let webhook = json!({
                "name": "a.b.c", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": "https://x"}, "rules": [rule],
            });
            let object = json!({"metadata": {"name": "vw"}, "webhooks": [webhook]});
            let found = create("ValidatingWebhookConfiguration", &object);
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            let path = "webhooks[0].rules[0].resources";
            assert_eq!(found, expected.iter().map(|error| format!("{path}{error}")).collect::<Vec<_>>());
        };
        for right in [json!(["*/*"]), json!(["pods", "*"]), json!(["*", "pods/status"])] {
            check(right, &[]);
        }
        check(json!([]), &[": Required value"]);
        check(json!([""]), &["[0]: Required value"]);
        check(
            json!(["*/*", "pods"]),
            &[": Invalid value: [\"*/*\",\"pods\"]: if '*/*' is present, must not specify other resources"],
        );
        check(
            json!(["*", "pods"]),
            &[
                ": Invalid value: [\"*\",\"pods\"]: if '*' is present, must not specify other resources without subresources",
            ],
        );
        check(
            json!(["pods/*", "pods/log"]),
            &["[1]: Invalid value: \"pods/log\": if 'pods/*' is present, must not specify pods/log"],
        );
        check(
            json!(["*/status", "pods/status"]),
            &["[1]: Invalid value: \"pods/status\": if '*/status' is present, must not specify pods/status"],
        );
    }
}
