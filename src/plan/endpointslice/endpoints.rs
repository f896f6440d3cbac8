//! Which endpoints a Service has, and with which ports (upstream: `podToEndpoint`, `getEndpointPorts`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::observed::Observed;
use crate::model::endpointslice::{
    EndpointView, Fingerprint, PortView, TargetView, hash_of_hints, hash_of_ports,
};
use crate::model::service::{ServicePort, TargetPort, TrafficDistribution};
use crate::model::{AddressType, Node, Pod, Service, StringMap};

/// Endpoints with the same ports.
pub(super) struct Group<'a> {
    /// The ports.
    pub ports: Vec<PortView<'a>>,
    /// Their hash.
    pub hash: u64,
    /// The endpoints, in the order of their pods.
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
pub(super) struct Endpoint<'a> {
    /// Its pod.
    pub pod: &'a Pod,
    /// The addresses of the pod that are of the family, sorted.
    pub addresses: Vec<String>,
    /// The node of the pod.
    pub node: Option<&'a str>,
    /// The zone of that node.
    pub zone: Option<&'a str>,
    /// The hostname of the pod, if the Service gives it a name in DNS.
    pub hostname: Option<&'a str>,
    /// The condition `ready`: also that of a pod that is not ready if the Service publishes such pods.
    pub is_ready: bool,
    /// The condition `serving`: whether the pod is ready.
    pub is_serving: bool,
    /// The condition `terminating`: whether the pod is being deleted.
    pub is_terminating: bool,
    /// Its hashes.
    pub fingerprint: Fingerprint,
    /// Its hints.
    pub hint: Hint<'a>,
}

/// For which clients an endpoint is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hint<'a> {
    /// Those in this zone.
    pub zone: Option<&'a str>,
    /// Those on this node.
    pub node: Option<&'a str>,
}

impl Endpoint<'_> {
    /// The hash of its hints.
    pub(super) fn hint_hash(&self) -> u64 {
        hash_of_hints(self.fingerprint.identity, self.hint.zone.as_slice(), self.hint.node.as_slice())
    }
}

/// Whether a pod has endpoints: it runs, or is being deleted, and has an address.
pub(super) fn counts(pod: &Pod) -> bool {
    !pod.is_terminal() && pod.network.has_address()
}

/// The node of a pod; empty before it is bound.
fn node_of(pod: &Pod) -> &str {
    pod.node().map_or("", |node| node)
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
    let mut groups: BTreeMap<u64, Group<'a>> = BTreeMap::new();
    // The ports of a pod depend on its named ports alone, which most pods of a Service share.
    let mut hashes: BTreeMap<Option<*const StringMap>, u64> = BTreeMap::new();
    for pod in observed.pods.iter().filter(|pod| counts(pod)) {
        let hash = *hashes.entry(pod.network.named_ports().map(Arc::as_ptr)).or_insert_with(|| {
            let ports = ports(service, pod);
            let hash = hash_of_ports(ports.clone());
            groups.entry(hash).or_insert_with(|| Group { ports, hash, endpoints: Vec::new() });
            hash
        });
        let Some(group) = groups.get_mut(&hash) else { continue };
        let node = observed.nodes.get(node_of(pod));
        if node.is_some() || service.publishes_not_ready {
            group.endpoints.extend(endpoint(service, pod, node.map(|node| &**node), address_type));
        }
    }
    groups.into_values().collect()
}

/// The ports of a pod behind those of a Service. Those that it does not have are left out.
fn ports<'a>(service: &'a Service, pod: &Pod) -> Vec<PortView<'a>> {
    let view = |port: &'a ServicePort| {
        let number = match &port.target {
            TargetPort::Number(number) => *number,
            TargetPort::Name(name) => pod.network.port(name, &port.protocol)?,
        };
        Some(PortView {
            name: &port.name,
            protocol: &port.protocol,
            port: Some(number),
            app_protocol: port.app_protocol.as_deref(),
        })
    };
    service.ports.iter().filter_map(view).collect()
}

/// The endpoint of a pod; `None` if it has no address of the family.
fn endpoint<'a>(
    service: &'a Service,
    pod: &'a Pod,
    node: Option<&'a Node>,
    address_type: AddressType,
) -> Option<Endpoint<'a>> {
    let is_of_family = |address: &IpAddr| match address_type {
        AddressType::Ipv4 => address.is_ipv4(),
        AddressType::Ipv6 => address.is_ipv6(),
        AddressType::Other => false,
    };
    let addresses = pod.network.addresses().filter(is_of_family);
    let mut addresses: Vec<String> = addresses.map(|address| address.to_string()).collect();
    if addresses.is_empty() {
        return None;
    }
    addresses.sort_unstable();
    let (is_serving, is_terminating) = (pod.ready_since.is_some(), pod.meta.is_deleting());
    let is_ready = service.publishes_not_ready || (is_serving && !is_terminating);
    let is_named = pod.network.subdomain() == Some(&*service.meta.key.name);
    let hostname = pod.network.hostname().filter(|_| is_named);
    let zone = node.and_then(Node::zone);
    let node = Some(node_of(pod)).filter(|node| !node.is_empty());
    let key = &pod.meta.key;
    let texts: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let view = EndpointView {
        addresses: &texts,
        hostname,
        target: Some(TargetView {
            kind: "Pod",
            namespace: &key.namespace,
            name: &key.name,
            uid: pod.meta.uid.clone(),
        }),
        node,
        zone,
        conditions: [Some(is_ready), Some(is_serving), Some(is_terminating)],
    };
    let fingerprint = view.fingerprint();
    let hint = hint(service, is_ready, zone, node);
    Some(Endpoint {
        pod,
        addresses,
        node,
        zone,
        hostname,
        is_ready,
        is_serving,
        is_terminating,
        fingerprint,
        hint,
    })
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
