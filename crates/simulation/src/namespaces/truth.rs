//! The content of a namespace, by the stored objects alone.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::engine::objects::text;
use windlass_apiserver::{Sandbox, served_kinds};

/// The kinds that users create: the kind, its plural, and its `apiVersion`.
pub const KINDS: [(&str, &str, &str); 4] = [
    ("ConfigMap", "configmaps", "v1"),
    ("Secret", "secrets", "v1"),
    ("Pod", "pods", "v1"),
    ("NetworkPolicy", "networkpolicies", "networking.k8s.io/v1"),
];

/// The token of the namespace controller.
pub const KUBERNETES: &str = "kubernetes";

/// A token or finalizer that users set and take off.
pub const KEEP: &str = "example.com/keep";

/// The names of the namespaces of this simulation. Users leave the last one alone.
pub const NAMES: [&str; 4] = ["x-a", "x-b", "x-c", "x-last"];

/// The namespace of this name.
pub fn namespace(sandbox: &Sandbox, name: &str) -> Option<Value> {
    sandbox.object("Namespace", "", name).map(|namespace| Value::clone(&namespace))
}

/// All objects in a namespace, of every kind that the API server has.
pub fn content(sandbox: &Sandbox, name: &str) -> Vec<Value> {
    let is_there = |object: &Value| text(object, "/metadata/namespace") == name;
    let kinds = served_kinds().into_iter().filter(|kind| kind.namespaced);
    kinds.flat_map(|kind| sandbox.objects(kind.kind)).filter(is_there).collect()
}

/// Whether an object is being deleted.
pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// A list of strings.
pub fn strings(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The tokens of a namespace that are not the controller's.
pub fn foreign_tokens(namespace: &Value) -> Vec<&str> {
    let tokens = strings(&namespace["spec"]["finalizers"]);
    tokens.into_iter().filter(|token| *token != KUBERNETES).collect()
}

/// Whether a namespace has the controller's token.
pub fn has_token(namespace: &Value) -> bool {
    strings(&namespace["spec"]["finalizers"]).contains(&KUBERNETES)
}

/// The texts that the conditions of a namespace have to contain while these objects are left in it, by the type of the
/// condition. Beside pods nothing else is looked at.
pub fn expected(content: &[Value]) -> BTreeMap<&'static str, Vec<String>> {
    let are_pods_left = content.iter().any(|object| object["kind"] == "Pod");
    let is_looked_at = |object: &&Value| !are_pods_left || object["kind"] == "Pod";
    let (mut counts, mut finalizers) = (BTreeMap::<String, usize>::new(), BTreeMap::<&str, usize>::new());
    for object in content.iter().filter(is_looked_at) {
        let plural = KINDS.iter().find(|(kind, ..)| object["kind"] == *kind).map_or("", |known| known.1);
        let group = text(object, "/apiVersion").split_once('/').map_or("", |(group, _)| group);
        *counts.entry(format!("{plural}.{group}")).or_default() += 1;
        for finalizer in strings(&object["metadata"]["finalizers"]) {
            *finalizers.entry(finalizer).or_default() += 1;
        }
    }
    let remaining = counts.iter().map(|(name, count)| format!("{name} has {count} resource instances"));
    let kept = finalizers.iter().map(|(name, count)| format!("{name} in {count} resource instances"));
    BTreeMap::from([
        ("NamespaceContentRemaining", remaining.collect()),
        ("NamespaceFinalizersRemaining", kept.collect()),
        ("NamespaceDeletionDiscoveryFailure", Vec::new()),
        ("NamespaceDeletionContentFailure", Vec::new()),
    ])
}
