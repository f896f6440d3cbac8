//! OpenAPI v3 documents: the paths and the schemas of the served kinds, with the descriptions of their fields.
//!
//! kubectl looks in them for three things. `kubectl explain` shows the schemas. It reads the `fieldValidation` parameter of a kind's PATCH
//! to learn that the server validates fields itself (cli-runtime `query_param_verifier_v3.go`); without
//! it kubectl would validate on its own. And it looks whether PATCH takes a
//! strategic merge patch (kubectl `cmd/apply/patcher.go`): if the document said so, kubectl would want
//! the merge keys from the schemas, which these have not, so we do not say it and kubectl uses the keys built into it.

use std::collections::BTreeSet;

pub(crate) mod custom;
pub(crate) mod schemas;

use serde_json::{Map, Value, json};

/// One served resource of a group and version.
#[derive(Clone, Copy, Debug)]
pub struct Resource<'a> {
    /// Such as `Deployment`.
    pub kind: &'a str,
    /// The name in paths, such as `deployments`.
    pub plural: &'a str,
    /// Whether the resource lives in namespaces.
    pub namespaced: bool,
    /// Subresources that can be read and patched: `status`, `scale`.
    pub subresources: &'a [&'a str],
}

/// How a client asks for the older document in protobuf, and the type that it gets.
pub(crate) const V2_ACCEPTED: &str = "application/com.github.proto-openapi.spec.v2";
pub(crate) const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
/// A document with nothing but its version: field 1 is "2.0".
pub(crate) const V2_EMPTY: &[u8] = b"\n\x032.0";

/// The document at `/openapi/v2`, which describes no kind. kubectl reads it for kinds that the newer documents lack, and for
/// `kind: List`; it skips a kind that this one lacks too, and lets the server judge. Without the document it refuses the
/// whole file.
pub fn v2() -> Value {
    let info = json!({"title": "Windlass sandbox", "version": env!("CARGO_PKG_VERSION")});
    json!({"swagger": "2.0", "info": info, "paths": {}})
}

/// The document at `/openapi/v3`: where the documents of the given groups and versions are.
///
/// The core group has the empty name.
pub fn index(group_versions: &[(&str, &str)]) -> Value {
    let paths: Map<String, Value> = group_versions
        .iter()
        .map(|(group, version)| {
            let path = group_version_path(group, version);
            // The documents of one build never change, so the build's version is hash enough.
            let url = format!("/openapi/v3/{path}?hash={}", env!("CARGO_PKG_VERSION"));
            (path, json!({ "serverRelativeURL": url }))
        })
        .collect();
    json!({ "paths": paths })
}

/// The document at `/openapi/v3/apis/<group>/<version>`, or `/openapi/v3/api/<version>` for core.
pub fn document(group: &str, version: &str, resources: &[Resource<'_>]) -> Value {
    let prefix = format!("/{}", group_version_path(group, version));
    let mut paths = Map::new();
    let mut kinds = BTreeSet::new();
    for resource in resources {
        let base = if resource.namespaced {
            format!("{prefix}/namespaces/{{namespace}}/{}", resource.plural)
        } else {
            format!("{prefix}/{}", resource.plural)
        };
        let gvk = json!({"group": group, "version": version, "kind": resource.kind});
        kinds.insert(resource.kind);
        if resource.namespaced {
            let everywhere = format!("{prefix}/{}", resource.plural);
            paths.insert(everywhere, json!({"get": operation("list", resource.kind, &gvk)}));
        }
        let mut collection = Map::new();
        collection.insert("get".into(), operation("list", resource.kind, &gvk));
        collection.insert("post".into(), operation("post", resource.kind, &gvk));
        collection.insert("delete".into(), operation("deletecollection", resource.kind, &gvk));
        paths.insert(base.clone(), Value::Object(collection));

        let mut item = item_operations(resource.kind, &gvk);
        item.insert("delete".into(), operation("delete", resource.kind, &gvk));
        item.insert("parameters".into(), path_parameters(resource.namespaced));
        paths.insert(format!("{base}/{{name}}"), Value::Object(item));

        for subresource in resource.subresources {
            // A scale is a kind of its own; under the Deployment's name kubectl would mistake it for one.
            let (kind, gvk) = match *subresource {
                "scale" => ("Scale", json!({"group": "autoscaling", "version": "v1", "kind": "Scale"})),
                _ => (resource.kind, gvk.clone()),
            };
            let mut item = item_operations(kind, &gvk);
            item.insert("parameters".into(), path_parameters(resource.namespaced));
            paths.insert(format!("{base}/{{name}}/{subresource}"), Value::Object(item));
        }
    }
    let schemas = schemas::of(group, version, &kinds);
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Windlass sandbox", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {"schemas": schemas},
    })
}

fn group_version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn item_operations(kind: &str, gvk: &Value) -> Map<String, Value> {
    [("get", "get"), ("put", "put"), ("patch", "patch")]
        .into_iter()
        .map(|(method, action)| (method.to_owned(), operation(action, kind, gvk)))
        .collect()
}

fn operation(action: &str, kind: &str, gvk: &Value) -> Value {
    let mut operation = json!({
        "operationId": format!("{action}{kind}"),
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": gvk,
    });
    let content = match action {
        "post" | "put" => json!({"application/json": {"schema": {"type": "object"}}}),
        "patch" => json!({
            "application/json-patch+json": {"schema": {"type": "array", "items": {"type": "object"}}},
            "application/merge-patch+json": {"schema": {"type": "object"}},
            "application/apply-patch+yaml": {"schema": {"type": "object"}},
        }),
        _ => return operation,
    };
    operation["requestBody"] = json!({"content": content, "required": true});
    operation["parameters"] = ["dryRun", "fieldManager", "fieldValidation"]
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
        .into();
    operation
}

fn path_parameters(namespaced: bool) -> Value {
    let names: &[&str] = if namespaced { &["name", "namespace"] } else { &["name"] };
    names
        .iter()
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apps() -> Value {
        let deployments = Resource {
            kind: "Deployment",
            plural: "deployments",
            namespaced: true,
            subresources: &["status", "scale"],
        };
        document("apps", "v1", &[deployments])
    }

    #[test]
    fn the_index_leads_to_each_group_version() {
        let index = index(&[("", "v1"), ("apps", "v1")]);
        let url = |path: &str| index["paths"][path]["serverRelativeURL"].as_str().unwrap().to_owned();
        assert!(url("api/v1").starts_with("/openapi/v3/api/v1?hash="));
        assert!(url("apis/apps/v1").starts_with("/openapi/v3/apis/apps/v1?hash="));
    }

    #[test]
    fn every_patch_of_a_kind_offers_field_validation() {
        // kubectl looks at whichever path comes first in a Go map, hence every one must say it.
        let document = apps();
        let mut seen = 0;
        for operations in document["paths"].as_object().unwrap().values() {
            let Some(patch) = operations.get("patch") else { continue };
            seen += 1;
            let parameters = patch["parameters"].as_array().unwrap();
            assert!(parameters.iter().any(|p| p["name"] == "fieldValidation" && p["in"] == "query"));
            let content = patch["requestBody"]["content"].as_object().unwrap();
            assert!(!content.contains_key("application/strategic-merge-patch+json"));
        }
        assert_eq!(seen, 3);
    }

    #[test]
    fn a_scale_is_not_announced_as_its_owner() {
        let paths = &apps()["paths"];
        let base = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}";
        let gvk = |path: &str| paths[path]["patch"]["x-kubernetes-group-version-kind"]["kind"].clone();
        assert_eq!(gvk(base), "Deployment");
        assert_eq!(gvk(&format!("{base}/status")), "Deployment");
        assert_eq!(gvk(&format!("{base}/scale")), "Scale");
    }
}
