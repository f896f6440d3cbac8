//! Fields of which an API server tells an empty value from none. Defaults spare them, too.

/// Fields that stay when they are empty, in whatever type they stand: pointers, and a few that are optional without the tag.
#[rustfmt::skip]
pub(super) const KEPT: &[&str] = &[
    "$ref", "activeDeadlineSeconds", "allocateLoadBalancerNodePorts", "allowPrivilegeEscalation",
    "allowVolumeExpansion", "appProtocol", "attachRequired", "automountServiceAccountToken",
    "averageUtilization", "backoffLimit", "backoffLimitPerIndex", "blockOwnerDeletion", "borrowingLimitPercent",
    "cachingMode", "capacity", "collisionCount", "completionMode", "completions",
    "currentCPUUtilizationPercentage", "currentHealthy", "currentMetrics", "currentVolumeAttributesClassName",
    "defaultMode", "deletionGracePeriodSeconds", "deprecationWarning", "desiredHealthy", "disruptionsAllowed",
    "enableServiceLinks", "endPort", "endpoints", "endpointsNamespace", "errorCode", "expectedPods",
    "expirationSeconds", "failedIndexes", "failedJobsHistoryLimit", "failurePolicy", "fsGroup",
    "fsGroupChangePolicy", "fsGroupPolicy", "gmsaCredentialSpec", "gmsaCredentialSpecName", "handSize",
    "holderIdentity", "hostProcess", "hostUsers", "hostnameOverride", "immutable", "ingressClassName",
    "initiatorName", "internalTrafficPolicy", "ipFamilyPolicy", "ipMode", "labelSelectorPath",
    "leaseDurationSeconds", "leaseTransitions", "lendablePercent", "loadBalancerClass", "localhostProfile",
    "lun", "managedBy", "manualSelector", "matchPolicy", "matchingPrecedence", "maxExpirationSeconds",
    "maxFailedIndexes", "maxItems", "maxLength", "maxProperties", "maxSurge", "maxUnavailable", "maximum",
    "minAvailable", "minDomains", "minItems",
    "minLength", "minProperties", "minReplicas", "minimum", "mode", "mountPropagation", "multipleOf", "names",
    "nodeAffinityPolicy", "nodeAllocatableUpdatePeriodSeconds", "nodeTaintsPolicy", "nominalConcurrencyShares",
    "optional", "optionalOldSelf", "parallelism", "parameterNotFoundAction", "pathType", "persistentVolumeName",
    "podGroupName", "podInfoOnMount", "podReplacementPolicy", "port", "preemptionPolicy", "preferredHolder",
    "preventPodSchedulingIfMissing", "privileged", "procMount", "progressDeadlineSeconds", "queueLengthLimit",
    "queues", "readOnlyRootFilesystem", "ready", "reclaimPolicy", "recursiveReadOnly",
    "recursiveReadOnlyMounts", "reportingComponent", "requiresRepublish", "resourceClaimName",
    "resourceClaimTemplateName", "revisionHistoryLimit", "runAsGroup", "runAsNonRoot", "runAsUser",
    "runAsUserName", "runtimeClassName", "scope", "seLinuxChangePolicy", "seLinuxMount", "secretNamespace",
    "selectPolicy", "service", "serviceAccountTokenInSecrets", "serviceName", "serving", "setHostnameAsFQDN",
    "shareProcessNamespace", "sideEffects", "sources", "stabilizationWindowSeconds", "start", "started",
    "startingDeadlineSeconds", "stopSignal", "storageCapacity", "storedVersions", "strategy", "succeededCount",
    "succeededIndexes", "successfulJobsHistoryLimit", "supplementalGroupsPolicy", "suspend",
    "targetCPUUtilizationPercentage", "terminating", "terminatingReplicas", "terminationGracePeriodSeconds",
    "timeZone", "tolerationSeconds", "topologyKeys", "trafficDistribution", "ttlSecondsAfterFinished",
    "unhealthyPodEvictionPolicy", "userNamespaces", "volumeAttributesClassName", "volumeBindingMode",
    "volumeMode", "x-kubernetes-list-type", "x-kubernetes-map-type", "x-kubernetes-preserve-unknown-fields",
    "zone",
];

/// Whether an empty value of this field is not the same as none, whatever type it is of.
pub(crate) fn is_kept(field: &str) -> bool {
    KEPT.binary_search(&field).is_ok()
}
