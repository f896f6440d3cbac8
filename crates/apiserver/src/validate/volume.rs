//! Volumes of pods: names, and exactly one source each.

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::names;

/// Validates `spec.volumes` and returns the names that mounts may refer to.
pub(super) fn validate(spec: &Value, path: &str, errors: &mut Errors) -> BTreeSet<String> {
    let mut volumes = BTreeSet::new();
    for (path, volume) in elements(spec, "volumes", path) {
        let mut sources = volume.as_object().into_iter().flatten().filter(|(key, _)| *key != "name");
        match sources.next() {
            None => errors.required(&path, "must specify a volume type"),
            Some((kind, source)) => validate_source(kind, source, &format!("{path}.{kind}"), errors),
        }
        for (kind, _) in sources {
            errors.forbidden(&format!("{path}.{kind}"), "may not specify more than 1 volume type");
        }
        let field = format!("{path}.name");
        match text(volume, "name") {
            "" => errors.required(&field, ""),
            name => {
                errors.each_invalid(&field, name, names::dns1123_label(name));
                if !volumes.insert(name.to_owned()) {
                    errors.duplicate(&field, name);
                }
            }
        }
    }
    volumes
}

fn validate_source(kind: &str, source: &Value, path: &str, errors: &mut Errors) {
    let mut require = |field: &str| {
        if text(source, field).is_empty() {
            errors.required(&format!("{path}.{field}"), "");
        }
    };
    match kind {
        "hostPath" => require("path"),
        "configMap" => require("name"),
        "secret" => require("secretName"),
        "persistentVolumeClaim" => require("claimName"),
        "csi" => require("driver"),
        "nfs" => {
            require("server");
            require("path");
        }
        _ => {}
    }
    if let Some(mode) = source["defaultMode"].as_i64()
        && !(0..=0o777).contains(&mode)
    {
        let why = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&format!("{path}.defaultMode"), mode, why);
    }
    for (path, item) in elements(source, "items", path) {
        if kind != "downwardAPI" && text(item, "key").is_empty() {
            errors.required(&format!("{path}.key"), "");
        }
        let field = format!("{path}.path");
        match text(item, "path") {
            "" => errors.required(&field, ""),
            target if target.starts_with('/') => errors.invalid(&field, target, "must be a relative path"),
            target if target.split('/').any(|part| part == "..") => {
                errors.invalid(&field, target, "must not contain '..'");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::tests::{check_create, pod, with};

    #[test]
    fn a_volume_has_a_unique_name_and_one_source() {
        let volumes = |volumes| with(pod(), "/spec/volumes", volumes);
        check_create("Pod", volumes(json!([{"name": "a", "emptyDir": {}}])), &[]);
        check_create(
            "Pod",
            volumes(json!([{"name": "a"}, {"name": "a", "emptyDir": {}, "hostPath": {"path": "/x"}}])),
            &[
                "spec.volumes[0]: Required value: must specify a volume type",
                "spec.volumes[1].hostPath: Forbidden: may not specify more than 1 volume type",
                "spec.volumes[1].name: Duplicate value: \"a\"",
            ],
        );
    }

    #[test]
    fn a_source_names_what_it_reads() {
        let source = json!([{"name": "a", "configMap": {"defaultMode": 999, "items": [{"key": "k", "path": "../x"}]}}]);
        check_create(
            "Pod",
            with(pod(), "/spec/volumes", source),
            &[
                "spec.volumes[0].configMap.name: Required value",
                "spec.volumes[0].configMap.defaultMode: Invalid value: 999: must be a number between 0 and 0777 \
                 (octal), both inclusive",
                "spec.volumes[0].configMap.items[0].path: Invalid value: \"../x\": must not contain '..'",
            ],
        );
    }
}
