//! The invariants over every committed write of a daemon: RP2 to RP4, RP6 to RP8 and RP10 to RP13.
//!
//! A write is judged by the objects at which it is committed and by what users have commanded. Where its author could not know
//! the latest terms, each of the terms that held within that time counts, if it favours the write.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use super::terms::{NAME, Terms, annotation, approves, owner, revision, template, written};
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::network;
use crate::engine::objects::{NAMESPACE, is_available, is_deleting, is_live, number, text};
use windlass_apiserver::Sandbox;

/// How old a decision may be while caches lag.
const LAG: Duration = Duration::from_secs(60);

/// The API server of this game.
pub type Cluster = network::Cluster<Judge>;

/// All invariants and their state.
#[derive(Debug, Default)]
pub struct Judge {
    /// How old a decision may be when it is carried out.
    staleness: Duration,
    blind_until: Duration,
    terms: Vec<(Duration, Terms)>,
    /// All commands that there have been.
    commands: Vec<String>,
    /// Since when a ReplicaSet first had so many available pods, by UID, revision and number.
    reached: BTreeMap<(String, i64, i64), Duration>,
    /// ReplicaSets that have had all pods of the Deployment, by UID.
    complete: BTreeSet<String>,
    /// When others last deleted a pod or made one worse.
    disturbed: Duration,
    /// When each daemon last resized a ReplicaSet.
    resized: BTreeMap<Arc<str>, Duration>,
    /// The templates from which a daemon has rolled back.
    rolled_back: BTreeSet<String>,
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

    fn available(&self, replica_set: &Value) -> i64 {
        let seconds = number(replica_set, "/spec/minReadySeconds");
        let serves = |pod: &&Value| is_live(pod) && is_available(pod, seconds, self.now);
        self.pods_of(replica_set).filter(serves).count() as i64
    }
}

fn size(replica_set: &Value) -> i64 {
    number(replica_set, "/spec/replicas")
}

impl Judge {
    /// Invariants that have seen nothing yet.
    pub fn new(staleness: Duration) -> Self {
        Judge { staleness, ..Judge::default() }
    }

    fn staleness(&self, at: Duration) -> Duration {
        // Events at the same instant have no order, and times are written in whole seconds.
        let least = Duration::from_millis(1);
        if at < self.blind_until { LAG } else { self.staleness + least }
    }

    /// The terms that the author of a write may know.
    fn known(&self, at: Duration) -> &[(Duration, Terms)] {
        let from = at.saturating_sub(self.staleness(at));
        let first = self.terms.iter().rposition(|(since, _)| *since < from).unwrap_or(0);
        &self.terms[first..]
    }

    fn remember(&mut self, commit: &Commit<'_>, sandbox: &Sandbox) {
        if commit.call.resource == "deployments"
            && let Some(deployment) = commit.after
        {
            let terms = Terms::of(deployment);
            if self.terms.last().is_none_or(|(_, last)| *last != terms) {
                self.terms.push((commit.at, terms));
            }
            let command = annotation(deployment, "rollout");
            if !command.is_empty() && self.commands.last().is_none_or(|last| last != command) {
                self.commands.push(command.to_owned());
            }
        }
        if commit.call.of_daemon()
            && commit.call.resource == "replicasets"
            && commit.call.subresource.is_empty()
        {
            self.resized.insert(commit.call.agent.clone(), commit.at);
        }
        if commit.call.resource == "pods" && !commit.call.of_daemon() && commit.call.method != Method::POST {
            let is_worse = |after: &Value| {
                let serves = |pod: &Value| is_live(pod) && is_available(pod, 0, commit.now);
                commit.before.is_some_and(|before| serves(before) && !serves(after))
            };
            if commit.after.is_none_or(is_worse) || commit.after.is_some_and(is_deleting) {
                self.disturbed = commit.at;
            }
        }
        let Some((_, terms)) = self.terms.last() else { return };
        let pods = sandbox.objects("Pod");
        for replica_set in sandbox.objects("ReplicaSet") {
            let uid = text(&replica_set, "/metadata/uid").to_owned();
            let seconds = number(&replica_set, "/spec/minReadySeconds");
            let serves =
                |pod: &&Value| owner(pod) == uid && is_live(pod) && is_available(pod, seconds, commit.now);
            let available = pods.iter().filter(serves).count() as i64;
            for count in 1..=available {
                self.reached.entry((uid.clone(), revision(&replica_set), count)).or_insert(commit.at);
            }
            if available >= terms.replicas && size(&replica_set) >= terms.replicas {
                self.complete.insert(uid);
            }
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

    /// RP8: a daemon changes the template once per template, only where failures roll back, and to one that serves.
    fn judge_template(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
        let (old, new) = (template(before), template(after));
        if old == new {
            return Ok(());
        }
        if !self.known(commit.at).iter().any(|(_, terms)| terms.rolls_back) {
            return commit.breach("RP8", "a template is changed, and failures do not roll back");
        }
        if !self.rolled_back.insert(old.to_string()) {
            return commit.breach("RP8", "a template is taken back a second time");
        }
        let is_calm = commit.at.saturating_sub(self.disturbed) > self.staleness(commit.at);
        let serves = |replica_set: &&Value| template(replica_set) == new && commit.available(replica_set) > 0;
        if is_calm && !commit.replica_sets.iter().any(|all| serves(&all)) {
            return commit.breach("RP8", "a template is taken back to one that does not serve");
        }
        Ok(())
    }

    /// RP6: a verdict names a pod that has failed for long enough, or a command, or the deadline.
    fn judge_verdict(&self, commit: &Commit<'_>) -> Result<(), Breach> {
        let state = |object: Option<&Value>| -> Value {
            let text = object.map(|object| annotation(object, "rollout-state")).unwrap_or_default();
            serde_json::from_str(text).unwrap_or_default()
        };
        let (before, after) = (state(commit.before), state(commit.after));
        let verdict = &after["failed"];
        // Another hash: somebody has copied it, and it means nothing.
        let Some(replica_set) = commit.after.filter(|_| verdict.is_object()) else { return Ok(()) };
        if before["failed"] == *verdict && before["hash"] == after["hash"] {
            return Ok(());
        }
        let cause = verdict["cause"].as_str().unwrap_or_default();
        if cause == "Aborted" {
            let command = format!("abort {}", revision(replica_set));
            return match self.commands.contains(&command) {
                true => Ok(()),
                false => commit.breach("RP6", "nobody has aborted this revision"),
            };
        }
        let known = || self.known(commit.at).iter().map(|(_, terms)| terms);
        if cause.starts_with("no progress") {
            return match known().any(|terms| terms.acts_on_failure) {
                true => Ok(()),
                false => commit.breach("RP6", "a verdict is stored, and nothing follows from it"),
            };
        }
        let Some(patience) = known().filter_map(|terms| terms.fail_after).min() else {
            return commit.breach("RP6", format!("{cause:?}, and no pod can fail the rollout"));
        };
        let named = cause.split(':').next().unwrap_or_default();
        let pod = commit.pods.iter().find(|pod| text(pod, "/metadata/name") == named);
        if let Some(pod) = pod.filter(|pod| is_live(pod)) {
            let least = Duration::from_secs(patience).saturating_sub(self.staleness(commit.at));
            let created = text(pod, "/metadata/creationTimestamp");
            if is_available(pod, 0, commit.now) && commit.at.saturating_sub(self.disturbed) > LAG {
                return commit.breach("RP6", format!("{named} is available"));
            }
            if *created > *written(commit.now, least.saturating_sub(Duration::from_secs(1))) {
                return commit.breach("RP6", format!("{named} is younger than {patience} s"));
            }
        }
        Ok(())
    }

    /// RP2 to RP4, RP7 and RP10 to RP13, where a ReplicaSet grows or is created.
    fn judge_size(&self, commit: &Commit<'_>) -> Result<(), Breach> {
        let Some(after) = commit.after else { return Ok(()) };
        let from = commit.before.map_or(0, size);
        let to = size(after);
        let is_created = commit.before.is_none();
        if to <= from && !is_created {
            return Ok(());
        }
        let uid = text(after, "/metadata/uid");
        let others = || commit.replica_sets.iter().filter(|all| text(all, "/metadata/uid") != uid);
        let sum = to + others().map(size).sum::<i64>();
        let known: Vec<&Terms> = self.known(commit.at).iter().map(|(_, terms)| terms).collect();
        // The author of a creation that arrives late knows of no other ReplicaSet.
        // Nor does one of two leaders know what the other has just written.
        let staleness = self.staleness(commit.at).max(Duration::from_secs(1));
        let is_alone = self
            .resized
            .iter()
            .all(|(who, at)| *who == commit.call.agent || commit.at.saturating_sub(*at) > staleness);
        if !is_created && is_alone && known.iter().all(|terms| sum > terms.most) {
            return commit.breach("RP10", format!("{sum} pods are wanted"));
        }
        let is_new = |terms: &&&Terms| terms.template == template(after);
        let has_old_pods = others().any(|other| size(other) > 0);
        let known: Vec<&Terms> = known.into_iter().filter(|terms| is_new(&terms)).collect();
        let is_old = self.terms.last().is_some_and(|(_, terms)| terms.template != template(after));
        if known.is_empty() || !has_old_pods || is_old {
            // One that is old by now may take the place of a canary that was replaced.
            return Ok(());
        }
        self.judge_halt(commit, after)?;
        self.judge_room(commit, after, &known, to)?;
        if self.complete.contains(uid) {
            return Ok(());
        }
        let allowed = |terms: &&&Terms| self.allows(commit, terms, after, from, to);
        match known.iter().any(|terms| allowed(&terms)) {
            true => Ok(()),
            false => commit.breach("RP2", format!("it grows from {from} to {to}")),
        }
    }

    /// RP7: while a verdict stands, the failed ReplicaSet does not grow.
    fn judge_halt(&self, commit: &Commit<'_>, after: &Value) -> Result<(), Breach> {
        let state: Value = serde_json::from_str(annotation(after, "rollout-state")).unwrap_or_default();
        let is_own = state["hash"] == after["metadata"]["labels"]["pod-template-hash"];
        let to = state["failed"]["to"].as_str().unwrap_or_default();
        let serves = commit
            .replica_sets
            .iter()
            .any(|all| text(all, "/metadata/labels/pod-template-hash") == to && size(all) > 0);
        let is_told = self.known(commit.at).iter().all(|(_, terms)| terms.acts_on_failure);
        match is_own && serves && is_told && state["failed"].is_object() {
            true => commit.breach("RP7", "a ReplicaSet grows that has failed"),
            false => Ok(()),
        }
    }

    /// RP11: terminating pods take room where the policy counts them.
    fn judge_room(
        &self,
        commit: &Commit<'_>,
        after: &Value,
        known: &[&Terms],
        to: i64,
    ) -> Result<(), Breach> {
        let is_calm =
            commit.at.saturating_sub(self.disturbed) > self.staleness(commit.at) + Duration::from_secs(10);
        let grows = to > commit.before.map_or(0, size);
        if !grows || !is_calm || !known.iter().all(|terms| terms.counts_ending) || known.len() > 1 {
            return Ok(());
        }
        // An autoscaler's change is spread in proportion before anything else.
        let recorded = text(after, "/metadata/annotations/deployment.kubernetes.io~1desired-replicas");
        let before = commit.before.map_or(recorded, |before| {
            text(before, "/metadata/annotations/deployment.kubernetes.io~1desired-replicas")
        });
        let uid = text(after, "/metadata/uid");
        let runs = |pod: &&Value| !matches!(text(pod, "/status/phase"), "Failed" | "Succeeded");
        let mut total = 0;
        for replica_set in commit.replica_sets {
            let size = if text(replica_set, "/metadata/uid") == uid { to } else { size(replica_set) };
            let pods: Vec<&Value> = commit.pods_of(replica_set).filter(runs).collect();
            let live = pods.iter().filter(|pod| is_live(pod)).count() as i64;
            total += size.max(live) + (pods.len() as i64 - live);
        }
        let Some(most) = known.iter().map(|terms| terms.most).max() else { return Ok(()) };
        match total > most && before == recorded {
            true => commit.breach("RP11", format!("{total} pods run or are wanted, {most} may")),
            false => Ok(()),
        }
    }

    /// RP2 to RP4, RP12, RP13: whether these terms allow the ReplicaSet of the template this size.
    fn allows(&self, commit: &Commit<'_>, terms: &Terms, after: &Value, from: i64, to: i64) -> bool {
        let desired = |object: &Value| {
            text(object, "/metadata/annotations/deployment.kubernetes.io~1desired-replicas")
                .parse()
                .unwrap_or(0)
        };
        // Where spec.replicas has changed, those that exist are scaled, whatever holds the rollout.
        let is_scaled = commit.before.is_some_and(|before| desired(before) != terms.replicas)
            || commit.replica_sets.iter().any(|all| size(all) > 0 && desired(all) != terms.replicas);
        if terms.is_invalid() {
            return commit.before.is_some() && is_scaled;
        }
        let Some(steps) = &terms.steps else { return false };
        let staleness = self.staleness(commit.at);
        if terms.is_bypassed(&written(commit.now, staleness + Duration::from_secs(1))) {
            return true;
        }
        let (uid, current) = (text(after, "/metadata/uid").to_owned(), revision(after));
        let mut passed_at = Duration::ZERO;
        for (at, (bound, wait)) in steps.iter().enumerate() {
            // A last one of all pods holds nothing; one that is exceeded is certainly passed.
            if *bound >= terms.replicas || to <= *bound {
                return true;
            }
            if from > *bound || self.commands.iter().any(|command| approves(command, current, at + 1)) {
                continue;
            }
            let reached = self.reached.get(&(uid.clone(), current, *bound)).copied();
            let Some((reached, wait)) = reached.zip(*wait) else { return false };
            passed_at = reached.max(passed_at) + Duration::from_secs(wait);
            let is_calm = commit.at.saturating_sub(self.disturbed) > staleness + Duration::from_secs(10);
            let has_enough = commit.available(after) >= *bound || !is_calm;
            // Times are written in whole seconds.
            if commit.at + Duration::from_secs(1) < passed_at || !has_enough {
                return false;
            }
        }
        true
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
        self.remember(&commit, sandbox);
        judged
    }

    fn is_blind(&mut self, until: Duration) {
        self.blind_until = self.blind_until.max(until);
    }
}

/// The Deployment, as it is stored.
pub fn deployment(sandbox: &Sandbox) -> Option<Arc<Value>> {
    sandbox.object("Deployment", NAMESPACE, NAME)
}
