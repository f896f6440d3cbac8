//! The environment of containers: variables, and what they are read from (upstream: `ValidateEnv` and `ValidateEnvFrom`).

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::{mounts, names};
use crate::quantity::Quantity;

/// The fields of a pod that a variable can have.
const OF_VARIABLES: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// The fields of a pod that a file can have.
pub(super) const OF_FILES: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// The fields of a pod that have a name in the API, whether or not a variable can have them.
const KNOWN: [&str; 16] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.hostNetwork",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];

pub(super) fn validate(container: &Value, path: &str, errors: &mut Errors) {
    for (path, variable) in elements(container, "env", path) {
        let field = format!("{path}.name");
        match text(variable, "name") {
            "" => errors.required(&field, ""),
            name => errors.each_invalid(&field, name, names::env_name(name)),
        }
        if !variable["valueFrom"].is_null() {
            source(variable, &format!("{path}.valueFrom"), errors);
        }
    }
    let all = format!("{path}.envFrom");
    for (path, source) in elements(container, "envFrom", path) {
        let prefix = text(source, "prefix");
        if !prefix.is_empty() {
            errors.each_invalid(&format!("{path}.prefix"), prefix, names::env_name(prefix));
        }
        let given = ["configMapRef", "secretRef"].into_iter().filter(|kind| !source[*kind].is_null());
        let mut count = 0;
        for kind in given {
            count += 1;
            let field = format!("{path}.{kind}.name");
            match text(&source[kind], "name") {
                "" => errors.required(&field, ""),
                name => errors.each_invalid(&field, name, names::dns1123_subdomain(name)),
            }
        }
        match count {
            0 => errors.invalid(&all, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid(&all, "", "may not have more than one field specified at a time"),
        }
    }
}

fn source(variable: &Value, path: &str, errors: &mut Errors) {
    let source = &variable["valueFrom"];
    if !source["fieldRef"].is_null() {
        field_of_the_pod(&source["fieldRef"], &OF_VARIABLES, &format!("{path}.fieldRef"), errors);
    }
    if !source["resourceFieldRef"].is_null() {
        let field = format!("{path}.resourceFieldRef");
        resource_of_a_container(&source["resourceFieldRef"], &field, errors);
    }
    for kind in ["configMapKeyRef", "secretKeyRef"] {
        let (reference, field) = (&source[kind], format!("{path}.{kind}"));
        if reference.is_null() {
            continue;
        }
        let name = text(reference, "name");
        errors.each_invalid(&format!("{field}.name"), name, names::dns1123_subdomain(name));
        let field = format!("{field}.key");
        match text(reference, "key") {
            "" => errors.required(&field, ""),
            key => errors.each_invalid(&field, key, names::config_key(key)),
        }
    }
    match SOURCES.iter().filter(|kind| !source[**kind].is_null()).count() {
        0 => errors.invalid(
            path,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or \
             `fileKeyRef`",
        ),
        _ if !text(variable, "value").is_empty() => {
            errors.invalid(path, "", "may not be specified when `value` is not empty");
        }
        1 => {}
        _ => errors.invalid(path, "", "may not have more than one field specified at a time"),
    }
}

/// A reference to one of the `supported` fields of the pod, or to one of its labels or annotations.
pub(super) fn field_of_the_pod(reference: &Value, supported: &[&str], path: &str, errors: &mut Errors) {
    let (version, name) = (text(reference, "apiVersion"), text(reference, "fieldPath"));
    let field = format!("{path}.fieldPath");
    let split = name.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    let split = split.filter(|(map, _)| matches!(*map, "metadata.labels" | "metadata.annotations"));
    if name.is_empty() {
        errors.required(&field, "");
    } else if version != "v1" {
        let why = format!("error converting fieldPath: unsupported pod version: {version}");
        errors.invalid(&field, name, why);
    } else if let Some((map, key)) = split {
        let key = if map == "metadata.annotations" { key.to_lowercase() } else { key.to_owned() };
        errors.each_invalid(path, &key, names::label_key(&key));
    } else if !KNOWN.contains(&name) {
        let why = format!("error converting fieldPath: field label not supported: {name}");
        errors.invalid(&field, name, why);
    } else if !supported.contains(&name) {
        errors.not_supported(&field, name, supported);
    }
}

/// A reference to a request or a limit of a container.
pub(super) fn resource_of_a_container(reference: &Value, path: &str, errors: &mut Errors) {
    const BYTES: [&str; 13] =
        ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
    let resource = text(reference, "resource");
    let is_huge = ["limits.hugepages-", "requests.hugepages-"].iter().any(|head| resource.starts_with(head));
    let field = format!("{path}.resource");
    if resource.is_empty() {
        errors.required(&field, "");
    } else if !RESOURCES.contains(&resource) && !is_huge {
        errors.not_supported(&field, resource, &RESOURCES);
    }
    let Some(divisor) = Quantity::of(&reference["divisor"]).filter(|divisor| !divisor.is_zero()) else {
        return;
    };
    let (is_right, why) = match resource.split_once('.').map(|(_, name)| name) {
        Some("cpu") => (
            matches!(divisor.canonical().as_str(), "1" | "1m"),
            "1m and 1 are supported with the cpu resource".to_owned(),
        ),
        Some(name) if is_huge || name == "memory" || name == "ephemeral-storage" => {
            let shown = match name {
                "memory" => "memory",
                "ephemeral-storage" => "local ephemeral storage",
                _ => "hugepages",
            };
            let why = format!("{} are supported with the {shown} resource", BYTES.join(", "));
            (BYTES.contains(&divisor.canonical().as_str()), why)
        }
        _ => return,
    };
    if !is_right {
        errors.invalid(&format!("{path}.divisor"), resource, format!("only divisor's values {why}"));
    }
}

/// Variables that a file gives: the file is in an `emptyDir` of the pod.
pub(super) fn files(spec: &Value, path: &str, errors: &mut Errors) {
    let volumes = std::cell::LazyCell::new(|| mounts::volumes(spec));
    for list in ["initContainers", "containers"] {
        for (path, container) in elements(spec, list, path) {
            for (path, variable) in elements(container, "env", &path) {
                let reference = &variable["valueFrom"]["fileKeyRef"];
                if reference.is_null() {
                    continue;
                }
                let name = text(reference, "volumeName");
                let field = format!("{path}.valueFrom.fileKeyRef.volumeName");
                match volumes.get(name) {
                    None => errors.not_found(&field, name),
                    Some(volume) if volume["emptyDir"].is_null() => {
                        errors.invalid(&field, name, "referenced volume must be of type emptyDir");
                    }
                    Some(_) => {}
                }
            }
        }
    }
}
