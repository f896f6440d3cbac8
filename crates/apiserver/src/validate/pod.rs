//! Pods and pod templates (upstream `pkg/apis/core/validation/validation.go`): what a controller's
//! user gets wrong.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::errors::{Errors, elements, text};
use super::{app_armor, container, dns, environment, names, os, resources, scheduling, security, volume};

pub(crate) fn pod(object: &Value, errors: &mut Errors) {
    app_armor::annotations(&object["metadata"], &object["spec"], "metadata.annotations", errors);
    spec(&object["spec"], "spec", errors);
    if text(&object["spec"], "serviceAccountName").is_empty() {
        volume::tokens(&object["spec"], "spec", errors);
    }
    container::images(&object["spec"], "spec", errors);
}

/// A pod that a client creates, in contrast to one that it changes.
pub(crate) fn new_pod(object: &Value, errors: &mut Errors) {
    pod(object, errors);
    let spec = &object["spec"];
    if count(spec, "ephemeralContainers") > 0 {
        errors.forbidden("spec.ephemeralContainers", "cannot be set on create");
    }
    if !text(spec, "nodeName").is_empty() && count(spec, "schedulingGates") > 0 {
        errors.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared");
    }
    app_armor::conflicts(&object["metadata"], spec, "spec", errors);
}

/// The spec of a pod or of a template, which stands at `path`.
pub(super) fn spec(spec: &Value, path: &str, errors: &mut Errors) {
    let volumes = volume::validate(spec, path, errors);
    let context = container::Context { spec, volumes: &volumes };
    resource_claims(spec, path, errors);

    if count(spec, "containers") == 0 {
        errors.required(&format!("{path}.containers"), "");
    }
    let mut seen = BTreeSet::new();
    for (path, container) in elements(spec, "containers", path) {
        container::validate(container, &path, &context, &mut seen, errors);
    }
    container::host_ports_are_unique(spec, path, errors);
    for (path, container) in elements(spec, "initContainers", path) {
        container::validate_init(container, &path, &context, &mut seen, errors);
    }
    for (path, container) in elements(spec, "ephemeralContainers", path) {
        container::validate_ephemeral(container, &path, &context, &mut seen, errors);
    }
    if !spec["resources"].is_null() {
        pod_resources(spec, &format!("{path}.resources"), errors);
    }
    security::host_ports(spec, path, errors);
    errors.one_of(
        &format!("{path}.restartPolicy"),
        &spec["restartPolicy"],
        &["Always", "OnFailure", "Never"],
    );
    errors.one_of(
        &format!("{path}.dnsPolicy"),
        &spec["dnsPolicy"],
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    );
    super::metadata::labels(&spec["nodeSelector"], &format!("{path}.nodeSelector"), errors);
    security::of_pod(spec, path, errors);
    scheduling::affinity(&spec["affinity"], &format!("{path}.affinity"), errors);
    dns::validate(spec, path, errors);
    for (path, gate) in elements(spec, "readinessGates", path) {
        let condition = text(gate, "conditionType");
        errors.each_invalid(&format!("{path}.conditionType"), condition, names::label_key(condition));
    }
    scheduling::gates(spec, path, errors);
    scheduling::spread_constraints(spec, path, errors);
    security::host_processes(spec, path, errors);
    security::host_users(spec, path, errors);
    host_name_override(spec, path, errors);
    let subdomain = |field: &str, errors: &mut Errors| {
        let name = text(spec, field);
        if !name.is_empty() {
            errors.each_invalid(&format!("{path}.{field}"), name, names::dns1123_subdomain(name));
        }
    };
    subdomain("serviceAccountName", errors);
    subdomain("nodeName", errors);
    if let Some(deadline) = spec["activeDeadlineSeconds"].as_i64()
        && !(1..=i64::from(i32::MAX)).contains(&deadline)
    {
        let why = "must be between 1 and 2147483647, inclusive";
        errors.invalid(&format!("{path}.activeDeadlineSeconds"), deadline, why);
    }
    for field in ["hostname", "subdomain"] {
        let name = text(spec, field);
        if !name.is_empty() {
            errors.each_invalid(&format!("{path}.{field}"), name, names::dns1123_label(name));
        }
    }
    scheduling::tolerations(spec, path, errors);
    for (path, alias) in elements(spec, "hostAliases", path) {
        let ip = text(alias, "ip");
        if ip.parse::<std::net::IpAddr>().is_err() {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.invalid(&format!("{path}.ip"), ip, why);
        }
        for (index, name) in alias["hostnames"].as_array().into_iter().flatten().enumerate() {
            let name = name.as_str().unwrap_or_default();
            errors.each_invalid(&format!("{path}.hostnames[{index}]"), name, names::dns1123_subdomain(name));
        }
    }
    subdomain("priorityClassName", errors);
    if spec["runtimeClassName"].is_string() {
        subdomain("runtimeClassName", errors);
    }
    let policies = ["Never", "PreemptLowerPriority"];
    errors.one_of(&format!("{path}.preemptionPolicy"), &spec["preemptionPolicy"], &policies);
    if !spec["overhead"].is_null() {
        let limits = json!({"limits": spec["overhead"]});
        resources::validate(&limits, &format!("{path}.overhead"), spec, errors);
    }
    os::validate(spec, path, errors);
    environment::files(spec, path, errors);
}

fn host_name_override(spec: &Value, path: &str, errors: &mut Errors) {
    let (Some(name), field) = (spec["hostnameOverride"].as_str(), format!("{path}.hostnameOverride")) else {
        return;
    };
    for other in ["setHostnameAsFQDN", "hostNetwork"] {
        if spec[other] == true {
            errors.forbidden(&field, &format!("may not be specified when {other} is true"));
        }
    }
    if name.len() > 64 {
        errors.too_long(&field, 64);
    }
    errors.each_invalid(&field, name, names::dns1123_subdomain(name));
}

/// The claims for dynamic resources that the containers name.
fn resource_claims(spec: &Value, path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (path, claim) in elements(spec, "resourceClaims", path) {
        let (name, field) = (text(claim, "name"), format!("{path}.name"));
        if name.is_empty() {
            errors.required(&field, "");
        } else if !seen.insert(name) {
            errors.duplicate(&field, name);
        } else {
            errors.each_invalid(&field, name, names::dns1123_label(name));
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"];
        match sources.iter().filter(|source| !claim[**source].is_null()).count() {
            1 => {}
            0 => errors.invalid_shown(
                &path,
                &shown_claim(claim),
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            _ => errors.invalid_shown(
                &path,
                &shown_claim(claim),
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
        }
        for source in sources {
            if let Some(name) = claim[source].as_str() {
                errors.each_invalid(&format!("{path}.{source}"), name, names::dns1123_subdomain(name));
            }
        }
    }
}

fn shown_claim(claim: &Value) -> String {
    format!(
        "{{\"Name\":{},\"ResourceClaimName\":{},\"ResourceClaimTemplateName\":{}}}",
        claim["name"], claim["resourceClaimName"], claim["resourceClaimTemplateName"]
    )
}

/// The resources of a pod as a whole.
fn pod_resources(spec: &Value, path: &str, errors: &mut Errors) {
    if text(&spec["os"], "name") == "windows" {
        return errors.forbidden(path, "may not be set for a windows pod");
    }
    if !spec["resources"]["claims"].is_null() {
        errors.forbidden(&format!("{path}.claims"), "claims may not be set for Resources at pod-level");
    }
    resources::validate(&spec["resources"], path, spec, errors);
}

pub(super) fn count(spec: &Value, list: &str) -> usize {
    spec[list].as_array().map_or(0, Vec::len)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::{check_create, pod, with};

    #[track_caller]
    fn check(pointer: &str, value: Value, expected: &[&str]) {
        check_create("Pod", with(pod(), pointer, value), expected);
    }

    #[test]
    fn a_pod_has_containers_with_unique_names() {
        check("/spec/containers", json!([]), &["spec.containers: Required value"]);
        check("/spec/containers/0/name", json!(""), &["spec.containers[0].name: Required value"]);
        check(
            "/spec/initContainers",
            json!([{"name": "app", "image": "x"}]),
            &["spec.initContainers[0].name: Duplicate value: \"app\""],
        );
    }

    #[test]
    fn policies_have_only_the_supported_values() {
        check(
            "/spec/restartPolicy",
            json!("Sometimes"),
            &[
                "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \
             \"Never\"",
            ],
        );
        check("/spec/restartPolicy", json!("Never"), &[]);
        check("/spec/terminationGracePeriodSeconds", json!(-1), &[]);
        check(
            "/spec/activeDeadlineSeconds",
            json!(0),
            &["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
        );
    }

    #[test]
    fn tolerations_and_spread_constraints_make_sense() {
        check("/spec/tolerations", json!([{"operator": "Exists"}, {"key": "a", "value": "b"}]), &[]);
        check(
            "/spec/tolerations",
            json!([{"key": "a", "operator": "In"}]),
            &[
                "spec.tolerations[0].operator: Unsupported value: \"In\": supported values: \"Equal\", \"Exists\"",
            ],
        );
        let zone = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
        check("/spec/topologySpreadConstraints", json!([zone]), &[]);
        check(
            "/spec/topologySpreadConstraints",
            json!([zone, zone]),
            &["spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \
             \"{zone, DoNotSchedule}\""],
        );
    }
}
