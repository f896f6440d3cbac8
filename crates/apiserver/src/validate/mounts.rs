//! The volumes of a pod that its containers mount, and the block devices that they open (upstream:
//! `ValidateVolumeMounts` and `ValidateVolumeDevices`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::errors::{Errors, elements, text};

/// The path of a field that upstream gives without the index of the mount.
fn unindexed(path: &str, field: &str) -> String {
    let list = path.rsplit_once('[').map_or(path, |(list, _)| list);
    format!("{list}.{field}")
}

/// A text of each object in a list.
fn texts<'a>(container: &'a Value, list: &str, field: &str) -> BTreeSet<&'a str> {
    container[list].as_array().into_iter().flatten().map(|object| text(object, field)).collect()
}

/// The volumes of a pod by their names; of two with one name the first.
pub(super) fn volumes(spec: &Value) -> BTreeMap<&str, &Value> {
    let all = spec["volumes"].as_array().into_iter().flatten().rev();
    all.map(|volume| (text(volume, "name"), volume)).collect()
}

pub(super) fn mounts(container: &Value, path: &str, volumes: &BTreeSet<String>, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    let (devices, device_paths) =
        (texts(container, "volumeDevices", "name"), texts(container, "volumeDevices", "devicePath"));
    for (path, mount) in elements(container, "volumeMounts", path) {
        let (name, field) = (text(mount, "name"), format!("{path}.name"));
        if name.is_empty() {
            errors.required(&field, "");
        }
        if !volumes.contains(name) {
            errors.not_found(&field, name);
        }
        let (target, target_field) = (text(mount, "mountPath"), format!("{path}.mountPath"));
        if target.is_empty() {
            errors.required(&target_field, "");
        }
        if !seen.insert(target) {
            errors.invalid(&target_field, target, "must be unique");
        }
        if devices.contains(name) {
            errors.invalid(&field, name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(target) {
            errors.invalid(&target_field, target, "must not already exist as a path in volumeDevices");
        }
        let (sub_path, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
        descending(sub_path, &unindexed(&path, "subPath"), errors);
        if !expression.is_empty() && !sub_path.is_empty() {
            let why = "subPathExpr and subPath are mutually exclusive";
            errors.invalid(&format!("{path}.subPathExpr"), expression, why);
        }
        descending(expression, &unindexed(&path, "subPathExpr"), errors);
        propagation(container, mount, &path, errors);
    }
}

fn propagation(container: &Value, mount: &Value, path: &str, errors: &mut Errors) {
    let (propagation, field) = (text(mount, "mountPropagation"), unindexed(path, "mountPropagation"));
    let known = ["Bidirectional", "HostToContainer", "None"];
    errors.one_of(&field, &mount["mountPropagation"], &known);
    if propagation == "Bidirectional" && container["securityContext"]["privileged"] != true {
        let why = "Bidirectional mount propagation is available only to privileged containers";
        errors.forbidden(&field, why);
    }
    let field = unindexed(path, "recursiveReadOnly");
    match mount["recursiveReadOnly"].as_str() {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if mount["readOnly"] != true {
                errors.forbidden(&field, "may only be specified when readOnly is true");
            }
            if !matches!(propagation, "" | "None") {
                let why = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(&field, why);
            }
        }
        Some(other) => errors.not_supported(&field, other, &["Disabled", "Enabled", "IfPossible"]),
    }
}

pub(super) fn devices(container: &Value, path: &str, spec: &Value, errors: &mut Errors) {
    if container["volumeDevices"].is_null() {
        return;
    }
    let (mut paths, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let (mounts, mount_paths) =
        (texts(container, "volumeMounts", "name"), texts(container, "volumeMounts", "mountPath"));
    let volumes = volumes(spec);
    for (path, device) in elements(container, "volumeDevices", path) {
        let (name, field) = (text(device, "name"), format!("{path}.name"));
        let (target, target_field) = (text(device, "devicePath"), format!("{path}.devicePath"));
        if name.is_empty() {
            errors.required(&field, "");
        }
        if seen.contains(name) {
            errors.invalid(&field, name, "must be unique");
        }
        match volumes.get(name) {
            None => errors.not_found(&field, name),
            Some(volume) => {
                if volume["persistentVolumeClaim"].is_null() && volume["ephemeral"].is_null() {
                    let why = "can only use volume source type of PersistentVolumeClaim or Ephemeral for \
                               block mode";
                    errors.invalid(&field, name, why);
                }
            }
        }
        if target.is_empty() {
            errors.required(&target_field, "");
        }
        if paths.contains(target) {
            errors.invalid(&target_field, target, "must be unique");
        }
        if target.split('/').any(|part| part == "..") {
            errors.invalid(&target_field, target, "can not contain backsteps ('..')");
        } else {
            paths.insert(target);
        }
        if mounts.contains(name) {
            errors.invalid(&field, name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(target) {
            errors.invalid(&target_field, target, "must not already exist as a path in volumeMounts");
        }
        if !name.is_empty() {
            seen.insert(name);
        }
    }
}

/// A path below something: relative, and never up.
pub(super) fn descending(target: &str, field: &str, errors: &mut Errors) {
    if target.starts_with('/') {
        errors.invalid(field, target, "must be a relative path");
    }
    no_backsteps(target, field, errors);
}

pub(super) fn no_backsteps(target: &str, field: &str, errors: &mut Errors) {
    if target.split('/').any(|part| part == "..") {
        errors.invalid(field, target, "must not contain '..'");
    }
}
