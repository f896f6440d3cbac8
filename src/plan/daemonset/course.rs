//! The course of a rolling update under the DaemonSet's policy: how many more nodes may follow now, and why no more.
//!
//! A policy only narrows the update. Without one the course is [`Course::default`], and nothing differs. The state is on the
//! ControllerRevision of the template, bound to its name and its number.

use std::sync::Arc;

use jiff::Timestamp;

use super::members::PodsOfNode;
use super::node_decision::{Context, NodeState};
use super::order::RolloutPosition;
use super::placement::Verdict;
use super::progress::{self, Report};
use super::revisions::History;
use super::rolling::Outdated;
use super::{Observed, Write};
use crate::model::Node;
use crate::model::int_or_percent::clamp;
use crate::plan::EventNote;
use crate::plan::node_lifecycle::taints::{NOT_READY, UNREACHABLE};
use crate::plan::policy::steps::{self, NEAR, Rollout, passed_by_size, whole};
use crate::plan::policy::{State, StepHold};
use crate::plan::revisions::RevisionChange;

/// The course of a rolling update.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// How many more nodes may get a new pod instead of an old one; `None`: as many as the budget allows.
    room: Option<usize>,
    /// The state that the current revision must have; `None` where none is recorded.
    pub(super) state: Option<State>,
    /// The events of the change of that state.
    notes: Vec<EventNote>,
    /// Why the update goes no further by itself.
    pub hold: Option<Hold>,
    /// When the next decision is due.
    pub(super) wakes_at: Option<Timestamp>,
    /// The change of the condition about progress.
    pub(super) report: Report,
}

/// Why an update goes no further by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Hold {
    /// A value of the policy cannot be read.
    Invalid {
        /// Key, value, and what is accepted.
        defect: String,
    },
    /// A step.
    Step(StepHold),
}

/// The nodes of an update, as its policy counts them: those that should run a pod, and those that keep an old one although their
/// taints admit no new one. So nodes that stop for a while do not make a step larger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// All of them.
    pub(super) all: i64,
    /// Those with a new pod.
    pub(super) new: i64,
    /// Those with an available new pod.
    pub(super) available: i64,
    /// Those with an old pod, alone or beside a new one.
    pub(super) old: i64,
    /// Those without an old pod, or with a new one beside it: each has a new pod or gets one.
    taken: i64,
    /// Those with an old pod that are not left alone.
    pub(super) to_update: i64,
    /// Those that are not ready and are left alone.
    pub(super) left_alone: i64,
    /// When the last new pod became ready.
    pub(super) latest_ready: Option<Timestamp>,
}

impl NodeCounts {
    /// Counts a node.
    pub(super) fn add(
        &mut self,
        context: Context<'_>,
        place: PodsOfNode<'_>,
        class: NodeState<'_>,
        is_left_alone: bool,
    ) {
        let live = || place.pods.iter().filter(|pod| pod.is_active());
        let has_old = live().any(|pod| !context.history.is_new(pod));
        let counts = match place.verdict {
            Some(Verdict::Run) => true,
            Some(Verdict::Continue) => has_old,
            Some(Verdict::Leave) | None => false,
        };
        if !counts {
            return;
        }
        let new = || live().filter(|pod| context.history.is_new(pod));
        self.all += 1;
        self.new += i64::from(new().next().is_some());
        self.available += i64::from(new().any(|pod| context.is_available(pod)));
        self.old += i64::from(has_old);
        self.to_update += i64::from(has_old && !is_left_alone);
        self.taken += i64::from(!matches!(class, NodeState::Old { .. }));
        self.left_alone += i64::from(is_left_alone);
        self.latest_ready = new().filter_map(|pod| pod.ready_since).chain(self.latest_ready).max();
    }

    /// Whether every node has an available new pod, and none an old one. Without nodes nothing is proven.
    fn is_complete(&self) -> bool {
        self.all > 0 && self.old == 0 && self.available == self.all
    }
}

/// Whether a node has a taint that says that it is not ready.
pub fn is_not_ready(node: &Node) -> bool {
    node.taints.iter().any(|taint| matches!(&*taint.key, NOT_READY | UNREACHABLE))
}

/// Whether the update leaves a node alone: it is not ready, and has no pod of the current revision. One that has counts as always:
/// if the new pod has made the node not ready, the update must stop.
pub(super) fn leaves_alone(
    observed: &Observed<'_>,
    history: &History<'_>,
    place: PodsOfNode<'_>,
    class: NodeState<'_>,
) -> bool {
    observed.policy.ignores_not_ready_nodes
        && observed.not_ready.contains(place.node)
        && matches!(class, NodeState::Old { .. } | NodeState::Missing)
        && !place.pods.iter().any(|pod| history.is_new(pod))
}

impl Course {
    /// The course, by the nodes as they are.
    pub(super) fn of(observed: &Observed<'_>, history: &History<'_>, nodes: &NodeCounts) -> Self {
        let Observed { policy, .. } = observed;
        if policy.is_off {
            return Course::default();
        }
        let mut course = Course::default();
        if let Some(defect) = policy.defect().filter(|_| nodes.old > 0) {
            (course.room, course.hold) = (Some(0), Some(Hold::Invalid { defect }));
        } else if policy.keeps_state() {
            let mut state = course.begin(observed, history, nodes);
            if nodes.old > 0 {
                course.step(observed, nodes, &mut state);
            }
            course.state = Some(state);
        }
        progress::judge(observed, history, nodes, &mut course);
        course
    }

    /// The state with which this decision begins: that of the revision, or a new one. One that is lost is a new one, so that no
    /// step counts as passed.
    fn begin(&mut self, observed: &Observed<'_>, history: &History<'_>, nodes: &NodeCounts) -> State {
        let Observed { policy, now, .. } = observed;
        let mut state = history.state();
        let revision = history.number();
        if state.revision != revision {
            // A return to a proven template is not stepped: an emergency that waits for approvals would be worse than no steps.
            let returns = state.completed.is_some() && history.later_than(state.revision) < NEAR;
            state = State {
                hash: state.hash,
                revision,
                begun: Some(whole(*now)),
                steps: policy.steps_text.clone(),
                passed: if returns { policy.steps.len() } else { 0 },
                completed: state.completed,
                ..State::default()
            };
        } else if state.steps != policy.steps_text {
            state.passed = passed_by_size(policy, clamp(nodes.all), nodes.new);
            state.since = None;
            state.steps.clone_from(&policy.steps_text);
        }
        state.since = state.since.map(|since| since.min(*now));
        if nodes.is_complete() && history.current.is_some() {
            (state.passed, state.since) = (policy.steps.len(), None);
            state.completed = state.completed.or(Some(whole(*now)));
        }
        state
    }

    /// The first step that is not passed, and the room that it leaves.
    fn step(&mut self, observed: &Observed<'_>, nodes: &NodeCounts, state: &mut State) {
        let rollout = Rollout {
            revision: state.revision,
            replicas: clamp(nodes.all),
            size: nodes.new,
            available: nodes.available,
            now: observed.now,
        };
        let walk = steps::walk(&observed.policy, rollout, state);
        self.notes = walk.notes;
        self.wakes_at = walk.wakes_at;
        let Some(step) = walk.hold else { return };
        self.room = Some(usize::try_from(step.bound - nodes.taken).unwrap_or(0));
        self.hold = Some(Hold::Step(step));
    }

    /// The nodes that may be updated now. The first get their turn as in an update without steps: those without an available pod,
    /// then by [`RolloutPosition`].
    pub(super) fn admit<'a>(&self, revision: &str, mut outdated: Vec<Outdated<'a>>) -> Vec<Outdated<'a>> {
        if let Some(room) = self.room {
            outdated.retain(|old| old.should_run);
            outdated.sort_by_cached_key(|old| (old.is_available, RolloutPosition::of(revision, old.node)));
            outdated.truncate(room);
        }
        outdated
    }

    /// Adds the write of the state, with that of the revision where there is one.
    pub(super) fn record(&self, history: &History<'_>, writes: &mut Vec<Write>) {
        let (Some(state), Some(current)) = (&self.state, history.current) else { return };
        if history.has_state(state) {
            return;
        }
        let of_current = writes.iter_mut().find_map(|write| match write {
            Write::ChangeRevision(revision, change) if Arc::ptr_eq(revision, current) => Some(change),
            _ => None,
        });
        let (text, notes) = (Some(state.text()), self.notes.clone());
        match of_current {
            Some(change) => (change.state, change.notes) = (text, notes),
            None => {
                let change = RevisionChange { state: text, notes, ..RevisionChange::default() };
                writes.push(Write::ChangeRevision(Arc::clone(current), change));
            }
        }
    }
}
