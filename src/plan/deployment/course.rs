//! The course of a rollout under a policy: how far it may go now, in which direction, and why no further.
//!
//! A policy only narrows or redirects the plan: a step and a delay are bounds of [`super::rolling`], a halt is the same plan
//! with another target. Without a policy the course is [`Course::default`], and nothing differs.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::failure;
use super::observed::available;
use super::revision::{REVISION_HISTORY, current_revision, next_revision, revision_of};
use super::status::{counts, is_complete};
use super::{Observed, ReplicaSets};
use crate::model::{Deployment, ReplicaSet, Uid};
use crate::plan::event_note::{EventNote, ROLLOUT_FAILED};
use crate::plan::policy::state::{ABORTED, hash_of, state_of};
use crate::plan::policy::steps::{self, NEAR, Rollout, after, passed_by_size, whole};
use crate::plan::policy::{Command, OnFailure, PodReplacement, ROLLOUT_STATE, State, StepHold, Verdict};

/// The course of a rollout.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// Bounds of the rolling update besides its budget.
    pub(super) limits: Limits,
    /// The state that the new ReplicaSet must have; `None` where none is recorded.
    pub(super) state: Option<State>,
    /// The events of the change of that state.
    pub(super) notes: Vec<EventNote>,
    /// Why a command has no effect, or that the rollout has failed and nothing follows from it.
    pub(super) remark: Option<EventNote>,
    /// The ReplicaSet that serves instead of the new one, which has failed.
    pub(super) target: Option<Uid>,
    /// Why the rollout goes no further by itself.
    pub hold: Option<Hold>,
    /// The failure that is due if nothing changes until then.
    pub(super) later_failure: Option<LaterFailure>,
    /// The step for a new pod that fits no node that follows if nothing changes until then.
    pub(super) unfit_step: Option<UnfitStep>,
    /// The sentence about a new pod that fits no node, where no old pod may go before it: with or without a policy.
    pub(super) unfit: Option<String>,
    /// When the next decision is due.
    pub(super) wakes_at: Option<Timestamp>,
    /// How many terminating pods a complete rollout still waits for.
    pub(super) waits_for: i64,
    /// By how much the deadline of the rollout is later, because it pauses between batches.
    pub(super) extra_time: Duration,
}

/// A failure that is due later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LaterFailure {
    pub(super) at: Timestamp,
    /// The ReplicaSet that serves from then on; `None` where the failure is only reported.
    pub(super) serves: Option<Arc<str>>,
    /// Whether the Deployment gets its template.
    pub(super) rolls_back: bool,
}

/// A step of `windlass.dev/when-unschedulable: terminate-first` that is due later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnfitStep {
    /// An old pod goes first.
    Terminate(Timestamp),
    /// The pod that has gone in vain comes back.
    GiveBack(Timestamp),
}

/// Bounds of a rolling update besides its budget.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// The most pods of the new ReplicaSet.
    pub(super) new_most: Option<i64>,
    /// The fewest pods of all old ReplicaSets together.
    pub(super) old_least: i64,
    /// The old ReplicaSet that shrinks last, and takes the place of others.
    pub(super) serving: Option<Uid>,
    /// By how much the minimum of available pods is lowered.
    pub(super) below: i64,
    /// Pods that still run and are in no ReplicaSet's size, where they count.
    pub(super) ending: i64,
    /// Whether the room of pods that this plan deletes stays taken until they are gone.
    pub(super) keeps_freed: bool,
}

/// Why a rollout goes no further by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Hold {
    /// A value of the policy cannot be read.
    Invalid {
        /// Key, value, and what is accepted.
        defect: String,
    },
    /// A step.
    Step(StepHold),
    /// The rollout has failed.
    Failed {
        /// The whole sentence.
        message: String,
        /// The name of the ReplicaSet that serves instead.
        serves: Option<Arc<str>>,
        /// The failure: the first is 1; 0 where it is not recorded.
        attempt: u32,
    },
    /// The next batch is due at a time.
    Batch {
        /// When.
        until: Timestamp,
    },
}

impl Course {
    /// The course, before the plan.
    pub(super) fn of(observed: &Observed<'_>, replica_sets: &ReplicaSets) -> Self {
        let policy = &observed.policy;
        let stored = replica_sets.new.as_deref().map(state_of).unwrap_or_default();
        if policy.is_off || (policy.is_absent() && stored.failed.is_none()) {
            return Course::default();
        }
        let has_old_pods = replica_sets.old.iter().any(|replica_set| replica_set.replicas > 0);
        if let Some(defect) = policy.defect()
            && has_old_pods
        {
            let new_most = Some(replica_sets.new.as_ref().map_or(0, |new| new.replicas.into()));
            let limits = Limits { new_most, ..Limits::default() };
            return Course { hold: Some(Hold::Invalid { defect }), limits, ..Course::default() };
        }
        let mut course = Course { extra_time: policy.batch_delay.unwrap_or_default(), ..Course::default() };
        let mut state = course.begin(observed, replica_sets, stored);
        course.stand(observed, replica_sets, &mut state);
        if course.target.is_none() && has_old_pods && !is_proven(replica_sets, &state) {
            course.step(observed, replica_sets, &mut state);
            course.pause_between_batches(observed, replica_sets);
        }
        course.terminate_first(observed, replica_sets, &mut state);
        if policy.pod_replacement == Some(PodReplacement::TerminationComplete) {
            course.limits.ending = ending(observed, replica_sets);
            course.limits.keeps_freed = true;
            course.waits_for = course.limits.ending;
        }
        if policy.keeps_state() || !observed_state(replica_sets).is_empty() {
            course.state = Some(state);
        }
        course
    }

    /// The state with which this decision begins: that of the revision, or a new one.
    fn begin(&mut self, observed: &Observed<'_>, replica_sets: &ReplicaSets, stored: State) -> State {
        let Observed { deployment, policy, now, .. } = observed;
        let revision = current_revision(replica_sets);
        let mut state = stored;
        if state.hash.is_empty() {
            state.hash = deployment.template.hash(deployment.status.collision_count);
        }
        let is_new = state.revision != revision;
        if is_new {
            // The verdicts and the proof belong to the template.
            state = State {
                hash: state.hash,
                revision,
                begun: Some(whole(*now)),
                attempt: state.attempt,
                failed: state.failed,
                completed: state.completed,
                ..State::default()
            };
        }
        if is_new || state.steps != policy.steps_text {
            let size = replica_sets.new.as_ref().map_or(0, |new| i64::from(new.replicas));
            state.passed = passed_by_size(policy, deployment.replicas, size);
            state.since = None;
            state.steps.clone_from(&policy.steps_text);
        }
        state.since = state.since.map(|since| since.min(*now));
        // Without pods nothing is proven, and no step is passed.
        if deployment.replicas > 0
            && replica_sets.new.is_some()
            && is_complete(deployment, &counts(deployment, replica_sets))
        {
            state.passed = policy.steps.len();
            (state.since, state.failed) = (None, None);
            (state.terminated_first, state.gone) = (None, None);
            state.completed = state.completed.or(Some(whole(*now)));
        }
        state
    }

    /// Whether a verdict stands: then the rollout goes to the ReplicaSet that it names.
    fn stand(&mut self, observed: &Observed<'_>, replica_sets: &ReplicaSets, state: &mut State) {
        let Observed { policy, .. } = observed;
        let Some(verdict) = &state.failed else { return };
        let revision = state.revision;
        let forgiven = Command::Retry { revision, attempt: state.attempt };
        if policy.command == Some(forgiven) {
            let message = format!("Revision {revision} is tried again after failure {}", state.attempt);
            self.notes.push(EventNote::normal("RolloutRetried", message));
            // Its deadline begins anew, too.
            (state.failed, state.begun) = (None, Some(whole(observed.now)));
            return;
        }
        let target = replica_sets.old.iter().find(|old| hash_of(old) == verdict.to);
        let stands = policy.on_failure.is_some() || verdict.cause == ABORTED;
        let Some(target) = target.filter(|_| stands) else {
            state.failed = None;
            return;
        };
        self.hold = Some(Hold::Failed {
            message: halted(revision, &verdict.cause, target),
            serves: Some(target.meta.key.name.clone()),
            attempt: state.attempt,
        });
        self.target = Some(target.meta.uid.clone());
    }

    /// Whether the Deployment is to get the template that serves: once per template, and only while nothing else has changed
    /// the spec. If Git applies the template again, its ReplicaSet has another revision, and the rollout halts.
    pub(super) fn rolls_back(&self, observed: &Observed<'_>) -> bool {
        let Some(state) = &self.state else { return false };
        let is_current = state.failed.as_ref().is_some_and(|verdict| {
            verdict.revision == state.revision
                && verdict.generation == observed.deployment.meta.generation
                && verdict.cause != ABORTED
        });
        self.target.is_some()
            && observed.policy.on_failure == Some(OnFailure::Rollback)
            && state.attempt == 1
            && is_current
    }

    /// The first step that is not passed, and its bounds.
    fn step(&mut self, observed: &Observed<'_>, replica_sets: &ReplicaSets, state: &mut State) {
        let Observed { deployment, policy, now, .. } = observed;
        let new = replica_sets.new.as_ref();
        let size = new.map_or(0, |new| i64::from(new.replicas));
        let rollout = Rollout {
            revision: state.revision,
            replicas: deployment.replicas,
            size,
            available: new.map_or(0, |new| i64::from(available(new))),
            now: *now,
        };
        let walk = steps::walk(policy, rollout, state);
        self.notes.extend(walk.notes);
        walk.wakes_at.into_iter().for_each(|at| self.wake(at));
        let Some(step) = walk.hold else { return };
        self.limits.new_most = Some(step.bound);
        let taken = size.min(deployment.replicas.into());
        self.limits.old_least = i64::from(deployment.replicas) - step.bound.max(taken);
        self.limits.serving = serving(replica_sets).map(|old| old.meta.uid.clone());
        self.hold = Some(Hold::Step(step));
    }

    /// No more pods until the last batch has been available for the delay.
    fn pause_between_batches(&mut self, observed: &Observed<'_>, replica_sets: &ReplicaSets) {
        let Observed { deployment, policy, now, .. } = observed;
        let (Some(delay), Some(new)) = (policy.batch_delay, &replica_sets.new) else { return };
        let size = i64::from(new.replicas);
        if policy.bypassed_until.is_some() || size == 0 || size >= i64::from(deployment.replicas) {
            return;
        }
        let until = observed
            .latest_available
            .get(&new.meta.uid)
            .filter(|_| i64::from(available(new)) >= size)
            .map(|latest| after(*latest, delay));
        if until.is_some_and(|until| until <= *now) {
            return;
        }
        self.limits.new_most = Some(self.limits.new_most.map_or(size, |most| most.min(size)));
        if let Some(until) = until {
            self.wake(until);
            self.hold.get_or_insert(Hold::Batch { until });
        }
    }

    /// Looks for a failure, where the plan has no resize left. Whether the state has changed.
    pub(super) fn judges_failure(&mut self, observed: &Observed<'_>, replica_sets: &ReplicaSets) -> bool {
        if self.target.is_some() || matches!(self.hold, Some(Hold::Invalid { .. })) {
            return false;
        }
        let is_held = matches!(&self.hold, Some(Hold::Step(StepHold { since: Some(_), .. })));
        if is_held {
            return false;
        }
        // However long an old pod takes to end, the new ones have not failed for it.
        let begun = self.state.as_ref().filter(|_| self.waits_for == 0).and_then(|state| state.begun);
        match failure::find(observed, replica_sets, begun) {
            failure::Found::Nothing => false,
            failure::Found::Due(at) => {
                self.wake(at);
                let target = self.target_of_failure(observed, replica_sets, false);
                let is_first = self.state.as_ref().is_none_or(|state| state.attempt == 0);
                let rolls_back = is_first && observed.policy.on_failure == Some(OnFailure::Rollback);
                let serves = target.map(|target| target.meta.key.name.clone());
                self.later_failure =
                    Some(LaterFailure { at, rolls_back: rolls_back && serves.is_some(), serves });
                false
            }
            failure::Found::Failed(cause) => self.fails(observed, replica_sets, cause),
        }
    }

    /// A user has aborted the revision that rolls out: a verdict by hand, before anything else. Whether the state has changed.
    pub(super) fn aborts(&mut self, observed: &Observed<'_>, replica_sets: &ReplicaSets) -> bool {
        self.target.is_none()
            && !matches!(self.hold, Some(Hold::Invalid { .. }))
            && is_aborted(observed, replica_sets)
            && self.fails(observed, replica_sets, ABORTED.to_owned())
    }

    /// The rollout has failed: stores the verdict where something follows from it and there is something to go back to.
    fn fails(&mut self, observed: &Observed<'_>, replica_sets: &ReplicaSets, cause: String) -> bool {
        let revision = current_revision(replica_sets);
        let is_by_hand = cause == ABORTED;
        let target = self.target_of_failure(observed, replica_sets, is_by_hand);
        let (Some(new), Some(target)) = (&replica_sets.new, target) else {
            if is_by_hand {
                let message = format!("Revision {revision} is not aborted: no other ReplicaSet serves");
                self.remark = Some(EventNote::warning("RolloutNotAborted", message));
            } else {
                let message = format!("Revision {revision} failed: {cause}");
                self.remark = Some(EventNote::warning(ROLLOUT_FAILED, message.clone()));
                self.hold = Some(Hold::Failed { message, serves: None, attempt: 0 });
            }
            return false;
        };
        let mut state = self.state.take().unwrap_or_else(|| state_of(new));
        (state.revision, state.since) = (revision, None);
        state.attempt = state.attempt.saturating_add(1);
        let generation = observed.deployment.meta.generation;
        let serves = target.meta.key.name.clone();
        let message = halted(revision, &cause, target);
        self.notes.push(EventNote::warning(ROLLOUT_FAILED, message.clone()));
        self.hold = Some(Hold::Failed { message, serves: Some(serves), attempt: state.attempt });
        let to = hash_of(target).to_owned();
        state.failed = Some(Verdict { at: Some(whole(observed.now)), cause, to, generation, revision });
        self.state = Some(state);
        true
    }

    /// The ReplicaSet that serves after a failure, where something follows from it.
    fn target_of_failure<'a>(
        &self,
        observed: &Observed<'_>,
        replica_sets: &'a ReplicaSets,
        is_by_hand: bool,
    ) -> Option<&'a Arc<ReplicaSet>> {
        let stores = is_by_hand || observed.policy.on_failure.is_some();
        let attempts = self.state.as_ref().map_or(0, |state| state.attempt);
        let target = || failure::target(observed, replica_sets, is_by_hand || attempts > 0);
        stores.then(target).flatten()
    }

    pub(super) fn wake(&mut self, at: Timestamp) {
        self.wakes_at = Some(self.wakes_at.map_or(at, |before| before.min(at)));
    }

    /// The annotation that the new ReplicaSet must get.
    pub(super) fn state_to_write(&self, new: Option<&ReplicaSet>) -> Option<String> {
        let state = self.state.as_ref()?;
        let stored = new.map(state_of);
        (stored.as_ref() != Some(state)).then(|| state.text())
    }
}

/// The sentence about a rollout that has failed, and what follows. Under Recreate nothing serves until the template is back.
fn halted(revision: i64, cause: &str, target: &ReplicaSet) -> String {
    let name = &target.meta.key.name;
    let then = if target.replicas > 0 {
        format!("halted, {name} serves")
    } else {
        format!("it goes back to {name}")
    };
    format!("Revision {revision} failed: {cause}; {then}")
}

/// The stored state of the new ReplicaSet as it is written.
fn observed_state(replica_sets: &ReplicaSets) -> &str {
    let new = replica_sets.new.as_ref();
    new.and_then(|new| new.annotations.get(ROLLOUT_STATE)).unwrap_or("")
}

/// Whether the new template was complete before and its former revision is one of the three latest: an emergency that waits
/// for approvals would be worse than no steps.
fn is_proven(replica_sets: &ReplicaSets, state: &State) -> bool {
    let Some(new) = replica_sets.new.as_ref().filter(|_| state.completed.is_some()) else { return false };
    let own = revision_of(new);
    let before = new.annotations.get(REVISION_HISTORY).and_then(|all| all.rsplit(',').next()?.parse().ok());
    let is_refreshed = own.is_some_and(|own| own >= next_revision(replica_sets));
    let former: i64 = if is_refreshed { before.or(own) } else { own }.unwrap_or(0);
    let later = replica_sets.old.iter().filter(|old| revision_of(old).is_some_and(|old| old > former));
    later.count() < NEAR
}

/// The old ReplicaSet that serves: a proven one before others, then the one with most available pods, then the latest.
pub(super) fn serving(replica_sets: &ReplicaSets) -> Option<&Arc<ReplicaSet>> {
    let with_pods = replica_sets.old.iter().filter(|old| old.replicas > 0 && old.status.available > 0);
    with_pods.max_by_key(|old| {
        (state_of(old).completed.is_some(), old.status.available, revision_of(old).unwrap_or(0))
    })
}

/// Pods that still run besides those that the sizes count.
fn ending(observed: &Observed<'_>, replica_sets: &ReplicaSets) -> i64 {
    let surplus = |all: &ReplicaSet| (i64::from(all.status.replicas) - i64::from(all.replicas)).max(0);
    let terminating = |all: &ReplicaSet| observed.terminating.get(&all.meta.uid).copied().unwrap_or(0);
    replica_sets.all().map(|all| surplus(all) + terminating(all)).sum()
}

fn is_aborted(observed: &Observed<'_>, replica_sets: &ReplicaSets) -> bool {
    let revision = current_revision(replica_sets);
    let deployment: &Deployment = observed.deployment;
    observed.policy.command == Some(Command::Abort { revision })
        && replica_sets.new.is_some()
        && !is_complete(deployment, &counts(deployment, replica_sets))
}
