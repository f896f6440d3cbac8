//! Ownership, by the stored objects alone and by the text of the API's rules.

use serde_json::Value;

use crate::engine::objects::{NAMESPACE, text};
use windlass_apiserver::Sandbox;

/// The kinds of this simulation: the kind, its plural, and whether its objects are in namespaces. The last comes and goes.
pub const KINDS: [(&str, &str, bool); 4] = [
    ("ConfigMap", "configmaps", true),
    ("Secret", "secrets", true),
    ("ClusterRole", "clusterroles", false),
    ("Gadget", "gadgets", true),
];

/// The group of [`KINDS`]'s last.
pub const GROUP: &str = "sim.example.com";

/// The name of its definition.
pub const DEFINITION: &str = "gadgets.sim.example.com";

/// The namespace of the strangers.
pub const OTHER: &str = "other";

/// The `apiVersion` of a kind.
pub fn api_version(kind: &str) -> &'static str {
    match kind {
        "ClusterRole" => "rbac.authorization.k8s.io/v1",
        "Gadget" => "sim.example.com/v1",
        _ => "v1",
    }
}

/// The stored objects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// All objects of the simulation, in the order of their kinds and names. The API server's own are left out.
    pub objects: Vec<Value>,
    /// Whether the kind that comes and goes is served.
    pub has_gadgets: bool,
}

impl Stored {
    /// The objects that are stored now.
    pub fn now(sandbox: &Sandbox) -> Self {
        Stored {
            objects: objects(sandbox),
            has_gadgets: sandbox.object("CustomResourceDefinition", "", DEFINITION).is_some(),
        }
    }

    /// The object of this UID.
    pub fn by_uid(&self, uid: &str) -> Option<&Value> {
        self.objects.iter().find(|object| object["metadata"]["uid"] == uid)
    }
}

/// All objects of the simulation.
pub fn objects(sandbox: &Sandbox) -> Vec<Value> {
    let is_ours = |object: &Value| {
        let namespace = text(object, "/metadata/namespace");
        text(object, "/metadata/name").starts_with("x-")
            && (namespace.is_empty() || namespace == NAMESPACE || namespace == OTHER)
    };
    let storage = |kind| if kind == "Gadget" { DEFINITION } else { kind };
    KINDS.iter().flat_map(|(kind, ..)| sandbox.objects(storage(kind))).filter(is_ours).collect()
}

/// The references of an object.
pub fn references(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}

/// Whether an object has a finalizer.
pub fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|all| all.iter().any(|known| known == finalizer))
}

/// Whether an object is being deleted.
pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Whether a reference on an object of this namespace means `owner`.
pub fn means(reference: &Value, namespace: &str, owner: &Value) -> bool {
    let group = |api_version: &str| api_version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
    let owners = text(owner, "/metadata/namespace");
    reference["uid"] == owner["metadata"]["uid"]
        && reference["kind"] == owner["kind"]
        && reference["name"] == owner["metadata"]["name"]
        && group(text(reference, "/apiVersion")) == group(text(owner, "/apiVersion"))
        && (owners.is_empty() || owners == namespace)
}

/// The true state of the owner behind a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Truth {
    /// It exists.
    Exists,
    /// It exists, and is kept until its dependents are gone.
    Waits,
    /// It does not exist.
    Absent,
    /// It does not exist, and nobody can tell: its kind is not served, or is not one that can own an object in no namespace.
    Unresolvable,
}

/// The true state of the owner behind a reference on an object of this namespace.
pub fn of(reference: &Value, namespace: &str, stored: &Stored) -> Truth {
    let Some((_, _, namespaced)) = KINDS.iter().find(|(kind, ..)| reference["kind"] == **kind) else {
        return Truth::Unresolvable;
    };
    let is_served = reference["kind"] != "Gadget" || stored.has_gadgets;
    if *namespaced && namespace.is_empty() || !is_served {
        return Truth::Unresolvable;
    }
    match stored.objects.iter().find(|owner| means(reference, namespace, owner)) {
        None => Truth::Absent,
        Some(owner) if is_deleting(owner) && has_finalizer(owner, "foregroundDeletion") => Truth::Waits,
        Some(_) => Truth::Exists,
    }
}

/// The true states of all owners of an object.
pub fn owners(object: &Value, stored: &Stored) -> Vec<Truth> {
    let namespace = text(object, "/metadata/namespace");
    references(object).map(|reference| of(reference, namespace, stored)).collect()
}
