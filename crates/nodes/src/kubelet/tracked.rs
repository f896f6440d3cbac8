//! The state of one pod in the simulator, and its next step. Pure.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::core::v1::Node;
use tokio::time::Instant;

use super::{
    lifecycle::{Delays, Step},
    nodes::Condition,
    outcomes,
    record::Pod,
    runs::ContainerRuns,
};
use crate::{api_client::backoff, scheduler::tolerates};

/// The time after which a pod of a deleted node is collected: a node may be recreated within it. Upstream's
/// pod garbage collector (pkg/controller/podgc) looks every 20 s besides.
const QUARANTINE: Duration = Duration::from_secs(40);

/// How long a pod bears the taints of a node that does not answer, if it says nothing about them. A real server writes
/// this into every pod (the admission plugin DefaultTolerationSeconds).
const UNREACHABLE_TOLERATION: Duration = Duration::from_secs(300);

/// The nodes by name.
#[derive(Debug, Default)]
pub(super) struct Nodes {
    pub(super) present: BTreeMap<String, Node>,
    /// Deleted nodes, and since when they are deleted.
    pub(super) gone: BTreeMap<String, Instant>,
    /// Whether controllers evict their pods, and report that those of a node that is not ready are not ready.
    pub(super) have_controllers: bool,
}

#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) pod: Pod,
    /// The last step that took effect or was abandoned.
    pub(super) reached: Option<Step>,
    pub(super) due: Option<(Instant, Step)>,
    /// A step is being carried out.
    pub(super) busy: bool,
    pub(super) failures: u32,
    /// The node this pod counts on, from the moment it is chosen.
    pub(super) place: Option<String>,
    /// When its termination is due, from the first observation of its deletion.
    ending: Option<Instant>,
    /// Since when its node has a taint that it does not tolerate indefinitely.
    tainted_since: Option<Instant>,
    /// Whether its readiness gates, and its node, let it be ready when that was last reported.
    pub(super) gates_open: bool,
    /// The count of capacity changes at the last scheduling attempt.
    pub(super) tried: u64,
    /// The count of changes of the objects that pods need when the pod was judged by them.
    pub(super) judged: u64,
    /// The last reported reason why it has no node or does not run.
    pub(super) complaint: Option<Box<str>>,
    /// Its main containers, if one of them ends.
    pub(super) runs: Option<Box<[ContainerRuns]>>,
    /// Something happened to one of them that is still to be reported.
    pub(super) unreported: bool,
}

impl Tracked {
    /// The state of a pod that ran before this process started: a pod that is ready already is not started again.
    pub(super) fn new(pod: &Pod) -> Self {
        let reached = match () {
            // The objects that it needs may exist by now, and containers that end begin anew.
            () if pod.status.start_time.is_some() && (waits(pod) || outcomes::may_end(pod)) => {
                Some(Step::Start)
            }
            () if pod.is_true("Ready") || pod.status.pod_ip.is_some() => Some(Step::Run),
            () if pod.status.start_time.is_some() => Some(Step::Start),
            () => None,
        };
        Tracked {
            pod: pod.clone(),
            reached,
            due: None,
            busy: false,
            failures: 0,
            place: None,
            ending: None,
            tainted_since: None,
            gates_open: super::status::gates_are_open(pod),
            tried: 0,
            judged: 0,
            complaint: None,
            runs: None,
            unreported: false,
        }
    }

    pub(super) fn next(
        &mut self,
        nodes: &Nodes,
        held: bool,
        delays: Delays,
        now: Instant,
    ) -> Option<(Instant, Step)> {
        let retry = if self.failures == 0 { now } else { now + backoff(self.failures) };
        if let Some(since) = self.pod.node().and_then(|node| nodes.gone.get(node)) {
            let collected = self.reached >= Some(Step::Collect);
            return (!collected).then_some(((*since + QUARANTINE).max(retry), Step::Collect));
        }
        let node = self.pod.node().and_then(|node| nodes.present.get(node));
        let silent = node.is_some_and(|node| Condition::of(node) == Condition::Unknown);
        if self.pod.metadata.deletion_timestamp.is_some() {
            // No kubelet reports on a pod of a node that does not report itself.
            if silent || self.pod.node().is_none() || self.reached >= Some(Step::Finish) {
                return None;
            }
            let grace = self.pod.metadata.deletion_grace_period_seconds.unwrap_or(0);
            let grace = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
            // Whatever ignores SIGTERM runs until the grace period is over.
            let wait = if outcomes::ignores_sigterm(&self.pod) { grace } else { delays.shutdown.min(grace) };
            let by = now + wait;
            let ending = self.ending.map_or(by, |before| before.min(by));
            self.ending = Some(ending);
            return Some((ending.max(retry), Step::Finish));
        }
        if self.pod.is_terminal() {
            return None;
        }
        if self.pod.node().is_none() {
            let ours =
                matches!(self.pod.spec.scheduler_name.as_deref(), None | Some("" | "default-scheduler"));
            let gated = self.pod.spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
            let waiting = ours && !gated && !held && self.reached < Some(Step::Place);
            return waiting.then_some((retry, Step::Place));
        }
        let node = node?;
        let evicts = !nodes.have_controllers;
        let evicted =
            evicts.then(|| self.eviction(node, now)).flatten().map(|at| (at.max(retry), Step::Evict));
        let run = self
            .run(node, nodes.have_controllers, delays, now, retry)
            .filter(|(_, step)| *step != Step::Run || !held);
        [run, evicted].into_iter().flatten().min()
    }

    /// The way of a bound pod to readiness, and what changes its readiness afterwards.
    fn run(
        &mut self,
        node: &Node,
        has_controller: bool,
        delays: Delays,
        now: Instant,
        retry: Instant,
    ) -> Option<(Instant, Step)> {
        let condition = Condition::of(node);
        match self.reached {
            None | Some(Step::Place | Step::Start) if condition == Condition::Unknown => None,
            None | Some(Step::Place) if !delays.ready.is_zero() => Some((retry, Step::Start)),
            None | Some(Step::Place) => Some((retry, Step::Run)),
            Some(Step::Start) => {
                let wait = if self.failures == 0 { now + delays.ready } else { retry };
                Some((wait, Step::Run))
            }
            Some(_) => {
                let open = condition == Condition::Ready && super::status::gates_are_open(&self.pod);
                let turned = open != self.gates_open;
                self.gates_open = open;
                let planned = self.due.is_some_and(|(_, step)| step == Step::Regate);
                // The kubelet reports its pods again once it is back.
                let is_left = has_controller && condition != Condition::Ready;
                let regate = ((turned || planned) && !is_left).then_some((retry, Step::Regate));
                let exit = self.next_exit(retry).filter(|_| condition != Condition::Unknown);
                [regate, exit].into_iter().flatten().min()
            }
        }
    }

    /// When something happens to a container, or what happened is to be reported.
    fn next_exit(&self, retry: Instant) -> Option<(Instant, Step)> {
        let next = if self.unreported {
            Some(retry)
        } else {
            self.runs.iter().flatten().filter_map(ContainerRuns::next).min()
        };
        next.map(|at| (at.max(retry), Step::Exit))
    }

    /// When the taints of the node drive the pod away, as upstream's taint eviction controller does.
    fn eviction(&mut self, node: &Node, now: Instant) -> Option<Instant> {
        let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        let tolerations = self.pod.spec.tolerations.as_deref().unwrap_or_default();
        let tolerated_for = |taint: &k8s_openapi::api::core::v1::Taint| {
            let mut matching =
                tolerations.iter().filter(|toleration| tolerates(toleration, taint)).peekable();
            if matching.peek().is_none() {
                let silence = matches!(
                    taint.key.as_str(),
                    "node.kubernetes.io/not-ready" | "node.kubernetes.io/unreachable"
                );
                return Some(if silence { UNREACHABLE_TOLERATION } else { Duration::ZERO });
            }
            let limits = matching.filter_map(|toleration| toleration.toleration_seconds);
            limits.min().map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
        };
        let shortest =
            taints.iter().filter(|taint| taint.effect == "NoExecute").filter_map(tolerated_for).min();
        let Some(wait) = shortest else {
            self.tainted_since = None;
            return None;
        };
        let since = *self.tainted_since.get_or_insert(now);
        since.checked_add(wait).filter(|_| self.reached < Some(Step::Evict))
    }
}

/// Whether a pod has not started because of something that it needs.
fn waits(pod: &Pod) -> bool {
    pod.status.phase.as_deref() == Some("Pending") && pod.needs(None)
}
