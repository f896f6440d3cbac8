//! Writes of pods: PG1 to PG3.

use http::Method;
use serde_json::Value;

use super::jobs::QUARANTINE;
use super::{Commit, Judge};
use crate::cron_jobs::actors::THRESHOLD;
use crate::engine::breach::Breach;
use crate::engine::objects::{is_deleting, name, text, uid};

/// Whether a pod has ended.
pub fn has_ended(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Whether a node is out of service and not ready.
pub fn is_out_of_service(node: &Value) -> bool {
    let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let conditions = node["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    taints.iter().any(|taint| taint["key"] == "node.kubernetes.io/out-of-service")
        && !conditions.iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
}

/// Why a pod may be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Terminated,
    OutOfService,
    Orphaned,
    Unscheduled,
}

impl Judge {
    pub(super) fn judge_pod(
        &self,
        commit: &Commit<'_>,
        before: &Value,
        after: Option<&Value>,
    ) -> Result<(), Breach> {
        let body = &commit.call.body;
        let is_deletion = commit.call.method == Method::DELETE;
        let given = if is_deletion { &body["preconditions"]["uid"] } else { &body["metadata"]["uid"] };
        if given != uid(before) {
            return commit.breach("PG1", "the write has not the UID of the pod");
        }
        if commit.call.abandoned {
            return Ok(());
        }
        let Some(cause) = self.cause(commit, before) else {
            return commit.breach("PG1", "there is no reason to delete the pod");
        };
        if is_deletion {
            return match has_ended(before) {
                true => Ok(()),
                false => commit.breach("PG2", "the pod is deleted and has not failed"),
            };
        }
        let after = after.unwrap_or(before);
        let conditions = after["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_marked =
            conditions.iter().any(|it| it["type"] == "DisruptionTarget" && it["reason"] == "DeletionByPodGC");
        match cause {
            Cause::Terminated => commit.breach("PG1", "the pod has ended, and is written"),
            _ if text(after, "/status/phase") != "Failed" => commit.breach("PG2", "the pod does not fail"),
            Cause::Orphaned if !is_marked => commit.breach("PG2", "no condition says why the pod fails"),
            _ => Ok(()),
        }
    }

    /// Why a pod may be deleted, as far as its author could know.
    fn cause(&self, commit: &Commit<'_>, pod: &Value) -> Option<Cause> {
        let (node, since) = (text(pod, "/spec/nodeName"), self.blind.since(commit.at));
        if node.is_empty() {
            return is_deleting(pod).then_some(Cause::Unscheduled).or_else(|| self.terminated(commit, pod));
        }
        let changed = self.node_changed.get(node).is_some_and(|changed| *changed >= since);
        let found = commit.nodes.iter().find(|other| name(other) == node);
        let absent = match found {
            None => Some(commit.at.saturating_sub(self.absent.get(node).copied().unwrap_or_default())),
            Some(_) => None,
        };
        if absent.is_some_and(|absent| absent >= QUARANTINE) {
            return Some(Cause::Orphaned);
        }
        // Such a pod fails without a condition, even if its node may have been gone, too.
        if is_deleting(pod) && (found.is_some_and(is_out_of_service) || changed) {
            return Some(Cause::OutOfService);
        }
        if absent.is_none() && changed && self.has_faults {
            return Some(Cause::Orphaned);
        }
        self.terminated(commit, pod)
    }

    /// PG3: among the first beyond the threshold, evicted ones first, then the oldest.
    fn terminated(&self, commit: &Commit<'_>, pod: &Value) -> Option<Cause> {
        let mut ended: Vec<&Value> = commit.pods.iter().filter(|pod| has_ended(pod)).collect();
        ended.sort_by_key(|pod| {
            let is_evicted = text(pod, "/status/reason") == "Evicted";
            (!is_evicted, text(pod, "/metadata/creationTimestamp").to_owned(), name(pod).to_owned())
        });
        let beyond = ended.len().saturating_sub(THRESHOLD);
        let is_sure = self.pods_changed < self.blind.since(commit.at);
        let is_first = ended[..beyond].iter().any(|first| uid(first) == uid(pod));
        (has_ended(pod) && beyond > 0 && (is_first || !is_sure)).then_some(Cause::Terminated)
    }
}
