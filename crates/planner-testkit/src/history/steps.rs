//! The steps of a history, and their probabilities.

use proptest::prelude::*;

use super::TAGS;
use crate::world::PodChange;

/// One step.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // The names are the documentation.
pub enum Step {
    Image(u8),
    Replicas(i32),
    Budget(Number, Number),
    Recreate,
    Pause(bool),
    MinReady(i32),
    History(i32),
    Annotate(u8),
    /// One sync of the Deployment: how many writes are carried out, and whether the status is.
    Deployment {
        writes: usize,
        status: bool,
    },
    /// One sync of a ReplicaSet: how many pods are written, and whether the status is.
    ReplicaSet {
        which: usize,
        writes: usize,
        status: bool,
    },
    /// A change of a pod.
    Pod(usize, PodChange),
    /// A user sets the deletion cost of a pod.
    Cost(usize, i32),
    /// A ReplicaSet or a pod loses its owner, or a label that makes it selected.
    Orphan {
        replica_set: bool,
        which: usize,
    },
    Relabel {
        replica_set: bool,
        which: usize,
    },
    /// All controllers run in turn, so many times.
    Rounds(u8),
    Sleep(u8),
}

/// A value of `maxSurge` or `maxUnavailable`.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)] // The names are the documentation.
pub enum Number {
    Pods(u8),
    Percent(u8),
}

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![(0..5u8).prop_map(Number::Pods), (0..=100u8).prop_map(Number::Percent)]
}

fn cut() -> impl Strategy<Value = usize> {
    prop_oneof![4 => Just(usize::MAX), 1 => 0..4usize]
}

/// Any step. Foreign changes (orphans and labels) are included only if `foreign_changes`.
pub fn step(foreign_changes: bool) -> impl Strategy<Value = Step> {
    let mostly = prop_oneof![5 => Just(true), 1 => Just(false)];
    let pod_change = prop_oneof![
        6 => Just(PodChange::Ready),
        2 => Just(PodChange::Unready),
        1 => Just(PodChange::Fail),
        1 => Just(PodChange::Delete),
        4 => Just(PodChange::Removed),
    ];
    let usual = prop_oneof![
        4 => (0..TAGS).prop_map(Step::Image),
        2 => (0..14i32).prop_map(Step::Replicas),
        1 => (number(), number()).prop_map(|(s, u)| Step::Budget(s, u)),
        1 => Just(Step::Recreate),
        2 => any::<bool>().prop_map(Step::Pause),
        1 => prop_oneof![Just(0), Just(5), Just(30)].prop_map(Step::MinReady),
        1 => (0..3i32).prop_map(Step::History),
        1 => (0..3u8).prop_map(Step::Annotate),
        8 => (cut(), mostly.clone()).prop_map(|(writes, status)| Step::Deployment { writes, status }),
        10 => (0..8usize, cut(), mostly).prop_map(|(which, writes, status)| Step::ReplicaSet { which, writes, status }),
        14 => (0..40usize, pod_change).prop_map(|(which, pod_change)| Step::Pod(which, pod_change)),
        1 => (0..40usize, -2..3i32).prop_map(|(which, cost)| Step::Cost(which, cost)),
        6 => (1..6u8).prop_map(Step::Rounds),
        3 => (0..20u8).prop_map(Step::Sleep),
    ];
    let odd = prop_oneof![
        (any::<bool>(), 0..20usize).prop_map(|(replica_set, which)| Step::Orphan { replica_set, which }),
        (any::<bool>(), 0..20usize).prop_map(|(replica_set, which)| Step::Relabel { replica_set, which }),
    ];
    prop_oneof![60 => usual, if foreign_changes { 4 } else { 0 } => odd]
}
