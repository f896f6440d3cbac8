//! The subsets of the Endpoints of a Service: which addresses there are, and with which ports (upstream: `addEndpointSubset`,
//! `RepackSubsets` and `truncateEndpoints`).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::endpoints::{AddressView, SubsetView};
use crate::model::endpointslice::PortView;
use crate::model::{AddressType, Pod, Service};
use crate::plan::endpointslice::endpoints::is_of_type;
use crate::plan::endpointslice::pods::{PodGroup, by_ports, counts, hostname, node_of, target};

/// The most addresses that Endpoints have.
pub const MOST_ADDRESSES: usize = 1000;

/// Addresses with the same ports, before it is known how many of them there may be.
struct Subset<'a> {
    ports: Vec<PortView<'a>>,
    /// Ready ones and others, each in their order.
    addresses: [Vec<Address<'a>>; 2],
}

/// An address, in the order of upstream: by the text of the IP, and then by the UID of the pod.
#[derive(Clone)]
struct Address<'a> {
    ip: Arc<str>,
    pod: &'a Pod,
}

impl Address<'_> {
    fn order(&self) -> (Arc<str>, crate::model::Uid) {
        (self.ip.clone(), self.pod.meta.uid.clone())
    }
}

/// The subsets of a Service in their canonical order, and whether addresses were left out since they are too many.
pub(super) fn subsets<'a>(service: &'a Service, pods: &'a [Arc<Pod>]) -> (Vec<SubsetView<'a>>, bool) {
    let is_listed = |pod: &&Arc<Pod>| counts(pod) && (service.publishes_not_ready || !pod.meta.is_deleting());
    let groups: Vec<PodGroup<'a>> = by_ports(service, pods.iter().filter(is_listed))
        .into_iter()
        // A headless Service need not have ports. Of any other a pod without one of its ports has no address.
        .filter(|group| !group.ports.is_empty() || (service.ports.is_empty() && service.is_headless))
        .collect();
    let addresses: Vec<[Vec<Address<'a>>; 2]> = groups.iter().map(|group| of_group(service, group)).collect();
    let mut groups_of: BTreeMap<Option<PortView<'a>>, Vec<usize>> = BTreeMap::new();
    for (at, group) in groups.iter().enumerate() {
        if addresses.get(at).is_none_or(|of_group| of_group.iter().all(Vec::is_empty)) {
            continue;
        }
        let none = group.ports.is_empty().then_some(None);
        for port in group.ports.iter().copied().map(Some).chain(none) {
            let of_port = groups_of.entry(port).or_default();
            // Two ports of a Service may be the same but for the port of the Service itself.
            if of_port.last() != Some(&at) {
                of_port.push(at);
            }
        }
    }
    // Ports of the same groups have the same addresses, and others do not: a pod is in one group.
    let mut ports_of: BTreeMap<Vec<usize>, Vec<PortView<'a>>> = BTreeMap::new();
    for (port, groups) in groups_of {
        ports_of.entry(groups).or_default().extend(port);
    }
    let subset = |(groups, ports): (Vec<usize>, Vec<PortView<'a>>)| {
        let all = |state: usize| {
            let of_groups = groups.iter().filter_map(|at| addresses.get(*at)?.get(state));
            let mut all: Vec<Address<'a>> = of_groups.flatten().cloned().collect();
            all.sort_by_cached_key(Address::order);
            all
        };
        let addresses = [all(0), all(1)];
        Subset { ports, addresses }
    };
    let mut subsets: Vec<Subset<'a>> = ports_of.into_iter().map(subset).collect();
    subsets.sort_by(|one, other| one.ports.cmp(&other.ports));
    let is_truncated = truncate(&mut subsets);
    (subsets.into_iter().map(|subset| view(service, subset)).collect(), is_truncated)
}

/// The addresses of pods, ready ones and others.
fn of_group<'a>(service: &Service, group: &PodGroup<'a>) -> [Vec<Address<'a>>; 2] {
    let address = |pod: &&'a Pod| Some(Address { ip: ip(service, pod)?.into(), pod });
    let is_ready = |pod: &&&Pod| service.publishes_not_ready || pod.ready_since.is_some();
    let (ready, others): (Vec<&'a Pod>, Vec<&'a Pod>) = group.pods.iter().partition(|pod| is_ready(pod));
    [ready.iter().filter_map(address).collect(), others.iter().filter_map(address).collect()]
}

/// The first address of a pod that is of the first family of its Service.
fn ip(service: &Service, pod: &Pod) -> Option<String> {
    let of_pod = || {
        let is_ipv6 = pod.network.addresses().next().is_some_and(|first| first.is_ipv6());
        if is_ipv6 { AddressType::Ipv6 } else { AddressType::Ipv4 }
    };
    let family = service.first_family.unwrap_or_else(of_pod);
    let ip = pod.network.addresses().find(|address| is_of_type(*address, family))?;
    Some(ip.to_string())
}

/// Leaves out what is above the most addresses: ready ones are left out last, and of each subset a part in proportion. A subset that
/// has none left goes, as an API server refuses it.
fn truncate(subsets: &mut Vec<Subset<'_>>) -> bool {
    let total = |subsets: &[Subset<'_>], state: usize| -> usize {
        subsets.iter().filter_map(|subset| subset.addresses.get(state)).map(Vec::len).sum()
    };
    let (ready, not_ready) = (total(subsets, 0), total(subsets, 1));
    if ready.saturating_add(not_ready) <= MOST_ADDRESSES {
        return false;
    }
    let (state, all, most) = match MOST_ADDRESSES.checked_sub(ready) {
        Some(left) => (1, not_ready, left),
        None => (0, ready, MOST_ADDRESSES),
    };
    let mut left = most;
    for subset in subsets.iter_mut() {
        if state == 0 {
            subset.addresses[1].clear();
        }
        let addresses = &mut subset.addresses[state];
        // The part is rounded up, so that the last subset may have less than its own.
        let part = (addresses.len() * most).div_ceil(all.max(1));
        addresses.truncate(part.min(left));
        left -= addresses.len();
    }
    subsets.retain(|subset| subset.addresses.iter().any(|addresses| !addresses.is_empty()));
    true
}

fn view<'a>(service: &Service, subset: Subset<'a>) -> SubsetView<'a> {
    let Subset { ports, addresses: [ready, not_ready] } = subset;
    let of_pod = |address: Address<'a>| AddressView {
        ip: Cow::Owned(address.ip.to_string()),
        hostname: hostname(service, address.pod),
        node: Some(node_of(address.pod)).filter(|node| !node.is_empty()),
        target: Some(target(address.pod)),
    };
    SubsetView {
        ready: ready.into_iter().map(of_pod).collect(),
        not_ready: not_ready.into_iter().map(of_pod).collect(),
        ports,
    }
}
