//! Whether a rollout progresses, has ended, or is stuck; and the status that reports it (upstream:
//! `progress.go`, `sync.go`).

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::course::{Course, Hold};
use super::new_replica_set::replica_set_name;
use super::revision::{REVISION, next_revision};
use super::{NewReplicaSet, Observed, Plan, ReplicaSets, StatusScope, Write, status};
use crate::model::{Condition, Deployment, DeploymentStatus, condition};
use crate::plan::policy::unreadable;
use crate::plan::replicaset::status::until;

/// The type of the condition about progress.
pub const PROGRESSING: &str = "Progressing";

/// A rollout has begun: its ReplicaSet was created.
pub const NEW_REPLICA_SET_CREATED: &str = "NewReplicaSetCreated";
/// A rollout has begun: its ReplicaSet existed already.
pub const NEW_REPLICA_SET_FOUND: &str = "FoundNewReplicaSet";
/// A rollout progresses.
pub const REPLICA_SET_UPDATED: &str = "ReplicaSetUpdated";
/// A rollout has succeeded.
pub const NEW_REPLICA_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
/// A rollout is stuck: there was no progress within the deadline.
pub const TIMED_OUT: &str = "ProgressDeadlineExceeded";
/// A rollout is stuck: its ReplicaSet cannot be created.
pub const CREATE_ERROR: &str = "ReplicaSetCreateError";
/// A rollout waits at a step of its policy.
pub const ROLLOUT_STEP: &str = "RolloutStep";
/// A rollout waits until its policy can be read.
pub const INVALID_POLICY: &str = "InvalidPolicy";
const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";

/// The outcome of a plan's writes, as far as the status depends on it. The execution of the plan fills it in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many of the plan's writes succeeded, from the first on.
    pub(super) done: usize,
    /// Why the new ReplicaSet could not be created.
    pub(super) create_error: Option<String>,
    /// The name of the new ReplicaSet is taken by an object of another owner.
    pub(super) collided: bool,
    /// Another step that the API server refused.
    pub(super) failed: Option<Failed>,
    /// A step ended without a refusal and without a success: an earlier refusal stays reported.
    pub(super) is_unanswered: bool,
    /// The name of a ReplicaSet whose creation lost its reply and which the cache now shows.
    pub(super) created_before: Option<String>,
}

impl Outcome {
    /// The first so many writes of the plan have succeeded.
    pub fn after(done: usize) -> Self {
        Outcome { done, ..Outcome::default() }
    }

    /// One more write has succeeded.
    pub fn succeeded(&mut self) {
        self.done += 1;
    }

    /// The next write has failed: with a refusal, which the status may report as `failed`, or with an unknown outcome.
    pub fn stopped(&mut self, failed: Option<Failed>, is_unanswered: bool) {
        (self.failed, self.is_unanswered) = (failed, is_unanswered);
    }

    /// The new ReplicaSet could not be created; the text is the API server's.
    pub fn could_not_create(&mut self, error: String) {
        self.create_error = Some(error);
    }

    /// The name of the new ReplicaSet is taken by an object of another owner.
    pub fn name_taken(&mut self) {
        self.collided = true;
    }

    /// The ReplicaSet of this name was created before, as the cache now shows.
    pub fn was_created_before(&mut self, name: Option<String>) {
        self.created_before = name;
    }

    /// How many writes have succeeded.
    pub fn done(&self) -> usize {
        self.done
    }
}

/// A refused step: upstream logs it and reports nothing to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// `FailedScale`, `FailedUpdate`, `FailedDelete`, `FailedAdopt`.
    pub reason: &'static str,
    /// The step, and the API server's text.
    pub message: String,
}

impl Failed {
    /// All reasons that [`Failed::of`] gives.
    pub(super) const REASONS: [&'static str; 4] =
        ["FailedScale", "FailedUpdate", "FailedDelete", "FailedAdopt"];

    /// A refusal of `write`; `None` for the creation of a ReplicaSet, which has a condition of its own.
    pub fn of(write: &Write, message: String) -> Option<Self> {
        let reason = match write {
            Write::Create(_) => return None,
            Write::Change(_, change) if change.replicas.is_some() => "FailedScale",
            Write::Change(..) | Write::RollBack(_) => "FailedUpdate",
            Write::Delete(_) => "FailedDelete",
            Write::Adopt(_) | Write::Release(_) => "FailedAdopt",
        };
        Some(Failed { reason, message })
    }
}

/// The status to write, and when to sync again.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// The whole status as it should be.
    pub status: DeploymentStatus,
    /// The revision annotation that the Deployment should carry; `None` leaves it.
    pub revision: Option<String>,
    /// When the progress deadline is due.
    pub requeue_after: Option<Duration>,
}

impl Settled {
    fn unchanged(status: DeploymentStatus) -> Self {
        Settled { status, revision: None, requeue_after: None }
    }
}

/// How soon to check pods again that are fewer than a status reports. Where the status was right, no event wakes the
/// key, and the cache of pods catches up.
const RECOUNT: Duration = Duration::from_secs(1);

/// Computes the status once, from the observation and the outcome.
pub fn settle(observed: &Observed<'_>, plan: &Plan, outcome: &Outcome) -> Settled {
    let settled = report(observed, plan, outcome);
    let recount = observed.is_overstated.then_some(RECOUNT);
    Settled { requeue_after: settled.requeue_after.into_iter().chain(recount).min(), ..settled }
}

fn report(observed: &Observed<'_>, plan: &Plan, outcome: &Outcome) -> Settled {
    let Observed { deployment, now, .. } = observed;
    match plan.status_scope {
        StatusScope::Handover => {
            let mut status = deployment.status.clone();
            status::add_refused_step(outcome, &mut status, *now);
            Settled::unchanged(status)
        }
        StatusScope::Refused => {
            let mut status = deployment.status.clone();
            status.observed_generation = deployment.meta.generation;
            Settled::unchanged(status)
        }
        StatusScope::CountsOnly => Settled::unchanged(counted(&Done::of(observed, plan, outcome), *now)),
        StatusScope::Held | StatusScope::Rollout => {
            let done = Done::of(observed, plan, outcome);
            if done.writes.iter().any(|write| matches!(write, Write::RollBack(_))) {
                // The Deployment has another template: what holds of it is reported with it.
                return Settled::unchanged(deployment.status.clone());
            }
            let mut status = counted(&done, *now);
            judge_pause(deployment, &mut status, *now);
            report_defect(plan, deployment, &mut status, *now);
            if plan.status_scope == StatusScope::Rollout {
                judge(&done, &mut status, *now);
            }
            status::set_replica_failure(&done.replica_sets, outcome, &mut status, *now);
            // A deadline that is not judged must not wake the key: once it has passed, it would do so without end. Nor
            // must one that has passed: while a ReplicaSet cannot be created, the condition reports that.
            let is_judged = plan.status_scope == StatusScope::Rollout;
            let is_due = |at: &Timestamp| is_judged && at > now;
            let requeue_after = match &plan.create_limit {
                Some(create_limit) => Some(create_limit.wait),
                None => deadline(deployment, &status, plan.course.extra_time)
                    .filter(is_due)
                    .map(|at| until(at, *now)),
            };
            let wakes_after = plan.course.wakes_at.filter(|at| at > now).map(|at| until(at, *now));
            let requeue_after = requeue_after.into_iter().chain(wakes_after).min();
            Settled { status, revision: done.revision(), requeue_after }
        }
    }
}

/// A plan as far as it was executed.
struct Done<'a> {
    observed: &'a Observed<'a>,
    plan: &'a Plan,
    outcome: &'a Outcome,
    /// The writes that succeeded.
    writes: &'a [Write],
    /// The ReplicaSets after them.
    replica_sets: ReplicaSets,
}

impl<'a> Done<'a> {
    fn of(observed: &'a Observed<'a>, plan: &'a Plan, outcome: &'a Outcome) -> Self {
        let writes = plan.writes.get(..outcome.done).unwrap_or(&plan.writes);
        Done { observed, plan, outcome, writes, replica_sets: after(observed.replica_sets().clone(), writes) }
    }

    /// The ReplicaSet that was created.
    fn created(&self) -> Option<&'a NewReplicaSet> {
        self.writes.iter().find_map(|write| match write {
            Write::Create(new) => Some(new),
            _ => None,
        })
    }

    /// The name of the new ReplicaSet.
    fn new_replica_set(&self) -> Option<&str> {
        let there = self.replica_sets.new.as_ref().map(|new| &*new.meta.key.name);
        self.created().map(|new| new.name.as_str()).or(there)
    }

    /// The revision to publish.
    ///
    /// A reused ReplicaSet keeps its old number until it gets the next one. Published in between, the
    /// Deployment's revision would decrease (S7).
    fn revision(&self) -> Option<String> {
        let new = self.replica_sets.new.as_ref();
        let mut revision = new.and_then(|new| new.annotations.get(REVISION)).map(str::to_string);
        for write in self.writes {
            let written = match write {
                Write::Create(created) => created.annotations.get(REVISION),
                Write::Change(replica_set, change)
                    if new.is_some_and(|new| new.meta.uid == replica_set.meta.uid) =>
                {
                    change.annotations.get(REVISION)
                }
                _ => None,
            };
            revision = written.cloned().or(revision);
        }
        revision
            .filter(|revision| revision.parse().is_ok_and(|n: i64| n >= next_revision(&self.replica_sets)))
    }

    /// How the rollout begins, if it does.
    fn begins(&self) -> Option<Begin> {
        let is_new =
            |name: &str| self.replica_sets.new.as_ref().is_some_and(|new| &*new.meta.key.name == name);
        if self.created().is_some() || self.outcome.created_before.as_deref().is_some_and(is_new) {
            return Some(Begin::Created);
        }
        // Judged by the state before this plan, which may have scaled the old ReplicaSets to zero.
        let old = &self.observed.replica_sets().old;
        old.iter()
            .any(|replica_set| replica_set.replicas > 0 || replica_set.status.replicas > 0)
            .then_some(Begin::Found)
    }

    /// Why the new ReplicaSet is not created; `collisions` as the status counts them.
    fn obstacle(&self, collisions: Option<i32>) -> Option<String> {
        let deployment = self.observed.deployment;
        let failed = self.outcome.create_error.as_ref().map(|error| {
            let name = replica_set_name(&deployment.meta.key.name, &deployment.template.hash(collisions));
            format!("Failed to create new replica set {name:?}: {error}")
        });
        failed.or(self.plan.create_limit.as_ref().map(|create_limit| create_limit.message.clone()))
    }
}

/// How many names of ReplicaSets were taken.
fn collisions(deployment: &Deployment, outcome: &Outcome) -> Option<i32> {
    let before = deployment.status.collision_count;
    if outcome.collided { Some(before.unwrap_or(0).saturating_add(1)) } else { before }
}

/// The counts, and whether enough pods are available.
fn counted(done: &Done<'_>, now: Timestamp) -> DeploymentStatus {
    let Done { observed: Observed { deployment, .. }, plan, outcome, replica_sets, .. } = done;
    let mut status = status::counts(deployment, replica_sets);
    if !was_acted_on(plan, outcome) {
        status.observed_generation = deployment.status.observed_generation.min(deployment.meta.generation);
    }
    status.collision_count = collisions(deployment, outcome);
    status::set_available(deployment, &mut status, now);
    let desired: i64 = replica_sets.desired() + done.created().map_or(0, |new| i64::from(new.replicas));
    status.unavailable = crate::model::int_or_percent::clamp((desired - i64::from(status.available)).max(0));
    status
}

/// Whether the generation was acted on: every step succeeded (S20). `kubectl rollout status` and Argo CD
/// treat a Deployment with the current `observedGeneration` and as many pods as desired as rolled out, and
/// after a scale-down that was refused as many as desired may be available.
///
/// Trimming the history follows the rollout and is no part of it; upstream has published the generation
/// by then. Where the Deployment is paused, upstream has not.
fn was_acted_on(plan: &Plan, outcome: &Outcome) -> bool {
    let left = plan.writes.get(outcome.done..).unwrap_or_default();
    let trims = left.iter().all(|write| matches!(write, Write::Delete(_)));
    left.is_empty() || (trims && plan.status_scope == StatusScope::Rollout)
}

/// The ReplicaSets after the writes that succeeded, so that the status need not be written again
/// when the cache shows them.
fn after(mut replica_sets: ReplicaSets, done: &[Write]) -> ReplicaSets {
    for write in done {
        let Write::Change(changed, change) = write else { continue };
        let Some(size) = change.replicas else { continue };
        for replica_set in replica_sets
            .old
            .iter_mut()
            .chain(&mut replica_sets.new)
            .filter(|replica_set| replica_set.meta.uid == changed.meta.uid)
        {
            Arc::make_mut(replica_set).replicas = size;
        }
    }
    replica_sets
}

/// A pause or a resumption that the condition does not report yet. A rollout that was stuck before
/// the pause stays marked as stuck.
fn judge_pause(deployment: &Deployment, status: &mut DeploymentStatus, now: Timestamp) {
    if deployment.progress_deadline_seconds.is_none() {
        return;
    }
    let reason = condition::find(&status.conditions, PROGRESSING).map(|c| c.reason.clone());
    let shown = match (deployment.paused, reason.as_deref()) {
        (true, Some(TIMED_OUT | PAUSED)) => return,
        (true, _) => Condition::new(PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now),
        (false, Some(PAUSED)) => {
            Condition::new(PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now)
        }
        (false, _) => return,
    };
    condition::set(&mut status.conditions, shown);
}

/// A value of the policy that cannot be read holds the rollout, and the condition says so.
fn report_defect(plan: &Plan, deployment: &Deployment, status: &mut DeploymentStatus, now: Timestamp) {
    if let Some(Hold::Invalid { defect }) = &plan.course.hold
        && !deployment.paused
    {
        let shown = Condition::new(PROGRESSING, "Unknown", INVALID_POLICY, unreadable(defect), now);
        condition::set(&mut status.conditions, shown);
    }
}

/// How a rollout begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// Its ReplicaSet was created.
    Created,
    /// Its ReplicaSet exists already, and so do the pods of others.
    Found,
}

/// Judges the progress of a rollout and sets the condition.
fn judge(done: &Done<'_>, status: &mut DeploymentStatus, now: Timestamp) {
    // A hold and a failure are reported without a deadline, too: nothing else would say why nothing happens.
    let holds = matches!(done.plan.course.hold, Some(Hold::Step(_) | Hold::Failed { .. }));
    if done.observed.deployment.progress_deadline_seconds.is_none() && !holds {
        condition::remove(&mut status.conditions, PROGRESSING);
        return;
    }
    match judgement(done, status, now) {
        Judgement::Unchanged => {}
        Judgement::Is(content) => condition::set(&mut status.conditions, content.condition(now)),
        Judgement::Renewed(content) => condition::renew(&mut status.conditions, content.condition(now)),
    }
}

/// The change of the condition.
enum Judgement {
    /// It stays.
    Unchanged,
    /// It has this content, with a new time only if the content changed.
    Is(Content),
    /// It has this content with the current time, whatever it was before: the deadline runs from now.
    Renewed(Content),
}

/// The content of a condition.
struct Content {
    status: &'static str,
    reason: &'static str,
    message: String,
}

impl Content {
    fn condition(self, now: Timestamp) -> Condition {
        Condition::new(PROGRESSING, self.status, self.reason, self.message, now)
    }
}

fn judgement(done: &Done<'_>, status: &DeploymentStatus, now: Timestamp) -> Judgement {
    let deployment = done.observed.deployment;
    let (new_replica_set, begins) = (done.new_replica_set(), done.begins());
    let current = condition::find(&status.conditions, PROGRESSING);
    let reason = current.map_or("", |c| &*c.reason);
    let content = |status, reason, message| Content { status, reason, message };
    let of_new_replica_set =
        |verb: &str| format!("{verb} new replica set {:?}", new_replica_set.unwrap_or_default());

    if let Some(obstacle) = done.obstacle(status.collision_count) {
        return Judgement::Is(content("False", CREATE_ERROR, obstacle));
    }
    if begins == Some(Begin::Created) {
        return Judgement::Renewed(content("True", NEW_REPLICA_SET_CREATED, of_new_replica_set("Created")));
    }
    if let Some(held) = held(&done.plan.course, deployment) {
        return Judgement::Is(held);
    }
    let complete = status::is_complete(deployment, status)
        && (done.plan.course.waits_for == 0 || reason == NEW_REPLICA_SET_AVAILABLE);
    let was_held = matches!(reason, ROLLOUT_STEP | INVALID_POLICY);
    // A rollout back to an existing ReplicaSet creates none. Upstream then keeps the success of the earlier
    // rollout, under which no deadline runs, and never notices when the way back is stuck.
    let rolls = begins == Some(Begin::Found);
    let found =
        new_replica_set.is_some() && (current.is_none() || (reason == NEW_REPLICA_SET_AVAILABLE && rolls));
    if found && !complete {
        return Judgement::Renewed(content("True", NEW_REPLICA_SET_FOUND, of_new_replica_set("Found")));
    }
    if status.replicas == status.updated
        && reason == NEW_REPLICA_SET_AVAILABLE
        && done.replica_sets.new.is_some()
    {
        return Judgement::Unchanged;
    }
    let subject = match new_replica_set {
        Some(name) => format!("ReplicaSet {name:?}"),
        None => format!("Deployment {:?}", deployment.meta.key.name),
    };
    // Recreate has no new ReplicaSet while it waits for the old pods. Upstream takes that for the end of the
    // earlier rollout, runs no deadline, and reports nothing when an old pod never ends.
    let waits = done.replica_sets.new.is_none() && reason == NEW_REPLICA_SET_AVAILABLE;
    // Another number of terminating pods is progress of a rollout that waits for them.
    let ends_pods = || {
        done.plan.course.waits_for > 0
            && reason == REPLICA_SET_UPDATED
            && current.is_some_and(|shown| *shown.message != progressing(&subject, &done.plan.course))
    };
    if complete {
        Judgement::Is(content(
            "True",
            NEW_REPLICA_SET_AVAILABLE,
            format!("{subject} has successfully progressed."),
        ))
    } else if waits || was_held || has_progressed(&deployment.status, status) || ends_pods() {
        Judgement::Renewed(content("True", REPLICA_SET_UPDATED, progressing(&subject, &done.plan.course)))
    } else if deadline(deployment, status, done.plan.course.extra_time).is_some_and(|at| at <= now) {
        let why = done.plan.course.unfit.as_ref().map(|why| format!(" {why}")).unwrap_or_default();
        Judgement::Is(content("False", TIMED_OUT, format!("{subject} has timed out progressing.{why}")))
    } else if matches!(done.plan.course.hold, Some(Hold::Batch { .. })) && reason == REPLICA_SET_UPDATED {
        Judgement::Is(content("True", REPLICA_SET_UPDATED, progressing(&subject, &done.plan.course)))
    } else {
        Judgement::Unchanged
    }
}

/// The sentence about a rollout that goes on.
fn progressing(subject: &str, course: &Course) -> String {
    match &course.hold {
        Some(Hold::Batch { until }) => {
            format!("{subject} is progressing; the next batch follows at {until}.")
        }
        _ if course.waits_for > 0 => {
            let pods = if course.waits_for == 1 { "pod" } else { "pods" };
            format!("{subject} is progressing; it waits for {} terminating {pods}.", course.waits_for)
        }
        _ => format!("{subject} is progressing."),
    }
}

/// The condition of a rollout that its policy holds, or that has failed.
fn held(course: &Course, deployment: &Deployment) -> Option<Content> {
    let content = |status, reason, message| Some(Content { status, reason, message });
    match course.hold.as_ref()? {
        Hold::Failed { message, .. } => content("False", TIMED_OUT, message.clone()),
        Hold::Step(step) if step.since.is_some() => {
            let (name, revision) = (&deployment.meta.key.name, step.revision);
            let message =
                step.message(&format!("kubectl windlass approve deploy/{name} --revision {revision}"));
            content("Unknown", ROLLOUT_STEP, message)
        }
        Hold::Step(_) | Hold::Invalid { .. } | Hold::Batch { .. } => None,
    }
}

/// Whether more pods are new, ready or available than before, or fewer are old (upstream:
/// `DeploymentProgressing`).
pub(super) fn has_progressed(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let old_pods = |status: &DeploymentStatus| i64::from(status.replicas) - i64::from(status.updated);
    after.updated > before.updated
        || old_pods(after) < old_pods(before)
        || after.ready > before.ready
        || after.available > before.available
}

/// When the progress deadline passes; `None` when no deadline runs.
///
/// `extra` is added for a rollout that pauses between batches.
pub(super) fn deadline(
    deployment: &Deployment,
    status: &DeploymentStatus,
    extra: Duration,
) -> Option<Timestamp> {
    let seconds = deployment.progress_deadline_seconds?;
    let condition = condition::find(&status.conditions, PROGRESSING)?;
    let has_none = [NEW_REPLICA_SET_AVAILABLE, TIMED_OUT, PAUSED, ROLLOUT_STEP, INVALID_POLICY]
        .contains(&&*condition.reason);
    if deployment.paused || has_none {
        return None;
    }
    let wait = Duration::from_secs(seconds.max(0).unsigned_abs().into()).saturating_add(extra);
    Some(condition.last_update?.saturating_add(wait).unwrap_or(Timestamp::MAX))
}
