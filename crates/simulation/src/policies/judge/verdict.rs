//! RP6 to RP8: what is a failure, how long its verdict stands, and what follows from it.

use std::time::Duration;

use serde_json::Value;

use super::{Commit, Judge, desired, size};
use crate::engine::breach::Breach;
use crate::engine::objects::{condition, is_live, list, text};
use crate::policies::terms::{Terms, revision, state, template, written};

/// Whether a pod cannot start, or has ended twice: its node says so.
fn is_broken(pod: &Value) -> bool {
    list(&pod["status"]["containerStatuses"]).iter().any(|container| {
        let waits = text(container, "/state/waiting/reason");
        !matches!(waits, "" | "ContainerCreating" | "PodInitializing")
            || container["restartCount"].as_i64().is_some_and(|restarts| restarts >= 2)
    })
}

impl Judge {
    /// RP8: a daemon changes the template once per template, only where failures roll back, and to one that serves.
    pub(super) fn judge_template(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
        let (old, new) = (template(before), template(after));
        if old == new {
            return Ok(());
        }
        if !self.known(commit.at).iter().any(|(_, terms)| terms.rolls_back && !terms.paused) {
            return commit.breach("RP8", "a template is changed, and failures do not roll back");
        }
        if !self.rolled_back.insert(old.to_string()) {
            return commit.breach("RP8", "a template is taken back a second time");
        }
        let serves = |replica_set: &&Value| template(replica_set) == new && commit.available(replica_set) > 0;
        if !self.is_disturbed(commit.at) && !commit.replica_sets.iter().any(|all| serves(&all)) {
            return commit.breach("RP8", "a template is taken back to one that does not serve");
        }
        Ok(())
    }

    /// RP6 and RP7: a verdict has a reason, and so has its end.
    pub(super) fn judge_verdict(&self, commit: &Commit<'_>) -> Result<(), Breach> {
        let Some(replica_set) = commit.after else { return Ok(()) };
        let (before, after) = (commit.before.map(state).unwrap_or_default(), state(replica_set));
        match (&before["failed"], &after["failed"]) {
            (old, new) if old == new => Ok(()),
            (old, Value::Null) => self.judge_end(commit, replica_set, &before, old),
            (_, new) => self.judge_reason(commit, replica_set, new),
        }
    }

    /// RP6: a verdict names a pod of this ReplicaSet that has failed for long enough, or a command, or the deadline.
    fn judge_reason(&self, commit: &Commit<'_>, replica_set: &Value, verdict: &Value) -> Result<(), Breach> {
        let known = || self.known(commit.at).iter().map(|(_, terms)| terms);
        if known().all(|terms| terms.paused) {
            return commit.breach("RP6", "a verdict on a Deployment that is paused");
        }
        let cause = verdict["cause"].as_str().unwrap_or_default();
        if cause == "Aborted" {
            let command = format!("abort {}", revision(replica_set));
            return match self.commands.contains(&command) {
                true => Ok(()),
                false => commit.breach("RP6", "nobody has aborted this revision"),
            };
        }
        if cause.starts_with("no progress") {
            return match known().any(|terms| terms.acts_on_failure) {
                true => Ok(()),
                false => commit.breach("RP6", "a verdict is stored, and nothing follows from it"),
            };
        }
        let Some(patience) = known().filter_map(|terms| terms.fail_after).min() else {
            return commit.breach("RP6", format!("{cause:?}, and no pod can fail the rollout"));
        };
        let named = cause.split(':').next().unwrap_or_default();
        if named.contains(" for ") {
            // The API server has refused its pods.
            return match commit.available(replica_set) > 0 && !self.is_disturbed(commit.at) {
                true => commit.breach("RP6", format!("{cause:?}, and a pod is available")),
                false => Ok(()),
            };
        }
        if !named.starts_with(&format!("{}-", text(replica_set, "/metadata/name"))) {
            return commit.breach("RP6", format!("{named} is no pod of the ReplicaSet that has failed"));
        }
        if self.is_disturbed(commit.at) {
            return Ok(());
        }
        // No pod may be waited for but those that have failed so long.
        let least = Duration::from_secs(patience).saturating_sub(self.age(commit.at));
        let by_then = written(commit.now, least);
        let waits = |pod: &&Value| is_live(pod) && !commit.serves(replica_set, pod);
        let is_young = |pod: &&Value| *text(pod, "/metadata/creationTimestamp") > *by_then;
        let knows_all = || self.blind.knows_others(&commit.call.agent, commit.at);
        let unavailable: Vec<&Value> = commit.pods_of(replica_set).filter(waits).collect();
        let is_named = |pod: &Value| text(pod, "/metadata/name") == named;
        if !unavailable.iter().any(|pod| is_named(pod)) {
            return commit.breach("RP6", format!("{named} is available, or is not there"));
        }
        match unavailable.iter().find(|pod| is_young(pod) || !is_broken(pod)) {
            Some(pod) if knows_all() || is_named(pod) => {
                let name = text(pod, "/metadata/name");
                commit.breach("RP6", format!("{name} has not failed for {patience} s"))
            }
            _ => Ok(()),
        }
    }

    /// RP7: a verdict ends with completion, a retry or the removal of `on-failure`, and where the ReplicaSet is gone to which it
    /// leads. Another template leaves it on the ReplicaSet that has failed.
    fn judge_end(
        &self,
        commit: &Commit<'_>,
        replica_set: &Value,
        before: &Value,
        verdict: &Value,
    ) -> Result<(), Breach> {
        let known = || self.known(commit.at).iter().map(|(_, terms)| terms);
        let uid = text(replica_set, "/metadata/uid");
        let is_complete = self
            .complete
            .get(uid)
            .is_some_and(|then| commit.at == *then || self.blind.hides(*then, commit.at));
        let retry = format!("retry {}/{}", revision(replica_set), before["attempt"]);
        let is_removed = verdict["cause"] != "Aborted" && known().any(|terms| !terms.acts_on_failure);
        let leads = |other: &Value| other["metadata"]["labels"]["pod-template-hash"] == verdict["to"];
        let ends = is_complete
            || self.commands.contains(&retry)
            || is_removed
            || self.is_tampered(commit.at)
            || !commit.replica_sets.iter().any(leads);
        match ends {
            true => Ok(()),
            false => commit.breach("RP7", format!("the verdict is forgotten: {verdict}")),
        }
    }

    /// RP7: while a verdict stands, the failed ReplicaSet does not grow.
    pub(super) fn judge_halt(&self, commit: &Commit<'_>, after: &Value) -> Result<(), Breach> {
        let state = state(after);
        let to = state["failed"]["to"].as_str().unwrap_or_default();
        let serves = commit
            .replica_sets
            .iter()
            .any(|all| text(all, "/metadata/labels/pod-template-hash") == to && size(all) > 0);
        let is_told = self.known(commit.at).iter().all(|(_, terms)| terms.acts_on_failure);
        match serves && is_told && state["failed"].is_object() {
            true => commit.breach("RP7", "a ReplicaSet grows that has failed"),
            false => Ok(()),
        }
    }

    /// RP7: the ReplicaSet of the template shrinks only after a verdict is stored, or is scaled with its Deployment.
    pub(super) fn judge_retreat(
        &self,
        commit: &Commit<'_>,
        known: &[&Terms],
        after: &Value,
        from: i64,
    ) -> Result<(), Breach> {
        let is_new = known.iter().all(|terms| terms.template == template(after));
        let is_scaled = |terms: &&Terms| terms.paused || terms.replicas < from;
        let Some(before) = commit.before.filter(|_| is_new) else { return Ok(()) };
        let was_scaled = known.iter().any(|terms| desired(before) != terms.replicas || is_scaled(terms));
        match state(before)["failed"].is_null() && !was_scaled && !self.is_tampered(commit.at) {
            true => commit.breach("RP7", "the new ReplicaSet shrinks, and no verdict is stored"),
            false => Ok(()),
        }
    }
}

/// Since when a pod has fitted no node, as its condition says it.
pub(super) fn unfit_since(pod: &Value) -> Option<jiff::Timestamp> {
    text(condition(pod, "PodScheduled")?, "/lastTransitionTime").parse().ok()
}
