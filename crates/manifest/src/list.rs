//! From documents to objects.

use std::fmt;

use serde_json::Value;

/// The origin of an object: a source, a document counted from 1, and, in lists, the items counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    source: String,
    document: usize,
    /// Such as `2`, or `2.1` for the first item of a list that is the second.
    item: Option<Box<str>>,
}

impl Origin {
    /// The document with this index, counted from 0, of a source.
    pub fn new(source: &str, index: usize) -> Self {
        Origin { source: source.to_owned(), document: index + 1, item: None }
    }

    fn item(&self, index: usize) -> Self {
        let number = index + 1;
        let item = match &self.item {
            Some(outer) => format!("{outer}.{number}"),
            None => number.to_string(),
        };
        Origin { item: Some(item.into()), ..self.clone() }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: document {}", self.source, self.document)?;
        match &self.item {
            Some(item) => write!(f, ", item {item}"),
            None => Ok(()),
        }
    }
}

/// An object of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct ManifestObject {
    /// Where it was found.
    pub origin: Origin,
    /// The object.
    pub body: Value,
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its `kind`.
    pub kind: String,
}

/// Why a document, or an item of a list in it, is no object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin}: {problem}")]
pub struct Defect {
    /// Where it was found.
    pub origin: Origin,
    /// In words.
    pub problem: String,
}

/// Returns the objects of a document: none of an empty one, the document itself, or the items of a list, nested lists included. As for kubectl,
/// every object with an array `items` is a list. Items without kind and apiVersion inherit them from a typed list such as
/// a `DeploymentList`.
pub fn expand(origin: &Origin, document: Value) -> Vec<Result<ManifestObject, Defect>> {
    let mut all = Vec::new();
    if !document.is_null() {
        collect(origin.clone(), document, &mut all);
    }
    all
}

fn collect(origin: Origin, mut value: Value, all: &mut Vec<Result<ManifestObject, Defect>>) {
    let types = type_field(&value, "kind").and_then(|kind| Ok((kind, type_field(&value, "apiVersion")?)));
    let (kind, api_version) = match types {
        Ok((_, version)) if version.matches('/').count() > 1 => {
            let problem = format!("apiVersion {version:?} is neither a version nor a group and a version");
            return all.push(Err(Defect { origin, problem }));
        }
        Ok(types) => types,
        Err(problem) => return all.push(Err(Defect { origin, problem })),
    };
    let items = match value.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ if kind == "List" => {
            let problem = "items is missing: a List needs a list of items".to_owned();
            return all.push(Err(Defect { origin, problem }));
        }
        other => {
            if let Some(items) = other {
                value["items"] = items;
            }
            return all.push(Ok(ManifestObject { origin, body: value, api_version, kind }));
        }
    };
    let of_list = kind.strip_suffix("List").filter(|kind| !kind.is_empty());
    for (index, mut item) in items.into_iter().enumerate() {
        if let (Some(kind), Some(item)) = (of_list, item.as_object_mut())
            && ["kind", "apiVersion"].iter().all(|field| item.get(*field).is_none_or(Value::is_null))
        {
            item.insert("kind".to_owned(), kind.into());
            item.insert("apiVersion".to_owned(), api_version.as_str().into());
        }
        collect(origin.item(index), item, all);
    }
}

fn type_field(value: &Value, field: &str) -> Result<String, String> {
    let Some(map) = value.as_object() else {
        return Err("not an object: a manifest is a mapping with apiVersion, kind and metadata".to_owned());
    };
    match map.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.clone()),
        Some(Value::String(_)) | Some(Value::Null) | None => Err(format!("{field} is missing")),
        Some(_) => Err(format!("{field} must be a string")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn found(document: Value) -> Vec<String> {
        let name = |body: &Value| body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let shown = |object: Result<ManifestObject, Defect>| match object {
            Ok(ManifestObject { origin, body, api_version, kind }) => {
                format!("{origin}: {api_version} {kind} {}", name(&body))
            }
            Err(defect) => format!("error {defect}"),
        };
        expand(&Origin::new("a.yaml", 2), document).into_iter().map(shown).collect()
    }

    #[test]
    fn lists_in_lists_become_their_items_in_order() {
        let map = |name: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        let list = |items: Value| json!({"apiVersion": "v1", "kind": "List", "items": items});
        assert_eq!(
            found(list(json!([map("a"), list(json!([map("b"), 7])), map("c")]))),
            [
                "a.yaml: document 3, item 1: v1 ConfigMap a",
                "a.yaml: document 3, item 2.1: v1 ConfigMap b",
                "error a.yaml: document 3, item 2.2: not an object: a manifest is a mapping with apiVersion, kind and \
             metadata",
                "a.yaml: document 3, item 3: v1 ConfigMap c",
            ]
        );
        assert!(found(list(json!([]))).is_empty());
        let error = "error a.yaml: document 3: items is missing: a List needs a list of items";
        assert_eq!([list(Value::Null), list(json!({"a": 1}))].map(found), [[error], [error]]);
    }

    #[test]
    fn items_of_a_typed_list_inherit_kind_and_version_only_together() {
        let items =
            json!([{"metadata": {"name": "a"}}, {"kind": "Pod"}, {"apiVersion": "v1", "kind": "Pod"}]);
        assert_eq!(
            found(json!({"apiVersion": "apps/v1", "kind": "DeploymentList", "items": items})),
            [
                "a.yaml: document 3, item 1: apps/v1 Deployment a",
                "error a.yaml: document 3, item 2: apiVersion is missing",
                "a.yaml: document 3, item 3: v1 Pod ",
            ]
        );
    }

    #[test]
    fn anything_with_a_list_of_items_is_a_list_and_nothing_else_is() {
        let strange = json!({"apiVersion": "v1", "kind": "ConfigMap",
                             "items": [{"apiVersion": "v1", "kind": "Pod"}]});
        assert_eq!(found(strange), ["a.yaml: document 3, item 1: v1 Pod "]);
        let own = json!({"apiVersion": "x/v1", "kind": "Bag", "items": {"a": 1}});
        let object = expand(&Origin::new("-", 0), own.clone()).remove(0).unwrap();
        assert_eq!(object.body, own);
    }

    #[test]
    fn kind_and_version_are_strings() {
        assert_eq!(found(json!({"kind": "Pod"})), ["error a.yaml: document 3: apiVersion is missing"]);
        let two = found(json!({"kind": "Pod", "apiVersion": "a/b/c"}));
        assert!(two[0].contains("\"a/b/c\" is neither a version nor"), "{two:?}");
        assert_eq!(found(json!({"kind": 1})), ["error a.yaml: document 3: kind must be a string"]);
        assert_eq!(
            found(json!({"kind": "", "apiVersion": "v1"})),
            ["error a.yaml: document 3: kind is missing"]
        );
    }
}
