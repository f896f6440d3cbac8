//! S26: absent and 0 differ. Which fields a status has is defined here by the types of the API and by when
//! kube-controller-manager knows a number, and is checked on the stored object.

use std::time::Duration;

use super::status::Counts;
use super::{Commit, Invariants};
use crate::engine::breach::Breach;
use crate::engine::objects::text;

/// Numbers that the API omits where they are 0, of both kinds.
const OMITTED_AT_0: [&str; 6] = [
    "observedGeneration",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "fullyLabeledReplicas",
];

impl Invariants {
    /// Each field of a status that a daemon has written is present exactly where upstream's is.
    pub(super) fn judge_presence(&self, commit: &Commit<'_>, since: Duration) -> Result<(), Breach> {
        let (Some(after), "status") = (commit.after, &*commit.call.subresource) else { return Ok(()) };
        let status = &after["status"];
        let breach = |what: &str| commit.breach("S26", format!("{what}: {status}"));
        if OMITTED_AT_0.iter().any(|field| status[*field] == 0) {
            return breach("a 0 that the API omits");
        }
        let counts_terminating = status["terminatingReplicas"].is_i64();
        if commit.call.resource == "replicasets" {
            if !status["replicas"].is_i64() {
                return breach("replicas of a ReplicaSet is missing");
            }
            // A controller that has synced a ReplicaSet has counted its terminating pods, even if there are none.
            return if counts_terminating { Ok(()) } else { breach("terminatingReplicas is missing") };
        }
        if status["replicas"] == 0 {
            return breach("replicas of a Deployment must be absent at 0");
        }
        let had = commit.before.is_some_and(|before| before["status"]["collisionCount"].is_i64());
        if had != status["collisionCount"].is_i64() && status["collisionCount"].as_i64().unwrap_or(0) < 1 {
            return breach("collisionCount must be present exactly from the first collision on");
        }
        if commit.reports_a_refused_handover() {
            return Ok(());
        }
        // The sum of a Deployment is known where that of each ReplicaSet is. A ReplicaSet that was never synced has
        // none.
        let mut lately = self.statuses.replica_sets_since(text(after, "/metadata/uid"), since).peekable();
        let is_known = |replica_sets: &Vec<Counts>| {
            replica_sets.iter().all(|replica_set| replica_set.terminating.is_some())
        };
        if lately.peek().is_some() && !lately.any(|replica_sets| is_known(replica_sets) == counts_terminating)
        {
            return breach("terminatingReplicas must be present exactly where each ReplicaSet has it");
        }
        Ok(())
    }
}
