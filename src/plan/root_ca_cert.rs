//! The certificate of the API server's CA, in a ConfigMap of each namespace: projected tokens of pods mount it.

use serde_json::{Map, Value, json};

use crate::model::configmap::{CA, DESCRIPTION};
use crate::model::{ConfigMap, Namespace};

/// The name of the ConfigMap.
pub const NAME: &str = "kube-root-ca.crt";

/// Its description, upstream's.
const WHAT_FOR: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using \
    internal endpoints such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed \
    across distributions of Kubernetes clusters.";

/// The write that a namespace needs, if any.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Nothing.
    Nothing,
    /// Create this ConfigMap.
    Create(Value),
    /// Merge this into the ConfigMap.
    Repair(Value),
}

/// Decides about a namespace with this ConfigMap. The data must be the certificate and nothing else; of the description
/// it counts only that there is one (upstream: `syncNamespace`).
pub fn plan(namespace: &Namespace, map: Option<&ConfigMap>, ca: &str) -> Plan {
    let Some(map) = map else {
        return match namespace.is_active {
            true => Plan::Create(json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": NAME, "namespace": namespace.meta.key.name,
                             "annotations": {DESCRIPTION: WHAT_FOR}},
                "data": {CA: ca},
            })),
            false => Plan::Nothing,
        };
    };
    let is_right = map.ca.as_deref() == Some(ca) && map.other_keys.is_empty() && map.is_described;
    // In a namespace that is being deleted, a repair is of no use to anybody.
    if is_right || !namespace.is_active || map.meta.is_deleting() {
        return Plan::Nothing;
    }
    let mut data: Map<String, Value> =
        map.other_keys.iter().map(|key| (key.to_string(), Value::Null)).collect();
    data.insert(CA.to_owned(), ca.into());
    Plan::Repair(json!({
        "metadata": {"uid": map.meta.uid, "resourceVersion": map.meta.resource_version.to_string(),
                     "annotations": {DESCRIPTION: WHAT_FOR}},
        "data": data,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};

    fn namespace(phase: &str) -> Namespace {
        let json = json!({"metadata": {"name": "shop", "uid": "u", "resourceVersion": "1"},
                          "status": {"phase": phase}});
        Namespace::decode(&json.to_string(), &mut Interner::default()).unwrap()
    }

    fn map(annotations: &Value, data: &Value) -> ConfigMap {
        let json = json!({"metadata": {"name": NAME, "namespace": "shop", "uid": "u-map", "resourceVersion": "7",
                                       "annotations": annotations}, "data": data});
        ConfigMap::decode(&json.to_string(), &mut Interner::default()).unwrap()
    }

    #[test]
    fn an_active_namespace_gets_the_certificate_with_upstreams_description() {
        let Plan::Create(created) = plan(&namespace("Active"), None, "pem") else { panic!() };
        assert_eq!(created["data"], json!({"ca.crt": "pem"}));
        assert_eq!(
            created["metadata"]["annotations"]["kubernetes.io/description"],
            "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
             such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
             distributions of Kubernetes clusters."
        );
        assert_eq!(plan(&namespace("Terminating"), None, "pem"), Plan::Nothing);
    }

    #[test]
    fn another_certificate_another_key_and_a_missing_description_are_repaired() {
        let described = json!({DESCRIPTION: "what for"});
        let right = json!({"ca.crt": "pem"});
        let plan = |map: &ConfigMap| plan(&namespace("Active"), Some(map), "pem");
        assert_eq!(plan(&map(&described, &right)), Plan::Nothing);
        let Plan::Repair(repair) = plan(&map(&described, &json!({"ca.crt": "old", "extra": "1"}))) else {
            panic!()
        };
        assert_eq!(repair["data"], json!({"ca.crt": "pem", "extra": null}));
        assert_eq!(
            (&repair["metadata"]["uid"], &repair["metadata"]["resourceVersion"]),
            (&"u-map".into(), &"7".into())
        );
        assert!(matches!(plan(&map(&Value::Null, &right)), Plan::Repair(_)));
        assert!(matches!(plan(&map(&described, &Value::Null)), Plan::Repair(_)));
    }

    #[test]
    fn a_namespace_that_is_being_deleted_is_left_alone() {
        let wrong = map(&Value::Null, &json!({"ca.crt": "old"}));
        assert_eq!(plan(&namespace("Terminating"), Some(&wrong), "pem"), Plan::Nothing);
    }
}
