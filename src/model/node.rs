//! A node: its name, labels and taints; for the endpoints of Services its CPUs; and for its life cycle its conditions.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::intern::Interner;
use super::meta::Meta;
use super::quantity::{self, NANOS};
use super::record::{self, Record, Resource};
use super::wire::{MetaWire, Text, Time};

/// The label with the zone of a node.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The fields of a node that the controllers use.
///
/// `spec.unschedulable` and the conditions act through the taints that the node lifecycle controller sets, and only it reads
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Metadata.
    pub meta: Meta,
    /// `spec.taints`, in the order of the wire.
    pub taints: Box<[Taint]>,
    /// The condition `Ready`, for explanations only. Unknown also where the node does not have it.
    pub ready: Ready,
    /// `status.allocatable.cpu`, in thousandths; 0 where it is not known.
    pub allocatable_cpu: i64,
    /// `spec.unschedulable`: the node is cordoned.
    pub is_unschedulable: bool,
    /// The conditions that taints and evictions follow from.
    pub conditions: NodeConditions,
}

/// The conditions of a node that taints and evictions follow from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeConditions {
    /// By the number of their [`ConditionType`]; `None` where the node does not have it, or in a status that Kubernetes does not
    /// have.
    statuses: [Option<ConditionStatus>; ConditionType::ALL.len()],
    /// When the kubelet last reported `Ready`, by its own clock.
    pub heartbeat: Option<Timestamp>,
    /// When `Ready` last changed.
    pub transition: Option<Timestamp>,
}

impl NodeConditions {
    /// The status of a condition, if the node has it.
    pub fn get(&self, kind: ConditionType) -> Option<ConditionStatus> {
        self.statuses[kind as usize]
    }

    fn read(conditions: &[ConditionWire<'_>]) -> Self {
        let find = |name| conditions.iter().find(|condition| condition.kind.as_str() == name);
        let status = |kind: ConditionType| match find(kind.as_str())?.status.as_str() {
            "True" => Some(ConditionStatus::True),
            "False" => Some(ConditionStatus::False),
            "Unknown" => Some(ConditionStatus::Unknown),
            _ => None,
        };
        let ready = find("Ready");
        NodeConditions {
            statuses: ConditionType::ALL.map(status),
            heartbeat: ready.and_then(|ready| ready.last_heartbeat_time).map(|time| time.0),
            transition: ready.and_then(|ready| ready.last_transition_time).map(|time| time.0),
        }
    }
}

/// A condition of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // Each is the condition of its name.
pub enum ConditionType {
    Ready,
    MemoryPressure,
    DiskPressure,
    PIDPressure,
    NetworkUnavailable,
}

impl ConditionType {
    /// All of them, by their numbers.
    pub const ALL: [ConditionType; 5] = [
        ConditionType::Ready,
        ConditionType::MemoryPressure,
        ConditionType::DiskPressure,
        ConditionType::PIDPressure,
        ConditionType::NetworkUnavailable,
    ];

    /// The type as the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionType::Ready => "Ready",
            ConditionType::MemoryPressure => "MemoryPressure",
            ConditionType::DiskPressure => "DiskPressure",
            ConditionType::PIDPressure => "PIDPressure",
            ConditionType::NetworkUnavailable => "NetworkUnavailable",
        }
    }
}

/// The status of any condition of a node.
pub type ConditionStatus = Ready;

/// The status of a node's condition `Ready`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ready {
    /// The kubelet reports and is healthy.
    True,
    /// The kubelet reports that it is not healthy.
    False,
    /// The kubelet has not reported.
    #[default]
    Unknown,
}

/// One entry of `spec.taints`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// The key.
    pub key: Arc<str>,
    /// The value; often empty.
    pub value: Arc<str>,
    /// The effect on pods that do not tolerate it.
    pub effect: Effect,
    /// When a controller added it; a user's has none.
    pub time_added: Option<Timestamp>,
}

/// The effect of a taint on pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// New pods are not scheduled to the node.
    NoSchedule,
    /// New pods are scheduled elsewhere if possible: a DaemonSet ignores it.
    PreferNoSchedule,
    /// Running pods are evicted, too.
    NoExecute,
    /// An effect that this version does not know. It keeps no pod away.
    Other,
}

impl Effect {
    fn read(text: &str) -> Self {
        match text {
            "NoSchedule" => Effect::NoSchedule,
            "PreferNoSchedule" => Effect::PreferNoSchedule,
            "NoExecute" => Effect::NoExecute,
            _ => Effect::Other,
        }
    }

    /// The effect as the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Effect::NoSchedule => "NoSchedule",
            Effect::PreferNoSchedule => "PreferNoSchedule",
            Effect::NoExecute => "NoExecute",
            Effect::Other => "unknown",
        }
    }
}

#[derive(Deserialize)]
struct NodeWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    spec: Option<SpecWire<'a>>,
    #[serde(borrow, default)]
    status: Option<StatusWire<'a>>,
}

#[derive(Default, Deserialize)]
struct SpecWire<'a> {
    #[serde(borrow, default)]
    taints: Option<Vec<TaintWire<'a>>>,
    #[serde(default)]
    unschedulable: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaintWire<'a> {
    #[serde(borrow, default)]
    key: Text<'a>,
    #[serde(borrow, default)]
    value: Text<'a>,
    #[serde(borrow, default)]
    effect: Text<'a>,
    #[serde(default)]
    time_added: Option<Time>,
}

#[derive(Default, Deserialize)]
struct StatusWire<'a> {
    #[serde(borrow, default)]
    conditions: Option<Vec<ConditionWire<'a>>>,
    #[serde(borrow, default)]
    allocatable: Option<AllocatableWire<'a>>,
}

#[derive(Deserialize)]
struct AllocatableWire<'a> {
    #[serde(borrow, default)]
    cpu: Option<&'a RawValue>,
}

impl AllocatableWire<'_> {
    /// The CPUs in thousandths, rounded up.
    fn cpu(&self) -> Option<i64> {
        let nanos = quantity::nanos(self.cpu?.get().trim_matches('"'))?;
        let thousandth = NANOS / 1000;
        i64::try_from((nanos / thousandth).saturating_add(i128::from(nanos % thousandth > 0))).ok()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConditionWire<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
    #[serde(default)]
    last_heartbeat_time: Option<Time>,
    #[serde(default)]
    last_transition_time: Option<Time>,
}

impl Record for Node {
    const RESOURCE: Resource = Resource { group: "", version: "v1", kind: "Node", plural: "nodes" };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let NodeWire { metadata, spec, status } = serde_json::from_str(json)?;
        let SpecWire { taints, unschedulable } = spec.unwrap_or_default();
        let taints = taints.unwrap_or_default();
        let taints = taints.iter().map(|taint| Taint {
            key: interner.string(taint.key.as_str()),
            value: interner.string(taint.value.as_str()),
            effect: Effect::read(taint.effect.as_str()),
            time_added: taint.time_added.map(|time| time.0),
        });
        let taints = taints.collect();
        let StatusWire { conditions, allocatable } = status.unwrap_or_default();
        let allocatable_cpu = allocatable.and_then(|allocatable| allocatable.cpu()).unwrap_or(0).max(0);
        let conditions = conditions.unwrap_or_default();
        let conditions = NodeConditions::read(&conditions);
        Ok(Node {
            taints,
            ready: conditions.get(ConditionType::Ready).unwrap_or_default(),
            allocatable_cpu,
            is_unschedulable: unschedulable.unwrap_or(false),
            conditions,
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        let texts: usize = self.taints.iter().map(|taint| taint.key.len() + taint.value.len()).sum();
        record::own_bytes(self) + size_of_val(&*self.taints) + texts
    }
}

impl Node {
    /// The zone that it is in, if its label names one.
    pub fn zone(&self) -> Option<&str> {
        self.meta.labels.get(ZONE).filter(|zone| !zone.is_empty())
    }

    /// Whether no DaemonSet can decide differently about the two: a heartbeat, or an image that was pulled, changes
    /// neither labels nor taints.
    pub fn places_pods_as(&self, other: &Node) -> bool {
        self.meta.key == other.meta.key
            && self.meta.uid == other.meta.uid
            && self.meta.labels == other.meta.labels
            && self.taints == other.taints
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(labels: &str, spec: &str, ready: &str) -> Node {
        let json = format!(
            r#"{{"metadata":{{"name":"n1","uid":"u-n1","resourceVersion":"7","labels":{labels}}},"spec":{spec},
                "status":{{"conditions":[{{"type":"MemoryPressure","status":"True"}},{{"type":"Ready","status":"{ready}",
                "lastHeartbeatTime":"2026-01-01T00:00:00Z"}}],"images":[{{"names":["a"],"sizeBytes":1}}]}}}}"#
        );
        Node::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn a_node_is_its_name_its_labels_and_its_taints() {
        let spec = r#"{"unschedulable":true,"taints":[{"key":"a","value":"b","effect":"NoExecute"},
            {"key":"c","effect":"NoSchedule","timeAdded":"2026-01-01T00:00:00Z"},{"key":"d","effect":"Later"}]}"#;
        let node = node(r#"{"zone":"z"}"#, spec, "True");
        assert_eq!(node.meta.key.to_string(), "n1");
        assert_eq!(node.meta.labels.get("zone"), Some("z"));
        let taints: Vec<_> = node.taints.iter().map(|t| (&*t.key, &*t.value, t.effect.as_str())).collect();
        assert_eq!(taints, [("a", "b", "NoExecute"), ("c", "", "NoSchedule"), ("d", "", "unknown")]);
        assert_eq!(node.ready, Ready::True);
    }

    #[test]
    fn the_zone_and_the_cpus_of_a_node_are_read() {
        let cpu = |cpu: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"n1","uid":"u","resourceVersion":"1","labels":{{"{ZONE}":"z1"}}}},
                    "status":{{"allocatable":{{"cpu":{cpu},"memory":"1Gi"}}}}}}"#
            );
            let node = Node::decode(&json, &mut Interner::default()).unwrap();
            assert_eq!(node.zone(), Some("z1"));
            node.allocatable_cpu
        };
        let read = [r#""4""#, r#""1930m""#, r#""100u""#, "2", "null", r#""-1""#, r#""many""#, "[]"].map(cpu);
        assert_eq!(read, [4000, 1930, 1, 2000, 0, 0, 0, 0]);
        assert_eq!(node("{}", "{}", "True").zone(), None);
    }

    #[test]
    fn the_conditions_and_the_cordon_of_a_node_are_read() {
        let spec = r#"{"unschedulable":true,"taints":[{"key":"a","effect":"NoExecute","timeAdded":"2026-01-01T00:00:05Z"}]}"#;
        let unready = node("{}", spec, "False");
        assert!(unready.is_unschedulable);
        assert_eq!(unready.taints[0].time_added, Some("2026-01-01T00:00:05Z".parse().unwrap()));
        let statuses = ConditionType::ALL.map(|kind| unready.conditions.get(kind));
        assert_eq!(statuses, [Some(Ready::False), Some(Ready::True), None, None, None]);
        assert_eq!(unready.conditions.heartbeat, Some("2026-01-01T00:00:00Z".parse().unwrap()));
        assert_eq!(unready.conditions.transition, None);
        // A status that Kubernetes does not have.
        let odd = node("{}", "{}", "Perhaps");
        assert_eq!((odd.ready, odd.conditions.get(ConditionType::Ready)), (Ready::Unknown, None));
    }

    #[test]
    fn absent_fields_of_a_node_are_absent() {
        let json = r#"{"metadata":{"name":"n1","uid":"u","resourceVersion":"1","labels":null},"spec":{"taints":null}}"#;
        let node = Node::decode(json, &mut Interner::default()).unwrap();
        assert!(node.taints.is_empty() && node.meta.labels.is_empty());
        assert_eq!(node.ready, Ready::Unknown);
    }

    #[test]
    fn a_heartbeat_and_a_condition_change_no_decision_and_labels_and_taints_may() {
        let before = node(r#"{"a":"b"}"#, "{}", "True");
        let mut later = node(r#"{"a":"b"}"#, r#"{"unschedulable":true}"#, "Unknown");
        later.meta.resource_version += 1;
        assert!(before.places_pods_as(&later));
        assert!(!before.places_pods_as(&node(r#"{"a":"c"}"#, "{}", "True")));
        assert!(!before.places_pods_as(&node(r#"{"a":"b"}"#, r#"{"taints":[{"key":"a"}]}"#, "True")));
        later.meta.uid = crate::model::Uid::new("u-another");
        assert!(!before.places_pods_as(&later), "a node that was added again under its name");
    }
}
