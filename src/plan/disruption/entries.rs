//! The pods that the API server has allowed to be evicted (`status.disruptedPods`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Observed;
use crate::model::{ObjectKey, Pod};

/// How long a pod that is to be evicted does not count (upstream: `DeletionTimeout`).
const DELETION_TIMEOUT: SignedDuration = SignedDuration::from_secs(120);

/// How often an entry is looked at whose pod the cache may not show yet.
const LAGGING: Duration = Duration::from_secs(5);

/// The entries at a time.
pub(super) struct Entries {
    /// Those that stay.
    pub kept: BTreeMap<Arc<str>, Timestamp>,
    /// The pods of those that have expired.
    pub overdue: Vec<Arc<Pod>>,
    /// When the next changes.
    pub look_again: Option<Duration>,
    /// Of each that the budget shows the version of the budget that showed it first.
    pub seen: BTreeMap<Arc<str>, (Timestamp, u64)>,
}

impl Entries {
    /// Upstream drops an entry without a live pod in the cache. A cache that lags may not show yet the pod that it is for, under a
    /// name that is new, or that an older pod had: shown later, that pod would count although it is on its way out. So such an entry
    /// stays until the cache has reached the version of the budget that showed the entry first: each API server that shares one
    /// counter between kinds counts the deletion after it. Where kinds have counters of their own, the entry leaves
    /// sooner, as upstream's, or when it expires.
    pub(super) fn of(observed: &Observed<'_>) -> Self {
        let Observed { budget, pods, pods_version, memory, now, .. } = observed;
        let mut entries =
            Entries { kept: BTreeMap::new(), overdue: Vec::new(), look_again: None, seen: BTreeMap::new() };
        let live = live_pods(pods);
        for (name, &since) in &budget.status.disrupted_pods {
            let left = since.saturating_add(DELETION_TIMEOUT).unwrap_or(Timestamp::MAX).duration_since(*now);
            let left = Duration::try_from(left).unwrap_or_default();
            let known = memory.entries.get(name).filter(|(at, _)| *at == since);
            let first = known.map_or(budget.meta.resource_version, |(_, version)| *version);
            entries.seen.insert(name.clone(), (since, first));
            let pod = live.get(&ObjectKey::new(budget.meta.key.namespace.clone(), name.clone()));
            if left.is_zero() {
                entries.overdue.extend(pod.copied().cloned());
                continue;
            }
            let wait = match pod {
                Some(_) => left,
                None if *pods_version < first => left.min(LAGGING),
                None => continue,
            };
            entries.look_again = Some(entries.look_again.map_or(wait, |other| other.min(wait)));
            entries.kept.insert(name.clone(), since);
        }
        entries
    }

    /// Whether a pod is ready and nobody is about to end it.
    pub(super) fn is_healthy(&self, pod: &Pod) -> bool {
        pod.ready_since.is_some() && !pod.meta.is_deleting() && !self.kept.contains_key(&pod.meta.key.name)
    }
}

fn live_pods(pods: &[Arc<Pod>]) -> BTreeMap<&ObjectKey, &Arc<Pod>> {
    pods.iter().filter(|pod| !pod.meta.is_deleting()).map(|pod| (&pod.meta.key, pod)).collect()
}
