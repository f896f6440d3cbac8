//! S5, S7 for rollbacks, S8 for the order, S9, and S15 to S17 for ReplicaSets: what a Deployment does with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::status::fingerprint;
use super::window::Window;
use super::{Commit, Invariants, Terms};
use crate::deployments::knowledge::owner_name;
use crate::deployments::objects::{bare, controller};
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::objects::{Picture, is_deleting, number, text};

const ANNOTATIONS: &str = "/metadata/annotations";
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// State about ReplicaSets.
#[derive(Debug, Default)]
pub(super) struct History {
    /// When each was last written, by UID.
    changed: BTreeMap<String, Duration>,
    /// When each was last written except for its status, and by which client, by UID.
    resized: BTreeMap<String, (Duration, String)>,
    /// The same, without adoptions and releases.
    scaled: BTreeMap<String, (Duration, String)>,
    /// When a daemon last wrote a Deployment's status, by UID and daemon.
    status_written: BTreeMap<(String, Arc<str>), Duration>,
    /// Their labels, by UID.
    labels: BTreeMap<String, Window<Value>>,
    /// The names that were created for a template, by the Deployment's name and the template.
    names: BTreeMap<(String, u64), BTreeSet<String>>,
    /// The highest collisionCount of a Deployment, by name.
    collisions: BTreeMap<String, i64>,
    /// The highest revision that a daemon deleted, by the Deployment's UID.
    trimmed: BTreeMap<String, i64>,
    /// ReplicaSets for which a deletion was sent.
    deletions_sent: BTreeSet<String>,
    /// The sizes that ReplicaSets were to have, by UID.
    sized: BTreeMap<String, Window<RecordedSize>>,
    /// The daemons whose creation found another ReplicaSet under the name, and for which Deployment, by name.
    met: BTreeSet<(String, String)>,
}

/// The size of a ReplicaSet, and what its annotations recorded of the Deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedSize {
    size: i64,
    pub(super) desired: Option<i64>,
    most: Option<i64>,
}

impl RecordedSize {
    pub(super) fn of(replica_set: &Value) -> Self {
        // An annotation that is not a number counts as absent.
        let annotation = |name: &str| {
            let written = text(replica_set, &format!("{ANNOTATIONS}/deployment.kubernetes.io~1{name}"));
            written.parse::<i32>().ok().filter(|count| *count >= 0).map(i64::from)
        };
        let (desired, most) = (annotation("desired-replicas"), annotation("max-replicas"));
        RecordedSize { size: number(replica_set, "/spec/replicas"), desired, most }
    }
}

impl History {
    pub(super) fn remember(&mut self, commit: &Commit<'_>) {
        let Some(object) = commit.after.or(commit.before) else { return };
        let uid = text(object, "/metadata/uid").to_owned();
        if commit.call.resource == "replicasets" {
            let owner = commit.before.map_or("", controller);
            if commit.call.of_daemon() && commit.call.method == Method::DELETE {
                let highest = self.trimmed.entry(owner.to_owned()).or_default();
                *highest = revision(object).max(*highest);
            } else if commit.after.is_none_or(|after| is_deleting(after) || controller(after) != owner) {
                // Another client removes a ReplicaSet, possibly with the highest revision.
                self.trimmed.remove(owner);
            }
            // Another client has written another revision, so that the highest one is no longer known.
            if !commit.call.of_daemon() && commit.before.map(revision) != commit.after.map(revision) {
                self.trimmed.remove(owner);
            }
            self.changed.insert(uid.clone(), commit.at);
            if commit.call.subresource.is_empty() {
                let written = (commit.at, commit.call.author().to_owned());
                if commit.before.map(controller) == commit.after.map(controller) {
                    self.scaled.insert(uid.clone(), written.clone());
                }
                self.resized.insert(uid.clone(), written);
            }
            self.sized.entry(uid.clone()).or_default().set(commit.at, RecordedSize::of(object));
            self.labels.entry(uid).or_default().set(commit.at, object["metadata"]["labels"].clone());
        } else if commit.call.resource == "deployments" {
            if commit.call.of_daemon() && commit.call.subresource == "status" {
                self.status_written.insert((uid, commit.call.agent.clone()), commit.at);
            }
            let highest = self.collisions.entry(commit.call.name.clone()).or_default();
            *highest = (*highest).max(number(object, "/status/collisionCount"));
        }
    }

    /// A daemon sends a deletion.
    pub(super) fn deletion_sent(&mut self, uid: &str) {
        self.deletions_sent.insert(uid.to_owned());
    }

    /// A daemon's creation was refused because an object of that name exists.
    pub(super) fn name_was_taken(&mut self, call: &Call, picture: &Picture) {
        let there = picture.get("replicasets").and_then(|replica_sets| replica_sets.get(&call.name));
        let template = |replica_set: &Value| fingerprint(&replica_set["spec"]["template"]);
        if let Some(there) = there.filter(|_| call.method == Method::POST && call.resource == "replicasets")
            && (controller(there) != controller(&call.body)
                || is_deleting(there)
                || template(there) != template(&call.body))
        {
            self.met.insert((call.agent.to_string(), owner_name(&call.body).to_owned()));
        }
    }

    /// The highest revision of a Deployment that its daemons deleted.
    pub(super) fn trimmed(&self, deployment: &str) -> i64 {
        self.trimmed.get(deployment).copied().unwrap_or(0)
    }

    /// Whether no client but `agent` has written to a ReplicaSet since, except for its status.
    pub(super) fn is_left_alone(&self, replica_set: &Value, agent: &str, since: Duration) -> bool {
        let resized = self.resized.get(text(replica_set, "/metadata/uid"));
        resized.is_none_or(|(at, who)| *at < since || who == agent)
    }

    /// Whether an author that knows what happened before `since` has seen this object as it is.
    pub(super) fn is_known(&self, replica_set: &Value, since: Duration) -> bool {
        self.changed.get(text(replica_set, "/metadata/uid")).is_some_and(|changed| *changed < since)
    }
}

fn revision(replica_set: &Value) -> i64 {
    text(replica_set, &format!("{ANNOTATIONS}/deployment.kubernetes.io~1revision")).parse().unwrap_or(0)
}

impl Invariants {
    pub(super) fn judge_replica_sets(&mut self, commit: &Commit<'_>, since: Duration) -> Result<(), Breach> {
        let Some(object) = commit.after.or(commit.before) else { return Ok(()) };
        if commit.call.resource == "deployments" {
            return match &*commit.call.subresource {
                "status" => self.collided(commit),
                _ => self.rolled_back(commit, since),
            };
        }
        if commit.call.resource != "replicasets" || commit.call.subresource == "status" {
            return Ok(());
        }
        if let (Some(before), Some(after)) = (commit.before, commit.after)
            && controller(before) != controller(after)
        {
            return self.judge_handover(commit, before, after, since);
        }
        let uid = controller(object);
        let Some(deployment) = commit.by_uid("deployments", uid) else { return Ok(()) };
        match (&commit.call.method, commit.before, commit.after) {
            (&Method::POST, _, Some(replica_set)) => {
                self.named(commit, text(deployment, "/metadata/name"), replica_set)
            }
            (&Method::DELETE, Some(replica_set), _) => self.trimmed_in_order(commit, replica_set, uid, since),
            (_, Some(before), Some(after)) => self.in_proportion(commit, before, after, uid, since),
            _ => Ok(()),
        }
    }

    /// S15 and S16 for a ReplicaSet.
    fn judge_handover(
        &self,
        commit: &Commit<'_>,
        before: &Value,
        after: &Value,
        since: Duration,
    ) -> Result<(), Breach> {
        match (controller(before), controller(after)) {
            ("", owner) => {
                // The author could not know of a deletion meanwhile.
                self.check_owner_exists(commit, owner, since)?;
                let selected = self.statuses.selects(owner, &after["metadata"]["labels"]);
                if !selected || is_deleting(before) {
                    return commit.breach("S15", "a ReplicaSet adopted that must not be");
                }
            }
            (owner, "") => {
                let mut labels = self.history.labels.get(text(after, "/metadata/uid")).into_iter();
                let mut labels = labels.by_ref().flat_map(|labels| labels.since(since));
                let is_there = commit.by_uid("deployments", owner).is_some();
                if is_there && labels.all(|labels| self.statuses.selects(owner, labels)) {
                    return commit.breach("S16", "a ReplicaSet released that the selector matches");
                }
            }
            (owner, _) => return commit.breach("S15", format!("a ReplicaSet adopted that {owner} controls")),
        }
        Ok(())
    }

    /// S5: a template has at most one name more than there were collisions.
    fn named(&mut self, commit: &Commit<'_>, deployment: &str, replica_set: &Value) -> Result<(), Breach> {
        let hash = text(replica_set, "/metadata/labels/pod-template-hash");
        if hash.is_empty() || commit.call.name != format!("{deployment}-{hash}") {
            return commit.breach("S5", format!("a ReplicaSet of {deployment} with the hash {hash:?}"));
        }
        let key = (deployment.to_owned(), fingerprint(&replica_set["spec"]["template"]));
        let names = self.history.names.entry(key).or_default();
        names.insert(commit.call.name.clone());
        let collisions = self.history.collisions.get(deployment).copied().unwrap_or(0);
        if i64::try_from(names.len()).unwrap_or(i64::MAX) > collisions + 1 {
            return commit.breach("S5", format!("{names:?} for one template, after {collisions} collisions"));
        }
        Ok(())
    }

    /// S5: collisionCount rises one by one, and each time only after a creation found another ReplicaSet under the
    /// name.
    fn collided(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
        let of = |deployment| number(deployment, "/status/collisionCount");
        match of(after) - of(before) {
            0 => Ok(()),
            1 if self.history.met.remove(&(commit.call.agent.to_string(), commit.call.name.clone())) => {
                Ok(())
            }
            1 => commit.breach("S5", "collisionCount rises without a collision"),
            rise => commit.breach("S5", format!("collisionCount rises by {rise}")),
        }
    }

    /// S7: a rollback restores the highest revision with another template than the current one. The current one is
    /// the latest, whether it has a ReplicaSet or not, and whatever revision that has.
    fn rolled_back(&self, commit: &Commit<'_>, since: Duration) -> Result<(), Breach> {
        let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
        let template = &after["spec"]["template"];
        if before["metadata"]["annotations"][ROLLBACK_TO] != "0" || before["spec"]["template"] == *template {
            return Ok(());
        }
        if after["metadata"]["annotations"][ROLLBACK_TO].is_string() {
            return commit.breach("S7", "a rollback that does not remove its request");
        }
        let replica_sets = commit.owned("replicasets", text(before, "/metadata/uid"));
        let others = replica_sets.iter().filter(|replica_set| {
            bare(&replica_set["spec"]["template"]) != bare(&before["spec"]["template"])
        });
        let Some(last) = others.max_by_key(|replica_set| revision(replica_set)) else { return Ok(()) };
        // The author may not know that the last one was deleted, either.
        let known = replica_sets.iter().all(|replica_set| self.history.is_known(replica_set, since))
            && self
                .sizes
                .keys()
                .filter_map(|replica_set| self.deleted_since.get(replica_set))
                .all(|at| *at < since);
        if known && bare(&last["spec"]["template"]) != *template {
            let name = text(last, "/metadata/name");
            return commit.breach("S7", format!("a rollback to another revision than that of {name}"));
        }
        Ok(())
    }

    /// S8: the lowest revisions are deleted first.
    fn trimmed_in_order(
        &mut self,
        commit: &Commit<'_>,
        replica_set: &Value,
        deployment: &str,
        since: Duration,
    ) -> Result<(), Breach> {
        let terms = self.terms.get(deployment).into_iter().flat_map(|terms| terms.since(since));
        let templates: Vec<u64> = terms.map(|terms| fingerprint(&terms.template)).collect();
        for other in commit.owned("replicasets", deployment) {
            let fields = ["/spec/replicas", "/status/replicas"];
            let at_rest = fields.iter().all(|field| number(other, field) == 0)
                && number(other, "/status/observedGeneration") == number(other, "/metadata/generation");
            if at_rest
                && revision(other) < revision(replica_set)
                && !is_deleting(other)
                && !self.history.deletions_sent.contains(text(other, "/metadata/uid"))
                && !templates.contains(&fingerprint(&other["spec"]["template"]))
                && self.history.is_known(other, since)
            {
                let name = text(other, "/metadata/name");
                return commit.breach("S8", format!("{name} has a lower revision and is kept"));
            }
        }
        Ok(())
    }

    /// S9: a ReplicaSet without replicas does not get any, and once the last of several ReplicaSets has been resized
    /// for a new `spec.replicas`, all allowed replicas are distributed, and none was resized in the opposite
    /// direction or beyond its share. Rounding changes at most half a pod for each ReplicaSet.
    fn in_proportion(
        &self,
        commit: &Commit<'_>,
        before: &Value,
        after: &Value,
        deployment: &str,
        since: Duration,
    ) -> Result<(), Breach> {
        let Some(terms) = self.terms.get(deployment) else { return Ok(()) };
        let terms: Vec<&Terms> = terms.since(since).collect();
        let [terms] = terms[..] else { return Ok(()) };
        if terms.recreate || RecordedSize::of(before).desired == Some(terms.replicas) {
            return Ok(());
        }
        // After an interrupted plan another one follows, whose steps do not add up by themselves.
        let Some(began) = self.decisions.began(commit.call.id) else { return Ok(()) };
        let uid = text(after, "/metadata/uid");
        let replica_sets = commit.owned("replicasets", deployment);
        let now = |replica_set: &Value| {
            RecordedSize::of(if text(replica_set, "/metadata/uid") == uid { after } else { replica_set })
        };
        let found = |replica_set: &Value| {
            let sized = self.history.sized.get(text(replica_set, "/metadata/uid"));
            sized.and_then(|sized| sized.since(began).next().copied()).unwrap_or(now(replica_set))
        };
        let scaled = |replica_set: &Value| self.history.scaled.get(text(replica_set, "/metadata/uid"));
        // Another sync may have followed within the instant: a status ends a sync, and no sync writes to a ReplicaSet
        // twice. A plan that begins at the instant of a status is not judged.
        let written = self.history.status_written.get(&(deployment.to_owned(), commit.call.agent.clone()));
        if written.is_some_and(|at| *at >= began) {
            return Ok(());
        }
        let writes = |replica_set: &Value| {
            let sized = self.history.sized.get(text(replica_set, "/metadata/uid"));
            sized.map_or(0, |sized| sized.happened(began).count())
                + usize::from(text(replica_set, "/metadata/uid") == uid)
        };
        if replica_sets.iter().any(|replica_set| writes(replica_set) > 1) {
            return Ok(());
        }
        let sized = || {
            replica_sets
                .iter()
                .map(|replica_set| found(replica_set))
                .filter(|replica_set| replica_set.size > 0)
        };
        let is_due =
            sized().any(|replica_set| replica_set.desired.is_some_and(|desired| desired != terms.replicas));
        // An annotation that is not a number makes no scaling due: then the write is a step of the rollout.
        if !is_due && !terms.paused {
            return Ok(());
        }
        if found(before).size == 0 {
            let alone =
                |replica_set: &&Value| self.history.is_left_alone(replica_set, &commit.call.agent, since);
            if now(before).size > 0 && sized().count() > 1 && is_due && replica_sets.iter().all(alone) {
                return commit.breach("S9", "a ReplicaSet without pods is scaled up by proportional scaling");
            }
            return Ok(());
        }
        let in_this_plan = |replica_set: &Value| {
            scaled(replica_set).is_some_and(|(at, who)| *at >= began && **who == *commit.call.agent)
        };
        // Another sync may have followed within the instant.
        if replica_sets.iter().any(|replica_set| found(replica_set).size == 0 && now(replica_set).size > 0) {
            return Ok(());
        }
        let active: Vec<&Value> =
            replica_sets.into_iter().filter(|replica_set| found(replica_set).size > 0).collect();
        let is_done = |replica_set: &Value| {
            text(replica_set, "/metadata/uid") == uid
                || now(replica_set).size == 0
                || in_this_plan(replica_set) && now(replica_set).desired == Some(terms.replicas)
        };
        let wanted = active.iter().filter(|replica_set| now(replica_set).size > 0).count();
        if wanted < 2 || now(before).size == 0 || !active.iter().all(|replica_set| is_done(replica_set)) {
            return Ok(());
        }
        let sum = |of: &dyn Fn(&Value) -> RecordedSize| {
            active.iter().map(|replica_set| of(replica_set).size).sum::<i64>()
        };
        let (sum, sum_before, allowed) = (sum(&now), sum(&found), terms.replicas + terms.surge);
        if sum != allowed {
            return commit
                .breach("S9", format!("{sum} pods wanted after proportional scaling, {allowed} allowed"));
        }
        let most = i64::try_from(active.len()).unwrap_or(i64::MAX) + 1;
        let was_full = active.iter().all(|replica_set| found(replica_set).most == Some(sum_before));
        for replica_set in &active {
            let (from, to) = (found(replica_set).size, now(replica_set).size);
            let off = (to * sum_before - from * allowed).abs();
            let backward = (to - from).signum() * (allowed - sum_before).signum() < 0;
            if backward || was_full && 2 * off > most * sum_before {
                let name = text(replica_set, "/metadata/name");
                let what = format!("{name} goes from {from} to {to} while all go from {sum_before} to {sum}");
                return commit.breach("S9", what);
            }
        }
        Ok(())
    }
}
