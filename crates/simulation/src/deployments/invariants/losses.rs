//! The pods that a ReplicaSet lost or gained lately: an author that decided before could not know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::Commit;
use super::window::Window;
use crate::deployments::objects::controller;
use crate::engine::objects::{is_available, is_live, number, text};

/// The client that changed a pod, and the pod's UID.
type PodChange = (Arc<str>, String);

/// By the ReplicaSet's UID.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Live pods that ended, were deleted, or changed their owner.
    lost_pods: BTreeMap<String, Window<PodChange>>,
    /// Available pods that became unavailable.
    unavailable: BTreeMap<String, Window<PodChange>>,
    /// Pods that became ready, or were created ready.
    ready: BTreeMap<String, Window<PodChange>>,
}

impl Losses {
    pub(super) fn remember(&mut self, commit: &Commit<'_>) {
        let Commit { at, call, before, after, now, .. } = commit;
        let Some(pod) = after.or(*before) else { return };
        // A release follows a change of labels by another client. The Deployment's controller, which counts on
        // available pods, has no part in it.
        let is_let_go = after.is_some_and(|pod| controller(pod).is_empty());
        let mut owners = [before, after].map(|pod| pod.map_or("", controller)).to_vec();
        owners.dedup();
        for replica_set in owners.into_iter().filter(|replica_set| !replica_set.is_empty()) {
            let min_ready = commit
                .by_uid("replicasets", replica_set)
                .map_or(0, |replica_set| number(replica_set, "/spec/minReadySeconds"));
            let is = |pod: &Option<&Value>, wait: Option<i64>| {
                pod.is_some_and(|pod| {
                    let available = wait.is_none_or(|seconds| is_available(pod, seconds, *now));
                    controller(pod) == replica_set && is_live(pod) && available
                })
            };
            let ended = |wait| is(before, wait) && !is(after, wait);
            let begins = is(after, Some(0)) && !is(before, Some(0));
            let lost_by = if is_let_go { "".into() } else { call.agent.clone() };
            let kinds = [
                (ended(None), &call.agent, &mut self.lost_pods),
                (ended(Some(min_ready)), &lost_by, &mut self.unavailable),
                (begins, &call.agent, &mut self.ready),
            ];
            for (_, who, changes) in kinds.into_iter().filter(|(is_so, ..)| *is_so) {
                let change = (who.clone(), text(pod, "/metadata/uid").to_owned());
                changes.entry(replica_set.to_owned()).or_default().happens(*at, change);
            }
        }
    }

    /// How many live pods others have removed from a ReplicaSet since, and not given back.
    pub(super) fn lost_pods(&self, commit: &Commit<'_>, replica_set: &str, since: Duration) -> i64 {
        absent(&self.lost_pods, commit, replica_set, since, &is_live)
    }

    /// How many available pods others have removed from a ReplicaSet since, or made unavailable, and not restored.
    pub(super) fn unavailable(&self, commit: &Commit<'_>, replica_set: &Value, since: Duration) -> i64 {
        let min_ready = number(replica_set, "/spec/minReadySeconds");
        let available = |pod: &Value| is_live(pod) && is_available(pod, min_ready, commit.now);
        absent(&self.unavailable, commit, text(replica_set, "/metadata/uid"), since, &available)
    }

    /// How many pods have become ready since.
    pub(super) fn gained(&self, replica_set: &str, since: Duration) -> i64 {
        let changes = self.ready.get(replica_set).into_iter().flat_map(|changes| changes.happened(since));
        size(&changes.map(|(_, pod)| &**pod).collect())
    }
}

/// Each pod counts once, however often it changed; and not if it is present now.
fn absent(
    changes: &BTreeMap<String, Window<PodChange>>,
    commit: &Commit<'_>,
    replica_set: &str,
    since: Duration,
    is_there: &dyn Fn(&Value) -> bool,
) -> i64 {
    let changes = changes.get(replica_set).into_iter().flat_map(|changes| changes.happened(since));
    let mut lost: BTreeSet<&str> =
        changes.filter(|(who, _)| *who != commit.call.agent).map(|(_, pod)| &**pod).collect();
    for pod in commit.owned("pods", replica_set).into_iter().filter(|pod| is_there(pod)) {
        lost.remove(text(pod, "/metadata/uid"));
    }
    size(&lost)
}

fn size(pods: &BTreeSet<&str>) -> i64 {
    i64::try_from(pods.len()).unwrap_or(i64::MAX)
}
