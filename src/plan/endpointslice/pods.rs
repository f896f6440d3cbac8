//! The pods of a Service: which have endpoints, and with which ports (upstream: `ShouldPodBeInEndpoints`, `getEndpointPorts`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::endpointslice::{PortView, TargetView, hash_of_ports};
use crate::model::service::{ServicePort, TargetPort};
use crate::model::{Pod, Service, StringMap};

/// Pods with the same ports.
pub(in crate::plan) struct PodGroup<'a> {
    /// The ports.
    pub ports: Vec<PortView<'a>>,
    /// Their hash.
    pub hash: u64,
    /// The pods, in their order.
    pub pods: Vec<&'a Pod>,
}

/// Whether a pod has endpoints: it runs, or is being deleted, and has an address.
pub(in crate::plan) fn counts(pod: &Pod) -> bool {
    !pod.is_terminal() && pod.network.has_address()
}

/// The node of a pod; empty before it is bound.
pub(in crate::plan) fn node_of(pod: &Pod) -> &str {
    pod.node().map_or("", |node| node)
}

/// The hostname of a pod, if the Service gives it a name in DNS.
pub(in crate::plan) fn hostname<'a>(service: &Service, pod: &'a Pod) -> Option<&'a str> {
    let is_named = pod.network.subdomain() == Some(&*service.meta.key.name);
    pod.network.hostname().filter(|_| is_named)
}

/// A pod as the object behind an endpoint.
pub(in crate::plan) fn target(pod: &Pod) -> TargetView<'_> {
    let key = &pod.meta.key;
    TargetView::pod(&key.namespace, &key.name, pod.meta.uid.clone())
}

/// These pods by their ports, in the order of the hashes of the ports.
pub(in crate::plan) fn by_ports<'a>(
    service: &'a Service,
    pods: impl Iterator<Item = &'a Arc<Pod>>,
) -> Vec<PodGroup<'a>> {
    let mut groups: BTreeMap<u64, PodGroup<'a>> = BTreeMap::new();
    // The ports of a pod depend on its named ports alone, which most pods of a Service share.
    let mut hashes: BTreeMap<Option<*const StringMap>, u64> = BTreeMap::new();
    for pod in pods {
        let hash = *hashes.entry(pod.network.named_ports().map(Arc::as_ptr)).or_insert_with(|| {
            let ports = ports(service, pod);
            let hash = hash_of_ports(ports.clone());
            groups.entry(hash).or_insert_with(|| PodGroup { ports, hash, pods: Vec::new() });
            hash
        });
        if let Some(group) = groups.get_mut(&hash) {
            group.pods.push(pod);
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
