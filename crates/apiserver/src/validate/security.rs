//! Security contexts of pods and containers.

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::{Errors, elements, text};

/// The names of kernel parameters (`SysctlContainSlashFmt` upstream).
const SYSCTL: &str = "must have at most 253 characters and match regex \
    ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

/// That of a pod, and what the network of its node asks of its ports.
pub(super) fn of_pod(spec: &Value, path: &str, errors: &mut Errors) {
    if spec["hostNetwork"] == true {
        host_ports(spec, path, errors);
    }
    let (context, path) = (&spec["securityContext"], format!("{path}.securityContext"));
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(&context[field], &format!("{path}.{field}"), errors);
    }
    for (path, group) in elements(context, "supplementalGroups", &path) {
        id(group, &path, errors);
    }
    sysctls(context, &path, errors);
    let policy = format!("{path}.fsGroupChangePolicy");
    errors.one_of(&policy, &context["fsGroupChangePolicy"], &["Always", "OnRootMismatch"]);
    profiles(context, &path, errors);
    let policy = format!("{path}.supplementalGroupsPolicy");
    errors.one_of(&policy, &context["supplementalGroupsPolicy"], &["Merge", "Strict"]);
}

/// A template may leave host ports open; they are filled in when its pods are made.
fn host_ports(spec: &Value, path: &str, errors: &mut Errors) {
    let is_template = path != "spec";
    for (path, container) in elements(spec, "containers", path) {
        for (path, port) in elements(container, "ports", &path) {
            let (host, number) = (port["hostPort"].as_i64().unwrap_or(0), port["containerPort"].as_i64());
            let is_open = is_template && host == 0;
            if !is_open && Some(host) != number {
                let why = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&format!("{path}.hostPort"), host, why);
            }
        }
    }
}

pub(super) fn of_container(container: &Value, path: &str, errors: &mut Errors) {
    let (context, path) = (&container["securityContext"], format!("{path}.securityContext"));
    for field in ["runAsUser", "runAsGroup"] {
        id(&context[field], &format!("{path}.{field}"), errors);
    }
    errors.one_of(&format!("{path}.procMount"), &context["procMount"], &["Default", "Unmasked"]);
    profiles(context, &path, errors);
}

fn id(value: &Value, field: &str, errors: &mut Errors) {
    if let Some(id) = value.as_i64().filter(|id| !(0..=i64::from(i32::MAX)).contains(id)) {
        errors.invalid(field, id, "must be between 0 and 2147483647, inclusive");
    }
}

fn sysctls(context: &Value, path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (path, sysctl) in elements(context, "sysctls", path) {
        let (name, field) = (text(sysctl, "name"), format!("{path}.name"));
        if name.is_empty() {
            errors.required(&field, "");
        } else if name.len() > 253 || !name.split(['.', '/']).all(is_part_of_a_sysctl) {
            errors.invalid(&field, name, SYSCTL);
        } else if !seen.insert(name) {
            errors.duplicate(&field, name);
        }
    }
}

fn is_part_of_a_sysctl(part: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    let is_outer = |byte: Option<&u8>| byte.is_some_and(|byte| is_inner(*byte) && !b"-_".contains(byte));
    let bytes = part.as_bytes();
    bytes.iter().all(|byte| is_inner(*byte)) && is_outer(bytes.first()) && is_outer(bytes.last())
}

/// Those of seccomp and of AppArmor.
fn profiles(context: &Value, path: &str, errors: &mut Errors) {
    for (field, name) in [("seccompProfile", "seccomp"), ("appArmorProfile", "AppArmor")] {
        let (profile, path) = (&context[field], format!("{path}.{field}"));
        let Some(set) = profile.as_object() else { continue };
        let local = text(profile, "localhostProfile");
        let field_of_local = format!("{path}.localhostProfile");
        match text(profile, "type") {
            "Localhost" if local.is_empty() => {
                errors.required(&field_of_local, &format!("must be set when {name} type is Localhost"));
            }
            "Localhost" => {}
            "RuntimeDefault" | "Unconfined" if set.contains_key("localhostProfile") => {
                errors.invalid(
                    &field_of_local,
                    local,
                    format!("can only be set when {name} type is Localhost"),
                );
            }
            "RuntimeDefault" | "Unconfined" => {}
            "" => errors.required(&format!("{path}.type"), &format!("type is required when {field} is set")),
            other => {
                let supported = ["Localhost", "RuntimeDefault", "Unconfined"];
                errors.not_supported(&format!("{path}.type"), other, &supported);
            }
        }
    }
}
