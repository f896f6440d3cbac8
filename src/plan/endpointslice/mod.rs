//! The EndpointSlices of a Service: which endpoints it has, how they are packed, and what to write.
//!
//! A slice holds endpoints of one address type and of one list of ports. Slices are never rebalanced: few writes count more than
//! few slices, since every node watches all of them.

pub(in crate::plan) mod body;
mod cpu_shares;
pub(in crate::plan) mod endpoints;
mod names;
mod observed;
pub(in crate::plan) mod packing;
pub(in crate::plan) mod pods;
mod topology;
mod trigger;
mod wakes;
pub(in crate::plan) mod writes;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use jiff::Timestamp;

pub use cpu_shares::{CpuShares, is_concerned as topology_is_concerned};
pub use names::base as name_base;
pub use observed::{Counts, Limits, Memory, Observed};
pub use trigger::TriggerTimes;
pub use wakes::{Affected, NodeChange, affected, node_change, services_of_slice};
pub use writes::{Create, Update, Writes};

use super::EventNote;
use crate::model::endpointslice::ENDPOINT_SLICE_CONTROLLER;
use crate::model::service::{Families, Service};
use crate::model::{AddressType, EndpointSlice, Record};
use body::{Annotations, Frame, HEADLESS};
use endpoints::{Group, lost_nodes, ports_of_none};
use packing::{PackedSlice, State};
use topology::Hinted;

/// The reason of the event about slices that could not be written.
pub const FAILED: &str = "FailedToUpdateEndpointSlices";

/// The writes, and what to remember of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The writes for each address type. A refusal ends those of its type only.
    pub by_type: Vec<Writes>,
    /// The slices of address types that the Service does not have, to be deleted last.
    pub left_over: Vec<Arc<EndpointSlice>>,
    /// Events, to be recorded after the writes.
    pub events: Vec<EventNote>,
    /// The memory for the next sync, to be kept once all is written.
    pub memory: Memory,
}

impl Plan {
    /// How many slices are written.
    pub fn len(&self) -> usize {
        self.by_type.iter().map(Writes::len).sum::<usize>() + self.left_over.len()
    }

    /// Whether a slice is created.
    pub fn creates(&self) -> bool {
        self.by_type.iter().any(|writes| !writes.creates.is_empty())
    }

    /// Whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The address types of the endpoints of a Service.
fn address_types(families: Families) -> impl Iterator<Item = AddressType> {
    let ipv4 = families.ipv4.then_some(AddressType::Ipv4);
    ipv4.into_iter().chain(families.ipv6.then_some(AddressType::Ipv6))
}

/// Plans the slices of a Service.
pub fn plan(observed: &Observed<'_>) -> Plan {
    let service = observed.service;
    if service.pods().is_none() {
        return without_pods(observed);
    }
    let (trigger_times, trigger) =
        TriggerTimes::after(observed.memory.trigger_times.as_deref(), service.meta.created, &observed.pods);
    let lost = lost_nodes(observed);
    let mut plan = Plan::default();
    if !lost.is_empty() && lost != observed.memory.lost {
        plan.events.push(EventNote::warning(FAILED, lost_message(service, &lost)));
    }
    plan.memory.lost = lost;
    plan.memory.trigger_times = Some(Arc::new(trigger_times));
    let frame = frame(service, trigger);
    for address_type in address_types(service.families) {
        let writes = TypePlanner { observed, address_type, frame: &frame }.plan(&mut plan);
        plan.by_type.push(writes);
    }
    let has_type = |slice: &&Arc<EndpointSlice>| {
        address_types(service.families).any(|address_type| address_type == slice.address_type)
    };
    plan.left_over = observed.slices.iter().filter(|slice| !has_type(slice)).cloned().collect();
    plan
}

/// The plan for a Service whose endpoints others write. Slices from before are of no use, and point to pods that may be anyone's
/// by now; upstream leaves them (kubernetes#118376, kubernetes#105987).
fn without_pods(observed: &Observed<'_>) -> Plan {
    let is_ours = |slice: &&Arc<EndpointSlice>| {
        observed.limits.deletes_left_over && observed.service.controls(&slice.meta)
    };
    let left_over = observed.slices.iter().filter(is_ours).cloned().collect();
    let memory = Memory { trigger_times: observed.memory.trigger_times.clone(), ..Memory::default() };
    Plan { left_over, memory, ..Plan::default() }
}

/// The part of the slices of a Service that does not depend on their endpoints.
fn frame(service: &Service, trigger: Option<Timestamp>) -> Frame<'_> {
    let mut labels = body::labels(&service.meta, ENDPOINT_SLICE_CONTROLLER);
    labels.remove(HEADLESS);
    if service.is_headless {
        labels.insert(HEADLESS, "");
    }
    Frame {
        resource: &Service::RESOURCE,
        owner: &service.meta,
        labels,
        annotations: Annotations::Trigger(trigger),
    }
}

/// The message of the event about pods whose nodes are unknown, as upstream words it.
fn lost_message(service: &Service, lost: &[String]) -> String {
    let key = &service.meta.key;
    let reasons = match lost {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    };
    format!("Error updating Endpoint Slices for Service {key}: {reasons}")
}

/// The planner of the slices of one address type.
struct TypePlanner<'a> {
    observed: &'a Observed<'a>,
    address_type: AddressType,
    frame: &'a Frame<'a>,
}

impl<'a> TypePlanner<'a> {
    fn plan(&self, plan: &mut Plan) -> Writes {
        let service = self.observed.service;
        let is_of_type = |slice: &&Arc<EndpointSlice>| slice.address_type == self.address_type;
        let existing: Vec<&Arc<EndpointSlice>> = self.observed.slices.iter().filter(is_of_type).collect();
        let (owned, foreign): (Vec<_>, Vec<_>) =
            existing.iter().copied().partition(|slice| self.frame.owns(slice));
        let mut groups: Vec<Group<'a>> = endpoints::groups(self.observed, self.address_type);
        let mut deletes: Vec<&Arc<EndpointSlice>> = foreign;
        let mut packed = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            let of_group = owned.iter().copied().filter(|slice| slice.ports == group.hash);
            let rules = packing::Rules {
                most: self.observed.limits.endpoints_per_slice,
                frame: self.frame,
                compares_hints: !service.is_topology_auto,
            };
            let result = packing::pack(at, group, of_group.collect(), &rules);
            plan.memory.counts.added += result.added;
            plan.memory.counts.removed += result.removed;
            let (emptied, kept): (Vec<_>, Vec<_>) =
                result.slices.into_iter().partition(|slice| slice.state == State::Emptied);
            deletes.extend(emptied.into_iter().filter_map(|slice| slice.slice));
            packed.extend(kept);
        }
        let is_unwanted = |slice: &&Arc<EndpointSlice>| groups.iter().all(|group| group.hash != slice.ports);
        deletes.extend(owned.iter().copied().filter(is_unwanted));
        self.add_placeholder(&mut groups, &mut packed, &mut deletes);
        self.count(&groups, packed.len(), plan);
        self.hint(&mut groups, &mut packed, plan);
        writes::writes(self.frame, self.address_type, &self.observed.taken, &groups, packed, deletes)
    }

    /// Where no slice would be left, one without endpoints and ports shows that the Service was looked at.
    fn add_placeholder(
        &self,
        groups: &mut Vec<Group<'a>>,
        packed: &mut Vec<PackedSlice<'a>>,
        deletes: &mut Vec<&'a Arc<EndpointSlice>>,
    ) {
        if !packed.is_empty() {
            return;
        }
        let is_placeholder = |slice: &&Arc<EndpointSlice>| {
            self.frame.owns(slice)
                && slice.endpoints.is_empty()
                && slice.ports == ports_of_none()
                && self.frame.fits(slice)
        };
        match deletes.iter().position(is_placeholder) {
            Some(at) => {
                let slice = deletes.remove(at);
                packed.push(PackedSlice::placeholder(Some(slice), groups.len()));
            }
            None => packed.push(PackedSlice::placeholder(None, groups.len())),
        }
        groups.push(Group::empty());
    }

    fn count(&self, groups: &[Group<'_>], slices: usize, plan: &mut Plan) {
        let most = self.observed.limits.endpoints_per_slice.max(1);
        let ideal: usize = groups.iter().map(|group| group.endpoints.len().div_ceil(most)).sum();
        let counts = &mut plan.memory.counts;
        counts.endpoints += groups.iter().map(|group| group.endpoints.len()).sum::<usize>();
        counts.slices += slices;
        counts.ideal += ideal.max(1);
    }

    /// Hints by the CPUs of zones, if the Service asks for them. Hints by the traffic distribution are part of the endpoints
    /// already.
    fn hint(&self, groups: &mut [Group<'a>], packed: &mut [PackedSlice<'a>], plan: &mut Plan) {
        let (before, at) = (&self.observed.memory, self.address_type);
        let was_hinted = before.hinted.contains(&at);
        if !self.observed.service.is_topology_auto {
            if was_hinted {
                let message = topology::with_type(topology::DISABLED, at);
                plan.events.push(EventNote::warning(topology::DISABLED_REASON, message));
            }
            return;
        }
        let outcome = topology::add_hints(self.observed.shares.as_deref(), groups, packed);
        match outcome {
            Hinted::Yes => {
                plan.memory.hinted.insert(at);
                if !was_hinted {
                    let message = topology::with_type(topology::ENABLED, at);
                    plan.events.push(EventNote::normal(topology::ENABLED_REASON, message));
                }
            }
            Hinted::No(reason) => {
                let message = topology::with_type(&reason, at);
                if before.reports.get(&at) != Some(&message) {
                    plan.events.push(EventNote::warning(topology::DISABLED_REASON, message.clone()));
                }
                plan.memory.reports.insert(at, message);
            }
        }
    }
}
