//! The EndpointSlices that mirror the Endpoints of a Service without selector.
//!
//! One slice for each address type and list of ports: what a user writes into one object is not divided further. Names and writes are
//! those of [`super::endpointslice`].

mod subsets;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::EventNote;
use super::endpointslice::body::{Annotations, Frame, TRIGGER_TIME, labels};
use super::endpointslice::endpoints::{Endpoint, Group, is_of_type};
use super::endpointslice::packing::{PackedSlice, State};
use super::endpointslice::writes::writes;
use super::endpointslice::{Memory, Plan};
use crate::model::endpoints::{Content, SubsetView, address};
use crate::model::endpointslice::{ENDPOINT_SLICE_MIRRORING_CONTROLLER, Fingerprint, hash_of_ports};
use crate::model::{AddressType, EndpointSlice, Endpoints, Record, Service};
use subsets::canonical;

/// The annotation of `kubectl apply`, which is of no use to another object.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The input of a plan.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The Endpoints, with their content if they are mirrored; without it nothing is planned.
    pub endpoints: Arc<Endpoints>,
    /// The Service of their name.
    pub service: Option<Arc<Service>>,
    /// The slices that mirror them by their labels and that are not being deleted, in the order of their names.
    pub slices: Vec<Arc<EndpointSlice>>,
    /// The names in their namespace that begin as those of their slices do.
    pub taken: BTreeSet<Arc<str>>,
    /// The outcome of the last sync that has succeeded.
    pub memory: Memory,
    /// The most addresses of a subset that are mirrored.
    pub most: usize,
}

/// Whether Endpoints are mirrored: their Service exists and has no selector.
pub fn is_mirrored(endpoints: &Endpoints, service: Option<&Service>) -> bool {
    endpoints.may_be_mirrored() && service.is_some_and(|service| service.selector.is_none())
}

/// Whether a change of a Service decides whether its Endpoints are mirrored. `None` stands for one that does not exist.
pub fn is_concerned(old: Option<&Service>, new: Option<&Service>) -> bool {
    let has_no_selector = |service: Option<&Service>| service.is_some_and(|it| it.selector.is_none());
    has_no_selector(old) != has_no_selector(new)
}

/// Plans the slices of Endpoints.
pub fn plan(observed: &Observed) -> Plan {
    let endpoints = &*observed.endpoints;
    if !is_mirrored(endpoints, observed.service.as_deref()) {
        return Plan { left_over: observed.slices.clone(), ..Plan::default() };
    }
    let Some(content) = endpoints.content.as_deref() else {
        return Plan { memory: observed.memory.clone(), ..Plan::default() };
    };
    let subsets = content.subsets();
    let views = subsets.views();
    let wanted = Wanted::of(&views, observed.most);
    let frame = frame(endpoints, content);
    let mut plan = Plan::default();
    for (address_type, groups) in [(AddressType::Ipv4, wanted.ipv4), (AddressType::Ipv6, wanted.ipv6)] {
        let groups: Vec<Group<'_>> = groups.into_values().collect();
        let of_type = observed.slices.iter().filter(|slice| slice.address_type == address_type);
        let (packed, deletes) = pack(&frame, &groups, of_type.collect(), &mut plan.memory);
        let counts = &mut plan.memory.counts;
        counts.slices += packed.len();
        for group in &groups {
            counts.endpoints += group.endpoints.len();
            counts.ideal += group.endpoints.len().div_ceil(observed.most.max(1));
        }
        plan.by_type.push(writes(&frame, address_type, &observed.taken, &groups, packed, deletes));
    }
    let is_other = |slice: &&Arc<EndpointSlice>| slice.address_type == AddressType::Other;
    plan.left_over = observed.slices.iter().filter(is_other).cloned().collect();
    plan.memory.skipped = (wanted.invalid, wanted.skipped);
    if plan.memory.skipped != observed.memory.skipped {
        plan.events = events(wanted.invalid, wanted.skipped, observed.most);
    }
    plan
}

/// The events about addresses that are left out, as upstream words them.
fn events(invalid: usize, skipped: usize, most: usize) -> Vec<EventNote> {
    let mut events = Vec::new();
    if invalid > 0 {
        let message = format!("Skipped {invalid} invalid IP addresses when mirroring to EndpointSlices");
        events.push(EventNote::warning("InvalidIPAddress", message));
    }
    if skipped > invalid {
        let message = format!(
            "A max of {most} addresses can be mirrored to EndpointSlices per Endpoints subset. {skipped} addresses were \
             skipped"
        );
        events.push(EventNote::warning("TooManyAddressesToMirror", message));
    }
    events
}

fn frame<'a>(endpoints: &'a Endpoints, content: &'a Content) -> Frame<'a> {
    let annotations = content.annotations.iter();
    Frame {
        resource: &Endpoints::RESOURCE,
        owner: &endpoints.meta,
        labels: labels(&endpoints.meta, ENDPOINT_SLICE_MIRRORING_CONTROLLER),
        annotations: Annotations::Exactly(
            annotations.filter(|(key, _)| ![TRIGGER_TIME, LAST_APPLIED].contains(key)).collect(),
        ),
    }
}

/// The endpoints by the hash of their ports.
type Groups<'a> = BTreeMap<u64, Group<'a>>;

/// The endpoints that the slices should have.
#[derive(Default)]
struct Wanted<'a> {
    ipv4: Groups<'a>,
    ipv6: Groups<'a>,
    /// Addresses that are none.
    invalid: usize,
    /// All addresses that are left out.
    skipped: usize,
}

impl<'a> Wanted<'a> {
    fn of(subsets: &'a [SubsetView<'a>], most: usize) -> Self {
        let mut wanted = Wanted::default();
        for subset in canonical(subsets) {
            let hash = hash_of_ports(subset.ports.clone());
            let mut added = 0;
            for &(view, is_ready) in &subset.addresses {
                if added >= most {
                    break;
                }
                let Some(ip) = address(&view.ip) else {
                    wanted.invalid += 1;
                    continue;
                };
                let is_ipv4 = is_of_type(ip, AddressType::Ipv4);
                let groups = if is_ipv4 { &mut wanted.ipv4 } else { &mut wanted.ipv6 };
                let group = groups.entry(hash).or_insert_with(|| Group {
                    ports: subset.ports.clone(),
                    hash,
                    endpoints: Vec::new(),
                });
                if group.endpoints.len() >= most {
                    break;
                }
                let texts = [view.node, None, view.hostname];
                let conditions = [Some(is_ready), None, None];
                group.endpoints.push(Endpoint::new(
                    vec![ip.to_string()],
                    view.target.clone(),
                    texts,
                    conditions,
                ));
                added += 1;
            }
            wanted.skipped += subset.addresses.len() - added;
        }
        for group in wanted.ipv4.values_mut().chain(wanted.ipv6.values_mut()) {
            merge(group);
        }
        wanted
    }
}

/// Of endpoints that no reader can tell apart one is left: one that is not ready, if there is one.
fn merge(group: &mut Group<'_>) {
    let mut chosen: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, endpoint) in group.endpoints.iter().enumerate() {
        let kept = chosen.entry(endpoint.fingerprint.identity).or_insert(at);
        if !endpoint.is_ready() {
            *kept = at;
        }
    }
    let mut at = 0;
    group.endpoints.retain(|endpoint| {
        let is_chosen = chosen.get(&endpoint.fingerprint.identity) == Some(&at);
        at += 1;
        is_chosen
    });
}

/// Chooses the slice of each group; others are deleted.
fn pack<'a>(
    frame: &Frame<'_>,
    groups: &[Group<'_>],
    mut existing: Vec<&'a Arc<EndpointSlice>>,
    memory: &mut Memory,
) -> (Vec<PackedSlice<'a>>, Vec<&'a Arc<EndpointSlice>>) {
    let mut packed = Vec::with_capacity(groups.len());
    for (at, group) in groups.iter().enumerate() {
        let of_group = existing.iter().enumerate().filter(|(_, slice)| slice.ports == group.hash);
        let states = of_group.map(|(index, slice)| (state(frame, group, slice), index));
        // One that needs no write before others, and of several the first by name.
        let chosen = states.min_by_key(|(state, index)| (*state != State::Unchanged, *index));
        let endpoints: Vec<usize> = (0..group.endpoints.len()).collect();
        let slice = chosen.map(|(state, index)| (existing.remove(index), state));
        let counts = &mut memory.counts;
        match &slice {
            None => counts.added += endpoints.len(),
            Some((slice, _)) => {
                let there: BTreeMap<u64, u64> =
                    slice.endpoints.iter().map(|it| (it.identity, it.contents)).collect();
                let kept = group.endpoints.iter().filter_map(|endpoint| {
                    let Fingerprint { identity, contents } = endpoint.fingerprint;
                    Some(*there.get(&identity)? != contents)
                });
                let changed: Vec<bool> = kept.collect();
                counts.added += endpoints.len().saturating_sub(changed.len());
                counts.removed += there.len().saturating_sub(changed.len());
                counts.updated += changed.iter().filter(|is_changed| **is_changed).count();
            }
        }
        let state = slice.map_or(State::Changed, |(_, state)| state);
        packed.push(PackedSlice { slice: slice.map(|(slice, _)| slice), group: at, endpoints, state });
    }
    memory.counts.removed += existing.iter().map(|slice| slice.endpoints.len()).sum::<usize>();
    (packed, existing)
}

/// The change that a slice needs to hold a group.
fn state(frame: &Frame<'_>, group: &Group<'_>, slice: &EndpointSlice) -> State {
    let mut there = slice.endpoints.to_vec();
    let mut wanted: Vec<Fingerprint> = group.endpoints.iter().map(|it| it.fingerprint).collect();
    there.sort_unstable();
    wanted.sort_unstable();
    if there != wanted || slice.hints.sum != 0 {
        State::Changed
    } else if !frame.fits(slice) || !frame.owns(slice) {
        State::Relabeled
    } else {
        State::Unchanged
    }
}
