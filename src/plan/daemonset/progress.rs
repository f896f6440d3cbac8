//! The condition `Progressing` of a DaemonSet: with `windlass.dev/progress-deadline`, and while a policy holds the update.
//!
//! Its reasons are those of a Deployment. Conditions of DaemonSets have no `lastUpdateTime`, so that the deadline is counted from
//! the last new pod that became ready, or from when it last began to run, which is in the state of the revision.

use jiff::Timestamp;

use super::Observed;
use super::course::{Course, Hold, NodeCounts};
use super::revisions::History;
use crate::model::{Condition, DaemonSet, condition};
use crate::plan::deployment::progress::{
    INVALID_POLICY, NEW_REPLICA_SET_AVAILABLE, PROGRESSING, REPLICA_SET_UPDATED, ROLLOUT_STEP, TIMED_OUT,
};
use crate::plan::policy::steps::{after, whole};
use crate::plan::policy::unreadable;

/// The change of the condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Report {
    /// It stays, or is absent.
    #[default]
    Untouched,
    /// It is removed.
    Removed,
    /// It has this content.
    Is { status: &'static str, reason: &'static str, message: String },
}

impl Report {
    /// Changes the conditions of a status.
    pub(super) fn apply(&self, conditions: &mut Vec<Condition>, now: Timestamp) {
        match self {
            Report::Untouched => {}
            Report::Removed => condition::remove(conditions, PROGRESSING),
            Report::Is { status, reason, message } => {
                let shown = Condition::new(PROGRESSING, status, reason, message.as_str(), now);
                condition::set(conditions, Condition { last_update: None, ..shown });
            }
        }
    }
}

/// Judges the progress of an update. Where the deadline begins to run now, the state says so.
pub(super) fn judge(observed: &Observed<'_>, history: &History<'_>, nodes: &NodeCounts, course: &mut Course) {
    let Observed { daemon_set, policy, now, .. } = observed;
    let is = |status, reason, message| Report::Is { status, reason, message };
    let current = condition::find(&daemon_set.status.conditions, PROGRESSING).map(|c| &*c.reason);
    course.report = match &course.hold {
        Some(Hold::Invalid { defect }) => is("Unknown", INVALID_POLICY, unreadable(defect)),
        Some(Hold::Step(step)) if step.since.is_some() => {
            is("Unknown", ROLLOUT_STEP, step.message(&approve(daemon_set, step.revision)))
        }
        _ => match policy.progress_deadline {
            None => removed(current, history),
            Some(deadline) => {
                let subject = format!("ControllerRevision {:?}", history.name());
                // Pods that fail later, and nodes that are added, begin no rollout.
                let is_over = nodes.to_update == 0
                    && (nodes.available + nodes.left_alone >= nodes.all
                        || current == Some(NEW_REPLICA_SET_AVAILABLE));
                if is_over && course.hold.is_none() {
                    let left = match nodes.left_alone {
                        0 => String::new(),
                        1 => " 1 node that is not ready is left alone.".to_owned(),
                        count => format!(" {count} nodes that are not ready are left alone."),
                    };
                    let message = format!("{subject} has successfully progressed.{left}");
                    is("True", NEW_REPLICA_SET_AVAILABLE, message)
                } else {
                    let runs = matches!(current, Some(REPLICA_SET_UPDATED | TIMED_OUT));
                    let begun = course.state.as_mut().map(|state| {
                        if !runs {
                            state.begun = Some(whole(*now));
                        }
                        state.begun.unwrap_or(*now)
                    });
                    let due =
                        after(begun.unwrap_or(*now).max(nodes.latest_ready.unwrap_or_default()), deadline);
                    if due <= *now {
                        is("False", TIMED_OUT, format!("{subject} has timed out progressing."))
                    } else {
                        course.wakes_at = course.wakes_at.into_iter().chain([due]).min();
                        is("True", REPLICA_SET_UPDATED, format!("{subject} is progressing."))
                    }
                }
            }
        },
    };
}

/// Whether a condition that the DaemonSet still has is one of ours: no other writer has these two reasons, and the others count
/// where the revision has a state.
fn removed(current: Option<&str>, history: &History<'_>) -> Report {
    match current {
        Some(ROLLOUT_STEP | INVALID_POLICY) => Report::Removed,
        Some(NEW_REPLICA_SET_AVAILABLE | REPLICA_SET_UPDATED | TIMED_OUT) if history.has_any_state() => {
            Report::Removed
        }
        _ => Report::Untouched,
    }
}

/// The command that approves what is held.
fn approve(daemon_set: &DaemonSet, revision: i64) -> String {
    format!("kubectl windlass approve ds/{} --revision {revision}", daemon_set.meta.key.name)
}
