//! A pod as the simulator and its scheduler know it: the fields they read, nothing else. A full
//! typed pod costs 50 to 130 KB of memory; this one costs one or two.

use std::{borrow::Cow, collections::BTreeMap};

use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Affinity, PodAffinityTerm, PodReadinessGate, Toleration, TopologySpreadConstraint},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time},
};
use kube::Resource;
use serde::Deserialize;

use super::{
    commands::Command,
    outcomes,
    quantity::Amount,
    references::{EnvFrom, EnvVar, Volume},
    resources::{Pairs, Port, Resources},
};

/// The annotation with the completion index of a pod of an Indexed Job.
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";

/// A pod, as far as placing and running it needs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "Watched")]
pub struct Pod {
    /// Its name, and the state of its deletion.
    pub metadata: Metadata,
    /// The containers that should run, and the nodes where they may.
    pub spec: PodSpec,
    /// The state that has been reported so far.
    pub status: PodStatus,
}

/// The metadata that are read; all of them are twice as large, without annotations and owners.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// The name.
    pub name: Option<String>,
    /// The namespace.
    pub namespace: Option<String>,
    /// The UID.
    pub uid: Option<String>,
    /// The resourceVersion.
    pub resource_version: Option<String>,
    /// Set while it is being deleted.
    pub deletion_timestamp: Option<Time>,
    /// In seconds, once it is being deleted.
    pub deletion_grace_period_seconds: Option<i64>,
    /// The finalizers that keep it once its containers have ended.
    pub finalizers: Option<Vec<String>>,
    /// The annotation that says how its containers end.
    pub outcome: Option<Box<str>>,
    /// The UID of the Job that controls it.
    pub job: Option<Box<str>>,
    /// Its index, in a Job that has them.
    pub completion_index: Option<u32>,
    labels: Pairs<Box<str>>,
}

impl Metadata {
    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.0.iter().find(|(known, _)| &**known == key).map(|(_, value)| &**value)
    }
}

/// A pod as the watch reads it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Watched {
    metadata: ObjectMeta,
    spec: PodSpec,
    status: PodStatus,
}

impl From<Watched> for Pod {
    fn from(Watched { metadata, mut spec, mut status }: Watched) -> Self {
        for container in &mut spec.containers {
            container.understand();
        }
        let owners = metadata.owner_references.unwrap_or_default();
        let is_job = |owner: &OwnerReference| owner.kind == "Job" && owner.controller == Some(true);
        let job = owners.into_iter().find(is_job).map(|owner| owner.uid.into());
        let restarted = |status: &ContainerStatus| status.restart_count > 0;
        status.container_statuses = status.container_statuses.filter(|all| all.iter().any(restarted));
        let mut annotations = metadata.annotations.unwrap_or_default();
        let metadata = Metadata {
            name: metadata.name,
            namespace: metadata.namespace,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            deletion_timestamp: metadata.deletion_timestamp,
            deletion_grace_period_seconds: metadata.deletion_grace_period_seconds,
            finalizers: metadata.finalizers,
            outcome: annotations.remove(outcomes::ANNOTATION).map(Into::into),
            job,
            completion_index: annotations.get(COMPLETION_INDEX).and_then(|index| index.parse().ok()),
            labels: metadata
                .labels
                .into_iter()
                .flatten()
                .map(|(key, value)| (key.into(), value.into()))
                .collect(),
        };
        Pod { metadata, spec, status }
    }
}

/// The part of a pod's spec that is read. Lists are optional because a server may send `null`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec {
    /// The node it is bound to; absent or empty until then.
    pub node_name: Option<String>,
    /// The scheduler that should bind it; absent means the default scheduler.
    pub scheduler_name: Option<String>,
    /// While there is one, it must not be placed.
    pub scheduling_gates: Option<Vec<serde_json::Value>>,
    /// Labels its node must have.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Only what is required is read.
    pub affinity: Option<Box<Affinity>>,
    /// Only those with `DoNotSchedule` are read.
    pub topology_spread_constraints: Option<Box<[TopologySpreadConstraint]>>,
    /// `Never` or absent.
    pub preemption_policy: Option<Box<str>>,
    /// The resources that the pod needs in addition to its containers.
    pub overhead: Pairs<Amount>,
    /// The resources that the pod needs in all.
    pub resources: Option<Box<Resources>>,
    /// The taints it may ignore.
    pub tolerations: Option<Vec<Toleration>>,
    /// Run to completion before the others start, unless they are sidecars.
    pub init_containers: Option<Vec<Container>>,
    /// The main containers of the pod.
    pub containers: Box<[Container]>,
    /// The volumes that its containers may mount.
    pub volumes: Option<Box<[Volume]>>,
    /// Whether its containers are started again.
    pub restart_policy: RestartPolicy,
    /// Conditions set by others that must be true before the pod counts as ready.
    pub readiness_gates: Option<Vec<PodReadinessGate>>,
    /// Whether the pod has its node's address.
    pub host_network: Option<bool>,
}

/// Whether a container that ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Option<String>")]
pub enum RestartPolicy {
    /// However it ended.
    #[default]
    Always,
    /// Unless its exit code was 0.
    OnFailure,
    /// It is not.
    Never,
}

impl From<Option<String>> for RestartPolicy {
    fn from(text: Option<String>) -> Self {
        match text.as_deref() {
            Some("OnFailure") => RestartPolicy::OnFailure,
            Some("Never") => RestartPolicy::Never,
            _ => RestartPolicy::Always,
        }
    }
}

/// One container of a pod.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Unique in the pod.
    pub name: String,
    /// The image that it runs.
    pub image: Option<String>,
    /// Instead of that of the pod. `Always` on an init container makes it a sidecar.
    pub restart_policy: Option<String>,
    /// The resources that it needs.
    pub resources: Option<Box<Resources>>,
    /// The ports that it names.
    pub ports: Option<Box<[Port]>>,
    /// Its environment, as far as it comes from ConfigMaps and Secrets.
    pub env: Option<Box<[EnvVar]>>,
    /// The ConfigMaps and Secrets that are its environment as a whole.
    pub env_from: Option<Box<[EnvFrom]>>,
    /// Its command, if it says itself how it ends.
    #[serde(skip)]
    pub script: Option<Box<Command>>,
    command: Option<Box<[Box<str>]>>,
    args: Option<Box<[Box<str>]>>,
}

impl Container {
    /// The image, empty if there is none.
    pub fn image(&self) -> &str {
        self.image.as_deref().unwrap_or_default()
    }

    /// Keeps of the command only how it ends.
    fn understand(&mut self) {
        let (command, args) = (self.command.take().unwrap_or_default(), self.args.take().unwrap_or_default());
        self.script = Command::read(&command, &args).map(Box::new);
    }

    /// Whether this init container keeps running beside the others (KEP-753).
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// The part of a pod's status that is read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus {
    /// Pending, Running, Succeeded, Failed or Unknown.
    pub phase: Option<String>,
    /// PodScheduled, Ready and so on.
    pub conditions: Option<Box<[Condition]>>,
    /// The pod's address, once it has one.
    #[serde(rename = "podIP")]
    pub pod_ip: Option<String>,
    /// When a kubelet took the pod on.
    pub start_time: Option<Time>,
    /// Those of its main containers that have been restarted.
    pub container_statuses: Option<Box<[ContainerStatus]>>,
}

/// A container, as far as it has to be remembered.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ContainerStatus {
    name: Box<str>,
    restart_count: i64,
}

/// A condition of a pod, without the reason and the message.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// The type, such as `Ready`.
    #[serde(rename = "type")]
    pub type_: Box<str>,
    /// `True`, `False` or `Unknown`.
    pub status: Box<str>,
    /// Since when it has this status.
    pub last_transition_time: Option<Time>,
}

impl Pod {
    /// The UID; a pod from a server always has one.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The namespace.
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The node the pod is bound to.
    pub fn node(&self) -> Option<&str> {
        self.spec.node_name.as_deref().filter(|name| !name.is_empty())
    }

    /// The containers that run to completion first, and the sidecars.
    pub fn init_containers(&self) -> &[Container] {
        self.spec.init_containers.as_deref().unwrap_or_default()
    }

    /// The terms of its required pod affinity.
    pub fn required_affinity(&self) -> impl Iterator<Item = &PodAffinityTerm> {
        let affinity = self.spec.affinity.as_ref().and_then(|affinity| affinity.pod_affinity.as_ref());
        affinity
            .into_iter()
            .flat_map(|all| all.required_during_scheduling_ignored_during_execution.iter())
            .flatten()
    }

    /// The terms of its required pod anti-affinity.
    pub fn required_anti_affinity(&self) -> impl Iterator<Item = &PodAffinityTerm> {
        let affinity = self.spec.affinity.as_ref().and_then(|affinity| affinity.pod_anti_affinity.as_ref());
        affinity
            .into_iter()
            .flat_map(|all| all.required_during_scheduling_ignored_during_execution.iter())
            .flatten()
    }

    /// Whether where other pods are decides where it may run.
    pub fn depends_on_others(&self) -> bool {
        self.spec.topology_spread_constraints.is_some() || self.required_affinity().next().is_some()
    }

    /// The condition of that type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.conditions.as_deref().unwrap_or_default().iter().find(|c| &*c.type_ == type_)
    }

    /// Whether the condition of that type is true.
    pub fn is_true(&self, type_: &str) -> bool {
        self.condition(type_).is_some_and(|condition| &*condition.status == "True")
    }

    /// How often the container has been restarted.
    pub fn restarts(&self, container: &str) -> i64 {
        let mut statuses = self.status.container_statuses.iter().flatten();
        statuses.find(|status| &*status.name == container).map_or(0, |status| status.restart_count)
    }

    /// Whether every container has ended for good.
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }
}

impl Resource for Watched {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Pod".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        "".into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "pods".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}
