//! PersistentVolumes and PersistentVolumeClaims (upstream: `ValidatePersistentVolumeSpec` and
//! `ValidatePersistentVolumeClaimSpec` of pkg/apis/core/validation).

use serde_json::Value;

use super::errors::{Errors, elements, essence, text};
use super::{internal_types, names, scheduling, selectors};
use crate::object::strings;
use crate::quantity::Quantity;

const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// The sources of a volume, in the order in which they are judged.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// The fields of a volume's spec that name no volume.
const NO_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// The labels of nodes that were renamed when they were no longer beta.
const FINAL_LABELS: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

pub(crate) fn volume(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    if elements(spec, "accessModes", "spec").next().is_none() {
        errors.required("spec.accessModes", "");
    }
    access_modes(spec, "spec", errors);
    if spec["capacity"].as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required("spec.capacity", "");
    }
    if spec["capacity"]["storage"].is_null() || spec["capacity"].as_object().is_some_and(|all| all.len() > 1)
    {
        errors.not_supported("spec.capacity", spec["capacity"].clone(), &["storage"]);
    }
    for (resource, amount) in spec["capacity"].as_object().into_iter().flatten() {
        let Some(size) = Quantity::of(amount) else { continue };
        let field = format!("spec.capacity[{resource}]");
        if size.is_negative() {
            errors.invalid_shown(&field, &size.canonical(), "must be a valid resource quantity");
        }
        if size.is_negative() || size.is_zero() {
            errors.invalid(&field, size.canonical(), "must be greater than zero");
        }
    }
    let policies = ["Delete", "Recycle", "Retain"];
    errors.one_of("spec.persistentVolumeReclaimPolicy", &spec["persistentVolumeReclaimPolicy"], &policies);
    if !spec["nodeAffinity"].is_null() {
        scheduling::volume_affinity(&spec["nodeAffinity"], "spec.nodeAffinity", errors);
    }
    let mut sources = SOURCES.iter().filter(|kind| !spec[**kind].is_null());
    match sources.next() {
        None => errors.required("spec", "must specify a volume type"),
        Some(kind) => super::volume::of_persistent_volume(kind, &spec[*kind], errors),
    }
    for kind in sources {
        let shown = if *kind == "cephfs" { "cephFS" } else { kind };
        errors.forbidden(&format!("spec.{shown}"), "may not specify more than 1 volume type");
    }
    if !spec["local"].is_null() && spec["nodeAffinity"].is_null() {
        errors.required("spec.nodeAffinity", "Local volume requires node affinity");
    }
    if spec["hostPath"]["path"] == "/" && spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        let why = "may not be 'recycle' for a hostPath mount of '/'";
        errors.forbidden("spec.persistentVolumeReclaimPolicy", why);
    }
    if !text(spec, "storageClassName").is_empty() {
        class_name(spec, "storageClassName", "spec", errors);
    }
    errors.one_of("spec.volumeMode", &spec["volumeMode"], &["Block", "Filesystem"]);
    if let Some(class) = spec["volumeAttributesClassName"].as_str() {
        let field = "spec.volumeAttributesClassName";
        match class {
            "" => errors.required(field, "an empty string is disallowed"),
            name => errors.each_invalid(field, name, names::dns1123_subdomain(name)),
        }
        if spec["csi"].is_null() {
            errors.required("spec.csi", "has to be specified when using volumeAttributesClassName");
        }
    }
}

/// A volume keeps its source and its mode.
pub(crate) fn volume_update(new: &Value, old: &Value, errors: &mut Errors) {
    volume(new, errors);
    let source = |object: &Value| {
        let mut spec = object["spec"].clone();
        if let Some(fields) = spec.as_object_mut() {
            fields.retain(|field, _| !NO_SOURCE.contains(&field.as_str()));
        }
        spec
    };
    let (mut after, before) = (source(new), source(old));
    // It may be set late.
    if before["csi"].is_object()
        && before["csi"]["controllerExpandSecretRef"].is_null()
        && let Some(driver) = after["csi"].as_object_mut()
    {
        driver.remove("controllerExpandSecretRef");
    }
    if essence(&after) != essence(&before) {
        let difference = internal_types::difference("PersistentVolumeSource", &before, &after);
        errors.forbidden(
            "spec.persistentvolumesource",
            &format!("spec.persistentvolumesource is immutable after creation\n{difference}"),
        );
    }
    errors.immutable("volumeMode", &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
    let (after, before) = (&new["spec"]["nodeAffinity"], &old["spec"]["nodeAffinity"]);
    if !before.is_null() && !is_same_place(after, before) {
        let shown = internal_types::shown("VolumeNodeAffinity", after);
        let why = "field is immutable, except for updating from beta label to GA";
        errors.invalid_shown("nodeAffinity", &shown, why);
    }
}

/// Whether nothing has changed but labels that have got their final name.
fn is_same_place(new: &Value, old: &Value) -> bool {
    match (new, old) {
        (Value::Object(_), Value::Object(_)) if new["operator"].is_string() => {
            let mut old = old.clone();
            let renamed = FINAL_LABELS.iter().find(|(beta, _)| old["key"] == *beta);
            if let Some((_, label)) = renamed.filter(|(_, label)| new["key"] == *label) {
                old["key"] = (*label).into();
            }
            essence(new) == essence(&old)
        }
        (Value::Object(after), Value::Object(before)) => {
            after.keys().chain(before.keys()).all(|key| is_same_place(&new[key.as_str()], &old[key.as_str()]))
        }
        (Value::Array(after), Value::Array(before)) => {
            after.len() == before.len() && after.iter().zip(before).all(|(new, old)| is_same_place(new, old))
        }
        _ => essence(new) == essence(old),
    }
}

pub(crate) fn claim(object: &Value, errors: &mut Errors) {
    claim_spec(&object["spec"], "spec", errors);
}

/// The spec of a claim, or of a template of claims.
pub(super) fn claim_spec(spec: &Value, path: &str, errors: &mut Errors) {
    if elements(spec, "accessModes", path).next().is_none() {
        errors.required(&format!("{path}.accessModes"), "at least 1 access mode is required");
    }
    if !spec["selector"].is_null() {
        selectors::label_selector(&spec["selector"], &format!("{path}.selector"), errors);
    }
    access_modes(spec, path, errors);
    let (field, size) = (format!("{path}.resources[storage]"), &spec["resources"]["requests"]["storage"]);
    if size.is_null() {
        errors.required(&field, "");
    } else if let Some(size) = Quantity::of(size).filter(|size| size.is_negative() || size.is_zero()) {
        errors.invalid(&field, size.canonical(), "must be greater than zero");
    }
    class_name(spec, "storageClassName", path, errors);
    errors.one_of(&format!("{path}.volumeMode"), &spec["volumeMode"], &["Block", "Filesystem"]);
    let sources = [&spec["dataSource"], &spec["dataSourceRef"]];
    let differs = |field: &str| text(sources[0], field) != text(sources[1], field);
    if sources.iter().all(|source| source.is_object())
        && ["apiGroup", "kind", "name"].into_iter().any(differs)
    {
        // Upstream shows a path here, which has no field that JSON knows.
        errors.invalid_shown(path, "{}", "must match dataSourceRef");
    }
    for field in ["dataSource", "dataSourceRef"] {
        data_source(&spec[field], &format!("{path}.{field}"), errors);
    }
    class_name(spec, "volumeAttributesClassName", path, errors);
}

fn class_name(spec: &Value, field: &str, path: &str, errors: &mut Errors) {
    match text(spec, field) {
        "" => {}
        name => errors.each_invalid(&format!("{path}.{field}"), name, names::dns1123_subdomain(name)),
    }
}

fn data_source(source: &Value, path: &str, errors: &mut Errors) {
    if source.is_null() {
        return;
    }
    for field in ["name", "kind"] {
        if text(source, field).is_empty() {
            errors.required(&format!("{path}.{field}"), "");
        }
    }
    let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid(path, kind, why);
    }
    if !group.is_empty() {
        errors.each_invalid(&format!("{path}.apiGroup"), group, names::dns1123_subdomain(group));
    }
}

/// A claim is fixed, but for the volume that it gets, and once it is bound for its size and class of attributes.
pub(crate) fn claim_update(new: &Value, old: &Value, errors: &mut Errors) {
    claim(new, errors);
    let (mut after, mut before) = (new["spec"].clone(), old["spec"].clone());
    if text(&before, "volumeName").is_empty() {
        copy(&mut before, "volumeName", &after["volumeName"]);
    }
    if before["storageClassName"].is_null() {
        let class = before["storageClassName"].clone();
        copy(&mut after, "storageClassName", &class);
    }
    if new["status"]["phase"] == "Bound" {
        if after["resources"]["requests"].is_object() {
            copy(&mut after["resources"]["requests"], "storage", &before["resources"]["requests"]["storage"]);
        }
        copy(&mut after, "volumeAttributesClassName", &before["volumeAttributesClassName"]);
    }
    if essence(&after) != essence(&before) {
        let difference = internal_types::difference("PersistentVolumeClaimSpec", &before, &after);
        let why = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
             claims\n{difference}"
        );
        errors.forbidden("spec", &why);
    }
    let none = Quantity::ZERO;
    let amount = |size: Option<&Value>| size.and_then(Quantity::of).unwrap_or(none);
    let asked = |claim: &Value| amount(claim.pointer("/spec/resources/requests/storage"));
    // Less than before is for the volume that could not grow; below what the claim has, nothing shrinks.
    if asked(new) < asked(old) && asked(new) <= amount(old.pointer("/status/capacity/storage")) {
        errors.forbidden("spec.resources.requests.storage", "field can not be less than status.capacity");
    }
    errors.immutable("volumeMode", &new["spec"]["volumeMode"], &old["spec"]["volumeMode"]);
}

fn copy(object: &mut Value, field: &str, value: &Value) {
    if let Some(fields) = object.as_object_mut() {
        match value {
            Value::Null => fields.remove(field),
            value => fields.insert(field.to_owned(), value.clone()),
        };
    }
}

/// Each mode by itself, and all together.
fn access_modes(spec: &Value, path: &str, errors: &mut Errors) {
    let path = format!("{path}.accessModes");
    let modes = strings(spec.get("accessModes"));
    for mode in &modes {
        errors.one_of(&path, &Value::from(*mode), &ACCESS_MODES);
    }
    let others =
        modes.iter().filter(|mode| **mode != "ReadWriteOncePod" && ACCESS_MODES.contains(mode)).count();
    if modes.contains(&"ReadWriteOncePod") && others > 0 {
        errors.forbidden(&path, "may not use ReadWriteOncePod with other access modes");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::validate::tests::check_update;
    use crate::validate::{create, update};

    fn refused(kind: &str, spec: Value) -> Vec<String> {
        let object = json!({"metadata": {"name": "a", "namespace": "default"}, "spec": spec});
        create(kind, &object).iter().map(|error| error.field.clone()).collect()
    }

    #[test]
    fn a_volume_has_modes_a_capacity_and_one_source() {
        let volume = |spec: Value| {
            let mut object = json!({"metadata": {"name": "a"}, "spec": spec});
            object["spec"]["accessModes"] = json!(["ReadWriteOnce"]);
            create("PersistentVolume", &object).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(volume(json!({"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}})), [""; 0]);
        assert_eq!(
            volume(json!({})),
            [
                "spec.capacity: Required value",
                "spec.capacity: Unsupported value: null: supported values: \"storage\"",
                "spec: Required value: must specify a volume type"
            ]
        );
        let two = json!({"capacity": {"storage": "1Gi"}, "hostPath": {"path": "/a"}, "nfs": {"path": "/a", "server": "b"}});
        assert_eq!(volume(two), ["spec.nfs: Forbidden: may not specify more than 1 volume type"]);
    }

    #[test]
    fn a_bound_claim_does_not_shrink_below_what_it_has() {
        let claim = |size: &str| {
            let spec =
                json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
            let status = json!({"phase": "Bound", "capacity": {"storage": "2Gi"}});
            json!({"metadata": {"name": "a", "namespace": "default"}, "spec": spec, "status": status})
        };
        check_update("PersistentVolumeClaim", claim("3Gi"), claim("4Gi"), &[]);
        check_update(
            "PersistentVolumeClaim",
            claim("1Gi"),
            claim("4Gi"),
            &["spec.resources.requests.storage: Forbidden: field can not be less than status.capacity"],
        );
    }

    #[test]
    fn a_change_of_a_claim_is_shown_line_by_line() {
        let claim = |mode: &str, class: &str| {
            let storage = json!({"requests": {"storage": "1Gi"}});
            let spec = json!({
                "accessModes": ["ReadWriteOnce"], "storageClassName": class, "volumeMode": mode, "resources": storage,
            });
            json!({"metadata": {"name": "a", "namespace": "default"}, "spec": spec})
        };
        let fixed = "spec: Forbidden: spec is immutable after creation except resources.requests and \
                     volumeAttributesClassName for bound claims";
        check_update(
            "PersistentVolumeClaim",
            claim("Filesystem", "slow"),
            claim("Filesystem", "fast"),
            &[&format!(
                "{fixed}\n@@ -10,7 +10,7 @@\n   }}\n  }},\n  \"VolumeName\": \"\",\n- \"StorageClassName\": \"fast\",\n\
                 + \"StorageClassName\": \"slow\",\n  \"VolumeMode\": \"Filesystem\",\n  \"DataSource\": null,\n  \
                 \"DataSourceRef\": null,\n"
            )],
        );
        check_update(
            "PersistentVolumeClaim",
            claim("Block", "fast"),
            claim("Filesystem", "fast"),
            &[
                &format!(
                    "{fixed}\n@@ -11,7 +11,7 @@\n  }},\n  \"VolumeName\": \"\",\n  \"StorageClassName\": \"fast\",\n\
                     - \"VolumeMode\": \"Filesystem\",\n+ \"VolumeMode\": \"Block\",\n  \"DataSource\": null,\n  \
                     \"DataSourceRef\": null,\n  \"VolumeAttributesClassName\": null\n"
                ),
                "volumeMode: Invalid value: \"Block\": field is immutable",
            ],
        );
    }

    #[test]
    fn a_volume_keeps_its_source_and_its_place() {
        let volume = |path: &str, key: &str| {
            let place =
                json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "Exists"}]}]});
            let spec = json!({
                "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
                "hostPath": {"path": path, "type": ""}, "nodeAffinity": {"required": place},
            });
            json!({"metadata": {"name": "a"}, "spec": spec})
        };
        check_update(
            "PersistentVolume",
            volume("/y", "a"),
            volume("/x", "a"),
            &[
                "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable after creation\n\
               @@ -2,7 +2,7 @@\n  \"GCEPersistentDisk\": null,\n  \"AWSElasticBlockStore\": null,\n  \"HostPath\": {\n\
               -  \"Path\": \"/x\",\n+  \"Path\": \"/y\",\n   \"Type\": \"\"\n  },\n  \"Glusterfs\": null,\n",
            ],
        );
        check_update(
            "PersistentVolume",
            volume("/x", "b"),
            volume("/x", "a"),
            &[
                "nodeAffinity: Invalid value: {\"Required\":{\"NodeSelectorTerms\":[{\"MatchExpressions\":[{\"Key\":\"b\",\
               \"Operator\":\"Exists\",\"Values\":null}],\"MatchFields\":null}]}}: field is immutable, except for updating \
               from beta label to GA",
            ],
        );
        let [beta, stable] = ["beta.kubernetes.io/os", "kubernetes.io/os"].map(|key| volume("/x", key));
        check_update("PersistentVolume", stable, beta, &[]);
    }

    #[test]
    fn a_claim_has_modes_and_a_size_and_keeps_its_volume() {
        let storage = json!({"requests": {"storage": "1Gi"}});
        let good = json!({"accessModes": ["ReadWriteOnce"], "resources": storage});
        assert_eq!(refused("PersistentVolumeClaim", good.clone()), [""; 0]);
        let bad = json!({"accessModes": ["Often"], "volumeMode": "Tape"});
        let fields = ["spec.accessModes", "spec.resources[storage]", "spec.volumeMode"];
        assert_eq!(refused("PersistentVolumeClaim", bad), fields);
        let with = |spec: &Value, volume: &str| {
            let mut spec = spec.clone();
            spec["volumeName"] = volume.into();
            json!({"metadata": {"name": "a", "namespace": "default"}, "spec": spec})
        };
        let changes = |old: &str, new: &str| {
            update("PersistentVolumeClaim", &with(&good, new), &with(&good, old)).len()
        };
        assert_eq!((changes("", "v1"), changes("v1", "v1"), changes("v1", "v2")), (0, 0, 1));
    }
}
