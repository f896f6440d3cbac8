//! The invariants over every committed write of a daemon: JB1 to JB12, JB14, JB15 and JB17. The others are judged by
//! [`convergence`](super::convergence).
//!
//! A write is judged by the state at which it is committed, and only where its author could know that state: others must
//! not have changed what a rule depends on within the time that a decision may be old. A pod that ends meanwhile makes a
//! Job want no more pods than before, so the limits hold at every moment.

mod pods;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::facts::{has_ended, index, is_tracked, owner};
use crate::engine::blind::Blind;
use crate::engine::breach::Breach;
use crate::engine::call::{Call, OpenCalls};
use crate::engine::network::{self, Faults};
use crate::engine::objects::{is_deleting, is_live, list, uid};

/// A committed write, and all objects right before it.
pub struct Commit<'a> {
    /// When, since the beginning of the history.
    pub at: Duration,
    /// When, by the clock of the cluster.
    pub now: Timestamp,
    /// The request.
    pub call: &'a Call,
    /// The object before.
    pub before: Option<&'a Value>,
    /// The object after.
    pub after: Option<&'a Value>,
    /// The Jobs after the write.
    pub jobs: Vec<Value>,
    /// The pods before the write.
    pub pods: Vec<Value>,
}

/// The API server of this game.
pub type Cluster = network::Cluster<Judge>;

/// The history of one Job, by UID.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// The pods that were ever in a list of the status.
    counted: BTreeSet<String>,
    /// Active pods whose finalizer was taken off: they count neither way.
    released: BTreeSet<String>,
    /// Pods whose owner, labels, index or finalizer somebody else has changed.
    touched: BTreeSet<String>,
    /// The indexes of those pods: a failure of theirs may have been seen with the Job, or never.
    touched_indexes: BTreeSet<i64>,
    /// When a pod last succeeded.
    last_success: Option<Timestamp>,
    /// The failures of each index that counted, by the pods that ended.
    failures: BTreeMap<i64, BTreeSet<String>>,
    /// When pods failed.
    failed_at: BTreeMap<String, Timestamp>,
}

/// All invariants and their state.
#[derive(Debug, Default)]
pub struct Judge {
    /// The changes that the author of a write may not know.
    pub(super) blind: Blind,
    /// When the specification was last changed.
    edited: Option<Duration>,
    /// When others last changed whose pods are whose, or created or deleted one.
    disturbed: Option<Duration>,
    /// The same without deletions.
    joined: Option<Duration>,
    /// When a pod last ended.
    ended: Option<Duration>,
    /// The daemons that run.
    pub(super) running: BTreeSet<String>,
    has_faults: bool,
    pub(super) calls: OpenCalls,
    pub(super) ledgers: BTreeMap<String, Ledger>,
}

impl<'a> Commit<'a> {
    pub(super) fn breach(&self, invariant: &'static str, what: impl std::fmt::Display) -> Result<(), Breach> {
        Err(Breach::new(invariant, format!("{what}: {}", self.call)))
    }

    /// The Job with this UID, after the write.
    pub(super) fn job(&'a self, wanted: &str) -> Option<&'a Value> {
        self.jobs.iter().find(|job| uid(job) == wanted)
    }

    pub(super) fn pods_of(&'a self, job: &'a Value) -> impl Iterator<Item = &'a Value> + Clone {
        self.pods.iter().filter(|pod| owner(pod) == uid(job))
    }
}

impl Judge {
    /// Invariants that have seen nothing yet.
    pub fn new(faults: Faults) -> Self {
        Judge {
            blind: Blind::new(faults.staleness()),
            has_faults: faults != Faults::default(),
            ..Judge::default()
        }
    }

    fn is_recent(&self, then: Option<Duration>, at: Duration) -> bool {
        then.is_some_and(|then| then == at || self.blind.hides(then, at))
    }

    /// Whether the specification has changed so lately that a decision may not know it.
    fn is_edited(&self, commit: &Commit<'_>) -> bool {
        commit.call.abandoned || self.is_recent(self.edited, commit.at)
    }

    /// Whether others have changed pods so lately that a decision may not know it.
    fn is_disturbed(&self, commit: &Commit<'_>) -> bool {
        self.is_edited(commit) || self.is_recent(self.disturbed, commit.at)
    }

    /// Whether so lately pods may have become the Job's that a decision may not know of.
    fn is_joined(&self, commit: &Commit<'_>) -> bool {
        self.is_edited(commit) || self.is_recent(self.joined, commit.at)
    }

    /// A write has been committed.
    ///
    /// # Errors
    /// When it breaks an invariant.
    pub fn committed(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let judged = if commit.call.of_daemon() { self.judge(commit) } else { Ok(()) };
        match &*commit.call.resource {
            "jobs" => self.remember_job(commit),
            _ => self.remember_pod(commit),
        }
        judged
    }

    fn judge(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let call = commit.call;
        match (&*call.resource, &*call.subresource, commit.before, commit.after) {
            ("jobs", "status", Some(before), Some(after)) => self.judge_status(commit, before, after),
            ("jobs", ..) => commit.breach("JB15", "the only write to a Job is its status"),
            (_, _, None, Some(pod)) => self.judge_creation(commit, pod),
            (_, _, Some(pod), _) if call.method == http::Method::DELETE => self.judge_deletion(commit, pod),
            (_, _, Some(before), Some(after)) => self.judge_change(commit, before, after),
            // The last finalizer of a pod that is being deleted: it is gone with it.
            (_, _, Some(before), None) => {
                let mut after = before.clone();
                after["metadata"]["finalizers"] = Value::Null;
                self.judge_change(commit, before, &after)
            }
            _ => Ok(()),
        }
    }

    fn remember_job(&mut self, commit: &Commit<'_>) {
        let spec =
            |object: Option<&Value>| object.map(|object| (object["spec"].clone(), is_deleting(object)));
        if spec(commit.before) != spec(commit.after) || commit.before.map(uid) != commit.after.map(uid) {
            self.edited = Some(commit.at);
        }
        if let Some(after) = commit.after {
            let counted = super::facts::uncounted(after).into_iter().flatten().map(str::to_owned);
            self.ledgers.entry(uid(after).to_owned()).or_default().counted.extend(counted);
        }
    }

    fn remember_pod(&mut self, commit: &Commit<'_>) {
        let is_daemon = commit.call.of_daemon();
        let state = |pod: &Value| {
            let metadata = &pod["metadata"];
            let index = metadata["annotations"][super::facts::INDEX].clone();
            (owner(pod).to_owned(), metadata["labels"].clone(), index, is_tracked(pod))
        };
        let is_moved = commit.before.map(state) != commit.after.map(state);
        let is_gone = commit.after.is_none();
        if !is_daemon && is_moved {
            self.disturbed = Some(commit.at);
            self.joined = if is_gone { self.joined } else { Some(commit.at) };
        }
        // A leader that is gone, or another one, may have created or deleted pods that this one does not know of.
        let is_known = is_daemon && !commit.call.abandoned && self.running.len() < 2;
        let goes = |pod: Option<&Value>| pod.is_none_or(is_deleting);
        if !is_known && goes(commit.before) != goes(commit.after) {
            self.disturbed = Some(commit.at);
            self.joined = if goes(commit.after) { self.joined } else { Some(commit.at) };
        }
        if !is_daemon && is_moved {
            // Nothing in the API says that a pod without the finalizer was counted: one that a user gives it, or takes from the
            // Job and leaves for it to adopt, counts again, with upstream as well.
            for pod in [commit.before, commit.after].into_iter().flatten() {
                let Some(job) = commit.job(owner(pod)) else { continue };
                let ledger = self.ledgers.entry(uid(job).to_owned()).or_default();
                ledger.counted.remove(uid(pod));
                ledger.touched.insert(uid(pod).to_owned());
                ledger.touched_indexes.extend(index(job, pod));
            }
        }
        let pod = commit.after.or(commit.before);
        let Some((pod, job)) = pod.and_then(|pod| Some((pod, commit.job(owner(pod))?))) else { return };
        let ledger = self.ledgers.entry(uid(job).to_owned()).or_default();
        let before_lives = commit.before.is_some_and(is_live);
        if before_lives && !is_live(pod) {
            self.ended = Some(commit.at);
        }
        if commit.before.is_some_and(|before| !has_ended(before)) && commit.after.is_some_and(has_ended) {
            if super::facts::has_succeeded(pod) {
                ledger.last_success = ledger.last_success.max(Some(commit.now));
            } else {
                ledger.failed_at.insert(uid(pod).to_owned(), commit.now);
                let counts = super::facts::action(job, pod) != "Ignore" && is_tracked(pod);
                if let Some(index) = index(job, pod).filter(|_| counts) {
                    ledger.failures.entry(index).or_default().insert(uid(pod).to_owned());
                }
            }
        }
    }
}

/// The elements of `one` that `other` does not have.
fn without<'v>(one: &[&'v str], other: &[&str]) -> Vec<&'v str> {
    one.iter().copied().filter(|uid| !other.contains(uid)).collect()
}

/// Whether the conditions of one type have the same status, reason and message.
fn is_same_fate(one: &Value, other: &Value) -> bool {
    ["reason", "message"].iter().all(|field| one[field] == other[field])
}

/// The conditions of a Job that were there before and no longer are.
fn lost_conditions<'v>(before: &'v Value, after: &Value) -> Option<&'v str> {
    let kinds = ["SuccessCriteriaMet", "FailureTarget", "Complete", "Failed"];
    let is_true = |object: &Value, kind: &str| super::facts::condition(object, kind).is_some();
    let conditions = list(&before["status"]["conditions"]).iter().filter_map(|c| c["type"].as_str());
    conditions.filter(|kind| kinds.contains(kind)).find(|kind| is_true(before, kind) && !is_true(after, kind))
}
