//! The endpoints of slices, and which of them a Service has (upstream: `podToEndpoint`).

use std::net::IpAddr;
use std::sync::Arc;

use super::observed::Observed;
use super::pods::{by_ports, counts, hostname, node_of, target};
use crate::model::endpointslice::{
    EndpointView, Fingerprint, PortView, TargetView, hash_of_hints, hash_of_ports,
};
use crate::model::service::TrafficDistribution;
use crate::model::{AddressType, Node, Pod, Service};

/// Endpoints with the same ports.
pub(in crate::plan) struct Group<'a> {
    /// The ports.
    pub ports: Vec<PortView<'a>>,
    /// Their hash.
    pub hash: u64,
    /// The endpoints, in their order.
    pub endpoints: Vec<Endpoint<'a>>,
}

impl Group<'_> {
    /// The group of a placeholder.
    pub(super) fn empty() -> Self {
        Group { ports: Vec::new(), hash: ports_of_none(), endpoints: Vec::new() }
    }
}

/// The hash of no ports.
pub(super) fn ports_of_none() -> u64 {
    hash_of_ports(Vec::new())
}

/// An endpoint as it should be.
pub(in crate::plan) struct Endpoint<'a> {
    /// Its addresses, sorted.
    pub addresses: Vec<String>,
    /// The object behind it.
    pub target: Option<TargetView<'a>>,
    /// Its node.
    pub node: Option<&'a str>,
    /// The zone of that node.
    pub zone: Option<&'a str>,
    /// Its hostname.
    pub hostname: Option<&'a str>,
    /// The conditions `ready`, `serving` and `terminating`.
    pub conditions: [Option<bool>; 3],
    /// Its hashes.
    pub fingerprint: Fingerprint,
    /// Its hints.
    pub hint: Hint<'a>,
}

/// For which clients an endpoint is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::plan) struct Hint<'a> {
    /// Those in this zone.
    pub zone: Option<&'a str>,
    /// Those on this node.
    pub node: Option<&'a str>,
}

impl<'a> Endpoint<'a> {
    /// An endpoint without hints. The addresses must be sorted.
    pub(in crate::plan) fn new(
        addresses: Vec<String>,
        target: Option<TargetView<'a>>,
        [node, zone, hostname]: [Option<&'a str>; 3],
        conditions: [Option<bool>; 3],
    ) -> Self {
        let texts: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let view =
            EndpointView { addresses: &texts, hostname, target: target.clone(), node, zone, conditions };
        let fingerprint = view.fingerprint();
        Endpoint { addresses, target, node, zone, hostname, conditions, fingerprint, hint: Hint::default() }
    }

    /// Its condition `ready`.
    pub(in crate::plan) fn is_ready(&self) -> bool {
        self.conditions.first() == Some(&Some(true))
    }

    /// The hash of its hints.
    pub(super) fn hint_hash(&self) -> u64 {
        hash_of_hints(self.fingerprint.identity, self.hint.zone.as_slice(), self.hint.node.as_slice())
    }
}

/// The pods that are left out since their nodes are unknown, in upstream's words. A Service that publishes pods which are not
/// ready publishes these as well.
pub(super) fn lost_nodes(observed: &Observed<'_>) -> Vec<String> {
    let service = observed.service;
    if service.publishes_not_ready {
        return Vec::new();
    }
    let lost = observed.pods.iter().filter(|pod| counts(pod) && !observed.nodes.contains_key(node_of(pod)));
    let words = |pod: &Arc<Pod>| {
        let (name, key) = (&pod.meta.key.name, &service.meta.key);
        format!("skipping Pod {name} for Service {key}: Node {} Not Found", node_of(pod))
    };
    lost.map(words).collect()
}

/// The endpoints of one address type, by their ports.
pub(super) fn groups<'a>(observed: &'a Observed<'a>, address_type: AddressType) -> Vec<Group<'a>> {
    let service = observed.service;
    let of_pod = |pod: &'a Pod| {
        let node = observed.nodes.get(node_of(pod));
        let is_known = node.is_some() || service.publishes_not_ready;
        is_known.then(|| endpoint(service, pod, node.map(|node| &**node), address_type))?
    };
    let pods = observed.pods.iter().filter(|pod| counts(pod));
    let groups = by_ports(service, pods).into_iter().map(|group| Group {
        ports: group.ports,
        hash: group.hash,
        endpoints: group.pods.into_iter().filter_map(of_pod).collect(),
    });
    groups.collect()
}

/// The endpoint of a pod; `None` if it has no address of the family.
fn endpoint<'a>(
    service: &'a Service,
    pod: &'a Pod,
    node: Option<&'a Node>,
    address_type: AddressType,
) -> Option<Endpoint<'a>> {
    let addresses = pod.network.addresses().filter(|address| is_of_type(*address, address_type));
    let mut addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    if addresses.is_empty() {
        return None;
    }
    addresses.sort_unstable();
    // Serving is a pod that is ready; ready is also one that is not if the Service publishes such pods.
    let (is_serving, is_terminating) = (pod.ready_since.is_some(), pod.meta.is_deleting());
    let is_ready = service.publishes_not_ready || (is_serving && !is_terminating);
    let zone = node.and_then(Node::zone);
    let node = Some(node_of(pod)).filter(|node| !node.is_empty());
    let conditions = [Some(is_ready), Some(is_serving), Some(is_terminating)];
    let texts = [node, zone, hostname(service, pod)];
    let endpoint = Endpoint::new(addresses, Some(target(pod)), texts, conditions);
    Some(Endpoint { hint: hint(service, is_ready, zone, node), ..endpoint })
}

/// Whether an address is of a family.
pub(in crate::plan) fn is_of_type(address: IpAddr, address_type: AddressType) -> bool {
    match address_type {
        AddressType::Ipv4 => address.is_ipv4(),
        AddressType::Ipv6 => address.is_ipv6(),
        AddressType::Other => false,
    }
}

/// The hint by the traffic distribution. The annotation, if it is there, decides instead of the field.
fn hint<'a>(service: &Service, is_ready: bool, zone: Option<&'a str>, node: Option<&'a str>) -> Hint<'a> {
    let distribution = service.traffic_distribution.filter(|_| is_ready && !service.is_topology_auto);
    match distribution {
        None => Hint::default(),
        Some(TrafficDistribution::PreferClose | TrafficDistribution::PreferSameZone) => {
            Hint { zone, node: None }
        }
        Some(TrafficDistribution::PreferSameNode) => Hint { zone, node },
    }
}
