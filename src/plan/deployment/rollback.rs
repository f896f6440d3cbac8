//! The rollback of `extensions/v1beta1`, requested by an annotation (upstream: `rollback.go`).
//!
//! kubectl writes the old template itself since 1.16; other clients still set the annotation. The
//! Deployment is changed, and the annotation removed, in one write before any write to a ReplicaSet, so that
//! an interrupted rollback is not done twice.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::revision::{NOT_COPIED, ROLLBACK_TO, current_revision, revision_of};
use super::{ReplicaSets, Write};
use crate::model::{Deployment, POD_TEMPLATE_HASH, ReplicaSet, Uid};
use crate::plan::EventNote;

/// A template, and the annotations of the Deployment from then on.
pub type Back = (Box<RawValue>, Option<BTreeMap<String, String>>);

/// The changes that a rollback makes to the Deployment.
#[derive(Clone, Debug)]
pub struct RollBack {
    /// The template to roll back to, and all annotations of the Deployment from then on. `None`: there
    /// is nothing to roll back to, and only the annotation is removed. Without annotations those of the Deployment stay.
    pub back: Option<Back>,
    /// The event once it is done.
    pub note: EventNote,
}

impl PartialEq for RollBack {
    fn eq(&self, other: &Self) -> bool {
        let back = |rollback: &RollBack| {
            rollback
                .back
                .as_ref()
                .map(|(template, annotations)| (template.get().to_owned(), annotations.clone()))
        };
        self.note == other.note && back(self) == back(other)
    }
}

/// The requested revision, 0 for the last one; a value that is not a number requests nothing.
pub fn requested(deployment: &Deployment) -> Option<i64> {
    deployment.annotations.get(ROLLBACK_TO)?.parse().ok()
}

/// The one write of a rollback.
///
/// Revisions are numbered as if every ReplicaSet had its own already. The current template has the latest,
/// whether its ReplicaSet exists or not: a Deployment that was paused, got another image and is rolled back
/// returns to the image before, not to the one before that. The same holds for a template whose ReplicaSet
/// is an older one that has not got its new number yet. Upstream first creates the ReplicaSet of the
/// template that it then leaves; here nothing is created.
pub fn plan(deployment: &Deployment, replica_sets: &ReplicaSets, revision: i64) -> Write {
    const NOT_FOUND: &str = "DeploymentRollbackRevisionNotFound";
    let only_clear = |note| Write::RollBack(RollBack { back: None, note });
    let current = current_revision(replica_sets);
    let revision = match revision {
        0 => match second_latest(replica_sets, current) {
            Some(revision) => revision,
            None => return only_clear(EventNote::warning(NOT_FOUND, "Unable to find last revision.".into())),
        },
        revision => revision,
    };
    let name = &deployment.meta.key.name;
    let unchanged = || {
        let message =
            format!("The rollback revision contains the same template as current deployment {name:?}");
        only_clear(EventNote::warning("DeploymentRollbackTemplateUnchanged", message))
    };
    let replica_set =
        match replica_sets.old.iter().find(|replica_set| revision_of(replica_set) == Some(revision)) {
            Some(replica_set) => replica_set,
            None if revision == current => return unchanged(),
            None => {
                let message = "Unable to find the revision to rollback to.";
                return only_clear(EventNote::warning(NOT_FOUND, message.into()));
            }
        };
    if replica_set.template.asks_for_the_same_as(&deployment.template) {
        return unchanged();
    }
    match replica_set.template.without_label(POD_TEMPLATE_HASH) {
        Ok(template) => Write::RollBack(RollBack {
            back: Some((template, Some(annotations(deployment, replica_set)))),
            note: EventNote::normal(
                "DeploymentRollback",
                format!("Rolled back deployment {name:?} to revision {revision}"),
            ),
        }),
        Err(error) => only_clear(EventNote::warning(
            NOT_FOUND,
            format!("The template of the revision cannot be read: {error}"),
        )),
    }
}

/// The rollback that `windlass.dev/on-failure: rollback` asks for: the template of the ReplicaSet that serves. The annotations
/// stay, unlike those of an undo: the policy is not part of what has failed. `None`: its template cannot be read.
pub(super) fn after_failure(
    deployment: &Deployment,
    replica_sets: &ReplicaSets,
    target: &Uid,
) -> Option<Write> {
    let target = replica_sets.old.iter().find(|old| &old.meta.uid == target)?;
    let template = target.template.without_label(POD_TEMPLATE_HASH).ok()?;
    let (name, revision) = (&deployment.meta.key.name, revision_of(target).unwrap_or(0));
    let message =
        format!("Rolled back deployment {name:?} to revision {revision}, because the rollout has failed");
    let note = EventNote::normal("DeploymentRollback", message);
    Some(Write::RollBack(RollBack { back: Some((template, None)), note }))
}

/// The revision before the latest.
fn second_latest(replica_sets: &ReplicaSets, current: i64) -> Option<i64> {
    let mut revisions: Vec<i64> =
        replica_sets.old.iter().filter_map(|replica_set| revision_of(replica_set)).collect();
    revisions.push(current);
    revisions.sort_unstable();
    revisions.iter().rev().nth(1).copied().filter(|&revision| revision > 0)
}

/// The annotations that the ReplicaSet got from the Deployment, and those that concern the Deployment only.
fn annotations(deployment: &Deployment, replica_set: &ReplicaSet) -> BTreeMap<String, String> {
    let own =
        deployment.annotations.iter().filter(|(key, _)| NOT_COPIED.contains(key) && *key != ROLLBACK_TO);
    let copied = replica_set.annotations.iter().filter(|(key, _)| !NOT_COPIED.contains(key));
    own.chain(copied).map(|(key, value)| (key.to_string(), value.to_string())).collect()
}
