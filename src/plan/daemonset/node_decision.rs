//! Which pods one node needs and which pods it must lose, before the rollout (upstream: `podsShouldBeOnNode`).
//!
//! One node at a time: the decision depends on the DaemonSet, on its current revision and on the node's own pods. So a
//! result can be kept until one of the three changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::members::PodsOfNode;
use super::placement::Verdict;
use super::revisions::History;
use super::{Deletion, Reason};
use crate::model::{DaemonSet, Phase, Pod, Uid};
use crate::plan::fixed_place_backoff::FailedPodBackoff;

/// The input of the decision about a node, except the node itself.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The DaemonSet.
    pub daemon_set: &'a DaemonSet,
    /// Its revisions.
    pub history: &'a History<'a>,
    /// Pods that a lost deletion may still reach.
    pub maybe_deleted: &'a BTreeSet<Uid>,
    /// The nodes on which pods have failed.
    pub backoff: &'a FailedPodBackoff,
    /// The time of the decision.
    pub now: Timestamp,
}

impl Context<'_> {
    pub(super) fn is_available(&self, pod: &Pod) -> bool {
        pod.is_available(self.daemon_set.min_ready_seconds, self.now)
    }

    /// Whether a budget may count the pod as available: not if a lost deletion may still delete it.
    fn is_counted_on(&self, pod: &Pod) -> bool {
        self.is_available(pod) && !self.maybe_deleted.contains(&pod.meta.uid)
    }
}

/// The decision about one node before the rollout, and the pods that the rollout finds there.
#[derive(Clone, Debug)]
pub struct NodeDecision<'a> {
    /// Whether a pod is created.
    pub create: bool,
    /// Pods to delete.
    pub delete: Vec<Deletion>,
    /// The pods that stay.
    pub class: NodeState<'a>,
    /// Until when failed pods stay.
    pub backs_off_until: Option<Timestamp>,
}

/// The live pods that stay on a node, as a rollout sees them.
#[derive(Clone, Copy, Debug)]
pub enum NodeState<'a> {
    /// The node does not exist: the pod garbage collector deletes its bound pods, and nothing else waits for them.
    Gone,
    /// None.
    Missing,
    /// More than allowed: the surplus is being deleted.
    Surplus,
    /// One of the current template.
    New {
        /// Whether it is available.
        is_available: bool,
    },
    /// One of an older template.
    Old {
        /// The pod.
        pod: &'a Arc<Pod>,
        /// Whether it is available.
        is_available: bool,
    },
    /// An available old one that is being deleted, beside the available new one: there are two until that has happened.
    OldBesideAvailableNew,
    /// An old one that waits for a new one, which is unavailable, or has failed and is not replaced yet.
    OldBesideNew {
        /// Whether the old one is available.
        is_old_available: bool,
    },
}

/// Decides about one node.
pub fn decide<'a>(context: Context<'_>, place: PodsOfNode<'a>) -> NodeDecision<'a> {
    let deletion = |reason: Reason| move |pod: &Arc<Pod>| Deletion::of(pod, reason);
    let live = || place.pods.iter().filter(|pod| !pod.meta.is_deleting());
    let only =
        |delete: Vec<Deletion>, class| NodeDecision { create: false, delete, class, backs_off_until: None };
    match place.verdict {
        None => {
            let unbound = live().filter(|pod| pod.node().is_none());
            only(unbound.map(deletion(Reason::NoNode)).collect(), NodeState::Gone)
        }
        Some(Verdict::Leave) => only(live().map(deletion(Reason::NotWanted)).collect(), NodeState::Missing),
        Some(Verdict::Continue) => stay(context, place, false),
        Some(Verdict::Run) => stay(context, place, true),
    }
}

fn stay<'a>(context: Context<'_>, place: PodsOfNode<'a>, runs: bool) -> NodeDecision<'a> {
    let Context { daemon_set, history, maybe_deleted: _, backoff, now } = context;
    let surge = daemon_set.allows_surge();
    let mut delete = Vec::new();
    let mut delete_pod = |pod: &Arc<Pod>, reason| delete.push(Deletion::of(pod, reason));
    let live = || place.pods.iter().filter(|pod| !pod.meta.is_deleting());
    let in_phase = |phase| live().filter(move |pod| pod.phase == phase);

    let has_failed = in_phase(Phase::Failed).next().is_some();
    let generation = daemon_set.meta.generation;
    let until = if has_failed { backoff.until(generation, place.node, now) } else { None };
    if until.is_none() {
        in_phase(Phase::Failed).for_each(|pod| delete_pod(pod, Reason::Failed));
    }
    in_phase(Phase::Succeeded).for_each(|pod| delete_pod(pod, Reason::Succeeded));

    let (mut new, mut old, mut has_excess, mut is_replaced) = (None, None, false, false);
    for pod in live().filter(|pod| !pod.is_terminal()) {
        let is_new = history.is_new(pod);
        // With surge the first of each kind stays, and without the first of all.
        let stays = if surge && !is_new { old.is_none() } else { new.is_none() && (surge || old.is_none()) };
        match (stays, is_new) {
            (false, _) => {
                has_excess = true;
                delete_pod(pod, Reason::Excess);
            }
            (true, true) => new = Some(pod),
            (true, false) => old = Some(pod),
        }
    }
    if let (Some(replacement), Some(replaced)) = (new, old) {
        let reason = if replaced.ready_since.is_none() {
            Some(Reason::Outdated)
        } else {
            context.is_counted_on(replacement).then_some(Reason::Replaced)
        };
        if let Some(reason) = reason {
            is_replaced = reason == Reason::Replaced;
            delete_pod(replaced, reason);
            old = None;
        }
    }

    let is_empty = new.is_none() && old.is_none();
    let is_free = surge || !place.pods.iter().any(|pod| pod.meta.is_deleting());
    let class = match (new, old) {
        _ if has_excess => NodeState::Surplus,
        _ if is_replaced => NodeState::OldBesideAvailableNew,
        (None, None) => NodeState::Missing,
        (Some(new), None) => NodeState::New { is_available: context.is_counted_on(new) },
        (None, Some(pod)) if until.is_none() => {
            NodeState::Old { pod, is_available: context.is_counted_on(pod) }
        }
        (_, Some(old)) => NodeState::OldBesideNew { is_old_available: context.is_counted_on(old) },
    };
    NodeDecision {
        create: runs && is_empty && is_free && until.is_none(),
        delete,
        class,
        backs_off_until: until,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};
    use crate::plan::daemonset::{Members, Placement, Verdicts};
    use serde_json::{Value, json};

    fn daemon_set(max_surge: i32) -> DaemonSet {
        let rolling = json!({"maxSurge": max_surge, "maxUnavailable": 1 - max_surge});
        let json = json!({
            "metadata": {"name": "agent", "namespace": "ops", "uid": "u", "resourceVersion": "1", "generation": 4},
            "spec": {"selector": {"matchLabels": {"app": "agent"}}, "minReadySeconds": 10,
                     "updateStrategy": {"rollingUpdate": rolling},
                     "template": {"metadata": {"labels": {"app": "agent"}}}}
        });
        DaemonSet::decode(&json.to_string(), &mut Interner::default()).unwrap()
    }

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().unwrap()
    }

    /// `new` or `old`, and then `pending`, `ready` (a second ago), `available`, `failed`, `succeeded`, `deleting`;
    /// created in the order given.
    fn pod(nth: usize, text: &str, hash: &str) -> Arc<Pod> {
        let (kind, state) = text.split_once(' ').unwrap();
        let ready = |at: &str| json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at}]});
        let status = match state {
            "ready" => ready("2026-01-01T00:59:59Z"),
            "available" => ready("2026-01-01T00:00:00Z"),
            "failed" => json!({"phase": "Failed"}),
            "succeeded" => json!({"phase": "Succeeded"}),
            _ => json!({"phase": "Pending"}),
        };
        let mut json = json!({
            "metadata": {"name": format!("p{nth}"), "namespace": "ops", "uid": format!("u{nth}"), "resourceVersion": "1",
                "creationTimestamp": format!("2026-01-01T00:00:0{nth}Z"),
                "labels": {"app": "agent", "controller-revision-hash": if kind == "new" { hash } else { "old" }},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": true}]},
            "spec": {"nodeName": "n1"}, "status": status
        });
        if state == "deleting" {
            json["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        }
        Arc::new(Pod::decode(&json.to_string(), &mut Interner::default()).unwrap())
    }

    /// The decision about a node with these pods: `+` for a creation, and the places of deleted pods.
    fn decision(max_surge: i32, taints: Value, pods: &[&str], backoff: &FailedPodBackoff) -> String {
        decision_but(max_surge, taints, pods, backoff, &BTreeSet::new()).0
    }

    /// The same, with the number of nodes without an available pod, where lost deletions may reach some pods.
    fn decision_but(
        max_surge: i32,
        taints: Value,
        pods: &[&str],
        backoff: &FailedPodBackoff,
        maybe_deleted: &BTreeSet<Uid>,
    ) -> (String, i64) {
        let daemon_set = daemon_set(max_surge);
        let history = History::of(&daemon_set, &[]);
        let node = json!({"metadata": {"name": "n1", "uid": "u", "resourceVersion": "1"}, "spec": {"taints": taints}});
        let node = crate::model::Node::decode(&node.to_string(), &mut Interner::default()).unwrap();
        let verdicts = Verdicts::of(&Placement::of(&daemon_set).unwrap(), [&node]);
        let pods = pods.iter().enumerate().map(|(nth, text)| pod(nth, text, &history.hash)).collect();
        let members = Members::of(&daemon_set, pods, Vec::new());
        let place = members.places(&verdicts)[0];
        let context =
            Context { daemon_set: &daemon_set, history: &history, maybe_deleted, backoff, now: now() };
        let decision = decide(context, place);
        let mut deleted: Vec<&str> =
            decision.delete.iter().map(|deletion| &*deletion.pod.meta.key.name).collect();
        deleted.sort_unstable();
        let mut tally = crate::plan::daemonset::rolling::Tally::default();
        tally.add(place.verdict, decision.class);
        (format!("{}{}", if decision.create { "+" } else { "" }, deleted.join(" ")), tally.unavailable)
    }

    #[track_caller]
    fn check(max_surge: i32, pods: &[&str], expected: &str) {
        assert_eq!(decision(max_surge, json!([]), pods, &FailedPodBackoff::default()), expected, "{pods:?}");
    }

    #[test]
    fn without_surge_a_node_has_one_pod_and_the_first_of_several_stays() {
        check(0, &[], "+");
        check(0, &["old pending"], "");
        check(0, &["old deleting"], "");
        check(0, &["old pending", "new available"], "p1");
        check(0, &["new available", "new available", "new available"], "p1 p2");
    }

    #[test]
    fn with_surge_a_node_has_one_pod_of_each_kind_until_the_new_one_is_available() {
        check(1, &[], "+");
        check(1, &["old deleting"], "+");
        check(1, &["old ready", "new pending"], "");
        check(1, &["old pending", "new pending"], "p0");
        check(1, &["old ready", "new ready"], "");
        check(1, &["old ready", "new available"], "p0");
        check(1, &["new pending", "old available"], "");
        check(1, &["old ready", "old ready", "new pending", "new pending"], "p1 p3");
        check(1, &["new ready", "new ready"], "p1");
    }

    #[test]
    fn an_ended_pod_is_replaced_before_it_is_deleted() {
        check(0, &["new failed"], "+p0");
        check(0, &["new succeeded"], "+p0");
        check(0, &["new failed", "new pending"], "p0");
        check(0, &["new failed", "old deleting"], "p0");
        check(1, &["new failed", "old available"], "p0");
        check(1, &["new failed", "old deleting"], "+p0");
    }

    #[test]
    fn a_failed_pod_that_backs_off_stays_and_nothing_is_created_beside_it() {
        let mut backoff = FailedPodBackoff::default();
        backoff.deleted(4, &"n1".into(), now());
        for max_surge in [0, 1] {
            assert_eq!(decision(max_surge, json!([]), &["new failed"], &backoff), "");
            assert_eq!(decision(max_surge, json!([]), &["new failed", "new succeeded"], &backoff), "p1");
            assert_eq!(decision(max_surge, json!([]), &["new failed", "old deleting"], &backoff), "");
        }
        let mut earlier = FailedPodBackoff::default();
        earlier.deleted(3, &"n1".into(), now());
        assert_eq!(decision(0, json!([]), &["new failed"], &earlier), "+p0", "of another generation");
    }

    #[test]
    fn no_budget_counts_on_a_pod_that_a_lost_deletion_may_still_reach() {
        let none = FailedPodBackoff::default();
        let maybe_deleted = |uid: &str| BTreeSet::from([Uid::new(uid)]);
        let of = |max_surge, pods: &[&str], uid: &str| {
            decision_but(max_surge, json!([]), pods, &none, &maybe_deleted(uid))
        };
        assert_eq!(of(0, &["new available"], "u7"), (String::new(), 0));
        assert_eq!(of(0, &["new available"], "u0"), (String::new(), 1));
        assert_eq!(
            of(0, &["old available"], "u0"),
            (String::new(), 1),
            "it goes at once, as one that is not ready"
        );
        assert_eq!(of(1, &["old ready", "new available"], "u1").0, "", "the old one serves on");
        assert_eq!(of(1, &["old ready", "new available"], "u7").0, "p0");
    }

    #[test]
    fn a_tainted_node_keeps_its_pod_or_loses_it_and_gets_none() {
        let none = FailedPodBackoff::default();
        let taint = |effect: &str| json!([{"key": "a", "effect": effect}]);
        assert_eq!(decision(0, taint("NoSchedule"), &["new available"], &none), "");
        assert_eq!(decision(0, taint("NoSchedule"), &["new failed"], &none), "p0");
        assert_eq!(decision(1, taint("NoSchedule"), &["new deleting"], &none), "");
        assert_eq!(
            decision(0, taint("NoExecute"), &["new available", "old deleting", "old failed"], &none),
            "p0 p2"
        );
    }
}
