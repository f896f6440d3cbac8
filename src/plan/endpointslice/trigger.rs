//! The time of the change that leads to a write (upstream: `TriggerTimeTracker`).

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use jiff::Timestamp;

use crate::model::Pod;

/// When the pods of a Service became ready or unready, as of a sync: 8 bytes for each pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TriggerTimes(
    /// The hash of a pod's name, and the time in seconds since 1970, sorted. For two names of one hash a time may be missed.
    Box<[(u32, u32)]>,
);

/// The time in seconds; the API has no finer ones.
fn seconds(time: Timestamp) -> u32 {
    u32::try_from(time.as_second().max(0)).unwrap_or(u32::MAX)
}

#[allow(clippy::cast_possible_truncation)] // The half of a hash is one.
fn hash(name: &str) -> u32 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() as u32
}

impl TriggerTimes {
    /// The times of these pods, and the earliest that is later than at the last sync; at the first one the time at which the
    /// Service was created.
    pub(in crate::plan) fn after(
        before: Option<&TriggerTimes>,
        created: Timestamp,
        pods: &[Arc<Pod>],
    ) -> (Self, Option<Timestamp>) {
        let dated = pods.iter().filter_map(|pod| Some((hash(&pod.meta.key.name), pod.ready_transition()?)));
        let dated: Vec<(u32, Timestamp)> = dated.collect();
        let mut times: Vec<(u32, u32)> = dated.iter().map(|(name, time)| (*name, seconds(*time))).collect();
        times.sort_unstable();
        let trigger = match before {
            None => Some(created).filter(|created| *created != Timestamp::UNIX_EPOCH),
            Some(before) => {
                let is_new = |(name, time): &&(u32, Timestamp)| seconds(*time) > before.of(*name);
                dated.iter().filter(is_new).map(|(_, time)| *time).min()
            }
        };
        (TriggerTimes(times.into()), trigger)
    }

    /// The time of a pod; 0 if it was not there.
    fn of(&self, name: u32) -> u32 {
        let after = self.0.partition_point(|(other, _)| *other <= name);
        let found = after.checked_sub(1).and_then(|at| self.0.get(at)).filter(|(other, _)| *other == name);
        found.map_or(0, |(_, time)| *time)
    }
}
