//! The invariants over every committed write of a daemon: DS1 to DS8, DS11 to DS15 and DS19; and those of policies, in `policy`.
//!
//! A write is judged by the state at which it is committed, and only where its author could know that state: others
//! must not have changed what a bound counts within the time that a decision may be old.

mod policy;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use serde_json::Value;

use super::placement::{Requirement, requirement, target};
use crate::engine::blind::Blind;
use crate::engine::breach::Breach;
use crate::engine::call::Call;
use crate::engine::network;
use crate::engine::objects::{is_available, is_deleting, is_live, number, owner, text, uid};
use crate::policies::terms::annotation;

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
    /// The DaemonSet, as it is after the write.
    pub daemon_set: Option<Arc<Value>>,
    /// The nodes, as they are after the write.
    pub nodes: Vec<Value>,
    /// The pods before the write.
    pub pods: Vec<Value>,
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
    /// When the specification or a node was last changed, or a pod lost its readiness.
    disturbed: Option<Duration>,
    /// When the specification was last changed.
    edited: Option<Duration>,
    /// When the specification last allowed surge.
    surged: Option<Duration>,
    /// Since when the DaemonSet is being deleted, or is deleted.
    deleted_since: Option<Duration>,
    /// When failed pods were deleted, by DaemonSet, generation and node, in this incarnation of the daemon.
    failures: BTreeMap<(String, i64, String), Vec<Duration>>,
    /// When each node last stopped needing a pod or was removed.
    last_needed: BTreeMap<String, Duration>,
    /// The hashes of revisions that were current at some time, and until when.
    current: BTreeMap<String, Duration>,
    observed: (String, i64),
    /// Whether a policy refuses new pods.
    pub policy: bool,
    policy_memory: policy::Memory,
}

const HASH: &str = "/metadata/labels/controller-revision-hash";

/// The template that a revision holds.
fn template(revision: &Value) -> Value {
    let mut template = revision["data"]["spec"]["template"].clone();
    if let Some(fields) = template.as_object_mut() {
        fields.remove("$patch");
    }
    template
}

/// The value of a field that is a number of nodes, or 0 if it is absent.
fn bound(daemon_set: &Value, field: &str) -> i64 {
    number(&daemon_set["spec"]["updateStrategy"]["rollingUpdate"], field)
}

impl Commit<'_> {
    fn breach(&self, invariant: &'static str, what: impl std::fmt::Display) -> Result<(), Breach> {
        Err(Breach::new(invariant, format!("{what}: {}", self.call)))
    }

    fn node(&self, name: &str) -> Option<&Value> {
        self.nodes.iter().find(|node| text(node, "/metadata/name") == name)
    }

    fn requirement(&self, daemon_set: &Value, node: &str) -> Option<Requirement> {
        self.node(node).map(|node| requirement(daemon_set, node))
    }

    /// The pods of the DaemonSet for a node that have not ended.
    fn on<'a>(&'a self, daemon_set: &'a Value, node: &'a str) -> impl Iterator<Item = &'a Value> {
        let has_ended = |pod: &Value| matches!(text(pod, "/status/phase"), "Failed" | "Succeeded");
        self.pods
            .iter()
            .filter(move |pod| owner(pod) == uid(daemon_set) && target(pod) == node && !has_ended(pod))
    }

    fn is_available(&self, daemon_set: &Value, pod: &Value) -> bool {
        is_live(pod) && is_available(pod, number(daemon_set, "/spec/minReadySeconds"), self.now)
    }

    /// The hashes of the revisions that have the template of the DaemonSet.
    fn current(&self, daemon_set: &Value) -> Vec<&str> {
        let has = |revision: &&Value| {
            owner(revision) == uid(daemon_set) && template(revision) == daemon_set["spec"]["template"]
        };
        self.revisions.iter().filter(has).map(|revision| text(revision, HASH)).collect()
    }
}

impl Judge {
    /// Invariants that have seen nothing yet. `staleness` is how old a decision may be when it is carried out.
    pub fn new(staleness: Duration) -> Self {
        Judge { blind: Blind::new(staleness), ..Judge::default() }
    }

    /// A daemon is dead, and has lost its memory.
    pub fn daemon_died(&mut self) {
        self.failures.clear();
    }

    fn is_recent(&self, then: Option<Duration>, at: Duration) -> bool {
        then.is_some_and(|then| self.blind.hides(then, at))
    }

    /// A write has been committed.
    ///
    /// # Errors
    /// When it breaks an invariant.
    pub fn committed(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let judged = if commit.call.of_daemon() { self.judge(commit) } else { Ok(()) };
        self.remember(commit);
        self.remember_policy(commit);
        judged
    }

    fn remember(&mut self, commit: &Commit<'_>) {
        let Commit { at, call, before, after, .. } = commit;
        let spec = |object: &Option<&Value>| object.map(|object| object["spec"].clone());
        let daemon_set = commit.daemon_set.as_deref();
        match &*call.resource {
            "daemonsets" => {
                let is_another = before.map(uid) != after.map(uid);
                if spec(before) != spec(after) || is_another {
                    self.edited = Some(*at);
                    if before.is_some_and(|before| bound(before, "/maxSurge") > 0) {
                        self.surged = Some(*at);
                    }
                    self.disturbed = Some(*at);
                    for hash in before.map(|before| commit.current(before)).unwrap_or_default() {
                        self.current.insert(hash.to_owned(), *at);
                    }
                }
                let is_going = after.is_none_or(is_deleting);
                self.deleted_since = if is_going { self.deleted_since.or(Some(*at)) } else { None };
            }
            "nodes" => {
                let facts = |node: &Option<&Value>| {
                    node.map(|node| {
                        (node["metadata"]["labels"].clone(), node["spec"].clone(), uid(node).to_owned())
                    })
                };
                if facts(before) != facts(after) {
                    self.disturbed = Some(*at);
                    self.last_needed.insert(call.name.clone(), *at);
                }
            }
            "pods" if !call.of_daemon() => {
                let serves = |pod: &Option<&Value>| {
                    pod.is_some_and(|pod| {
                        is_live(pod)
                            && daemon_set.is_some_and(|daemon_set| commit.is_available(daemon_set, pod))
                    })
                };
                let moves = before.zip(*after).is_some_and(|(before, after)| {
                    before["metadata"]["labels"] != after["metadata"]["labels"]
                        || owner(before) != owner(after)
                });
                let phase = |pod: &Option<&Value>| {
                    pod.map_or(String::new(), |pod| text(pod, "/status/phase").to_owned())
                };
                let ends = phase(before) != phase(after) && matches!(&*phase(after), "Failed" | "Succeeded");
                if serves(before) && !serves(after)
                    || moves
                    || ends
                    || before.is_some_and(is_live) && after.is_none()
                {
                    self.disturbed = Some(*at);
                }
            }
            "controllerrevisions" if !call.of_daemon() => self.disturbed = Some(*at),
            _ => {}
        }
    }

    fn judge(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let call = commit.call;
        if call.resource == "nodes" || call.resource == "daemonsets" && call.subresource != "status" {
            return commit
                .breach("DS8", "the only allowed write to a DaemonSet is its status, and none to a node");
        }
        let is_going = self.deleted_since.is_some() && !self.is_recent(self.deleted_since, commit.at);
        if is_going && !call.abandoned {
            return commit.breach("DS19", "a write for a DaemonSet that is being deleted");
        }
        let Some(daemon_set) = commit.daemon_set.clone() else { return Ok(()) };
        match &*call.resource {
            "daemonsets" => self.judge_status(commit),
            "controllerrevisions" => self.judge_revision(commit, &daemon_set),
            _ => match (commit.before, commit.after) {
                (None, Some(pod)) => self.judge_creation(commit, &daemon_set, pod),
                (Some(pod), _) if call.method == Method::DELETE => {
                    self.judge_deletion(commit, &daemon_set, pod)
                }
                (Some(before), Some(after)) => judge_change(commit, before, after),
                _ => Ok(()),
            },
        }
    }

    fn judge_creation(&mut self, commit: &Commit<'_>, daemon_set: &Value, pod: &Value) -> Result<(), Breach> {
        let (node, call) = (target(pod), commit.call);
        if owner(pod) != uid(daemon_set) || call.abandoned {
            // For an earlier DaemonSet, or by a daemon that is dead: the next sync corrects it.
            return Ok(());
        }
        let terms =
            "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
        if pod.pointer(terms).and_then(Value::as_array).map(Vec::len) != Some(1) {
            return commit.breach("DS7", "not exactly one term names its node");
        }
        let is_edited = self.is_recent(self.edited, commit.at);
        let has_changed = self.is_recent(self.last_needed.get(node).copied(), commit.at);
        if commit.requirement(daemon_set, node) != Some(Requirement::Run) && !is_edited && !has_changed {
            return commit.breach("DS7", format!("the DaemonSet does not run on {node}"));
        }
        let hash = text(pod, HASH);
        let until = self.current.get(hash).copied();
        if !commit.current(daemon_set).contains(&hash) && !self.is_recent(until, commit.at) && !is_edited {
            return commit.breach("DS7", format!("{hash} is not the current revision"));
        }
        let others: Vec<&Value> = commit.on(daemon_set, node).collect();
        if bound(daemon_set, "/maxSurge") == 0 {
            return match others.first().filter(|_| !self.is_recent(self.surged, commit.at)) {
                Some(other) => {
                    commit.breach("DS1", format!("{node} has {} already", text(other, "/metadata/name")))
                }
                None => Ok(()),
            };
        }
        if is_edited {
            return Ok(());
        }
        let live: Vec<&Value> = others.into_iter().filter(|pod| is_live(pod)).collect();
        if live.len() > 1 || live.iter().any(|other| text(other, HASH) == hash) {
            return commit.breach("DS2", format!("{node} has {} live pods", live.len()));
        }
        let is_calm = !self.is_recent(self.disturbed, commit.at);
        if is_calm && live.iter().any(|old| commit.is_available(daemon_set, old)) {
            let current = commit.current(daemon_set);
            let is_surging = |node: &&Value| {
                let pods: Vec<&Value> = commit.on(daemon_set, text(node, "/metadata/name")).collect();
                let is_new = |pod: &&&Value| current.contains(&text(pod, HASH)) && is_live(pod);
                let old = pods.iter().any(|pod| !is_new(&pod) && commit.is_available(daemon_set, pod));
                old && pods.iter().any(|pod| is_new(&pod))
            };
            let surging = commit.nodes.iter().filter(is_surging).count();
            if surging as i64 >= bound(daemon_set, "/maxSurge") {
                return commit.breach("DS4", format!("{surging} nodes have two pods already"));
            }
        }
        match is_calm && !live.is_empty() {
            true => self.judge_move(commit, daemon_set, node),
            false => Ok(()),
        }
    }

    fn judge_deletion(&mut self, commit: &Commit<'_>, daemon_set: &Value, pod: &Value) -> Result<(), Breach> {
        if text(&commit.call.body, "/preconditions/uid") != uid(pod) {
            return commit.breach("DS8", "a deletion without the UID");
        }
        let node = target(pod);
        if owner(pod) != uid(daemon_set) || is_deleting(pod) || commit.call.abandoned {
            return Ok(());
        }
        if text(pod, "/status/phase") == "Failed" {
            return self.judge_failed(commit, daemon_set, node);
        }
        let is_edited = self.is_recent(self.edited, commit.at);
        let is_calm = !is_edited && !self.is_recent(self.disturbed, commit.at);
        if !is_live(pod) || node.is_empty() || !is_calm {
            return Ok(());
        }
        let requirement = commit.requirement(daemon_set, node);
        if requirement.is_none_or(|requirement| requirement == Requirement::None) {
            return Ok(());
        }
        let current = commit.current(daemon_set);
        let is_new = |pod: &Value| current.contains(&text(pod, HASH));
        let surges = bound(daemon_set, "/maxSurge") > 0;
        let others: Vec<&Value> =
            commit.on(daemon_set, node).filter(|other| is_live(other) && uid(other) != uid(pod)).collect();
        if !others.is_empty() {
            let served = others.iter().any(|other| is_new(other) && commit.is_available(daemon_set, other));
            let is_lost = surges
                && requirement == Some(Requirement::Run)
                && commit.is_available(daemon_set, pod)
                && !served;
            let excess = others.iter().any(|other| is_new(other) == is_new(pod));
            return match is_lost && !excess {
                true => commit.breach("DS5", format!("{node} has no other available pod")),
                false => Ok(()),
            };
        }
        if is_new(pod) {
            return commit.breach("DS8", format!("there is no reason to delete the only pod of {node}"));
        }
        if text(daemon_set, "/spec/updateStrategy/type") == "OnDelete" {
            return commit.breach("DS6", "an old pod was deleted under OnDelete");
        }
        if requirement == Some(Requirement::Run) || !surges {
            self.judge_move(commit, daemon_set, node)?;
        }
        if !commit.is_available(daemon_set, pod) {
            return Ok(());
        }
        let has_new = |node: &Value| {
            commit.on(daemon_set, text(node, "/metadata/name")).any(|pod| is_live(pod) && is_new(pod))
        };
        // The taints of a node that has stopped admit no pod, but the one that it has may be the reason.
        let runs = |node: &&Value| match super::placement::requirement(daemon_set, node) {
            Requirement::Run => true,
            Requirement::Stay => has_new(node),
            Requirement::None => false,
        };
        let serves = |node: &&Value| {
            commit
                .on(daemon_set, text(node, "/metadata/name"))
                .any(|pod| commit.is_available(daemon_set, pod))
        };
        // One with a pod of the current revision counts, whatever the policy: that pod may be the reason (RP15).
        let counts = |node: &&Value| !serves(node) && !commit.leaves_alone(daemon_set, node);
        let without = commit.nodes.iter().filter(runs).filter(counts).count() as i64;
        match surges {
            true if requirement == Some(Requirement::Run) => {
                commit.breach("DS5", format!("{node} has no other pod"))
            }
            true => Ok(()),
            false if without >= bound(daemon_set, "/maxUnavailable").max(1) => {
                let has_policy = annotation(daemon_set, "not-ready-nodes") == "ignore";
                let code = if has_policy { "RP15" } else { "DS3" };
                commit.breach(code, format!("{without} nodes have no available pod already"))
            }
            false => Ok(()),
        }
    }

    /// Failed pods of one node and generation are deleted 1, 2, 4, … 900 s apart.
    fn judge_failed(&mut self, commit: &Commit<'_>, daemon_set: &Value, node: &str) -> Result<(), Breach> {
        let key = (uid(daemon_set).to_owned(), number(daemon_set, "/metadata/generation"), node.to_owned());
        let is_wanted =
            commit.requirement(daemon_set, node).is_some_and(|requirement| requirement > Requirement::None);
        if self.is_recent(self.edited, commit.at) || !is_wanted {
            return Ok(());
        }
        let all = self.failures.entry(key).or_default();
        let wait = 1u64.checked_shl(all.len().saturating_sub(1) as u32).unwrap_or(900).min(900);
        let since = all.last().map(|last| commit.at.saturating_sub(*last));
        all.push(commit.at);
        // Several failed pods of one node are deleted at once.
        match since.filter(|since| !since.is_zero()) {
            Some(since) if since + Duration::from_millis(10) < Duration::from_secs(wait) => commit
                .breach("DS11", format!("{since:?} after the last failed pod of {node}, and not {wait} s")),
            _ => Ok(()),
        }
    }

    fn judge_revision(&mut self, commit: &Commit<'_>, daemon_set: &Value) -> Result<(), Breach> {
        let of_daemon_set = |revision: &&Value| owner(revision) == uid(daemon_set);
        let highest = |but: &str| {
            let others = commit.revisions.iter().filter(of_daemon_set).filter(|other| uid(other) != but);
            others.map(|other| number(other, "/revision")).max().unwrap_or(0)
        };
        match (commit.before, commit.after) {
            (None, Some(new)) if owner(new) == uid(daemon_set) && !commit.call.abandoned => {
                if number(new, "/revision") <= highest("") && !self.is_recent(self.disturbed, commit.at) {
                    return commit.breach("DS12", "a revision number that was used before");
                }
                let is_edited = self.is_recent(self.edited, commit.at);
                match template(new) == daemon_set["spec"]["template"] || is_edited {
                    true => Ok(()),
                    false => commit.breach("DS12", "its data is not the template"),
                }
            }
            (Some(before), Some(after)) if number(after, "/revision") < number(before, "/revision") => {
                commit.breach("DS12", "the revision number falls")
            }
            (Some(before), None) if owner(before) == uid(daemon_set) && !commit.call.abandoned => {
                let hash = text(before, HASH);
                let is_used = |pod: &&Value| owner(pod) == uid(daemon_set) && text(pod, HASH) == hash;
                if commit.pods.iter().any(|pod| is_used(&pod)) && !self.is_recent(self.disturbed, commit.at) {
                    return commit.breach("DS13", "a revision whose hash is on a pod was deleted");
                }
                let twins = commit.current(daemon_set);
                let is_only = template(before) == daemon_set["spec"]["template"] && twins.len() == 1;
                match is_only && !self.is_recent(self.edited, commit.at) {
                    true => commit.breach("DS13", "the current revision was deleted"),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn judge_status(&mut self, commit: &Commit<'_>) -> Result<(), Breach> {
        let (Some(before), Some(after)) = (commit.before, commit.after) else { return Ok(()) };
        let of = |field: &str| number(&after["status"], field);
        let [desired, current, updated] =
            ["/desiredNumberScheduled", "/currentNumberScheduled", "/updatedNumberScheduled"].map(of);
        let [ready, available, unavailable] =
            ["/numberReady", "/numberAvailable", "/numberUnavailable"].map(of);
        let in_order = 0 <= available && available <= ready && ready <= current && current <= desired;
        if !in_order || updated > current || unavailable != desired - available {
            return commit.breach("DS15", format!("{}", after["status"]));
        }
        let observed = of("/observedGeneration");
        if observed > number(after, "/metadata/generation") {
            return commit.breach("DS15", "observedGeneration is above the generation");
        }
        if self.observed.0 == uid(after) && observed < self.observed.1 {
            return commit.breach("DS15", "observedGeneration falls");
        }
        self.observed = (uid(after).to_owned(), observed);
        self.judge_progress(commit, before, after)?;
        let collisions = |daemon_set: &Value| number(daemon_set, "/status/collisionCount");
        match collisions(after) - collisions(before) {
            0 | 1 => Ok(()),
            by => commit.breach("DS14", format!("collisionCount changes by {by}")),
        }
    }
}

/// A pod changes its owner, or gets the hash of the revision that stays of two equal ones.
fn judge_change(commit: &Commit<'_>, before: &Value, after: &Value) -> Result<(), Breach> {
    let (old, new) = (text(before, HASH), text(after, HASH));
    if old == new {
        return Ok(());
    }
    let of = |hash: &str| commit.revisions.iter().find(|revision| text(revision, HASH) == hash).map(template);
    match (of(old), of(new)) {
        (Some(before), Some(after)) if before != after => {
            commit.breach("DS14", "a pod of another template was relabelled")
        }
        _ => Ok(()),
    }
}
