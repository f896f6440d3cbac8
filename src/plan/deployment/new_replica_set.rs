//! The ReplicaSet that is sent to the API server: the Deployment's template with the hash label.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use super::NewReplicaSet;
use crate::model::{Deployment, POD_TEMPLATE_HASH, Selector};
use crate::plan::replicaset::new_pod::OwnerReference;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplicaSetBody<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: ReplicaSetMeta<'a>,
    spec: ReplicaSetSpec,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplicaSetMeta<'a> {
    name: &'a str,
    namespace: &'a str,
    labels: &'a BTreeMap<&'a str, &'a str>,
    annotations: &'a BTreeMap<String, String>,
    owner_references: [OwnerReference<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ReplicaSetSpec {
    replicas: i32,
    #[serde(skip_serializing_if = "is_zero")]
    min_ready_seconds: i32,
    selector: Selector,
    template: Box<RawValue>,
}

fn is_zero(number: &i32) -> bool {
    *number == 0
}

/// The longest name of an object (a DNS subdomain, RFC 1123).
const LONGEST_NAME: usize = 253;

/// `<deployment>-<hash>`, the Deployment's name cut so that the whole is a name. Uncut, a Deployment
/// with more than 242 characters could never run a pod (kubernetes#116447).
pub fn replica_set_name(deployment: &str, hash: &str) -> String {
    let room = LONGEST_NAME.saturating_sub(hash.len() + 1);
    let cut = (0..=deployment.len().min(room)).rev().find(|&at| deployment.is_char_boundary(at)).unwrap_or(0);
    let mut base = &deployment[..cut];
    if cut < deployment.len() {
        // No part of a subdomain begins with the hyphen that follows.
        base = base.trim_end_matches(['.', '-']);
    }
    format!("{base}-{hash}")
}

/// The JSON of the new ReplicaSet. The template's other fields are copied byte for byte.
///
/// # Errors
/// When the template is not the object that it was decoded as; cannot happen to a decoded one.
pub fn replica_set_body(deployment: &Deployment, new: &NewReplicaSet) -> Result<Vec<u8>, serde_json::Error> {
    let labels: BTreeMap<&str, &str> =
        deployment.template.labels.iter().chain([(POD_TEMPLATE_HASH, new.hash.as_str())]).collect();

    serde_json::to_vec(&ReplicaSetBody {
        api_version: "apps/v1",
        kind: "ReplicaSet",
        metadata: ReplicaSetMeta {
            name: &new.name,
            namespace: &deployment.meta.key.namespace,
            labels: &labels,
            annotations: &new.annotations,
            owner_references: [OwnerReference::controller(
                "apps/v1",
                "Deployment",
                &deployment.meta.key.name,
                &deployment.meta.uid,
            )],
        },
        spec: ReplicaSetSpec {
            replicas: new.replicas,
            min_ready_seconds: deployment.min_ready_seconds,
            selector: deployment.selector.with_label(POD_TEMPLATE_HASH, &new.hash),
            template: deployment.template.with_labels(&labels)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};
    use serde_json::{Value, json};

    #[test]
    fn the_name_of_a_replica_set_is_valid_however_long_the_deployments_is() {
        assert_eq!(replica_set_name("web", "76f86dcf64"), "web-76f86dcf64");
        let long = replica_set_name(&"a".repeat(253), "76f86dcf64");
        assert_eq!((long.len(), long.ends_with("a-76f86dcf64")), (253, true));
        let dotted = replica_set_name(&format!("{}.{}", "a".repeat(241), "b".repeat(11)), "76f86dcf64");
        assert!(dotted.ends_with("a-76f86dcf64"), "{dotted}");
    }

    #[test]
    fn a_replica_set_is_the_template_with_the_hash_in_three_places_and_an_owner() {
        let deployment = json!({
            "metadata": {"name": "web", "namespace": "shop", "uid": "u-d", "resourceVersion": "1"},
            "spec": {
                "minReadySeconds": 5,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {
                    "metadata": {"labels": {"app": "web", "x": "y"}, "annotations": {"a": "b"}},
                    "spec": {"containers": [{"name": "c", "newThing": 1.50}]}
                }
            }
        });
        let deployment = Deployment::decode(&deployment.to_string(), &mut Interner::default()).unwrap();
        let new = NewReplicaSet {
            name: "web-abc".into(),
            hash: "abc".into(),
            replicas: 3,
            annotations: [("k".to_string(), "v".to_string())].into(),
        };
        let body: Value = serde_json::from_slice(&replica_set_body(&deployment, &new).unwrap()).unwrap();
        let labels = json!({"app": "web", "x": "y", "pod-template-hash": "abc"});
        assert_eq!(
            body,
            json!({
                "apiVersion": "apps/v1", "kind": "ReplicaSet",
                "metadata": {
                    "name": "web-abc", "namespace": "shop", "labels": labels, "annotations": {"k": "v"},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "web",
                        "uid": "u-d", "controller": true, "blockOwnerDeletion": true}],
                },
                "spec": {
                    "replicas": 3, "minReadySeconds": 5,
                    "selector": {"matchLabels": {"app": "web", "pod-template-hash": "abc"}},
                    "template": {
                        "metadata": {"labels": labels, "annotations": {"a": "b"}},
                        "spec": {"containers": [{"name": "c", "newThing": 1.50}]}
                    },
                }
            })
        );
    }
}
