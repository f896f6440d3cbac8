//! S20: a generation of a Deployment is published once it was acted on. This is judged by its ReplicaSets: those that
//! want pods are sized for its `spec.replicas`, and one has its template. Where both have changed, the sizes come
//! first and are published, as kube-controller-manager does: with no updated pod in the status no client mistakes
//! that for a complete rollout.

use std::time::Duration;

use super::status::{Counts, fingerprint};
use super::{Commit, Invariants};
use crate::engine::breach::Breach;
use crate::engine::objects::{is_deleting, number, text};

impl Invariants {
    /// S20: `observedGeneration` of a Deployment rises when its ReplicaSets are what the generation asks for.
    pub(super) fn judge_generation(&self, commit: &Commit<'_>, since: Duration) -> Result<(), Breach> {
        let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
        let observed = |deployment| number(deployment, "/status/observedGeneration");
        let judged = commit.call.resource == "deployments" && commit.call.subresource == "status";
        if !judged || observed(after) <= observed(before) || is_deleting(after) {
            return Ok(());
        }
        let lately = || self.statuses.replica_sets_since(text(after, "/metadata/uid"), since);
        let replicas = number(after, "/spec/replicas");
        let is_sized = |replica_set: &Counts| {
            replica_set.size == 0 || replica_set.desired.is_none_or(|desired| desired == replicas)
        };
        if !lately().any(|replica_sets| replica_sets.iter().all(is_sized)) {
            return commit
                .breach("S20", "published a generation while a ReplicaSet is sized for another one");
        }
        // Recreate waits for the old pods, and a paused Deployment for the user.
        let resized = lately().any(|replica_sets| !replica_sets.iter().all(is_sized));
        if resized || after["spec"]["paused"] == true || after["spec"]["strategy"]["type"] == "Recreate" {
            return Ok(());
        }
        let template = fingerprint(&after["spec"]["template"]);
        if !lately()
            .any(|replica_sets| replica_sets.iter().any(|replica_set| replica_set.template == template))
        {
            return commit.breach("S20", "published a generation whose template has no ReplicaSet");
        }
        Ok(())
    }
}
