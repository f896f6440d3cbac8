//! The addresses and node ports that Services hold. They follow from the stored Services, in the critical section of each
//! write, so that they are right after a restore too, and that a new Service costs the same among thousands.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::Value;

/// Under which name the store keeps Services.
pub(super) const SERVICE: &str = "Service";

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) addresses: BTreeSet<Ipv4Addr>,
    pub(crate) ports: BTreeSet<i64>,
}

impl Held {
    pub(super) fn follow(&mut self, before: Option<&Value>, after: Option<&Value>) {
        if let Some(before) = before {
            for address in addresses(before) {
                self.addresses.remove(&address);
            }
            for port in node_ports(before) {
                self.ports.remove(&port);
            }
        }
        if let Some(after) = after {
            self.addresses.extend(addresses(after));
            self.ports.extend(node_ports(after));
        }
    }
}

fn addresses(service: &Value) -> impl Iterator<Item = Ipv4Addr> {
    let all = service["spec"]["clusterIPs"].as_array().into_iter().flatten();
    all.filter_map(|address| address.as_str()?.parse().ok())
}

/// The node ports of a Service, that of its health check included.
fn node_ports(service: &Value) -> impl Iterator<Item = i64> {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
    ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_i64).filter(|port| *port != 0)
}
