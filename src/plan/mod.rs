//! What to do, decided from what is known. Pure: the same observation gives the same plan.
//!
//! The one guarantee: nothing here waits, reads a clock, rolls dice or talks to anyone. A plan is a
//! value that can be printed, compared, refused and simulated.

pub mod claim;
pub mod daemonset;
pub mod deployment;
pub mod replicaset;

/// How soon a status that has changed is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// Somebody waits for it.
    AtOnce,
    /// A second after the last one: each write is a revision that everybody who watches gets.
    Spaced,
    /// When it has waited for a second, since the sync that comes next says more.
    PutOff,
}

/// Something to tell the user in an Event, in upstream's words so that people and alerts know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Whether the event is of type `Warning`; otherwise `Normal`.
    pub warning: bool,
    /// The event's reason.
    pub reason: &'static str,
    /// The event's message.
    pub message: String,
}

impl Note {
    /// Something that went as it should.
    pub fn normal(reason: &'static str, message: String) -> Self {
        Note { warning: false, reason, message }
    }

    /// Something that a person should look at.
    pub fn warning(reason: &'static str, message: String) -> Self {
        Note { warning: true, reason, message }
    }
}
