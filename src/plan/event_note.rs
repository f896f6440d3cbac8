//! The parts of a plan that all controllers share: events, and how soon a status is written.

/// How soon a changed status must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// At once: readers wait for it.
    Immediate,
    /// A second after the last one: each write is an event for every watch.
    Throttled,
    /// After a delay of one second, since the next sync has more to report.
    Postponed,
    /// After a delay of five seconds: a rollout is under way, and each of its steps changes the counts several times.
    Gathered,
}

/// The reason of the event that a rollout has failed by its policy.
pub const ROLLOUT_FAILED: &str = "RolloutFailed";

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
