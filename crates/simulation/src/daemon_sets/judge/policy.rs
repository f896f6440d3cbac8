//! The rules of rollout policies, with nodes for pods: RP1 to RP4, RP6, RP13 and RP15.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;

use super::{Commit, HASH, Judge, template};
use crate::daemon_sets::placement::{Requirement, requirement, target};
use crate::engine::breach::Breach;
use crate::engine::objects::{condition, is_live, list, number, owner, text, uid};
use crate::policies::terms::{annotation, approves, seconds, steps, written};

/// The commands of users, and the steps that were reached.
#[derive(Debug, Default)]
pub struct Memory {
    /// When a policy was last changed.
    edited: Option<Duration>,
    /// All commands that there have been.
    commands: Vec<String>,
    /// Since when so many nodes first had an available pod of a revision, by its UID, its number, and theirs.
    reached: BTreeMap<(String, i64, i64), Duration>,
    /// The UIDs of revisions that all nodes have had.
    complete: BTreeSet<String>,
}

/// The nodes of an update: those that should run a pod, and those that keep an old one.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    all: i64,
    /// Those without an old pod, and those with a new one beside it.
    taken: i64,
    /// Those with an available new pod.
    available: i64,
    /// Those with an old pod.
    old: i64,
}

impl Counts {
    fn of(commit: &Commit<'_>, daemon_set: &Value, pods: &[&Value], hash: &str) -> Self {
        let mut counts = Counts::default();
        for node in &commit.nodes {
            let name = text(node, "/metadata/name");
            let on = || pods.iter().filter(|pod| is_live(pod) && target(pod) == name);
            let has_old = on().any(|pod| text(pod, HASH) != hash);
            let counted = match requirement(daemon_set, node) {
                Requirement::Run => true,
                Requirement::Stay => has_old,
                Requirement::None => false,
            };
            if !counted {
                continue;
            }
            let mut new = on().filter(|pod| text(pod, HASH) == hash).peekable();
            counts.all += 1;
            counts.old += i64::from(has_old);
            counts.taken += i64::from(!has_old || new.peek().is_some());
            counts.available += i64::from(new.any(|pod| commit.is_available(daemon_set, pod)));
        }
        counts
    }
}

/// Whether a value of the policy cannot be read.
fn is_invalid(daemon_set: &Value) -> bool {
    let is_bad = |key: &str, value: &str| annotation(daemon_set, key) == value;
    steps(annotation(daemon_set, "steps"), 1).is_none()
        || is_bad("not-ready-nodes", "true")
        || is_bad("progress-deadline", "soon")
}

impl Commit<'_> {
    /// The revisions that have the template of the DaemonSet.
    fn currents<'a>(&'a self, daemon_set: &'a Value) -> impl Iterator<Item = &'a Value> {
        self.revisions.iter().filter(move |revision| {
            owner(revision) == uid(daemon_set) && template(revision) == daemon_set["spec"]["template"]
        })
    }

    fn own_pods<'a>(&'a self, daemon_set: &'a Value) -> impl Iterator<Item = &'a Value> {
        self.pods.iter().filter(move |pod| owner(pod) == uid(daemon_set))
    }

    /// Whether a policy leaves a node alone, which is not ready and has no pod of the current revision.
    pub(super) fn leaves_alone(&self, daemon_set: &Value, node: &Value) -> bool {
        let is_not_ready = list(&node["spec"]["taints"]).iter().any(|taint| {
            matches!(text(taint, "/key"), "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable")
        });
        let current = self.current(daemon_set);
        let name = text(node, "/metadata/name");
        let is_new = |pod: &Value| target(pod) == name && current.contains(&text(pod, HASH));
        annotation(daemon_set, "not-ready-nodes") == "ignore"
            && is_not_ready
            && !self.own_pods(daemon_set).any(is_new)
    }
}

impl Judge {
    /// Remembers what this write means for the steps of an update.
    pub(super) fn remember_policy(&mut self, commit: &Commit<'_>) {
        if let ("daemonsets", Some(daemon_set)) = (&*commit.call.resource, commit.after) {
            let of = |object: Option<&Value>| object.map(|object| object["metadata"]["annotations"].clone());
            if of(commit.before) != of(commit.after) {
                self.policy_memory.edited = Some(commit.at);
            }
            let command = annotation(daemon_set, "rollout");
            if !command.is_empty() {
                self.policy_memory.commands.push(command.to_owned());
            }
        }
        let Some(daemon_set) = commit.daemon_set.as_deref() else { return };
        let changed = commit.after.filter(|_| commit.call.resource == "pods");
        let others =
            commit.own_pods(daemon_set).filter(|pod| commit.before.is_none_or(|it| uid(it) != uid(pod)));
        let pods: Vec<&Value> = others.chain(changed.filter(|pod| owner(pod) == uid(daemon_set))).collect();
        for revision in commit.currents(daemon_set) {
            let counts = Counts::of(commit, daemon_set, &pods, text(revision, HASH));
            for count in 1..=counts.available {
                let key = (uid(revision).to_owned(), number(revision, "/revision"), count);
                self.policy_memory.reached.entry(key).or_insert(commit.at);
            }
            // Nothing proves a template of which there was no pod.
            if counts.all > 0 && counts.old == 0 && counts.available == counts.all {
                self.policy_memory.complete.insert(uid(revision).to_owned());
            }
        }
    }

    /// RP2 to RP4, RP13 and RP15, where a node is to have a new pod instead of an old one.
    pub(super) fn judge_move(
        &self,
        commit: &Commit<'_>,
        daemon_set: &Value,
        node: &str,
    ) -> Result<(), Breach> {
        if self.is_policy_edited(commit.at) {
            return Ok(());
        }
        if is_invalid(daemon_set) {
            return commit.breach("RP13", format!("{node} is updated, and the policy cannot be read"));
        }
        if commit.node(node).is_some_and(|node| commit.leaves_alone(daemon_set, node)) {
            return commit.breach("RP15", format!("{node} is updated, which is to be left alone"));
        }
        let bypass = annotation(daemon_set, "bypass-until");
        let age = commit.at - self.blind.since(commit.at) + Duration::from_secs(1);
        if !bypass.is_empty() && *bypass > *written(commit.now, age) {
            return Ok(());
        }
        let mut currents = commit.currents(daemon_set).peekable();
        let may = |revision: &Value| self.allows(commit, daemon_set, revision);
        match currents.peek().is_none() || currents.any(may) {
            true => Ok(()),
            false => commit.breach("RP2", format!("{node} is updated, and a step holds")),
        }
    }

    /// Whether the steps allow one more node with this revision.
    fn allows(&self, commit: &Commit<'_>, daemon_set: &Value, revision: &Value) -> bool {
        let Memory { commands, reached, complete, .. } = &self.policy_memory;
        if complete.contains(uid(revision)) {
            return true;
        }
        let pods: Vec<&Value> = commit.own_pods(daemon_set).collect();
        let counts = Counts::of(commit, daemon_set, &pods, text(revision, HASH));
        let number = number(revision, "/revision");
        let Some(steps) = steps(annotation(daemon_set, "steps"), counts.all) else { return false };
        let mut passed_at = Duration::ZERO;
        for (at, (bound, wait)) in steps.iter().enumerate() {
            if *bound >= counts.all || counts.taken < *bound {
                return true;
            }
            if commands.iter().any(|command| approves(command, number, at + 1)) {
                continue;
            }
            let since = reached.get(&(uid(revision).to_owned(), number, *bound));
            let Some((since, wait)) = since.zip(*wait) else { return false };
            passed_at = passed_at.max(*since) + Duration::from_secs(wait);
            // Times are written in whole seconds.
            let has_enough = counts.taken > *bound || counts.available >= *bound;
            if commit.at + Duration::from_secs(1) < passed_at || !has_enough {
                return false;
            }
        }
        true
    }

    /// RP1 and RP6: no condition about progress without a policy, and no deadline that has not passed.
    pub(super) fn judge_progress(
        &self,
        commit: &Commit<'_>,
        before: &Value,
        after: &Value,
    ) -> Result<(), Breach> {
        let reason = |object| condition(object, "Progressing").map(|found| text(found, "/reason"));
        let (old, Some(new)) = (reason(before), reason(after)) else { return Ok(()) };
        if old == Some(new) || self.is_policy_edited(commit.at) {
            return Ok(());
        }
        let deadline = annotation(after, "progress-deadline");
        if deadline.is_empty() && annotation(after, "steps").is_empty() && !is_invalid(after) {
            return commit.breach("RP1", format!("{new} is reported without a policy"));
        }
        let Some(deadline) = seconds(deadline).filter(|_| new == "ProgressDeadlineExceeded") else {
            return Ok(());
        };
        let age = commit.at - self.blind.since(commit.at) + Duration::from_secs(1);
        let by_then = written(commit.now, Duration::from_secs(deadline).saturating_sub(age));
        let current = commit.current(after);
        // A pod of a node that it has to leave, or that is gone, is no progress any more.
        let runs = |pod: &Value| {
            commit.requirement(after, target(pod)).is_some_and(|requirement| requirement != Requirement::None)
        };
        let is_late = |pod: &&Value| {
            is_live(pod)
                && runs(pod)
                && current.contains(&text(pod, HASH))
                && condition(pod, "Ready").is_some_and(|ready| {
                    ready["status"] == "True" && *text(ready, "/lastTransitionTime") > *by_then
                })
        };
        match commit.own_pods(after).find(is_late) {
            Some(pod) => {
                let name = text(pod, "/metadata/name");
                commit.breach("RP6", format!("{name} has become ready within the deadline"))
            }
            None => Ok(()),
        }
    }

    fn is_policy_edited(&self, at: Duration) -> bool {
        self.policy_memory.edited.is_some_and(|then| then == at || self.blind.hides(then, at))
    }
}
