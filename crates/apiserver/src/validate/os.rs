//! Fields that a pod may not set on the operating system that it names (upstream: `validateOS`, `validateLinux` and
//! `validateWindows`).

use serde_json::Value;

use super::errors::{Errors, elements, text};

const OF_POD_AND_LINUX: [&str; 3] = ["appArmorProfile", "seLinuxOptions", "seccompProfile"];

pub(super) fn validate(spec: &Value, path: &str, errors: &mut Errors) {
    match spec["os"].as_object().map(|_| text(&spec["os"], "name")) {
        None => {}
        Some("") => errors.required(&format!("{path}.os.name"), ""),
        Some("linux") => linux(spec, path, errors),
        Some("windows") => windows(spec, path, errors),
        Some(other) => errors.not_supported(&format!("{path}.os"), other, &["linux", "windows"]),
    }
}

/// The security contexts of the containers, in the order in which upstream visits them.
fn contexts<'a>(spec: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let lists = ["initContainers", "containers"];
    let containers = lists.into_iter().flat_map(|list| elements(spec, list, path));
    containers
        .map(|(path, container)| (format!("{path}.securityContext"), &container["securityContext"]))
        .collect()
}

fn linux(spec: &Value, path: &str, errors: &mut Errors) {
    let of_pod = (format!("{path}.securityContext"), &spec["securityContext"]);
    for (path, context) in std::iter::once(of_pod).chain(contexts(spec, path)) {
        if !context["windowsOptions"].is_null() {
            let why = "windows options cannot be set for a linux pod";
            errors.forbidden(&format!("{path}.windowsOptions"), why);
        }
    }
}

fn windows(spec: &Value, path: &str, errors: &mut Errors) {
    let refuse = |path: &str, object: &Value, fields: &[&str], errors: &mut Errors| {
        let is_set = |field: &&&str| !object[**field].is_null() && object[**field] != false;
        for field in fields.iter().filter(is_set) {
            errors.forbidden(&format!("{path}.{field}"), "cannot be set for a windows pod");
        }
    };
    let (context, at) = (&spec["securityContext"], format!("{path}.securityContext"));
    refuse(&at, context, &OF_POD_AND_LINUX[..2], errors);
    if !spec["hostUsers"].is_null() {
        errors.forbidden(&format!("{path}.hostUsers"), "cannot be set for a windows pod");
    }
    refuse(path, spec, &["hostPID", "hostIPC"], errors);
    refuse(&at, context, &["seccompProfile", "fsGroup", "fsGroupChangePolicy", "sysctls"], errors);
    if !spec["shareProcessNamespace"].is_null() {
        errors.forbidden(&format!("{path}.shareProcessNamespace"), "cannot be set for a windows pod");
    }
    let last =
        ["runAsUser", "runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy"];
    refuse(&at, context, &last, errors);
    for (path, context) in contexts(spec, path) {
        for field in OF_POD_AND_LINUX.iter().chain(&[
            "capabilities",
            "readOnlyRootFilesystem",
            "privileged",
            "allowPrivilegeEscalation",
            "procMount",
            "runAsUser",
            "runAsGroup",
        ]) {
            if !context[*field].is_null() {
                errors.forbidden(&format!("{path}.{field}"), "cannot be set for a windows pod");
            }
        }
    }
}
