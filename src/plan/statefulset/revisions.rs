//! The history of a StatefulSet's templates (upstream: `getStatefulSetRevisions`, `truncateHistory`).
//!
//! A pod names its revision by the whole name, which operators compare with `status.updateRevision`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Write;
use crate::model::controllerrevision::Contents;
use crate::model::template::safe_encode;
use crate::model::{CONTROLLER_REVISION_HASH, ControllerRevision, Interner, Meta, Pod, Record, StatefulSet};
use crate::plan::OwnerReference;
use crate::plan::claim::{Claim, claim};
use crate::plan::revisions::{self, NewRevision, RevisionChange, Taken, data};

/// The label of a revision with the hash that its name was first made of.
pub const REVISION_HASH: &str = "controller.kubernetes.io/hash";

/// The longest value of a label.
const LONGEST_VALUE: usize = 63;

/// Whether the StatefulSet controls this revision or may adopt it. Revisions of other kinds have no such label.
pub fn claim_revision(set: &StatefulSet, revision: &ControllerRevision) -> Claim {
    let fits = revision.contents.is_some() && revision.meta.labels.get(REVISION_HASH).is_some();
    match claim(set, &set.selector, &revision.meta) {
        Claim::Adopt if !fits => Claim::Ignore,
        Claim::Release => Claim::Ignore,
        claim => claim,
    }
}

/// The revisions by role.
#[derive(Clone, Debug)]
pub struct History<'a> {
    set: &'a StatefulSet,
    /// Those of the StatefulSet, the lowest number first.
    all: Vec<&'a Arc<ControllerRevision>>,
    /// The one with the current template; `None` before it is created.
    update: Option<&'a Arc<ControllerRevision>>,
    /// Its name, or the one that it will have.
    pub update_name: Arc<str>,
    /// The name of the revision that the update comes from.
    pub current_name: Arc<str>,
    /// The names of all revisions with the current template.
    same: BTreeSet<&'a str>,
    /// That of the revision to create; empty where there is one.
    hash: String,
}

impl<'a> History<'a> {
    /// Finds the roles of the revisions that the StatefulSet controls.
    pub fn of(set: &'a StatefulSet, revisions: &'a [Arc<ControllerRevision>]) -> Self {
        let mut all: Vec<_> =
            revisions.iter().filter(|revision| claim_revision(set, revision) == Claim::Keep).collect();
        // Of equal numbers the older last, and then the first by name: the last one of equal contents is taken.
        all.sort_by(|a, b| {
            let age = |r: &'a ControllerRevision| (r.meta.created, &r.meta.key);
            a.number.cmp(&b.number).then_with(|| age(b).cmp(&age(a)))
        });
        let wanted = Contents::of(&set.template);
        let has = |contents: &Contents| {
            let has = |revision: &&&'a Arc<ControllerRevision>| revision.contents.as_ref() == Some(contents);
            all.iter().filter(has).copied().collect::<Vec<_>>()
        };
        let mut matching = has(&wanted);
        if matching.is_empty() && !all.is_empty() {
            // Numbers that are no 64-bit integers are rounded in the data, so that the template differs from its revision.
            let stored =
                data(&set.template).ok().and_then(|data| Contents::of_data(&data, &mut Interner::default()));
            matching = stored.as_ref().map(has).unwrap_or_default();
        }
        let update = matching.last().copied();
        // It costs as much as the template is long, and almost every sync finds the revision.
        let hash = if update.is_none() { hash(set) } else { String::new() };
        let update_name = match update {
            Some(update) => update.meta.key.name.clone(),
            None => format!("{}-{hash}", set.meta.key.name).into(),
        };
        let current = all.iter().find(|revision| revision.meta.key.name == set.status.current_revision);
        let current_name =
            current.map_or_else(|| update_name.clone(), |current| current.meta.key.name.clone());
        let same = matching.iter().map(|revision| &*revision.meta.key.name).collect();
        History { set, all, update, update_name, current_name, same, hash }
    }

    /// Whether there is a revision with the current template.
    pub fn has_update(&self) -> bool {
        self.update.is_some()
    }

    /// Whether a pod has the current template.
    pub fn is_updated(&self, pod: &Pod) -> bool {
        let label = revision_of(pod);
        label == &*self.update_name || self.same.contains(label)
    }

    /// Whether a pod is of the revision that the update comes from.
    pub fn is_current(&self, pod: &Pod) -> bool {
        let (label, is_same) = (revision_of(pod), self.current_name == self.update_name);
        label == &*self.current_name || (is_same && self.is_updated(pod))
    }

    /// How many bytes the label of new pods has beyond the most that a label may have; 0 if it fits.
    pub fn label_excess(&self) -> usize {
        self.update_name.len().saturating_sub(LONGEST_VALUE)
    }

    /// The writes that precede those of pods: the creation of the revision, or its new number after a rollback.
    pub fn writes(&self) -> Option<Write> {
        let last = self.all.last().map_or(0, |revision| revision.number).max(0);
        // The largest number has no successor.
        let next = last.saturating_add(1);
        match self.update {
            None => {
                let (name, hash) = (self.update_name.to_string(), self.hash.clone());
                Some(Write::CreateRevision(NewRevision { name, hash, number: next }))
            }
            // Also after somebody gave another one the same number, unless that is the largest.
            Some(update)
                if update.number < next && self.all.iter().any(|other| self.is_ahead(other, update)) =>
            {
                let change = RevisionChange { number: Some(next), ..RevisionChange::default() };
                Some(Write::ChangeRevision(Arc::clone(update), change))
            }
            Some(_) => None,
        }
    }

    fn is_ahead(&self, other: &ControllerRevision, update: &ControllerRevision) -> bool {
        !self.same.contains(&*other.meta.key.name) && other.number >= update.number
    }

    /// The revisions beyond the history limit, the lowest number first, and before them those that have the current template,
    /// too, as the copy of a user: whatever the limit is. One that is current or on a pod stays and does not count. The last
    /// one stays until the update revision exists: the next number is counted from it.
    pub fn surplus<'p>(&self, pods: impl IntoIterator<Item = &'p Arc<Pod>>) -> Vec<Write> {
        let limit = usize::try_from(self.set.revision_history_limit).unwrap_or(usize::MAX);
        if self.all.len() <= limit && self.same.len() <= 1 {
            return Vec::new();
        }
        let mut live: BTreeSet<&str> = pods.into_iter().map(|pod| revision_of(pod)).collect();
        live.extend([&*self.current_name, &*self.update_name]);
        let is_latest = |revision: &Arc<ControllerRevision>| {
            self.update.is_none() && self.all.last().is_some_and(|last| Arc::ptr_eq(last, revision))
        };
        let unused = |revision: &&&Arc<ControllerRevision>| {
            !revision.meta.is_deleting() && !live.contains(&*revision.meta.key.name)
        };
        let (copies, old): (Vec<&Arc<ControllerRevision>>, Vec<_>) =
            self.all.iter().filter(unused).partition(|revision| self.same.contains(&*revision.meta.key.name));
        let surplus = old.len().saturating_sub(limit);
        let old = old.into_iter().filter(|revision| !is_latest(revision)).take(surplus);
        copies.into_iter().chain(old).cloned().map(Write::DeleteRevision).collect()
    }
}

/// The name of a pod's revision.
pub fn revision_of(pod: &Pod) -> &str {
    pod.meta.labels.get(CONTROLLER_REVISION_HASH).unwrap_or_default()
}

/// The hash of the template's data, and of the number of collisions so far (upstream: `HashControllerRevision`, FNV-1
/// with 32 bits).
fn hash(set: &StatefulSet) -> String {
    let data = data(&set.template).unwrap_or_default();
    let count = set.status.collision_count.unwrap_or(0).to_string();
    let bytes = data.bytes().chain(count.bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| hash.wrapping_mul(0x0100_0193) ^ u32::from(byte));
    safe_encode(&hash.to_string())
}

/// Decides about a creation whose name is taken by `existing`; `None` where it was deleted since.
pub fn on_taken(set: &StatefulSet, existing: Option<&ControllerRevision>) -> Taken {
    let Some(existing) = existing else { return Taken::PlanAgain };
    let stored = data(&set.template).ok().and_then(|data| Contents::of_data(&data, &mut Interner::default()));
    if stored.is_none() || existing.contents != stored {
        return Taken::Collision;
    }
    let is_former = |owner: &&Arc<_>| {
        let owner: &crate::model::ControllerRef = owner;
        &*owner.kind == StatefulSet::RESOURCE.kind && owner.name == set.meta.key.name
    };
    match &existing.meta.controller {
        _ if set.controls(&existing.meta) => Taken::Use,
        // An orphan is adopted; that of a former StatefulSet of the name is about to be deleted.
        None => Taken::PlanAgain,
        owner if owner.as_ref().filter(is_former).is_some() => Taken::PlanAgain,
        Some(_) => Taken::Collision,
    }
}

/// The JSON of a new revision. `annotations` are all that the StatefulSet has now, by a fresh read.
///
/// # Errors
/// As for [`data`].
pub fn revision_body(
    set: &StatefulSet,
    new: &NewRevision,
    annotations: &BTreeMap<String, String>,
) -> Result<Vec<u8>, serde_json::Error> {
    let Meta { key, uid, .. } = &set.meta;
    let owner = OwnerReference::controller("apps/v1", StatefulSet::RESOURCE.kind, &key.name, uid);
    revisions::body(owner, &key.namespace, &set.template, new, REVISION_HASH, annotations)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &str = r#"{"metadata":{"name":"db","namespace":"shop","uid":"u","resourceVersion":"1"},
        "spec":{"selector":{"matchLabels":{"app":"db"}},
                "template":{"metadata":{"labels":{"app":"db"}},"spec":{"containers":[]}}}}"#;

    fn revision(name: &str, number: i64, data: &str) -> Arc<ControllerRevision> {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"u-{name}","resourceVersion":"1",
                 "labels":{{"app":"db","controller.kubernetes.io/hash":"1"}},
                 "ownerReferences":[{{"apiVersion":"apps/v1","kind":"StatefulSet","name":"db","uid":"u","controller":true}}]}},
                "revision":{number},"data":{data}}}"#
        );
        Arc::new(ControllerRevision::decode(&json, &mut Interner::default()).unwrap())
    }

    /// The new number of the revision of the current template, beside one of another template.
    fn renumbered(update: i64, other: i64) -> Option<i64> {
        let set = StatefulSet::decode(SET, &mut Interner::default()).unwrap();
        let old = r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"app":"old"}}}}}"#;
        let revisions =
            [revision("db-1", update, &data(&set.template).unwrap()), revision("db-2", other, old)];
        match History::of(&set, &revisions).writes() {
            Some(Write::ChangeRevision(revision, change)) if &*revision.meta.key.name == "db-1" => {
                change.number
            }
            None => None,
            Some(write) => panic!("{write}"),
        }
    }

    #[test]
    fn the_current_template_has_the_highest_number_and_shares_it_with_no_other() {
        assert_eq!(renumbered(2, 1), None);
        assert_eq!(renumbered(1, 2), Some(3));
        assert_eq!(renumbered(2, 2), Some(3));
    }

    #[test]
    fn the_largest_number_is_not_written_again_and_again() {
        assert_eq!(renumbered(1, i64::MAX), Some(i64::MAX));
        assert_eq!(renumbered(i64::MAX, i64::MAX), None);
    }
}
