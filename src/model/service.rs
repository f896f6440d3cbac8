//! A Service, as far as its endpoints depend on it.

use std::sync::Arc;

use serde::Deserialize;

use super::endpointslice::AddressType;
use super::intern::Interner;
use super::meta::Meta;
use super::record::{self, Record, Resource};
use super::selector::Selector;
use super::wire::{MetaWire, Pairs, Text};

/// The annotation that asks for hints by the CPUs of zones: `Auto` or `auto`.
const TOPOLOGY_MODE: &str = "service.kubernetes.io/topology-mode";

/// Its older name, which wins where both are there.
const TOPOLOGY_AWARE_HINTS: &str = "service.kubernetes.io/topology-aware-hints";

/// The fields of a Service that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Metadata.
    pub meta: Meta,
    /// `spec.selector`; `None` for a Service whose endpoints others write. An empty one is none: API servers do not store it.
    pub selector: Option<Selector>,
    /// Whether `spec.type` is `ExternalName`: such a Service has no endpoints.
    pub is_external_name: bool,
    /// `spec.ports`.
    pub ports: Box<[ServicePort]>,
    /// The families of addresses that its endpoints have.
    pub families: Families,
    /// The family that comes first, which Endpoints have alone; `None`: of each pod that of its first address.
    pub first_family: Option<AddressType>,
    /// Whether it has no address of its own: `spec.clusterIP` is `None` or absent.
    pub is_headless: bool,
    /// `spec.publishNotReadyAddresses`: all its endpoints count as ready.
    pub publishes_not_ready: bool,
    /// `spec.trafficDistribution`; `None` also for a value that this version does not know.
    pub traffic_distribution: Option<TrafficDistribution>,
    /// Whether its annotation asks for hints by the CPUs of zones.
    pub is_topology_auto: bool,
    /// Whether `spec.type` is `LoadBalancer`.
    pub is_load_balancer: bool,
    /// How many ports of the nodes it uses or will use: one for each of its ports, if its type has them. A load balancer for which none
    /// are allocated uses those that it names (upstream: `serviceEvaluator.Usage`).
    pub node_ports: u32,
}

/// One of `spec.ports`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// The name; empty for the only port of a Service.
    pub name: Arc<str>,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Arc<str>,
    /// `appProtocol`.
    pub app_protocol: Option<Arc<str>>,
    /// `targetPort`.
    pub target: TargetPort,
}

/// The port of the pods behind a port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPort {
    /// This number.
    Number(i32),
    /// The port of this name, which may have another number in each pod.
    Name(Arc<str>),
}

/// Families of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

/// `spec.trafficDistribution`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrafficDistribution {
    /// The older name of [`TrafficDistribution::PreferSameZone`].
    PreferClose,
    /// Clients prefer the endpoints of their zone.
    PreferSameZone,
    /// Clients prefer the endpoints of their node, and after them those of their zone.
    PreferSameNode,
}

impl TrafficDistribution {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            TrafficDistribution::PreferClose => "PreferClose",
            TrafficDistribution::PreferSameZone => "PreferSameZone",
            TrafficDistribution::PreferSameNode => "PreferSameNode",
        }
    }

    fn read(text: &str) -> Option<Self> {
        use TrafficDistribution::{PreferClose, PreferSameNode, PreferSameZone};
        [PreferClose, PreferSameZone, PreferSameNode].into_iter().find(|known| known.as_str() == text)
    }
}

#[derive(Deserialize)]
struct ServiceWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    spec: Option<SpecWire<'a>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SpecWire<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Text<'a>,
    #[serde(borrow, default)]
    selector: Pairs<'a>,
    #[serde(borrow, default)]
    ports: Option<Vec<PortWire<'a>>>,
    #[serde(borrow, default, rename = "clusterIP")]
    cluster_ip: Text<'a>,
    #[serde(borrow, default)]
    ip_families: Option<Vec<Text<'a>>>,
    #[serde(default)]
    publish_not_ready_addresses: Option<bool>,
    #[serde(borrow, default)]
    traffic_distribution: Text<'a>,
    #[serde(default)]
    allocate_load_balancer_node_ports: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortWire<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    protocol: Text<'a>,
    #[serde(borrow, default)]
    app_protocol: Option<Text<'a>>,
    #[serde(default)]
    port: Option<i32>,
    #[serde(borrow, default)]
    target_port: Option<TargetWire<'a>>,
    #[serde(default)]
    node_port: Option<i32>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TargetWire<'a> {
    Number(i32),
    #[serde(borrow)]
    Name(Text<'a>),
}

impl PortWire<'_> {
    fn into_port(self, interner: &mut Interner) -> ServicePort {
        ServicePort {
            name: interner.string(self.name.as_str()),
            protocol: interner.string(or_tcp(self.protocol.as_str())),
            app_protocol: self.app_protocol.map(|protocol| interner.string(protocol.as_str())),
            target: match self.target_port {
                Some(TargetWire::Name(name)) => TargetPort::Name(interner.string(name.as_str())),
                // An API server sets an absent one to the port of the Service.
                Some(TargetWire::Number(0)) | None => TargetPort::Number(self.port.unwrap_or(0)),
                Some(TargetWire::Number(number)) => TargetPort::Number(number),
            },
        }
    }
}

/// The protocol of a port; the API's default if there is none.
pub(super) fn or_tcp(protocol: &str) -> &str {
    if protocol.is_empty() { "TCP" } else { protocol }
}

impl SpecWire<'_> {
    /// See [`Service::node_ports`].
    fn node_ports(&self) -> u32 {
        let names_all = self.allocate_load_balancer_node_ports == Some(false);
        let is_used = |port: &&PortWire<'_>| match self.kind.as_str() {
            "NodePort" => true,
            "LoadBalancer" => !names_all || port.node_port.is_some_and(|number| number != 0),
            _ => false,
        };
        u32::try_from(self.ports.iter().flatten().filter(is_used).count()).unwrap_or(u32::MAX)
    }

    /// The families that it names; without any that of its address, and of a headless Service both (upstream:
    /// `getAddressTypesForService`).
    fn families(&self) -> Families {
        let named = |family: &str| self.ip_families.iter().flatten().any(|named| named.as_str() == family);
        let families = Families { ipv4: named("IPv4"), ipv6: named("IPv6") };
        if families != Families::default() {
            return families;
        }
        match self.cluster_ip.as_str() {
            "" | "None" => Families { ipv4: true, ipv6: true },
            address => Families { ipv4: !address.contains(':'), ipv6: address.contains(':') },
        }
    }

    /// The first family that it names, else that of its address (upstream: `podToEndpointAddressForService`).
    fn first_family(&self) -> Option<AddressType> {
        let is_ipv6 = match (self.ip_families.iter().flatten().next(), self.cluster_ip.as_str()) {
            (Some(family), _) => family.as_str() == "IPv6",
            (None, "" | "None") => return None,
            (None, address) => address.contains(':'),
        };
        Some(if is_ipv6 { AddressType::Ipv6 } else { AddressType::Ipv4 })
    }
}

fn is_topology_auto(annotations: &Pairs<'_>) -> bool {
    let mode = annotations.get(TOPOLOGY_AWARE_HINTS).or_else(|| annotations.get(TOPOLOGY_MODE));
    matches!(mode, Some("Auto" | "auto"))
}

impl Record for Service {
    const RESOURCE: Resource = Resource { group: "", version: "v1", kind: "Service", plural: "services" };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let ServiceWire { metadata, spec } = serde_json::from_str(json)?;
        let spec = spec.unwrap_or_default();
        let (families, first_family) = (spec.families(), spec.first_family());
        let has_selector = !spec.selector.0.is_empty();
        let node_ports = spec.node_ports();
        let ports = spec.ports.unwrap_or_default();
        Ok(Service {
            is_external_name: spec.kind.as_str() == "ExternalName",
            is_load_balancer: spec.kind.as_str() == "LoadBalancer",
            node_ports,
            families,
            first_family,
            is_headless: matches!(spec.cluster_ip.as_str(), "" | "None"),
            publishes_not_ready: spec.publish_not_ready_addresses == Some(true),
            traffic_distribution: TrafficDistribution::read(spec.traffic_distribution.as_str()),
            is_topology_auto: is_topology_auto(&metadata.annotations),
            selector: has_selector.then(|| Selector::of_labels(Some(spec.selector))),
            ports: ports.into_iter().map(|port| port.into_port(interner)).collect(),
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        let texts = |port: &ServicePort| {
            let target = if let TargetPort::Name(name) = &port.target { name.len() } else { 0 };
            port.name.len() + target + port.app_protocol.as_ref().map_or(0, |protocol| protocol.len())
        };
        record::own_bytes(self)
            + self.selector.as_ref().map_or(0, Selector::heap_bytes)
            + size_of_val(&*self.ports)
            + self.ports.iter().map(texts).sum::<usize>()
    }
}

impl Service {
    /// The selector of its pods, if its endpoints are ours to write.
    pub fn pods(&self) -> Option<&Selector> {
        self.selector.as_ref().filter(|_| !self.is_external_name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(annotations: &str, spec: &str) -> Service {
        let json = format!(
            r#"{{"metadata":{{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7",
                "annotations":{annotations}}},"spec":{spec}}}"#
        );
        Service::decode(&json, &mut Interner::default()).unwrap()
    }

    #[test]
    fn a_service_is_read_with_its_ports() {
        let web = service(
            "null",
            r#"{"type":"ClusterIP","clusterIP":"10.96.0.7","ipFamilies":["IPv4"],"selector":{"app":"web"},
                "publishNotReadyAddresses":true,"trafficDistribution":"PreferSameNode","ports":[
                {"name":"http","protocol":"TCP","port":80,"targetPort":"web","appProtocol":"h2c","nodePort":30080},
                {"port":53,"protocol":"UDP","targetPort":5353},{"port":8080}]}"#,
        );
        assert!(web.pods().is_some() && web.publishes_not_ready && !web.is_headless && !web.is_topology_auto);
        assert_eq!(web.traffic_distribution, Some(TrafficDistribution::PreferSameNode));
        assert_eq!(web.families, Families { ipv4: true, ipv6: false });
        let ports: Vec<_> =
            web.ports.iter().map(|port| (&*port.name, &*port.protocol, &port.target)).collect();
        let expected = [
            ("http", "TCP", &TargetPort::Name("web".into())),
            ("", "UDP", &TargetPort::Number(5353)),
            ("", "TCP", &TargetPort::Number(8080)),
        ];
        assert_eq!(ports, expected);
        assert_eq!(web.ports[0].app_protocol.as_deref(), Some("h2c"));
    }

    #[test]
    fn a_service_without_selector_or_of_another_name_has_no_pods() {
        for spec in ["{}", r#"{"selector":{}}"#, r#"{"selector":null}"#] {
            assert!(service("{}", spec).pods().is_none(), "{spec}");
        }
        assert!(service("{}", r#"{"type":"ExternalName","selector":{"a":"b"}}"#).pods().is_none());
        let json = r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1"}}"#;
        assert!(Service::decode(json, &mut Interner::default()).unwrap().pods().is_none());
    }

    #[test]
    fn families_follow_the_address_where_none_is_named() {
        let families = |spec: &str| {
            let Families { ipv4, ipv6 } = service("{}", spec).families;
            (ipv4, ipv6)
        };
        assert_eq!(families(r#"{"ipFamilies":["IPv6","IPv4"]}"#), (true, true));
        assert_eq!(families(r#"{"clusterIP":"10.96.0.7"}"#), (true, false));
        assert_eq!(families(r#"{"clusterIP":"fd00::7","ipFamilies":[]}"#), (false, true));
        assert_eq!(families(r#"{"clusterIP":"None"}"#), (true, true));
        assert_eq!(families(r#"{"clusterIP":"None","ipFamilies":["IPv6"]}"#), (false, true));
    }

    #[test]
    fn ports_of_the_nodes_follow_from_the_type_before_they_are_allocated() {
        let ports = |spec: &str| {
            let ports = r#"[{"port":80,"nodePort":30080},{"port":81},{"port":82,"nodePort":0}]"#;
            let service = service("{}", &format!(r#"{{"ports":{ports},{spec}}}"#));
            (service.node_ports, service.is_load_balancer)
        };
        assert_eq!(ports(r#""type":"ClusterIP""#), (0, false));
        assert_eq!(ports(r#""type":"NodePort""#), (3, false));
        assert_eq!(ports(r#""type":"NodePort","allocateLoadBalancerNodePorts":false"#), (3, false));
        assert_eq!(ports(r#""type":"LoadBalancer""#), (3, true));
        assert_eq!(ports(r#""type":"LoadBalancer","allocateLoadBalancerNodePorts":false"#), (1, true));
    }

    #[test]
    fn the_first_family_is_that_of_endpoints() {
        let first = |spec: &str| service("{}", spec).first_family;
        assert_eq!(
            first(r#"{"ipFamilies":["IPv6","IPv4"],"clusterIP":"10.96.0.7"}"#),
            Some(AddressType::Ipv6)
        );
        assert_eq!(first(r#"{"ipFamilies":["IPv4","IPv6"]}"#), Some(AddressType::Ipv4));
        assert_eq!(first(r#"{"clusterIP":"10.96.0.7"}"#), Some(AddressType::Ipv4));
        assert_eq!(first(r#"{"clusterIP":"fd00::7"}"#), Some(AddressType::Ipv6));
        assert_eq!((first(r#"{"clusterIP":"None"}"#), first("{}")), (None, None));
    }

    #[test]
    fn the_older_annotation_wins() {
        let auto = |annotations: &str| service(annotations, "{}").is_topology_auto;
        assert!(auto(r#"{"service.kubernetes.io/topology-mode":"Auto"}"#));
        assert!(auto(r#"{"service.kubernetes.io/topology-aware-hints":"auto"}"#));
        assert!(!auto(r#"{"service.kubernetes.io/topology-mode":"AUTO"}"#));
        let both = r#"{"service.kubernetes.io/topology-mode":"Auto","service.kubernetes.io/topology-aware-hints":"disabled"}"#;
        assert!(!auto(both));
    }
}
