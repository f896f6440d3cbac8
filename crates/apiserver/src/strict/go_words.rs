//! Go's words about a value of the wrong type, which are those that people search for: `json: cannot unmarshal bool into Go
//! struct field EnvVar.spec.containers.env.value of type string`.
//!
//! The structs and most types follow from the types of `k8s-openapi`. It has plain strings where Go gives a string a name
//! of its own, and lacks the structs that are embedded in others: both are listed here (the files `types.go` of k8s.io/api,
//! apimachinery and apiextensions-apiserver, 1.36). Where the type is not known, there are no words.

use serde_json::Value;

use crate::go_text::json_name;

/// Fields whose Go type is a string with a name or a list of them, by type: of the package `v1` unless it says otherwise.
#[rustfmt::skip]
const NAMED: &[(&str, &str, &[&str])] = &[
    ("$schema", "JSONSchemaURL", &["JSONSchemaProps"]),
    ("accessModes", "PersistentVolumeAccessMode", &["PersistentVolumeClaimSpec", "PersistentVolumeSpec"]),
    ("action", "ContainerRestartRuleAction", &["ContainerRestartRule"]),
    ("action", "PodFailurePolicyAction", &["PodFailurePolicyRule"]),
    ("add", "Capability", &["Capabilities"]),
    ("addressType", "AddressType", &["EndpointSlice"]),
    ("allocationMode", "DeviceAllocationMode", &["ExactDeviceRequest"]),
    ("cachingMode", "AzureDataDiskCachingMode", &["AzureDiskVolumeSource"]),
    ("capacityKey", "QualifiedName", &["NodeAllocatableResourceMapping"]),
    ("completionMode", "CompletionMode", &["JobSpec"]),
    ("concurrencyPolicy", "ConcurrencyPolicy", &["CronJobSpec"]),
    ("conditionType", "PodConditionType", &["PodReadinessGate"]),
    ("dnsPolicy", "DNSPolicy", &["PodSpec"]),
    ("drop", "Capability", &["Capabilities"]),
    ("effect", "TaintEffect", &["Taint", "Toleration"]),
    ("externalTrafficPolicy", "ServiceExternalTrafficPolicy", &["ServiceSpec"]),
    ("failurePolicy", "FailurePolicyType", &["MutatingAdmissionPolicySpec", "MutatingWebhook", "ValidatingAdmissionPolicySpec", "ValidatingWebhook"]),
    ("finalizers", "FinalizerName", &["NamespaceSpec"]),
    ("fsGroupChangePolicy", "PodFSGroupChangePolicy", &["PodSecurityContext"]),
    ("fsGroupPolicy", "FSGroupPolicy", &["CSIDriverSpec"]),
    ("health", "ResourceHealthStatus", &["ResourceHealth"]),
    ("imagePullPolicy", "PullPolicy", &["Container", "EphemeralContainer"]),
    ("internalTrafficPolicy", "ServiceInternalTrafficPolicy", &["ServiceSpec"]),
    ("ipFamilies", "IPFamily", &["ServiceSpec"]),
    ("ipFamilyPolicy", "IPFamilyPolicy", &["ServiceSpec"]),
    ("ipMode", "LoadBalancerIPMode", &["LoadBalancerIngress"]),
    ("kind", "AzureDataDiskKind", &["AzureDiskVolumeSource"]),
    ("matchPolicy", "MatchPolicyType", &["MatchResources", "MutatingWebhook", "ValidatingWebhook"]),
    ("medium", "StorageMedium", &["EmptyDirVolumeSource"]),
    ("mountPropagation", "MountPropagationMode", &["VolumeMount"]),
    ("name", "OSName", &["PodOS"]),
    ("name", "ResourceName", &["ContainerResourceMetricSource", "ContainerResourceMetricStatus", "ResourceMetricSource", "ResourceMetricStatus", "ResourceStatus"]),
    ("name", "UniqueVolumeName", &["AttachedVolume"]),
    ("nodeAffinityPolicy", "NodeInclusionPolicy", &["TopologySpreadConstraint"]),
    ("nodeTaintsPolicy", "NodeInclusionPolicy", &["TopologySpreadConstraint"]),
    ("operations", "OperationType", &["RuleWithOperations"]),
    ("operator", "LabelSelectorOperator", &["LabelSelectorRequirement"]),
    ("operator", "NodeSelectorOperator", &["NodeSelectorRequirement"]),
    ("operator", "ScopeSelectorOperator", &["ScopedResourceSelectorRequirement"]),
    ("operator", "TolerationOperator", &["Toleration"]),
    ("parameterNotFoundAction", "ParameterNotFoundActionType", &["ParamRef"]),
    ("pathType", "PathType", &["HTTPIngressPath"]),
    ("persistentVolumeReclaimPolicy", "PersistentVolumeReclaimPolicy", &["PersistentVolumeSpec"]),
    ("podManagementPolicy", "PodManagementPolicyType", &["StatefulSetSpec"]),
    ("podReplacementPolicy", "PodReplacementPolicy", &["JobSpec"]),
    ("policyTypes", "PolicyType", &["NetworkPolicySpec"]),
    ("preemptionPolicy", "PreemptionPolicy", &["PodSpec", "PriorityClass"]),
    ("procMount", "ProcMountType", &["SecurityContext"]),
    ("protocol", "Protocol", &["ContainerPort", "EndpointPort", "NetworkPolicyPort", "ServicePort"]),
    ("pullPolicy", "PullPolicy", &["ImageVolumeSource"]),
    ("reclaimPolicy", "PersistentVolumeReclaimPolicy", &["StorageClass"]),
    ("recursiveReadOnly", "RecursiveReadOnlyMode", &["VolumeMount"]),
    ("reinvocationPolicy", "ReinvocationPolicyType", &["MutatingAdmissionPolicySpec", "MutatingWebhook"]),
    ("resourceID", "ResourceID", &["ResourceHealth"]),
    ("resourceName", "ResourceName", &["ContainerResizePolicy"]),
    ("restartPolicy", "ContainerRestartPolicy", &["Container", "EphemeralContainer"]),
    ("restartPolicy", "ResourceResizeRestartPolicy", &["ContainerResizePolicy"]),
    ("restartPolicy", "RestartPolicy", &["PodSpec"]),
    ("scheme", "URIScheme", &["HTTPGetAction"]),
    ("scope", "ResourceScope", &["CustomResourceDefinitionSpec"]),
    ("scope", "ScopeType", &["Rule", "RuleWithOperations"]),
    ("scopeName", "ResourceQuotaScope", &["ScopedResourceSelectorRequirement"]),
    ("scopes", "ResourceQuotaScope", &["ResourceQuotaSpec"]),
    ("seLinuxChangePolicy", "PodSELinuxChangePolicy", &["PodSecurityContext"]),
    ("selectPolicy", "v2.ScalingPolicySelect", &["HPAScalingRules"]),
    ("sessionAffinity", "ServiceAffinity", &["ServiceSpec"]),
    ("sideEffects", "SideEffectClass", &["MutatingWebhook", "ValidatingWebhook"]),
    ("stopSignal", "Signal", &["Lifecycle"]),
    ("strategy", "ConversionStrategyType", &["CustomResourceConversion"]),
    ("strategy", "CoordinatedLeaseStrategy", &["LeaseSpec"]),
    ("supplementalGroupsPolicy", "SupplementalGroupsPolicy", &["PodSecurityContext"]),
    ("terminationMessagePolicy", "TerminationMessagePolicy", &["Container", "EphemeralContainer"]),
    ("type", "AppArmorProfileType", &["AppArmorProfile"]),
    ("type", "DaemonSetUpdateStrategyType", &["DaemonSetUpdateStrategy"]),
    ("type", "DeploymentStrategyType", &["DeploymentStrategy"]),
    ("type", "HostPathType", &["HostPathVolumeSource"]),
    ("status", "ConditionStatus", &["PodCondition", "PodFailurePolicyOnPodConditionsPattern"]),
    ("type", "LimitType", &["LimitRangeItem"]),
    ("type", "NodeAddressType", &["NodeAddress"]),
    ("type", "PodConditionType", &["PodCondition", "PodFailurePolicyOnPodConditionsPattern"]),
    ("type", "SeccompProfileType", &["SeccompProfile"]),
    ("type", "SecretType", &["Secret"]),
    ("type", "ServiceType", &["ServiceSpec"]),
    ("type", "StatefulSetUpdateStrategyType", &["StatefulSetUpdateStrategy"]),
    ("type", "v2.HPAScalingPolicyType", &["HPAScalingPolicy"]),
    ("type", "v2.MetricSourceType", &["MetricSpec"]),
    ("type", "v2.MetricTargetType", &["MetricTarget"]),
    ("uid", "types.UID", &["BoundObjectReference", "ConfigMapNodeConfigSource", "ObjectMeta", "ObjectReference", "OwnerReference", "Preconditions", "ResourceClaimConsumerReference", "StatusDetails"]),
    ("unhealthyPodEvictionPolicy", "UnhealthyPodEvictionPolicyType", &["PodDisruptionBudgetSpec"]),
    ("usages", "KeyUsage", &["CertificateSigningRequestSpec"]),
    ("validationActions", "ValidationAction", &["ValidatingAdmissionPolicyBindingSpec"]),
    ("volumeBindingMode", "VolumeBindingMode", &["StorageClass"]),
    ("volumeLifecycleModes", "VolumeLifecycleMode", &["CSIDriverSpec"]),
    ("volumeMode", "PersistentVolumeMode", &["PersistentVolumeClaimSpec", "PersistentVolumeSpec"]),
    ("whenDeleted", "PersistentVolumeClaimRetentionPolicyType", &["StatefulSetPersistentVolumeClaimRetentionPolicy"]),
    ("whenScaled", "PersistentVolumeClaimRetentionPolicyType", &["StatefulSetPersistentVolumeClaimRetentionPolicy"]),
    ("whenUnsatisfiable", "UnsatisfiableConstraintAction", &["TopologySpreadConstraint"]),
];

/// Fields that in other types than those above are plain strings or have names that are not listed.
const UNKNOWN: &[&str] = &[
    "accessModes",
    "allocationMode",
    "distinctAttribute",
    "effect",
    "failed",
    "freshness",
    "includeObject",
    "matchAttribute",
    "operation",
    "operator",
    "patchType",
    "phase",
    "propagationPolicy",
    "protocol",
    "qosClass",
    "reason",
    "recursiveReadOnly",
    "resize",
    "resourceVersionMatch",
    "scope",
    "shareID",
    "source",
    "status",
    "stopSignal",
    "succeeded",
    "type",
    "uid",
    "volumesInUse",
];

/// Fields of these, by type, that are plain strings nevertheless.
const PLAIN: &[(&str, &[&str])] = &[
    ("reason", &["Event"]),
    ("scope", &["IngressClassParametersReference"]),
    ("type", &["CustomResourceColumnDefinition", "Event", "JSONSchemaProps"]),
];

/// The type of the package `k8s_openapi`, and the step to it, where a value is wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrong<'a> {
    /// The fields on the way, each with the type that it stands in; keys of maps and indices are none.
    pub(super) fields: &'a [(&'static str, &'a str)],
    /// The type that was expected, as Rust calls it.
    pub(super) expected: &'static str,
}

impl Wrong<'_> {
    /// The sentence of Go about this value.
    pub(super) fn sentence(self, value: &Value) -> Option<String> {
        if self.expected.ends_with("::JSONSchemaPropsOrBool") {
            return Some("boolean or JSON schema expected".to_owned());
        }
        let (of, field) = *self.fields.last()?;
        let expected = match go_type(self.expected)? {
            text if text.ends_with("string") && !text.contains("map[") => named(of, field, &text)?,
            plain => plain,
        };
        let found = match value {
            Value::Number(number) if expected.starts_with("int") => format!("number {number}"),
            // A time, or what else Go reads from a text of its own form.
            Value::String(_) if expected == "string" => return None,
            Value::Null => return None,
            other => json_name(other).to_owned(),
        };
        let path =
            self.fields.iter().flat_map(|(of, field)| [embedded(of, field).unwrap_or_default(), field]);
        let path: Vec<&str> = path.filter(|step| !step.is_empty()).collect();
        let path = path.join(".");
        Some(format!("json: cannot unmarshal {found} into Go struct field {of}.{path} of type {expected}"))
    }
}

/// The type of a string or a list of strings in this field.
fn named(of: &str, field: &str, plain: &str) -> Option<String> {
    match NAMED.iter().find(|(name, _, types)| *name == field && types.contains(&of)) {
        Some((_, name, _)) if name.contains('.') => Some(plain.replace("string", name)),
        Some((_, name, _)) => Some(plain.replace("string", &format!("v1.{name}"))),
        None => {
            let is_plain = PLAIN.iter().any(|(name, types)| *name == field && types.contains(&of));
            (is_plain || !UNKNOWN.contains(&field)).then(|| plain.to_owned())
        }
    }
}

/// The struct in `of` that Go has the field in, where it is embedded.
fn embedded(of: &str, field: &str) -> Option<&'static str> {
    match (of, field) {
        ("Volume", "name")
        | ("EphemeralContainer", "targetContainerName")
        | ("RuleWithOperations", "operations") => None,
        ("Volume", _) => Some("VolumeSource"),
        ("EphemeralContainer", _) => Some("EphemeralContainerCommon"),
        ("RuleWithOperations", _) => Some("Rule"),
        ("Probe", "exec" | "grpc" | "httpGet" | "tcpSocket") => Some("ProbeHandler"),
        ("IngressRule", "http") => Some("IngressRuleValue"),
        (
            "ConfigMapEnvSource"
            | "ConfigMapKeySelector"
            | "ConfigMapProjection"
            | "ConfigMapVolumeSource"
            | "SecretEnvSource"
            | "SecretKeySelector"
            | "SecretProjection",
            "name",
        ) => Some("LocalObjectReference"),
        (
            "PersistentVolumeSpec",
            "accessModes"
            | "capacity"
            | "claimRef"
            | "mountOptions"
            | "nodeAffinity"
            | "persistentVolumeReclaimPolicy"
            | "storageClassName"
            | "volumeAttributesClassName"
            | "volumeMode",
        ) => None,
        ("PersistentVolumeSpec", _) => Some("PersistentVolumeSource"),
        _ => None,
    }
}

/// A type of Rust as Go writes it.
fn go_type(rust: &str) -> Option<String> {
    let within = |outer: &str| rust.strip_prefix(outer)?.strip_suffix('>');
    if let Some(item) = within("alloc::vec::Vec<") {
        return Some(format!("[]{}", go_type(item)?));
    }
    if let Some(item) = within("alloc::collections::btree::map::BTreeMap<alloc::string::String, ") {
        // The API knows no other map of quantities.
        return match item.ends_with("::Quantity") {
            true => Some("v1.ResourceList".to_owned()),
            false => Some(format!("map[string]{}", go_type(item)?)),
        };
    }
    let (module, name) = rust.rsplit_once("::").unwrap_or(("", rust));
    let is_version =
        |part: &&str| part.starts_with('v') && part[1..].starts_with(|c: char| c.is_ascii_digit());
    Some(match name {
        "String" => "string".to_owned(),
        "bool" => "bool".to_owned(),
        "i32" | "IntOrString" => "int32".to_owned(),
        "i64" => "int64".to_owned(),
        "f64" => "float64".to_owned(),
        "ByteString" => "[]uint8".to_owned(),
        // A text or a number in it is judged by the type itself.
        "Quantity" | "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => {
            return None;
        }
        "Timestamp" => "string".to_owned(),
        "JSON" => "v1.JSON".to_owned(),
        // `k8s_openapi::v1_36::api::core::v1::pod_spec::PodSpec`
        _ => format!("{}.{name}", module.split("::").skip(2).filter(is_version).last()?),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::strict::check_value;

    /// The words of Go about a body, without ours, which follow in brackets.
    #[track_caller]
    fn check(api_version: &str, kind: &str, body: serde_json::Value, expected: &str) {
        let error = check_value(api_version, kind, body).unwrap_err();
        let words = error.strip_prefix("json: cannot unmarshal ").and_then(|rest| rest.split_once(" ("));
        assert_eq!(
            words.map(|(go, _)| go.replace("into Go struct field ", "")),
            Some(expected.to_owned()),
            "{error}"
        );
    }

    #[test]
    fn a_value_of_the_wrong_type_is_refused_in_the_words_of_go_and_ours() {
        let body = json!({"spec": {"containers": [{"name": "a", "env": [{"name": "A", "value": true}]}]}});
        let expected = "json: cannot unmarshal bool into Go struct field EnvVar.spec.containers.env.value of type string \
                        (spec.containers[0].env[0].value: invalid type: boolean `true`, expected a string)";
        assert_eq!(check_value("v1", "Pod", body).unwrap_err(), expected);
    }

    /// The sentences are those of a kube-apiserver 1.36.
    #[test]
    fn structs_and_types_are_those_of_a_real_server() {
        let container = |fields: serde_json::Value| json!({"spec": {"containers": [fields]}});
        let volume = |fields: serde_json::Value| json!({"spec": {"volumes": [fields]}});
        for (body, expected) in [
            (
                container(json!({"imagePullPolicy": 5})),
                "number Container.spec.containers.imagePullPolicy of type v1.PullPolicy",
            ),
            (
                json!({"spec": {"containers": {"name": "a"}}}),
                "object PodSpec.spec.containers of type []v1.Container",
            ),
            (json!({"spec": {"containers": ["a"]}}), "string PodSpec.spec.containers of type v1.Container"),
            (
                container(json!({"ports": [{"containerPort": "80"}]})),
                "string ContainerPort.spec.containers.ports.containerPort of type int32",
            ),
            (
                container(json!({"ports": [{"containerPort": 80.5}]})),
                "number 80.5 ContainerPort.spec.containers.ports.containerPort of type int32",
            ),
            (container(json!({"command": [1]})), "number Container.spec.containers.command of type string"),
            (
                container(json!({"livenessProbe": {"httpGet": {"port": true}}})),
                "bool HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port of type int32",
            ),
            (
                container(json!({"securityContext": {"capabilities": {"add": [1]}}})),
                "number Capabilities.spec.containers.securityContext.capabilities.add of type v1.Capability",
            ),
            (
                container(json!({"securityContext": {"capabilities": {"add": "x"}}})),
                "string Capabilities.spec.containers.securityContext.capabilities.add of type []v1.Capability",
            ),
            (
                container(json!({"securityContext": "x"})),
                "string Container.spec.containers.securityContext of type v1.SecurityContext",
            ),
            (
                container(json!({"resources": {"limits": "x"}})),
                "string ResourceRequirements.spec.containers.resources.limits of type v1.ResourceList",
            ),
            (
                volume(json!({"configMap": 5})),
                "number Volume.spec.volumes.VolumeSource.configMap of type v1.ConfigMapVolumeSource",
            ),
            (
                volume(json!({"configMap": {"name": 5}})),
                "number ConfigMapVolumeSource.spec.volumes.VolumeSource.configMap.LocalObjectReference.name of type string",
            ),
            (
                volume(json!({"emptyDir": {"medium": true}})),
                "bool EmptyDirVolumeSource.spec.volumes.VolumeSource.emptyDir.medium of type v1.StorageMedium",
            ),
            (json!({"spec": "x"}), "string Pod.spec of type v1.PodSpec"),
            (json!({"spec": []}), "array Pod.spec of type v1.PodSpec"),
            (json!({"spec": {"hostNetwork": "true"}}), "string PodSpec.spec.hostNetwork of type bool"),
            (json!({"metadata": "x"}), "string Pod.metadata of type v1.ObjectMeta"),
            (json!({"metadata": {"labels": {"a": 1}}}), "number ObjectMeta.metadata.labels of type string"),
            (
                json!({"metadata": {"creationTimestamp": 5}}),
                "number ObjectMeta.metadata.creationTimestamp of type string",
            ),
            (
                json!({"metadata": {"ownerReferences": [{"uid": 5}]}}),
                "number OwnerReference.metadata.ownerReferences.uid of type types.UID",
            ),
        ] {
            check("v1", "Pod", body, expected);
        }
        check("v1", "Secret", json!({"data": {"a": 5}}), "number Secret.data of type []uint8");
        check("v1", "ConfigMap", json!({"data": {"a": 5}}), "number ConfigMap.data of type string");
        check("v1", "Event", json!({"type": []}), "array Event.type of type string");
        let subjects = json!({"subjects": [{"kind": 5}]});
        check(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            subjects,
            "number Subject.subjects.kind of type string",
        );
        let surge = json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": true}}}});
        let expected = "bool RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32";
        check("apps/v1", "Deployment", surge, expected);
        let metrics = json!({"spec": {"metrics": [{"type": 5}]}});
        let expected = "number MetricSpec.spec.metrics.type of type v2.MetricSourceType";
        check("autoscaling/v2", "HorizontalPodAutoscaler", metrics, expected);
    }

    #[test]
    fn nothing_is_said_in_the_words_of_go_where_the_type_is_not_known() {
        let error = check_value("v1", "Pod", json!({"status": {"phase": 5}})).unwrap_err();
        assert!(error.starts_with("status.phase: invalid type: "), "{error}");
    }

    #[test]
    fn a_quantity_and_a_time_that_are_none_are_refused_in_the_words_of_go() {
        for (body, expected, field) in [
            (
                json!({"spec": {"overhead": {"cpu": []}}}),
                "quantities must match the regular expression",
                " (spec.overhead.cpu)",
            ),
            (
                json!({"spec": {"volumes": [{"emptyDir": {"sizeLimit": true}}]}}),
                "quantities must match the regular expression",
                " (spec.volumes[0].emptyDir.sizeLimit)",
            ),
            (
                json!({"metadata": {"creationTimestamp": "x"}}),
                "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
                " (metadata.creationTimestamp)",
            ),
        ] {
            let error = check_value("v1", "Pod", body).unwrap_err();
            assert!(error.starts_with(expected) && error.ends_with(field), "{error}");
        }
    }

    #[test]
    fn the_first_byte_that_base_64_cannot_have_is_named() {
        for (data, at) in
            [("aGk=", None), ("a", Some(0)), ("aGk!", Some(3)), ("aGkab==", Some(5)), ("aG==aGk=", Some(4))]
        {
            let error = check_value("v1", "Secret", json!({"data": {"a": data}})).err();
            let expected = at.map(|at| format!("illegal base64 data at input byte {at}"));
            assert_eq!(
                error.as_deref().map(|error| error.split(" (").next().unwrap()),
                expected.as_deref(),
                "{data}"
            );
        }
    }
}
