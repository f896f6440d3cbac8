//! How many nodes of each zone are ready, and how fast those that are not may lose their pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Limits;
use crate::model::Node;
use crate::model::node::Ready;

/// The label of nodes that do not count.
const EXCLUDED: &str = "node.kubernetes.io/exclude-disruption";

/// The labels with the zone and the region of a node. The first that a node has counts, as in upstream's `GetZoneKey`.
const ZONE: [&str; 2] = ["failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"];
const REGION: [&str; 2] = ["failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"];

/// The zone of a node, in upstream's form; empty where its labels name neither zone nor region.
pub fn zone_of(node: &Node) -> String {
    let label =
        |names: [&str; 2]| names.iter().find_map(|name| node.meta.labels.get(name)).unwrap_or_default();
    match (label(REGION), label(ZONE)) {
        ("", "") => String::new(),
        (region, zone) => format!("{region}:\0:{zone}"),
    }
}

/// The state of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneState {
    /// Enough nodes are ready.
    Normal,
    /// More than two nodes, and a large part of all, are not ready.
    PartialDisruption,
    /// No node is ready.
    FullDisruption,
}

/// The nodes of a zone that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    /// How many there are.
    pub size: usize,
    /// How many are not ready.
    pub unhealthy: usize,
}

impl Zone {
    /// Its state (upstream: `ComputeZoneState`).
    pub fn state(self, limits: &Limits) -> ZoneState {
        let Zone { size, unhealthy } = self;
        let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        if size > 0 && unhealthy == size {
            ZoneState::FullDisruption
        } else if unhealthy > 2 && count(unhealthy) / count(size) >= limits.unhealthy_zone_threshold {
            ZoneState::PartialDisruption
        } else {
            ZoneState::Normal
        }
    }

    /// The percentage of its nodes that are ready.
    pub fn health(self) -> f64 {
        let count = |number: usize| f64::from(u32::try_from(number).unwrap_or(u32::MAX));
        if self.size == 0 { 100.0 } else { 100.0 * count(self.size - self.unhealthy) / count(self.size) }
    }
}

/// The zones of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Zones {
    zones: BTreeMap<String, Zone>,
    /// The nodes that were ready.
    ready: BTreeSet<Arc<str>>,
}

impl Zones {
    /// The zones of these nodes.
    pub fn of<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> Self {
        let mut zones = Zones::default();
        for node in nodes.into_iter().filter(|node| node.meta.labels.get(EXCLUDED).is_none()) {
            let zone = zones.zones.entry(zone_of(node)).or_default();
            zone.size += 1;
            match node.ready {
                Ready::True => drop(zones.ready.insert(node.meta.key.name.clone())),
                Ready::False | Ready::Unknown => zone.unhealthy += 1,
            }
        }
        zones
    }

    /// Whether they were computed while a node was as ready as it is.
    pub fn show(&self, node: &Node) -> bool {
        let is_counted = node.meta.labels.get(EXCLUDED).is_none();
        self.ready.contains(&node.meta.key.name) == (is_counted && node.ready == Ready::True)
    }

    /// Whether no node is ready anywhere: then rather the control plane is cut off from them.
    pub fn are_all_disrupted(&self) -> bool {
        !self.zones.is_empty() && self.zones.values().all(|zone| zone.unhealthy == zone.size)
    }

    /// How many nodes of a zone may be tainted in a second; 0 is none.
    pub fn rate(&self, zone: &str, limits: &Limits) -> f64 {
        let zone = self.zones.get(zone).copied().unwrap_or_default();
        let rate = match zone.state(limits) {
            ZoneState::Normal | ZoneState::FullDisruption => limits.eviction_rate,
            ZoneState::PartialDisruption if zone.size > limits.large_zone => limits.secondary_eviction_rate,
            ZoneState::PartialDisruption => 0.0,
        };
        rate.max(0.0)
    }

    /// Each zone by its name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Zone)> {
        self.zones.iter().map(|(name, zone)| (name.as_str(), *zone))
    }
}

/// Whether a change of a node may change its zone, or the zone that it leaves.
pub fn concerns(before: &Node, after: &Node) -> bool {
    let counted = |node: &Node| (node.ready == Ready::True, node.meta.labels.get(EXCLUDED).is_some());
    counted(before) != counted(after) || zone_of(before) != zone_of(after)
}
