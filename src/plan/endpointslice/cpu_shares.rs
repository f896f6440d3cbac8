//! The shares of zones in the CPUs of all nodes, and how many endpoints each should have (upstream: `topologycache`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::node::Ready;
use crate::model::{AddressType, EndpointSlice, Node};

const FEW_ENDPOINTS: &str = "Insufficient number of endpoints";
const OVERLOAD: &str =
    "Unable to allocate minimum required endpoints to each zone without exceeding overload threshold";

/// By how much an endpoint may be busier than on average.
const OVERLOAD_THRESHOLD: f64 = 0.2;

/// Nodes with one of these labels do not count.
const EXCLUDED: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// The share of each zone in the CPUs of all nodes; two zones at least.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuShares(BTreeMap<Arc<str>, f64>);

/// How many endpoints a zone should have.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Allocation {
    minimum: usize,
    /// The most that it may have, so that the others get their least.
    pub maximum: usize,
    /// Its share, or its least if that is more.
    pub desired: f64,
}

/// By zone.
pub(super) type Allocations<'a> = BTreeMap<&'a str, Allocation>;

#[allow(clippy::cast_precision_loss)] // Numbers of endpoints, and thousandths of CPUs.
fn float(number: i64) -> f64 {
    number as f64
}

/// A number of endpoints, to reckon with.
pub(super) fn count(number: usize) -> f64 {
    float(i64::try_from(number).unwrap_or(i64::MAX))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // At most a number of endpoints.
fn minimum(endpoints: f64) -> usize {
    (endpoints * (1.0 / (1.0 + OVERLOAD_THRESHOLD))).ceil() as usize
}

impl CpuShares {
    /// The shares, if each ready node tells its zone and its CPUs, and there are two zones.
    pub fn of(nodes: &[Arc<Node>]) -> Option<Self> {
        let is_excluded = |node: &Node| EXCLUDED.iter().any(|label| node.meta.labels.get(label).is_some());
        let mut zones: BTreeMap<Arc<str>, i64> = BTreeMap::new();
        let mut total = 0_i64;
        for node in nodes.iter().filter(|node| !is_excluded(node) && node.ready == Ready::True) {
            let zone = node.zone().filter(|_| node.allocatable_cpu > 0)?;
            let of_zone = zones.entry(zone.into()).or_default();
            *of_zone = of_zone.saturating_add(node.allocatable_cpu);
            total = total.saturating_add(node.allocatable_cpu);
        }
        let share = |(zone, cpu): (Arc<str>, i64)| (zone, float(cpu) / float(total));
        (zones.len() >= 2).then(|| CpuShares(zones.into_iter().map(share).collect()))
    }

    /// How many of so many endpoints each zone should have.
    pub(super) fn allocations(&self, endpoints: usize) -> Result<Allocations<'_>, String> {
        let zones = self.0.len();
        if zones > endpoints {
            return Err(format!("{FEW_ENDPOINTS} ({endpoints} endpoints, {zones} zones)"));
        }
        let mut allocations = Allocations::new();
        let mut total = 0_usize;
        for (zone, share) in &self.0 {
            let desired = share * count(endpoints);
            let minimum = minimum(desired);
            total = total.saturating_add(minimum);
            let desired = desired.max(count(minimum));
            allocations.insert(zone, Allocation { minimum, maximum: 0, desired });
        }
        let Some(spare) = endpoints.checked_sub(total) else {
            return Err(format!("{OVERLOAD} ({endpoints} endpoints, {zones} zones)"));
        };
        for allocation in allocations.values_mut() {
            allocation.maximum = allocation.minimum.saturating_add(spare);
        }
        Ok(allocations)
    }
}

/// Whether the slices of a Service with the annotation need another look with these shares: a zone has too few endpoints, or hints
/// have become possible.
pub fn is_concerned(slices: &[Arc<EndpointSlice>], shares: Option<&CpuShares>) -> bool {
    let mut by_type: BTreeMap<AddressType, BTreeMap<&str, u32>> = BTreeMap::new();
    for slice in slices {
        let zones = by_type.entry(slice.address_type).or_default();
        for (zone, hints) in &slice.hints.zones {
            let sum = zones.entry(zone).or_default();
            *sum = sum.saturating_add(*hints);
        }
    }
    by_type.retain(|_, zones| !zones.is_empty());
    let Some(shares) = shares else { return !by_type.is_empty() };
    let is_overloaded = |zones: &BTreeMap<&str, u32>| {
        let total: f64 = zones.values().map(|hints| f64::from(*hints)).sum();
        let least = |share: &f64| minimum(total * share);
        shares.0.iter().any(|(zone, share)| {
            let there = zones.get(&**zone).map(|hints| usize::try_from(*hints).unwrap_or(usize::MAX));
            there.is_none_or(|there| there < least(share))
        })
    };
    by_type.is_empty() || by_type.values().any(is_overloaded)
}
