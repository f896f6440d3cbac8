//! Events: what users read in `kubectl describe` and `kubectl get events`.
//!
//! The one guarantee: recording never waits. An event is added to a bounded queue, and a task of its own
//! decides how to write it (`correlate`) and writes it. When the API server is slow, events are
//! lost and counted; no sync waits.

mod correlate;
mod lru;
mod repeats;
mod write;

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus::IntCounterVec;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

pub use write::{EventWriter, create_once};

use super::api::Api;
use crate::clock::Clock;
use crate::model::{ObjectKey, Resource, Uid};

/// How many events may wait to be written; as many as client-go's broadcaster holds.
const QUEUE: usize = 1000;

/// The longest message that the API server accepts, in bytes.
const LONGEST_MESSAGE: usize = 1024;

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventTarget {
    /// Its kind.
    pub resource: Resource,
    /// Its name.
    pub key: ObjectKey,
    /// Its identity.
    pub uid: Uid,
    /// The version that the event is about, if that is known.
    pub resource_version: Option<u64>,
}

/// Whether an event needs attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventType {
    /// A regular event.
    Normal,
    /// An event that may need attention.
    Warning,
}

impl EventType {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

/// An event as it was recorded.
#[derive(Clone, Debug)]
struct Recorded {
    target: EventTarget,
    kind: EventType,
    reason: &'static str,
    message: String,
    source: &'static str,
    at: Timestamp,
}

/// Records events. Clones record into the same queue.
#[derive(Clone)]
pub struct EventRecorder {
    queue: mpsc::Sender<Recorded>,
    clock: Clock,
    dropped: IntCounterVec,
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventRecorder").finish_non_exhaustive()
    }
}

impl EventRecorder {
    /// A recorder, and the writer that must run for its events to be written. `seed` must differ between
    /// two processes that share a cluster: the names of the events depend on it.
    ///
    /// `api` should have a rate limit of its own, so that events take nothing from the syncs.
    pub fn new(api: Api, clock: Clock, seed: u64) -> (EventRecorder, EventWriter) {
        let (queue, recorded) = mpsc::channel(QUEUE);
        let dropped = api.metrics().events_dropped.clone();
        (EventRecorder { queue, clock, dropped }, EventWriter::new(api, recorded, seed))
    }

    /// Records an event, or drops and counts it if too many wait already. Never blocks.
    ///
    /// `reason` is one word in camel case; `source` is the component, `deployment-controller` for
    /// example. A message of more than 1024 bytes is cut at the end of a character.
    pub fn record(
        &self,
        target: &EventTarget,
        kind: EventType,
        reason: &'static str,
        message: String,
        source: &'static str,
    ) {
        let message = truncate(message);
        let event = Recorded { target: target.clone(), kind, reason, message, source, at: self.clock.now() };
        let cause = match self.queue.try_send(event) {
            Ok(()) => return,
            Err(TrySendError::Full(_)) => "queue_full",
            Err(TrySendError::Closed(_)) => "shut_down",
        };
        self.dropped.with_label_values(&[cause]).inc();
        tracing::debug!(object = %target.key, reason, cause, "event dropped");
    }
}

fn truncate(mut message: String) -> String {
    message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
    message
}

/// The fields that both kinds of identity share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Subject {
    source: &'static str,
    resource: Resource,
    object: ObjectKey,
    uid: Uid,
}

/// The fields that make two events similar: everything but the message.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    subject: Subject,
    kind: EventType,
    reason: &'static str,
}

/// The fields that make two events the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Exact {
    kind: Kind,
    message: Arc<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_between_two_characters() {
        assert_eq!(truncate("short".into()), "short");
        let cut = truncate("ä".repeat(600));
        assert_eq!((cut.len(), cut.chars().count()), (1024, 512));
        let cut = truncate(format!("x{}", "ä".repeat(600)));
        assert_eq!(cut.len(), 1023);
    }
}
