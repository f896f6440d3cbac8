//! A pod, in a few hundred bytes.

mod affinity;
pub mod claims;
pub mod job;
pub mod network;
mod protobuf;
pub mod shape;
mod target;
mod tolerations;

use std::borrow::Cow;
use std::sync::Arc;

use jiff::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::container_text::ContainerText;
use super::intern::Interner;
use super::meta::Meta;
use super::record::{Record, Resource, own_bytes};
use super::tolerations::{Toleration, Tolerations};
use super::wire::{MetaWire, Pairs, Text, Time};
use claims::{Claims, VolumesWire};
use job::JobPod;
use network::Network;
use shape::{PodShape, ResourcesWire};
use target::AffinityWire;
use tolerations::TolerationWire;

/// The annotation that ranks pods for deletion (KEP-2255).
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Accepted, not all containers started.
    Pending,
    /// The node was lost.
    Unknown,
    /// Bound, and at least one container runs.
    Running,
    /// All containers ended well, and none will restart.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
}

/// The fields of a pod that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Metadata.
    pub meta: Meta,
    /// The phase.
    pub phase: Phase,
    /// Since when the pod is ready; `None` when it is not, [`Timestamp::UNIX_EPOCH`] when the time is unknown.
    pub ready_since: Option<Timestamp>,
    /// One string for two uses, so that a pod costs no more for it; see [`Pod::node`] and [`Pod::target`].
    place: Option<Arc<str>>,
    /// Whether `place` is the node that the pod is bound to.
    is_bound: bool,
    /// How often its containers were restarted.
    pub restarts: Restarts,
    /// `controller.kubernetes.io/pod-deletion-cost`; what does not parse counts as 0.
    pub deletion_cost: i32,
    /// Why the pod is not running. In a box, because most pods run, and then it costs one word.
    pub waiting: Option<Box<Waiting>>,
    /// Whether the pod failed within a minute of its start, as one does that its node refuses
    /// (`OutOfcpu`, `NodeAffinity`) or evicts at once: its replacement may fail as well.
    pub failed_early: bool,
    /// Whether any container of it, init containers included, is known to have started.
    pub has_started: bool,
    /// The PersistentVolumeClaims of its volumes.
    pub claims: Claims,
    /// The part that Jobs read, of their pods.
    pub job: Option<Box<JobPod>>,
    /// The part that its Services publish.
    pub network: Network,
    /// Since when the condition `DisruptionTarget` is true, unless the kubelet set it, which ends the pod in its own time. In a
    /// box, because few pods have it.
    pub disruption_target: Option<Box<Timestamp>>,
    /// The part that quotas read.
    pub shape: Arc<PodShape>,
    /// Its tolerations of taints that evict; `None` without any.
    tolerations: Option<Arc<Tolerations>>,
}

/// How often containers were restarted, each time that of the container that restarted most. Compared as
/// upstream compares it: by the regular containers, then by the restartable init containers (sidecars).
/// Other init containers do not count (upstream: `compareMaxContainerRestarts`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Restarts {
    /// Of the regular containers.
    pub regular: i32,
    /// Of the restartable init containers.
    pub sidecar: i32,
}

/// A pod that ran for longer than this did not fail at startup.
const EARLY: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Why a pod is not running, as the kubelet or the scheduler reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// `ImagePullBackOff`, `CrashLoopBackOff`, `OOMKilled`, `Unschedulable`, `Evicted`.
    pub reason: Arc<str>,
    /// The message beside it, on one line and not longer than [`MESSAGE`]; `None` without one. For a
    /// container that ended it is the exit code.
    pub message: Option<Arc<str>>,
    /// Whether the whole message, before it was cut, names a shortage that the end of another pod can relieve. The scheduler
    /// gives its reasons in the order of their texts, taints before CPUs.
    pub lacks_room: bool,
    /// The termination message of the container, cut as the message is.
    pub termination_message: Option<ContainerText>,
    /// Since when the pod is not ready; if it never was and its node says nothing of it, since when it is bound, or not.
    pub since: Option<Timestamp>,
}

/// The scheduler's words for shortages that the end of another pod can relieve.
const RELIEVED: [&str; 3] = ["Insufficient ", "free ports", "anti-affinity"];

/// The most characters of a message that are kept. The kubelet lets a container write 4096 bytes; the
/// beginning says what it is about, and thousands of pods may fail at once.
pub const MESSAGE: usize = 200;

#[derive(Deserialize)]
struct PodWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    spec: Option<SpecWire<'a>>,
    #[serde(borrow, default)]
    status: Option<StatusWire<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecWire<'a> {
    #[serde(borrow, default)]
    node_name: Text<'a>,
    #[serde(borrow, default)]
    affinity: Option<AffinityWire<'a>>,
    #[serde(borrow, default)]
    containers: Option<Vec<ContainerWire<'a>>>,
    #[serde(borrow, default)]
    init_containers: Option<Vec<ContainerWire<'a>>>,
    #[serde(borrow, default)]
    volumes: VolumesWire<'a>,
    #[serde(borrow, default)]
    hostname: Text<'a>,
    #[serde(borrow, default)]
    subdomain: Text<'a>,
    #[serde(borrow, default)]
    priority_class_name: Text<'a>,
    #[serde(default)]
    active_deadline_seconds: Option<i64>,
    #[serde(borrow, default)]
    resources: Option<ResourcesWire<'a>>,
    #[serde(borrow, default)]
    overhead: Pairs<'a>,
    tolerations: Option<Vec<TolerationWire<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerWire<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    restart_policy: Text<'a>,
    #[serde(borrow, default)]
    ports: Option<Vec<PortWire<'a>>>,
    #[serde(borrow, default)]
    resources: Option<ResourcesWire<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortWire<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(default)]
    container_port: Option<i32>,
    #[serde(borrow, default)]
    protocol: Text<'a>,
}

#[derive(Default, Deserialize)]
struct AddressWire<'a> {
    #[serde(borrow, default)]
    ip: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusWire<'a> {
    #[serde(borrow, default)]
    phase: Text<'a>,
    #[serde(borrow, default)]
    qos_class: Text<'a>,
    #[serde(borrow, default)]
    reason: Text<'a>,
    #[serde(borrow, default)]
    message: Text<'a>,
    #[serde(borrow, default)]
    start_time: Moment<'a>,
    #[serde(borrow, default, rename = "podIP")]
    pod_ip: Text<'a>,
    #[serde(borrow, default, rename = "podIPs")]
    pod_ips: Option<Vec<AddressWire<'a>>>,
    #[serde(borrow, default)]
    conditions: Option<Vec<PodConditionWire<'a>>>,
    #[serde(borrow, default)]
    init_container_statuses: Option<Vec<ContainerStatusWire<'a>>>,
    #[serde(borrow, default)]
    container_statuses: Option<Vec<ContainerStatusWire<'a>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodConditionWire<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
    #[serde(borrow, default)]
    reason: Text<'a>,
    #[serde(borrow, default)]
    message: Text<'a>,
    #[serde(default)]
    last_transition_time: Option<Time>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerStatusWire<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(default)]
    restart_count: Option<i32>,
    #[serde(borrow, default)]
    state: Option<StateWire<'a>>,
    #[serde(borrow, default)]
    last_state: Option<StateWire<'a>>,
    #[serde(borrow, default)]
    resources: Option<ResourcesWire<'a>>,
    #[serde(borrow, default)]
    allocated_resources: Pairs<'a>,
}

#[derive(Default, Deserialize)]
struct StateWire<'a> {
    #[serde(borrow, default)]
    waiting: Option<ReasonWire<'a>>,
    #[serde(default)]
    running: Option<IgnoredAny>,
    #[serde(borrow, default)]
    terminated: Option<TerminatedWire<'a>>,
}

/// A reason and a message.
#[derive(Default, Deserialize)]
struct ReasonWire<'a> {
    #[serde(borrow, default)]
    reason: Text<'a>,
    #[serde(borrow, default)]
    message: Text<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TerminatedWire<'a> {
    #[serde(default)]
    exit_code: Option<i32>,
    #[serde(borrow, default)]
    reason: Text<'a>,
    #[serde(borrow, default)]
    message: Text<'a>,
    #[serde(borrow, default)]
    finished_at: Moment<'a>,
}

/// A time that is read for few pods, and for which no pod is refused.
enum Moment<'a> {
    /// From JSON, not decoded yet.
    Written(Text<'a>),
    /// From protobuf.
    Known(Option<Timestamp>),
}

impl Default for Moment<'_> {
    fn default() -> Self {
        Moment::Known(None)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Moment<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Text::deserialize(deserializer).map(Moment::Written)
    }
}

impl Moment<'_> {
    fn time(&self) -> Option<Timestamp> {
        match self {
            Moment::Written(text) => text.as_str().parse().ok(),
            Moment::Known(time) => *time,
        }
    }
}

/// The report about a pod that does not run.
struct Reported<'a> {
    /// The reason, in one word.
    reason: &'a str,
    /// The message of the kubelet or the scheduler.
    message: Cow<'a, str>,
    /// The termination message of the container.
    termination_message: &'a str,
}

impl<'a> Reported<'a> {
    fn new(reason: &'a str, message: &'a str) -> Self {
        Reported { reason, message: message.into(), termination_message: "" }
    }
}

impl Record for Pod {
    const RESOURCE: Resource = Resource { group: "", version: "v1", kind: "Pod", plural: "pods" };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        serde_json::from_str::<PodWire<'_>>(json)?.into_pod(interner)
    }

    const HAS_PROTOBUF: bool = true;

    fn decode_protobuf(message: &[u8], interner: &mut Interner) -> Result<Self, serde_json::Error> {
        PodWire::from_protobuf(message)?.into_pod(interner)
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        own_bytes(self)
            + self.claims.heap_bytes()
            + self.job.as_ref().map_or(0, |job| job.heap_bytes())
            + self.network.heap_bytes()
            + self.disruption_target.as_deref().map_or(0, size_of_val)
            + self.shape.shared_bytes()
            + self.tolerations.as_ref().map_or(0, Tolerations::shared_bytes)
    }
}

impl PodWire<'_> {
    fn into_pod(self, interner: &mut Interner) -> Result<Pod, serde_json::Error> {
        let status = self.status.unwrap_or_default();
        let deletion_cost = self.metadata.annotations.get(DELETION_COST).map_or(0, parse_cost);
        let ready_since = status
            .conditions
            .iter()
            .flatten()
            .find(|c| c.kind.as_str() == "Ready" && c.status.as_str() == "True")
            .map(|c| c.last_transition_time.map_or(Timestamp::UNIX_EPOCH, |t| t.0));
        let spec = self.spec.unwrap_or_default();
        let restarts = status.restarts(&spec);
        let waiting = status.waiting().map(|Reported { reason, message, termination_message }| {
            let mut short = |text: &str| {
                let text = on_one_line(text);
                (!text.is_empty()).then(|| interner.string(&text))
            };
            Box::new(Waiting {
                reason: short(reason).unwrap_or_default(),
                message: short(&message),
                lacks_room: RELIEVED.iter().any(|shortage| message.contains(shortage)),
                termination_message: short(termination_message).map(ContainerText::new),
                since: status.unready_since(),
            })
        });
        let bound = Some(spec.node_name.as_str()).filter(|node| !node.is_empty());
        let place = bound.or_else(|| spec.affinity.as_ref()?.target()).map(|node| interner.string(node));
        let is_bound = bound.is_some();
        let is_shut_down = self.metadata.is_shut_down();
        let job = JobPod::of(&self.metadata, &status, interner);
        let network = Network::of(spec.serving(), (&spec.hostname, &spec.subdomain), &status, interner);
        let shape = PodShape::of(&self.metadata, &spec, &status, interner);
        let tolerations = tolerations::read(spec.tolerations.as_deref(), interner);
        let meta = self.metadata.into_meta(interner)?;
        Ok(Pod {
            has_started: status.containers().any(ContainerStatusWire::has_started),
            failed_early: status.phase.as_str() == "Failed" && status.ended_early(meta.created),
            phase: match status.phase.as_str() {
                "Running" => Phase::Running,
                "Succeeded" => Phase::Succeeded,
                "Failed" => Phase::Failed,
                "Unknown" => Phase::Unknown,
                _ => Phase::Pending,
            },
            ready_since,
            place,
            is_bound,
            restarts,
            deletion_cost,
            waiting,
            claims: spec.volumes.claims(&meta.key.name, is_shut_down),
            job,
            network,
            disruption_target: status.disruption_target().map(Box::new),
            shape,
            tolerations,
            meta,
        })
    }
}

impl<'a> SpecWire<'a> {
    /// The containers that may serve: the regular ones, and after them the restartable init containers (sidecars).
    fn serving(&self) -> impl Iterator<Item = &ContainerWire<'a>> {
        let init = self.init_containers.iter().flatten();
        let sidecars = init.filter(|container| container.restart_policy.as_str() == "Always");
        self.containers.iter().flatten().chain(sidecars)
    }
}

impl StatusWire<'_> {
    fn ready_condition(&self) -> Option<&PodConditionWire<'_>> {
        self.conditions.iter().flatten().find(|condition| condition.kind.as_str() == "Ready")
    }

    /// The last change of its condition `Ready`, or else of `PodScheduled`.
    fn unready_since(&self) -> Option<Timestamp> {
        let scheduled = || self.conditions.iter().flatten().find(|c| c.kind.as_str() == "PodScheduled");
        let condition = self.ready_condition().or_else(scheduled)?;
        condition.last_transition_time.map(|time| time.0)
    }

    /// Since when it is about to be disrupted, by another component than the kubelet.
    fn disruption_target(&self) -> Option<Timestamp> {
        let is_target = |condition: &&PodConditionWire<'_>| {
            condition.kind.as_str() == "DisruptionTarget"
                && condition.status.as_str() == "True"
                && condition.reason.as_str() != "TerminationByKubelet"
        };
        let condition = self.conditions.iter().flatten().find(is_target)?;
        Some(condition.last_transition_time.map_or(Timestamp::UNIX_EPOCH, |time| time.0))
    }

    fn containers(&self) -> impl Iterator<Item = &ContainerStatusWire<'_>> {
        self.init_container_statuses.iter().chain(&self.container_statuses).flatten()
    }

    fn restarts(&self, spec: &SpecWire<'_>) -> Restarts {
        let is_sidecar = |status: &&ContainerStatusWire<'_>| {
            spec.init_containers.iter().flatten().any(|container| {
                container.name == status.name && container.restart_policy.as_str() == "Always"
            })
        };
        let regular = self.container_statuses.iter().flatten().filter_map(|c| c.restart_count);
        let init = self.init_container_statuses.iter().flatten();
        let sidecar = init.filter(is_sidecar).filter_map(|c| c.restart_count);
        Restarts { regular: regular.max().unwrap_or(0).max(0), sidecar: sidecar.max().unwrap_or(0).max(0) }
    }

    /// Whether nothing shows that the pod was alive a minute after its start: no container that
    /// ended later, no condition that changed later. A pod that its node refused shows nothing at all.
    fn ended_early(&self, created: Timestamp) -> bool {
        let start = self.start_time.time().unwrap_or(created);
        let ends =
            self.containers().filter_map(|c| c.state.as_ref()?.terminated.as_ref()?.finished_at.time());
        let turns = self.conditions.iter().flatten().filter_map(|c| c.last_transition_time.map(|t| t.0));
        let last: Option<Timestamp> = ends.chain(turns).max();
        last.is_none_or(|last| last.duration_since(start) <= EARLY)
    }

    /// The first reason given for not running, with its message: the pod's own, a container's, the
    /// scheduler's.
    fn waiting(&self) -> Option<Reported<'_>> {
        let of_pod = Reported::new(self.reason.as_str(), self.message.as_str());
        let of_scheduler = self
            .conditions
            .iter()
            .flatten()
            .find(|c| c.kind.as_str() == "PodScheduled" && c.status.as_str() == "False")
            .map(|c| Reported::new(c.reason.as_str(), c.message.as_str()));
        let reported = [Some(of_pod), self.of_container(), of_scheduler];
        reported.into_iter().flatten().find(|reported| !reported.reason.trim().is_empty())
    }

    /// The first unhealthy container counts: one that waits for more than its turn, else one that
    /// failed and waits for nothing yet, else one that waits as every container does at first.
    fn of_container(&self) -> Option<Reported<'_>> {
        let waits = || self.containers().filter_map(ContainerStatusWire::waits);
        let ended = || self.containers().filter_map(|c| c.state.as_ref()?.terminated.as_ref()?.badly());
        waits()
            .find(|reported| !is_starting(reported.reason))
            .or_else(|| ended().next())
            .or_else(|| waits().next())
    }
}

impl ContainerStatusWire<'_> {
    fn has_started(&self) -> bool {
        let states = [&self.state, &self.last_state].into_iter().flatten();
        let has = |state: &StateWire<'_>| state.running.is_some() || state.terminated.is_some();
        self.restart_count.is_some_and(|count| count > 0) || states.into_iter().any(has)
    }

    /// The reason of a waiting container. For a container that crashes again and again, its last exit
    /// is more useful than the back-off.
    fn waits(&self) -> Option<Reported<'_>> {
        let ReasonWire { reason, message } = self.state.as_ref()?.waiting.as_ref()?;
        let reported = Reported::new(reason.as_str(), message.as_str());
        let before = self.last_state.as_ref().and_then(|state| state.terminated.as_ref());
        match before.filter(|_| reported.reason == "CrashLoopBackOff") {
            Some(before) => Some(Reported {
                message: before.exit().map_or(reported.message, Cow::Owned),
                termination_message: before.message.as_str(),
                ..reported
            }),
            None => Some(reported),
        }
    }
}

impl TerminatedWire<'_> {
    /// Reason, exit code and termination message, unless the exit code is 0.
    fn badly(&self) -> Option<Reported<'_>> {
        (self.exit_code != Some(0)).then(|| Reported {
            reason: self.reason.as_str(),
            message: self.exit_code.map(|code| format!("exit code {code}")).unwrap_or_default().into(),
            termination_message: self.message.as_str(),
        })
    }

    /// The exit code, with the reason if that adds something.
    fn exit(&self) -> Option<String> {
        let code = self.exit_code?;
        Some(match self.reason.as_str() {
            "" | "Error" | "Completed" => format!("exit code {code}"),
            reason => format!("exit code {code}, {reason}"),
        })
    }
}

/// Whether every container gives this reason at first.
fn is_starting(reason: &str) -> bool {
    matches!(reason, "ContainerCreating" | "PodInitializing")
}

/// The beginning of a message, each run of white space a single space: a stack trace has many lines, a
/// log and a sentence have one.
fn on_one_line(message: &str) -> String {
    let mut kept = String::new();
    let mut length = 0;
    for word in message.split_whitespace() {
        let room = MESSAGE.saturating_sub(length + usize::from(length > 0));
        let size = word.chars().count();
        if length > 0 && room > 0 {
            kept.push(' ');
            length += 1;
        }
        if size > room {
            kept.extend(word.chars().take(room));
            kept.push('…');
            break;
        }
        kept.push_str(word);
        length += size;
    }
    kept
}

/// Reads a deletion cost as upstream does (`GetDeletionCostFromPodAnnotations`): no plus sign, no
/// leading zero, 32 bits; anything else counts as no cost.
fn parse_cost(text: &str) -> i32 {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = text == "0" || (digits.starts_with(|c: char| c.is_ascii_digit() && c != '0'));
    if canonical { text.parse().unwrap_or(0) } else { 0 }
}

impl Pod {
    /// The node that the pod is bound to.
    pub fn node(&self) -> Option<&Arc<str>> {
        self.place.as_ref().filter(|_| self.is_bound)
    }

    /// The node that the pod is bound to or, while it is not, the only one that it may be bound to: that of a daemon
    /// pod. A pod that may be bound to several nodes has no target.
    pub fn target(&self) -> Option<&Arc<str>> {
        self.place.as_ref()
    }

    /// Its tolerations of effect NoExecute or of any effect, in their order.
    pub fn tolerations(&self) -> impl Iterator<Item = Toleration<'_>> {
        self.tolerations.iter().flat_map(|all| all.iter())
    }

    /// Whether the tolerations of two pods are the same.
    pub fn tolerates_as(&self, other: &Pod) -> bool {
        self.tolerations == other.tolerations
    }

    /// Binds the pod to a node.
    pub fn bind(&mut self, node: impl Into<Arc<str>>) {
        self.place = Some(node.into());
        self.is_bound = true;
    }

    /// Whether the pod counts towards its ReplicaSet's size: not ended and not being deleted.
    pub fn is_active(&self) -> bool {
        !self.is_terminal() && !self.meta.is_deleting()
    }

    /// Whether all its containers have ended for good.
    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// Whether the pod is being deleted and still runs.
    pub fn is_terminating(&self) -> bool {
        !self.is_terminal() && self.meta.is_deleting()
    }

    /// When it last became ready or unready; `None` where that is not known, and of a pod without an address that is not
    /// ready.
    pub fn ready_transition(&self) -> Option<Timestamp> {
        let ready = self.ready_since.filter(|since| *since != Timestamp::UNIX_EPOCH);
        ready.or_else(|| self.network.unready_since())
    }

    /// The reason for not running, unless it is one that every pod gives while it starts.
    pub fn startup_failure(&self) -> Option<&Waiting> {
        self.waiting.as_deref().filter(|waiting| !is_starting(&waiting.reason))
    }

    /// When the pod has been ready for `min_ready_seconds`; `None` while it is not ready, and while there
    /// is a time to wait and its ready time is unknown (upstream: `IsPodAvailable`).
    pub fn available_at(&self, min_ready_seconds: i32) -> Option<Timestamp> {
        let wait = jiff::SignedDuration::from_secs(min_ready_seconds.max(0).into());
        let dated = |since: &Timestamp| wait.is_zero() || *since != Timestamp::UNIX_EPOCH;
        self.ready_since.filter(dated).map(|since| since.saturating_add(wait).unwrap_or(Timestamp::MAX))
    }

    /// Whether the pod has been ready for long enough.
    pub fn is_available(&self, min_ready_seconds: i32, now: Timestamp) -> bool {
        match (min_ready_seconds, self.available_at(min_ready_seconds)) {
            (_, None) => false,
            // Without a waiting time a clock that lags behind the kubelet's must not matter.
            (..=0, Some(_)) => true,
            (_, Some(at)) => at <= now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(spec: &str, status: &str) -> Pod {
        let json = format!(
            r#"{{"kind":"Pod","metadata":{{"name":"web-1","namespace":"shop","uid":"u","resourceVersion":"7",
               "annotations":{{"controller.kubernetes.io/pod-deletion-cost":"-5"}}}},"spec":{spec},"status":{status}}}"#
        );
        Pod::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn a_pod_that_is_about_to_be_disrupted_says_since_when() {
        let since = |condition: &str| {
            let status = format!(
                r#"{{"conditions":[{{"type":"DisruptionTarget","lastTransitionTime":"2026-01-01T00:00:00Z",{condition}}}]}}"#
            );
            pod("{}", &status).disruption_target.map(|since| since.to_string())
        };
        let evicted = since(r#""status":"True","reason":"EvictionByEvictionAPI""#);
        assert_eq!(evicted.as_deref(), Some("2026-01-01T00:00:00Z"));
        assert_eq!(since(r#""status":"True","reason":"TerminationByKubelet""#), None);
        assert_eq!(since(r#""status":"False""#), None);
    }

    #[test]
    fn a_running_pod_is_read_with_what_ranks_it() {
        let pod = pod(
            r#"{"nodeName":"n1","containers":[{"name":"a","image":"x"}]}"#,
            r#"{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}],
                "containerStatuses":[{"name":"a","restartCount":2},{"name":"b","restartCount":4}]}"#,
        );
        assert_eq!((pod.phase, pod.deletion_cost), (Phase::Running, -5));
        assert_eq!(pod.restarts, Restarts { regular: 4, sidecar: 0 });
        assert_eq!(pod.node().map(|node| &**node), Some("n1"));
        assert_eq!(pod.target(), pod.node());
        let ready: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert!(!pod.is_available(10, ready));
        assert!(pod.is_available(10, pod.available_at(10).unwrap()));
        assert_eq!(pod.available_at(10).unwrap().as_second() - ready.as_second(), 10);
    }

    #[track_caller]
    fn check_target(spec: &str, target: Option<&str>) {
        let pod = pod(spec, "{}");
        assert_eq!((pod.target().map(|node| &**node), pod.node()), (target, None), "{spec}");
    }

    #[test]
    fn the_target_of_an_unbound_pod_is_the_one_node_that_a_match_field_names() {
        let with = |terms: &str| {
            format!(
                r#"{{"affinity":{{"nodeAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":
                    {{"nodeSelectorTerms":{terms}}}}}}}}}"#
            )
        };
        let field = |values: &str| format!(r#"{{"key":"metadata.name","operator":"In","values":{values}}}"#);
        check_target(&with(&format!(r#"[{{"matchFields":[{}]}}]"#, field(r#"["n1"]"#))), Some("n1"));
        let later = format!(
            r#"[{{"matchExpressions":[{{"key":"a","operator":"Exists"}}]}},{{"matchFields":[{}]}}]"#,
            field(r#"["n2"]"#)
        );
        check_target(&with(&later), Some("n2"));
        for values in [r#"["n1","n2"]"#, "[]", "null", r#"[""]"#] {
            check_target(&with(&format!(r#"[{{"matchFields":[{}]}}]"#, field(values))), None);
        }
        let other = r#"[{"matchFields":[{"key":"metadata.name","operator":"NotIn","values":["n1"]}]}]"#;
        check_target(&with(other), None);
        for spec in ["{}", &with("null"), r#"{"affinity":null}"#, r#"{"affinity":{"nodeAffinity":null}}"#] {
            check_target(spec, None);
        }
    }

    #[test]
    fn a_bound_pod_is_on_its_node_regardless_of_its_affinity_and_stores_no_target() {
        let spec = r#"{"nodeName":"n3","affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
            {"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}}}}"#;
        assert_eq!(pod(spec, "{}").target().map(|node| &**node), Some("n3"));
        type WithoutTarget = (
            Meta,
            Phase,
            Option<Timestamp>,
            Option<Arc<str>>,
            Restarts,
            i32,
            Option<Box<Waiting>>,
            bool,
            bool,
            Claims,
            Option<Box<JobPod>>,
            Network,
            Option<Box<Timestamp>>,
            Arc<PodShape>,
            Option<Arc<Tolerations>>,
        );
        assert_eq!(size_of::<Pod>(), size_of::<WithoutTarget>());
    }

    #[test]
    fn restarts_of_sidecars_are_kept_apart_and_those_of_ordinary_init_containers_do_not_count() {
        let spec = r#"{"initContainers":[{"name":"once"},{"name":"never","restartPolicy":"Never"},
            {"name":"proxy","restartPolicy":"Always"},{"name":"logs","restartPolicy":"Always"}]}"#;
        let status = r#"{"initContainerStatuses":[{"name":"once","restartCount":70},{"name":"never","restartCount":60},
            {"name":"proxy","restartCount":3},{"name":"logs","restartCount":5},{"name":"unknown","restartCount":80}],
            "containerStatuses":[{"name":"app","restartCount":2},{"name":"once","restartCount":-9}]}"#;
        assert_eq!(pod(spec, status).restarts, Restarts { regular: 2, sidecar: 5 });
        assert_eq!(
            pod(spec, r#"{"initContainerStatuses":[{"restartCount":1}]}"#).restarts,
            Restarts::default()
        );
        let odd = r#"{"initContainers":null}"#;
        assert_eq!(pod(odd, r#"{"containerStatuses":[{"restartCount":-1}]}"#).restarts, Restarts::default());
        assert!(Restarts { regular: 1, sidecar: 0 } > Restarts { regular: 0, sidecar: 9 });
    }

    /// Reason and message, `-` for none, and after a `|` the termination message.
    fn reported(status: &str) -> String {
        match pod("{}", status).waiting.as_deref() {
            None => "-".into(),
            Some(Waiting { reason, message, termination_message, lacks_room: _, since: _ }) => {
                let reported = termination_message.as_ref().map(|text| format!(" | {}", text.reveal()));
                format!("{reason}: {}{}", message.as_deref().unwrap_or("-"), reported.unwrap_or_default())
            }
        }
    }

    #[test]
    fn the_reason_for_waiting_is_the_kubelets_or_else_the_schedulers() {
        let pulling = r#"{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}],
            "containerStatuses":[{"state":{"waiting":{"reason":"ImagePullBackOff","message":"Back-off pulling image \"x\""}}}]}"#;
        assert_eq!(reported(pulling), "ImagePullBackOff: Back-off pulling image \"x\"");
        let unschedulable = r#"{"conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable",
            "message":"0/3 nodes are available: 3 Insufficient cpu."}]}"#;
        assert_eq!(reported(unschedulable), "Unschedulable: 0/3 nodes are available: 3 Insufficient cpu.");
        let lacks_room = |said: &str| {
            let status = format!(
                r#"{{"conditions":[{{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"{said}"}}]}}"#
            );
            pod("{}", &status).waiting.unwrap().lacks_room
        };
        let taints = "1 node(s) had untolerated taint {example.com/dedicated: some-team}, ".repeat(9);
        assert!(
            lacks_room(&format!("0/12 nodes are available: {taints}3 Insufficient cpu.")),
            "however long"
        );
        assert!(!lacks_room("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."));
        let evicted =
            r#"{"phase":"Failed","reason":"Evicted","message":"The node was low on resource: memory."}"#;
        assert_eq!(reported(evicted), "Evicted: The node was low on resource: memory.");
        assert_eq!(pod("null", "null").waiting, None);
        assert_eq!(reported(r#"{"containerStatuses":[{"state":{"running":{}}},{"state":null}]}"#), "-");
    }

    #[test]
    fn a_crash_loop_has_the_exit_code_and_a_separate_termination_message() {
        let crashing = |last: &str| {
            format!(
                r#"{{"containerStatuses":[{{"state":{{"waiting":{{"reason":"CrashLoopBackOff","message":"back-off 10s"}}}},
                    "lastState":{{"terminated":{{"exitCode":1,"reason":"Error","message":{last}}}}}}}]}}"#
            )
        };
        assert_eq!(
            reported(&crashing(r#""panic: no config\n\n  at main""#)),
            "CrashLoopBackOff: exit code 1 | panic: no config at main"
        );
        assert_eq!(reported(&crashing("null")), "CrashLoopBackOff: exit code 1");
        assert_eq!(reported(&crashing(r#"" \n""#)), "CrashLoopBackOff: exit code 1");
        let crashed = |last: &str| {
            reported(&format!(
                r#"{{"containerStatuses":[{{"state":{{"waiting":{{"reason":"CrashLoopBackOff","message":"back-off 10s"}}}},
                    "lastState":{{"terminated":{last}}}}}]}}"#
            ))
        };
        assert_eq!(
            crashed(r#"{"exitCode":137,"reason":"OOMKilled"}"#),
            "CrashLoopBackOff: exit code 137, OOMKilled"
        );
        assert_eq!(crashed(r#"{"reason":"Error","message":"m"}"#), "CrashLoopBackOff: back-off 10s | m");
    }

    #[test]
    fn the_termination_message_is_neither_in_the_message_nor_printed_with_the_pod() {
        let secret = "password=hunter2";
        for status in [
            r#"{"containerStatuses":[{"state":{"waiting":{"reason":"CrashLoopBackOff"}},
                "lastState":{"terminated":{"exitCode":1,"message":"password=hunter2"}}}]}"#,
            r#"{"containerStatuses":[{"state":{"waiting":{"reason":"ImagePullBackOff","message":"no image"}},
                "lastState":{"terminated":{"exitCode":1,"message":"password=hunter2"}}}]}"#,
            r#"{"initContainerStatuses":[{"state":{"terminated":{"exitCode":2,"reason":"Error",
                "message":"password=hunter2"}}}]}"#,
        ] {
            let pod = pod("{}", status);
            let message = pod.waiting.as_ref().unwrap().message.clone();
            assert!(!message.is_some_and(|message| message.contains(secret)), "{status}");
            assert!(!format!("{pod:?}").contains(secret), "{pod:?}");
        }
    }

    #[test]
    fn a_reason_of_any_length_is_cut_as_a_message_is() {
        let status = format!(r#"{{"phase":"Failed","reason":"{}"}}"#, "x".repeat(1 << 16));
        assert_eq!(pod("{}", &status).waiting.unwrap().reason.chars().count(), MESSAGE + 1);
    }

    #[test]
    fn a_failed_container_counts_before_those_that_wait_for_their_turn() {
        let status = |init: &str| {
            format!(
                r#"{{"initContainerStatuses":[{{"state":{{"terminated":{init}}}}}],
                    "containerStatuses":[{{"state":{{"waiting":{{"reason":"PodInitializing"}}}}}}]}}"#
            )
        };
        let killed = status(r#"{"exitCode":137,"reason":"OOMKilled"}"#);
        assert_eq!(reported(&killed), "OOMKilled: exit code 137");
        let fine = status(r#"{"exitCode":0,"reason":"Completed"}"#);
        assert_eq!(reported(&fine), "PodInitializing: -");
        assert!(
            pod("{}", &killed).startup_failure().is_some() && pod("{}", &fine).startup_failure().is_none()
        );
    }

    #[test]
    fn a_long_message_is_cut_and_put_on_one_line() {
        assert_eq!(on_one_line("  a\n\tb  "), "a b");
        let long = on_one_line(&"ä".repeat(5000));
        assert_eq!(long, format!("{}…", "ä".repeat(MESSAGE)));
        let words = on_one_line(&"word ".repeat(1000));
        assert!(words.chars().count() <= MESSAGE + 1 && words.ends_with('…'), "{words}");
        let fits = "x".repeat(MESSAGE);
        assert_eq!(on_one_line(&fits), fits);
    }

    #[test]
    fn a_running_pod_stores_one_word_for_its_absent_fields() {
        assert_eq!(size_of::<Option<Box<Waiting>>>(), size_of::<usize>());
    }

    #[test]
    fn a_pod_failed_early_if_nothing_shows_that_it_lived_for_a_minute() {
        let refused = r#"{"phase":"Failed","reason":"OutOfcpu","startTime":"2026-01-01T02:00:00Z","conditions":
            [{"type":"PodScheduled","status":"True","lastTransitionTime":"2026-01-01T01:59:59Z"}]}"#;
        assert!(pod("{}", refused).failed_early);
        assert!(pod("{}", r#"{"phase":"Failed"}"#).failed_early);
        let ended = |at: &str| {
            format!(
                r#"{{"phase":"Failed","startTime":"2026-01-01T02:00:00Z",
                    "containerStatuses":[{{"state":{{"terminated":{{"finishedAt":"{at}"}}}}}}]}}"#
            )
        };
        assert!(pod("{}", &ended("2026-01-01T02:00:09Z")).failed_early);
        assert!(!pod("{}", &ended("2026-01-01T03:00:00Z")).failed_early);
        assert!(pod("{}", &ended("no time")).failed_early);
        let evicted = r#"{"phase":"Failed","reason":"Evicted","startTime":"2026-01-01T02:00:00Z","conditions":
            [{"type":"DisruptionTarget","status":"True","lastTransitionTime":"2026-01-01T09:00:00Z"}]}"#;
        assert!(!pod("{}", evicted).failed_early, "it had run for hours");
        assert!(!pod("{}", r#"{"phase":"Running"}"#).failed_early);
    }

    #[test]
    fn a_deletion_cost_that_is_not_canonical_counts_as_none() {
        for (text, cost) in [
            ("5", 5),
            ("-5", -5),
            ("0", 0),
            ("+5", 0),
            ("007", 0),
            ("-0", 0),
            ("2147483648", 0),
            ("", 0),
            ("x", 0),
        ] {
            assert_eq!(parse_cost(text), cost, "{text:?}");
        }
    }

    #[test]
    fn a_failed_pod_that_is_deleted_is_neither_active_nor_terminating() {
        let mut failed = pod("{}", r#"{"phase":"Failed"}"#);
        failed.meta.deletion = Some(Timestamp::UNIX_EPOCH);
        assert!(!failed.is_active() && !failed.is_terminating());
    }
}
