//! S20 and S21, the second half: each status was true at some moment that its author may have seen, and transition
//! times change with their condition.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use super::replica_sets::RecordedSize;
use super::window::Window;
use super::{Commit, Invariants};
use crate::deployments::objects::{bare, controller};
use crate::engine::breach::Breach;
use crate::engine::objects::{is_deleting, number, text};

/// Not ready, or ready since this second.
type Ready = Option<i64>;

/// A pod of a ReplicaSet that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    ready: Ready,
    /// Whether it has all labels of the ReplicaSet's template.
    labeled: bool,
    /// Whether it is terminating, and counts as that only.
    terminating: bool,
}

/// The sizes that a ReplicaSet wants and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    /// Identifies the ReplicaSet.
    id: u64,
    pub(super) template: u64,
    pub(super) size: i64,
    /// `spec.replicas` of the Deployment when the ReplicaSet was sized, from its annotation.
    pub(super) desired: Option<i64>,
    replicas: i64,
    ready: i64,
    available: i64,
    /// Absent for a ReplicaSet that was never synced; `None` where the field is absent.
    pub(super) terminating: Option<i64>,
}

/// The counts that statuses had to report lately.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    /// The pods of a ReplicaSet, by its UID.
    pods: BTreeMap<String, Window<Vec<Member>>>,
    /// The ReplicaSets of a Deployment, by its UID.
    replica_sets: BTreeMap<String, Window<Vec<Counts>>>,
    /// The present ones, by their owner's UID and their own: a write changes one of them, and the others need not be
    /// read again.
    pods_now: BTreeMap<String, BTreeMap<String, Member>>,
    replica_sets_now: BTreeMap<String, BTreeMap<String, Counts>>,
    /// minReadySeconds of ReplicaSets.
    min_ready: BTreeMap<String, Window<i64>>,
    /// The selectors of ReplicaSets and Deployments.
    selectors: BTreeMap<String, Value>,
    /// The labels of their templates.
    labels: BTreeMap<String, Value>,
}

/// A hash of the template without the `pod-template-hash` label.
pub(super) fn fingerprint(template: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    bare(template).to_string().hash(&mut hasher);
    hasher.finish()
}

impl Statuses {
    /// Whether the selector of a ReplicaSet or Deployment matches these labels. Selectors never change.
    pub(super) fn selects(&self, owner: &str, labels: &Value) -> bool {
        let wanted = self.selectors.get(owner).and_then(Value::as_object);
        wanted.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
    }

    /// The ReplicaSets that a Deployment has had at each moment since.
    pub(super) fn replica_sets_since(
        &self,
        deployment: &str,
        since: Duration,
    ) -> impl Iterator<Item = &Vec<Counts>> {
        self.replica_sets.get(deployment).into_iter().flat_map(move |lately| lately.since(since))
    }

    pub(super) fn remember(&mut self, commit: &Commit<'_>) {
        let Commit { at, call, before, after, .. } = commit;
        if let Some(after) = after
            && call.resource != "pods"
        {
            let uid = text(after, "/metadata/uid");
            if before.is_none() {
                let selector = after["spec"]["selector"]["matchLabels"].clone();
                self.selectors.insert(uid.to_owned(), selector);
                let labels = after["spec"]["template"]["metadata"]["labels"].clone();
                self.labels.insert(uid.to_owned(), labels);
                self.pods.entry(uid.to_owned()).or_default().set(*at, Vec::new());
                self.replica_sets.entry(uid.to_owned()).or_default().set(*at, Vec::new());
            }
            let min_ready = number(after, "/spec/minReadySeconds");
            self.min_ready.entry(uid.to_owned()).or_default().set(*at, min_ready);
        }
        if call.resource == "deployments" {
            return;
        }
        let Some(uid) = after.or(*before).map(|object| text(object, "/metadata/uid")) else { return };
        let mut owners = [before, after].map(|object| object.map_or("", controller)).to_vec();
        owners.dedup();
        for owner in owners.into_iter().filter(|owner| !owner.is_empty()) {
            match &*call.resource {
                "pods" => self.remember_pod(commit, owner, uid),
                _ => self.remember_replica_set(commit, owner, uid),
            }
        }
    }

    fn remember_pod(&mut self, commit: &Commit<'_>, owner: &str, uid: &str) {
        let labels = self.labels.get(owner).and_then(Value::as_object);
        let member = |pod: &Value| {
            let theirs = &pod["metadata"]["labels"];
            let ended = matches!(text(pod, "/status/phase"), "Failed" | "Succeeded");
            (controller(pod) == owner && !ended && self.selects(owner, theirs)).then(|| Member {
                ready: ready_since(pod),
                labeled: labels.into_iter().flatten().all(|(key, value)| theirs[key] == *value),
                terminating: is_deleting(pod),
            })
        };
        let (was, is) = (commit.before.and_then(member), commit.after.and_then(member));
        let now = self.pods_now.entry(owner.to_owned()).or_default();
        now.remove(uid);
        let lately = self.pods.entry(owner.to_owned()).or_default();
        // A pod that is deleted at once is first marked in a version of its own, and a watch may stop there.
        let at_once = commit.after.is_none() && commit.call.method == Method::DELETE;
        if let Some(was) = was.filter(|was| at_once && !was.terminating) {
            let marked = Member { terminating: true, ..was };
            lately.set(commit.at, now.values().copied().chain([marked]).collect());
        }
        if let Some(is) = is {
            now.insert(uid.to_owned(), is);
        }
        lately.set(commit.at, now.values().copied().collect());
    }

    fn remember_replica_set(&mut self, commit: &Commit<'_>, owner: &str, uid: &str) {
        let is_its = |replica_set: &&Value| {
            controller(replica_set) == owner && self.selects(owner, &replica_set["metadata"]["labels"])
        };
        let is = commit.after.filter(is_its);
        let now = self.replica_sets_now.entry(owner.to_owned()).or_default();
        let was = now.remove(uid);
        if let Some(replica_set) = is {
            let template = &replica_set["spec"]["template"];
            // Most writes do not change the template, and hashing it is expensive.
            let same =
                was.filter(|_| commit.before.is_some_and(|before| before["spec"]["template"] == *template));
            let template = same.map_or_else(|| fingerprint(template), |was| was.template);
            now.insert(uid.to_owned(), Counts::of(replica_set, template));
        }
        let lately = self.replica_sets.entry(owner.to_owned()).or_default();
        lately.set(commit.at, now.values().copied().collect());
    }
}

impl Counts {
    fn of(replica_set: &Value, template: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        text(replica_set, "/metadata/uid").hash(&mut hasher);
        Counts {
            id: hasher.finish(),
            template,
            size: number(replica_set, "/spec/replicas"),
            desired: RecordedSize::of(replica_set).desired,
            replicas: number(replica_set, "/status/replicas"),
            ready: number(replica_set, "/status/readyReplicas"),
            available: number(replica_set, "/status/availableReplicas"),
            terminating: replica_set["status"]["terminatingReplicas"]
                .as_i64()
                .or(replica_set["status"]["observedGeneration"].is_null().then_some(0)),
        }
    }
}

fn ready_since(pod: &Value) -> Ready {
    let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = conditions.iter().find(|c| c["type"] == "Ready" && c["status"] == "True")?;
    let since: Option<Timestamp> = text(ready, "/lastTransitionTime").parse().ok();
    Some(since.map_or(i64::MAX, Timestamp::as_second))
}

fn size<T>(of: impl Iterator<Item = T>) -> i64 {
    i64::try_from(of.count()).unwrap_or(i64::MAX)
}

impl Invariants {
    /// S20: the counts. A cache is a prefix of the history of its kind, so that each status is that of one moment
    /// since the one up to which its author could know everything.
    pub(super) fn judge_counts(&self, commit: &Commit<'_>, since: Duration) -> Result<(), Breach> {
        let (Some(after), "status") = (commit.after, &*commit.call.subresource) else { return Ok(()) };
        let uid = text(after, "/metadata/uid");
        let status = |field: &str| number(after, &format!("/status/{field}"));
        let (replicas, ready) = (status("replicas"), status("readyReplicas"));
        let available = status("availableReplicas");
        let never =
            |what: &str| commit.breach("S20", format!("{what} at no recent time: {}", after["status"]));
        if commit.reports_a_refused_handover() {
            return Ok(());
        }
        if commit.call.resource == "deployments" {
            let Some(lately) = self.statuses.replica_sets.get(uid) else { return Ok(()) };
            let terms = || self.terms.get(uid).into_iter().flat_map(|terms| terms.since(since));
            let templates: Vec<u64> = terms().map(|terms| fingerprint(&terms.template)).collect();
            let is_that = |replica_sets: &Vec<Counts>| {
                let sum = |of: fn(&Counts) -> i64| replica_sets.iter().map(of).sum::<i64>();
                let updated = status("updatedReplicas");
                let is_new = |template: &u64| {
                    let mut new = replica_sets
                        .iter()
                        .filter(|replica_set| replica_set.template == *template)
                        .peekable();
                    if new.peek().is_none() {
                        updated == 0
                    } else {
                        new.any(|replica_set| replica_set.replicas == updated)
                    }
                };
                // For a ReplicaSet that has lost pods meanwhile, fewer pods may be counted than it reports (S2).
                sum(|replica_set| replica_set.replicas) == replicas
                    && sum(|replica_set| replica_set.ready) >= ready
                    && sum(|replica_set| replica_set.available) >= available
                    && replica_sets
                        .iter()
                        .map(|replica_set| replica_set.terminating)
                        .sum::<Option<i64>>()
                        .unwrap_or(0)
                        == status("terminatingReplicas")
                    && templates.iter().any(is_new)
            };
            if !lately.since(since).any(is_that) {
                return never("its ReplicaSets reported that");
            }
            // The size of a ReplicaSet may be what the author has just written, beside the older cached sizes of the
            // others.
            let mut sizes: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
            let moments = lately.since(since).count();
            lately
                .since(since)
                .flatten()
                .for_each(|replica_set| sizes.entry(replica_set.id).or_default().push(replica_set.size));
            let most: i64 = sizes.values().filter_map(|sizes| sizes.iter().max()).sum();
            let always = sizes.values().filter(|sizes| sizes.len() == moments);
            let least: i64 = always.filter_map(|sizes| sizes.iter().min()).sum();
            let missing = |wanted: i64| (wanted - available).max(0);
            if !(missing(least)..=missing(most)).contains(&status("unavailableReplicas")) {
                return never("so many pods were missing");
            }
            return Ok(());
        }
        let Some(lately) = self.statuses.pods.get(uid) else { return Ok(()) };
        let counts = |pods: &Vec<Member>| {
            let live = || pods.iter().filter(|pod| !pod.terminating);
            let (ready, labeled) =
                (live().filter(|pod| pod.ready.is_some()), live().filter(|pod| pod.labeled));
            let terminating = pods.iter().filter(|pod| pod.terminating);
            [size(live()), size(ready), size(labeled), size(terminating)]
        };
        let told = [replicas, ready, status("fullyLabeledReplicas"), status("terminatingReplicas")];
        if !lately.since(since).any(|pods| counts(pods) == told) {
            return never("it had these pods");
        }
        let waits = || self.statuses.min_ready.get(uid).into_iter().flat_map(|waits| waits.since(since));
        let (shortest, longest) = (waits().min().copied().unwrap_or(0), waits().max().copied().unwrap_or(0));
        let now = commit.now.as_second();
        let decided = now - i64::try_from((commit.at - since).as_secs()).unwrap_or(0) - 1;
        let for_long = |pods: &[Member], wait: i64, now: i64| {
            let ready = pods.iter().filter(|pod| !pod.terminating).filter_map(|pod| pod.ready);
            size(ready.filter(|at| wait == 0 || at.saturating_add(wait) <= now))
        };
        let most = lately.since(since).map(|pods| for_long(pods, shortest, now)).max().unwrap_or(0);
        let least = lately.since(since).map(|pods| for_long(pods, longest, decided)).min().unwrap_or(0);
        if available < least || available > most {
            return never("so many pods were available");
        }
        Ok(())
    }

    /// S21: a condition whose status changes has a new transition time. The failure of a ReplicaSet keeps its own
    /// time in the Deployment.
    pub(super) fn judge_times(&self, commit: &Commit<'_>, since: Duration) -> Result<(), Breach> {
        let (Some(before), Some(after), "status") = (commit.before, commit.after, &*commit.call.subresource)
        else {
            return Ok(());
        };
        let all = |object: &Value| object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        for new in all(after) {
            let turned =
                all(before).iter().any(|old| old["type"] == new["type"] && old["status"] != new["status"]);
            let at: Option<Timestamp> = text(&new, "/lastTransitionTime").parse().ok();
            let age = at.map_or(i64::MAX, |at| commit.now.as_second() - at.as_second());
            let late = i64::try_from((commit.at - since).as_secs()).unwrap_or(i64::MAX);
            if turned && new["type"] != "ReplicaFailure" && age > late + 1 + self.doubt {
                return commit.breach("S21", format!("{new} changed, with a transition time {age} s ago"));
            }
        }
        Ok(())
    }
}
