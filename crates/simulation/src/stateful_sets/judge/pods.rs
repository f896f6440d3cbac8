//! The invariants over writes to pods: SS1 to SS9, SS12, SS14, SS18, SS22 and SS24.

use std::time::Duration;

use serde_json::Value;

use super::super::identity::{
    HASH, check_identity, check_references, claims, deletes_claims, first_updated, has_ended, has_started,
    is_on_delete, is_outdated, is_parallel, is_selected, is_stale, is_update, most_unavailable, ordinal,
    range, template,
};
use super::{Commit, Judge};
use crate::engine::breach::Breach;
use crate::engine::objects::{is_deleting, is_live, name, number, owner, references, text, uid};

impl Judge {
    pub(super) fn judge_creation(
        &self,
        commit: &Commit<'_>,
        stateful_set: &Value,
        pod: &Value,
    ) -> Result<(), Breach> {
        let is_edited = self.is_edited(commit.at);
        if owner(pod) != uid(stateful_set) || commit.call.abandoned {
            return match is_edited || commit.call.abandoned {
                true => Ok(()),
                false => commit.breach("SS23", "a pod for an earlier StatefulSet"),
            };
        }
        let (Some(ordinal), Ok(())) = (ordinal(name(pod)), check_identity(stateful_set, pod)) else {
            return commit.breach("SS1", check_identity(stateful_set, pod).unwrap_err());
        };
        if is_edited {
            return Ok(());
        }
        if !range(stateful_set).contains(&ordinal) {
            return commit.breach("SS1", format!("{ordinal} is out of range"));
        }
        if !self.is_recent(self.moved, commit.at) {
            judge_revision_of_pod(commit, stateful_set, ordinal, pod)?;
            judge_claims_of_pod(commit, stateful_set, ordinal)?;
        }
        let serves =
            |below: i64| commit.pod(stateful_set, below).is_some_and(|pod| commit.serves(stateful_set, pod));
        let missing = (range(stateful_set).start..ordinal).find(|below| !serves(*below));
        match missing.filter(|_| !is_parallel(stateful_set) && self.is_calm(commit.at)) {
            Some(below) => commit.breach("SS2", format!("{below} is not available")),
            None => Ok(()),
        }
    }

    pub(super) fn judge_deletion(
        &mut self,
        commit: &Commit<'_>,
        stateful_set: &Value,
        pod: &Value,
    ) -> Result<(), Breach> {
        let call = commit.call;
        if text(&call.body, "/preconditions/uid") != uid(pod) {
            return commit.breach("SS4", "a deletion without the UID");
        }
        if call.body["gracePeriodSeconds"] == 0 || call.query.contains("gracePeriodSeconds=0") {
            return commit.breach("SS9", "a deletion without a grace period");
        }
        if call.abandoned || is_deleting(pod) {
            return Ok(());
        }
        let is_disturbed = self.is_recent(self.disturbed, commit.at);
        let is_member = super::is_member(stateful_set, pod);
        let Some(ordinal) = ordinal(name(pod)).filter(|_| is_member) else {
            return match is_disturbed || self.is_edited(commit.at) {
                true => Ok(()),
                false => commit.breach("SS22", "a pod that is not ours was deleted"),
            };
        };
        if !range(stateful_set).contains(&ordinal) {
            return self.judge_condemned(commit, stateful_set, ordinal, pod);
        }
        if has_ended(pod) {
            return self.judge_ended(commit, stateful_set, ordinal);
        }
        if !self.is_calm(commit.at) {
            return Ok(());
        }
        judge_update(commit, stateful_set, ordinal, pod)
    }

    fn judge_condemned(
        &self,
        commit: &Commit<'_>,
        stateful_set: &Value,
        ordinal: i64,
        pod: &Value,
    ) -> Result<(), Breach> {
        let is_edited = self.is_edited(commit.at);
        if !is_edited && !self.is_recent(self.moved, commit.at) && deletes_claims(stateful_set, "whenScaled")
        {
            for (_, claim) in claims(stateful_set, ordinal) {
                let Some(claim) = commit.claims.iter().find(|found| name(found) == claim) else { continue };
                if let Err(why) = check_references(stateful_set, ordinal, pod, claim)
                    && !is_deleting(claim)
                {
                    return commit.breach("SS12", why);
                }
            }
        }
        if is_parallel(stateful_set) || !self.is_calm(commit.at) {
            return Ok(());
        }
        let range = range(stateful_set);
        let serves = |pod: &Value| commit.serves(stateful_set, pod);
        if let Some(missing) =
            range.clone().find(|ordinal| !commit.pod(stateful_set, *ordinal).is_some_and(&serves))
        {
            return commit.breach("SS3", format!("{missing} is not available"));
        }
        let condemned: Vec<_> =
            commit.members(stateful_set).filter(|(ordinal, _)| !range.contains(ordinal)).collect();
        if let Some((above, _)) = condemned.iter().find(|(other, _)| *other > ordinal) {
            return commit.breach("SS3", format!("{above} is there, and not in range either"));
        }
        let first = condemned.iter().filter(|(_, pod)| !serves(pod)).map(|(ordinal, _)| *ordinal).min();
        match first.filter(|first| *first != ordinal && !serves(pod)) {
            Some(first) => commit.breach("SS3", format!("{first} is not available either")),
            None => Ok(()),
        }
    }

    /// Ended pods of one ordinal and generation are deleted 1, 2, 4, … 900 s apart.
    fn judge_ended(&mut self, commit: &Commit<'_>, stateful_set: &Value, ordinal: i64) -> Result<(), Breach> {
        if self.is_edited(commit.at) || self.running.len() > 1 {
            return Ok(());
        }
        let key = (uid(stateful_set).to_owned(), number(stateful_set, "/metadata/generation"), ordinal);
        let all = self.failures.entry(key).or_default();
        let wait = 1u64.checked_shl(all.len().saturating_sub(1) as u32).unwrap_or(900).min(900);
        let since = all.last().map(|last| commit.at.saturating_sub(*last));
        all.push(commit.at);
        match since.filter(|since| *since + Duration::from_millis(10) < Duration::from_secs(wait)) {
            Some(since) => commit
                .breach("SS24", format!("{since:?} after the last ended pod of {ordinal}, and not {wait} s")),
            None => Ok(()),
        }
    }

    /// A pod is adopted, released, or gets its labels back.
    pub(super) fn judge_change(
        &self,
        commit: &Commit<'_>,
        stateful_set: &Value,
        before: &Value,
        after: &Value,
    ) -> Result<(), Breach> {
        let (old, new) = (owner(before), owner(after));
        let is_others = !old.is_empty() && old != uid(stateful_set);
        if is_others && !self.is_edited(commit.at) {
            return commit.breach("SS22", "a pod of another owner was changed");
        }
        if old.is_empty() && new == uid(stateful_set) {
            let is_wanted = ordinal(name(after)).is_some() && is_selected(stateful_set, after);
            let may_be = is_wanted && !is_deleting(before) && !is_deleting(stateful_set);
            if !may_be && !self.is_recent(self.disturbed, commit.at) {
                return commit.breach("SS22", "a pod that is not ours was adopted");
            }
        }
        let is_released = old == uid(stateful_set) && new != old;
        if is_released && super::is_member(stateful_set, before) && !self.is_recent(self.disturbed, commit.at)
        {
            return commit.breach("SS22", "a pod that is ours was released");
        }
        let foreign = |pod: &Value| -> Vec<Value> {
            let others = references(pod).iter().filter(|reference| reference["uid"] != uid(stateful_set));
            others.cloned().collect()
        };
        if before["spec"] != after["spec"] || foreign(before) != foreign(after) {
            return commit.breach("SS22", "more than labels and our reference was changed");
        }
        let of =
            |pod: &Value| commit.revisions.iter().find(|other| name(other) == text(pod, HASH)).map(template);
        match (of(before), of(after)) {
            (Some(one), Some(other)) if one != other => {
                commit.breach("SS18", "a pod of another template was relabelled")
            }
            _ => Ok(()),
        }
    }
}

fn judge_revision_of_pod(
    commit: &Commit<'_>,
    stateful_set: &Value,
    ordinal: i64,
    pod: &Value,
) -> Result<(), Breach> {
    let hash = text(pod, HASH);
    let owned = |wanted: &str| {
        let mut all = commit.revisions.iter().filter(|revision| owner(revision) == uid(stateful_set));
        all.find(|revision| name(revision) == wanted)
    };
    let Some(revision) = owned(hash) else {
        return commit.breach("SS1", format!("{hash} is no revision of ours"));
    };
    let strategy = &stateful_set["spec"]["updateStrategy"];
    let current = owned(text(stateful_set, "/status/currentRevision"));
    let is_current = current.is_some_and(|current| template(current) == template(revision));
    let is_bare = !is_on_delete(stateful_set) && strategy["rollingUpdate"].is_null();
    if is_bare && is_current {
        return Ok(());
    }
    if !is_on_delete(stateful_set) && ordinal < first_updated(stateful_set) && current.is_some() {
        return match is_current {
            true => Ok(()),
            false => commit.breach("SS6", format!("{ordinal} is below the partition, and gets {hash}")),
        };
    }
    match is_update(stateful_set, revision) {
        true => Ok(()),
        false => commit.breach("SS1", format!("{hash} does not have the template")),
    }
}

fn judge_claims_of_pod(commit: &Commit<'_>, stateful_set: &Value, ordinal: i64) -> Result<(), Breach> {
    for (_, claim) in claims(stateful_set, ordinal) {
        let Some(found) = commit.claims.iter().find(|found| name(found) == claim) else {
            return commit.breach("SS15", format!("{claim} does not exist"));
        };
        if is_deleting(found) {
            return commit.breach("SS14", format!("{claim} is being deleted"));
        }
        if is_stale(stateful_set, ordinal, None, found) {
            return commit.breach("SS14", format!("{claim} has the owners {:?}", references(found)));
        }
    }
    Ok(())
}

/// The deletion of a pod that is in range and has not ended: only a rollout may do that.
fn judge_update(commit: &Commit<'_>, stateful_set: &Value, ordinal: i64, pod: &Value) -> Result<(), Breach> {
    let is_old = |pod: &Value| is_outdated(stateful_set, &commit.revisions, pod);
    let serves = |pod: &Value| commit.serves(stateful_set, pod);
    if !is_old(pod) {
        return commit.breach("SS4", "there is no reason to delete it");
    }
    if is_on_delete(stateful_set) {
        return commit.breach("SS8", "deleted for its template under OnDelete");
    }
    if ordinal < first_updated(stateful_set) {
        return commit.breach("SS6", "deleted for its template below the partition");
    }
    let pods: Vec<Option<&Value>> = range(stateful_set).map(|one| commit.pod(stateful_set, one)).collect();
    let most = most_unavailable(stateful_set);
    if !serves(pod) {
        // A missing or terminating pod counts, and a new one that is not available; not one that is to be replaced.
        let outstanding = pods
            .iter()
            .filter(|pod| pod.is_none_or(|pod| is_deleting(pod) || !is_old(pod) && !serves(pod)))
            .count() as i64;
        return match (is_parallel(stateful_set), has_started(pod)) {
            (true, _) if outstanding >= most => {
                commit.breach("SS5", format!("{outstanding} pods are under way already"))
            }
            (false, true) => commit.breach("SS4", "it is not available, and has started"),
            _ => Ok(()),
        };
    }
    let without = pods.iter().filter(|pod| !pod.is_some_and(&serves)).count() as i64;
    if without >= most {
        return commit.breach("SS5", format!("{without} pods are not available already"));
    }
    let above = commit.members(stateful_set).find(|(other, pod)| {
        *other > ordinal && range(stateful_set).contains(other) && is_live(pod) && is_old(pod)
    });
    match above {
        Some((above, _)) => commit.breach("SS7", format!("{above} has an older template too")),
        None => Ok(()),
    }
}
