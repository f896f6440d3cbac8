//! Volumes of pods: names, and exactly one source each (upstream: `validateVolumeSource`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::errors::{Errors, elements, text};
use super::mounts::{descending, no_backsteps};
use super::{classes, environment, names, storage};

const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
const PARTITION: &str = "must be between 1 and 255, inclusive";

/// The kinds of volumes, in the order in which they are judged, with the texts that each needs.
const SOURCES: [(&str, &[&str]); 29] = [
    ("emptyDir", &[]),
    ("hostPath", &["path"]),
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("secret", &["secretName"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal"]),
    ("glusterfs", &["endpoints", "path"]),
    ("flocker", &[]),
    ("persistentVolumeClaim", &["claimName"]),
    ("rbd", &["monitors", "image"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("quobyte", &[]),
    ("downwardAPI", &[]),
    ("fc", &[]),
    ("flexVolume", &["driver"]),
    ("configMap", &["name"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("storageos", &["volumeName"]),
    ("projected", &[]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("csi", &["driver"]),
    ("ephemeral", &[]),
];

/// Validates `spec.volumes` and returns the names that mounts may refer to.
pub(super) fn validate(spec: &Value, path: &str, errors: &mut Errors) -> BTreeSet<String> {
    let mut volumes = BTreeSet::new();
    for (path, volume) in elements(spec, "volumes", path) {
        let before = errors.len();
        let kinds = SOURCES.iter().copied().chain([("image", &[] as &[&str])]);
        let mut given = kinds.filter(|(kind, _)| !volume[*kind].is_null());
        match given.next() {
            None => errors.required(&path, "must specify a volume type"),
            Some((kind, required)) => {
                // Upstream has another name for it in its messages.
                let shown = if kind == "gcePersistentDisk" { "persistentDisk" } else { kind };
                source(kind, &volume[kind], required, &format!("{path}.{shown}"), errors);
            }
        }
        for (kind, _) in given {
            let shown = match kind {
                "cephfs" => "cephFS",
                "downwardAPI" => "downwarAPI",
                kind => kind,
            };
            errors.forbidden(&format!("{path}.{shown}"), "may not specify more than 1 volume type");
        }
        let field = format!("{path}.name");
        match text(volume, "name") {
            "" => errors.required(&field, ""),
            name => {
                errors.each_invalid(&field, name, names::dns1123_label(name));
                if volumes.contains(name) {
                    errors.duplicate(&field, name);
                }
                // No mount finds a volume that is wrong.
                if errors.len() == before {
                    volumes.insert(name.to_owned());
                }
            }
        }
    }
    volumes
}

/// The source of a PersistentVolume, where it is judged as that of a pod.
pub(super) fn of_persistent_volume(kind: &str, value: &Value, errors: &mut Errors) {
    let required = match kind {
        "hostPath"
        | "nfs"
        | "gcePersistentDisk"
        | "awsElasticBlockStore"
        | "glusterfs"
        | "flocker"
        | "rbd"
        | "cinder"
        | "cephfs"
        | "quobyte"
        | "fc"
        | "flexVolume"
        | "vsphereVolume"
        | "photonPersistentDisk"
        | "portworxVolume"
        | "azureDisk"
        | "azureFile"
        | "storageos"
        | "scaleIO"
        | "iscsi" => SOURCES.iter().find(|(known, _)| *known == kind).map(|(_, required)| *required),
        "local" => Some(&["path"] as &[&str]),
        "csi" => Some(&["driver", "volumeHandle"] as &[&str]),
        _ => None,
    };
    if let Some(required) = required {
        let shown = if kind == "gcePersistentDisk" { "persistentDisk" } else { kind };
        source(kind, value, required, &format!("spec.{shown}"), errors);
    }
    if kind == "csi" {
        for field in ["controllerPublish", "controllerExpand", "nodePublish", "nodeExpand"] {
            let field = format!("{field}SecretRef");
            if !value[&field].is_null() {
                secret(&value[&field], &format!("spec.csi.{field}"), errors);
            }
        }
    }
}

/// The Secret of a driver, in a namespace of its own.
fn secret(reference: &Value, path: &str, errors: &mut Errors) {
    for (field, rule) in
        [("name", names::dns1123_subdomain as fn(&str) -> Vec<String>), ("namespace", names::dns1123_label)]
    {
        match text(reference, field) {
            "" => errors.required(&format!("{path}.{field}"), ""),
            name => errors.each_invalid(&format!("{path}.{field}"), name, rule(name)),
        }
    }
}

fn source(kind: &str, source: &Value, required: &[&str], path: &str, errors: &mut Errors) {
    for field in required {
        let value = &source[*field];
        if text(source, field).is_empty() && value.as_array().is_none_or(Vec::is_empty) {
            errors.required(&format!("{path}.{field}"), "");
        }
    }
    mode(&source["defaultMode"], &format!("{path}.defaultMode"), errors);
    if kind != "downwardAPI" {
        for (path, item) in elements(source, "items", path) {
            key_to_path(item, &path, errors);
        }
    }
    match kind {
        "emptyDir" if text(source, "sizeLimit").starts_with('-') => {
            errors
                .forbidden(&format!("{path}.sizeLimit"), "SizeLimit field must be a valid resource quantity");
        }
        "hostPath" if !text(source, "path").is_empty() => {
            no_backsteps(text(source, "path"), &format!("{path}.path"), errors);
            host_path_type(source, path, errors);
        }
        "local" => no_backsteps(text(source, "path"), &format!("{path}.path"), errors),
        "nfs" if !text(source, "path").starts_with('/') => {
            errors.invalid(&format!("{path}.path"), text(source, "path"), "must be an absolute path");
        }
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = source["partition"].as_i64().unwrap_or(0);
            if !(0..=255).contains(&partition) {
                errors.invalid(&format!("{path}.partition"), partition, PARTITION);
            }
        }
        "iscsi" | "fc" | "quobyte" | "flocker" | "azureDisk" => blocks(kind, source, path, errors),
        "csi" if !text(source, "driver").is_empty() => {
            classes::driver(text(source, "driver"), &format!("{path}.driver"), errors);
            secret_reference(source, "nodePublishSecretRef", path, errors);
        }
        "cinder" | "storageos" => secret_reference(source, "secretRef", path, errors),
        "downwardAPI" => {
            for (_, item) in elements(source, "items", path) {
                downward_file(item, path, errors);
            }
        }
        "projected" => projected(source, path, errors),
        "ephemeral" if source["volumeClaimTemplate"].is_null() => {
            errors.required(&format!("{path}.volumeClaimTemplate"), "");
        }
        "ephemeral" => claim_template(&source["volumeClaimTemplate"], path, errors),
        "image" => {
            let policies = ["Always", "IfNotPresent", "Never"];
            if path.starts_with("spec.volumes") && text(source, "reference").is_empty() {
                errors.required(&format!("{path}.reference"), "");
            }
            errors.one_of(&format!("{path}.pullPolicy"), &source["pullPolicy"], &policies);
        }
        _ => {}
    }
}

fn host_path_type(source: &Value, path: &str, errors: &mut Errors) {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    errors.one_of(&format!("{path}.type"), &source["type"], &TYPES);
}

/// Volumes of storage systems whose fields are judged one by one.
fn blocks(kind: &str, source: &Value, path: &str, errors: &mut Errors) {
    let lun = |errors: &mut Errors| {
        let lun = source["lun"].as_i64().unwrap_or(0);
        if !(0..=255).contains(&lun) {
            errors.invalid(&format!("{path}.lun"), lun, "must be between 0 and 255, inclusive");
        }
    };
    let count = |field: &str| source[field].as_array().map_or(0, Vec::len);
    match kind {
        "iscsi" => {
            let (name, field) = (text(source, "iqn"), format!("{path}.iqn"));
            if name.is_empty() {
                errors.required(&field, "");
            } else if !["iqn", "eui", "naa"].iter().any(|head| name.starts_with(head)) {
                let of_a_pod = path.contains("volumes[");
                let forms = if of_a_pod { " starting with iqn, eui, or naa" } else { "" };
                errors.invalid(&field, name, format!("must be valid format{forms}"));
            }
            lun(errors);
            let authenticates = source["chapAuthDiscovery"] == true || source["chapAuthSession"] == true;
            if authenticates && source["secretRef"].is_null() {
                errors.required(&format!("{path}.secretRef"), "");
            }
        }
        "fc" => {
            let (field, names, ids) = (format!("{path}.targetWWNs"), count("targetWWNs"), count("wwids"));
            if names == 0 && ids == 0 {
                errors.required(&field, "must specify either targetWWNs or wwids, but not both");
            }
            if names > 0 && ids > 0 {
                let why = "targetWWNs and wwids can not be specified simultaneously";
                errors.invalid(&field, source["targetWWNs"].clone(), why);
            }
            if names > 0 && source["lun"].is_null() {
                errors.required(&format!("{path}.lun"), "lun is required if targetWWNs is specified");
            } else if names > 0 {
                lun(errors);
            }
        }
        "quobyte" => {
            let (registry, field) = (text(source, "registry"), format!("{path}.registry"));
            let why = "must be a host:port pair or multiple pairs separated by commas";
            if registry.is_empty() {
                errors.required(&field, why);
            }
            for _ in registry.split(',').filter(|pair| !registry.is_empty() && !pair.contains(':')) {
                errors.invalid(&field, registry, why);
            }
            if text(source, "volume").is_empty() {
                errors.required(&format!("{path}.volume"), "");
            }
        }
        "flocker" => {
            let given = ["datasetName", "datasetUUID"].map(|field| !text(source, field).is_empty());
            match given {
                [false, false] => errors.required(path, "one of datasetName and datasetUUID is required"),
                [true, true] => {
                    let why = "datasetName and datasetUUID can not be specified simultaneously";
                    errors.invalid(path, "resource", why);
                }
                _ => {}
            }
        }
        _ => azure_disk(source, path, errors),
    }
}

fn azure_disk(source: &Value, path: &str, errors: &mut Errors) {
    let modes = ["None", "ReadOnly", "ReadWrite"];
    errors.one_of(&format!("{path}.cachingMode"), &source["cachingMode"], &modes);
    let kinds = ["Dedicated", "Managed", "Shared"];
    errors.one_of(&format!("{path}.kind"), &source["kind"], &kinds);
    let (disk, managed) = (text(source, "diskURI"), source["kind"] == "Managed");
    let (head, example) = match managed {
        true => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        false => {
            ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd")
        }
    };
    if !source["kind"].is_null() && !disk.starts_with(head) {
        errors.not_supported(&format!("{path}.diskURI"), disk, &[example]);
    }
}

fn secret_reference(source: &Value, field: &str, path: &str, errors: &mut Errors) {
    if !source[field].is_null() && text(&source[field], "name").is_empty() {
        errors.required(&format!("{path}.{field}.name"), "");
    }
}

fn mode(mode: &Value, field: &str, errors: &mut Errors) {
    if let Some(mode) = mode.as_i64().filter(|mode| !(0..=0o777).contains(mode)) {
        errors.invalid(field, mode, MODE);
    }
}

/// A path below the volume, of which `..data` and the like are the kubelet's.
fn path_in_volume(target: &str, field: &str, errors: &mut Errors) {
    descending(target, field, errors);
    if target.starts_with("..") && !target.starts_with("../") && target != ".." {
        errors.invalid(field, target, "must not start with '..'");
    }
}

fn key_to_path(item: &Value, path: &str, errors: &mut Errors) {
    for field in ["key", "path"] {
        if text(item, field).is_empty() {
            errors.required(&format!("{path}.{field}"), "");
        }
    }
    path_in_volume(text(item, "path"), &format!("{path}.path"), errors);
    mode(&item["mode"], &format!("{path}.mode"), errors);
}

/// Upstream gives the path of the volume, and not that of the item.
fn downward_file(item: &Value, path: &str, errors: &mut Errors) {
    let (target, field) = (text(item, "path"), format!("{path}.path"));
    if target.is_empty() {
        errors.required(&field, "");
    }
    path_in_volume(target, &field, errors);
    let resource = &item["resourceFieldRef"];
    if !item["fieldRef"].is_null() {
        let field = format!("{path}.fieldRef");
        environment::field_of_the_pod(&item["fieldRef"], &environment::OF_FILES, &field, errors);
        if !resource.is_null() {
            let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
            errors.invalid(path, "resource", why);
        }
    } else if !resource.is_null() {
        let field = format!("{path}.resourceFieldRef");
        if text(resource, "containerName").is_empty() {
            errors.required(&format!("{field}.containerName"), "");
        } else {
            environment::resource_of_a_container(resource, &field, errors);
        }
    } else {
        errors.required(path, "one of fieldRef and resourceFieldRef is required");
    }
    mode(&item["mode"], &format!("{path}.mode"), errors);
}

fn projected(volume: &Value, path: &str, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for (at, source) in elements(volume, "sources", path) {
        let mut conflict = |target: &str, shown: &str, errors: &mut Errors| {
            if !target.is_empty() && !seen.insert(target.to_owned()) {
                errors.invalid(path, shown, "conflicting duplicate paths");
            }
        };
        for kind in ["secret", "configMap"] {
            let (source, field) = (&source[kind], format!("{at}.{kind}"));
            if !source.is_null() && text(source, "name").is_empty() {
                errors.required(&format!("{field}.name"), "");
            }
            for (path, item) in elements(source, "items", &field) {
                key_to_path(item, &path, errors);
                conflict(text(item, "path"), text(source, "name"), errors);
            }
        }
        let field = format!("{at}.downwardAPI");
        for (_, item) in elements(&source["downwardAPI"], "items", &field) {
            downward_file(item, &field, errors);
            conflict(text(item, "path"), text(item, "path"), errors);
        }
        let token = &source["serviceAccountToken"];
        if !token.is_null() {
            let (time, field) = (token["expirationSeconds"].as_i64().unwrap_or(0), "expirationSeconds");
            let field = format!("{at}.serviceAccountToken.{field}");
            if time < 600 {
                errors.invalid(&field, time, "may not specify a duration less than 10 minutes");
            }
            if time > 1 << 32 {
                errors.invalid(&field, time, "may not specify a duration larger than 2^32 seconds");
            }
            match text(token, "path") {
                "" => errors.required(&format!("{path}.path"), ""),
                target => path_in_volume(target, &format!("{path}.path"), errors),
            }
        }
        if source.as_object().is_some_and(|kinds| kinds.len() > 1) {
            errors.forbidden(&at, "may not specify more than 1 volume type per source");
        }
    }
}

/// A pod without an account has no token. Templates are not judged: their pods get an account.
pub(super) fn tokens(spec: &Value, path: &str, errors: &mut Errors) {
    for (path, volume) in elements(spec, "volumes", path) {
        for (path, source) in elements(&volume["projected"], "sources", &format!("{path}.projected")) {
            if !source["serviceAccountToken"].is_null() {
                let why = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&format!("{path}.serviceAccountToken"), why);
            }
        }
    }
}

/// The template of the claim of an ephemeral volume: of the metadata, only labels and annotations are its own.
fn claim_template(template: &Value, path: &str, errors: &mut Errors) {
    let path = format!("{path}.volumeClaimTemplate");
    let fields = template["metadata"].as_object().into_iter().flatten();
    for (field, _) in fields.filter(|(field, _)| !["annotations", "labels"].contains(&field.as_str())) {
        errors.forbidden(&format!("{path}.metadata.{field}"), "cannot be set");
    }
    storage::claim_spec(&template["spec"], &format!("{path}.spec"), errors);
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
            volumes(json!([
                {"name": "a", "emptyDir": {}}, {"name": "b"}, {"name": "a", "emptyDir": {}, "hostPath": {"path": "/x"}},
                {"name": "b", "emptyDir": {}},
            ])),
            &[
                "spec.volumes[1]: Required value: must specify a volume type",
                "spec.volumes[2].hostPath: Forbidden: may not specify more than 1 volume type",
                "spec.volumes[2].name: Duplicate value: \"a\"",
            ],
        );
    }

    #[test]
    fn no_mount_finds_a_volume_that_is_wrong() {
        let mounted = with(pod(), "/spec/volumes", json!([{"name": "v", "secret": {}}]));
        let mounted =
            with(mounted, "/spec/containers/0/volumeMounts", json!([{"name": "v", "mountPath": "/a"}]));
        check_create(
            "Pod",
            mounted,
            &[
                "spec.volumes[0].secret.secretName: Required value",
                "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
            ],
        );
    }

    #[test]
    fn the_secrets_of_a_persistent_volume_have_a_name_and_a_namespace() {
        let volume = |source: serde_json::Value| {
            let mut spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]});
            spec.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            json!({"metadata": {"name": "p"}, "spec": spec})
        };
        let driver = json!({"driver": "d", "volumeHandle": "h", "controllerExpandSecretRef": {"name": "a"},
                            "nodeStageSecretRef": {}});
        check_create(
            "PersistentVolume",
            volume(json!({"csi": driver})),
            &["spec.csi.controllerExpandSecretRef.namespace: Required value"],
        );
        let target = json!({"targetPortal": "x", "iqn": "a/b/c", "lun": 1, "chapAuthDiscovery": true});
        check_create(
            "PersistentVolume",
            volume(json!({"iscsi": target})),
            &[
                "spec.iscsi.iqn: Invalid value: \"a/b/c\": must be valid format",
                "spec.iscsi.secretRef: Required value",
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
