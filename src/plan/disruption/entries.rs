//! The pods that the API server has allowed to be evicted (`status.disruptedPods`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::Observed;
use crate::model::{ObjectKey, Pod, Uid};

/// How long a pod that is to be evicted does not count (upstream: `DeletionTimeout`), by the clock of the API server that wrote the time
/// of the entry, or by our own.
const DELETION_TIMEOUT: Duration = Duration::from_secs(120);

/// How long it does not count in any case: the clock of the API server may be ahead of ours, or behind it.
const SEEN: Duration = Duration::from_secs(30);

/// How often an entry is looked at whose pod the cache may not show yet.
const LAGGING: Duration = Duration::from_secs(5);

/// The memory of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// Its time.
    since: Timestamp,
    /// The version of the budget that showed it first.
    version: u64,
    /// When that was seen, by a clock that nobody sets.
    seen: Duration,
    /// The pod that it is for, once that is known.
    pod: Option<Uid>,
}

impl Entry {
    /// How long it stays, unless its pod goes before.
    fn left(&self, now: Timestamp, elapsed: Duration) -> Duration {
        let left = self.since.saturating_add(DELETION_TIMEOUT).unwrap_or(Timestamp::MAX).duration_since(now);
        let age = elapsed.saturating_sub(self.seen);
        let by_their_clock = Duration::try_from(left).unwrap_or_default().max(SEEN.saturating_sub(age));
        by_their_clock.min(DELETION_TIMEOUT.saturating_sub(age))
    }

    /// Whether it may be for this pod, which a cache shows that is as new as the entry. The first such pod that is not younger than the
    /// entry is it, unless it has a successor already, which then does not count for as long as the entry stays.
    fn is_of(&mut self, pod: &Pod) -> bool {
        match &self.pod {
            Some(known) => *known == pod.meta.uid,
            None if pod.meta.created > self.since => false,
            None => {
                self.pod = Some(pod.meta.uid.clone());
                true
            }
        }
    }
}

/// The entries at a time.
pub(super) struct Entries {
    /// Those that stay.
    pub kept: BTreeMap<Arc<str>, Timestamp>,
    /// The pods of those that have expired.
    pub overdue: Vec<Arc<Pod>>,
    /// When the next changes.
    pub look_again: Option<Duration>,
    /// The memory of each that the budget shows.
    pub seen: BTreeMap<Arc<str>, Entry>,
}

impl Entries {
    /// Upstream drops an entry without a live pod in the cache. A cache that lags may not show yet the pod that it is for, under a
    /// name that is new, or that an older pod had: shown later, that pod would count although it is on its way out. So such an entry
    /// stays until the cache has reached the version of the budget that showed the entry first: each API server that shares one
    /// counter between kinds counts the deletion after it. Where kinds have counters of their own, the entry leaves
    /// sooner, as upstream's, or when it expires. The pod that has the name next, as in a StatefulSet, is another.
    pub(super) fn of(observed: &Observed<'_>) -> Self {
        let Observed { budget, pods, pods_version, memory, now, elapsed, .. } = observed;
        let mut entries =
            Entries { kept: BTreeMap::new(), overdue: Vec::new(), look_again: None, seen: BTreeMap::new() };
        let live = live_pods(pods);
        for (name, &since) in &budget.status.disrupted_pods {
            let known = memory.entries.get(name).filter(|known| known.since == since).cloned();
            let version = budget.meta.resource_version;
            let mut entry = known.unwrap_or(Entry { since, version, seen: *elapsed, pod: None });
            let left = entry.left(*now, *elapsed);
            let is_lagging = *pods_version < entry.version;
            let pod = live.get(&ObjectKey::new(budget.meta.key.namespace.clone(), name.clone())).copied();
            let pod = pod.filter(|pod| is_lagging || entry.is_of(pod));
            entries.seen.insert(name.clone(), entry);
            if left.is_zero() {
                entries.overdue.extend(pod.cloned());
                continue;
            }
            let wait = match pod {
                _ if is_lagging => left.min(LAGGING),
                Some(_) => left,
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
