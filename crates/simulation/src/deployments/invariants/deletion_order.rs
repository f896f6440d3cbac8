//! S13: pods are deleted in the order of their rank.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use super::Commit;
use super::window::Window;
use crate::deployments::objects::controller;
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::objects::{Picture, is_available, is_live, text};

/// The first criteria of the order. They depend on the pod alone, so that they are known for any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct BaseRank {
    assigned: bool,
    phase: u8,
    ready: bool,
    cost: i64,
}

/// All criteria at the time of the decision. The ages are logarithms of nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'p> {
    worth: BaseRank,
    crowd: Reverse<usize>,
    ready_age: i64,
    /// Of regular containers, then of sidecars. Init containers do not count.
    restarts: Reverse<(i64, i64)>,
    age: i64,
    uid: &'p str,
}

/// The ranks that pods have had lately, and the pods for which a deletion was sent.
#[derive(Debug, Default)]
pub(super) struct DeletionOrder {
    /// The ranks of live pods, and their owners.
    worth: BTreeMap<String, Window<Option<(String, BaseRank)>>>,
    deletions_sent: BTreeSet<String>,
    /// When a pod last changed.
    changed: Duration,
}

impl DeletionOrder {
    pub(super) fn remember(&mut self, commit: &Commit<'_>) {
        self.changed = commit.at;
        let Some(pod) = commit.after.or(commit.before) else { return };
        let is_there = commit.after.is_some() && is_live(pod);
        let now = is_there.then(|| (controller(pod).to_owned(), BaseRank::of(pod, commit.now)));
        self.worth.entry(text(pod, "/metadata/uid").to_owned()).or_default().set(commit.at, now);
    }

    /// A daemon sends a deletion: no other pod of the ReplicaSet, which the daemon must have seen and has not tried
    /// to delete already, had a lower rank all the time.
    ///
    /// It is judged by all criteria only if the author has seen everything and no pod has changed at this instant,
    /// because the number of pods on a node, and ages, are momentary. `now` is the time of the author's clock.
    pub(super) fn deletion_sent(
        &mut self,
        at: Duration,
        now: Option<Timestamp>,
        call: &Call,
        picture: &Picture,
    ) -> Result<(), Breach> {
        if call.method != Method::DELETE || call.resource != "pods" {
            return Ok(());
        }
        let uid = text(&call.body, "/preconditions/uid");
        if !self.deletions_sent.insert(uid.to_owned()) {
            return Ok(());
        }
        let since = call.known;
        if let Some(now) = now.filter(|_| since == at && self.changed < at) {
            self.is_last(now, call, picture)?;
        }
        let Some(lately) = self.worth.get(uid).map(|worth| worth.since(since)) else { return Ok(()) };
        let least = lately.flatten().min_by_key(|(_, worth)| *worth).map(|(_, worth)| worth);
        let pod = picture.get("pods").and_then(|pods| pods.get(&call.name));
        let (Some(least), Some(replica_set)) = (least, pod.map(|pod| controller(pod))) else { return Ok(()) };
        if replica_set.is_empty() {
            return Ok(());
        }
        for other in picture.get("pods").into_iter().flat_map(|pods| pods.values()) {
            let other_uid = text(other, "/metadata/uid");
            let Some(worth) = self.worth.get(other_uid).filter(|worth| worth.began_before(since)) else {
                continue;
            };
            let is_worse = worth.since(since).all(|worth| {
                worth.as_ref().is_some_and(|(owner, worth)| owner == replica_set && worth < least)
            });
            if is_worse && !self.deletions_sent.contains(other_uid) {
                let name = text(other, "/metadata/name");
                return Err(Breach::new("S13", format!("{name} has a lower rank than {least:?}: {call}")));
            }
        }
        Ok(())
    }

    /// Whether no other pod of the ReplicaSet has a lower rank.
    fn is_last(&self, now: Timestamp, call: &Call, picture: &Picture) -> Result<(), Breach> {
        let pods =
            || picture.get("pods").into_iter().flatten().map(|(_, pod)| pod).filter(|pod| is_live(pod));
        let Some(victim) = pods().find(|pod| text(pod, "/metadata/name") == call.name) else { return Ok(()) };
        let replica_set = controller(victim);
        let replica_sets =
            || picture.get("replicasets").into_iter().flatten().map(|(_, replica_set)| replica_set);
        // For a ReplicaSet without an owner no neighbours count, not even its own pods. The owner may be of any kind.
        let owner = replica_sets()
            .find(|other| text(other, "/metadata/uid") == replica_set)
            .and_then(|replica_set| owner_of(replica_set));
        let siblings: BTreeSet<&str> = replica_sets()
            .filter(|other| owner.is_some() && owner_of(other) == owner)
            .map(|other| text(other, "/metadata/uid"))
            .collect();
        let crowd = |pod: &Value| {
            let node = text(pod, "/spec/nodeName");
            let beside = pods().filter(|other| {
                siblings.contains(controller(other)) && text(other, "/spec/nodeName") == node
            });
            if node.is_empty() { 0 } else { beside.count() }
        };
        let mine = Rank::of(victim, crowd(victim), now);
        for other in pods().filter(|other| controller(other) == replica_set) {
            let rank = Rank::of(other, crowd(other), now);
            if rank < mine && !self.deletions_sent.contains(rank.uid) {
                let name = text(other, "/metadata/name");
                return Err(Breach::new(
                    "S13",
                    format!("{name} must be deleted first: {rank:?} before {mine:?}: {call}"),
                ));
            }
        }
        Ok(())
    }
}

/// The API group, kind and UID of the controller of a ReplicaSet.
fn owner_of(replica_set: &Value) -> Option<(&str, &str, &str)> {
    let owners = replica_set["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    let (group, _) = text(owner, "/apiVersion").rsplit_once('/').unwrap_or_default();
    Some((group, text(owner, "/kind"), text(owner, "/uid")))
}

impl<'p> Rank<'p> {
    fn of(pod: &'p Value, crowd: usize, now: Timestamp) -> Self {
        let age = |since: &str| match since.parse::<Timestamp>() {
            Ok(since) => now.duration_since(since).as_nanos().checked_ilog2().map_or(-1, i64::from),
            Err(_) => -2,
        };
        let all = |pointer| pod.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
        let ready = all("/status/conditions").find(|c| c["type"] == "Ready" && c["status"] == "True");
        let most = |statuses: &mut dyn Iterator<Item = &Value>| {
            statuses.filter_map(|status| status["restartCount"].as_i64()).max().unwrap_or(0).max(0)
        };
        let restarts_anew = |name: &Value| {
            let mut containers = all("/spec/initContainers");
            containers.any(|container| container["name"] == *name && container["restartPolicy"] == "Always")
        };
        let regular = most(&mut all("/status/containerStatuses"));
        let mut sidecars =
            all("/status/initContainerStatuses").filter(|status| restarts_anew(&status["name"]));
        let restarts = (regular, most(&mut sidecars));
        Rank {
            worth: BaseRank::of(pod, now),
            crowd: Reverse(crowd),
            ready_age: ready.map_or(-1, |ready| age(text(ready, "/lastTransitionTime"))),
            restarts: Reverse(restarts),
            age: age(text(pod, "/metadata/creationTimestamp")),
            uid: text(pod, "/metadata/uid"),
        }
    }
}

impl BaseRank {
    fn of(pod: &Value, now: Timestamp) -> Self {
        let cost = text(pod, "/metadata/annotations/controller.kubernetes.io~1pod-deletion-cost");
        // Upstream accepts no plus sign, no leading zeros, and no more than 32 bits.
        let cost = cost.parse::<i32>().ok().filter(|number| number.to_string() == cost);
        BaseRank {
            assigned: !text(pod, "/spec/nodeName").is_empty(),
            phase: match text(pod, "/status/phase") {
                "Running" => 2,
                "Unknown" => 1,
                _ => 0,
            },
            ready: is_available(pod, 0, now),
            cost: cost.unwrap_or(0).into(),
        }
    }
}
