//! The attempts of containers: how often the containers of a Job have started, over all of its pods with one completion
//! index. In a cluster a marker file in a `hostPath` would tell them.

use std::collections::BTreeMap;

use super::record::Pod;

/// The owner (a Job, or the pod itself), the completion index, and the name of a container.
type Key = (Box<str>, Option<u32>, Box<str>);

/// The number of attempts so far. Those of a Job are remembered for as long as the simulator runs.
#[derive(Debug, Default)]
pub struct Attempts(BTreeMap<Key, u32>);

impl Attempts {
    /// The number of the attempt that begins now, from 0. A pod without a Job remembers its restarts itself.
    pub(super) fn next(&mut self, pod: &Pod, container: &str, restarts: i64) -> u32 {
        let count = self.0.entry(key(pod, container)).or_insert(0);
        let attempt = (*count).max(u32::try_from(restarts).unwrap_or(0));
        *count = attempt.saturating_add(1);
        attempt
    }

    /// A pod does not exist any more.
    pub(super) fn forget(&mut self, pod: &Pod) {
        if pod.metadata.job.is_none() && !self.0.is_empty() {
            for container in &pod.spec.containers {
                self.0.remove(&key(pod, &container.name));
            }
        }
    }
}

fn key(pod: &Pod, container: &str) -> Key {
    let owner = pod.metadata.job.as_deref().unwrap_or(pod.uid());
    (owner.into(), pod.metadata.completion_index, container.into())
}
