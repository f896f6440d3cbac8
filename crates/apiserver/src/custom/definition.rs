//! CustomResourceDefinitions as objects: defaults, validation and conditions (upstream
//! `apiextensions-apiserver/pkg/apis/apiextensions`).

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::json_path::Path;
use super::schema::{Schema, texts};
use super::{storage_version, text};
use crate::kinds::StrategyContext;
use crate::object::{as_map, map_mut};
use crate::validate::{Errors, names};

/// Holds a deleted definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

const NO_PATH: &str = "must be a simple json path starting with .";
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];
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
    let (name, spec) = (text(&definition["metadata"], "name"), &definition["spec"]);
    if name != format!("{}.{}", text(&spec["names"], "plural"), text(spec, "group")) {
        errors.invalid("metadata.name", name, "must be spec.names.plural+\".\"+spec.group");
    }
    validate_spec(definition, errors);
    if storage_version(&definition["spec"]).is_empty() {
        let why = "must have at least one stored version";
        errors.invalid("status.storedVersions", Value::Null, why);
    }
    approval(definition, errors);
}

fn validate_spec(definition: &Value, errors: &mut Errors) {
    let spec = &definition["spec"];
    let group = text(spec, "group");
    let wrong = names::dns1123_subdomain(group);
    if group.is_empty() {
        errors.required("spec.group", "");
    } else if !wrong.is_empty() {
        errors.invalid("spec.group", group, wrong.join(","));
    } else if !group.contains('.') {
        errors.invalid("spec.group", group, "should be a domain with at least one dot");
    }
    one_of("spec.scope", text(spec, "scope"), &["Cluster", "Namespaced"], errors);
    versions(spec, errors);
    own_names(&spec["names"], errors);
    common_parts(spec, errors);
    if spec["conversion"].is_object() {
        conversion(&spec["conversion"], errors);
    }
    if spec["preserveUnknownFields"] == true {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema \
                   instead";
        errors.invalid("spec.preserveUnknownFields", true, why);
    }
}

fn one_of(field: &str, value: &str, supported: &[&str], errors: &mut Errors) {
    match value {
        "" => errors.required(field, ""),
        value if !supported.contains(&value) => errors.not_supported(field, value, supported),
        _ => {}
    }
}

/// Groups of the Kubernetes community are for approved definitions only
/// (<https://github.com/kubernetes/enhancements/pull/1111>).
fn approval(definition: &Value, errors: &mut Errors) {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    let group = text(&definition["spec"], "group");
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    let given = &definition["metadata"]["annotations"][ANNOTATION];
    let value = given.as_str().unwrap_or_default();
    let is_address =
        value.split_once("://").is_some_and(|(scheme, host)| !scheme.is_empty() && !host.is_empty());
    if !is_protected || is_address || value.starts_with("unapproved") {
        return;
    }
    let field = format!("metadata.annotations[{ANNOTATION}]");
    if given.is_null() {
        let why = format!(
            "protected groups must have approval annotation {ANNOTATION:?}, see \
             https://github.com/kubernetes/enhancements/pull/1111"
        );
        return errors.required(&field, &why);
    }
    let why = format!(
        "protected groups must have approval annotation {ANNOTATION:?} with either a URL or a reason starting with \
         \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111"
    );
    errors.invalid(&field, value, why);
}

/// Adds what is wrong with replacing `old` by `new`.
pub(crate) fn validate_update(new: &Value, old: &Value, errors: &mut Errors) {
    validate_spec(new, errors);
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
            let why = format!(
                "missing from spec.versions; {stored} was previously a storage version, and must remain in spec.versions \
                 until a storage migration ensures no data remains persisted in {stored} and removes {stored} from \
                 status.storedVersions"
            );
            errors.invalid(&format!("status.storedVersions[{index}]"), stored.as_str(), why);
        }
    }
}

fn conversion(conversion: &Value, errors: &mut Errors) {
    const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
    let webhook = &conversion["webhook"];
    let (client, field) = (&webhook["clientConfig"], "spec.conversion.webhookClientConfig");
    let (reviews, versions) =
        (&webhook["conversionReviewVersions"], "spec.conversion.conversionReviewVersions");
    let reviewed = reviews.as_array().map(Vec::as_slice).unwrap_or_default();
    one_of("spec.conversion.strategy", text(conversion, "strategy"), &["None", "Webhook"], errors);
    if conversion["strategy"] != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if !client.is_null() {
            errors.forbidden(field, why);
        }
        if !reviewed.is_empty() {
            errors.forbidden(versions, why);
        }
        return;
    }
    if client.is_null() {
        errors.required(field, "required when strategy is set to Webhook");
    } else if client["url"].is_null() == client["service"].is_null() {
        errors.required(field, "exactly one of url or service is required");
    }
    if reviewed.is_empty() {
        errors.required(versions, "");
    } else if !reviewed.iter().any(|version| REVIEWS.iter().any(|known| version == known)) {
        let why = format!("must include at least one of {}", REVIEWS.join(", "));
        errors.invalid(versions, reviews.clone(), why);
    }
}

fn version_names(spec: &Value) -> Vec<String> {
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions.map(|version| text(version, "name").to_owned()).collect()
}

fn own_names(names: &Value, errors: &mut Errors) {
    const FIELDS: [&str; 4] = ["plural", "singular", "kind", "listKind"];
    for field in FIELDS.iter().filter(|field| text(names, field).is_empty()) {
        errors.required(&format!("spec.names.{field}"), "");
    }
    for field in FIELDS.iter().filter(|field| !text(names, field).is_empty()) {
        let name = text(names, field);
        let is_kind = field.to_lowercase().ends_with("kind");
        let wrong = names::dns1035_label(&if is_kind { name.to_lowercase() } else { name.to_owned() });
        if !wrong.is_empty() {
            let before = if is_kind { "may have mixed case, but should otherwise match: " } else { "" };
            errors.invalid(&format!("spec.names.{field}"), name, format!("{before}{}", wrong.join(",")));
        }
    }
    let each = |field: &str, errors: &mut Errors| {
        for (index, name) in texts(&names[field]).iter().enumerate() {
            errors.each_invalid(&format!("spec.names.{field}[{index}]"), name, names::dns1035_label(name));
        }
    };
    each("shortNames", errors);
    if !text(names, "kind").is_empty() && names["kind"] == names["listKind"] {
        errors.invalid(
            "spec.names.listKind",
            text(names, "listKind"),
            "kind and listKind may not be the same",
        );
    }
    each("categories", errors);
}

fn versions(spec: &Value, errors: &mut Errors) {
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    for (index, version) in versions.iter().enumerate() {
        if !version["schema"]["openAPIV3Schema"].is_object() {
            errors.required(&format!("spec.versions[{index}].schema.openAPIV3Schema"), "");
        }
    }
    for (index, version) in versions.iter().enumerate() {
        let (path, name) = (format!("spec.versions[{index}]"), text(version, "name"));
        label(&format!("{path}.name"), name, errors);
        let warning = &version["deprecationWarning"];
        if !warning.is_null() && version["deprecated"] != true {
            let why = "can only be set for deprecated versions";
            errors.invalid(&format!("{path}.deprecationWarning"), warning.clone(), why);
        }
        for (field, _) in PARTS.iter().filter(|(field, _)| !is_common(versions, field)) {
            part(field, version, &format!("{path}.{field}"), errors);
        }
    }
    let names = version_names(spec);
    if names.iter().enumerate().any(|(index, name)| names.iter().take(index).any(|other| other == name)) {
        errors.invalid_shown("spec.versions", &shown(versions), "must contain unique version names");
    }
    if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.invalid_shown("spec.versions", &shown(versions), why);
    }
    // A field of older versions, which has the first name.
    if let Some(first) = names.first().filter(|name| !name.is_empty()) {
        label("spec.version", first, errors);
    }
}

fn label(field: &str, name: &str, errors: &mut Errors) {
    let wrong = names::dns1035_label(name);
    if !wrong.is_empty() {
        errors.invalid(field, name, wrong.join(","));
    }
}

/// The parts of a version, with their names where they stand beside the versions because they are the same in all.
const PARTS: [(&str, &str); 4] = [
    ("schema", "validation"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

fn is_common(versions: &[Value], field: &str) -> bool {
    versions.windows(2).all(|pair| pair[0][field] == pair[1][field])
}

fn common_parts(spec: &Value, errors: &mut Errors) {
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(first) = versions.first() else { return };
    for (field, common) in PARTS.iter().filter(|(field, _)| is_common(versions, field)) {
        part(field, first, &format!("spec.{common}"), errors);
    }
}

fn part(field: &str, version: &Value, path: &str, errors: &mut Errors) {
    match field {
        "schema" => {
            let schema = &version["schema"]["openAPIV3Schema"];
            if schema.is_object() {
                Schema::parse(schema, &format!("{path}.openAPIV3Schema"), errors);
            }
        }
        "subresources" => scale(&version["subresources"]["scale"], &format!("{path}.scale"), errors),
        "additionalPrinterColumns" => columns(version, path, errors),
        _ => selectable(version, path, errors),
    }
}

/// The versions as Go's internal type has them. What is not the same in all of them stands there, too, and not here.
fn shown(versions: &[Value]) -> String {
    if versions.is_empty() {
        return "null".to_owned();
    }
    let each = versions.iter().map(|version| {
        let flag = |field: &str| version[field] == true;
        format!(
            "{{\"Name\":{:?},\"Served\":{},\"Storage\":{},\"Deprecated\":{},\"DeprecationWarning\":{},\"Schema\":null,\
             \"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}}",
            text(version, "name"),
            flag("served"),
            flag("storage"),
            flag("deprecated"),
            version["deprecationWarning"],
        )
    });
    format!("[{}]", each.collect::<Vec<_>>().join(","))
}

/// Fields by which objects can be selected: of the schema, and plain values.
fn selectable(version: &Value, path: &str, errors: &mut Errors) {
    let fields = version["selectableFields"].as_array().into_iter().flatten();
    let mut seen = BTreeSet::new();
    for (index, field) in fields.enumerate() {
        let (found, path) = (text(field, "jsonPath"), format!("{path}[{index}].jsonPath"));
        if found.is_empty() {
            errors.required(&path, "");
            continue;
        }
        if !seen.insert(found) {
            errors.duplicate(&path, found);
            continue;
        }
        if !found.starts_with('.') {
            let start = found.split(['.', '[', ']']).next().unwrap_or_default();
            errors.invalid(&path, found, format!("is an invalid path: expected [ or . but got: {start}"));
            continue;
        }
        let mut at = &version["schema"]["openAPIV3Schema"];
        for part in found.trim_start_matches('.').split('.') {
            at = &at["properties"][part];
        }
        if at.is_null() {
            errors.invalid(&path, found, "is an invalid path: does not refer to a valid field");
        } else if !["string", "boolean", "integer"].contains(&text(at, "type")) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                       formats are allowed.";
            errors.invalid(&path, found, why);
        }
    }
}

fn columns(version: &Value, path: &str, errors: &mut Errors) {
    let columns = version["additionalPrinterColumns"].as_array().into_iter().flatten();
    for (index, column) in columns.enumerate() {
        let path = format!("{path}[{index}]");
        if text(column, "name").is_empty() {
            errors.required(&format!("{path}.name"), "");
        }
        let known = format!("must be one of {}", COLUMN_TYPES.join(","));
        match text(column, "type") {
            "" => errors.required(&format!("{path}.type"), &known),
            kind if !COLUMN_TYPES.contains(&kind) => errors.invalid(&format!("{path}.type"), kind, known),
            _ => {}
        }
        let format = text(column, "format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.invalid(&format!("{path}.format"), format, why);
        }
        let (found, path) = (text(column, "jsonPath"), format!("{path}.JSONPath"));
        match found {
            "" => errors.required(&path, ""),
            found if !found.starts_with('.') => errors.invalid(&path, found, NO_PATH),
            _ => {}
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
        let (found, path) = (text(scale, field), format!("{path}.{field}"));
        let fits = |path: &Path| allowed.iter().any(|first| path.begins_with(first));
        if found.is_empty() {
            if field != "labelSelectorPath" {
                errors.required(&path, "");
            }
        } else if !found.starts_with('.') {
            errors.invalid(&path, found, NO_PATH);
        } else if !Path::parse(found).is_some_and(|path| fits(&path)) {
            let either = if allowed.len() > 1 { "either " } else { "" };
            let why = format!("should be a json path under {either}.{}", allowed.join(" or ."));
            errors.invalid(&path, found, why);
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::validate::update;

    #[test]
    fn a_warning_needs_a_deprecated_version_and_a_field_is_selected_once() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                             "deprecationWarning": "x", "selectableFields": [{"jsonPath": ".a"}, {"jsonPath": ".a"}]});
        let mut errors = Errors::default();
        versions(&json!({"versions": [version]}), &mut errors);
        common_parts(&json!({"versions": [version]}), &mut errors);
        assert_eq!(
            errors.into_vec().iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                "spec.versions[0].deprecationWarning: Invalid value: \"x\": can only be set for deprecated versions",
                "spec.selectableFields[1].jsonPath: Duplicate value: \".a\"",
            ]
        );
    }

    #[test]
    fn a_definition_keeps_its_names_and_the_versions_that_are_stored() {
        let definition = |group: &str, plural: &str, version: &str| {
            let schema = json!({"openAPIV3Schema": {"type": "object"}});
            let version = json!({"name": version, "served": true, "storage": true, "schema": schema});
            let names = json!({"kind": "Wid", "listKind": "WidList", "plural": plural, "singular": "wid"});
            let spec = json!({"group": group, "names": names, "scope": "Cluster", "versions": [version]});
            json!({"metadata": {"name": "wids.example.com"}, "spec": spec, "status": {"storedVersions": ["v1"]}})
        };
        let check = |new: &Value, expected: &str| {
            let errors = update("CustomResourceDefinition", new, &definition("example.com", "wids", "v1"));
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), [expected]);
        };
        check(
            &definition("example.com", "widz", "v1"),
            "spec.names.plural: Invalid value: \"widz\": field is immutable",
        );
        check(
            &definition("foo.com", "wids", "v1"),
            "spec.group: Invalid value: \"foo.com\": field is immutable",
        );
        check(
            &definition("example.com", "wids", "v2"),
            "status.storedVersions[0]: Invalid value: \"v1\": missing from spec.versions; v1 was previously a storage version, and must \
             remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from \
             status.storedVersions",
        );
    }
}
