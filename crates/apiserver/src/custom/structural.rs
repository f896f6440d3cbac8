//! How the parts of a schema fit together (upstream: `ValidateCustomResourceDefinitionOpenAPISchema` and
//! `ValidateStructural` of apiextensions-apiserver).

use serde_json::Value;

use super::schema::{Schema, Type, texts};
use crate::validate::Errors;

/// The only fields of metadata that a schema can describe: the server knows the others.
const DESCRIBED_METADATA: [&str; 2] = ["name", "generateName"];

const PRESERVES: &str = "x-kubernetes-preserve-unknown-fields";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const MAP_TYPE: &str = "x-kubernetes-map-type";
const LIST_TYPE: &str = "x-kubernetes-list-type";
const MAP_KEYS: &str = "x-kubernetes-list-map-keys";

/// Adds what is wrong with one schema; those within it are judged by themselves.
pub(super) fn check(schema: &Value, path: &str, is_root: bool, errors: &mut Errors) {
    additional_properties(schema, path, errors);
    if schema[PRESERVES] == false {
        errors.invalid(&format!("{path}.{PRESERVES}"), false, "must be true or undefined");
    }
    if let Some(kind) = schema[MAP_TYPE].as_str() {
        has_type("object", MAP_TYPE, schema, path, errors);
        if !["atomic", "granular"].contains(&kind) {
            errors.not_supported(&format!("{path}.{MAP_TYPE}"), kind, &["atomic", "granular"]);
        }
    }
    list(schema, path, errors);
    let is_embedded = schema[EMBEDDED] == true;
    if is_embedded && schema[PRESERVES] != true && names(schema).next().is_none() {
        let why = format!("must not be empty if {EMBEDDED} is true without {PRESERVES}");
        errors.required(&format!("{path}.properties"), &why);
    }
    if is_root || is_embedded {
        object_of_the_api(schema, path, errors);
    }
    let metadata = &schema["properties"]["metadata"];
    if is_root && metadata.is_object() && says_too_much(metadata) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        errors.forbidden(&format!("{path}.properties[metadata]"), why);
    }
}

/// Unknown fields beside known ones are pruned, so a schema for them would have no effect. `true` says nothing.
fn additional_properties(schema: &Value, path: &str, errors: &mut Errors) {
    let (field, additional) = (format!("{path}.additionalProperties"), &schema["additionalProperties"]);
    let restricts = *additional == false || additional.is_object();
    if restricts && names(schema).next().is_some() {
        // The grammar is upstream's.
        errors.forbidden(&field, "additionalProperties and properties are mutual exclusive");
    }
}

fn list(schema: &Value, path: &str, errors: &mut Errors) {
    let Some(kind) = schema[LIST_TYPE].as_str() else { return };
    has_type("array", LIST_TYPE, schema, path, errors);
    if schema["type"] != "array" {
        return;
    }
    match kind {
        "set" => item_of_a_set(&schema["items"], &format!("{path}.items"), errors),
        "map" => keys(schema, path, errors),
        _ => {}
    }
}

/// The items of a set are compared as a whole.
fn item_of_a_set(item: &Value, path: &str, errors: &mut Errors) {
    let field = match item["type"].as_str() {
        Some("array") if item[LIST_TYPE].as_str().is_some_and(|kind| kind != "atomic") => LIST_TYPE,
        Some("object") if item[MAP_TYPE] != "atomic" => MAP_TYPE,
        _ => return,
    };
    // Upstream shows the list type, also where the map type is wrong.
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    errors.invalid(&format!("{path}.{field}"), item[LIST_TYPE].clone(), why);
}

/// An item of a map has all its keys.
fn keys(schema: &Value, path: &str, errors: &mut Errors) {
    let item = &schema["items"];
    let required = texts(&item["required"]);
    for key in texts(&schema["x-kubernetes-list-map-keys"]) {
        let property = &item["properties"][&key];
        if property.is_object() && property["default"].is_null() && !required.contains(&key) {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                       property";
            errors.required(&format!("{path}.items.properties[{key}].default"), why);
        }
    }
}

/// The keys of a list of the type `map` are properties of its items, and can be compared.
pub(super) fn keys_of_items(list: &Value, item: &Schema, path: &str, errors: &mut Errors) {
    if item.kind != Some(Type::Object) {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        errors.invalid(&format!("{path}.items.type"), item.kind.map_or("", Type::name), why);
        return;
    }
    let (keys, field) = (texts(&list[MAP_KEYS]), format!("{path}.{MAP_KEYS}"));
    for (index, key) in keys.iter().enumerate() {
        match item.properties.get(key).map(|property| property.kind) {
            None => errors.invalid(&field, keys.clone(), "entries must all be names of item properties"),
            Some(Some(Type::Array | Type::Object)) => {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                // Upstream shows the type of the item.
                errors.invalid(&format!("{path}.items.properties[{key}].type"), "object", why);
            }
            Some(_) => {}
        }
        if keys[..index].contains(key) {
            errors.invalid(&field, keys.clone(), "must not contain duplicate entries");
        }
    }
}

fn has_type(wanted: &str, keyword: &str, schema: &Value, path: &str, errors: &mut Errors) {
    let (field, why) = (format!("{path}.type"), format!("must be {wanted} if {keyword} is specified"));
    match schema["type"].as_str().unwrap_or_default() {
        "" => errors.required(&field, &why),
        kind if kind != wanted => errors.invalid(&field, kind, why),
        _ => {}
    }
}

/// Type and metadata of an object have the types that they have in every object.
fn object_of_the_api(schema: &Value, path: &str, errors: &mut Errors) {
    for (name, wanted) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let property = &schema["properties"][name];
        let kind = property["type"].as_str().unwrap_or_default();
        if property.is_object() && kind != wanted {
            errors.invalid(&format!("{path}.properties[{name}].type"), kind, format!("must be {wanted}"));
        }
    }
}

/// Whether a schema of metadata restricts more than the names. What Go does not tell from "absent" restricts nothing.
fn says_too_much(metadata: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(it) => !it,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Number(_) => false,
    };
    let others = metadata.as_object().into_iter().flatten().filter(|(keyword, value)| {
        !["type", "default", "properties"].contains(&keyword.as_str()) && !is_empty(value)
    });
    others.count() > 0 || names(metadata).any(|name| !DESCRIBED_METADATA.contains(&name))
}

/// The names of the properties.
fn names(schema: &Value) -> impl Iterator<Item = &str> {
    schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::schema::Schema;
    use super::*;

    #[track_caller]
    fn check_schema(properties: Value, expected: &[&str]) {
        let mut errors = Errors::default();
        Schema::parse(&json!({"type": "object", "properties": properties}), "s", &mut errors);
        let said: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        let said: Vec<&str> = said.iter().filter_map(|error| error.strip_prefix("s.properties")).collect();
        assert_eq!(said, expected);
    }

    #[test]
    fn further_properties_beside_known_ones_may_be_anything_but_not_described_or_refused() {
        let with = |additional: Value| {
            let known = json!({"b": {"type": "string"}});
            json!({"a": {"type": "object", "properties": known, "additionalProperties": additional}})
        };
        check_schema(with(json!(true)), &[]);
        let exclusive =
            "[a].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive";
        check_schema(with(json!({"type": "string"})), &[exclusive]);
        check_schema(with(json!(false)), &[exclusive]);
    }

    #[test]
    fn unknown_fields_are_preserved_or_nothing_is_said_of_them() {
        let expected =
            "[a].x-kubernetes-preserve-unknown-fields: Invalid value: false: must be true or undefined";
        check_schema(json!({"a": {"type": "object", PRESERVES: false}}), &[expected]);
    }

    #[test]
    fn the_items_of_a_set_are_atomic() {
        let with = |item: Value| json!({"a": {"type": "array", LIST_TYPE: "set", "items": item}});
        let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let expected = format!("[a].items.x-kubernetes-map-type: Invalid value: null: {why}");
        check_schema(with(json!({"type": "object"})), &[&expected]);
        check_schema(with(json!({"type": "object", MAP_TYPE: "atomic"})), &[]);
        check_schema(with(json!({"type": "string"})), &[]);
        let list = json!({"type": "array", LIST_TYPE: "set", "items": {"type": "string"}});
        let expected = format!("[a].items.x-kubernetes-list-type: Invalid value: \"set\": {why}");
        check_schema(with(list), &[&expected]);
    }

    #[test]
    fn an_item_of_a_map_always_has_its_key() {
        let with = |key: Value, required: Value| {
            let item = json!({"type": "object", "properties": {"k": key}, "required": required});
            json!({"a": {"type": "array", LIST_TYPE: "map", "x-kubernetes-list-map-keys": ["k"], "items": item}})
        };
        let expected = "[a].items.properties[k].default: Required value: this property is in \
                        x-kubernetes-list-map-keys, so it must have a default or be a required property";
        check_schema(with(json!({"type": "string"}), json!([])), &[expected]);
        check_schema(with(json!({"type": "string"}), json!(["k"])), &[]);
        check_schema(with(json!({"type": "string", "default": "x"}), json!([])), &[]);
    }

    #[test]
    fn the_keys_of_a_map_are_scalar_properties_of_its_items() {
        let with = |keys: Value, item: Value| json!({"a": {"type": "array", LIST_TYPE: "map", MAP_KEYS: keys, "items": item}});
        let item = |key: Value| json!({"type": "object", "properties": {"k": key}, "required": ["k"]});
        let scalar = json!({"type": "string"});
        check_schema(with(json!(["k"]), item(scalar.clone())), &[]);
        let list = json!({"type": "array", "items": scalar});
        check_schema(
            with(json!(["k", "k", "z"]), item(list)),
            &[
                "[a].items.properties[k].type: Invalid value: \"object\": must be a scalar type if parent array's \
                 x-kubernetes-list-type is map",
                "[a].items.properties[k].type: Invalid value: \"object\": must be a scalar type if parent array's \
                 x-kubernetes-list-type is map",
                "[a].x-kubernetes-list-map-keys: Invalid value: [\"k\",\"k\",\"z\"]: must not contain duplicate entries",
                "[a].x-kubernetes-list-map-keys: Invalid value: [\"k\",\"k\",\"z\"]: entries must all be names of item \
                 properties",
            ],
        );
        check_schema(
            with(json!(["k"]), scalar),
            &[
                "[a].items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is map",
            ],
        );
    }

    #[test]
    fn a_type_that_nobody_knows_is_refused_once() {
        let kinds = "\"array\", \"boolean\", \"integer\", \"number\", \"object\", \"string\"";
        let expected = format!("[a].type: Unsupported value: \"foo\": supported values: {kinds}");
        check_schema(json!({"a": {"type": "foo"}}), &[&expected]);
    }

    #[test]
    fn the_type_of_a_list_or_a_map_is_known_and_of_the_right_type() {
        check_schema(
            json!({"a": {"type": "string", LIST_TYPE: "set"}}),
            &["[a].type: Invalid value: \"string\": must be array if x-kubernetes-list-type is specified"],
        );
        check_schema(
            json!({"a": {"type": "object", MAP_TYPE: "foo"}}),
            &[
                "[a].x-kubernetes-map-type: Unsupported value: \"foo\": supported values: \"atomic\", \"granular\"",
            ],
        );
    }

    #[test]
    fn an_embedded_object_has_properties_unless_it_keeps_what_is_unknown() {
        let expected = "[a].properties: Required value: must not be empty if x-kubernetes-embedded-resource is true \
                        without x-kubernetes-preserve-unknown-fields";
        check_schema(json!({"a": {"type": "object", EMBEDDED: true}}), &[expected]);
        check_schema(json!({"a": {"type": "object", EMBEDDED: true, PRESERVES: true}}), &[]);
    }

    #[test]
    fn type_and_metadata_are_described_as_they_are() {
        let usual = json!({
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}},
        });
        check_schema(usual, &[]);
        let labels = json!({"labels": {"type": "object"}});
        check_schema(
            json!({"metadata": {"type": "object", "properties": labels}}),
            &[
                "[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is \
               implicitly specified",
            ],
        );
        let wrong = json!({"apiVersion": {"type": "integer"}, "metadata": {"type": "string"}});
        check_schema(
            wrong,
            &[
                "[apiVersion].type: Invalid value: \"integer\": must be string",
                "[metadata].type: Invalid value: \"string\": must be object",
            ],
        );
    }
}
