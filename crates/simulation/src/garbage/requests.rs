//! The paths and the references that users send.

use serde_json::{Value, json};

use super::scenario::Reference;
use super::truth::{KINDS, api_version};
use crate::engine::objects::text;

/// The path of the objects of a kind in a namespace.
pub(super) fn collection(kind: usize, namespace: &str) -> String {
    let (kind, plural, namespaced) = KINDS[kind];
    let version = api_version(kind);
    let root = if version.contains('/') { format!("/apis/{version}") } else { format!("/api/{version}") };
    if namespaced { format!("{root}/namespaces/{namespace}/{plural}") } else { format!("{root}/{plural}") }
}

/// The path of an object.
pub(super) fn path(object: &Value) -> String {
    let kind = KINDS.iter().position(|(kind, ..)| object["kind"] == *kind).unwrap_or_default();
    format!("{}/{}", collection(kind, text(object, "/metadata/namespace")), text(object, "/metadata/name"))
}

/// A reference to an owner.
pub(super) fn reference(owner: &Value, how: Reference) -> Value {
    let mut reference = json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
    });
    match how {
        Reference::Right => {}
        Reference::Blocking => reference["blockOwnerDeletion"] = true.into(),
        Reference::OtherName => reference["name"] = "x-nobody".into(),
        Reference::OtherKind => {
            let (kind, ..) = KINDS.iter().find(|(kind, ..)| owner["kind"] != *kind).unwrap_or(&KINDS[0]);
            (reference["kind"], reference["apiVersion"]) = ((*kind).into(), api_version(kind).into());
        }
        Reference::UnknownKind => {
            (reference["kind"], reference["apiVersion"]) = ("Thing".into(), "example.com/v1".into());
        }
        Reference::Invented => reference["uid"] = "99999999-9999-4999-8999-999999999999".into(),
        Reference::NoUuid => reference["uid"] = format!("no-uuid-{}", text(owner, "/metadata/name")).into(),
    }
    reference
}
