//! Which nodes get a pod, which pods are deleted, how a new template is rolled out, and what to report (upstream:
//! `daemon_controller.go`, `update.go`).
//!
//! One linear pass over the nodes that should run a pod or have one. The contribution of a node to the plan
//! ([`node_decision::decide`]), to the counts of the rollout ([`rolling::Tally`]) and to those of the status
//! ([`status::Counts`]) depends on that node alone.

pub mod body;
pub mod course;
pub mod explain;
pub mod members;
pub mod names;
pub mod node_decision;
pub mod node_pass;
pub mod order;
pub mod placement;
mod progress;
pub mod refused;
pub mod revisions;
pub mod rolling;
pub mod status;
pub mod tolerations;

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

pub use self::explain::PlanReason;
pub use self::members::Members;
use self::names::{Marks, Names};
use self::node_pass::NodePass;
pub use self::placement::{Placement, Verdict, Verdicts};
use self::refused::RefusedCreations;
use self::revisions::{History, NewRevision, RevisionChange, claim_revision};
use super::EventNote;
use super::claim::Claim;
use super::fixed_place_backoff::FailedPodBackoff;
use super::node_lifecycle::taints::UNREACHABLE;
use super::policy::{Kind, Policy};
use super::recent_creations::RecentCreations;
use super::replicaset::status::until;
use crate::model::{
    ControllerRevision, DaemonSet, DaemonSetStatus, Node, Pod, Record as _, Uid, UpdateStrategy,
};

/// The most pods that one sync creates, and the most that it deletes. The rest follows when the cache shows these.
pub const BURST: usize = 250;

/// The input of one decision about a DaemonSet.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The DaemonSet.
    pub daemon_set: &'a DaemonSet,
    /// The verdict of its template on each node.
    pub verdicts: Arc<Verdicts>,
    /// Why the placement of its template cannot be read; then there are no verdicts, and the plan is empty.
    pub unreadable: Option<String>,
    /// How many of its pods exist and cannot be decoded, so that nobody knows on which nodes: no pod is created, and none
    /// deleted for the rollout.
    pub unreadable_pods: usize,
    /// Its pods, and those that it might adopt.
    pub members: Members,
    /// Revisions whose controller it is.
    pub revisions: Vec<Arc<ControllerRevision>>,
    /// Revisions of the namespace without a controller.
    pub orphan_revisions: Vec<Arc<ControllerRevision>>,
    /// Whether a fresh read showed the DaemonSet with the same identity and not being deleted. Only then may an orphan
    /// be adopted. Read only where an orphan exists ([`wants_to_adopt`]); if the read failed, the plan is empty.
    pub may_adopt: bool,
    /// Pods that a deletion whose reply was lost may still reach: no budget counts them as available.
    pub maybe_deleted: BTreeSet<Uid>,
    /// The nodes on which its pods have failed.
    pub backoff: Arc<FailedPodBackoff>,
    /// Which names of new pods have been used.
    pub marks: Arc<Marks>,
    /// On which nodes a pod was created within the last minute.
    pub recent: Arc<RecentCreations>,
    /// For which nodes pods were refused.
    pub refused: Arc<RefusedCreations>,
    /// The policy that the annotations of the DaemonSet ask for.
    pub policy: Policy,
    /// The nodes that are not ready ([`course::is_not_ready`]), where the policy asks for them.
    pub not_ready: BTreeSet<Arc<str>>,
    /// Whether any pod has this name, whoever owns it.
    pub is_taken: IsTaken,
    /// The time of the decision.
    pub now: Timestamp,
}

/// The nodes of a cluster, as the template of a DaemonSet judges them.
#[derive(Clone, Debug, Default)]
pub struct JudgedNodes {
    /// The verdict on each.
    pub verdicts: Arc<Verdicts>,
    /// Why the placement of the template cannot be read; then there are no verdicts.
    pub unreadable: Option<String>,
    /// Those that are not ready ([`course::is_not_ready`]).
    pub not_ready: BTreeSet<Arc<str>>,
    /// Those whose kubelet does not report.
    pub unreachable: BTreeSet<Arc<str>>,
}

impl JudgedNodes {
    /// Judges all nodes.
    pub fn of(daemon_set: &DaemonSet, nodes: &[Arc<Node>]) -> Self {
        let (verdicts, unreadable) = match Placement::of(daemon_set) {
            Ok(placement) => (Verdicts::of(&placement, nodes.iter().map(|node| &**node)), None),
            Err(error) => (Verdicts::default(), Some(error.to_string())),
        };
        let names = |is_wanted: &dyn Fn(&Node) -> bool| {
            let wanted = nodes.iter().filter(|node| is_wanted(node));
            wanted.map(|node| node.meta.key.name.clone()).collect()
        };
        let is_unreachable = |node: &Node| node.taints.iter().any(|taint| &*taint.key == UNREACHABLE);
        JudgedNodes {
            verdicts: Arc::new(verdicts),
            unreadable,
            not_ready: names(&course::is_not_ready),
            unreachable: names(&is_unreachable),
        }
    }
}

impl<'a> Observed<'a> {
    /// The observation of a reader that has listed the pods and revisions that the selector matches. It remembers nothing
    /// from earlier plans: no node is backed off from.
    pub fn of_lists(
        daemon_set: &'a DaemonSet,
        pods: &[Arc<Pod>],
        revisions: &[Arc<ControllerRevision>],
        nodes: &JudgedNodes,
        now: Timestamp,
    ) -> Self {
        let pods_where = |holds: &dyn Fn(&Pod) -> bool| -> Vec<Arc<Pod>> {
            pods.iter().filter(|pod| holds(pod)).cloned().collect()
        };
        let owned = pods_where(&|pod| daemon_set.controls(&pod.meta));
        let orphans = pods_where(&|pod| pod.meta.controller.is_none());
        let revisions_where = |holds: &dyn Fn(&ControllerRevision) -> bool| {
            revisions.iter().filter(|revision| holds(revision)).cloned().collect()
        };
        let names: HashSet<Arc<str>> = pods.iter().map(|pod| pod.meta.key.name.clone()).collect();
        let JudgedNodes { verdicts, unreadable, not_ready, unreachable: _ } = nodes;
        Observed {
            daemon_set,
            verdicts: verdicts.clone(),
            unreadable: unreadable.clone(),
            unreadable_pods: 0,
            members: Members::of(daemon_set, owned, orphans),
            revisions: revisions_where(&|revision| daemon_set.controls(&revision.meta)),
            orphan_revisions: revisions_where(&|revision| revision.meta.controller.is_none()),
            may_adopt: true,
            maybe_deleted: BTreeSet::new(),
            backoff: Arc::default(),
            marks: Arc::default(),
            recent: Arc::default(),
            refused: Arc::default(),
            is_taken: IsTaken::new(move |name| names.contains(name)),
            policy: policy_of(daemon_set, now),
            not_ready: not_ready.clone(),
            now,
        }
    }
}

/// Looks up whether a pod of the namespace has a name.
#[derive(Clone)]
pub struct IsTaken(Arc<dyn Fn(&str) -> bool + Send + Sync>);

impl IsTaken {
    /// Looks names up with this function.
    pub fn new(is_taken: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        IsTaken(Arc::new(is_taken))
    }
}

impl fmt::Debug for IsTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IsTaken")
    }
}

/// The plan for one reconcile of a DaemonSet: writes in order, events, and the status.
#[derive(Clone, Debug, Default, PartialEq)]
#[must_use = "a plan changes nothing until it is executed"]
pub struct Plan {
    /// Writes, in order; the first without a conclusive answer ends the execution. What follows a refused one:
    /// [`refused::Refusals::allow`].
    pub writes: Vec<Write>,
    /// Events without a write.
    pub notes: Vec<EventNote>,
    /// Events about the policy. Each is recorded once per generation.
    pub policy_notes: Vec<EventNote>,
    /// The status by what was observed, written last and only if it differs; `None` where nothing is reported. See
    /// [`status::hold_generation`] for a sync without an outcome.
    pub status: Option<DaemonSetStatus>,
    /// When the next sync is due although nothing changes: a pod becomes available, or a failed one may be replaced.
    pub requeue_after: Option<Duration>,
    /// Whether a pod is created on a node that got one within the last minute: then the DaemonSet is re-read before, as
    /// it may have been deleted together with its pods.
    pub repeats: bool,
    /// The reasons for the plan, and what it waits for.
    pub reasons: Vec<PlanReason>,
}

/// One write to the pods or revisions of a DaemonSet.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Adopt an orphan.
    AdoptPod(Arc<Pod>),
    /// Release a pod whose labels no longer match.
    ReleasePod(Arc<Pod>),
    /// Adopt an orphaned revision.
    AdoptRevision(Arc<ControllerRevision>),
    /// Release a revision whose labels no longer match.
    ReleaseRevision(Arc<ControllerRevision>),
    /// Set the hash label of a pod: its revision is a duplicate of the one that stays.
    Relabel {
        /// The pod.
        pod: Arc<Pod>,
        /// The value.
        hash: String,
    },
    /// Delete a revision: a duplicate, or one beyond the history limit.
    DeleteRevision(Arc<ControllerRevision>),
    /// Set the hash label or the number of a revision.
    ChangeRevision(Arc<ControllerRevision>, RevisionChange),
    /// Create the revision of the current template. Where the name is taken: [`revisions::on_taken`].
    CreateRevision(NewRevision),
    /// Create pods, in slow-start batches. Where a name is taken: [`names::on_taken`].
    CreatePods {
        /// One for each node.
        pods: Vec<NewPod>,
        /// The value of their hash label.
        hash: String,
    },
    /// Delete these pods; [`Deletion::note`] is recorded with each. After each one whose reason is [`Reason::Failed`] the node backs off
    /// ([`FailedPodBackoff::deleted`]).
    DeletePods(Vec<Deletion>),
}

/// A pod to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPod {
    /// The node that it is for.
    pub node: Arc<str>,
    /// Its name.
    pub name: String,
}

/// A pod to delete.
#[derive(Clone, Debug, PartialEq)]
pub struct Deletion {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Why.
    pub reason: Reason,
    /// Whether a pod of the current template is wanted in its place, which an API server that refuses pods would refuse,
    /// too.
    pub is_rollout: bool,
}

impl Deletion {
    /// The deletion of a pod whose node needs no other for it.
    fn of(pod: &Arc<Pod>, reason: Reason) -> Self {
        Deletion { pod: pod.clone(), reason, is_rollout: false }
    }

    /// The event about an ended pod, in upstream's words, for when its deletion was accepted: one that is refused again
    /// and again would be announced as often.
    pub fn note(&self) -> Option<EventNote> {
        let (namespace, name) = (&self.pod.meta.key.namespace, &self.pod.meta.key.name);
        let node = self.pod.target().map_or("", |node| &**node);
        let found = |how: &str, what: &str| {
            format!("Found {how} daemon pod {namespace}/{name} on node {node}, will try to {what} it")
        };
        match self.reason {
            Reason::Failed => Some(EventNote::warning("FailedDaemonPod", found("failed", "kill"))),
            Reason::Succeeded => Some(EventNote::normal("SucceededDaemonPod", found("succeeded", "delete"))),
            _ => None,
        }
    }
}

/// Why a pod is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// The DaemonSet does not run on its node.
    NotWanted,
    /// It is not bound, and its target node does not exist.
    NoNode,
    /// Its node has another pod.
    Excess,
    /// It has failed.
    Failed,
    /// It has succeeded.
    Succeeded,
    /// It has an older template.
    Outdated,
    /// The new pod of its node is available.
    Replaced,
}

impl Plan {
    /// Whether it creates pods.
    pub fn creates(&self) -> bool {
        self.writes.iter().any(|write| matches!(write, Write::CreatePods { .. }))
    }
}

/// Whether the DaemonSet itself shows that work is left: its latest generation is not observed, or when its status was
/// written a node lacked its pod, or had one that it should not have or that is out of date. Under OnDelete outdated
/// pods stay, and the price is a read past the caches for each restart.
pub fn is_unsettled(daemon_set: &DaemonSet) -> bool {
    let DaemonSetStatus { observed_generation, desired, current, updated, misscheduled, .. } =
        daemon_set.status;
    observed_generation != daemon_set.meta.generation
        || current != desired
        || updated != desired
        || misscheduled != 0
}

/// Whether there is an orphan that the DaemonSet would adopt: then the caller reads the DaemonSet afresh before it
/// computes a plan.
pub fn wants_to_adopt(
    daemon_set: &DaemonSet,
    members: &Members,
    revisions: &[Arc<ControllerRevision>],
) -> bool {
    let is_adoptable =
        |revision: &Arc<ControllerRevision>| claim_revision(daemon_set, revision) == Claim::Adopt;
    let may = !daemon_set.selector.selects_everything();
    may && (!members.orphans.is_empty() || revisions.iter().any(is_adoptable))
}

/// The policy that the annotations of a DaemonSet ask for.
pub fn policy_of(daemon_set: &DaemonSet, now: Timestamp) -> Policy {
    let can_roll = daemon_set.strategy != UpdateStrategy::OnDelete;
    Policy::of(Kind::DaemonSet, &daemon_set.policies, can_roll, now)
}

/// Decides.
///
/// | situation | writes |
/// |---|---|
/// | the selector selects everything, is invalid, or does not match its own template | none; an event says so |
/// | being deleted, or found gone by the read before an adoption | none, not even a status |
/// | pods or revisions to adopt or release | those, and nothing else until the cache shows them |
/// | otherwise | the revision; creations, then deletions: those that each node needs, then the rollout's; the history |
pub fn plan(observed: &Observed<'_>) -> Plan {
    let daemon_set = observed.daemon_set;
    if let Some(note) = refusal(observed) {
        let reasons = vec![PlanReason::Refused { defect: note.message.clone() }];
        return Plan { notes: vec![note], reasons, ..Plan::default() };
    }
    if daemon_set.meta.is_deleting() {
        return Plan { reasons: vec![PlanReason::BeingDeleted], ..Plan::default() };
    }
    let orphans = wants_to_adopt(daemon_set, &observed.members, &observed.orphan_revisions);
    if orphans && !observed.may_adopt {
        return Plan { reasons: vec![PlanReason::Gone], ..Plan::default() };
    }
    let claims = claims(observed);
    if !claims.is_empty() {
        let reasons = vec![PlanReason::ChangingHands { objects: claims.len() }];
        return Plan { writes: claims, reasons, ..Plan::default() };
    }

    let history = History::of(daemon_set, &observed.revisions);
    let places = observed.members.places(&observed.verdicts);
    let pass = NodePass::of(observed, &history, &places);
    let mut writes = history.writes(&observed.members);
    pass.course.record(&history, &mut writes);
    if !pass.create.is_empty() {
        let pods = pass.create.iter().map(|node| new_pod(observed, node)).collect();
        writes.push(Write::CreatePods { pods, hash: history.hash.clone() });
    }
    if !pass.delete.is_empty() {
        writes.push(Write::DeletePods(pass.delete.clone()));
    }
    writes.extend(history.surplus(&observed.members));
    let mut status = pass.counts.status(daemon_set);
    pass.course.report.apply(&mut status.conditions, observed.now);
    let reasons = explain::explain(observed, &history, &places, &pass, &writes);
    Plan {
        writes,
        notes: Vec::new(),
        policy_notes: observed.policy.notes(),
        status: Some(status),
        requeue_after: pass.requeue_after.map(|at| until(at, observed.now)),
        repeats: pass.create.iter().any(|node| observed.recent.contains(node, observed.now)),
        reasons,
    }
}

fn refusal(observed: &Observed<'_>) -> Option<EventNote> {
    let Observed { daemon_set, unreadable, .. } = observed;
    let selector = &daemon_set.selector;
    if selector.selects_everything() {
        let text = "This daemon set is selecting all pods. A non-empty selector is required.";
        return Some(EventNote::warning("SelectingAll", text.into()));
    }
    // A pod that the selector does not match would be released as soon as it is created, and created again.
    let is_foreign = !selector.matches(&daemon_set.template.labels);
    let foreign = || "it does not match the labels of the template".to_owned();
    if let Some(defect) = selector.defect().map(str::to_owned).or_else(|| is_foreign.then(foreign)) {
        let text = format!("This daemon set's selector is invalid: {defect}");
        return Some(EventNote::warning("InvalidSelector", text));
    }
    // A guess would create pods where none should run, or delete all.
    let unreadable = unreadable.as_ref()?;
    let text = format!("The placement of this daemon set's template cannot be read: {unreadable}");
    Some(EventNote::warning("InvalidTemplate", text))
}

fn claims(observed: &Observed<'_>) -> Vec<Write> {
    let Observed { daemon_set, members, revisions, orphan_revisions, .. } = observed;
    let revisions = revisions.iter().chain(orphan_revisions).filter_map(|revision| {
        match claim_revision(daemon_set, revision) {
            Claim::Adopt => Some(Write::AdoptRevision(revision.clone())),
            Claim::Release => Some(Write::ReleaseRevision(revision.clone())),
            Claim::Keep | Claim::Ignore => None,
        }
    });
    let to_release = members.to_release.iter().cloned().map(Write::ReleasePod);
    revisions.chain(to_release).chain(members.orphans.iter().cloned().map(Write::AdoptPod)).collect()
}

fn new_pod(observed: &Observed<'_>, node: &Arc<str>) -> NewPod {
    let meta = &observed.daemon_set.meta;
    let names = Names::of(&meta.key.name, &meta.uid);
    if planted!("names of DaemonSet pods depend on the clock") {
        let slot = u64::try_from(observed.now.as_millisecond()).unwrap_or(0);
        return NewPod { node: node.clone(), name: names.name(node, slot) };
    }
    NewPod { node: node.clone(), name: names.free(node, &observed.marks, |name| (observed.is_taken.0)(name)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Interner, Record};

    #[test]
    fn pods_are_deleted_in_one_write_if_there_are_any() {
        let json = r#"{"metadata":{"name":"agent","namespace":"ops","uid":"u-set","resourceVersion":"1","generation":1},
            "spec":{"selector":{"matchLabels":{"app":"agent"}},"template":{"metadata":{"labels":{"app":"agent"}},
            "spec":{"containers":[{"name":"agent","image":"agent:1"}]}}}}"#;
        let daemon_set = DaemonSet::decode(json, &mut Interner::default()).unwrap();
        // Its affinity names no node, so that nobody can tell for which node it is.
        let json = r#"{"metadata":{"name":"agent-1","namespace":"ops","uid":"u-pod","resourceVersion":"2",
            "labels":{"app":"agent"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"DaemonSet","name":"agent",
            "uid":"u-set","controller":true}]},"spec":{"containers":[]},"status":{"phase":"Pending"}}"#;
        let pod = Arc::new(Pod::decode(json, &mut Interner::default()).unwrap());
        let deleted = |pods: Vec<Arc<Pod>>| {
            let nodes = JudgedNodes::default();
            let observed = Observed::of_lists(&daemon_set, &pods, &[], &nodes, Timestamp::UNIX_EPOCH);
            let writes = plan(&observed).writes.into_iter();
            let sizes = writes.filter_map(|write| match write {
                Write::DeletePods(deletions) => Some(deletions.len()),
                _ => None,
            });
            sizes.collect::<Vec<_>>()
        };
        assert_eq!((deleted(Vec::new()), deleted(vec![pod])), (vec![], vec![1]));
    }
}
