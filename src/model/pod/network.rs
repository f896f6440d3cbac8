//! The part of a pod that its Services publish.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use jiff::Timestamp;

use super::{ContainerWire, StatusWire};
use crate::model::intern::Interner;
use crate::model::meta::StringMap;
use crate::model::service::or_tcp;
use crate::model::wire::Text;

/// Addresses, named ports and the hostname of a pod. Most pods have one address and no hostname, and cost no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// The first of `status.podIPs`.
    first: Option<IpAddr>,
    /// The numbers of its named ports, by `protocol/name`. All pods of a template share them.
    ports: Option<Arc<StringMap>>,
    more: Option<Box<More>>,
}

/// The fields that few pods have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct More {
    addresses: Box<[IpAddr]>,
    hostname: Box<str>,
    subdomain: Option<Arc<str>>,
    unready_since: Option<Timestamp>,
}

/// The name by which a port is found.
fn port_key(protocol: &str, name: &str) -> String {
    format!("{}/{name}", or_tcp(protocol))
}

/// Reads an address as Go's sloppy parser does: numbers may begin with zeros, and an IPv4 address that is mapped to IPv6 is one of
/// IPv4. `None` for what is no address.
pub(in crate::model) fn parse(text: &str) -> Option<IpAddr> {
    let strict = || text.parse::<IpAddr>().ok().map(|address| address.to_canonical());
    let sloppy = || {
        let mut bytes = [0; 4];
        let mut parts = text.split('.');
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.bytes().all(|c| c.is_ascii_digit()))?;
            *byte = part.parse().ok()?;
        }
        parts.next().is_none().then(|| IpAddr::V4(Ipv4Addr::from(bytes)))
    };
    strict().or_else(sloppy)
}

impl Network {
    /// `containers` are those whose ports have names, in their order: of two of one name the first counts.
    pub(super) fn of<'a>(
        containers: impl Iterator<Item = &'a ContainerWire<'a>>,
        (hostname, subdomain): (&Text<'_>, &Text<'_>),
        status: &StatusWire<'_>,
        interner: &mut Interner,
    ) -> Self {
        let ports = containers.flat_map(|container| container.ports.iter().flatten());
        let named = ports.filter(|port| !port.name.as_str().is_empty());
        let mut ports: Vec<(String, String)> = named
            .map(|port| {
                let key = port_key(port.protocol.as_str(), port.name.as_str());
                (key, port.container_port.unwrap_or(0).to_string())
            })
            .collect();
        // Of several pairs with one key the map has the last.
        ports.reverse();
        let all = status.pod_ips.iter().flatten().map(|address| address.ip.as_str());
        let mut addresses = all.filter_map(parse).collect::<Vec<_>>().into_iter();
        let first = addresses.next().or_else(|| parse(status.pod_ip.as_str()));
        let since = || status.ready_condition().and_then(|ready| ready.last_transition_time);
        let is_ready = status.ready_condition().is_some_and(|ready| ready.status.as_str() == "True");
        let more = More {
            addresses: addresses.collect(),
            hostname: hostname.as_str().into(),
            subdomain: Some(subdomain.as_str())
                .filter(|name| !name.is_empty())
                .map(|name| interner.string(name)),
            unready_since: if is_ready || first.is_none() { None } else { since().map(|time| time.0) },
        };
        Network {
            first,
            ports: (!ports.is_empty()).then(|| interner.map(ports.into_iter().collect())),
            more: (more != More::default()).then(|| Box::new(more)),
        }
    }

    /// The addresses, in their order.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        let more = self.more.iter().flat_map(|more| more.addresses.iter().copied());
        self.first.into_iter().chain(more)
    }

    /// Whether it has any address.
    pub fn has_address(&self) -> bool {
        self.first.is_some()
    }

    /// Its named ports. Pods of one template share them, unless they are many.
    pub fn named_ports(&self) -> Option<&Arc<StringMap>> {
        self.ports.as_ref()
    }

    /// The number of a container's port with this name and protocol.
    pub fn port(&self, name: &str, protocol: &str) -> Option<i32> {
        self.ports.as_ref()?.get(&port_key(protocol, name))?.parse().ok()
    }

    /// `spec.hostname`, if it is not empty.
    pub fn hostname(&self) -> Option<&str> {
        self.more.as_deref().map(|more| &*more.hostname).filter(|hostname| !hostname.is_empty())
    }

    /// `spec.subdomain`, if it is not empty.
    pub fn subdomain(&self) -> Option<&str> {
        self.more.as_deref()?.subdomain.as_deref()
    }

    /// Since when a pod with an address is not ready.
    pub(super) fn unready_since(&self) -> Option<Timestamp> {
        self.more.as_deref()?.unready_since
    }

    /// The bytes of heap that it takes.
    pub(super) fn heap_bytes(&self) -> usize {
        let more = self.more.as_deref().map_or(0, |more| {
            let subdomain = more.subdomain.as_ref().map_or(0, |name| name.len());
            size_of_val(more) + size_of_val(&*more.addresses) + more.hostname.len() + subdomain
        });
        more + self.ports.as_ref().map_or(0, StringMap::shared_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Pod, Record as _};

    fn network(spec: &str, status: &str) -> Network {
        let json = format!(
            r#"{{"metadata":{{"name":"web-1","namespace":"shop","uid":"u","resourceVersion":"7"}},"spec":{spec},
                "status":{status}}}"#
        );
        Pod::decode(&json, &mut Interner::default()).unwrap().network
    }

    #[test]
    fn a_named_port_is_found_by_name_and_protocol_and_sidecars_come_last() {
        let spec = r#"{"initContainers":[
                {"name":"once","ports":[{"name":"once","containerPort":1}]},
                {"name":"proxy","restartPolicy":"Always","ports":[{"name":"http","containerPort":2},
                    {"name":"admin","containerPort":3,"protocol":"TCP"}]}],
            "containers":[
                {"name":"a","ports":[{"containerPort":4},{"name":"http","containerPort":8080},
                    {"name":"dns","containerPort":53,"protocol":"UDP"}]},
                {"name":"b","ports":[{"name":"http","containerPort":9090}]},{"name":"c","ports":null}]}"#;
        let network = network(spec, "{}");
        assert_eq!(network.port("http", "TCP"), Some(8080));
        assert_eq!((network.port("dns", "UDP"), network.port("dns", "TCP")), (Some(53), None));
        assert_eq!((network.port("admin", "TCP"), network.port("once", "TCP")), (Some(3), None));
        assert_eq!(network.port("", "TCP"), None);
    }

    #[test]
    fn addresses_are_normalised() {
        let addresses = |status: &str| {
            let network = network("{}", status);
            network.addresses().map(|address| address.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(addresses(r#"{"podIP":"10.0.0.1"}"#), ["10.0.0.1"]);
        assert_eq!(
            addresses(r#"{"podIPs":[{"ip":"010.0.0.1"},{"ip":"FD00:0::1"}]}"#),
            ["10.0.0.1", "fd00::1"]
        );
        assert_eq!(addresses(r#"{"podIPs":[{"ip":"::ffff:10.0.0.1"}]}"#), ["10.0.0.1"]);
        assert!(addresses(r#"{"podIP":"","podIPs":[{"ip":"10.0.0"},{"ip":"10.0.0.999"},{}]}"#).is_empty());
        assert!(addresses(r#"{"podIP":null,"podIPs":null}"#).is_empty());
    }

    #[test]
    fn a_ready_pod_with_one_address_allocates_nothing() {
        let ready = r#"{"podIPs":[{"ip":"10.0.0.1"}],"conditions":[{"type":"Ready","status":"True",
            "lastTransitionTime":"2026-01-01T00:00:00Z"}]}"#;
        let plain = network("{}", ready);
        assert_eq!((plain.heap_bytes(), size_of::<Network>()), (0, 40));
        let named = network(r#"{"hostname":"db-0","subdomain":"db"}"#, ready);
        assert_eq!((named.hostname(), named.subdomain()), (Some("db-0"), Some("db")));
        let unready = network("{}", &ready.replace("True", "False"));
        assert_eq!(unready.unready_since(), Some("2026-01-01T00:00:00Z".parse().unwrap()));
    }
}
