//! The pod that is sent to the API server: the ReplicaSet's template, with a name and an owner.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::model::{ReplicaSet, Uid};

/// `ownerReferences` entry of an object that its owner controls.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference<'a> {
    /// The owner's `apiVersion`.
    pub api_version: &'a str,
    /// The owner's kind.
    pub kind: &'a str,
    /// The owner's name.
    pub name: &'a str,
    /// The owner's UID.
    pub uid: &'a Uid,
    /// Whether the owner manages the object. Always, here.
    pub controller: bool,
    /// Whether a foreground deletion of the owner waits for the object.
    pub block_owner_deletion: bool,
}

impl<'a> OwnerReference<'a> {
    /// A reference to the controller of an object.
    pub fn controller(api_version: &'a str, kind: &'a str, name: &'a str, uid: &'a Uid) -> Self {
        OwnerReference { api_version, kind, name, uid, controller: true, block_owner_deletion: true }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: PodMeta<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spec: Option<&'a RawValue>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodMeta<'a> {
    name: &'a str,
    generate_name: String,
    namespace: &'a str,
    #[serde(flatten)]
    from_template: BTreeMap<&'a str, &'a RawValue>,
    owner_references: [OwnerReference<'a>; 1],
}

#[derive(Deserialize)]
struct TemplateParts<'a> {
    #[serde(borrow, default)]
    metadata: Option<BTreeMap<&'a str, &'a RawValue>>,
    #[serde(borrow, default)]
    spec: Option<&'a RawValue>,
}

/// The metadata of a template that a pod gets (upstream: `GetPodFromTemplate`).
const INHERITED: [&str; 3] = ["labels", "annotations", "finalizers"];

/// The JSON of a new pod of `replica_set`, called `name` and owned by `owner`, which is the ReplicaSet under the
/// kind that the API server knows it by. The spec is the template's own bytes, so that a field newer than any type
/// of ours is kept.
///
/// # Errors
/// When the template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn pod_body(
    replica_set: &ReplicaSet,
    owner: OwnerReference<'_>,
    name: &str,
) -> Result<Vec<u8>, serde_json::Error> {
    let template = replica_set.template.json();
    let parts: TemplateParts<'_> = serde_json::from_str(&template)?;
    let mut from_template = parts.metadata.unwrap_or_default();
    from_template.retain(|field, _| INHERITED.contains(field));
    serde_json::to_vec(&PodBody {
        api_version: "v1",
        kind: "Pod",
        metadata: PodMeta {
            name,
            // Without effect beside a name. Admission webhooks read it: a pod's name is not always set when they see
            // it.
            generate_name: format!("{}-", replica_set.meta.key.name),
            namespace: &replica_set.meta.key.namespace,
            from_template,
            owner_references: [owner],
        },
        spec: parts.spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};
    use serde_json::{Value, json};

    #[test]
    fn generate_name_stands_beside_the_name_and_is_cut_nowhere() {
        let name = "a".repeat(200);
        let json = json!({
            "metadata": {"name": name, "namespace": "shop", "uid": "u", "resourceVersion": "1"},
            "spec": {"template": {"metadata": {"generateName": "of-the-template-", "name": "x"}}}
        });
        let replica_set = ReplicaSet::decode(&json.to_string(), &mut Interner::default()).unwrap();
        let owner = OwnerReference::controller("apps/v1", "ReplicaSet", &name, &replica_set.meta.uid);
        let body: Value =
            serde_json::from_slice(&pod_body(&replica_set, owner, "aaa-bcdfg").unwrap()).unwrap();
        assert_eq!(body["metadata"]["name"], "aaa-bcdfg");
        assert_eq!(body["metadata"]["generateName"], format!("{name}-"));
    }

    #[test]
    fn a_pod_is_its_template_with_a_name_and_an_owner() {
        let replica_set = json!({
            "metadata": {"name": "web-1", "namespace": "shop", "uid": "u-set", "resourceVersion": "1"},
            "spec": {"template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}, "finalizers": ["x/y"],
                             "name": "ignored", "creationTimestamp": null},
                "spec": {"containers": [{"name": "c", "newThing": 1.50}]}
            }}
        });
        let replica_set = ReplicaSet::decode(&replica_set.to_string(), &mut Interner::default()).unwrap();
        let owner = OwnerReference::controller("apps/v1", "ReplicaSet", "web-1", &replica_set.meta.uid);
        let body: Value =
            serde_json::from_slice(&pod_body(&replica_set, owner, "web-1-abcde").unwrap()).unwrap();
        assert_eq!(
            body,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "web-1-abcde", "generateName": "web-1-", "namespace": "shop",
                    "labels": {"app": "web"}, "annotations": {"a": "b"}, "finalizers": ["x/y"],
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1",
                        "uid": "u-set", "controller": true, "blockOwnerDeletion": true}],
                },
                "spec": {"containers": [{"name": "c", "newThing": 1.50}]}
            })
        );
    }
}
