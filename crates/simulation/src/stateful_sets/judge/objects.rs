//! The invariants over writes to claims, revisions and the status: SS10, SS15 to SS17, and SS19 to SS21.

use http::Method;
use serde_json::Value;

use super::super::identity::{
    HASH, deletes_claims, is_ours, is_update, pod_name, range, template, template_of_claim,
};
use super::{Commit, Judge};
use crate::engine::breach::Breach;
use crate::engine::objects::{name, number, owner, references, text, uid};

impl Judge {
    pub(super) fn judge_claim(
        &self,
        commit: &Commit<'_>,
        stateful_set: &Value,
        before: Option<&Value>,
        after: Option<&Value>,
    ) -> Result<(), Breach> {
        if commit.call.method == Method::DELETE {
            return commit.breach("SS10", "a claim was deleted");
        }
        let (Some(after), is_edited) = (after, self.is_edited(commit.at)) else { return Ok(()) };
        let Some((claim_template, ordinal)) = template_of_claim(stateful_set, name(after)) else {
            return match is_edited || commit.call.abandoned {
                true => Ok(()),
                false => commit.breach("SS15", "it is the claim of no template"),
            };
        };
        let Some(before) = before else {
            let labels = stateful_set["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
            let has_labels =
                labels.into_iter().all(|(key, value)| after["metadata"]["labels"][key] == *value);
            let is_alike = ["accessModes", "resources"]
                .iter()
                .all(|key| after["spec"][key] == claim_template["spec"][key]);
            if !has_labels || !is_alike {
                return commit.breach("SS15", "it is not like its template");
            }
            if is_edited || commit.call.abandoned {
                return Ok(());
            }
            if !range(stateful_set).contains(&ordinal) {
                return commit.breach("SS15", format!("{ordinal} is out of range"));
            }
            let owners: Vec<&str> =
                references(after).iter().map(|reference| text(reference, "/uid")).collect();
            let wanted = deletes_claims(stateful_set, "whenDeleted").then(|| uid(stateful_set));
            return match owners == Vec::from_iter(wanted) {
                true => Ok(()),
                false => commit.breach("SS15", format!("its owners are {owners:?}")),
            };
        };
        let pod = pod_name(ordinal);
        let rest = |claim: &Value| {
            let mut claim = claim.clone();
            if let Some(metadata) = claim["metadata"].as_object_mut() {
                metadata.retain(|field, _| {
                    !matches!(&**field, "ownerReferences" | "resourceVersion" | "managedFields")
                });
            }
            claim
        };
        let foreign = |claim: &Value| -> Vec<Value> {
            references(claim).iter().filter(|reference| !is_ours(reference, &pod)).cloned().collect()
        };
        match rest(before) == rest(after) && foreign(before) == foreign(after) {
            true => Ok(()),
            false => commit.breach("SS10", "more than our owner references was changed"),
        }
    }

    pub(super) fn judge_revision(&self, commit: &Commit<'_>, stateful_set: &Value) -> Result<(), Breach> {
        let (is_edited, is_moved) =
            (self.is_edited(commit.at), self.is_recent(self.moved, commit.at) || commit.call.abandoned);
        let owned = |revision: &&Value| owner(revision) == uid(stateful_set);
        match (commit.before, commit.after) {
            (None, Some(new)) if owned(&new) => {
                let highest =
                    commit.revisions.iter().filter(owned).map(|other| number(other, "/revision")).max();
                if highest.is_some_and(|highest| number(new, "/revision") <= highest)
                    && !is_moved
                    && !is_edited
                {
                    return commit.breach("SS16", "a revision number that was used before");
                }
                match is_update(stateful_set, new) || is_edited || commit.call.abandoned {
                    true => Ok(()),
                    false => commit.breach("SS16", "its data is not the template"),
                }
            }
            (Some(before), Some(after)) if number(after, "/revision") < number(before, "/revision") => {
                commit.breach("SS16", "the revision number falls")
            }
            (Some(before), None) if owned(&before) && !commit.call.abandoned => {
                let same = |other: &&Value| owned(other) && template(other) == template(before);
                let is_twin = commit.revisions.iter().filter(same).count() > 1;
                if is_twin || is_moved || is_edited {
                    return Ok(());
                }
                let is_used = commit.members(stateful_set).any(|(_, pod)| text(pod, HASH) == name(before));
                let limit = &stateful_set["spec"]["revisionHistoryLimit"];
                match () {
                    () if is_used => commit.breach("SS17", "a pod has the revision"),
                    () if is_update(stateful_set, before) => commit.breach("SS17", "it has the template"),
                    () if name(before) == text(stateful_set, "/status/currentRevision") => {
                        commit.breach("SS17", "it is the current revision")
                    }
                    () if limit.as_i64().is_some_and(|limit| limit < 0) => {
                        commit.breach("SS17", "the history has no limit")
                    }
                    () => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    pub(super) fn judge_status(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
        let of = |field: &str| number(&after["status"], field);
        let [replicas, ready, available] = ["/replicas", "/readyReplicas", "/availableReplicas"].map(of);
        let [current, updated] = ["/currentReplicas", "/updatedReplicas"].map(of);
        let in_order = 0 <= available && available <= ready && ready <= replicas;
        if !in_order || ![current, updated].iter().all(|number| (0..=replicas).contains(number)) {
            return commit.breach("SS20", format!("{}", after["status"]));
        }
        if before["status"]["conditions"] != after["status"]["conditions"] {
            return commit.breach("SS20", "conditions of others were changed");
        }
        let observed = of("/observedGeneration");
        if observed > number(after, "/metadata/generation") {
            return commit.breach("SS20", "observedGeneration is above the generation");
        }
        if self.observed.0 == uid(after) && observed < self.observed.1 {
            return commit.breach("SS20", "observedGeneration falls");
        }
        self.observed = (uid(after).to_owned(), observed);
        match number(after, "/status/collisionCount") - number(before, "/status/collisionCount") {
            0 | 1 => self.judge_promotion(commit, before, after),
            by => commit.breach("SS19", format!("collisionCount changes by {by}")),
        }
    }

    fn judge_promotion(&self, commit: &Commit<'_>, before: &Value, after: &Value) -> Result<(), Breach> {
        let [old, new, update] = [
            text(before, "/status/currentRevision"),
            text(after, "/status/currentRevision"),
            text(after, "/status/updateRevision"),
        ];
        if old == new || old.is_empty() {
            return Ok(());
        }
        if new != update {
            return commit
                .breach("SS21", format!("currentRevision becomes {new}, and updateRevision is {update}"));
        }
        let named =
            commit.revisions.iter().find(|revision| owner(revision) == uid(after) && name(revision) == old);
        let is_replaced = named.is_none_or(|named| is_update(after, named));
        let of = |field: &str| number(&after["status"], field);
        let size = of("/replicas");
        let is_complete = of("/updatedReplicas") == size && of("/availableReplicas") == size;
        let is_whole = size == number(after, "/spec/replicas") || self.is_edited(commit.at);
        match is_replaced || is_complete && is_whole || self.is_recent(self.moved, commit.at) {
            true => Ok(()),
            false => {
                commit.breach("SS21", "currentRevision is promoted before all pods are updated and available")
            }
        }
    }
}
