//! Reads Deployments, ReplicaSets and pods.

use serde_json::Value;

use crate::engine::objects::Picture;

/// The objects of a resource.
pub fn objects<'a>(picture: &'a Picture, resource: &str) -> impl Iterator<Item = &'a Value> {
    picture.get(resource).into_iter().flat_map(|all| all.values()).map(|object| &**object)
}

/// Stands for the UID of a controller whose kind does not control objects of that kind here.
pub const ANOTHER: &str = "another kind of owner";

/// The UID of the controller of an object, "" if it has none, or [`ANOTHER`]. Pods belong to ReplicaSets and
/// ReplicaSets to Deployments, by API group, kind and UID; a patch may be for either. Other namespaces play no part,
/// since a [`Picture`] holds one namespace.
pub fn controller(object: &Value) -> &str {
    let owners = object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let Some(found) = owners.iter().find(|owner| owner["controller"] == true) else { return "" };
    let kind = found["kind"].as_str();
    let may_control = match object["kind"].as_str() {
        Some("Pod") => kind == Some("ReplicaSet"),
        Some("ReplicaSet") => kind == Some("Deployment"),
        _ => matches!(kind, Some("ReplicaSet" | "Deployment")),
    };
    let is_of_the_group = found["apiVersion"].as_str().is_some_and(|version| version.starts_with("apps/"));
    if may_control && is_of_the_group { found["uid"].as_str().unwrap_or_default() } else { ANOTHER }
}

/// Whether the selector of an owner matches an object.
pub fn selects(owner: &Value, object: &Value) -> bool {
    let wanted = owner["spec"]["selector"]["matchLabels"].as_object();
    let labels = &object["metadata"]["labels"];
    wanted.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
}

/// The condition of a type, if there is one.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// A template without the `pod-template-hash` label.
pub fn bare(template: &Value) -> Value {
    let mut bare = template.clone();
    if let Some(labels) = bare.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove("pod-template-hash");
    }
    bare
}

/// Whether an object is a Deployment of this name, or one of its ReplicaSets or pods.
pub fn is_named_after(object: &str, deployment: &str) -> bool {
    object.strip_prefix(deployment).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replica_sets_and_pods_are_named_after_their_deployment() {
        for name in ["web", "web-6d6f5bd8b9", "web-6d6f5bd8b9-x7k2p"] {
            assert!(is_named_after(name, "web"), "{name}");
        }
        for name in ["api", "webby-6d6f5bd8b9", "loner-1"] {
            assert!(!is_named_after(name, "web"), "{name}");
        }
    }
}
