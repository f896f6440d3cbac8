//! How much memory a reason takes, and how much of a text from outside it keeps.

use std::sync::Arc;

use super::{NamedPod, Names, PlanReason, Pods, Shortage};

impl PlanReason {
    /// Cuts texts of unbounded length to this many bytes. Names of objects are short, and the decoder cuts the
    /// messages of pods.
    pub fn shorten(&mut self, longest: usize) {
        match self {
            PlanReason::Refused { defect: text }
            | PlanReason::RollingBack { answer: text }
            | PlanReason::InvalidPolicy { defect: text }
            | PlanReason::Failed { message: text }
            | PlanReason::Halted { message: text, .. }
            | PlanReason::SurgeUnschedulable { message: text }
            | PlanReason::CreateLimit { reason: text } => {
                shorten(text, longest);
            }
            PlanReason::ReplicaFailure { replica_set: _, reason, message } => {
                for text in [reason, message] {
                    if text.len() > longest {
                        let mut cut = text.to_string();
                        shorten(&mut cut, longest);
                        *text = cut.into();
                    }
                }
            }
            PlanReason::BeingDeleted
            | PlanReason::ChangingHands { .. }
            | PlanReason::HeldAtStep { .. }
            | PlanReason::HeldByDelay { .. }
            | PlanReason::TerminatesFirst { .. }
            | PlanReason::GivesBack { .. }
            | PlanReason::FailsLater { .. }
            | PlanReason::Paused
            | PlanReason::Scaling { .. }
            | PlanReason::NewReplicaSet { .. }
            | PlanReason::Resizing { .. }
            | PlanReason::Updating { .. }
            | PlanReason::Budget { .. }
            | PlanReason::OldPodsStay { .. }
            | PlanReason::OldPodsGoFirst { .. }
            | PlanReason::OldPodsEnding { .. }
            | PlanReason::Leaving { .. }
            | PlanReason::StatusBehind { .. }
            | PlanReason::Unavailable(_)
            | PlanReason::Complete { .. }
            | PlanReason::TrimmingHistory { .. }
            | PlanReason::Deadline { .. }
            | PlanReason::DeadlinePassed { .. } => {}
        }
    }

    /// The bytes on the heap. Names that it shares with a cache count in full.
    pub fn heap(&self) -> usize {
        match self {
            PlanReason::Refused { defect: text }
            | PlanReason::RollingBack { answer: text }
            | PlanReason::InvalidPolicy { defect: text }
            | PlanReason::Failed { message: text }
            | PlanReason::SurgeUnschedulable { message: text }
            | PlanReason::CreateLimit { reason: text } => text.capacity(),
            PlanReason::FailsLater { serves, .. } => serves.as_ref().map_or(0, |name| name.len()),
            PlanReason::Halted { message, replica_set, attempt: _ } => message.capacity() + replica_set.len(),
            PlanReason::ReplicaFailure { replica_set, reason, message } => {
                replica_set.len() + reason.len() + message.len()
            }
            PlanReason::ChangingHands { adopted, released } => adopted.heap() + released.heap(),
            PlanReason::TrimmingHistory { replica_sets, limit: _ } => replica_sets.heap(),
            PlanReason::NewReplicaSet { replica_set, .. }
            | PlanReason::Resizing { replica_set, .. }
            | PlanReason::Updating { replica_set }
            | PlanReason::StatusBehind { replica_set, .. } => replica_set.len(),
            PlanReason::OldPodsEnding { running: _, pods } => pods.heap(),
            PlanReason::Unavailable(Shortage { replica_set, pods, failed, .. }) => {
                replica_set.len() + pods.heap() + failed.heap()
            }
            PlanReason::BeingDeleted
            | PlanReason::HeldAtStep { .. }
            | PlanReason::HeldByDelay { .. }
            | PlanReason::TerminatesFirst { .. }
            | PlanReason::GivesBack { .. }
            | PlanReason::Paused
            | PlanReason::Scaling { .. }
            | PlanReason::Budget { .. }
            | PlanReason::OldPodsStay { .. }
            | PlanReason::OldPodsGoFirst { .. }
            | PlanReason::Leaving { .. }
            | PlanReason::Complete { .. }
            | PlanReason::Deadline { .. }
            | PlanReason::DeadlinePassed { .. } => 0,
        }
    }

    /// The pods that it names.
    pub fn named_pods(&self) -> impl Iterator<Item = &NamedPod> {
        let (pods, failed) = match self {
            PlanReason::OldPodsEnding { pods, .. } => (Some(pods), None),
            PlanReason::Unavailable(shortage) => (Some(&shortage.pods), Some(&shortage.failed)),
            _ => (None, None),
        };
        pods.into_iter().chain(failed).flat_map(|pods| &pods.named)
    }

    /// Whether this reason leaves nothing to do.
    pub fn is_at_rest(&self) -> bool {
        matches!(self, PlanReason::Complete { .. } | PlanReason::Paused)
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

/// Cuts a text to this many bytes and frees the rest of its memory.
pub fn shorten(text: &mut String, longest: usize) {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.push('…');
    }
    text.shrink_to_fit();
}
