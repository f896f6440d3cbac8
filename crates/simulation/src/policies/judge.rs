//! The invariants over every committed write of a daemon: RP2 to RP4, RP6 to RP8 and RP10 to RP13.
//!
//! A write is judged by the objects at which it is committed and by what users have commanded. Where its author could not know
//! the latest terms, each of the terms that held within that time counts, if it favours the write.

mod size;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use super::terms::{NAME, Terms, annotation, revision, template};
use crate::engine::blind::Blind;
use crate::engine::breach::Breach;
use crate::engine::call::{Call, OpenCalls};
use crate::engine::network::{self, Dead};
use crate::engine::objects::{NAMESPACE, condition, is_available, is_deleting, is_live, number, owner, text};
use crate::engine::request_fault::RequestFault;
use windlass_apiserver::Sandbox;

/// How long the consequences of a change to pods last: others replace those that are gone.
const AFTERMATH: Duration = Duration::from_secs(10);

/// The API server of this game.
pub type Cluster = network::Cluster<Judge>;

/// All invariants and their state.
#[derive(Debug, Default)]
pub struct Judge {
    /// The changes that the author of a write may not know.
    blind: Blind,
    terms: Vec<(Duration, Terms)>,
    /// All commands that there have been.
    commands: Vec<String>,
    /// Since when a ReplicaSet first had so many available pods, by UID, revision and number.
    reached: BTreeMap<(String, i64, i64), Duration>,
    /// When a ReplicaSet last had all pods of the Deployment, by UID.
    complete: BTreeMap<String, Duration>,
    /// When a pod of a ReplicaSet last fitted no node, by UID.
    unfit: BTreeMap<String, Duration>,
    /// When an old pod last went first, and how many new ones were available then, by UID and revision of the new ReplicaSet.
    went_first: BTreeMap<(String, i64), (Duration, i64)>,
    /// When others last deleted a pod or made one worse.
    disturbed: Duration,
    /// When others last changed a ReplicaSet: they may have taken its state.
    tampered: Option<Duration>,
    /// The templates from which a daemon has rolled back.
    rolled_back: BTreeSet<String>,
    /// Whether the daemon that stores the next verdict is killed with that.
    pub kills_at_verdict: bool,
    calls: OpenCalls,
}

/// The objects before a write.
pub struct Before {
    object: Option<Arc<Value>>,
    replica_sets: Vec<Value>,
    pods: Vec<Value>,
}

/// A committed write and the objects before it.
struct Commit<'a> {
    at: Duration,
    now: Timestamp,
    call: &'a Call,
    before: Option<&'a Value>,
    after: Option<&'a Value>,
    replica_sets: &'a [Value],
    pods: &'a [Value],
}

impl Commit<'_> {
    fn breach(&self, invariant: &'static str, what: impl std::fmt::Display) -> Result<(), Breach> {
        Err(Breach::new(invariant, format!("{what}: {}", self.call)))
    }

    fn pods_of<'a>(&'a self, replica_set: &'a Value) -> impl Iterator<Item = &'a Value> {
        let uid = text(replica_set, "/metadata/uid");
        self.pods.iter().filter(move |pod| owner(pod) == uid)
    }

    fn serves(&self, replica_set: &Value, pod: &Value) -> bool {
        is_live(pod) && is_available(pod, number(replica_set, "/spec/minReadySeconds"), self.now)
    }

    fn available(&self, replica_set: &Value) -> i64 {
        self.pods_of(replica_set).filter(|pod| self.serves(replica_set, pod)).count() as i64
    }
}

fn size(replica_set: &Value) -> i64 {
    number(replica_set, "/spec/replicas")
}

/// The size of the Deployment that a ReplicaSet was last scaled for.
fn desired(replica_set: &Value) -> i64 {
    text(replica_set, "/metadata/annotations/deployment.kubernetes.io~1desired-replicas").parse().unwrap_or(0)
}

/// Whether the scheduler has found no node for a pod.
fn is_unfit(pod: &Value) -> bool {
    is_live(pod)
        && text(pod, "/spec/nodeName").is_empty()
        && condition(pod, "PodScheduled").is_some_and(|scheduled| scheduled["status"] == "False")
}

impl Judge {
    /// Invariants that have seen nothing yet. `staleness` is how old a decision may be when it is carried out.
    pub fn new(staleness: Duration) -> Self {
        Judge { blind: Blind::new(staleness), ..Judge::default() }
    }

    /// The terms that the author of a write may know.
    fn known(&self, at: Duration) -> &[(Duration, Terms)] {
        // Events at the same instant have no order.
        let from = self.blind.since(at).saturating_sub(Duration::from_millis(1));
        let first = self.terms.iter().rposition(|(since, _)| *since < from).unwrap_or(0);
        &self.terms[first..]
    }

    /// How old the times may be that the author of a write knew. They are written in whole seconds.
    fn age(&self, at: Duration) -> Duration {
        at - self.blind.since(at) + Duration::from_secs(1)
    }

    /// Whether others have changed pods so lately that a decision may not know the consequences.
    fn is_disturbed(&self, at: Duration) -> bool {
        self.disturbed + AFTERMATH >= at || self.blind.hides(self.disturbed + AFTERMATH, at)
    }

    /// Whether somebody has changed ReplicaSets so lately that a decision may know their state before.
    fn is_tampered(&self, at: Duration) -> bool {
        self.tampered.is_some_and(|then| then == at || self.blind.hides(then, at))
    }

    fn remember(&mut self, commit: &Commit<'_>, sandbox: &Sandbox) {
        self.remember_act(commit);
        let Some((_, terms)) = self.terms.last() else { return };
        let pods = sandbox.objects("Pod");
        let mut replica_sets = sandbox.objects("ReplicaSet");
        replica_sets.retain(|all| !is_deleting(all));
        let sum: i64 = replica_sets.iter().map(size).sum();
        for replica_set in replica_sets {
            let uid = text(&replica_set, "/metadata/uid").to_owned();
            let own = || pods.iter().filter(|pod| owner(pod) == uid);
            let available = own().filter(|pod| commit.serves(&replica_set, pod)).count() as i64;
            if own().any(is_unfit) {
                self.unfit.insert(uid.clone(), commit.at);
            }
            for count in 1..=available {
                self.reached.entry((uid.clone(), revision(&replica_set), count)).or_insert(commit.at);
            }
            // Nothing proves a template of which there was no pod.
            if available >= terms.replicas.max(1)
                && size(&replica_set) == sum
                && sum == terms.replicas
                && template(&replica_set) == terms.template
            {
                self.complete.insert(uid, commit.at);
            }
        }
    }

    /// Remembers what this write means for later ones.
    fn remember_act(&mut self, commit: &Commit<'_>) {
        let call = commit.call;
        match &*call.resource {
            "deployments" => {
                let Some(deployment) = commit.after else { return };
                let terms = Terms::of(deployment);
                if self.terms.last().is_none_or(|(_, last)| *last != terms) {
                    self.terms.push((commit.at, terms));
                }
                let command = annotation(deployment, "rollout");
                if !command.is_empty() && self.commands.last().is_none_or(|last| last != command) {
                    self.commands.push(command.to_owned());
                }
            }
            "replicasets" if call.of_daemon() && call.subresource.is_empty() => {
                self.blind.writes(&call.agent, commit.at);
            }
            "replicasets" if !call.of_daemon() => {
                self.tampered = Some(commit.at);
                // With the state goes the only record of a rollback, and of an old pod that went first.
                let Some(replica_set) = commit.before else { return };
                let uid = text(replica_set, "/metadata/uid");
                self.went_first.retain(|(of, _), _| of != uid);
                self.rolled_back.remove(&template(replica_set).to_string());
            }
            "pods" if !call.of_daemon() && call.method != Method::POST => {
                let is_worse = |after: &Value| {
                    let serves = |pod: &Value| is_live(pod) && is_available(pod, 0, commit.now);
                    commit.before.is_some_and(|before| serves(before) && !serves(after))
                };
                if commit.after.is_none_or(is_worse) || commit.after.is_some_and(is_deleting) {
                    self.disturbed = commit.at;
                }
            }
            _ => {}
        }
    }

    fn judge(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        match &*commit.call.resource {
            "deployments" if commit.call.subresource.is_empty() => self.judge_template(commit),
            "replicasets" if commit.call.subresource.is_empty() => {
                self.judge_verdict(commit)?;
                self.judge_size(commit)
            }
            _ => Ok(()),
        }
    }
}

fn kind(call: &Call) -> Option<&'static str> {
    match &*call.resource {
        "deployments" => Some("Deployment"),
        "replicasets" => Some("ReplicaSet"),
        "pods" => Some("Pod"),
        _ => None,
    }
}

impl network::Judge for Judge {
    type Before = Before;

    fn before(&self, sandbox: &Sandbox, call: &Call) -> Option<Before> {
        let mut replica_sets = sandbox.objects("ReplicaSet");
        replica_sets.retain(|all| !is_deleting(all));
        let object = sandbox.object(kind(call)?, NAMESPACE, &call.name);
        Some(Before { object, replica_sets, pods: sandbox.objects("Pod") })
    }

    fn committed(&mut self, moment: network::Moment<'_>, before: Before) -> Result<(), Breach> {
        let network::Moment { sandbox, at, now, call } = moment;
        let after = kind(call).and_then(|kind| sandbox.object(kind, NAMESPACE, &call.name));
        if before.object == after {
            return Ok(());
        }
        let Before { object, replica_sets, pods } = &before;
        let (before, after) = (object.as_deref(), after.as_deref());
        let commit = Commit { at, now, call, before, after, replica_sets, pods };
        let is_judged = call.of_daemon() && !call.abandoned;
        let judged = if is_judged { self.judge(&commit) } else { Ok(()) };
        let judged = judged.and_then(|()| self.judge_return(&commit));
        self.remember(&commit, sandbox);
        judged
    }

    fn fault(&mut self, moment: network::Moment<'_>, may_fail: bool, _: &mut Dead) -> Option<RequestFault> {
        let state = annotation(&moment.call.body, "rollout-state");
        let is_verdict = self.kills_at_verdict && moment.call.of_daemon() && state.contains("\"failed\"");
        if !may_fail || !is_verdict {
            return None;
        }
        self.kills_at_verdict = false;
        Some(RequestFault::Kill { carried_out: true })
    }

    fn open_calls(&mut self) -> Option<&mut OpenCalls> {
        Some(&mut self.calls)
    }

    fn is_blind(&mut self, until: Duration) {
        self.blind.lags_until(until);
    }
}

/// The Deployment, as it is stored.
pub fn deployment(sandbox: &Sandbox) -> Option<Arc<Value>> {
    sandbox.object("Deployment", NAMESPACE, NAME)
}
