//! Endpoints: all addresses of a Service in one object.
//!
//! Of those that the controller of Services with a selector writes, a hash is enough to see whether they are as they should be. Of
//! others the addresses are kept as well, since EndpointSlices mirror them.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::endpointslice::{PortView, PortWire, TargetView, TargetWire, hash};
use super::intern::Interner;
use super::meta::{Meta, StringMap};
use super::pod::network::parse;
use super::record::{self, Record, Resource};
use super::wire::{MetaWire, Text};

/// The label with the writer of Endpoints.
pub const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";

/// The writer of the Endpoints of Services with a selector.
pub const ENDPOINT_CONTROLLER: &str = "endpoint-controller";

/// The annotation of Endpoints that do not have all addresses.
pub const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// The annotation of Endpoints that are the lock of an election.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// The label of Endpoints that no slices mirror, if its value is `true`.
const SKIP_MIRROR: &str = "endpointslice.kubernetes.io/skip-mirror";

/// The fields of Endpoints that the controllers use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Metadata.
    pub meta: Meta,
    /// The hash of its subsets; see [`fingerprint`].
    pub fingerprint: u64,
    /// The annotation [`OVER_CAPACITY`].
    pub over_capacity: Option<Arc<str>>,
    /// Whether it is the lock of an election.
    pub is_lock: bool,
    /// Its content; `None` where it is not kept, because nobody mirrors it or the controller of Services with a selector writes
    /// it.
    pub content: Option<Box<Content>>,
}

/// The part of Endpoints that EndpointSlices mirror.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Annotations.
    pub annotations: Arc<StringMap>,
    /// `subsets` as JSON, which takes less than anything that could be read from it.
    subsets: Box<str>,
}

/// Subsets as they stand on the wire.
pub struct Subsets<'a>(Vec<SubsetWire<'a>>);

impl Subsets<'_> {
    /// The subsets, as they were written.
    pub fn views(&self) -> Vec<SubsetView<'_>> {
        self.0.iter().map(SubsetWire::view).collect()
    }
}

impl Content {
    /// Its subsets.
    pub fn subsets(&self) -> Subsets<'_> {
        Subsets(read(&self.subsets).unwrap_or_default())
    }
}

/// Reads an address as API servers do: numbers may begin with zeros. `None` for what is no address.
pub fn address(text: &str) -> Option<IpAddr> {
    parse(text)
}

/// A subset, for comparison.
#[derive(Clone, Debug, Default)]
pub struct SubsetView<'a> {
    /// `addresses`.
    pub ready: Vec<AddressView<'a>>,
    /// `notReadyAddresses`.
    pub not_ready: Vec<AddressView<'a>>,
    /// `ports`.
    pub ports: Vec<PortView<'a>>,
}

/// An address, for comparison.
#[derive(Clone, Debug, Hash)]
pub struct AddressView<'a> {
    /// `ip`.
    pub ip: Cow<'a, str>,
    /// `hostname`, if it is not empty.
    pub hostname: Option<&'a str>,
    /// `nodeName`, if it is not empty.
    pub node: Option<&'a str>,
    /// `targetRef`.
    pub target: Option<TargetView<'a>>,
}

/// The hash of which addresses have which ports, in whatever order they stand and however they are divided into subsets. Its cost
/// grows with what is written, and not with the pairs of addresses and ports.
pub fn fingerprint(subsets: &[SubsetView<'_>]) -> u64 {
    let mut ports: Vec<(Option<PortView<'_>>, u64)> = Vec::new();
    for subset in subsets {
        let of_state = |addresses: &[AddressView<'_>], ready: bool| {
            addresses.iter().fold(0_u64, |sum, address| sum.wrapping_add(hash(&(address, ready))))
        };
        let addresses = of_state(&subset.ready, true).wrapping_add(of_state(&subset.not_ready, false));
        if subset.ports.is_empty() {
            ports.push((None, addresses));
        }
        ports.extend(subset.ports.iter().map(|port| (Some(*port), addresses)));
    }
    ports.sort_unstable();
    let by_port = ports.chunk_by(|one, other| one.0 == other.0).map(|of_port| {
        let sum = of_port.iter().fold(0_u64, |sum, (_, addresses)| sum.wrapping_add(*addresses));
        (of_port.first().and_then(|(port, _)| *port), sum)
    });
    hash(&by_port.collect::<Vec<_>>())
}

#[derive(Deserialize)]
struct EndpointsWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    subsets: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SubsetWire<'a> {
    #[serde(borrow, default)]
    addresses: Option<Vec<AddressWire<'a>>>,
    #[serde(borrow, default)]
    not_ready_addresses: Option<Vec<AddressWire<'a>>>,
    #[serde(borrow, default)]
    ports: Option<Vec<PortWire<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AddressWire<'a> {
    #[serde(borrow, default)]
    ip: Text<'a>,
    #[serde(borrow, default)]
    hostname: Text<'a>,
    #[serde(borrow, default)]
    node_name: Text<'a>,
    #[serde(borrow, default)]
    target_ref: Option<TargetWire<'a>>,
}

impl AddressWire<'_> {
    fn view(&self) -> AddressView<'_> {
        AddressView {
            ip: Cow::Borrowed(self.ip.as_str()),
            hostname: Some(self.hostname.as_str()).filter(|name| !name.is_empty()),
            node: Some(self.node_name.as_str()).filter(|name| !name.is_empty()),
            target: self.target_ref.as_ref().map(TargetWire::view),
        }
    }
}

impl SubsetWire<'_> {
    fn view(&self) -> SubsetView<'_> {
        SubsetView {
            ready: self.addresses.iter().flatten().map(AddressWire::view).collect(),
            not_ready: self.not_ready_addresses.iter().flatten().map(AddressWire::view).collect(),
            ports: self.ports.iter().flatten().map(PortWire::view).collect(),
        }
    }
}

fn is_skipped(metadata: &MetaWire<'_>) -> bool {
    metadata.label(SKIP_MIRROR) == Some("true") || metadata.annotations.get(LEADER).is_some()
}

fn is_managed(metadata: &MetaWire<'_>) -> bool {
    metadata.label(MANAGED_BY) == Some(ENDPOINT_CONTROLLER)
}

fn read(subsets: &str) -> Result<Vec<SubsetWire<'_>>, serde_json::Error> {
    Ok(serde_json::from_str::<Option<_>>(subsets)?.unwrap_or_default())
}

fn decode(json: &str, interner: &mut Interner, keeps_managed: bool) -> Result<Endpoints, serde_json::Error> {
    let EndpointsWire { metadata, subsets } = serde_json::from_str(json)?;
    let raw = subsets.map_or("[]", RawValue::get);
    let subsets = Subsets(read(raw)?);
    let is_kept = !is_skipped(&metadata) && (keeps_managed || !is_managed(&metadata));
    let annotations = &metadata.annotations;
    let content = is_kept.then(|| Content { annotations: annotations.intern(interner), subsets: raw.into() });
    Ok(Endpoints {
        fingerprint: fingerprint(&subsets.views()),
        over_capacity: annotations.get(OVER_CAPACITY).map(|value| interner.string(value)),
        is_lock: annotations.get(LEADER).is_some(),
        content: content.map(Box::new),
        meta: metadata.into_meta(interner)?,
    })
}

impl Record for Endpoints {
    const RESOURCE: Resource = Resource { group: "", version: "v1", kind: "Endpoints", plural: "endpoints" };

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        decode(json, interner, false)
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn heap_bytes(&self) -> usize {
        let over_capacity = self.over_capacity.as_ref().map_or(0, |text| text.len());
        let content = self.content.as_deref().map_or(0, |content| {
            size_of_val(content) + content.annotations.shared_bytes() + content.subsets.len()
        });
        record::own_bytes(self) + over_capacity + content
    }
}

impl Endpoints {
    /// Whether the label says that the controller of Services with a selector writes it.
    pub fn is_managed(&self) -> bool {
        self.meta.labels.get(MANAGED_BY) == Some(ENDPOINT_CONTROLLER)
    }

    /// Whether EndpointSlices may mirror it: it is no lock of an election, and no label says otherwise.
    pub fn may_be_mirrored(&self) -> bool {
        !self.is_lock && self.meta.labels.get(SKIP_MIRROR) != Some("true")
    }
}

/// Endpoints with their content whoever writes them, as they are read past the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FullEndpoints(pub Endpoints);

impl Record for FullEndpoints {
    const RESOURCE: Resource = Endpoints::RESOURCE;

    fn decode(json: &str, interner: &mut Interner) -> Result<Self, serde_json::Error> {
        decode(json, interner, true).map(FullEndpoints)
    }

    fn meta(&self) -> &Meta {
        &self.0.meta
    }

    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(metadata: &str, subsets: &str) -> String {
        format!(
            r#"{{"metadata":{{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7"{metadata}}},
                "subsets":{subsets}}}"#
        )
    }

    fn of(subsets: &str) -> u64 {
        Endpoints::decode(&json("", subsets), &mut Interner::default()).unwrap().fingerprint
    }

    #[test]
    fn only_the_pairs_of_addresses_and_ports_count() {
        let both = r#"[{"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],
                        "ports":[{"name":"a","port":1},{"name":"b","port":2,"protocol":"TCP"}]}]"#;
        let turned = r#"[{"addresses":[{"ip":"10.0.0.2","nodeName":"","hostname":""},{"ip":"10.0.0.1"}],
                          "ports":[{"name":"b","port":2},{"name":"a","port":1,"protocol":"TCP"}]}]"#;
        let divided = r#"[{"addresses":[{"ip":"10.0.0.2"}],"ports":[{"name":"b","port":2},{"name":"a","port":1}]},
                          {"addresses":[{"ip":"10.0.0.1"}],"ports":[{"name":"b","port":2}]},
                          {"addresses":[{"ip":"10.0.0.1"}],"ports":[{"name":"a","port":1}]}]"#;
        assert_eq!((of(both), of(both)), (of(turned), of(divided)));
        for other in [
            "[]",
            r#"[{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"name":"a","port":1},{"name":"b","port":2}]}]"#,
            r#"[{"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}]}]"#,
            &both.replace("addresses", "notReadyAddresses"),
            &both.replace(r#""port":1"#, r#""port":1,"appProtocol":"h2c""#),
            &both.replace(r#""ip":"10.0.0.1""#, r#""ip":"10.0.0.1","nodeName":"n1""#),
            &both.replace(r#""ip":"10.0.0.1""#, r#""ip":"10.0.0.1","targetRef":{"kind":"Pod","name":"a"}"#),
        ] {
            assert_ne!(of(both), of(other), "{other}");
        }
        assert_eq!(of("null"), of("[]"));
    }

    #[test]
    fn the_version_of_a_pod_does_not_count() {
        let at = |version: &str| {
            of(&format!(
                r#"[{{"addresses":[{{"ip":"10.0.0.1","targetRef":{{"kind":"Pod","namespace":"shop","name":"a",
                    "uid":"u-a","resourceVersion":"{version}"}}}}]}}]"#
            ))
        };
        assert_eq!(at("1"), at("2"));
    }

    #[test]
    fn the_content_is_kept_where_it_may_be_mirrored() {
        let subsets = r#"[{"addresses":[{"ip":"010.0.0.1","nodeName":"n1","hostname":"h",
            "targetRef":{"kind":"Pod","namespace":"shop","name":"a","uid":"u-a"}}],
            "notReadyAddresses":[{"ip":"web.example.com"}],
            "ports":[{"name":"a","port":1,"appProtocol":"h2c"}]}]"#;
        let read = |metadata: &str| {
            let json = json(metadata, subsets);
            let cached = Endpoints::decode(&json, &mut Interner::default()).unwrap();
            let FullEndpoints(full) = FullEndpoints::decode(&json, &mut Interner::default()).unwrap();
            assert_eq!(cached.fingerprint, full.fingerprint);
            (cached, full)
        };
        let (cached, full) = read(r#","annotations":{"a":"b"}"#);
        assert!(cached == full && cached.may_be_mirrored() && !cached.is_managed());
        let content = cached.content.unwrap();
        assert_eq!(content.annotations.get("a"), Some("b"));
        let subsets = content.subsets();
        let [subset] = &subsets.views()[..] else { panic!("one subset") };
        assert_eq!(address(&subset.ready[0].ip), Some("10.0.0.1".parse().unwrap()));
        assert_eq!(subset.ready[0].target.as_ref().unwrap().name, "a");
        assert_eq!((address(&subset.not_ready[0].ip), subset.ports[0].app_protocol), (None, Some("h2c")));
        let (cached, full) =
            read(r#","labels":{"endpoints.kubernetes.io/managed-by":"endpoint-controller"}"#);
        assert!(cached.is_managed() && cached.content.is_none() && full.content.is_some());
        for metadata in [
            r#","labels":{"endpointslice.kubernetes.io/skip-mirror":"true"}"#,
            r#","annotations":{"control-plane.alpha.kubernetes.io/leader":"{}"}"#,
        ] {
            let (cached, full) = read(metadata);
            assert!(!cached.may_be_mirrored() && cached.content.is_none() && full.content.is_none());
        }
    }

    #[test]
    fn a_fingerprint_of_many_addresses_and_ports_takes_no_time() {
        let addresses: Vec<String> = (0..20_000)
            .map(|n| format!(r#"{{"ip":"10.{}.{}.{}"}}"#, n / 62_500, n / 250 % 250, n % 250))
            .collect();
        let ports: Vec<String> = (1..20_000).map(|n| format!(r#"{{"name":"p{n}","port":{n}}}"#)).collect();
        let subset = format!(r#"[{{"addresses":[{}],"ports":[{}]}}]"#, addresses.join(","), ports.join(","));
        assert_ne!(of(&subset), 0);
    }
}
