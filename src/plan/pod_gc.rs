//! Which pods the pod garbage collector deletes (upstream: `pkg/controller/podgc`).
//!
//! | pods | reason |
//! |---|---|
//! | that have ended, beyond a threshold for the cluster, those evicted first, then the oldest | [`Cause::Terminated`] |
//! | being deleted, on a node that is out of service and not ready | [`Cause::OutOfService`] |
//! | on a node that has been gone for 40 seconds | [`Cause::Orphaned`] |
//! | being deleted, on no node | [`Cause::Unscheduled`] |

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::model::node::Ready;
use crate::model::{Node, Phase, Pod};

/// How long a node must be gone before its pods are deleted (upstream: `quarantineTime`).
pub const QUARANTINE: Duration = Duration::from_secs(40);

/// When the next of the pods that finalizers hold have their turn, where they are more than one pass deletes.
const TURN: Duration = Duration::from_secs(30);

/// The most pods of one pass.
pub const MOST: usize = 500;

/// The time between two passes while nothing changes.
pub const PERIOD: Duration = Duration::from_secs(300);

/// The time until the pass after a pod has ended (upstream: `gcCheckPeriod`).
pub const GATHERED: Duration = Duration::from_secs(20);

/// The taint of a node that an operator has taken out of service.
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// It has ended, and too many have.
    Terminated,
    /// Its node is out of service.
    OutOfService,
    /// Its node is gone.
    Orphaned,
    /// It was never on a node.
    Unscheduled,
}

impl Cause {
    /// As the label of a metric.
    pub fn label(self) -> &'static str {
        match self {
            Cause::Terminated => "terminated",
            Cause::OutOfService => "out-of-service",
            Cause::Orphaned => "orphaned",
            Cause::Unscheduled => "unscheduled",
        }
    }
}

/// One pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pass {
    /// The pods to delete.
    pub pods: Vec<(Arc<Pod>, Cause)>,
    /// When the next pass is due, although nothing changes.
    pub next: Duration,
}

/// Since when each node that pods are on is missing. A node that is back starts anew.
#[derive(Clone, Debug, Default)]
pub struct Missing(BTreeMap<Arc<str>, Duration>);

impl Missing {
    /// A node is there again.
    pub fn is_back(&mut self, node: &str) {
        self.0.remove(node);
    }
}

/// Whether a pod has ended.
pub fn has_ended(pod: &Pod) -> bool {
    matches!(pod.phase, Phase::Succeeded | Phase::Failed)
}

fn is_out_of_service(node: &Node) -> bool {
    node.ready != Ready::True && node.taints.iter().any(|taint| &*taint.key == OUT_OF_SERVICE)
}

/// Whether a change of a node may let pods of it be deleted.
pub fn concerns(before: &Node, after: &Node) -> bool {
    is_out_of_service(after) && !is_out_of_service(before)
}

/// How soon a pass is due after a change of a pod, if it is.
pub fn concerned(pod: &Pod, has_node: impl FnOnce(&str) -> bool) -> Option<Duration> {
    match pod.node() {
        None if pod.meta.is_deleting() => Some(Duration::ZERO),
        Some(node) if !has_node(node) => Some(QUARANTINE),
        _ if has_ended(pod) => Some(GATHERED),
        Some(_) if pod.meta.is_deleting() => Some(GATHERED),
        _ => None,
    }
}

/// Which pods are deleted now. `threshold` of 0 or less keeps all that have ended. `now` is counted by a clock that nobody sets.
pub fn pass(
    pods: &[Arc<Pod>],
    nodes: &BTreeMap<Arc<str>, Arc<Node>>,
    missing: &mut Missing,
    threshold: i64,
    now: Duration,
) -> Pass {
    let mut victims: Vec<(Arc<Pod>, Cause)> = Vec::new();
    let mut next = PERIOD;
    let gone: BTreeSet<&str> = pods
        .iter()
        .filter_map(|pod| pod.node().map(|node| &**node))
        .filter(|node| !nodes.contains_key(*node))
        .collect();
    missing.0.retain(|node, _| gone.contains(&**node));
    for node in gone {
        missing.0.entry(node.into()).or_insert(now);
    }
    for pod in pods {
        let cause = match pod.node() {
            None => pod.meta.is_deleting().then_some(Cause::Unscheduled),
            Some(name) => match (nodes.get(name), missing.0.get(name)) {
                (Some(node), _) => {
                    (pod.meta.is_deleting() && is_out_of_service(node)).then_some(Cause::OutOfService)
                }
                (None, Some(since)) => {
                    let waits = QUARANTINE.saturating_sub(now.saturating_sub(*since));
                    if !waits.is_zero() {
                        next = next.min(waits);
                    }
                    waits.is_zero().then_some(Cause::Orphaned)
                }
                (None, None) => None,
            },
        };
        victims.extend(cause.map(|cause| (pod.clone(), cause)));
    }
    victims.extend(terminated(pods, threshold).into_iter().map(|pod| (pod, Cause::Terminated)));
    // One that is in two passes is deleted by the first.
    let mut seen = BTreeSet::new();
    victims.sort_by_key(|(_, cause)| *cause);
    victims.retain(|(pod, _)| seen.insert(pod.meta.uid.clone()));
    // A pod that a finalizer may hold takes no place of another, and they take turns.
    let is_held = |pod: &Pod| pod.meta.is_deleting() && has_ended(pod);
    let (mut held, mut victims): (Vec<_>, Vec<_>) = victims.into_iter().partition(|(pod, _)| is_held(pod));
    if victims.len() > MOST {
        next = Duration::from_secs(1);
    } else if victims.len() + held.len() > MOST {
        next = next.min(TURN);
        let turn = usize::try_from(now.as_secs() / TURN.as_secs()).unwrap_or(0);
        let from = turn.saturating_mul(MOST - victims.len()) % held.len();
        held.rotate_left(from);
    }
    victims.extend(held);
    victims.truncate(MOST);
    Pass { pods: victims, next }
}

/// The status of a pod that is deleted without having ended, as a strategic merge patch. Status and condition say of which
/// generation of the pod they are (KEP-5067).
pub fn failed(pod: &Pod, cause: Cause, now: Timestamp) -> Value {
    let generation = Some(pod.meta.generation).filter(|generation| *generation > 0);
    let mut status = json!({"phase": "Failed"});
    if cause == Cause::Orphaned {
        status["conditions"] = json!([{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists", "lastTransitionTime": now.to_string(),
        }]);
    }
    if let Some(generation) = generation {
        status["observedGeneration"] = generation.into();
        if cause == Cause::Orphaned {
            status["conditions"][0]["observedGeneration"] = generation.into();
        }
    }
    json!({"metadata": {"uid": pod.meta.uid}, "status": status})
}

/// The pods that have ended, beyond the threshold.
fn terminated(pods: &[Arc<Pod>], threshold: i64) -> Vec<Arc<Pod>> {
    let Some(threshold) = usize::try_from(threshold).ok().filter(|threshold| *threshold > 0) else {
        return Vec::new();
    };
    let mut ended: Vec<&Arc<Pod>> = pods.iter().filter(|pod| has_ended(pod)).collect();
    let beyond = ended.len().saturating_sub(threshold);
    if beyond == 0 {
        return Vec::new();
    }
    ended.sort_by_cached_key(|pod| {
        let is_evicted = pod.waiting.as_ref().is_some_and(|waiting| &*waiting.reason == "Evicted");
        (!is_evicted, pod.meta.created, pod.meta.key.clone())
    });
    // A Job has yet to count those with its finalizer.
    let is_counted = |pod: &&Arc<Pod>| !pod.job.as_ref().is_some_and(|part| part.has_finalizer);
    let is_there = |pod: &&Arc<Pod>| !pod.meta.is_deleting();
    ended.into_iter().take(beyond).filter(is_counted).filter(is_there).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record as _};

    fn pod(name: &str, second: u32, deletion: bool, rest: &str) -> Arc<Pod> {
        let deletion = if deletion { r#","deletionTimestamp":"2026-01-01T00:00:00Z""# } else { "" };
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"u-{name}","resourceVersion":"1",
                "creationTimestamp":"2026-01-01T00:00:{second:02}Z"{deletion}}},{rest}}}"#
        );
        Arc::new(Pod::decode(&json, &mut Interner::default()).unwrap())
    }

    fn nodes(spec: &str, ready: &str) -> BTreeMap<Arc<str>, Arc<Node>> {
        let json = format!(
            r#"{{"metadata":{{"name":"n1","uid":"u","resourceVersion":"1"}},"spec":{spec},
                "status":{{"conditions":[{{"type":"Ready","status":"{ready}"}}]}}}}"#
        );
        [("n1".into(), Arc::new(Node::decode(&json, &mut Interner::default()).unwrap()))].into()
    }

    fn named(pass: &Pass) -> Vec<(&str, Cause)> {
        pass.pods.iter().map(|(pod, cause)| (&*pod.meta.key.name, *cause)).collect()
    }

    const ON_N1: &str = r#""spec":{"nodeName":"n1"}"#;

    #[test]
    fn the_oldest_ended_pods_beyond_the_threshold_go_and_evicted_ones_first() {
        let ended = |name, second, reason: &str| {
            let rest = format!(r#"{ON_N1},"status":{{"phase":"Failed","reason":"{reason}"}}"#);
            pod(name, second, false, &rest)
        };
        let pods =
            [ended("b", 2, ""), ended("a", 1, ""), ended("c", 3, "Evicted"), pod("runs", 0, false, ON_N1)];
        let all = nodes("{}", "True");
        let names = |threshold| {
            let pass = pass(&pods, &all, &mut Missing::default(), threshold, Duration::ZERO);
            pass.pods.iter().map(|(pod, _)| pod.meta.key.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names(1), ["c", "a"]);
        assert_eq!(names(2), ["c"]);
        for keeps_all in [3, 0, -1] {
            assert_eq!(names(keeps_all), [""; 0]);
        }
    }

    #[test]
    fn pods_that_a_job_has_yet_to_count_stay_and_count() {
        let json = |name: &str| {
            format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"u-{name}","resourceVersion":"1",
                    "finalizers":["batch.kubernetes.io/job-tracking"]}},{ON_N1},"status":{{"phase":"Succeeded"}}}}"#
            )
        };
        let tracked = |name| Arc::new(Pod::decode(&json(name), &mut Interner::default()).unwrap());
        let free = pod("z", 5, false, &format!(r#"{ON_N1},"status":{{"phase":"Succeeded"}}"#));
        let pods = [tracked("a"), tracked("b"), free];
        let all = nodes("{}", "True");
        let pass = |threshold| pass(&pods, &all, &mut Missing::default(), threshold, Duration::ZERO);
        assert_eq!(named(&pass(1)), []);
    }

    #[test]
    fn a_pod_is_orphaned_when_its_node_has_been_gone_for_forty_seconds() {
        let pods = [pod("a", 0, false, ON_N1)];
        let (there, mut missing) = (nodes("{}", "True"), Missing::default());
        let gone = BTreeMap::new();
        let mut at = |second: u64, nodes| {
            let pass = pass(&pods, nodes, &mut missing, 0, Duration::from_secs(second));
            (pass.pods.len(), pass.next.as_secs())
        };
        assert_eq!(at(0, &gone), (0, 40));
        assert_eq!(at(30, &gone), (0, 10));
        // It is back: the time starts anew.
        assert_eq!(at(35, &there), (0, 300));
        assert_eq!(at(39, &gone), (0, 40));
        assert_eq!(at(78, &gone), (0, 1));
        assert_eq!(at(79, &gone), (1, 300));
    }

    #[test]
    fn pods_that_finalizers_hold_take_no_place_of_others() {
        let held = |n: usize| {
            pod(&format!("held-{n}"), 0, true, &format!(r#"{ON_N1},"status":{{"phase":"Failed"}}"#))
        };
        let mut pods: Vec<Arc<Pod>> = (0..=MOST).map(held).collect();
        pods.push(pod("free", 0, true, r#""spec":{}"#));
        let taint = r#"{"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]}"#;
        let at = |second| {
            let pass =
                pass(&pods, &nodes(taint, "False"), &mut Missing::default(), 0, Duration::from_secs(second));
            let names: BTreeSet<String> = named(&pass).iter().map(|(name, _)| name.to_string()).collect();
            assert_eq!((named(&pass)[0].0, names.len(), pass.next), ("free", MOST, TURN));
            names
        };
        let tried: BTreeSet<String> = at(0).into_iter().chain(at(30)).collect();
        assert_eq!(tried.len(), pods.len(), "each has its turn");
    }

    #[test]
    fn a_pod_fails_at_its_generation_and_says_why() {
        let json = r#"{"metadata":{"name":"a","namespace":"shop","uid":"u-a","resourceVersion":"1","generation":3},
            "spec":{"nodeName":"n1"}}"#;
        let pod = Pod::decode(json, &mut Interner::default()).unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let expected = json!({"metadata": {"uid": "u-a"}, "status": {
            "phase": "Failed", "observedGeneration": 3, "conditions": [{
                "type": "DisruptionTarget", "status": "True", "observedGeneration": 3, "reason": "DeletionByPodGC",
                "message": "PodGC: node no longer exists", "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }});
        assert_eq!(failed(&pod, Cause::Orphaned, now), expected);
        let status = json!({"phase": "Failed", "observedGeneration": 3});
        assert_eq!(failed(&pod, Cause::OutOfService, now)["status"], status);
    }

    #[test]
    fn a_pod_that_is_being_deleted_goes_if_no_kubelet_will_end_it() {
        let pods =
            [pod("a", 0, true, ON_N1), pod("b", 0, true, r#""spec":{}"#), pod("c", 0, false, r#""spec":{}"#)];
        let taint = r#"{"taints":[{"key":"node.kubernetes.io/out-of-service","effect":"NoExecute"}]}"#;
        let found = |nodes: &BTreeMap<Arc<str>, Arc<Node>>| {
            let pass = pass(&pods, nodes, &mut Missing::default(), 0, Duration::ZERO);
            pass.pods
                .iter()
                .map(|(pod, cause)| format!("{} {}", pod.meta.key.name, cause.label()))
                .collect::<Vec<_>>()
        };
        assert_eq!(found(&nodes(taint, "False")), ["a out-of-service", "b unscheduled"]);
        assert_eq!(found(&nodes(taint, "True")), ["b unscheduled"]);
        assert_eq!(found(&nodes("{}", "Unknown")), ["b unscheduled"]);
    }
}
