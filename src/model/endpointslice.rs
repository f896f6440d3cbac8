//! An EndpointSlice without its endpoints: two hashes of each are enough to see whether it is as it should be. A write has all
//! endpoints of a slice anyway, since they are one atomic list.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::sync::Arc;

use serde::Deserialize;

use super::intern::Interner;
use super::meta::{Meta, StringMap, Uid};
use super::record::{self, Record, Resource};
use super::service::or_tcp;
use super::wire::{MetaWire, Text};

/// The label with the name of the Service of a slice.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The label with the writer of a slice.
pub const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";

/// The writer of the slices of Services with a selector.
pub const ENDPOINT_SLICE_CONTROLLER: &str = "endpointslice-controller.k8s.io";

/// The writer of the slices that mirror Endpoints.
pub const ENDPOINT_SLICE_MIRRORING_CONTROLLER: &str = "endpointslicemirroring-controller.k8s.io";

/// The fields of an EndpointSlice that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointSlice {
    /// Metadata.
    pub meta: Meta,
    /// `addressType`, which cannot be changed.
    pub address_type: AddressType,
    /// The hash of its ports; see [`hash_of_ports`].
    pub ports: u64,
    /// Its endpoints, in their order.
    pub endpoints: Box<[Fingerprint]>,
    /// The hints of its endpoints.
    pub hints: Hints,
    /// The annotations of one that mirrors Endpoints; of no other are they of interest.
    pub annotations: Arc<StringMap>,
}

/// `addressType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressType {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Names, or a type that this version does not know.
    Other,
}

impl AddressType {
    /// As the API spells it; empty for any other.
    pub fn as_str(self) -> &'static str {
        match self {
            AddressType::Ipv4 => "IPv4",
            AddressType::Ipv6 => "IPv6",
            AddressType::Other => "",
        }
    }
}

/// An endpoint of a slice, in 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fingerprint {
    /// The hash of its addresses, its hostname, and namespace and name of its pod (upstream: `hashEndpoint`).
    pub identity: u64,
    /// The hash of all else but its hints.
    pub contents: u64,
}

/// The hints of the endpoints of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hints {
    /// The sum of [`hash_of_hints`] over all endpoints; 0 without any hint.
    pub sum: u64,
    /// For how many ready endpoints a zone is hinted, in the order of the zones.
    pub zones: Box<[(Arc<str>, u32)]>,
    /// Whether a ready endpoint has no hint of a zone.
    pub is_incomplete: bool,
}

/// An endpoint, for comparison.
#[derive(Clone, Debug, Hash)]
pub struct EndpointView<'a> {
    /// Its addresses, sorted.
    pub addresses: &'a [&'a str],
    /// `hostname`.
    pub hostname: Option<&'a str>,
    /// `targetRef`.
    pub target: Option<TargetView<'a>>,
    /// `nodeName`.
    pub node: Option<&'a str>,
    /// `zone`.
    pub zone: Option<&'a str>,
    /// The conditions `ready`, `serving` and `terminating`.
    pub conditions: [Option<bool>; 3],
}

/// The object behind an endpoint.
#[derive(Clone, Debug, Hash)]
pub struct TargetView<'a> {
    /// `apiVersion`; empty for pods.
    pub api_version: &'a str,
    /// `kind`.
    pub kind: &'a str,
    /// `namespace`.
    pub namespace: &'a str,
    /// `name`.
    pub name: &'a str,
    /// `uid`.
    pub uid: Uid,
    /// `fieldPath`, if it is a part of the object; else empty.
    pub field_path: &'a str,
}

impl<'a> TargetView<'a> {
    /// A pod.
    pub fn pod(namespace: &'a str, name: &'a str, uid: Uid) -> Self {
        TargetView { api_version: "", kind: "Pod", namespace, name, uid, field_path: "" }
    }
}

/// A port of a slice, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortView<'a> {
    /// `name`.
    pub name: &'a str,
    /// `protocol`.
    pub protocol: &'a str,
    /// `port`; none stands for all.
    pub port: Option<i32>,
    /// `appProtocol`.
    pub app_protocol: Option<&'a str>,
}

impl EndpointView<'_> {
    /// Its two hashes.
    pub fn fingerprint(&self) -> Fingerprint {
        let EndpointView { addresses, hostname, target, node, zone, conditions } = self;
        let named = target.as_ref().map_or(("", ""), |target| (target.namespace, target.name));
        Fingerprint {
            identity: hash(&(addresses, hostname.unwrap_or(""), named)),
            contents: hash(&(target, node, zone, conditions)),
        }
    }
}

/// The hash of ports in any order: slices with the same ports hold endpoints of the same group.
pub fn hash_of_ports(mut ports: Vec<PortView<'_>>) -> u64 {
    ports.sort_unstable();
    hash(&ports)
}

/// The hash of the hints of an endpoint; 0 for none.
pub fn hash_of_hints(identity: u64, zones: &[&str], nodes: &[&str]) -> u64 {
    if zones.is_empty() && nodes.is_empty() { 0 } else { hash(&(identity, zones, nodes)) }
}

/// All hashes of a process are made alike. None is stored elsewhere.
pub(super) fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SliceWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    address_type: Text<'a>,
    #[serde(borrow, default)]
    endpoints: Option<Vec<EndpointWire<'a>>>,
    #[serde(borrow, default)]
    ports: Option<Vec<PortWire<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointWire<'a> {
    #[serde(borrow, default)]
    addresses: Option<Vec<Text<'a>>>,
    #[serde(borrow, default)]
    hostname: Option<Text<'a>>,
    #[serde(borrow, default)]
    target_ref: Option<TargetWire<'a>>,
    #[serde(borrow, default)]
    node_name: Option<Text<'a>>,
    #[serde(borrow, default)]
    zone: Option<Text<'a>>,
    #[serde(default)]
    conditions: Option<ConditionsWire>,
    #[serde(borrow, default)]
    hints: Option<HintsWire<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TargetWire<'a> {
    #[serde(borrow, default)]
    api_version: Text<'a>,
    #[serde(borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    namespace: Text<'a>,
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(borrow, default)]
    field_path: Text<'a>,
}

impl TargetWire<'_> {
    pub(super) fn view(&self) -> TargetView<'_> {
        TargetView {
            api_version: self.api_version.as_str(),
            kind: self.kind.as_str(),
            namespace: self.namespace.as_str(),
            name: self.name.as_str(),
            uid: Uid::new(self.uid.as_str()),
            field_path: self.field_path.as_str(),
        }
    }
}

#[derive(Default, Deserialize)]
struct ConditionsWire {
    #[serde(default)]
    ready: Option<bool>,
    #[serde(default)]
    serving: Option<bool>,
    #[serde(default)]
    terminating: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct HintsWire<'a> {
    #[serde(borrow, default)]
    for_zones: Option<Vec<NameWire<'a>>>,
    #[serde(borrow, default)]
    for_nodes: Option<Vec<NameWire<'a>>>,
}

#[derive(Deserialize)]
struct NameWire<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PortWire<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(borrow, default)]
    protocol: Text<'a>,
    #[serde(default)]
    port: Option<i32>,
    #[serde(borrow, default)]
    app_protocol: Option<Text<'a>>,
}

impl PortWire<'_> {
    pub(super) fn view(&self) -> PortView<'_> {
        PortView {
            name: self.name.as_str(),
            protocol: or_tcp(self.protocol.as_str()),
            port: self.port,
            app_protocol: self.app_protocol.as_ref().map(Text::as_str),
        }
    }
}

impl EndpointWire<'_> {
    fn fingerprint(&self) -> Fingerprint {
        let mut addresses: Vec<&str> = self.addresses.iter().flatten().map(Text::as_str).collect();
        addresses.sort_unstable();
        let target = self.target_ref.as_ref().map(TargetWire::view);
        let conditions = self.conditions.as_ref();
        let view = EndpointView {
            addresses: &addresses,
            hostname: self.hostname.as_ref().map(Text::as_str),
            target,
            node: self.node_name.as_ref().map(Text::as_str),
            zone: self.zone.as_ref().map(Text::as_str),
            conditions: conditions.map_or([None; 3], |it| [it.ready, it.serving, it.terminating]),
        };
        view.fingerprint()
    }

    fn is_ready(&self) -> bool {
        self.conditions.as_ref().is_some_and(|conditions| conditions.ready == Some(true))
    }
}

/// The hints of endpoints as they stand on the wire, counted.
#[derive(Default)]
struct Counted<'a> {
    sum: u64,
    zones: BTreeMap<&'a str, u32>,
    is_incomplete: bool,
}

impl<'a> Counted<'a> {
    fn add(&mut self, endpoint: &'a EndpointWire<'_>, identity: u64) {
        let hints = endpoint.hints.as_ref();
        let names = |names: Option<&'a Vec<NameWire<'_>>>| -> Vec<&'a str> {
            names.into_iter().flatten().map(|name| name.name.as_str()).collect()
        };
        let zones = names(hints.and_then(|hints| hints.for_zones.as_ref()));
        let nodes = names(hints.and_then(|hints| hints.for_nodes.as_ref()));
        self.sum = self.sum.wrapping_add(hash_of_hints(identity, &zones, &nodes));
        if endpoint.is_ready() {
            self.is_incomplete |= zones.is_empty();
            for zone in zones {
                let count = self.zones.entry(zone).or_default();
                *count = count.saturating_add(1);
            }
        }
    }

    fn into_hints(self, interner: &mut Interner) -> Hints {
        let zones = self.zones.into_iter().map(|(zone, count)| (interner.string(zone), count));
        Hints { sum: self.sum, zones: zones.collect(), is_incomplete: self.is_incomplete }
    }
}

impl Record for EndpointSlice {
    const RESOURCE: Resource = Resource {
        group: "discovery.k8s.io",
        version: "v1",
        kind: "EndpointSlice",
        plural: "endpointslices",
    };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        let SliceWire { metadata, address_type, endpoints, ports } = serde_json::from_str(json)?;
        let ports = ports.iter().flatten().map(PortWire::view);
        let endpoints = endpoints.unwrap_or_default();
        let mut counted = Counted::default();
        let mut fingerprints = Vec::with_capacity(endpoints.len());
        for endpoint in &endpoints {
            let fingerprint = endpoint.fingerprint();
            counted.add(endpoint, fingerprint.identity);
            fingerprints.push(fingerprint);
        }
        let is_mirror = metadata.label(MANAGED_BY) == Some(ENDPOINT_SLICE_MIRRORING_CONTROLLER);
        let annotations = if is_mirror {
            metadata.annotations.intern(interner)
        } else {
            interner.map(StringMap::default())
        };
        Ok(EndpointSlice {
            address_type: match address_type.as_str() {
                "IPv4" => AddressType::Ipv4,
                "IPv6" => AddressType::Ipv6,
                _ => AddressType::Other,
            },
            ports: hash_of_ports(ports.collect()),
            endpoints: fingerprints.into(),
            hints: counted.into_hints(interner),
            annotations,
            meta: metadata.into_meta(interner)?,
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        let zones: usize = self.hints.zones.iter().map(|(zone, _)| zone.len()).sum();
        record::own_bytes(self)
            + size_of_val(&*self.endpoints)
            + size_of_val(&*self.hints.zones)
            + zones
            + self.annotations.shared_bytes()
    }
}

impl EndpointSlice {
    /// The name of its Service, if it has one.
    pub fn service(&self) -> Option<&str> {
        self.meta.labels.get(SERVICE_NAME).filter(|name| !name.is_empty())
    }

    /// Whether its label says that this controller writes it, such as [`ENDPOINT_SLICE_CONTROLLER`].
    pub fn is_managed_by(&self, manager: &str) -> bool {
        self.meta.labels.get(MANAGED_BY) == Some(manager)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(content: &str) -> EndpointSlice {
        let json = format!(
            r#"{{"metadata":{{"name":"web-x","namespace":"shop","uid":"u","resourceVersion":"7","labels":
                {{"kubernetes.io/service-name":"web",
                "endpointslice.kubernetes.io/managed-by":"endpointslice-controller.k8s.io"}}}},{content}}}"#
        );
        EndpointSlice::decode(&json, &mut Interner::default()).unwrap()
    }

    fn endpoint(more: &str) -> Fingerprint {
        slice(&format!(r#""addressType":"IPv4","endpoints":[{{"addresses":["10.0.0.2","10.0.0.1"]{more}}}]"#))
            .endpoints[0]
    }

    #[test]
    fn a_slice_names_its_service_and_its_writer() {
        let web = slice(r#""addressType":"IPv6","endpoints":null,"ports":null"#);
        assert_eq!(
            (web.service(), web.is_managed_by(ENDPOINT_SLICE_CONTROLLER), web.address_type),
            (Some("web"), true, AddressType::Ipv6)
        );
        assert!(web.endpoints.is_empty() && web.hints == Hints::default());
        assert_eq!(web.ports, hash_of_ports(Vec::new()));
        assert_eq!(slice(r#""addressType":"FQDN""#).address_type, AddressType::Other);
    }

    #[test]
    fn the_hashes_of_an_endpoint_are_those_of_its_view() {
        let target =
            r#","targetRef":{"kind":"Pod","namespace":"shop","name":"a","uid":"u-a","resourceVersion":"9"}"#;
        let full = endpoint(&format!(
            r#"{target},"nodeName":"n1","zone":"z1","hostname":"h","conditions":{{"ready":true,"serving":true,
               "terminating":false}}"#
        ));
        let view = EndpointView {
            addresses: &["10.0.0.1", "10.0.0.2"],
            hostname: Some("h"),
            target: Some(TargetView::pod("shop", "a", Uid::new("u-a"))),
            node: Some("n1"),
            zone: Some("z1"),
            conditions: [Some(true), Some(true), Some(false)],
        };
        assert_eq!(full, view.fingerprint());
        assert_eq!(endpoint("").identity, endpoint(r#","zone":"z","conditions":{"ready":true}"#).identity);
        assert_ne!(endpoint("").identity, endpoint(r#","hostname":"h""#).identity);
        assert_ne!(endpoint("").identity, endpoint(target).identity);
        for more in [target, r#","zone":"z""#, r#","nodeName":"n""#, r#","conditions":{"serving":false}"#] {
            assert_ne!(endpoint("").contents, endpoint(more).contents, "{more}");
        }
        assert_eq!(endpoint("").contents, endpoint(r#","conditions":{},"zone":null,"hints":{}"#).contents);
    }

    #[test]
    fn ports_are_compared_in_any_order() {
        let ports = |ports: &str| slice(&format!(r#""addressType":"IPv4","ports":{ports}"#)).ports;
        let both = r#"[{"name":"a","port":1,"protocol":"TCP"},{"name":"b","port":2,"protocol":"UDP"}]"#;
        let turned = r#"[{"name":"b","port":2,"protocol":"UDP"},{"name":"a","port":1}]"#;
        assert_eq!(ports(both), ports(turned));
        for other in
            ["[]", r#"[{"name":"a","port":1}]"#, r#"[{"name":"a","port":1,"appProtocol":""},{"name":"b"}]"#]
        {
            assert_ne!(ports(both), ports(other), "{other}");
        }
        let view = PortView { name: "a", protocol: "TCP", port: Some(1), app_protocol: None };
        assert_eq!(ports(r#"[{"name":"a","port":1}]"#), hash_of_ports(vec![view]));
    }

    #[test]
    fn the_annotations_of_mirrors_only_are_kept() {
        let annotated = |manager: &str| {
            let json = format!(
                r#"{{"metadata":{{"name":"web-x","namespace":"shop","uid":"u","resourceVersion":"7","annotations":
                    {{"a":"b"}},"labels":{{"endpointslice.kubernetes.io/managed-by":"{manager}"}}}}}}"#
            );
            EndpointSlice::decode(&json, &mut Interner::default()).unwrap().annotations.len()
        };
        assert_eq!(annotated("endpointslicemirroring-controller.k8s.io"), 1);
        assert_eq!(annotated("endpointslice-controller.k8s.io"), 0);
    }

    #[test]
    fn hints_of_ready_endpoints_are_counted_by_zone() {
        let ready = |name: &str, hints: &str| {
            format!(r#"{{"addresses":["{name}"],"conditions":{{"ready":true}},"hints":{hints}}}"#)
        };
        let of = |endpoints: &[String]| {
            slice(&format!(r#""addressType":"IPv4","endpoints":[{}]"#, endpoints.join(","))).hints
        };
        let zone = r#"{"forZones":[{"name":"z1"}]}"#;
        let unready = r#"{"addresses":["c"],"conditions":{"ready":false}}"#.to_owned();
        let complete = of(&[ready("a", zone), ready("b", zone), unready]);
        let zones: Vec<(&str, u32)> = complete.zones.iter().map(|(zone, count)| (&**zone, *count)).collect();
        assert_eq!((zones, complete.is_incomplete), (vec![("z1", 2)], false));
        assert!(of(&[ready("a", zone), ready("b", "null")]).is_incomplete);
        assert!(complete.sum != 0 && complete.sum != of(&[ready("a", zone)]).sum);
        assert_eq!(of(&[ready("a", "{}")]).sum, 0);
    }
}
