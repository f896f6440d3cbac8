//! The names of objects in an explanation: a few of them, and how many more there are.

use std::sync::Arc;

use serde::Serialize;

use crate::model::{ContainerText, Phase, Pod, ReplicaSet};

/// The most names in an explanation.
const NAMED: usize = 5;

/// Some names, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Names {
    /// The first five.
    pub names: Vec<Arc<str>>,
    /// How many more there are.
    pub more: usize,
}

impl<'a> FromIterator<&'a Arc<ReplicaSet>> for Names {
    fn from_iter<I: IntoIterator<Item = &'a Arc<ReplicaSet>>>(replica_sets: I) -> Self {
        let mut replica_sets = replica_sets.into_iter();
        let names =
            replica_sets.by_ref().take(NAMED).map(|replica_set| replica_set.meta.key.name.clone()).collect();
        Names { names, more: replica_sets.count() }
    }
}

/// Some pods with their reasons, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pods {
    /// The first five; those with a reason from the kubelet or scheduler come first.
    pub named: Vec<NamedPod>,
    /// How many more there are.
    pub more: usize,
}

/// A pod that the rollout waits for.
///
/// Two are equal if name and reason are. Messages contain counters (`back-off 20s`, `0/12 nodes`), which must not
/// turn an explanation into a new one; see `engine/explanations.rs`.
#[derive(Clone, Debug, Eq, Serialize)]
pub struct NamedPod {
    /// Its name.
    pub name: Arc<str>,
    /// The reason that the kubelet or the scheduler reports, such as `ImagePullBackOff`; without one, the
    /// state of the pod.
    pub reason: Arc<str>,
    /// The message beside the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
    /// The termination message of its container, which may be confidential.
    #[serde(skip)]
    pub termination_message: Option<ContainerText>,
}

impl PartialEq for NamedPod {
    fn eq(&self, other: &Self) -> bool {
        let NamedPod { name, reason, message: _, termination_message: _ } = self;
        *name == other.name && *reason == other.reason
    }
}

impl Pods {
    /// Whether there is no pod.
    pub fn is_empty(&self) -> bool {
        self.named.is_empty()
    }

    /// Names these pods.
    pub(super) fn of<'p>(pods: impl Iterator<Item = &'p Arc<Pod>>) -> Self {
        let mut all: Vec<&Arc<Pod>> = pods.collect();
        all.sort_by_key(|pod| (pod.startup_failure().is_none(), &pod.meta.key));
        let more = all.len().saturating_sub(NAMED);
        all.truncate(NAMED);
        let named = all.into_iter().map(|pod| NamedPod {
            name: pod.meta.key.name.clone(),
            reason: reason(pod),
            message: pod.waiting.as_ref().and_then(|waiting| waiting.message.clone()),
            termination_message: pod.waiting.as_ref().and_then(|waiting| waiting.termination_message.clone()),
        });
        Pods { named: named.collect(), more }
    }
}

fn reason(pod: &Pod) -> Arc<str> {
    if let Some(waiting) = &pod.waiting {
        return waiting.reason.clone();
    }
    let state = match pod.phase {
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
        _ if pod.meta.is_deleting() => "Terminating",
        Phase::Unknown => "Unknown",
        Phase::Pending if pod.node().is_none() => "not scheduled",
        Phase::Pending => "Pending",
        Phase::Running if pod.ready_since.is_some() => "ready",
        Phase::Running => "running, not ready",
    };
    state.into()
}
