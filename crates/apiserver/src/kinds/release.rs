//! Where the types of `k8s-openapi` are those of 1.37, and this server is one of 1.36.

/// Fields that 1.36 does not have, by type.
#[rustfmt::skip]
const NEWER: &[(&str, &[&str])] = &[
    ("CSINode", &["status"]),
    ("ClusterTrustBundleProjection", &["user"]),
    ("ConfigMapVolumeSource", &["defaultUser"]),
    ("Device", &["nodeAllocatableResources"]),
    ("DeviceCounterConsumption", &["compatibilityGroups"]),
    ("DeviceRequestAllocationResult", &["skipNodeOperations"]),
    ("DeviceSubRequest", &["derivedAttributes"]),
    ("DownwardAPIVolumeFile", &["user"]),
    ("DownwardAPIVolumeSource", &["defaultUser"]),
    ("EmptyDirVolumeSource", &["mode"]),
    ("ExactDeviceRequest", &["derivedAttributes"]),
    ("GRPCAction", &["mode"]),
    ("HTTPGetAction", &["protocol"]),
    ("HorizontalPodAutoscalerCondition", &["observedGeneration"]),
    ("JobSpec", &["scheduling"]),
    ("KeyToPath", &["user"]),
    ("NodeAllocatableResourceClaimStatus", &["mapping", "overhead"]),
    ("NodeSpec", &["podPreemptionPolicy"]),
    ("NodeSystemInfo", &["runningInUserNamespace"]),
    ("PersistentVolumeClaimStatus", &["healthStatus"]),
    ("PodCertificateProjection", &["user"]),
    ("PodSpec", &["evictionResponders"]),
    ("PodStatus", &["volumeHealth"]),
    ("ProjectedVolumeSource", &["defaultUser"]),
    ("ResourceSliceSpec", &["partitionTypeAttribute", "skipNodeOperations"]),
    ("SecretVolumeSource", &["defaultUser"]),
    ("ServiceAccountTokenProjection", &["user"]),
    ("VolumeMount", &["bindMountOptions"]),
];

/// Fields of 1.36 behind a gate that is closed unless somebody opens it. They are dropped, and nothing is said of them.
pub(crate) const GATED: &[(&str, &str)] = &[("PodSpec", "schedulingGroup")];

/// Whether 1.36 does not have this field of a type.
pub(crate) fn is_newer(of: &str, field: &str) -> bool {
    newer(of).contains(&field)
}

/// The fields of a type that 1.36 does not have.
pub(crate) fn newer(of: &str) -> &'static [&'static str] {
    NEWER.binary_search_by_key(&of, |(name, _)| name).map_or(&[], |at| NEWER[at].1)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::strict::check_value;

    #[test]
    fn the_types_are_in_order() {
        assert!(NEWER.is_sorted());
    }

    #[test]
    fn a_field_of_a_newer_release_is_unknown() {
        let probe = json!({"httpGet": {"port": 1, "protocol": "x"}});
        let containers = json!([{"name": "a", "livenessProbe": probe}]);
        let checked = check_value("v1", "Pod", json!({"spec": {"containers": containers}})).unwrap();
        assert_eq!(checked.unknown, ["unknown field \"spec.containers[0].livenessProbe.httpGet.protocol\""]);
        assert_eq!(
            checked.object.pointer("/spec/containers/0/livenessProbe/httpGet"),
            Some(&json!({"port": 1}))
        );
        // Whatever its value is.
        let checked = check_value("v1", "Node", json!({"spec": {"podPreemptionPolicy": "x"}})).unwrap();
        assert_eq!((checked.unknown.len(), &checked.object["spec"]), (1, &json!({})));
    }
}
