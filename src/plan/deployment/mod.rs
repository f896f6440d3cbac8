//! The next writes for a Deployment: the whole decision table is [`plan`].

pub mod counted;
pub mod course;
pub mod create_limit;
pub mod explain;
mod failure;
pub mod history;
pub mod new_replica_set;
pub mod observed;
mod partial_scale;
pub mod progress;
pub mod recreate;
pub mod revision;
pub mod rollback;
pub mod rolling;
pub mod scale;
pub mod status;
mod terminate_first;

use std::collections::BTreeMap;
use std::sync::Arc;

use course::{Course, Hold};
pub use explain::PlanReason;
pub use observed::{Observed, ReplicaSets};

use super::EventNote;
use super::claim::{Claim, claim};
use crate::model::{Deployment, ReplicaSet, Strategy};

/// The plan for one reconcile of a Deployment: writes in order, events, and the reasons.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a plan changes nothing until it is executed"]
pub struct Plan {
    /// Writes, in order; the first that fails ends the execution.
    pub writes: Vec<Write>,
    /// Events without a write.
    pub notes: Vec<EventNote>,
    /// Events about the policy. Each is recorded once per generation.
    pub policy_notes: Vec<EventNote>,
    /// Which part of the status the plan may change.
    pub status_scope: StatusScope,
    /// Why the new ReplicaSet is not created now.
    pub create_limit: Option<create_limit::CreateLimit>,
    /// The course under the Deployment's policy.
    pub course: course::Course,
    /// The reasons for the plan, and what it waits for.
    pub reasons: Vec<PlanReason>,
}

impl Plan {
    /// Whether the size of a ReplicaSet changes.
    pub fn resizes(&self) -> bool {
        resizes(&self.writes)
    }
}

/// Which part of the status is changed besides the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusScope {
    /// Nothing: ReplicaSets are adopted or released first, and are reported once the cache shows it.
    Handover,
    /// That this generation was observed, and nothing else: it cannot be acted on (S18).
    Refused,
    /// Counts and availability only: the object is being deleted.
    #[default]
    CountsOnly,
    /// The Deployment is paused, or its ReplicaSets are being resized: no progress is judged.
    Held,
    /// A rollout or its end: progress and its deadline are judged.
    Rollout,
}

/// One write to the ReplicaSets of a Deployment.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Adopt an orphan.
    Adopt(Arc<ReplicaSet>),
    /// Release a ReplicaSet whose labels no longer match.
    Release(Arc<ReplicaSet>),
    /// Create the new ReplicaSet.
    Create(NewReplicaSet),
    /// Scale a ReplicaSet, or update its annotations; one write for both.
    Change(Arc<ReplicaSet>, Change),
    /// Delete a ReplicaSet beyond the history limit.
    Delete(Arc<ReplicaSet>),
    /// Give the Deployment an old template, or remove the rollback annotation.
    RollBack(rollback::RollBack),
}

/// The new ReplicaSet, to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewReplicaSet {
    /// `<deployment>-<hash>`.
    pub name: String,
    /// The value of the hash label.
    pub hash: String,
    /// Its first size.
    pub replicas: i32,
    /// Its annotations: the Deployment's, the revision and the sizes.
    pub annotations: BTreeMap<String, String>,
}

/// The changes to a ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The new size.
    pub replicas: Option<i32>,
    /// Annotations to set; the others stay.
    pub annotations: BTreeMap<String, String>,
    /// The new `minReadySeconds`.
    pub min_ready_seconds: Option<i32>,
    /// Annotations to remove.
    pub removed: Vec<&'static str>,
    /// The events besides that of a new size.
    pub notes: Vec<EventNote>,
}

impl Change {
    fn is_empty(&self) -> bool {
        self.replicas.is_none()
            && self.annotations.is_empty()
            && self.min_ready_seconds.is_none()
            && self.removed.is_empty()
    }
}

impl Write {
    /// The events once the write has succeeded.
    pub fn notes(&self) -> Vec<EventNote> {
        let scaled = |message| EventNote::normal("ScalingReplicaSet", message);
        match self {
            Write::Create(new) if new.replicas > 0 => {
                vec![scaled(format!("Scaled up replica set {} from 0 to {}", new.name, new.replicas))]
            }
            Write::Change(replica_set, Change { replicas, notes, .. }) => {
                let mut notes = notes.clone();
                notes.extend(replicas.map(|to| {
                    let direction = if to > replica_set.replicas { "up" } else { "down" };
                    scaled(format!(
                        "Scaled {direction} replica set {} from {} to {to}",
                        replica_set.meta.key.name, replica_set.replicas
                    ))
                }));
                notes
            }
            Write::RollBack(rollback) => vec![rollback.note.clone()],
            Write::Create(_) | Write::Adopt(_) | Write::Release(_) | Write::Delete(_) => Vec::new(),
        }
    }
}

/// Whether the Deployment itself shows that work is left: its latest generation is not observed, or its rollout was
/// under way when its status was written.
pub fn is_unsettled(deployment: &Deployment) -> bool {
    let (wanted, status) = (deployment.replicas, &deployment.status);
    let counts = [status.replicas, status.updated, status.available];
    status.observed_generation != deployment.meta.generation || counts.iter().any(|count| *count != wanted)
}

/// Whether there is an orphan that the Deployment would adopt: then the caller reads the Deployment
/// afresh before it computes a plan.
pub fn wants_to_adopt(deployment: &Deployment, orphans: &[Arc<ReplicaSet>]) -> bool {
    !deployment.selector.selects_everything()
        && orphans.iter().any(|replica_set| adoptable(deployment, replica_set))
}

fn adoptable(deployment: &Deployment, replica_set: &ReplicaSet) -> bool {
    claim(deployment, &deployment.selector, &replica_set.meta) == Claim::Adopt
}

/// Decides.
///
/// | situation | writes |
/// |---|---|
/// | the selector is invalid, or selects everything, or not its own template | none; an event says so |
/// | being deleted | none |
/// | ReplicaSets to adopt or release | those, and nothing else until the cache shows them |
/// | paused, or `spec.replicas` has changed | scale the existing ReplicaSets proportionally |
/// | a rollback by annotation | the Deployment's own template, and nothing else |
/// | a value of the policy cannot be read, and there are old pods | as paused |
/// | a rollout has failed and halts | the steps of the strategy, to the ReplicaSet that serves; where the policy asks for it, then its template |
/// | each ReplicaSet that is created is stored with a changed template | none; a condition and an event say so |
/// | otherwise | the steps of the strategy; once it has none left, the history is trimmed |
pub fn plan(observed: &Observed<'_>) -> Plan {
    let mut plan = decide(observed);
    if plan.status_scope != StatusScope::CountsOnly {
        plan.policy_notes = observed.policy.notes();
        plan.policy_notes.extend(plan.course.remark.clone());
    }
    plan.reasons = explain::explain(observed, &plan);
    plan
}

fn decide(observed: &Observed<'_>) -> Plan {
    let deployment = observed.deployment;
    if deployment.selector.selects_everything() {
        let text = "This deployment is selecting all pods. A non-empty selector is required.";
        return refused(EventNote::warning("SelectingAll", text.into()));
    }
    // A ReplicaSet that the selector does not match would be released as soon as it is created, and created again.
    let foreign = || "it does not match the labels of the template".to_string();
    let selects_itself = deployment.selector.matches(&deployment.template.labels);
    let defect = deployment.selector.defect().map(str::to_string).or((!selects_itself).then(foreign));
    if let Some(defect) = defect {
        let text = format!("This deployment's selector is invalid: {defect}");
        return refused(EventNote::warning("InvalidSelector", text));
    }
    if deployment.meta.is_deleting() {
        return Plan::default();
    }
    let claims = claims(observed);
    if !claims.is_empty() {
        return Plan { writes: claims, status_scope: StatusScope::Handover, ..Plan::default() };
    }

    let replica_sets = observed.replica_sets();
    if !deployment.paused
        && let Some(revision) = rollback::requested(deployment)
    {
        let writes = vec![rollback::plan(deployment, replica_sets, revision)];
        return Plan { writes, status_scope: StatusScope::Handover, ..Plan::default() };
    }
    let mut course = Course::of(observed, replica_sets);
    let is_invalid = matches!(course.hold, Some(Hold::Invalid { .. }));
    // A pause spreads the surge, too, as upstream's does. A value that cannot be read changes no size by itself.
    let is_scaled = deployment.paused || scale::is_due(deployment, replica_sets);
    let trimmed = || history::plan(deployment, replica_sets, &observed.policy);
    if is_scaled || is_invalid {
        let scaled = || scale::plan(deployment, replica_sets, &observed.running_pods, &course);
        let mut writes = if is_scaled { scaled() } else { Vec::new() };
        if (deployment.paused || is_invalid) && writes.is_empty() {
            writes = trimmed();
        }
        return Plan { writes, status_scope: StatusScope::Held, course, ..Plan::default() };
    }
    if let Some(create_limit) = create_limit::check(deployment, replica_sets, observed.now) {
        let notes = vec![EventNote::warning("ReplicaSetCreateError", create_limit.message.clone())];
        return Plan {
            notes,
            status_scope: StatusScope::Rollout,
            create_limit: Some(create_limit),
            ..Plan::default()
        };
    }
    let steps = |course: &Course| match deployment.strategy {
        Strategy::RollingUpdate { .. } => rolling::plan(deployment, replica_sets, course),
        Strategy::Recreate => recreate::plan(deployment, replica_sets, &observed.running_pods, course),
    };
    // The verdict is stored before anything follows from it.
    let recorded = |course: &Course| -> Vec<Write> {
        let new = replica_sets.new.iter();
        new.filter_map(|new| rolling::bring_up_to_date(deployment, new, replica_sets, new.replicas, course))
            .collect()
    };
    if course.aborts(observed, replica_sets) {
        let writes = recorded(&course);
        return Plan { writes, status_scope: StatusScope::Rollout, course, ..Plan::default() };
    }
    let mut writes = steps(&course);
    if !resizes(&writes)
        && let Some(lowered) = course.lowered(observed, replica_sets)
    {
        let limits = std::mem::replace(&mut course.limits, lowered);
        if rolling::shrinks_old(&steps(&course), replica_sets) {
            course.terminates_one(observed.now);
            writes = steps(&course);
            // The state comes first: a pod that went and is forgotten would not come back.
            writes
                .sort_by_key(|write| matches!(write, Write::Change(_, change) if change.replicas.is_some()));
        } else {
            course.limits = limits;
        }
    }
    if !resizes(&writes) && course.judges_failure(observed, replica_sets) {
        writes = recorded(&course);
    }
    if !resizes(&writes) {
        course.unfit = course.unfit(observed, replica_sets);
    }
    if course.rolls_back(observed) {
        // The pods that serve come first: an API server that refuses the template does not stop them.
        let target = course.target.as_ref();
        writes.extend(target.and_then(|target| rollback::after_failure(deployment, replica_sets, target)));
    }
    let is_complete = || status::is_complete(deployment, &status::counts(deployment, replica_sets));
    if writes.is_empty() && course.target.is_none() && is_complete() {
        writes = trimmed();
    }
    Plan { writes, status_scope: StatusScope::Rollout, course, ..Plan::default() }
}

/// Whether the size of a ReplicaSet changes.
fn resizes(writes: &[Write]) -> bool {
    writes.iter().any(|write| match write {
        Write::Create(_) => true,
        Write::Change(_, change) => change.replicas.is_some(),
        Write::Adopt(_) | Write::Release(_) | Write::Delete(_) | Write::RollBack(_) => false,
    })
}

fn refused(reasons: EventNote) -> Plan {
    Plan { notes: vec![reasons], status_scope: StatusScope::Refused, ..Plan::default() }
}

fn claims(observed: &Observed<'_>) -> Vec<Write> {
    let deployment = observed.deployment;
    let released = observed
        .owned
        .iter()
        .filter(|replica_set| claim(deployment, &deployment.selector, &replica_set.meta) == Claim::Release)
        .map(|replica_set| Write::Release(replica_set.clone()));
    let adopted = observed
        .orphans
        .iter()
        .filter(|replica_set| observed.may_adopt && adoptable(deployment, replica_set))
        .map(|replica_set| Write::Adopt(replica_set.clone()));
    released.chain(adopted).collect()
}
