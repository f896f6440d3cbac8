//! The canonical form of subsets, in which each address stands once for a port, and ports with the same addresses share a subset
//! (upstream: `RepackSubsets`).

use std::collections::{BTreeMap, BTreeSet};

use crate::model::Uid;
use crate::model::endpoints::{AddressView, SubsetView};
use crate::model::endpointslice::PortView;

/// Addresses with the same ports.
pub(super) struct Canonical<'a> {
    /// The ports.
    pub ports: Vec<PortView<'a>>,
    /// The addresses and whether each is ready: ready ones first, each by IP and UID.
    pub addresses: Vec<(&'a AddressView<'a>, bool)>,
}

/// The most addresses that are looked at, each once for each combination of subsets that a port is in. A megabyte can ask for many
/// millions; such subsets are taken as they were written.
const MOST_LOOKS: usize = 200_000;

/// Two addresses are one if their IP and the UID of the object behind them are equal.
type Key<'a> = (&'a str, Uid);

fn key<'a>(address: &'a AddressView<'a>) -> Key<'a> {
    (&address.ip, address.target.as_ref().map_or_else(|| Uid::new(""), |target| target.uid.clone()))
}

/// Brings subsets into their canonical form.
pub(super) fn canonical<'a>(subsets: &'a [SubsetView<'a>]) -> Vec<Canonical<'a>> {
    let mut subsets_of: BTreeMap<Option<PortView<'a>>, BTreeSet<usize>> = BTreeMap::new();
    for (at, subset) in subsets.iter().enumerate() {
        if subset.ports.is_empty() {
            subsets_of.entry(None).or_default().insert(at);
        }
        for port in &subset.ports {
            subsets_of.entry(Some(*port)).or_default().insert(at);
        }
    }
    let mut ports_of: BTreeMap<Vec<usize>, Vec<Option<PortView<'a>>>> = BTreeMap::new();
    for (port, subsets) in subsets_of {
        ports_of.entry(subsets.into_iter().collect()).or_default().push(port);
    }
    let size = |at: &usize| subsets.get(*at).map_or(0, |subset| subset.ready.len() + subset.not_ready.len());
    let looks = ports_of.keys().flatten().map(size).fold(0, usize::saturating_add);
    if looks > MOST_LOOKS {
        let all = subsets.iter().map(|subset| (subset.ports.clone(), union([subset].into_iter())));
        return all.map(|(ports, addresses)| Canonical { ports, addresses }).collect();
    }
    let mut by_addresses: BTreeMap<Vec<(Key<'a>, bool)>, Canonical<'a>> = BTreeMap::new();
    for (at, ports) in ports_of {
        let addresses = union(at.iter().filter_map(|at| subsets.get(*at)));
        let keys = addresses.iter().map(|(address, ready)| (key(address), *ready)).collect();
        let same = by_addresses.entry(keys).or_insert(Canonical { ports: Vec::new(), addresses });
        same.ports.extend(ports.into_iter().flatten());
    }
    by_addresses.into_values().collect()
}

/// The addresses of several subsets. One that is ready in one of them and not in another is not.
fn union<'a>(subsets: impl Iterator<Item = &'a SubsetView<'a>>) -> Vec<(&'a AddressView<'a>, bool)> {
    let mut all: BTreeMap<Key<'a>, (&'a AddressView<'a>, bool)> = BTreeMap::new();
    for subset in subsets {
        for (addresses, is_ready) in [(&subset.ready, true), (&subset.not_ready, false)] {
            for address in addresses {
                let (_, ready) = all.entry(key(address)).or_insert((address, is_ready));
                *ready &= is_ready;
            }
        }
    }
    let (ready, not_ready): (Vec<_>, Vec<_>) = all.into_values().partition(|(_, ready)| *ready);
    ready.into_iter().chain(not_ready).collect()
}
