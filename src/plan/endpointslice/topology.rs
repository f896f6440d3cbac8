//! Hints by the CPUs of zones, for Services with the annotation `service.kubernetes.io/topology-mode: Auto` (upstream:
//! `topologycache`).
//!
//! Each zone gets as many endpoints as its share of the CPUs of all nodes is, its own first. Where upstream follows the order of a
//! Go map, zones come in the order of their names here.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cpu_shares::{Allocations, CpuShares, count};
use super::endpoints::{Group, Hint};
use super::packing::{PackedSlice, State};
use crate::model::{AddressType, EndpointSlice};

/// The reasons of events, and their messages as upstream words them.
pub(super) const ENABLED_REASON: &str = "TopologyAwareHintsEnabled";
pub(super) const DISABLED_REASON: &str = "TopologyAwareHintsDisabled";
pub(super) const ENABLED: &str = "Topology Aware Hints has been enabled";
pub(super) const DISABLED: &str = "Topology Aware Hints has been disabled";
const NO_ZONE: &str = "One or more endpoints do not have a zone specified";
const NO_HINTS: &str = "No hints allocated for zones";
const NO_NODES: &str =
    "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes";

/// The result of [`add_hints`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Hinted {
    /// Each ready endpoint has a hint.
    Yes,
    /// None has one, for this reason.
    No(String),
}

/// A message with the address type that it is about.
pub(super) fn with_type(message: &str, address_type: AddressType) -> String {
    format!("{message}, addressType: {}", address_type.as_str())
}

/// Gives each ready endpoint a hint, or none to any. Slices whose hints are right need no write.
pub(super) fn add_hints<'a>(
    shares: Option<&'a CpuShares>,
    groups: &mut [Group<'a>],
    packed: &mut [PackedSlice<'a>],
) -> Hinted {
    let ready =
        groups.iter().flat_map(|group| &group.endpoints).filter(|endpoint| endpoint.is_ready()).count();
    let allocations = match shares.map(|shares| shares.allocations(ready)) {
        None => Err(NO_NODES.to_owned()),
        Some(allocations) => allocations,
    };
    match allocations.and_then(|allocations| distribute(&allocations, groups, packed)) {
        Ok(()) => Hinted::Yes,
        Err(reason) => {
            remove_hints(groups, packed);
            Hinted::No(reason)
        }
    }
}

fn remove_hints(groups: &mut [Group<'_>], packed: &mut [PackedSlice<'_>]) {
    for endpoint in groups.iter_mut().flat_map(|group| &mut group.endpoints) {
        endpoint.hint = Hint::default();
    }
    for slice in packed.iter_mut().filter(|packed| packed.state != State::Changed) {
        if slice.slice.is_some_and(|slice| slice.hints.sum != 0) {
            slice.state = State::Changed;
        }
    }
}

fn distribute<'a>(
    allocations: &Allocations<'a>,
    groups: &mut [Group<'a>],
    packed: &mut [PackedSlice<'a>],
) -> Result<(), String> {
    let mut there: BTreeMap<&'a str, usize> = BTreeMap::new();
    for slice in packed.iter_mut().filter(|packed| packed.state != State::Changed) {
        match slice.slice.filter(|slice| is_right(slice, &there, allocations)) {
            Some(slice) => {
                for (zone, hints) in &slice.hints.zones {
                    *there.entry(zone).or_default() += usize::try_from(*hints).unwrap_or(0);
                }
            }
            None => slice.state = State::Changed,
        }
    }
    let ready: Vec<(usize, usize)> = packed
        .iter()
        .filter(|packed| packed.state == State::Changed)
        .flat_map(|packed| packed.endpoints.iter().map(|endpoint| (packed.group, *endpoint)))
        .filter(|(group, at)| {
            groups.get(*group).and_then(|group| group.endpoints.get(*at)).is_some_and(|it| it.is_ready())
        })
        .collect();
    for (group, at) in &ready {
        let Some(endpoint) = groups.get_mut(*group).and_then(|group| group.endpoints.get_mut(*at)) else {
            continue;
        };
        let zone = endpoint.zone.ok_or_else(|| NO_ZONE.to_owned())?;
        endpoint.hint.zone = Some(zone);
        *there.entry(zone).or_default() += 1;
    }
    let (mut giving, mut receiving) = moves(allocations, &there);
    for (group, at) in ready {
        let Some(endpoint) = groups.get_mut(group).and_then(|group| group.endpoints.get_mut(at)) else {
            continue;
        };
        let Some(gives) = endpoint.zone.and_then(|zone| giving.get_mut(zone)).filter(|left| **left > 0)
        else {
            continue;
        };
        let Some((zone, left)) = receiving.iter_mut().find(|(_, left)| **left > 0) else { break };
        endpoint.hint.zone = Some(zone);
        *gives -= 1;
        *left -= 1;
    }
    if there.is_empty() { Err(NO_HINTS.to_owned()) } else { Ok(()) }
}

/// Whether the hints of a slice may stay, beside those that others have.
fn is_right(slice: &EndpointSlice, there: &BTreeMap<&str, usize>, allocations: &Allocations<'_>) -> bool {
    let fits = |(zone, hints): &(Arc<str>, u32)| {
        let others = there.get(&**zone).copied().unwrap_or(0);
        let all = others.saturating_add(usize::try_from(*hints).unwrap_or(usize::MAX));
        allocations.get(&**zone).is_some_and(|allocation| all <= allocation.maximum)
    };
    !slice.hints.is_incomplete && slice.hints.zones.iter().all(fits)
}

/// Numbers of endpoints by zone.
type Numbers<'a> = BTreeMap<&'a str, usize>;

/// How many endpoints zones give to others, and how many they get: one at a time, from the zone that is most above its share to the
/// one that is most below.
fn moves<'a>(allocations: &Allocations<'a>, there: &Numbers<'a>) -> (Numbers<'a>, Numbers<'a>) {
    let (mut above, mut below) = (BTreeMap::new(), BTreeMap::new());
    for (zone, allocation) in allocations {
        let difference = count(there.get(zone).copied().unwrap_or(0)) - allocation.desired;
        if difference > 0.0 {
            above.insert(*zone, difference);
        } else if difference < 0.0 {
            below.insert(*zone, -difference);
        }
    }
    let (mut giving, mut receiving) = (Numbers::new(), Numbers::new());
    while let (Some((from, gives)), Some((to, gets))) = (most(&above), most(&below)) {
        if (gives < 1.0 && gets < 1.0) || gives < 0.5 || gets < 0.5 {
            break;
        }
        *giving.entry(from).or_default() += 1;
        *receiving.entry(to).or_default() += 1;
        above.insert(from, gives - 1.0);
        below.insert(to, gets - 1.0);
    }
    (giving, receiving)
}

/// The zone with the most; of several the first by name.
fn most<'a>(zones: &BTreeMap<&'a str, f64>) -> Option<(&'a str, f64)> {
    let mut most = None;
    for (zone, number) in zones {
        if *number > most.map_or(0.0, |(_, number)| number) {
            most = Some((*zone, *number));
        }
    }
    most
}
