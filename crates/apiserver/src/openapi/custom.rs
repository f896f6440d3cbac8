//! The schemas of custom kinds in the documents.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use super::schemas;
use crate::kinds::Kind;
use crate::registry::Registry;

/// Adds the schemas of the custom ones of these kinds to their document.
pub(crate) fn add(document: &mut Value, rows: &[&'static Kind]) {
    for row in rows {
        let Some(custom) = row.custom else { continue };
        let (reference, definitions) = schemas::metadata();
        let Some(Value::Object(all)) = document.pointer_mut("/components/schemas") else { return };
        all.extend(definitions);
        let mut schema = custom.document.clone();
        if !schema["properties"].is_object() {
            schema["properties"] = json!({});
        }
        let text = |description: &str| json!({"type": "string", "description": description});
        schema["properties"]["apiVersion"] = text("The version of the schema of this object.");
        schema["properties"]["kind"] = text("The kind of this object.");
        schema["properties"]["metadata"] =
            json!({"allOf": [reference], "description": "Name, labels, owners and other metadata."});
        schema["x-kubernetes-group-version-kind"] =
            json!([{"group": row.group, "version": row.version, "kind": row.kind}]);
        let mut name: Vec<&str> = row.group.split('.').rev().collect();
        name.extend([row.version, row.kind]);
        all.insert(name.join("."), schema);
    }
}

/// Gives the documents of custom kinds a hash of their own in the index: they change with the definitions.
pub(crate) fn rehash(index: &mut Value, registry: &Registry) {
    for (group, versions) in registry.groups() {
        for version in versions {
            let rows: Vec<_> = registry.of_group(group, version).filter_map(|row| row.custom).collect();
            if rows.is_empty() {
                continue;
            }
            let mut hasher = DefaultHasher::new();
            for custom in rows {
                (custom.document.to_string(), &custom.list_kind).hash(&mut hasher);
            }
            let path = super::group_version_path(group, version);
            let url = format!("/openapi/v3/{path}?hash={:016X}", hasher.finish());
            if let Some(paths) = index["paths"].as_object_mut() {
                paths.insert(
                    path,
                    Value::Object(Map::from_iter([("serverRelativeURL".to_owned(), url.into())])),
                );
            }
        }
    }
}
