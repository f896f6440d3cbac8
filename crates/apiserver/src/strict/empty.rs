//! Empty values that an API server does not store: `tty: false`, `command: []`, `subPath: ""`.
//!
//! Go leaves a field out of JSON where its tag says `omitempty` and the value is the zero of its type. A pointer to a zero is
//! none, and a struct always stays. OpenAPI shows which fields have no such tag, for they are required, and not which are pointers: these are listed
//! here and in `kept.rs` (the files `types.go` of k8s.io/api, apimachinery and apiextensions-apiserver, 1.36).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::kept::is_kept;
use crate::kinds;

/// Fields that stay when they are empty in these types only, beside those of `kept.rs`.
#[rustfmt::skip]
const KEPT_IN: &[(&str, &[&str])] = &[
    ("apiGroup", &["IngressClassParametersReference", "RoleRef", "TypedLocalObjectReference", "TypedObjectReference"]),
    ("availableReplicas", &["StatefulSetStatus"]),
    ("conditions", &["CustomResourceDefinitionStatus"]),
    ("containerName", &["PodFailurePolicyOnExitCodesRequirement"]),
    ("controller", &["OwnerReference"]),
    ("count", &["VolumeNodeResources"]),
    ("error", &["IngressPortStatus", "PortStatus"]),
    ("fsType", &["AzureDiskVolumeSource", "CSIVolumeSource", "LocalVolumeSource"]),
    ("hostname", &["Endpoint"]),
    ("kind", &["AzureDiskVolumeSource"]),
    ("managedFields", &["ObjectMeta"]),
    ("message", &["ResourceHealth"]),
    ("name", &["ClusterTrustBundleProjection", "EndpointPort", "NodeRuntimeHandler"]),
    ("namespace", &["IngressClassParametersReference", "TypedObjectReference"]),
    ("namespaces", &["ResourcePolicyRule"]),
    ("nodeName", &["Endpoint", "EndpointAddress"]),
    ("observedGeneration", &["HorizontalPodAutoscalerStatus"]),
    ("partition", &["RollingUpdateStatefulSetStrategy"]),
    ("path", &["ServiceReference"]),
    ("policies", &["HPAScalingRules"]),
    ("ports", &["EndpointSlice"]),
    ("priority", &["PodSpec"]),
    ("protocol", &["EndpointPort", "NetworkPolicyPort"]),
    ("readOnly", &["AzureDiskVolumeSource", "CSIVolumeSource"]),
    ("reason", &["Validation", "ValidationRule"]),
    ("reinvocationPolicy", &["MutatingWebhook"]),
    ("replicas", &["DeploymentSpec", "ReplicaSetSpec", "ReplicationControllerSpec", "StatefulSetSpec"]),
    ("reportingInstance", &["Event"]),
    ("restartPolicy", &["Container", "EphemeralContainer"]),
    ("signerName", &["ClusterTrustBundleProjection"]),
    ("status", &["PodFailurePolicyOnPodConditionsPattern"]),
    ("storageClassName", &["PersistentVolumeClaimSpec"]),
    ("timeoutSeconds", &["ClientIPConfig", "MutatingWebhook", "ValidatingWebhook"]),
    ("type", &["HostPathVolumeSource"]),
    ("url", &["WebhookClientConfig"]),
    ("value", &["PodDNSConfigOption", "PriorityClass"]),
];

/// Types in which the name of a Secret or ConfigMap has the tag, although OpenAPI calls it required: it once could be empty.
const UNNAMED: &[&str] = &[
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "LocalObjectReference",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
];

/// Whether this field of a type is left out where it is empty.
pub(super) fn is_dropped(of: &str, field: &str) -> bool {
    if field == "name" && UNNAMED.contains(&of) {
        return true;
    }
    let is_kept = is_kept(field) || KEPT_IN.iter().any(|(kept, types)| *kept == field && types.contains(&of));
    !is_kept && !required().get(of).is_some_and(|fields| fields.contains(field))
}

/// The required fields of each type. Types of the same name in several groups are taken together.
fn required() -> &'static BTreeMap<String, BTreeSet<String>> {
    static REQUIRED: OnceLock<BTreeMap<String, BTreeSet<String>>> = OnceLock::new();
    REQUIRED.get_or_init(|| {
        let mut generator = SchemaSettings::openapi3().into_generator();
        kinds::all().for_each(|row| drop((row.schema)(&mut generator)));
        let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (name, schema) in generator.take_definitions(true) {
            let fields = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
            let of = name.rsplit('.').next().unwrap_or_default();
            all.entry(of.to_owned()).or_default().extend(fields.map(str::to_owned));
        }
        all
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::strict::check_value;
    use crate::strict::kept::KEPT;

    fn stored(api_version: &str, kind: &str, body: Value) -> Value {
        let mut object = check_value(api_version, kind, body).unwrap().object;
        let map = object.as_object_mut().unwrap();
        ["apiVersion", "kind"].iter().for_each(|field| drop(map.remove(*field)));
        object
    }

    #[test]
    fn empty_values_are_not_stored() {
        let container = json!({
            "name": "c", "image": "", "tty": false, "stdin": false, "workingDir": "", "command": [], "args": [""],
            "env": [{"name": "A", "value": ""}], "ports": [{"name": "", "containerPort": 80, "hostPort": 0}],
            "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "", "readOnly": false}],
            "resources": {"limits": {}},
        });
        let body = json!({"metadata": {"name": "p", "labels": {}, "annotations": {"a": ""}, "generation": 0}, "spec": {
            "containers": [container], "priorityClassName": "", "nodeSelector": {}, "hostNetwork": false,
            "volumes": [{"name": "v", "emptyDir": {"medium": ""}}], "tolerations": [{"key": "", "operator": "Exists"}],
        }});
        let container = json!({
            "name": "c", "args": [""], "env": [{"name": "A"}], "ports": [{"containerPort": 80}],
            "volumeMounts": [{"name": "v", "mountPath": "/v"}], "resources": {},
        });
        let expected = json!({"metadata": {"name": "p", "annotations": {"a": ""}}, "spec": {
            "containers": [container], "volumes": [{"name": "v", "emptyDir": {}}], "tolerations": [{"operator": "Exists"}],
        }});
        assert_eq!(stored("v1", "Pod", body), expected);
    }

    #[test]
    fn an_empty_name_of_a_secret_or_config_map_is_not_stored() {
        let from = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "", "key": "k"}}}]);
        let container = json!({"name": "c", "env": from, "envFrom": [{"configMapRef": {"name": ""}}]});
        let body =
            json!({"spec": {"imagePullSecrets": [{"name": ""}, {"name": "a"}], "containers": [container]}});
        let from = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"key": "k"}}}]);
        let container = json!({"name": "c", "env": from, "envFrom": [{"configMapRef": {}}]});
        let expected = json!({"spec": {"imagePullSecrets": [{}, {"name": "a"}], "containers": [container]}});
        assert_eq!(stored("v1", "Pod", body), expected);
    }

    #[test]
    fn an_empty_value_behind_a_pointer_or_in_a_required_field_or_a_struct_stays() {
        let pod = json!({"spec": {
            "containers": [{"name": "", "securityContext": {"privileged": false, "runAsUser": 0}, "lifecycle": {}}],
            "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 0, "securityContext": {},
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/", "type": ""}}],
            "topologySpreadConstraints": [{"topologyKey": "", "maxSkew": 0, "whenUnsatisfiable": "", "minDomains": 0}],
        }, "status": {"containerStatuses": [{"name": "c", "ready": false, "restartCount": 0, "image": "", "imageID": ""}]}});
        assert_eq!(stored("v1", "Pod", pod.clone()), pod);
        let strategy = json!({"rollingUpdate": {"maxUnavailable": 0, "maxSurge": "1"}});
        let selector = json!({});
        let deployment = json!({"spec": {"replicas": 0, "revisionHistoryLimit": 0, "strategy": strategy, "selector": selector,
            "template": {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}}});
        assert_eq!(stored("apps/v1", "Deployment", deployment.clone()), deployment);
        let schema =
            json!({"type": "object", "default": false, "additionalProperties": false, "minLength": 0});
        let version =
            json!({"name": "v1", "served": false, "storage": false, "schema": {"openAPIV3Schema": schema}});
        let definition = json!({"spec": {"group": "", "scope": "", "names": {"kind": "", "plural": ""}, "versions": [version]}});
        let kind = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
        assert_eq!(stored(kind.0, kind.1, definition.clone()), definition);
    }

    #[test]
    fn the_names_are_sorted_and_each_is_that_of_a_field() {
        assert!(KEPT.is_sorted());
        let mut generator = SchemaSettings::openapi3().into_generator();
        kinds::all().for_each(|row| drop((row.schema)(&mut generator)));
        let schemas = generator.take_definitions(true);
        let has = |of: Option<&str>, field: &str| {
            schemas.iter().any(|(name, schema)| {
                of.is_none_or(|of| name.rsplit('.').next() == Some(of))
                    && schema["properties"].get(field).is_some()
            })
        };
        let unknown: Vec<_> = KEPT.iter().filter(|field| !has(None, field)).collect();
        let in_types = KEPT_IN.iter().flat_map(|(field, types)| types.iter().map(move |of| (of, field)));
        let unknown_in: Vec<_> = in_types.filter(|(of, field)| !has(Some(of), field)).collect();
        assert_eq!((unknown, unknown_in), (Vec::<&&str>::new(), Vec::new()));
    }
}
