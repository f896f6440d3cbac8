//! Which pods of a StatefulSet are created, deleted and replaced, in which order, and what becomes of their claims
//! (upstream: `stateful_set_control.go`).
//!
//! | step | one by one (`OrderedReady`) | all at once (`Parallel`) |
//! |---|---|---|
//! | `in_range`: pods in range, ascending | stops at the first that is missing, terminating or not available | all |
//! | `condemned`: pods out of range, descending | one, once all in range are available | all |
//! | `update`: outdated pods, descending | once no pod is left out of range | within `maxUnavailable` |

pub mod body;
pub mod claims;
mod condemned;
pub mod explain;
mod in_range;
pub mod members;
pub mod observed;
pub mod ordinals;
pub mod revisions;
pub mod status;
mod update;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use self::claims::ClaimPod;
pub use self::explain::PlanReason;
use self::explain::Waiting;
pub use self::members::Members;
pub use self::observed::Observed;
use self::ordinals::Ordinal;
use self::revisions::{History, claim_revision};
use self::status::Counts;
pub use self::update::most_unavailable;
use super::EventNote;
use super::claim::Claim;
use super::policy::notes_of_stateful_set;
use super::replicaset::status::until;
use super::revisions::{NewRevision, RevisionChange};
use crate::model::{
    ClaimOwner, ControllerRevision, PersistentVolumeClaim, Pod, StatefulSet, StatefulSetStatus,
};

/// The most pods that one sync creates, and the most that it deletes. The rest follows when the cache shows these.
pub const BURST: usize = 500;

/// The plan for one reconcile of a StatefulSet: writes in order, events, and the status.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a plan changes nothing until it is executed"]
pub struct Plan {
    /// Writes, in order. See [`Write::ordinal`] for what a refused one holds up.
    pub writes: Vec<Write>,
    /// Events without a write. Each is recorded once for its subject.
    pub notes: Vec<Note>,
    /// The status by what was observed, written last and only if it differs; `None` where nothing is reported.
    pub status: Option<StatefulSetStatus>,
    /// When the next sync is due although nothing changes: a pod becomes available, or a failed one may be replaced.
    pub requeue_after: Option<Duration>,
    /// Whether a pod is created that was created within the last minute, too: then the StatefulSet is re-read before, as it
    /// may have been deleted together with its pods.
    pub repeats: bool,
    /// The reasons for the plan, and what it waits for.
    pub reasons: Vec<PlanReason>,
}

/// An event about something that stays as it is: it is not repeated with every sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// The object whose state is told, or a word for it.
    pub subject: String,
    /// The event.
    pub event: EventNote,
}

/// One write to the pods, claims or revisions of a StatefulSet.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Adopt an orphan.
    AdoptPod(Arc<Pod>),
    /// Release a pod whose labels or name no longer match.
    ReleasePod(Arc<Pod>),
    /// Adopt an orphaned revision.
    AdoptRevision(Arc<ControllerRevision>),
    /// Set the number of a revision.
    ChangeRevision(Arc<ControllerRevision>, RevisionChange),
    /// Create the revision of the current template. Where the name is taken: [`revisions::on_taken`].
    CreateRevision(NewRevision),
    /// Delete a revision beyond the history limit.
    DeleteRevision(Arc<ControllerRevision>),
    /// Set the owner references of a claim.
    SetOwners(ClaimChange),
    /// Set labels of a pod that say which one it is, or of which revision.
    Label(Arc<Pod>, BTreeMap<&'static str, String>),
    /// Create the missing claims of a pod that waits for them.
    CreateClaims(NewPod),
    /// Create pods, each after its missing claims.
    CreatePods(Vec<NewPod>),
    /// Delete pods.
    DeletePods(Vec<Deletion>),
}

/// New owner references of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimChange {
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The ordinal of its pod.
    pub ordinal: Ordinal,
    /// All of its owner references.
    pub owners: Vec<ClaimOwner>,
    /// Whether the claim is deleted with its pod from now on.
    pub goes_with_pod: bool,
    /// The pod in range whose last claim to change this is: an event tells then that the pod was updated.
    pub completes: Option<Arc<str>>,
}

/// A pod to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPod {
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// Its name.
    pub name: Arc<str>,
    /// The name of its revision.
    pub revision: Arc<str>,
    /// Whether that is the one with the current template.
    pub is_updated: bool,
    /// The claim templates without a claim, by their place in the list.
    pub missing_claims: Vec<usize>,
    /// The claims that exist and may be deleted by a policy: they are read past the cache before. Others are not: that a user
    /// has deleted a claim may reach the cache after the end of its pod, as upstream, and the next pod is then Pending until
    /// that claim is gone and it gets another one. A read could not prevent it, as the claim may go in the moment after it.
    pub claims_to_read: Vec<Arc<str>>,
}

/// A pod to delete.
#[derive(Clone, Debug, PartialEq)]
pub struct Deletion {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Its ordinal.
    pub ordinal: Ordinal,
    /// Why.
    pub reason: Reason,
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// Its ordinal is out of range.
    Condemned,
    /// It has failed or succeeded.
    Ended,
    /// It has an older template, and no container of it has ever started: it cannot become available, and nothing is
    /// lost with it.
    NeverStarted,
    /// It has an older template, and has not been ready for as long as the annotation
    /// [`crate::model::statefulset::REPLACE_BROKEN_AFTER`] says.
    Broken,
    /// It has an older template.
    Outdated,
}

impl Write {
    /// The ordinal that it concerns. A refused write holds up the later ones of its ordinal, and those of the same step;
    /// where pods are created one by one, all.
    pub fn ordinal(&self) -> Option<Ordinal> {
        match self {
            Write::SetOwners(change) => Some(change.ordinal),
            Write::CreateClaims(new) => Some(new.ordinal),
            _ => None,
        }
    }

    /// Whether no refused write holds it up: adoptions are independent of each other, and the history is trimmed in any
    /// case, since it may use up the quota of the next revision (kubernetes#85690).
    pub fn stands_alone(&self) -> bool {
        matches!(
            self,
            Write::AdoptPod(_) | Write::ReleasePod(_) | Write::AdoptRevision(_) | Write::DeleteRevision(_)
        )
    }
}

impl Plan {
    /// Whether it changes the owner references of claims. Where the cache lags behind the deletion of the StatefulSet, the
    /// garbage collector takes each reference back, and the claim that this changes wakes the StatefulSet.
    pub fn changes_claims(&self) -> bool {
        self.writes.iter().any(|write| matches!(write, Write::SetOwners(_)))
    }

    /// Whether it creates pods.
    pub fn creates(&self) -> bool {
        self.writes.iter().any(|write| matches!(write, Write::CreatePods(_)))
    }
}

/// Whether the StatefulSet itself shows that work is left.
pub fn is_unsettled(set: &StatefulSet) -> bool {
    let StatefulSetStatus { observed_generation, replicas, available, updated, .. } = &set.status;
    *observed_generation != set.meta.generation
        || [*replicas, *available, *updated].iter().any(|count| *count != set.replicas)
}

/// Whether there is an orphan that the StatefulSet would adopt: then the caller reads it afresh before it computes a plan.
pub fn wants_to_adopt(set: &StatefulSet, members: &Members, revisions: &[Arc<ControllerRevision>]) -> bool {
    let is_adoptable = |revision: &Arc<ControllerRevision>| claim_revision(set, revision) == Claim::Adopt;
    refusal(set).is_none() && (!members.orphans.is_empty() || revisions.iter().any(is_adoptable))
}

/// Decides.
///
/// | situation | writes |
/// |---|---|
/// | the selector selects everything, is invalid, or does not match its own template | none; an event says so |
/// | being deleted | none but the status |
/// | found gone by the read before an adoption | none |
/// | pods or revisions to adopt or release | those, and nothing else until the cache shows them |
/// | otherwise | the revision, claims, labels, creations, deletions, the history |
pub fn plan(observed: &Observed<'_>) -> Plan {
    let set = observed.set;
    if let Some(event) = refusal(set) {
        let reasons = vec![PlanReason::Refused { defect: event.message.clone() }];
        let subject = format!("selector {}", set.meta.generation);
        return Plan { notes: vec![Note { subject, event }], reasons, ..Plan::default() };
    }
    let history = History::of(set, &observed.revisions);
    let mut counts = Counts::default();
    for (ordinal, pod) in &observed.members.pods {
        counts.add(observed, &history, *ordinal, pod);
    }
    if set.meta.is_deleting() {
        let status = Some(status::while_deleting(observed, &history, &counts));
        return Plan { status, reasons: vec![PlanReason::BeingDeleted], ..Plan::default() };
    }
    if wants_to_adopt(set, &observed.members, &observed.orphan_revisions) && !observed.may_adopt {
        return Plan { reasons: vec![PlanReason::Gone], ..Plan::default() };
    }
    let claims = adoptions(observed);
    if !claims.is_empty() {
        let reasons = vec![PlanReason::ChangingHands { objects: claims.len() }];
        return Plan { writes: claims, reasons, ..Plan::default() };
    }

    let mut pass = Pass::new(observed, &history);
    let is_held = observed.unreadable_pods > 0;
    if !is_held {
        in_range::decide(&mut pass);
        condemned::decide(&mut pass);
        update::decide(&mut pass);
    }
    pass.delete.truncate(BURST);
    for deletion in &pass.delete {
        if matches!(deletion.reason, Reason::NeverStarted | Reason::Broken | Reason::Outdated) {
            counts.deleted(&history, &deletion.pod);
        }
    }
    let reasons = explain::explain(&pass, &counts);
    let next = [counts.next_available, pass.next].into_iter().flatten().min();
    let repeats = pass.create.iter().any(|new| observed.recent.contains(&new.name, observed.now));
    let Pass { owners, labels, claims, create, delete, mut notes, .. } = pass;
    let about_annotations = notes_of_stateful_set(&set.policies).into_iter();
    notes.extend(about_annotations.map(|event| Note { subject: event.message.clone(), event }));
    let mut writes: Vec<Write> = history.writes().into_iter().collect();
    writes.extend(owners.into_iter().map(Write::SetOwners));
    // One write of an object in a sync: the second would meet the version of the first.
    let stays = |pod: &Pod| delete.iter().all(|deletion| deletion.pod.meta.uid != pod.meta.uid);
    let labels = labels.into_iter().filter(|(pod, _)| stays(pod));
    writes.extend(labels.map(|(pod, labels)| Write::Label(pod, labels)));
    writes.extend(claims.into_iter().map(Write::CreateClaims));
    if !create.is_empty() {
        writes.push(Write::CreatePods(create));
    }
    for step in delete.chunk_by(|a, b| (a.reason == Reason::Condemned) == (b.reason == Reason::Condemned)) {
        writes.push(Write::DeletePods(step.to_vec()));
    }
    // A pod that cannot be decoded may be of any revision.
    if !is_held {
        writes.extend(history.surplus(observed.members.pods.values().chain(&observed.members.odd)));
    }
    Plan {
        writes,
        notes,
        status: Some(counts.status(observed, &history)),
        requeue_after: next.map(|at| until(at, observed.now)),
        repeats,
        reasons,
    }
}

/// One pass over the pods, and what it has found to do.
struct Pass<'a> {
    observed: &'a Observed<'a>,
    history: &'a History<'a>,
    /// Whether a step has stopped: nothing after it is done.
    is_stopped: bool,
    owners: Vec<ClaimChange>,
    labels: Vec<(Arc<Pod>, BTreeMap<&'static str, String>)>,
    claims: Vec<NewPod>,
    create: Vec<NewPod>,
    delete: Vec<Deletion>,
    notes: Vec<Note>,
    /// Pods that wait.
    waiting: Vec<Waiting>,
    /// How many outdated pods stay until there is room for them in the budget.
    staying: usize,
    /// When the next ended pod may be replaced, or a broken one.
    next: Option<Timestamp>,
}

impl<'a> Pass<'a> {
    fn new(observed: &'a Observed<'a>, history: &'a History<'a>) -> Self {
        Pass {
            observed,
            history,
            is_stopped: false,
            owners: Vec::new(),
            labels: Vec::new(),
            claims: Vec::new(),
            create: Vec::new(),
            delete: Vec::new(),
            notes: Vec::new(),
            waiting: Vec::new(),
            staying: 0,
            next: None,
        }
    }

    fn is_in_range(&self, ordinal: Ordinal) -> bool {
        ordinals::wanted(self.observed.set).contains(&i64::from(ordinal))
    }

    fn is_deleting(&self, pod: &Pod) -> bool {
        pod.meta.is_deleting() || self.observed.maybe_deleted.contains(&pod.meta.uid)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        members::is_available(self.observed.set, pod, self.observed.now)
    }

    fn note(&mut self, subject: impl ToString, event: EventNote) {
        self.notes.push(Note { subject: subject.to_string(), event });
    }

    fn look_again(&mut self, at: Timestamp) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Puts the owner references right on the claims of a pod.
    fn set_owners(&mut self, ordinal: Ordinal, of: ClaimPod<'_>) {
        let (set, observed) = (self.observed.set, self.observed);
        let before = self.owners.len();
        for template in set.claim_templates.names.iter() {
            let name = ordinals::claim_name(template, set, ordinal);
            let Some(claim) = observed.claims.get(&*name).filter(|claim| !claim.meta.is_deleting()) else {
                continue;
            };
            if claims::is_in_conflict(set, claim, of) {
                let message = format!(
                    "PersistentVolumeClaim {name} has a conflicting OwnerReference that acts as a manging \
                     controller, the retention policy is ignored for this claim"
                );
                let event = EventNote::warning("ConflictingController", message);
                self.note(&claim.meta.uid, event);
            }
            if let Some(owners) = claims::owners_to_write(set, claim, of) {
                let goes_with_pod =
                    of.pod.is_some_and(|pod| owners.iter().any(|owner| owner.uid == pod.meta.uid));
                let claim = claim.clone();
                self.owners.push(ClaimChange { claim, ordinal, owners, goes_with_pod, completes: None });
            }
        }
        let pod = of.pod.filter(|_| !of.is_condemned);
        if let (Some(pod), Some(last)) = (pod, self.owners.get_mut(before..).and_then(<[_]>::last_mut)) {
            last.completes = Some(pod.meta.key.name.clone());
        }
    }
}

fn refusal(set: &StatefulSet) -> Option<EventNote> {
    let selector = &set.selector;
    let defect = match selector.defect() {
        _ if selector.selects_everything() => "it selects all pods",
        Some(defect) => defect,
        // A pod that the selector does not match would be released as soon as it is created, and never replaced.
        None if !selector.matches(&set.template.labels) => "it does not match the labels of the template",
        None => return None,
    };
    Some(EventNote::warning(
        "InvalidSelector",
        format!("The selector of this StatefulSet is invalid: {defect}"),
    ))
}

fn adoptions(observed: &Observed<'_>) -> Vec<Write> {
    let Observed { set, members, orphan_revisions, .. } = observed;
    let adopted = orphan_revisions
        .iter()
        .filter(|revision| claim_revision(set, revision) == Claim::Adopt)
        .cloned()
        .map(Write::AdoptRevision);
    let to_release = members.to_release.iter().cloned().map(Write::ReleasePod);
    adopted.chain(to_release).chain(members.orphans.iter().cloned().map(Write::AdoptPod)).collect()
}

#[cfg(test)]
mod tests;
