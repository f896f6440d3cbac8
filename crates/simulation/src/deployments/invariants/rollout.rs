//! S1, S2, S4, S6 to S8: writes to ReplicaSets.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::replica_sets::RecordedSize;
use super::{Commit, Invariants, Terms};
use crate::deployments::objects::{bare, controller, selects};
use crate::engine::breach::Breach;
use crate::engine::objects::{is_deleting, number, text};

fn revision(replica_set: &Value) -> i64 {
    text(replica_set, "/metadata/annotations/deployment.kubernetes.io~1revision").parse().unwrap_or(0)
}

impl Invariants {
    pub(super) fn judge_rollout(&self, commit: &Commit<'_>, since: Duration) -> Result<(), Breach> {
        if commit.call.subresource == "status" {
            return Ok(());
        }
        let Some(replica_set) = commit.after.or(commit.before) else { return Ok(()) };
        let deployment = controller(commit.before.unwrap_or(replica_set));
        if deployment.is_empty() {
            // Its adoption is judged elsewhere, and before that nothing may be written to it.
            return match controller(replica_set) {
                "" => commit.breach("outgoing", "a write to a ReplicaSet without an owner"),
                _ => Ok(()),
            };
        }
        self.check_owner_exists(commit, deployment, since)?;
        // Its Deployment is deleted meanwhile, so that there are no bounds.
        let Some(terms) = self.terms.get(deployment) else { return Ok(()) };
        let terms: Vec<&Terms> = terms.since(since).collect();
        if commit.by_uid("deployments", deployment).is_none() {
            return Ok(());
        }
        match commit.call.method {
            Method::DELETE => self.trimmed(commit, deployment, &terms),
            Method::POST => {
                Self::begun(commit, replica_set, deployment, &terms)?;
                if commit.call.abandoned {
                    return Ok(());
                }
                self.numbered(commit, replica_set, deployment, since)?;
                self.resized(commit, replica_set, deployment, &terms, since)
            }
            _ if commit.call.abandoned => Ok(()),
            _ => {
                self.numbered(commit, replica_set, deployment, since)?;
                self.resized(commit, replica_set, deployment, &terms, since)
            }
        }
    }

    /// S4, S6 and S7 for a new ReplicaSet.
    fn begun(
        commit: &Commit<'_>,
        replica_set: &Value,
        deployment: &str,
        terms: &[&Terms],
    ) -> Result<(), Breach> {
        let template = bare(&replica_set["spec"]["template"]);
        let twin = |other: &&Value| bare(&other["spec"]["template"]) == template && !is_deleting(other);
        if let Some(other) = commit.owned("replicasets", deployment).into_iter().find(twin) {
            return commit.breach("S4", format!("{} exists already", text(other, "/metadata/name")));
        }
        if terms.iter().all(|terms| terms.paused) {
            return commit.breach("S6", "a new ReplicaSet while the Deployment is paused");
        }
        Ok(())
    }

    /// S7: a new revision is the highest, and higher than all existing ones.
    fn numbered(
        &self,
        commit: &Commit<'_>,
        replica_set: &Value,
        deployment: &str,
        since: Duration,
    ) -> Result<(), Breach> {
        let (given, before) = (revision(replica_set), commit.before.map_or(0, revision));
        let uid = text(replica_set, "/metadata/uid");
        // The Deployment's annotation has the highest one, also of ReplicaSets that are not in the cache yet, unless
        // another client has changed the annotation. A daemon that starts with an old list of ReplicaSets has not
        // waited for the one that the annotation names.
        let told = commit.by_uid("deployments", deployment).filter(|_| !self.past).map_or(0, revision);
        // A ReplicaSet that the Deployment does not select is released, and does not count. A process that has just
        // started does not look for it.
        let owner = commit.by_uid("deployments", deployment);
        let is_selected = |replica_set: &Value| owner.is_none_or(|owner| selects(owner, replica_set));
        let counts = |replica_set: &&Value| {
            text(replica_set, "/metadata/uid") != uid
                && is_selected(replica_set)
                && (revision(replica_set) <= told || self.history.is_known(replica_set, since))
        };
        let others = commit.owned("replicasets", deployment).into_iter();
        let highest = others.filter(counts).map(revision).max().unwrap_or(0);
        let highest = highest.max(self.history.trimmed(deployment));
        if given != before && (given <= highest || given < before) {
            return commit.breach("S7", format!("revision {given} after {before}, beside {highest}"));
        }
        Ok(())
    }

    /// S1 and S2.
    fn resized(
        &self,
        commit: &Commit<'_>,
        replica_set: &Value,
        deployment: &str,
        terms: &[&Terms],
        since: Duration,
    ) -> Result<(), Breach> {
        let size = number(replica_set, "/spec/replicas");
        let size_before = commit.before.map_or(0, |replica_set| number(replica_set, "/spec/replicas"));
        let replica_sets = commit.owned("replicasets", deployment);
        let sum: i64 =
            replica_sets.iter().map(|replica_set| number(replica_set, "/spec/replicas")).sum::<i64>() + size
                - size_before;
        let bound = terms.iter().map(|terms| terms.replicas + terms.surge).max().unwrap_or(0);
        let adopted = commit.before.is_none_or(|before| controller(before) == deployment);
        // Two leaders do not know what the other wrote a moment ago.
        let others = |(who, _): &&(Arc<str>, i64)| *who != commit.call.agent;
        let raises = self.raises.get(deployment).into_iter().flat_map(|raises| raises.happened(since));
        let raises: Vec<i64> = raises.filter(others).map(|(_, by)| *by).collect();
        let unknown: i64 = raises.iter().filter(|by| **by > 0).sum();
        if size > size_before && sum - unknown > bound && adopted {
            return commit.breach("S1", format!("{sum} pods wanted, {bound} allowed"));
        }
        let Some(first) = terms.first() else { return Ok(()) };
        if size < size_before {
            self.shrunk_in_a_pause(commit, &replica_sets, terms, since)?;
        }
        // After a change of size or strategy, ReplicaSets shrink for other reasons than a rollout.
        let same = |terms: &&Terms| terms.replicas == first.replicas && terms.template == first.template;
        let rolling =
            terms.iter().all(|terms| !terms.recreate && !terms.paused && same(terms)) && raises.is_empty();
        let old = bare(&replica_set["spec"]["template"]) != bare(&first.template);
        // The same holds for an earlier change of size that was not executed before, because the sync had to wait.
        let before = commit.before.and_then(|replica_set| RecordedSize::of(replica_set).desired);
        let scales = before.is_some_and(|desired| desired != first.replicas)
            && RecordedSize::of(replica_set).desired == Some(first.replicas);
        if size >= size_before || !old || !rolling || scales {
            return Ok(());
        }
        let least = terms.iter().map(|terms| terms.replicas - terms.unavailable).min().unwrap_or(0);
        let (mut available, mut taken) = (0, 0);
        for other in &replica_sets {
            let (counting, idle) = self.available(commit, other);
            let shrinks = if text(other, "/metadata/uid") == text(replica_set, "/metadata/uid") {
                size
            } else {
                i64::MAX
            };
            // Unavailable pods are deleted first. The author may not know which pods have just become available.
            let gained = self.losses.gained(text(other, "/metadata/uid"), since);
            let pods = counting + idle;
            let removed = (pods - shrinks.min(pods) - idle - gained).max(0);
            available += counting - removed + self.losses.unavailable(commit, other, since);
            taken += removed;
        }
        // Pods that were never available may be deleted even where too few are available.
        if taken > 0 && available < least {
            return commit
                .breach("S2", format!("{available} available pods are left, at least {least} required"));
        }
        Ok(())
    }

    /// S6 for existing ReplicaSets: where several want pods while their Deployment is paused, one shrinks only when
    /// all of them together want more than is allowed, or the new one wants all replicas.
    fn shrunk_in_a_pause(
        &self,
        commit: &Commit<'_>,
        replica_sets: &[&Value],
        terms: &[&Terms],
        since: Duration,
    ) -> Result<(), Breach> {
        let Some(first) = terms.first() else { return Ok(()) };
        let same = |terms: &&Terms| (terms.replicas, terms.surge) == (first.replicas, first.surge);
        let size = |replica_set: &Value| number(replica_set, "/spec/replicas");
        let several = replica_sets.iter().filter(|replica_set| size(replica_set) > 0).count() > 1;
        if !several || !terms.iter().all(|terms| terms.paused && same(terms)) {
            return Ok(());
        }
        let template = |replica_set: &Value| bare(&replica_set["spec"]["template"]);
        let is_full = |replica_set: &&Value| {
            size(replica_set) == first.replicas
                && terms.iter().any(|terms| bare(&terms.template) == template(replica_set))
        };
        // The author may not know what others did to the ReplicaSets, nor which ones exist.
        let known = replica_sets
            .iter()
            .all(|replica_set| self.history.is_left_alone(replica_set, &commit.call.agent, since))
            && self.deleted_since.values().all(|at| *at < since)
            && self
                .sizes
                .keys()
                .filter_map(|replica_set| self.owners.get(replica_set))
                .all(|owners| !owners.changed(since));
        let sum: i64 = replica_sets.iter().map(|replica_set| size(replica_set)).sum();
        let allowed = if first.replicas > 0 { first.replicas + first.surge } else { 0 };
        if known && sum <= allowed && !replica_sets.iter().any(is_full) {
            let what =
                format!("a ReplicaSet shrinks during a pause, with {sum} pods wanted and {allowed} allowed");
            return commit.breach("S6", what);
        }
        Ok(())
    }

    /// S8.
    fn trimmed(&self, commit: &Commit<'_>, deployment: &str, terms: &[&Terms]) -> Result<(), Breach> {
        let Some(replica_set) = commit.before else { return Ok(()) };
        let used = ["/spec/replicas", "/status/replicas"].iter().any(|field| number(replica_set, field) != 0);
        if used
            || number(replica_set, "/status/observedGeneration")
                != number(replica_set, "/metadata/generation")
        {
            return commit.breach("S8", "a ReplicaSet that is not empty is deleted");
        }
        let template = bare(&replica_set["spec"]["template"]);
        // Of two with the same template the older is the current one.
        let (uid, age) = ("/metadata/uid", "/metadata/creationTimestamp");
        let is_older_twin = |other: &&Value| {
            text(other, uid) != text(replica_set, uid)
                && bare(&other["spec"]["template"]) == template
                && !is_deleting(other)
                && text(other, age) <= text(replica_set, age)
        };
        if terms.iter().all(|terms| bare(&terms.template) == template) {
            let has_older_twin = commit.owned("replicasets", deployment).iter().any(is_older_twin);
            return if has_older_twin {
                Ok(())
            } else {
                commit.breach("S8", "the current ReplicaSet is deleted")
            };
        }
        let old = commit.owned("replicasets", deployment);
        let old = old.iter().filter(|replica_set| {
            terms.iter().all(|t| bare(&t.template) != bare(&replica_set["spec"]["template"]))
        });
        let limit = terms.iter().map(|terms| terms.history).min().unwrap_or(0);
        let rest = i64::try_from(old.count()).unwrap_or(i64::MAX) - 1;
        // With several templates within the window it is unknown which ReplicaSets were old.
        if terms.len() == 1 && rest < limit {
            return commit
                .breach("S8", format!("{rest} old ReplicaSets are left, fewer than the limit {limit}"));
        }
        Ok(())
    }
}
