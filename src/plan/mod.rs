//! The decisions, computed from the observed state. Pure: the same observation gives the same plan.
//!
//! The one guarantee: nothing here waits, reads a clock, uses randomness or does I/O. A plan is a
//! value that can be printed, compared, refused and simulated.

pub mod claim;
pub mod clusterrole_aggregation;
pub mod daemonset;
pub mod deployment;
pub mod fixed_place_backoff;
pub mod garbage;
pub mod namespace;
pub mod outcome_of;
pub mod preview;
pub mod protection;
pub mod recent_creations;
pub mod replicaset;
pub mod revisions;
pub mod rolling_update;
pub mod root_ca_cert;
pub mod serviceaccount;
pub mod statefulset;

use std::fmt;

use serde::Serialize;

pub use deployment::explain::shorten;
pub use replicaset::new_pod::OwnerReference;
pub use replicaset::status::REPLICA_FAILURE;

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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Sizes(reason) => reason.fmt(f),
            Reason::Nodes(reason) => reason.fmt(f),
            Reason::Ordinals(reason) => reason.fmt(f),
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
        }
    }

    /// The bytes that it takes, on the heap included.
    pub fn bytes(&self) -> usize {
        size_of::<Reason>()
            + match self {
                Reason::Sizes(reason) => reason.heap(),
                Reason::Nodes(reason) => reason.heap(),
                Reason::Ordinals(reason) => reason.heap(),
            }
    }

    /// The pods that it names, with their messages.
    pub fn named_pods(&self) -> impl Iterator<Item = &deployment::explain::NamedPod> {
        let sizes = match self {
            Reason::Sizes(reason) => Some(reason.named_pods()),
            Reason::Nodes(_) | Reason::Ordinals(_) => None,
        };
        sizes.into_iter().flatten()
    }

    /// Whether this reason leaves nothing to do.
    pub fn is_at_rest(&self) -> bool {
        match self {
            Reason::Sizes(reason) => reason.is_at_rest(),
            Reason::Nodes(reason) => reason.is_at_rest(),
            Reason::Ordinals(reason) => reason.is_at_rest(),
        }
    }
}

/// How soon a changed status must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// At once: readers wait for it.
    Immediate,
    /// A second after the last one: each write is an event for every watch.
    Throttled,
    /// After a delay of one second, since the next sync has more to report.
    Postponed,
}

/// An Event for the user, in upstream's words so that people and alerts recognize it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventNote {
    /// Whether the event is of type `Warning`; otherwise `Normal`.
    pub warning: bool,
    /// The event's reason.
    pub reason: &'static str,
    /// The event's message.
    pub message: String,
}

impl EventNote {
    /// An event of type `Normal`.
    pub fn normal(reason: &'static str, message: String) -> Self {
        EventNote { warning: false, reason, message }
    }

    /// An event of type `Warning`.
    pub fn warning(reason: &'static str, message: String) -> Self {
        EventNote { warning: true, reason, message }
    }
}
