//! What to do, decided from what is known. Pure: the same observation gives the same plan.
//!
//! The one guarantee: nothing here waits, reads a clock, rolls dice or talks to anyone. A plan is a
//! value that can be printed, compared, refused and simulated.

pub mod claim;
pub mod daemonset;
pub mod deployment;
pub mod replicaset;

use std::fmt;

use serde::Serialize;

/// A reason of a plan, of whichever controller. Serialized and displayed as the controller's own.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Reason {
    /// Why ReplicaSets have these sizes.
    Sizes(deployment::PlanReason),
    /// Why nodes have these pods.
    Nodes(daemonset::PlanReason),
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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Sizes(reason) => reason.fmt(f),
            Reason::Nodes(reason) => reason.fmt(f),
        }
    }
}

impl Reason {
    /// Cuts texts of any length to so many bytes.
    pub fn shorten(&mut self, longest: usize) {
        match self {
            Reason::Sizes(reason) => reason.shorten(longest),
            Reason::Nodes(reason) => reason.shorten(longest),
        }
    }

    /// How many bytes it takes with all that it refers to.
    pub fn bytes(&self) -> usize {
        size_of::<Reason>()
            + match self {
                Reason::Sizes(reason) => reason.heap(),
                Reason::Nodes(reason) => reason.heap(),
            }
    }

    /// The pods that it names with what they said.
    pub fn named_pods(&self) -> impl Iterator<Item = &deployment::explain::NamedPod> {
        let sizes = match self {
            Reason::Sizes(reason) => Some(reason.named_pods()),
            Reason::Nodes(_) => None,
        };
        sizes.into_iter().flatten()
    }

    /// Whether nothing more is to be done.
    pub fn is_at_rest(&self) -> bool {
        match self {
            Reason::Sizes(reason) => reason.is_at_rest(),
            Reason::Nodes(reason) => reason.is_at_rest(),
        }
    }
}

/// How soon a status that has changed is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Somebody waits for it.
    Immediate,
    /// A second after the last one: each write is a revision that everybody who watches gets.
    Throttled,
    /// When it has waited for a second, since the sync that comes next says more.
    Postponed,
}

/// Something to tell the user in an Event, in upstream's words so that people and alerts know it.
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
    /// Something that went as it should.
    pub fn normal(reason: &'static str, message: String) -> Self {
        EventNote { warning: false, reason, message }
    }

    /// Something that a person should look at.
    pub fn warning(reason: &'static str, message: String) -> Self {
        EventNote { warning: true, reason, message }
    }
}
