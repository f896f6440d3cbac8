//! Classes of storage, priority and runtimes, and the volumes' drivers (upstream `pkg/apis/{storage,scheduling,node}/validation`).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::errors::{Errors, elements, text};
use super::{internal_types, metadata, names, resources, scheduling};

const MAX_PARAMETERS: usize = 512;
const MAX_PARAMETERS_SIZE: usize = 256 * 1024;
/// The highest priority that users can give.
const HIGHEST: i64 = 1_000_000_000;
/// The classes that each cluster has.
const SYSTEM: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];

/// Whether a priority class is one that each cluster has.
pub(crate) fn is_of_system(name: &str) -> bool {
    SYSTEM.iter().any(|(known, _)| *known == name)
}

pub(crate) fn storage_class(object: &Value, errors: &mut Errors) {
    match text(object, "provisioner") {
        "" => errors.required("provisioner", ""),
        name => {
            errors.each_invalid("provisioner", &name.to_lowercase(), names::label_key(&name.to_lowercase()))
        }
    }
    parameters(&object["parameters"], errors);
    // Upstream lets an empty one pass, and defaults only one that is absent.
    if object["reclaimPolicy"] != "" {
        errors.one_of("reclaimPolicy", &object["reclaimPolicy"], &["Delete", "Retain"]);
    }
    errors.one_of("volumeBindingMode", &object["volumeBindingMode"], &["Immediate", "WaitForFirstConsumer"]);
    // Upstream counts an empty one as a copy.
    let mut topologies = BTreeSet::from([BTreeMap::new()]);
    for (topology_path, topology) in elements(object, "allowedTopologies", "") {
        let mut keys = BTreeMap::new();
        for (path, expression) in elements(topology, "matchLabelExpressions", &topology_path) {
            let mut values = BTreeSet::new();
            for (path, value) in elements(expression, "values", &path) {
                if !values.insert(value.as_str().unwrap_or_default()) {
                    errors.duplicate(&path, value.clone());
                }
            }
            if expression["values"].as_array().is_none_or(Vec::is_empty) {
                errors.required(&format!("{path}.values"), "");
            }
            let key = text(expression, "key");
            errors.each_invalid(&format!("{path}.key"), key, names::label_key(key));
            if keys.insert(key, values).is_some() {
                errors.duplicate(&format!("{path}.key"), key);
            }
        }
        if !topologies.insert(keys) {
            errors.duplicate(&format!("{topology_path}.matchLabelExpressions"), "");
        }
    }
}

pub(crate) fn storage_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    storage_class(new, errors);
    for field in ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"] {
        errors.immutable(field, &new[field], &old[field]);
    }
}

fn parameters(parameters: &Value, errors: &mut Errors) {
    let entries = parameters.as_object();
    if entries.map_or(0, serde_json::Map::len) > MAX_PARAMETERS {
        return errors.too_long("parameters", MAX_PARAMETERS);
    }
    let mut size = 0;
    for (key, value) in entries.into_iter().flatten() {
        if key.is_empty() {
            errors.invalid("parameters", "", "field can not be empty.");
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > MAX_PARAMETERS_SIZE {
        errors.too_long("parameters", MAX_PARAMETERS_SIZE);
    }
}

pub(crate) fn attributes_class(object: &Value, errors: &mut Errors) {
    driver(text(object, "driverName"), "driverName", errors);
    if object["parameters"].as_object().is_none_or(serde_json::Map::is_empty) {
        errors.required("parameters", "must contain at least one key/value pair");
    }
    parameters(&object["parameters"], errors);
}

pub(crate) fn attributes_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    for field in ["driverName", "parameters"] {
        if new[field] != old[field] {
            errors.forbidden(field, &format!("updates to {field} are forbidden."));
        }
    }
}

pub(super) fn driver(name: &str, field: &str, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(field, "");
    }
    if name.len() > 63 {
        errors.too_long(field, 63);
    }
    let lower = name.to_lowercase();
    errors.each_invalid(field, name, names::dns1123_subdomain(&lower));
}

pub(crate) fn csi_driver(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    errors.one_of("spec.fsGroupPolicy", &spec["fsGroupPolicy"], &policies);
    let mut seen = BTreeSet::new();
    for (path, request) in elements(spec, "tokenRequests", "spec") {
        let audience = text(request, "audience");
        if !seen.insert(audience) {
            errors.duplicate(&format!("{path}.audience"), audience);
            continue;
        }
        if let Some(seconds) = request["expirationSeconds"].as_i64().filter(|seconds| *seconds < 600) {
            let field = format!("{path}.expirationSeconds");
            errors.invalid(&field, seconds, "may not specify a duration less than 10 minutes");
        }
    }
    let period = spec["nodeAllocatableUpdatePeriodSeconds"].as_i64();
    for (_, mode) in elements(spec, "volumeLifecycleModes", "spec") {
        errors.one_of("spec.volumeLifecycleModes", mode, &["Persistent", "Ephemeral"]);
    }
    if let Some(period) = period.filter(|period| *period < 10) {
        let why = "must be greater than or equal to 10 seconds";
        errors.invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, why);
    }
}

pub(crate) fn csi_driver_update(new: &Value, old: &Value, errors: &mut Errors) {
    csi_driver(new, errors);
    // The first name in the message is upstream's.
    for (field, shown) in
        [("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")]
    {
        errors.immutable(&format!("spec.{shown}"), &new["spec"][field], &old["spec"][field]);
    }
}

pub(crate) fn volume_attachment(object: &Value, errors: &mut Errors) {
    let spec = &object["spec"];
    driver(text(spec, "attacher"), "spec.attacher", errors);
    let source = &spec["source"];
    let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (source["inlineVolumeSpec"].is_null(), source["persistentVolumeName"].is_null()) {
        (true, true) => errors.required("spec.source", why),
        (false, false) => errors.forbidden("spec.source", why),
        _ => {}
    }
    let node = text(spec, "nodeName");
    errors.each_invalid("spec.nodeName", node, names::dns1123_subdomain(node));
}

pub(crate) fn volume_attachment_update(new: &Value, old: &Value, errors: &mut Errors) {
    volume_attachment(new, errors);
    errors.immutable("spec", &new["spec"], &old["spec"]);
}

pub(crate) fn priority_class(object: &Value, errors: &mut Errors) {
    let (name, value) = (text(&object["metadata"], "name"), object["value"].as_i64().unwrap_or(0));
    if name.starts_with("system-") {
        let why = match SYSTEM.iter().find(|(known, _)| *known == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, right)) if *right != value => {
                Some(format!("value of {name} PriorityClass must be {right}"))
            }
            Some(_) if object["globalDefault"] == true => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            let text = "priority class names with 'system-' prefix are reserved for system use only. error: ";
            errors.forbidden("metadata.name", &format!("{text}{why}"));
        }
    } else if value > HIGHEST {
        let why = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        errors.forbidden("value", &why);
    }
    let policies = ["PreemptLowerPriority", "Never"];
    errors.one_of("preemptionPolicy", &object["preemptionPolicy"], &policies);
}

pub(crate) fn priority_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    if new["value"] != old["value"] {
        errors.forbidden("value", "may not be changed in an update.");
    }
    errors.immutable("preemptionPolicy", &new["preemptionPolicy"], &old["preemptionPolicy"]);
}

pub(crate) fn runtime_class(object: &Value, errors: &mut Errors) {
    match text(object, "handler") {
        "" => errors.required("handler", ""),
        handler => errors.each_invalid("handler", handler, names::dns1123_label(handler)),
    }
    if !object["overhead"].is_null() {
        let limits = json!({"limits": object["overhead"]["podFixed"]});
        resources::validate(&limits, "overhead", &Value::Null, errors);
    }
    metadata::labels(&object["scheduling"]["nodeSelector"], "scheduling.nodeSelector", errors);
    scheduling::tolerations(&object["scheduling"], "scheduling", errors);
    let mut seen = BTreeSet::new();
    for (path, toleration) in elements(&object["scheduling"], "tolerations", "scheduling") {
        if !seen.insert(["key", "operator", "value", "effect"].map(|field| text(toleration, field))) {
            let shown = internal_types::shown("Toleration", toleration);
            errors.push(&path, "FieldValueDuplicate", format!("Duplicate value: {shown}"));
        }
    }
}

pub(crate) fn runtime_class_update(new: &Value, old: &Value, errors: &mut Errors) {
    runtime_class(new, errors);
    errors.immutable("handler", &new["handler"], &old["handler"]);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::validate::tests::{check_create, check_update};

    #[test]
    fn no_topology_is_given_twice_or_says_nothing() {
        let class = |topologies: serde_json::Value| json!({"metadata": {"name": "fast"}, "provisioner": "a.b/c", "allowedTopologies": topologies});
        let zone = json!({"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]});
        let twice = "allowedTopologies[1].matchLabelExpressions: Duplicate value: \"\"";
        check_create("StorageClass", class(json!([zone, zone])), &[twice]);
        check_create("StorageClass", class(json!([zone, {}])), &[twice]);
    }

    #[test]
    fn the_times_of_a_driver_are_no_shorter_than_upstream_allows() {
        let requests = json!([{"audience": "a", "expirationSeconds": 100}, {"audience": "a"}]);
        let spec = json!({"tokenRequests": requests, "nodeAllocatableUpdatePeriodSeconds": 2});
        check_create(
            "CSIDriver",
            json!({"metadata": {"name": "d"}, "spec": spec}),
            &[
                "spec.tokenRequests[0].expirationSeconds: Invalid value: 100: may not specify a duration less than 10 minutes",
                "spec.tokenRequests[1].audience: Duplicate value: \"a\"",
                "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 2: must be greater than or equal to 10 seconds",
            ],
        );
    }

    #[test]
    fn a_runtime_class_keeps_its_handler_and_a_driver_its_way_to_attach() {
        let class = |handler: &str| json!({"metadata": {"name": "r"}, "handler": handler});
        let label = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and \
                     end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
                     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
        check_update(
            "RuntimeClass",
            class("B_"),
            class("a"),
            &[
                &format!("handler: Invalid value: \"B_\": {label}"),
                "handler: Invalid value: \"B_\": field is immutable",
            ],
        );
        let driver = |attach: bool| json!({"metadata": {"name": "d"}, "spec": {"attachRequired": attach}});
        check_update(
            "CSIDriver",
            driver(false),
            driver(true),
            &["spec.attachedRequired: Invalid value: false: field is immutable"],
        );
    }

    #[test]
    fn a_changed_storage_class_is_judged_as_a_new_one() {
        let old = json!({"metadata": {"name": "fast"}, "provisioner": "a.b/c"});
        let mut new = old.clone();
        new["allowedTopologies"] = json!([{"matchLabelExpressions": [{"key": "a", "values": []}]}]);
        check_update(
            "StorageClass",
            new,
            old,
            &["allowedTopologies[0].matchLabelExpressions[0].values: Required value"],
        );
    }
}
