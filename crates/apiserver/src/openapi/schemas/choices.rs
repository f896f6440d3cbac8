//! The values that a field of a built-in kind may have, which `kubectl explain` lists: the types with `+enum` in k8s.io/api,
//! 1.36. The types of `k8s-openapi` have plain strings there.

use serde_json::{Map, Value, json};

/// Each list of values with the fields, by type, that take one of them, or a list of them.
#[rustfmt::skip]
const CHOICES: &[(&[&str], &[&str])] = &[
    (&["AppArmorProfile.type", "SeccompProfile.type"],
     &["Localhost", "RuntimeDefault", "Unconfined"]),
    (&["AzureDiskVolumeSource.cachingMode"],
     &["None", "ReadOnly", "ReadWrite"]),
    (&["AzureDiskVolumeSource.kind"],
     &["Dedicated", "Managed", "Shared"]),
    (&["Container.imagePullPolicy", "EphemeralContainer.imagePullPolicy", "ImageVolumeSource.pullPolicy"],
     &["Always", "IfNotPresent", "Never"]),
    (&["Container.terminationMessagePolicy", "EphemeralContainer.terminationMessagePolicy"],
     &["FallbackToLogsOnError", "File"]),
    (&["ContainerPort.protocol", "EndpointPort.protocol", "IngressPortStatus.protocol", "NetworkPolicyPort.protocol", "PortStatus.protocol", "ServicePort.protocol"],
     &["SCTP", "TCP", "UDP"]),
    (&["CertificateSigningRequestSpec.usages"],
     &["any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment", "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime", "server auth", "signing", "timestamping"]),
    (&["CronJobSpec.concurrencyPolicy"],
     &["Allow", "Forbid", "Replace"]),
    (&["DaemonSetUpdateStrategy.type", "StatefulSetUpdateStrategy.type"],
     &["OnDelete", "RollingUpdate"]),
    (&["DeploymentStrategy.type"],
     &["Recreate", "RollingUpdate"]),
    (&["DeviceAllocationConfiguration.source"],
     &["FromClaim", "FromClass"]),
    (&["DeviceSubRequest.allocationMode", "ExactDeviceRequest.allocationMode"],
     &["All", "ExactCount"]),
    (&["DeviceTaint.effect", "DeviceToleration.effect"],
     &["NoExecute", "NoSchedule", "None"]),
    (&["DeviceToleration.operator"],
     &["Equal", "Exists"]),
    (&["EndpointSlice.addressType"],
     &["FQDN", "IPv4", "IPv6"]),
    (&["HTTPGetAction.scheme"],
     &["HTTP", "HTTPS"]),
    (&["HTTPIngressPath.pathType"],
     &["Exact", "ImplementationSpecific", "Prefix"]),
    (&["HostPathVolumeSource.type"],
     &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"]),
    (&["JobSpec.completionMode"],
     &["Indexed", "NonIndexed"]),
    (&["JobSpec.podReplacementPolicy"],
     &["Failed", "TerminatingOrFailed"]),
    (&["MatchResources.matchPolicy", "MutatingWebhook.matchPolicy", "ValidatingWebhook.matchPolicy"],
     &["Equivalent", "Exact"]),
    (&["ModifyVolumeStatus.status"],
     &["InProgress", "Infeasible", "Pending"]),
    (&["MutatingAdmissionPolicySpec.failurePolicy", "MutatingWebhook.failurePolicy", "ValidatingAdmissionPolicySpec.failurePolicy", "ValidatingWebhook.failurePolicy"],
     &["Fail", "Ignore"]),
    (&["MutatingAdmissionPolicySpec.reinvocationPolicy", "MutatingWebhook.reinvocationPolicy"],
     &["IfNeeded", "Never"]),
    (&["MutatingWebhook.sideEffects", "ValidatingWebhook.sideEffects"],
     &["None", "NoneOnDryRun", "Some", "Unknown"]),
    (&["Mutation.patchType"],
     &["ApplyConfiguration", "JSONPatch"]),
    (&["NamedRuleWithOperations.operations", "RuleWithOperations.operations"],
     &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]),
    (&["NamedRuleWithOperations.scope", "RuleWithOperations.scope"],
     &["*", "Cluster", "Namespaced"]),
    (&["NamespaceStatus.phase"],
     &["Active", "Terminating"]),
    (&["NetworkPolicySpec.policyTypes"],
     &["Egress", "Ingress"]),
    (&["NodeSelectorRequirement.operator"],
     &["DoesNotExist", "Exists", "Gt", "In", "Lt", "NotIn"]),
    (&["NodeStatus.phase"],
     &["Pending", "Running", "Terminated"]),
    (&["PersistentVolumeClaimSpec.accessModes", "PersistentVolumeClaimStatus.accessModes", "PersistentVolumeSpec.accessModes"],
     &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"]),
    (&["PersistentVolumeClaimSpec.volumeMode", "PersistentVolumeSpec.volumeMode"],
     &["Block", "Filesystem"]),
    (&["PersistentVolumeClaimStatus.phase"],
     &["Bound", "Lost", "Pending"]),
    (&["PersistentVolumeSpec.persistentVolumeReclaimPolicy", "StorageClass.reclaimPolicy"],
     &["Delete", "Recycle", "Retain"]),
    (&["PersistentVolumeStatus.phase"],
     &["Available", "Bound", "Failed", "Pending", "Released"]),
    (&["PodDisruptionBudgetSpec.unhealthyPodEvictionPolicy"],
     &["AlwaysAllow", "IfHealthyBudget"]),
    (&["PodFailurePolicyOnExitCodesRequirement.operator"],
     &["In", "NotIn"]),
    (&["PodFailurePolicyRule.action"],
     &["Count", "FailIndex", "FailJob", "Ignore"]),
    (&["Lifecycle.stopSignal"],
     &["SIGABRT", "SIGALRM", "SIGBUS", "SIGCHLD", "SIGCLD", "SIGCONT", "SIGFPE", "SIGHUP", "SIGILL", "SIGINT", "SIGIO", "SIGIOT", "SIGKILL", "SIGPIPE", "SIGPOLL", "SIGPROF", "SIGPWR", "SIGQUIT", "SIGRTMAX", "SIGRTMAX-1", "SIGRTMAX-10", "SIGRTMAX-11", "SIGRTMAX-12", "SIGRTMAX-13", "SIGRTMAX-14", "SIGRTMAX-2", "SIGRTMAX-3", "SIGRTMAX-4", "SIGRTMAX-5", "SIGRTMAX-6", "SIGRTMAX-7", "SIGRTMAX-8", "SIGRTMAX-9", "SIGRTMIN", "SIGRTMIN+1", "SIGRTMIN+10", "SIGRTMIN+11", "SIGRTMIN+12", "SIGRTMIN+13", "SIGRTMIN+14", "SIGRTMIN+15", "SIGRTMIN+2", "SIGRTMIN+3", "SIGRTMIN+4", "SIGRTMIN+5", "SIGRTMIN+6", "SIGRTMIN+7", "SIGRTMIN+8", "SIGRTMIN+9", "SIGSEGV", "SIGSTKFLT", "SIGSTOP", "SIGSYS", "SIGTERM", "SIGTRAP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGUSR1", "SIGUSR2", "SIGVTALRM", "SIGWINCH", "SIGXCPU", "SIGXFSZ"]),
    (&["PodSecurityContext.fsGroupChangePolicy"],
     &["Always", "OnRootMismatch"]),
    (&["PodSecurityContext.supplementalGroupsPolicy"],
     &["Merge", "Strict"]),
    (&["PodSpec.dnsPolicy"],
     &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]),
    (&["PodSpec.preemptionPolicy", "PriorityClass.preemptionPolicy"],
     &["Never", "PreemptLowerPriority"]),
    (&["PodSpec.restartPolicy"],
     &["Always", "Never", "OnFailure"]),
    (&["PodStatus.phase"],
     &["Failed", "Pending", "Running", "Succeeded", "Unknown"]),
    (&["PodStatus.qosClass"],
     &["BestEffort", "Burstable", "Guaranteed"]),
    (&["ResourceQuotaSpec.scopes", "ScopedResourceSelectorRequirement.scopeName"],
     &["BestEffort", "CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating", "VolumeAttributesClass"]),
    (&["ScopedResourceSelectorRequirement.operator"],
     &["DoesNotExist", "Exists", "In", "NotIn"]),
    (&["SecurityContext.procMount"],
     &["Default", "Unmasked"]),
    (&["ServiceSpec.externalTrafficPolicy", "ServiceSpec.internalTrafficPolicy"],
     &["Cluster", "Local"]),
    (&["ServiceSpec.ipFamilies"],
     &["", "IPv4", "IPv6"]),
    (&["ServiceSpec.ipFamilyPolicy"],
     &["PreferDualStack", "RequireDualStack", "SingleStack"]),
    (&["ServiceSpec.sessionAffinity"],
     &["ClientIP", "None"]),
    (&["ServiceSpec.type"],
     &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]),
    (&["StatefulSetSpec.podManagementPolicy"],
     &["OrderedReady", "Parallel"]),
    (&["StorageClass.volumeBindingMode"],
     &["Immediate", "WaitForFirstConsumer"]),
    (&["Taint.effect", "Toleration.effect"],
     &["NoExecute", "NoSchedule", "PreferNoSchedule"]),
    (&["Toleration.operator"],
     &["Equal", "Exists", "Gt", "Lt"]),
    (&["TopologySpreadConstraint.nodeAffinityPolicy", "TopologySpreadConstraint.nodeTaintsPolicy"],
     &["Honor", "Ignore"]),
    (&["TopologySpreadConstraint.whenUnsatisfiable"],
     &["DoNotSchedule", "ScheduleAnyway"]),
    (&["ValidatingAdmissionPolicyBindingSpec.validationActions"],
     &["Audit", "Deny", "Warn"]),
    (&["ValidationRule.reason"],
     &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"]),
    (&["VolumeMount.mountPropagation"],
     &["Bidirectional", "HostToContainer", "None"]),
];

/// Adds the values to a schema by its name: `io.k8s.api.core.v1.PodSpec`.
pub(super) fn add(name: &str, schema: &mut Value) {
    let of = name.rsplit('.').next().unwrap_or_default();
    let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else { return };
    for (fields, values) in CHOICES {
        for field in fields.iter().filter_map(|field| field.strip_prefix(of)?.strip_prefix('.')) {
            add_to(properties, field, values);
        }
    }
}

fn add_to(properties: &mut Map<String, Value>, field: &str, values: &[&str]) {
    let Some(property) = properties.get_mut(field) else { return };
    let text = match property["type"] == "array" {
        true => &mut property["items"],
        false => property,
    };
    // A type of the same name in another group may have something else there.
    if text["type"] == "string" {
        text["enum"] = json!(values);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kinds;

    #[test]
    fn every_field_of_the_list_is_one_of_a_served_kind() {
        let mut known = BTreeSet::new();
        for row in kinds::all() {
            for (name, schema) in super::super::of(row.group, row.version, &BTreeSet::from([row.kind])) {
                let of = name.rsplit('.').next().unwrap();
                let has_values =
                    |property: &Value| property["enum"].is_array() || property["items"]["enum"].is_array();
                let fields = schema["properties"].as_object().into_iter().flatten();
                known.extend(
                    fields.filter(|(_, it)| has_values(it)).map(|(field, _)| format!("{of}.{field}")),
                );
            }
        }
        let listed = CHOICES.iter().flat_map(|(fields, _)| *fields);
        let unknown: Vec<&&str> = listed.filter(|field| !known.contains(**field)).collect();
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
