//! The history of a DaemonSet's templates: which revision is the current one, and what happens to the others
//! (upstream: `constructHistory`, `cleanupHistory`).
//!
//! kubectl carries out a rollback: it patches the DaemonSet with the data of a revision, which for the controller is an
//! edit of the template. The revision that had the template then becomes the newest.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::names::fnv1a_64;
use super::{BURST, Members, Write};
use crate::model::controllerrevision::Contents;
use crate::model::template::SAFE_ALPHABET;
use crate::model::{
    CONTROLLER_REVISION_HASH, ControllerRevision, DaemonSet, Interner, Meta, Pod, Record, StringMap,
};
use crate::plan::OwnerReference;
use crate::plan::claim::{Claim, claim};
use crate::plan::deployment::new_replica_set::replica_set_name;
use crate::plan::policy::{ROLLOUT, ROLLOUT_STATE, State};
use crate::plan::revisions;
pub use crate::plan::revisions::{NewRevision, RevisionChange, Taken, data};

/// The label with the template generation of a pod's DaemonSet, by which pods were known before there were revisions.
pub const POD_TEMPLATE_GENERATION: &str = "pod-template-generation";

/// The label that revisions of a StatefulSet have.
const OF_STATEFUL_SET: &str = "controller.kubernetes.io/hash";

/// The longest value of a label.
const LONGEST_VALUE: usize = 63;

/// Whether the DaemonSet controls this revision, may adopt it, or must release it. A revision whose data has another
/// shape belongs to another kind of owner, whatever its labels are.
pub fn claim_revision(daemon_set: &DaemonSet, revision: &ControllerRevision) -> Claim {
    let labels = &revision.meta.labels;
    let fits = revision.contents.is_some() && labels.get(OF_STATEFUL_SET).is_none();
    match claim(daemon_set, &daemon_set.selector, &revision.meta) {
        Claim::Adopt if !fits => Claim::Ignore,
        claim => claim,
    }
}

/// The revisions by role.
#[derive(Clone, Debug)]
pub struct History<'a> {
    daemon_set: &'a DaemonSet,
    /// The one with the current template; `None` before it is created.
    pub current: Option<&'a Arc<ControllerRevision>>,
    /// Others with the current template.
    duplicates: Vec<&'a Arc<ControllerRevision>>,
    /// All others, the lowest number first.
    pub old: Vec<&'a Arc<ControllerRevision>>,
    /// The value of the hash label for new pods.
    pub hash: String,
    /// The lowest number that the current revision may have.
    number: i64,
    new_hashes: BTreeSet<String>,
    old_hashes: BTreeSet<String>,
    generation: Option<String>,
    /// The labels that were judged last, and whether they are those of a new pod. The pods of one revision share their
    /// labels: five thousand cost one look at the hashes.
    judged: RefCell<Option<(Arc<StringMap>, bool)>>,
}

impl<'a> History<'a> {
    /// Finds the roles of the revisions that the DaemonSet controls.
    pub fn of(daemon_set: &'a DaemonSet, revisions: &'a [Arc<ControllerRevision>]) -> Self {
        let wanted = Contents::of(&daemon_set.template);
        let has = |contents: &Contents| {
            let has = |revision: &&Arc<ControllerRevision>| revision.contents.as_ref() == Some(contents);
            revisions.iter().filter(has).collect::<Vec<_>>()
        };
        let mut matching = has(&wanted);
        if matching.is_empty() && !revisions.is_empty() {
            // Numbers that are no 64-bit integers are rounded in the data, so that the template differs from its revision.
            let stored = data(&daemon_set.template)
                .ok()
                .and_then(|data| Contents::of_data(&data, &mut Interner::default()));
            matching = stored.as_ref().map(has).unwrap_or_default();
        }
        // The highest number; of equal ones the oldest, and then the first by name.
        matching.sort_by(|a, b| {
            let key = |r: &'a ControllerRevision| (r.meta.created, &r.meta.key);
            b.number.cmp(&a.number).then_with(|| key(a).cmp(&key(b)))
        });
        let mut matching = matching.into_iter();
        let current = matching.next();
        let duplicates: Vec<_> = matching.collect();
        let is_old = |revision: &&Arc<ControllerRevision>| {
            current.into_iter().chain(duplicates.iter().copied()).all(|other| !Arc::ptr_eq(other, revision))
        };
        let mut old: Vec<_> = revisions.iter().filter(is_old).collect();
        old.sort_by_key(|revision| (revision.number, revision.meta.created, &revision.meta.key));
        let highest = old.last().map_or(0, |revision| revision.number).max(0);
        let hash = match current {
            Some(current) => hash_of(current),
            None => daemon_set.template.hash(daemon_set.status.collision_count),
        };
        let new_hashes = duplicates.iter().map(|revision| hash_of(revision)).chain([hash.clone()]).collect();
        let old_hashes = old.iter().map(|revision| hash_of(revision)).collect();
        let generation = daemon_set.template_generation.map(|generation| generation.to_string());
        History {
            daemon_set,
            current,
            duplicates,
            old,
            hash,
            // The largest number has no successor.
            number: highest.saturating_add(1),
            new_hashes,
            old_hashes,
            generation,
            judged: RefCell::default(),
        }
    }

    /// The name of the current revision.
    pub(super) fn name(&self) -> String {
        match self.current {
            Some(current) => current.meta.key.name.to_string(),
            None => replica_set_name(&self.daemon_set.meta.key.name, &self.hash),
        }
    }

    /// The number that the current revision has once the writes are done.
    pub(super) fn number(&self) -> i64 {
        self.current.map_or(0, |current| current.number).max(self.number)
    }

    /// How many revisions are later than this one.
    pub(super) fn later_than(&self, number: i64) -> usize {
        self.old.iter().filter(|revision| revision.number > number).count()
    }

    /// The state of the rollout to the current revision, as it is stored there.
    pub(super) fn state(&self) -> State {
        let text = self.current.and_then(|current| current.rollout_state.as_deref());
        State::read(text, &self.name())
    }

    /// Whether the current revision has this state.
    pub(super) fn has_state(&self, state: &State) -> bool {
        self.has_any_state() && self.state() == *state
    }

    /// Whether the current revision has any state.
    pub(super) fn has_any_state(&self) -> bool {
        self.current.is_some_and(|current| current.rollout_state.is_some())
    }

    /// Whether a pod has the current template: by its hash or, where no owned revision has that hash, by its template
    /// generation. Upstream trusts the generation in any case, also that of a pod of an earlier DaemonSet.
    pub fn is_new(&self, pod: &Pod) -> bool {
        let labels = &pod.meta.labels;
        let mut judged = self.judged.borrow_mut();
        match &*judged {
            Some((known, is_new)) if Arc::ptr_eq(known, labels) => *is_new,
            _ => judged.insert((labels.clone(), self.are_new(labels))).1,
        }
    }

    fn are_new(&self, labels: &StringMap) -> bool {
        let hash = labels.get(CONTROLLER_REVISION_HASH).filter(|hash| !hash.is_empty());
        match hash {
            Some(hash) if self.new_hashes.contains(hash) => true,
            Some(hash) if self.old_hashes.contains(hash) => false,
            _ => {
                let generation = labels.get(POD_TEMPLATE_GENERATION);
                generation.is_some() && generation == self.generation.as_deref()
            }
        }
    }

    /// The writes that precede the creation and deletion of pods because of their template.
    pub fn writes(&self, members: &Members) -> Vec<Write> {
        let mut writes: Vec<Write> = Vec::new();
        let (relabelled, is_done) = self.relabelled(members);
        writes.extend(relabelled);
        if is_done {
            let is_known = |revision: &ControllerRevision| self.old_hashes.contains(&hash_of(revision));
            let duplicates = self.duplicates.iter().filter(|r| !r.meta.is_deleting() && !is_known(r));
            writes.extend(duplicates.map(|revision| Write::DeleteRevision(Arc::clone(revision))));
        }
        let all = self.old.iter().copied().chain(self.current);
        writes.extend(all.filter_map(|revision| {
            let is_current = self.current.is_some_and(|current| Arc::ptr_eq(current, revision));
            let change = RevisionChange {
                hash: revision.hash().is_none().then(|| hash_of(revision)),
                number: (is_current && revision.number < self.number).then_some(self.number),
                ..RevisionChange::default()
            };
            (change != RevisionChange::default()).then(|| Write::ChangeRevision(Arc::clone(revision), change))
        }));
        if self.current.is_none() {
            let new = NewRevision { name: self.name(), hash: self.hash.clone(), number: self.number };
            writes.push(Write::CreateRevision(new));
        }
        writes
    }

    /// The pods of duplicates, which get the hash of the revision that stays, and whether these are all. Upstream
    /// relabels every pod, also those of older templates, which are then never updated (kubernetes#111280).
    fn relabelled(&self, members: &Members) -> (Vec<Write>, bool) {
        let is_duplicate = |pod: &&Arc<Pod>| {
            let hash = pod.meta.labels.get(CONTROLLER_REVISION_HASH).unwrap_or_default();
            let all = planted!("a duplicate revision relabels all DaemonSet pods");
            hash != self.hash && (all || self.new_hashes.contains(hash) && !self.old_hashes.contains(hash))
        };
        if self.duplicates.is_empty() {
            return (Vec::new(), true);
        }
        let mut pods = members.all().filter(is_duplicate);
        let relabel = |pod: &Arc<Pod>| Write::Relabel { pod: pod.clone(), hash: self.hash.clone() };
        let writes = pods.by_ref().take(BURST).map(relabel).collect();
        (writes, pods.next().is_none())
    }

    /// The old revisions beyond the history limit, the lowest number first. One whose hash is on a pod stays, so that
    /// more than the limit may be left. The latest of them stays until the current one exists: the next number is
    /// counted from it, and the creation may be refused.
    pub fn surplus(&self, members: &Members) -> Vec<Write> {
        let limit = usize::try_from(self.daemon_set.revision_history_limit).unwrap_or(0);
        let old = || self.old.iter().filter(|revision| !revision.meta.is_deleting());
        let surplus = old().count().saturating_sub(limit);
        if surplus == 0 {
            return Vec::new();
        }
        let used: BTreeSet<&str> =
            members.all().filter_map(|pod| pod.meta.labels.get(CONTROLLER_REVISION_HASH)).collect();
        let unused = old().filter(|revision| {
            let hash = hash_of(revision);
            let is_latest =
                self.current.is_none() && self.old.last().is_some_and(|last| Arc::ptr_eq(last, revision));
            !used.contains(&*hash) && !is_latest && !self.new_hashes.contains(&hash)
        });
        unused.take(surplus.min(BURST)).map(|revision| Write::DeleteRevision(Arc::clone(revision))).collect()
    }
}

/// The hash of a revision: its label; without a label its name; of a name that is too long for a label, a hash of ten
/// letters.
fn hash_of(revision: &ControllerRevision) -> String {
    let name = &*revision.meta.key.name;
    match revision.hash() {
        Some(hash) => hash.to_owned(),
        None if name.len() <= LONGEST_VALUE => name.to_owned(),
        None => {
            let number = fnv1a_64([name.as_bytes()]);
            let digits = (0..10).map(|digit| number / 27u64.pow(digit) % 27);
            digits
                .filter_map(|digit| SAFE_ALPHABET.get(digit as usize))
                .map(|&letter| char::from(letter))
                .collect()
        }
    }
}

/// Decides about a creation whose name is taken by `existing`; `None` where it was deleted since.
pub fn on_taken(daemon_set: &DaemonSet, new: &NewRevision, existing: Option<&ControllerRevision>) -> Taken {
    let Some(existing) = existing else { return Taken::PlanAgain };
    let owned = [Arc::new(existing.clone())];
    let is_match = History::of(daemon_set, &owned).current.is_some();
    match is_match {
        true if existing.hash() == Some(&new.hash) => Taken::Use,
        true if daemon_set.controls(&existing.meta) => Taken::PlanAgain,
        true | false => Taken::Collision,
    }
}

/// The JSON of a new revision. `annotations` are all that the DaemonSet has now, by a fresh read. A command and a state are no
/// property of the template.
///
/// # Errors
/// As for [`data`].
pub fn revision_body(
    daemon_set: &DaemonSet,
    new: &NewRevision,
    annotations: &BTreeMap<String, String>,
) -> Result<Vec<u8>, serde_json::Error> {
    let Meta { key, uid, .. } = &daemon_set.meta;
    let owner = OwnerReference::controller("apps/v1", "DaemonSet", &key.name, uid);
    let mut annotations = Cow::Borrowed(annotations);
    for key in [ROLLOUT, ROLLOUT_STATE] {
        if annotations.contains_key(key) {
            annotations.to_mut().remove(key);
        }
    }
    revisions::body(owner, &key.namespace, &daemon_set.template, new, CONTROLLER_REVISION_HASH, &annotations)
}

#[cfg(test)]
mod tests;
