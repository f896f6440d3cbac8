//! How old pods are replaced: within `maxUnavailable`, or beside new ones within `maxSurge` (upstream:
//! `rollingUpdate`).

use std::sync::Arc;

use serde::Serialize;

use super::node_decision::NodeState;
use super::order::RolloutPosition;
use super::placement::Verdict;
use super::{Deletion, Reason};
use crate::model::int_or_percent::clamp;
use crate::model::{DaemonSet, Pod, UpdateStrategy};

/// The counts of a rolling update. Each node adds its part, and can subtract it when it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Nodes that should run a pod.
    pub desired: i64,
    /// Nodes that have pods or should, without an available one; those whose unavailable old pod is deleted now
    /// included.
    pub unavailable: i64,
    /// Nodes that have a new pod beside an old one, or too many pods. Those whose old pod is deleted now included: a
    /// node that followed in the same step would have two pods before this one has one.
    pub surging: i64,
    /// Nodes, those that should not run a pod included, whose old pod or, if there is none, new one is available.
    pub available: i64,
}

impl Tally {
    /// Counts a node that the update leaves alone: no bound waits for its pod.
    pub fn leave_alone(&mut self, verdict: Option<Verdict>, class: NodeState<'_>) {
        let unavailable = self.unavailable;
        self.add(verdict, class);
        self.unavailable = unavailable;
    }

    /// Counts a node.
    pub fn add(&mut self, verdict: Option<Verdict>, class: NodeState<'_>) {
        let (unavailable, surging, available) = match class {
            NodeState::Gone => (false, false, false),
            NodeState::Missing => (true, false, false),
            NodeState::Surplus => (true, true, false),
            NodeState::OldBesideAvailableNew => (false, true, true),
            NodeState::New { is_available } | NodeState::Old { is_available, .. } => {
                (!is_available, false, is_available)
            }
            NodeState::OldBesideNew { is_old_available } => (!is_old_available, true, is_old_available),
        };
        self.desired += i64::from(verdict == Some(Verdict::Run));
        self.unavailable += i64::from(unavailable);
        self.surging += i64::from(surging);
        self.available += i64::from(available);
    }
}

/// A node with an old pod and no new one.
#[derive(Clone, Copy, Debug)]
pub struct Outdated<'a> {
    /// The node.
    pub node: &'a Arc<str>,
    /// Whether it should run a pod.
    pub should_run: bool,
    /// The old pod.
    pub pod: &'a Arc<Pod>,
    /// Whether the old pod is available.
    pub is_available: bool,
}

/// The bounds of a rolling update.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "bound", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Budget {
    /// Old pods are deleted first.
    Unavailable {
        /// On how many nodes no pod may be available.
        max: i64,
        /// On how many none is.
        unavailable: i64,
    },
    /// New pods are created first.
    Surge {
        /// On how many nodes a new pod may run beside an available old one.
        max: i64,
        /// On how many one does.
        surging: i64,
    },
}

impl Budget {
    /// The bounds for a DaemonSet with these counts; `None` under OnDelete.
    pub fn of(daemon_set: &DaemonSet, tally: &Tally) -> Option<Self> {
        if daemon_set.strategy == UpdateStrategy::OnDelete {
            return None;
        }
        let (surge, unavailable) = daemon_set.budget(clamp(tally.desired));
        Some(match surge {
            0 => Budget::Unavailable { max: unavailable.into(), unavailable: tally.unavailable },
            surge => Budget::Surge { max: surge.into(), surging: tally.surging },
        })
    }

    /// How many more nodes the budget allows.
    pub fn remaining(&self) -> usize {
        let (Budget::Unavailable { max, unavailable: used } | Budget::Surge { max, surging: used }) = self;
        usize::try_from(max.saturating_sub(*used)).unwrap_or(0)
    }
}

/// One step of a rolling update.
#[derive(Clone, Debug, Default)]
pub struct Step<'a> {
    /// Nodes that get a new pod beside the old one.
    pub create: Vec<&'a Arc<str>>,
    /// Old pods to delete.
    pub delete: Vec<Deletion>,
    /// Available old pods on nodes that should run a pod, beyond what this step may delete.
    pub staying: usize,
}

/// Decides. Unavailable old pods are replaced first and at once, whatever the budget.
pub fn step<'a>(revision: &str, tally: &Tally, budget: Budget, mut outdated: Vec<Outdated<'a>>) -> Step<'a> {
    outdated.sort_by_cached_key(|old| RolloutPosition::of(revision, old.node));
    let (available, unavailable): (Vec<_>, Vec<_>) = outdated.into_iter().partition(|old| old.is_available);
    let delete = |old: &Outdated<'a>| Deletion {
        is_rollout: old.should_run,
        ..Deletion::of(old.pod, Reason::Outdated)
    };
    match budget {
        Budget::Unavailable { .. } => {
            let delete: Vec<_> =
                unavailable.iter().chain(available.iter().take(budget.remaining())).map(delete).collect();
            let staying = available.len().saturating_sub(budget.remaining());
            Step { create: Vec::new(), delete, staying }
        }
        Budget::Surge { .. } => {
            let (running, leaving): (Vec<_>, Vec<_>) = available.into_iter().partition(|old| old.should_run);
            let (replaced, dropped): (Vec<_>, Vec<_>) =
                unavailable.into_iter().partition(|old| old.should_run);
            // Pods where none should run stay until enough others are available.
            let surplus = usize::try_from(tally.available - tally.desired).unwrap_or(0);
            let create =
                replaced.iter().chain(running.iter().take(budget.remaining())).map(|old| old.node).collect();
            let delete = dropped.iter().chain(leaving.iter().take(surplus)).map(delete).collect();
            Step { create, delete, staying: running.len().saturating_sub(budget.remaining()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};

    fn pod(name: &str) -> Arc<Pod> {
        let json = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"ops","uid":"u-{name}","resourceVersion":"1"}}}}"#
        );
        Arc::new(Pod::decode(&json, &mut Interner::default()).unwrap())
    }

    /// How many pods are created, and how many deleted, with nodes that `(run, have an available old pod)`.
    #[track_caller]
    fn check(budget: Budget, tally: Tally, nodes: &[(bool, bool)], expected: (usize, usize, usize)) {
        let names: Vec<Arc<str>> = (0..nodes.len()).map(|n| format!("n{n}").into()).collect();
        let pods: Vec<Arc<Pod>> = names.iter().map(|name| pod(name)).collect();
        let outdated =
            nodes.iter().zip(names.iter().zip(&pods)).map(|((runs, is_available), (node, pod))| Outdated {
                node,
                should_run: *runs,
                pod,
                is_available: *is_available,
            });
        let step = step("abc", &tally, budget, outdated.collect());
        assert_eq!((step.create.len(), step.delete.len(), step.staying), expected);
    }

    #[test]
    fn without_surge_unavailable_old_pods_are_deleted_at_once_and_others_within_the_budget() {
        let of = |max, unavailable| Budget::Unavailable { max, unavailable };
        let nodes = [(true, true), (true, false), (true, true), (true, false), (true, true)];
        check(of(1, 2), Tally::default(), &nodes, (0, 2, 3));
        check(of(3, 2), Tally::default(), &nodes, (0, 3, 2));
        check(of(i64::MAX, i64::MIN), Tally::default(), &nodes, (0, 5, 0));
        check(of(0, i64::MAX), Tally::default(), &nodes[..1], (0, 0, 1));
    }

    #[test]
    fn with_surge_unavailable_old_pods_get_a_new_one_at_once_and_others_within_max_surge() {
        let of = |max, surging| Budget::Surge { max, surging };
        let nodes = [(true, true), (true, false), (true, true)];
        check(of(1, 0), Tally::default(), &nodes, (2, 0, 1));
        check(of(1, 1), Tally::default(), &nodes, (1, 0, 2));
        check(of(1, 7), Tally::default(), &nodes, (1, 0, 2));
    }

    #[test]
    fn with_surge_pods_where_none_should_run_are_deleted_while_more_are_available_than_desired() {
        let budget = Budget::Surge { max: 1, surging: 1 };
        let tally = |desired, available| Tally { desired, available, ..Tally::default() };
        let nodes = [(false, true), (false, true), (false, false)];
        check(budget, tally(3, 3), &nodes, (0, 1, 0));
        check(budget, tally(3, 4), &nodes, (0, 2, 0));
        check(budget, tally(3, 9), &nodes, (0, 3, 0));
        check(budget, tally(3, 1), &nodes, (0, 1, 0));
    }

    #[test]
    fn a_node_counts_once_for_each_bound() {
        let pod = pod("p");
        let mut tally = Tally::default();
        for class in [
            NodeState::Gone,
            NodeState::Missing,
            NodeState::Surplus,
            NodeState::OldBesideAvailableNew,
            NodeState::New { is_available: true },
            NodeState::New { is_available: false },
            NodeState::Old { pod: &pod, is_available: true },
            NodeState::Old { pod: &pod, is_available: false },
            NodeState::OldBesideNew { is_old_available: true },
        ] {
            tally.add(Some(Verdict::Run), class);
        }
        assert_eq!(tally, Tally { desired: 9, unavailable: 4, surging: 3, available: 4 });
        tally.add(Some(Verdict::Continue), NodeState::New { is_available: true });
        assert_eq!((tally.desired, tally.available), (9, 5));
    }
}
