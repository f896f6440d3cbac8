//! The reasons of all controllers, as they are published.

use std::fmt;

use serde::Serialize;

use super::{cronjob, daemonset, deployment, job, resourcequota, statefulset};

/// A reason of a plan, of any controller. Serialized and displayed as the controller's own.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Reason {
    /// Why ReplicaSets have these sizes.
    Sizes(deployment::PlanReason),
    /// Why nodes have these pods.
    Nodes(daemonset::PlanReason),
    /// Why ordinals have these pods.
    Ordinals(statefulset::PlanReason),
    /// Why a Job has these pods.
    Completions(job::PlanReason),
    /// Why a CronJob runs or waits.
    Runs(cronjob::PlanReason),
    /// Why a quota has these numbers.
    Usage(resourcequota::PlanReason),
}

impl From<deployment::PlanReason> for Reason {
    fn from(reason: deployment::PlanReason) -> Self {
        Reason::Sizes(reason)
    }
}

impl From<daemonset::PlanReason> for Reason {
    fn from(reason: daemonset::PlanReason) -> Self {
        Reason::Nodes(reason)
    }
}

impl From<statefulset::PlanReason> for Reason {
    fn from(reason: statefulset::PlanReason) -> Self {
        Reason::Ordinals(reason)
    }
}

impl From<job::PlanReason> for Reason {
    fn from(reason: job::PlanReason) -> Self {
        Reason::Completions(reason)
    }
}

impl From<cronjob::PlanReason> for Reason {
    fn from(reason: cronjob::PlanReason) -> Self {
        Reason::Runs(reason)
    }
}

impl From<resourcequota::PlanReason> for Reason {
    fn from(reason: resourcequota::PlanReason) -> Self {
        Reason::Usage(reason)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Sizes(reason) => reason.fmt(f),
            Reason::Nodes(reason) => reason.fmt(f),
            Reason::Ordinals(reason) => reason.fmt(f),
            Reason::Completions(reason) => reason.fmt(f),
            Reason::Runs(reason) => reason.fmt(f),
            Reason::Usage(reason) => reason.fmt(f),
        }
    }
}

impl Reason {
    /// Cuts texts of unbounded length to this many bytes.
    pub fn shorten(&mut self, longest: usize) {
        match self {
            Reason::Sizes(reason) => reason.shorten(longest),
            Reason::Nodes(reason) => reason.shorten(longest),
            Reason::Ordinals(reason) => reason.shorten(longest),
            Reason::Completions(reason) => reason.shorten(longest),
            Reason::Runs(reason) => reason.shorten(longest),
            Reason::Usage(reason) => reason.shorten(longest),
        }
    }

    /// The bytes that it takes, on the heap included.
    pub fn bytes(&self) -> usize {
        size_of::<Reason>()
            + match self {
                Reason::Sizes(reason) => reason.heap(),
                Reason::Nodes(reason) => reason.heap(),
                Reason::Ordinals(reason) => reason.heap(),
                Reason::Completions(reason) => reason.heap(),
                Reason::Runs(reason) => reason.heap(),
                Reason::Usage(reason) => reason.heap(),
            }
    }

    /// The pods that it names, with their messages.
    pub fn named_pods(&self) -> impl Iterator<Item = &deployment::explain::NamedPod> {
        let sizes = match self {
            Reason::Sizes(reason) => Some(reason.named_pods()),
            Reason::Nodes(_)
            | Reason::Ordinals(_)
            | Reason::Completions(_)
            | Reason::Runs(_)
            | Reason::Usage(_) => None,
        };
        sizes.into_iter().flatten()
    }

    /// Whether this reason leaves nothing to do.
    pub fn is_at_rest(&self) -> bool {
        match self {
            Reason::Sizes(reason) => reason.is_at_rest(),
            Reason::Nodes(reason) => reason.is_at_rest(),
            Reason::Ordinals(reason) => reason.is_at_rest(),
            Reason::Completions(reason) => reason.is_at_rest(),
            Reason::Runs(reason) => reason.is_at_rest(),
            Reason::Usage(reason) => reason.is_at_rest(),
        }
    }
}
