//! The report of a rolling update: its condition, its events, and its metrics.

use std::fmt;

use jiff::Timestamp;

use crate::model::{Condition, ReplicaSet, condition};
use crate::plan::EventNote;

/// The type of the condition: on OLD while the update lasts, at the end on the survivor.
pub const ROLLING_UPDATE: &str = "RollingUpdate";

/// The longest message of a condition, in characters.
const LONGEST_MESSAGE: usize = 1000;

/// The reason of the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Resizes follow as the bounds allow.
    Progressing,
    /// Pods must become available, or be deleted, before the next resize.
    Waiting,
    /// The user has paused it.
    Paused,
    /// OLD grows back to its original size.
    RollingBack,
    /// There was no progress in time. The update goes on.
    TimedOut,
    /// OLD takes the pods of NEW over.
    HandingOver,
    /// All pods are NEW's, and available.
    Complete,
    /// All pods are OLD's again.
    RolledBack,
    /// Something in the way makes the update impossible.
    Refused,
    /// The user has removed the request.
    Stopped,
}

impl Reason {
    /// Whether the condition is `True`: the update is under way.
    pub fn is_under_way(self) -> bool {
        match self {
            Reason::Progressing
            | Reason::Waiting
            | Reason::Paused
            | Reason::RollingBack
            | Reason::TimedOut
            | Reason::HandingOver => true,
            Reason::Complete | Reason::RolledBack | Reason::Refused | Reason::Stopped => false,
        }
    }

    /// The reason as the condition has it.
    pub fn name(self) -> &'static str {
        match self {
            Reason::Progressing => "Progressing",
            Reason::Waiting => "Waiting",
            Reason::Paused => "Paused",
            Reason::RollingBack => "RollingBack",
            Reason::TimedOut => "TimedOut",
            Reason::HandingOver => "HandingOver",
            Reason::Complete => "Complete",
            Reason::RolledBack => "RolledBack",
            Reason::Refused => "Refused",
            Reason::Stopped => "Stopped",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The condition to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The reason.
    pub reason: Reason,
    /// The message.
    pub message: String,
}

impl Report {
    /// A report; a message that is too long is cut.
    pub fn new(reason: Reason, message: String) -> Self {
        let message = match message.char_indices().nth(LONGEST_MESSAGE) {
            Some((end, _)) => format!("{}…", message.get(..end).unwrap_or_default()),
            None => message,
        };
        Report { reason, message }
    }

    /// Whether the controller has this very condition.
    pub fn is_on(&self, controller: &ReplicaSet) -> bool {
        self.is_but_for_the_message_on(controller)
            && current(controller).is_some_and(|condition| *condition.message == *self.message)
    }

    /// Whether the controller has this condition with whatever message.
    pub fn is_but_for_the_message_on(&self, controller: &ReplicaSet) -> bool {
        current(controller).is_some_and(|condition| {
            condition.is_true() == self.reason.is_under_way() && *condition.reason == *self.reason.name()
        })
    }

    /// The conditions of a controller with this one among them.
    pub fn conditions(&self, controller: &ReplicaSet, now: Timestamp) -> Vec<Condition> {
        let mut conditions = controller.status.conditions.clone();
        let status = if self.reason.is_under_way() { "True" } else { "False" };
        let mut own = Condition::new(ROLLING_UPDATE, status, self.reason.name(), self.message.as_str(), now);
        // Conditions of this kind have no such field.
        own.last_update = None;
        condition::set(&mut conditions, own);
        conditions
    }

    /// The event and the count when this replaces the present condition of a controller; `None` where only
    /// the message differs, or the update goes on as before.
    pub fn news(&self, controller: &ReplicaSet) -> Option<News> {
        let before = current(controller);
        if self.is_but_for_the_message_on(controller) {
            return None;
        }
        let is_new = !before.is_some_and(Condition::is_true);
        let message = self.message.clone();
        let (count, note) = match self.reason {
            reason if reason.is_under_way() && is_new => {
                (Some(Count::Started), EventNote::normal("RollingUpdateStarted", message))
            }
            Reason::Progressing | Reason::Waiting => return None,
            Reason::Paused => (None, EventNote::normal("RollingUpdatePaused", message)),
            Reason::RollingBack => (None, EventNote::normal("RollingUpdateRollingBack", message)),
            Reason::HandingOver => (None, EventNote::normal("RollingUpdateHandingOver", message)),
            Reason::Complete => (Some(Count::Finished), EventNote::normal("RollingUpdateComplete", message)),
            Reason::RolledBack => {
                (Some(Count::Failed(self.reason)), EventNote::normal("RollingUpdateRolledBack", message))
            }
            // A refusal has been counted.
            Reason::Stopped if is_new => (None, EventNote::normal("RollingUpdateStopped", message)),
            Reason::Stopped => {
                (Some(Count::Failed(self.reason)), EventNote::normal("RollingUpdateStopped", message))
            }
            Reason::TimedOut => {
                (Some(Count::Failed(self.reason)), EventNote::warning("RollingUpdateTimedOut", message))
            }
            Reason::Refused => {
                (Some(Count::Failed(self.reason)), EventNote::warning("RollingUpdateRefused", message))
            }
        };
        Some(News { count, note })
    }
}

/// The condition of a controller.
pub fn current(controller: &ReplicaSet) -> Option<&Condition> {
    condition::find(&controller.status.conditions, ROLLING_UPDATE)
}

/// A change for the user and the metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The count to increment.
    pub count: Option<Count>,
    /// The event.
    pub note: EventNote,
}

/// The counts of rolling updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// One began.
    Started,
    /// One was completed.
    Finished,
    /// One did not come to its end, or not in time.
    Failed(Reason),
}
