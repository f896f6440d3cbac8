//! Whether a rollout moves, has ended, or is stuck; and the status that says so (upstream:
//! `progress.go`, `sync.go`).

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::body::set_name;
use super::revision::{REVISION, next_revision};
use super::{Course, Observed, Plan, Sets, Write, status};
use crate::model::{Condition, Deployment, DeploymentStatus, condition};
use crate::plan::replicaset::status::until;

/// The condition that tells of progress.
pub const PROGRESSING: &str = "Progressing";

/// A rollout has begun: its set was created.
pub const NEW_SET_CREATED: &str = "NewReplicaSetCreated";
/// A rollout has begun: its set was there already.
pub const NEW_SET_FOUND: &str = "FoundNewReplicaSet";
/// A rollout goes on.
pub const SET_UPDATED: &str = "ReplicaSetUpdated";
/// A rollout has ended well.
pub const NEW_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
/// A rollout is stuck: there was no progress within the deadline.
pub const TIMED_OUT: &str = "ProgressDeadlineExceeded";
/// A rollout is stuck: its set cannot be created.
pub const CREATE_ERROR: &str = "ReplicaSetCreateError";
const PAUSED: &str = "DeploymentPaused";
const RESUMED: &str = "DeploymentResumed";

/// What became of a plan's writes, as far as the status is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// How many of the plan's writes succeeded, from the first on.
    pub done: usize,
    /// Why the set for the current template could not be created.
    pub create_error: Option<String>,
    /// The name of the new set is taken by somebody else's.
    pub collided: bool,
    /// Another step that the API server refused.
    pub failed: Option<Failed>,
    /// A step ended without an answer that says no: nothing is known of a refusal of before.
    pub is_unanswered: bool,
    /// The name of a ReplicaSet that was created before, as it turns out now: the answer to the request was lost.
    pub created_before: Option<String>,
}

/// A refused step: upstream logs it and says nothing to the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// `FailedScale`, `FailedUpdate`, `FailedDelete`, `FailedAdopt`.
    pub reason: &'static str,
    /// What was being done, and the API server's words.
    pub message: String,
}

impl Failed {
    /// All reasons that [`Failed::of`] gives.
    pub(super) const REASONS: [&'static str; 4] =
        ["FailedScale", "FailedUpdate", "FailedDelete", "FailedAdopt"];

    /// A refusal of `write`; `None` for the creation of a set, which has a condition of its own.
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

/// What to report and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct Settled {
    /// The whole status as it should be.
    pub status: DeploymentStatus,
    /// The revision annotation that the Deployment should carry; `None` leaves it.
    pub revision: Option<String>,
    /// When the progress deadline is due.
    pub look_again: Option<Duration>,
}

impl Settled {
    fn unchanged(status: DeploymentStatus) -> Self {
        Settled { status, revision: None, look_again: None }
    }
}

/// How soon to look again at pods that are fewer than a status says. Nothing wakes the key when the status was
/// right, and it is the cache of pods that catches up.
const RECOUNT: Duration = Duration::from_secs(1);

/// Computes the status once, from what was observed and done.
pub fn settle(observed: &Observed<'_>, plan: &Plan, outcome: &Outcome) -> Settled {
    let settled = report(observed, plan, outcome);
    let recount = observed.is_overstated.then_some(RECOUNT);
    Settled { look_again: settled.look_again.into_iter().chain(recount).min(), ..settled }
}

fn report(observed: &Observed<'_>, plan: &Plan, outcome: &Outcome) -> Settled {
    let Observed { deployment, now, .. } = observed;
    let is_judged = match plan.course {
        Course::Handover => {
            let mut status = deployment.status.clone();
            status::add_refused_step(outcome, &mut status, *now);
            return Settled::unchanged(status);
        }
        Course::Refused => {
            let mut status = deployment.status.clone();
            status.observed_generation = status::observed_generation(deployment);
            return Settled::unchanged(status);
        }
        Course::CountsOnly | Course::Held => false,
        Course::Rollout => true,
    };
    let done = plan.writes.get(..outcome.done).unwrap_or(&plan.writes);
    let sets = after(observed.sets(), done);
    let mut status = status::counts(deployment, &sets);
    if !was_acted_on(plan, outcome) && !planted!("a refused step counts as acted on") {
        status.observed_generation = deployment.status.observed_generation.min(deployment.meta.generation);
    }
    let created = done.iter().find_map(|write| match write {
        Write::Create(new) => Some(new),
        _ => None,
    });
    if outcome.collided && !planted!("collisions are not counted") {
        status.collision_count = Some(deployment.status.collision_count.unwrap_or(0).saturating_add(1));
    }

    let mut revision = sets.new.as_ref().and_then(|new| new.annotations.get(REVISION)).map(str::to_string);
    for write in done {
        revision = match write {
            Write::Create(new) => new.annotations.get(REVISION).cloned().or(revision),
            Write::Change(set, change)
                if sets.new.as_ref().is_some_and(|new| new.meta.uid == set.meta.uid) =>
            {
                change.annotations.get(REVISION).cloned().or(revision)
            }
            _ => revision,
        };
    }

    status::set_available(deployment, &mut status, *now);
    let wanted: i64 = sets.wanted() + created.map_or(0, |new| i64::from(new.replicas));
    status.unavailable = crate::model::count::clamp((wanted - i64::from(status.available)).max(0));

    if plan.course != Course::CountsOnly {
        judge_pause(deployment, &mut status, *now);
    }
    if is_judged {
        let name = created.map(|new| new.name.as_str()).or(sets.new.as_ref().map(|new| &*new.meta.key.name));
        let error = outcome.create_error.clone().map(|error| {
            let name = set_name(&deployment.meta.key.name, &deployment.template.hash(status.collision_count));
            format!("Failed to create new replica set {name:?}: {error}")
        });
        let error = error.or(plan.blocked.as_ref().map(|blocked| blocked.message.clone()));
        // Judged by what was there before this plan: it may have brought the old sets to nothing.
        let rolls = observed.sets().old.iter().any(|set| set.replicas > 0 || set.status.replicas > 0);
        let is_new = |name: &str| sets.new.as_ref().is_some_and(|new| &*new.meta.key.name == name);
        let begins = if created.is_some() || outcome.created_before.as_deref().is_some_and(is_new) {
            Some(Begin::Created)
        } else if rolls {
            Some(Begin::Found)
        } else {
            None
        };
        judge(deployment, &sets, &mut status, name, begins, error, *now);
    }
    if plan.course != Course::CountsOnly {
        status::set_replica_failure(&sets, outcome, &mut status, *now);
    }
    // A set that comes back keeps its old number until it is given the next one. Published in between,
    // the Deployment's revision would fall (S7).
    let is_latest = |revision: &String| revision.parse().is_ok_and(|n: i64| n >= next_revision(&sets));
    if plan.course == Course::CountsOnly {
        revision = None;
    }
    revision = revision.filter(is_latest);
    // A deadline that nobody judges must wake nobody: once it has passed, it would do so without end.
    let look_again = match &plan.blocked {
        Some(blocked) => Some(blocked.wait),
        None => deadline(deployment, &status).filter(|_| is_judged).map(|at| until(at, *now)),
    };
    Settled { status, revision, look_again }
}

/// Whether the generation was acted on: every step went through (S20). `kubectl rollout status` and Argo CD
/// take a Deployment with the current `observedGeneration` and as many pods as it wants for rolled out, and
/// after a scale-down that was refused there may be as many available ones as are wanted.
///
/// The history is trimmed when the rollout has ended, and no part of it; upstream has published the generation
/// by then. Where the Deployment is paused, upstream has not.
fn was_acted_on(plan: &Plan, outcome: &Outcome) -> bool {
    let left = plan.writes.get(outcome.done..).unwrap_or_default();
    let trims = left.iter().all(|write| matches!(write, Write::Delete(_)));
    left.is_empty() || (trims && plan.course == Course::Rollout)
}

/// The sets as they are after the writes that succeeded, so that the status need not be written again
/// when the cache shows them.
fn after(mut sets: Sets, done: &[Write]) -> Sets {
    for write in done {
        let Write::Change(changed, change) = write else { continue };
        let Some(size) = change.replicas else { continue };
        for set in sets.old.iter_mut().chain(&mut sets.new).filter(|set| set.meta.uid == changed.meta.uid) {
            Arc::make_mut(set).replicas = size;
        }
    }
    sets
}

/// A pause or a resumption that the condition does not show yet. A rollout that was found stuck before
/// it was paused stays marked as stuck.
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

/// How a rollout begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// Its set was created.
    Created,
    /// Its set is there already, and so are others' pods.
    Found,
}

/// Judges the progress of a rollout and says so in the condition.
fn judge(
    deployment: &Deployment,
    sets: &Sets,
    status: &mut DeploymentStatus,
    new_set: Option<&str>,
    begins: Option<Begin>,
    error: Option<String>,
    now: Timestamp,
) {
    if deployment.progress_deadline_seconds.is_none() {
        condition::remove(&mut status.conditions, PROGRESSING);
        return;
    }
    let subject = match new_set {
        Some(name) => format!("ReplicaSet {name:?}"),
        None => format!("Deployment {:?}", deployment.meta.key.name),
    };
    let current = condition::find(&status.conditions, PROGRESSING).cloned();
    let reason = current.as_ref().map_or("", |c| &*c.reason);
    let say = |status: &str, reason: &str, message: String| {
        Condition::new(PROGRESSING, status, reason, message, now)
    };

    if let Some(error) = error {
        condition::set(&mut status.conditions, say("False", CREATE_ERROR, error));
        return;
    }
    if begins == Some(Begin::Created) {
        let message = format!("Created new replica set {:?}", new_set.unwrap_or_default());
        condition::renew(&mut status.conditions, say("True", NEW_SET_CREATED, message));
        return;
    }
    let complete = status::is_complete(deployment, status);
    // A rollout back to a set that exists creates none. Upstream then keeps the success of the rollout
    // before, under which no deadline runs, and never notices when the way back is stuck.
    let rolls = begins == Some(Begin::Found);
    let found = new_set.is_some() && (current.is_none() || (reason == NEW_SET_AVAILABLE && rolls));
    if found && !complete {
        let message = format!("Found new replica set {:?}", new_set.unwrap_or_default());
        condition::renew(&mut status.conditions, say("True", NEW_SET_FOUND, message));
        return;
    }
    if status.replicas == status.updated && reason == NEW_SET_AVAILABLE && sets.new.is_some() {
        return;
    }
    // Recreate has no new set while it waits for the old pods. Upstream takes that for the end of the
    // rollout before, runs no deadline, and says nothing when an old pod never goes.
    let waits = sets.new.is_none() && reason == NEW_SET_AVAILABLE;
    if complete {
        let message = format!("{subject} has successfully progressed.");
        condition::set(&mut status.conditions, say("True", NEW_SET_AVAILABLE, message));
    } else if waits || has_progressed(&deployment.status, status) {
        let message = format!("{subject} is progressing.");
        condition::renew(&mut status.conditions, say("True", SET_UPDATED, message));
    } else if deadline(deployment, status).is_some_and(|at| at <= now) {
        let message = format!("{subject} has timed out progressing.");
        condition::set(&mut status.conditions, say("False", TIMED_OUT, message));
    }
}

/// Whether more pods are new, ready or available than before, or fewer are old (upstream:
/// `DeploymentProgressing`).
fn has_progressed(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let old_pods = |status: &DeploymentStatus| i64::from(status.replicas) - i64::from(status.updated);
    after.updated > before.updated
        || old_pods(after) < old_pods(before)
        || after.ready > before.ready
        || after.available > before.available
}

/// When the rollout will have made no progress for too long; `None` when no deadline runs.
pub(super) fn deadline(deployment: &Deployment, status: &DeploymentStatus) -> Option<Timestamp> {
    let seconds = deployment.progress_deadline_seconds?;
    let condition = condition::find(&status.conditions, PROGRESSING)?;
    if deployment.paused || matches!(&*condition.reason, NEW_SET_AVAILABLE | TIMED_OUT | PAUSED) {
        return None;
    }
    let wait = SignedDuration::from_secs(seconds.max(0).into());
    Some(condition.last_update?.saturating_add(wait).unwrap_or(Timestamp::MAX))
}
