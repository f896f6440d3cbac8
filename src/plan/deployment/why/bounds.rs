//! How much memory a reason takes, and how much of a text from outside it keeps.

use std::sync::Arc;

use super::{NamedPod, Names, Pods, Shortage, Why};

impl Why {
    /// Cuts texts of any length to so many bytes. Names of objects are short already, and what is said of pods
    /// is cut when they are decoded.
    pub fn shorten(&mut self, longest: usize) {
        match self {
            Why::Refused { defect: text }
            | Why::RollingBack { answer: text }
            | Why::Blocked { reason: text } => {
                shorten(text, longest);
            }
            Why::ReplicaFailure { set: _, reason, message } => {
                for text in [reason, message] {
                    if text.len() > longest {
                        let mut cut = text.to_string();
                        shorten(&mut cut, longest);
                        *text = cut.into();
                    }
                }
            }
            Why::BeingDeleted
            | Why::ChangingHands { .. }
            | Why::Paused
            | Why::Scaling { .. }
            | Why::NewSet { .. }
            | Why::Resizing { .. }
            | Why::Updating { .. }
            | Why::Budget { .. }
            | Why::OldPodsStay { .. }
            | Why::OldPodsGoFirst { .. }
            | Why::OldPodsEnding { .. }
            | Why::Leaving { .. }
            | Why::StatusBehind { .. }
            | Why::Unavailable(_)
            | Why::Complete { .. }
            | Why::TrimmingHistory { .. }
            | Why::Deadline { .. }
            | Why::DeadlinePassed { .. } => {}
        }
    }

    /// How many bytes it takes with all that it refers to. Names that it shares with a cache count in full.
    pub fn bytes(&self) -> usize {
        let heap = match self {
            Why::Refused { defect: text }
            | Why::RollingBack { answer: text }
            | Why::Blocked { reason: text } => text.capacity(),
            Why::ReplicaFailure { set, reason, message } => set.len() + reason.len() + message.len(),
            Why::ChangingHands { adopted, released } => adopted.heap() + released.heap(),
            Why::TrimmingHistory { sets, limit: _ } => sets.heap(),
            Why::NewSet { set, .. }
            | Why::Resizing { set, .. }
            | Why::Updating { set }
            | Why::StatusBehind { set, .. } => set.len(),
            Why::OldPodsEnding { running: _, pods } => pods.heap(),
            Why::Unavailable(Shortage { set, pods, failed, .. }) => set.len() + pods.heap() + failed.heap(),
            Why::BeingDeleted
            | Why::Paused
            | Why::Scaling { .. }
            | Why::Budget { .. }
            | Why::OldPodsStay { .. }
            | Why::OldPodsGoFirst { .. }
            | Why::Leaving { .. }
            | Why::Complete { .. }
            | Why::Deadline { .. }
            | Why::DeadlinePassed { .. } => 0,
        };
        size_of::<Why>() + heap
    }

    /// The pods that it names.
    pub fn named_pods(&self) -> impl Iterator<Item = &NamedPod> {
        let (pods, failed) = match self {
            Why::OldPodsEnding { pods, .. } => (Some(pods), None),
            Why::Unavailable(shortage) => (Some(&shortage.pods), Some(&shortage.failed)),
            _ => (None, None),
        };
        pods.into_iter().chain(failed).flat_map(|pods| &pods.named)
    }

    /// Whether nothing more is to be done.
    pub fn is_at_rest(&self) -> bool {
        matches!(self, Why::Complete { .. } | Why::Paused)
    }
}

impl Names {
    fn heap(&self) -> usize {
        self.names.iter().map(|name| size_of::<Arc<str>>() + name.len()).sum()
    }
}

impl Pods {
    fn heap(&self) -> usize {
        let heap = |NamedPod { name, reason, message, termination_message }: &NamedPod| {
            let message = message.as_ref().map_or(0, |message| message.len());
            let termination_message = termination_message.as_ref().map_or(0, |text| text.bytes());
            name.len() + reason.len() + message + termination_message
        };
        self.named.iter().map(|pod| size_of::<NamedPod>() + heap(pod)).sum()
    }
}

/// Cuts a text to so many bytes and gives the rest of its memory back.
pub fn shorten(text: &mut String, longest: usize) {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.push('…');
    }
    text.shrink_to_fit();
}
