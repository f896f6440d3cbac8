//! The reasons for a plan, as sentences and as data.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use serde::Serialize;

use super::ordinals::{self, Ordinal};
use super::status::Counts;
use super::{Pass, Reason, Write};
use crate::model::{Pod, StatefulSetStrategy};
use crate::plan::shorten;

/// The most pods and claims that an explanation names.
const NAMED: usize = 5;

/// A reason for a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum PlanReason {
    /// The StatefulSet cannot be acted on.
    Refused {
        /// Why.
        defect: String,
    },
    /// It is being deleted.
    BeingDeleted,
    /// A fresh read found it gone.
    Gone,
    /// Objects are adopted or released first.
    ChangingHands {
        /// How many.
        objects: usize,
    },
    /// Pods that cannot be decoded.
    Unreadable {
        /// How many.
        pods: usize,
    },
    /// A revision is created.
    NewRevision {
        /// Its name.
        name: String,
        /// Its number.
        number: i64,
    },
    /// Pods are created.
    Creating {
        /// Which.
        pods: Names,
    },
    /// Pods are deleted.
    Deleting {
        /// Why.
        why: Reason,
        /// Which.
        pods: Names,
    },
    /// Claims will be deleted with their pods.
    ClaimsGo {
        /// Which.
        claims: Names,
    },
    /// Pods that the StatefulSet waits for.
    Waiting {
        /// The first five.
        pods: Vec<Waiting>,
        /// How many more there are.
        more: usize,
    },
    /// Outdated pods that stay until others are available.
    Budget {
        /// How many may be unavailable.
        max: i64,
        /// How many stay.
        staying: usize,
    },
    /// Outdated pods below the partition.
    Partition {
        /// The partition.
        partition: i32,
        /// How many.
        outdated: usize,
    },
    /// Outdated pods that stay until a user deletes them.
    OnDelete {
        /// How many.
        outdated: usize,
        /// Which, the highest ordinal first.
        pods: Names,
    },
    /// Pods whose names end in no ordinal.
    Odd {
        /// Which.
        pods: Names,
    },
    /// Claims without a pod and out of range.
    LeftOver {
        /// Which.
        claims: Names,
    },
    /// All pods are updated and available.
    Complete {
        /// How many there are.
        pods: i32,
    },
}

/// A pod that the StatefulSet waits for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// Its name.
    pub pod: Arc<str>,
    /// The reason why it waits.
    pub reason: String,
    /// The remedy, where time alone does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<&'static str>,
    #[serde(skip)]
    is_quiet: bool,
}

/// The wait of a pod.
pub(super) enum Wait {
    /// It is created now.
    Created,
    /// It is deleted now, to be created again.
    Replaced,
    /// It is being deleted.
    Terminating,
    /// It has ended, and others before it have.
    BackingOff {
        /// Until when.
        until: String,
    },
    /// The label of its revision would be too long.
    NameTooLong,
    /// Another pod has its name.
    NameTaken {
        /// The owner of that pod.
        holder: String,
    },
    /// Its claim is on its way out.
    ClaimEnding {
        /// The claim.
        claim: String,
    },
    /// It is out of range and not available.
    ScaleDownHalted,
    /// It is not available.
    NotAvailable {
        /// Why.
        reason: String,
        /// Whether it has an older template, and is not replaced before it is available.
        is_in_its_own_way: bool,
    },
}

impl Wait {
    /// The wait of a pod that is there and not available.
    pub(super) fn of(pass: &Pass<'_>, pod: &Pod, is_in_its_own_way: bool) -> Self {
        let reason = match pod.available_at(pass.observed.set.min_ready_seconds) {
            Some(at) => format!("it becomes available at {at}"),
            None if pod.node().is_none() => format!("it is not scheduled{}", reported(pod)),
            None => format!("it is not ready{}", reported(pod)),
        };
        Wait::NotAvailable { reason, is_in_its_own_way }
    }
}

impl Pass<'_> {
    /// The pod of this ordinal waits.
    pub(super) fn wait(&mut self, ordinal: Ordinal, wait: Wait) {
        let pod = self.observed.members.pods.get(&ordinal);
        let name = pod.map_or_else(
            || ordinals::pod_name(self.observed.set, ordinal).into(),
            |pod| pod.meta.key.name.clone(),
        );
        let is_quiet = matches!(wait, Wait::Created | Wait::Replaced);
        let (reason, remedy) = match wait {
            Wait::Created => ("it is created now".to_owned(), None),
            Wait::Replaced => ("it has ended and is replaced".to_owned(), None),
            Wait::Terminating => {
                let node = pod.and_then(|pod| pod.node());
                let on = node.map(|node| format!(" on node {node}")).unwrap_or_default();
                let hint = "a pod on a lost node ends when the node returns, is deleted, or has the taint \
                            node.kubernetes.io/out-of-service";
                (format!("it is being deleted{on}"), node.map(|_| hint))
            }
            Wait::BackingOff { until } => (format!("it has ended, and is replaced at {until}"), None),
            Wait::NameTooLong => {
                let hint = "use a name of at most 52 characters";
                ("the label controller-revision-hash would be too long".to_owned(), Some(hint))
            }
            Wait::NameTaken { holder } => {
                let hint = "delete or rename the other pod";
                (format!("another pod has its name and belongs to {holder}"), Some(hint))
            }
            Wait::ClaimEnding { claim } => (format!("its claim {claim} is about to be deleted"), None),
            Wait::ScaleDownHalted => {
                let hint = "repair or delete the pod";
                ("it is out of range and not available, which halts the scale-down".to_owned(), Some(hint))
            }
            Wait::NotAvailable { reason, is_in_its_own_way } => {
                let hint =
                    "it has an older template: delete the pod, and it is created again with the current one";
                (reason, is_in_its_own_way.then_some(hint))
            }
        };
        self.waiting.push(Waiting { pod: name, reason, remedy, is_quiet });
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

/// Some names, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Names {
    /// The first five.
    pub names: Vec<Arc<str>>,
    /// How many more there are.
    pub more: usize,
}

impl FromIterator<Arc<str>> for Names {
    fn from_iter<I: IntoIterator<Item = Arc<str>>>(names: I) -> Self {
        let mut all = names.into_iter();
        let names = all.by_ref().take(NAMED).collect();
        Names { names, more: all.count() }
    }
}

impl Names {
    /// The bytes on the heap.
    pub(in crate::plan) fn heap(&self) -> usize {
        self.names.iter().map(|name| size_of::<Arc<str>>() + name.len()).sum()
    }
}

/// The reasons for the plan. Never empty.
pub(super) fn explain(pass: &Pass<'_>, counts: &Counts) -> Vec<PlanReason> {
    let (observed, history) = (pass.observed, pass.history);
    let set = observed.set;
    let mut reasons = Vec::new();
    if let Some(Write::CreateRevision(new)) = history.writes() {
        reasons.push(PlanReason::NewRevision { name: new.name, number: new.number });
    }
    if observed.unreadable_pods > 0 {
        reasons.push(PlanReason::Unreadable { pods: observed.unreadable_pods });
    }
    let named =
        |pods: Names, reason: &dyn Fn(Names) -> PlanReason| (!pods.names.is_empty()).then(|| reason(pods));
    let created = pass.create.iter().map(|new| new.name.clone()).collect();
    reasons.extend(named(created, &|pods| PlanReason::Creating { pods }));
    let whys: BTreeSet<Reason> = pass.delete.iter().map(|deletion| deletion.reason).collect();
    for why in whys {
        let of = pass.delete.iter().filter(|deletion| deletion.reason == why);
        let pods = of.map(|deletion| deletion.pod.meta.key.name.clone()).collect();
        reasons.push(PlanReason::Deleting { why, pods });
    }
    let goners = pass.owners.iter().filter(|change| change.goes_with_pod);
    let goners = goners.map(|change| change.claim.meta.key.name.clone()).collect();
    reasons.extend(named(goners, &|claims| PlanReason::ClaimsGo { claims }));
    let waiting: Vec<Waiting> = pass.waiting.iter().filter(|waiting| !waiting.is_quiet).cloned().collect();
    if !waiting.is_empty() {
        let more = waiting.len().saturating_sub(NAMED);
        reasons.push(PlanReason::Waiting { pods: waiting.into_iter().take(NAMED).collect(), more });
    }
    reasons.extend(outdated(pass));
    let odd = observed.members.odd.iter().map(|pod| pod.meta.key.name.clone()).collect();
    reasons.extend(named(odd, &|pods| PlanReason::Odd { pods }));
    reasons.extend(named(left_over(pass), &|claims| PlanReason::LeftOver { claims }));
    if counts.is_complete(set) {
        reasons.push(PlanReason::Complete { pods: set.replicas });
    }
    if reasons.is_empty() {
        reasons.push(PlanReason::Waiting { pods: Vec::new(), more: 0 });
    }
    reasons
}

/// Why outdated pods stay.
fn outdated(pass: &Pass<'_>) -> Option<PlanReason> {
    let (observed, history) = (pass.observed, pass.history);
    let set = observed.set;
    let is_outdated = |(ordinal, pod): &(&Ordinal, &Arc<Pod>)| {
        pass.is_in_range(**ordinal) && !history.is_updated(pod) && !pass.is_deleting(pod)
    };
    let pods = || observed.members.pods.iter().filter(is_outdated);
    match set.strategy {
        StatefulSetStrategy::OnDelete => {
            let outdated = pods().count();
            let names = pods().rev().map(|(_, pod)| pod.meta.key.name.clone()).collect();
            (outdated > 0).then_some(PlanReason::OnDelete { outdated, pods: names })
        }
        StatefulSetStrategy::RollingUpdate { max_unavailable, .. } if pass.staying > 0 => {
            let max = super::update::most_unavailable(set, max_unavailable);
            Some(PlanReason::Budget { max, staying: pass.staying })
        }
        StatefulSetStrategy::RollingUpdate { partition, .. } => {
            let partition = partition.unwrap_or(0);
            let first = i64::from(set.start) + i64::from(partition);
            let outdated = pods().filter(|(ordinal, _)| i64::from(**ordinal) < first).count();
            (outdated > 0).then_some(PlanReason::Partition { partition, outdated })
        }
    }
}

/// Claims of ordinals that are out of range and have no pod.
fn left_over(pass: &Pass<'_>) -> Names {
    let observed = pass.observed;
    let is_left_over = |claim: &Arc<str>| {
        let ordinal = ordinals::split(claim).and_then(|(_, digits)| ordinals::ordinal(digits));
        let is_wanted = |ordinal| pass.is_in_range(ordinal) || observed.members.pods.contains_key(&ordinal);
        let is_ours = |ordinal| {
            let mut templates = observed.set.claim_templates.names.iter();
            templates.any(|template| *ordinals::claim_name(template, observed.set, ordinal) == **claim)
        };
        ordinal.is_some_and(|ordinal| !is_wanted(ordinal) && is_ours(ordinal))
    };
    observed.claims.keys().filter(|claim| is_left_over(claim)).cloned().collect()
}

impl PlanReason {
    /// Cuts texts of unbounded length to this many bytes.
    pub fn shorten(&mut self, longest: usize) {
        match self {
            PlanReason::Refused { defect: text } => shorten(text, longest),
            PlanReason::Waiting { pods, more: _ } => {
                pods.iter_mut().for_each(|pod| shorten(&mut pod.reason, longest));
            }
            _ => {}
        }
    }

    /// The bytes on the heap. Names that it shares with a cache count in full.
    pub fn heap(&self) -> usize {
        match self {
            PlanReason::Refused { defect: text } => text.capacity(),
            PlanReason::NewRevision { name, number: _ } => name.capacity(),
            PlanReason::Creating { pods: names }
            | PlanReason::Deleting { pods: names, why: _ }
            | PlanReason::ClaimsGo { claims: names }
            | PlanReason::Odd { pods: names }
            | PlanReason::OnDelete { pods: names, outdated: _ }
            | PlanReason::LeftOver { claims: names } => names.heap(),
            PlanReason::Waiting { pods, more: _ } => {
                pods.iter().map(|pod| size_of::<Waiting>() + pod.pod.len() + pod.reason.capacity()).sum()
            }
            _ => 0,
        }
    }

    /// Whether this reason leaves nothing to do.
    pub fn is_at_rest(&self) -> bool {
        matches!(
            self,
            PlanReason::Complete { .. }
                | PlanReason::OnDelete { .. }
                | PlanReason::Partition { .. }
                | PlanReason::Odd { .. }
                | PlanReason::LeftOver { .. }
        )
    }
}

impl Display for Names {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(", "))?;
        if self.more > 0 { write!(f, " and {} more", self.more) } else { Ok(()) }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Condemned => "out of range",
            Reason::Ended => "failed or succeeded",
            Reason::NeverStarted => "of an older template, and no container of it has ever started",
            Reason::Broken => "of an older template, and not ready for longer than the annotation allows",
            Reason::Outdated => "of an older template",
        })
    }
}

fn counted(count: usize, kind: &str) -> String {
    format!("{count} {kind}pod{}", if count == 1 { "" } else { "s" })
}

impl Display for PlanReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PlanReason::Refused { defect } => {
                write!(f, "Windlass does not act on the StatefulSet: {defect}")
            }
            PlanReason::BeingDeleted => {
                f.write_str("The StatefulSet is being deleted: the garbage collector deletes its pods")
            }
            PlanReason::Gone => f.write_str(
                "The API server reports that the StatefulSet is gone or being deleted: Windlass adopts and creates \
                 nothing",
            ),
            PlanReason::ChangingHands { objects } => write!(
                f,
                "Windlass adopts or releases {objects} pods and ControllerRevisions first: all other writes wait \
                 until the cache shows the new owner references"
            ),
            PlanReason::Unreadable { pods } => write!(
                f,
                "{} cannot be decoded: Windlass creates no pod and deletes none until they can be decoded or are \
                 deleted; the log names them",
                counted(*pods, "")
            ),
            PlanReason::NewRevision { name, number } => write!(
                f,
                "No ControllerRevision has the current template: Windlass creates {name} as revision {number}"
            ),
            PlanReason::Creating { pods } => write!(f, "Windlass creates {pods}"),
            PlanReason::Deleting { why, pods } => write!(f, "Windlass deletes {pods}: {why}"),
            PlanReason::ClaimsGo { claims } => write!(
                f,
                "{claims} will be deleted with the pods, unless the StatefulSet gets these ordinals back before that"
            ),
            PlanReason::Waiting { pods, more } => {
                if pods.is_empty() {
                    return f.write_str("Nothing is left to do, and pods are not counted as available yet");
                }
                for (at, Waiting { pod, reason, remedy, .. }) in pods.iter().enumerate() {
                    write!(f, "{}Pod {pod}: {reason}", if at > 0 { "; " } else { "" })?;
                    if let Some(remedy) = remedy {
                        write!(f, " ({remedy})")?;
                    }
                }
                if *more > 0 { write!(f, "; {more} more pods wait") } else { Ok(()) }
            }
            PlanReason::Budget { max, staying } => write!(
                f,
                "maxUnavailable is {max}: {} must stay until others are available",
                counted(*staying, "old ")
            ),
            PlanReason::Partition { partition, outdated } => write!(
                f,
                "The partition is {partition}: {} below it {} older template",
                counted(*outdated, ""),
                if *outdated == 1 { "keeps its" } else { "keep their" }
            ),
            PlanReason::OnDelete { outdated, pods } => {
                let (stay, them) = if *outdated == 1 { ("stays", "it") } else { ("stay", "them") };
                let count = counted(*outdated, "");
                write!(
                    f,
                    "The strategy is OnDelete: {count} with an older template {stay} until a user deletes {them}: {pods}"
                )
            }
            PlanReason::Odd { pods } => write!(
                f,
                "{pods}: what is behind the name of the StatefulSet is no ordinal, so Windlass leaves such pods alone"
            ),
            PlanReason::LeftOver { claims } => {
                write!(f, "{claims}: claims without a pod, left over. Windlass deletes no claims")
            }
            PlanReason::Complete { pods } => {
                write!(f, "Complete: {pods} of {pods} pods are available and of the current template")
            }
        }
    }
}

impl Display for Write {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Write::AdoptPod(pod) => write!(f, "adopt pod {}", pod.meta.key.name),
            Write::ReleasePod(pod) => write!(f, "release pod {}", pod.meta.key.name),
            Write::AdoptRevision(revision) => write!(f, "adopt revision {}", revision.meta.key.name),
            Write::ChangeRevision(revision, change) => {
                write!(f, "change revision {}", revision.meta.key.name)?;
                change.number.map_or(Ok(()), |number| write!(f, " to number {number}"))
            }
            Write::CreateRevision(new) => write!(f, "create revision {} as number {}", new.name, new.number),
            Write::DeleteRevision(revision) => write!(f, "delete revision {}", revision.meta.key.name),
            Write::SetOwners(change) => {
                let owners = change.owners.iter().map(|owner| format!("{} {}", owner.kind, owner.name));
                let owners = owners.collect::<Vec<_>>().join(", ");
                let owners = if owners.is_empty() { "nothing".to_owned() } else { owners };
                write!(f, "let claim {} be owned by {owners}", change.claim.meta.key.name)
            }
            Write::Label(pod, labels) => {
                let labels = labels.iter().map(|(label, value)| format!("{label}={value}"));
                write!(f, "label pod {}: {}", pod.meta.key.name, labels.collect::<Vec<_>>().join(", "))
            }
            Write::CreateClaims(new) => {
                write!(f, "create {} claims of pod {}", new.missing_claims.len(), new.name)
            }
            Write::CreatePods(pods) => {
                let claims: usize = pods.iter().map(|new| new.missing_claims.len()).sum();
                let names: Names = pods.iter().map(|new| new.name.clone()).collect();
                write!(f, "create pods {names}")?;
                if claims > 0 { write!(f, ", with {claims} claims") } else { Ok(()) }
            }
            Write::DeletePods(deletions) => {
                let names: Names =
                    deletions.iter().map(|deletion| deletion.pod.meta.key.name.clone()).collect();
                write!(f, "delete pods {names}")
            }
        }
    }
}
