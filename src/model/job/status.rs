//! `status` of a Job.

use jiff::Timestamp;
use serde::Deserialize;

use crate::model::condition::{self, Condition, ConditionWire};
use crate::model::indexes::Indexes;
use crate::model::intern::Interner;
use crate::model::meta::Uid;
use crate::model::wire::{Text, Time};

/// The types of conditions that the controller writes. Those of other types are never written.
const TYPES: [&str; 5] = ["Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"];

/// `status` of a Job, as far as the controller writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobStatus {
    /// Pods that are neither ended nor being deleted.
    pub active: i32,
    /// Active pods that are ready.
    pub ready: Option<i32>,
    /// Pods that are being deleted and have not ended.
    pub terminating: Option<i32>,
    /// Pods that succeeded, or indexes.
    pub succeeded: i32,
    /// Pods that failed.
    pub failed: i32,
    /// Since when it has been running.
    pub start_time: Option<Timestamp>,
    /// When it became Complete.
    pub completion_time: Option<Timestamp>,
    /// `completedIndexes`.
    pub completed_indexes: Indexes,
    /// `failedIndexes`; present with `backoffLimitPerIndex` only.
    pub failed_indexes: Option<Indexes>,
    /// `uncountedTerminatedPods`.
    pub uncounted: Option<Box<Uncounted>>,
    /// The conditions of the controller.
    pub conditions: Vec<Condition>,
}

/// Pods that have ended and are not in the counters yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncounted {
    /// Those that succeeded.
    pub succeeded: Vec<Uid>,
    /// Those that failed.
    pub failed: Vec<Uid>,
}

/// How far a status counts. Each step of a pod changes it: into a list, and from there into a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// The pods, or succeeded indexes, in the numbers and the lists.
    pub pods: i64,
    /// Those in the lists.
    pub listed: usize,
}

impl JobStatus {
    /// Whether the condition of this type is True.
    pub fn is_true(&self, kind: &str) -> bool {
        condition::find(&self.conditions, kind).is_some_and(Condition::is_true)
    }

    /// Whether it is that of a finished Job: Complete or Failed.
    pub fn is_finished(&self) -> bool {
        self.is_true("Complete") || self.is_true("Failed")
    }

    /// How far it counts.
    pub fn counted(&self) -> Counted {
        let listed = self.uncounted.as_ref().map_or(0, |lists| lists.succeeded.len() + lists.failed.len());
        Counted { pods: i64::from(self.succeeded) + i64::from(self.failed) + listed as i64, listed }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let indexes = [Some(&self.completed_indexes), self.failed_indexes.as_ref()];
        let uids = |uids: &Vec<Uid>| size_of_val(&**uids) + uids.iter().map(Uid::heap_bytes).sum::<usize>();
        let uncounted =
            self.uncounted.as_ref().map_or(0, |lists| uids(&lists.succeeded) + uids(&lists.failed));
        indexes.into_iter().flatten().map(Indexes::heap_bytes).sum::<usize>()
            + uncounted
            + condition::heap_bytes(&self.conditions)
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StatusWire<'a> {
    #[serde(default)]
    active: Option<i32>,
    #[serde(default)]
    ready: Option<i32>,
    #[serde(default)]
    terminating: Option<i32>,
    #[serde(default)]
    succeeded: Option<i32>,
    #[serde(default)]
    failed: Option<i32>,
    #[serde(default)]
    start_time: Option<Time>,
    #[serde(default)]
    completion_time: Option<Time>,
    #[serde(borrow, default)]
    completed_indexes: Text<'a>,
    #[serde(borrow, default)]
    failed_indexes: Option<Text<'a>>,
    #[serde(borrow, default)]
    uncounted_terminated_pods: Option<UncountedWire<'a>>,
    #[serde(borrow, default)]
    conditions: Option<Vec<ConditionWire<'a>>>,
}

#[derive(Deserialize)]
struct UncountedWire<'a> {
    #[serde(borrow, default)]
    succeeded: Option<Vec<Text<'a>>>,
    #[serde(borrow, default)]
    failed: Option<Vec<Text<'a>>>,
}

impl StatusWire<'_> {
    pub(super) fn into_status(self, interner: &mut Interner) -> JobStatus {
        let uids = |list: Option<Vec<Text<'_>>>| {
            list.unwrap_or_default().iter().map(|uid| Uid::new(uid.as_str())).collect()
        };
        let uncounted = self.uncounted_terminated_pods;
        JobStatus {
            active: self.active.unwrap_or(0),
            ready: self.ready,
            terminating: self.terminating,
            succeeded: self.succeeded.unwrap_or(0),
            failed: self.failed.unwrap_or(0),
            start_time: self.start_time.map(|time| time.0),
            completion_time: self.completion_time.map(|time| time.0),
            completed_indexes: Indexes::parse(self.completed_indexes.as_str()),
            failed_indexes: self.failed_indexes.map(|indexes| Indexes::parse(indexes.as_str())),
            uncounted: uncounted
                .map(|lists| Uncounted { succeeded: uids(lists.succeeded), failed: uids(lists.failed) })
                .map(Box::new),
            conditions: ConditionWire::of_types(self.conditions, &TYPES, interner),
        }
    }
}
