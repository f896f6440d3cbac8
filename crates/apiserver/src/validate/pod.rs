//! Pods and pod templates (upstream `pkg/apis/core/validation/validation.go`): what a controller's
//! user gets wrong.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::errors::{Errors, elements, essence, text};
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

/// A running pod is immutable but for images, the deadline, further tolerations and lifted gates.
pub(crate) fn update(new: &Value, old: &Value, errors: &mut Errors) {
    let (new_spec, old_spec) = (&new["spec"], &old["spec"]);
    let mut allowed = new_spec.clone();
    for list in ["containers", "initContainers"] {
        let (new_count, old_count) = (count(new_spec, list), count(old_spec, list));
        if new_count != old_count {
            // Upstream stops here: the containers cannot be compared one by one.
            errors.forbidden(&format!("spec.{list}"), "pod updates may not add or remove containers");
            return;
        }
        for (index, (path, container)) in elements(new_spec, list, "spec").enumerate() {
            if text(container, "image").is_empty() {
                errors.required(&format!("{path}.image"), "");
            }
            if let Some(copy) = allowed.get_mut(list).and_then(|items| items.get_mut(index)) {
                put(copy, "image", &old_spec[list][index]["image"]);
            }
        }
    }
    deadline(new_spec, old_spec, errors);
    put(&mut allowed, "activeDeadlineSeconds", &old_spec["activeDeadlineSeconds"]);

    scheduling::tolerations(new_spec, "spec", errors);
    let added_only = |new: &Value, old: &Value| {
        let new = new.as_array().map(Vec::as_slice).unwrap_or_default();
        old.as_array().into_iter().flatten().all(|toleration| {
            let seconds_aside = |toleration: &Value| {
                let mut toleration = toleration.clone();
                put(&mut toleration, "tolerationSeconds", &Value::Null);
                essence(&toleration)
            };
            new.iter().any(|other| seconds_aside(other) == seconds_aside(toleration))
        })
    };
    if added_only(&new_spec["tolerations"], &old_spec["tolerations"]) {
        put(&mut allowed, "tolerations", &old_spec["tolerations"]);
    } else {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.forbidden("spec.tolerations", why);
    }

    let grace = |spec: &Value| spec["terminationGracePeriodSeconds"].as_i64();
    if grace(old_spec).is_some_and(|grace| grace < 0) && grace(new_spec) == Some(1) {
        let before = &old_spec["terminationGracePeriodSeconds"];
        put(&mut allowed, "terminationGracePeriodSeconds", before);
    }

    let gates = |spec: &Value| spec["schedulingGates"].as_array().cloned().unwrap_or_default();
    if gates(new_spec).iter().all(|gate| gates(old_spec).contains(gate)) {
        put(&mut allowed, "schedulingGates", &old_spec["schedulingGates"]);
    } else {
        let why = "only deletion is allowed, but found new scheduling gate";
        errors.forbidden("spec.schedulingGates", why);
    }

    let (allowed, before) = (essence(&allowed), essence(old_spec));
    if allowed != before {
        let mut why = "pod updates may not change fields other than `spec.containers[*].image`,\
                       `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
                       additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be \
                       set to 1 if it was previously negative)"
            .to_owned();
        differences(&before, &allowed, "spec", &mut why);
        errors.forbidden("spec", &why);
    }
}

fn deadline(new: &Value, old: &Value, errors: &mut Errors) {
    let field = "spec.activeDeadlineSeconds";
    match (new["activeDeadlineSeconds"].as_i64(), old["activeDeadlineSeconds"].as_i64()) {
        (Some(new), _) if !(0..=i64::from(i32::MAX)).contains(&new) => {
            errors.invalid(field, new, "must be between 0 and 2147483647, inclusive");
        }
        (Some(new), Some(old)) if new > old => {
            errors.invalid(field, new, "must be less than or equal to previous value");
        }
        (None, Some(_)) => {
            errors.invalid(field, Value::Null, "must not update from a positive integer to nil value");
        }
        _ => {}
    }
}

/// The status comes from the kubelet; only the node it speaks for is fixed.
pub(crate) fn update_status(new: &Value, old: &Value, errors: &mut Errors) {
    if !new["spec"].is_null() && text(&new["spec"], "nodeName") != text(&old["spec"], "nodeName") {
        errors.forbidden("status.nodeName", "may not be changed directly");
    }
    for list in ["containerStatuses", "initContainerStatuses"] {
        for (path, status) in elements(&new["status"], list, "status") {
            errors.non_negative(&format!("{path}.restartCount"), &status["restartCount"]);
            let states = status["state"].as_object().map(serde_json::Map::len).unwrap_or(0);
            if states > 1 {
                errors.invalid(
                    &format!("{path}.state"),
                    status["state"].clone(),
                    "may not have more than one state",
                );
            }
        }
    }
}

/// One line for each field that differs, so that the user need not compare two manifests by eye.
fn differences(old: &Value, new: &Value, path: &str, lines: &mut String) {
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            for key in keys {
                differences(&old[key], &new[key], &format!("{path}.{key}"), lines);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (old, new)) in before.iter().zip(after).enumerate() {
                differences(old, new, &format!("{path}[{index}]"), lines);
            }
        }
        _ if old != new => lines.push_str(&format!("\n  {path}: {old} -> {new}")),
        _ => {}
    }
}

fn count(spec: &Value, list: &str) -> usize {
    spec[list].as_array().map_or(0, Vec::len)
}

/// Sets a field of an object, or removes it if the value is null.
fn put(object: &mut Value, field: &str, value: &Value) {
    if let Some(map) = object.as_object_mut() {
        if value.is_null() {
            map.remove(field);
        } else {
            map.insert(field.to_owned(), json!(value));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::{check_create, check_status, check_update, pod, said, with};
    use crate::validate::update;

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

    #[test]
    fn images_deadlines_and_additional_tolerations_may_change() {
        let new = with(pod(), "/spec/containers/0/image", json!("nginx:2"));
        let new = with(new, "/spec/activeDeadlineSeconds", json!(60));
        let new = with(new, "/spec/tolerations", json!([{"operator": "Exists"}]));
        check_update("Pod", new, pod(), &[]);
        check_update("Pod", with(pod(), "/metadata/labels", json!({"a": "b"})), pod(), &[]);
    }

    #[test]
    fn the_rest_of_a_pod_is_immutable() {
        let errors = said(update("Pod", &with(pod(), "/spec/nodeSelector", json!({"a": "b"})), &pod()));
        assert_eq!(errors.len(), 1);
        assert!(
            errors[0].starts_with("spec: Forbidden: pod updates may not change fields other than `spec.")
        );
        assert!(errors[0].ends_with("\n  spec.nodeSelector: null -> {\"a\":\"b\"}"), "{}", errors[0]);
        let two = with(pod(), "/spec/containers", json!([{"name": "app"}, {"name": "b"}]));
        check_update(
            "Pod",
            two,
            pod(),
            &["spec.containers: Forbidden: pod updates may not add or remove containers"],
        );
        let short = with(pod(), "/spec/activeDeadlineSeconds", json!(60));
        let long = with(pod(), "/spec/activeDeadlineSeconds", json!(61));
        check_update(
            "Pod",
            long,
            short,
            &["spec.activeDeadlineSeconds: Invalid value: 61: must be less than or equal to previous value"],
        );
    }

    #[test]
    fn a_toleration_stays_but_for_its_seconds() {
        let toleration = |seconds: i64| json!([{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}]);
        let old = with(pod(), "/spec/tolerations", toleration(300));
        check_update("Pod", with(pod(), "/spec/tolerations", toleration(5)), old.clone(), &[]);
        check_update(
            "Pod",
            pod(),
            old,
            &[
                "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
                "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
             `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
             existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
             previously negative)\n  spec.tolerations: [{\"effect\":\"NoExecute\",\"key\":\"a\",\"operator\":\
             \"Exists\",\"tolerationSeconds\":300}] -> null",
            ],
        );
    }

    #[test]
    fn a_status_does_not_move_a_pod() {
        let old = with(pod(), "/spec/nodeName", json!("node-1"));
        let running = with(old.clone(), "/status/phase", json!("Running"));
        check_status("Pod", running, old.clone(), &[]);
        check_status(
            "Pod",
            with(old.clone(), "/spec/nodeName", json!("node-2")),
            old,
            &["status.nodeName: Forbidden: may not be changed directly"],
        );
    }
}
