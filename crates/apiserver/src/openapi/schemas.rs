//! The schemas of the served kinds, from the types that requests are decoded with.

mod choices;
mod release;

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::kinds;

/// Every schema that the given kinds need, by name.
pub(super) fn of(group: &str, version: &str, kinds: &BTreeSet<&str>) -> Map<String, Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let names: Vec<(String, &str)> =
        kinds.iter().filter_map(|kind| Some((add(group, version, kind, &mut generator)?, *kind))).collect();
    let mut schemas = generator.take_definitions(true);
    for (name, schema) in &mut schemas {
        wrap_references(schema);
        choices::add(name, schema);
        release::amend(name, schema);
    }
    for (name, kind) in names {
        if let Some(Value::Object(schema)) = schemas.get_mut(&name) {
            let gvk = json!([{"group": group, "version": version, "kind": kind}]);
            schema.insert("x-kubernetes-group-version-kind".to_owned(), gvk);
        }
    }
    schemas
}

/// A reference to the schema of metadata, and the schemas that it needs.
pub(super) fn metadata() -> (Value, Map<String, Value>) {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let reference = generator.subschema_for::<ObjectMeta>();
    let mut schemas = generator.take_definitions(true);
    schemas.values_mut().for_each(wrap_references);
    (reference.into(), schemas)
}

/// Adds the schema of a built-in kind; its name.
fn add(group: &str, version: &str, kind: &str, generator: &mut SchemaGenerator) -> Option<String> {
    let row = kinds::all().find(|row| (row.group, row.version, row.kind) == (group, version, kind))?;
    Some((row.schema)(generator))
}

/// In OpenAPI 3.0 nothing may stand beside a `$ref`; a description there needs an `allOf` around the reference.
fn wrap_references(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            if map.len() > 1 && map.get("$ref").is_some_and(Value::is_string) {
                let reference = map.remove("$ref");
                map.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
            }
            map.values_mut().for_each(wrap_references);
        }
        Value::Array(items) => items.iter_mut().for_each(wrap_references),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_served_kind_has_a_schema_with_descriptions() {
        for row in kinds::all() {
            let schemas = of(row.group, row.version, &BTreeSet::from([row.kind]));
            let is_kind = |schema: &&Value| schema["x-kubernetes-group-version-kind"][0]["kind"] == row.kind;
            let schema =
                schemas.values().find(is_kind).unwrap_or_else(|| panic!("{} {}", row.group, row.kind));
            assert!(schema["description"].is_string(), "{}", row.kind);
            assert!(schema["properties"]["metadata"].is_object(), "{}", row.kind);
        }
    }

    #[test]
    fn what_is_required_is_so_in_a_server_of_1_36() {
        let schemas = of("apps", "v1", &BTreeSet::from(["Deployment", "ControllerRevision"]));
        let required = |name: &str| schemas[name]["required"].clone();
        assert_eq!(required("io.k8s.api.apps.v1.Deployment"), Value::Null);
        assert_eq!(required("io.k8s.api.apps.v1.DeploymentSpec"), json!(["selector", "template"]));
        assert_eq!(required("io.k8s.api.apps.v1.DeploymentCondition"), json!(["status", "type"]));
        assert_eq!(required("io.k8s.api.apps.v1.ControllerRevision"), json!(["revision"]));
        assert_eq!(required("io.k8s.api.core.v1.LocalObjectReference"), Value::Null);
        assert_eq!(schemas["io.k8s.api.core.v1.HTTPGetAction"]["properties"]["protocol"], Value::Null);
        let core = of("", "v1", &BTreeSet::from(["Event"]));
        assert_eq!(core["io.k8s.api.core.v1.Event"]["required"], json!(["involvedObject", "metadata"]));
    }

    #[test]
    fn no_reference_leads_nowhere_or_has_anything_beside_it() {
        fn check(schema: &Value, schemas: &Map<String, Value>) {
            if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
                assert_eq!(schema.as_object().map(Map::len), Some(1), "{schema}");
                let name = reference.strip_prefix("#/components/schemas/").unwrap();
                assert!(schemas.contains_key(name), "{reference}");
            }
            match schema {
                Value::Object(map) => map.values().for_each(|value| check(value, schemas)),
                Value::Array(items) => items.iter().for_each(|value| check(value, schemas)),
                _ => {}
            }
        }
        let schemas = of("apps", "v1", &BTreeSet::from(["DaemonSet", "Deployment"]));
        assert!(schemas.len() > 100);
        schemas.values().for_each(|schema| check(schema, &schemas));
    }
}
