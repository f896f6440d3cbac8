//! The meaning of the numbers in a protobuf body: the messages that kubectl's typed commands and Go
//! controllers send for the served kinds. A body with another field is refused,
//! never cut short.
//!
//! A field is `number name type`. The types are `string`, `bytes`, `int`, `bool`, `Time`, `MicroTime`,
//! `Quantity`, `IntOrString`, `RawJson` (JSON text in an envelope), `ignored` or another message; `[]` is a list, `{}` a map from strings.
//! A `*` says that Go keeps the field behind a pointer, so that a zero on the wire is a value; without
//! it, Go writes zeroes for unset fields. A name of `.` says that the message's fields
//! stand in their parent (an embedded struct).

/// Messages by name, but for those that a pod is made of ([`super::pod`]). Kinds are under their own names;
/// [`super::message_of`] tells the two Events apart.
pub(super) const MESSAGES: &[(&str, &str)] = &[
    (
        "ObjectMeta",
        "1 name string, 2 generateName string, 3 namespace string, 4 selfLink ignored, 5 uid string, \
         6 resourceVersion string, 7 generation int, 8 creationTimestamp Time, 9 deletionTimestamp *Time, \
         10 deletionGracePeriodSeconds *int, 11 labels {}string, 12 annotations {}string, \
         13 ownerReferences []OwnerReference, 14 finalizers []string, 17 managedFields ignored",
    ),
    ("PartialObjectMetadata", "1 metadata ObjectMeta"),
    (
        "OwnerReference",
        "5 apiVersion string, 1 kind string, 3 name string, 4 uid string, 6 controller *bool, \
         7 blockOwnerDeletion *bool",
    ),
    (
        "ListMeta",
        "1 selfLink ignored, 2 resourceVersion string, 3 continue string, 4 remainingItemCount *int",
    ),
    (
        "Status",
        "1 metadata ListMeta, 2 status string, 3 message string, 4 reason string, 5 details *StatusDetails, 6 code int",
    ),
    (
        "StatusDetails",
        "1 name string, 2 group string, 3 kind string, 6 uid string, 4 causes []StatusCause, 5 retryAfterSeconds int",
    ),
    ("StatusCause", "1 reason string, 2 message string, 3 field string"),
    ("LabelSelector", "1 matchLabels {}string, 2 matchExpressions []LabelSelectorRequirement"),
    ("LabelSelectorRequirement", "1 key string, 2 operator string, 3 values []string"),
    (
        "ObjectReference",
        "1 kind string, 2 namespace string, 3 name string, 4 uid string, 5 apiVersion string, \
         6 resourceVersion string, 7 fieldPath string",
    ),
    (
        "DeleteOptions",
        "1 gracePeriodSeconds *int, 2 preconditions *Preconditions, 3 orphanDependents *bool, \
         4 propagationPolicy *string, 5 dryRun []string, 6 ignoreStoreReadErrorWithClusterBreakingPotential *bool",
    ),
    ("Preconditions", "1 uid *string, 2 resourceVersion *string"),
    ("Namespace", "1 metadata ObjectMeta, 2 spec NamespaceSpec, 3 status NamespaceStatus"),
    ("NamespaceSpec", "1 finalizers []string"),
    ("NamespaceStatus", "1 phase string, 2 conditions []NamespaceCondition"),
    (
        "NamespaceCondition",
        "1 type string, 2 status string, 4 lastTransitionTime Time, 5 reason string, 6 message string",
    ),
    ("ConfigMap", "1 metadata ObjectMeta, 4 immutable *bool, 2 data {}string, 3 binaryData {}bytes"),
    (
        "Secret",
        "1 metadata ObjectMeta, 5 immutable *bool, 2 data {}bytes, 4 stringData {}string, 3 type string",
    ),
    (
        "ServiceAccount",
        "1 metadata ObjectMeta, 2 secrets []ObjectReference, 3 imagePullSecrets []LocalObjectReference, \
         4 automountServiceAccountToken *bool",
    ),
    ("Service", "1 metadata ObjectMeta, 2 spec ServiceSpec, 3 status ServiceStatus"),
    (
        "ServiceSpec",
        "1 ports []ServicePort, 2 selector {}string, 3 clusterIP string, 18 clusterIPs []string, 4 type string, \
         5 externalIPs []string, 7 sessionAffinity string, 8 loadBalancerIP string, \
         9 loadBalancerSourceRanges []string, 10 externalName string, 11 externalTrafficPolicy string, \
         12 healthCheckNodePort int, 13 publishNotReadyAddresses bool, \
         14 sessionAffinityConfig *SessionAffinityConfig, 19 ipFamilies []string, 17 ipFamilyPolicy *string, \
         20 allocateLoadBalancerNodePorts *bool, 21 loadBalancerClass *string, 22 internalTrafficPolicy *string, \
         23 trafficDistribution *string",
    ),
    (
        "ServicePort",
        "1 name string, 2 protocol string, 6 appProtocol *string, 3 port int, 4 targetPort IntOrString, \
         5 nodePort int",
    ),
    ("SessionAffinityConfig", "1 clientIP *ClientIPConfig"),
    ("ClientIPConfig", "1 timeoutSeconds *int"),
    ("ServiceStatus", "1 loadBalancer LoadBalancerStatus"),
    ("LoadBalancerStatus", ""),
    ("Deployment", "1 metadata ObjectMeta, 2 spec DeploymentSpec, 3 status DeploymentStatus"),
    (
        "DeploymentSpec",
        "1 replicas *int, 2 selector *LabelSelector, 3 template PodTemplateSpec, 4 strategy DeploymentStrategy, \
         5 minReadySeconds int, 6 revisionHistoryLimit *int, 7 paused bool, 9 progressDeadlineSeconds *int",
    ),
    ("DeploymentStrategy", "1 type string, 2 rollingUpdate *RollingUpdateDeployment"),
    ("RollingUpdateDeployment", "1 maxUnavailable *IntOrString, 2 maxSurge *IntOrString"),
    (
        "DeploymentStatus",
        "1 observedGeneration int, 2 replicas int, 3 updatedReplicas int, 7 readyReplicas int, \
         4 availableReplicas int, 5 unavailableReplicas int, 9 terminatingReplicas *int, \
         6 conditions []DeploymentCondition, 8 collisionCount *int",
    ),
    (
        "DeploymentCondition",
        "1 type string, 2 status string, 6 lastUpdateTime Time, 7 lastTransitionTime Time, 4 reason string, \
         5 message string",
    ),
    ("ControllerRevision", "1 metadata ObjectMeta, 2 data RawJson, 3 revision int"),
    ("DaemonSet", "1 metadata ObjectMeta, 2 spec DaemonSetSpec, 3 status DaemonSetStatus"),
    (
        "DaemonSetSpec",
        "1 selector *LabelSelector, 2 template PodTemplateSpec, 3 updateStrategy DaemonSetUpdateStrategy, \
         4 minReadySeconds int, 6 revisionHistoryLimit *int",
    ),
    ("DaemonSetUpdateStrategy", "1 type string, 2 rollingUpdate *RollingUpdateDaemonSet"),
    ("RollingUpdateDaemonSet", "1 maxUnavailable *IntOrString, 2 maxSurge *IntOrString"),
    (
        "DaemonSetStatus",
        "1 currentNumberScheduled int, 2 numberMisscheduled int, 3 desiredNumberScheduled int, 4 numberReady int, \
         5 observedGeneration int, 6 updatedNumberScheduled int, 7 numberAvailable int, 8 numberUnavailable int, \
         9 collisionCount *int, 10 conditions []DaemonSetCondition",
    ),
    (
        "DaemonSetCondition",
        "1 type string, 2 status string, 3 lastTransitionTime Time, 4 reason string, 5 message string",
    ),
    ("ReplicaSet", "1 metadata ObjectMeta, 2 spec ReplicaSetSpec, 3 status ReplicaSetStatus"),
    (
        "ReplicaSetSpec",
        "1 replicas *int, 4 minReadySeconds int, 2 selector *LabelSelector, 3 template PodTemplateSpec",
    ),
    (
        "ReplicaSetStatus",
        "1 replicas int, 2 fullyLabeledReplicas int, 4 readyReplicas int, 5 availableReplicas int, \
         7 terminatingReplicas *int, 3 observedGeneration int, 6 conditions []ReplicaSetCondition",
    ),
    (
        "ReplicaSetCondition",
        "1 type string, 2 status string, 3 lastTransitionTime Time, 4 reason string, 5 message string",
    ),
    (
        "ReplicationController",
        "1 metadata ObjectMeta, 2 spec ReplicationControllerSpec, 3 status ReplicationControllerStatus",
    ),
    (
        "ReplicationControllerSpec",
        "1 replicas *int, 2 selector {}string, 3 template *PodTemplateSpec, 4 minReadySeconds int",
    ),
    (
        "ReplicationControllerStatus",
        "1 replicas int, 2 fullyLabeledReplicas int, 3 observedGeneration int, 4 readyReplicas int, \
         5 availableReplicas int, 6 conditions []ReplicationControllerCondition",
    ),
    (
        "ReplicationControllerCondition",
        "1 type string, 2 status string, 3 lastTransitionTime Time, 4 reason string, 5 message string",
    ),
    ("PodTemplateSpec", "1 metadata ObjectMeta, 2 spec PodSpec"),
    ("Binding", "1 metadata ObjectMeta, 2 target ObjectReference"),
    ("Eviction", "1 metadata ObjectMeta, 2 deleteOptions *DeleteOptions"),
    ("Scale", "1 metadata ObjectMeta, 2 spec ScaleSpec, 3 status ScaleStatus"),
    ("ScaleSpec", "1 replicas int"),
    ("ScaleStatus", "1 replicas int, 2 selector string"),
    ("Lease", "1 metadata ObjectMeta, 2 spec LeaseSpec"),
    (
        "LeaseSpec",
        "1 holderIdentity *string, 2 leaseDurationSeconds *int, 3 acquireTime *MicroTime, \
         4 renewTime *MicroTime, 5 leaseTransitions *int, 6 strategy *string, 7 preferredHolder *string",
    ),
    (
        "Event",
        "1 metadata ObjectMeta, 2 involvedObject ObjectReference, 3 reason string, 4 message string, \
         5 source EventSource, 6 firstTimestamp Time, 7 lastTimestamp Time, 8 count int, 9 type string, \
         10 eventTime MicroTime, 11 series *EventSeries, 12 action string, 13 related *ObjectReference, \
         14 reportingComponent string, 15 reportingInstance string",
    ),
    ("EventSource", "1 component string, 2 host string"),
    ("EventSeries", "1 count int, 2 lastObservedTime MicroTime"),
    (
        "EventsV1Event",
        "1 metadata ObjectMeta, 2 eventTime MicroTime, 3 series *EventSeries, 4 reportingController string, \
         5 reportingInstance string, 6 action string, 7 reason string, 8 regarding ObjectReference, \
         9 related *ObjectReference, 10 note string, 11 type string, 12 deprecatedSource EventSource, \
         13 deprecatedFirstTimestamp Time, 14 deprecatedLastTimestamp Time, 15 deprecatedCount int",
    ),
];
