//! The life of a node (upstream: `pkg/controller/nodelifecycle`): its taints follow from its conditions, a node that is silent is
//! reported as unknown, and the pods of one that is not ready are not ready.
//!
//! | file | decides |
//! |---|---|
//! | [`health`] | how long a node has been silent |
//! | [`taints`] | which taints it has |
//! | [`zones`] | how fast the nodes of a zone may lose their pods |
//! | [`turns`] | which node is next |
//! | [`pods`] | which of its pods are reported as not ready |

pub mod health;
pub mod pods;
pub mod taints;
#[cfg(test)]
mod tests;
pub mod turns;
pub mod zones;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::event_note::EventNote;
use crate::model::node::{ConditionStatus, ConditionType, Ready};
use crate::model::{Meta, Node, Pod, Taint, Uid};
pub use pods::{Fall, fell};
use taints::TaintChange;
use turns::Turn;

/// The flags of the controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The least time between two looks at a node to which nothing has happened.
    pub monitor_period: Duration,
    /// How long a node may be silent; zero: heartbeats are not judged, and nodes wait for no turn.
    pub monitor_grace_period: Duration,
    /// The same for one that has never reported.
    pub startup_grace_period: Duration,
    /// How many nodes of a zone are tainted in a second.
    pub eviction_rate: f64,
    /// The same in a zone with many nodes that are not ready.
    pub secondary_eviction_rate: f64,
    /// The most nodes of a zone in which that rate is 0.
    pub large_zone: usize,
    /// The part of the nodes of a zone that makes them many.
    pub unhealthy_zone_threshold: f64,
}

impl Default for Limits {
    /// The defaults of the flags.
    fn default() -> Self {
        Limits {
            monitor_period: Duration::from_secs(5),
            monitor_grace_period: Duration::from_secs(50),
            startup_grace_period: Duration::from_secs(60),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            large_zone: 50,
            unhealthy_zone_threshold: 0.55,
        }
    }
}

impl Limits {
    /// Whether a silent node is reported as unknown.
    pub fn judges_heartbeats(&self) -> bool {
        !self.monitor_grace_period.is_zero()
    }
}

/// The memory of a node from its last sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Which node had the name.
    pub uid: Uid,
    /// Whether it was ready.
    pub was_ready: bool,
}

/// A node, and what is around it.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The node.
    pub node: &'a Node,
    /// Its pods, if it is not ready.
    pub pods: Vec<Arc<Pod>>,
    /// When it stopped to be ready, and the pods that were reported since.
    pub fall: Fall,
    /// How long it has been silent.
    pub silence: Duration,
    /// Whether no node is ready anywhere.
    pub are_all_disrupted: bool,
    /// Whether it may be tainted so that it loses its pods.
    pub turn: Turn,
    /// The memory of the node of its name.
    pub known: Option<Known>,
    /// When the controller started.
    pub started: Timestamp,
    /// The time.
    pub now: Timestamp,
    /// The flags.
    pub limits: Limits,
}

/// The decision about a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// It is silent: its conditions of the kubelet become unknown.
    pub is_lost: bool,
    /// Its taints.
    pub taints: Option<TaintChange>,
    /// The labels that it lacks, or whose values are outdated.
    pub labels: Vec<(&'static str, String)>,
    /// The pods that are no longer ready.
    pub pods: Vec<Arc<Pod>>,
    /// Events about it.
    pub events: Vec<EventNote>,
    /// Another node had its name.
    pub replaced: Option<Uid>,
    /// When to look again although nothing has happened.
    pub look_again: Option<Duration>,
}

impl Plan {
    /// Whether there is anything to write.
    pub fn writes(&self) -> bool {
        let Plan { is_lost, taints, labels, pods, events, replaced, look_again: _ } = self;
        *is_lost
            || taints.is_some()
            || !labels.is_empty()
            || !pods.is_empty()
            || !events.is_empty()
            || replaced.is_some()
    }
}

/// The labels of before Kubernetes 1.14, and those whose values they have.
const LABELS: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// The conditions that the kubelet reports. NetworkUnavailable has another author.
const REPORTED: [ConditionType; 4] = [
    ConditionType::Ready,
    ConditionType::MemoryPressure,
    ConditionType::DiskPressure,
    ConditionType::PIDPressure,
];

/// Decides about a node.
pub fn plan(observed: &Observed<'_>) -> Plan {
    let Observed { node, pods, fall, silence, are_all_disrupted, turn, known, started, now, limits } =
        observed;
    let ready = node.conditions.get(ConditionType::Ready);
    let grace = if ready.is_some() { limits.monitor_grace_period } else { limits.startup_grace_period };
    let is_judged = limits.judges_heartbeats() && ready != Some(ConditionStatus::Unknown);
    let (events, replaced) = news(node, known.as_ref(), *started);
    if is_judged && *silence >= grace {
        // All else follows once the cache shows it.
        let look_again = Some(limits.monitor_period);
        return Plan { is_lost: true, events, replaced, look_again, ..Plan::default() };
    }
    let next_judgement = is_judged.then(|| grace.saturating_sub(*silence).max(limits.monitor_period));
    let next_turn = match turn {
        _ if !taints::needs_turn(node, *are_all_disrupted) => None,
        Turn::Now => None,
        Turn::After(wait) => Some((*wait).min(limits.monitor_period)),
        Turn::Never => Some(limits.monitor_period),
    };
    Plan {
        is_lost: false,
        taints: taints::change(node, *are_all_disrupted, *turn, whole_second(*now)),
        labels: labels(node),
        pods: pods.iter().filter(|pod| fall.loses_readiness(node, pod)).cloned().collect(),
        events,
        replaced,
        look_again: [next_judgement, next_turn].into_iter().flatten().min(),
    }
}

/// The API has whole seconds.
fn whole_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// The events about a node since the last sync, and the node that had its name before.
fn news(node: &Node, known: Option<&Known>, started: Timestamp) -> (Vec<EventNote>, Option<Uid>) {
    let Meta { key, uid, created, .. } = &node.meta;
    let name = &key.name;
    let same = known.filter(|known| known.uid == *uid);
    let mut events = Vec::new();
    if same.is_none() && *created >= whole_second(started) {
        let message = format!("Node {name} event: Registered Node {name} in Controller");
        events.push(EventNote::normal("RegisteredNode", message));
    }
    let is_not_ready = matches!(
        node.conditions.get(ConditionType::Ready),
        Some(ConditionStatus::False | ConditionStatus::Unknown)
    );
    if is_not_ready && same.is_some_and(|known| known.was_ready) {
        let message = format!("Node {name} status is now: NodeNotReady");
        events.push(EventNote::normal("NodeNotReady", message));
    }
    (events, known.filter(|known| known.uid != *uid).map(|known| known.uid.clone()))
}

/// The event of a node that is gone.
pub fn removal(name: &str) -> EventNote {
    EventNote::normal("RemovingNode", format!("Node {name} event: Removing Node {name} from Controller"))
}

/// The memory of a node after a sync.
pub fn remember(node: &Node) -> Known {
    Known { uid: node.meta.uid.clone(), was_ready: node.ready == Ready::True }
}

fn labels(node: &Node) -> Vec<(&'static str, String)> {
    let labels = &node.meta.labels;
    let outdated = |(stable, beta): &(&'static str, &'static str)| {
        let value = labels.get(stable)?;
        (labels.get(beta) != Some(value)).then(|| (*beta, value.to_owned()))
    };
    LABELS.iter().filter_map(outdated).collect()
}

/// Changes taints and labels of a node (merge patch: the list of taints is replaced). An empty list is null, as kubectl leaves it
/// out.
pub fn node_patch(node: &Meta, taints: Option<&TaintChange>, labels: &[(&'static str, String)]) -> Value {
    let mut patch = preconditions(node);
    if !labels.is_empty() {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value)));
        patch["metadata"]["labels"] = labels.collect::<Map<_, _>>().into();
    }
    if let Some(TaintChange { taints, .. }) = taints {
        let all: Vec<Value> = taints.iter().map(taint).collect();
        patch["spec"] = json!({"taints": if all.is_empty() { Value::Null } else { all.into() }});
    }
    patch
}

fn taint(taint: &Taint) -> Value {
    let Taint { key, value, effect, time_added } = taint;
    let mut written = json!({"key": key, "effect": effect.as_str()});
    if !value.is_empty() {
        written["value"] = json!(value);
    }
    if let Some(added) = time_added {
        written["timeAdded"] = added.to_string().into();
    }
    written
}

/// Reports that the kubelet of a node does not report (strategic merge patch of the status).
pub fn lost_status(node: &Node, now: Timestamp) -> Value {
    let now = whole_second(now).to_string();
    let unknown = |kind: &ConditionType| {
        let mut condition = json!({"type": kind.as_str(), "status": "Unknown", "lastTransitionTime": now});
        let (reason, message) = match node.conditions.get(*kind) {
            Some(ConditionStatus::Unknown) => return None,
            Some(_) => ("NodeStatusUnknown", "Kubelet stopped posting node status."),
            None => {
                condition["lastHeartbeatTime"] = node.meta.created.to_string().into();
                ("NodeStatusNeverUpdated", "Kubelet never posted node status.")
            }
        };
        condition["reason"] = reason.into();
        condition["message"] = message.into();
        Some(condition)
    };
    let mut patch = preconditions(&node.meta);
    patch["status"] = json!({"conditions": REPORTED.iter().filter_map(unknown).collect::<Vec<_>>()});
    patch
}

fn preconditions(object: &Meta) -> Value {
    json!({"metadata": {"uid": object.uid, "resourceVersion": object.resource_version.to_string()}})
}
