//! What the numbers in a protobuf body stand for: the messages that kubectl's typed commands and Go
//! controllers send for the served kinds. Not every field of a pod is here; a body with another one is
//! refused, never cut short.
//!
//! A field is `number name type`. The types are `string`, `bytes`, `int`, `bool`, `Time`, `MicroTime`,
//! `Quantity`, `IntOrString`, `ignored` or another message; `[]` is a list, `{}` a map from strings.
//! A `*` says that Go keeps the field behind a pointer, so that a zero on the wire is a value; without
//! it, Go writes zeroes for fields that nobody has set. A name of `.` says that the message's fields
//! stand in their parent (an embedded struct).

/// Messages by name. Kinds are under their own names; [`super::message_of`] tells the two Events apart.
pub(super) const MESSAGES: &[(&str, &str)] = &[
    (
        "ObjectMeta",
        "1 name string, 2 generateName string, 3 namespace string, 4 selfLink ignored, 5 uid string, \
         6 resourceVersion string, 7 generation int, 8 creationTimestamp Time, 9 deletionTimestamp *Time, \
         10 deletionGracePeriodSeconds *int, 11 labels {}string, 12 annotations {}string, \
         13 ownerReferences []OwnerReference, 14 finalizers []string, 17 managedFields ignored",
    ),
    (
        "OwnerReference",
        "5 apiVersion string, 1 kind string, 3 name string, 4 uid string, 6 controller *bool, \
         7 blockOwnerDeletion *bool",
    ),
    ("LabelSelector", "1 matchLabels {}string, 2 matchExpressions []LabelSelectorRequirement"),
    ("LabelSelectorRequirement", "1 key string, 2 operator string, 3 values []string"),
    (
        "ObjectReference",
        "1 kind string, 2 namespace string, 3 name string, 4 uid string, 5 apiVersion string, \
         6 resourceVersion string, 7 fieldPath string",
    ),
    ("LocalObjectReference", "1 name string"),
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
    ("Pod", "1 metadata ObjectMeta, 2 spec PodSpec, 3 status PodStatus"),
    (
        "PodSpec",
        "1 volumes []Volume, 20 initContainers []Container, 2 containers []Container, 3 restartPolicy string, \
         4 terminationGracePeriodSeconds *int, 5 activeDeadlineSeconds *int, 6 dnsPolicy string, \
         7 nodeSelector {}string, 8 serviceAccountName string, 9 serviceAccount string, \
         21 automountServiceAccountToken *bool, 10 nodeName string, 11 hostNetwork bool, 12 hostPID bool, \
         13 hostIPC bool, 27 shareProcessNamespace *bool, 14 securityContext *PodSecurityContext, \
         15 imagePullSecrets []LocalObjectReference, 16 hostname string, 17 subdomain string, \
         19 schedulerName string, 22 tolerations []Toleration, 24 priorityClassName string, 25 priority *int, \
         29 runtimeClassName *string, 30 enableServiceLinks *bool, 31 preemptionPolicy *string, \
         32 overhead {}Quantity, 35 setHostnameAsFQDN *bool, 37 hostUsers *bool",
    ),
    (
        "PodStatus",
        "17 observedGeneration int, 1 phase string, 2 conditions []PodCondition, 3 message string, \
         4 reason string, 11 nominatedNodeName string, 5 hostIP string, 6 podIP string, 7 startTime *Time, \
         9 qosClass string",
    ),
    (
        "PodCondition",
        "1 type string, 7 observedGeneration int, 2 status string, 3 lastProbeTime Time, \
         4 lastTransitionTime Time, 5 reason string, 6 message string",
    ),
    (
        "Container",
        "1 name string, 2 image string, 3 command []string, 4 args []string, 5 workingDir string, \
         6 ports []ContainerPort, 19 envFrom []EnvFromSource, 7 env []EnvVar, 8 resources ResourceRequirements, \
         24 restartPolicy *string, 9 volumeMounts []VolumeMount, 10 livenessProbe *Probe, \
         11 readinessProbe *Probe, 22 startupProbe *Probe, 12 lifecycle *Lifecycle, \
         13 terminationMessagePath string, 20 terminationMessagePolicy string, 14 imagePullPolicy string, \
         15 securityContext *SecurityContext, 16 stdin bool, 17 stdinOnce bool, 18 tty bool",
    ),
    (
        "ContainerPort",
        "1 name string, 2 hostPort int, 3 containerPort int, 4 protocol string, 5 hostIP string",
    ),
    ("EnvVar", "1 name string, 2 value string, 3 valueFrom *EnvVarSource"),
    (
        "EnvVarSource",
        "1 fieldRef *ObjectFieldSelector, 2 resourceFieldRef *ResourceFieldSelector, \
         3 configMapKeyRef *KeySelector, 4 secretKeyRef *KeySelector",
    ),
    ("ObjectFieldSelector", "1 apiVersion string, 2 fieldPath string"),
    ("ResourceFieldSelector", "1 containerName string, 2 resource string, 3 divisor Quantity"),
    ("KeySelector", "1 . LocalObjectReference, 2 key string, 3 optional *bool"),
    ("EnvFromSource", "1 prefix string, 2 configMapRef *EnvSource, 3 secretRef *EnvSource"),
    ("EnvSource", "1 . LocalObjectReference, 2 optional *bool"),
    ("ResourceRequirements", "1 limits {}Quantity, 2 requests {}Quantity"),
    (
        "VolumeMount",
        "1 name string, 2 readOnly bool, 7 recursiveReadOnly *string, 3 mountPath string, 4 subPath string, \
         5 mountPropagation *string, 6 subPathExpr string",
    ),
    (
        "Probe",
        "1 . Handler, 2 initialDelaySeconds int, 3 timeoutSeconds int, 4 periodSeconds int, \
         5 successThreshold int, 6 failureThreshold int, 7 terminationGracePeriodSeconds *int",
    ),
    (
        "Handler",
        "1 exec *ExecAction, 2 httpGet *HTTPGetAction, 3 tcpSocket *TCPSocketAction, 4 grpc *GRPCAction",
    ),
    ("Lifecycle", "1 postStart *LifecycleHandler, 2 preStop *LifecycleHandler, 3 stopSignal *string"),
    (
        "LifecycleHandler",
        "1 exec *ExecAction, 2 httpGet *HTTPGetAction, 3 tcpSocket *TCPSocketAction, 4 sleep *SleepAction",
    ),
    ("ExecAction", "1 command []string"),
    (
        "HTTPGetAction",
        "1 path string, 2 port IntOrString, 3 host string, 4 scheme string, 5 httpHeaders []HTTPHeader",
    ),
    ("HTTPHeader", "1 name string, 2 value string"),
    ("TCPSocketAction", "1 port IntOrString, 2 host string"),
    ("GRPCAction", "1 port int, 2 service *string"),
    ("SleepAction", "1 seconds int"),
    (
        "SecurityContext",
        "1 capabilities *Capabilities, 2 privileged *bool, 4 runAsUser *int, 8 runAsGroup *int, \
         5 runAsNonRoot *bool, 6 readOnlyRootFilesystem *bool, 7 allowPrivilegeEscalation *bool, \
         9 procMount *string, 11 seccompProfile *SeccompProfile",
    ),
    ("Capabilities", "1 add []string, 2 drop []string"),
    ("SeccompProfile", "1 type string, 2 localhostProfile *string"),
    (
        "PodSecurityContext",
        "2 runAsUser *int, 6 runAsGroup *int, 3 runAsNonRoot *bool, 4 supplementalGroups []int, 5 fsGroup *int, \
         9 fsGroupChangePolicy *string, 10 seccompProfile *SeccompProfile",
    ),
    (
        "Toleration",
        "1 key string, 2 operator string, 3 value string, 4 effect string, 5 tolerationSeconds *int",
    ),
    ("Volume", "1 name string, 2 . VolumeSource"),
    (
        "VolumeSource",
        "1 hostPath *HostPathVolumeSource, 2 emptyDir *EmptyDirVolumeSource, 6 secret *SecretVolumeSource, \
         10 persistentVolumeClaim *ClaimVolumeSource, 19 configMap *ConfigMapVolumeSource",
    ),
    ("HostPathVolumeSource", "1 path string, 2 type *string"),
    ("EmptyDirVolumeSource", "1 medium string, 2 sizeLimit *Quantity"),
    ("SecretVolumeSource", "1 secretName string, 2 items []KeyToPath, 3 defaultMode *int, 4 optional *bool"),
    (
        "ConfigMapVolumeSource",
        "1 . LocalObjectReference, 2 items []KeyToPath, 3 defaultMode *int, 4 optional *bool",
    ),
    ("ClaimVolumeSource", "1 claimName string, 2 readOnly bool"),
    ("KeyToPath", "1 key string, 2 path string, 3 mode *int"),
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
