//! The invariants, judged over every committed write and every request that a daemon sends.
//!
//! A write is judged by the state at which it is committed. What others changed after the instant up to which its
//! author could know everything ([`Call::known`]) counts in its favour: if a bound was lowered meanwhile, the earlier
//! bound still applies, and a pod that another client removed meanwhile is not counted against the author. This is
//! the declared tolerance of S1 to S3, S6, S8, S11, S12, S15 to S17 and S20, because every cache lags behind the API
//! server. S7 for rollbacks, S8 for the order, S9, S13, S14, S19 of annotations that are copied, S21, S23 and S25
//! consider the states since that instant, too: no write is judged by what its author cannot know.
//!
//! Declared breaches, all because of abandoned writes: they arrive after their author has ended, or half a minute
//! late, when their author no longer waits for them. The next sync corrects each of them.
//!
//! - The creation or resizing of a ReplicaSet is not judged by S1, S2 and S7. Its author may have decided on another
//!   template since, and have written to other ReplicaSets. The server cannot refuse a creation by its version, and
//!   the version of a ReplicaSet that no client has written meanwhile is still current.
//! - The creation of a pod is not judged by S11 for pods that were adopted in its place: its name is free.
//! - Nor for pods that a successor of its author has created, up to as many as were deleted meanwhile: the author
//!   chose the name after those of the deleted pods, and a process that starts and has seen none of them chooses
//!   theirs (H3). The successor's pods are not counted against the abandoned one either.
//!
//! And one that an election prevents: of two daemons without election, one that was restarted does not know the names
//! of pods that were deleted before, and the other does not use them again (S25). So the two request names that
//! differ by as many positions, and up to as many pods too many may be created (S11). The same holds for one daemon
//! without election that was restarted, and that gets a list from before the restart from a member of the API server:
//! without election there is no read barrier.

mod acted_on;
mod answers;
mod commit;
mod decisions;
mod deletion_order;
mod fields;
mod leadership;
mod losses;
mod names;
mod owners;
mod pods;
mod presence;
mod replica_sets;
mod rollout;
mod status;
mod stopping;
mod window;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::objects::controller;
use super::oracle;
use super::scenario::{Scenario, beginning_of};
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::objects::{Picture, is_deleting, number, text};
use crate::engine::request_fault::Answer;
use answers::Answers;
pub use commit::Commit;
use decisions::Decisions;
use deletion_order::DeletionOrder;
use leadership::Leadership;
use losses::Losses;
use names::Names;
use owners::Owners;
use replica_sets::History;
use status::Statuses;
use stopping::Stopping;
use window::Window;

/// The fields of a Deployment's specification that determine the bounds.
#[derive(Clone, Debug, PartialEq)]
struct Terms {
    replicas: i64,
    surge: i64,
    unavailable: i64,
    recreate: bool,
    paused: bool,
    history: i64,
    template: Value,
}

/// A pod that was created.
#[derive(Clone, Debug)]
struct Made {
    by: Arc<str>,
    uid: String,
    abandoned: bool,
}

/// All invariants and their state.
#[derive(Debug, Default)]
pub struct Invariants {
    /// The terms of Deployments, by UID.
    terms: BTreeMap<String, Window<Terms>>,
    /// The annotations of Deployments, by UID.
    annotations: BTreeMap<String, Window<Value>>,
    /// The sizes of ReplicaSets, by UID.
    sizes: BTreeMap<String, Window<i64>>,
    /// By how many replicas a client scaled up the ReplicaSets of a Deployment, by the Deployment's UID.
    raises: BTreeMap<String, Window<(Arc<str>, i64)>>,
    /// Since when ReplicaSets and Deployments are being deleted, or are deleted, by UID.
    deleted_since: BTreeMap<String, Duration>,
    /// Up to when the author that last created a ReplicaSet, or scaled it up from 0, knew everything, by the
    /// ReplicaSet's UID.
    begun: BTreeMap<String, Duration>,
    losses: Losses,
    /// When a ReplicaSet adopted a pod, by the ReplicaSet's UID.
    adoptions: BTreeMap<String, Window<()>>,
    /// The pods that were created for a ReplicaSet, by the ReplicaSet's UID.
    made: BTreeMap<String, Window<Made>>,
    /// When pods were deleted and their names became free, by the prefix of the names.
    freed: BTreeMap<String, Window<()>>,
    /// When each daemon started, where the daemons have no election.
    rivals: BTreeMap<Arc<str>, Duration>,
    /// Whether a daemon waits for an election, and for the read barrier.
    has_election: bool,
    /// The labels of pods, by UID: a release is judged by the labels that its author may have seen.
    labels: BTreeMap<String, Window<Value>>,
    /// The controllers of pods and ReplicaSets, by UID.
    owners: BTreeMap<String, Window<String>>,
    /// The highest observedGeneration, by UID.
    observed: BTreeMap<String, i64>,
    /// By how many seconds the clocks of the daemons may differ from the cluster's.
    doubt: i64,
    /// Whether a daemon may start from old lists.
    past: bool,
    leadership: Leadership,
    names: Names,
    answers: Answers,
    decisions: Decisions,
    owners_of: Owners,
    history: History,
    statuses: Statuses,
    stopping: Stopping,
    deletion_order: DeletionOrder,
}

impl Invariants {
    /// Invariants that have seen nothing yet.
    pub fn new(scenario: &Scenario) -> Self {
        let ahead = scenario.clocks.iter().map(|skew| skew.ahead.abs() / 1000 + 1);
        Invariants {
            doubt: ahead.max().unwrap_or(0),
            past: oracle::may_start_from_old_lists(scenario),
            has_election: scenario.election,
            answers: Answers::new(scenario),
            leadership: Leadership::new(scenario),
            ..Invariants::default()
        }
    }

    /// A daemon starts with an empty memory.
    pub fn starts(&mut self, at: Duration, agent: &str) {
        if !self.has_election {
            self.rivals.insert(agent.into(), at);
        }
    }

    /// A daemon gets the signal to stop.
    pub fn stop_signalled(&mut self, at: Duration, agent: &str) {
        self.stopping.signalled(at, agent);
    }

    /// A daemon begins a call that fills no cache.
    ///
    /// # Errors
    /// When the daemon has got the signal to stop, and the call belongs to no sync that began before.
    pub fn begins(&mut self, at: Duration, call: &Call) -> Result<(), Breach> {
        self.stopping.begins(at, call)
    }

    /// A daemon sends a request that changes something; the request may be lost.
    ///
    /// # Errors
    /// When the daemon must not send it, or not now.
    pub fn sent(
        &mut self,
        at: Duration,
        now: Timestamp,
        call: &Call,
        picture: &Picture,
    ) -> Result<(), Breach> {
        fields::allowed(call)?;
        self.leadership.sent(at, call)?;
        self.names.sent(call)?;
        let now = Some(now).filter(|_| self.doubt == 0);
        self.deletion_order.deletion_sent(at, now, call, picture)?;
        if call.method == http::Method::DELETE {
            self.history.deletion_sent(text(&call.body, "/preconditions/uid"));
        }
        self.answers.sent(at, call, picture)?;
        self.decisions.sent(at, call, picture)
    }

    /// A daemon sends a request that changes something in another namespace than the one that all other invariants
    /// judge. `there` is the object, and `replica_sets` are all ReplicaSets.
    ///
    /// # Errors
    /// When the daemon must not send it, or not now.
    pub fn sent_elsewhere(
        &mut self,
        at: Duration,
        call: &Call,
        there: Option<&Value>,
        replica_sets: &[Value],
    ) -> Result<(), Breach> {
        fields::allowed(call)?;
        self.leadership.sent(at, call)?;
        self.owners_of.elsewhere(call, there, replica_sets)
    }

    /// A daemon gets a reply.
    pub fn answered(&mut self, at: Duration, call: &Call, answer: Answer, picture: &Picture) {
        if let Answer::Wait(_) = answer {
            self.decisions.waits(call);
        }
        self.answers.answered(at, call, &answer, picture);
    }

    /// A daemon gets an object that it has read.
    pub fn object_read(&mut self, at: Duration, call: &Call, object: &Value) {
        self.names.object_read(call, object);
        self.decisions.object_read(at, call, object);
    }

    /// A list with a label selector has shown a daemon these pods.
    pub fn selected(&mut self, call: &Call, pods: &[Arc<Value>]) {
        pods.iter().for_each(|pod| self.names.object_read(call, pod));
    }

    /// A list has shown a daemon all objects of a resource at the time `at`.
    pub fn listed(&mut self, at: Duration, agent: &Arc<str>, resource: &str) {
        if resource == "pods" {
            self.names.listed(at, agent);
        }
    }

    /// A daemon's creation was refused because an object of that name exists.
    pub fn name_was_taken(&mut self, call: &Call, picture: &Picture) {
        self.decisions.made(call);
        self.history.name_was_taken(call, picture);
    }

    /// A daemon gets the reply that its write has succeeded, and which version it created.
    pub fn write_succeeded(&mut self, at: Duration, call: &Call, version: u64) {
        self.names.write_succeeded(call);
        self.decisions.write_succeeded(at, call, version);
    }

    /// A call has ended, with whatever result; if it is retried, `retry_at` says when.
    ///
    /// # Errors
    /// When it should have ended before.
    pub fn ended(
        &mut self,
        at: Duration,
        agent: &str,
        id: u64,
        retry_at: Option<Duration>,
    ) -> Result<(), Breach> {
        self.stopping.ends(at, agent);
        self.answers.ended(at, id);
        let agent = self.decisions.ended(at, id, retry_at);
        agent.map_or(Ok(()), |agent| self.leadership.over(at, &agent))
    }

    /// Whether a write is abandoned, or was never waited for: writes that are not judged are not remembered.
    pub fn was_abandoned(&self, id: u64) -> bool {
        self.decisions.began(id).is_none()
    }

    /// A daemon's renewal of the Lease has been carried out.
    pub fn renewed(&mut self, at: Duration, call: &Call) {
        self.leadership.renewed(at, call);
    }

    /// A write has been committed.
    ///
    /// # Errors
    /// When it breaks an invariant.
    pub fn committed(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let known = commit.call.known.min(commit.at);
        let judged = if commit.call.of_daemon() { self.judge(commit, known) } else { Ok(()) };
        self.remember(commit);
        judged
    }

    fn judge(&mut self, commit: &Commit<'_>, since: Duration) -> Result<(), Breach> {
        self.owners_of.judge(commit, since, &self.owners)?;
        fields::foreign(commit)?;
        match &*commit.call.resource {
            "deployments" => fields::deployment(commit)?,
            "replicasets" => {
                fields::replica_set(commit, since, &self.annotations)?;
                self.judge_rollout(commit, since)?;
            }
            "pods" => self.judge_pods(commit, since)?,
            _ => {}
        }
        self.judge_replica_sets(commit, since)?;
        self.judge_counts(commit, since)?;
        self.judge_presence(commit, since)?;
        self.judge_generation(commit, since)?;
        self.judge_times(commit, since)?;
        fields::status(commit, &mut self.observed)
    }

    fn remember(&mut self, commit: &Commit<'_>) {
        let Commit { at, call, before, after, .. } = commit;
        self.owners_of.remember(commit);
        self.history.remember(commit);
        self.statuses.remember(commit);
        if call.resource == "pods" {
            self.deletion_order.remember(commit);
            self.losses.remember(commit);
            self.names.remember(commit);
            match (before, after) {
                (None, Some(pod)) => {
                    let made = self.made.entry(controller(pod).to_owned()).or_default();
                    let (by, uid) = (call.agent.clone(), text(pod, "/metadata/uid").to_owned());
                    made.happens(*at, Made { by, uid, abandoned: call.abandoned });
                }
                (Some(_), None) => {
                    self.freed.entry(beginning_of(&call.name).to_owned()).or_default().happens(*at, ());
                }
                _ => {}
            }
        }
        if call.resource != "pods"
            && let Some(before) = before
            && after.is_none_or(is_deleting)
        {
            self.deleted_since.entry(text(before, "/metadata/uid").to_owned()).or_insert(*at);
        }
        if let Some(after) = after {
            let uid = text(after, "/metadata/uid").to_owned();
            match &*call.resource {
                "deployments" => {
                    let annotations = after["metadata"]["annotations"].clone();
                    self.annotations.entry(uid.clone()).or_default().set(*at, annotations);
                    self.terms.entry(uid).or_default().set(*at, Terms::of(after));
                }
                "replicasets" => {
                    let size = number(after, "/spec/replicas");
                    let deployment = controller(after).to_owned();
                    let size_before = before.map_or(0, |replica_set| number(replica_set, "/spec/replicas"));
                    if size_before == 0 && size > 0 {
                        self.begun.insert(uid.clone(), call.known.min(*at));
                    }
                    // A ReplicaSet that the Deployment adopts was not its own before.
                    let is_its = before.is_some_and(|replica_set| controller(replica_set) == deployment);
                    let raised = size - if is_its { size_before } else { 0 };
                    if raised != 0 {
                        let raised = (call.author().into(), raised);
                        self.raises.entry(deployment.clone()).or_default().happens(*at, raised);
                    }
                    self.sizes.entry(uid.clone()).or_default().set(*at, size);
                    self.owners.entry(uid).or_default().set(*at, deployment);
                }
                _ => {
                    let labels = after["metadata"]["labels"].clone();
                    self.labels.entry(uid.clone()).or_default().set(*at, labels);
                    self.owners.entry(uid).or_default().set(*at, controller(after).to_owned());
                }
            }
        }
        if call.resource == "pods"
            && let (Some(before), Some(after)) = (before, after)
            && controller(before).is_empty()
            && !controller(after).is_empty()
        {
            self.adoptions.entry(controller(after).to_owned()).or_default().happens(*at, ());
        }
    }

    /// Whether an owner was being deleted, or was deleted, before `since`, or never existed.
    fn was_deleted(&self, commit: &Commit<'_>, owner: &str, since: Duration) -> bool {
        match self.deleted_since.get(owner) {
            Some(went) => *went < since,
            None => ["deployments", "replicasets"].iter().all(|kind| commit.by_uid(kind, owner).is_none()),
        }
    }

    /// S17: nothing is done for an owner that is deleted or being deleted, as far as the author can know.
    fn check_owner_exists(&self, commit: &Commit<'_>, owner: &str, since: Duration) -> Result<(), Breach> {
        if self.was_deleted(commit, owner, since) {
            return commit.breach("S17", format!("a write for {owner}, which is deleted or being deleted"));
        }
        Ok(())
    }
}

impl Terms {
    fn of(deployment: &Value) -> Self {
        let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
        let replicas = number(deployment, "/spec/replicas");
        let resolve = |field: &str, round_up: bool| match &rolling[field] {
            Value::String(percent) => {
                let percent: i64 = percent.trim_end_matches('%').parse().unwrap_or(0);
                let parts = replicas * percent;
                if round_up { (parts + 99) / 100 } else { parts / 100 }
            }
            number => number.as_i64().unwrap_or(0),
        };
        let (surge, unavailable) = (resolve("maxSurge", true), resolve("maxUnavailable", false));
        Terms {
            replicas,
            surge,
            unavailable: if surge == 0 && unavailable == 0 { 1 } else { unavailable.min(replicas) },
            recreate: deployment["spec"]["strategy"]["type"] == "Recreate",
            paused: deployment["spec"]["paused"] == true,
            history: number(deployment, "/spec/revisionHistoryLimit"),
            template: deployment["spec"]["template"].clone(),
        }
    }
}

/// How many pods a Deployment may have beyond its size, within the numbers that the API allows.
pub fn surge(deployment: &Value) -> i64 {
    match deployment["spec"]["strategy"]["type"].as_str() {
        Some("Recreate") => 0,
        _ => Terms::of(deployment).surge.min(i64::from(i32::MAX)),
    }
}

/// How many of a Deployment's pods may be unavailable.
pub fn unavailable(deployment: &Value) -> i64 {
    Terms::of(deployment).unavailable
}
