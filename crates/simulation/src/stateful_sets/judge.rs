//! The invariants over every committed write of a daemon: SS1 to SS10, SS12 to SS24 and SS29, except SS11 and SS16, which
//! [`convergence`](super::convergence) judges.
//!
//! A write is judged by the state at which it is committed, and only where its author could know that state: others must
//! not have changed what a rule depends on within the time that a decision may be old.

mod events;
mod objects;
mod pods;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use super::identity::{is_member, ordinal, range, template_of_claim};
use crate::engine::blind::Blind;
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::network::{self, Faults};
use crate::engine::objects::{is_available, is_deleting, is_live, name, number, references, text, uid};

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
    /// The StatefulSet, as it is after the write.
    pub stateful_set: Option<Arc<Value>>,
    /// The pods before the write.
    pub pods: Vec<Value>,
    /// The claims before the write.
    pub claims: Vec<Value>,
    /// The revisions before the write.
    pub revisions: Vec<Value>,
}

/// The API server of this game.
pub type Cluster = network::Cluster<Judge>;

/// All invariants and their state.
#[derive(Debug, Default)]
pub struct Judge {
    /// The changes that the author of a write may not know.
    pub(super) blind: Blind,
    /// When the specification was last changed.
    edited: Option<Duration>,
    /// When others last made a pod worse, or changed whose it is.
    disturbed: Option<Duration>,
    /// When others last changed a claim or a revision.
    moved: Option<Duration>,
    /// Since when the StatefulSet is being deleted, or is deleted.
    deleted_since: Option<Duration>,
    /// When ended pods were deleted, by StatefulSet, generation and ordinal, in this incarnation of the daemon.
    pub(super) failures: BTreeMap<(String, i64, i64), Vec<Duration>>,
    /// The pods that ended while their ordinal was in range, and a daemon knew it.
    kept: BTreeSet<String>,
    /// The requests about pods and their claims that daemons were refused.
    pub(super) refused: BTreeSet<events::Refused>,
    observed: (String, i64),
    /// The daemons that run.
    pub(super) running: BTreeSet<String>,
    /// Whether the network has any faults.
    has_faults: bool,
}

impl Commit<'_> {
    fn breach(&self, invariant: &'static str, what: impl std::fmt::Display) -> Result<(), Breach> {
        Err(Breach::new(invariant, format!("{what}: {}", self.call)))
    }

    /// The pods that count for a StatefulSet, with their ordinals.
    fn members<'a>(&'a self, stateful_set: &'a Value) -> impl Iterator<Item = (i64, &'a Value)> {
        let members = self.pods.iter().filter(|pod| is_member(stateful_set, pod));
        members.filter_map(|pod| Some((ordinal(name(pod))?, pod)))
    }

    /// Whether a pod serves: a terminating one does not.
    fn serves(&self, stateful_set: &Value, pod: &Value) -> bool {
        is_live(pod)
            && text(pod, "/status/phase") == "Running"
            && is_available(pod, number(stateful_set, "/spec/minReadySeconds"), self.now)
    }

    /// The pod of an ordinal.
    fn pod<'a>(&'a self, stateful_set: &'a Value, wanted: i64) -> Option<&'a Value> {
        self.members(stateful_set).find(|(ordinal, _)| *ordinal == wanted).map(|(_, pod)| pod)
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
        then.is_some_and(|then| self.blind.hides(then, at))
    }

    /// Whether the specification has changed so lately that a decision may not know it.
    fn is_edited(&self, at: Duration) -> bool {
        self.is_recent(self.edited, at)
    }

    /// Whether nothing has changed so lately that a decision may not know it.
    fn is_calm(&self, at: Duration) -> bool {
        ![self.edited, self.disturbed, self.moved].into_iter().any(|then| self.is_recent(then, at))
    }

    /// A write has been committed.
    ///
    /// # Errors
    /// When it breaks an invariant.
    pub fn committed(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let judged = match commit.call.of_daemon() {
            true => self.judge(commit),
            false => self.judge_collection(commit),
        };
        self.remember(commit);
        judged
    }

    fn remember(&mut self, commit: &Commit<'_>) {
        let Commit { at, call, before, after, .. } = commit;
        // The writes of a daemon that is gone, or of another one, are not known to the one that decides.
        let is_known = call.of_daemon() && !call.abandoned && self.running.len() < 2;
        match &*call.resource {
            "statefulsets" => {
                let spec = |object: &Option<&Value>| object.map(|object| object["spec"].clone());
                if spec(before) != spec(after) || before.map(uid) != after.map(uid) {
                    self.edited = Some(*at);
                }
                let is_going = after.is_none_or(is_deleting);
                self.deleted_since = if is_going { self.deleted_since.or(Some(*at)) } else { None };
            }
            "pods" => {
                self.remember_end(commit);
                if !is_known && commit.is_worse() {
                    self.disturbed = Some(*at);
                }
            }
            _ if !is_known => self.moved = Some(*at),
            _ => {}
        }
    }

    /// Notes a pod whose claims must stay.
    fn remember_end(&mut self, commit: &Commit<'_>) {
        let (Some(pod), None, Some(stateful_set)) = (commit.before, commit.after, &commit.stateful_set)
        else {
            return;
        };
        let in_range = ordinal(name(pod)).is_some_and(|ordinal| range(stateful_set).contains(&ordinal));
        let lag = if self.has_faults { Duration::from_secs(60) } else { Duration::ZERO };
        let is_known = !self.is_edited(commit.at)
            && !self.blind.lags(commit.at)
            && self.edited.is_some_and(|then| commit.at.saturating_sub(then) > lag);
        if in_range && is_known && is_member(stateful_set, pod) && !is_deleting(stateful_set) {
            self.kept.insert(uid(pod).to_owned());
        }
    }

    /// SS13: the collector deletes no claim of an ordinal that is in range.
    fn judge_collection(&self, commit: &Commit<'_>) -> Result<(), Breach> {
        let Commit { call, before: Some(claim), .. } = commit else { return Ok(()) };
        let is_collected = &*call.agent == "garbage"
            && call.resource == "persistentvolumeclaims"
            && call.method == Method::DELETE;
        let was_kept = |reference: &&Value| self.kept.contains(text(reference, "/uid"));
        // Created again without the claim template, a StatefulSet has nothing to do with the claim.
        let is_foreign = commit
            .stateful_set
            .as_deref()
            .is_some_and(|stateful_set| template_of_claim(stateful_set, name(claim)).is_none());
        if !is_collected || is_foreign {
            return Ok(());
        }
        if let Some(reference) = references(claim).iter().find(was_kept) {
            return commit.breach("SS13", format!("{} ended while in range", text(reference, "/name")));
        }
        let Some(stateful_set) = &commit.stateful_set else { return Ok(()) };
        let is_its = |reference: &Value| reference["uid"] == uid(stateful_set);
        match references(claim).iter().any(is_its) && !is_deleting(stateful_set) {
            true => commit.breach("SS13", "its StatefulSet is there"),
            false => Ok(()),
        }
    }

    fn judge(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let call = commit.call;
        if call.resource == "statefulsets" {
            return match &*call.subresource {
                "status" => self.judge_status(commit),
                _ => commit.breach("SS23", "the only write to a StatefulSet is its status"),
            };
        }
        let is_going = self.deleted_since.is_some() && !self.is_recent(self.deleted_since, commit.at);
        if is_going && !call.abandoned {
            return commit.breach("SS23", "a write for a StatefulSet that is being deleted");
        }
        let Some(stateful_set) = commit.stateful_set.clone() else { return Ok(()) };
        match (&*call.resource, commit.before, commit.after) {
            ("persistentvolumeclaims", before, after) => {
                self.judge_claim(commit, &stateful_set, before, after)
            }
            ("controllerrevisions", ..) => self.judge_revision(commit, &stateful_set),
            (_, None, Some(pod)) => self.judge_creation(commit, &stateful_set, pod),
            (_, Some(pod), _) if call.method == Method::DELETE => {
                self.judge_deletion(commit, &stateful_set, pod)
            }
            (_, Some(before), Some(after)) => self.judge_change(commit, &stateful_set, before, after),
            _ => Ok(()),
        }
    }
}

impl Commit<'_> {
    /// Whether a write to a pod makes it worse, or changes whose it is.
    fn is_worse(&self) -> bool {
        let (Some(before), Some(after)) = (self.before, self.after) else { return true };
        let moves = before["metadata"]["labels"] != after["metadata"]["labels"]
            || references(before) != references(after);
        let serves = |pod: &Value| {
            self.stateful_set.as_deref().is_some_and(|stateful_set| self.serves(stateful_set, pod))
        };
        moves || is_live(before) && !is_live(after) || serves(before) && !serves(after)
    }
}
