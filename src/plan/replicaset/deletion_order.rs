//! Which pods are deleted first when there are too many.
//!
//! Upstream compares pods pairwise, and its comparison is no order: two ready times that differ within
//! one logarithmic bucket fall through to the UID, equal ones to the restarts, so three pods can beat
//! each other in a circle. Here the criteria are the fields of a key with a derived order, which is
//! total by construction. A tie within a bucket is decided by the next criterion.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::model::{Phase, Pod, Record, ReplicaSet, Restarts, Uid};

/// The criteria in upstream's order (`ActivePodsWithRanks`); the smallest key is deleted first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DeletionKey<'p> {
    /// A pod without a node before one with a node.
    assigned: bool,
    /// Pending before Unknown before Running.
    phase: Phase,
    /// Not ready before ready.
    ready: bool,
    /// The lower deletion cost first (KEP-2255).
    cost: i32,
    /// The pod whose node runs more pods of the same owner's ReplicaSets first; 0 without an owner.
    pods_on_the_node: Reverse<usize>,
    /// The later ready time first, on a logarithmic scale (KEP-2185).
    ready_age: i32,
    /// More restarts first: of its regular containers, then of its sidecars.
    restarts: Reverse<Restarts>,
    /// The younger first, on a logarithmic scale.
    age: i32,
    /// Decides the rest, arbitrarily but always the same way.
    uid: &'p Uid,
}

/// Whether the number of pods on a node counts: for a ReplicaSet that something controls, a Deployment or
/// another kind. Upstream looks for the pods of all ReplicaSets with the same controller, the one at hand
/// included, and finds none for a bare ReplicaSet, nor for a ReplicationController, whatever controls it
/// (`getReplicaSetsWithSameController` of `replica_set.go`, and its index, which holds ReplicaSets only).
pub fn counts_neighbours(replica_set: &ReplicaSet) -> bool {
    let is_replica_set = *replica_set.resource == ReplicaSet::RESOURCE;
    is_replica_set && replica_set.meta.controller.is_some()
}

/// The first `count` pods to delete, in order.
///
/// `siblings` are the active pods of other ReplicaSets with the same owner: with `active` they tell how
/// crowded a node is. `None` where that does not count; see [`counts_neighbours`].
pub fn first_to_delete(
    active: &[&Arc<Pod>],
    siblings: Option<&[Arc<Pod>]>,
    count: usize,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    let mut pods_per_node: BTreeMap<&str, usize> = BTreeMap::new();
    if let Some(siblings) = siblings {
        for node in active.iter().copied().chain(siblings).filter_map(|pod| pod.node()).map(|node| &**node) {
            *pods_per_node.entry(node).or_default() += 1;
        }
    }
    let mut ranked: Vec<(DeletionKey<'_>, &Arc<Pod>)> =
        active.iter().map(|pod| (key(pod, &pods_per_node, now), *pod)).collect();
    ranked.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    ranked.into_iter().take(count).map(|(_, pod)| pod.clone()).collect()
}

/// How old each ready victim is, in relation to the youngest ready pod of the ReplicaSet. A deletion by age on a
/// logarithmic scale takes young pods first, so most of these are near 1 (KEP-2185). Upstream divides
/// whole milliseconds, which leaves 1, 2, 3 of it, and divides by nothing for a pod of this moment.
pub fn age_ratios<'p>(
    active: &[Arc<Pod>],
    victims: &'p [Arc<Pod>],
    now: Timestamp,
) -> impl Iterator<Item = f64> + use<'p> {
    let age = move |pod: &Pod| now.duration_since(pod.meta.created).as_secs_f64();
    let ready = |pod: &&Arc<Pod>| pod.ready_since.is_some();
    let youngest = active.iter().filter(ready).map(|pod| age(pod)).fold(f64::INFINITY, f64::min);
    victims
        .iter()
        .filter(ready)
        .map(move |pod| age(pod) / youngest)
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
}

fn key<'p>(pod: &'p Pod, pods_per_node: &BTreeMap<&str, usize>, now: Timestamp) -> DeletionKey<'p> {
    DeletionKey {
        assigned: pod.node().is_some(),
        phase: pod.phase,
        ready: pod.ready_since.is_some(),
        cost: pod.deletion_cost,
        pods_on_the_node: Reverse(
            pod.node().and_then(|node| pods_per_node.get(&**node)).copied().unwrap_or(0),
        ),
        ready_age: pod.ready_since.map_or(-1, |since| magnitude(since, now)),
        restarts: Reverse(pod.restarts),
        age: magnitude(pod.meta.created, now),
        uid: &pod.meta.uid,
    }
}

/// The logarithm of an age in nanoseconds; -1 for a time in the future, -2 for no time: that pod is deleted
/// first, as upstream has it.
fn magnitude(since: Timestamp, now: Timestamp) -> i32 {
    let age = now.duration_since(since).as_nanos();
    match age {
        _ if since == Timestamp::UNIX_EPOCH => -2,
        ..=0 => -1,
        _ => age.ilog2() as i32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, ReplicationController};

    const NOW: i64 = 1_000_000;

    #[derive(Clone, Copy)]
    struct Case {
        name: &'static str,
        node: &'static str,
        phase: &'static str,
        ready_at: Option<i64>,
        cost: &'static str,
        restarts: i32,
        created: i64,
    }

    /// A pod that no criterion distinguishes.
    const GOOD: Case = Case {
        name: "good",
        node: "n1",
        phase: "Running",
        ready_at: Some(NOW - 600_000),
        cost: "0",
        restarts: 0,
        created: NOW - 700_000,
    };

    fn pod(case: Case) -> Arc<Pod> {
        let time = |second| Timestamp::from_second(second).unwrap();
        let ready = case.ready_at.map_or(String::new(), |at| {
            format!(r#"{{"type":"Ready","status":"True","lastTransitionTime":"{}"}}"#, time(at))
        });
        let json = format!(
            r#"{{"metadata":{{"name":"{0}","namespace":"shop","uid":"{0}","resourceVersion":"1",
                  "creationTimestamp":"{1}","annotations":{{"controller.kubernetes.io/pod-deletion-cost":"{2}"}}}},
                "spec":{{"nodeName":"{3}"}},
                "status":{{"phase":"{4}","conditions":[{ready}],"containerStatuses":[{{"restartCount":{5}}}]}}}}"#,
            case.name,
            time(case.created),
            case.cost,
            case.node,
            case.phase,
            case.restarts
        );
        Arc::new(Pod::decode(&json, &mut Interner::default()).unwrap())
    }

    #[track_caller]
    fn check_goes_first(first: Case) {
        let (worse, good) = (pod(Case { name: "worse", ..first }), pod(GOOD));
        let order = first_to_delete(&[&good, &worse], None, 2, Timestamp::from_second(NOW).unwrap());
        assert_eq!(&*order[0].meta.key.name, "worse");
    }

    #[test]
    fn each_criterion_decides_when_those_before_it_tie() {
        check_goes_first(Case { node: "", ..GOOD });
        check_goes_first(Case { phase: "Pending", ..GOOD });
        check_goes_first(Case { phase: "Unknown", ..GOOD });
        check_goes_first(Case { ready_at: None, ..GOOD });
        check_goes_first(Case { cost: "-1", ..GOOD });
        check_goes_first(Case { ready_at: Some(NOW - 10), ..GOOD });
        check_goes_first(Case { restarts: 1, ..GOOD });
        check_goes_first(Case { created: NOW - 10, ..GOOD });
    }

    #[test]
    fn an_earlier_criterion_outweighs_all_later_ones() {
        let unassigned = pod(Case { name: "a", node: "", cost: "100", ..GOOD });
        let cheap = pod(Case { name: "b", cost: "-100", restarts: 9, ready_at: None, ..GOOD });
        let order = first_to_delete(&[&cheap, &unassigned], None, 1, Timestamp::from_second(NOW).unwrap());
        assert_eq!(&*order[0].meta.key.name, "a");
    }

    #[test]
    fn the_crowded_node_loses_a_pod_first_and_siblings_count() {
        let here = pod(Case { name: "here", node: "n1", ..GOOD });
        let there = pod(Case { name: "there", node: "n2", ..GOOD });
        let sibling = pod(Case { name: "sibling", node: "n2", ..GOOD });
        let now = Timestamp::from_second(NOW).unwrap();
        let order = first_to_delete(&[&here, &there], Some(&[sibling]), 1, now);
        assert_eq!(&*order[0].meta.key.name, "there");
        // Without an owner the number of pods on a node does not count, and the UID decides.
        let also_there = pod(Case { name: "x-there", node: "n2", ..GOOD });
        let active = [&there, &here, &also_there];
        assert_eq!(&*first_to_delete(&active, Some(&[]), 1, now)[0].meta.key.name, "there");
        assert_eq!(&*first_to_delete(&active, None, 1, now)[0].meta.key.name, "here");
    }

    #[test]
    fn neighbours_count_only_for_a_replica_set_with_an_owner_of_any_kind() {
        let json = |owner: &str| {
            format!(
                r#"{{"metadata":{{"name":"web","namespace":"shop","uid":"u","resourceVersion":"1",
                    "ownerReferences":[{owner}]}},"spec":{{}}}}"#
            )
        };
        let owned = |api_version: &str, kind: &str| {
            json(&format!(
                r#"{{"apiVersion":"{api_version}","kind":"{kind}","name":"o","uid":"u-o","controller":true}}"#
            ))
        };
        let replica_set = |json: &str| ReplicaSet::decode(json, &mut Interner::default()).unwrap();
        assert!(counts_neighbours(&replica_set(&owned("apps/v1", "Deployment"))));
        assert!(counts_neighbours(&replica_set(&owned("argoproj.io/v1alpha1", "Rollout"))));
        assert!(!counts_neighbours(&replica_set(&json(""))));
        let controller = |json: &str| ReplicationController::decode(json, &mut Interner::default()).unwrap();
        assert!(!counts_neighbours(&controller(&json("")).0));
        assert!(!counts_neighbours(&controller(&owned("apps.openshift.io/v1", "DeploymentConfig")).0));
    }

    #[test]
    fn sidecars_decide_where_regular_containers_restarted_equally_often() {
        let restarted = |name: &str, regular: i32, sidecar: i32| {
            let mut pod = Arc::unwrap_or_clone(pod(GOOD));
            (pod.meta.uid, pod.meta.key.name) = (Uid::new(name), name.into());
            pod.restarts = Restarts { regular, sidecar };
            Arc::new(pod)
        };
        let (a, b, c) = (restarted("a", 1, 0), restarted("b", 1, 2), restarted("c", 0, 9));
        let order = first_to_delete(&[&a, &b, &c], None, 3, Timestamp::from_second(NOW).unwrap());
        let names: Vec<&str> = order.iter().map(|pod| &*pod.meta.key.name).collect();
        assert_eq!(names, ["b", "a", "c"]);
    }

    #[test]
    fn ages_are_compared_with_the_youngest_ready_pod_in_fractions() {
        let aged = |name, seconds, ready: bool| {
            let ready_at = ready.then_some(NOW - 1);
            pod(Case { name, created: NOW - seconds, ready_at, ..GOOD })
        };
        let pods = [aged("a", 40, true), aged("b", 100, true), aged("c", 1, false)];
        let now = Timestamp::from_second(NOW).unwrap();
        let ratios = |victims: &[Arc<Pod>]| age_ratios(&pods, victims, now).collect::<Vec<_>>();
        assert_eq!(ratios(&pods), [1.0, 2.5]);
        let newborn = [aged("d", 0, true)];
        assert_eq!(age_ratios(&newborn, &newborn, now).count(), 0, "no division by nothing");
    }

    #[test]
    fn six_hundred_pods_are_ranked_the_same_in_any_order() {
        let names: Vec<String> = (0..600).map(|n| format!("pod-{n}")).collect();
        let mut rng = fastrand::Rng::with_seed(7);
        let pods: Vec<Arc<Pod>> = names
            .iter()
            .map(|name| {
                let mut pod = Arc::unwrap_or_clone(pod(GOOD));
                pod.meta.uid = Uid::new(name);
                pod.ready_since = Some(Timestamp::from_second(NOW - rng.i64(0..2000)).unwrap());
                pod.restarts.regular = rng.i32(0..3);
                pod.meta.created = Timestamp::from_second(NOW - rng.i64(2000..9000)).unwrap();
                Arc::new(pod)
            })
            .collect();
        let mut active: Vec<&Arc<Pod>> = pods.iter().collect();
        let now = Timestamp::from_second(NOW).unwrap();
        let order = first_to_delete(&active, None, 600, now);
        for _ in 0..5 {
            rng.shuffle(&mut active);
            assert_eq!(first_to_delete(&active, None, 600, now), order);
        }
    }
}
