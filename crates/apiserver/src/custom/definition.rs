//! CustomResourceDefinitions as objects: defaults, validation and conditions (upstream
//! `apiextensions-apiserver/pkg/apis/apiextensions`).

use serde_json::{Map, Value, json};

use super::json_path::Path;
use super::schema::{Schema, texts};
use super::{storage_version, text};
use crate::kinds::StrategyContext;
use crate::object::{as_map, map_mut};
use crate::validate::{Errors, names};

/// Holds a deleted definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];

/// Fills in the names that follow from others, and the strategy of conversion.
pub(crate) fn fill(definition: &mut Map<String, Value>) {
    let Some(spec) = definition.get_mut("spec").filter(|spec| spec["names"].is_object()) else { return };
    let kind = text(&spec["names"], "kind").to_owned();
    let names = map_mut(spec, "names");
    if !kind.is_empty() {
        names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
        names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
    }
    as_map(spec).entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    if let Some(Value::Object(service)) = spec.pointer_mut("/conversion/webhook/clientConfig/service") {
        service.entry("port").or_insert_with(|| json!(443));
    }
}

/// Gives a new definition its status.
pub(crate) fn new_status(_context: &StrategyContext<'_>, definition: &mut Value) {
    let stored = storage_version(&definition["spec"]);
    let status = json!({"acceptedNames": {"kind": "", "plural": ""}, "storedVersions": [stored]});
    as_map(definition).insert("status".to_owned(), status);
}

/// Adds what is wrong with a new definition.
pub(crate) fn validate(definition: &Value, errors: &mut Errors) {
    let spec = &definition["spec"];
    let (group, plural) = (text(spec, "group"), text(&spec["names"], "plural"));
    let (name, wanted) = (text(&definition["metadata"], "name"), format!("{plural}.{group}"));
    if name != wanted {
        errors.invalid(
            "metadata.name",
            name,
            format!("must be spec.names.plural+\".\"+spec.group: {wanted:?}"),
        );
    }
    if group.is_empty() {
        errors.required("spec.group", "");
    } else if !group.contains('.') {
        errors.invalid("spec.group", group, "should be a domain with at least one dot");
    } else {
        errors.each_invalid("spec.group", group, names::dns1123_subdomain(group));
    }
    if !["Cluster", "Namespaced"].contains(&text(spec, "scope")) {
        errors.not_supported("spec.scope", text(spec, "scope"), &["Cluster", "Namespaced"]);
    }
    if spec["preserveUnknownFields"] == true {
        let why = "must be false; use x-kubernetes-preserve-unknown-fields in the schema instead";
        errors.invalid("spec.preserveUnknownFields", true, why);
    }
    conversion(&spec["conversion"], errors);
    own_names(&spec["names"], errors);
    versions(spec, errors);
}

/// Adds what is wrong with replacing `old` by `new`.
pub(crate) fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate(new, errors);
    // Names can be changed until they are accepted.
    let is_established = is_true(&old["status"], "Established");
    errors.immutable("spec.group", &new["spec"]["group"], &old["spec"]["group"]);
    if is_established {
        errors.immutable("spec.scope", &new["spec"]["scope"], &old["spec"]["scope"]);
        let (names, before) = (&new["spec"]["names"], &old["spec"]["names"]);
        errors.immutable("spec.names.kind", &names["kind"], &before["kind"]);
    }
    errors.immutable("spec.names.plural", &new["spec"]["names"]["plural"], &old["spec"]["names"]["plural"]);
    let listed = version_names(&new["spec"]);
    for (index, stored) in texts(&old["status"]["storedVersions"]).iter().enumerate() {
        if !listed.contains(stored) {
            let why = "objects may be stored in it, so it must stay in spec.versions";
            errors.invalid(&format!("status.storedVersions[{index}]"), stored.as_str(), why);
        }
    }
}

fn conversion(conversion: &Value, errors: &mut Errors) {
    let webhook = &conversion["webhook"];
    match text(conversion, "strategy") {
        "None" => {}
        "Webhook" => {
            if webhook["clientConfig"].is_null() {
                let why = "required when strategy is set to Webhook";
                errors.required("spec.conversion.webhookClientConfig", why);
            }
            if webhook["conversionReviewVersions"].as_array().is_none_or(Vec::is_empty) {
                errors.required("spec.conversion.conversionReviewVersions", "");
            }
        }
        other => errors.not_supported("spec.conversion.strategy", other, &["None", "Webhook"]),
    }
}

fn version_names(spec: &Value) -> Vec<String> {
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions.map(|version| text(version, "name").to_owned()).collect()
}

fn own_names(names: &Value, errors: &mut Errors) {
    for (field, is_kind) in [("plural", false), ("singular", false), ("kind", true), ("listKind", true)] {
        let path = format!("spec.names.{field}");
        match text(names, field) {
            "" => errors.required(&path, ""),
            name if is_kind => errors.each_invalid(&path, name, names::dns1035_label(&name.to_lowercase())),
            name => errors.each_invalid(&path, name, names::dns1035_label(name)),
        }
    }
    for field in ["shortNames", "categories"] {
        for (index, name) in texts(&names[field]).iter().enumerate() {
            errors.each_invalid(&format!("spec.names.{field}[{index}]"), name, names::dns1035_label(name));
        }
    }
    if !text(names, "kind").is_empty() && names["kind"] == names["listKind"] {
        errors.invalid(
            "spec.names.listKind",
            text(names, "listKind"),
            "kind and listKind may not be the same",
        );
    }
}

fn versions(spec: &Value, errors: &mut Errors) {
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let stored = versions.iter().filter(|version| version["storage"] == true).count();
    if stored != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.invalid("spec.versions", version_names(spec), why);
    }
    for (index, version) in versions.iter().enumerate() {
        let path = format!("spec.versions[{index}]");
        let name = text(version, "name");
        errors.each_invalid(&format!("{path}.name"), name, names::dns1035_label(name));
        if versions.iter().take(index).any(|other| text(other, "name") == name) {
            errors.duplicate(&format!("{path}.name"), name);
        }
        if !version["schema"]["openAPIV3Schema"].is_object() {
            errors.required(&format!("{path}.schema.openAPIV3Schema"), "schemas are required");
        }
    }
    for (path, version) in places(versions, "schema", "validation") {
        let schema = &version["schema"]["openAPIV3Schema"];
        if schema.is_object() {
            Schema::parse(schema, &format!("{path}.openAPIV3Schema"), errors);
        }
    }
    for (path, version) in places(versions, "additionalPrinterColumns", "additionalPrinterColumns") {
        columns(version, &path, errors);
    }
    for (path, version) in places(versions, "subresources", "subresources") {
        scale(&version["subresources"]["scale"], &format!("{path}.scale"), errors);
    }
}

/// The places of a field of the versions. One that is the same in all stands beside the versions, as a server has it.
fn places<'a>(
    versions: &'a [Value],
    field: &'a str,
    common: &'a str,
) -> impl Iterator<Item = (String, &'a Value)> {
    let is_common = versions.windows(2).all(|pair| pair[0][field] == pair[1][field]);
    let each = versions.iter().enumerate().take(if is_common { 1 } else { usize::MAX });
    each.map(move |(index, version)| match is_common {
        true => (format!("spec.{common}"), version),
        false => (format!("spec.versions[{index}].{field}"), version),
    })
}

fn columns(version: &Value, path: &str, errors: &mut Errors) {
    let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    for (index, column) in columns.enumerate() {
        let path = format!("{path}[{index}]");
        if text(column, "name").is_empty() {
            errors.required(&format!("{path}.name"), "");
        }
        if !COLUMN_TYPES.contains(&text(column, "type")) {
            errors.not_supported(&format!("{path}.type"), text(column, "type"), &COLUMN_TYPES);
        }
        if let Err(why) = Path::parse(text(column, "jsonPath")) {
            errors.invalid(&format!("{path}.jsonPath"), text(column, "jsonPath"), why);
        }
    }
}

fn scale(scale: &Value, path: &str, errors: &mut Errors) {
    if !scale.is_object() {
        return;
    }
    for (field, allowed) in [
        ("specReplicasPath", &["spec"][..]),
        ("statusReplicasPath", &["status"]),
        ("labelSelectorPath", &["spec", "status"]),
    ] {
        let found = text(scale, field);
        if found.is_empty() && field == "labelSelectorPath" {
            continue;
        }
        let fits = |path: &Path| allowed.iter().any(|first| path.begins_with(first));
        if !Path::parse(found).is_ok_and(|path| fits(&path)) {
            let why = format!("must be a path of fields under .{}", allowed.join(" or ."));
            errors.invalid(&format!("{path}.{field}"), found, why);
        }
    }
}

/// Whether the condition has the status True.
pub(crate) fn is_true(status: &Value, condition: &str) -> bool {
    let mut all = status["conditions"].as_array().into_iter().flatten();
    all.any(|one| one["type"] == condition && one["status"] == "True")
}

/// Sets a condition to this status, reason and message. The time changes with the status only.
pub(crate) fn set_condition(
    status: &mut Value,
    name: &str,
    (is, reason, message): (&str, &str, &str),
    now: &str,
) {
    let conditions = as_map(status).entry("conditions").or_insert_with(|| json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(list) = conditions.as_array_mut() else { return };
    let before = list.iter().position(|one| one["type"] == name);
    let since = before.and_then(|at| list.get(at)).filter(|one| one["status"] == is);
    let since = since.map_or(now, |one| text(one, "lastTransitionTime")).to_owned();
    let condition = json!({
        "type": name, "status": is, "reason": reason, "message": message, "lastTransitionTime": since,
    });
    match before.and_then(|at| list.get_mut(at)) {
        Some(place) => *place = condition,
        None => list.push(condition),
    }
}
