//! How old pods are replaced: within `maxUnavailable`, or beside new ones within `maxSurge` (upstream: `rollingUpdate`).

use std::sync::Arc;

use serde::Serialize;

use super::manage::Class;
use super::order::Turn;
use super::placement::Verdict;
use super::{Deletion, Reason};
use crate::model::count::clamp;
use crate::model::{DaemonSet, Pod, UpdateStrategy};

/// The counts that a rolling update rests on. Each node adds its part, and can take it back when it changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Nodes that should run a pod.
    pub desired: i64,
    /// Nodes that have pods or should, and none that is available, those whose unavailable old pod goes at once included.
    pub unavailable: i64,
    /// Nodes on which a new pod has been created beside an old one and is not available, or that have too many pods.
    pub surging: i64,
    /// Nodes, those that should not run a pod included, whose old pod or, if there is none, new one is available.
    pub available: i64,
}

impl Tally {
    /// Counts a node.
    pub fn add(&mut self, verdict: Option<Verdict>, class: Class<'_>) {
        let (unavailable, surging, available) = match class {
            Class::Gone => (false, false, false),
            Class::Missing => (true, false, false),
            Class::Excess => (true, true, false),
            Class::New { is_available } | Class::Old { is_available, .. } => {
                (!is_available, false, is_available)
            }
            Class::Both { is_old_available } => (!is_old_available, true, is_old_available),
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
    pub runs: bool,
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

    /// How many more nodes it has room for.
    pub fn room(&self) -> usize {
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
    /// Available old pods on nodes that should run a pod, which stay for now.
    pub staying: usize,
}

/// Decides. Old pods that are not available go first and at once, whatever the budget.
pub fn step<'a>(revision: &str, tally: &Tally, budget: Budget, mut outdated: Vec<Outdated<'a>>) -> Step<'a> {
    outdated.sort_by_cached_key(|old| Turn::of(revision, old.node));
    let (available, unavailable): (Vec<_>, Vec<_>) = outdated.into_iter().partition(|old| old.is_available);
    let delete = |old: &Outdated<'a>| Deletion { pod: old.pod.clone(), reason: Reason::Outdated };
    match budget {
        Budget::Unavailable { .. } => {
            let delete: Vec<_> =
                unavailable.iter().chain(available.iter().take(budget.room())).map(delete).collect();
            let staying = available.len().saturating_sub(budget.room());
            Step { create: Vec::new(), delete, staying }
        }
        Budget::Surge { .. } => {
            let (running, leaving): (Vec<_>, Vec<_>) = available.into_iter().partition(|old| old.runs);
            let (replaced, dropped): (Vec<_>, Vec<_>) = unavailable.into_iter().partition(|old| old.runs);
            // Pods where none should run serve until enough others are available.
            let surplus = usize::try_from(tally.available - tally.desired).unwrap_or(0);
            let create =
                replaced.iter().chain(running.iter().take(budget.room())).map(|old| old.node).collect();
            let delete = dropped.iter().chain(leaving.iter().take(surplus)).map(delete).collect();
            Step { create, delete, staying: running.len().saturating_sub(budget.room()) }
        }
    }
}
