//! The messages of the kinds that nothing here acts on and that Go clients create nevertheless: `kubectl create job`,
//! `ingress`, `role` and others send them. The syntax is that of [`super::messages`].

pub(super) const MESSAGES: &[(&str, &str)] = &[
    ("AutoscalerV1", "1 metadata ObjectMeta, 2 spec AutoscalerV1Spec, 3 status AutoscalerV1Status"),
    (
        "AutoscalerV1Spec",
        "1 scaleTargetRef CrossVersionObjectReference, 2 minReplicas *int, 3 maxReplicas int, \
         4 targetCPUUtilizationPercentage *int",
    ),
    (
        "AutoscalerV1Status",
        "1 observedGeneration *int, 2 lastScaleTime *Time, 3 currentReplicas int, 4 desiredReplicas int, \
         5 currentCPUUtilizationPercentage *int",
    ),
    ("HorizontalPodAutoscaler", "1 metadata ObjectMeta, 2 spec AutoscalerSpec, 3 status AutoscalerStatus"),
    (
        "AutoscalerSpec",
        "1 scaleTargetRef CrossVersionObjectReference, 2 minReplicas *int, 3 maxReplicas int, 4 metrics []MetricSpec, \
         5 behavior *AutoscalerBehavior",
    ),
    ("AutoscalerBehavior", "1 scaleUp *ScalingRules, 2 scaleDown *ScalingRules"),
    (
        "ScalingRules",
        "3 stabilizationWindowSeconds *int, 1 selectPolicy *string, 2 policies []ScalingPolicy, 4 tolerance *Quantity",
    ),
    ("ScalingPolicy", "1 type string, 2 value int, 3 periodSeconds int"),
    (
        "MetricSpec",
        "1 type string, 2 object *ObjectMetric, 3 pods *PodsMetric, 4 resource *ResourceMetric, \
         7 containerResource *ContainerResourceMetric, 5 external *PodsMetric",
    ),
    (
        "ObjectMetric",
        "1 describedObject CrossVersionObjectReference, 2 target MetricTarget, 3 metric MetricIdentifier",
    ),
    ("PodsMetric", "1 metric MetricIdentifier, 2 target MetricTarget"),
    ("ResourceMetric", "1 name string, 2 target MetricTarget"),
    ("ContainerResourceMetric", "1 name string, 2 target MetricTarget, 3 container string"),
    ("MetricIdentifier", "1 name string, 2 selector *LabelSelector"),
    ("MetricTarget", "1 type string, 2 value *Quantity, 3 averageValue *Quantity, 4 averageUtilization *int"),
    (
        "AutoscalerStatus",
        "1 observedGeneration *int, 2 lastScaleTime *Time, 3 currentReplicas int, 4 desiredReplicas int, \
         5 currentMetrics []MetricStatus, 6 conditions []AutoscalerCondition",
    ),
    (
        "MetricStatus",
        "1 type string, 2 object *ObjectMetricStatus, 3 pods *PodsMetricStatus, 4 resource *ResourceMetricStatus, \
         7 containerResource *ContainerResourceMetricStatus, 5 external *PodsMetricStatus",
    ),
    (
        "ObjectMetricStatus",
        "1 metric MetricIdentifier, 2 current MetricValue, 3 describedObject CrossVersionObjectReference",
    ),
    ("PodsMetricStatus", "1 metric MetricIdentifier, 2 current MetricValue"),
    ("ResourceMetricStatus", "1 name string, 2 current MetricValue"),
    ("ContainerResourceMetricStatus", "1 name string, 2 current MetricValue, 3 container string"),
    ("MetricValue", "1 value *Quantity, 2 averageValue *Quantity, 3 averageUtilization *int"),
    (
        "AutoscalerCondition",
        "1 type string, 2 status string, 3 lastTransitionTime Time, 4 reason string, 5 message string",
    ),
    (
        "CertificateSigningRequest",
        "1 metadata ObjectMeta, 2 spec CertificateSigningRequestSpec, 3 status CertificateSigningRequestStatus",
    ),
    (
        "CertificateSigningRequestSpec",
        "1 request bytes, 7 signerName string, 8 expirationSeconds *int, 5 usages []string, 2 username string, \
         3 uid string, 4 groups []string, 6 extra ignored",
    ),
    ("CertificateSigningRequestStatus", "1 conditions []CertificateCondition, 2 certificate bytes"),
    (
        "CertificateCondition",
        "1 type string, 6 status string, 2 reason string, 3 message string, 4 lastUpdateTime Time, 5 lastTransitionTime Time",
    ),
    ("CrossVersionObjectReference", "1 kind string, 2 name string, 3 apiVersion string"),
    ("Job", "1 metadata ObjectMeta, 2 spec JobSpec, 3 status JobStatus"),
    ("CronJob", "1 metadata ObjectMeta, 2 spec CronJobSpec, 3 status CronJobStatus"),
    ("Ingress", "1 metadata ObjectMeta, 2 spec IngressSpec, 3 status IngressStatus"),
    ("IngressClass", "1 metadata ObjectMeta, 2 spec IngressClassSpec"),
    ("NetworkPolicy", "1 metadata ObjectMeta, 2 spec NetworkPolicySpec"),
    ("Role", "1 metadata ObjectMeta, 2 rules []PolicyRule"),
    ("RoleBinding", "1 metadata ObjectMeta, 2 subjects []Subject, 3 roleRef RoleRef"),
    ("SelfSubjectReview", "1 metadata ObjectMeta, 2 status ignored"),
    ("TokenReview", "1 metadata ObjectMeta, 2 spec TokenReviewSpec, 3 status ignored"),
    ("TokenReviewSpec", "1 token string, 2 audiences []string"),
    ("TokenRequest", "1 metadata ObjectMeta, 2 spec ignored, 3 status ignored"),
    ("SelfSubjectRulesReview", "1 metadata ObjectMeta, 2 spec SelfSubjectRulesReviewSpec, 3 status ignored"),
    ("SelfSubjectRulesReviewSpec", "1 namespace string"),
    ("SelfSubjectAccessReview", "1 metadata ObjectMeta, 2 spec AccessReviewSpec, 3 status ignored"),
    ("SubjectAccessReview", "1 metadata ObjectMeta, 2 spec AccessReviewSpec, 3 status ignored"),
    ("LocalSubjectAccessReview", "1 metadata ObjectMeta, 2 spec AccessReviewSpec, 3 status ignored"),
    (
        "AccessReviewSpec",
        "1 resourceAttributes *ResourceAttributes, 2 nonResourceAttributes *NonResourceAttributes, 3 user string, \
         4 groups []string, 5 extra ignored, 6 uid string",
    ),
    (
        "ResourceAttributes",
        "1 namespace string, 2 verb string, 3 group string, 4 version string, 5 resource string, 6 subresource string, \
         7 name string, 8 fieldSelector ignored, 9 labelSelector ignored",
    ),
    ("NonResourceAttributes", "1 path string, 2 verb string"),
    ("ClusterRole", "1 metadata ObjectMeta, 2 rules []PolicyRule, 3 aggregationRule *AggregationRule"),
    ("ClusterRoleBinding", "1 metadata ObjectMeta, 2 subjects []Subject, 3 roleRef RoleRef"),
    (
        "PodDisruptionBudget",
        "1 metadata ObjectMeta, 2 spec PodDisruptionBudgetSpec, 3 status PodDisruptionBudgetStatus",
    ),
    (
        "PriorityClass",
        "1 metadata ObjectMeta, 2 value int, 3 globalDefault bool, 4 description string, 5 \
         preemptionPolicy *string",
    ),
    ("StatefulSet", "1 metadata ObjectMeta, 2 spec StatefulSetSpec, 3 status StatefulSetStatus"),
    (
        "StorageClass",
        "1 metadata ObjectMeta, 2 provisioner string, 3 parameters {}string, 4 reclaimPolicy *string, 5 \
         mountOptions []string, 6 allowVolumeExpansion *bool, 7 volumeBindingMode *string, 8 \
         allowedTopologies []TopologySelectorTerm",
    ),
    ("ResourceQuota", "1 metadata ObjectMeta, 2 spec ResourceQuotaSpec, 3 status ResourceQuotaStatus"),
    ("LimitRange", "1 metadata ObjectMeta, 2 spec LimitRangeSpec"),
    (
        "PersistentVolumeClaim",
        "1 metadata ObjectMeta, 2 spec PersistentVolumeClaimSpec, 3 status PersistentVolumeClaimStatus",
    ),
    (
        "JobSpec",
        "1 parallelism *int, 2 completions *int, 3 activeDeadlineSeconds *int, 11 podFailurePolicy \
         *PodFailurePolicy, 16 successPolicy *SuccessPolicy, 7 backoffLimit *int, 12 backoffLimitPerIndex \
         *int, 13 maxFailedIndexes *int, 4 selector *LabelSelector, 5 manualSelector *bool, 6 template \
         PodTemplateSpec, 8 ttlSecondsAfterFinished *int, 9 completionMode *string, 10 suspend *bool, 14 \
         podReplacementPolicy *string, 15 managedBy *string",
    ),
    (
        "JobStatus",
        "1 conditions []JobCondition, 2 startTime *Time, 3 completionTime *Time, 4 active int, 5 \
         succeeded int, 6 failed int, 11 terminating *int, 7 completedIndexes string, 10 failedIndexes \
         *string, 8 uncountedTerminatedPods *UncountedTerminatedPods, 9 ready *int",
    ),
    (
        "CronJobSpec",
        "1 schedule string, 8 timeZone *string, 2 startingDeadlineSeconds *int, 3 concurrencyPolicy \
         string, 4 suspend *bool, 5 jobTemplate JobTemplateSpec, 6 successfulJobsHistoryLimit *int, 7 \
         failedJobsHistoryLimit *int",
    ),
    ("CronJobStatus", "1 active []ObjectReference, 4 lastScheduleTime *Time, 5 lastSuccessfulTime *Time"),
    (
        "IngressSpec",
        "4 ingressClassName *string, 1 defaultBackend *IngressBackend, 2 tls []IngressTLS, 3 rules \
         []IngressRule",
    ),
    ("IngressStatus", "1 loadBalancer IngressLoadBalancerStatus"),
    ("IngressClassSpec", "1 controller string, 2 parameters *IngressClassParametersReference"),
    (
        "NetworkPolicySpec",
        "1 podSelector LabelSelector, 2 ingress []NetworkPolicyIngressRule, 3 egress \
         []NetworkPolicyEgressRule, 4 policyTypes []string",
    ),
    (
        "PolicyRule",
        "1 verbs []string, 2 apiGroups []string, 3 resources []string, 4 resourceNames []string, 5 \
         nonResourceURLs []string",
    ),
    ("Subject", "1 kind string, 2 apiGroup string, 3 name string, 4 namespace string"),
    ("RoleRef", "1 apiGroup string, 2 kind string, 3 name string"),
    ("AggregationRule", "1 clusterRoleSelectors []LabelSelector"),
    (
        "PodDisruptionBudgetSpec",
        "1 minAvailable *IntOrString, 2 selector *LabelSelector, 3 maxUnavailable *IntOrString, 4 \
         unhealthyPodEvictionPolicy *string",
    ),
    (
        "PodDisruptionBudgetStatus",
        "1 observedGeneration int, 2 disruptedPods {}Time, 3 disruptionsAllowed int, 4 currentHealthy \
         int, 5 desiredHealthy int, 6 expectedPods int, 7 conditions []Condition",
    ),
    (
        "StatefulSetSpec",
        "1 replicas *int, 2 selector *LabelSelector, 3 template PodTemplateSpec, 4 volumeClaimTemplates \
         []PersistentVolumeClaim, 5 serviceName string, 6 podManagementPolicy string, 7 updateStrategy \
         StatefulSetUpdateStrategy, 8 revisionHistoryLimit *int, 9 minReadySeconds int, 10 \
         persistentVolumeClaimRetentionPolicy *StatefulSetPersistentVolumeClaimRetentionPolicy, 11 \
         ordinals *StatefulSetOrdinals",
    ),
    (
        "StatefulSetStatus",
        "1 observedGeneration int, 2 replicas int, 3 readyReplicas int, 4 currentReplicas int, 5 \
         updatedReplicas int, 6 currentRevision string, 7 updateRevision string, 9 collisionCount *int, \
         10 conditions []StatefulSetCondition, 11 availableReplicas int",
    ),
    ("TopologySelectorTerm", "1 matchLabelExpressions []TopologySelectorLabelRequirement"),
    ("ResourceQuotaSpec", "1 hard {}Quantity, 2 scopes []string, 3 scopeSelector *ScopeSelector"),
    ("ResourceQuotaStatus", "1 hard {}Quantity, 2 used {}Quantity"),
    ("LimitRangeSpec", "1 limits []LimitRangeItem"),
    (
        "PersistentVolumeClaimStatus",
        "1 phase string, 2 accessModes []string, 3 capacity {}Quantity, 4 conditions \
         []PersistentVolumeClaimCondition, 5 allocatedResources {}Quantity, 7 allocatedResourceStatuses \
         {}string, 8 currentVolumeAttributesClassName *string, 9 modifyVolumeStatus *ModifyVolumeStatus",
    ),
    ("PodFailurePolicy", "1 rules []PodFailurePolicyRule"),
    ("SuccessPolicy", "1 rules []SuccessPolicyRule"),
    (
        "JobCondition",
        "1 type string, 2 status string, 3 lastProbeTime Time, 4 lastTransitionTime Time, 5 reason \
         string, 6 message string",
    ),
    ("UncountedTerminatedPods", "1 succeeded []string, 2 failed []string"),
    ("JobTemplateSpec", "1 metadata ObjectMeta, 2 spec JobSpec"),
    ("IngressBackend", "4 service *IngressServiceBackend, 3 resource *TypedLocalObjectReference"),
    ("IngressTLS", "1 hosts []string, 2 secretName string"),
    ("IngressRule", "1 host string, 2 . IngressRuleValue"),
    ("IngressLoadBalancerStatus", "1 ingress []IngressLoadBalancerIngress"),
    (
        "IngressClassParametersReference",
        "1 apiGroup *string, 2 kind string, 3 name string, 4 scope *string, 5 namespace *string",
    ),
    ("NetworkPolicyIngressRule", "1 ports []NetworkPolicyPort, 2 from []NetworkPolicyPeer"),
    ("NetworkPolicyEgressRule", "1 ports []NetworkPolicyPort, 2 to []NetworkPolicyPeer"),
    (
        "Condition",
        "1 type string, 2 status string, 3 observedGeneration int, 4 lastTransitionTime Time, 5 reason \
         string, 6 message string",
    ),
    ("StatefulSetUpdateStrategy", "1 type string, 2 rollingUpdate *RollingUpdateStatefulSetStrategy"),
    ("StatefulSetPersistentVolumeClaimRetentionPolicy", "1 whenDeleted string, 2 whenScaled string"),
    ("StatefulSetOrdinals", "1 start int"),
    (
        "StatefulSetCondition",
        "1 type string, 2 status string, 3 lastTransitionTime Time, 4 reason string, 5 message string",
    ),
    ("TopologySelectorLabelRequirement", "1 key string, 2 values []string"),
    ("ScopeSelector", "1 matchExpressions []ScopedResourceSelectorRequirement"),
    (
        "LimitRangeItem",
        "1 type string, 2 max {}Quantity, 3 min {}Quantity, 4 default {}Quantity, 5 defaultRequest \
         {}Quantity, 6 maxLimitRequestRatio {}Quantity",
    ),
    (
        "PersistentVolumeClaimCondition",
        "1 type string, 2 status string, 3 lastProbeTime Time, 4 lastTransitionTime Time, 5 reason \
         string, 6 message string",
    ),
    ("ModifyVolumeStatus", "1 targetVolumeAttributesClassName string, 2 status string"),
    (
        "PodFailurePolicyRule",
        "1 action string, 2 onExitCodes *PodFailurePolicyOnExitCodesRequirement, 3 onPodConditions \
         []PodFailurePolicyOnPodConditionsPattern",
    ),
    ("SuccessPolicyRule", "1 succeededIndexes *string, 2 succeededCount *int"),
    ("IngressServiceBackend", "1 name string, 2 port ServiceBackendPort"),
    ("IngressRuleValue", "1 http *HTTPIngressRuleValue"),
    ("IngressLoadBalancerIngress", "1 ip string, 2 hostname string, 4 ports []IngressPortStatus"),
    ("NetworkPolicyPort", "1 protocol *string, 2 port *IntOrString, 3 endPort *int"),
    (
        "NetworkPolicyPeer",
        "1 podSelector *LabelSelector, 2 namespaceSelector *LabelSelector, 3 ipBlock *IPBlock",
    ),
    ("RollingUpdateStatefulSetStrategy", "1 partition *int, 2 maxUnavailable *IntOrString"),
    ("ScopedResourceSelectorRequirement", "1 scopeName string, 2 operator string, 3 values []string"),
    ("PodFailurePolicyOnExitCodesRequirement", "1 containerName *string, 2 operator string, 3 values []int"),
    ("PodFailurePolicyOnPodConditionsPattern", "1 type string, 2 status string"),
    ("ServiceBackendPort", "1 name string, 2 number int"),
    ("HTTPIngressRuleValue", "1 paths []HTTPIngressPath"),
    ("IngressPortStatus", "1 port int, 2 protocol string, 3 error *string"),
    ("IPBlock", "1 cidr string, 2 except []string"),
    ("HTTPIngressPath", "1 path string, 3 pathType *string, 2 backend IngressBackend"),
];
