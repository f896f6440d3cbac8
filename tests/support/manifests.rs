//! The manifests that ship, as objects.

use serde::Deserialize;
use serde_json::Value;

/// The objects in a text of YAML documents.
pub fn objects(text: &str) -> Vec<Value> {
    let documents =
        serde_yaml::Deserializer::from_str(text).map(|object| Value::deserialize(object).unwrap());
    documents.filter(|object| !object.is_null()).collect()
}

/// Those of a file of this repository.
pub fn file(path: &str) -> Vec<Value> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    objects(&text)
}

/// The path that takes new objects of this kind.
pub fn collection(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]).to_lowercase());
    let plural = kind.strip_suffix('y').map_or(format!("{kind}s"), |stem| format!("{stem}ies"));
    let root = if version.contains('/') { "apis" } else { "api" };
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => format!("/{root}/{version}/namespaces/{namespace}/{plural}"),
        None => format!("/{root}/{version}/{plural}"),
    }
}
