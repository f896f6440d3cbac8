//! The names of objects in an explanation: a few of them, and how many more there are.

use std::sync::Arc;

use serde::Serialize;

use crate::model::{ContainerText, Phase, Pod, ReplicaSet};

/// So many names stand in an explanation at most.
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
    /// The first five; those whose trouble has a name come first.
    pub named: Vec<NamedPod>,
    /// How many more there are.
    pub more: usize,
}

/// A pod that is waited for.
///
/// Two are equal if name and reason are. Messages count (`back-off 20s`, `0/12 nodes`), and an explanation
/// must not be another one for that; see how the daemon keeps them.
#[derive(Clone, Debug, Eq, Serialize)]
pub struct NamedPod {
    /// Its name.
    pub name: Arc<str>,
    /// What the kubelet or the scheduler says of it, such as `ImagePullBackOff`; where they say
    /// nothing, the state it is in.
    pub reason: Arc<str>,
    /// What they say beside it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<str>>,
    /// What its container said when it ended, which is not for everybody.
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
        all.sort_by_key(|pod| (pod.trouble().is_none(), &pod.meta.key));
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
