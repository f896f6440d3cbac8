//! Why a plan does what it does, and what it waits for: as data, each with one sentence.
//!
//! Nothing is decided here: the explanation reads the input and the writes of the plan.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use serde::Serialize;

use super::course::Hold;
use super::members::PodsOfNode;
use super::node_pass::NodePass;
use super::revisions::History;
use super::rolling::Budget;
use super::{Observed, Reason, Verdict, Write};
use crate::model::{Phase, Pod};
use crate::plan::deployment::explain::shorten;
use crate::plan::policy::{StepHold, unreadable};

/// One reason for a plan. [`Display`] makes a sentence of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlanReason {
    /// The DaemonSet cannot be acted on.
    Refused {
        /// The defect: the text of the event.
        defect: String,
    },
    /// The DaemonSet is being deleted.
    BeingDeleted,
    /// The read before an adoption found the DaemonSet gone, or being deleted.
    Gone,
    /// Pods or revisions are adopted or released before anything else.
    ChangingHands {
        /// How many.
        objects: usize,
    },
    /// The template gets a revision.
    NewRevision {
        /// Its name.
        name: String,
        /// Its number.
        number: i64,
    },
    /// Pods exist that cannot be decoded.
    Unreadable {
        /// How many.
        pods: usize,
    },
    /// Pods are created on these nodes.
    Creating {
        /// Which.
        nodes: Nodes,
    },
    /// Pods are deleted.
    Deleting {
        /// Why.
        reason: Reason,
        /// How many.
        pods: usize,
    },
    /// Failed pods that are not replaced yet.
    BackingOff {
        /// On which nodes.
        nodes: Nodes,
        /// When the first of them is replaced.
        next: String,
    },
    /// The bounds of a rolling update that is under way.
    Budget {
        /// The numbers that the plan was computed from.
        #[serde(flatten)]
        budget: Budget,
        /// How many available old pods must stay.
        staying: usize,
    },
    /// Under OnDelete an old pod stays until a user deletes it.
    OnDelete {
        /// How many stay.
        outdated: usize,
    },
    /// Nodes without an available pod of the current template, and what each waits for.
    Waiting {
        /// The first five.
        nodes: Vec<WaitingNode>,
        /// How many more there are.
        more: usize,
    },
    /// Pods that may stay on nodes whose taints admit no new ones.
    Misscheduled {
        /// Which nodes.
        nodes: Nodes,
    },
    /// Pods that are bound to a node that does not exist: the pod garbage collector deletes them.
    NodesGone {
        /// Which nodes.
        nodes: Nodes,
    },
    /// A value of the policy cannot be read, and nothing is rolled out until it can.
    InvalidPolicy {
        /// Key, value, and what is accepted.
        defect: String,
    },
    /// The update waits at a step of its policy.
    HeldAtStep {
        /// The step.
        #[serde(flatten)]
        step: StepHold,
    },
    /// Nodes that are not ready and that the update leaves alone.
    LeftAlone {
        /// Which.
        nodes: Nodes,
    },
    /// Every node that should run a pod has one that is new and available.
    Complete {
        /// How many nodes.
        nodes: i32,
    },
}

/// A node that a rollout waits for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingNode {
    /// Its name.
    pub node: Arc<str>,
    /// The pod; `None` while there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Arc<str>>,
    /// The reason why it waits.
    pub reason: String,
}

/// The most nodes that an explanation names.
const NAMED: usize = 5;

/// Some nodes, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Nodes {
    /// The first five.
    pub names: Vec<Arc<str>>,
    /// How many more there are.
    pub more: usize,
}

impl<'a> FromIterator<&'a Arc<str>> for Nodes {
    fn from_iter<I: IntoIterator<Item = &'a Arc<str>>>(nodes: I) -> Self {
        let mut nodes = nodes.into_iter();
        let names = nodes.by_ref().take(NAMED).cloned().collect();
        Nodes { names, more: nodes.count() }
    }
}

impl Nodes {
    fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    fn count(&self) -> usize {
        self.names.len() + self.more
    }

    fn heap(&self) -> usize {
        self.names.iter().map(|name| size_of::<Arc<str>>() + name.len()).sum()
    }
}

/// The reasons for the plan. Never empty.
pub(super) fn explain(
    observed: &Observed<'_>,
    history: &History<'_>,
    places: &[PodsOfNode<'_>],
    pass: &NodePass,
    writes: &[Write],
) -> Vec<PlanReason> {
    let mut reasons: Vec<PlanReason> = Vec::new();
    reasons.extend(writes.iter().filter_map(|write| match write {
        Write::CreateRevision(new) => {
            Some(PlanReason::NewRevision { name: new.name.clone(), number: new.number })
        }
        _ => None,
    }));
    if observed.unreadable_pods > 0 {
        reasons.push(PlanReason::Unreadable { pods: observed.unreadable_pods });
    }
    if !pass.create.is_empty() {
        reasons.push(PlanReason::Creating { nodes: pass.create.iter().collect() });
    }
    let mut deletions: Vec<Reason> = pass.delete.iter().map(|deletion| deletion.reason).collect();
    deletions.sort_unstable();
    reasons.extend(
        deletions
            .chunk_by(|a, b| a == b)
            .filter_map(|same| Some(PlanReason::Deleting { reason: *same.first()?, pods: same.len() })),
    );
    if let Some(next) = pass.backs_off.iter().map(|(_, until)| *until).min() {
        let nodes = pass.backs_off.iter().map(|(node, _)| node).collect();
        reasons.push(PlanReason::BackingOff { nodes, next: next.to_string() });
    }
    match pass.budget {
        _ if pass.outdated == 0 => {}
        None => reasons.push(PlanReason::OnDelete { outdated: pass.outdated }),
        // The step keeps them, and not the budget.
        Some(_) if matches!(&pass.course.hold, Some(Hold::Step(StepHold { since: Some(_), .. }))) => {}
        Some(budget) => reasons.push(PlanReason::Budget { budget, staying: pass.staying }),
    }

    reasons.extend(pass.course.hold.as_ref().map(|hold| match hold {
        Hold::Invalid { defect } => PlanReason::InvalidPolicy { defect: defect.clone() },
        Hold::Step(step) => PlanReason::HeldAtStep { step: step.clone() },
    }));
    if !pass.left_alone.is_empty() {
        reasons.push(PlanReason::LeftAlone { nodes: pass.left_alone.iter().collect() });
    }

    let (mut waiting, mut more, mut misscheduled, mut gone) = (Vec::new(), 0, Vec::new(), Vec::new());
    for &place in places {
        match place.verdict {
            Some(Verdict::Run) => match wait(observed, history, place) {
                Some(node) if waiting.len() < NAMED => waiting.push(node),
                Some(_) => more += 1,
                None => {}
            },
            Some(Verdict::Continue) => misscheduled.push(place.node),
            Some(Verdict::Leave) => {}
            None => gone.push(place.node),
        }
    }
    if !waiting.is_empty() {
        reasons.push(PlanReason::Waiting { nodes: waiting, more });
    }
    let misscheduled: Nodes = misscheduled.into_iter().collect();
    if !misscheduled.is_empty() {
        reasons.push(PlanReason::Misscheduled { nodes: misscheduled });
    }
    let gone: Nodes = gone.into_iter().collect();
    if !gone.is_empty() {
        reasons.push(PlanReason::NodesGone { nodes: gone });
    }
    if pass.counts.is_complete() {
        reasons.push(PlanReason::Complete { nodes: pass.counts.status(observed.daemon_set).desired });
    }
    if reasons.is_empty() {
        // Only surplus pods are left, and they are being deleted.
        reasons.push(PlanReason::Waiting { nodes: Vec::new(), more: 0 });
    }
    reasons
}

/// The wait of a node; `None` if it has an available pod that no rollout replaces.
fn wait(observed: &Observed<'_>, history: &History<'_>, place: PodsOfNode<'_>) -> Option<WaitingNode> {
    let Observed { daemon_set, now, .. } = observed;
    let live = || place.pods.iter().filter(|pod| !pod.meta.is_deleting());
    let is_available = |pod: &&Arc<Pod>| pod.is_available(daemon_set.min_ready_seconds, *now);
    let pod = match place.pods {
        [pod] => Some(pod),
        // The rollout waits for the new pod, also where an old one is available.
        pods => live().find(|pod| history.is_new(pod)).or_else(|| live().next()).or_else(|| pods.first()),
    };
    let reason = match pod {
        None => "no pod exists yet".to_owned(),
        Some(pod) if pod.meta.is_deleting() => format!("the pod is being deleted{}", reported(pod)),
        Some(pod) if is_available(&pod) => return None,
        Some(pod) if pod.phase == Phase::Failed => format!("the pod has failed{}", reported(pod)),
        Some(pod) => match pod.available_at(daemon_set.min_ready_seconds) {
            Some(at) => format!("the pod becomes available at {at}"),
            None if pod.node().is_none() => format!("the pod is not scheduled{}", reported(pod)),
            None => format!("the pod is not ready{}", reported(pod)),
        },
    };
    Some(WaitingNode { node: place.node.clone(), pod: pod.map(|pod| pod.meta.key.name.clone()), reason })
}

impl PlanReason {
    /// Cuts texts of unbounded length to this many bytes.
    pub fn shorten(&mut self, longest: usize) {
        match self {
            PlanReason::Refused { defect: text } | PlanReason::InvalidPolicy { defect: text } => {
                shorten(text, longest);
            }
            PlanReason::Waiting { nodes, more: _ } => {
                nodes.iter_mut().for_each(|node| shorten(&mut node.reason, longest));
            }
            _ => {}
        }
    }

    /// The bytes on the heap. Names that it shares with a cache count in full.
    pub fn heap(&self) -> usize {
        match self {
            PlanReason::Refused { defect: text } | PlanReason::InvalidPolicy { defect: text } => {
                text.capacity()
            }
            PlanReason::NewRevision { name, number: _ } => name.capacity(),
            PlanReason::BackingOff { nodes, next } => nodes.heap() + next.capacity(),
            PlanReason::Creating { nodes }
            | PlanReason::Misscheduled { nodes }
            | PlanReason::NodesGone { nodes }
            | PlanReason::LeftAlone { nodes } => nodes.heap(),
            PlanReason::Waiting { nodes, more: _ } => {
                let heap = |WaitingNode { node, pod, reason }: &WaitingNode| {
                    node.len() + pod.as_ref().map_or(0, |pod| pod.len()) + reason.capacity()
                };
                nodes.iter().map(|node| size_of::<WaitingNode>() + heap(node)).sum()
            }
            PlanReason::BeingDeleted
            | PlanReason::Gone
            | PlanReason::ChangingHands { .. }
            | PlanReason::Unreadable { .. }
            | PlanReason::Deleting { .. }
            | PlanReason::Budget { .. }
            | PlanReason::OnDelete { .. }
            | PlanReason::HeldAtStep { .. }
            | PlanReason::Complete { .. } => 0,
        }
    }

    /// Whether this reason leaves nothing to do.
    pub fn is_at_rest(&self) -> bool {
        matches!(
            self,
            PlanReason::Complete { .. } | PlanReason::OnDelete { .. } | PlanReason::Misscheduled { .. }
        )
    }
}

/// The report of the kubelet or the scheduler.
fn reported(pod: &Pod) -> String {
    let Some(waiting) = pod.startup_failure() else { return String::new() };
    match &waiting.message {
        Some(message) => format!(": {}: {message}", waiting.reason),
        None => format!(": {}", waiting.reason),
    }
}

impl Display for Nodes {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let one = if self.count() == 1 { "node" } else { "nodes" };
        write!(f, "{one} {}", self.names.join(", "))?;
        if self.more > 0 { write!(f, " and {} more", self.more) } else { Ok(()) }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::NotWanted => "the DaemonSet does not run on their nodes",
            Reason::NoNode => "their nodes do not exist",
            Reason::Excess => "their nodes have other pods of the DaemonSet",
            Reason::Failed => "they have failed",
            Reason::Succeeded => "they have succeeded",
            Reason::Outdated => "they have an older template",
            Reason::Replaced => "the new pods on their nodes are available",
        })
    }
}

fn pods(count: usize, kind: &str) -> String {
    format!("{count} {kind}pod{}", if count == 1 { "" } else { "s" })
}

impl Display for PlanReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PlanReason::Refused { defect } => write!(f, "Windlass does not act on the DaemonSet: {defect}"),
            PlanReason::BeingDeleted => {
                f.write_str("The DaemonSet is being deleted: the garbage collector deletes its pods")
            }
            PlanReason::Gone => f.write_str(
                "The API server reports that the DaemonSet is gone or being deleted: Windlass adopts and creates \
                 nothing",
            ),
            PlanReason::ChangingHands { objects } => write!(
                f,
                "Windlass adopts or releases {objects} pods and ControllerRevisions first: all other writes wait \
                 until the cache shows the new owner references"
            ),
            PlanReason::NewRevision { name, number } => write!(
                f,
                "No ControllerRevision has the current template: Windlass creates {name} as revision {number}"
            ),
            PlanReason::Unreadable { pods: count } => write!(
                f,
                "{} cannot be decoded, and may be on any node: Windlass creates no pod and replaces none until \
                 they can be decoded or are deleted; the log names them",
                pods(*count, "")
            ),
            PlanReason::Creating { nodes } => {
                write!(f, "Windlass creates {} on {nodes}", pods(nodes.count(), ""))
            }
            PlanReason::Deleting { reason, pods: count } => {
                write!(f, "Windlass deletes {}: {reason}", pods(*count, ""))
            }
            PlanReason::BackingOff { nodes, next } => {
                write!(f, "Failed pods on {nodes} are in backoff: Windlass replaces the next one at {next}")
            }
            PlanReason::Budget { budget, staying } => {
                match budget {
                    Budget::Unavailable { max, unavailable } => {
                        write!(f, "maxUnavailable is {max} and {} no available pod", nodes_have(*unavailable))?;
                    }
                    Budget::Surge { max, surging } => {
                        write!(f, "maxSurge is {max} and {} a new pod beside the old one", nodes_have(*surging))?;
                    }
                }
                write!(f, ": {} must stay", pods(*staying, "available old "))
            }
            PlanReason::OnDelete { outdated } => {
                let (stay, them) = if *outdated == 1 { ("stays", "it") } else { ("stay", "them") };
                let pods = pods(*outdated, "");
                write!(f, "The strategy is OnDelete: {pods} with an older template {stay} until a user deletes {them}")
            }
            PlanReason::Waiting { nodes, more } => {
                if nodes.is_empty() {
                    return f.write_str("Surplus pods are not deleted yet");
                }
                for (at, WaitingNode { node, reason, .. }) in nodes.iter().enumerate() {
                    write!(f, "{}Node {node}: {reason}", if at > 0 { "; " } else { "" })?;
                }
                if *more > 0 { write!(f, "; {more} more nodes wait") } else { Ok(()) }
            }
            PlanReason::Misscheduled { nodes } => write!(
                f,
                "Pods stay on {nodes}: the taints only keep new pods away. They count as misscheduled"
            ),
            PlanReason::NodesGone { nodes } => {
                let exist = if nodes.count() == 1 { "exists" } else { "exist" };
                write!(f, "Pods are bound to {nodes}, which no longer {exist}: the pod garbage collector deletes them")
            }
            PlanReason::InvalidPolicy { defect } => f.write_str(&unreadable(defect)),
            PlanReason::HeldAtStep { step } => step.fmt(f),
            PlanReason::LeftAlone { nodes } => write!(
                f,
                "windlass.dev/not-ready-nodes: the update leaves {nodes} alone until ready, and counts no pod there as \
                 unavailable"
            ),
            PlanReason::Complete { nodes } => {
                write!(f, "Complete: {nodes} of {nodes} nodes have an available pod of the current template")
            }
        }
    }
}

fn nodes_have(count: i64) -> String {
    if count == 1 { "1 node has".to_owned() } else { format!("{count} nodes have") }
}

impl Display for Write {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Write::AdoptPod(pod) => write!(f, "adopt pod {}", pod.meta.key.name),
            Write::ReleasePod(pod) => write!(f, "release pod {}", pod.meta.key.name),
            Write::AdoptRevision(revision) => write!(f, "adopt revision {}", revision.meta.key.name),
            Write::ReleaseRevision(revision) => write!(f, "release revision {}", revision.meta.key.name),
            Write::Relabel { pod, hash } => write!(f, "relabel pod {} to {hash}", pod.meta.key.name),
            Write::DeleteRevision(revision) => write!(f, "delete revision {}", revision.meta.key.name),
            Write::ChangeRevision(revision, change) => {
                write!(f, "change revision {}", revision.meta.key.name)?;
                change.number.map_or(Ok(()), |number| write!(f, " to number {number}"))
            }
            Write::CreateRevision(new) => write!(f, "create revision {} as number {}", new.name, new.number),
            Write::CreatePods { pods, hash } => {
                let nodes: Nodes = pods.iter().map(|new| &new.node).collect();
                write!(f, "create {} of revision {hash} on {nodes}", self::pods(pods.len(), ""))
            }
            Write::DeletePods(deletions) => {
                let nodes: Nodes = deletions.iter().filter_map(|deletion| deletion.pod.target()).collect();
                write!(f, "delete {} on {nodes}", self::pods(deletions.len(), ""))
            }
        }
    }
}
